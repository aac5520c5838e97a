/* Time against length on logarithmic axes, with what the count promises beside what was measured. */
#include <math.h>
#include <stdio.h>
#include "bench.h"

enum { WIDTH = 920, HEIGHT = 560, LEFT = 80, RIGHT = 640, TOP = 70, BOTTOM = 490 };

static const char *const COLOURS[] = {"#1f5fa8", "#c8501e", "#2e8540", "#7b3fa0", "#b8860b", "#0b7a8a", "#a8324a", "#5b6570"};

typedef struct axes {
    double low_n, high_n, low_t, high_t;
} axes;

static double x_of(const axes *a, double n)
{
    return LEFT + (RIGHT - LEFT) * (log(n) - log(a->low_n)) / fmax(1e-9, log(a->high_n) - log(a->low_n));
}

static double y_of(const axes *a, double seconds)
{
    return BOTTOM - (BOTTOM - TOP) * (log(seconds) - log(a->low_t)) / fmax(1e-9, log(a->high_t) - log(a->low_t));
}

static axes axes_of(const bench_chart *c)
{
    axes a = {(double)c->n[0], (double)c->n[c->lengths - 1], 1e300, 0};
    for (int64_t v = 0; v < c->count; v++)
        for (int64_t i = 0; i < c->lengths; i++) {
            a.low_t = fmin(a.low_t, c->lines[v].seconds[i]);
            a.high_t = fmax(a.high_t, c->lines[v].seconds[i]);
        }
    a.low_t = pow(10, floor(log10(a.low_t)));
    a.high_t = pow(10, ceil(log10(a.high_t)));
    return a;
}

static void draw_grid(FILE *f, const axes *a)
{
    for (double t = a->low_t; t <= a->high_t * 1.001; t *= 10) {
        double y = y_of(a, t);
        fprintf(f, "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#e7eaee'/>\n", LEFT, y, RIGHT, y);
        const char *unit = t < 0.999 ? "ms" : "s";
        fprintf(f, "<text x='%d' y='%.1f' text-anchor='end' fill='#5b6570'>%g %s</text>\n", LEFT - 8, y + 4, t < 0.999 ? t * 1e3 : t, unit);
    }
    for (double n = a->low_n; n <= a->high_n * 1.001; n *= 2) {
        double x = x_of(a, n);
        fprintf(f, "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#e7eaee'/>\n", x, TOP, x, BOTTOM);
        fprintf(f, "<text x='%.1f' y='%d' text-anchor='middle' fill='#5b6570'>%g</text>\n", x, BOTTOM + 18, n);
    }
}

static void draw_line(FILE *f, const axes *a, const bench_chart *c, int64_t v)
{
    const char *colour = COLOURS[v % 8];
    const bench_line *line = &c->lines[v];
    int64_t last = c->lengths - 1;
    fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colour);
    for (int64_t i = 0; i <= last; i++) fprintf(f, "%.1f,%.1f ", x_of(a, (double)c->n[i]), y_of(a, line->seconds[i]));
    fprintf(f, "'/>\n");
    for (int64_t i = 0; i <= last; i++)
        fprintf(f, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/>\n", x_of(a, (double)c->n[i]), y_of(a, line->seconds[i]), colour);
    double slope = last > 0 ? bench_slope(c->n[last - 1], line->seconds[last - 1], c->n[last], line->seconds[last]) : 0;
    double y = TOP + 16 + 34 * (double)v;
    fprintf(f, "<rect x='%d' y='%.1f' width='14' height='4' fill='%s'/>\n", RIGHT + 24, y - 6, colour);
    fprintf(f, "<text x='%d' y='%.1f' fill='#24292f'>%s</text>\n", RIGHT + 46, y, line->name);
    fprintf(f, "<text x='%d' y='%.1f' fill='#5b6570' font-size='11'>%s %s, time ~ n^%.2f at the end</text>\n", RIGHT + 46, y + 14,
            c->quantity, line->formula, slope);
}

int bench_draw(const char *path, const bench_chart *c)
{
    FILE *f = fopen(path, "w");
    if (f == NULL) return 1;
    const axes a = axes_of(c);
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' font-size='13'>\n", WIDTH, HEIGHT);
    fprintf(f, "<rect width='%d' height='%d' fill='white'/>\n", WIDTH, HEIGHT);
    fprintf(f, "<text x='%d' y='30' font-size='18' fill='#24292f'>%s: forward and backward against length</text>\n", LEFT, c->title);
    fprintf(f, "<text x='%d' y='50' fill='#5b6570'>one sequence; both axes logarithmic: the slope of a line is the power of n</text>\n",
            LEFT);
    draw_grid(f, &a);
    for (int64_t v = 0; v < c->count; v++) draw_line(f, &a, c, v);
    fprintf(f, "<text x='%d' y='%d' text-anchor='middle' fill='#24292f'>tokens</text>\n</svg>\n", (LEFT + RIGHT) / 2, BOTTOM + 42);
    int failed = ferror(f);
    return fclose(f) != 0 || failed;
}

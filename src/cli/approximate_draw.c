#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "approximate.h"
#include "picture.h"

/* the picture, and the plot in it */
enum { WIDTH = 960, HEIGHT = 600, LEFT = 92, RIGHT = 924, TOP = 108, BOTTOM = 520, LETTER = 7, LINE = 15 };
#define INK "#24292f"
#define QUIET "#5b6570"
#define GRID "#e7eaee"
#define LEAST_ERROR 1e-3 /* what is nearer lies on the lowest line */
static const char *const COLOURS[] = {INK,       "#1f5fa8", "#2e8540", "#7b3fa0", "#b8860b",
                                      "#0b7a8a", "#a8324a", "#5b6570", "#c8501e", "#3f6b00"}; /* by kind */

typedef struct axes {
    double low, high;   /* seconds, as powers of ten below and above */
    double least, most; /* errors */
} axes;

static axes choose_axes(const variants *v)
{
    axes a = {INFINITY, 0, LEAST_ERROR, 1};
    for (int i = 0; i < v->count; i++) {
        a.low = fmin(a.low, v->at[i].seconds[1]);
        a.high = fmax(a.high, v->at[i].seconds[1]);
        if (isfinite(v->at[i].error)) a.most = fmax(a.most, v->at[i].error);
    }
    a.low /= 1.5;
    a.high *= 2.5; /* room for labels */
    a.most *= 2;
    return a;
}

static double across(const axes *a, double seconds)
{
    return LEFT + (RIGHT - LEFT) * log(seconds / a->low) / log(a->high / a->low);
}

static double down(const axes *a, double error)
{
    if (!isfinite(error)) error = a->most;
    return BOTTOM - (BOTTOM - TOP) * log(fmax(error, a->least) / a->least) / log(a->most / a->least);
}

static void put_axes(picture *p, const axes *a)
{
    static const double steps[3] = {1, 2, 5};
    for (double power = pow(10, floor(log10(a->low))); power < a->high; power *= 10)
        for (int i = 0; i < 3; i++) {
            double seconds = power * steps[i], x = across(a, seconds);
            if (seconds < a->low || seconds > a->high) continue;
            const double unit = seconds < 0.9999e-3 ? 1e6 : seconds < 0.9999 ? 1e3 : 1;
            put(p, "<path d=\"M%.1f %dV%d\" stroke=\"" GRID "\"/>\n<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g %s</text>\n", x,
                TOP, BOTTOM, x, BOTTOM + 22, seconds * unit,
                unit > 1e5 ? "\xC2\xB5s"
                : unit > 1 ? "ms"
                           : "s");
        }
    for (double error = a->least; error < a->most; error *= 10) {
        double y = down(a, error);
        put(p, "<path d=\"M%d %.1fH%d\" stroke=\"" GRID "\"/>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s%.4g %%</text>\n", LEFT, y,
            RIGHT, LEFT - 10, y + 4.5, error <= a->least ? "\xE2\x89\xA4 " : "", 100 * error);
    }
    put(p, "<path d=\"M%d %dH%d\" stroke=\"#9aa3ad\"/>\n", LEFT, BOTTOM, RIGHT);
    put(p, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">time of forward and backward</text>\n", (LEFT + RIGHT) / 2, BOTTOM + 48);
    put(p, "<text transform=\"translate(22 %d) rotate(-90)\" text-anchor=\"middle\">error of the output</text>\n", (TOP + BOTTOM) / 2);
}

/* what the two lines mean that matter: the time of exact attention, and the error of an output of zeros */
static void put_limits(picture *p, const axes *a, const variants *v)
{
    double x = across(a, v->at[0].seconds[1]), y = down(a, 1);
    put(p, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#f4f5f7\"/>\n", x, TOP, RIGHT - x, BOTTOM - TOP);
    put(p, "<path d=\"M%.1f %dV%d\" stroke=\"" INK "\" stroke-dasharray=\"5 4\"/>\n", x, TOP, BOTTOM);
    put(p, "<text x=\"%.1f\" y=\"%d\" font-size=\"12\" text-anchor=\"end\">faster than exact \xE2\x86\x90</text>\n", x - 8, TOP - 8);
    put(p, "<text x=\"%.1f\" y=\"%d\" font-size=\"12\">\xE2\x86\x92 slower: no gain</text>\n", x + 8, TOP - 8);
    put(p, "<path d=\"M%d %.1fH%d\" stroke=\"#a8324a\" stroke-dasharray=\"5 4\"/>\n", LEFT, y, RIGHT);
    put(p, "<text x=\"%d\" y=\"%.1f\" font-size=\"12\" fill=\"#a8324a\" text-anchor=\"end\">as far off as zeros</text>\n", RIGHT - 6,
        y - 5);
}

typedef struct box {
    double x, y, width;
} box;

static int overlap(const box *a, const box *b)
{
    return a->x < b->x + b->width && b->x < a->x + a->width && fabs(a->y - b->y) < LINE - 1;
}

/* a place for a label beside its point, on the nearest line that is free of those before it */
static box place(const box *taken, int count, double x, double y, double width)
{
    box b = {x + 9, y + 4, width};
    for (int tries = 0; tries < 60; tries++) {
        b.x = tries % 2 == 0 ? x + 9 : x - 9 - width;
        b.y = y + 4 + (tries / 4 % 2 == 0 ? 1 : -1) * LINE * ((tries / 2 + 1) / 2) * 0.5;
        if (b.x < LEFT || b.x + width > WIDTH - 4 || b.y > BOTTOM - 2 || b.y < TOP + 10) continue;
        int free = 1;
        for (int i = 0; free && i < count; i++) free = !overlap(&b, &taken[i]);
        if (free) break;
    }
    return b;
}

static void put_points(picture *p, const axes *a, const variants *v)
{
    box taken[2 * MOST_VARIANTS + 1] = {{RIGHT - 140, down(a, 1) - 5, 140}}; /* the words of put_limits */
    int count = 1;
    for (int i = 0; i + 1 < v->count; i++) /* sizes of one kind hang together */
        if (v->at[i].kind == v->at[i + 1].kind)
            put(p, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-opacity=\"0.35\" stroke-width=\"2\"/>\n",
                across(a, v->at[i].seconds[1]), down(a, v->at[i].error), across(a, v->at[i + 1].seconds[1]), down(a, v->at[i + 1].error),
                COLOURS[v->at[i].kind]);
    for (int i = 0; i < v->count; i++) taken[count++] = (box){across(a, v->at[i].seconds[1]) - 5, down(a, v->at[i].error) + 4, 10};
    for (int i = 0; i < v->count; i++) {
        const variant *one = &v->at[i];
        double x = across(a, one->seconds[1]), y = down(a, one->error);
        size_t letters = 0;
        while (one->name[letters] != 0) letters++;
        box b = place(taken, count, x, y, LETTER * (double)letters);
        taken[count++] = b;
        if (fabs(b.y - 4 - y) > 3)
            put(p, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"#9aa3ad\" stroke-width=\"0.8\"/>\n", x, y, b.x > x ? b.x - 1 : b.x + b.width,
                b.y - 4);
        if (i == 0)
            put(p, "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>\n", x - 5.5, y - 5.5, COLOURS[0]);
        else
            put(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\" stroke=\"#fff\"/>\n", x, y, COLOURS[one->kind]);
        put(p,
            "<text x=\"%.1f\" y=\"%.1f\" font-size=\"12\" fill=\"%s\" stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\"%s>%s</text>\n",
            b.x, b.y, COLOURS[one->kind], i == 0 ? " font-weight=\"600\"" : "", one->name);
    }
}

char *draw_variants(const variants *v, const char *title, const char *subtitle)
{
    picture p = {NULL, 0, 0, 0};
    const axes a = choose_axes(v);
    put(&p,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
        "font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" font-size=\"13\" fill=\"" QUIET "\">\n<title>",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(&p, title);
    put(&p,
        "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"24\" y=\"34\" font-size=\"19\" font-weight=\"600\" fill=\"" INK
        "\">",
        WIDTH, HEIGHT);
    put_text(&p, title);
    put(&p, "</text>\n<text x=\"24\" y=\"56\">");
    put_text(&p, subtitle);
    put(&p, "</text>\n<text x=\"24\" y=\"75\">Both axes are logarithmic. Good is low and left: near the exact output, and cheap.</text>\n");
    put_limits(&p, &a, v);
    put_axes(&p, &a);
    put_points(&p, &a, v);
    put(&p, "</svg>\n");
    if (!p.failed) return p.at;
    free(p.at);
    return NULL;
}

#include "chart.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include "picture.h"
#include "terminal.h"

#define TRAIN_RAW "#bcd0e8"
#define TRAIN "#1f5fa8"
#define VALID "#c8501e"
#define INK "#24292f"
#define QUIET "#5b6570"
#define GRID "#e7eaee"

/* the picture, and the plot in it */
enum { WIDTH = 880, HEIGHT = 500, LEFT = 72, RIGHT = 760, TOP = 84, BOTTOM = 440 };

/* One number of the log along the steps. */
typedef struct curve {
    size_t field; /* of log_entry */
    const char *color, *legend;
    int legend_x;
    double thickness;
    int smoothed, dots; /* dots: where it was measured */
    const char *name;   /* beside its last value; NULL: not written (the last two curves have one) */
} curve;

enum { CURVES = 3 };
typedef struct chart_kind {
    const char *axis;
    int percent, count; /* percent: from 0 on */
    curve curves[CURVES];
} chart_kind;

static const chart_kind kinds[] = {
    [CHART_LOSS] = {"loss, nats a token",
                    0,
                    3,
                    {{offsetof(log_entry, loss), TRAIN_RAW, "training, single steps", RIGHT - 430, 1.2, 0, 0, NULL},
                     {offsetof(log_entry, loss), TRAIN, "training, smoothed", RIGHT - 258, 2.2, 1, 0, "training"},
                     {offsetof(log_entry, valid_loss), VALID, "validation", RIGHT - 104, 2.2, 0, 1, "validation"}}},
    [CHART_ERRORS] = {"error rate of the validation pairs, %",
                      1,
                      2,
                      {{offsetof(log_entry, word_error), VALID, "words", RIGHT - 180, 2.2, 0, 1, "words"},
                       {offsetof(log_entry, token_error), TRAIN, "tokens", RIGHT - 88, 2.2, 0, 1, "tokens"}}},
};

typedef struct axes {
    double low, high, tick;
    int64_t steps, step_tick;
} axes;

/* 1, 2 or 5 times a power of ten, so that `span` has about `count` of them */
static double round_tick(double span, int count)
{
    double rough = span / count, power = pow(10, floor(log10(rough))), rest = rough / power;
    return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

static double measured(const run_log *log, int64_t i, const curve *c)
{
    return *(const double *)((const char *)&log->at[i] + c->field);
}

static axes choose_axes(const run_log *log, int64_t steps, const chart_kind *kind)
{
    axes a = {kind->percent ? 0 : INFINITY, -INFINITY, 0, steps, 0};
    for (int64_t i = 0; i < log->count; i++) {
        for (int j = 0; j < kind->count; j++) {
            double value = measured(log, i, &kind->curves[j]);
            if (!isfinite(value)) continue;
            a.low = fmin(a.low, value);
            a.high = fmax(a.high, value);
        }
        if (log->at[i].step > a.steps) a.steps = log->at[i].step;
    }
    if (a.low > a.high) a.low = 0, a.high = 1;
    if (a.high - a.low < 1e-3) a.low -= 0.05, a.high += 0.05;
    a.tick = round_tick(a.high - a.low, 6);
    a.low = a.tick * floor(a.low / a.tick);
    a.high = a.tick * ceil(a.high / a.tick);
    if (a.steps < 1) a.steps = 1;
    a.step_tick = (int64_t)fmax(1, round_tick((double)a.steps, 8));
    return a;
}

static double across(const axes *a, int64_t step)
{
    return LEFT + (double)(RIGHT - LEFT) * (double)step / (double)a->steps;
}
static double down(const axes *a, double value)
{
    return BOTTOM - (BOTTOM - TOP) * (value - a->low) / (a->high - a->low);
}

static void put_axes(picture *p, const axes *a, const char *title)
{
    char number[32];
    int digits = a->tick >= 0.999 ? 0 : (int)ceil(-log10(a->tick) - 1e-9);
    for (int i = 0; i <= (int)lround((a->high - a->low) / a->tick); i++) {
        double value = a->low + i * a->tick, y = down(a, value);
        put(p, "<path d=\"M%d %.1fH%d\" stroke=\"" GRID "\"/>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", LEFT, y, RIGHT,
            LEFT - 10, y + 4.5, digits, value + 0.0);
    }
    for (int64_t step = 0; step <= a->steps; step += a->step_tick) {
        double x = across(a, step);
        put(p, "<path d=\"M%.1f %dV%d\" stroke=\"" GRID "\"/>\n<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, TOP,
            BOTTOM, x, BOTTOM + 22, readable_count(step, number));
    }
    put(p, "<path d=\"M%d %dH%d\" stroke=\"#9aa3ad\"/>\n", LEFT, BOTTOM, RIGHT);
    put(p, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", (LEFT + RIGHT) / 2, BOTTOM + 46);
    put(p, "<text transform=\"translate(22 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n", (TOP + BOTTOM) / 2, title);
}

/* the mean of the neighbours, nearer ones counting more */
static double smooth(const run_log *log, int64_t i, const curve *c)
{
    int64_t reach = log->count / 30;
    double sum = 0, weights = 0;
    for (int64_t j = i - reach; j <= i + reach; j++) {
        if (j < 0 || j >= log->count || !isfinite(measured(log, j, c))) continue;
        double weight = (double)(reach + 1 - llabs(i - j));
        sum += weight * measured(log, j, c);
        weights += weight;
    }
    return weights > 0 ? sum / weights : NAN;
}

static double value_at(const run_log *log, int64_t i, const curve *c)
{
    return c->smoothed ? smooth(log, i, c) : measured(log, i, c);
}

static void put_curve(picture *p, const run_log *log, const axes *a, const curve *c)
{
    int points = 0;
    put(p, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linejoin=\"round\" stroke-linecap=\"round\" d=\"", c->color,
        c->thickness);
    for (int64_t i = 0; i < log->count; i++) {
        double value = value_at(log, i, c);
        if (!isfinite(value)) continue;
        put(p, "%s%.1f %.1f", points++ == 0 ? "M" : "L", across(a, log->at[i].step), down(a, value));
    }
    if (points == 0) put(p, "M0 0");
    if (points == 1) put(p, "h0.1"); /* a dot */
    put(p, "\"/>\n");
    for (int64_t i = 0; c->dots && i < log->count; i++)
        if (isfinite(measured(log, i, c)))
            put(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" fill=\"%s\"/>\n", across(a, log->at[i].step), down(a, measured(log, i, c)),
                c->color);
}

/* the last value that is there; 0: none */
static int last_value(const run_log *log, const curve *c, int64_t *step, double *value)
{
    for (int64_t i = log->count - 1; i >= 0; i--) {
        *value = value_at(log, i, c);
        *step = log->at[i].step;
        if (isfinite(*value)) return 1;
    }
    return 0;
}

/* the last values, beside the ends of their curves and clear of each other */
static void put_ends(picture *p, const run_log *log, const axes *a, const chart_kind *kind)
{
    const curve *at = kind->curves + (kind->count - 2); /* two are named */
    double value[2], y[2] = {0, 0};
    int64_t step[2];
    int there[2];
    for (int i = 0; i < 2; i++) {
        there[i] = last_value(log, &at[i], &step[i], &value[i]);
        if (there[i]) y[i] = down(a, value[i]);
    }
    double gap = 36 - fabs(y[0] - y[1]);
    if (there[0] && there[1] && gap > 0) {
        int lower = y[0] > y[1] ? 0 : 1;
        y[lower] += gap / 2;
        y[1 - lower] -= gap / 2;
        double over = fmax(0, y[lower] - (BOTTOM - 24));
        y[lower] -= over;
        y[1 - lower] -= over;
    }
    for (int i = 0; i < 2; i++) {
        if (!there[i]) continue;
        double x = across(a, step[i]);
        put(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" stroke=\"#fff\" stroke-width=\"1.5\"/>\n", x, down(a, value[i]),
            at[i].color);
        put(p, "<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\"><tspan font-size=\"16\" font-weight=\"600\">", x + 12, y[i] + 2, at[i].color);
        put(p, kind->percent ? "%.2f %%" : "%.3f", value[i]);
        put(p, "</tspan>");
        put(p, "<tspan x=\"%.1f\" dy=\"15\" font-size=\"12\">%s</tspan></text>\n", x + 12, at[i].name);
    }
}

static void put_legend(picture *p, const chart_kind *kind)
{
    for (int i = 0; i < kind->count; i++) {
        const curve *c = &kind->curves[i];
        put(p, "<path d=\"M%d %dh22\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n", c->legend_x, TOP - 18, c->color, c->thickness);
        if (c->dots) put(p, "<circle cx=\"%d\" cy=\"%d\" r=\"3.2\" fill=\"%s\"/>\n", c->legend_x + 11, TOP - 18, c->color);
        put(p, "<text x=\"%d\" y=\"%d\" font-size=\"12\">%s</text>\n", c->legend_x + 28, TOP - 14, c->legend);
    }
}

char *draw_chart(const run_log *log, int64_t steps, int which, const chart_words *words)
{
    picture p = {NULL, 0, 0, 0};
    const chart_kind *kind = &kinds[which];
    axes a = choose_axes(log, steps, kind);
    put(&p,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
        "font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" font-size=\"13\" fill=\"" QUIET "\">\n<title>",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(&p, words->title);
    put(&p, "</title>\n<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"10\" fill=\"#fff\" stroke=\"#d8dde3\"/>\n", WIDTH - 1,
        HEIGHT - 1);
    put(&p, "<text x=\"%d\" y=\"32\" font-size=\"18\" font-weight=\"600\" fill=\"" INK "\">", 24);
    put_text(&p, words->title);
    put(&p, "</text>\n<text x=\"24\" y=\"52\" font-size=\"12.5\">");
    put_text(&p, words->subtitle);
    put(&p, "</text>\n");
    put_axes(&p, &a, kind->axis);
    for (int i = 0; i < kind->count; i++) put_curve(&p, log, &a, &kind->curves[i]);
    put_ends(&p, log, &a, kind);
    put_legend(&p, kind);
    put(&p, "</svg>\n");
    if (!p.failed) return p.at;
    free(p.at);
    return NULL;
}

#include <stdio.h>
#include "bench_layers.h"

enum { MOST_LAYERS = 8, MOST_LENGTHS = 16 };
enum { LINES, JSON, MARKDOWN };

/* layers that were measured, each at every length */
typedef struct results {
    const bench_layer *layer[MOST_LAYERS];
    bench_layer_point points[MOST_LAYERS][MOST_LENGTHS];
    int64_t n[MOST_LENGTHS];
    int64_t layers, lengths;
} results;

static double slope_of(const bench_layer_point *p, int64_t at, int both)
{
    if (at == 0) return 0;
    const bench_layer_point *from = p + at - 1, *to = p + at;
    return bench_slope(from->n, both ? from->both : from->forward, to->n, both ? to->both : to->forward);
}

/* the point `at` of a layer's points */
static void print_json(const bench_layer *layer, const bench_layer_point *points, int64_t at)
{
    const bench_layer_point *p = points + at;
    printf("{\"layer\":\"%s\",\"n\":%lld,\"forward_ms\":%.4f,\"both_ms\":%.4f,\"forward_slope\":%.3f,\"both_slope\":%.3f,", layer->name,
           (long long)p->n, 1e3 * p->forward, 1e3 * p->both, slope_of(points, at, 0), slope_of(points, at, 1));
    printf("\"products\":%lld,\"counted\":%lld,\"counted_both\":%lld,\"steps\":%lld,\"path\":%lld,\"dilated\":%lld}\n",
           (long long)p->products, (long long)p->counted, (long long)p->counted_both, (long long)p->steps, (long long)p->path,
           (long long)p->dilated);
}

static void print_line(const bench_layer *layer, const bench_layer_point *points, int64_t at)
{
    const bench_layer_point *p = points + at;
    printf("%-14s n %6lld  forward %10.3f ms  slope %5.2f  with backward %10.3f ms  slope %5.2f  multiply-adds %14lld", layer->name,
           (long long)p->n, 1e3 * p->forward, slope_of(points, at, 0), 1e3 * p->both, slope_of(points, at, 1), (long long)p->products);
    if (p->counted > 0) printf(" (counted %lld)", (long long)p->counted);
    printf("  steps %lld  path %lld", (long long)p->steps, (long long)p->path);
    if (p->dilated > 0) printf(" (dilated %lld)", (long long)p->dilated);
    printf("\n");
}

/* a cell of a table, four digits or whole; 0: there is no number */
static void print_cell(double value)
{
    if (value > 0)
        printf(value < 1000 ? " %.4g |" : " %.0f |", value);
    else
        printf(" - |");
}

/* Table 3.1 at the longest length */
static void print_costs(const results *r)
{
    const int64_t last = r->lengths - 1;
    printf(
        "| layer | complexity | multiply-adds, forward | at %lld, in 10^9 | counted | counted, with backward | sequential steps | path length |\n",
        (long long)r->n[last]);
    printf("|---|---|---|---:|---:|---:|---:|---:|\n");
    for (int64_t i = 0; i < r->layers; i++) {
        const bench_layer_point *p = &r->points[i][last];
        printf("| %s | %s | %s |", r->layer[i]->name, r->layer[i]->complexity, r->layer[i]->products);
        print_cell(1e-9 * (double)p->products);
        print_cell(1e-9 * (double)p->counted);
        print_cell(1e-9 * (double)p->counted_both);
        printf(" %lld | %lld", (long long)p->steps, (long long)p->path);
        if (p->dilated > 0) printf("; dilated %lld", (long long)p->dilated);
        printf(" |\n");
    }
}

/* milliseconds, lengths side by side, and the slope at the end */
static void print_times(const results *r)
{
    const int64_t last = r->lengths - 1;
    printf("\n| layer | ms |");
    for (int64_t i = 0; i < r->lengths; i++) printf(" %lld |", (long long)r->n[i]);
    printf(" slope |\n|---|---|");
    for (int64_t i = 0; i <= r->lengths; i++) printf("---:|");
    printf("\n");
    for (int64_t v = 0; v < r->layers; v++)
        for (int both = 0; both < 2; both++) {
            printf("| %s | %s |", r->layer[v]->name, both ? "with backward" : "forward");
            for (int64_t i = 0; i < r->lengths; i++) print_cell(1e3 * (both ? r->points[v][i].both : r->points[v][i].forward));
            printf(" %.2f |\n", slope_of(r->points[v], last, both));
        }
}

static int wrong(const char *got)
{
    fprintf(
        stderr,
        "attn-bench: layers: got \"%s\", expected --layers NAME,NAME --from N --to N --width N --heads N --window N --taps N --threads N "
        "--seconds X --json --markdown --svg FILE\n",
        got);
    return 2;
}

static int draw(const results *r, const char *svg)
{
    double seconds[MOST_LAYERS][MOST_LENGTHS];
    bench_line lines[MOST_LAYERS];
    for (int64_t v = 0; v < r->layers; v++) {
        for (int64_t i = 0; i < r->lengths; i++) seconds[v][i] = r->points[v][i].both;
        lines[v] = (bench_line){r->layer[v]->name, r->layer[v]->complexity, seconds[v]};
    }
    const bench_chart chart = {"Layers", "cost", r->lengths, r->layers, r->n, lines};
    if (bench_draw(svg, &chart) == 0) return 0;
    fprintf(stderr, "attn-bench: layers: %s cannot be written\n", svg);
    return 1;
}

static int run_all(const bench_layers_run *run, const char *list, int64_t from, int64_t to, int32_t form, const char *svg)
{
    static results r;
    for (int64_t at = from; at <= to && r.lengths < MOST_LENGTHS; at *= 2) r.n[r.lengths++] = at;
    for (const bench_layer *layer = bench_layer_table; layer->name != NULL; layer++) {
        if (!bench_chosen(list, layer->name)) continue;
        bench_layer_point *points = r.points[r.layers];
        for (int64_t i = 0; i < r.lengths; i++) {
            points[i] = bench_layer_measure(run, layer, r.n[i]);
            if (form == JSON) print_json(layer, points, i);
            if (form == LINES) print_line(layer, points, i);
            fflush(stdout);
        }
        r.layer[r.layers++] = layer;
    }
    if (r.layers == 0) return wrong(list);
    if (form == MARKDOWN) print_costs(&r), print_times(&r);
    return svg != NULL ? draw(&r, svg) : 0;
}

int bench_layers(int argc, char **argv)
{
    bench_layers_run run = {.width = 512, .heads = 8, .window = 512, .taps = 3, .seconds = 0.5};
    const char *list = NULL, *svg = NULL;
    int64_t from = 64, to = 16384;
    int json = 0, markdown = 0;
    const bench_option options[] = {{"--json", BENCH_FLAG, &json},
                                    {"--markdown", BENCH_FLAG, &markdown},
                                    {"--layers", BENCH_TEXT, &list},
                                    {"--svg", BENCH_TEXT, &svg},
                                    {"--from", BENCH_INT64, &from},
                                    {"--to", BENCH_INT64, &to},
                                    {"--width", BENCH_INT64, &run.width},
                                    {"--heads", BENCH_INT64, &run.heads},
                                    {"--window", BENCH_INT64, &run.window},
                                    {"--taps", BENCH_INT32, &run.taps},
                                    {"--threads", BENCH_INT32, &run.threads},
                                    {"--seconds", BENCH_REAL, &run.seconds},
                                    {NULL, 0, NULL}};
    const char *unknown = bench_options(argc, argv, options);
    if (unknown != NULL) return wrong(unknown);
    /* widths and lengths that keep n d^2 and n^2 d far below 2^63 */
    if (from < 1 || to < from || to > 1 << 20 || run.width < 1 || run.width > 1 << 16 || run.heads < 1 || run.width % run.heads != 0 ||
        run.window < 2 || run.taps < 2 || run.taps > 64 || run.threads < 0 || !(run.seconds >= 0))
        return wrong("a number out of range");
    return run_all(&run, list, from, to, json ? JSON : markdown ? MARKDOWN : LINES, svg);
}

#include <stdio.h>
#include "bench_attention.h"

enum { MOST_VARIANTS = 16, MOST_LENGTHS = 16 };

static void print_point(const bench_variant *v, const bench_point *p, const bench_point *before, int json)
{
    double slope = before != NULL ? bench_slope(before->n, before->seconds, p->n, p->seconds) : 0;
    if (json)
        printf(
            "{\"variant\":\"%s\",\"n\":%lld,\"ms\":%.4f,\"bytes\":%lld,\"process_bytes\":%lld,\"seen\":%lld,\"listed\":%lld,\"slope\":%.3f}\n",
            v->name, (long long)p->n, 1e3 * p->seconds, (long long)p->bytes, (long long)p->process_bytes, (long long)p->seen,
            (long long)p->listed, slope);
    else
        printf("%-12s n %6lld  %10.2f ms  %7.1f MiB  pairs %12lld (listed %12lld, %s)  slope %.2f\n", v->name, (long long)p->n,
               1e3 * p->seconds, (double)p->bytes / 1048576, (long long)p->seen, (long long)p->listed, v->pairs, slope);
    fflush(stdout);
}

static int wrong(const char *got)
{
    fprintf(
        stderr,
        "attn-bench: attention: got \"%s\", expected --variants NAME,NAME --from N --to N --heads N --size N --threads N --seconds X --json "
        "--svg FILE\n",
        got);
    return 2;
}

static int run_all(const bench_attention_run *run, const char *list, int64_t from, int64_t to, int json, const char *svg)
{
    double seconds[MOST_VARIANTS][MOST_LENGTHS];
    int64_t n[MOST_LENGTHS], lengths = 0, variants = 0;
    bench_line lines[MOST_VARIANTS];
    for (int64_t at = from; at <= to && lengths < MOST_LENGTHS; at *= 2) n[lengths++] = at;
    for (const bench_variant *v = bench_variants; v->name != NULL; v++) {
        bench_point point, before;
        if (!bench_chosen(list, v->name)) continue;
        for (int64_t i = 0; i < lengths; i++, before = point) {
            point = bench_attention_point(run, v, n[i]);
            print_point(v, &point, i > 0 ? &before : NULL, json);
            seconds[variants][i] = point.seconds;
        }
        lines[variants] = (bench_line){v->name, v->pairs, seconds[variants]};
        variants++;
    }
    if (variants == 0) return wrong(list);
    const bench_chart chart = {"Attention", "pairs", lengths, variants, n, lines};
    if (svg == NULL || bench_draw(svg, &chart) == 0) return 0;
    fprintf(stderr, "attn-bench: attention: %s cannot be written\n", svg);
    return 1;
}

int bench_attention(int argc, char **argv)
{
    bench_attention_run run = {.heads = 1, .size = 64, .seconds = 0.5};
    const char *list = NULL, *svg = NULL;
    int64_t from = 256, to = 65536;
    int json = 0;
    const bench_option options[] = {{"--json", BENCH_FLAG, &json},
                                    {"--variants", BENCH_TEXT, &list},
                                    {"--svg", BENCH_TEXT, &svg},
                                    {"--from", BENCH_INT64, &from},
                                    {"--to", BENCH_INT64, &to},
                                    {"--heads", BENCH_INT64, &run.heads},
                                    {"--size", BENCH_INT64, &run.size},
                                    {"--threads", BENCH_INT32, &run.threads},
                                    {"--seconds", BENCH_REAL, &run.seconds},
                                    {NULL, 0, NULL}};
    const char *unknown = bench_options(argc, argv, options);
    if (unknown != NULL) return wrong(unknown);
    if (from < 1 || to < from || run.heads < 1 || run.size < 1 || run.threads < 0 || !(run.seconds >= 0))
        return wrong("a number out of range");
    return run_all(&run, list, from, to, json, svg);
}

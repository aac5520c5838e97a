#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench_attention.h"

enum { MOST_VARIANTS = 16, MOST_LENGTHS = 16 };

/* seconds grow as n^slope between the last two lengths */
static double slope_of(const bench_point *a, const bench_point *b)
{
    return log(b->seconds / a->seconds) / log((double)b->n / (double)a->n);
}

static void print_point(const bench_variant *v, const bench_point *p, const bench_point *before, int json)
{
    double slope = before != NULL ? slope_of(before, p) : 0;
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

static int chosen(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return 1;
    return list == NULL;
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
    static bench_point points[MOST_VARIANTS][MOST_LENGTHS];
    const char *names[MOST_VARIANTS], *formulas[MOST_VARIANTS];
    int64_t variants = 0, lengths = 0;
    for (int64_t n = from; n <= to && lengths < MOST_LENGTHS; n *= 2) lengths++;
    for (const bench_variant *v = bench_variants; v->name != NULL; v++) {
        if (list != NULL && !chosen(list, v->name)) continue;
        int64_t n = from;
        for (int64_t i = 0; i < lengths; i++, n *= 2) {
            bench_point *p = &points[variants][i];
            *p = bench_attention_point(run, v, n);
            print_point(v, p, i > 0 ? p - 1 : NULL, json);
        }
        names[variants] = v->name;
        formulas[variants++] = v->pairs;
    }
    if (variants == 0) return wrong(list);
    if (svg == NULL) return 0;
    bench_point flat[MOST_VARIANTS * MOST_LENGTHS];
    for (int64_t v = 0; v < variants; v++)
        for (int64_t i = 0; i < lengths; i++) flat[v * lengths + i] = points[v][i];
    if (bench_attention_draw(svg, variants, lengths, names, formulas, flat) == 0) return 0;
    fprintf(stderr, "attn-bench: attention: %s cannot be written\n", svg);
    return 1;
}

int bench_attention(int argc, char **argv)
{
    bench_attention_run run = {.heads = 1, .size = 64, .seconds = 0.5};
    const char *list = NULL, *svg = NULL;
    int64_t from = 256, to = 65536;
    int json = 0;
    for (int i = 0; i < argc; i++) {
        int more = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0)
            json = 1;
        else if (strcmp(argv[i], "--variants") == 0 && more)
            list = argv[++i];
        else if (strcmp(argv[i], "--svg") == 0 && more)
            svg = argv[++i];
        else if (strcmp(argv[i], "--from") == 0 && more)
            from = atoll(argv[++i]);
        else if (strcmp(argv[i], "--to") == 0 && more)
            to = atoll(argv[++i]);
        else if (strcmp(argv[i], "--heads") == 0 && more)
            run.heads = atoll(argv[++i]);
        else if (strcmp(argv[i], "--size") == 0 && more)
            run.size = atoll(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0 && more)
            run.threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seconds") == 0 && more)
            run.seconds = atof(argv[++i]);
        else
            return wrong(argv[i]);
    }
    if (from < 1 || to < from || run.heads < 1 || run.size < 1 || run.threads < 0 || !(run.seconds >= 0))
        return wrong("a number out of range");
    return run_all(&run, list, from, to, json, svg);
}

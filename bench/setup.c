/* What the commands share: a pinned context, filled tensors, repeated rounds, options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench.h"

bench_context bench_open(int32_t threads)
{
    bench_context out = {0};
    attn_context_options o;
    attn_context_options_init(&o, sizeof o);
    if (threads > 0) o.threads = threads;
    bench_fail(NULL, attn_context_create(&o, &out.ctx), "context");
    attn_context_threads(out.ctx, &out.given);
    bench_pin(out.ctx, out.given, &out.before);
    return out;
}

void bench_close(bench_context *opened)
{
    attn_context_free(opened->ctx);
    sched_setaffinity(0, sizeof opened->before, &opened->before);
}

attn_tensor *bench_filled(attn_context *ctx, int32_t rank, const int64_t *shape, uint64_t seed, double scale)
{
    attn_tensor *t;
    int64_t count = 1;
    bench_fail(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, rank, shape, &t), "tensor");
    for (int32_t i = 0; i < rank; i++) count *= shape[i];
    float *x = attn_tensor_data(t);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (float)(scale * ((double)(seed >> 40) / 8388608 - 1));
    }
    return t;
}

double bench_repeat(double seconds, void (*once)(void *data), void *data)
{
    double times[64];
    int64_t rounds = 0;
    for (double spent = 0; rounds < 3 || (spent < seconds && rounds < 64);) {
        double start = bench_seconds();
        once(data);
        times[rounds] = bench_seconds() - start;
        spent += times[rounds];
        if (times[rounds++] > seconds) break;
    }
    return bench_median(times, rounds);
}

double bench_slope(int64_t n, double seconds, int64_t next_n, double next_seconds)
{
    return log(next_seconds / seconds) / log((double)next_n / (double)n);
}

static void read_value(const bench_option *option, const char *word)
{
    switch (option->kind) {
    case BENCH_TEXT: *(const char **)option->to = word; break;
    case BENCH_INT32: *(int32_t *)option->to = atoi(word); break;
    case BENCH_INT64: *(int64_t *)option->to = atoll(word); break;
    default: *(double *)option->to = atof(word); break;
    }
}

const char *bench_options(int argc, char **argv, const bench_option *options)
{
    for (int i = 0; i < argc; i++) {
        const bench_option *option = options;
        while (option->name != NULL && strcmp(option->name, argv[i]) != 0) option++;
        if (option->name == NULL || (option->kind != BENCH_FLAG && i + 1 == argc)) return argv[i];
        if (option->kind == BENCH_FLAG)
            *(int *)option->to = 1;
        else
            read_value(option, argv[++i]);
    }
    return NULL;
}

int bench_chosen(const char *list, const char *name)
{
    size_t length = strlen(name);
    if (list == NULL) return 1;
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return 1;
    return 0;
}

void bench_agree(const char *name, const char *what, int64_t formula, int64_t library)
{
    if (formula == library) return;
    fprintf(stderr, "attn-bench: %s: %s: %lld by formula, %lld by the library\n", name, what, (long long)formula, (long long)library);
    exit(1);
}

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "bench.h"
#include "core/context.h"

double bench_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

void bench_fail(attn_context *ctx, attn_status status, const char *what)
{
    if (status == ATTN_OK) return;
    fprintf(stderr, "attn-bench: %s: %s: %s\n", what, attn_status_name(status), attn_context_last_error(ctx));
    exit(1);
}

typedef struct pin_job {
    atomic_int arrived;
    int32_t threads;
    cpu_set_t allowed;
} pin_job;

/* every worker takes one tile and waits for the others, so that each of them is pinned once */
static void pin_tile(void *data, int64_t tile, int32_t worker)
{
    pin_job *job = data;
    cpu_set_t one;
    int seen = 0;
    (void)tile;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &job->allowed) && seen++ == worker % CPU_COUNT(&job->allowed)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    atomic_fetch_add(&job->arrived, 1);
    while (atomic_load(&job->arrived) < job->threads) sched_yield();
}

void bench_pin(attn_context *ctx, int32_t threads, cpu_set_t *before)
{
    pin_job job = {.threads = threads};
    sched_getaffinity(0, sizeof job.allowed, &job.allowed);
    *before = job.allowed;
    if (threads > 1)
        attn__run(ctx, threads, pin_tile, &job);
    else
        pin_tile(&job, 0, 0);
}

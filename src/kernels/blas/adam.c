/* Adam and AdamW: one pass over a flat run of parameters, gradients and moments. */
#include "rows.h"

typedef struct adam_job {
    float *p, *g, *m, *v;
    int64_t n;
    /* shrink: rate * decay; length: rate / (1 - beta1^step); correction: 1 / sqrt(1 - beta2^step) */
    float multiplier, l2, shrink, length, correction, beta1, rest1, beta2, rest2, epsilon;
} adam_job;

static void adam_tile(void *context, int64_t tile, int32_t worker)
{
    const adam_job job = *(const adam_job *)context;
    int64_t first = tile * ROWS_TILE, n = least(ROWS_TILE, job.n - first);
    float *restrict p = job.p + first, *restrict g = job.g + first, *restrict m = job.m + first, *restrict v = job.v + first;
    (void)worker;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * job.multiplier + job.l2 * p[i];
        float mean = job.beta1 * m[i] + job.rest1 * gradient;
        float square = job.beta2 * v[i] + job.rest2 * (gradient * gradient);
        m[i] = mean;
        v[i] = square;
        float below = sqrtf(square) * job.correction + job.epsilon;
        p[i] -= job.shrink * p[i] + job.length * mean / (below == 0 ? 1 : below); /* 0 without epsilon: no gradient came yet */
        g[i] = 0;
    }
}

attn_status BLAS(adam)(attn_context *ctx, void *p, void *g, void *m, void *v, int64_t n, double multiplier, double l2, double rate,
                       double beta1, double beta2, double epsilon, double decay, int64_t step)
{
    double correction1 = 1 - pow(beta1, (double)step), correction2 = 1 - pow(beta2, (double)step);
    adam_job job = {
        p, g, m, v, n, (float)multiplier, (float)l2, 0, 0, 0, (float)beta1, (float)(1 - beta1), (float)beta2, (float)(1 - beta2), 0};
    job.shrink = (float)(rate * decay);
    job.length = (float)(rate / correction1);
    job.correction = (float)(1 / sqrt(correction2));
    job.epsilon = (float)epsilon;
    return attn__run(ctx, tiles_of(n, ROWS_TILE), adam_tile, &job);
}

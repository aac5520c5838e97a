/* Sums over whole tensors: in double, by fixed runs, combined in order. */
#include "rows.h"

typedef struct sum_job {
    grid cut;
    view a, b;
    double *partial;
} sum_job;

static double dot_run(const float *a, const float *b, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void dot_tile(void *context, int64_t tile, int32_t worker)
{
    const sum_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    double sum = 0;
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++)
        sum += dot_run(row_of(&job->a, row) + c.column, row_of(&job->b, row) + c.column, c.count);
    job->partial[tile] = sum;
}

attn_status BLAS(dot)(attn_context *ctx, const view *a, const view *b, double *out)
{
    sum_job job = {grid_of(a->rows, columns_of(a)), *a, *b, NULL};
    *out = 0;
    if (job.cut.tiles == 0) return ATTN_OK;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    job.partial = attn__scratch(ctx, job.cut.tiles * (int64_t)sizeof(double));
    if (job.partial == NULL) return attn__arena_status(ctx->scratch);
    attn_status status = attn__run(ctx, job.cut.tiles, dot_tile, &job);
    if (status == ATTN_OK)
        for (int64_t tile = 0; tile < job.cut.tiles; tile++) *out += job.partial[tile];
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

attn_status BLAS(sum_squares)(attn_context *ctx, const void *flat, int64_t n, double *out)
{
    view a = {(void *)(uintptr_t)flat, 1, 1, n, n, 0, ATTN_FLOAT32, 0};
    return BLAS(dot)(ctx, &a, &a, out);
}

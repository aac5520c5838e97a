/* Kernels that treat each element alone: sums, products, copies. Dense views are seen as one long row. */
#include "rows.h"

typedef struct element_job {
    grid cut;
    view a, b, y;
    int add;
    float factor;
} element_job;

/* heads that do not lie dense become rows of their own only in copy */
static view long_row(view v, int dense)
{
    int64_t columns = columns_of(&v);
    v.width = dense ? v.rows * columns : columns;
    v.rows = dense ? least(v.rows, 1) : v.rows;
    v.row_stride = dense ? v.width : v.row_stride;
    v.heads = 1;
    v.head_stride = 0;
    return v;
}

static element_job element_job_of(const view *a, const view *b, const view *y, int add)
{
    int dense = attn__view_dense(a) && attn__view_dense(b) && attn__view_dense(y);
    element_job job = {{0}, long_row(*a, dense), long_row(*b, dense), long_row(*y, dense), add, 1};
    job.cut = grid_of(job.y.rows, job.y.width);
    return job;
}

static void add_tile(void *context, int64_t tile, int32_t worker)
{
    const element_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++) {
        const float *a = row_of(&job->a, row) + c.column, *b = row_of(&job->b, row) + c.column;
        float *y = row_of(&job->y, row) + c.column;
#pragma omp simd
        for (int64_t i = 0; i < c.count; i++) y[i] = a[i] + b[i];
    }
}

attn_status BLAS(add)(attn_context *ctx, const view *a, const view *b, view *y)
{
    element_job job = element_job_of(a, b, y, 0);
    return attn__run(ctx, job.cut.tiles, add_tile, &job);
}

static void multiply_tile(void *context, int64_t tile, int32_t worker)
{
    const element_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++) {
        const float *a = row_of(&job->a, row) + c.column, *b = row_of(&job->b, row) + c.column;
        float *y = row_of(&job->y, row) + c.column;
        if (job->add) {
#pragma omp simd
            for (int64_t i = 0; i < c.count; i++) y[i] += a[i] * b[i];
        } else {
#pragma omp simd
            for (int64_t i = 0; i < c.count; i++) y[i] = a[i] * b[i];
        }
    }
}

attn_status BLAS(multiply)(attn_context *ctx, const view *a, const view *b, int add, view *y)
{
    element_job job = element_job_of(a, b, y, add);
    return attn__run(ctx, job.cut.tiles, multiply_tile, &job);
}

static void scale_tile(void *context, int64_t tile, int32_t worker)
{
    const element_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    float factor = job->factor;
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++) {
        float *y = row_of(&job->y, row) + c.column;
#pragma omp simd
        for (int64_t i = 0; i < c.count; i++) y[i] *= factor;
    }
}

attn_status BLAS(scale)(attn_context *ctx, const view *factor, view *y)
{
    element_job job = element_job_of(y, y, y, 0);
    job.factor = *(const float *)factor->data;
    if (job.factor == 1.0f) return ATTN_OK;
    return attn__run(ctx, job.cut.tiles, scale_tile, &job);
}

static void copy_run(const float *x, int64_t n, int add, float *y)
{
    if (add) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
    } else {
        memcpy(y, x, (size_t)n * sizeof *y);
    }
}

static void copy_tile(void *context, int64_t tile, int32_t worker)
{
    const element_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++)
        copy_run(row_of(&job->a, row) + c.column, c.count, job->add, row_of(&job->y, row) + c.column);
}

/* heads with gaps between them: a, y [rows, heads, width]; the grid's columns are not used, each tile takes whole rows */
static void copy_heads_tile(void *context, int64_t tile, int32_t worker)
{
    const element_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++)
        for (int64_t head = 0; head < job->y.heads; head++)
            copy_run(row_of(&job->a, row) + head * job->a.head_stride, job->y.width, job->add,
                     row_of(&job->y, row) + head * job->y.head_stride);
}

static int heads_dense(const view *v)
{
    return v->heads <= 1 || v->head_stride == v->width;
}

attn_status BLAS(copy)(attn_context *ctx, const view *x, int add, view *y)
{
    if (heads_dense(x) && heads_dense(y)) {
        element_job job = element_job_of(x, x, y, add);
        return attn__run(ctx, job.cut.tiles, copy_tile, &job);
    }
    element_job job = {{0}, *x, *x, *y, add, 1};
    int64_t columns = columns_of(y), tall = rows_per_tile(columns);
    grid cut = {y->rows, columns, tall, columns, 1, columns > 0 ? tiles_of(y->rows, tall) : 0};
    job.cut = cut;
    return attn__run(ctx, cut.tiles, copy_heads_tile, &job);
}

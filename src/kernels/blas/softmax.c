/* Softmax and log-softmax over rows. */
#include "rows.h"

typedef struct softmax_job {
    const view *x, *dy; /* backward: x is y */
    view *y;            /* or dx */
    int log, add;
    int64_t width, tall;
} softmax_job;

/* no entry above minus infinity: minus infinities give zeros (log: minus infinities), a NaN stays */
static void blocked_row(const float *x, int64_t n, int log, float *y)
{
    int nan = 0;
    for (int64_t i = 0; i < n; i++) nan |= x[i] != x[i];
    float value = nan ? NAN : log ? -INFINITY : 0.0f;
    for (int64_t i = 0; i < n; i++) y[i] = value;
}

static void softmax_tile(void *context, int64_t tile, int32_t worker)
{
    const softmax_job *job = context;
    int64_t first = tile * job->tall, end = least(first + job->tall, job->x->rows), n = job->width;
    (void)worker;
    for (int64_t row = first; row < end; row++) {
        const float *x = row_of(job->x, row);
        float *y = row_of(job->y, row), most = row_max(x, n);
        if (most == -INFINITY) {
            blocked_row(x, n, job->log, y);
        } else if (job->log) {
            float sum = (float)log(row_exp_sum(x, n, most));
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - most) - sum;
        } else {
            float scale = (float)(1 / row_exp(x, n, most, y));
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] *= scale;
        }
    }
}

attn_status BLAS(softmax)(attn_context *ctx, const view *x, int log, view *y)
{
    int64_t width = columns_of(x), tall = rows_per_tile(width);
    softmax_job job = {x, NULL, y, log, 0, width, tall};
    return attn__run(ctx, width > 0 ? tiles_of(x->rows, tall) : 0, softmax_tile, &job);
}

static double product_sum(const float *a, const float *b, int64_t n)
{
    double total = 0;
    for (int64_t at = 0; at < n; at += ROWS_PIECE) {
        int64_t end = least(at + ROWS_PIECE, n);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = at; i < end; i++) sum += a[i] * b[i];
        total += (double)sum;
    }
    return total;
}

static int all_blocked(const float *y, int64_t n)
{
    int64_t i = 0;
    while (i < n && y[i] == -INFINITY) i++;
    return i == n;
}

static void log_back_row(const float *y, const float *dy, int64_t n, int add, float *dx)
{
    float sum = (float)row_sum(dy, n);
    if (all_blocked(y, n)) {
        if (!add) memset(dx, 0, (size_t)n * sizeof *dx);
    } else if (add) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] += attn__fma(-attn__exp(y[i]), sum, dy[i]);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = attn__fma(-attn__exp(y[i]), sum, dy[i]);
    }
}

static void back_row(const float *y, const float *dy, int64_t n, int add, float *dx)
{
    float sum = (float)product_sum(y, dy, n);
    if (add) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] += y[i] * (dy[i] - sum);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - sum);
    }
}

/* softmax: dx = y (dy - sum y dy); log: dx = dy - e^y sum dy, and nothing for a row of minus infinities */
static void softmax_back_tile(void *context, int64_t tile, int32_t worker)
{
    const softmax_job *job = context;
    int64_t first = tile * job->tall, end = least(first + job->tall, job->x->rows);
    (void)worker;
    for (int64_t row = first; row < end; row++) {
        if (job->log)
            log_back_row(row_of(job->x, row), row_of(job->dy, row), job->width, job->add, row_of(job->y, row));
        else
            back_row(row_of(job->x, row), row_of(job->dy, row), job->width, job->add, row_of(job->y, row));
    }
}

attn_status BLAS(softmax_back)(attn_context *ctx, const view *y, int log, const view *dy, int add, view *dx)
{
    int64_t width = columns_of(y), tall = rows_per_tile(width);
    softmax_job job = {y, dy, dx, log, add, width, tall};
    return attn__run(ctx, width > 0 ? tiles_of(y->rows, tall) : 0, softmax_back_tile, &job);
}

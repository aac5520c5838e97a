/* Residual sums and norms, forward. A row stays in the first cache from its sum to its last use. */
#include "rows.h"

typedef struct norm_job {
    grid cut; /* residual alone */
    const view *x, *s;
    view *r, *y;
    dropper drop;
    int32_t norm, reserved;
    double epsilon;
    const float *gain, *shift;
    float *statistics; /* [rows, 2] or NULL */
    int64_t width, tall;
} norm_job;

/* r = x + dropout(s) over columns column .. column + count of a row; r may be x */
static void sum_run(const norm_job *job, int64_t row, int64_t column, int64_t count, float *r)
{
    float factors[ROWS_PIECE];
    const float *x = row_of(job->x, row) + column, *s = row_of(job->s, row) + column;
    if (!job->drop.on) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) r[i] = x[i] + s[i];
        return;
    }
    for (int64_t at = 0; at < count; at += ROWS_PIECE) {
        int64_t end = least(at + ROWS_PIECE, count);
        BLAS(dropper_factors)(&job->drop, row, column + at, end - at, factors);
#pragma omp simd
        for (int64_t i = at; i < end; i++) r[i] = x[i] + kept(s[i], factors[i - at]);
    }
}

static void residual_tile(void *context, int64_t tile, int32_t worker)
{
    const norm_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++) sum_run(job, row, c.column, c.count, row_of(job->r, row) + c.column);
}

attn_status BLAS(residual)(attn_context *ctx, const view *x, const view *s, const attn__dropout *drop, view *r)
{
    norm_job job = {.cut = grid_of(x->rows, columns_of(x)), .x = x, .s = s, .r = r, .drop = BLAS(dropper_of)(drop)};
    return attn__run(ctx, job.cut.tiles, residual_tile, &job);
}

/* y = (x - mean) * scale + offset, as the norm sees it before gain and shift */
typedef struct moments {
    float mean, scale, offset;
} moments;

/* Two passes. The second also sums the deviations themselves: what a mean rounded to float32 leaves over is taken out of the variance
   and of the result, so that rows far from 0 keep their digits. */
static moments layer_moments(const float *x, int64_t width, double epsilon)
{
    double n = (double)width, first = 0, second = 0;
    float mean = (float)(row_sum(x, width) / n);
    for (int64_t at = 0; at < width; at += ROWS_PIECE) {
        int64_t end = least(at + ROWS_PIECE, width);
        float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum, squares)
        for (int64_t i = at; i < end; i++) {
            float d = x[i] - mean;
            sum += d;
            squares += d * d;
        }
        first += (double)sum;
        second += (double)squares;
    }
    double left = first / n, variance = second / n - left * left;
    double scale = 1 / sqrt((variance > 0 || variance != variance ? variance : 0) + epsilon); /* NaN stays NaN */
    moments m = {mean, (float)scale, (float)(-left * scale)};
    return m;
}

static moments rms_moments(const float *x, int64_t width, double epsilon)
{
    double total = 0;
    for (int64_t at = 0; at < width; at += ROWS_PIECE) {
        int64_t end = least(at + ROWS_PIECE, width);
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = at; i < end; i++) squares += x[i] * x[i];
        total += (double)squares;
    }
    moments m = {0, (float)(1 / sqrt(total / (double)width + epsilon)), 0};
    return m;
}

/* y may be x */
static void apply(const norm_job *job, moments m, const float *x, float *y)
{
    const float *gain = job->gain, *shift = job->shift;
    int64_t width = job->width;
    if (gain != NULL && shift != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) y[i] = attn__fma(attn__fma(x[i] - m.mean, m.scale, m.offset), gain[i], shift[i]);
    } else if (gain != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) y[i] = attn__fma(x[i] - m.mean, m.scale, m.offset) * gain[i];
    } else if (shift != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) y[i] = attn__fma(x[i] - m.mean, m.scale, m.offset) + shift[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) y[i] = attn__fma(x[i] - m.mean, m.scale, m.offset);
    }
}

static void norm_tile(void *context, int64_t tile, int32_t worker)
{
    const norm_job *job = context;
    int64_t first = tile * job->tall, end = least(first + job->tall, job->x->rows);
    (void)worker;
    for (int64_t row = first; row < end; row++) {
        float *y = row_of(job->y, row);
        const float *x = row_of(job->x, row);
        if (job->s != NULL) {
            float *r = job->r != NULL ? row_of(job->r, row) : y; /* a sum that is not kept waits in y */
            sum_run(job, row, 0, job->width, r);
            x = r;
        }
        moments m = job->norm == ATTN_NORM_LAYER ? layer_moments(x, job->width, job->epsilon) : rms_moments(x, job->width, job->epsilon);
        apply(job, m, x, y);
        if (job->statistics == NULL) continue;
        job->statistics[2 * row] = m.mean - m.offset / m.scale;
        job->statistics[2 * row + 1] = m.scale;
    }
}

attn_status BLAS(residual_norm)(attn_context *ctx, const view *x, const view *s, const attn__dropout *drop, int32_t norm, double epsilon,
                                const view *gain, const view *shift, view *r, view *y, void *statistics)
{
    norm_job job = {.x = x, .s = s, .r = r, .y = y, .drop = BLAS(dropper_of)(s != NULL ? drop : NULL), .norm = norm, .epsilon = epsilon};
    job.gain = gain != NULL ? gain->data : NULL;
    job.shift = shift != NULL ? shift->data : NULL;
    job.statistics = statistics;
    job.width = columns_of(x);
    job.tall = rows_per_tile(job.width);
    return attn__run(ctx, job.width > 0 ? tiles_of(x->rows, job.tall) : 0, norm_tile, &job);
}

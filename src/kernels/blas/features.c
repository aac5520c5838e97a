/* Maps of heads to features: elu + 1, and the random features of the Performer. */
#include "linear_attention.h"
#include "sine.h"

typedef struct feature_job {
    attn_context *ctx;
    const view *x, *out, *dy; /* out: y as the forward wrote it, in the backward */
    const attn__features *features;
    view to;                 /* y, or dx */
    float *log_scale, scale; /* of the exponent; of x */
    int64_t tall, count;     /* rows of a tile; directions */
    int32_t add, reserved;
    atomic_int refused;
} feature_job;

static float *head_row(const view *v, int64_t row, int64_t head)
{
    return row_of(v, row) + head * v->head_stride;
}

static float half_square(const float *x, int64_t n, float scale)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < n; c++) sum += x[c] * x[c];
    return 0.5f * scale * scale * sum;
}

/* y holds w . z and becomes e^(w . z - less) factor */
static void positive_row(float *y, int64_t n, float less, float factor)
{
#pragma omp simd
    for (int64_t f = 0; f < n; f++) y[f] = factor * attn__exp(y[f] - less);
}

/* the first n of y hold w . z */
static void wave_row(float *y, int64_t n, float magnitude)
{
#pragma omp simd
    for (int64_t f = 0; f < n; f++) attn__sine_cosine((double)y[f], magnitude, &y[n + f], &y[f]);
}

static void elu_row(const float *x, int64_t n, float scale, float *y)
{
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        float z = scale * x[c], low = attn__exp(z);
        y[c] = z > 0 ? z + 1 : low;
    }
}

static void finish_row(const feature_job *job, int64_t row, int64_t head)
{
    const float *x = head_row(job->x, row, head);
    float *y = head_row(&job->to, row, head), *kept = job->log_scale != NULL ? &job->log_scale[row * job->to.heads + head] : NULL;
    if (job->features->kind == ATTN_FEATURES_ELU) {
        elu_row(x, job->to.width, job->scale, y);
        return;
    }
    float half = half_square(x, job->x->width, job->scale), factor = 1 / sqrtf((float)job->count);
    if (job->features->kind == ATTN_FEATURES_POSITIVE) {
        float most = row_max(y, job->count);
        if (kept != NULL) *kept = most - half;
        positive_row(y, job->count, kept != NULL ? most : half, factor);
        return;
    }
    if (kept != NULL) *kept = half;
    wave_row(y, job->count, kept != NULL ? factor : factor * attn__exp(half));
}

static void product(feature_job *job, int turned, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                    int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (attn__sgemm(0, turned, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)) atomic_store(&job->refused, 1);
}

static void map_tile(void *context, int64_t tile, int32_t worker)
{
    feature_job *job = context;
    int64_t first = tile * job->tall, rows = least(job->tall, job->to.rows - first);
    (void)worker;
    for (int64_t head = 0; head < job->to.heads; head++) {
        if (job->count > 0)
            product(job, 1, rows, job->count, job->x->width, job->scale, head_row(job->x, first, head), job->x->row_stride,
                    row_of(&job->features->directions, 0), job->features->directions.row_stride, 0, head_row(&job->to, first, head),
                    job->to.row_stride);
        for (int64_t r = first; r < first + rows; r++) finish_row(job, r, head);
    }
}

/* rows of a tile: by the wider of x and y */
static feature_job job_of(attn_context *ctx, const view *x, const attn__features *features, const view *y, const view *to)
{
    int64_t widest = x->width > y->width ? x->width : y->width;
    return (feature_job){.ctx = ctx,
                         .x = x,
                         .features = features,
                         .to = *to,
                         .scale = (float)features->scale,
                         .tall = rows_per_tile(to->heads * widest),
                         .count = features->kind == ATTN_FEATURES_ELU ? 0 : features->directions.rows};
}

attn_status BLAS(feature_map)(attn_context *ctx, const view *x, const attn__features *features, void *log_scale, view *y)
{
    feature_job job = job_of(ctx, x, features, y, y);
    job.log_scale = log_scale;
    int64_t tiles = columns_of(y) > 0 ? tiles_of(y->rows, job.tall) : 0;
    return BLAS(product_status)(ctx, attn__run(ctx, tiles, map_tile, &job), &job.refused);
}

/* slope: of every w . z; back: dy . y, which e^(-+ |z|^2 / 2) passes on to z */
static float slopes_row(const feature_job *job, const float *y, const float *dy, float *slope)
{
    int64_t n = job->count;
    float back = 0;
    if (job->features->kind == ATTN_FEATURES_POSITIVE) {
#pragma omp simd reduction(+ : back)
        for (int64_t f = 0; f < n; f++) {
            slope[f] = dy[f] * y[f];
            back += slope[f];
        }
        return -back;
    }
#pragma omp simd reduction(+ : back)
    for (int64_t f = 0; f < n; f++) {
        slope[f] = dy[n + f] * y[f] - dy[f] * y[n + f];
        back += dy[f] * y[f] + dy[n + f] * y[n + f];
    }
    return back;
}

static void elu_back_row(const feature_job *job, int64_t row, int64_t head)
{
    const float *y = head_row(job->out, row, head), *dy = head_row(job->dy, row, head);
    float *dx = head_row(&job->to, row, head), scale = job->scale;
    for (int64_t c = 0; c < job->to.width; c++) {
        float slope = scale * dy[c] * (y[c] > 1 ? 1 : y[c]);
        dx[c] = job->add ? dx[c] + slope : slope;
    }
}

/* scratch: [tall, directions], and [tall] */
static void back_tile(void *context, int64_t tile, int32_t worker)
{
    feature_job *job = context;
    int64_t first = tile * job->tall, rows = least(job->tall, job->to.rows - first);
    float *back = attn__worker_scratch(job->ctx, worker), *slope = back + job->tall;
    for (int64_t head = 0; head < job->to.heads; head++) {
        if (job->features->kind == ATTN_FEATURES_ELU) {
            for (int64_t r = 0; r < rows; r++) elu_back_row(job, first + r, head);
            continue;
        }
        for (int64_t r = 0; r < rows; r++)
            back[r] = slopes_row(job, head_row(job->out, first + r, head), head_row(job->dy, first + r, head), slope + r * job->count);
        product(job, 0, rows, job->to.width, job->count, job->scale, slope, job->count, row_of(&job->features->directions, 0),
                job->features->directions.row_stride, job->add ? 1 : 0, head_row(&job->to, first, head), job->to.row_stride);
        for (int64_t r = 0; r < rows; r++) {
            const float *x = head_row(job->x, first + r, head);
            float *dx = head_row(&job->to, first + r, head), factor = job->scale * job->scale * back[r];
#pragma omp simd
            for (int64_t c = 0; c < job->to.width; c++) dx[c] += factor * x[c];
        }
    }
}

int64_t BLAS(feature_room)(int64_t heads, int64_t size, int64_t features)
{
    return rows_per_tile(heads * (size > features ? size : features)) * (features + 1) * (int64_t)sizeof(float);
}

attn_status BLAS(feature_map_back)(attn_context *ctx, const view *x, const attn__features *features, const view *y, const view *dy, int add,
                                   view *dx)
{
    feature_job job = job_of(ctx, x, features, y, dx);
    job.out = y;
    job.dy = dy;
    job.add = add;
    attn_status status = attn__worker_scratch_reserve(ctx, job.tall * (job.count + 1) * (int64_t)sizeof(float));
    if (status != ATTN_OK) return status;
    int64_t tiles = columns_of(dx) > 0 ? tiles_of(dx->rows, job.tall) : 0;
    return BLAS(product_status)(ctx, attn__run(ctx, tiles, back_tile, &job), &job.refused);
}

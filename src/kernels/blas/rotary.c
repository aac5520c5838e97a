/* Rotary positions: sines and cosines of a row once, for all its heads. */
#include "rows.h"
#include "sine.h"

enum { PAIRS_PIECE = 64 };

typedef struct rotary_job {
    view x, y;
    const attn__rotary *rotary;
    int64_t tall; /* rows of a tile */
    int back, add;
} rotary_job;

static void turn_halves(const float *a, const float *b, const float *sine, const float *cosine, int64_t n, int add, float *y, float *z)
{
    if (add) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float first = a[i] * cosine[i] - b[i] * sine[i], second = a[i] * sine[i] + b[i] * cosine[i];
            y[i] += first;
            z[i] += second;
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float first = a[i] * cosine[i] - b[i] * sine[i], second = a[i] * sine[i] + b[i] * cosine[i];
        y[i] = first;
        z[i] = second;
    }
}

static void turn_pairs(const float *x, const float *sine, const float *cosine, int64_t n, int add, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float a = x[2 * i], b = x[2 * i + 1], before = add ? y[2 * i] : 0, after = add ? y[2 * i + 1] : 0;
        y[2 * i] = a * cosine[i] - b * sine[i] + before;
        y[2 * i + 1] = a * sine[i] + b * cosine[i] + after;
    }
}

/* pairs first .. first + n of every head of a row */
static void turn_row(const rotary_job *job, int64_t row, int64_t first, int64_t n, const float *sine, const float *cosine)
{
    const view *x = &job->x, *y = &job->y;
    int64_t half = job->rotary->rotated / 2;
    for (int64_t head = 0; head < y->heads; head++) {
        const float *from = row_of(x, row) + head * x->head_stride;
        float *to = row_of(y, row) + head * y->head_stride;
        if (job->rotary->pairing == ATTN_ROTARY_PAIRS)
            turn_pairs(from + 2 * first, sine, cosine, n, job->add, to + 2 * first);
        else
            turn_halves(from + first, from + half + first, sine, cosine, n, job->add, to + first, to + half + first);
    }
}

/* columns that stay */
static void keep_row(const rotary_job *job, int64_t row)
{
    const view *x = &job->x, *y = &job->y;
    for (int64_t head = 0; head < y->heads; head++) {
        const float *from = row_of(x, row) + head * x->head_stride;
        float *to = row_of(y, row) + head * y->head_stride;
        for (int64_t c = job->rotary->rotated; c < y->width; c++) to[c] = job->add ? to[c] + from[c] : from[c];
    }
}

static void rotary_tile(void *context, int64_t tile, int32_t worker)
{
    const rotary_job *job = context;
    const attn__rotary *rotary = job->rotary;
    int64_t pairs = rotary->rotated / 2, end = least((tile + 1) * job->tall, job->y.rows);
    float magnitude = (float)rotary->magnitude;
    (void)worker;
    for (int64_t row = tile * job->tall; row < end; row++) {
        double position = (double)rotary->places.position[row] * (job->back ? -1 : 1);
        for (int64_t first = 0; first < pairs; first += PAIRS_PIECE) {
            float sine[PAIRS_PIECE], cosine[PAIRS_PIECE];
            int64_t n = least(PAIRS_PIECE, pairs - first);
            const double *frequency = rotary->frequency + first;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) attn__sine_cosine(position * frequency[i], magnitude, &sine[i], &cosine[i]);
            turn_row(job, row, first, n, sine, cosine);
        }
        if (rotary->rotated < job->y.width) keep_row(job, row);
    }
}

attn_status BLAS(rotate)(attn_context *ctx, const view *x, const attn__rotary *rotary, int back, int add, view *y)
{
    int64_t columns = columns_of(y), tall = rows_per_tile(columns);
    rotary_job job = {*x, *y, rotary, tall, back, add};
    return attn__run(ctx, columns > 0 ? tiles_of(y->rows, tall) : 0, rotary_tile, &job);
}

/* Dropout and starting values: numbers that are pure functions of a key and a place (core/random.h). */
#include "../../tensor/parameters.h"
#include "philox.h"
#include "rows.h"

enum { DRAWN = 4 * PHILOX_BLOCKS };

dropper BLAS(dropper_of)(const attn__dropout *drop)
{
    dropper d = {0, 0, 0, 1, {NULL, NULL}};
    if (drop == NULL || !(drop->rate > 0)) return d;
    uint64_t threshold = attn__dropout_threshold(drop->rate);
    d.on = 1;
    d.key = attn__dropout_key(drop->seed, drop->step, drop->site);
    d.threshold = threshold > UINT32_MAX ? UINT32_MAX : (uint32_t)threshold;
    d.scale = (float)attn__dropout_scale(drop->rate);
    d.places = drop->places;
    return d;
}

/* factors of columns 4 block to 4 block + 63 */
static void draw(const dropper *d, uint64_t key, uint32_t block, uint32_t head, int64_t position, int64_t sequence, float *factors)
{
    uint32_t words[4][PHILOX_BLOCKS], threshold = d->threshold;
    float scale = d->scale;
    philox_lanes(key, block, head, (uint32_t)position, (uint32_t)sequence, words);
#pragma omp simd
    for (int i = 0; i < PHILOX_BLOCKS; i++) {
        factors[4 * i] = words[0][i] >= threshold ? scale : 0.0f;
        factors[4 * i + 1] = words[1][i] >= threshold ? scale : 0.0f;
        factors[4 * i + 2] = words[2][i] >= threshold ? scale : 0.0f;
        factors[4 * i + 3] = words[3][i] >= threshold ? scale : 0.0f;
    }
}

void BLAS(dropper_weights)(const dropper *drop, int64_t sequence, int64_t position, uint32_t head, int64_t first, int64_t count,
                           float *factors)
{
    uint64_t key = attn__dropout_row_key(drop->key, sequence, position);
    for (int64_t at = 0; at < count; at += DRAWN) draw(drop, key, (uint32_t)((first + at) / 4), head, position, sequence, factors + at);
}

void BLAS(dropper_factors)(const dropper *drop, int64_t row, int64_t first, int64_t count, float *factors)
{
    BLAS(dropper_weights)(drop, drop->places.sequence[row], drop->places.position[row], 0, first, count, factors);
}

typedef struct dropout_job {
    grid cut;
    const view *x;
    view *y;
    dropper drop;
    int add;
} dropout_job;

static void dropout_piece(const float *x, const float *factors, int64_t n, int add, float *y)
{
    if (add) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] += kept(x[i], factors[i]);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = kept(x[i], factors[i]);
    }
}

static void dropout_tile(void *context, int64_t tile, int32_t worker)
{
    const dropout_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    float factors[ROWS_PIECE];
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++) {
        for (int64_t at = 0; at < c.count; at += ROWS_PIECE) {
            int64_t column = c.column + at, n = least(ROWS_PIECE, c.count - at);
            BLAS(dropper_factors)(&job->drop, row, column, n, factors);
            dropout_piece(row_of(job->x, row) + column, factors, n, job->add, row_of(job->y, row) + column);
        }
    }
}

attn_status BLAS(dropout)(attn_context *ctx, const view *x, const attn__dropout *drop, int add, view *y)
{
    dropout_job job = {grid_of(x->rows, columns_of(x)), x, y, BLAS(dropper_of)(drop), add};
    if (!job.drop.on) return x->data == y->data && !add ? ATTN_OK : BLAS(copy)(ctx, x, add, y);
    return attn__run(ctx, job.cut.tiles, dropout_tile, &job);
}

typedef struct fill_job {
    view *y;
    int64_t size;
    int32_t start, reserved;
    double amount;
    uint64_t key;
} fill_job;

static void fill_pair(const fill_job *job, int64_t pair, double out[2])
{
    uint32_t words[4];
    attn__philox(job->key, (uint32_t)pair, (uint32_t)((uint64_t)pair >> 32), 0, 0, words);
    double a = attn__uniform53(words[0], words[1]), b = attn__uniform53(words[2], words[3]);
    if (job->start == ATTN__START_UNIFORM) {
        out[0] = (2 * a - 1) * job->amount;
        out[1] = (2 * b - 1) * job->amount;
    } else {
        double radius = job->amount * sqrt(-2 * log1p(-a)), angle = 6.28318530717958647692 * b;
        out[0] = radius * cos(angle);
        out[1] = radius * sin(angle);
    }
}

/* elements are numbered row by row, head by head, as if the view were dense; tiles hold whole pairs */
static void fill_tile(void *context, int64_t tile, int32_t worker)
{
    const fill_job *job = context;
    const view *y = job->y;
    int64_t width = y->width, first = tile * ROWS_TILE, end = least(first + ROWS_TILE, job->size);
    int64_t column = first % width, head = first / width % y->heads, row = first / width / y->heads;
    double pair[2] = {job->amount, job->amount};
    (void)worker;
    for (int64_t e = first; e < end; e++) {
        if (job->start != ATTN__START_CONSTANT && e % 2 == 0) fill_pair(job, e / 2, pair);
        row_of(y, row)[head * y->head_stride + column] = (float)pair[e % 2];
        if (++column < width) continue;
        column = 0;
        if (++head < y->heads) continue;
        head = 0;
        row++;
    }
}

attn_status BLAS(fill)(attn_context *ctx, view *y, int32_t start, double amount, uint64_t key)
{
    fill_job job = {y, y->rows * y->heads * y->width, start, 0, amount, key};
    return attn__run(ctx, tiles_of(job.size, ROWS_TILE), fill_tile, &job);
}

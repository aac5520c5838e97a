/* The backward of residual_norm: two passes over a row in cache; gain and shift gather partial sums, one pair for each tile. */
#include "rows.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct norm_back_job {
    const view *dy, *dr_in, *r;
    const float *statistics, *gain; /* statistics: [rows, 2] */
    dropper drop;
    int layer, wanted;
    view *dr, *ds;
    float *partial; /* [tiles, 2, width]: of dgain, then of dshift */
    float *dgain, *dshift;
    int64_t width, tall, tiles;
} norm_back_job;

typedef struct means {
    float mean, scale, gradient, product; /* of the row; means of g = dy * gain and of g * xhat */
} means;

INLINE means first_pass(int gained, int wanted, const float *dy, const float *r, const float *gain, means m, int64_t width, float *dgain,
                        float *dshift)
{
    double first = 0, second = 0;
    for (int64_t at = 0; at < width; at += ROWS_PIECE) {
        int64_t end = least(at + ROWS_PIECE, width);
        float sum = 0, products = 0;
#pragma omp simd reduction(+ : sum, products)
        for (int64_t i = at; i < end; i++) {
            float xhat = (r[i] - m.mean) * m.scale, g = gained ? dy[i] * gain[i] : dy[i];
            sum += g;
            products += g * xhat;
            if (wanted) {
                dgain[i] = attn__fma(dy[i], xhat, dgain[i]);
                dshift[i] += dy[i];
            }
        }
        first += (double)sum;
        second += (double)products;
    }
    m.gradient = (float)(first / (double)width);
    m.product = (float)(second / (double)width);
    return m;
}

/* dr = scale (g - mean g - xhat mean(g xhat)) + dr_in; dr may be dy or dr_in */
INLINE void second_pass(int gained, int joined, const float *dy, const float *r, const float *gain, means m, int64_t width,
                        const float *dr_in, float *dr)
{
#pragma omp simd
    for (int64_t i = 0; i < width; i++) {
        float xhat = (r[i] - m.mean) * m.scale, g = gained ? dy[i] * gain[i] : dy[i];
        float d = attn__fma(-xhat, m.product, g - m.gradient);
        dr[i] = joined ? attn__fma(d, m.scale, dr_in[i]) : d * m.scale;
    }
}

static means first_of(const norm_back_job *job, const float *dy, const float *r, means m, float *dgain, float *dshift)
{
    if (job->gain != NULL)
        m = job->wanted ? first_pass(1, 1, dy, r, job->gain, m, job->width, dgain, dshift)
                        : first_pass(1, 0, dy, r, job->gain, m, job->width, NULL, NULL);
    else
        m = job->wanted ? first_pass(0, 1, dy, r, NULL, m, job->width, dgain, dshift)
                        : first_pass(0, 0, dy, r, NULL, m, job->width, NULL, NULL);
    if (!job->layer) m.gradient = 0;
    return m;
}

static void second_of(const norm_back_job *job, const float *dy, const float *r, means m, int64_t row)
{
    const float *dr_in = job->dr_in != NULL ? row_of(job->dr_in, row) : NULL;
    float *dr = row_of(job->dr, row);
    if (job->gain != NULL && dr_in != NULL)
        second_pass(1, 1, dy, r, job->gain, m, job->width, dr_in, dr);
    else if (job->gain != NULL)
        second_pass(1, 0, dy, r, job->gain, m, job->width, NULL, dr);
    else if (dr_in != NULL)
        second_pass(0, 1, dy, r, NULL, m, job->width, dr_in, dr);
    else
        second_pass(0, 0, dy, r, NULL, m, job->width, NULL, dr);
}

/* ds = dropout'(dr) */
static void branch(const norm_back_job *job, int64_t row)
{
    const float *dr = row_of(job->dr, row);
    float *ds = row_of(job->ds, row), factors[ROWS_PIECE];
    if (!job->drop.on) {
        memcpy(ds, dr, (size_t)job->width * sizeof *ds);
        return;
    }
    for (int64_t at = 0; at < job->width; at += ROWS_PIECE) {
        int64_t end = least(at + ROWS_PIECE, job->width);
        BLAS(dropper_factors)(&job->drop, row, at, end - at, factors);
#pragma omp simd
        for (int64_t i = at; i < end; i++) ds[i] = kept(dr[i], factors[i - at]);
    }
}

static void norm_back_tile(void *context, int64_t tile, int32_t worker)
{
    const norm_back_job *job = context;
    int64_t first = tile * job->tall, end = least(first + job->tall, job->dy->rows);
    float *dgain = NULL, *dshift = NULL;
    (void)worker;
    if (job->wanted) {
        dgain = job->partial + tile * 2 * job->width;
        dshift = dgain + job->width;
        memset(dgain, 0, 2 * (size_t)job->width * sizeof *dgain);
    }
    for (int64_t row = first; row < end; row++) {
        const float *dy = row_of(job->dy, row), *r = row_of(job->r, row);
        means m = {job->layer ? job->statistics[2 * row] : 0, job->statistics[2 * row + 1], 0, 0};
        m = first_of(job, dy, r, m, dgain, dshift);
        second_of(job, dy, r, m, row);
        if (job->ds != NULL) branch(job, row);
    }
}

/* adds the partial sums of ROWS_PIECE columns in the order of the tiles */
static void join_tile(void *context, int64_t tile, int32_t worker)
{
    const norm_back_job *job = context;
    int64_t column = tile * ROWS_PIECE, n = least(ROWS_PIECE, job->width - column);
    float *into[2] = {job->dgain, job->dshift};
    (void)worker;
    for (int part = 0; part < 2; part++) {
        float sum[ROWS_PIECE] = {0};
        if (into[part] == NULL) continue;
        for (int64_t i = 0; i < job->tiles; i++) {
            const float *from = job->partial + (2 * i + part) * job->width + column;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] += from[j];
        }
#pragma omp simd
        for (int64_t j = 0; j < n; j++) into[part][column + j] += sum[j];
    }
}

attn_status BLAS(residual_norm_back)(attn_context *ctx, const view *dy, const view *dr_in, const view *r, const void *statistics,
                                     const attn__dropout *drop, int32_t norm, const view *gain, view *dr, view *ds, view *dgain,
                                     view *dshift)
{
    norm_back_job job = {.dy = dy, .dr_in = dr_in, .r = r, .statistics = statistics, .gain = gain != NULL ? gain->data : NULL};
    job.drop = BLAS(dropper_of)(drop);
    job.layer = norm == ATTN_NORM_LAYER;
    job.wanted = dgain != NULL || dshift != NULL;
    job.dr = dr;
    job.ds = ds;
    job.dgain = dgain != NULL ? dgain->data : NULL;
    job.dshift = dshift != NULL ? dshift->data : NULL;
    job.width = columns_of(dy);
    job.tall = job.wanted ? rows_per_partial(dy->rows, job.width) : rows_per_tile(job.width);
    job.tiles = job.width > 0 ? tiles_of(dy->rows, job.tall) : 0;
    if (job.tiles == 0) return ATTN_OK;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    if (job.wanted) {
        job.partial = attn__scratch(ctx, job.tiles * 2 * job.width * (int64_t)sizeof(float));
        if (job.partial == NULL) return attn__arena_status(ctx->scratch);
    }
    attn_status status = attn__run(ctx, job.tiles, norm_back_tile, &job);
    if (status == ATTN_OK && job.wanted) status = attn__run(ctx, tiles_of(job.width, ROWS_PIECE), join_tile, &job);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

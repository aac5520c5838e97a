/* Linear layers: products in tiles, with bias, activation and dropout applied while a tile is in the cache. */
#include <string.h>
#include "products.h"

typedef struct linear_job {
    grid cut; /* of y */
    const view *x, *w, *b;
    view y, u;           /* u.data NULL: the product lands in y */
    int32_t kind, plain; /* plain: y is the product itself */
    float beta;
    dropper drop;
    atomic_int refused;
} linear_job;

/* x [rows, in] times rows first .. first + count of w, into columns of `to` at the same places */
static void linear_product(linear_job *job, const view *to, const cell *c, int64_t first)
{
    int64_t rows = c->end - c->first, in = columns_of(job->x);
    float *out = row_of(to, c->first) + first;
    const float *bias = job->b != NULL ? (const float *)job->b->data + first : NULL;
    for (int64_t r = 0; bias != NULL && r < rows; r++) memcpy(out + r * to->row_stride, bias, (size_t)c->count * sizeof(float));
    BLAS(product)
    (1, rows, c->count, in, row_of(job->x, c->first), job->x->row_stride, row_of(job->w, first), job->w->row_stride, bias != NULL ? 1 : 0,
     out, to->row_stride, &job->refused);
}

/* y of columns column .. column + n of a row, n at most ROWS_PIECE; up NULL: not gated */
static void finish_piece(const linear_job *job, int64_t row, int64_t column, int64_t n, const float *gate, const float *up)
{
    float *y = row_of(&job->y, row) + column, factors[ROWS_PIECE];
    BLAS(act_values)(job->kind, job->beta, gate, n, y);
    if (up != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] *= up[i];
    }
    if (!job->drop.on) return;
    BLAS(dropper_factors)(&job->drop, row, column, n, factors);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = kept(y[i], factors[i]);
}

static void finish(const linear_job *job, const view *from, const cell *c, int gated)
{
    for (int64_t row = c->first; row < c->end; row++) {
        for (int64_t at = 0; at < c->count; at += ROWS_PIECE) {
            int64_t column = c->column + at;
            const float *gate = row_of(from, row) + column;
            finish_piece(job, row, column, least(ROWS_PIECE, c->count - at), gate, gated ? gate + job->cut.columns : NULL);
        }
    }
}

static void linear_tile(void *context, int64_t tile, int32_t worker)
{
    linear_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    const view *to = job->u.data != NULL ? &job->u : &job->y;
    (void)worker;
    linear_product(job, to, &c, c.column);
    if (!job->plain) finish(job, to, &c, 0);
}

static void gated_tile(void *context, int64_t tile, int32_t worker)
{
    linear_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    linear_product(job, &job->u, &c, c.column);
    linear_product(job, &job->u, &c, job->cut.columns + c.column);
    finish(job, &job->u, &c, 1);
}

static linear_job linear_job_of(const view *x, const view *w, const view *b, const attn__activation *act, const attn__dropout *drop,
                                view *y)
{
    linear_job job = {.x = x, .w = w, .b = b, .y = *y, .drop = BLAS(dropper_of)(drop)};
    job.kind = act != NULL ? act->kind : ATTN_ACTIVATION_IDENTITY;
    job.beta = act != NULL ? BLAS(act_beta)(act) : 1;
    job.cut = BLAS(product_grid)(x->rows, columns_of(y), columns_of(x));
    return job;
}

attn_status BLAS(linear)(attn_context *ctx, const view *x, const view *w, const view *b, const attn__activation *act,
                         const attn__dropout *drop, view *y, view *u)
{
    linear_job job = linear_job_of(x, w, b, act, drop, y);
    if (u != NULL) job.u = *u;
    job.plain = u == NULL && job.kind == ATTN_ACTIVATION_IDENTITY && !job.drop.on;
    return BLAS(product_status)(ctx, attn__run(ctx, job.cut.tiles, linear_tile, &job), &job.refused);
}

attn_status BLAS(linear_gated)(attn_context *ctx, const view *x, const view *w, const view *b, const attn__activation *act,
                               const attn__dropout *drop, view *y, view *u)
{
    linear_job job = linear_job_of(x, w, b, act, drop, y);
    job.u = *u;
    return BLAS(product_status)(ctx, attn__run(ctx, job.cut.tiles, gated_tile, &job), &job.refused);
}

typedef struct back_job {
    grid cut;               /* of dx or dw */
    const view *dy, *other; /* other: w or x */
    view *to, *db;
    int add;
    atomic_int refused;
} back_job;

static void d_input_tile(void *context, int64_t tile, int32_t worker)
{
    back_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    BLAS(product)
    (0, c.end - c.first, c.count, columns_of(job->dy), row_of(job->dy, c.first), job->dy->row_stride, row_of(job->other, 0) + c.column,
     job->other->row_stride, job->add ? 1 : 0, row_of(job->to, c.first) + c.column, job->to->row_stride, &job->refused);
}

attn_status BLAS(linear_d_input)(attn_context *ctx, const view *dy, const view *w, int add, view *dx)
{
    back_job job = {.cut = BLAS(product_grid)(dx->rows, columns_of(dx), columns_of(dy)), .dy = dy, .other = w, .to = dx, .add = add};
    return BLAS(product_status)(ctx, attn__run(ctx, job.cut.tiles, d_input_tile, &job), &job.refused);
}

/* db += sums of columns first .. end of dy: float over SUM_ROWS rows, double over those */
enum { SUM_ROWS = 64, SUM_COLUMNS = 256 };
static void add_column_sums(const view *dy, int64_t first, int64_t end, float *db)
{
    for (int64_t column = first; column < end; column += SUM_COLUMNS) {
        int64_t n = least(SUM_COLUMNS, end - column);
        double total[SUM_COLUMNS] = {0};
        for (int64_t start = 0; start < dy->rows; start += SUM_ROWS) {
            float sum[SUM_COLUMNS] = {0};
            int64_t stop = least(start + SUM_ROWS, dy->rows);
            for (int64_t row = start; row < stop; row++) {
                const float *g = row_of(dy, row) + column;
#pragma omp simd
                for (int64_t i = 0; i < n; i++) sum[i] += g[i];
            }
            for (int64_t i = 0; i < n; i++) total[i] += (double)sum[i];
        }
        for (int64_t i = 0; i < n; i++) db[column + i] += (float)total[i];
    }
}

static void d_weight_tile(void *context, int64_t tile, int32_t worker)
{
    back_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    if (job->to != NULL &&
        attn__sgemm(1, 0, c.end - c.first, c.count, job->dy->rows, 1, row_of(job->dy, 0) + c.first, job->dy->row_stride,
                    row_of(job->other, 0) + c.column, job->other->row_stride, 1, row_of(job->to, c.first) + c.column, job->to->row_stride))
        atomic_store(&job->refused, 1);
    if (job->db != NULL && c.column == 0) add_column_sums(job->dy, c.first, c.end, job->db->data);
}

attn_status BLAS(linear_d_weight)(attn_context *ctx, const view *dy, const view *x, view *dw, view *db)
{
    back_job job = {.dy = dy, .other = x, .to = dw, .db = db};
    int64_t out = columns_of(dy), in = dw != NULL ? columns_of(dw) : 0;
    if (in > 0) {
        job.cut = BLAS(product_grid)(out, in, dy->rows);
    } else {
        grid sums = {out, 1, SUM_COLUMNS, 1, 1, tiles_of(out, SUM_COLUMNS)};
        job.cut = sums;
        job.to = NULL;
    }
    return BLAS(product_status)(ctx, attn__run(ctx, job.cut.tiles, d_weight_tile, &job), &job.refused);
}

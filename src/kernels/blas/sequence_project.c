/* Projection along the length, segment by segment: what the Linformer does to keys and values. */
#include "products.h"

/* projected rows, rows of x, and columns of E that a tile takes */
enum { PROJECTED = 64, ROWS = 256 };

typedef struct project_job {
    const view *x, *e, *dy;
    view to; /* y, dx or dE */
    attn__segments segments;
    int64_t parts; /* tiles of a segment and head */
    int32_t add, reserved;
    atomic_int refused;
} project_job;

static float *head_row(const view *v, int64_t row, int64_t head)
{
    return row_of(v, row) + head * v->head_stride;
}

static void product(project_job *job, int turned_a, int turned_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (attn__sgemm(turned_a, turned_b, m, n, k, 1, a, lda, b, ldb, beta, c, ldc)) atomic_store(&job->refused, 1);
}

static void project_tile(void *context, int64_t tile, int32_t worker)
{
    project_job *job = context;
    int64_t first = tile % job->parts * PROJECTED, head = tile / job->parts % job->to.heads, s = tile / job->parts / job->to.heads;
    int64_t rows = least(PROJECTED, job->e->rows - first);
    const attn_segment *segment = &job->segments.at[s];
    (void)worker;
    product(job, 0, 0, rows, job->to.width, segment->length, row_of(job->e, first), job->e->row_stride,
            head_row(job->x, segment->start, head), job->x->row_stride, 0, head_row(&job->to, s * job->e->rows + first, head),
            job->to.row_stride);
}

attn_status BLAS(sequence_project)(attn_context *ctx, const view *x, const view *e, attn__segments segments, view *y)
{
    project_job job = {.x = x, .e = e, .to = *y, .segments = segments, .parts = tiles_of(e->rows, PROJECTED)};
    return BLAS(product_status)(ctx, attn__run(ctx, segments.count * y->heads * job.parts, project_tile, &job), &job.refused);
}

/* some rows of a segment of dx */
static void back_tile(void *context, int64_t tile, int32_t worker)
{
    project_job *job = context;
    int64_t first = tile % job->parts * ROWS, head = tile / job->parts % job->to.heads, s = tile / job->parts / job->to.heads;
    const attn_segment *segment = &job->segments.at[s];
    (void)worker;
    if (first >= segment->length) return;
    product(job, 1, 0, least(ROWS, segment->length - first), job->to.width, job->e->rows, row_of(job->e, 0) + first, job->e->row_stride,
            head_row(job->dy, s * job->e->rows, head), job->dy->row_stride, job->add ? 1 : 0,
            head_row(&job->to, segment->start + first, head), job->to.row_stride);
}

/* some columns of dE: segments and heads in their order */
static void matrix_tile(void *context, int64_t tile, int32_t worker)
{
    project_job *job = context;
    int64_t first = tile * ROWS;
    (void)worker;
    for (int64_t s = 0; s < job->segments.count; s++) {
        const attn_segment *segment = &job->segments.at[s];
        for (int64_t head = 0; first < segment->length && head < job->x->heads; head++)
            product(job, 0, 1, job->e->rows, least(ROWS, segment->length - first), job->x->width, head_row(job->dy, s * job->e->rows, head),
                    job->dy->row_stride, head_row(job->x, segment->start + first, head), job->x->row_stride, 1, row_of(&job->to, 0) + first,
                    job->to.row_stride);
    }
}

attn_status BLAS(sequence_project_back)(attn_context *ctx, const view *x, const view *e, attn__segments segments, const view *dy, int add,
                                        view *dx, view *de)
{
    project_job job = {.x = x, .e = e, .dy = dy, .segments = segments, .parts = tiles_of(e->width, ROWS), .add = add};
    attn_status status = ATTN_OK;
    if (dx != NULL) {
        job.to = *dx;
        status = attn__run(ctx, segments.count * dx->heads * job.parts, back_tile, &job);
    }
    if (status == ATTN_OK && de != NULL) {
        job.to = *de;
        status = attn__run(ctx, job.parts, matrix_tile, &job);
    }
    return BLAS(product_status)(ctx, status, &job.refused);
}

/* A convolution: the rows that a strip of rows reads are gathered side by side, and what is left are the products of a linear layer. */
#include <string.h>
#include "products.h"

typedef struct gather_job {
    const view *from;
    const attn__segments *segments;
    const int64_t *owner;       /* [rows]: the segment of each row */
    int64_t taps, first, apart; /* row r reads r + first + k apart */
    int64_t start, rows, strip; /* rows of the strip at hand; the most a strip has */
    grid cut;                   /* of the strip by whole rows */
    float *tile;                /* [strip, taps width] */
} gather_job;

static void gather_row(const gather_job *job, int64_t at)
{
    int64_t row = job->start + at, width = job->from->width;
    const attn_segment *segment = &job->segments->at[job->owner[row]];
    float *to = job->tile + at * job->taps * width;
    size_t bytes = (size_t)width * sizeof(float);
    for (int64_t k = 0; k < job->taps; k++, to += width) {
        int64_t place = row - segment->start + job->first + k * job->apart;
        if (place >= 0 && place < segment->length)
            memcpy(to, row_of(job->from, segment->start + place), bytes);
        else
            memset(to, 0, bytes);
    }
}

static void gather_tile(void *context, int64_t tile, int32_t worker)
{
    const gather_job *job = context;
    int64_t first = tile * job->cut.tall, end = least(first + job->cut.tall, job->rows);
    (void)worker;
    for (int64_t at = first; at < end; at++) gather_row(job, at);
}

/* the rows of a strip, as a view of [rows, taps width] */
static attn_status gather(attn_context *ctx, gather_job *job, int64_t start, view *out)
{
    int64_t wide = job->taps * job->from->width;
    job->start = start;
    job->rows = least(job->strip, job->from->rows - start);
    job->cut = (grid){job->rows, wide, rows_per_tile(wide), wide, 1, 0};
    job->cut.tiles = wide > 0 ? tiles_of(job->rows, job->cut.tall) : 0;
    *out = (view){.data = job->tile, .rows = job->rows, .heads = 1, .width = wide, .row_stride = wide, .dtype = ATTN_FLOAT32};
    return attn__run(ctx, job->cut.tiles, gather_tile, job);
}

/* rows of x, or with back the rows of dy that read each row */
static attn_status make_job(attn_context *ctx, const attn__convolution *shape, const view *from, int back, gather_job *job)
{
    int64_t wide, elements, bytes, *owner;
    *job = (gather_job){.from = from, .segments = &shape->segments, .taps = shape->taps};
    job->first = back ? -shape->first : shape->first;
    job->apart = back ? -shape->dilation : shape->dilation;
    if (attn__multiply(shape->taps, from->width, &wide)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "convolution");
    job->strip = attn__convolution_strip(from->rows, wide);
    if (attn__multiply(job->strip, wide, &elements) || attn__multiply(elements, (int64_t)sizeof(float), &elements) ||
        attn__multiply(from->rows, (int64_t)sizeof(int64_t), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "convolution");
    job->tile = attn__scratch(ctx, elements);
    owner = job->tile != NULL ? attn__scratch(ctx, bytes) : NULL;
    if (owner == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t s = 0; s < shape->segments.count; s++) {
        const attn_segment *segment = &shape->segments.at[s];
        for (int64_t i = 0; i < segment->length; i++) owner[segment->start + i] = s;
    }
    job->owner = owner;
    return ATTN_OK;
}

attn_status BLAS(convolution)(attn_context *ctx, const view *x, const view *w, const view *b, const attn__convolution *shape, view *y)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    gather_job job;
    view tile;
    attn_status status = make_job(ctx, shape, x, 0, &job);
    for (int64_t at = 0; status == ATTN_OK && at < x->rows; at += job.strip) {
        status = gather(ctx, &job, at, &tile);
        view rows = attn__view_rows(*y, at, job.rows);
        if (status == ATTN_OK) status = BLAS(linear)(ctx, &tile, w, b, NULL, NULL, &rows, NULL);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* dx (+)= sum of dy_(r - first - k dilation) W_k, tap by tap */
static attn_status back_input(attn_context *ctx, const view *w, const attn__convolution *shape, const view *dy, int add, const view *dx)
{
    gather_job job;
    view tile;
    attn_status status = make_job(ctx, shape, dy, 1, &job);
    for (int64_t at = 0; status == ATTN_OK && at < dy->rows; at += job.strip) {
        status = gather(ctx, &job, at, &tile);
        view rows = attn__view_rows(*dx, at, job.rows);
        for (int64_t k = 0; status == ATTN_OK && k < shape->taps; k++) {
            const view dy_k = attn__view_columns(tile, k * dy->width, dy->width), w_k = attn__view_columns(*w, k * dx->width, dx->width);
            status = BLAS(linear_d_input)(ctx, &dy_k, &w_k, add || k > 0, &rows);
        }
    }
    return status;
}

static attn_status back_weight(attn_context *ctx, const view *x, const attn__convolution *shape, const view *dy, view *dw, view *db)
{
    gather_job job;
    view tile;
    attn_status status = make_job(ctx, shape, x, 0, &job);
    for (int64_t at = 0; status == ATTN_OK && at < x->rows; at += job.strip) {
        status = gather(ctx, &job, at, &tile);
        const view rows = attn__view_rows(*dy, at, job.rows);
        if (status == ATTN_OK) status = BLAS(linear_d_weight)(ctx, &rows, &tile, dw, db);
    }
    return status;
}

attn_status BLAS(convolution_back)(attn_context *ctx, const view *x, const view *w, const attn__convolution *shape, const view *dy, int add,
                                   view *dx, view *dw, view *db)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn_status status = dx != NULL ? back_input(ctx, w, shape, dy, add, dx) : ATTN_OK;
    attn__arena_rewind(ctx->scratch, mark);
    if (status == ATTN_OK && dw != NULL) status = back_weight(ctx, x, shape, dy, dw, db);
    if (status == ATTN_OK && dw == NULL && db != NULL) status = BLAS(linear_d_weight)(ctx, dy, x, NULL, db);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

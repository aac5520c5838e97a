/* What a convolution costs: each row has all its taps in the products, those outside its segment too. */
#include "count.h"

/* a strip of gathered rows, and the segment of every row */
static attn_status gathered(attn_context *ctx, const view *from, int64_t taps)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    int64_t wide = 0;
    grow(&wide, taps, from->width, 1);
    attn_status status = ATTN_OK;
    if (ctx->backend == ATTN_BACKEND_BLAS) status = borrow(ctx, attn__convolution_strip(from->rows, wide), wide, (int64_t)sizeof(float));
    if (status == ATTN_OK && ctx->backend == ATTN_BACKEND_BLAS) status = borrow(ctx, from->rows, (int64_t)sizeof(int64_t), 1);
    attn__arena_rewind(ctx->scratch, mark);
    moved(ctx, from, 2 * taps);
    return status;
}

attn_status attn__count_convolution(attn_context *ctx, const view *x, const view *w, const view *b, const attn__convolution *shape, view *y)
{
    products(ctx, x->rows, w->rows, w->width);
    moved(ctx, w, 1), moved(ctx, b, 1), moved(ctx, y, 1);
    return gathered(ctx, x, shape->taps);
}

attn_status attn__count_convolution_back(attn_context *ctx, const view *x, const view *w, const attn__convolution *shape, const view *dy,
                                         int add, view *dx, view *dw, view *db)
{
    attn_status status = ATTN_OK;
    products(ctx, dy->rows, w->rows * ((dx != NULL) + (dw != NULL)), w->width);
    moved(ctx, dx != NULL ? w : NULL, 1), stored(ctx, dx, add), stored(ctx, dw, 1), stored(ctx, db, 1);
    if (dx != NULL) status = gathered(ctx, dy, shape->taps);
    return status == ATTN_OK && dw != NULL ? gathered(ctx, x, shape->taps) : status;
}

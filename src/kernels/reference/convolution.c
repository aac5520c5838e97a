#include "real.h"

/* The row that tap k of row `place` of a segment reads, counted in the segment; -1: outside, which is zeros. */
static int64_t tap(const attn__convolution *shape, const attn_segment *segment, int64_t place, int64_t k)
{
    int64_t at = place + shape->first + k * shape->dilation;
    return at >= 0 && at < segment->length ? segment->start + at : -1;
}

attn_status REFERENCE(convolution)(attn_context *ctx, const view *x, const view *w, const view *b, const attn__convolution *shape, view *y)
{
    (void)ctx;
    for (int64_t s = 0; s < shape->segments.count; s++) {
        const attn_segment *segment = &shape->segments.at[s];
        for (int64_t i = 0; i < segment->length; i++) {
            for (int64_t o = 0; o < y->width; o++) {
                double sum = b != NULL ? (double)row_of(b, 0)[o] : 0;
                for (int64_t k = 0; k < shape->taps; k++) {
                    int64_t row = tap(shape, segment, i, k);
                    for (int64_t c = 0; row >= 0 && c < x->width; c++)
                        sum += (double)row_of(w, o)[k * x->width + c] * (double)row_of(x, row)[c];
                }
                row_of(y, segment->start + i)[o] = (real)sum;
            }
        }
    }
    return ATTN_OK;
}

/* dx of row j: what the rows that read it hand back */
static void back_input(const view *w, const attn__convolution *shape, const view *dy, int add, const view *dx)
{
    for (int64_t s = 0; s < shape->segments.count; s++) {
        const attn_segment *segment = &shape->segments.at[s];
        for (int64_t j = 0; j < segment->length; j++) {
            for (int64_t c = 0; c < dx->width; c++) {
                double sum = 0;
                for (int64_t k = 0; k < shape->taps; k++) {
                    int64_t i = j - shape->first - k * shape->dilation;
                    for (int64_t o = 0; i >= 0 && i < segment->length && o < dy->width; o++)
                        sum += (double)row_of(dy, segment->start + i)[o] * (double)row_of(w, o)[k * dx->width + c];
                }
                put(&row_of(dx, segment->start + j)[c], sum, add);
            }
        }
    }
}

static void back_weight(const view *x, const attn__convolution *shape, const view *dy, const view *dw)
{
    for (int64_t o = 0; o < dw->rows; o++) {
        for (int64_t k = 0; k < shape->taps; k++) {
            for (int64_t c = 0; c < x->width; c++) {
                double sum = 0;
                for (int64_t s = 0; s < shape->segments.count; s++) {
                    const attn_segment *segment = &shape->segments.at[s];
                    for (int64_t i = 0; i < segment->length; i++) {
                        int64_t row = tap(shape, segment, i, k);
                        if (row >= 0) sum += (double)row_of(dy, segment->start + i)[o] * (double)row_of(x, row)[c];
                    }
                }
                put(&row_of(dw, o)[k * x->width + c], sum, 1);
            }
        }
    }
}

attn_status REFERENCE(convolution_back)(attn_context *ctx, const view *x, const view *w, const attn__convolution *shape, const view *dy,
                                        int add, view *dx, view *dw, view *db)
{
    if (dx != NULL) back_input(w, shape, dy, add, dx);
    if (dw != NULL) back_weight(x, shape, dy, dw);
    return db != NULL ? REFERENCE(linear_d_weight)(ctx, dy, x, NULL, db) : ATTN_OK;
}

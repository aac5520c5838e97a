#ifndef ATTN_KERNELS_COUNT_COUNT_H
#define ATTN_KERNELS_COUNT_COUNT_H
#include "../kernels.h"

/* What the entries of the counting table (table.c) are made of. */

/* adds a * b * c; too large stays at the largest number */
static inline void grow(int64_t *total, int64_t a, int64_t b, int64_t c)
{
    int64_t part = 0;
    if (attn__multiply(a, b, &part) || attn__multiply(part, c, &part) || attn__sum(*total, part, total)) *total = INT64_MAX;
}

static inline void products(attn_context *ctx, int64_t a, int64_t b, int64_t c)
{
    grow(&ctx->counts.multiply_adds, a, b, c);
}

/* v is passed over `times` times; NULL: an argument that was not given */
static inline void moved(attn_context *ctx, const view *v, int64_t times)
{
    if (v != NULL) grow(&ctx->counts.bytes, attn__view_bytes(v), times, 1);
}

/* written, and read first when it is added to */
static inline void stored(attn_context *ctx, const view *v, int add)
{
    moved(ctx, v, add ? 2 : 1);
}

/* scratch that a kernel has while it runs: a * b * c bytes; what the caller rewinds */
static inline attn_status borrow(attn_context *ctx, int64_t a, int64_t b, int64_t c)
{
    int64_t bytes = 0;
    grow(&bytes, a, b, c);
    return attn__scratch(ctx, bytes) != NULL ? ATTN_OK : attn__arena_status(ctx->scratch);
}

/* the same for a kernel that takes nothing else, given back at once */
static inline attn_status borrowed(attn_context *ctx, int64_t a, int64_t b, int64_t c)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn_status status = borrow(ctx, a, b, c);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

__typeof__(*((attn__kernels *)0)->recurrent) attn__count_recurrent, attn__count_recurrent_back;
__typeof__(*((attn__kernels *)0)->linear_attention) attn__count_linear_attention, attn__count_linear_attention_back;
__typeof__(*((attn__kernels *)0)->convolution) attn__count_convolution;
__typeof__(*((attn__kernels *)0)->convolution_back) attn__count_convolution_back;
#endif

#ifndef ATTN_MASK_H
#define ATTN_MASK_H
#include "layout.h"
ATTN_BEGIN

/* Which keys each query sees, within one pair of segments (query i of m, key j of n). Where a function takes a mask, NULL means that all
   keys are seen. A query that sees no key gives a zero row, zero weights and zero gradients. Masks never change once made: any number of
   threads and contexts may share one. The memory of a union's parts is kept by it, so that parts may be freed first. Since: 0.0.1 */
typedef struct attn_mask attn_mask;

/* Where query i stands among the keys: at p = i + (n - m), the last query at the last key; at p = i, the first query at the first key; or
   where its position says, p = (query segment's first_position + i) - key segment's first_position. LAST is what a cache and a whole
   sequence both need; with m > n its first m - n queries see no key. */
enum { ATTN_ALIGN_LAST = 0, ATTN_ALIGN_FIRST = 1, ATTN_ALIGN_POSITION = 2 };

/* Query i sees the keys j <= p (3.19). Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_mask_causal(attn_context *ctx, int32_t alignment, attn_mask **out);

/* Query i sees the keys j = p - t * dilation for the whole numbers -right <= t <= left: `left` keys before its own place, `right` keys
   after it, and the one at it. -1: no limit on that side. A causal window of w keys has left = w - 1 and right = 0. dilation: 1 or more.
   Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_mask_window(attn_context *ctx, int32_t alignment, int64_t left, int64_t right, int64_t dilation, attn_mask **out);

/* allowed: uint8 or int32, [1 or segments, 1 or heads, queries, keys], any strides; non-zero: seen. It is copied (a byte each). An axis of
   1 in the first two stands for all. A pair of segments of m by n uses the first m rows and n columns; where it is used, m over queries,
   n over keys or another number of segments or heads is a SHAPE error.
   Errors: INVALID_ARGUMENT, DTYPE, SHAPE (rank), OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_mask_boolean(attn_context *ctx, const attn_tensor *allowed, attn_mask **out);

/* What a or b lets through, and what a and b let through. a and b may be the same, and may be freed right away.
   Errors: INVALID_ARGUMENT, UNSUPPORTED (more than 1024 masks in all or 64 levels), OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_mask_union(attn_context *ctx, const attn_mask *a, const attn_mask *b, attn_mask **out);
ATTN_API attn_status attn_mask_intersection(attn_context *ctx, const attn_mask *a, const attn_mask *b, attn_mask **out);

/* Gives up the caller's hold, from any thread, before or after the context; NULL is fine. Unions and tapes keep theirs. Since: 0.0.1 */
ATTN_API void attn_mask_free(attn_mask *mask);
ATTN_END
#endif

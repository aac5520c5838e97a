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

/* The masks of the sparse systems. Most are used in unions with a window, and made causal by an intersection with attn_mask_causal.
   Errors of all: INVALID_ARGUMENT, OUT_OF_MEMORY, MEMORY_CAP.

   Global tokens (Longformer): a query whose place p is one of the rising indices sees every key, and every query sees the keys with these
   indices. The indices are copied; those past the keys of a segment do not count there. Since: 0.0.2 */
ATTN_API attn_status attn_mask_global(attn_context *ctx, int32_t alignment, int64_t count, const int64_t *indices, attn_mask **out);

/* Which part of a strided or fixed mask: heads may take one each, or both (1 | 2). */
enum { ATTN_PART_LOCAL = 1, ATTN_PART_SUMMARY = 2 };

/* Sparse Transformer, strided: LOCAL the keys p - stride <= j <= p; SUMMARY the keys j <= p with p - j a multiple of stride.
   stride: 1 or more, or ATTN_DERIVED: the root of the number of keys, rounded up, with which n queries see about 2 n^1.5 pairs. Since: 0.0.2 */
ATTN_API attn_status attn_mask_strided(attn_context *ctx, int32_t alignment, int64_t stride, int32_t parts, attn_mask **out);

/* Sparse Transformer, fixed: of the keys j <= p, LOCAL those of p's own stretch, j / stride = p / stride; SUMMARY the last `summaries` of every
   stretch. stride as above; summaries: 1 to stride (with ATTN_DERIVED at most the stride counts). Since: 0.0.2 */
ATTN_API attn_status attn_mask_fixed(attn_context *ctx, int32_t alignment, int64_t stride, int64_t summaries, int32_t parts,
                                     attn_mask **out);

/* Random blocks (BigBird): queries of block p / block see `count` (0 to 64) different blocks of the keys, drawn from the seed and the number
   of blocks alone: the same for all heads, layers and runs. All of them, where there are fewer. Since: 0.0.2 */
ATTN_API attn_status attn_mask_random(attn_context *ctx, int32_t alignment, int64_t block, int64_t count, uint64_t seed, attn_mask **out);

/* Query p sees the keys at distance 0, 1, 2, 4, 8, ... before it, and with both_sides 1 after it too: n log n pairs, and a path of about log n
   layers from any key to any query. Since: 0.0.2 */
ATTN_API attn_status attn_mask_logarithmic(attn_context *ctx, int32_t alignment, int32_t both_sides, attn_mask **out);

/* values: float32 or float64, [1 or segments, 1 or heads, queries, keys], any strides; copied as float32. They are added to the scores, before a
   soft cap; minus infinity blocks a key, as everywhere: not even NaN gets through. Sizes as for attn_mask_boolean. A large negative number
   in place of minus infinity does what it says: a query that has nothing else gets the average of all values.
   Errors: INVALID_ARGUMENT (NaN or plus infinity among them), DTYPE, SHAPE, TOO_LARGE, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.2 */
ATTN_API attn_status attn_mask_additive(attn_context *ctx, const attn_tensor *values, attn_mask **out);

/* A mask for every head: head h sees what masks[h] lets through, NULL: everything. Blocks that a head does not see cost it nothing. The masks may
   be freed right away. Where it is used, another number of heads is a SHAPE error.
   Errors: INVALID_ARGUMENT, UNSUPPORTED (as for a union), OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.2 */
ATTN_API attn_status attn_mask_heads(attn_context *ctx, int64_t count, const attn_mask *const *masks, attn_mask **out);

/* What a or b lets through, and what a and b let through. a and b may be the same, and may be freed right away.
   Errors: INVALID_ARGUMENT, UNSUPPORTED (more than 1024 masks in all or 64 levels; an additive mask in a
   union; an intersection adds up the numbers of both), OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_mask_union(attn_context *ctx, const attn_mask *a, const attn_mask *b, attn_mask **out);
ATTN_API attn_status attn_mask_intersection(attn_context *ctx, const attn_mask *a, const attn_mask *b, attn_mask **out);

/* Pairs of a query and a key over all segments: *seen, how many the mask lets through, summed over the heads; *listed, how many lie in blocks
   of 64 by 64 with at least one such pair (of any head), times the heads: what the attention kernels compute is between the two. Layouts as in
   attn_dot_product_attention, each required; mask NULL: all. Either place may be NULL.
   Errors: INVALID_ARGUMENT, SHAPE (segments that do not match, a boolean mask that does not fit), TOO_LARGE (more pairs, seen or not, than 63
   bits count), OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.2 */
ATTN_API attn_status attn_mask_pairs(attn_context *ctx, const attn_mask *mask, int64_t heads, const attn_layout *query_layout,
                                     const attn_layout *key_layout, int64_t *seen, int64_t *listed);

/* Maximum path length (Table 3.1): how many layers with this mask, over one sequence of `length` positions, until every position that can ever
   reach another one does. A layer keeps its input (residual), so each position reaches itself at once. *layers: 1 when one layer
   does; 0 when nothing reaches anything else. *connected: ordered pairs, of length * length, that are connected in the end.
   Takes length * length / 4 bytes while it works. mask NULL: all keys are seen. Either place may be NULL.
   Errors: INVALID_ARGUMENT, SHAPE, TOO_LARGE, OUT_OF_MEMORY, MEMORY_CAP, CANCELLED. Since: 0.0.2 */
ATTN_API attn_status attn_mask_path(attn_context *ctx, const attn_mask *mask, int64_t length, int64_t *layers, int64_t *connected);

/* Gives up the caller's hold, from any thread, before or after the context; NULL is fine. Unions and tapes keep theirs. Since: 0.0.1 */
ATTN_API void attn_mask_free(attn_mask *mask);
ATTN_END
#endif

#ifndef ATTN_TENSOR_LAYOUT_H
#define ATTN_TENSOR_LAYOUT_H
#include "view.h"

struct attn_layout {
    uint64_t magic;
    attn__memory *memory;
    int64_t capacity, count, rows; /* rows: one past the last row of any segment */
    int32_t tiles_rows, distinct;  /* segments tile rows 0 to rows - 1 once; segments are identical or disjoint */
    attn_segment *segments;
    int64_t *order; /* [capacity] work space of attn_layout_set: segments by start row */
};
/* The order of segments by (start, length, index): heap sort, or one look when they come sorted. */
void attn__segments_order(attn__segments segments, int64_t *order);
/* 1 when the segments, in their order, tile rows 0 .. rows - 1 */
int attn__segments_tile(attn__segments segments, int64_t rows);
attn__segments attn__layout_segments(const attn_layout *layout); /* borrowed */
/* For models and queries: BAD handle, or segments that do not tile rows 0 .. rows - 1 once, fail by name. layout NULL is allowed
   and means one segment of all rows at position 0, sequence 0; its segments are made in the scratch arena. */
attn_status attn__layout_tiling(attn_context *ctx, const char *argument, const attn_layout *layout, int64_t rows, attn__segments *out);
/* For keys: identical or disjoint, none past rows. NULL as above. */
attn_status attn__layout_keys(attn_context *ctx, const char *argument, const attn_layout *layout, int64_t rows, attn__segments *out);
/* copies segments to an arena (a record of a tape keeps them) */
attn_status attn__segments_copy(attn_context *ctx, attn__arena *arena, attn__segments from, attn__segments *out);
/* expands to rows entries in the arena */
attn_status attn__places_expand(attn_context *ctx, attn__arena *arena, attn__segments segments, int64_t rows, attn__places *out);
#endif

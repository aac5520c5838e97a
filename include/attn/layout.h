#ifndef ATTN_LAYOUT_H
#define ATTN_LAYOUT_H
#include "tensor.h"
ATTN_BEGIN

/* Activations are packed rows [rows, width]: the tokens of all sequences one after another, no padding. A layout says which rows are
   which sequence. Segment i of the queries sees segment i of the keys. Where a function takes a layout, NULL means one segment of all
   rows. Layers and models need segments that cover each row once, in any order; layouts of keys may leave gaps and repeat whole segments.
   A layout is written by one thread at a time; reading is shared. Since: 0.0.1 */
typedef struct attn_layout attn_layout;

/* One sequence, or the part of it at hand. The struct is frozen: an int64 [count, 4] array. Since: 0.0.1 */
typedef struct attn_segment {
    int64_t start;          /* first row */
    int64_t length;         /* rows; may be 0 */
    int64_t first_position; /* of the first row within its sequence, from 0 */
    int64_t sequence_id;    /* any number; dropout is drawn by it */
} attn_segment;

/* An empty layout with room for capacity segments. Errors: INVALID_ARGUMENT, TOO_LARGE, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_layout_create(attn_context *ctx, int64_t capacity, attn_layout **out);

/* Replaces all segments by copies of the caller's; never allocates. On failure the layout is unchanged. Overlaps are legal here and
   refused where a call cannot use them. Errors: FULL (count over the capacity), INVALID_ARGUMENT (NULL, a negative start, length or
   position), TOO_LARGE (start or position plus length over 63 bits). Since: 0.0.1 */
ATTN_API attn_status attn_layout_set(attn_context *ctx, attn_layout *layout, int64_t count, const attn_segment *segments);

/* The number of segments; 0 for NULL. Since: 0.0.1 */
ATTN_API int64_t attn_layout_count(const attn_layout *layout);

/* Copies segment index to *out. Errors: INVALID_ARGUMENT (NULL, index outside 0 to count - 1). Since: 0.0.1 */
ATTN_API attn_status attn_layout_get(attn_context *ctx, const attn_layout *layout, int64_t index, attn_segment *out);

/* Frees the layout, from any thread, before or after the context; NULL is fine. Tapes keep copies of the segments. Since: 0.0.1 */
ATTN_API void attn_layout_free(attn_layout *layout);

/* Sets segments that follow one another: segment i has lengths[i] rows, starts where the one before ends, at position 0, with id
   first_sequence_id + i. Never allocates; on failure the layout is unchanged. Errors: as attn_layout_set. Since: 0.0.1 */
ATTN_API attn_status attn_layout_set_lengths(attn_context *ctx, attn_layout *layout, int64_t count, const int64_t *lengths,
                                             int64_t first_sequence_id);

/* From padded to packed: rows of segment i are padded[i, 0 .. length). padded: [segments, longest, width], rows: [rows, width], same
   type; rows in no segment are not written. Errors: INVALID_ARGUMENT (NULL, shared memory), DTYPE, SHAPE. Since: 0.0.1 */
ATTN_API attn_status attn_pack(attn_context *ctx, const attn_tensor *padded, const attn_layout *layout, attn_tensor *rows);

/* From packed to padded, as attn_pack the other way; places past a segment's length are written as zero. Since: 0.0.1 */
ATTN_API attn_status attn_unpack(attn_context *ctx, const attn_tensor *rows, const attn_layout *layout, attn_tensor *padded);

/* What a model sees in one step: everything borrowed, NULL where it does not apply. Since: 0.0.1 */
typedef struct attn_batch {
    uint64_t struct_size;
    const attn_tensor *source, *target, *labels; /* int32 or int64 [rows]; labels < 0 are not counted */
    const attn_layout *source_layout, *target_layout;
} attn_batch;

/* Writes struct_size and NULL everywhere; size: sizeof(attn_batch) of the caller. Errors: INVALID_ARGUMENT. Since: 0.0.1 */
ATTN_API attn_status attn_batch_init(attn_batch *batch, uint64_t size);
ATTN_END
#endif

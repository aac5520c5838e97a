#include <inttypes.h>
#include <string.h>
#include "layout.h"

attn__segments attn__layout_segments(const attn_layout *layout)
{
    return (attn__segments){layout->count, layout->rows, layout->segments};
}

static int before(const attn_segment *at, int64_t a, int64_t b)
{
    if (at[a].start != at[b].start) return at[a].start < at[b].start;
    if (at[a].length != at[b].length) return at[a].length < at[b].length;
    return a < b;
}

static void sift(const attn_segment *at, int64_t *heap, int64_t root, int64_t count)
{
    int64_t moved = heap[root];
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && before(at, heap[child], heap[child + 1])) child++;
        if (!before(at, moved, heap[child])) break;
        heap[root] = heap[child];
    }
    heap[root] = moved;
}

void attn__segments_order(attn__segments segments, int64_t *order)
{
    int sorted = 1;
    for (int64_t i = 0; i < segments.count; i++) {
        order[i] = i;
        if (i > 0 && !before(segments.at, i - 1, i)) sorted = 0;
    }
    if (sorted) return;
    for (int64_t i = segments.count / 2 - 1; i >= 0; i--) sift(segments.at, order, i, segments.count);
    for (int64_t last = segments.count - 1; last > 0; last--) {
        int64_t largest = order[0];
        order[0] = order[last];
        order[last] = largest;
        sift(segments.at, order, 0, last);
    }
}

int attn__segments_tile(attn__segments segments, int64_t rows)
{
    int64_t next = 0;
    for (int64_t i = 0; i < segments.count; i++)
        if (segments.at[i].start == next) next += segments.at[i].length;
    return next == rows;
}

static attn_status one_segment(attn_context *ctx, int64_t rows, attn__segments *out)
{
    if (ctx->dry) return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "layout: got NULL in a cost report, expected an attn_layout");
    attn_segment *segment = attn__scratch(ctx, (int64_t)sizeof *segment);
    if (segment == NULL) return attn__arena_status(ctx->scratch);
    *segment = (attn_segment){0, rows, 0, 0};
    *out = (attn__segments){1, rows, segment};
    return ATTN_OK;
}

attn_status attn__layout_tiling(attn_context *ctx, const char *argument, const attn_layout *layout, int64_t rows, attn__segments *out)
{
    if (layout == NULL) return one_segment(ctx, rows, out);
    attn_status status = attn__expect(ctx, argument, layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status != ATTN_OK) return status;
    if (!layout->tiles_rows)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got segments with gaps or repeats, expected each row in one segment",
                          argument);
    if (layout->rows != rows)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got segments of %" PRId64 " rows, expected %" PRId64, argument, layout->rows, rows);
    *out = attn__layout_segments(layout);
    return ATTN_OK;
}

attn_status attn__layout_keys(attn_context *ctx, const char *argument, const attn_layout *layout, int64_t rows, attn__segments *out)
{
    if (layout == NULL) return one_segment(ctx, rows, out);
    attn_status status = attn__expect(ctx, argument, layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status != ATTN_OK) return status;
    if (!layout->distinct)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got segments that overlap in part, expected identical or disjoint ones",
                          argument);
    if (layout->rows > rows)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got segments up to row %" PRId64 ", expected at most %" PRId64 " rows", argument,
                          layout->rows, rows);
    *out = attn__layout_segments(layout);
    return ATTN_OK;
}

attn_status attn__segments_copy(attn_context *ctx, attn__arena *arena, attn__segments from, attn__segments *out)
{
    int64_t bytes;
    if (attn__multiply(from.count, (int64_t)sizeof(attn_segment), &bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "segments");
    attn_segment *copy = attn__take(ctx, arena, bytes, "segments");
    if (copy == NULL) return attn__arena_status(arena);
    if (ctx->dry) copy = NULL; /* counted, but nothing lies there to be read */
    if (copy != NULL && bytes > 0) memcpy(copy, from.at, (size_t)bytes);
    *out = (attn__segments){from.count, from.rows, copy != NULL ? copy : from.at};
    return ATTN_OK;
}

attn_status attn__places_expand(attn_context *ctx, attn__arena *arena, attn__segments segments, int64_t rows, attn__places *out)
{
    int64_t bytes;
    if (attn__multiply(rows, (int64_t)sizeof(int64_t), &bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "positions of rows");
    int64_t *sequence = attn__take(ctx, arena, bytes, "positions of rows");
    int64_t *position = sequence == NULL ? NULL : attn__take(ctx, arena, bytes, "positions of rows");
    if (position == NULL) return attn__arena_status(arena);
    *out = (attn__places){sequence, position};
    if (ctx->dry) return ATTN_OK;
    for (int64_t row = 0; row < rows; row++) sequence[row] = position[row] = -1;
    for (int64_t s = 0; s < segments.count; s++) {
        const attn_segment *segment = &segments.at[s];
        int64_t end = segment->start + segment->length < rows ? segment->start + segment->length : rows;
        for (int64_t row = segment->start; row < end; row++) {
            sequence[row] = segment->sequence_id;
            position[row] = segment->first_position + row - segment->start;
        }
    }
    return ATTN_OK;
}

#include "layout.h"
#include <inttypes.h>
#include <string.h>

static attn_status create(attn_context *ctx, int64_t capacity, attn_layout **out)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the layout");
    if (capacity < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "capacity: got %" PRId64 ", expected 0 or more", capacity);
    int64_t each = (int64_t)(sizeof(attn_segment) + sizeof(int64_t)), bytes;
    if (attn__multiply(capacity, each, &bytes) || attn__sum(bytes, (int64_t)sizeof(attn_layout), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "layout");
    void *pointer;
    attn_status status = attn__allocate_zero(ctx->memory, bytes, &pointer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "layout");
    attn_layout *layout = pointer;
    layout->magic = ATTN__MAGIC_LAYOUT;
    layout->memory = attn__memory_retain(ctx->memory);
    layout->capacity = capacity;
    layout->tiles_rows = layout->distinct = 1;
    layout->segments = (attn_segment *)(layout + 1);
    layout->order = (int64_t *)(layout->segments + capacity);
    *out = layout;
    return ATTN_OK;
}

attn_status attn_layout_create(attn_context *ctx, int64_t capacity, attn_layout **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, create(ctx, capacity, out));
}

static attn_status check_count(attn_context *ctx, const attn_layout *layout, int64_t count, const char *argument, const void *array)
{
    attn_status status = attn__expect(ctx, "layout", layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status != ATTN_OK) return status;
    if (count < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %" PRId64 ", expected 0 or more", count);
    if (count > layout->capacity)
        return attn__fail(ctx, ATTN_ERROR_FULL, "count: got %" PRId64 " segments, expected at most the capacity of %" PRId64, count,
                          layout->capacity);
    if (count > 0 && array == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got NULL, expected %" PRId64 " entries", argument, count);
    return ATTN_OK;
}

static attn_status check_segment(attn_context *ctx, int64_t index, const attn_segment *segment)
{
    int64_t end;
    if (segment->start < 0 || segment->length < 0 || segment->first_position < 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "segments[%" PRId64 "]: got start %" PRId64 ", length %" PRId64 ", first position %" PRId64
                          ", expected 0 or more",
                          index, segment->start, segment->length, segment->first_position);
    if (attn__sum(segment->start, segment->length, &end) || attn__sum(segment->first_position, segment->length, &end))
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "segments[%" PRId64 "]: got an end over 63 bits (length %" PRId64 ")", index,
                          segment->length);
    return ATTN_OK;
}

/* tiles_rows and distinct, from the segments by start row; segments of no rows count in neither, as long as they start within the others */
static void classify(attn_layout *layout)
{
    const attn_segment *at = layout->segments, *before = NULL;
    attn__segments_order(attn__layout_segments(layout), layout->order);
    layout->tiles_rows = layout->distinct = 1;
    for (int64_t i = 0; i < layout->count; i++) {
        const attn_segment *segment = &at[layout->order[i]];
        if (segment->length == 0) continue;
        int64_t end = before == NULL ? 0 : before->start + before->length;
        if (segment->start != end) layout->tiles_rows = 0;
        int same = before != NULL && segment->start == before->start && segment->length == before->length;
        if (segment->start < end && !same) layout->distinct = 0;
        if (before == NULL || segment->start + segment->length > end) before = segment;
    }
    if ((before == NULL ? 0 : before->start + before->length) != layout->rows) layout->tiles_rows = 0; /* an empty one past the end */
}

static attn_status set(attn_context *ctx, attn_layout *layout, int64_t count, const attn_segment *segments)
{
    int64_t rows = 0;
    attn_status status = check_count(ctx, layout, count, "segments", segments);
    for (int64_t i = 0; status == ATTN_OK && i < count; i++) {
        status = check_segment(ctx, i, &segments[i]);
        if (status == ATTN_OK && segments[i].start + segments[i].length > rows) rows = segments[i].start + segments[i].length;
    }
    if (status != ATTN_OK) return status;
    if (count > 0) memcpy(layout->segments, segments, (size_t)count * sizeof *segments);
    layout->count = count;
    layout->rows = rows;
    classify(layout);
    return ATTN_OK;
}

attn_status attn_layout_set(attn_context *ctx, attn_layout *layout, int64_t count, const attn_segment *segments)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, set(ctx, layout, count, segments));
}

static attn_status set_lengths(attn_context *ctx, attn_layout *layout, int64_t count, const int64_t *lengths, int64_t first_sequence_id)
{
    int64_t rows = 0, last;
    attn_status status = check_count(ctx, layout, count, "lengths", lengths);
    if (status != ATTN_OK) return status;
    for (int64_t i = 0; i < count; i++) {
        if (lengths[i] < 0)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "lengths[%" PRId64 "]: got %" PRId64 ", expected 0 or more", i, lengths[i]);
        if (attn__sum(rows, lengths[i], &rows))
            return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "lengths: got more rows than 63 bits count, at entry %" PRId64, i);
    }
    if (count > 0 && __builtin_add_overflow(first_sequence_id, count - 1, &last))
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "first_sequence_id: got %" PRId64 ", expected room for %" PRId64 " ids",
                          first_sequence_id, count);
    for (int64_t i = 0, start = 0; i < count; start += lengths[i++])
        layout->segments[i] = (attn_segment){start, lengths[i], 0, first_sequence_id + i};
    layout->count = count;
    layout->rows = rows;
    layout->tiles_rows = layout->distinct = 1;
    return ATTN_OK;
}

attn_status attn_layout_set_lengths(attn_context *ctx, attn_layout *layout, int64_t count, const int64_t *lengths,
                                    int64_t first_sequence_id)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, set_lengths(ctx, layout, count, lengths, first_sequence_id));
}

int64_t attn_layout_count(const attn_layout *layout)
{
    return attn__is(layout, ATTN__MAGIC_LAYOUT) ? layout->count : 0;
}

attn_status attn_layout_get(attn_context *ctx, const attn_layout *layout, int64_t index, attn_segment *out)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "layout", layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status == ATTN_OK && out == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the segment");
    if (status == ATTN_OK && (index < 0 || index >= layout->count))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "index: got %" PRId64 ", expected 0 to %" PRId64, index, layout->count - 1);
    if (status == ATTN_OK) *out = layout->segments[index];
    return attn__leave(ctx, status);
}

void attn_layout_free(attn_layout *layout)
{
    if (!attn__is(layout, ATTN__MAGIC_LAYOUT)) return;
    attn__memory *memory = layout->memory;
    int64_t each = (int64_t)(sizeof(attn_segment) + sizeof(int64_t));
    int64_t bytes = (int64_t)sizeof *layout + layout->capacity * each;
    layout->magic = 0;
    attn__deallocate(memory, layout, bytes);
    attn__memory_release(memory);
}

attn_status attn_batch_init(attn_batch *batch, uint64_t size)
{
    static const attn_batch defaults = {sizeof(attn_batch), NULL, NULL, NULL, NULL, NULL};
    return attn__options_init(batch, size, &defaults, sizeof defaults);
}

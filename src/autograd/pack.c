#include <attn/layout.h>
#include <string.h>
#include "arguments.h"

/* Padded batches [batch, longest, ...] at the edge of the library against packed rows [rows, ...] inside. Integers (tokens, labels) are
   moved here, floats by the kernels. A tensor of rank 2 has one element per token, which its view keeps as columns. */
typedef struct pair_views {
    view padded, rows;
    attn__segments segments;
    int64_t batch, longest, group; /* group: rows of the views that make one token */
    int32_t columns;               /* 1: tokens are columns */
} pair_views;

static attn_status look(attn_context *ctx, const attn_tensor *padded, const attn_layout *layout, const attn_tensor *rows, pair_views *out)
{
    attn_status status = attn__expect(ctx, "layout", layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status == ATTN_OK) status = attn__expect(ctx, "padded", padded, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status == ATTN_OK) status = attn__expect(ctx, "rows", rows, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    int integers = padded->dtype == ATTN_INT32 || padded->dtype == ATTN_INT64;
    if (padded->rank < 2) return attn__fail(ctx, ATTN_ERROR_SHAPE, "padded: got rank %d, expected at least 2", padded->rank);
    if (rows->rank != padded->rank - 1)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "rows: got rank %d, expected %d, one less than padded", rows->rank, padded->rank - 1);
    for (int32_t i = 1; i < rows->rank; i++)
        if (rows->shape[i] != padded->shape[i + 1])
            return attn__fail(ctx, ATTN_ERROR_SHAPE, "rows: got extent %lld at axis %d, expected the %lld of padded",
                              (long long)rows->shape[i], i, (long long)padded->shape[i + 1]);
    status = attn__rows(ctx, "padded", padded, integers ? -1 : 0, &out->padded);
    if (status == ATTN_OK) status = attn__rows(ctx, "rows", rows, padded->dtype, &out->rows);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "rows", &out->rows, "padded", &out->padded);
    if (status == ATTN_OK) status = attn__layout_keys(ctx, "layout", layout, rows->shape[0], &out->segments);
    if (status != ATTN_OK) return status;
    out->batch = padded->shape[0];
    out->longest = padded->shape[1];
    out->columns = padded->rank == 2;
    out->group = 1;
    for (int32_t i = 2; i < padded->rank - 1; i++) out->group *= padded->shape[i];
    if (out->segments.count != out->batch)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "layout: got %lld segments, expected the %lld of padded", (long long)out->segments.count,
                          (long long)out->batch);
    for (int64_t i = 0; i < out->batch; i++)
        if (out->segments.at[i].length > out->longest)
            return attn__fail(ctx, ATTN_ERROR_SHAPE, "layout: got length %lld in segment %lld, expected at most the %lld of padded",
                              (long long)out->segments.at[i].length, (long long)i, (long long)out->longest);
    return ATTN_OK;
}

static view tokens_of(view at, int columns, int64_t line, int64_t first, int64_t count, int64_t group)
{
    if (columns) return attn__view_columns(attn__view_rows(at, line, 1), first, count);
    return attn__view_rows(at, first * group, count * group);
}

static int is_float(int32_t dtype)
{
    return dtype == ATTN_FLOAT32 || dtype == ATTN_FLOAT64;
}

static attn_status move(attn_context *ctx, const view *from, view *to)
{
    if (is_float(to->dtype)) return attn__copy_view(ctx, from, 0, to);
    int64_t bytes = attn__dtype_bytes(to->dtype);
    for (int64_t r = 0; r < to->rows && to->width > 0; r++)
        memcpy((char *)to->data + r * to->row_stride * bytes, (const char *)from->data + r * from->row_stride * bytes,
               (size_t)(to->width * bytes));
    return ATTN_OK;
}

static attn_status clear(attn_context *ctx, view *to)
{
    if (is_float(to->dtype)) return attn__fill_view(ctx, 0, to);
    int64_t bytes = attn__dtype_bytes(to->dtype);
    for (int64_t r = 0; r < to->rows && to->width > 0; r++)
        memset((char *)to->data + r * to->row_stride * bytes, 0, (size_t)(to->width * bytes));
    return ATTN_OK;
}

static attn_status pack(attn_context *ctx, const attn_tensor *padded, const attn_layout *layout, const attn_tensor *rows, int unpack)
{
    pair_views v;
    attn_status status = look(ctx, padded, layout, rows, &v);
    for (int64_t i = 0; status == ATTN_OK && i < v.batch; i++) {
        const attn_segment *segment = &v.segments.at[i];
        view outside = tokens_of(v.padded, v.columns, i, v.columns ? 0 : i * v.longest, segment->length, v.group);
        view inside = tokens_of(v.rows, v.columns, 0, segment->start, segment->length, v.group);
        status = unpack ? move(ctx, &inside, &outside) : move(ctx, &outside, &inside);
        if (status != ATTN_OK || !unpack) continue;
        view gap =
            tokens_of(v.padded, v.columns, i, (v.columns ? 0 : i * v.longest) + segment->length, v.longest - segment->length, v.group);
        status = clear(ctx, &gap);
    }
    return status;
}

attn_status attn_pack(attn_context *ctx, const attn_tensor *padded, const attn_layout *layout, attn_tensor *rows)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, pack(ctx, padded, layout, rows, 0));
}

attn_status attn_unpack(attn_context *ctx, const attn_tensor *rows, const attn_layout *layout, attn_tensor *padded)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, pack(ctx, padded, layout, rows, 1));
}

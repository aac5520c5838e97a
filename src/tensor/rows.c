/* Tensors as views: the checks that every operation makes on its arguments. */
#include <inttypes.h>
#include <stdio.h>
#include "tensor.h"

enum { SHAPE_TEXT = 192 };

static const char *shape_text(char text[SHAPE_TEXT], int32_t rank, const int64_t *shape)
{
    int used = snprintf(text, SHAPE_TEXT, "[");
    for (int32_t axis = 0; axis < rank; axis++) {
        const char *comma = axis > 0 ? ", " : "";
        size_t left = (size_t)(SHAPE_TEXT - used);
        used += shape[axis] < 0 ? snprintf(text + used, left, "%s*", comma) : snprintf(text + used, left, "%s%" PRId64, comma, shape[axis]);
    }
    snprintf(text + used, (size_t)(SHAPE_TEXT - used), "]");
    return text;
}

static attn_status check_dtype(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype)
{
    int fits = dtype == 0    ? tensor->dtype == ATTN_FLOAT32 || tensor->dtype == ATTN_FLOAT64
               : dtype == -1 ? tensor->dtype == ATTN_INT32 || tensor->dtype == ATTN_INT64
                             : tensor->dtype == dtype;
    if (fits) return ATTN_OK;
    const char *expected = dtype == 0 ? "float32 or float64" : dtype == -1 ? "int32 or int64" : attn__dtype_name(dtype);
    return attn__fail(ctx, ATTN_ERROR_DTYPE, "%s: got %s, expected %s", argument, attn__dtype_name(tensor->dtype), expected);
}

static attn_status check_last(attn_context *ctx, const char *argument, const attn_tensor *tensor)
{
    int32_t last = tensor->rank - 1;
    if (last < 0 || tensor->shape[last] <= 1 || tensor->stride[last] == 1) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got stride %" PRId64 " on the last axis, expected 1", argument, tensor->stride[last]);
}

attn_status attn__rows(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype, attn__view *out)
{
    attn_status status = attn__expect(ctx, argument, tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status == ATTN_OK) status = check_dtype(ctx, argument, tensor, dtype);
    if (status == ATTN_OK) status = check_last(ctx, argument, tensor);
    if (status != ATTN_OK) return status;

    int64_t width = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1, rows = 1, stride = width, next = -1;
    for (int32_t axis = 0; axis < tensor->rank - 1; axis++) rows *= tensor->shape[axis];
    for (int32_t axis = tensor->rank - 2; rows > 0 && width > 0 && axis >= 0; axis--) {
        if (tensor->shape[axis] == 1) continue;
        if (next < 0)
            stride = tensor->stride[axis];
        else if (tensor->stride[axis] != next)
            return attn__fail(ctx, ATTN_ERROR_SHAPE,
                              "%s: got stride %" PRId64 " on axis %" PRId32 ", expected %" PRId64 " (leading axes must join to rows)",
                              argument, tensor->stride[axis], axis, next);
        next = tensor->stride[axis] * tensor->shape[axis];
    }
    *out = (attn__view){tensor->data, rows, 1, width, stride, 0, tensor->dtype, 0};
    return ATTN_OK;
}

attn_status attn__heads(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype, attn__view *out)
{
    attn_status status = attn__expect(ctx, argument, tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status == ATTN_OK) status = check_dtype(ctx, argument, tensor, dtype);
    if (status != ATTN_OK) return status;
    if (tensor->rank != 3)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got rank %" PRId32 ", expected 3 ([rows, heads, size])", argument, tensor->rank);
    status = check_last(ctx, argument, tensor);
    if (status != ATTN_OK) return status;

    int64_t rows = tensor->shape[0], heads = tensor->shape[1], width = tensor->shape[2];
    int64_t head_stride = heads > 1 ? tensor->stride[1] : 0;
    int64_t row_stride = rows > 1 ? tensor->stride[0] : heads > 1 ? tensor->stride[1] * heads : width;
    *out = (attn__view){tensor->data, rows, heads, width, row_stride, head_stride, tensor->dtype, 0};
    return ATTN_OK;
}

attn_status attn__weights_view(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype, int64_t keys,
                               attn__view *out)
{
    attn_status status = attn__expect(ctx, argument, tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status == ATTN_OK) status = check_dtype(ctx, argument, tensor, dtype);
    if (status != ATTN_OK) return status;
    if (tensor->rank != 3)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got rank %" PRId32 ", expected 3 ([heads, rows, keys])", argument, tensor->rank);
    status = check_last(ctx, argument, tensor);
    if (status != ATTN_OK) return status;
    if (tensor->shape[2] != keys)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got %" PRId64 " keys, expected the segment's %" PRId64, argument, tensor->shape[2],
                          keys);
    int64_t heads = tensor->shape[0], rows = tensor->shape[1], row_stride = rows > 1 ? tensor->stride[1] : keys;
    *out = (attn__view){tensor->data, rows, heads, keys, row_stride, heads > 1 ? tensor->stride[0] : 0, tensor->dtype, 0};
    return ATTN_OK;
}

attn_status attn__expect_shape(attn_context *ctx, const char *argument, const attn__view *view, int64_t rows, int64_t heads, int64_t width)
{
    if ((rows < 0 || view->rows == rows) && (heads < 0 || view->heads == heads) && (width < 0 || view->width == width)) return ATTN_OK;
    int plain = view->heads == 1 && (heads == 1 || heads < 0);
    const int64_t got[3] = {view->rows, plain ? view->width : view->heads, view->width};
    const int64_t expected[3] = {rows, plain ? width : heads, width};
    char a[SHAPE_TEXT], b[SHAPE_TEXT];
    return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got shape %s, expected %s", argument, shape_text(a, plain ? 2 : 3, got),
                      shape_text(b, plain ? 2 : 3, expected));
}

attn_status attn__expect_apart(attn_context *ctx, const char *argument, const attn__view *a, const char *other, const attn__view *b)
{
    if (!attn__view_overlaps(a, b)) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got memory shared with %s, expected memory of its own", argument, other);
}

attn_status attn__expect_indices(attn_context *ctx, const char *argument, const attn__view *integers, int64_t count)
{
    for (int64_t row = 0; row < integers->rows; row++) {
        int64_t index = attn__integer_at(integers, row);
        if (index < 0 || index >= count)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got %" PRId64 " at row %" PRId64 ", expected 0 to %" PRId64, argument,
                              index, row, count - 1);
    }
    return ATTN_OK;
}

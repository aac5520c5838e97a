#include "arguments.h"
#include <math.h>
#include <string.h>

attn_status attn__argument_input(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, int32_t dtype,
                                 attn__value *out)
{
    view at;
    attn_status status = attn__rows(ctx, argument, tensor, dtype, &at);
    return status == ATTN_OK ? attn__tape_input(ctx, tape, argument, tensor, &at, out) : status;
}

attn_status attn__argument_matrix(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, int32_t dtype,
                                  attn__value *out)
{
    attn_status status = attn__expect(ctx, argument, tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    if (tensor->rank != 2) return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got rank %d, expected 2", argument, tensor->rank);
    return attn__argument_input(ctx, tape, argument, tensor, dtype, out);
}

attn_status attn__argument_vector(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, int32_t dtype,
                                  int64_t width, attn__value *out, const attn__value **present)
{
    *present = NULL;
    if (tensor == NULL) return ATTN_OK;
    attn_status status = attn__expect(ctx, argument, tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    if (tensor->rank != 1 || tensor->shape[0] != width) {
        if (tensor->rank != 1)
            return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got rank %d, expected shape [%lld]", argument, tensor->rank, (long long)width);
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got shape [%lld], expected [%lld]", argument, (long long)tensor->shape[0],
                          (long long)width);
    }
    *present = out;
    return attn__argument_input(ctx, tape, argument, tensor, dtype, out);
}

attn_status attn__argument_output(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, int32_t dtype,
                                  int64_t rows, int64_t width, int32_t count, const attn__value *const *inputs, attn__value *out)
{
    view at;
    attn_status status = attn__rows(ctx, argument, tensor, dtype, &at);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, argument, &at, rows, 1, width);
    for (int32_t i = 0; status == ATTN_OK && i < count; i++)
        if (inputs[i] != NULL) status = attn__expect_apart(ctx, argument, &at, "an input", &inputs[i]->at);
    return status == ATTN_OK ? attn__tape_output(ctx, tape, argument, tensor, &at, out) : status;
}

attn_status attn__argument_integers(attn_context *ctx, const char *argument, const attn_tensor *tensor, view *out)
{
    attn_status status = attn__expect(ctx, argument, tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    if (tensor->rank == 1 && (tensor->dtype == ATTN_INT32 || tensor->dtype == ATTN_INT64)) {
        *out = (view){.data = tensor->data,
                      .rows = tensor->shape[0],
                      .heads = 1,
                      .width = 1,
                      .row_stride = tensor->stride[0],
                      .dtype = tensor->dtype};
        return ATTN_OK;
    }
    view at;
    status = attn__rows(ctx, argument, tensor, -1, &at);
    if (status != ATTN_OK) return status;
    if (!attn__view_dense(&at)) return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got gaps between its rows, expected none", argument);
    *out = (view){.data = at.data, .rows = at.rows * at.width, .heads = 1, .width = 1, .row_stride = 1, .dtype = at.dtype};
    return ATTN_OK;
}

attn_status attn__argument_positive(attn_context *ctx, const char *argument, double value)
{
    if (isfinite(value) && value >= 0) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got %g, expected a finite number of at least 0", argument, value);
}

attn_status attn__argument_rate(attn_context *ctx, const char *argument, double value)
{
    if (value >= 0 && value <= 1) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got %g, expected 0 to 1", argument, value);
}

attn_status attn__argument_activation(attn_context *ctx, int32_t activation)
{
    if (activation >= ATTN_ACTIVATION_IDENTITY && activation <= ATTN_ACTIVATION_TANH) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "activation: got %d, expected %d to %d", activation, ATTN_ACTIVATION_IDENTITY,
                      ATTN_ACTIVATION_TANH);
}

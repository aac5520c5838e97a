#include <string.h>
#include "parameters.h"

static int64_t flat_bytes(const attn_parameters *parameters)
{
    return parameters->flat_elements * attn__dtype_bytes(parameters->dtype);
}

static attn_status create(attn_context *ctx, const attn_parameters *parameters, attn_gradients **out)
{
    attn_status status = attn__expect(ctx, "parameters", parameters, ATTN__MAGIC_PARAMETERS, "attn_parameters");
    if (status != ATTN_OK) return status;
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the gradients");
    if (!parameters->finished) return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "parameters: got an unfinished set, expected a module's");

    /* the handle and its tensors are one piece */
    int64_t bytes = (int64_t)sizeof(attn_gradients) + parameters->count * (int64_t)sizeof(attn_tensor);
    void *pointer, *flat = (void *)(uintptr_t)(UINT64_C(4) << 44);
    status = attn__allocate_zero(ctx->memory, bytes, &pointer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "gradients");
    if (!parameters->dry) status = attn__allocate_zero(ctx->memory, flat_bytes(parameters), &flat);
    if (status != ATTN_OK) {
        attn__deallocate(ctx->memory, pointer, bytes);
        return attn__fail_memory(ctx, status, "gradients");
    }
    attn_gradients *gradients = pointer;
    gradients->magic = ATTN__MAGIC_GRADIENTS;
    gradients->memory = attn__memory_retain(ctx->memory);
    gradients->parameters = attn__parameters_retain((attn_parameters *)parameters);
    gradients->tensors = (attn_tensor *)(gradients + 1);
    gradients->flat = flat;
    for (int64_t i = 0; i < parameters->count; i++) {
        const attn__parameter *one = &parameters->at[i];
        attn__tensor_borrow(&gradients->tensors[i], parameters->dtype, one->rank, one->shape,
                            (char *)flat + one->offset * attn__dtype_bytes(parameters->dtype));
    }
    attn__tensor_borrow(&gradients->flat_tensor, parameters->dtype, 1, &parameters->flat_elements, flat);
    *out = gradients;
    return ATTN_OK;
}

attn_status attn_gradients_create(attn_context *ctx, const attn_parameters *parameters, attn_gradients **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, create(ctx, parameters, out));
}

void attn_gradients_free(attn_gradients *gradients)
{
    if (!attn__is(gradients, ATTN__MAGIC_GRADIENTS)) return;
    attn__memory *memory = gradients->memory;
    attn_parameters *parameters = gradients->parameters;
    int64_t bytes = (int64_t)sizeof *gradients + parameters->count * (int64_t)sizeof(attn_tensor);
    if (!parameters->dry) attn__deallocate(memory, gradients->flat, flat_bytes(parameters));
    gradients->magic = 0;
    attn__deallocate(memory, gradients, bytes);
    attn__parameters_release(parameters);
    attn__memory_release(memory);
}

attn_status attn_gradients_zero(attn_context *ctx, attn_gradients *gradients)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "gradients", gradients, ATTN__MAGIC_GRADIENTS, "attn_gradients");
    if (status == ATTN_OK && !gradients->parameters->dry) memset(gradients->flat, 0, (size_t)flat_bytes(gradients->parameters));
    return attn__leave(ctx, status);
}

attn_tensor *attn_gradients_tensor(attn_gradients *gradients, int64_t index)
{
    if (!attn__is(gradients, ATTN__MAGIC_GRADIENTS) || index < 0 || index >= gradients->parameters->count) return NULL;
    return &gradients->tensors[index];
}

attn_tensor *attn_gradients_flat(attn_gradients *gradients)
{
    return attn__is(gradients, ATTN__MAGIC_GRADIENTS) ? &gradients->flat_tensor : NULL;
}

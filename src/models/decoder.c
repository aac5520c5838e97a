#include "stack.h"

/* The public decoder: one stack with a parameter set of its own; cross-attention when the options have an encoder. */
struct attn_decoder {
    uint64_t magic;
    attn__memory *memory;
    attn_parameters *parameters; /* its plan is the attn__stack */
    int32_t dtype, reserved;
};

static attn_status build(attn_context *ctx, const attn_transformer_options *o, attn_decoder *decoder)
{
    attn__side side = attn__decoder_side(o);
    decoder->dtype = o->dtype;
    return attn__stack_own(ctx, o, &side, 1, &decoder->parameters);
}

attn_status attn_decoder_create(attn_context *ctx, const attn_transformer_options *options, attn_decoder **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    void *memory = NULL;
    if (out == NULL) status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the decoder");
    if (status == ATTN_OK) status = attn__stack_options(ctx, options, &o);
    if (status == ATTN_OK) {
        status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_decoder), &memory);
        if (status != ATTN_OK) attn__fail_memory(ctx, status, "decoder");
    }
    if (status == ATTN_OK) {
        attn_decoder *decoder = memory;
        decoder->magic = ATTN__MAGIC_DECODER;
        decoder->memory = attn__memory_retain(ctx->memory);
        status = build(ctx, &o, decoder);
        if (status == ATTN_OK)
            *out = decoder;
        else
            attn_decoder_free(decoder);
    }
    return attn__leave(ctx, status);
}

void attn_decoder_free(attn_decoder *decoder)
{
    if (!attn__is(decoder, ATTN__MAGIC_DECODER)) return;
    attn__memory *memory = decoder->memory;
    attn__parameters_release(decoder->parameters);
    decoder->magic = 0;
    attn__deallocate(memory, decoder, (int64_t)sizeof *decoder);
    attn__memory_release(memory);
}

attn_parameters *attn_decoder_parameters(const attn_decoder *decoder)
{
    return attn__is(decoder, ATTN__MAGIC_DECODER) ? decoder->parameters : NULL;
}

attn_status attn_decoder_set_mask(attn_context *ctx, attn_decoder *decoder, int64_t layer, const attn_mask *mask)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "decoder", decoder, ATTN__MAGIC_DECODER, "attn_decoder");
    if (status == ATTN_OK) status = attn__stack_set_mask(ctx, decoder->parameters->plan, layer, mask);
    return attn__leave(ctx, status);
}

typedef struct sides {
    const attn_tensor *x, *memory;
    const attn_layout *layout, *memory_layout;
    const attn_mask *mask, *memory_mask;
} sides;

static attn_status check_mask(attn_context *ctx, const char *name, const attn_mask *mask)
{
    return mask != NULL ? attn__expect(ctx, name, mask, ATTN__MAGIC_MASK, "attn_mask") : ATTN_OK;
}

static attn_status take_memory(const attn__call *call, const attn_decoder *decoder, const sides *given, attn__layer_inputs *in,
                               attn__value *memory)
{
    const attn__stack *stack = decoder->parameters->plan;
    attn_context *ctx = call->ctx;
    attn__stream keys;
    view at;
    if (stack->side.memory_width == 0)
        return given->memory == NULL ? ATTN_OK
                                     : attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                                                  "memory: got a tensor, expected NULL as the decoder has no cross-attention");
    attn_status status = attn__rows(ctx, "memory", given->memory, decoder->dtype, &at);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "memory", &at, -1, 1, stack->side.memory_width);
    if (status == ATTN_OK) status = attn__stream_keys(call, "memory_layout", given->memory_layout, at.rows, &keys);
    if (status == ATTN_OK && keys.segments.count != in->stream.segments.count)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "memory_layout: got %lld segments, expected %lld as in layout",
                            (long long)keys.segments.count, (long long)in->stream.segments.count);
    if (status == ATTN_OK)
        status = attn__mask_check(ctx, "memory_mask", given->memory_mask, stack->side.heads, in->stream.segments, keys.segments);
    if (status == ATTN_OK) status = attn__tape_input(ctx, call->tape, "memory", given->memory, &at, memory);
    in->memory_segments = keys.segments;
    in->memory = memory;
    return status;
}

static attn_status forward(const attn__call *call, const attn_decoder *decoder, const sides *given, attn_tensor *output)
{
    const attn__stack *stack = decoder->parameters->plan;
    attn_context *ctx = call->ctx;
    attn__layer_inputs in = {.mask = given->mask, .memory_mask = given->memory_mask};
    attn__value input, memory, y;
    view from, to;
    attn_status status = attn__rows(ctx, "x", given->x, decoder->dtype, &from);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "x", &from, -1, 1, stack->side.width);
    if (status == ATTN_OK) status = attn__rows(ctx, "output", output, decoder->dtype, &to);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "output", &to, from.rows, 1, stack->side.width);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", &to, "x", &from);
    if (status == ATTN_OK) status = attn__output_apart(call, "output", &to);
    if (status == ATTN_OK) status = attn__stream_open(call, "layout", given->layout, from.rows, &in.stream);
    if (status == ATTN_OK) status = check_mask(ctx, "mask", given->mask);
    if (status == ATTN_OK) status = check_mask(ctx, "memory_mask", given->memory_mask);
    if (status == ATTN_OK) status = attn__stack_check_masks(ctx, stack, given->mask, in.stream.segments, in.stream.segments);
    if (status == ATTN_OK) status = take_memory(call, decoder, given, &in, &memory);
    if (status == ATTN_OK && in.memory != NULL) status = attn__expect_apart(ctx, "output", &to, "memory", &memory.at);
    if (status == ATTN_OK) status = attn__tape_input(ctx, call->tape, "x", given->x, &from, &input);
    if (status == ATTN_OK) status = attn__tape_output(ctx, call->tape, "output", output, &to, &y);
    in.key_segments = in.stream.segments;
    return status == ATTN_OK ? attn__stack_run(call, stack, &input, &in, &y) : status;
}

attn_status attn_decoder_forward(attn_context *ctx, const attn_decoder *decoder, attn_tape *tape, const attn_tensor *x,
                                 const attn_tensor *memory, const attn_layout *layout, const attn_layout *memory_layout,
                                 const attn_mask *mask, const attn_mask *memory_mask, attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "decoder", decoder, ATTN__MAGIC_DECODER, "attn_decoder");
    if (status == ATTN_OK && tape != NULL) status = attn__expect(ctx, "tape", tape, ATTN__MAGIC_TAPE, "attn_tape");
    if (status == ATTN_OK) {
        const attn__call call = {ctx, tape, decoder->parameters};
        const sides given = {x, memory, layout, memory_layout, mask, memory_mask};
        status = forward(&call, decoder, &given, output);
    }
    return attn__leave(ctx, status);
}

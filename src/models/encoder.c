#include "stack.h"

/* The public encoder: one stack (5.1) with a parameter set of its own. */
struct attn_encoder {
    uint64_t magic;
    attn__memory *memory;
    attn_parameters *parameters; /* its plan is the attn__stack */
    int32_t dtype, reserved;
};

static attn_status build(attn_context *ctx, const attn_transformer_options *o, attn_encoder *encoder)
{
    attn__side side = attn__encoder_side(o);
    encoder->dtype = o->dtype;
    return attn__stack_own(ctx, o, &side, 0, &encoder->parameters);
}

attn_status attn_encoder_create(attn_context *ctx, const attn_transformer_options *options, attn_encoder **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    void *memory = NULL;
    if (out == NULL) status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the encoder");
    if (status == ATTN_OK) status = attn__stack_options(ctx, options, &o);
    if (status == ATTN_OK) {
        status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_encoder), &memory);
        if (status != ATTN_OK) attn__fail_memory(ctx, status, "encoder");
    }
    if (status == ATTN_OK) {
        attn_encoder *encoder = memory;
        encoder->magic = ATTN__MAGIC_ENCODER;
        encoder->memory = attn__memory_retain(ctx->memory);
        status = build(ctx, &o, encoder);
        if (status == ATTN_OK)
            *out = encoder;
        else
            attn_encoder_free(encoder);
    }
    return attn__leave(ctx, status);
}

void attn_encoder_free(attn_encoder *encoder)
{
    if (!attn__is(encoder, ATTN__MAGIC_ENCODER)) return;
    attn__memory *memory = encoder->memory;
    attn__parameters_release(encoder->parameters);
    encoder->magic = 0;
    attn__deallocate(memory, encoder, (int64_t)sizeof *encoder);
    attn__memory_release(memory);
}

attn_parameters *attn_encoder_parameters(const attn_encoder *encoder)
{
    return attn__is(encoder, ATTN__MAGIC_ENCODER) ? encoder->parameters : NULL;
}

attn_status attn_encoder_set_mask(attn_context *ctx, attn_encoder *encoder, int64_t layer, const attn_mask *mask)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "encoder", encoder, ATTN__MAGIC_ENCODER, "attn_encoder");
    if (status == ATTN_OK) status = attn__stack_set_mask(ctx, encoder->parameters->plan, layer, mask);
    return attn__leave(ctx, status);
}

static attn_status forward(const attn__call *call, const attn_encoder *encoder, const attn_tensor *x, const attn_layout *layout,
                           const attn_mask *mask, attn_tensor *output)
{
    const attn__stack *stack = encoder->parameters->plan;
    attn_context *ctx = call->ctx;
    attn__layer_inputs in = {.mask = mask};
    attn__value input, y;
    view from, to;
    attn_status status = attn__rows(ctx, "x", x, encoder->dtype, &from);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "x", &from, -1, 1, stack->side.width);
    if (status == ATTN_OK) status = attn__rows(ctx, "output", output, encoder->dtype, &to);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "output", &to, from.rows, 1, stack->side.width);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", &to, "x", &from);
    if (status == ATTN_OK) status = attn__output_apart(call, "output", &to);
    if (status == ATTN_OK) status = attn__stream_open(call, "layout", layout, from.rows, &in.stream);
    if (status == ATTN_OK && mask != NULL) status = attn__expect(ctx, "mask", mask, ATTN__MAGIC_MASK, "attn_mask");
    if (status == ATTN_OK) status = attn__stack_check_masks(ctx, stack, mask, in.stream.segments, in.stream.segments);
    if (status == ATTN_OK) status = attn__tape_input(ctx, call->tape, "x", x, &from, &input);
    if (status == ATTN_OK) status = attn__tape_output(ctx, call->tape, "output", output, &to, &y);
    in.key_segments = in.stream.segments;
    return status == ATTN_OK ? attn__stack_run(call, stack, &input, &in, &y) : status;
}

attn_status attn_encoder_forward(attn_context *ctx, const attn_encoder *encoder, attn_tape *tape, const attn_tensor *x,
                                 const attn_layout *layout, const attn_mask *mask, attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "encoder", encoder, ATTN__MAGIC_ENCODER, "attn_encoder");
    if (status == ATTN_OK && tape != NULL) status = attn__expect(ctx, "tape", tape, ATTN__MAGIC_TAPE, "attn_tape");
    if (status == ATTN_OK) {
        const attn__call call = {ctx, tape, encoder->parameters};
        status = forward(&call, encoder, x, layout, mask, output);
    }
    return attn__leave(ctx, status);
}

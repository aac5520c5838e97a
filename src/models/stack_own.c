#include "stack.h"

attn_status attn__stack_options(attn_context *ctx, const attn_transformer_options *options, attn_transformer_options *out)
{
    /* a stack reads no tokens: sizes of vocabularies are not its business, and neither is a number of layers of 0 */
    attn_transformer_options o;
    attn_status status =
        attn__options_read(ctx, "options", options, &attn__transformer_defaults, sizeof o, ATTN__TRANSFORMER_OPTIONS_SMALLEST, &o);
    if (status != ATTN_OK) return status;
    if (o.recurrence != ATTN_RECURRENCE_NONE)
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "options.recurrence: got %d, expected ATTN_RECURRENCE_NONE in a stack of its own",
                          (int)o.recurrence);
    const int64_t encoder_layers = o.encoder_layers, decoder_layers = o.decoder_layers;
    if (encoder_layers == 0 && decoder_layers == 0) o.encoder_layers = 1;
    o.source_vocabulary = o.target_vocabulary = 1;
    o.tie = ATTN_TIE_NONE;
    status = attn__transformer_resolve(ctx, &o, out);
    if (status == ATTN_OK) status = attn__transformer_supported(ctx, out);
    out->encoder_layers = encoder_layers;
    out->decoder_layers = decoder_layers;
    return status;
}

static void clear(attn_parameters *parameters)
{
    attn__stack *stack = parameters->plan;
    attn__stack_clear(stack);
    attn__deallocate(parameters->memory, stack, (int64_t)sizeof *stack);
}

attn_status attn__stack_own(attn_context *ctx, const attn_transformer_options *options, const attn__side *side, int decoder,
                            attn_parameters **out)
{
    void *stack = NULL;
    attn_status status = attn__parameters_create(ctx, options->dtype, out);
    if (status != ATTN_OK) return status;
    status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn__stack), &stack);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "stack");
    (*out)->plan = stack;
    (*out)->plan_free = clear;
    const attn__scope scope = {ctx, *out, ""};
    status = attn__stack_plan(&scope, options, side, decoder, stack);
    if (status == ATTN_OK) status = attn__parameters_finish(ctx, *out);
    return status == ATTN_OK ? attn__initialise(ctx, *out) : status;
}

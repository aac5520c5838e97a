#include "stack.h"
#include <string.h>

attn_status attn__stack_plan(const attn__scope *scope, const attn_transformer_options *options, const attn__side *side, int decoder,
                             attn__stack *stack)
{
    attn_context *ctx = scope->ctx;
    memset(stack, 0, sizeof *stack);
    stack->memory = attn__memory_retain(ctx->memory);
    stack->side = *side;
    stack->checkpoint = options->checkpoint_layers;
    void *layers = NULL, *masks = NULL;
    attn_status status = attn__allocate_zero(ctx->memory, side->layers * (int64_t)sizeof(attn__layer), &layers);
    if (status == ATTN_OK) status = attn__allocate_zero(ctx->memory, side->layers * (int64_t)sizeof(attn_mask *), &masks);
    stack->layers = layers;
    stack->masks = masks;
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "layers of a stack");
    if (decoder) status = attn_mask_causal(ctx, ATTN_ALIGN_LAST, &stack->usual);
    for (int64_t i = 0; status == ATTN_OK && i < side->layers; i++) {
        attn__scope here = attn__scope_at(scope, "layers", i);
        status = attn__layer_plan(&here, options, side, &stack->layers[i]);
    }
    stack->has_final_norm = options->final_norm && options->norm_placement == ATTN_PLACEMENT_PRE;
    if (status == ATTN_OK && stack->has_final_norm)
        status = attn__norm_plan(scope, "final_norm", side->width, options->norm, options->norm_bias, options->norm_epsilon, &stack->final_norm);
    return status;
}

void attn__stack_clear(attn__stack *stack)
{
    for (int64_t i = 0; stack->masks != NULL && i < stack->side.layers; i++) attn_mask_free(stack->masks[i]);
    attn_mask_free(stack->usual);
    attn__deallocate(stack->memory, stack->layers, stack->side.layers * (int64_t)sizeof(attn__layer));
    attn__deallocate(stack->memory, stack->masks, stack->side.layers * (int64_t)sizeof(attn_mask *));
    attn__memory_release(stack->memory);
    memset(stack, 0, sizeof *stack);
}

attn_status attn__stack_set_mask(attn_context *ctx, attn__stack *stack, int64_t layer, const attn_mask *mask)
{
    if (layer < -1 || layer >= stack->side.layers)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "layer: got %lld, expected 0 to %lld, or -1 for all", (long long)layer,
                          (long long)stack->side.layers - 1);
    if (mask != NULL) {
        attn_status status = attn__expect(ctx, "mask", mask, ATTN__MAGIC_MASK, "attn_mask");
        if (status != ATTN_OK) return status;
    }
    int64_t first = layer < 0 ? 0 : layer, end = layer < 0 ? stack->side.layers : layer + 1;
    for (int64_t i = first; i < end; i++) {
        attn_mask *before = stack->masks[i];
        stack->masks[i] = mask != NULL ? attn__mask_retain((attn_mask *)(uintptr_t)mask) : NULL;
        attn_mask_free(before);
    }
    return ATTN_OK;
}

static const attn_mask *mask_of(const attn__stack *stack, int64_t layer, const attn_mask *given)
{
    if (stack->masks[layer] != NULL) return stack->masks[layer];
    return given != NULL ? given : stack->usual;
}

attn_status attn__stack_check_masks(attn_context *ctx, const attn__stack *stack, const attn_mask *mask, attn__segments query, attn__segments key)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < stack->side.layers; i++)
        status = attn__mask_check(ctx, stack->masks[i] != NULL ? "the layer's mask" : "mask", mask_of(stack, i, mask), stack->side.heads, query, key);
    return status;
}

/* out = stream + dropout(pending), or a copy of the stream */
static attn_status settle(const attn__call *call, const attn__stack *stack, const attn__layer_inputs *in, const attn__carry *carry, attn__value *out)
{
    const attn__value *parts[1] = {&carry->stream};
    if (!carry->has_pending) return attn__concatenate(call->ctx, call->tape, 1, parts, out);
    attn__dropout drop = attn__tape_dropout(call->tape, stack->layers[0].dropout, carry->site, in->stream.places);
    return attn__residual(call->ctx, call->tape, &carry->stream, &carry->pending, &drop, out);
}

/* A layer whose records are forgotten: from the stream (and the memory) to the stream. */
typedef struct closure { const attn__stack *stack; const attn__layer *layer; attn_parameters *parameters; attn__layer_inputs in; } closure;

static attn_status run_again(attn_context *ctx, attn_tape *tape, const void *data, const attn__value *inputs, attn__value *outputs)
{
    const closure *c = data;
    const attn__call call = {ctx, tape, c->parameters};
    attn__layer_inputs in = c->in;
    if (in.memory != NULL) in.memory = &inputs[1];
    attn__carry carry = {.stream = inputs[0]};
    int post = c->layer->placement == ATTN_PLACEMENT_POST;
    attn_status status = attn__layer_run(&call, c->layer, &in, &carry, post ? outputs : NULL);
    return status == ATTN_OK && !post ? settle(&call, c->stack, &in, &carry, outputs) : status;
}

static attn_status run_checkpointed(const attn__call *call, const attn__stack *stack, int64_t layer, const attn__layer_inputs *in,
                                    attn__carry *carry, attn__value *out)
{
    attn__value inputs[2] = {carry->stream}, next;
    attn_status status = ATTN_OK;
    if (out == NULL)
        status = attn__tape_temporary(call->ctx, call->tape, carry->stream.at.rows, carry->stream.at.width, carry->stream.at.dtype, &next);
    else next = *out;
    if (status != ATTN_OK) return status;
    if (in->memory != NULL) inputs[1] = *in->memory;
    const closure c = {stack, &stack->layers[layer], call->parameters, *in};
    status = attn__tape_checkpoint(call->ctx, call->tape, run_again, &c, (int64_t)sizeof c, in->memory != NULL ? 2 : 1, inputs, 1, &next);
    if (status == ATTN_OK) status = attn__tape_hold_mask(call->ctx, call->tape, in->mask);
    if (status == ATTN_OK) status = attn__tape_hold_mask(call->ctx, call->tape, in->memory_mask);
    carry->stream = next;
    if (out != NULL) *out = next;
    return status;
}

/* Without a tape a layer's temporaries are given back when it is done: what it hands on moves to two buffers that stay. */
typedef struct keeper { attn__value stream, pending; attn__mark mark; } keeper;

static attn_status keep(const attn__call *call, keeper *k, attn__carry *carry)
{
    const attn__kernels *kernels;
    attn_status status = attn__kernels_for(call->ctx, carry->stream.at.dtype, &kernels);
    if (status == ATTN_OK && carry->stream.at.data != k->stream.at.data) status = kernels->copy(call->ctx, &carry->stream.at, 0, &k->stream.at);
    if (status == ATTN_OK && carry->has_pending) status = kernels->copy(call->ctx, &carry->pending.at, 0, &k->pending.at);
    carry->stream = k->stream;
    carry->pending = k->pending;
    attn__arena_rewind(call->ctx->scratch, k->mark);
    return status;
}

static attn_status keep_open(const attn__call *call, const attn__value *x, keeper *k)
{
    attn_status status = attn__tape_temporary(call->ctx, NULL, x->at.rows, x->at.width, x->at.dtype, &k->stream);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, NULL, x->at.rows, x->at.width, x->at.dtype, &k->pending);
    k->mark = attn__arena_mark(call->ctx->scratch);
    return status;
}

attn_status attn__stack_run(const attn__call *call, const attn__stack *stack, const attn__value *x, const attn__layer_inputs *shared, attn__value *out)
{
    attn__layer_inputs in = *shared;
    attn__carry carry = {.stream = *x};
    keeper kept;
    attn_status status = call->tape == NULL ? keep_open(call, x, &kept) : ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < stack->side.layers; i++) {
        int last = i + 1 == stack->side.layers;
        int post = stack->layers[i].placement == ATTN_PLACEMENT_POST;
        in.mask = mask_of(stack, i, shared->mask);
        in.cache = shared->cache ? shared->cache + i : NULL;
        attn__value *end = last && post ? out : NULL;
        status = stack->checkpoint && call->tape != NULL ? run_checkpointed(call, stack, i, &in, &carry, end)
                                                         : attn__layer_run(call, &stack->layers[i], &in, &carry, end);
        if (end != NULL) return status;
        if (status == ATTN_OK && call->tape == NULL) status = keep(call, &kept, &carry);
    }
    if (status != ATTN_OK) return status;
    if (!stack->has_final_norm) return settle(call, stack, &in, &carry, out);
    if (!carry.has_pending) return attn__norm_run(call, &stack->final_norm, &carry.stream, NULL, NULL, NULL, out);
    attn__dropout drop = attn__tape_dropout(call->tape, stack->layers[0].dropout, carry.site, in.stream.places);
    return attn__norm_run(call, &stack->final_norm, &carry.stream, &carry.pending, &drop, NULL, out);
}

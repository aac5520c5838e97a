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
        status = attn__layer_plan(&here, options, side, i > 0 ? &stack->layers[0] : NULL, i, &stack->layers[i]);
    }
    stack->has_final_norm = options->final_norm && options->norm_placement == ATTN_PLACEMENT_PRE;
    if (status == ATTN_OK && stack->has_final_norm)
        status =
            attn__norm_plan(scope, "final_norm", side->width, options->norm, options->norm_bias, options->norm_epsilon, &stack->final_norm);
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

attn_status attn__stack_check_masks(attn_context *ctx, const attn__stack *stack, const attn_mask *mask, attn__segments query,
                                    attn__segments key)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < stack->side.layers; i++)
        status = attn__mask_check(ctx, stack->masks[i] != NULL ? "the layer's mask" : "mask", mask_of(stack, i, mask),
                                  stack->layers[i].self.options.heads, query, key);
    return status;
}

/* out = stream + dropout(pending), or a copy of the stream */
static attn_status settle(const attn__call *call, const attn__stack *stack, const attn__layer_inputs *in, const attn__carry *carry,
                          attn__value *out)
{
    const attn__value *parts[1] = {&carry->stream};
    if (!carry->has_pending) return attn__concatenate(call->ctx, call->tape, 1, parts, out);
    attn__dropout drop = attn__tape_dropout(call->tape, stack->layers[0].dropout, carry->site, in->stream.places);
    return attn__residual(call->ctx, call->tape, &carry->stream, &carry->pending, &drop, out);
}

/* A layer whose records are forgotten, from what it is handed to what it hands on: the same operations on the same numbers as without. */
typedef struct closure {
    const attn__stack *stack;
    const attn__layer *layer;
    attn_parameters *parameters;
    attn__layer_inputs in;
    attn__carry carry;
} closure;

/* inputs: the stream, what is pending (when something is), the memory (when there is one); outputs: the stream, what is pending (pre-norm) */
static attn_status run_again(attn_context *ctx, attn_tape *tape, const void *data, const attn__value *inputs, attn__value *outputs)
{
    const closure *c = data;
    const attn__call call = {ctx, tape, c->parameters};
    attn__layer_inputs in = c->in;
    attn__carry carry = c->carry;
    carry.stream = *inputs++;
    if (carry.has_pending) carry.pending = *inputs++;
    if (in.memory != NULL) in.memory = inputs;
    int pre = c->layer->placement == ATTN_PLACEMENT_PRE;
    const attn__ends ends = {&outputs[0], pre ? &outputs[1] : NULL};
    attn_status status = attn__layer_run(&call, c->layer, &in, &carry, &ends);
    outputs[0] = carry.stream;
    if (pre) outputs[1] = carry.pending;
    return status;
}

static attn_status run_checkpointed(const attn__call *call, const attn__stack *stack, int64_t layer, const attn__layer_inputs *in,
                                    attn__carry *carry, const attn__value *end)
{
    const closure c = {stack, &stack->layers[layer], call->parameters, *in, *carry};
    attn__value inputs[3] = {carry->stream}, outputs[2];
    const view *like = &carry->stream.at;
    int32_t count = 1, pre = c.layer->placement == ATTN_PLACEMENT_PRE;
    attn_status status = ATTN_OK;
    if (carry->has_pending) inputs[count++] = carry->pending;
    if (in->memory != NULL) inputs[count++] = *in->memory;
    if (end != NULL)
        outputs[0] = *end;
    else
        status = attn__tape_temporary(call->ctx, call->tape, like->rows, like->width, like->dtype, &outputs[0]);
    if (status == ATTN_OK && pre) status = attn__tape_temporary(call->ctx, call->tape, like->rows, like->width, like->dtype, &outputs[1]);
    if (status == ATTN_OK)
        status = attn__tape_checkpoint(call->ctx, call->tape, run_again, &c, (int64_t)sizeof c, count, inputs, pre ? 2 : 1, outputs);
    if (status == ATTN_OK) status = attn__tape_hold_mask(call->ctx, call->tape, in->mask);
    if (status == ATTN_OK) status = attn__tape_hold_mask(call->ctx, call->tape, in->memory_mask);
    carry->stream = outputs[0];
    carry->has_pending = pre;
    if (pre) carry->pending = outputs[1];
    if (pre) carry->site = c.layer->feed_forward_site; /* the last sub-layer's, in a parallel block too */
    return status;
}

/* Without a tape a layer's temporaries are given back when it is done: what it hands on moves to two buffers that stay. */
typedef struct keeper {
    attn__value stream, pending;
    attn__mark mark;
} keeper;

static attn_status keep(const attn__call *call, keeper *k, attn__carry *carry)
{
    const attn__kernels *kernels;
    attn_status status = attn__kernels_for(call->ctx, carry->stream.at.dtype, &kernels);
    if (status == ATTN_OK && carry->stream.at.data != k->stream.at.data)
        status = kernels->copy(call->ctx, &carry->stream.at, 0, &k->stream.at);
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

attn_status attn__stack_run(const attn__call *call, const attn__stack *stack, const attn__value *x, const attn__layer_inputs *shared,
                            attn__value *out)
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
        const attn__ends ends = {last && post ? out : NULL, NULL};
        status = stack->checkpoint && call->tape != NULL ? run_checkpointed(call, stack, i, &in, &carry, ends.stream)
                                                         : attn__layer_run(call, &stack->layers[i], &in, &carry, &ends);
        if (ends.stream != NULL) {
            out->id = carry.stream.id;
            return status;
        }
        if (status == ATTN_OK && call->tape == NULL) status = keep(call, &kept, &carry);
    }
    if (status != ATTN_OK) return status;
    if (!stack->has_final_norm) return settle(call, stack, &in, &carry, out);
    if (!carry.has_pending) return attn__norm_run(call, &stack->final_norm, &carry.stream, NULL, NULL, NULL, out);
    attn__dropout drop = attn__tape_dropout(call->tape, stack->layers[0].dropout, carry.site, in.stream.places);
    return attn__norm_run(call, &stack->final_norm, &carry.stream, &carry.pending, &drop, NULL, out);
}

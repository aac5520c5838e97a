#include "transformer.h"

/* A recurrent model's forward, and its stretches of decoding. */
static attn_status embed(const attn__call *call, const attn__transformer_plan *plan, const view *tokens, const attn__stream *stream,
                         attn__value *x)
{
    attn_status status = attn__tape_temporary(call->ctx, call->tape, tokens->rows, plan->options.decoder_width, plan->options.dtype, x);
    return status == ATTN_OK ? attn__embedding_run(call, &plan->target, tokens, stream->places, x) : status;
}

/* the encoder's rows, what the scores read of them, and the decoder's first state */
static attn_status encode(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch, attn__value *memory,
                          attn__value *keys, attn__value *state)
{
    const attn__recurrent_model *m = plan->recurrent;
    const int64_t count = batch->source_stream.segments.count;
    const int32_t dtype = plan->options.dtype;
    attn__value summary;
    attn_status status = attn__tape_temporary(call->ctx, call->tape, batch->source.rows, plan->options.width, dtype, memory);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, count, plan->options.width, dtype, &summary);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, count, attn__recurrent_state_width(m), dtype, state);
    if (status == ATTN_OK) status = attn__transformer_encode(call, plan, batch, memory, &summary);
    if (status == ATTN_OK) status = attn__recurrent_keys(call, m, memory, keys);
    return status == ATTN_OK ? attn__recurrent_start(call, m, &summary, state) : status;
}

attn_status attn__transformer_recurrent(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                        attn__value *hidden)
{
    attn__value x, memory, keys, state;
    attn__recurrent_inputs in = {.stream = &batch->target_stream};
    attn_status status = plan->has_encoder ? encode(call, plan, batch, &memory, &keys, &state) : ATTN_OK;
    if (plan->has_encoder) {
        in.memory = &memory;
        in.keys = &keys;
        in.state = &state;
        in.memory_segments = batch->source_stream.segments;
    }
    if (status == ATTN_OK) status = embed(call, plan, &batch->target, &batch->target_stream, &x);
    return status == ATTN_OK ? attn__recurrent_decode(call, plan->recurrent, &x, &in, hidden) : status;
}

attn_status attn__transformer_remember_recurrent(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                                 const attn__recurrent_cache *cache, const int64_t *slot)
{
    attn__value memory, keys, state;
    attn_status status = encode(call, plan, batch, &memory, &keys, &state);
    if (status == ATTN_OK && plan->recurrent->has_attention) {
        view to = attn__view_rows(cache->memory, 0, memory.at.rows), keys_to = attn__view_rows(cache->keys, 0, keys.at.rows);
        status = attn__copy_view(call->ctx, &memory.at, 0, &to);
        if (status == ATTN_OK && plan->recurrent->has_key) status = attn__copy_view(call->ctx, &keys.at, 0, &keys_to);
    }
    return status == ATTN_OK ? attn__put_rows(call->ctx, &state.at, slot, &cache->now) : status;
}

attn_status attn__transformer_decode_recurrent(const attn__call *call, const attn__transformer_plan *plan, const view *tokens,
                                               const attn__stream *stream, attn__segments memory_segments,
                                               const attn__recurrent_cache *cache, const int64_t *slot, attn__value *hidden)
{
    const int64_t count = stream->segments.count, columns = attn__recurrent_state_width(plan->recurrent);
    const attn__value keys = {cache->keys, -1, 0}, memory = {cache->memory, -1, 0}, states = {cache->now, -1, 0};
    attn__value x, state, after;
    attn__recurrent_inputs in = {.stream = stream, .keys = &keys, .memory = &memory, .memory_segments = memory_segments};
    attn_status status = attn__tape_temporary(call->ctx, NULL, count, columns, plan->options.dtype, &state);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, NULL, count, columns, plan->options.dtype, &after);
    if (status == ATTN_OK) status = attn__gather_rows(call->ctx, NULL, &states, slot, &state);
    if (status == ATTN_OK) status = embed(call, plan, tokens, stream, &x);
    in.state = &state;
    in.after = &after.at;
    if (status == ATTN_OK) status = attn__recurrent_decode(call, plan->recurrent, &x, &in, hidden);
    return status == ATTN_OK ? attn__put_rows(call->ctx, &after.at, slot, &cache->next) : status;
}

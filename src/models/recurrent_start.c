#include "recurrent.h"

/* What a decoder begins with. */
attn_status attn__recurrent_keys(const attn__call *call, const attn__recurrent_model *m, const attn__value *memory, attn__value *keys)
{
    *keys = *memory;
    if (!m->has_key) return ATTN_OK;
    attn_status status = attn__tape_temporary(call->ctx, call->tape, memory->at.rows, m->width, memory->at.dtype, keys);
    return status == ATTN_OK ? attn__linear_run(call, &m->key, memory, keys) : status;
}

attn_status attn__recurrent_start(const attn__call *call, const attn__recurrent_model *m, const attn__value *summary, attn__value *state)
{
    const attn__activation tanh_of = {.kind = ATTN_ACTIVATION_TANH};
    attn__value part[2];
    const attn__value *parts[2] = {&part[0], &part[1]};
    if (!m->has_attention) return attn__linear_activate(call, &m->start, summary, &tanh_of, NULL, state);
    attn_status status = attn__tape_temporary(call->ctx, call->tape, state->at.rows, m->start.out, state->at.dtype, &part[0]);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, state->at.rows, m->memory_width, state->at.dtype, &part[1]);
    if (status == ATTN_OK) status = attn__linear_activate(call, &m->start, summary, &tanh_of, NULL, &part[0]);
    if (status == ATTN_OK) status = attn__fill_view(call->ctx, 0, &part[1].at); /* no context vector yet */
    return status == ATTN_OK ? attn__concatenate(call->ctx, call->tape, 2, parts, state) : status;
}

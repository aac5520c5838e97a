#include "recurrent.h"

/* The encoder: each layer reads the rows of the one before. */

/* one layer: both directions' states side by side, [rows, width]; last: the same of their last states, or NULL */
static attn_status read_layer(const attn__call *call, const attn__recurrent_model *m, const attn__recurrent_reader *reader,
                              const attn__value *x, const attn__stream *stream, attn__value *y, attn__value *last)
{
    const attn__recurrent_module *way[2] = {&reader->forward, &reader->backward};
    attn__value gates, output[2], final[2];
    const attn__value *outputs[2] = {&output[0], &output[1]}, *finals[2] = {&final[0], &final[1]};
    const int32_t ways = m->two_way ? 2 : 1;
    attn_status status = ATTN_OK;
    for (int32_t i = 0; status == ATTN_OK && i < ways; i++) {
        output[i] = *y; /* where there is one way only */
        if (ways == 2) status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, way[i]->width, x->at.dtype, &output[i]);
        if (status == ATTN_OK && last != NULL)
            status = attn__tape_temporary(call->ctx, call->tape, stream->segments.count, way[i]->width, x->at.dtype, &final[i]);
        if (status == ATTN_OK) status = attn__recurrent_input(call, way[i], x, &gates);
        if (status == ATTN_OK)
            status = attn__recurrent_run(call, way[i], &gates, i, stream->segments, NULL, NULL, &output[i], last != NULL ? &final[i] : NULL,
                                         NULL);
    }
    if (status != ATTN_OK) return status;
    if (ways == 2)
        status = attn__concatenate(call->ctx, call->tape, 2, outputs, y);
    else
        y->id = output[0].id;
    return status == ATTN_OK && last != NULL ? attn__concatenate(call->ctx, call->tape, ways, finals, last) : status;
}

attn_status attn__recurrent_encode(const attn__call *call, const attn__recurrent_model *m, const attn__value *x, const attn__stream *stream,
                                   attn__value *memory, attn__value *state)
{
    attn__value now = *x, y;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < m->readers_count; i++) {
        const attn__recurrent_reader *reader = &m->readers[i];
        const int last = i + 1 == m->readers_count;
        attn__dropout drop = attn__tape_dropout(call->tape, m->dropout, reader->site, stream->places);
        const attn__mark mark = attn__arena_mark(call->ctx->scratch);
        y = *memory; /* without a tape that of each layer, which has read its rows when it writes */
        if (call->tape != NULL && (!last || drop.rate > 0))
            status = attn__tape_temporary(call->ctx, call->tape, now.at.rows, memory->at.width, now.at.dtype, &y);
        if (status == ATTN_OK) status = read_layer(call, m, reader, &now, stream, &y, last ? state : NULL);
        if (call->tape == NULL) attn__arena_rewind(call->ctx->scratch, mark);
        now = y;
        if (status != ATTN_OK || drop.rate <= 0) continue;
        y = *memory;
        if (!last) status = attn__tape_temporary(call->ctx, call->tape, now.at.rows, memory->at.width, now.at.dtype, &y);
        if (status == ATTN_OK) status = attn__drop(call->ctx, call->tape, &now, &drop, &y);
        now = y;
    }
    memory->id = now.id;
    return status;
}

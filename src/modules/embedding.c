#include "embedding.h"

attn_status attn__embedding_run(const attn__call *call, const attn__embedding_module *module, const view *tokens, attn__places places,
                                attn__value *y)
{
    attn__value table, positions, sum = *y, normed = *y;
    attn_status status = attn__parameter_value(call, module->table, 1, &table);
    if (status == ATTN_OK) status = attn__parameter_value(call, module->positions, 1, &positions);
    if (status != ATTN_OK) return status;
    attn__dropout drop = attn__tape_dropout(call->tape, module->dropout, module->site, places);
    const attn__value *learned = module->positions >= 0 ? &positions : NULL;
    if (!module->has_norm)
        return attn__embed(call->ctx, call->tape, tokens, &table, NULL, module->scale, module->kind, learned, places, &drop, y);

    status = attn__tape_temporary(call->ctx, call->tape, y->at.rows, y->at.width, y->at.dtype, &sum);
    if (status == ATTN_OK && drop.rate > 0)
        status = attn__tape_temporary(call->ctx, call->tape, y->at.rows, y->at.width, y->at.dtype, &normed);
    if (status == ATTN_OK)
        status = attn__embed(call->ctx, call->tape, tokens, &table, NULL, module->scale, module->kind, learned, places, NULL, &sum);
    if (status == ATTN_OK) status = attn__norm_run(call, &module->norm, &sum, NULL, NULL, NULL, drop.rate > 0 ? &normed : y);
    if (status == ATTN_OK && drop.rate > 0) status = attn__drop(call->ctx, call->tape, &normed, &drop, y);
    return status;
}

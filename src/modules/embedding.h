#ifndef ATTN_MODULES_EMBEDDING_H
#define ATTN_MODULES_EMBEDDING_H
#include "call.h"
#include "norm.h"

/* Section 5.2: y = dropout(scale * table[token] + position); with a norm: dropout(norm(...)). The table may be another module's (tied). */
typedef struct attn__embedding_module {
    int64_t table, positions; /* positions: learned table [context, width], or -1 */
    int32_t kind, has_norm;   /* ATTN_POSITIONS_NONE, _SINUSOIDAL, _LEARNED */
    double scale, dropout;
    attn__norm_module norm;
    uint64_t site;
} attn__embedding_module;
attn_status attn__embedding_run(const attn__call *call, const attn__embedding_module *module, const view *tokens, attn__places places,
                                attn__value *y);
#endif

#ifndef ATTN_MODELS_DRY_H
#define ATTN_MODELS_DRY_H
#include "transformer.h"

/* A model that is planned and run without being there: a context whose arenas hand out addresses nobody reads and whose kernel table only
   counts. Cost and memory reports come from the same forward and backward code that computes. */
typedef struct attn__dry {
    attn_context *ctx;
    attn_transformer *model;
    attn_tape *tape;
} attn__dry;
/* plans the model of resolved options; errors are reported in ctx */
attn_status attn__dry_open(attn_context *ctx, const attn_transformer_options *resolved, attn__dry *dry);
void attn__dry_close(attn__dry *dry);
#endif

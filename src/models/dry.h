#ifndef ATTN_MODELS_DRY_H
#define ATTN_MODELS_DRY_H
#include "transformer.h"

/* A model that is planned and run without being there: a context whose arenas hand out addresses nobody reads and whose kernel table only
   counts. Cost and memory reports come from the same forward and backward code that computes. Its own small objects are real: from the
   allocator of the context that asks, under its cap, and in nobody's accounting but its own. */
typedef struct attn__dry {
    attn_context *ctx;
    attn_transformer *model;
    attn_tape *tape;
} attn__dry;
/* plans the model of resolved options, with these heads (NULL: all); errors are reported in ctx */
attn_status attn__dry_open(attn_context *ctx, const attn_transformer_options *resolved, const attn__left *heads, attn__dry *dry);
/* with the masks of another plan of the same options */
attn_status attn__dry_masks(attn__dry *dry, const attn__transformer_plan *like);
/* what went wrong in there, said in ctx; closes */
attn_status attn__dry_fail(attn_context *ctx, attn__dry *dry, attn_status status);
void attn__dry_close(attn__dry *dry);
#endif

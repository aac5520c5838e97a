#ifndef ATTN_MODELS_STACK_H
#define ATTN_MODELS_STACK_H
#include "layer.h"
#include "options.h"

/* A stack of layers with its masks and, in pre-norm stacks, its last norm. */
typedef struct attn__stack {
    attn__memory *memory;
    attn__layer *layers; /* [side.layers] */
    attn_mask **masks;   /* [side.layers]; NULL: no rule of its own */
    attn_mask *usual;    /* causal in decoders, NULL in encoders */
    attn__side side;
    attn__norm_module final_norm;
    int32_t has_final_norm, checkpoint;
} attn__stack;

/* scope: "" or "encoder."; decoder 1: self-attention is causal (last query against last key) unless a mask says otherwise */
attn_status attn__stack_plan(const attn__scope *scope, const attn_transformer_options *options, const attn__side *side, int decoder,
                             attn__stack *stack);
/* for encoders and decoders of their own: the options a stack reads (vocabularies do not matter), and a stack as the plan of a new,
   initialised parameter set */
attn_status attn__stack_options(attn_context *ctx, const attn_transformer_options *options, attn_transformer_options *out);
attn_status attn__stack_own(attn_context *ctx, const attn_transformer_options *options, const attn__side *side, int decoder,
                            attn_parameters **out);
void attn__stack_clear(attn__stack *stack);
/* layer -1: all; mask NULL: back to the usual one. The mask is retained. */
attn_status attn__stack_set_mask(attn_context *ctx, attn__stack *stack, int64_t layer, const attn_mask *mask);

/* in->mask: for layers without a rule, NULL: the usual one. in->cache: [layers] or NULL. out: [rows, width], memory exists. */
attn_status attn__stack_run(const attn__call *call, const attn__stack *stack, const attn__value *x, const attn__layer_inputs *in,
                            attn__value *out);
/* a mask the stack will use with this many heads and these segments; fails by name */
attn_status attn__stack_check_masks(attn_context *ctx, const attn__stack *stack, const attn_mask *mask, attn__segments query,
                                    attn__segments key);
#endif

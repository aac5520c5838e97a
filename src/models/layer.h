#ifndef ATTN_MODELS_LAYER_H
#define ATTN_MODELS_LAYER_H
#include <attn/transformer.h>
#include "../modules/attention.h"
#include "../modules/feed_forward.h"
#include "../modules/norm.h"
#include "heads.h"

/* One layer of a stack: self-attention, cross-attention (decoders with a memory) and feed-forward, each with its norm. Post-norm (5.1):
   x = norm(x + sub(x)); pre-norm: x = x + sub(norm(x)); parallel: the sub-layers read one norm and are added together. */
typedef struct attn__layer {
    attn__attention_module self, cross;
    attn__feed_forward_module feed_forward;
    attn__norm_module self_norm, cross_norm, feed_forward_norm;
    int32_t has_cross, placement, parallel, reserved;
    double dropout;
    uint64_t self_site, cross_site, feed_forward_site; /* of the dropout on each sub-layer's output */
} attn__layer;

/* The sizes one stack takes from the options: an encoder's or a decoder's. */
typedef struct attn__side {
    int64_t layers, width, heads, feed_forward, memory_width, causal;
    const attn__left *left;
} attn__side; /* memory_width 0: no cross-attention; causal 1: a decoder; left: the plan's, NULL: all heads are there */
attn__side attn__encoder_side(const attn_transformer_options *options);
attn__side attn__decoder_side(const attn_transformer_options *options);

attn_status attn__layer_plan(const attn__scope *scope, const attn_transformer_options *options, const attn__side *side,
                             const attn__layer *first, int64_t index,
                             attn__layer *layer); /* first: of the stack, whose position table all share; NULL: this is it */

typedef struct attn__layer_cache {
    attn__attention_cache self, cross;
} attn__layer_cache;

/* What the layers of one forward share */
typedef struct attn__layer_inputs {
    attn__stream stream;
    attn__segments key_segments; /* of self-attention: the stream's own, or the cache's */
    attn__segments memory_segments;
    const attn_mask *mask, *memory_mask;
    const attn__value *memory; /* NULL: none, or its keys and values are in the cache */
    attn__layer_cache *cache;  /* NULL: none */
    const int64_t *slot;       /* with a cache: of each segment */
} attn__layer_inputs;

/* What one layer hands to the next: the stream, and a sub-layer's output that is not yet added to it, so that the addition and the next norm
   are one pass. */
typedef struct attn__carry {
    attn__value stream, pending;
    int32_t has_pending;
    uint64_t site;
} attn__carry;
/* Where a layer has to leave what it hands on; NULL each: anywhere. pending: of pre-norm layers, which leave both. */
typedef struct attn__ends {
    const attn__value *stream, *pending;
} attn__ends;
attn_status attn__layer_run(const attn__call *call, const attn__layer *layer, const attn__layer_inputs *in, attn__carry *carry,
                            const attn__ends *ends); /* NULL: anywhere */
#endif

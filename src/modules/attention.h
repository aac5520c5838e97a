#ifndef ATTN_MODULES_ATTENTION_H
#define ATTN_MODULES_ATTENTION_H
#include <attn/attention.h>
#include "call.h"

/* Definition 4.1: multi-head attention with its projections, each of which may be absent. Weights of query, key and value lie adjacent in
   memory, so that self-attention projects by one product and cross-attention by two. */
typedef struct attn__attention_module {
    attn_attention_options options;                                /* resolved: no ATTN_DERIVED */
    int64_t query_weight, key_weight, value_weight, output_weight; /* indices; -1: absent */
    int64_t query_bias, key_bias, value_bias, output_bias;
    uint64_t site;
} attn__attention_module;

/* Checks the options and fills in what follows from others. */
attn_status attn__attention_resolve(attn_context *ctx, const attn_attention_options *options, attn_attention_options *out);
/* the caller's options over the defaults, resolved */
attn_status attn__attention_read(attn_context *ctx, const attn_attention_options *options, attn_attention_options *out);
/* options resolved; name "" for a layer of its own. shrink: of the output projection's start. */
attn_status attn__attention_plan(const attn__scope *scope, const char *name, const attn_attention_options *options, double shrink,
                                 attn__attention_module *module);

/* Keys and values that decoding keeps: [cache rows, key_heads * size] each. Rows of a segment lie at its key segment's start. */
typedef struct attn__attention_cache {
    view key, value;
} attn__attention_cache;

typedef struct attn__attention_inputs {
    const attn__value *query, *key, *value; /* plain rows; the same pointer where they are one tensor */
    attn__segments query_segments, key_segments;
    const attn_mask *mask;
} attn__attention_inputs;
attn_status attn__attention_run(const attn__call *call, const attn__attention_module *module, const attn__attention_inputs *inputs,
                                attn__attention_cache *cache, attn__value *y);
/* Decoding's cross-attention: projects keys and values of a memory into the cache once; attn__attention_run then takes key and value NULL. */
attn_status attn__attention_remember(const attn__call *call, const attn__attention_module *module, const attn__value *memory,
                                     attn__attention_cache *cache);
#endif

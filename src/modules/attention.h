#ifndef ATTN_MODULES_ATTENTION_H
#define ATTN_MODULES_ATTENTION_H
#include <attn/attention.h>
#include "call.h"
#include "linear.h"
#include "norm.h"

/* Definition 4.1: multi-head attention with its projections, each of which may be absent. Weights of query, key and value lie adjacent in
   memory, so that self-attention projects by one product and cross-attention by two. */
/* The heads that are left of those a layer was created with: options.heads of them. */
typedef struct attn__attention_kept {
    int64_t created;
    const int64_t *heads; /* rising numbers, which live as long as the module; NULL: all */
} attn__attention_kept;
typedef struct attn__attention_module {
    attn__attention_kept kept;
    attn_attention_options options;                                /* resolved: no ATTN_DERIVED */
    int64_t query_weight, key_weight, value_weight, output_weight; /* indices; -1: absent */
    int64_t query_bias, key_bias, value_bias, output_bias;
    int64_t gate_weight, gate_bias, position_table, position_values, score_weight, pair_weight;
    int64_t key_projection, value_projection; /* of the Linformer; one index where they share it */
    attn__features features;                  /* of LINEAR and PERFORMER: directions are the set's constants */
    int64_t feature_count;
    attn__norm_module query_norm, key_norm;                     /* with query_key_norm */
    attn__linear_module global_query, global_key, global_value; /* with global_projections */
    uint64_t site, global_site;
} attn__attention_module;

/* The public attention layer: a module with a parameter set of its own. */
struct attn_attention {
    uint64_t magic;
    attn__memory *memory;
    attn_parameters *parameters;
    attn__attention_module module;
};

/* Checks the options and fills in what follows from others. */
attn_status attn__attention_resolve(attn_context *ctx, const attn_attention_options *options, attn_attention_options *out);
/* the caller's options over the defaults, resolved */
attn_status attn__attention_read(attn_context *ctx, const attn_attention_options *options, attn_attention_options *out);
/* options resolved; name "" for a layer of its own. shrink: of the output projection's start. shared: a layer whose position table this one
   uses too (T5); NULL: its own. kept: NULL: all that the options have. */
attn_status attn__attention_plan(const attn__scope *scope, const char *name, const attn_attention_options *options, double shrink,
                                 const attn__attention_module *shared, const attn__attention_kept *kept, attn__attention_module *module);

/* positions (attention_positions.c): what they add to options, parameters and a call */
attn_status attn__attention_positions_resolve(attn_context *ctx, attn_attention_options *options);
attn_status attn__attention_positions_plan(const attn__scope *scope, const attn__attention_module *shared, attn__attention_module *module);
/* x: plain rows of heads, normed and turned where the options say so; norm: the module's of queries or keys. In place of x when nothing is to do. */
attn_status attn__attention_turn(const attn__call *call, const attn__attention_module *module, const attn__norm_module *norm, int64_t heads,
                                 attn__places places, attn__value *x);
typedef struct attn__attention_tables {
    attn__attention_bias bias;
    attn__value distance, relative_keys, relative_values; /* distance: of the heads that are left */
} attn__attention_tables;
attn_status attn__attention_bias_of(const attn__call *call, const attn__attention_module *module, attn__attention_tables *tables,
                                    attn__attention_settings *settings);

/* forms other than softmax (attention_forms.c) */
attn_status attn__attention_forms_resolve(attn_context *ctx, attn_attention_options *options);
attn_status attn__attention_forms_plan(const attn__scope *scope, attn__attention_module *module);
/* q, k, v, joined: heads, as attn__attend takes them; settings: those of softmax */
struct attn__attention_cache;
attn_status attn__attention_form(const attn__call *call, const attn__attention_module *module, attn__value *q, attn__value *k,
                                 const attn__value *v, attn__attention_settings *settings, const struct attn__attention_cache *cache,
                                 const int64_t *slot, attn__value *joined); /* cache, slot: of a state, or NULL */

/* Keys and values that decoding keeps: [cache rows, key_heads * size] each. Rows of a segment lie at its key segment's start. Of linear forms instead a
   state of constant size in row slot[segment]: key as it was, value what it is after the call, [slots, state columns]. */
typedef struct attn__attention_cache {
    view key, value;
} attn__attention_cache;
/* columns of such a state; 0: the form keeps keys and values */
attn_status attn__attention_state_columns(attn_context *ctx, const attn__attention_module *module, int64_t *out);

typedef struct attn__attention_inputs {
    const attn__value *query, *key, *value; /* plain rows; the same pointer where they are one tensor */
    attn__segments query_segments, key_segments;
    const attn_mask *mask;
    attn__places query_places, key_places; /* with rotary positions */
    const int64_t *slot;                   /* [segments], with a cache; linear forms alone look at it */
    const attn__value *pair;               /* [heads, pair_length pair_length], dense: what scores gain, in every segment; NULL: nothing */
    int64_t pair_length;
} attn__attention_inputs;
attn_status attn__attention_run(const attn__call *call, const attn__attention_module *module, const attn__attention_inputs *inputs,
                                attn__attention_cache *cache, attn__value *y);
/* rows of global tokens, by projections of their own (attention_global.c): heads [rows, columns] of all rows by the usual ones become those with them,
   at `asked` or in a temporary */
attn_status attn__attention_global_resolve(attn_context *ctx, const attn_attention_options *options);
attn_status attn__attention_global_plan(const attn__scope *scope, attn__attention_module *module);
attn_status attn__attention_global(const attn__call *call, const attn__attention_module *module, const attn__attention_inputs *inputs,
                                   const attn__attention_settings *settings, const attn__value *asked, attn__value *heads);

/* What is to be told about one module in a call: the context's observer, in place while it runs. */
typedef struct attn__attention_observer {
    const attn__attention_module *module;
    attn__weights_part part;
    view *weights; /* NULL: not wanted */
    void *entropy; /* [heads, query rows]; NULL: not wanted */
} attn__attention_observer;
/* Decoding's cross-attention: projects keys and values of a memory into the cache once; attn__attention_run then takes key and value NULL. */
attn_status attn__attention_remember(const attn__call *call, const attn__attention_module *module, const attn__value *memory,
                                     attn__attention_cache *cache);
#endif

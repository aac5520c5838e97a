#ifndef ATTN_AUTOGRAD_LINEAR_ATTENTION_H
#define ATTN_AUTOGRAD_LINEAR_ATTENTION_H
#include <attn/linear_attention.h>
#include "arguments.h"

/* What the operations of attn/linear_attention.h share. */

/* heads, sizes and rows fit as in attn_dot_product_attention, and output lies apart */
attn_status attn__linear_shapes(attn_context *ctx, const view *query, const view *key, const view *value, const view *output);
/* segments within the rows, no row in two of them; copied to arena when it is not NULL */
attn_status attn__layout_disjoint(attn_context *ctx, attn__arena *arena, const char *argument, const attn_layout *layout, int64_t rows,
                                  attn__segments *out);
/* Where the gradient of rows in segments goes: zeros first and added to when rows lie in none. data NULL: not wanted. */
attn_status attn__segments_wanted(attn_context *ctx, attn_tape *tape, const attn__value *input, attn__segments segments, view *out,
                                  int32_t *add);

/* options over the defaults, checked for heads of `size` columns: features is filled in, scale is what x is multiplied by */
attn_status attn__linear_read(attn_context *ctx, const attn_linear_attention_options *options, int64_t size,
                              attn_linear_attention_options *out);
/* directions of a random map, [m, size], drawn from the seed of the options; a dry context draws none */
attn_status attn__features_draw(attn_context *ctx, const attn_linear_attention_options *options, const view *directions);
/* the map of these options, with directions given or drawn; IDENTITY: none is made */
attn_status attn__features_of(attn_context *ctx, attn_tape *tape, const attn_linear_attention_options *options, int64_t size, int32_t dtype,
                              attn__features *out);
/* Queries and keys become their `count` features. Random ones are scaled: those of a query by a number that
   cancels, those of keys by one that the attention multiplies back (settings->key_scale). */
attn_status attn__linear_features(attn_context *ctx, attn_tape *tape, const attn__features *features, int64_t count, attn__value *query,
                                  attn__value *key, attn__linear_settings *settings);

typedef struct attn__linformer_inputs {
    const attn__value *query, *key, *value, *key_projection, *value_projection;
    attn__segments key_segments;
} attn__linformer_inputs;
/* softmax attention over projected keys and values; settings: of the queries, its key segments are filled in. SHAPE: a segment is longer than
   the projection has columns. */
attn_status attn__linformer(attn_context *ctx, attn_tape *tape, const attn__linformer_inputs *inputs, attn__attention_settings *settings,
                            attn__value *output);
#endif

#ifndef ATTN_ATTENTION_H
#define ATTN_ATTENTION_H
#include "mask.h"
#include "operations.h"
ATTN_BEGIN
typedef struct attn_attention attn_attention;
enum { ATTN_SCORE_DOT = 0, ATTN_SCORE_SCALED_DOT = 1, ATTN_SCORE_MULTIPLICATIVE = 2, ATTN_SCORE_ADDITIVE = 3 };
/* derive_scale 1 (default): 1 / sqrt(size), and scale is not looked at; 0: scale, any finite number. dropout: on the weights, in [0, 1].
   soft_cap: 0 for none, else scores s become soft_cap tanh(s / soft_cap). site names the numbers dropout draws. reserved is 0. */
typedef struct attn_dot_product_options {
    uint64_t struct_size;
    double scale;                           /* with derive_scale 0 */
    double dropout, soft_cap;
    uint64_t site;
    int32_t derive_scale, reserved;
} attn_dot_product_options;
/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 bytes. Since: 0.0.1 */
ATTN_API attn_status attn_dot_product_options_init(attn_dot_product_options *options, uint64_t size);
/* (2.24) output = softmax(scale query key^T + mask) value, for every head of every segment, in memory linear in the rows; gradients
   (6.13) to (6.18). query [rows, heads, size], key [key_rows, key_heads, size], value [key_rows, key_heads, value_size], output [rows,
   heads, value_size], all float32 or all float64, any strides with a dense last axis (query, key and value may lie side by side in one
   buffer); output overlaps none of them. heads is a multiple of key_heads: query head h sees key head h / (heads / key_heads).
   Segment i of query_layout sees segment i of key_layout: the counts are equal, NULL is one segment of all rows. Query segments are
   disjoint; key segments disjoint or identical. Rows in no segment are not written; keys in none are not read.
   mask NULL: every key is seen. A query that sees no key gets zeros, and gives no gradient. Dropout acts with a tape that trains.
   Rules, other errors and threads as in operations.h. Since: 0.0.1 */
ATTN_API attn_status attn_dot_product_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
    const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout, const attn_mask *mask,
    const attn_dot_product_options *options, attn_tensor *output);
/* how weights start: XAVIER: uniform (Glorot), embeddings normal with deviation 1/sqrt(width); SCALED_NORMAL: normal with deviation
   initialisation_scale, that of projections onto the residual stream divided by sqrt(2 layers) */
enum { ATTN_INITIALISATION_XAVIER = 0, ATTN_INITIALISATION_SCALED_NORMAL = 1 };
typedef struct attn_attention_options {
    uint64_t struct_size;
    int32_t dtype, score;
    int64_t heads, key_heads;
    int64_t query_width, key_width, value_width, output_width; /* of the inputs and the output */
    int64_t head_size, value_head_size;                        /* ATTN_DERIVED: query_width / heads */
    int32_t project_query, project_key, project_value, project_output;
    int32_t bias_query, bias_key, bias_value, bias_output;
    double scale, dropout, soft_cap;
    uint64_t site;
    int32_t initialisation, derive_scale;
    double initialisation_scale;
} attn_attention_options;
ATTN_API attn_status attn_attention_options_init(attn_attention_options *options, uint64_t size);
ATTN_API attn_status attn_attention_create(attn_context *ctx, const attn_attention_options *options, attn_attention **out);
ATTN_API void attn_attention_free(attn_attention *layer);
ATTN_API attn_parameters *attn_attention_parameters(const attn_attention *layer);
ATTN_API attn_status attn_attention_forward(attn_context *ctx, const attn_attention *layer, attn_tape *tape, const attn_tensor *query,
    const attn_tensor *key, const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout,
    const attn_mask *mask, attn_tensor *output);
ATTN_END
#endif

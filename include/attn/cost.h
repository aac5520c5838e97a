#ifndef ATTN_COST_H
#define ATTN_COST_H
#include "transformer.h"
ATTN_BEGIN
typedef struct attn_cost_report { uint64_t struct_size; int64_t parameters, forward, backward, forward_formula, backward_formula, bytes, peak_bytes; } attn_cost_report; /* multiply-adds */
/* from options alone: nothing is allocated */
ATTN_API attn_status attn_transformer_cost(attn_context *ctx, const attn_transformer_options *options, int32_t training, const attn_layout *source, const attn_layout *target, attn_cost_report *report);
ATTN_API attn_status attn_transformer_memory(attn_context *ctx, const attn_transformer_options *options, int32_t training, int64_t rows, int64_t longest, attn_cost_report *report);
/* one parameter of the model these options describe: name (NUL-terminated, cut to capacity) and shape [4] (unused axes 1);
   END_OF_DATA past the last */
ATTN_API attn_status attn_transformer_describe(attn_context *ctx, const attn_transformer_options *options, int64_t index, int64_t capacity, char *name, int32_t *rank, int64_t *shape);
ATTN_API attn_status attn_attention_cost(attn_context *ctx, const attn_attention_options *options, const attn_layout *query, const attn_layout *key, const attn_mask *mask, attn_cost_report *report);
ATTN_END
#endif

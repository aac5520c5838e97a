#ifndef ATTN_COST_H
#define ATTN_COST_H
#include "transformer.h"
ATTN_BEGIN
/* What a layer or a model costs, before it exists: the forward and backward code runs on addresses that nobody reads, with a kernel table
   that counts. In all calls: options NULL are the defaults; a model that cannot be created yet can be costed all the same; training is 0 or
   1; nothing of the context changes but its error text; small records of the reading come from its allocator, within its cap, and are given
   back, but its own counts leave them out. INVALID_ARGUMENT, SHAPE, TOO_LARGE: options as in transformer.h; OUT_OF_MEMORY, MEMORY_CAP. */

/* The caller sets struct_size. Numbers that pass 63 bits stay at the largest. Since: 0.0.1 */
typedef struct attn_cost_report {
    uint64_t struct_size;
    int64_t parameters;       /* numbers in all parameters; a tied table counts once */
    int64_t forward;          /* multiply-adds of the products this library does with BLAS, each one; attention: two products of each block
                                 that the mask lists: tiles of 64 queries (256 in sequences of more than 768) by 64 keys; one with additive scores.
                                 Without the products with tables of relative positions (ATTN_POSITIONS_RELATIVE);
                                 of causal linear attention at most */
    int64_t backward;         /* the same of the backward; attention: five products of each block, or seven where there is little to share
                                 among threads; 0 without training */
    int64_t forward_formula;  /* multiply-adds of the monograph: projections (3.15), m n (d_k + d_v) a head, feed-forward (5.10) */
    int64_t backward_formula; /* twice forward_formula; 0 without training */
    int64_t bytes;            /* that kernels read and write, both ways */
    int64_t peak_bytes;    /* most at once that a context with its threads and this model takes: parameters, with training their gradients
                                 and two moments, and what the run keeps. With training: of a trainer after attn_trainer_reserve. Without the
                                 caller's tensors and what BLAS takes */
    int64_t weights_bytes; /* what the standard form keeps of one forward: heads times m n weights in every attention (4.9); none here */
    int64_t prompt;        /* multiply-adds of a generator that reads these sequences as its prompts; 0 without decoder and output head */
    int64_t decode;        /* and of the step that follows, with one token for each sequence */
    int64_t decode_bytes;  /* peak_bytes of a context with such a generator, of the longest sequence as capacity; the caches are in it */
} attn_cost_report;

/* The cost of one forward (training 0) or one forward and backward (training 1) of a model on sequences as in source (encoder) and target
   (decoder): layouts whose segments cover each row once; NULL for the side that is not there. SHAPE: their counts differ. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_cost(attn_context *ctx, const attn_transformer_options *options, int32_t training,
                                           const attn_layout *source, const attn_layout *target, attn_cost_report *report);

/* The same for `rows` tokens on each side in sequences of `longest` (the last may be shorter); with training peak_bytes is that of any batch with
   no more rows and no longer sequences: what attn_trainer_reserve takes, and what a memory_cap must leave room for. INVALID_ARGUMENT: rows
   negative, longest under 1. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_memory(attn_context *ctx, const attn_transformer_options *options, int32_t training, int64_t rows,
                                             int64_t longest, attn_cost_report *report);

/* The same for a model that is there: the heads that are left in it (heads.h) and its masks count. Since: 0.0.2 */
ATTN_API attn_status attn_transformer_model_cost(attn_context *ctx, const attn_transformer *model, int32_t training, int64_t rows,
                                                 int64_t longest, attn_cost_report *report);

/* Parameter `index` of the model these options describe, in the order of its set and of its file: name (with NUL, cut to capacity bytes,
   at most 160), rank, and shape [4] (axes past the rank are 1). END_OF_DATA past the last; INVALID_ARGUMENT: NULL, index negative,
   capacity under 1. Each call plans the model anew. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_describe(attn_context *ctx, const attn_transformer_options *options, int64_t index, int64_t capacity,
                                               char *name, int32_t *rank, int64_t *shape);

/* The cost of an attention layer's forward and backward on segments as in query (covering each row once) and key, by the blocks that mask
   lists (NULL: all). bytes: parameters, inputs, projections and output once each; peak_bytes: the projections and the log-sum-exp; backward: with gradients
   of all inputs; prompt, decode and decode_bytes: 0.
   SHAPE: counts differ, a boolean mask does not fit. Since: 0.0.1 */
ATTN_API attn_status attn_attention_cost(attn_context *ctx, const attn_attention_options *options, const attn_layout *query,
                                         const attn_layout *key, const attn_mask *mask, attn_cost_report *report);
ATTN_END
#endif

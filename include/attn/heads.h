#ifndef ATTN_HEADS_H
#define ATTN_HEADS_H
#include "transformer.h"
ATTN_BEGIN
/* Heads that are taken out of a model: their rows of query, key, value and gate and their columns of the output projection are gone, with what they
   cost. What is left gives the output that the whole model gives with these heads' outputs zeroed. */

/* A new model without `count` query heads of self-attention. heads: an int64 [count, 3] array of stack (0 encoder, 1 decoder), layer, and head as
   the layer counts them now, in any order. With grouped queries a key head goes with the last of its queries, so whole groups only. Parameters
   are copied, frozen ones stay frozen, metadata too; masks of set_mask are not, and one for each head has to be made for the heads that are
   left. options.heads stays the number that layers were created with. ALiBi's slopes and T5's columns stay with their heads: a T5 table keeps
   all columns, as layers share it. The caller frees *out, which is NULL on failure; the model is not changed.
   Errors: INVALID_ARGUMENT (a recurrent model; no such stack, layer or head; one twice; all heads of a layer), UNSUPPORTED (a part of a group), OUT_OF_MEMORY,
   MEMORY_CAP. Since: 0.0.2 */
ATTN_API attn_status attn_transformer_prune_heads(attn_context *ctx, const attn_transformer *model, int64_t count, const int64_t *heads,
                                                  attn_transformer **out);
/* Which heads a layer's self-attention has: *count of them, and at heads (room for capacity) their numbers when the layer was created, rising.
   FULL when capacity is less, and only *count is written then (capacity 0 with heads NULL asks for it). decoder 0: the encoder's layer, 1: the
   decoder's. INVALID_ARGUMENT: no such stack or layer, or a recurrent model. Since: 0.0.2 */
ATTN_API attn_status attn_transformer_heads(attn_context *ctx, const attn_transformer *model, int32_t decoder, int64_t layer,
                                            int64_t capacity, int64_t *heads, int64_t *count);
ATTN_END
#endif

#ifndef ATTN_INSPECT_H
#define ATTN_INSPECT_H
#include "data.h"
#include "transformer.h"
ATTN_BEGIN
/* Looking inside: attention weights and their entropies (the monograph's H_i), of the rows and heads that are asked for. Weights are those before
   dropout; no matrix is made that was not asked for. */

/* Which attention of a model. */
enum { ATTN_INSPECT_ENCODER = 0, ATTN_INSPECT_DECODER = 1, ATTN_INSPECT_CROSS = 2 };

typedef struct attn_inspect_request {
    uint64_t struct_size;
    int32_t part, reserved;     /* ATTN_INSPECT_*; 0 */
    int64_t layer;              /* from 0 */
    int64_t segment, row, head; /* where the weights begin: a segment of the batch, a query within it, a head */
    attn_tensor *weights;       /* [heads, rows, keys of the segment], which says how many, or NULL */
    attn_tensor *entropy; /* [heads of the layer, rows of the stream], or NULL: - sum over keys of w ln w, 0 where a query sees nothing */
} attn_inspect_request;
/* Writes the defaults: zeros. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. Since: 0.0.2 */
ATTN_API attn_status attn_inspect_request_init(attn_inspect_request *request, uint64_t size);

/* A forward of the model over the batch (labels are not looked at), without dropout, that fills what the request asks for. Tensors are the model's
   dtype. A recurrent model has the part CROSS alone, when its decoder attends: the alignments of Bahdanau et al. 2015, one layer of one head.
   Errors: INVALID_ARGUMENT (no such part, layer, segment, row or head), UNSUPPORTED (a linear form, which has no weights), SHAPE, DTYPE, and
   those of attn_transformer_forward. Since: 0.0.2 */
ATTN_API attn_status attn_transformer_inspect(attn_context *ctx, const attn_transformer *model, const attn_batch *batch,
                                              const attn_inspect_request *request);

/* The weights of attn_biased_attention's queries from `row` and `head` of segment `segment` on: weights [heads, rows, keys of the segment]. Arguments
   as there. Since: 0.0.2 */
ATTN_API attn_status attn_attention_weights(attn_context *ctx, const attn_tensor *query, const attn_tensor *key,
                                            const attn_layout *query_layout, const attn_layout *key_layout, const attn_mask *mask,
                                            const attn_dot_product_options *options, int64_t count,
                                            const attn_attention_bias *const *biases, int64_t segment, int64_t row, int64_t head,
                                            attn_tensor *weights);
ATTN_END
#endif

#ifndef ATTN_MODELS_TRANSFORMER_H
#define ATTN_MODELS_TRANSFORMER_H
#include "../modules/embedding.h"
#include "../modules/linear.h"
#include "recurrent.h"
#include "stack.h"

/* The whole Transformer as a plan over one parameter set: which modules there are and which parameters are theirs. Lives with the set. */
typedef struct attn__transformer_plan {
    attn_transformer_options options; /* resolved */
    attn__left *heads;                /* that are left; NULL: all */
    attn__stack encoder, decoder;     /* of recurrent models: their sides alone */
    attn__recurrent_model *recurrent; /* in place of the stacks; NULL: a Transformer */
    attn__embedding_module source, target;
    attn__linear_module output; /* weight may be an embedding's table (tied) */
    int32_t has_encoder, has_decoder, has_output, tied_output;
} attn__transformer_plan;

typedef struct attn__metadata {
    struct attn__metadata *next;
    char *key, *value;
    int64_t bytes;
} attn__metadata;

struct attn_transformer {
    uint64_t magic;
    attn__memory *memory;
    attn_parameters *parameters; /* counted; its plan is the attn__transformer_plan */
    attn__metadata *metadata;
};
const attn__transformer_plan *attn__transformer_plan_of(const attn_transformer *model);
/* A model with its set planned and, unless plan_only, allocated (not initialised). heads: copied; NULL: all are there. */
attn_status attn__transformer_make(attn_context *ctx, const attn_transformer_options *resolved, const attn__left *heads,
                                   attn_transformer **out);
attn_status attn__transformer_add_metadata(attn_context *ctx, attn_transformer *model, const char *key, const char *value);

/* INVALID_ARGUMENT for a recurrent model */
attn_status attn__transformer_attends(attn_context *ctx, const attn__transformer_plan *plan);

/* A batch as views and streams, checked. Parts that do not apply are empty. */
typedef struct attn__batch_views {
    view source, target, labels;
    attn__stream source_stream, target_stream;
    int64_t rows; /* of the output */
} attn__batch_views;
attn_status attn__transformer_batch(const attn__call *call, const attn__transformer_plan *plan, const attn_batch *batch, int need_labels,
                                    attn__batch_views *out);
/* INVALID_ARGUMENT unless all rows stand within the learned positions; a generator counts the target's itself */
attn_status attn__transformer_positions(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch);

/* the encoder's rows: memory [source rows, width], its memory exists; state: of a recurrent one (attn__recurrent_encode), or NULL */
attn_status attn__transformer_encode(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                     attn__value *memory, attn__value *state);
/* the last stack's rows: hidden [rows, width] */
attn_status attn__transformer_hidden(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                     attn__value *hidden);
/* the same of a recurrent model with a decoder (transformer_recurrent.c) */
attn_status attn__transformer_recurrent(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                        attn__value *hidden);
/* logits = hidden times the output head */
attn_status attn__transformer_logits(const attn__call *call, const attn__transformer_plan *plan, const attn__value *hidden,
                                     attn__value *logits);
/* One stretch of decoding: tokens of the stream to hidden rows, keys and values kept in the caches [decoder layers], states of linear forms in row
   slot[i] of them for segment i. */
attn_status attn__transformer_decode(const attn__call *call, const attn__transformer_plan *plan, const view *tokens,
                                     const attn__stream *stream, attn__segments key_segments, attn__segments memory_segments,
                                     attn__layer_cache *caches, const int64_t *slot, attn__value *hidden);
/* The same of a recurrent model, whose state stands in row slot[i] of the cache for segment i, before and, when it is done, after. */
typedef struct attn__recurrent_cache {
    view keys, memory; /* [source rows, columns]; data NULL: none */
    view now, next;    /* [slots, state width]: the states, and those after the stretch, to be taken over when all went well */
} attn__recurrent_cache;
attn_status attn__transformer_decode_recurrent(const attn__call *call, const attn__transformer_plan *plan, const view *tokens,
                                               const attn__stream *stream, attn__segments memory_segments,
                                               const attn__recurrent_cache *cache, const int64_t *slot, attn__value *hidden);
/* Encodes the batch's sources: keys and memory of the cache, and the first state of segment i in row slot[i]. */
attn_status attn__transformer_remember_recurrent(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                                 const attn__recurrent_cache *cache, const int64_t *slot);
/* loss of a checked batch on the tape; loss may be NULL */
attn_status attn__transformer_loss_run(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                       const attn_cross_entropy_options *options, attn__value *loss, attn__loss_sums *sums);
int64_t attn__transformer_output_width(const attn__transformer_plan *plan);
#endif

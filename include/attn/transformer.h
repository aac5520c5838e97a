#ifndef ATTN_TRANSFORMER_H
#define ATTN_TRANSFORMER_H
#include "attention.h"
#include "embedding.h"
#include "loss.h"
ATTN_BEGIN
typedef struct attn_encoder attn_encoder;
typedef struct attn_decoder attn_decoder;
typedef struct attn_transformer attn_transformer;
enum { ATTN_PLACEMENT_POST = 0, ATTN_PLACEMENT_PRE = 1 };
enum { ATTN_TIE_NONE = 0, ATTN_TIE_OUTPUT = 1, ATTN_TIE_SOURCE = 2 }; /* bits */
typedef struct attn_transformer_options {
    uint64_t struct_size;
    int64_t encoder_layers, decoder_layers; /* 0 and 0 is an error; one of them 0: the other alone */
    int64_t width, heads, key_heads, head_size, feed_forward;   /* ATTN_DERIVED: key_heads as heads, head_size width / heads, feed_forward 4 width */
    int64_t decoder_width, decoder_heads, decoder_feed_forward; /* ATTN_DERIVED: as the encoder's */
    int64_t source_vocabulary, target_vocabulary;               /* of the parts that exist; ATTN_DERIVED target: as source */
    int64_t context;                                            /* longest sequence a learned position table covers */
    int64_t patch_values;                                       /* 0: tokens; else the encoder reads rows of this many values (ViT) */
    int64_t segment_types;                                      /* 0: none; else a table of segment embeddings (BERT) */
    int32_t dtype, norm;                                        /* ATTN_FLOAT32 or _FLOAT64; ATTN_NORM_LAYER or _RMS */
    int32_t norm_placement, final_norm;                         /* ATTN_PLACEMENT_*; 1: a pre-norm stack ends with a norm */
    int32_t activation, gated, learned_beta, parallel_block;    /* parallel_block: the sub-layers of a layer read one norm and are added */
    int32_t positions, tie, attention_bias, feed_forward_bias;  /* ATTN_POSITIONS_*; ATTN_TIE_* bits */
    int32_t norm_bias, output_bias, output_head, embedding_norm;
    int32_t initialisation, checkpoint_layers;                  /* checkpoint_layers 1: forget each layer's records, run it again in the backward */
    double norm_epsilon, embedding_scale, initialisation_scale, swish_beta, rotary_base, soft_cap;
    double dropout_embedding, dropout_attention, dropout_sublayer, dropout_activation;
} attn_transformer_options;
ATTN_API attn_status attn_transformer_options_init(attn_transformer_options *options, uint64_t size);
ATTN_API attn_status attn_transformer_preset(attn_context *ctx, const char *name, attn_transformer_options *options, uint64_t size);
ATTN_API const char *attn_transformer_preset_name(int64_t index); /* NULL past the end */

ATTN_API attn_status attn_encoder_create(attn_context *ctx, const attn_transformer_options *options, attn_encoder **out);
ATTN_API void attn_encoder_free(attn_encoder *encoder);
ATTN_API attn_parameters *attn_encoder_parameters(const attn_encoder *encoder);
ATTN_API attn_status attn_encoder_set_mask(attn_context *ctx, attn_encoder *encoder, int64_t layer, const attn_mask *mask);
ATTN_API attn_status attn_encoder_forward(attn_context *ctx, const attn_encoder *encoder, attn_tape *tape, const attn_tensor *x,
    const attn_layout *layout, const attn_mask *mask, attn_tensor *output);
ATTN_API attn_status attn_decoder_create(attn_context *ctx, const attn_transformer_options *options, attn_decoder **out);
ATTN_API void attn_decoder_free(attn_decoder *decoder);
ATTN_API attn_parameters *attn_decoder_parameters(const attn_decoder *decoder);
ATTN_API attn_status attn_decoder_set_mask(attn_context *ctx, attn_decoder *decoder, int64_t layer, const attn_mask *mask);
ATTN_API attn_status attn_decoder_forward(attn_context *ctx, const attn_decoder *decoder, attn_tape *tape, const attn_tensor *x,
    const attn_tensor *memory, const attn_layout *layout, const attn_layout *memory_layout, const attn_mask *mask,
    const attn_mask *memory_mask, attn_tensor *output);

ATTN_API attn_status attn_transformer_create(attn_context *ctx, const attn_transformer_options *options, attn_transformer **out);
ATTN_API void attn_transformer_free(attn_transformer *model);
ATTN_API attn_parameters *attn_transformer_parameters(const attn_transformer *model);
ATTN_API attn_status attn_transformer_get_options(attn_context *ctx, const attn_transformer *model, attn_transformer_options *options);
ATTN_API attn_status attn_transformer_set_mask(attn_context *ctx, attn_transformer *model, int32_t decoder, int64_t layer, const attn_mask *mask);
/* output: logits [target rows, vocabulary], or the encoder's rows when there is no output head */
ATTN_API attn_status attn_transformer_forward(attn_context *ctx, const attn_transformer *model, attn_tape *tape, const attn_batch *batch, attn_tensor *output);
ATTN_API attn_status attn_transformer_loss(attn_context *ctx, const attn_transformer *model, attn_tape *tape, const attn_batch *batch,
    const attn_cross_entropy_options *options, attn_tensor *loss, attn_loss_report *report);
typedef struct attn_load_options { uint64_t struct_size; int32_t strict, dtype; } attn_load_options;
ATTN_API attn_status attn_load_options_init(attn_load_options *options, uint64_t size);
/* one safetensors file: weights, options, and the caller's own metadata (a vocabulary, say) */
ATTN_API attn_status attn_transformer_save(attn_context *ctx, const attn_transformer *model, int64_t count, const char *const *keys,
    const char *const *values, const char *path);
ATTN_API attn_status attn_transformer_load(attn_context *ctx, const char *path, const attn_load_options *options, attn_transformer **out);
ATTN_API const char *attn_transformer_metadata(const attn_transformer *model, const char *key); /* borrowed; NULL: none */
/* the same from a file, without loading it: *bytes with the final NUL; FULL when capacity is too small; END_OF_DATA when there is no such key */
ATTN_API attn_status attn_file_metadata(attn_context *ctx, const char *path, const char *key, int64_t capacity, char *text, int64_t *bytes);
ATTN_END
#endif

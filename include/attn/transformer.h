#ifndef ATTN_TRANSFORMER_H
#define ATTN_TRANSFORMER_H
#include "attention.h"
#include "embedding.h"
#include "loss.h"
ATTN_BEGIN
/* Stacks of layers and whole models (chapter 5). Forward calls and losses only read them: any number of threads may share one, each with a
   context and a tape of its own. Loading, training, freezing and setting a mask need it alone. Frees: NULL is fine, from any thread, before
   or after the context; gradients, optimizers, trainers, generators and tapes keep the parameters they know. Since: 0.0.1 */
typedef struct attn_encoder attn_encoder;         /* rows to rows, without embeddings */
typedef struct attn_decoder attn_decoder;         /* the same, causal, with cross-attention when there is an encoder */
typedef struct attn_transformer attn_transformer; /* tokens to logits: embeddings, encoder, decoder, output head; each part optional */

/* POST: x = norm(x + sub(x)) (5.1), (5.18). PRE: x = x + sub(norm(x)) (5.19). */
enum { ATTN_PLACEMENT_POST = 0, ATTN_PLACEMENT_PRE = 1 };
/* Bits. OUTPUT: the output head's weight is the embedding table of the target (encoder alone: of the source). SOURCE: source and target
   share a table; not looked at unless there are both. */
enum { ATTN_TIE_NONE = 0, ATTN_TIE_OUTPUT = 1, ATTN_TIE_SOURCE = 2 };

/* What a layer is made of: attention, or recurrence (1.1) over tanh or LSTM layers (attn_recurrent). A recurrent decoder with attention
   (1.4) to (1.7): h_t = f(h_t-1, [y_t-1; c_t-1]) layer over layer, c_t the attention of the last layer's h_t over the encoder's rows, the rows before
   the output tanh(W [h_t; c_t] + b) (Luong et al. 2015); its first state is tanh(W z + b) of the encoder's last one z. Since: 0.0.2 */
enum { ATTN_RECURRENCE_NONE = 0, ATTN_RECURRENCE_TANH = 1, ATTN_RECURRENCE_LSTM = 2 };

/* One struct for all models; encoders and decoders of their own read what concerns them. The default of each field ends its line. Sizes are
   1 to 2^31 - 1. Options of parts that are not there are checked for range and otherwise not looked at. Since: 0.0.1 */
typedef struct attn_transformer_options {
    uint64_t struct_size;
    int64_t encoder_layers;       /* 0: no encoder; 6 */
    int64_t decoder_layers;       /* 0: no decoder; a model has one of the two at least; 6 */
    int64_t width;                /* d_model; 512 */
    int64_t heads;                /* 8 */
    int64_t key_heads;            /* a divisor of heads (grouped queries); ATTN_DERIVED: as many as heads, a decoder as many as its own */
    int64_t head_size;            /* ATTN_DERIVED: width / heads (4.4). A decoder of another width takes decoder_width / decoder_heads */
    int64_t feed_forward;         /* hidden width (5.10); ATTN_DERIVED: 4 width */
    int64_t decoder_width;        /* ATTN_DERIVED: width */
    int64_t decoder_heads;        /* ATTN_DERIVED: heads */
    int64_t decoder_feed_forward; /* ATTN_DERIVED: feed_forward, or 4 decoder_width when the widths differ */
    int64_t source_vocabulary;    /* tokens of the encoder's input, 1 or more when there is one; 256 */
    int64_t target_vocabulary;    /* of the decoder's input and classes of the output head; ATTN_DERIVED: source_vocabulary */
    int64_t context;              /* positions of a learned table; also what a generator has room for by default; 512 */
    int64_t patch_values;         /* 0: tokens; else the encoder reads rows of this many values (ViT), UNSUPPORTED for now; 0 */
    int64_t segment_types;        /* 0: none; else rows of a segment embedding (BERT), UNSUPPORTED for now; 0 */
    int32_t dtype;                /* ATTN_FLOAT32; ATTN_FLOAT64 with the reference backend */
    int32_t norm;                 /* ATTN_NORM_LAYER (5.16), (5.17), or ATTN_NORM_RMS; LAYER */
    int32_t norm_placement;       /* ATTN_PLACEMENT_*; POST */
    int32_t final_norm;           /* 1: a pre-norm stack ends with a norm; not for post-norm; 1 */
    int32_t activation;           /* ATTN_ACTIVATION_*; RELU */
    int32_t gated;                /* 1: act(x G) * (x U) in place of act(x W_1), three matrices; 0 */
    int32_t learned_beta;         /* 1: Swish's beta is a parameter, one a layer (5.13); needs ATTN_ACTIVATION_SWISH; 0 */
    int32_t parallel_block;       /* 1: the sub-layers of a layer read one norm and are added together; 0 */
    int32_t
        positions; /* ATTN_POSITIONS_*: SINUSOIDAL (5.2) or LEARNED (5.9), added to the embeddings; ROTARY, T5 (one table a stack), ALIBI or RELATIVE
                                  (one pair of tables a stack), inside self-attention; NONE; SINUSOIDAL */
    int32_t tie;               /* ATTN_TIE_* bits; NONE */
    int32_t attention_bias;    /* 1: query, key, value and output projections have biases; 1 */
    int32_t feed_forward_bias; /* 1 */
    int32_t norm_bias;         /* 1: LayerNorms have a shift; RMSNorms never do; 1 */
    int32_t output_bias;       /* of the output head; 0 */
    int32_t output_head;       /* 0: the model ends with the last stack's rows; 1 */
    int32_t embedding_norm;    /* 1: a norm after embedding and position, before dropout; 0 */
    int32_t initialisation;    /* ATTN_INITIALISATION_*; XAVIER */
    int32_t checkpoint_layers; /* 1: with a tape, forget each layer's records and run it again in the backward: less memory, same bits; 0 */
    double norm_epsilon;       /* in [0, 1]; 1e-6 */
    double embedding_scale;    /* of token embeddings; the original model's is sqrt(width); 1 */
    double initialisation_scale; /* deviation of SCALED_NORMAL; 0.02 */
    double swish_beta;           /* the fixed beta, or where a learned one starts; 1 */
    double rotary_base;          /* 10000 */
    double soft_cap;             /* of attention's scores: s becomes soft_cap tanh(s / soft_cap); 0: none; 0 */
    double dropout_embedding;    /* rates in [0, 1] (6.9), acting under a tape that trains: on embedding plus position; 0 */
    double dropout_attention;    /* on attention weights (6.10); 0 */
    double dropout_sublayer;     /* on each sub-layer's output before it is added; 0 */
    double dropout_activation;   /* inside the feed-forward, after the activation; 0 */
    /* since 0.0.2: of self-attention, as in attn_attention_options and attn_rotary_options */
    int64_t position_buckets; /* T5, both sides in an encoder and one in a decoder; 32 */
    int64_t position_reach;   /* T5, RELATIVE; 128 */
    int64_t rotated;          /* ATTN_DERIVED */
    int32_t rotary_pairing;   /* ATTN_ROTARY_HALVES */
    int32_t rotary_scaling;   /* ATTN_ROTARY_PLAIN */
    int32_t scaled_scores;    /* 0: scores are not divided by the root of the head size (T5), in cross-attention neither; 1 */
    int32_t query_key_norm;   /* ATTN_QUERY_KEY_NONE; epsilon as norm_epsilon */
    int32_t gated_attention;  /* gated_output of every attention; 0 */
    int32_t reserved;         /* 0 */
    double rotary_factor;     /* 1 */
    double rotary_context;    /* 2048 */
    double rotary_low;        /* 1 */
    double rotary_high;       /* 32 */
    double rotary_magnitude;  /* 0 */
    /* Recurrent models, which attention came from, under the same handle: their layers take the place of attention's, everything else (tables,
       output, loss, trainer, generator, files) is the same. heads, feed-forwards, norms of layers and masks are not there then. */
    int32_t recurrence;        /* ATTN_RECURRENCE_*; NONE */
    int32_t both_ways;         /* 1: the encoder reads each sequence in both directions, half of its width each (Bahdanau et al. 2015); 1 */
    int32_t decoder_attention; /* 0: the decoder knows the encoder's last state alone (Sutskever et al. 2014); 1 */
    int32_t decoder_score;     /* ATTN_SCORE_*; those of products without a matrix need width = decoder_width; ADDITIVE */
    int32_t global_projections; /* 1: of the encoder's self-attention, as in attn_attention_options; its masks are set for its layers; 0 */
    int32_t form;         /* ATTN_FORM_* of self-attention; LINFORMER: of the encoder's alone, whose longest sequence is `context`. LINEAR
                                   and PERFORMER have no weights to drop; a generator then keeps a state of constant size in place of keys and
                                   values; SOFTMAX */
    int64_t features;     /* PERFORMER: as in attn_attention_options, at most 65536; ATTN_DERIVED */
    int64_t feature_seed; /* PERFORMER: at most 2^52; each layer draws its directions by it and its own name; 0 */
    int64_t projected;    /* LINFORMER: to be given; 0 */
} attn_transformer_options;

/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. From any thread. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_options_init(attn_transformer_options *options, uint64_t size);

/* Writes the options of a known system into size bytes at options, to be used as they are or changed. INVALID_ARGUMENT: no such name.
   Some presets can be described and costed, not yet created (bert-base, vit-base). Since: 0.0.1 */
ATTN_API attn_status attn_transformer_preset(attn_context *ctx, const char *name, attn_transformer_options *options, uint64_t size);
/* The name of preset `index`, from 0: a constant; NULL past the end. From any thread. Since: 0.0.1 */
ATTN_API const char *attn_transformer_preset_name(int64_t index);

/* An encoder of encoder_layers layers (0 is legal: its rows come out as they went in, or normed) with started weights; options NULL: the
   defaults. Parameters: layers.0.self_attention.query.weight and so on; docs/abi.md has them all. The caller frees *out, NULL on failure.
   Errors: INVALID_ARGUMENT (an option out of range; the text names it), SHAPE (sizes that do not divide), UNSUPPORTED (a part that is not
   there yet; float64 with the BLAS backend), TOO_LARGE, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_encoder_create(attn_context *ctx, const attn_transformer_options *options, attn_encoder **out);
ATTN_API void attn_encoder_free(attn_encoder *encoder);
/* Borrowed, as long as the encoder lives. NULL for NULL. Since: 0.0.1 */
ATTN_API attn_parameters *attn_encoder_parameters(const attn_encoder *encoder);
/* The rule of one layer's self-attention, or of all with layer -1; mask NULL: none of its own again. The mask is kept alive; it is not
   written to files. INVALID_ARGUMENT: no such layer. Since: 0.0.1 */
ATTN_API attn_status attn_encoder_set_mask(attn_context *ctx, attn_encoder *encoder, int64_t layer, const attn_mask *mask);
/* Section 5.1.1: x [rows, width] to output [rows, width], the caller's, apart from x and from the parameters. layout: segments that
   cover each row once, NULL for one of all rows. mask: for the layers without a rule of their own; NULL: every row sees its whole segment.
   tape: NULL for inference. Rules, errors and threads as in operations.h. Since: 0.0.1 */
ATTN_API attn_status attn_encoder_forward(attn_context *ctx, const attn_encoder *encoder, attn_tape *tape, const attn_tensor *x,
                                          const attn_layout *layout, const attn_mask *mask, attn_tensor *output);

/* As the encoder's calls, for decoder_layers layers of decoder_width; with encoder_layers over 0 each layer has cross-attention to rows of
   `width` columns. A layer without a rule and a forward without a mask are causal, the last query at the last key (3.19): a mask that is
   given takes the place of that, so intersect it with a causal one where both are meant. Since: 0.0.1 */
ATTN_API attn_status attn_decoder_create(attn_context *ctx, const attn_transformer_options *options, attn_decoder **out);
ATTN_API void attn_decoder_free(attn_decoder *decoder);
ATTN_API attn_parameters *attn_decoder_parameters(const attn_decoder *decoder);
ATTN_API attn_status attn_decoder_set_mask(attn_context *ctx, attn_decoder *decoder, int64_t layer, const attn_mask *mask);
/* Section 5.1.2: x, output [rows, decoder_width]; memory [memory rows, width], the encoder's output, or NULL in a decoder without cross-attention.
   Segment i of layout sees segment i of memory_layout (equal counts; those may leave gaps and repeat); memory_mask NULL: all of it.
   Since: 0.0.1 */
ATTN_API attn_status attn_decoder_forward(attn_context *ctx, const attn_decoder *decoder, attn_tape *tape, const attn_tensor *x,
                                          const attn_tensor *memory, const attn_layout *layout, const attn_layout *memory_layout,
                                          const attn_mask *mask, const attn_mask *memory_mask, attn_tensor *output);

/* A whole model with started weights, the same for the same seed of the context on any machine type but for rounding; options NULL: the
   defaults. Errors as attn_encoder_create, and SHAPE (tied tables of different shapes). The caller frees *out. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_create(attn_context *ctx, const attn_transformer_options *options, attn_transformer **out);
ATTN_API void attn_transformer_free(attn_transformer *model);
/* Borrowed, as long as the model lives. NULL for NULL. Since: 0.0.1 */
ATTN_API attn_parameters *attn_transformer_parameters(const attn_transformer *model);
/* The model's options, without ATTN_DERIVED; the caller sets struct_size. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_get_options(attn_context *ctx, const attn_transformer *model, attn_transformer_options *options);
/* attn_encoder_set_mask, or with decoder 1 attn_decoder_set_mask, of the model's stack. INVALID_ARGUMENT: it has no such stack, or layer,
   or it is recurrent. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_set_mask(attn_context *ctx, attn_transformer *model, int32_t decoder, int64_t layer,
                                               const attn_mask *mask);

/* Tokens to logits [rows, target_vocabulary], or to the last stack's rows [rows, its width] without an output head. rows: those of the target,
   or of the source in an encoder alone. batch: int32 or int64 tokens, rank 1 or [rows, 1]; source for an encoder, target for a decoder, each
   with a layout that covers each row once (NULL: one sequence), with equal counts. output: the caller's, apart from tokens and parameters.
   tape: NULL for inference. Probabilities (6.2) are attn_softmax of the logits. Errors and threads as in operations.h; a token past its
   vocabulary, or a position past a learned table, is INVALID_ARGUMENT. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_forward(attn_context *ctx, const attn_transformer *model, attn_tape *tape, const attn_batch *batch,
                                              attn_tensor *output);
/* (6.1), (6.5) The cross-entropy of the logits against batch->labels, one for each row; options, loss and report as in attn_cross_entropy.
   The logits never leave the library, and with a tape become their own gradient. BAD_STATE: no output head. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_loss(attn_context *ctx, const attn_transformer *model, attn_tape *tape, const attn_batch *batch,
                                           const attn_cross_entropy_options *options, attn_tensor *loss, attn_loss_report *report);

/* strict 1 (default): the file has all parameters and no other tensor (moments of a checkpoint are passed over); 0: missing ones are started
   (all of them together may be as large as the file's data and 64 MiB: a file's word alone takes no memory), others passed over. A wrong
   shape is refused either way. dtype: of the model; 0 (default): as in the file, else ATTN_FLOAT32 or _FLOAT64. */
typedef struct attn_load_options {
    uint64_t struct_size;
    int32_t strict, dtype;
} attn_load_options;
/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. From any thread. Since: 0.0.1 */
ATTN_API attn_status attn_load_options_init(attn_load_options *options, uint64_t size);

/* Writes one safetensors file: parameters, options, and `count` entries of the caller's own metadata (a vocabulary, say): UTF-8, keys that do
   not start with "attn."; entries of the file a model came from are not carried over by themselves. Masks are not in it. The file at path is
   replaced as a whole or, on any failure, left as it was.
   Errors: INVALID_ARGUMENT (NULL, a reserved or repeated key), IO, UNSUPPORTED (big-endian machine), OUT_OF_MEMORY. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_save(attn_context *ctx, const attn_transformer *model, int64_t count, const char *const *keys,
                                           const char *const *values, const char *path);
/* Makes the model of a file that attn_transformer_save or attn_trainer_save wrote; the file is not trusted. The caller frees *out, NULL on
   failure. Errors: IO, BAD_FILE (damaged, no model, options out of range), MISMATCH (a parameter missing, unexpected or of another
   shape; named), DTYPE, UNSUPPORTED (a part that is not there yet; float64 with the BLAS backend), OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_transformer_load(attn_context *ctx, const char *path, const attn_load_options *options, attn_transformer **out);
/* The caller's metadata under key in the file the model was loaded from: borrowed, as long as the model lives; NULL: none. Since: 0.0.1 */
ATTN_API const char *attn_transformer_metadata(const attn_transformer *model, const char *key);
/* The same from a file, without loading it, and for any key. *bytes: what it needs, the final NUL included; FULL when capacity is less, and
   nothing is written then (capacity 0 with text NULL asks for it). END_OF_DATA: no such key. IO, BAD_FILE. Since: 0.0.1 */
ATTN_API attn_status attn_file_metadata(attn_context *ctx, const char *path, const char *key, int64_t capacity, char *text, int64_t *bytes);
ATTN_END
#endif

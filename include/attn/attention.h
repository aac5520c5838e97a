#ifndef ATTN_ATTENTION_H
#define ATTN_ATTENTION_H
#include "mask.h"
#include "operations.h"
ATTN_BEGIN
/* A multi-head attention layer (Definition 4.1) with a parameter set of its own. Forward only reads it: threads may share one. Since: 0.0.1 */
typedef struct attn_attention attn_attention;

/* The scores of a query and a key: DOT q.k (2.14); SCALED_DOT q.k / sqrt(size) (2.15); MULTIPLICATIVE q W k (2.13), with a matrix for every
   head and sizes that may differ; ADDITIVE v . tanh(q + k) (2.12), with a vector for every head: the projections are its W_1 and W_2. */
enum { ATTN_SCORE_DOT = 0, ATTN_SCORE_SCALED_DOT = 1, ATTN_SCORE_MULTIPLICATIVE = 2, ATTN_SCORE_ADDITIVE = 3 };
/* derive_scale 1 (default): 1 / sqrt(size), and scale is not looked at; 0: scale, any finite number. dropout: on the weights, in [0, 1].
   soft_cap: 0 for none, else scores s become soft_cap tanh(s / soft_cap). site names the numbers dropout draws. reserved is 0. */
typedef struct attn_dot_product_options {
    uint64_t struct_size;
    double scale; /* with derive_scale 0 */
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
                                                const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout,
                                                const attn_mask *mask, const attn_dot_product_options *options, attn_tensor *output);
/* What the score of query i and key j gains from where they stand, t = position of j - position of i, both as the layouts say, before the soft cap:
   LINEAR (ALiBi) - table[head] |t|; table [heads], or NULL for ALiBi's own slopes: 2^(-8 (h + 1) / heads), and where heads is no power of two
   those of the power of two below, then every other one of the next power.
   BUCKETS (T5) table[bucket(t), head]; table [buckets, heads]: half of the buckets of a side for single distances, the rest in equal ratios up to
   `reach`, from where on the last one counts. both_sides 1: keys after the query have the upper half; 0: they count as distance 0.
   RELATIVE (Shaw) scale query_i . table[c] with c = t + reach, t cut to -reach .. reach; table [2 reach + 1, size]; and with values
   [2 reach + 1, value_size] the output gains weight_ij values[c]. Either may be NULL. All heads share both.
   PAIR table[segment, head, i, j]; dense [1 or segments, 1 or heads, queries, keys], as large as the largest segments at least. */
enum { ATTN_BIAS_LINEAR = 1, ATTN_BIAS_BUCKETS = 2, ATTN_BIAS_RELATIVE = 3, ATTN_BIAS_PAIR = 4 };
typedef struct attn_attention_bias {
    uint64_t struct_size;
    int32_t kind;       /* ATTN_BIAS_*; to be given */
    int32_t both_sides; /* BUCKETS: 1 (default) or 0 */
    int64_t reach;      /* BUCKETS, RELATIVE: 0 to 2^20; 128 */
    const attn_tensor *table, *values;
} attn_attention_bias;
/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. Since: 0.0.2 */
ATTN_API attn_status attn_attention_bias_init(attn_attention_bias *bias, uint64_t size);
/* attn_dot_product_attention with `count` position biases, at most one of LINEAR and BUCKETS, one RELATIVE and one PAIR; tables of the queries'
   dtype. With a tape the tables get gradients as inputs do. With 0 it is the same function. The backward takes tables' sizes of
   memory for each 64 to 256 queries and head. Since: 0.0.2 */
ATTN_API attn_status attn_biased_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                           const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout,
                                           const attn_mask *mask, const attn_dot_product_options *options, int64_t count,
                                           const attn_attention_bias *const *biases, attn_tensor *output);
/* Additive attention (2.12): the score of query i and key j is scale vector[head] . tanh(query_i + key_j), with query = W_1 q and key = W_2 k + b
   made by attn_linear; vector [heads, size], size at most 32768. options: derive_scale 1 means a scale of 1 here. Everything else is
   attn_dot_product_attention's; it costs `size` tanh for each pair and is no product. Since: 0.0.2 */
ATTN_API attn_status attn_additive_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                             const attn_tensor *value, const attn_tensor *vector, const attn_layout *query_layout,
                                             const attn_layout *key_layout, const attn_mask *mask, const attn_dot_product_options *options,
                                             attn_tensor *output);
/* How weights start. XAVIER: uniform with variance 2 / (in + out), embeddings normal with deviation 1 / sqrt(width). SCALED_NORMAL: normal
   with deviation initialisation_scale; in stacks that of projections onto the residual stream is divided by sqrt(2 layers). Biases and
   shifts start at 0, gains at 1. Each parameter has a stream of its own, drawn from the context's seed and the parameter's name. */
enum { ATTN_INITIALISATION_XAVIER = 0, ATTN_INITIALISATION_SCALED_NORMAL = 1 };

/* Definition 4.1 with every projection optional: an absent one is the identity (then its width is its heads times their size, and its bias
   is not looked at). All absent with one head is Definition 2.1; query, key and value alone Definition 3.1. Since: 0.0.1 */
typedef struct attn_attention_options {
    uint64_t struct_size;
    int32_t dtype;                  /* ATTN_FLOAT32 (default), or _FLOAT64: with the reference backend */
    int32_t score;                  /* ATTN_SCORE_*; SCALED_DOT */
    int64_t heads;                  /* 1 or more; 1 */
    int64_t key_heads;              /* a divisor of heads (grouped queries); ATTN_DERIVED (default): heads */
    int64_t query_width;            /* columns of the queries; to be given */
    int64_t key_width, value_width; /* ATTN_DERIVED (default): as query_width; as key_width */
    int64_t output_width;           /* ATTN_DERIVED (default): query_width; unprojected: heads * value_head_size */
    int64_t head_size;              /* of query and key, ADDITIVE: d_a; ATTN_DERIVED (default): query_width / heads (4.4) */
    int64_t value_head_size;        /* ATTN_DERIVED (default): head_size; unprojected: value_width / key_heads */
    int32_t project_query, project_key, project_value, project_output; /* 1 (default): there is one; 0: absent */
    int32_t bias_query, bias_key, bias_value, bias_output;             /* 1 (default) or 0 */
    double scale;                                                      /* of the scores, with derive_scale 0: any finite number */
    double dropout;                                                    /* on the weights (6.10), in [0, 1]; 0 */
    double soft_cap;             /* 0 (default): none; else scores s become soft_cap tanh(s / soft_cap) */
    uint64_t site;               /* names the dropout; 0 (default): one site that all such layers share */
    int32_t initialisation;      /* ATTN_INITIALISATION_*; XAVIER */
    int32_t derive_scale;        /* 1 (default): 1 / sqrt(head_size) with SCALED_DOT, else 1; 0: scale */
    double initialisation_scale; /* deviation of SCALED_NORMAL; 0.02 */
    /* since 0.0.2 */
    int32_t
        positions; /* ATTN_POSITIONS_NONE (default), _ROTARY (queries and keys turn), _T5, _ALIBI or _RELATIVE (see attn_attention_bias) */
    int32_t position_sides;   /* T5: 1 (default) keys after the query have buckets of their own; 0: they count as distance 0 */
    int64_t position_buckets; /* T5: 2 (4 with both sides) or more; 32 */
    int64_t position_reach;   /* T5: distances from here on share the last bucket; RELATIVE: distances are cut to it; 128 */
    int32_t relative_values;  /* RELATIVE: 1 (default): values have relative rows as keys do; 0 */
    int32_t query_key_norm; /* ATTN_QUERY_KEY_NONE (default), _LAYER or _RMS: queries and keys are normed, head by head, before they turn */
    int32_t gated_output;   /* 1: heads times sigmoid(query G^T + g) before the output projection; 0 (default) */
    int32_t rotary_pairing; /* these: as in attn_rotary_options; ATTN_ROTARY_HALVES */
    int32_t rotary_scaling; /* ATTN_ROTARY_PLAIN */
    int32_t pair_bias;      /* 1: pair.weight, for attn_attention_triangle; 0 (default) */
    int64_t rotated;        /* ATTN_DERIVED: all columns of a head */
    double rotary_base;     /* 10000 */
    double rotary_factor;   /* 1 */
    double rotary_context;  /* 2048 */
    double rotary_low;      /* 1 */
    double rotary_high;     /* 32 */
    double rotary_magnitude;      /* 0 */
    double query_key_epsilon;     /* of the norms; 1e-6 */
    int64_t key_head_size;        /* MULTIPLICATIVE: of the keys; ATTN_DERIVED (default): head_size, as it is with the other scores */
    int32_t form;                 /* ATTN_FORM_*; SOFTMAX */
    int32_t separate_projections; /* LINFORMER: 1: values have a projection of their own; 0 (default): that of the keys */
    int64_t features;             /* PERFORMER: of a head; ATTN_DERIVED (default): 4 key_head_size */
    uint64_t feature_seed;        /* PERFORMER: another seed draws the directions anew; 0 */
    int64_t projected, longest;   /* LINFORMER: to how many rows keys and values are projected, and their longest segment; to be given */
    int32_t
        global_projections; /* 1: tokens of a global mask have queries of their own, and see keys and values of their own; 0 (default) */
    int32_t reserved;       /* 0 */
} attn_attention_options;
/* global_projections (Longformer, Beltagy et al. 2020): where the mask is attn_mask_global, or a union with such ones, the rows that they name are
   projected by global_query.weight and attend, over all rows of their key segment, what global_key.weight and global_value.weight make of
   them; the other rows are as without. For self-attention without positions inside, scores DOT or SCALED_DOT, the form SOFTMAX. */
/* What takes the place of softmax attention, at a cost in proportion to the length: LINEAR (elu + 1) and PERFORMER (positive random features) of
   linear_attention.h, without soft cap and dropout, the mask NULL or attn_mask_causal aligned to the last key; LINFORMER, the mask NULL.
   Key segments are disjoint; scores are no additive ones, positions NONE or ROTARY. */
enum { ATTN_FORM_SOFTMAX = 0, ATTN_FORM_LINEAR = 1, ATTN_FORM_PERFORMER = 2, ATTN_FORM_LINFORMER = 3 };
enum { ATTN_QUERY_KEY_NONE = 0, ATTN_QUERY_KEY_LAYER = 1, ATTN_QUERY_KEY_RMS = 2 };

/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. From any thread. Since: 0.0.1 */
ATTN_API attn_status attn_attention_options_init(attn_attention_options *options, uint64_t size);

/* Makes a layer with started weights. Parameters, where present and in this order: query.weight [heads head_size, query_width], key.weight
   [key_heads key_head_size, key_width], value.weight [key_heads value_head_size, value_width], their biases query.bias, key.bias, value.bias,
   output.weight [output_width, heads value_head_size], output.bias; and by option: query_norm.weight, key_norm.weight [head_size] (LAYER: and
   biases), gate.weight [heads value_head_size, query_width] with gate.bias as query.bias, position.weight (T5 [position_buckets, heads],
   RELATIVE [2 position_reach + 1, key_head_size]), position_values.weight [2 position_reach + 1, value_head_size], score.weight (MULTIPLICATIVE
   [heads key_head_size, head_size], ADDITIVE [heads, head_size]), pair.weight [heads, query_width], key_projection.weight and
   value_projection.weight [projected, longest], and with global_projections global_query, global_key and global_value, shaped and biased as query,
   key and value. The caller frees *out, which is NULL on failure.
   Errors: INVALID_ARGUMENT (an option out of range), SHAPE (sizes that do not divide or fit), DTYPE, UNSUPPORTED (a score; float64 with
   the BLAS backend), TOO_LARGE, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_attention_create(attn_context *ctx, const attn_attention_options *options, attn_attention **out);

/* Frees the layer, from any thread, before or after the context; NULL is fine. Gradients, optimizers and tapes that know its parameters keep
   those: it may be freed before a backward. Since: 0.0.1 */
ATTN_API void attn_attention_free(attn_attention *layer);

/* The layer's parameters: borrowed, as long as the layer lives. NULL for NULL. Since: 0.0.1 */
ATTN_API attn_parameters *attn_attention_parameters(const attn_attention *layer);

/* (4.1), (4.2) output = Concat(head_1 .. head_h) W_O, head_i = softmax(scale Q_i K_i^T + mask) V_i. query [rows, query_width], key [key rows,
   key_width], value [key rows, value_width], output [rows, output_width], all of the layer's dtype, rows as in operations.h; output is the
   caller's and overlaps neither an input nor the layer's parameters. One tensor given for several of them is projected by one product.
   Segment i of query_layout sees segment i of key_layout: equal counts, NULL is one segment of all rows. Query segments cover each row once;
   key segments may leave gaps and repeat. mask NULL: every key is seen. A query that sees no key counts as a head output of zeros.
   tape: NULL for inference; else gradients of inputs and parameters are recorded, and dropout acts when the tape trains.
   Errors and threads as in operations.h. Since: 0.0.1 */
ATTN_API attn_status attn_attention_forward(attn_context *ctx, const attn_attention *layer, attn_tape *tape, const attn_tensor *query,
                                            const attn_tensor *key, const attn_tensor *value, const attn_layout *query_layout,
                                            const attn_layout *key_layout, const attn_mask *mask, attn_tensor *output);
/* Triangle attention (Jumper et al. 2021, algorithms 13 and 14) over a pair matrix, pair [n, n, width] to output [n, n, width], of a layer made with
   pair_bias (and gated_output, as it was published) that takes and gives rows of one width. axis 0, around the starting node: entry (i, j)
   sees the entries (i, k) of its row, and its score gains pair.weight pair[j, k], head by head. axis 1, around the ending node: the same of the
   matrix whose rows are the columns: (i, j) sees (k, j) and gains what pair[k, i] says. mask: of a row's n entries, NULL: all. Tensors are dense.
   Errors and threads as in operations.h; BAD_STATE: another layer. Since: 0.0.2 */
ATTN_API attn_status attn_attention_triangle(attn_context *ctx, const attn_attention *layer, attn_tape *tape, const attn_tensor *pair,
                                             int32_t axis, const attn_mask *mask, attn_tensor *output);
ATTN_END
#endif

#ifndef ATTN_LINEAR_ATTENTION_H
#define ATTN_LINEAR_ATTENTION_H
#include "attention.h"
ATTN_BEGIN
/* Attention whose cost grows in proportion to the length (7.2): linear attention (Katharopoulos et al. 2020) and the Performer (Choromanski et
   al. 2021), where a map f of queries and keys to features takes the place of the softmax, f(q) . f(k) for e^(scale q . k); and the Linformer
   (Wang et al. 2020), where keys and values are first projected along the length. None of them is the softmax itself; docs/attention.md
   says when to take which. */

/* The map f. IDENTITY x (features the caller made). ELU elu(x) + 1. The others stand for e^(scale q . k), without bias, by m random directions w:
   with z = sqrt(scale) x, POSITIVE (FAVOR+) e^(w . z - |z|^2 / 2) / sqrt(m), m features; TRIGONOMETRIC e^(|z|^2 / 2) / sqrt(m) times
   the cosines of w . z, then their sines, 2 m features, for comparison: its sums may be near 0 or negative. */
enum { ATTN_FEATURES_IDENTITY = 0, ATTN_FEATURES_ELU = 1, ATTN_FEATURES_POSITIVE = 2, ATTN_FEATURES_TRIGONOMETRIC = 3 };

typedef struct attn_linear_attention_options {
    uint64_t struct_size;
    int32_t map;          /* ATTN_FEATURES_*; ELU */
    int32_t causal;       /* 0 (default); 1: the last query of a segment sees all its keys, the one before it all but the last, and so on */
    int64_t features;     /* of the random maps: 1 or more, TRIGONOMETRIC even; ATTN_DERIVED (default): 4 size */
    uint64_t seed;        /* of the directions: another seed draws them anew; 0 */
    int32_t independent;  /* 0 (default): directions are orthogonal in groups of `size`; 1: each is drawn by itself */
    int32_t derive_scale; /* of the random maps: 1 (default): scale is 1 / sqrt(size); 0: scale */
    double scale;         /* over 0 and finite */
    const attn_tensor *directions; /* of the random maps: [m, size], constants; NULL (default): drawn by each call from the seed */
    const attn_tensor *key_scale;  /* IDENTITY: [key rows, key_heads], constants: key j counts e^key_scale times; NULL (default): once */
} attn_linear_attention_options;
/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. Since: 0.0.2 */
ATTN_API attn_status attn_linear_attention_options_init(attn_linear_attention_options *options, uint64_t size);

/* The directions that options.seed and options.independent draw: directions [m, size], any m, float32 or float64; each is standard normal by itself,
   orthogonal ones have the lengths of independent ones. The first ones of a larger m are those of a smaller. The same numbers on every
   backend. Errors: INVALID_ARGUMENT, SHAPE, DTYPE, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.2 */
ATTN_API attn_status attn_feature_directions(attn_context *ctx, const attn_linear_attention_options *options, attn_tensor *directions);

/* y = f(x) for every head of every row; causal, key_scale are not looked at, IDENTITY is INVALID_ARGUMENT. x [rows, heads, size], y [rows, heads,
   features] (ELU: size), any strides with a dense last axis, y apart from x. log_scale NULL: f itself, which may pass the range of numbers. Else
   [rows, heads], dense, without ELU: y is f(x) e^-log_scale, its largest feature 1 / sqrt(m) (POSITIVE) or the cosines and sines alone
   (TRIGONOMETRIC). The gradient takes log_scale for a constant: it is right where log_scale is multiplied back, as key_scale does it, or
   cancels, as for queries. Rules, other errors and threads as in operations.h. Since: 0.0.2 */
ATTN_API attn_status attn_feature_map(attn_context *ctx, attn_tape *tape, const attn_tensor *x,
                                      const attn_linear_attention_options *options, attn_tensor *log_scale, attn_tensor *y);

/* output_i = sum_j f(q_i) . f(k_j) v_j / sum_j f(q_i) . f(k_j) over the keys j that query i sees: all of its segment, or with causal those up to
   it. Where the lower sum is 0 (no key is seen) the output is zeros, and so is the gradient. Shapes, grouped heads and layouts as in
   attn_dot_product_attention, but segments of either layout are disjoint. Time and memory: rows * features * (value_size + 1), causal and 64 (features +
   value_size + 1) more a row, by chunks of 64 rows; random features are scaled by the largest exponent so far, so later rows change
   no bit of earlier ones, NaN neither. Rules, errors and threads as in operations.h. Since: 0.0.2 */
ATTN_API attn_status attn_linear_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                           const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout,
                                           const attn_linear_attention_options *options, attn_tensor *output);

/* The same, causal (options.causal is not looked at), for sequences that arrive in parts: the rows of segment i of layout follow those that state[i] has
   taken in, and are taken in. query, key, value have equal rows; layout NULL: one segment of all rows. state [segments, key_heads, features + 1,
   value_size + 1], dense, of their dtype, zeros before the first row: sums of f(k) v and f(k), then one line of which the first number
   is the logarithm of their scale and the last counts the rows. Its size does not grow. No gradient. On an error state is as it was, but for CANCELLED.
   Rules, errors and threads as in operations.h. Since: 0.0.2 */
ATTN_API attn_status attn_linear_attention_step(attn_context *ctx, const attn_tensor *query, const attn_tensor *key,
                                                const attn_tensor *value, const attn_layout *layout,
                                                const attn_linear_attention_options *options, attn_tensor *state, attn_tensor *output);

/* y_s = E[:, :n] x_s for every segment s of n rows and every head: rows s * k to s * k + k - 1 of y. x [rows, heads, size], projection E [k, longest],
   k >= 1, n at most longest, y [segments * k, heads, size]. A shorter segment uses the first n columns; rows in no segment are not read.
   Segments are disjoint. Gradients by x and E. Rules, errors and threads as in operations.h. Since: 0.0.2 */
ATTN_API attn_status attn_linformer_project(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *projection,
                                            const attn_layout *layout, attn_tensor *y);

/* The Linformer: attn_dot_product_attention over keys and values projected by attn_linformer_project. value_projection NULL: values take that of
   the keys; else it has the shape of key_projection. Equal to exact attention where both are the identity of the length. mask: NULL; any other is
   UNSUPPORTED, causal above all: each projected key mixes all rows of its segment, later ones too. Layouts: key segments disjoint, the rest, options
   and errors as there. Since: 0.0.2 */
ATTN_API attn_status attn_linformer_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                              const attn_tensor *value, const attn_tensor *key_projection,
                                              const attn_tensor *value_projection, const attn_layout *query_layout,
                                              const attn_layout *key_layout, const attn_mask *mask, const attn_dot_product_options *options,
                                              attn_tensor *output);
ATTN_END
#endif

#ifndef ATTN_AUTOGRAD_OPERATIONS_H
#define ATTN_AUTOGRAD_OPERATIONS_H
#include "tape.h"

/* The differentiable operations on values, one file each (forward beside its backward), for modules and for the public functions of
   attn/operations.h, which check and call these. All take the kernel table that fits the values' dtype by themselves. Outputs (y, r) are
   values whose memory exists (temporaries or a caller's tensor). Shapes were checked by the caller. Values that may be NULL say so.
   A dropout of rate 0 costs nothing. */

/* y = dropout(act(x W^T + b)); bias, act, beta (learned, one element), drop may be NULL */
attn_status attn__linear(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, const attn__value *bias,
                         const attn__activation *act, const attn__value *beta, const attn__dropout *drop, attn__value *y);
/* y = dropout(act(x G^T + b_g) * (x U^T + b_u)); weight [2 out, in]: gate rows, then up rows */
attn_status attn__linear_gated(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, const attn__value *bias,
                               const attn__activation *act, const attn__value *beta, const attn__dropout *drop, attn__value *y);
/* y_h = x_h W_h^T for every head; x [rows, heads, in], weight [heads out, in], y [rows, heads, out] */
attn_status attn__linear_heads(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, attn__value *y);
attn_status attn__activate(attn_context *ctx, attn_tape *tape, const attn__activation *act, const attn__value *beta, const attn__value *x,
                           attn__value *y);

/* r = x + dropout(s), y = norm(r). s NULL: r is x, pass r NULL. r NULL with s: the sum is kept by the record alone. gain, shift may be NULL.
   Places of the dropout are copied by the caller into the tape's records if they do not outlive it. */
attn_status attn__residual_norm(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *s, const attn__dropout *drop,
                                int32_t norm, double epsilon, const attn__value *gain, const attn__value *shift, attn__value *r,
                                attn__value *y);
attn_status attn__residual(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *s, const attn__dropout *drop,
                           attn__value *r);

/* query [rows, heads, size] and so on: views of values with heads; segments and mask outlive the tape's record (copied by the caller into
   attn__tape_records; the mask is retained here) */
typedef struct attn__attention_settings {
    attn__segments query_segments, key_segments;
    const attn_mask *mask;
    double scale, soft_cap;
    attn__dropout dropout;
    const attn__attention_bias *bias;                                     /* kinds, reach and extents; NULL: none. Copied. */
    const attn__value *distance, *relative_keys, *relative_values, *pair; /* its tables, where the bias has them; NULL: absent */
    const attn__value *score_vector;                                      /* [heads, size]: additive scores; NULL: products */
    void *entropy;                                                        /* [heads, query rows], filled by the forward; NULL: not wanted */
} attn__attention_settings;
attn_status attn__attend(attn_context *ctx, attn_tape *tape, const attn__value *query, const attn__value *key, const attn__value *value,
                         const attn__attention_settings *settings, attn__value *output);

/* options over the defaults, checked for heads of `size` columns; scale is filled in */
struct attn_dot_product_options;
attn_status attn__dot_product_read(attn_context *ctx, const struct attn_dot_product_options *options, int64_t size,
                                   struct attn_dot_product_options *out);

/* weights [rows, heads, keys] of a part of these queries and keys; nothing is recorded */
attn_status attn__attention_weights(attn_context *ctx, const view *query, const view *key, const attn__attention_settings *settings,
                                    const attn__weights_part *part, view *weights);

/* y = f(x); log_scale as in the kernel table; directions and log_scale outlive the record */
attn_status attn__feature_map(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__features *features, void *log_scale,
                              attn__value *y);
/* segments, key_scale and state outlive the record; a state goes without a tape */
typedef struct attn__linear_settings {
    attn__segments query_segments, key_segments;
    const void *key_scale;
    void *state;
    int32_t causal, reserved;
} attn__linear_settings;
/* queries and keys are features */
attn_status attn__linear_attend(attn_context *ctx, attn_tape *tape, const attn__value *query, const attn__value *key,
                                const attn__value *value, const attn__linear_settings *settings, attn__value *output);
/* y_s = E[:, :n] x_s; segments outlive the record */
attn_status attn__project_sequence(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *projection,
                                   attn__segments segments, attn__value *y);

/* The recurrent layer; segments outlive the record. hidden, cell, final_hidden, final_cell may be NULL. */
typedef struct attn__recurrent_settings {
    int32_t kind, reverse; /* ATTN_RECURRENT_* */
    attn__segments segments;
} attn__recurrent_settings;
attn_status attn__recurrent(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, const attn__value *hidden,
                            const attn__value *cell, const attn__recurrent_settings *settings, attn__value *output,
                            attn__value *final_hidden, attn__value *final_cell);

/* segments of the shape outlive the record; bias may be NULL */
attn_status attn__convolve(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, const attn__value *bias,
                           const attn__convolution *shape, attn__value *y);

attn_status attn__softmax(attn_context *ctx, attn_tape *tape, int log, const attn__value *x, attn__value *y);
/* y = dropout(scale * table[token] + position); kind ATTN_POSITIONS_NONE, _SINUSOIDAL, _LEARNED. tokens NULL: x is given instead of table */
attn_status attn__embed(attn_context *ctx, attn_tape *tape, const view *tokens, const attn__value *table, const attn__value *x,
                        double scale, int32_t kind, const attn__value *positions, attn__places places, const attn__dropout *drop,
                        attn__value *y);
/* loss (NULL or [1, 1]): the sum, or the mean over this call's counted rows. With a tape on which logits have an id, logits are overwritten by
   their gradient. */
attn_status attn__cross_entropy(attn_context *ctx, attn_tape *tape, attn__value *logits, const view *labels, double smoothing, int32_t form,
                                int64_t ignored, int32_t mean, attn__value *loss, attn__loss_sums *sums);
/* the caller's options over the defaults, checked; NULL: the defaults */
attn_status attn__cross_entropy_read(attn_context *ctx, const attn_cross_entropy_options *options, attn_cross_entropy_options *out);
/* options read over the defaults and checked for heads of `size` columns; `rotated` is filled in */
struct attn_rotary_options;
attn_status attn__rotary_read(attn_context *ctx, const struct attn_rotary_options *options, int64_t size, struct attn_rotary_options *out);
/* what the kernels take, its frequencies in the arena; places are the caller's to add */
attn_status attn__rotary_of(attn_context *ctx, attn__arena *arena, const struct attn_rotary_options *options, attn__rotary *out);
/* heads of x turned by the positions of its rows; frequencies and places outlive the record */
attn_status attn__rotate(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__rotary *rotary, attn__value *y);
attn_status attn__drop(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__dropout *drop, attn__value *y);
attn_status attn__add(attn_context *ctx, attn_tape *tape, const attn__value *a, const attn__value *b, attn__value *y);
attn_status attn__multiply_elements(attn_context *ctx, attn_tape *tape, const attn__value *a, const attn__value *b, attn__value *y);
/* y[j, i] = x[i, j]: rows and heads of the views swapped */
attn_status attn__transpose(attn_context *ctx, attn_tape *tape, const attn__value *x, attn__value *y);
attn_status attn__concatenate(attn_context *ctx, attn_tape *tape, int32_t count, const attn__value *const *parts,
                              attn__value *y); /* along columns */
/* y[i] = x[row[i]] */
attn_status attn__gather_rows(attn_context *ctx, attn_tape *tape, const attn__value *x, const int64_t *row, attn__value *y);
/* row i of `from` becomes row row[i] of `to`; no tape: states that decoding keeps */
attn_status attn__put_rows(attn_context *ctx, const view *from, const int64_t *row, const view *to);
/* y[row[i]] = value[i], for all parts; each row of y is in one of them. The numbers of the rows outlive the record. */
typedef struct attn__row_part {
    attn__value value;
    const int64_t *row;
} attn__row_part;
attn_status attn__join_rows(attn_context *ctx, attn_tape *tape, int64_t count, const attn__row_part *parts, attn__value *y);
#endif

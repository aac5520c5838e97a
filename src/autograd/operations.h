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
} attn__attention_settings;
attn_status attn__attend(attn_context *ctx, attn_tape *tape, const attn__value *query, const attn__value *key, const attn__value *value,
                         const attn__attention_settings *settings, attn__value *output);

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
attn_status attn__drop(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__dropout *drop, attn__value *y);
attn_status attn__add(attn_context *ctx, attn_tape *tape, const attn__value *a, const attn__value *b, attn__value *y);
attn_status attn__multiply_elements(attn_context *ctx, attn_tape *tape, const attn__value *a, const attn__value *b, attn__value *y);
attn_status attn__concatenate(attn_context *ctx, attn_tape *tape, int32_t count, const attn__value *const *parts,
                              attn__value *y); /* along columns */
#endif

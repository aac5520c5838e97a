#ifndef ATTN_LOSS_H
#define ATTN_LOSS_H
#include "operations.h"
ATTN_BEGIN
/* Defaults: no smoothing, ignored_label -1, the sum, form 0. */
typedef struct attn_cross_entropy_options {
    uint64_t struct_size;
    double label_smoothing;       /* in [0, 1] */
    int64_t ignored_label;        /* counted in neither numerator nor denominator; negative labels never are */
    int32_t mean, smoothing_form; /* mean 1: divided by the count of this call. smoothing_form 0: (6.4), smoothing / classes on
                                           every class; 1: smoothing / (classes - 1) on every class but the label */
} attn_cross_entropy_options;
/* sum: of the loss over counted rows; unsmoothed_sum: of -log p(label), for perplexity; count: counted rows */
typedef struct attn_loss_report {
    uint64_t struct_size;
    double sum, unsmoothed_sum;
    int64_t count;
} attn_loss_report;

/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 bytes. Since: 0.0.1 */
ATTN_API attn_status attn_cross_entropy_options_init(attn_cross_entropy_options *options, uint64_t size);

/* (6.1), (6.3), (6.5) The cross-entropy of each row of logits [rows, classes] against its label, from the logits by log-sum-exp; summed, or
   the mean when asked. labels: int32 or int64, one for each row. A label past the classes is INVALID_ARGUMENT, names its row.
   loss: one element, or NULL; gets the sum or mean, 0 when no row counts (gradient exactly 0). report: NULL, or filled; the caller sets
   its struct_size. Not both NULL. Logits are only read; with a tape, a copy of them becomes their gradient.
   Rules, other errors and threads as in operations.h. Since: 0.0.1 */
ATTN_API attn_status attn_cross_entropy(attn_context *ctx, attn_tape *tape, const attn_tensor *logits, const attn_tensor *labels,
                                        const attn_cross_entropy_options *options, attn_tensor *loss, attn_loss_report *report);
ATTN_END
#endif

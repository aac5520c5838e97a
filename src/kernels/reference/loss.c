#include <math.h>
#include "real.h"

/* weight of class k in the target distribution: form 0 puts e / V on every class, form 1 e / (V - 1) on the others */
static double target_at(int64_t k, int64_t label, int64_t classes, double smoothing, int32_t form)
{
    if (form == 0 || classes == 1) return (k == label ? 1 - smoothing : 0) + smoothing / (double)classes;
    return k == label ? 1 - smoothing : smoothing / (double)(classes - 1);
}

static int counted(int64_t label, int64_t ignored)
{
    return label >= 0 && label != ignored;
}

static attn_status check_labels(attn_context *ctx, const view *labels, int64_t rows, int64_t classes, int64_t ignored)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = attn__integer_at(labels, r);
        if (counted(label, ignored) && label >= classes) {
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "labels: got %lld at row %lld, expected less than %lld", (long long)label,
                              (long long)r, (long long)classes);
        }
    }
    return ATTN_OK;
}

/* -log p = log_sum - x: infinite at minus infinity, even where all are that; NaN stays NaN */
static double surprise(double x, double log_sum)
{
    return x == -INFINITY && log_sum == log_sum ? INFINITY : log_sum - x;
}

/* -sum of target_k log p_k. A class without weight may have a logit of minus infinity. */
static double row_loss(const real *x, double log_sum, int64_t label, int64_t classes, double smoothing, int32_t form)
{
    double sum = 0;
    for (int64_t k = 0; k < classes; k++) {
        double target = target_at(k, label, classes, smoothing, form);
        if (target == 0) continue;
        sum += target * surprise((double)x[k], log_sum);
    }
    return sum;
}

attn_status REFERENCE(loss)(attn_context *ctx, view *logits, const view *labels, double smoothing, int32_t form, int64_t ignored,
                            int gradient, attn__loss_sums *sums)
{
    int64_t classes = logits->width;
    attn_status status = check_labels(ctx, labels, logits->rows, classes, ignored);
    if (status != ATTN_OK) return status;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    double *row = REFERENCE(doubles)(ctx, classes);
    if (row == NULL) return scratch_status(ctx);
    *sums = (attn__loss_sums){0};
    for (int64_t r = 0; r < logits->rows; r++) {
        real *x = row_of(logits, r);
        int64_t label = attn__integer_at(labels, r);
        if (!counted(label, ignored)) {
            for (int64_t k = 0; gradient && k < classes; k++) x[k] = 0;
            continue;
        }
        for (int64_t k = 0; k < classes; k++) row[k] = (double)x[k];
        double log_sum = REFERENCE(softmax_row)(row, classes, NULL);
        sums->loss += row_loss(x, log_sum, label, classes, smoothing, form);
        sums->unsmoothed += surprise((double)x[label], log_sum);
        sums->count++;
        for (int64_t k = 0; gradient && k < classes; k++) x[k] = (real)(row[k] - target_at(k, label, classes, smoothing, form));
    }
    attn__arena_rewind(ctx->scratch, mark);
    return ATTN_OK;
}

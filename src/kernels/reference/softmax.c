#include <math.h>
#include "real.h"

double REFERENCE(softmax_row)(double *score, int64_t n, const uint8_t *allowed)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        if (allowed != NULL && !allowed[j]) continue;
        if (score[j] > largest || score[j] != score[j]) largest = score[j]; /* NaN stays: no comparison with it is true */
    }
    for (int64_t j = 0; j < n; j++) {
        int seen = (allowed == NULL || allowed[j]) && largest != -INFINITY;
        score[j] = seen ? exp(score[j] - largest) : 0;
        sum += score[j];
    }
    for (int64_t j = 0; j < n && sum > 0; j++) score[j] /= sum;
    return largest == -INFINITY ? largest : largest + log(sum);
}

attn_status REFERENCE(softmax)(attn_context *ctx, const view *x, int log, view *y)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    double *row = REFERENCE(doubles)(ctx, x->width);
    if (row == NULL) return scratch_status(ctx);
    for (int64_t r = 0; r < x->rows; r++) {
        for (int64_t c = 0; c < x->width; c++) row[c] = (double)row_of(x, r)[c];
        double log_sum = REFERENCE(softmax_row)(row, x->width, NULL);
        for (int64_t c = 0; c < x->width; c++) {
            if (!log)
                row_of(y, r)[c] = (real)row[c];
            else
                row_of(y, r)[c] = log_sum == -INFINITY ? (real)-INFINITY : (real)((double)row_of(x, r)[c] - log_sum);
        }
    }
    attn__arena_rewind(ctx->scratch, mark);
    return ATTN_OK;
}

/* y softmax: dx (+)= y (dy - sum of dy y). y log-softmax: dx (+)= dy - exp(y) sum of dy; a row of minus infinities has no gradient. */
attn_status REFERENCE(softmax_back)(attn_context *ctx, const view *y, int log, const view *dy, int add, view *dx)
{
    (void)ctx;
    for (int64_t r = 0; r < dx->rows; r++) {
        double sum = 0, any = 0;
        for (int64_t c = 0; c < dx->width; c++) {
            double d = (double)row_of(dy, r)[c], value = (double)row_of(y, r)[c];
            sum += log ? d : d * value;
            if (value != -INFINITY) any = 1;
        }
        for (int64_t c = 0; c < dx->width; c++) {
            double d = (double)row_of(dy, r)[c], value = (double)row_of(y, r)[c];
            double gradient = log ? d - exp(value) * sum : value * (d - sum);
            put(&row_of(dx, r)[c], any != 0 ? gradient : 0, add);
        }
    }
    return ATTN_OK;
}

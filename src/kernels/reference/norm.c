#include <attn/operations.h>
#include <math.h>
#include "real.h"

/* the norm's input: x + dropout(s), rounded as it is stored */
static double sum_at(const view *x, const view *s, const attn__dropout *drop, int64_t r, int64_t c)
{
    double value = (double)row_of(x, r)[c];
    if (s == NULL) return value;
    return (double)(real)(value + drop_row(drop, r, c, (double)row_of(s, r)[c]));
}

/* (5.1): mean and 1 / sqrt(variance + epsilon), the variance in a second pass; RMS: 0 and 1 / sqrt(mean of squares + epsilon) */
static void statistics_of(const view *x, const view *s, const attn__dropout *drop, int32_t norm, double epsilon, int64_t r, double out[2])
{
    double n = x->width > 0 ? (double)x->width : 1, mean = 0, squares = 0;
    if (norm == ATTN_NORM_LAYER) {
        for (int64_t c = 0; c < x->width; c++) mean += sum_at(x, s, drop, r, c);
        mean /= n;
    }
    for (int64_t c = 0; c < x->width; c++) {
        double d = sum_at(x, s, drop, r, c) - mean;
        squares += d * d;
    }
    out[0] = mean;
    out[1] = 1 / sqrt(squares / n + epsilon);
}

attn_status REFERENCE(residual_norm)(attn_context *ctx, const view *x, const view *s, const attn__dropout *drop, int32_t norm,
                                     double epsilon, const view *gain, const view *shift, view *r, view *y, void *statistics)
{
    (void)ctx;
    for (int64_t i = 0; i < y->rows; i++) {
        double row[2];
        statistics_of(x, s, drop, norm, epsilon, i, row);
        for (int64_t c = 0; c < y->width; c++) {
            double value = sum_at(x, s, drop, i, c), out = (value - row[0]) * row[1];
            if (gain != NULL) out *= (double)row_of(gain, 0)[c];
            if (shift != NULL) out += (double)row_of(shift, 0)[c];
            row_of(y, i)[c] = (real)out;
            if (r != NULL && s != NULL) row_of(r, i)[c] = (real)value; /* last: r may be x */
        }
        for (int k = 0; statistics != NULL && k < 2; k++) ((real *)statistics)[2 * i + k] = (real)row[k];
    }
    return ATTN_OK;
}

/* dgain += sum over rows of dy n, dshift += sum over rows of dy, with n the normalised row */
static void parameters_back(const view *dy, const view *r, const real *statistics, view *dgain, view *dshift)
{
    for (int64_t c = 0; c < dy->width; c++) {
        double gain = 0, shift = 0;
        for (int64_t i = 0; i < dy->rows; i++) {
            double d = (double)row_of(dy, i)[c];
            if (dgain != NULL) gain += d * ((double)row_of(r, i)[c] - (double)statistics[2 * i]) * (double)statistics[2 * i + 1];
            shift += d;
        }
        if (dgain != NULL) put(&row_of(dgain, 0)[c], gain, 1);
        if (dshift != NULL) put(&row_of(dshift, 0)[c], shift, 1);
    }
}

/* with g = dy gain, n the normalised row and k = 1 / deviation:
   dr = k (g - mean(g) - n mean(g n)) + dr_in; RMS: without mean(g) */
attn_status REFERENCE(residual_norm_back)(attn_context *ctx, const view *dy, const view *dr_in, const view *r, const void *statistics,
                                          const attn__dropout *drop, int32_t norm, const view *gain, view *dr, view *ds, view *dgain,
                                          view *dshift)
{
    double n = dy->width > 0 ? (double)dy->width : 1;
    (void)ctx;
    parameters_back(dy, r, statistics, dgain, dshift); /* first: dr may be dy */
    for (int64_t i = 0; i < dy->rows; i++) {
        double mean = (double)((const real *)statistics)[2 * i], k = (double)((const real *)statistics)[2 * i + 1];
        double g_sum = 0, gn_sum = 0;
        for (int64_t c = 0; c < dy->width; c++) {
            double g = (double)row_of(dy, i)[c] * (gain != NULL ? (double)row_of(gain, 0)[c] : 1);
            g_sum += g;
            gn_sum += g * ((double)row_of(r, i)[c] - mean) * k;
        }
        if (norm == ATTN_NORM_RMS) g_sum = 0;
        for (int64_t c = 0; c < dy->width; c++) {
            double g = (double)row_of(dy, i)[c] * (gain != NULL ? (double)row_of(gain, 0)[c] : 1);
            double normalised = ((double)row_of(r, i)[c] - mean) * k;
            double out = k * (g - g_sum / n - normalised * gn_sum / n);
            if (dr_in != NULL) out += (double)row_of(dr_in, i)[c];
            row_of(dr, i)[c] = (real)out;
            if (ds != NULL) row_of(ds, i)[c] = (real)drop_row(drop, i, c, out);
        }
    }
    return ATTN_OK;
}

attn_status REFERENCE(residual)(attn_context *ctx, const view *x, const view *s, const attn__dropout *drop, view *r)
{
    (void)ctx;
    for (int64_t i = 0; i < r->rows; i++) {
        for (int64_t c = 0; c < r->width; c++) row_of(r, i)[c] = (real)sum_at(x, s, drop, i, c);
    }
    return ATTN_OK;
}

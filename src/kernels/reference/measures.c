#include "real.h"

attn_status REFERENCE(dot)(attn_context *ctx, const view *a, const view *b, double *out)
{
    double sum = 0;
    (void)ctx;
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t c = 0; c < columns_of(a); c++) sum += (double)*element_of(a, r, c) * (double)*element_of(b, r, c);
    }
    *out = sum;
    return ATTN_OK;
}

attn_status REFERENCE(sum_squares)(attn_context *ctx, const void *flat, int64_t n, double *out)
{
    const real *x = flat;
    double sum = 0;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    *out = sum;
    return ATTN_OK;
}

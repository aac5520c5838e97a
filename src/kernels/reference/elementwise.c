#include <string.h>
#include "real.h"

double *REFERENCE(doubles)(attn_context *ctx, int64_t n)
{
    int64_t bytes = 0;
    if (attn__multiply(n, (int64_t)sizeof(double), &bytes)) bytes = INT64_MAX - 63; /* refused below as any size that large */
    double *out = attn__scratch(ctx, bytes);
    if (out != NULL) memset(out, 0, (size_t)bytes);
    return out;
}

attn_status REFERENCE(add)(attn_context *ctx, const view *a, const view *b, view *y)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t c = 0; c < columns_of(y); c++)
            *element_of(y, r, c) = (real)((double)*element_of(a, r, c) + (double)*element_of(b, r, c));
    }
    return ATTN_OK;
}

attn_status REFERENCE(multiply)(attn_context *ctx, const view *a, const view *b, int add, view *y)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t c = 0; c < columns_of(y); c++)
            put(element_of(y, r, c), (double)*element_of(a, r, c) * (double)*element_of(b, r, c), add);
    }
    return ATTN_OK;
}

attn_status REFERENCE(copy)(attn_context *ctx, const view *x, int add, view *y)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t c = 0; c < columns_of(y); c++) put(element_of(y, r, c), (double)*element_of(x, r, c), add);
    }
    return ATTN_OK;
}

attn_status REFERENCE(scale)(attn_context *ctx, const view *factor, view *y)
{
    double by = (double)row_of(factor, 0)[0];
    (void)ctx;
    for (int64_t r = 0; by != 1 && r < y->rows; r++) {
        for (int64_t c = 0; c < columns_of(y); c++) *element_of(y, r, c) = (real)(by * (double)*element_of(y, r, c));
    }
    return ATTN_OK;
}

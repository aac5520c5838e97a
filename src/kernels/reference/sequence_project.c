#include "real.h"

attn_status REFERENCE(sequence_project)(attn_context *ctx, const view *x, const view *e, attn__segments segments, view *y)
{
    (void)ctx;
    for (int64_t s = 0; s < segments.count; s++) {
        for (int64_t i = 0; i < e->rows; i++) {
            for (int64_t h = 0; h < y->heads; h++) {
                for (int64_t c = 0; c < y->width; c++) {
                    double sum = 0;
                    for (int64_t j = 0; j < segments.at[s].length; j++)
                        sum += (double)row_of(e, i)[j] * (double)head_of(x, segments.at[s].start + j, h)[c];
                    head_of(y, s * e->rows + i, h)[c] = (real)sum;
                }
            }
        }
    }
    return ATTN_OK;
}

static void matrix_back(const view *x, attn__segments segments, const view *dy, view *de)
{
    for (int64_t i = 0; i < de->rows; i++) {
        for (int64_t j = 0; j < de->width; j++) {
            double sum = 0;
            for (int64_t s = 0; s < segments.count; s++) {
                for (int64_t h = 0; j < segments.at[s].length && h < x->heads; h++) {
                    const real *from = head_of(x, segments.at[s].start + j, h), *gradient = head_of(dy, s * de->rows + i, h);
                    for (int64_t c = 0; c < x->width; c++) sum += (double)gradient[c] * (double)from[c];
                }
            }
            put(&row_of(de, i)[j], sum, 1);
        }
    }
}

attn_status REFERENCE(sequence_project_back)(attn_context *ctx, const view *x, const view *e, attn__segments segments, const view *dy,
                                             int add, view *dx, view *de)
{
    (void)ctx;
    for (int64_t s = 0; dx != NULL && s < segments.count; s++) {
        for (int64_t j = 0; j < segments.at[s].length; j++) {
            for (int64_t h = 0; h < dx->heads; h++) {
                for (int64_t c = 0; c < dx->width; c++) {
                    double sum = 0;
                    for (int64_t i = 0; i < e->rows; i++) sum += (double)row_of(e, i)[j] * (double)head_of(dy, s * e->rows + i, h)[c];
                    put(&head_of(dx, segments.at[s].start + j, h)[c], sum, add);
                }
            }
        }
    }
    if (de != NULL) matrix_back(x, segments, dy, de);
    return ATTN_OK;
}

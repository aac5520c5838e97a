#include <math.h>
#include "real.h"

static void rotate_head(const real *x, const attn__rotary *rotary, int64_t width, int64_t position, int back, int add, real *y)
{
    int64_t pairs = rotary->rotated / 2, apart = rotary->pairing == ATTN_ROTARY_HALVES ? pairs : 1;
    int64_t step = rotary->pairing == ATTN_ROTARY_HALVES ? 1 : 2;
    for (int64_t c = 0; c < pairs; c++) {
        double angle = (double)position * rotary->frequency[c], sine = rotary->magnitude * sin(angle),
               cosine = rotary->magnitude * cos(angle);
        int64_t first = c * step, second = first + apart;
        double a = (double)x[first], b = (double)x[second];
        if (back) sine = -sine;
        put(&y[first], a * cosine - b * sine, add);
        put(&y[second], a * sine + b * cosine, add);
    }
    for (int64_t c = rotary->rotated; c < width; c++) put(&y[c], (double)x[c], add);
}

attn_status REFERENCE(rotate)(attn_context *ctx, const view *x, const attn__rotary *rotary, int back, int add, view *y)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t h = 0; h < y->heads; h++)
            rotate_head(head_of(x, r, h), rotary, y->width, rotary->places.position[r], back, add, head_of(y, r, h));
    }
    return ATTN_OK;
}

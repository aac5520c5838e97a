#include "real.h"

/* (5.10): sum over in of x[r, i] w[o, i], plus b[o] */
static double product(const view *x, const view *w, const view *b, int64_t r, int64_t o)
{
    const real *xr = row_of(x, r), *wo = row_of(w, o);
    double sum = 0;
    for (int64_t i = 0; i < x->width; i++) sum += (double)xr[i] * (double)wo[i];
    return b != NULL ? sum + (double)row_of(b, 0)[o] : sum;
}

/* x: [rows, in], w: [out, in], y and u: [rows, out] */
attn_status REFERENCE(linear)(attn_context *ctx, const view *x, const view *w, const view *b, const attn__activation *act,
                              const attn__dropout *drop, view *y, view *u)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t o = 0; o < y->width; o++) {
            double sum = product(x, w, b, r, o);
            if (u != NULL) row_of(u, r)[o] = (real)sum;
            if (act != NULL) sum = REFERENCE(act)(act, sum);
            row_of(y, r)[o] = (real)drop_row(drop, r, o, sum);
        }
    }
    return ATTN_OK;
}

/* w: [2 out, in], gate rows then up rows; u: [rows, 2 out]; y: [rows, out] */
attn_status REFERENCE(linear_gated)(attn_context *ctx, const view *x, const view *w, const view *b, const attn__activation *act,
                                    const attn__dropout *drop, view *y, view *u)
{
    int64_t out = y->width;
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t o = 0; o < out; o++) {
            double gate = product(x, w, b, r, o), up = product(x, w, b, r, out + o);
            row_of(u, r)[o] = (real)gate;
            row_of(u, r)[out + o] = (real)up;
            double opened = act != NULL ? REFERENCE(act)(act, gate) : gate;
            row_of(y, r)[o] = (real)drop_row(drop, r, o, opened * up);
        }
    }
    return ATTN_OK;
}

/* dx[r, i] (+)= sum over out of dy[r, o] w[o, i] */
attn_status REFERENCE(linear_d_input)(attn_context *ctx, const view *dy, const view *w, int add, view *dx)
{
    (void)ctx;
    for (int64_t r = 0; r < dx->rows; r++) {
        for (int64_t i = 0; i < dx->width; i++) {
            double sum = 0;
            for (int64_t o = 0; o < dy->width; o++) sum += (double)row_of(dy, r)[o] * (double)row_of(w, o)[i];
            put(&row_of(dx, r)[i], sum, add);
        }
    }
    return ATTN_OK;
}

/* dw[o, i] += sum over rows of dy[r, o] x[r, i]; db[o] += sum over rows of dy[r, o] */
attn_status REFERENCE(linear_d_weight)(attn_context *ctx, const view *dy, const view *x, view *dw, view *db)
{
    (void)ctx;
    for (int64_t o = 0; dw != NULL && o < dw->rows; o++) {
        for (int64_t i = 0; i < dw->width; i++) {
            double sum = 0;
            for (int64_t r = 0; r < dy->rows; r++) sum += (double)row_of(dy, r)[o] * (double)row_of(x, r)[i];
            put(&row_of(dw, o)[i], sum, 1);
        }
    }
    for (int64_t o = 0; db != NULL && o < db->width; o++) {
        double sum = 0;
        for (int64_t r = 0; r < dy->rows; r++) sum += (double)row_of(dy, r)[o];
        put(&row_of(db, 0)[o], sum, 1);
    }
    return ATTN_OK;
}

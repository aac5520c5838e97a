#include <math.h>
#include "real.h"

/* direction f times z = scale x */
static double along(const view *directions, int64_t f, const real *x, double scale)
{
    const real *w = row_of(directions, f);
    double sum = 0;
    for (int64_t c = 0; c < directions->width; c++) sum += (double)w[c] * (double)x[c];
    return sum * scale;
}

static void map_head(const attn__features *features, const real *x, int64_t size, real *log_scale, real *y)
{
    int64_t count = features->directions.rows;
    double half = 0, most = -INFINITY, factor = 1 / sqrt((double)count);
    for (int64_t c = 0; c < size; c++) half += (double)x[c] * (double)x[c] * features->scale * features->scale / 2;
    for (int64_t f = 0; f < count; f++) {
        double u = along(&features->directions, f, x, features->scale);
        if (!(u <= most)) most = u;
    }
    int positive = features->kind == ATTN_FEATURES_POSITIVE;
    if (log_scale != NULL) *log_scale = (real)(positive ? most - half : half);
    for (int64_t f = 0; f < count; f++) {
        double u = along(&features->directions, f, x, features->scale), magnitude = log_scale != NULL ? factor : factor * exp(half);
        y[f] = (real)(positive ? factor * exp(u - (log_scale != NULL ? most : half)) : magnitude * cos(u));
        if (!positive) y[count + f] = (real)(magnitude * sin(u));
    }
}

attn_status REFERENCE(feature_map)(attn_context *ctx, const view *x, const attn__features *features, void *log_scale, view *y)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t h = 0; h < y->heads; h++) {
            const real *from = head_of(x, r, h);
            if (features->kind != ATTN_FEATURES_ELU) {
                map_head(features, from, x->width, log_scale != NULL ? (real *)log_scale + r * y->heads + h : NULL, head_of(y, r, h));
                continue;
            }
            for (int64_t c = 0; c < y->width; c++) {
                double z = features->scale * (double)from[c];
                head_of(y, r, h)[c] = (real)(z > 0 ? z + 1 : exp(z));
            }
        }
    }
    return ATTN_OK;
}

/* d z[c] of one head */
static double back_at(const attn__features *features, const real *y, const real *dy, double z, int64_t c)
{
    int64_t count = features->directions.rows;
    double sum = 0;
    if (features->kind == ATTN_FEATURES_ELU) return (double)dy[c] * ((double)y[c] > 1 ? 1 : (double)y[c]);
    for (int64_t f = 0; f < count; f++) {
        double w = (double)row_of(&features->directions, f)[c];
        if (features->kind == ATTN_FEATURES_POSITIVE)
            sum += (double)dy[f] * (double)y[f] * (w - z);
        else
            sum += (double)dy[f] * ((double)y[f] * z - (double)y[count + f] * w) +
                   (double)dy[count + f] * ((double)y[count + f] * z + (double)y[f] * w);
    }
    return sum;
}

attn_status REFERENCE(feature_map_back)(attn_context *ctx, const view *x, const attn__features *features, const view *y, const view *dy,
                                        int add, view *dx)
{
    (void)ctx;
    for (int64_t r = 0; r < dx->rows; r++) {
        for (int64_t h = 0; h < dx->heads; h++) {
            for (int64_t c = 0; c < dx->width; c++) {
                double z = features->scale * (double)head_of(x, r, h)[c];
                put(&head_of(dx, r, h)[c], features->scale * back_at(features, head_of(y, r, h), head_of(dy, r, h), z, c), add);
            }
        }
    }
    return ATTN_OK;
}

#ifndef TESTS_PROPERTIES_ATTEND_H
#define TESTS_PROPERTIES_ATTEND_H
#include "support/property.h"

/* Attention without projections on heads [rows, heads, size]; scale NAN: 1 / sqrt(size). */
static inline attn_tensor *attend_masked(property *p, attn_tape *tape, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                         const attn_mask *mask, double scale)
{
    attn_dot_product_options o;
    attn_tensor *y = property_heads(p, attn_tensor_extent(q, 0), attn_tensor_extent(q, 1), attn_tensor_extent(v, 2));
    OK(p->ctx, attn_dot_product_options_init(&o, sizeof o));
    if (scale == scale) o.derive_scale = 0, o.scale = scale;
    OK(p->ctx, attn_dot_product_attention(p->ctx, tape, q, k, v, NULL, NULL, mask, &o, y));
    return y;
}

static inline attn_tensor *attend(property *p, attn_tape *tape, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                  double scale)
{
    return attend_masked(p, tape, q, k, v, NULL, scale);
}

/* one head whose keys or values are the unit vectors: with them as values the output is the matrix of weights itself, with them as keys
   scale times the queries are the scores */
static inline attn_tensor *attend_units(property *p, int64_t n)
{
    attn_tensor *units = property_heads(p, n, 1, n);
    for (int64_t i = 0; i < n; i++) property_set(units, i, i, 1);
    return units;
}
#endif

#ifndef ATTN_MEASURES_H
#define ATTN_MEASURES_H
#include "operations.h"
ATTN_BEGIN
/* Numbers of tensors. Sums are in double and in a fixed order, so that float32 values near 1e30 do not overflow. Tensors as in operations.h;
   they are only read. *out is written on success alone. Errors: INVALID_ARGUMENT, SHAPE, DTYPE, UNSUPPORTED, CANCELLED. */

/* (2.3) sum of a * b; a and b of equal rows and width. Since: 0.0.1 */
ATTN_API attn_status attn_inner_product(attn_context *ctx, const attn_tensor *a, const attn_tensor *b, double *out);
/* (2.4), (2.7) the root of the sum of squares over all elements: Euclidean for a vector, Frobenius for a matrix. Since: 0.0.1 */
ATTN_API attn_status attn_norm(attn_context *ctx, const attn_tensor *a, double *out);
/* (2.5) the cosine of the angle between a and b, in [-1, 1]; 0 when either is zero. Since: 0.0.1 */
ATTN_API attn_status attn_cosine(attn_context *ctx, const attn_tensor *a, const attn_tensor *b, double *out);
/* (2.6) the sum of the diagonal of a square a [n, n]. Since: 0.0.1 */
ATTN_API attn_status attn_trace(attn_context *ctx, const attn_tensor *a, double *out);
ATTN_END
#endif

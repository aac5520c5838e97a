#include <attn/measures.h>
#include <math.h>
#include "arguments.h"

static attn_status check_out(attn_context *ctx, const double *out)
{
    return out != NULL ? ATTN_OK : attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the number");
}

static attn_status two(attn_context *ctx, const attn_tensor *a, const attn_tensor *b, const double *out, view *va, view *vb,
                       const attn__kernels **k)
{
    attn_status status = check_out(ctx, out);
    if (status == ATTN_OK) status = attn__rows(ctx, "a", a, 0, va);
    if (status == ATTN_OK) status = attn__rows(ctx, "b", b, va->dtype, vb);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "b", vb, va->rows, 1, va->width);
    return status == ATTN_OK ? attn__kernels_for(ctx, va->dtype, k) : status;
}

attn_status attn_inner_product(attn_context *ctx, const attn_tensor *a, const attn_tensor *b, double *out)
{
    view va, vb;
    const attn__kernels *k;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = two(ctx, a, b, out, &va, &vb, &k);
    return attn__leave(ctx, status == ATTN_OK ? k->dot(ctx, &va, &vb, out) : status);
}

attn_status attn_norm(attn_context *ctx, const attn_tensor *a, double *out)
{
    view at;
    double square = 0;
    const attn__kernels *k;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = check_out(ctx, out);
    if (status == ATTN_OK) status = attn__rows(ctx, "a", a, 0, &at);
    if (status == ATTN_OK) status = attn__kernels_for(ctx, at.dtype, &k);
    if (status == ATTN_OK) status = k->dot(ctx, &at, &at, &square);
    if (status == ATTN_OK) *out = sqrt(square);
    return attn__leave(ctx, status);
}

attn_status attn_cosine(attn_context *ctx, const attn_tensor *a, const attn_tensor *b, double *out)
{
    view va, vb;
    double ab = 0, aa = 0, bb = 0;
    const attn__kernels *k;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = two(ctx, a, b, out, &va, &vb, &k);
    if (status == ATTN_OK) status = k->dot(ctx, &va, &vb, &ab);
    if (status == ATTN_OK) status = k->dot(ctx, &va, &va, &aa);
    if (status == ATTN_OK) status = k->dot(ctx, &vb, &vb, &bb);
    if (status == ATTN_OK) {
        double cosine = aa == 0 || bb == 0 ? 0 : ab / sqrt(aa) / sqrt(bb);
        *out = cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
    }
    return attn__leave(ctx, status);
}

/* the diagonal, as a column with the stride of a row and one more, times ones */
static attn_status trace(attn_context *ctx, const attn_tensor *a, double *out)
{
    view at;
    attn__value ones;
    const attn__kernels *k;
    attn_status status = check_out(ctx, out);
    if (status == ATTN_OK) status = attn__expect(ctx, "a", a, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    if (a->rank != 2) return attn__fail(ctx, ATTN_ERROR_SHAPE, "a: got rank %d, expected 2", a->rank);
    status = attn__rows(ctx, "a", a, 0, &at);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "a", &at, at.rows, 1, at.rows);
    if (status == ATTN_OK) status = attn__kernels_for(ctx, at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, NULL, at.rows, 1, at.dtype, &ones);
    if (status == ATTN_OK) status = attn__fill_view(ctx, 1, &ones.at);
    if (status != ATTN_OK) return status;
    at.width = 1;
    at.row_stride += 1;
    return k->dot(ctx, &at, &ones.at, out);
}

attn_status attn_trace(attn_context *ctx, const attn_tensor *a, double *out)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, trace(ctx, a, out));
}

attn_status attn_gradients_norm(attn_context *ctx, const attn_gradients *gradients, double *out)
{
    double square = 0;
    const attn__kernels *k;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = check_out(ctx, out);
    if (status == ATTN_OK) status = attn__expect(ctx, "gradients", gradients, ATTN__MAGIC_GRADIENTS, "attn_gradients");
    if (status == ATTN_OK) status = attn__kernels_for(ctx, gradients->parameters->dtype, &k);
    if (status == ATTN_OK) status = k->sum_squares(ctx, gradients->flat, gradients->parameters->flat_elements, &square);
    if (status == ATTN_OK) *out = sqrt(square);
    return attn__leave(ctx, status);
}

#include <attn/attn.h>
#include <cblas.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* A BLAS that gives wrong answers, in place of the one that is linked: it is found out before anything is computed with it. It computes
   nothing, forgets alpha or beta, writes past its rows, or multiplies matrices but no vectors. */
enum { RIGHT, ZEROS, NO_ALPHA, NO_BETA, PAST, VECTORS_ONLY, WRONG_KINDS };
static int wrong;

static float element(const float *a, int turned, int64_t row, int64_t column, int64_t lda)
{
    return turned ? a[column * lda + row] : a[row * lda + column];
}

void cblas_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE transpose_a, const enum CBLAS_TRANSPOSE transpose_b,
                 const blasint m, const blasint n, const blasint k, const float alpha, const float *a, const blasint lda, const float *b,
                 const blasint ldb, const float beta, float *c, const blasint ldc)
{
    (void)order;
    if (wrong == ZEROS) return;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0, *to = &c[i * ldc + j];
            for (int64_t t = 0; t < k; t++)
                sum += element(a, transpose_a == CblasTrans, i, t, lda) * element(b, transpose_b == CblasTrans, t, j, ldb);
            *to = (wrong == NO_ALPHA ? 1 : alpha) * sum + (wrong == NO_BETA || beta == 0 ? 0 : beta * *to);
        }
    if (wrong == PAST) c[n] = 0;
}

void cblas_sgemv(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE transpose, const blasint m, const blasint n, const float alpha,
                 const float *a, const blasint lda, const float *x, const blasint step_x, const float beta, float *y, const blasint step_y)
{
    (void)order;
    if (wrong == VECTORS_ONLY) return;
    const int64_t rows = transpose == CblasTrans ? n : m, terms = transpose == CblasTrans ? m : n;
    for (int64_t i = 0; i < rows; i++) {
        float sum = 0;
        for (int64_t t = 0; t < terms; t++) sum += element(a, transpose == CblasTrans, i, t, lda) * x[t * step_x];
        y[i * step_y] = alpha * sum + (beta == 0 ? 0 : beta * y[i * step_y]);
    }
}

static void test_found_out(void **state)
{
    const int64_t shape[2] = {3, 3};
    (void)state;
    for (wrong = 0; wrong < WRONG_KINDS; wrong++) {
        attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
        attn_tensor *t[3] = {NULL, NULL, NULL};
        for (int i = 0; i < 3; i++) OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, shape, &t[i]));
        for (int i = 0; i < 9; i++) model_set(t[0], i, i), model_set(t[1], i, i % 4 == 0), model_set(t[2], i, -5);
        for (int again = 0; again < 2; again++) {
            attn_status status = attn_linear(ctx, NULL, t[0], t[1], NULL, t[2]);
            assert_int_equal(status, wrong == RIGHT ? ATTN_OK : ATTN_ERROR_BLAS);
            if (wrong != RIGHT) assert_non_null(strstr(attn_context_last_error(ctx), "sgemm gives a wrong answer"));
            for (int i = 0; i < 9; i++) assert_true(model_get(t[2], i) == (wrong == RIGHT ? i : -5)); /* nothing was written */
        }
        OK(ctx, attn_context_set_backend(ctx, ATTN_BACKEND_REFERENCE)); /* which needs no BLAS */
        OK(ctx, attn_linear(ctx, NULL, t[0], t[1], NULL, t[2]));
        for (int i = 0; i < 9; i++) assert_true(model_get(t[2], i) == i);
        for (int i = 0; i < 3; i++) attn_tensor_free(t[i]);
        attn_context_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

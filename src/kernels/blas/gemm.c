#include "gemm.h"
#include <cblas.h>
#include <limits.h>
#include "../../core/forks.h"
#include "../../core/guard.h"

/* the leading dimension to hand on, 0 when BLAS cannot take the matrix; one row has no stride of its own */
static int leading(int64_t rows, int64_t columns, int64_t stride)
{
    if (rows > INT_MAX || columns > INT_MAX) return 0;
    if (rows == 1) return (int)columns;
    return stride >= columns && stride <= INT_MAX ? (int)stride : 0;
}

/* C = beta C without a product: k is 0, or beta is 0 before a gemv (some libraries multiply by 0 there and keep a NaN) */
static void scale_rows(int64_t m, int64_t n, float beta, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < m && beta != 1; i++)
        for (int64_t j = 0; j < n; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

/* y = alpha op(A) x + beta y with A [rows, columns] */
static void vector_product(int transpose, int64_t rows, int64_t columns, float alpha, const float *a, int64_t lda, const float *x,
                           int64_t step_x, float beta, float *y, int64_t step_y)
{
    if (beta == 0) {
        scale_rows(transpose ? columns : rows, 1, 0, y, step_y);
        beta = 1;
    }
    cblas_sgemv(CblasRowMajor, transpose ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, alpha, a, (int)lda, x, (int)step_x, beta, y,
                (int)step_y);
}

/* For AVX-512 OpenBLAS has kernels that take B as it lies. A B' goes to them with at most 1200 elements in C, 32 terms or more, and at most a
   million multiply-adds. Measured with 0.3.21: 8 rows of 512 columns and 128 terms take 11 us in pieces of that size, 24 us whole, 26 us row by
   row with sgemv; one row of 4096 by 4096 takes 2.80 ms, 3.00 ms with sgemv. With kernels that pack (AVX2) the pieces would cost up to
   a third more than the whole, and one row four times what sgemv takes. */
enum { UNPACKED_ELEMENTS = 1200, UNPACKED_MULTIPLY_ADDS = 1000000, UNPACKED_TERMS = 32, UNPACKED_SIDE = 16 };

int64_t attn__gemm_unpacked(int64_t m, int64_t k)
{
    if (m < 1 || m > UNPACKED_ELEMENTS / UNPACKED_SIDE || k < UNPACKED_TERMS || !attn__guard_unpacked()) return 0;
    int64_t area = UNPACKED_ELEMENTS / m, work = UNPACKED_MULTIPLY_ADDS / m / k;
    return (area < work ? area : work) / UNPACKED_SIDE * UNPACKED_SIDE;
}

int attn__sgemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (m < 0 || n < 0 || k < 0) return 1;
    if (m == 0 || n == 0) return 0;
    ldc = leading(m, n, ldc);
    if (k > 0) lda = transpose_a ? leading(k, m, lda) : leading(m, k, lda);
    if (k > 0) ldb = transpose_b ? leading(n, k, ldb) : leading(k, n, ldb);
    if (ldc == 0 || (k > 0 && (lda == 0 || ldb == 0))) return 1;
    if (k == 0 || alpha == 0) {
        scale_rows(m, n, beta, c, ldc);
        return 0;
    }
    int seat = attn__guard_seat();
    attn__forks_hold();
    if (m == 1 && (transpose_a || !transpose_b || n > attn__gemm_unpacked(1, k))) {
        int64_t step = transpose_a ? lda : 1;
        vector_product(!transpose_b, transpose_b ? n : k, transpose_b ? k : n, alpha, b, ldb, a, step, beta, c, 1);
    } else if (n == 1) {
        int64_t step = transpose_b ? 1 : ldb;
        vector_product(transpose_a, transpose_a ? k : m, transpose_a ? m : k, alpha, a, lda, b, step, beta, c, ldc);
    } else {
        cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k,
                    alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
    }
    attn__forks_release();
    attn__guard_rise(seat);
    return 0;
}

/* op(A) is [3, 2] (then [1, 2] and [3, 1] of it), op(B) [2, 2], both with one column of padding; small integers are exact in float32 */
int attn__gemm_test(void)
{
    static const float a[2][12] = {{1, 2, 99, 3, 4, 99, 5, 6, 99}, {1, 3, 5, 99, 2, 4, 6, 99}};
    static const float b[2][6] = {{1, -1, 99, 2, 3, 99}, {1, 2, 99, -1, 3, 99}};
    static const float expected[3][2] = {{5, 5}, {11, 9}, {17, 13}};
    for (int variant = 0; variant < 4; variant++) {
        int ta = variant & 1, tb = variant >> 1;
        for (int64_t m = 1; m <= 3; m += 2) {
            for (int64_t n = 1; n <= 2; n++) {
                float c[3][4];
                for (int i = 0; i < 12; i++) c[i / 4][i % 4] = -7;
                if (attn__sgemm(ta, tb, m, n, 2, 2, a[ta], ta ? 4 : 3, b[tb], 3, n == 2 ? 1 : 0, c[0], 4) != 0) return 1;
                for (int64_t i = 0; i < 12; i++) {
                    int64_t row = i / 4, column = i % 4;
                    float want = row < m && column < n ? 2 * expected[row][column] - (n == 2 ? 7.0f : 0.0f) : -7;
                    if (c[row][column] != want) return 1;
                }
            }
        }
    }
    return 0;
}

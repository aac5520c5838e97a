#ifndef ATTN_KERNELS_BLAS_GEMM_H
#define ATTN_KERNELS_BLAS_GEMM_H
#include <stdint.h>
/* The only door to BLAS (gemm.c). One tile on one thread, row-major: C [m, n] = alpha op(A) op(B) + beta C, op by transpose flags.
   Zero sizes are handled here, beta 0 never reads C; one column goes to sgemv, and one row unless BLAS need not pack. Extents, strides and the fit into
   32 bits are checked: 0, or 1 when they are wrong (nothing is written). */
int attn__sgemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                int64_t ldb, float beta, float *c, int64_t ldc);
/* So many columns, a multiple of 16, of A B' [m, columns] BLAS makes without packing B first; 0 where it packs. Cut by shape and BLAS alone. */
int64_t attn__gemm_unpacked(int64_t m, int64_t k);
int attn__gemm_test(void); /* 1 when BLAS gives a wrong answer (another library, 64-bit integers) */
#endif

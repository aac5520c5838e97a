#ifndef ATTN_KERNELS_BLAS_PRODUCTS_H
#define ATTN_KERNELS_BLAS_PRODUCTS_H
#include <stdatomic.h>
#include "gemm.h"
#include "rows.h"

/* up to so many rows a product reads its matrix once per row with gemv, which beats packing the matrix; where BLAS need not pack, it does not */
enum { PRODUCT_FEW = 4 };

/* Tiles of C [rows, columns] whose products contract over `inner`, cut by shape alone */
grid BLAS(product_grid)(int64_t rows, int64_t columns, int64_t inner);

/* C = op(A) B' style product of one tile, as attn__sgemm with alpha 1; few rows go one by one, and with B transposed in columns
   that BLAS takes unpacked, where it can. Sets the flag when BLAS refuses. */
void BLAS(product)(int transpose_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                   float *c, int64_t ldc, atomic_int *refused);

/* TOO_LARGE when a tile's product was refused, otherwise status */
attn_status BLAS(product_status)(attn_context *ctx, attn_status status, const atomic_int *refused);
#endif

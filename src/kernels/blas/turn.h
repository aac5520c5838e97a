#ifndef ATTN_KERNELS_BLAS_TURN_H
#define ATTN_KERNELS_BLAS_TURN_H
#include <stdint.h>
#include "isa.h"
/* out [columns, rows] = transpose of x [rows, columns] */
void BLAS(turn)(const float *x, int64_t rows, int64_t columns, int64_t stride, float *out, int64_t out_stride);
#endif

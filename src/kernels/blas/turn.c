/* Transposing small matrices: 8 by 8 in registers, borders one by one. */
#include "turn.h"
#include "isa.h"

typedef float lanes8 __attribute__((vector_size(32)));
typedef float loose8 __attribute__((vector_size(32), aligned(4), may_alias));
#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef SHUFFLE
typedef int32_t places8 __attribute__((vector_size(32)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (places8){__VA_ARGS__})
#endif

enum { SIDE = 8 };

/* pairs of rows, then pairs of pairs, then halves */
static inline __attribute__((always_inline)) void turn_square(const float *x, int64_t stride, float *out, int64_t out_stride)
{
    lanes8 a[SIDE], b[SIDE];
    for (int i = 0; i < SIDE; i++) a[i] = *(const loose8 *)(x + i * stride);
    for (int i = 0; i < SIDE; i += 2) {
        b[i] = SHUFFLE(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = SHUFFLE(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < SIDE; i += 4) {
        a[i] = SHUFFLE(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        a[i + 1] = SHUFFLE(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        a[i + 2] = SHUFFLE(b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        a[i + 3] = SHUFFLE(b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; i++) {
        b[i] = SHUFFLE(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        b[i + 4] = SHUFFLE(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < SIDE; i++) *(loose8 *)(out + i * out_stride) = b[i];
}

static void turn_border(const float *x, int64_t stride, int64_t row, int64_t rows, int64_t column, int64_t columns, float *out,
                        int64_t out_stride)
{
    for (int64_t r = row; r < rows; r++) {
        for (int64_t c = column; c < columns; c++) out[c * out_stride + r] = x[r * stride + c];
    }
}

void BLAS(turn)(const float *x, int64_t rows, int64_t columns, int64_t stride, float *out, int64_t out_stride)
{
    int64_t whole_rows = rows / SIDE * SIDE, whole_columns = columns / SIDE * SIDE;
    for (int64_t r = 0; r < whole_rows; r += SIDE) {
        for (int64_t c = 0; c < whole_columns; c += SIDE) turn_square(x + r * stride + c, stride, out + c * out_stride + r, out_stride);
    }
    turn_border(x, stride, whole_rows, rows, 0, columns, out, out_stride);
    turn_border(x, stride, 0, whole_rows, whole_columns, columns, out, out_stride);
}

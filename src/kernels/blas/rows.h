#ifndef ATTN_KERNELS_BLAS_ROWS_H
#define ATTN_KERNELS_BLAS_ROWS_H
#include "blas.h"
#include "exp.h"

/* How the kernels of this folder cut rows into tiles: by shape alone. ROWS_TILE elements are a tile (64 KiB of float32), ROWS_PIECE
   columns are what a kernel holds in small arrays on the stack (a multiple of the 64 columns that dropout draws at once). */
enum { ROWS_TILE = 16384, ROWS_PIECE = 512, ROWS_PARTIALS = 64 };

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t tiles_of(int64_t n, int64_t size)
{
    return n / size + (n % size != 0);
}

/* heads of a view in this folder lie dense unless a kernel says it takes others */
static inline int64_t columns_of(const view *v)
{
    return v->heads * v->width;
}

static inline float *row_of(const view *v, int64_t row)
{
    return (float *)v->data + row * v->row_stride;
}

/* whole rows per tile */
static inline int64_t rows_per_tile(int64_t columns)
{
    return columns >= ROWS_TILE ? 1 : ROWS_TILE / (columns > 0 ? columns : 1);
}

/* whole rows per tile where each tile keeps a partial sum: at most ROWS_PARTIALS tiles */
static inline int64_t rows_per_partial(int64_t rows, int64_t columns)
{
    int64_t most = tiles_of(rows, ROWS_PARTIALS), size = rows_per_tile(columns);
    return size > most ? size : most;
}

/* A grid over [rows, columns] for kernels that treat elements alone: long rows are cut as well. */
typedef struct grid {
    int64_t rows, columns, tall, wide, across, tiles;
} grid;

typedef struct cell {
    int64_t first, end, column, count;
} cell;

static inline grid grid_of(int64_t rows, int64_t columns)
{
    grid g = {rows, columns, rows_per_tile(columns), columns < ROWS_TILE ? columns : ROWS_TILE, 0, 0};
    if (rows > 0 && columns > 0) {
        g.across = tiles_of(columns, g.wide);
        g.tiles = tiles_of(rows, g.tall) * g.across;
    }
    return g;
}

static inline cell grid_cell(const grid *g, int64_t tile)
{
    int64_t first = tile / g->across * g->tall, column = tile % g->across * g->wide;
    cell c = {first, least(first + g->tall, g->rows), column, least(g->wide, g->columns - column)};
    return c;
}

/* x where the factor is not 0: what dropout takes away is 0 even when it was infinite */
static inline float kept(float x, float factor)
{
    return factor != 0.0f ? x * factor : 0.0f;
}

/* -inf when n is 0; NaN when there is one (of negative sign: perhaps). As integers in the order of the numbers: compilers keep the order
   of a float maximum and leave it scalar. */
static inline float row_max(const float *x, int64_t n)
{
    int32_t most = INT32_MIN + 0x7FFFFF; /* -inf */
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)attn__bits(x[i]), order = bits ^ ((bits >> 31) & INT32_MAX);
        most = order > most ? order : most;
    }
    return attn__from_bits((uint32_t)(most ^ ((most >> 31) & INT32_MAX)));
}

/* Sums along a row: float inside a piece, double across pieces. */
static inline double row_sum(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t at = 0; at < n; at += ROWS_PIECE) {
        int64_t count = least(ROWS_PIECE, n - at);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = at; i < at + count; i++) sum += x[i];
        total += (double)sum;
    }
    return total;
}

static inline double row_exp_sum(const float *x, int64_t n, float most)
{
    double total = 0;
    for (int64_t at = 0; at < n; at += ROWS_PIECE) {
        int64_t end = least(at + ROWS_PIECE, n);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = at; i < end; i++) sum += attn__exp(x[i] - most);
        total += (double)sum;
    }
    return total;
}

/* y = e^(x - most), y may be x; the sum is given back */
static inline double row_exp(const float *x, int64_t n, float most, float *y)
{
    double total = 0;
    for (int64_t at = 0; at < n; at += ROWS_PIECE) {
        int64_t count = least(ROWS_PIECE, n - at);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = at; i < at + count; i++) {
            float e = attn__exp(x[i] - most);
            y[i] = e;
            sum += e;
        }
        total += (double)sum;
    }
    return total;
}
#endif

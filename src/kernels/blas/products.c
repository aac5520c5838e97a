/* How a product is cut into tiles for the pool. */
#include "products.h"
#include <limits.h>

/* Elements of C. Measured: tiles of 384 by 384 run at 0.95 of the speed of the whole product, 256 by 256 at 0.9, 64 by 64 at 0.7. So tiles
   are cut down to the first size until there are enough for a large machine, to the second until there are enough for a small one,
   and products with little work only as far as a few threads need. */
enum { TILE_LARGE = 147456, TILE_MIDDLE = 65536, TILES_MOST = 64, TILES_WANTED = 8, TILES_FEW = 4, TILE_SIDE = 16 };
enum { TILE_MULTIPLY_ADDS = 1 << 19, GEMV_ELEMENTS = 65536, GEMV_TILES = 64, GEMV_COLUMNS = 128 };

static int64_t side(int64_t extent, int64_t parts)
{
    return tiles_of(tiles_of(extent, parts), TILE_SIDE) * TILE_SIDE;
}

/* few rows: columns are cut so that a tile's part of the matrix stays in the second cache while the rows pass over it */
static grid cut_columns(grid g, int64_t inner)
{
    int64_t parts = least(GEMV_TILES, inner > 0 ? g.columns / tiles_of(GEMV_ELEMENTS, inner) : 1);
    g.tall = g.rows;
    parts = least(parts, g.columns / GEMV_COLUMNS);
    g.wide = side(g.columns, parts > 1 ? parts : 1);
    return g;
}

static int cut_further(int64_t tall, int64_t wide, int64_t inner, int64_t tiles)
{
    int64_t area = tall * wide;
    if (area > TILE_LARGE) return tiles < TILES_MOST;
    if (area > TILE_MIDDLE) return tiles < TILES_WANTED;
    return tiles < TILES_FEW && area > 4 * TILE_SIDE * TILE_SIDE && area * inner > 2 * TILE_MULTIPLY_ADDS;
}

static grid cut_both(grid g, int64_t inner)
{
    int64_t down = 1, across = 1;
    g.tall = g.rows;
    g.wide = g.columns;
    while (cut_further(g.tall, g.wide, inner, down * across)) {
        if (g.tall >= g.wide)
            down *= 2;
        else
            across *= 2;
        g.tall = side(g.rows, down);
        g.wide = side(g.columns, across);
    }
    return g;
}

grid BLAS(product_grid)(int64_t rows, int64_t columns, int64_t inner)
{
    grid g = {rows, columns, 1, 1, 0, 0};
    if (rows == 0 || columns == 0) return g;
    g = rows <= PRODUCT_FEW ? cut_columns(g, inner) : cut_both(g, inner);
    g.across = tiles_of(columns, g.wide);
    g.tiles = tiles_of(rows, g.tall) * g.across;
    return g;
}

void BLAS(product)(int transpose_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                   float *c, int64_t ldc, atomic_int *refused)
{
    int64_t unpacked = transpose_b && lda <= INT_MAX && ldc <= INT_MAX ? attn__gemm_unpacked(m, k) : 0;
    int64_t tall = unpacked == 0 && m <= PRODUCT_FEW ? 1 : m, wide = unpacked > 0 ? unpacked : n;
    for (int64_t i = 0; i < m; i += tall) {
        for (int64_t j = 0; j < n; j += wide) {
            if (attn__sgemm(0, transpose_b, tall, least(wide, n - j), k, 1, a + i * lda, lda, b + j * ldb, ldb, beta, c + i * ldc + j, ldc))
                atomic_store(refused, 1);
        }
    }
}

attn_status BLAS(product_status)(attn_context *ctx, attn_status status, const atomic_int *refused)
{
    if (status != ATTN_OK || atomic_load(refused) == 0) return status;
    return attn__fail(ctx, ATTN_ERROR_TOO_LARGE,
                      "a matrix product: got extents or strides that do not fit BLAS, expected at most 2147483647");
}

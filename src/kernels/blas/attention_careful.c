/* Blocks in which a blocked key or query holds NaN or infinity: 0 times those is NaN in a product, so they are left out of it and added
   where they have a weight. The rest of the product is the same call, so that no other row changes by a bit. */
#include "attention_tile.h"

/* the exponent of a float that is not finite has all bits set */
static inline uint32_t magnitude(float x)
{
    return attn__bits(x) & 0x7FFFFFFFu;
}

static int finite_rows(const float *x, int64_t rows, int64_t width, int64_t stride)
{
    uint32_t most[LANES] = {0}, rest = 0;
    int64_t whole = width & -(int64_t)LANES;
    for (int64_t r = 0; r < rows; r++, x += stride) {
        for (int64_t c = 0; c < whole; c += LANES) {
#pragma omp simd
            for (int64_t l = 0; l < LANES; l++) most[l] = magnitude(x[c + l]) > most[l] ? magnitude(x[c + l]) : most[l];
        }
        for (int64_t c = whole; c < width; c++) rest = magnitude(x[c]) > rest ? magnitude(x[c]) : rest;
    }
    for (int l = 0; l < LANES; l++) rest = most[l] > rest ? most[l] : rest;
    return rest < 0x7F800000u;
}

int BLAS(attention_careful)(const attention_block *b, const float *x, int64_t width, int64_t stride, int by_key)
{
    if (!b->partial) return 0;
    if (!by_key) return !finite_rows(x, b->rows, width, stride);
    for (int64_t r = 0; r < b->runs_count; r++) {
        const attn__key_run *run = &b->runs[r];
        int64_t first = run->key > b->key ? run->key : b->key, end = least(run->key + run->count, b->key + b->keys);
        if (run->partial && !finite_rows(x + (first - b->key) * stride, end - first, width, stride)) return 1;
    }
    return 0;
}

/* c += alpha a b by plain loops over the terms that have a weight: what is not finite in b, or (all) everything */
static void add_weighted(int all, int transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                         const float *b, int64_t ldb, float *c, int64_t ldc)
{
    for (int64_t t = 0; t < k; t++) {
        const float *from = b + t * ldb;
        if (!all && finite_rows(from, 1, n, 0)) continue;
        for (int64_t i = 0; i < m; i++) {
            float *to = c + i * ldc, weight = alpha * (transpose_a ? a[t * lda + i] : a[i * lda + t]);
            if (weight == 0) continue;
            for (int64_t j = 0; j < n; j++)
                if (all || magnitude(from[j]) >= 0x7F800000u) to[j] += weight * from[j];
        }
    }
}

void BLAS(attention_product)(attention_job *job, int careful, int transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                             int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc, float *turned)
{
    int fits = !careful || n <= job->room / k; /* not: heads wider than any */
    const float *factor = careful && fits ? turned : b;
    for (int64_t t = 0; careful && fits && t < k; t++)
        for (int64_t j = 0; j < n; j++) turned[t * n + j] = magnitude(b[t * ldb + j]) < 0x7F800000u ? b[t * ldb + j] : 0;
    if (attn__sgemm(transpose_a, 0, m, n, fits ? k : 0, alpha, a, lda, factor, careful ? n : ldb, beta, c, ldc))
        atomic_store(&job->refused, 1);
    if (careful) add_weighted(!fits, transpose_a, m, n, k, alpha, a, lda, b, ldb, c, ldc);
}

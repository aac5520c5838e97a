#ifndef TESTS_COST_COUNTER_H
#define TESTS_COST_COUNTER_H
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* This program's own cblas_sgemm and cblas_sgemv: they count, and hand on to the library's. Included by one file of a program. Enumerations
   of cblas.h are ints. */
static atomic_llong counter_calls, counter_multiply_adds;

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc);
void cblas_sgemv(int order, int transpose, int rows, int columns, float alpha, const float *a, int lda, const float *x, int step_x,
                 float beta, float *y, int step_y);

/* keeps BLAS among the libraries of a program that has no other need of it (linkers drop what is not needed) */
float cblas_sdot(int n, const float *x, int step_x, const float *y, int step_y);
static float (*const volatile counter_keeps)(int, const float *, int, const float *, int) = cblas_sdot;

static void *counter_next(const char *name)
{
    void *next = dlsym(RTLD_NEXT, name);
    if (next == NULL) abort();
    return next;
}

/* 0: BLAS was linked into the program, and nothing can stand before it */
static inline int counter_works(void)
{
    return counter_keeps != NULL && dlsym(RTLD_NEXT, "cblas_sgemm") != NULL && dlsym(RTLD_NEXT, "cblas_sgemv") != NULL;
}

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc)
{
    static _Atomic(__typeof__(&cblas_sgemm)) next;
    if (atomic_load(&next) == NULL) atomic_store(&next, (__typeof__(&cblas_sgemm))(uintptr_t)counter_next("cblas_sgemm"));
    atomic_fetch_add(&counter_calls, 1);
    atomic_fetch_add(&counter_multiply_adds, (long long)m * n * k);
    atomic_load (&next)(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_sgemv(int order, int transpose, int rows, int columns, float alpha, const float *a, int lda, const float *x, int step_x,
                 float beta, float *y, int step_y)
{
    static _Atomic(__typeof__(&cblas_sgemv)) next;
    if (atomic_load(&next) == NULL) atomic_store(&next, (__typeof__(&cblas_sgemv))(uintptr_t)counter_next("cblas_sgemv"));
    atomic_fetch_add(&counter_calls, 1);
    atomic_fetch_add(&counter_multiply_adds, (long long)rows * columns);
    atomic_load (&next)(order, transpose, rows, columns, alpha, a, lda, x, step_x, beta, y, step_y);
}

/* multiply-adds since the last call */
static inline int64_t counter_take(void)
{
    return atomic_exchange(&counter_multiply_adds, 0);
}
#endif

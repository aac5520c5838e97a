/* What FlexiBLAS is to its callers, for machines that have none: a library named libflexiblas that opens another one, named by the
   environment, for itself alone and hands the calls on. Two products and the number of threads are all that libattn asks of it. */
#include <cblas.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int flexiblas_get_num_threads(void);
void flexiblas_set_num_threads(int threads);

static void *library;
__attribute__((constructor)) static void open_library(void)
{
    const char *name = getenv("FLEXIBLAS");
    library = name != NULL ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) abort();
}

#define CALL(type, name) \
    type *next; \
    void *symbol = dlsym(library, name); \
    memcpy(&next, &symbol, sizeof next)

int flexiblas_get_num_threads(void)
{
    typedef int function(void);
    typedef intptr_t blis_function(void);
    CALL(function, "openblas_get_num_threads");
    if (next != NULL) return next();
    blis_function *blis;
    symbol = dlsym(library, "bli_thread_get_num_threads");
    memcpy(&blis, &symbol, sizeof blis);
    return blis != NULL ? (int)blis() : 1;
}

void flexiblas_set_num_threads(int threads)
{
    typedef void function(int);
    typedef void blis_function(intptr_t);
    CALL(function, "openblas_set_num_threads");
    if (next != NULL) next(threads);
    blis_function *blis;
    symbol = dlsym(library, "bli_thread_set_num_threads");
    memcpy(&blis, &symbol, sizeof blis);
    if (blis != NULL) blis(threads);
}

void cblas_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta, const enum CBLAS_TRANSPOSE tb, const int m, const int n,
                 const int k, const float alpha, const float *a, const int lda, const float *b, const int ldb, const float beta, float *c,
                 const int ldc)
{
    typedef void function(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
    CALL(function, "cblas_sgemm");
    next((int)order, (int)ta, (int)tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_sgemv(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE ta, const int m, const int n, const float alpha, const float *a,
                 const int lda, const float *x, const int step_x, const float beta, float *y, const int step_y)
{
    typedef void function(int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
    CALL(function, "cblas_sgemv");
    next((int)order, (int)ta, m, n, alpha, a, lda, x, step_x, beta, y, step_y);
}

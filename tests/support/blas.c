#include "support/blas.h"
#include <stddef.h>
#include <stdint.h>

#define WEAK extern __attribute__((weak))
WEAK int openblas_get_parallel(void);
WEAK int openblas_get_num_threads(void);
WEAK void openblas_set_num_threads(int threads);
WEAK intptr_t bli_thread_get_num_threads(void);
WEAK void bli_thread_set_num_threads(intptr_t threads);
WEAK int omp_get_max_threads(void);
WEAK void omp_set_num_threads(int threads);

const char *blas_flavour(void)
{
    static const char *const parallel[] = {"openblas-serial", "openblas-pthread", "openblas-openmp"};
    if (openblas_get_parallel != NULL) return parallel[openblas_get_parallel()];
    return bli_thread_get_num_threads != NULL ? "blis" : "other";
}

int blas_threads(void)
{
    if (openblas_get_num_threads != NULL) return openblas_get_num_threads();
    return bli_thread_get_num_threads != NULL ? (int)bli_thread_get_num_threads() : 1;
}

void blas_set_threads(int threads)
{
    if (openblas_set_num_threads != NULL)
        openblas_set_num_threads(threads);
    else if (bli_thread_set_num_threads != NULL)
        bli_thread_set_num_threads(threads);
}

int blas_openmp_threads(void)
{
    return omp_get_max_threads != NULL ? omp_get_max_threads() : 0;
}

void blas_set_openmp_threads(int threads)
{
    if (omp_set_num_threads != NULL) omp_set_num_threads(threads);
}

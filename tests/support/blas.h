#ifndef TESTS_SUPPORT_BLAS_H
#define TESTS_SUPPORT_BLAS_H
/* What the BLAS of the day says of itself, through weak names; the library's guard has its own list. */
const char *blas_flavour(void); /* openblas-pthread, openblas-openmp, openblas-serial, blis or other */
int blas_threads(void);         /* of the process, 1 where there is no such number */
void blas_set_threads(int threads);
int blas_openmp_threads(void); /* of the calling thread, 0 without OpenMP */
void blas_set_openmp_threads(int threads);
#endif

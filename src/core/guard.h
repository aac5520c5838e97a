#ifndef ATTN_CORE_GUARD_H
#define ATTN_CORE_GUARD_H
/* BLAS on one thread while we compute, whatever flavour the system loaded (weak symbols; nothing where they are absent).
   Process-wide for OpenBLAS with pthreads: counted, restored by the last leaver and only if still 1. Per thread for OpenMP.
   The counter is the one piece of global state of the library. */
void attn__guard_enter(int *saved_omp_threads);
void attn__guard_leave(int saved_omp_threads);
void attn__guard_thread(void);             /* once on each worker */
const char *attn__guard_blas_config(void); /* openblas_get_config(), or "unknown" */
#endif

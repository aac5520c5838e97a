#ifndef ATTN_CORE_GUARD_H
#define ATTN_CORE_GUARD_H
#include <stdint.h>

/* BLAS on one thread while we compute, whatever flavour the system loaded (weak symbols; nothing where they are absent).
   Process-wide for OpenBLAS with pthreads, BLIS and FlexiBLAS: counted, restored by the last leaver and only if still 1. Per thread
   for OpenMP. Its counters are global state, as are those of forks.h; there is no other. */
void attn__guard_enter(int *saved_omp_threads);
void attn__guard_leave(int saved_omp_threads);
void attn__guard_thread(void); /* once on each worker */
/* Around each product: waits for a seat inside OpenBLAS and gives 1, or 0 and no waiting where none is needed. Built without threads it has
   one, since two threads inside may get the same buffer and wrong results. Otherwise it has buffers for so many threads, prints when they
   are used up and ends the process later; seats are taken only when the pools together have more threads. The host's own calls are not seen. */
int attn__guard_seat(void);
void attn__guard_rise(int seat);
void attn__guard_count(int32_t threads);   /* a pool begins (or, negative, ends) with so many, its caller included */
int attn__guard_unpacked(void);            /* OpenBLAS on a core for which it has kernels that do not pack small matrices */
const char *attn__guard_blas_config(void); /* openblas_get_config(), or "unknown" */
#endif

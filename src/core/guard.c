#include "guard.h"
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* What the BLAS of the day brings along; absent symbols are NULL and then there is nothing to hold. */
#define WEAK extern __attribute__((weak))
WEAK int openblas_get_parallel(void);
WEAK int openblas_get_num_threads(void);
WEAK void openblas_set_num_threads(int threads);
WEAK char *openblas_get_config(void);
WEAK int omp_get_max_threads(void);
WEAK void omp_set_num_threads(int threads);

enum { FLAVOUR_NONE = 0, FLAVOUR_PTHREADS = 1, FLAVOUR_OPENMP = 2 };

/* The library's one piece of global state: OpenBLAS with pthreads has one thread number for the process.
   lock holds the process id of its owner, so that a child forked in the middle recognises a lock nobody will give back. */
static struct {
    _Atomic int32_t lock;
    int32_t pid; /* of the process that counted */
    int32_t inside;
    int saved;
} guard;

static int flavour(void)
{
    int parallel = openblas_get_parallel != NULL ? openblas_get_parallel() : FLAVOUR_NONE;
    if (parallel == FLAVOUR_PTHREADS && openblas_get_num_threads != NULL && openblas_set_num_threads != NULL) return FLAVOUR_PTHREADS;
    if (parallel == FLAVOUR_OPENMP && omp_get_max_threads != NULL && omp_set_num_threads != NULL) return FLAVOUR_OPENMP;
    return FLAVOUR_NONE;
}

static void lock(void)
{
    int32_t self = (int32_t)getpid();
    for (;;) {
        int32_t owner = 0;
        if (atomic_compare_exchange_strong_explicit(&guard.lock, &owner, self, memory_order_acquire, memory_order_relaxed)) break;
        if (owner != self && atomic_compare_exchange_strong_explicit(&guard.lock, &owner, self, memory_order_acquire, memory_order_relaxed))
            break;
        sched_yield();
    }
    if (guard.pid == self) return;
    /* a forked child: whoever was inside stayed behind, the number to restore is still the parent's */
    if (guard.inside == 0) guard.saved = 0;
    guard.inside = 0;
    guard.pid = self;
}

static void unlock(void)
{
    atomic_store_explicit(&guard.lock, 0, memory_order_release);
}

static void enter_pthreads(void)
{
    lock();
    if (guard.inside++ == 0) {
        int threads = openblas_get_num_threads();
        if (threads != 1) {
            guard.saved = threads;
            openblas_set_num_threads(1);
        }
    }
    unlock();
}

static void leave_pthreads(void)
{
    lock();
    if (guard.inside > 0 && --guard.inside == 0) {
        if (guard.saved > 1 && openblas_get_num_threads() == 1) openblas_set_num_threads(guard.saved);
        guard.saved = 0;
    }
    unlock();
}

void attn__guard_enter(int *saved_omp_threads)
{
    *saved_omp_threads = 0;
    switch (flavour()) {
    case FLAVOUR_PTHREADS: enter_pthreads(); break;
    case FLAVOUR_OPENMP:
        *saved_omp_threads = omp_get_max_threads();
        if (*saved_omp_threads != 1) omp_set_num_threads(1);
        break;
    default: break;
    }
}

void attn__guard_leave(int saved_omp_threads)
{
    switch (flavour()) {
    case FLAVOUR_PTHREADS: leave_pthreads(); break;
    case FLAVOUR_OPENMP:
        if (saved_omp_threads > 1 && omp_get_max_threads() == 1) omp_set_num_threads(saved_omp_threads);
        break;
    default: break;
    }
}

void attn__guard_thread(void)
{
    if (flavour() == FLAVOUR_OPENMP) omp_set_num_threads(1);
}

const char *attn__guard_blas_config(void)
{
    const char *config = openblas_get_config != NULL ? openblas_get_config() : NULL;
    return config != NULL ? config : "unknown";
}

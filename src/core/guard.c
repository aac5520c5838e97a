#include "guard.h"
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include "forks.h"
#include "pause.h"

/* What the BLAS of the day brings along; absent symbols are NULL and then there is nothing to hold. */
#define WEAK extern __attribute__((weak))
WEAK int openblas_get_parallel(void);
WEAK int openblas_get_num_threads(void);
WEAK void openblas_set_num_threads(int threads);
WEAK char *openblas_get_config(void);
WEAK char *openblas_get_corename(void);
WEAK int sgemm_small_matrix_permit_SKYLAKEX(void); /* never called: OpenBLAS that has it has the kernels */
WEAK int flexiblas_get_num_threads(void);
WEAK void flexiblas_set_num_threads(int threads);
WEAK intptr_t bli_thread_get_num_threads(void); /* BLIS; -1: nobody has said, which means one */
WEAK void bli_thread_set_num_threads(intptr_t threads);
WEAK int omp_get_max_threads(void);
WEAK void omp_set_num_threads(int threads);

enum { HOLD_PROCESS = 1, HOLD_OPENMP = 2 }; /* 0: a BLAS without threads, or one that shows no way to hold them */

/* Global state, beside that of forks.c: but for OpenMP, a BLAS has one thread number for the process.
   And OpenBLAS has room for so many threads at once, without threads of its own for one: seats counts those inside, beside the process's
   id in its high half, since what a forked child inherits of it will not come out. */
static struct {
    _Atomic int32_t lock;
    _Atomic int32_t most;      /* seats; 0: not looked up yet */
    _Atomic int32_t flexiblas; /* HOLD_*; 0: not looked at yet */
    _Atomic int32_t threads;
    _Atomic uint64_t seats;
    int32_t pid; /* of the process that counted */
    int32_t inside;
    int saved;
} guard;

/* A BLAS on OpenMP behind FlexiBLAS sets the calling thread's number along with its own: that tells. Its own must not be touched then, since
   products of the host that are under way would lose their buffers. Looked at once, by setting what is set already. */
static int behind_flexiblas(void)
{
    int hold = atomic_load_explicit(&guard.flexiblas, memory_order_relaxed);
    if (hold != 0) return hold;
    int before = omp_get_max_threads(), threads = flexiblas_get_num_threads();
    omp_set_num_threads(threads + 1);
    flexiblas_set_num_threads(threads);
    hold = omp_get_max_threads() == threads ? HOLD_OPENMP : HOLD_PROCESS;
    omp_set_num_threads(before);
    atomic_store_explicit(&guard.flexiblas, hold, memory_order_relaxed);
    return hold;
}

static int flavour(void)
{
    int openmp = omp_get_max_threads != NULL && omp_set_num_threads != NULL ? HOLD_OPENMP : 0;
    if (openblas_get_parallel != NULL) {
        int parallel = openblas_get_parallel(); /* 1: pthreads, 2: OpenMP */
        if (parallel == 2) return openmp;
        return parallel == 1 && openblas_get_num_threads != NULL && openblas_set_num_threads != NULL ? HOLD_PROCESS : 0;
    }
    if (flexiblas_get_num_threads != NULL && flexiblas_set_num_threads != NULL) return openmp != 0 ? behind_flexiblas() : HOLD_PROCESS;
    return bli_thread_get_num_threads != NULL && bli_thread_set_num_threads != NULL ? HOLD_PROCESS : 0;
}

/* the number of the process, where flavour() says HOLD_PROCESS */
static int get_threads(void)
{
    if (openblas_get_parallel != NULL) return openblas_get_num_threads();
    if (flexiblas_get_num_threads != NULL) return flexiblas_get_num_threads();
    intptr_t threads = bli_thread_get_num_threads();
    return threads < 1 ? 1 : threads > INT_MAX ? INT_MAX : (int)threads;
}

static void set_threads(int threads)
{
    if (openblas_get_parallel != NULL)
        openblas_set_num_threads(threads);
    else if (flexiblas_get_num_threads != NULL)
        flexiblas_set_num_threads(threads);
    else
        bli_thread_set_num_threads(threads);
}

/* The lock holds the process id of its owner, so that a child forked in the middle recognises one that nobody will give back. */
static void take(_Atomic int32_t *held)
{
    int32_t self = (int32_t)getpid();
    for (int tries = 1;; tries++) {
        int32_t owner = 0;
        if (atomic_compare_exchange_strong_explicit(held, &owner, self, memory_order_acquire, memory_order_relaxed)) return;
        if (owner != self && atomic_compare_exchange_strong_explicit(held, &owner, self, memory_order_acquire, memory_order_relaxed))
            return;
        attn__pause(tries);
    }
}

static void lock(void)
{
    attn__forks_hold();
    take(&guard.lock);
    int32_t self = (int32_t)getpid();
    if (guard.pid == self) return;
    /* a forked child: whoever was inside, or was about to give the number back, stayed behind; what they owed is still to be given */
    if (get_threads() > 1) guard.saved = 0;
    guard.inside = 0;
    guard.pid = self;
}

static void unlock(void)
{
    atomic_store_explicit(&guard.lock, 0, memory_order_release);
    attn__forks_release();
}

static void enter_process(void)
{
    lock();
    if (guard.inside++ == 0) {
        int threads = get_threads();
        if (threads > 1) {
            guard.saved = threads;
            set_threads(1);
        }
    }
    unlock();
}

static void leave_process(void)
{
    lock();
    if (guard.inside > 0 && --guard.inside == 0) {
        if (guard.saved > 1 && get_threads() == 1) set_threads(guard.saved);
        guard.saved = 0;
    }
    unlock();
}

void attn__guard_enter(int *saved_omp_threads)
{
    int hold = flavour();
    *saved_omp_threads = hold == HOLD_OPENMP ? omp_get_max_threads() : 0;
    if (*saved_omp_threads > 1) omp_set_num_threads(1);
    if (hold == HOLD_PROCESS) enter_process();
}

void attn__guard_leave(int saved_omp_threads)
{
    int hold = flavour();
    if (hold == HOLD_PROCESS) leave_process();
    if (hold == HOLD_OPENMP && saved_omp_threads > 1 && omp_get_max_threads() == 1) omp_set_num_threads(saved_omp_threads);
}

void attn__guard_thread(void)
{
    if (flavour() == HOLD_OPENMP) omp_set_num_threads(1);
}

void attn__guard_count(int32_t threads)
{
    atomic_fetch_add_explicit(&guard.threads, threads, memory_order_relaxed);
}

/* OpenBLAS has buffers for twice the threads it was built for ("MAX_THREADS=64" in its configuration), or fifty: half of them are ours, the
   rest is for the host's own calls. Beyond that it prints, and then ends the process. */
static int32_t most_seats(void)
{
    int32_t most = atomic_load_explicit(&guard.most, memory_order_relaxed);
    if (most > 0) return most;
    const char *at = strstr(attn__guard_blas_config(), "MAX_THREADS=");
    for (at = at != NULL ? at + 12 : ""; *at >= '0' && *at <= '9' && most < 10000; at++) most = most * 10 + (*at - '0');
    if (most < 25) most = 25;
    atomic_store_explicit(&guard.most, most, memory_order_relaxed);
    return most;
}

int attn__guard_seat(void)
{
    if (openblas_get_parallel == NULL) return 0;
    int32_t most = openblas_get_parallel() == 0 ? 1 : most_seats();
    if (most > 1 && atomic_load_explicit(&guard.threads, memory_order_relaxed) <= most) return 0; /* there is room for all */
    const uint64_t empty = (uint64_t)(uint32_t)getpid() << 32;
    uint64_t seats = atomic_load_explicit(&guard.seats, memory_order_relaxed);
    for (int tries = 1;;) {
        uint64_t taken = (seats ^ empty) >> 32 == 0 ? seats : empty;
        if ((int64_t)(taken - empty) >= most) {
            attn__pause(tries++);
            seats = atomic_load_explicit(&guard.seats, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(&guard.seats, &seats, taken + 1, memory_order_acquire, memory_order_relaxed)) {
            return 1;
        }
    }
}

void attn__guard_rise(int seat)
{
    if (seat) atomic_fetch_sub_explicit(&guard.seats, 1, memory_order_release);
}

int attn__guard_unpacked(void)
{
    static const char *const cores[] = {"SkylakeX", "Cooperlake", "SapphireRapids"};
    if (openblas_get_corename == NULL || sgemm_small_matrix_permit_SKYLAKEX == NULL) return 0;
    const char *core = openblas_get_corename();
    for (size_t i = 0; core != NULL && i < sizeof cores / sizeof *cores; i++)
        if (strcmp(core, cores[i]) == 0) return 1;
    return 0;
}

const char *attn__guard_blas_config(void)
{
    const char *config = openblas_get_config != NULL ? openblas_get_config() : NULL;
    return config != NULL ? config : "unknown";
}

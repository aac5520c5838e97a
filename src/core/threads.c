#include "threads.h"
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <time.h>
#include <unistd.h>
#include "guard.h"

#define MOST_THREADS 256
#define STACK_BYTES ((size_t)1 << 20)
#define SPIN_NANOSECONDS INT64_C(80000)

/* The gate is one word: number of the job in the high half, a bit that says it is open, and how many workers are inside.
   A worker enters an open job by adding one with compare-and-swap; the caller closes the gate when no tile is left and waits
   for those inside only. A worker that is asleep or late never holds up a job. */
#define GATE_OPEN (UINT64_C(1) << 31)
#define GATE_INSIDE (GATE_OPEN - 1)
#define GATE_JOB (UINT64_C(1) << 32)

typedef struct worker {
    attn__pool *pool;
    int32_t number;
    pthread_t thread;
} worker;

struct attn__pool {
    attn__memory *memory;
    int64_t bytes;
    pid_t pid;
    int32_t threads; /* the caller included */
    int64_t spin_nanoseconds;
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;

    /* The job: written by the caller while the gate is closed and nobody is inside. */
    attn__tile_function *tile;
    void *job;
    int64_t tiles;
    atomic_int *cancel;
    void (*on_thread)(void);

    alignas(64) _Atomic uint64_t gate;
    atomic_int sleepers, waiting, stop;
    alignas(64) _Atomic int64_t next;
    atomic_int stopped; /* a thread saw the cancel flag before the last tile was taken */
    alignas(64) worker workers[];
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) return INT64_MAX; /* no clock: no spinning */
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int32_t attn__cpu_count(void)
{
    long count = 0;
#ifdef CPU_COUNT
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
#endif
    if (count < 1) count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : (int32_t)count;
}

static void run_tiles(attn__pool *pool, int32_t number)
{
    int64_t tiles = pool->tiles;
    for (;;) {
        if (pool->cancel != NULL && atomic_load_explicit(pool->cancel, memory_order_relaxed) != 0) {
            if (atomic_load_explicit(&pool->next, memory_order_relaxed) < tiles) {
                atomic_store_explicit(&pool->stopped, 1, memory_order_relaxed);
            }
            return;
        }
        int64_t tile = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (tile >= tiles) return;
        pool->tile(pool->job, tile, number);
    }
}

static int something_to_do(attn__pool *pool, uint64_t last)
{
    uint64_t gate = atomic_load(&pool->gate);
    return ((gate & GATE_OPEN) != 0 && gate / GATE_JOB != last) || atomic_load(&pool->stop) != 0;
}

/* Spins for a while, then sleeps, until an open job that is not the last one, or the end. */
static void wait_for_job(attn__pool *pool, uint64_t last)
{
    int64_t start = 0;
    for (int i = 1; pool->spin_nanoseconds > 0; i++) {
        if (something_to_do(pool, last)) return;
        relax();
        if (i % 32 != 0) continue;
        if (start == 0) start = now();
        if (now() - start > pool->spin_nanoseconds) break;
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1); /* before the look at the gate: the caller opens it, then looks for sleepers */
    while (!something_to_do(pool, last)) pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void leave_job(attn__pool *pool)
{
    uint64_t gate = atomic_fetch_sub(&pool->gate, 1) - 1;
    if ((gate & (GATE_OPEN | GATE_INSIDE)) != 0 || atomic_load(&pool->waiting) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->mutex);
}

static void *work(void *argument)
{
    worker *self = argument;
    attn__pool *pool = self->pool;
    uint64_t last = 0;
    int prepared = 0;
    for (;;) {
        wait_for_job(pool, last);
        if (atomic_load(&pool->stop) != 0) return NULL;
        uint64_t gate = atomic_load(&pool->gate);
        if ((gate & GATE_OPEN) == 0 || !atomic_compare_exchange_strong(&pool->gate, &gate, gate + 1)) continue;
        last = gate / GATE_JOB;
        if (!prepared && pool->on_thread != NULL) {
            pool->on_thread();
            prepared = 1;
        }
        run_tiles(pool, self->number);
        leave_job(pool);
    }
}

/* Waits until nobody is inside the closed gate. */
static void wait_for_workers(attn__pool *pool)
{
    int64_t start = 0;
    for (int i = 1; pool->spin_nanoseconds > 0; i++) {
        if ((atomic_load(&pool->gate) & GATE_INSIDE) == 0) return;
        relax();
        if (i % 32 != 0) continue;
        if (start == 0) start = now();
        if (now() - start > pool->spin_nanoseconds) break;
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->waiting, 1); /* before the look at the gate: the last worker leaves, then looks for a waiter */
    while ((atomic_load(&pool->gate) & GATE_INSIDE) != 0) pthread_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->waiting, 0);
    pthread_mutex_unlock(&pool->mutex);
}

int attn__pool_run_alone(int64_t tiles, attn__tile_function *tile, void *job, const atomic_int *cancel)
{
    for (int64_t i = 0; i < tiles; i++) {
        if (cancel != NULL && atomic_load_explicit(cancel, memory_order_relaxed) != 0) return 1;
        tile(job, i, 0);
    }
    return 0;
}

int attn__pool_run(attn__pool *pool, int64_t tiles, attn__tile_function *tile, void *job, atomic_int *cancel, void (*on_thread)(void))
{
    if (tiles <= 1 || pool->threads == 1 || getpid() != pool->pid) return attn__pool_run_alone(tiles, tile, job, cancel);
    pool->tile = tile;
    pool->job = job;
    pool->tiles = tiles;
    pool->cancel = cancel;
    pool->on_thread = on_thread;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->stopped, 0, memory_order_relaxed);
    atomic_fetch_add(&pool->gate, GATE_JOB | GATE_OPEN); /* the gate is closed and empty: this sets the bit */
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->mutex); /* a worker between its look at the gate and its sleep holds this */
        pthread_mutex_unlock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
    }
    run_tiles(pool, 0);
    if ((atomic_fetch_and(&pool->gate, ~GATE_OPEN) & GATE_INSIDE) != 0) wait_for_workers(pool);
    return atomic_load_explicit(&pool->stopped, memory_order_relaxed);
}

/* Workers take no signals but those that a fault of their own raises: the host's handlers run on the host's threads. */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, before);
}

/* As many of the wanted workers as the system grants. */
static void start_workers(attn__pool *pool, int32_t threads)
{
    pthread_attr_t attributes;
    sigset_t before;
    if (threads == 1 || pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    block_signals(&before);
    for (int32_t i = 1; i < threads; i++) {
        worker *w = &pool->workers[i - 1];
        w->pool = pool;
        w->number = i;
        if (pthread_create(&w->thread, &attributes, work, w) != 0) break;
        pool->threads = i + 1;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

static int init_locks(attn__pool *pool)
{
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) return 0;
    if (pthread_cond_init(&pool->wake, NULL) == 0) {
        if (pthread_cond_init(&pool->done, NULL) == 0) return 1;
        pthread_cond_destroy(&pool->wake);
    }
    pthread_mutex_destroy(&pool->mutex);
    return 0;
}

attn_status attn__pool_create(attn__memory *memory, int32_t threads, attn__pool **out)
{
    *out = NULL;
    threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    int64_t bytes = (int64_t)(sizeof(attn__pool) + (size_t)(threads - 1) * sizeof(worker));
    void *p;
    attn_status status = attn__allocate_zero(memory, bytes, &p);
    if (status != ATTN_OK) return status;
    attn__pool *pool = p;
    pool->bytes = bytes;
    pool->pid = getpid();
    pool->threads = 1;
    /* with more threads than processors a spinning thread would hold up a working one */
    pool->spin_nanoseconds = threads <= attn__cpu_count() ? SPIN_NANOSECONDS : 0;
    if (!init_locks(pool)) {
        attn__deallocate(memory, pool, bytes);
        return ATTN_ERROR_OUT_OF_MEMORY;
    }
    pool->memory = attn__memory_retain(memory);
    start_workers(pool, threads);
    attn__guard_count(pool->threads);
    *out = pool;
    return ATTN_OK;
}

void attn__pool_free(attn__pool *pool)
{
    if (pool == NULL) return;
    attn__memory *memory = pool->memory;
    if (getpid() == pool->pid) {
        pthread_mutex_lock(&pool->mutex);
        atomic_store(&pool->stop, 1);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
        for (int32_t i = 1; i < pool->threads; i++) pthread_join(pool->workers[i - 1].thread, NULL);
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->mutex);
    }
    attn__guard_count(-pool->threads);
    attn__deallocate(memory, pool, pool->bytes);
    attn__memory_release(memory);
}

int32_t attn__pool_threads(const attn__pool *pool)
{
    return getpid() == pool->pid ? pool->threads : 1;
}

int32_t attn__pool_workers(const attn__pool *pool)
{
    return pool->threads;
}

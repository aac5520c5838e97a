#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <cmocka.h>
#include "core/threads.h"

/* The pool once more, compiled here: whoever comes to a chosen one of the places that look at the shared numbers or change them pauses
   before it. A sleeper whom nobody wakes wakes by itself, much later, and says so. */
enum { PAUSE = 2000, PATIENCE = 10, PLACES = 100 }; /* microseconds, seconds */
static atomic_int chosen = -1, missed;
static atomic_int met[PLACES];

static void sleep_microseconds(long n)
{
    nanosleep(&(struct timespec){n / 1000000, n % 1000000 * 1000}, NULL);
}

static int gap(int place)
{
    atomic_store_explicit(&met[place < PLACES ? place : PLACES - 1], 1, memory_order_relaxed);
    if (atomic_load_explicit(&chosen, memory_order_relaxed) == place) sleep_microseconds(PAUSE);
    return 0;
}

static int wait_patiently(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    if (pthread_cond_timedwait(condition, mutex, &until) == ETIMEDOUT) atomic_fetch_add_explicit(&missed, 1, memory_order_relaxed);
    return 0;
}

/* then two threads are too many to spin, and the one worker is the one that must come */
static int one_processor(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid, (void)size;
    CPU_ZERO(set);
    CPU_SET(0, set);
    return 0;
}

#undef atomic_load
#undef atomic_store
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_fetch_and
#undef atomic_compare_exchange_strong
#define atomic_load(at) atomic_load_explicit((gap(__COUNTER__), (at)), memory_order_seq_cst)
#define atomic_store(at, value) atomic_store_explicit((gap(__COUNTER__), (at)), value, memory_order_seq_cst)
#define atomic_fetch_add(at, value) atomic_fetch_add_explicit((gap(__COUNTER__), (at)), value, memory_order_seq_cst)
#define atomic_fetch_sub(at, value) atomic_fetch_sub_explicit((gap(__COUNTER__), (at)), value, memory_order_seq_cst)
#define atomic_fetch_and(at, value) atomic_fetch_and_explicit((gap(__COUNTER__), (at)), value, memory_order_seq_cst)
#define atomic_compare_exchange_strong(at, expected, value) \
    atomic_compare_exchange_strong_explicit((gap(__COUNTER__), (at)), expected, value, memory_order_seq_cst, memory_order_seq_cst)
#define pthread_cond_wait wait_patiently
#define sched_getaffinity one_processor
#include "core/threads.c" /* NOLINT: on purpose */

/* The caller waits for the worker; then the tile of one of them takes longer, so that the other pauses or falls asleep meanwhile. */
typedef struct meeting {
    atomic_int inside;
    int32_t slow; /* 0: the caller */
} meeting;

static void meeting_tile(void *job, int64_t tile, int32_t number)
{
    meeting *m = job;
    (void)tile;
    if (number > 0) atomic_store_explicit(&m->inside, 1, memory_order_relaxed);
    for (int i = 0; number == 0 && i < 10 * PATIENCE * 1000 && atomic_load_explicit(&m->inside, memory_order_relaxed) == 0; i++)
        sleep_microseconds(50);
    if (number == m->slow) sleep_microseconds(PAUSE / 2);
}

/* jobs back to back, so that each meets the worker on its way to sleep; 0: it did not come */
static int run_once(attn__memory *memory)
{
    attn__pool *pool;
    int came = 1;
    assert_int_equal(attn__pool_create(memory, 2, &pool), ATTN_OK);
    for (int32_t round = 0; round < 4 && came; round++) {
        meeting m = {.slow = round % 2};
        assert_int_equal(attn__pool_run(pool, 2, meeting_tile, &m, NULL, NULL), 0);
        came = atomic_load_explicit(&m.inside, memory_order_relaxed);
    }
    attn__pool_free(pool);
    return came && atomic_load_explicit(&missed, memory_order_relaxed) == 0;
}

static void test_a_pause_loses_nothing(void **state)
{
    (void)state;
    int places = 0;
    attn__memory *memory = attn__memory_create(NULL, -1);
    assert_non_null(memory);
    assert_true(run_once(memory));
    for (int place = 0; place < PLACES; place++) {
        if (atomic_load_explicit(&met[place], memory_order_relaxed) == 0) continue;
        places++;
        atomic_store_explicit(&chosen, place, memory_order_relaxed);
        if (!run_once(memory)) fail_msg("with a pause at place %d of threads.c somebody was not woken", place);
    }
    assert_true(places >= 15 && atomic_load_explicit(&met[PLACES - 1], memory_order_relaxed) == 0);
    attn__memory_release(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_pause_loses_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

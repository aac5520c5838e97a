#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/threads.h"

/* Stands before the C library's: after so many threads the system "refuses". */
static int grants = -1; /* -1: no limit */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    create_function *next;
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    if (grants == 0) return 11; /* EAGAIN */
    if (grants > 0) grants--;
    memcpy(&next, &symbol, sizeof next);
    return next(thread, attributes, start, argument);
}

static void sleep_microseconds(long n)
{
    nanosleep(&(struct timespec){n / 1000000, n % 1000000 * 1000}, NULL);
}

/* This one too: with `late`, who waits takes time between the look and the sleep, with the lock in hand. A call that is made without the
   lock falls into that gap and is missed; the sleeper then wakes by itself, much later, and says so. */
enum { LATE = 4000, PATIENCE = 10 };
static atomic_int late, missed;
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    struct timespec until;
    int looked = atomic_load(&late);
    if (looked) sleep_microseconds(LATE);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    int result = pthread_cond_timedwait(condition, mutex, &until);
    if (result == ETIMEDOUT) atomic_fetch_add(&missed, looked);
    return result == ETIMEDOUT ? 0 : result;
}

static attn__memory *memory;
static int create(void **state)
{
    (void)state;
    return (memory = attn__memory_create(NULL, -1)) == NULL;
}

static int destroy(void **state)
{
    (void)state;
    int64_t live, peak, allocations;
    attn__memory_read(memory, &live, &peak, &allocations);
    attn__memory_release(memory);
    return live != 0;
}

static attn__pool *pool_of(attn__memory *from, int32_t threads)
{
    attn__pool *made;
    assert_int_equal(attn__pool_create(from, threads, &made), ATTN_OK);
    return made;
}

enum { MOST_TILES = 5000 };
typedef struct counts {
    atomic_int runs[MOST_TILES];
    atomic_int bad_worker, workers_seen[256];
    int32_t threads;
    long pause; /* of every tile, in microseconds */
} counts;

static void count_tile(void *job, int64_t tile, int32_t worker)
{
    counts *c = job;
    atomic_fetch_add(&c->runs[tile], 1);
    if (worker < 0 || worker >= c->threads)
        atomic_store(&c->bad_worker, 1);
    else
        atomic_fetch_add(&c->workers_seen[worker], 1);
    if (c->pause > 0) sleep_microseconds(c->pause);
}

static void check_counts(counts *c, int64_t tiles)
{
    for (int64_t i = 0; i < MOST_TILES; i++) assert_int_equal(c->runs[i], i < tiles ? 1 : 0);
    assert_int_equal(c->bad_worker, 0);
}

static void test_each_tile_once(void **state)
{
    (void)state;
    static const int64_t tiles[] = {0, 1, 2, 3, 7, 64, 1000, MOST_TILES};
    static const int32_t threads[] = {1, 2, 4, 16};
    static counts c;
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        attn__pool *pool = pool_of(memory, threads[t]);
        assert_int_equal(attn__pool_threads(pool), threads[t]);
        assert_int_equal(attn__pool_workers(pool), threads[t]);
        for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
            memset(&c, 0, sizeof c);
            c.threads = threads[t];
            assert_int_equal(attn__pool_run(pool, tiles[i], count_tile, &c, NULL, NULL), 0);
            check_counts(&c, tiles[i]);
        }
        attn__pool_free(pool);
    }
    attn__pool_free(NULL);
}

/* Tiles that sleep: all the workers take part, and the caller must sleep for the last of them. Between the rounds
   the workers fall asleep and must wake. */
static void test_all_take_part(void **state)
{
    (void)state;
    static counts c;
    attn__pool *pool = pool_of(memory, 4);
    for (int round = 0; round < 5; round++) {
        memset(&c, 0, sizeof c);
        c.threads = 4;
        c.pause = 5000;
        assert_int_equal(attn__pool_run(pool, 16, count_tile, &c, NULL, NULL), 0);
        check_counts(&c, 16);
        for (int w = 0; w < 4; w++) assert_true(c.workers_seen[w] > 0);
        sleep_microseconds(2000);
    }
    attn__pool_free(pool);
}

typedef struct sums {
    int64_t values[64];
    int64_t round;
} sums;

static void sum_tile(void *job, int64_t tile, int32_t worker)
{
    sums *s = job;
    (void)worker;
    s->values[tile] += s->round * (tile + 1); /* plain memory: published by the pool alone */
}

/* Many short jobs back to back: no job sees the fields or the data of another. */
static void test_many_short_jobs(void **state)
{
    (void)state;
    for (int32_t threads = 2; threads <= 4; threads += 2) {
        static sums s;
        int64_t expected[64] = {0};
        memset(&s, 0, sizeof s);
        attn__pool *pool = pool_of(memory, threads);
        for (int64_t round = 1; round <= (threads == 2 ? 20000 : 2000); round++) {
            int64_t tiles = round * 7 % 63 + 2;
            s.round = round;
            assert_int_equal(attn__pool_run(pool, tiles, sum_tile, &s, NULL, NULL), 0);
            for (int64_t i = 0; i < tiles; i++) expected[i] += round * (i + 1);
        }
        assert_memory_equal(s.values, expected, sizeof expected);
        attn__pool_free(pool);
    }
}

static void *drive(void *argument)
{
    static const int64_t tiles = 50;
    attn__pool *pool = argument;
    sums s = {.round = 1};
    for (int i = 0; i < 2000; i++) attn__pool_run(pool, tiles, sum_tile, &s, NULL, NULL);
    for (int64_t i = 0; i < tiles; i++) {
        if (s.values[i] != 2000 * (i + 1)) return argument;
    }
    return NULL;
}

static void test_pools_side_by_side(void **state)
{
    (void)state;
    attn__pool *pools[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pools[i] = pool_of(memory, 2);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, drive, pools[i]), 0);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
        attn__pool_free(pools[i]); /* not by the thread that used it */
    }
}

typedef struct stopping {
    atomic_int cancel;
    atomic_int runs;
    int stop_at;
} stopping;

static void stopping_tile(void *job, int64_t tile, int32_t worker)
{
    stopping *s = job;
    (void)tile;
    (void)worker;
    if (atomic_fetch_add(&s->runs, 1) + 1 == s->stop_at) atomic_store(&s->cancel, 1);
}

static void test_cancel(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= 4; threads += 3) {
        attn__pool *pool = pool_of(memory, threads);
        stopping s = {.stop_at = 10};
        assert_int_equal(attn__pool_run(pool, 100000, stopping_tile, &s, &s.cancel, NULL), 1);
        assert_true(s.runs >= 10 && s.runs < 100000);
        int before = s.runs;
        assert_int_equal(attn__pool_run(pool, 100, stopping_tile, &s, &s.cancel, NULL), 1); /* set beforehand: no tile runs */
        assert_int_equal(attn__pool_run(pool, 1, stopping_tile, &s, &s.cancel, NULL), 1);
        assert_int_equal(s.runs, before);
        atomic_store(&s.cancel, 0);
        assert_int_equal(attn__pool_run(pool, 100, stopping_tile, &s, &s.cancel, NULL), 0); /* usable again */
        assert_int_equal(s.runs, before + 100);
        attn__pool_free(pool);
    }
}

/* two tiles wait for each other, and the cancel comes when both have been taken */
static void meeting_tile(void *job, int64_t tile, int32_t worker)
{
    stopping *s = job;
    (void)tile;
    (void)worker;
    atomic_fetch_add(&s->runs, 1);
    for (int i = 0; i < 50000 && atomic_load(&s->runs) < 2; i++) sleep_microseconds(100);
    if (atomic_load(&s->runs) == 2) atomic_store(&s->cancel, 1);
}

/* A cancel after the last tile was taken stops nothing: the job was done, and says so. */
static void test_cancel_comes_too_late(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= 2; threads++) {
        attn__pool *pool = pool_of(memory, threads);
        for (int round = 0; round < 20; round++) {
            stopping s = {.stop_at = 2};
            assert_int_equal(attn__pool_run(pool, 2, threads == 1 ? stopping_tile : meeting_tile, &s, &s.cancel, NULL), 0);
            assert_int_equal(s.runs, 2);
            assert_int_equal(s.cancel, 1);
        }
        attn__pool_free(pool);
    }
}

/* the caller waits for a worker, and then for its last tile; the worker ends it when the caller is about to sleep */
static void late_tile(void *job, int64_t tile, int32_t worker)
{
    atomic_int *inside = job;
    (void)tile;
    if (worker > 0) {
        atomic_store(inside, 1);
        sleep_microseconds(LATE / 2);
    }
    for (int i = 0; worker == 0 && i < 1000 && atomic_load(inside) == 0; i++) sleep_microseconds(100);
}

/* More threads than processors, so that all who wait sleep: neither the end of the last tile nor that of the pool is missed. */
static void test_no_call_is_missed(void **state)
{
    (void)state;
    atomic_store(&missed, 0);
    atomic_store(&late, 1);
    for (int round = 0; round < 8 && atomic_load(&missed) == 0; round++) {
        atomic_int inside = 0;
        attn__pool *pool = pool_of(memory, attn__cpu_count() + 1);
        sleep_microseconds(round * LATE / 8);
        if (round % 2 == 0) assert_int_equal(attn__pool_run(pool, 2, late_tile, &inside, NULL, NULL), 0);
        attn__pool_free(pool);
    }
    atomic_store(&late, 0);
    assert_int_equal(atomic_load(&missed), 0);
}

static atomic_int prepared;
static void prepare(void)
{
    atomic_fetch_add(&prepared, 1);
}

static void test_on_thread(void **state)
{
    (void)state;
    static counts c;
    attn__pool *pool = pool_of(memory, 4);
    c.threads = 4;
    c.pause = 3000;
    for (int round = 0; round < 4; round++) {
        memset(c.runs, 0, sizeof c.runs);
        assert_int_equal(attn__pool_run(pool, 12, count_tile, &c, NULL, round == 0 ? NULL : prepare), 0);
        if (round == 0) assert_int_equal(prepared, 0);
    }
    assert_int_equal(prepared, 3); /* once on each worker, never on the caller */
    attn__pool_free(pool);
}

static void signal_tile(void *job, int64_t tile, int32_t worker)
{
    sigset_t set;
    (void)tile;
    for (int i = 0; worker == 0 && i < 3000 && atomic_load((atomic_int *)job) == 0; i++) sleep_microseconds(1000); /* for a worker's turn */
    if (worker == 0) return;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    int right = sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGINT) == 1 && sigismember(&set, SIGCHLD) == 1 &&
                sigismember(&set, SIGSEGV) == 0 && sigismember(&set, SIGFPE) == 0;
    atomic_fetch_add((atomic_int *)job, right ? 1 : 1000);
}

/* made while the caller holds back one signal, which it does afterwards too */
static attn__pool *pool_with_signals(int32_t threads)
{
    sigset_t usual, given, after;
    sigemptyset(&given);
    sigaddset(&given, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &given, &usual); /* a known one: pools before this may have left theirs */
    attn__pool *pool = pool_of(memory, threads);
    pthread_sigmask(SIG_SETMASK, &usual, &after);
    for (int s = 1; s < 32; s++) assert_int_equal(sigismember(&after, s), s == SIGUSR1);
    return pool;
}

static void test_signals(void **state)
{
    (void)state;
    atomic_int right = 0;
    attn__pool *pool = pool_with_signals(3);
    attn__pool_run(pool, 12, signal_tile, &right, NULL, NULL);
    assert_true(right > 0 && right < 1000);
    attn__pool_free(pool);
}

static void test_system_refuses(void **state)
{
    (void)state;
    static counts c;
    for (int granted = 0; granted <= 3; granted++) {
        memset(&c, 0, sizeof c);
        grants = granted;
        attn__pool *pool = pool_with_signals(8);
        grants = -1;
        assert_non_null(pool);
        assert_int_equal(attn__pool_threads(pool), granted + 1);
        c.threads = granted + 1;
        assert_int_equal(attn__pool_run(pool, 500, count_tile, &c, NULL, NULL), 0);
        check_counts(&c, 500);
        attn__pool_free(pool);
    }
}

static void test_huge_count(void **state)
{
    (void)state;
    static counts c;
    memset(&c, 0, sizeof c);
    grants = 20;
    attn__pool *pool = pool_of(memory, INT32_MAX);
    grants = -1;
    assert_int_equal(attn__pool_threads(pool), 21);
    c.threads = 21;
    assert_int_equal(attn__pool_run(pool, 500, count_tile, &c, NULL, NULL), 0);
    check_counts(&c, 500);
    attn__pool_free(pool);
    assert_true(attn__cpu_count() >= 1 && attn__cpu_count() <= 256);
}

/* In a forked child there are no workers: it computes alone and frees without joining. */
static int child(attn__pool *pool)
{
    static counts c;
    memset(&c, 0, sizeof c);
    c.threads = 1;
    alarm(10);
    if (attn__pool_threads(pool) != 1 || attn__pool_workers(pool) != 4) return 1;
    for (int i = 0; i < 10; i++) { /* several times: the parent's sleepers are not here to answer a wake-up */
        if (attn__pool_run(pool, 1000, count_tile, &c, NULL, NULL) != 0) return 2;
    }
    for (int i = 0; i < 1000; i++) {
        if (c.runs[i] != 10) return 3;
    }
    attn__pool_free(pool);
    attn__pool *own = pool_of(memory, 2);
    if (own == NULL || attn__pool_threads(own) != 2) return 4;
    memset(&c, 0, sizeof c);
    c.threads = 2;
    if (attn__pool_run(own, 1000, count_tile, &c, NULL, NULL) != 0 || c.runs[999] != 1) return 5;
    attn__pool_free(own);
    return 0;
}

/* ThreadSanitizer allows no new thread in a child, OpenBLAS and we start some. */
#ifdef __SANITIZE_THREAD__
#define CAN_FORK 0
#else
#define CAN_FORK 1
#endif

static void test_fork(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    static counts c;
    int status;
    attn__pool *pool = pool_of(memory, 4);
    memset(&c, 0, sizeof c);
    c.threads = 4;
    attn__pool_run(pool, 100, count_tile, &c, NULL, NULL);
    sleep_microseconds(2000); /* the workers fall asleep */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(child(pool));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    memset(&c, 0, sizeof c);
    c.threads = 4;
    assert_int_equal(attn__pool_run(pool, 100, count_tile, &c, NULL, NULL), 0); /* the parent goes on */
    check_counts(&c, 100);
    attn__pool_free(pool);
}

static void *run_slowly(void *argument)
{
    static counts c;
    c.threads = 4;
    c.pause = 60000;
    attn__pool_run(argument, 4, count_tile, &c, NULL, NULL);
    return NULL;
}

/* The same while the pool is busy: workers that are inside a tile at that moment never come out of it in the child. */
static void test_fork_in_a_job(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    int status;
    pthread_t thread;
    attn__pool *pool = pool_of(memory, 4);
    assert_int_equal(pthread_create(&thread, NULL, run_slowly, pool), 0);
    sleep_microseconds(20000);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(child(pool));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    pthread_join(thread, NULL);
    attn__pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_tile_once),
        cmocka_unit_test(test_all_take_part),
        cmocka_unit_test(test_many_short_jobs),
        cmocka_unit_test(test_pools_side_by_side),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_on_thread),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_system_refuses),
        cmocka_unit_test(test_huge_count),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_in_a_job),
        cmocka_unit_test(test_no_call_is_missed),
        cmocka_unit_test(test_cancel_comes_too_late),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}

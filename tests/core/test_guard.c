#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/context.h"
#include "core/guard.h"

/* A BLAS of our own stands before the real one: its flavour can be chosen and every call is counted. */
static int parallel;
static atomic_int blas_threads, blas_sets, omp_sets;
static _Thread_local int omp_threads = 8;

int openblas_get_parallel(void);
int openblas_get_num_threads(void);
void openblas_set_num_threads(int threads);
char *openblas_get_config(void);
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);

int openblas_get_parallel(void)
{
    return parallel;
}
int openblas_get_num_threads(void)
{
    return blas_threads;
}
/* a fork just before the number goes back, by another thread than the one that is here: a child that computes, then looks */
static int fork_when_set;
static pid_t forked;
static void fork_now(void)
{
    int saved;
    fork_when_set = 0;
    forked = fork();
    if (forked != 0) return;
    alarm(20);
    attn__guard_enter(&saved);
    if (blas_threads != 1) _exit(1);
    attn__guard_leave(saved);
    _exit(blas_threads == 4 ? 0 : 2);
}
void openblas_set_num_threads(int threads)
{
    if (fork_when_set && threads > 1) fork_now();
    blas_threads = threads;
    blas_sets++;
}
char *openblas_get_config(void)
{
    static char text[] = "a BLAS for tests, MAX_THREADS=25";
    return text;
}
int omp_get_max_threads(void)
{
    return omp_threads;
}
void omp_set_num_threads(int threads)
{
    omp_threads = threads;
    omp_sets++;
}

static int reset(void **state)
{
    (void)state;
    parallel = 1;
    blas_threads = 4;
    omp_threads = 8;
    blas_sets = omp_sets = 0;
    return 0;
}

static void test_pthreads(void **state)
{
    (void)state;
    int saved[2];
    attn__guard_enter(&saved[0]);
    assert_int_equal(blas_threads, 1);
    attn__guard_enter(&saved[1]); /* another context */
    attn__guard_leave(saved[0]);
    assert_int_equal(blas_threads, 1);
    attn__guard_leave(saved[1]); /* the last one gives back */
    assert_int_equal(blas_threads, 4);
    assert_int_equal(blas_sets, 2);
    assert_int_equal(omp_sets, 0);
}

static void test_host_changes_the_number(void **state)
{
    (void)state;
    int saved;
    attn__guard_enter(&saved);
    blas_threads = 3; /* the host's own will, in the middle */
    attn__guard_leave(saved);
    assert_int_equal(blas_threads, 3);
    blas_threads = 1;
    blas_sets = 0;
    attn__guard_enter(&saved);
    attn__guard_leave(saved);
    assert_int_equal(blas_threads, 1);
    assert_int_equal(blas_sets, 0); /* one thread: nothing to do */
}

static void *enter_and_leave(void *argument)
{
    for (int i = 0; i < 20000; i++) {
        int saved;
        attn__guard_enter(&saved);
        if (blas_threads != 1) return argument;
        attn__guard_leave(saved);
    }
    return NULL;
}

static void test_pthreads_from_many_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, enter_and_leave, threads), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(blas_threads, 4);
}

static atomic_int inside, may_leave;
static void *stay_inside(void *argument)
{
    int saved;
    attn__guard_enter(&saved);
    inside = 1;
    while (!may_leave) usleep(1000);
    attn__guard_leave(saved);
    return argument;
}

/* A child forked while another thread computes: that thread does not exist there, its number still comes back. */
static void test_fork(void **state)
{
    (void)state;
    pthread_t thread;
    int status, saved;
    inside = may_leave = 0;
    assert_int_equal(pthread_create(&thread, NULL, stay_inside, NULL), 0);
    while (!inside) usleep(1000);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        attn__guard_enter(&saved);
        if (blas_threads != 1) _exit(1);
        attn__guard_leave(saved);
        _exit(blas_threads == 4 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    may_leave = 1;
    pthread_join(thread, NULL);
    assert_int_equal(blas_threads, 4);
}

static void test_fork_while_the_number_goes_back(void **state)
{
    (void)state;
    int saved, status;
    attn__guard_enter(&saved);
    fork_when_set = 1;
    attn__guard_leave(saved);
    assert_int_equal(waitpid(forked, &status, 0), forked);
    assert_int_equal(status, 0);
    assert_int_equal(blas_threads, 4);
}

static void test_openmp(void **state)
{
    (void)state;
    int saved;
    parallel = 2;
    attn__guard_enter(&saved);
    assert_int_equal(omp_threads, 1);
    attn__guard_leave(saved);
    assert_int_equal(omp_threads, 8);
    assert_int_equal(blas_sets, 0);
    attn__guard_enter(&saved);
    omp_threads = 5;
    attn__guard_leave(saved);
    assert_int_equal(omp_threads, 5);
    omp_threads = 1;
    omp_sets = 0;
    attn__guard_enter(&saved);
    attn__guard_leave(saved);
    assert_int_equal(omp_threads, 1);
    assert_int_equal(omp_sets, 0);
}

static void test_without_threads(void **state)
{
    (void)state;
    int saved;
    parallel = 0;
    attn__guard_enter(&saved);
    attn__guard_thread();
    attn__guard_leave(saved);
    assert_int_equal(blas_sets + omp_sets, 0);
    assert_string_equal(attn__guard_blas_config(), "a BLAS for tests, MAX_THREADS=25");
}

static atomic_int inside_now, most_inside;
static int64_t turns; /* plain memory */
static void *take_turns(void *argument)
{
    for (int i = 0; i < 5000; i++) {
        int seat = attn__guard_seat();
        int now = atomic_fetch_add(&inside_now, 1) + 1, most = most_inside;
        while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now)) continue;
        if (argument != NULL) turns++;
        if (i % 50 == 0) usleep(100);
        atomic_fetch_sub(&inside_now, 1);
        attn__guard_rise(seat);
    }
    return NULL;
}

static void crowd(void *argument)
{
    pthread_t threads[40];
    most_inside = 0;
    for (int i = 0; i < 40; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_turns, argument), 0);
    for (int i = 0; i < 40; i++) pthread_join(threads[i], NULL);
}

static void expect_free_child(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        for (int i = 0; i < 5; i++) attn__guard_rise(attn__guard_seat());
        _exit(attn__guard_seat() == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* OpenBLAS without threads is entered by one thread at a time; a child forked meanwhile waits for nobody */
static void test_one_at_a_time(void **state)
{
    (void)state;
    parallel = 0;
    turns = 0;
    crowd(&turns);
    assert_int_equal(turns, 40 * 5000);
    assert_int_equal(most_inside, 1);
    int seat = attn__guard_seat();
    assert_int_equal(seat, 1);
    expect_free_child();
    attn__guard_rise(seat);
}

/* with threads of its own, by as many as it has buffers for, once there are pools with more */
static void test_as_many_as_there_is_room(void **state)
{
    (void)state;
    for (parallel = 1; parallel <= 2; parallel++) {
        assert_int_equal(attn__guard_seat(), 0);
        attn__guard_count(26);
        crowd(NULL);
        if (most_inside < 2 || most_inside > 25) fail_msg("%d threads were inside at once", most_inside);
        for (int i = 0; i < 25; i++) assert_int_equal(attn__guard_seat(), 1);
        expect_free_child();
        for (int i = 0; i < 25; i++) attn__guard_rise(1);
        attn__guard_count(-26);
        assert_int_equal(attn__guard_seat(), 0);
    }
}

typedef struct seen {
    atomic_int blas, omp; /* tiles that saw more than one thread */
} seen;

static void look(void *job, int64_t tile, int32_t worker)
{
    seen *s = job;
    (void)tile;
    (void)worker;
    if (blas_threads != 1) atomic_fetch_add(&s->blas, 1);
    if (omp_threads != 1) atomic_fetch_add(&s->omp, 1);
    usleep(2000);
}

/* Every thread that computes is held to one, and after the call the caller finds what it had. */
static void test_context(void **state)
{
    (void)state;
    for (int guarded = 0; guarded <= 1; guarded++) {
        for (parallel = 1; parallel <= 2; parallel++) {
            attn_context_options options;
            attn_context *ctx;
            seen s = {0};
            blas_threads = 4;
            omp_threads = 8;
            blas_sets = omp_sets = 0;
            attn_context_options_init(&options, sizeof options);
            options.threads = 3;
            options.guard_blas = guarded;
            assert_int_equal(attn_context_create(&options, &ctx), ATTN_OK);
            assert_int_equal(attn__enter(ctx), ATTN_OK);
            assert_int_equal(attn__enter(ctx), ATTN_OK); /* nested: only the outer pair acts */
            assert_int_equal(attn__leave(ctx, ATTN_OK), ATTN_OK);
            assert_int_equal(attn__run(ctx, 12, look, &s), ATTN_OK);
            assert_int_equal(attn__leave(ctx, ATTN_OK), ATTN_OK);
            if (guarded)
                assert_int_equal(parallel == 1 ? s.blas : s.omp, 0);
            else
                assert_int_equal(blas_sets + omp_sets, 0);
            assert_int_equal(blas_threads, 4);
            assert_int_equal(omp_threads, 8);
            attn_context_free(ctx);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_pthreads, reset),
        cmocka_unit_test_setup(test_host_changes_the_number, reset),
        cmocka_unit_test_setup(test_pthreads_from_many_threads, reset),
        cmocka_unit_test_setup(test_fork, reset),
        cmocka_unit_test_setup(test_fork_while_the_number_goes_back, reset),
        cmocka_unit_test_setup(test_openmp, reset),
        cmocka_unit_test_setup(test_without_threads, reset),
        cmocka_unit_test_setup(test_one_at_a_time, reset),
        cmocka_unit_test_setup(test_as_many_as_there_is_room, reset),
        cmocka_unit_test_setup(test_context, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

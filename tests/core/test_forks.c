#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/forks.h"
#include "kernels/blas/gemm.h"

/* A child that hangs is ended by its alarm, and that is a failure. */
enum { MOST_SECONDS = 20 };

#ifdef __SANITIZE_THREAD__
#define CAN_FORK 0 /* ThreadSanitizer allows no new thread in a child of a process with threads, and has it end with a report of its own */
#else
#define CAN_FORK 1
#endif

static void expect_child(pid_t pid)
{
    int status;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0) fail_msg("the child ended with status 0x%x", (unsigned)status);
}

/* in a child: it holds and forks without waiting for anybody */
static void child_is_free(void)
{
    alarm(MOST_SECONDS);
    for (int i = 0; i < 3; i++) {
        attn__forks_hold();
        attn__forks_release();
    }
    pid_t next = fork();
    if (next == 0) _exit(0);
    int status = 0;
    if (waitpid(next, &status, 0) != next || status != 0) _exit(1);
}

/* a child that no handler of fork sees begin; 0 in the child, -1 where that is another call */
static pid_t fork_unseen(void)
{
#if defined __linux__ && (defined __x86_64__ || defined __aarch64__)
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#else
    return -1;
#endif
}

typedef struct holder {
    atomic_int holds, entered, may_go, left;
    int depth;
} holder;

static void *hold(void *argument)
{
    holder *h = argument;
    attn__forks_hold();
    h->holds = 1;
    for (int i = 0; i < 10 && !h->may_go; i++) usleep(10000);
    for (int i = 1; i < h->depth; i++) attn__forks_hold(); /* while a fork waits for this thread */
    for (int i = 1; i < h->depth; i++) attn__forks_release();
    usleep(20000);
    h->left = 1;
    attn__forks_release();
    return NULL;
}

/* a fork beside a thread that holds it off: 1 if it has waited */
static int fork_beside(int depth)
{
    holder other = {.depth = depth};
    pthread_t id;
    int status = 0;
    if (pthread_create(&id, NULL, hold, &other) != 0) return 0;
    while (!other.holds) usleep(100);
    pid_t pid = fork();
    int left = other.left;
    if (pid == 0) {
        child_is_free();
        _exit(left ? 0 : 1);
    }
    pthread_join(id, NULL);
    return left && waitpid(pid, &status, 0) == pid && status == 0;
}

/* a fork waits for those who hold it off, with many threads beside each other and holds within holds */
static void test_fork_waits(void **state)
{
    enum { THREADS = 40 };
    (void)state;
    if (!CAN_FORK) skip();
    for (int threads = 1; threads <= THREADS; threads += THREADS - 1) {
        pthread_t ids[THREADS];
        holder holders[THREADS] = {0};
        for (int i = 0; i < threads; i++) {
            holders[i].depth = 1 + i % 3;
            assert_int_equal(pthread_create(&ids[i], NULL, hold, &holders[i]), 0);
            while (!holders[i].holds) usleep(100);
        }
        pid_t pid = fork();
        int left = 0;
        for (int i = 0; i < threads; i++) left += holders[i].left;
        if (pid == 0) {
            if (left != threads) _exit(2);
            child_is_free();
            _exit(0);
        }
        assert_int_equal(left, threads);
        expect_child(pid);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    }
}

/* what comes while a fork is under way waits for its end; prepared before the library is, this runs when the library has prepared */
static atomic_int fork_is_watched, unseen, entered_early; /* seen there, judged when the fork is over */
static pid_t unseen_child;
static pthread_t late;
static holder late_holder;
static void *enter_late(void *argument)
{
    attn__forks_hold();
    ((holder *)argument)->entered = 1;
    attn__forks_release();
    return NULL;
}

static void prepared(void)
{
    if (!fork_is_watched) return;
    fork_is_watched = 0;
    if (pthread_create(&late, NULL, enter_late, &late_holder) != 0) abort();
    usleep(50000);
    entered_early = late_holder.entered;
    if (!unseen) return;
    unseen_child = fork_unseen();
    if (unseen_child == 0) {
        child_is_free();
        _exit(0);
    }
}

static void watch_a_fork(int with_unseen)
{
    late_holder = (holder){0};
    unseen = with_unseen;
    fork_is_watched = 1;
    pid_t pid = fork();
    if (pid == 0) {
        child_is_free();
        _exit(0);
    }
    pthread_join(late, NULL);
    assert_int_equal(late_holder.entered, 1);
    assert_int_equal(fork_is_watched, 0);
    assert_int_equal(entered_early, 0);
    expect_child(pid);
    if (with_unseen && unseen_child > 0) expect_child(unseen_child);
}

static void test_hold_waits(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    for (int i = 0; i < 3; i++) watch_a_fork(0);
}

/* A fork within a hold of the same thread doesn't wait for it, nor does its child; what others hold is waited for all the same, in the child
   as well. */
static void test_own_thread(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    for (int depth = 0; depth <= 2; depth++) {
        for (int i = 0; i < depth; i++) attn__forks_hold();
        assert_true(fork_beside(2));
        pid_t pid = fork();
        if (pid == 0) {
            alarm(MOST_SECONDS);
            if (!fork_beside(1)) _exit(2);
            child_is_free();
            for (int i = 0; i < depth; i++) attn__forks_release();
            if (!fork_beside(1)) _exit(3);
            _exit(0);
        }
        expect_child(pid);
        for (int i = 0; i < depth; i++) attn__forks_release();
    }
}

/* what other threads held when a child began unseen is not waited for there */
static void test_unseen_child(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    watch_a_fork(1);
    holder other = {.depth = 1};
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, hold, &other), 0);
    while (!other.holds) usleep(100);
    pid_t pid = fork_unseen();
    if (pid == 0) {
        child_is_free();
        _exit(0);
    }
    other.may_go = 1;
    pthread_join(id, NULL);
    if (pid > 0) expect_child(pid);
}

/* A product for which OpenBLAS takes a buffer. The lock of the buffer is held for some nanoseconds: one child in a thousand hangs if no fork
   waits. */
static int product(void)
{
    enum { SIDE = 64, TERMS = 2 };
    static const float a[SIDE * TERMS] = {1, 2};
    float c[SIDE * SIDE];
    return attn__sgemm(0, 1, SIDE, SIDE, TERMS, 1, a, TERMS, a, TERMS, 0, c, SIDE) != 0 || c[0] != 5;
}

static atomic_int stop;
static void *multiply(void *argument)
{
    while (!stop)
        if (product() != 0) *(atomic_int *)argument = 1;
    return NULL;
}

static void test_products(void **state)
{
    enum { FORKS = 3000 };
    (void)state;
    if (!CAN_FORK) skip();
    atomic_int wrong = 0;
    pthread_t thread;
    assert_int_equal(product(), 0);
    assert_int_equal(pthread_create(&thread, NULL, multiply, &wrong), 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(MOST_SECONDS);
            _exit(product());
        }
        expect_child(pid);
    }
    stop = 1;
    pthread_join(thread, NULL);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    if (pthread_atfork(prepared, NULL, NULL) != 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fork_waits), cmocka_unit_test(test_hold_waits),
                                       cmocka_unit_test(test_own_thread), cmocka_unit_test(test_unseen_child),
                                       cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

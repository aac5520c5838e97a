#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>
#include "support/blas.h"
#include "support/scenario.h"

/* A process that cannot make threads: once with a pthread_create that refuses after so many, which every library of the process gets,
   once by the system's own limit. */
static int grants = -1; /* -1: no limit */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    create_function *next;
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    if (grants == 0) return EAGAIN;
    if (grants > 0) grants--;
    memcpy(&next, &symbol, sizeof next);
    return next(thread, attributes, start, argument);
}

static digest expected[SCENARIOS];
static int create(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    for (int which = 0; which < SCENARIOS; which++) expected[which] = scenario_whole(ctx, which);
    attn_context_free(ctx);
    return 0;
}

static void expect_same(int32_t wanted, int32_t threads)
{
    int32_t made = 0;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, wanted, 0);
    OK(ctx, attn_context_threads(ctx, &made));
    assert_int_equal(made, threads);
    for (int which = 0; which < SCENARIOS; which++) {
        if (scenario_whole(ctx, which) != expected[which]) fail_msg("%s, %d threads: other bytes", scenario_name(which), (int)made);
    }
    attn_context_free(ctx);
}

static void test_refused_after_some(void **state)
{
    (void)state;
    for (int granted = 0; granted <= 2; granted++) {
        grants = granted;
        expect_same(4, granted + 1);
        assert_int_equal(grants, 0);
        grants = -1;
    }
}

static void *nothing(void *argument)
{
    return argument;
}

/* The last test: the process gives up its rights for good. Root is not bound by the limit, so it becomes nobody. */
static void test_limit_of_the_system(void **state)
{
    (void)state;
    const struct rlimit one = {1, 1};
    pthread_t thread;
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) skip();
    assert_int_equal(setrlimit(RLIMIT_NPROC, &one), 0);
    if (pthread_create(&thread, NULL, nothing, NULL) == 0) { /* a system that does not know the limit */
        pthread_join(thread, NULL);
        skip();
    }
    expect_same(4, 1);
    expect_same(ATTN_THREADS_ALL, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused_after_some), cmocka_unit_test(test_limit_of_the_system)};
    return cmocka_run_group_tests(tests, create, NULL);
}

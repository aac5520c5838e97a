#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The guard beside BLIS, which this file plays. The tests' own OpenBLAS would answer first, so the guard is compiled once more, here,
   with names for OpenBLAS that nobody has. */
#define openblas_get_parallel absent_get_parallel
#define openblas_get_config absent_get_config
#include "core/guard.c" /* NOLINT: on purpose */

static intptr_t blis_threads, sets;
intptr_t bli_thread_get_num_threads(void)
{
    return blis_threads;
}
void bli_thread_set_num_threads(intptr_t threads)
{
    blis_threads = threads;
    sets++;
}

static void round_of(intptr_t threads, intptr_t host, intptr_t inside_expected, intptr_t after, intptr_t sets_expected)
{
    int saved[2];
    blis_threads = threads;
    sets = 0;
    attn__guard_enter(&saved[0]);
    attn__guard_enter(&saved[1]);
    attn__guard_thread();
    assert_int_equal(blis_threads, inside_expected);
    attn__guard_leave(saved[0]);
    assert_int_equal(blis_threads, inside_expected);
    if (host > 0) blis_threads = host;
    attn__guard_leave(saved[1]);
    assert_int_equal(blis_threads, after);
    assert_int_equal(sets, sets_expected);
}

static void test_blis(void **state)
{
    (void)state;
    round_of(8, 0, 1, 8, 2);
    round_of(8, 3, 1, 3, 1);                /* the host changed it meanwhile: its will stands */
    round_of(1, 0, 1, 1, 0);                /* nothing to do */
    round_of(-1, 0, -1, -1, 0);             /* not set by anybody: one thread */
    round_of(INTPTR_MAX, 0, 1, INT_MAX, 2); /* no number of BLIS's own making */
}

static void test_config(void **state)
{
    (void)state;
    assert_string_equal(attn__guard_blas_config(), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blis), cmocka_unit_test(test_config)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

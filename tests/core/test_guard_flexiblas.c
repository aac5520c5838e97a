#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <cmocka.h>

/* The guard beside FlexiBLAS, which this file plays, with a BLAS on OpenMP behind it. The tests' own OpenBLAS would answer first, so the
   guard is compiled once more, here, with names for OpenBLAS that nobody has. */
#define openblas_get_parallel absent_get_parallel
#define openblas_get_config absent_get_config
#include "core/guard.c" /* NOLINT: on purpose */

static int blas_threads;
static _Thread_local int omp_threads = 8;
int flexiblas_get_num_threads(void)
{
    return blas_threads;
}
/* such a BLAS sets the calling thread's number along with its own */
void flexiblas_set_num_threads(int threads)
{
    blas_threads = omp_threads = threads;
}
int omp_get_max_threads(void)
{
    return omp_threads;
}
void omp_set_num_threads(int threads)
{
    omp_threads = threads;
}

static void *worker(void *result)
{
    attn__guard_thread();
    *(int *)result = omp_threads;
    return NULL;
}

/* both numbers come back, also where they differ */
static void test_both_are_held(void **state)
{
    (void)state;
    static const struct {
        int blas, omp;
    } cases[] = {{8, 8}, {8, 5}, {1, 8}, {4, 1}, {1, 1}, {0, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int saved, seen = 0;
        pthread_t thread;
        blas_threads = cases[i].blas;
        omp_threads = cases[i].omp;
        attn__guard_enter(&saved);
        assert_true(blas_threads <= 1);
        assert_int_equal(omp_threads, 1);
        assert_int_equal(pthread_create(&thread, NULL, worker, &seen), 0);
        pthread_join(thread, NULL);
        assert_int_equal(seen, 1);
        attn__guard_leave(saved);
        assert_int_equal(blas_threads, cases[i].blas);
        assert_int_equal(omp_threads, cases[i].omp);
    }
}

static void test_host_changes_the_number(void **state)
{
    (void)state;
    int saved;
    blas_threads = omp_threads = 8;
    attn__guard_enter(&saved);
    flexiblas_set_num_threads(3);
    attn__guard_leave(saved);
    assert_int_equal(blas_threads, 3);
    assert_int_equal(omp_threads, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_both_are_held), cmocka_unit_test(test_host_changes_the_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

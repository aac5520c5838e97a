#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <cmocka.h>

/* The guard beside FlexiBLAS, which this file plays. The tests' own OpenBLAS would answer first, so the guard is compiled once more, here,
   with names for OpenBLAS that nobody has. */
#define openblas_get_parallel absent_get_parallel
#define openblas_get_config absent_get_config
#include "core/guard.c" /* NOLINT: on purpose */

static int
    behind; /* 1: a BLAS with a number for the process, 2: one on OpenMP, which sets the calling thread's number along with its own */
static int blas_threads, blas_moves;
static _Thread_local int omp_threads = 8;
int flexiblas_get_num_threads(void)
{
    return blas_threads;
}
void flexiblas_set_num_threads(int threads)
{
    blas_moves += threads != blas_threads;
    blas_threads = threads;
    if (behind == 2) omp_threads = threads;
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

static int processes(void **state)
{
    (void)state;
    behind = 1;
    guard.flexiblas = 0;
    return 0;
}

static int openmp(void **state)
{
    (void)state;
    behind = 2;
    guard.flexiblas = 0;
    return 0;
}

static const struct {
    int blas, omp;
} cases[] = {{8, 8}, {8, 5}, {1, 8}, {4, 1}, {1, 1}, {8, 9}};

static void test_process(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int saved;
        blas_threads = cases[i].blas;
        omp_threads = cases[i].omp;
        attn__guard_enter(&saved);
        assert_int_equal(blas_threads, 1);
        assert_int_equal(omp_threads, cases[i].omp);
        attn__guard_leave(saved);
        assert_int_equal(blas_threads, cases[i].blas);
        assert_int_equal(omp_threads, cases[i].omp);
    }
}

/* each thread is held by its own number, the caller's comes back, and the library's stays as it is throughout */
static void test_openmp(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int saved, seen = 0;
        pthread_t thread;
        blas_threads = cases[i].blas;
        omp_threads = cases[i].omp;
        blas_moves = 0;
        attn__guard_enter(&saved);
        assert_int_equal(omp_threads, 1);
        assert_int_equal(pthread_create(&thread, NULL, worker, &seen), 0);
        pthread_join(thread, NULL);
        assert_int_equal(seen, 1);
        attn__guard_leave(saved);
        assert_int_equal(omp_threads, cases[i].omp);
        assert_int_equal(blas_moves, 0);
        attn__guard_enter(&saved);
        omp_threads = 3; /* the host's own will */
        attn__guard_leave(saved);
        assert_int_equal(omp_threads, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_process, processes), cmocka_unit_test_setup(test_openmp, openmp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

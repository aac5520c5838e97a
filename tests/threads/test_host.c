#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cblas.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "support/blas.h"
#include "support/scenario.h"

/* A host program that uses BLAS, with threads, beside us: our bytes, its results and its settings are what they are without the other. */
enum { SIDE = 320, HOST_THREADS = 4 };
typedef struct host {
    atomic_int stop, products, wrong, setting_moved;
} host;

/* OpenBLAS built without threads is not to be called by two threads at once: the host must not, and we do not */
static int host_may_multiply(void)
{
    return strcmp(blas_flavour(), "openblas-serial") != 0;
}

/* numbers small enough for exact sums: every element of the product is SIDE, however it is cut */
static void *multiply(void *argument)
{
    host *h = argument;
    float *a = malloc(3 * SIDE * SIDE * sizeof *a), *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    if (a == NULL) return argument;
    for (int i = 0; i < SIDE * SIDE; i++) a[i] = b[i] = 1;
    blas_set_openmp_threads(HOST_THREADS);
    while (!h->stop) {
        for (int i = 0; i < SIDE * SIDE; i++) c[i] = -1;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, c, SIDE);
        for (int i = 0; i < SIDE * SIDE; i++) h->wrong += c[i] != SIDE;
        if (blas_openmp_threads() > 0 && blas_openmp_threads() != HOST_THREADS) h->setting_moved = 1;
        h->products++;
        usleep(500); /* two processors and many threads: let the others in */
    }
    free(a);
    return NULL;
}

/* what the host chose before the library computed for the first time */
static int chosen_threads, chosen_openmp;
static void expect_settings(void)
{
    assert_int_equal(blas_threads(), chosen_threads);
    assert_int_equal(blas_openmp_threads(), chosen_openmp);
}

static digest alone[SCENARIOS];
static int create(void **state)
{
    (void)state;
    blas_set_threads(HOST_THREADS);
    blas_set_openmp_threads(HOST_THREADS);
    chosen_threads = blas_threads();
    chosen_openmp = blas_openmp_threads();
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    for (int which = 0; which < SCENARIOS; which++) alone[which] = scenario_whole(ctx, which);
    attn_context_free(ctx);
    return 0;
}

static void test_host_multiplies(void **state)
{
    (void)state;
    host h = {0};
    pthread_t thread;
    void *failed;
    if (!host_may_multiply()) skip();
    assert_int_equal(pthread_create(&thread, NULL, multiply, &h), 0);
    while (h.products < 3) usleep(1000);
    for (int32_t n = 1; n <= 4; n++) {
        attn_context *ctx = model_context(ATTN_BACKEND_BLAS, n, 0);
        for (int which = 0; which < SCENARIOS; which++) {
            if (scenario_whole(ctx, which) != alone[which]) fail_msg("%s, %d threads: other bytes", scenario_name(which), (int)n);
            expect_settings();
        }
        attn_context_free(ctx);
    }
    h.stop = 1;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_true(h.products > 3);
    assert_int_equal(h.wrong, 0);
    assert_int_equal(h.setting_moved, 0);
    expect_settings();
}

static void *compute(void *argument)
{
    int which = *(int *)argument;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    int same = scenario_whole(ctx, which) == alone[which];
    attn_context_free(ctx);
    return same ? NULL : argument;
}

/* several contexts at once, in threads that were made meanwhile: the last of them gives the setting back */
static void test_contexts_beside_each_other(void **state)
{
    (void)state;
    host h = {0};
    pthread_t thread[SCENARIOS], multiplier;
    int which[SCENARIOS];
    void *failed;
    if (host_may_multiply()) assert_int_equal(pthread_create(&multiplier, NULL, multiply, &h), 0);
    for (int i = 0; i < SCENARIOS; i++) {
        which[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, compute, &which[i]), 0);
    }
    for (int i = 0; i < SCENARIOS; i++) {
        pthread_join(thread[i], &failed);
        if (failed != NULL) fail_msg("%s: other bytes", scenario_name(i));
    }
    h.stop = 1;
    if (host_may_multiply()) pthread_join(multiplier, NULL);
    assert_int_equal(h.wrong, 0);
    assert_int_equal(h.setting_moved, 0);
    expect_settings();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_host_multiplies), cmocka_unit_test(test_contexts_beside_each_other)};
    return cmocka_run_group_tests(tests, create, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/blas/gemm.h"
#include "support/scenario.h"

/* Far more threads in products at once than OpenBLAS has buffers for. It would say so on standard error, and some hundred threads later end
   the process. Neither may happen, and the numbers are right. */
enum { CONTEXTS = 10, THREADS = 60, CALLERS = CONTEXTS * THREADS, SIDE = 160, ROUNDS = 12 };
static pthread_barrier_t start;

/* ones: every element of the product is SIDE */
static void *multiply(void *argument)
{
    float *a = malloc(3 * SIDE * SIDE * sizeof *a), *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    int wrong = a == NULL;
    for (int i = 0; i < SIDE * SIDE && !wrong; i++) a[i] = b[i] = 1;
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS && !wrong; round++) {
        wrong = attn__sgemm(0, 0, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, c, SIDE);
        for (int i = 0; i < SIDE * SIDE; i++) wrong |= c[i] != SIDE;
    }
    free(a);
    return wrong ? argument : NULL;
}

static int run_all(void)
{
    static pthread_t threads[CALLERS];
    int wrong = 0;
    assert_int_equal(pthread_barrier_init(&start, NULL, CALLERS), 0);
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, multiply, threads), 0);
    for (int i = 0; i < CALLERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        wrong += failed != NULL;
    }
    pthread_barrier_destroy(&start);
    return wrong;
}

static void test_more_threads_than_buffers(void **state)
{
    (void)state;
    attn_context *contexts[CONTEXTS];
    char text[512] = "";
    FILE *said = tmpfile();
    assert_non_null(said);
    for (int i = 0; i < CONTEXTS; i++) { /* their pools tell that so many may come; the callers stand for their workers */
        int32_t made = 0;
        contexts[i] = model_context(ATTN_BACKEND_BLAS, THREADS, 0);
        OK(contexts[i], attn_context_threads(contexts[i], &made));
        assert_int_equal(made, THREADS);
    }
    attn_context *one = model_context(ATTN_BACKEND_BLAS, 1, 0);
    const digest expected = scenario_whole(one, 1);
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && dup2(fileno(said), STDERR_FILENO) >= 0);
    int wrong = run_all();
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(said);
    if (fgets(text, sizeof text, said) != NULL) fail_msg("BLAS wrote on standard error: %s", text);
    fclose(said);
    assert_int_equal(wrong, 0);
    for (int i = 0; i < CONTEXTS; i++) {
        if (i == 0) assert_true(scenario_whole(contexts[i], 1) == expected); /* seats are still taken now and change nothing */
        attn_context_free(contexts[i]);
    }
    assert_true(scenario_whole(one, 1) == expected);
    attn_context_free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_more_threads_than_buffers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <cmocka.h>
#include "support/scenario.h"

/* Many threads, each with its own context, share one model: all of them write what one alone writes, and the model stays as it is. */
enum { READERS = 8 };
typedef struct reader {
    pthread_barrier_t *start;
    const attn_transformer *model;
    int32_t backend, threads;
    int which, rounds;
    digest expected;
    const char *wrong;
} reader;

static void *read_model(void *argument)
{
    reader *r = argument;
    attn_context *ctx = model_context(r->backend, r->threads, 0);
    pthread_barrier_wait(r->start);
    for (int i = 0; i < r->rounds && r->wrong == NULL; i++) {
        if (scenario_read(ctx, r->which, r->model) != r->expected) r->wrong = "other bytes than alone";
    }
    attn_context_free(ctx);
    return NULL;
}

static void share(int32_t backend, int which, int rounds)
{
    pthread_barrier_t start;
    pthread_t threads[READERS];
    reader readers[READERS];
    attn_context *ctx = model_context(backend, 1, 0);
    attn_transformer *model = scenario_model(ctx, which);
    const digest before = digest_parameters(attn_transformer_parameters(model)), expected = scenario_read(ctx, which, model);
    attn_context_free(ctx); /* the model outlives its context */
    assert_int_equal(pthread_barrier_init(&start, NULL, READERS), 0);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader){.start = &start, .model = model, .backend = backend, .threads = 1 + i % 3, .which = which};
        readers[i].rounds = rounds;
        readers[i].expected = expected;
        assert_int_equal(pthread_create(&threads[i], NULL, read_model, &readers[i]), 0);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        if (readers[i].wrong != NULL) fail_msg("%s, thread %d: %s", scenario_name(which), i, readers[i].wrong);
    }
    assert_true(digest_parameters(attn_transformer_parameters(model)) == before);
    pthread_barrier_destroy(&start);
    attn_transformer_free(model);
}

static void test_blas(void **state)
{
    (void)state;
    for (int which = 0; which < SCENARIOS; which++) share(ATTN_BACKEND_BLAS, which, 1);
}

static void test_reference(void **state)
{
    (void)state;
    share(ATTN_BACKEND_REFERENCE, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blas), cmocka_unit_test(test_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <cmocka.h>
#include "core/context.h"
#include "data/dataset.h"
#include "support/model.h"
#include "tensor/mask.h"
#include "tensor/parameters.h"
#include "tensor/tensor.h"

/* What several may hold is counted: by many threads at once no count is lost, so it is freed by the last, and not before. */
#ifdef __SANITIZE_THREAD__ /* sees a race at the first meeting, and takes its time for each */
enum { ROUNDS = 4 };
#else
enum { ROUNDS = 400 };
#endif
enum { HOLDERS = 4, TIMES = 20000, ALL = HOLDERS * ROUNDS * TIMES };

static void hold_memory(void *what)
{
    attn__memory_retain(what);
}
static void hold_parameters(void *what)
{
    attn__parameters_retain(what);
}
static void hold_mask(void *what)
{
    attn__mask_retain(what);
}
static void hold_storage(void *what)
{
    attn__storage_retain(what);
}
static void hold_dataset(void *what)
{
    attn__dataset_retain(what);
}
static void let_memory(void *what)
{
    attn__memory_release(what);
}
static void let_parameters(void *what)
{
    attn__parameters_release(what);
}
static void let_mask(void *what)
{
    attn_mask_free(what);
}
static void let_storage(void *what)
{
    attn__storage_release(what);
}
static void let_dataset(void *what)
{
    attn_dataset_free(what);
}

typedef struct counted {
    const char *name;
    void (*hold)(void *what), (*let)(void *what);
} counted;
static const counted kinds[] = {{"memory", hold_memory, let_memory},
                                {"parameters", hold_parameters, let_parameters},
                                {"mask", hold_mask, let_mask},
                                {"storage", hold_storage, let_storage},
                                {"data set", hold_dataset, let_dataset}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct holder {
    const counted *kind;
    void *what;
    atomic_int *arrived;
} holder;

static void *hold(void *argument)
{
    const holder *h = argument;
    for (int round = 1; round <= ROUNDS; round++) { /* who waits asleep would begin when the others are through */
        atomic_fetch_add(h->arrived, 1);
        while (atomic_load(h->arrived) < HOLDERS * round) sched_yield();
        for (int i = 0; i < TIMES; i++) h->kind->hold(h->what);
    }
    return NULL;
}

static void check(const counted *kind, void *what, test_allocator *allocator)
{
    atomic_int arrived = 0;
    pthread_t threads[HOLDERS];
    holder h = {kind, what, &arrived};
    const long long before = allocator->live_pointers;
    for (int i = 0; i < HOLDERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, hold, &h), 0);
    for (int i = 0; i < HOLDERS; i++) pthread_join(threads[i], NULL);
    for (int i = 1; i <= ALL; i++) {
        kind->let(what);
        if (allocator->live_pointers != before) fail_msg("%s: freed with the release %d of %d", kind->name, i, ALL + 1);
    }
}

static void test_no_count_is_lost(void **state)
{
    (void)state;
    test_allocator allocator;
    memset(&allocator, 0, sizeof allocator);
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 1);
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = model_create(ctx, &o);
    attn_tensor *tensor = model_tensor(ctx, ATTN_FLOAT32, 2, 3);
    attn_mask *mask = NULL;
    attn_dataset *dataset = NULL;
    const int32_t tokens[300] = {0};
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask));
    OK(ctx, attn_dataset_tokens(ctx, tokens, 300, NULL, &dataset));
    void *const what[KINDS] = {ctx->memory, attn_transformer_parameters(model), mask, tensor->storage, dataset};
    for (int i = 0; i < KINDS; i++) check(&kinds[i], what[i], &allocator);
    attn_dataset_free(dataset);
    attn_mask_free(mask);
    attn_tensor_free(tensor);
    attn_transformer_free(model);
    attn_context_free(ctx);
    assert_int_equal(allocator.live_pointers, 0);
    assert_int_equal(allocator.wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_count_is_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What several objects hold is counted: threads that take and let go at the same time lose no count, and of two that let go of the last two in
   the same moment one frees it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <cmocka.h>
#include "core/context.h"
#include "data/dataset.h"
#include "support/meet.h"
#include "support/model.h"
#include "tensor/mask.h"
#include "tensor/parameters.h"
#include "tensor/tensor.h"

enum { HELD = 200000, PAIRS = 20000, SECONDS = 1 }; /* of a kind: rounds, and when it is enough */

typedef struct kind {
    const char *name;
    void *(*make)(attn_context *ctx);
    void (*retain)(void *object);
    void (*release)(void *object);
} kind;

#define COUNTED(what, take, let_go) \
    static void retain_##what(void *object) \
    { \
        take(object); \
    } \
    static void release_##what(void *object) \
    { \
        let_go(object); \
    }

static void *make_storage(attn_context *ctx)
{
    attn_tensor *tensor = NULL;
    OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 1, &(int64_t){3}, &tensor));
    attn__storage *storage = attn__storage_retain(tensor->storage);
    attn_tensor_free(tensor);
    return storage;
}
COUNTED(storage, attn__storage_retain, attn__storage_release)

static void *make_mask(attn_context *ctx)
{
    attn_mask *mask = NULL;
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask));
    return mask;
}
COUNTED(mask, attn__mask_retain, attn_mask_free)

static void *make_parameters(attn_context *ctx)
{
    attn_parameters *parameters = NULL;
    OK(ctx, attn__parameters_create(ctx, ATTN_FLOAT32, &parameters));
    return parameters;
}
COUNTED(parameters, attn__parameters_retain, attn__parameters_release)

static void *make_dataset(attn_context *ctx)
{
    static const int32_t tokens[5] = {1, 2, 3, 4, 0};
    attn_dataset_options o;
    attn_dataset *dataset = NULL;
    OK(ctx, attn_dataset_options_init(&o, sizeof o));
    o.context = o.batch = 1;
    OK(ctx, attn_dataset_tokens(ctx, tokens, 5, &o, &dataset));
    return dataset;
}
COUNTED(dataset, attn__dataset_retain, attn_dataset_free)

static test_allocator counted;
static void *make_memory(attn_context *ctx)
{
    (void)ctx;
    const attn_allocator hooks = test_allocator_hooks(&counted);
    return attn__memory_create(&hooks, -1);
}
COUNTED(memory, attn__memory_retain, attn__memory_release)

static const kind kinds[] = {{"storage", make_storage, retain_storage, release_storage},
                             {"mask", make_mask, retain_mask, release_mask},
                             {"parameters", make_parameters, retain_parameters, release_parameters},
                             {"data set", make_dataset, retain_dataset, release_dataset},
                             {"memory", make_memory, retain_memory, release_memory}};

typedef struct holder {
    const kind *kind;
    pthread_t thread;
    int number;
} holder;
static void *_Atomic shared;
static attn_context *ctx; /* used by one thread at a time */
static int kept;          /* objects that two let go of and that are still there */

static void run_two(void *(*body)(void *), const kind *k)
{
    holder holders[2] = {{.kind = k, .number = 0}, {.kind = k, .number = 1}};
    atomic_store(&meet_arrivals, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&holders[i].thread, NULL, body, &holders[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(holders[i].thread, NULL);
}

static void *hold_again_and_again(void *argument)
{
    const holder *h = argument;
    void *object = atomic_load(&shared);
    meet_on(h->number);
    meet(2);
    for (int i = 0; i < HELD; i++) {
        h->kind->retain(object);
        h->kind->release(object);
    }
    return NULL;
}

static void *let_go_together(void *argument)
{
    const holder *h = argument;
    const double from = meet_seconds();
    const long long live = atomic_load(&counted.live_pointers);
    meet_on(h->number);
    for (int64_t round = 0;; round++) {
        if (h->number == 0) {
            const int over = round == PAIRS || meet_seconds() - from > SECONDS;
            void *object = over ? NULL : h->kind->make(ctx);
            if (object != NULL) h->kind->retain(object);
            atomic_store(&shared, object);
        }
        meet(6 * round + 2);
        void *object = atomic_load(&shared);
        if (object == NULL) return NULL;
        meet(6 * round + 4);
        h->kind->release(object);
        meet(6 * round + 6);
        if (h->number == 0 && atomic_load(&counted.live_pointers) != live) kept++;
    }
}

static void test_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ctx = model_context_counted(&counted, ATTN_BACKEND_BLAS, 1);
        const long long live = atomic_load(&counted.live_pointers);
        atomic_store(&shared, kinds[i].make(ctx));
        run_two(hold_again_and_again, &kinds[i]);
        assert_true(atomic_load(&counted.live_pointers) > live);
        kinds[i].release(atomic_load(&shared));
        assert_int_equal(atomic_load(&counted.live_pointers), live);
        run_two(let_go_together, &kinds[i]);
        if (kept > 0) fail_msg("%s: %d times kept", kinds[i].name, kept);
        attn_context_free(ctx);
        assert_int_equal(atomic_load(&counted.live_pointers), 0);
        assert_int_equal(atomic_load(&counted.wrong), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

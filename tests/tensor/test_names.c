#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"
#include "tensor/parameters.h"

/* A set with many names, as a file of some hundred bytes can ask for: each is found, and none costs a walk over all others. */
enum { MANY = 200000, SECONDS = 20 };

static void name_of(int64_t i, char name[ATTN__MAX_NAME])
{
    snprintf(name, ATTN__MAX_NAME, "decoder.layers.%lld.self_attention.output.%s", (long long)(i / 2), i % 2 ? "bias" : "weight");
}

static void test_many_names(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_parameters *set = NULL;
    char name[ATTN__MAX_NAME];
    int64_t index = -1;
    clock_t begin = clock();
    OK(ctx, attn__parameters_create(ctx, ATTN_FLOAT32, &set));
    assert_int_equal(attn_parameters_find(set, "a"), -1); /* in an empty set */
    for (int64_t i = 0; i < MANY; i++) {
        name_of(i, name);
        OK(ctx, attn__parameters_add(ctx, set, name, 1, 1, (const int64_t[]){1}, ATTN__KIND_BIAS, ATTN__START_CONSTANT, 0, &index));
        assert_int_equal(index, i);
        if (i % 1000 == 7)
            FAILS(ctx, attn__parameters_add(ctx, set, name, 1, 1, (const int64_t[]){1}, ATTN__KIND_BIAS, ATTN__START_CONSTANT, 0, NULL),
                  ATTN_ERROR_INVALID_ARGUMENT, "twice");
    }
    for (int64_t i = 0; i < MANY; i++) {
        name_of(i, name);
        assert_int_equal(attn_parameters_find(set, name), i);
    }
    name_of(MANY, name);
    assert_int_equal(attn_parameters_find(set, name), -1);
    assert_int_equal(attn_parameters_find(set, ""), -1);
    assert_int_equal(attn_parameters_find(set, NULL), -1);
    assert_int_equal(attn_parameters_find(NULL, name), -1);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < SECONDS); /* pairs of names would take minutes */
    attn__parameters_release(set);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <pthread.h>

#include "fixture.h"
#include "tensor/parameters.h"

typedef struct part {
    const char *name;
    int32_t group, rank;
    int64_t shape[4], offset;
} part;
/* query, key and value side by side, everything else at a border of 64 bytes */
static const part parts[] = {
    {"layers.0.attention.query.weight", 1, 2, {3, 5}, 0},
    {"layers.0.attention.key.weight", 0, 2, {2, 5}, 15},
    {"layers.0.attention.value.weight", 0, 2, {2, 5}, 25},
    {"layers.0.attention.query.bias", 1, 1, {3}, 48},
    {"layers.0.attention.key.bias", 0, 1, {2}, 51},
    {"layers.0.attention.value.bias", 0, 1, {2}, 53},
    {"layers.10.norm.weight", 1, 1, {17}, 64},
    {"scale", 1, 0, {0}, 96},
};
enum { PARTS = sizeof parts / sizeof *parts, ELEMENTS = 15 + 10 + 10 + 7 + 17 + 1, FLAT = 112 };

static attn_parameters *make(attn_context *ctx, int32_t dtype)
{
    attn_parameters *set;
    EXPECT_OK(attn__parameters_create(ctx, dtype, &set));
    for (int64_t i = 0; i < PARTS; i++) {
        int64_t index = -1;
        EXPECT_OK(attn__parameters_add(ctx, set, parts[i].name, parts[i].group, parts[i].rank, parts[i].shape, ATTN__KIND_WEIGHT,
                                       ATTN__START_NORMAL, 0.5, &index));
        assert_int_equal(index, i);
    }
    return set;
}

static void test_places(void **state)
{
    fixture *f = *state;
    attn_parameters *set = make(f->ctx, ATTN_FLOAT32);
    assert_null(attn_parameters_tensor(set, 0)); /* not before the end */
    EXPECT_OK(attn__parameters_finish(f->ctx, set));
    assert_int_equal(attn_parameters_count(set), PARTS);
    assert_int_equal(attn_parameters_elements(set), ELEMENTS);
    assert_int_equal(set->flat_elements, FLAT);
    assert_int_equal((uintptr_t)set->flat % 64, 0);
    const float *flat = set->flat;
    for (int64_t e = 0; e < FLAT; e++) assert_true(flat[e] == 0);
    for (int64_t i = 0; i < PARTS; i++) {
        attn_tensor *tensor = attn_parameters_tensor(set, i);
        assert_string_equal(attn_parameters_name(set, i), parts[i].name);
        assert_int_equal(attn_parameters_find(set, parts[i].name), i);
        assert_ptr_equal(attn_tensor_data(tensor), flat + parts[i].offset);
        assert_int_equal(attn_tensor_rank(tensor), parts[i].rank);
        for (int32_t axis = 0; axis < parts[i].rank; axis++) assert_int_equal(attn_tensor_extent(tensor, axis), parts[i].shape[axis]);
        assert_ptr_equal(tensor->parameters, set);
        assert_int_equal(tensor->parameter, i);
        attn_tensor_free(tensor); /* borrowed: nothing happens */
        assert_int_equal(attn_tensor_dtype(tensor), ATTN_FLOAT32);
    }
    attn__view weights = attn__parameters_joined(set, 0, 3), biases = attn__parameters_joined(set, 3, 3),
               one = attn__parameters_view(set, 7);
    assert_true(weights.data == flat && weights.rows == 7 && weights.width == 5 && weights.row_stride == 5 && weights.heads == 1);
    assert_true(biases.data == flat + 48 && biases.rows == 1 && biases.width == 7);
    assert_true(one.data == flat + 96 && one.rows == 1 && one.width == 1);

    assert_int_equal(attn_parameters_find(set, "layers"), -1);
    assert_int_equal(attn_parameters_find(set, NULL), -1);
    assert_int_equal(attn_parameters_find(NULL, "scale"), -1);
    assert_true(attn_parameters_name(set, PARTS) == NULL && attn_parameters_name(set, -1) == NULL && attn_parameters_name(NULL, 0) == NULL);
    assert_true(attn_parameters_tensor(set, PARTS) == NULL && attn_parameters_tensor(NULL, 0) == NULL);
    assert_true(attn_parameters_count(NULL) == 0 && attn_parameters_elements(NULL) == 0);
    attn__parameters_release(set);

    set = make(f->ctx, ATTN_FLOAT64); /* borders are in bytes */
    EXPECT_OK(attn__parameters_finish(f->ctx, set));
    assert_int_equal(set->at[3].offset, 40);
    assert_int_equal(set->at[6].offset, 48);
    attn__parameters_release(set);
}

static void test_bad_additions(void **state)
{
    fixture *f = *state;
    attn_context *ctx = f->ctx;
    attn_parameters *set;
    char name[ATTN__MAX_NAME + 1];
    const int64_t shape[5] = {2, 3, 1, 1, 1}, zero[1] = {0}, large[2] = {INT64_MAX / 2, 2}, larger[1] = {INT64_MAX / 4};
    EXPECT_FAILS(ctx, attn__parameters_create(ctx, ATTN_INT32, &set), ATTN_ERROR_DTYPE, "dtype: got int32");
    EXPECT_OK(attn__parameters_create(ctx, ATTN_FLOAT32, &set));
    memset(name, 'n', sizeof name);
    name[ATTN__MAX_NAME] = '\0';
#define ADD(name, rank, shape) attn__parameters_add(ctx, set, name, 1, rank, shape, 0, 0, 0.0, NULL)
    EXPECT_FAILS(ctx, ADD(name, 2, shape), ATTN_ERROR_INVALID_ARGUMENT, "name: got 160 bytes");
    name[ATTN__MAX_NAME - 1] = '\0';
    EXPECT_OK(ADD(name, 2, shape));
    EXPECT_FAILS(ctx, ADD(name, 2, shape), ATTN_ERROR_INVALID_ARGUMENT, "twice");
    EXPECT_FAILS(ctx, ADD(NULL, 2, shape), ATTN_ERROR_INVALID_ARGUMENT, "name");
    EXPECT_FAILS(ctx, ADD("", 2, shape), ATTN_ERROR_INVALID_ARGUMENT, "name");
    EXPECT_FAILS(ctx, ADD("a", 5, shape), ATTN_ERROR_SHAPE, "a: got rank 5");
    EXPECT_FAILS(ctx, ADD("a", -1, shape), ATTN_ERROR_SHAPE, "a: got rank -1");
    EXPECT_FAILS(ctx, ADD("a", 1, zero), ATTN_ERROR_SHAPE, "a: got extent 0");
    EXPECT_FAILS(ctx, ADD("a", 2, large), ATTN_ERROR_TOO_LARGE, "a");
    EXPECT_FAILS(ctx, ADD("a", 1, larger), ATTN_ERROR_TOO_LARGE, "a");
    assert_int_equal(attn_parameters_count(set), 1);
    for (int i = 0; i < 100; i++) { /* past the first capacity */
        snprintf(name, sizeof name, "p%d", i);
        EXPECT_OK(ADD(name, i == 0 ? 4 : 2, shape));
    }
    attn_gradients *gradients;
    EXPECT_FAILS(ctx, attn_gradients_create(ctx, set, &gradients), ATTN_ERROR_BAD_STATE, "unfinished");
    EXPECT_OK(attn__parameters_finish(ctx, set));
    EXPECT_FAILS(ctx, ADD("a", 2, shape), ATTN_ERROR_BAD_STATE, "finished");
    EXPECT_FAILS(ctx, attn__parameters_finish(ctx, set), ATTN_ERROR_BAD_STATE, "finished");
    assert_int_equal(attn_parameters_find(set, "p99"), 100);
    attn__parameters_release(set);
    attn__parameters_release(NULL);
}

static void test_freeze_by_pattern(void **state)
{
    fixture *f = *state;
    attn_parameters *set = make(f->ctx, ATTN_FLOAT32);
    static const struct {
        const char *pattern;
        int64_t matched;
        uint32_t frozen;
    } cases[] = {
        {"*", 8, 0xff},
        {"scale", 1, 0x80},
        {"scal", 0, 0},
        {"cale", 0, 0},
        {"", 0, 0},
        {"s?ale", 1, 0x80},
        {"scale?", 0, 0},
        {"layers.?.*", 6, 0x3f},
        {"layers.??.*", 1, 0x40},
        {"*.bias", 3, 0x38},
        {"*query*", 2, 0x09},
        {"*key.weight*", 1, 0x02},
        {"layers.*.attention.*.weight", 3, 0x07},
        {"*a*e*t*weight", 3, 0x07},
        {"**e**", 8, 0xff},
        {"*.weigh", 0, 0},
        {"?*?????", 7, 0x7f},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t matched = -1;
        EXPECT_OK(attn_parameters_freeze(f->ctx, set, "*", 0, NULL));
        EXPECT_OK(attn_parameters_freeze(f->ctx, set, cases[c].pattern, 1, &matched));
        uint32_t frozen = 0;
        for (int i = 0; i < PARTS; i++) frozen |= (uint32_t)set->at[i].frozen << i;
        if (matched != cases[c].matched || frozen != cases[c].frozen) fail_msg("%s: got %d, %x", cases[c].pattern, (int)matched, frozen);
    }
    int64_t matched = 77;
    EXPECT_FAILS(f->ctx, attn_parameters_freeze(f->ctx, NULL, "*", 1, &matched), ATTN_ERROR_INVALID_ARGUMENT, "parameters: got NULL");
    EXPECT_FAILS(f->ctx, attn_parameters_freeze(f->ctx, set, NULL, 1, &matched), ATTN_ERROR_INVALID_ARGUMENT, "pattern: got NULL");
    EXPECT_FAILS(f->ctx, attn_parameters_freeze(f->ctx, set, "*", 2, &matched), ATTN_ERROR_INVALID_ARGUMENT, "frozen: got 2");
    assert_int_equal(matched, 77);
    attn__parameters_release(set);
}

static void *free_gradients(void *gradients)
{
    attn_gradients_free(gradients);
    return NULL;
}

static void test_gradients(void **state)
{
    fixture *f = *state;
    attn_context *ctx = f->ctx;
    attn_parameters *set = make(ctx, ATTN_FLOAT64);
    attn_gradients *a, *b, *out = (attn_gradients *)f;
    EXPECT_OK(attn__parameters_finish(ctx, set));
    EXPECT_OK(attn_gradients_create(ctx, set, &a));
    EXPECT_OK(attn_gradients_create(ctx, set, &b));
    attn_tensor *flat = attn_gradients_flat(a);
    double *all = attn_tensor_data(flat);
    assert_int_equal(attn_tensor_rank(flat), 1);
    assert_int_equal(attn_tensor_extent(flat, 0), set->flat_elements);
    assert_int_equal((uintptr_t)all % 64, 0);
    for (int64_t i = 0; i < PARTS; i++) {
        attn_tensor *tensor = attn_gradients_tensor(a, i);
        assert_ptr_equal(attn_tensor_data(tensor), all + set->at[i].offset);
        assert_int_equal(attn_tensor_rank(tensor), parts[i].rank);
        assert_null(tensor->parameters);
    }
    for (int64_t e = 0; e < set->flat_elements; e++) {
        assert_true(all[e] == 0);
        all[e] = 1;
    }
    EXPECT_OK(attn_gradients_zero(ctx, a));
    for (int64_t e = 0; e < set->flat_elements; e++) assert_true(all[e] == 0);
    EXPECT_FAILS(ctx, attn_gradients_zero(ctx, NULL), ATTN_ERROR_INVALID_ARGUMENT, "gradients: got NULL");
    EXPECT_FAILS(ctx, attn_gradients_create(ctx, NULL, &out), ATTN_ERROR_INVALID_ARGUMENT, "parameters: got NULL");
    EXPECT_FAILS(ctx, attn_gradients_create(ctx, set, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    for (long fail = 0; fail < 2; fail++) {
        f->fail_at = f->calls + fail;
        assert_int_equal(attn_gradients_create(ctx, set, &out), ATTN_ERROR_OUT_OF_MEMORY);
    }
    f->fail_at = -1;
    assert_null(out);
    assert_true(attn_gradients_tensor(a, PARTS) == NULL && attn_gradients_tensor(NULL, 0) == NULL && attn_gradients_flat(NULL) == NULL);

    attn_context_free(ctx); /* context, module, then gradients on two threads */
    f->ctx = NULL;
    attn__parameters_release(set);
    assert_int_equal(attn_tensor_extent(attn_gradients_tensor(a, 0), 1), 5);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_gradients, a), 0);
    attn_gradients_free(b);
    assert_int_equal(pthread_join(thread, NULL), 0);
    attn_gradients_free(NULL);
    assert_int_equal(f->live, 0);
}

/* A cost report has the addresses and none of the memory. */
static void test_dry(void **state)
{
    fixture *f = *state;
    const int64_t huge[2] = {INT64_C(1) << 20, INT64_C(1) << 20};
    attn_parameters *set;
    attn_gradients *gradients;
    f->ctx->dry = 1;
    EXPECT_OK(attn__parameters_create(f->ctx, ATTN_FLOAT32, &set));
    EXPECT_OK(attn__parameters_add(f->ctx, set, "huge", 1, 2, huge, 0, 0, 0, NULL));
    EXPECT_OK(attn__parameters_finish(f->ctx, set));
    EXPECT_OK(attn_gradients_create(f->ctx, set, &gradients));
    EXPECT_OK(attn_gradients_zero(f->ctx, gradients));
    assert_int_equal(set->flat_elements, INT64_C(1) << 40);
    assert_ptr_not_equal(attn_tensor_data(attn_parameters_tensor(set, 0)), attn_tensor_data(attn_gradients_flat(gradients)));
    f->ctx->dry = 0;
    attn_gradients_free(gradients);
    attn__parameters_release(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_places),    FIXTURE_TEST(test_bad_additions), FIXTURE_TEST(test_freeze_by_pattern),
        FIXTURE_TEST(test_gradients), FIXTURE_TEST(test_dry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <pthread.h>

#include "fixture.h"
#include "tensor/convert.h"
#include "tensor/tensor.h"

static void test_create_is_dense_zero_and_aligned(void **state)
{
    fixture *f = *state;
    static const int32_t types[] = {ATTN_FLOAT32, ATTN_FLOAT64, ATTN_INT32, ATTN_INT64, ATTN_UINT8};
    static const int64_t bytes[] = {4, 8, 4, 8, 1};
    static const struct {
        int32_t rank;
        int64_t shape[8], stride[8], elements;
    } cases[] = {
        {0, {0}, {0}, 1},
        {1, {7}, {1}, 7},
        {3, {2, 3, 5}, {15, 5, 1}, 30},
        {3, {2, 0, 5}, {5, 5, 1}, 0},
        {8, {1, 2, 1, 2, 1, 2, 1, 3}, {24, 12, 12, 6, 6, 3, 3, 1}, 24},
    };
    for (size_t t = 0; t < 5; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            attn_tensor *tensor;
            EXPECT_OK(attn_tensor_create(f->ctx, types[t], cases[c].rank, cases[c].rank > 0 ? cases[c].shape : NULL, &tensor));
            const unsigned char *data = attn_tensor_data_const(tensor);
            assert_non_null(data);
            assert_ptr_equal(data, attn_tensor_data(tensor));
            assert_int_equal((uintptr_t)data % 64, 0);
            for (int64_t b = 0; b < cases[c].elements * bytes[t]; b++) assert_int_equal(data[b], 0);
            assert_int_equal(attn_tensor_dtype(tensor), types[t]);
            assert_int_equal(attn_tensor_rank(tensor), cases[c].rank);
            for (int32_t axis = 0; axis < cases[c].rank; axis++) {
                assert_int_equal(attn_tensor_extent(tensor, axis), cases[c].shape[axis]);
                assert_int_equal(attn_tensor_stride(tensor, axis), cases[c].stride[axis]);
            }
            assert_int_equal(attn_tensor_extent(tensor, cases[c].rank), 0);
            assert_int_equal(attn_tensor_stride(tensor, -1), 0);
            attn_tensor_free(tensor);
        }
    assert_true(attn_tensor_dtype(NULL) == 0 && attn_tensor_rank(NULL) == 0 && attn_tensor_extent(NULL, 0) == 0 &&
                attn_tensor_stride(NULL, 0) == 0);
    assert_true(attn_tensor_data(NULL) == NULL && attn_tensor_data_const(NULL) == NULL);
}

static void test_bad_types_and_shapes(void **state)
{
    fixture *f = *state;
    attn_context *ctx = f->ctx;
    attn_tensor *out = (attn_tensor *)f;
    const int64_t negative[] = {2, -1}, large[] = {INT64_MAX / 4, 3}, hidden[] = {INT64_MAX, 0, 2}, fits[] = {3}, edge[] = {INT64_MAX / 4};
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_FLOAT16, 1, fits, &out), ATTN_ERROR_UNSUPPORTED, "dtype: got float16");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_BFLOAT16, 1, fits, &out), ATTN_ERROR_UNSUPPORTED, "dtype: got bfloat16");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, 0, 1, fits, &out), ATTN_ERROR_DTYPE, "dtype: got 0");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, 99, 1, fits, &out), ATTN_ERROR_DTYPE, "dtype: got 99");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, -1, fits, &out), ATTN_ERROR_SHAPE, "rank: got -1");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 9, fits, &out), ATTN_ERROR_SHAPE, "rank: got 9");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 1, NULL, &out), ATTN_ERROR_INVALID_ARGUMENT, "shape: got NULL");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, negative, &out), ATTN_ERROR_SHAPE, "shape: got extent -1 on axis 1");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, large, &out), ATTN_ERROR_TOO_LARGE, "shape");
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_UINT8, 3, hidden, &out), ATTN_ERROR_TOO_LARGE, "shape"); /* 0 hides no overflow */
    EXPECT_FAILS(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 1, fits, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    attn_status status = attn_tensor_create(ctx, ATTN_FLOAT32, 1, edge, &out); /* as many bytes as 63 bits count: nobody has them */
    assert_true(status == ATTN_ERROR_TOO_LARGE || status == ATTN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(attn_tensor_create(NULL, ATTN_FLOAT32, 1, fits, &out), ATTN_ERROR_INVALID_ARGUMENT);
    assert_null(out);
    f->fail_at = f->calls + 1; /* the handle is there, its elements are not */
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 1, fits, &out), ATTN_ERROR_OUT_OF_MEMORY);
    f->fail_at = f->calls;
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 1, fits, &out), ATTN_ERROR_OUT_OF_MEMORY);
    assert_null(out);
}

/* also of the types that no tensor has but a file may */
static void test_types(void **state)
{
    (void)state;
    static const struct {
        int32_t dtype;
        int64_t bytes;
        const char *name;
    } types[] = {{ATTN_FLOAT32, 4, "float32"}, {ATTN_FLOAT64, 8, "float64"},
                 {ATTN_INT32, 4, "int32"},     {ATTN_INT64, 8, "int64"},
                 {ATTN_FLOAT16, 2, "float16"}, {ATTN_BFLOAT16, 2, "bfloat16"},
                 {ATTN_UINT8, 1, "uint8"},     {0, 0, "unknown"},
                 {-1, 0, "unknown"},           {8, 0, "unknown"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_int_equal(attn__dtype_bytes(types[i].dtype), types[i].bytes);
        assert_string_equal(attn__dtype_name(types[i].dtype), types[i].name);
    }
}

typedef struct stride_case {
    int32_t rank;
    int64_t shape[4], stride[4];
    attn_status code;
    const char *text;
} stride_case;
static const stride_case strides[] = {
    {2, {3, 4}, {4, 1}, ATTN_OK, ""},
    {2, {3, 4}, {1, 3}, ATTN_OK, ""}, /* transposed */
    {2, {3, 4}, {9, 2}, ATTN_OK, ""}, /* gaps */
    {2, {1, 4}, {0, 1}, ATTN_OK, ""}, /* an axis of one may have any stride */
    {2, {0, 4}, {0, 1}, ATTN_OK, ""},
    {3, {3, 2, 4}, {4, 12, 1}, ATTN_OK, ""}, /* heads outermost */
    {2, {3, 4}, {0, 1}, ATTN_ERROR_SHAPE, "strides: got 0 on axis 0"},
    {2, {3, 4}, {3, 1}, ATTN_ERROR_SHAPE, "strides: got 3 on axis 0, expected more than 3"},
    {2, {3, 4}, {1, 2}, ATTN_ERROR_SHAPE, "strides: got 2 on axis 1, expected more than 2"},
    {2, {3, 4}, {1, 1}, ATTN_ERROR_SHAPE, "share memory"},
    {3, {3, 2, 4}, {4, 11, 1}, ATTN_ERROR_SHAPE, "strides: got 11 on axis 1"},
    {2, {3, 4}, {4, -1}, ATTN_ERROR_SHAPE, "strides: got -1 on axis 1"},
    {2, {1, 4}, {-1, 1}, ATTN_ERROR_SHAPE, "strides: got -1 on axis 0"},
    {2, {3, 4}, {INT64_MAX / 2, 1}, ATTN_ERROR_TOO_LARGE, "strides"},
    {1, {3}, {INT64_MAX}, ATTN_ERROR_TOO_LARGE, "strides"},
    {1, {2}, {INT64_MAX}, ATTN_ERROR_TOO_LARGE, "strides"},
};

static void test_strides(void **state)
{
    fixture *f = *state;
    static float data[64];
    for (size_t c = 0; c < sizeof strides / sizeof *strides; c++) {
        const stride_case *one = &strides[c];
        attn_tensor *tensor = NULL;
        attn_status status = attn_tensor_wrap(f->ctx, ATTN_FLOAT32, one->rank, one->shape, one->stride, data, &tensor);
        if (status != one->code) fail_msg("case %d: got %d", (int)c, (int)status);
        if (status != ATTN_OK) {
            assert_non_null(strstr(attn_context_last_error(f->ctx), one->text));
            assert_null(tensor);
            continue;
        }
        for (int32_t axis = 0; axis < one->rank; axis++) assert_int_equal(attn_tensor_stride(tensor, axis), one->stride[axis]);
        assert_ptr_equal(attn_tensor_data(tensor), data);
        attn_tensor_free(tensor);
    }
}

static void test_wrap_and_rebind(void **state)
{
    fixture *f = *state;
    attn_context *ctx = f->ctx;
    static float a[12], b[40];
    const int64_t first[] = {3, 4}, second[] = {2, 5}, gaps[] = {20, 2}, none[] = {0, 4};
    attn_tensor *wrapped, *owned, *out = (attn_tensor *)f;
    EXPECT_OK(attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, first, NULL, a, &wrapped));
    EXPECT_OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, first, &owned));
    long calls = f->calls;
    EXPECT_OK(attn_tensor_rebind(ctx, wrapped, second, gaps, b));
    assert_ptr_equal(attn_tensor_data(wrapped), b);
    assert_int_equal(attn_tensor_extent(wrapped, 1), 5);
    assert_int_equal(attn_tensor_stride(wrapped, 0), 20);
    EXPECT_FAILS(ctx, attn_tensor_rebind(ctx, wrapped, first, NULL, NULL), ATTN_ERROR_INVALID_ARGUMENT,
                 "data: got NULL, expected 48 bytes");
    EXPECT_FAILS(ctx, attn_tensor_rebind(ctx, wrapped, first, NULL, (char *)a + 2), ATTN_ERROR_INVALID_ARGUMENT, "data: got an address");
    EXPECT_FAILS(ctx, attn_tensor_rebind(ctx, wrapped, NULL, NULL, a), ATTN_ERROR_INVALID_ARGUMENT, "shape: got NULL");
    EXPECT_FAILS(ctx, attn_tensor_rebind(ctx, NULL, first, NULL, a), ATTN_ERROR_INVALID_ARGUMENT, "wrapped: got NULL");
    EXPECT_FAILS(ctx, attn_tensor_rebind(ctx, owned, first, NULL, a), ATTN_ERROR_BAD_STATE, "wrapped: got a tensor with memory of its own");
    assert_ptr_equal(attn_tensor_data(wrapped), b);
    assert_int_equal(attn_tensor_extent(wrapped, 1), 5);
    EXPECT_OK(attn_tensor_rebind(ctx, wrapped, none, NULL, NULL)); /* no elements need no memory */
    assert_int_equal(f->calls, calls);
    EXPECT_FAILS(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, first, NULL, NULL, &out), ATTN_ERROR_INVALID_ARGUMENT, "data: got NULL");
    EXPECT_FAILS(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, first, NULL, a, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    assert_null(out);
    EXPECT_FAILS(ctx, attn_tensor_wrap(ctx, ATTN_UINT8, 1, (const int64_t[]){2}, (const int64_t[]){INT64_MAX}, a, &out),
                 ATTN_ERROR_TOO_LARGE, "strides"); /* one element more than 63 bits count, of one byte each */
    attn_tensor_free(wrapped);
    attn_tensor_free(owned);
}

static void test_convert(void **state)
{
    (void)state;
    const float single[3] = {1.5F, -2, 3e38F};
    const double exact[3] = {1.5, -2, 3e38F}, finer[3] = {1.1, -0.0, 1 + 0x1p-25};
    static const int32_t types[] = {ATTN_FLOAT32, ATTN_FLOAT64};
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++) {
            double out[4] = {9, 9, 9, 9}; /* room for either, one more stays */
            attn__convert(from ? (const void *)exact : single, types[from], out, types[to], 3);
            assert_memory_equal(out, to ? (const void *)exact : single, to ? sizeof exact : sizeof single);
            assert_true(out[3] == 9);
        }
    float rounded[4] = {9, 9, 9, 9};
    attn__convert(finer, ATTN_FLOAT64, rounded, ATTN_FLOAT32, 3);
    assert_true(rounded[0] == 1.1F && rounded[1] == 0 && rounded[2] == 1 && rounded[3] == 9);
}

static void *free_one(void *tensor)
{
    attn_tensor_free(tensor);
    return NULL;
}

static void test_freed_in_any_order_from_any_thread(void **state)
{
    fixture *f = *state;
    attn_tensor *tensor[3], borrowed;
    float x = 5;
    for (int i = 0; i < 3; i++) EXPECT_OK(attn_tensor_create(f->ctx, ATTN_FLOAT32, 1, (const int64_t[]){100}, &tensor[i]));
    attn__storage *storage = attn__storage_retain(tensor[0]->storage); /* as a record of a tape does */
    float *data = attn_tensor_data(tensor[0]);
    data[99] = 3;
    attn_tensor_free(tensor[0]);
    attn_context_free(f->ctx); /* before the others */
    f->ctx = NULL;
    assert_true(data[99] == 3);
    attn__storage_release(storage);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_one, tensor[1]), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    attn_tensor_free(tensor[2]);
    assert_int_equal(f->live, 0);

    attn__tensor_borrow(&borrowed, ATTN_FLOAT32, 0, NULL, &x);
    attn_tensor_free(&borrowed);
    assert_ptr_equal(attn_tensor_data(&borrowed), &x);
    attn_tensor_free(NULL);
    assert_null(attn__storage_retain(NULL));
    attn__storage_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_create_is_dense_zero_and_aligned),
        FIXTURE_TEST(test_bad_types_and_shapes),
        cmocka_unit_test(test_types),
        FIXTURE_TEST(test_strides),
        FIXTURE_TEST(test_wrap_and_rebind),
        cmocka_unit_test(test_convert),
        FIXTURE_TEST(test_freed_in_any_order_from_any_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

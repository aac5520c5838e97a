#include "fixture.h"
#include "tensor/tensor.h"

static void expect_view(const attn__view *v, const void *data, int64_t rows, int64_t heads, int64_t width, int64_t row_stride,
                        int64_t head_stride)
{
    assert_ptr_equal(v->data, data);
    assert_int_equal(v->rows, rows);
    assert_int_equal(v->heads, heads);
    assert_int_equal(v->width, width);
    assert_int_equal(v->row_stride, row_stride);
    assert_int_equal(v->head_stride, head_stride);
}

static void test_reshaping(void **state)
{
    (void)state;
    static float x[60];
    attn__view rows = {x, 5, 1, 12, 12, 0, ATTN_FLOAT32, 0};
    attn__view heads = attn__view_heads(rows, 3), one = attn__view_heads(rows, 1), flat = attn__view_flat(heads);
    expect_view(&heads, x, 5, 3, 4, 12, 4);
    expect_view(&one, x, 5, 1, 12, 12, 0);
    expect_view(&flat, x, 5, 1, 12, 12, 0);
    attn__view columns = attn__view_columns(rows, 4, 6), middle = attn__view_rows(columns, 1, 3);
    expect_view(&columns, x + 4, 5, 1, 6, 12, 0);
    expect_view(&middle, x + 16, 3, 1, 6, 12, 0);
    assert_int_equal(attn__view_bytes(&heads), 240);
    assert_int_equal(attn__view_bytes(&middle), 72);
    assert_true(attn__view_dense(&rows) && attn__view_dense(&heads));
    assert_false(attn__view_dense(&columns));
    attn__view single = attn__view_rows(columns, 2, 1), empty = attn__view_rows(columns, 2, 0);
    assert_true(attn__view_dense(&single) && attn__view_dense(&empty));
    attn__view none = {x, 5, 0, 12, 30, 0, ATTN_FLOAT32, 0};
    assert_true(attn__view_dense(&none));
    attn__view split = attn__view_heads(columns, 2);
    assert_false(attn__view_dense(&split));
}

static void test_overlap(void **state)
{
    (void)state;
    static double x[60];
    attn__view all = {x, 5, 1, 12, 12, 0, ATTN_FLOAT64, 0};
    attn__view a = attn__view_rows(all, 0, 2), b = attn__view_rows(all, 2, 3), none = attn__view_rows(all, 1, 0);
    attn__view bytes = {(char *)x + 24 * 8 - 1, 1, 1, 1, 1, 0, ATTN_UINT8, 0};
    assert_true(attn__view_overlaps(&all, &a) && attn__view_overlaps(&b, &all));
    assert_false(attn__view_overlaps(&a, &b) || attn__view_overlaps(&b, &a));
    assert_false(attn__view_overlaps(&all, &none) || attn__view_overlaps(&none, &all));
    assert_true(attn__view_overlaps(&a, &bytes));
    assert_false(attn__view_overlaps(&b, &bytes));
    attn__view heads = {x, 1, 3, 4, 24, 8, ATTN_FLOAT64, 0}, last = {x + 19, 1, 1, 4, 4, 0, ATTN_FLOAT64, 0}; /* columns 16 to 20 */
    assert_true(attn__view_overlaps(&heads, &last) && attn__view_overlaps(&last, &heads));
    last.data = x + 20;
    assert_false(attn__view_overlaps(&heads, &last) || attn__view_overlaps(&last, &heads));
}

typedef struct rows_case {
    int32_t rank;
    int64_t shape[4], stride[4], rows, width, row_stride;
    attn_status code;
    const char *text;
} rows_case;
static const rows_case cases[] = {
    {0, {0}, {0}, 1, 1, 1, ATTN_OK, NULL},
    {1, {5}, {1}, 1, 5, 5, ATTN_OK, NULL},
    {2, {3, 5}, {8, 1}, 3, 5, 8, ATTN_OK, NULL},
    {2, {5, 1}, {1, 7}, 5, 1, 1, ATTN_OK, NULL},
    {3, {2, 3, 5}, {24, 8, 1}, 6, 5, 8, ATTN_OK, NULL},
    {4, {2, 1, 3, 5}, {24, 0, 8, 1}, 6, 5, 8, ATTN_OK, NULL},
    {3, {2, 1, 5}, {24, 1, 1}, 2, 5, 24, ATTN_OK, NULL},
    {3, {2, 0, 5}, {24, 8, 1}, 0, 5, 5, ATTN_OK, NULL},
    {2, {3, 0}, {1, 1}, 3, 0, 0, ATTN_OK, NULL},
    {2, {3, 5}, {1, 3}, 0, 0, 0, ATTN_ERROR_SHAPE, "x: got stride 3 on the last axis, expected 1"},
    {1, {5}, {2}, 0, 0, 0, ATTN_ERROR_SHAPE, "last axis"},
    {3, {2, 3, 5}, {25, 8, 1}, 0, 0, 0, ATTN_ERROR_SHAPE, "x: got stride 25 on axis 0, expected 24"},
    {3, {2, 3, 4}, {4, 8, 1}, 0, 0, 0, ATTN_ERROR_SHAPE, "axis 0"},
};

static void test_rows(void **state)
{
    fixture *f = *state;
    static float x[100];
    attn__view v;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const rows_case *one = &cases[c];
        attn_tensor *tensor;
        EXPECT_OK(attn_tensor_wrap(f->ctx, ATTN_FLOAT32, one->rank, one->shape, one->stride, x, &tensor));
        attn_status status = attn__rows(f->ctx, "x", tensor, 0, &v);
        assert_int_equal(status, one->code);
        if (status == ATTN_OK)
            expect_view(&v, x, one->rows, 1, one->width, one->row_stride, 0);
        else
            assert_non_null(strstr(attn_context_last_error(f->ctx), one->text));
        attn_tensor_free(tensor);
    }
}

static void test_heads(void **state)
{
    fixture *f = *state;
    static double x[100];
    attn__view v;
    attn_tensor *tensor;
    EXPECT_OK(attn_tensor_wrap(f->ctx, ATTN_FLOAT64, 3, (const int64_t[]){3, 2, 4}, (const int64_t[]){4, 12, 1}, x, &tensor));
    EXPECT_OK(attn__heads(f->ctx, "query", tensor, ATTN_FLOAT64, &v)); /* head by head in memory is fine */
    expect_view(&v, x, 3, 2, 4, 4, 12);
    EXPECT_FAILS(f->ctx, attn__heads(f->ctx, "query", tensor, ATTN_FLOAT32, &v), ATTN_ERROR_DTYPE, "query: got float64, expected float32");
    EXPECT_OK(attn_tensor_rebind(f->ctx, tensor, (const int64_t[]){3, 1, 4}, NULL, x));
    EXPECT_OK(attn__heads(f->ctx, "query", tensor, 0, &v));
    expect_view(&v, x, 3, 1, 4, 4, 0);
    EXPECT_OK(attn_tensor_rebind(f->ctx, tensor, (const int64_t[]){2, 2, 3}, (const int64_t[]){1, 24, 4}, x));
    EXPECT_FAILS(f->ctx, attn__heads(f->ctx, "query", tensor, 0, &v), ATTN_ERROR_SHAPE, "last axis");
    attn_tensor_free(tensor);
    EXPECT_OK(attn_tensor_create(f->ctx, ATTN_FLOAT64, 2, (const int64_t[]){3, 4}, &tensor));
    EXPECT_FAILS(f->ctx, attn__heads(f->ctx, "query", tensor, 0, &v), ATTN_ERROR_SHAPE, "query: got rank 2, expected 3");
    EXPECT_FAILS(f->ctx, attn__heads(f->ctx, "query", NULL, 0, &v), ATTN_ERROR_INVALID_ARGUMENT, "query: got NULL");
    EXPECT_FAILS(f->ctx, attn__rows(f->ctx, "tokens", tensor, -1, &v), ATTN_ERROR_DTYPE, "tokens: got float64, expected int32 or int64");
    attn_tensor_free(tensor);
    EXPECT_OK(attn_tensor_create(f->ctx, ATTN_INT32, 1, (const int64_t[]){3}, &tensor));
    EXPECT_OK(attn__rows(f->ctx, "tokens", tensor, -1, &v));
    assert_int_equal(v.dtype, ATTN_INT32);
    EXPECT_FAILS(f->ctx, attn__rows(f->ctx, "x", tensor, 0, &v), ATTN_ERROR_DTYPE, "x: got int32, expected float32 or float64");
    attn_tensor_free(tensor);
}

static void test_expectations(void **state)
{
    fixture *f = *state;
    static float x[60];
    attn__view v = {x, 3, 1, 5, 5, 0, ATTN_FLOAT32, 0}, heads = {x, 3, 2, 5, 10, 5, ATTN_FLOAT32, 0};
    EXPECT_OK(attn__expect_shape(f->ctx, "weight", &v, 3, 1, 5));
    EXPECT_OK(attn__expect_shape(f->ctx, "weight", &v, -1, -1, 5));
    EXPECT_OK(attn__expect_shape(f->ctx, "query", &heads, 3, 2, -1));
    EXPECT_FAILS(f->ctx, attn__expect_shape(f->ctx, "weight", &v, -1, 1, 4), ATTN_ERROR_SHAPE, "weight: got shape [3, 5], expected [*, 4]");
    EXPECT_FAILS(f->ctx, attn__expect_shape(f->ctx, "query", &heads, 3, 4, -1), ATTN_ERROR_SHAPE,
                 "query: got shape [3, 2, 5], expected [3, 4, *]");
    EXPECT_FAILS(f->ctx, attn__expect_shape(f->ctx, "query", &v, 2, 2, 5), ATTN_ERROR_SHAPE,
                 "query: got shape [3, 1, 5], expected [2, 2, 5]");
    EXPECT_FAILS(f->ctx, attn__expect_shape(f->ctx, "y", &v, 0, 1, 5), ATTN_ERROR_SHAPE, "y: got shape [3, 5], expected [0, 5]");
    EXPECT_FAILS(f->ctx, attn__expect_shape(f->ctx, "y", &v, 3, 1, 0), ATTN_ERROR_SHAPE, "y: got shape [3, 5], expected [3, 0]");
    EXPECT_FAILS(f->ctx, attn__expect_shape(f->ctx, "y", &heads, 3, 0, 5), ATTN_ERROR_SHAPE, "y: got shape [3, 2, 5], expected [3, 0, 5]");
    EXPECT_FAILS(f->ctx, attn__expect_apart(f->ctx, "output", &v, "query", &heads), ATTN_ERROR_INVALID_ARGUMENT,
                 "output: got memory shared with query");
    attn__view apart = attn__view_rows(v, 3, 3);
    EXPECT_OK(attn__expect_apart(f->ctx, "output", &v, "query", &apart));
}

/* bytes past 63 bits are the largest number, wherever the product passes them */
static void test_most_bytes(void **state)
{
    const int64_t half = INT64_C(1) << 62, many = INT64_C(1) << 40;
    const attn__view rows = {NULL, half, 4, 1, 4, 1, ATTN_FLOAT32, 0}, wide = {NULL, many, 1, many, many, 0, ATTN_FLOAT32, 0},
                     bytes = {NULL, half, 1, 1, 1, 0, ATTN_FLOAT32, 0}, fits = {NULL, many, 2, 3, 6, 3, ATTN_FLOAT32, 0};
    (void)state;
    assert_true(attn__view_bytes(&rows) == INT64_MAX && attn__view_bytes(&wide) == INT64_MAX && attn__view_bytes(&bytes) == INT64_MAX);
    assert_true(attn__view_bytes(&fits) == 24 * many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshaping), cmocka_unit_test(test_overlap), cmocka_unit_test(test_most_bytes),
        FIXTURE_TEST(test_rows),          FIXTURE_TEST(test_heads),       FIXTURE_TEST(test_expectations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

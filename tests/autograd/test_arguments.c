#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "autograd/arguments.h"
#include "support/model.h"

/* Arguments of operations at the ends of what they may be. */
static attn_context *ctx;

static attn_tensor *wrapped(int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides, void *data)
{
    attn_tensor *made = NULL;
    OK(ctx, attn_tensor_wrap(ctx, dtype, rank, shape, strides, data, &made));
    return made;
}

/* any shape becomes one column; a vector may have gaps, rows may not */
static void test_integers(void **state)
{
    (void)state;
    int64_t data[24];
    const struct {
        int32_t dtype, rank;
        int64_t shape[3], stride[3];
        int64_t rows, row_stride; /* rows -1: refused */
    } cases[] = {
        {ATTN_INT64, 1, {5}, {1}, 5, 1},
        {ATTN_INT64, 1, {5}, {3}, 5, 3},
        {ATTN_INT32, 1, {5}, {3}, 5, 3},
        {ATTN_INT64, 2, {2, 3}, {3, 1}, 6, 1},
        {ATTN_INT32, 3, {2, 3, 4}, {12, 4, 1}, 24, 1},
        {ATTN_INT64, 2, {2, 3}, {4, 1}, -1, 0},
        {ATTN_FLOAT32, 1, {5}, {1}, -1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_tensor *tensor = wrapped(cases[i].dtype, cases[i].rank, cases[i].shape, cases[i].stride, data);
        view at;
        assert_int_equal(attn__enter(ctx), ATTN_OK);
        attn_status status = attn__argument_integers(ctx, "tokens", tensor, &at);
        assert_int_equal(status == ATTN_OK, cases[i].rows >= 0);
        if (status == ATTN_OK)
            assert_true(at.data == (void *)data && at.rows == cases[i].rows && at.row_stride == cases[i].row_stride && at.width == 1 &&
                        at.heads == 1 && at.dtype == cases[i].dtype);
        attn__leave(ctx, status);
        attn_tensor_free(tensor);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    const double fine[] = {0, -0.0, 1e300}, bad[] = {-1e-300, INFINITY, -INFINITY, NAN}, rates[] = {0, 0.5, 1},
                 beyond[] = {-1e-300, 1.0000001, NAN};
    assert_int_equal(attn__enter(ctx), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        OK(ctx, attn__argument_positive(ctx, "it", fine[i]));
        OK(ctx, attn__argument_rate(ctx, "it", rates[i]));
        FAILS(ctx, attn__argument_rate(ctx, "it", beyond[i]), ATTN_ERROR_INVALID_ARGUMENT, "it: got ");
    }
    for (int i = 0; i < 4; i++) FAILS(ctx, attn__argument_positive(ctx, "it", bad[i]), ATTN_ERROR_INVALID_ARGUMENT, "it: got ");
    for (int32_t kind = ATTN_ACTIVATION_IDENTITY - 1; kind <= ATTN_ACTIVATION_TANH + 1; kind++)
        assert_int_equal(attn__argument_activation(ctx, kind) == ATTN_OK, kind >= ATTN_ACTIVATION_IDENTITY && kind <= ATTN_ACTIVATION_TANH);
    attn__leave(ctx, ATTN_OK);
}

static int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_integers), cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

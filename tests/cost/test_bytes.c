/* The bytes of a cost report: what a kernel writes is passed over once, what it adds to twice. */
#include <attn/operations.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/kernels.h"
#include "support/model.h"

enum { ROWS = 3, HEADS = 2, FLAGS = 3 };
static attn_context *ctx;
static const attn__kernels *table; /* counts, and touches no data */

static int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    ctx->dry = 1;
    return attn__kernels_for(ctx, ATTN_FLOAT32, &table) != ATTN_OK || !table->counts;
}

static int teardown(void **state)
{
    (void)state;
    ctx->dry = 0;
    attn_context_free(ctx);
    return 0;
}

/* of extents of its own, so that no two have as many bytes */
static view of(int64_t rows, int64_t heads, int64_t width)
{
    return (view){&table, rows, heads, width, heads * width, heads > 1 ? width : 0, ATTN_FLOAT32, 0};
}

static attn_segment whole = {0, ROWS, 0, 0};

/* adds[i]: the i-th gradient is added to; its bytes go to size[i] */
typedef attn_status gradient_kernel(const int adds[FLAGS], int64_t size[FLAGS]);

static attn_status attention(const int adds[FLAGS], int64_t size[FLAGS])
{
    attn__attention_arguments a = {
        .query = of(ROWS, HEADS, 4), .key = of(ROWS, 1, 4), .value = of(ROWS, 1, 7), .output = of(ROWS, HEADS, 7)};
    a.d_query = a.query, a.d_key = a.key, a.d_value = a.value, a.d_output = a.output;
    a.add_query = adds[0], a.add_key = adds[1], a.add_value = adds[2];
    a.query_segments = a.key_segments = (attn__segments){1, ROWS, &whole};
    size[0] = attn__view_bytes(&a.d_query), size[1] = attn__view_bytes(&a.d_key), size[2] = attn__view_bytes(&a.d_value);
    return table->attention_back(ctx, &a);
}

static attn_status linear_attention(const int adds[FLAGS], int64_t size[FLAGS])
{
    attn__linear_arguments a = {.query = of(ROWS, HEADS, 4), .key = of(ROWS, 1, 4), .value = of(ROWS, 1, 7), .output = of(ROWS, HEADS, 7)};
    a.d_query = a.query, a.d_key = a.key, a.d_value = a.value, a.d_output = a.output;
    a.add_query = adds[0], a.add_key = adds[1], a.add_value = adds[2];
    a.query_segments = a.key_segments = (attn__segments){1, ROWS, &whole};
    size[0] = attn__view_bytes(&a.d_query), size[1] = attn__view_bytes(&a.d_key), size[2] = attn__view_bytes(&a.d_value);
    return table->linear_attention_back(ctx, &a);
}

/* an LSTM; the last tensors stand for states */
static attn__recurrent_arguments lstm_of(void)
{
    attn__recurrent_arguments a = {.x = of(ROWS, 1, 20), .weight = of(20, 1, 5), .output = of(ROWS, 1, 5), .kind = ATTN_RECURRENT_LSTM};
    a.segments = (attn__segments){1, ROWS, &whole};
    return a;
}

static attn_status recurrent(const int adds[FLAGS], int64_t size[FLAGS])
{
    attn__recurrent_arguments a = lstm_of();
    a.d_x = a.x, a.d_hidden = of(1, 1, 5), a.d_cell = of(2, 1, 5), a.d_output = a.output;
    a.add_x = adds[0], a.add_hidden = adds[1], a.add_cell = adds[2];
    size[0] = attn__view_bytes(&a.d_x), size[1] = attn__view_bytes(&a.d_hidden), size[2] = attn__view_bytes(&a.d_cell);
    return table->recurrent_back(ctx, &a);
}

/* kernels with one gradient, which share the first flag */
static attn_status others(const int adds[FLAGS], int64_t size[FLAGS])
{
    view x = of(ROWS, 1, 5), y = of(ROWS, 1, 6), w = of(6, 1, 5), wide = of(ROWS, HEADS, 8), e = of(2, 1, ROWS),
         projected = of(2, HEADS, 8);
    const attn__segments segments = {1, ROWS, &whole};
    const attn__features features = {.kind = ATTN_FEATURES_ELU, .directions = of(0, 1, 8)};
    const attn__rotary rotary = {.rotated = 8};
    const attn__activation act = {.kind = ATTN_ACTIVATION_RELU};
    const attn__convolution shape = {1, 1, 0, segments};
    int add = adds[0];
    attn_status status = table->linear_d_input(ctx, &y, &w, add, &x);
    if (status == ATTN_OK) status = table->activation_back(ctx, &act, &x, NULL, &x, add, &x, NULL);
    if (status == ATTN_OK) status = table->softmax_back(ctx, &x, 0, &x, add, &x);
    if (status == ATTN_OK) status = table->embed_back(ctx, NULL, 1, (attn__places){NULL, NULL}, NULL, &x, NULL, NULL, add, &x);
    if (status == ATTN_OK) status = table->dropout(ctx, &x, NULL, add, &x);
    if (status == ATTN_OK) status = table->multiply(ctx, &x, &x, add, &x);
    if (status == ATTN_OK) status = table->copy(ctx, &x, add, &x);
    if (status == ATTN_OK) status = table->rotate(ctx, &wide, &rotary, 1, add, &wide);
    if (status == ATTN_OK) status = table->feature_map_back(ctx, &wide, &features, &wide, &wide, add, &wide);
    if (status == ATTN_OK) status = table->sequence_project_back(ctx, &wide, &e, segments, &projected, add, &wide, NULL);
    if (status == ATTN_OK) status = table->convolution_back(ctx, &x, &w, &shape, &y, add, &x, NULL, NULL);
    size[0] = 8 * attn__view_bytes(&x) + 3 * attn__view_bytes(&wide), size[1] = size[2] = 0;
    return status;
}

static void check(const char *name, gradient_kernel *run)
{
    int64_t size[FLAGS], before = 0;
    for (int which = 0; which < 1 << FLAGS; which++) {
        const int adds[FLAGS] = {which & 1, which >> 1 & 1, which >> 2};
        ctx->counts.bytes = 0;
        OK(ctx, attn__enter(ctx));
        OK(ctx, attn__leave(ctx, run(adds, size)));
        if (which == 0) before = ctx->counts.bytes;
        for (int i = 0; i < FLAGS; i++) before += which > 0 && adds[i] ? size[i] : 0;
        if (ctx->counts.bytes != before)
            fail_msg("%s, added to %d: %lld bytes, expected %lld", name, which, (long long)ctx->counts.bytes, (long long)before);
        for (int i = 0; i < FLAGS; i++) before -= which > 0 && adds[i] ? size[i] : 0;
    }
}

static void test_added_to(void **state)
{
    (void)state;
    check("attention", attention);
    check("linear attention", linear_attention);
    check("recurrent layer", recurrent);
    check("others", others);
}

/* elements that a kernel passes over, of what it is given: each input once, each output once, or as often as it is said */
static void expect_elements(const char *name, attn_status status, int64_t elements)
{
    OK(ctx, attn__leave(ctx, status));
    if (ctx->counts.bytes != elements * (int64_t)sizeof(float))
        fail_msg("%s: %lld bytes, expected %lld", name, (long long)ctx->counts.bytes, (long long)elements * (long long)sizeof(float));
}
#define EXPECT(elements, call) \
    do { \
        ctx->counts.bytes = 0; \
        OK(ctx, attn__enter(ctx)); \
        expect_elements(#call, call, elements); \
    } while (0)

static void test_passes(void **state)
{
    (void)state;
    view x = of(ROWS, 1, 5), y = of(ROWS, 1, 6), w = of(6, 1, 5), b = of(1, 1, 6), u = of(ROWS, 1, 6), gain = of(1, 1, 5),
         two = of(12, 1, 5), taps = of(6, 1, 10);
    view bias = of(1, 1, 12), gates = of(ROWS, 1, 12), labels = of(ROWS, 1, 1), one = of(1, 1, 1);
    const int64_t nx = ROWS * 5, ny = ROWS * 6;
    attn__loss_sums sums;
    double number;
    EXPECT(nx + 30 + ny, table->linear(ctx, &x, &w, NULL, NULL, NULL, &y, NULL));
    EXPECT(nx + 30 + 6 + 2 * ny, table->linear(ctx, &x, &w, &b, NULL, NULL, &y, &u));
    EXPECT(nx + 60 + 12 + 3 * ny, table->linear_gated(ctx, &x, &two, &bias, NULL, NULL, &y, &gates));
    EXPECT(ny + nx + 2 * 30 + 2 * 6, table->linear_d_weight(ctx, &y, &x, &w, &b)); /* added to */
    EXPECT(ny + 2 * 6, table->linear_d_weight(ctx, &y, &x, NULL, &b));
    EXPECT(2 * nx, table->activation(ctx, NULL, &x, NULL, &x));
    EXPECT(2 * nx + 5, table->residual_norm(ctx, &x, NULL, NULL, ATTN_NORM_RMS, 0, &gain, NULL, NULL, &x, NULL));
    EXPECT(4 * nx + 2 * 5, table->residual_norm(ctx, &x, &x, NULL, ATTN_NORM_LAYER, 0, &gain, &gain, &x, &x, NULL));
    EXPECT(3 * nx + 5 + 2 * 5,
           table->residual_norm_back(ctx, &x, NULL, &x, NULL, NULL, ATTN_NORM_LAYER, &gain, &x, NULL, &gain, NULL)); /* dgain added to */
    EXPECT(2 * nx, table->residual_norm(ctx, &x, NULL, NULL, ATTN_NORM_RMS, 0, NULL, NULL, &x, &x, NULL)); /* without s nothing is kept */
    EXPECT(3 * nx, table->residual(ctx, &x, &x, NULL, &x));
    EXPECT(2 * nx, table->softmax(ctx, &x, 0, &x));
    EXPECT(nx + ROWS, table->loss(ctx, &x, &labels, 0, 0, -1, 0, &sums));
    EXPECT(2 * nx + ROWS, table->loss(ctx, &x, &labels, 0, 0, -1, 1, &sums)); /* becomes its gradient */
    EXPECT(3 * nx, table->add(ctx, &x, &x, &x));
    EXPECT(1 + 2 * nx, table->scale(ctx, &one, &x));
    EXPECT(nx, table->fill(ctx, &x, 0, 0, 0));
    EXPECT(2 * nx, table->dot(ctx, &x, &x, &number));
    attn__recurrent_arguments a = lstm_of();
    EXPECT(60 + 100 + 15, table->recurrent(ctx, &a));
    a.hidden = a.cell = a.final_hidden = a.final_cell = of(1, 1, 5);
    a.gates = a.cells = &number;
    EXPECT(2 * 60 + 100 + 2 * 15 + 4 * 5, table->recurrent(ctx, &a));
    a.d_output = a.output, a.d_final_hidden = a.d_final_cell = a.hidden, a.d_x = a.x, a.d_weight = a.weight;
    EXPECT(3 * 60 + 3 * 100 + 3 * 15 + 2 * 5, table->recurrent_back(ctx, &a)); /* d_weight added to */
    const attn__convolution shape = {2, 1, 0, {1, ROWS, &whole}};              /* each row is read and laid beside others once a tap */
    EXPECT(4 * nx + 60 + 6 + ny, table->convolution(ctx, &x, &taps, &b, &shape, &y));
    EXPECT(4 * nx + 2 * 60 + 2 * 6, table->convolution_back(ctx, &x, &taps, &shape, &y, 0, NULL, &taps, &b)); /* added to */
    EXPECT(4 * ny + 60 + nx, table->convolution_back(ctx, &x, &taps, &shape, &y, 0, &x, NULL, NULL));
    EXPECT(100, table->sum_squares(ctx, NULL, 100, &number));
    EXPECT(8 * 100, table->adam(ctx, NULL, NULL, NULL, NULL, 100, 1, 0, 1, 0, 0, 0, 0, 1)); /* four arrays, read and written */
}

/* a convolution borrows its gathered rows and their segments with BLAS alone, and says when there is no room for one of them */
static void test_gathered(void **state)
{
    (void)state;
    const int64_t far = INT64_C(1) << 60;
    view none = of(far, 1, 0), x = of(64, 1, 1), w = of(0, 1, 1);
    const attn__convolution strip = {far, 1, 0, {1, ROWS, &whole}}, rows = {1, 1, 0, {1, ROWS, &whole}};
    for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++) {
        const attn_status status = backend == ATTN_BACKEND_BLAS ? ATTN_ERROR_TOO_LARGE : ATTN_OK;
        ctx->backend = backend;
        assert_int_equal(table->convolution(ctx, &x, &w, NULL, &strip, &x), status);
        assert_int_equal(table->convolution(ctx, &none, &w, NULL, &rows, &none), status);
        assert_int_equal(table->convolution_back(ctx, &x, &w, &strip, &x, 0, &x, &w, NULL), status);
        assert_int_equal(table->convolution_back(ctx, &x, &w, &strip, &x, 0, NULL, &w, NULL), status);
    }
    ctx->backend = ATTN_BACKEND_BLAS;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_added_to), cmocka_unit_test(test_passes), cmocka_unit_test(test_gathered)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

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

/* kernels with one gradient, which share the first flag */
static attn_status others(const int adds[FLAGS], int64_t size[FLAGS])
{
    view x = of(ROWS, 1, 5), y = of(ROWS, 1, 6), w = of(6, 1, 5), wide = of(ROWS, HEADS, 8), e = of(2, 1, ROWS),
         projected = of(2, HEADS, 8);
    const attn__segments segments = {1, ROWS, &whole};
    const attn__features features = {.kind = ATTN_FEATURES_ELU, .directions = of(0, 1, 8)};
    const attn__rotary rotary = {.rotated = 8};
    const attn__activation act = {.kind = ATTN_ACTIVATION_RELU};
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
    size[0] = 7 * attn__view_bytes(&x) + 3 * attn__view_bytes(&wide), size[1] = size[2] = 0;
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
    check("others", others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_added_to)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/kernels.h"

/* The room that is asked for beforehand is what linear attention and maps to features take of each thread. */
static view heads_of(float *numbers, int64_t rows, int64_t heads, int64_t width)
{
    return (view){numbers, rows, heads, width, heads * width, width, ATTN_FLOAT32, 0};
}

static int64_t taken(int64_t rows, int64_t heads, int64_t size, int64_t features, int64_t value_size)
{
    const attn__kernels *table;
    attn_context *ctx;
    const attn_segment all = {0, rows, 0, 0};
    const int64_t widest = (features > size ? features : size) + value_size;
    float *numbers = calloc((size_t)(rows * heads * widest + features * size), sizeof *numbers);
    float *results = calloc((size_t)(rows * heads * widest), sizeof *results);
    assert_true(numbers != NULL && results != NULL);
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT32, &table), ATTN_OK);
    const attn__linear_arguments a = {.query = heads_of(numbers, rows, heads, features),
                                      .key = heads_of(numbers, rows, heads, features),
                                      .value = heads_of(numbers, rows, heads, value_size),
                                      .output = heads_of(results, rows, heads, value_size),
                                      .causal = 1,
                                      .query_segments = {1, rows, &all},
                                      .key_segments = {1, rows, &all}};
    assert_int_equal(table->linear_attention(ctx, &a), ATTN_OK);
    if (size > 0) {
        const attn__features map = {ATTN_FEATURES_POSITIVE, 0, 1, {numbers, features, 1, size, size, 0, ATTN_FLOAT32, 0}};
        const view x = heads_of(numbers, rows, heads, size), y = heads_of(numbers, rows, heads, features);
        view dx = heads_of(results, rows, heads, size);
        assert_int_equal(table->feature_map_back(ctx, &x, &map, &y, &y, 0, &dx), ATTN_OK);
    }
    const int64_t bytes = ctx->worker_bytes;
    attn_context_free(ctx);
    free(numbers);
    free(results);
    return bytes;
}

static void test_room(void **state)
{
    static const int64_t sizes[] = {0, 3, 16, 300}, features[] = {1, 8, 17, 700}, values[] = {1, 15, 16, 40}, heads[] = {1, 3};
    const attn__kernels *table = attn__kernels_blas(0);
    (void)state;
    for (int i = 0; i < 4 * 4 * 4 * 2; i++) {
        const int64_t size = sizes[i % 4], count = features[i / 4 % 4], value = values[i / 16 % 4], h = heads[i / 64];
        const int64_t room = (table->linear_room(h, size, count, value) + 63) / 64 * 64, bytes = taken(70, h, size, count, value);
        if (room != bytes)
            fail_msg("%d heads, %d columns, %d features, values of %d: %lld bytes foretold, %lld taken", (int)h, (int)size, (int)count,
                     (int)value, (long long)room, (long long)bytes);
        assert_int_equal(attn__kernels_reference_float32.linear_room(h, size, count, value), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which table a context gets, and what the counting table counts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/kernels.h"

static attn_context *open_context(int32_t backend)
{
    attn_context_options options;
    attn_context *ctx;
    assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
    options.backend = backend;
    options.threads = 1;
    assert_int_equal(attn_context_create(&options, &ctx), ATTN_OK);
    return ctx;
}

static void test_select(void **state)
{
    attn_context *ctx = open_context(ATTN_BACKEND_BLAS);
    const attn__kernels *table, *again;
    (void)state;
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT32, &table), ATTN_OK);
    assert_int_equal(table->dtype, ATTN_FLOAT32);
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT32, &again), ATTN_OK);
    assert_ptr_equal(table, again);
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT64, &table), ATTN_ERROR_UNSUPPORTED);
    assert_non_null(strstr(attn_context_last_error(ctx), "reference"));
    assert_int_equal(attn__kernels_for(ctx, ATTN_INT32, &table), ATTN_ERROR_DTYPE);
    assert_null(table);
    assert_int_equal(attn_context_set_backend(ctx, ATTN_BACKEND_REFERENCE), ATTN_OK);
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT32, &table), ATTN_OK);
    assert_ptr_equal(table, &attn__kernels_reference_float32);
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT64, &table), ATTN_OK);
    assert_ptr_equal(table, &attn__kernels_reference_float64);
    ctx->dry = 1;
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT64, &table), ATTN_OK);
    assert_ptr_equal(table, &attn__kernels_count);
    ctx->dry = 0;
    attn_context_free(ctx);
}

/* the tables for this machine come first, at most three, and nothing after them */
static void test_tables(void **state)
{
    int count = 0;
    (void)state;
    assert_null(attn__kernels_blas(-1));
    while (count < 3 && attn__kernels_blas(count) != NULL) assert_int_equal(attn__kernels_blas(count++)->dtype, ATTN_FLOAT32);
    assert_true(count >= 1);
    for (int index = count; index < 5; index++) assert_null(attn__kernels_blas(index));
    assert_int_equal(attn__kernels_reference_float32.dtype, ATTN_FLOAT32);
    assert_int_equal(attn__kernels_reference_float64.dtype, ATTN_FLOAT64);
}

/* no entry is missing from any table */
static void test_complete(void **state)
{
    attn_context *ctx = open_context(ATTN_BACKEND_BLAS);
    const attn__kernels *tables[4] = {NULL, &attn__kernels_reference_float32, &attn__kernels_reference_float64, &attn__kernels_count};
    (void)state;
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT32, &tables[0]), ATTN_OK);
    for (int t = 0; t < 4; t++) {
        assert_non_null(tables[t]->name);
        for (size_t at = offsetof(attn__kernels, linear); at < sizeof(attn__kernels); at += sizeof(void *)) {
            void *entry;
            memcpy(&entry, (const char *)tables[t] + at, sizeof entry);
            if (entry == NULL) fail_msg("%s: entry at byte %zu is missing", tables[t]->name, at);
        }
    }
    attn_context_free(ctx);
}

/* data that may not be touched: any read of it faults */
static view nowhere(int64_t rows, int64_t heads, int64_t width)
{
    return (view){(void *)64, rows, heads, width, heads * width, heads > 1 ? width : 0, ATTN_FLOAT32, 0};
}

static void test_counts(void **state)
{
    attn_context *ctx = open_context(ATTN_BACKEND_BLAS);
    const attn__kernels *t = &attn__kernels_count;
    view x = nowhere(10, 1, 6), w = nowhere(4, 1, 6), y = nowhere(10, 1, 4), b = nowhere(1, 1, 4);
    (void)state;
    assert_int_equal(attn__enter(ctx), ATTN_OK);
    ctx->counts = (attn__counts){0, 0};
    assert_int_equal(t->linear(ctx, &x, &w, &b, NULL, NULL, &y, NULL), ATTN_OK);
    assert_int_equal(ctx->counts.multiply_adds, 240);
    assert_int_equal(ctx->counts.bytes, 4 * (60 + 24 + 4 + 40));
    assert_int_equal(t->linear_d_input(ctx, &y, &w, 1, &x), ATTN_OK);
    assert_int_equal(t->linear_d_weight(ctx, &y, &x, &w, NULL), ATTN_OK);
    assert_int_equal(ctx->counts.multiply_adds, 720);
    attn__loss_sums sums = {1, 1, 1};
    assert_int_equal(t->loss(ctx, &y, &b, 0.1, 0, -1, 1, &sums), ATTN_OK);
    assert_int_equal(sums.count, 10);
    assert_true(sums.loss == 0 && sums.unsmoothed == 0);

    /* attention: a full matrix, and the blocks of a causal one: 128 by 128 in blocks of 64 has 3 of 4 */
    attn_segment segment = {0, 128, 0, 0};
    attn__attention_arguments a = {
        .query = nowhere(128, 4, 8), .key = nowhere(128, 2, 8), .value = nowhere(128, 2, 6), .output = nowhere(128, 4, 6)};
    a.d_query = a.query, a.d_key = a.key, a.d_value = a.value, a.d_output = a.output;
    a.query_segments = a.key_segments = (attn__segments){1, 128, &segment};
    ctx->counts = (attn__counts){0, 0};
    assert_int_equal(t->attention(ctx, &a), ATTN_OK);
    assert_int_equal(ctx->counts.multiply_adds, 128 * 128 * 4 * (8 + 6));
    ctx->counts = (attn__counts){0, 0};
    assert_int_equal(t->attention_back(ctx, &a), ATTN_OK);
    assert_int_equal(ctx->counts.multiply_adds, 128 * 128 * 4 * (3 * 8 + 2 * 6));
    attn_mask *mask;
    assert_int_equal(attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask), ATTN_OK);
    a.mask = mask;
    ctx->counts = (attn__counts){0, 0};
    assert_int_equal(t->attention(ctx, &a), ATTN_OK);
    assert_int_equal(ctx->counts.multiply_adds, 3 * 64 * 64 * 4 * (8 + 6));
    attn_mask_free(mask);

    /* too large stays at the largest number */
    view huge = nowhere(INT64_MAX / 4, 1, 1), wide = nowhere(INT64_MAX / 4, 1, 1);
    ctx->counts = (attn__counts){0, 0};
    assert_int_equal(t->linear_d_input(ctx, &huge, &wide, 0, &y), ATTN_OK);
    assert_true(ctx->counts.multiply_adds == INT64_MAX);
    attn__leave(ctx, ATTN_OK);
    attn_context_free(ctx);
}

/* what is not given is neither read nor written */
static void test_counts_of_parts(void **state)
{
    attn_context *ctx = open_context(ATTN_BACKEND_BLAS);
    const attn__kernels *t = &attn__kernels_count;
    view x = nowhere(10, 1, 6), b = nowhere(1, 1, 6), dy = nowhere(10, 1, 6), table = nowhere(7, 1, 6), ids = nowhere(10, 1, 1);
    const attn__places places = {NULL, NULL};
    attn__loss_sums sums = {0};
    (void)state;
    assert_int_equal(attn__enter(ctx), ATTN_OK);
#define BYTES(call, elements) \
    do { \
        ctx->counts = (attn__counts){0, 0}; \
        assert_int_equal(call, ATTN_OK); \
        assert_int_equal(ctx->counts.bytes, 4 * (elements)); \
        assert_int_equal(ctx->counts.multiply_adds, 0); \
    } while (0)
    BYTES(t->linear_d_weight(ctx, &dy, &x, NULL, &b), 60 + 2 * 6);
    BYTES(t->embed(ctx, &ids, &table, NULL, 1, ATTN_POSITIONS_NONE, NULL, places, NULL, &dy), 10 + 60 + 60);
    BYTES(t->embed(ctx, NULL, NULL, &x, 1, ATTN_POSITIONS_LEARNED, &table, places, NULL, &dy), 60 + 60 + 60);
    BYTES(t->embed(ctx, NULL, NULL, &x, 1, ATTN_POSITIONS_LEARNED, NULL, places, NULL, &dy), 60 + 60);
    BYTES(t->embed_back(ctx, NULL, 1, places, NULL, &dy, NULL, NULL, 0, &x), 60 + 60);
    BYTES(t->embed_back(ctx, &ids, 1, places, NULL, &dy, &table, NULL, 0, NULL), 10 + 60 + 2 * 60);
    BYTES(t->embed_back(ctx, NULL, 1, places, NULL, &dy, NULL, &table, 0, NULL), 60 + 2 * 60);
    BYTES(t->loss(ctx, &x, &ids, 0, 0, -1, 0, &sums), 60 + 10);
    BYTES(t->loss(ctx, &x, &ids, 0, 0, -1, 1, &sums), 2 * 60 + 10);
    BYTES(t->residual_norm_back(ctx, &dy, NULL, &x, NULL, NULL, ATTN_NORM_LAYER, NULL, &x, NULL, NULL, NULL), 3 * 60);
    BYTES(t->residual_norm_back(ctx, &dy, NULL, &x, NULL, NULL, ATTN_NORM_LAYER, NULL, &x, NULL, &b, NULL), 3 * 60 + 12);
    BYTES(t->residual_norm_back(ctx, &dy, NULL, &x, NULL, NULL, ATTN_NORM_LAYER, NULL, &x, NULL, NULL, &b), 3 * 60 + 12);
    /* keys that several queries share are visited once, wherever they stand in the list */
    attn_segment keys[3] = {{0, 64, 0, 0}, {0, 32, 0, 1}, {0, 64, 0, 2}}, queries[3] = {{0, 64, 0, 0}, {64, 64, 0, 1}, {128, 64, 0, 2}};
    attn__attention_arguments a = {
        .query = nowhere(192, 1, 8), .key = nowhere(64, 1, 8), .value = nowhere(64, 1, 8), .output = nowhere(192, 1, 8)};
    a.d_query = a.query, a.d_key = a.key, a.d_value = a.value, a.d_output = a.output;
    a.query_segments = (attn__segments){3, 192, queries};
    a.key_segments = (attn__segments){3, 64, keys};
    ctx->counts = (attn__counts){0, 0};
    assert_int_equal(t->attention_back(ctx, &a), ATTN_OK);
    assert_int_equal(ctx->counts.multiply_adds, 64 * (64 + 32 + 64) * 5 * 8);
    attn__leave(ctx, ATTN_OK);
    attn_context_free(ctx);
}

/* what the reference would take of the scratch cannot be had, and sums stay at the largest number */
static void test_too_large(void **state)
{
    attn_context *ctx = open_context(ATTN_BACKEND_REFERENCE);
    const attn__kernels *t = &attn__kernels_count;
    view huge = nowhere(1, 1, INT64_MAX / 8), ids = nowhere(1, 1, 1), y = nowhere(1, 1, 1), half = nowhere(INT64_MAX / 2 + 1, 1, 1);
    attn_segment segment = {0, 1, 0, 0};
    attn__attention_arguments a = {.query = y, .key = y, .value = y, .output = y, .d_query = y, .d_key = y, .d_value = y, .d_output = y};
    const attn__places places = {NULL, NULL};
    attn__loss_sums sums = {0};
    (void)state;
    assert_int_equal(attn__enter(ctx), ATTN_OK);
    a.query_segments = (attn__segments){1, 1, &segment};
    a.key_segments = (attn__segments){1, INT64_MAX / 8, &segment};
    assert_int_equal(t->attention(ctx, &a), ATTN_ERROR_TOO_LARGE);
    a.key.rows = INT64_MAX / 8;
    assert_int_equal(t->attention_back(ctx, &a), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(t->embed_back(ctx, &ids, 1, places, NULL, &huge, &y, NULL, 0, NULL), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(t->loss(ctx, &huge, &ids, 0, 0, -1, 1, &sums), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(t->next_token(ctx, &huge, 1, 0, 1, NULL, NULL), ATTN_ERROR_TOO_LARGE);
    ctx->counts = (attn__counts){0, 0};
    for (int i = 0; i < 2; i++) assert_int_equal(t->linear_d_input(ctx, &half, &y, 0, &y), ATTN_OK);
    assert_true(ctx->counts.multiply_adds == INT64_MAX);
    attn__leave(ctx, ATTN_OK);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_select),          cmocka_unit_test(test_tables),
                                       cmocka_unit_test(test_complete),        cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_counts_of_parts), cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

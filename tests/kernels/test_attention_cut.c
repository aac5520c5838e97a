#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/attention_cut.h"

/* How attention is cut, on both sides of every border: results are the same for any cut, time and reports of cost are not. */
static void test_cut(void **state)
{
    (void)state;
    const struct {
        int64_t queries, keys, size, block_rows, block_keys;
    } cases[] = {
        {768, 1000, 64, 64, 192},  {769, 1000, 64, 256, 256},             /* short and long */
        {768, 1000, 100, 64, 128}, {100, 1000, 500, 64, 64},              /* whole steps of keys under a small product, one at least */
        {100, 1000, 1, 64, 256},   {100, 1000, INT64_C(1) << 60, 64, 64}, /* nothing overflows */
        {16, 5000, 64, 16, 1024},  {17, 5000, 64, 17, 192},               /* few rows take long ones */
        {3, 10000, 64, 3, 5472},   {3, 5471, 64, 3, 5471},                /* whole lanes, or all keys */
        {0, 10, 8, 1, 10},         {5, 0, 8, 5, 1},                       /* never 0 */
        {0, 0, 0, 1, 1},           {100, 150, 64, 64, 150},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn__attention_cut cut = attn__attention_cut_of(cases[i].queries, cases[i].keys, cases[i].size);
        if (cut.rows != cases[i].block_rows || cut.keys != cases[i].block_keys)
            fail_msg("case %zu: got %lld by %lld", i, (long long)cut.rows, (long long)cut.keys);
    }
}

/* the longest segments, wherever they stand, and the wider of keys and values */
static void test_for(void **state)
{
    (void)state;
    attn_segment queries[3] = {{0, 5, 0, 0}, {5, 40, 0, 0}, {45, 3, 0, 0}}, keys[3] = {{0, 2, 0, 0}, {2, 900, 0, 0}, {902, 40, 0, 0}};
    attn__attention_arguments a = {.query_segments = {3, 48, queries}, .key_segments = {3, 942, keys}};
    for (int wide = 0; wide < 2; wide++) {
        a.query.width = wide ? 64 : 100;
        a.value.width = wide ? 100 : 64;
        attn__attention_cut cut = attn__attention_cut_for(&a);
        assert_true(cut.rows == 40 && cut.keys == 128);
    }
}

/* A mask of gaps takes small tiles where they list much less, and then alone. */
static void test_by_mask(void **state)
{
    (void)state;
    attn_context *ctx;
    attn_mask *random, *coarse, *window, *dilated;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn_mask_random(ctx, ATTN_ALIGN_LAST, 64, 2, 1, &random), ATTN_OK);
    assert_int_equal(attn_mask_random(ctx, ATTN_ALIGN_LAST, 512, 1, 1, &coarse), ATTN_OK);
    assert_int_equal(attn_mask_window(ctx, ATTN_ALIGN_LAST, 8, 0, 1, &window), ATTN_OK);
    assert_int_equal(attn_mask_window(ctx, ATTN_ALIGN_LAST, 1024, 0, 2, &dilated), ATTN_OK);
    const struct {
        const attn_mask *mask;
        int64_t length, rows, keys, key_tile;
    } cases[] = {
        {NULL, 2048, 256, 256, 128},    {random, 2048, 64, 192, 64},   {random, 769, 64, 192, 64}, {random, 768, 64, 192, 128},
        {coarse, 2048, 256, 256, 128},  {window, 2048, 256, 256, 128}, /* its edges list less by small tiles, but not its rows of keys */
        {dilated, 2048, 256, 256, 128},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_segment one = {0, cases[i].length, 0, 0};
        attn__attention_arguments a = {.query_segments = {1, cases[i].length, &one}, .key_segments = {1, cases[i].length, &one}};
        a.query.width = a.value.width = 64;
        a.mask = cases[i].mask;
        attn__attention_cut cut = attn__attention_cut_for(&a);
        if (cut.rows != cases[i].rows || cut.keys != cases[i].keys || cut.key_tile != cases[i].key_tile)
            fail_msg("case %zu: got %lld by %lld, tiles of %lld", i, (long long)cut.rows, (long long)cut.keys, (long long)cut.key_tile);
    }
    attn_mask_free(random);
    attn_mask_free(coarse);
    attn_mask_free(window);
    attn_mask_free(dilated);
    attn_context_free(ctx);
}

static void test_one_sweep(void **state)
{
    (void)state;
    enum { FEW = 1 << 14, MANY = 1 << 20 };
    assert_int_equal(attn__attention_one_sweep(4, 2, 100, MANY), 1); /* jobs enough */
    assert_int_equal(attn__attention_one_sweep(7, 1, 15, MANY), 0);
    assert_int_equal(attn__attention_one_sweep(7, 1, 14, MANY), 1); /* two tiles a group */
    assert_int_equal(attn__attention_one_sweep(4, 1, 9, FEW), 1);   /* little to do */
    assert_int_equal(attn__attention_one_sweep(4, 1, 9, FEW + 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut), cmocka_unit_test(test_for), cmocka_unit_test(test_by_mask),
                                       cmocka_unit_test(test_one_sweep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

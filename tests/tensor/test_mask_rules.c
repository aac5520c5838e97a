#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "core/context.h"
#include "tensor/mask.h"
#include "tensor/tensor.h"

/* Masks made of others, where the parts of a row touch, miss each other by one key, or go on for longer than the 256 keys that are
   merged at once: each row and each block against the definition. */
#define OK(call) assert_int_equal(call, ATTN_OK)
enum { QUERIES = 5, KEYS = 600 };

static attn_context *ctx;
static int64_t queries, keys;

static attn_mask *window(int32_t alignment, int64_t left, int64_t right)
{
    attn_mask *mask = NULL;
    OK(attn_mask_window(ctx, alignment, left, right, 1, &mask));
    return mask;
}

static int listed(int64_t i, int64_t j)
{
    return (i * 7 + j * 5) % 3 != 0;
}

/* the numbers lie two apart on the last axis, with others between them */
static attn_mask *boolean(void)
{
    static uint8_t bytes[QUERIES * 2 * KEYS];
    const int64_t shape[4] = {1, 1, queries, keys}, strides[4] = {0, 0, 2 * keys, 2};
    attn_tensor *tensor = NULL;
    attn_mask *mask = NULL;
    memset(bytes, 7, sizeof bytes);
    for (int64_t i = 0; i < queries; i++)
        for (int64_t j = 0; j < keys; j++) bytes[2 * (i * keys + j)] = (uint8_t)listed(i, j);
    OK(attn_tensor_wrap(ctx, ATTN_UINT8, 4, shape, strides, bytes, &tensor));
    OK(attn_mask_boolean(ctx, tensor, &mask));
    attn_tensor_free(tensor);
    return mask;
}

static attn_mask *joined(int all, attn_mask *a, attn_mask *b)
{
    attn_mask *mask = NULL;
    OK((all ? attn_mask_intersection : attn_mask_union)(ctx, a, b, &mask));
    attn_mask_free(a);
    attn_mask_free(b);
    return mask;
}

static int in(int64_t j, int64_t place, int64_t left, int64_t right)
{
    return j >= place - left && j <= place + right;
}

enum { TWO_PLACES, TWO_PLACES_BOUNDED, LIST_AND_WINDOW, LIST_OR_WINDOW, LIST, KINDS };

static attn_mask *make(int kind)
{
    switch (kind) {
    case TWO_PLACES: return joined(0, window(ATTN_ALIGN_LAST, 0, 0), window(ATTN_ALIGN_FIRST, 0, 0));
    case TWO_PLACES_BOUNDED:
        return joined(1, joined(0, window(ATTN_ALIGN_LAST, 1, 0), window(ATTN_ALIGN_FIRST, 0, 1)), window(ATTN_ALIGN_LAST, KEYS, 0));
    case LIST_AND_WINDOW: return joined(1, boolean(), window(ATTN_ALIGN_LAST, 20, 0));
    case LIST_OR_WINDOW: return joined(0, window(ATTN_ALIGN_LAST, 20, 3), boolean());
    default: return boolean();
    }
}

static int sees(int kind, int64_t i, int64_t j)
{
    int64_t last = i + keys - queries;
    switch (kind) {
    case TWO_PLACES: return j == last || j == i;
    case TWO_PLACES_BOUNDED: return (in(j, last, 1, 0) || in(j, i, 0, 1)) && j <= last;
    case LIST_AND_WINDOW: return listed(i, j) && in(j, last, 20, 0);
    case LIST_OR_WINDOW: return listed(i, j) || in(j, last, 20, 3);
    default: return listed(i, j);
    }
}

static void expect_row(const attn_mask *mask, const attn__pair *pair, int kind, int64_t i, int64_t first, int64_t count)
{
    uint8_t allowed[KEYS];
    int64_t low = 0, high = 0;
    memset(allowed, 9, sizeof allowed);
    int bytes = attn__mask_row(mask, pair, 0, i, first, count, &low, &high, allowed);
    for (int64_t j = 0; j < count; j++) {
        int got = j >= low && j < high && (!bytes || allowed[j]);
        if (got != sees(kind, i, first + j))
            fail_msg("mask %d, %lld keys, query %lld, key %lld: got %d", kind, (long long)keys, (long long)i, (long long)(first + j), got);
    }
}

static void expect_block(const attn_mask *mask, const attn__pair *pair, int kind, int64_t i, int64_t rows, int64_t first, int64_t count)
{
    int64_t seen = 0;
    for (int64_t r = i; r < i + rows; r++)
        for (int64_t j = first; j < first + count; j++) seen += sees(kind, r, j);
    int32_t got = attn__mask_block(mask, pair, i, rows, first, count);
    if (got == ATTN__BLOCK_NONE) assert_int_equal(seen, 0);
    if (got == ATTN__BLOCK_FULL) assert_int_equal(seen, rows * count);
}

static void test_joined(void **state)
{
    static const int64_t lengths[] = {5, 6, 7, 8, 9, 300, KEYS};
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    queries = QUERIES;
    for (size_t n = 0; n < sizeof lengths / sizeof lengths[0]; n++) {
        keys = lengths[n];
        const attn_segment query = {0, queries, 0, 0}, key = {0, keys, 0, 0};
        const attn__pair pair = {0, &query, &key};
        for (int kind = 0; kind < KINDS; kind++) {
            attn_mask *mask = make(kind);
            for (int64_t i = 0; i < queries; i++) {
                expect_row(mask, &pair, kind, i, 0, keys);
                for (int64_t first = 0; first < keys; first += 1 + keys / 9) expect_row(mask, &pair, kind, i, first, keys - first);
            }
            for (int64_t i = 0; i < queries; i += 2)
                for (int64_t first = 0; first < keys; first++) {
                    int64_t count = 1 + (first * 3 + i) % (keys - first), rows = 1 + (first + i) % (queries - i);
                    expect_block(mask, &pair, kind, i, rows, first, count);
                }
            attn_mask_free(mask);
        }
    }
    attn_context_free(ctx);
}

/* a cache grows at its end: what counts from the first key, or lists pairs by number, does not fit it */
static void test_fits_a_cache(void **state)
{
    attn_mask *mask = NULL;
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    queries = 2, keys = 3;
    const int32_t fits[] = {1, 0, 1}; /* ATTN_ALIGN_LAST, _FIRST, _POSITION */
    for (int32_t alignment = ATTN_ALIGN_LAST; alignment <= ATTN_ALIGN_POSITION; alignment++) {
        mask = window(alignment, 2, 0);
        assert_int_equal(attn__mask_fits_cache(mask), fits[alignment]);
        attn_mask_free(mask);
        OK(attn_mask_causal(ctx, alignment, &mask));
        assert_int_equal(attn__mask_fits_cache(mask), fits[alignment]);
        mask = joined(1, window(ATTN_ALIGN_LAST, 1, 0), mask);
        assert_int_equal(attn__mask_fits_cache(mask), fits[alignment]);
        attn_mask_free(mask);
        const int64_t first = 0;
        OK(attn_mask_global(ctx, alignment, 1, &first, &mask));
        assert_int_equal(attn__mask_fits_cache(mask), fits[alignment]);
        attn_mask_free(mask);
        OK(attn_mask_logarithmic(ctx, alignment, 0, &mask));
        assert_int_equal(attn__mask_fits_cache(mask), fits[alignment]);
        attn_mask_free(mask);
        for (int64_t stride = ATTN_DERIVED; stride <= 4; stride += 4 - ATTN_DERIVED) { /* the root of the keys grows with them */
            OK(attn_mask_strided(ctx, alignment, stride, ATTN_PART_LOCAL, &mask));
            assert_int_equal(attn__mask_fits_cache(mask), stride > 0 && fits[alignment]);
            for (int place = 0; place < 3; place++) { /* whichever head's it is */
                const attn_mask *const heads[] = {place == 0 ? mask : NULL, place == 1 ? mask : NULL, place == 2 ? mask : NULL};
                attn_mask *of_heads;
                OK(attn_mask_heads(ctx, 3, heads, &of_heads));
                assert_int_equal(attn__mask_fits_cache(of_heads), stride > 0 && fits[alignment]);
                attn_mask_free(of_heads);
            }
            attn_mask_free(mask);
        }
        OK(attn_mask_random(ctx, alignment, 2, 1, 1, &mask));
        assert_int_equal(attn__mask_fits_cache(mask), 0);
        attn_mask_free(mask);
    }
    mask = joined(0, window(ATTN_ALIGN_LAST, 1, 0), boolean());
    assert_int_equal(attn__mask_fits_cache(mask), 0);
    attn_mask_free(mask);
    assert_int_equal(attn__mask_fits_cache(NULL), 1);
    attn_context_free(ctx);
}

static attn_mask *additive(int64_t heads)
{
    const int64_t shape[4] = {1, heads, 2, 3};
    attn_tensor *values;
    attn_mask *mask;
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 4, shape, &values));
    for (int64_t i = 0; i < 6 * heads; i++) ((float *)attn_tensor_data(values))[i] = 1;
    OK(attn_mask_additive(ctx, values, &mask));
    attn_tensor_free(values);
    return mask;
}

static void expect_kind(attn_mask *mask, int by_head, int has_values)
{
    assert_int_equal(attn__mask_by_head(mask), by_head);
    assert_int_equal(attn__mask_has_values(mask), has_values);
    attn_mask_free(mask);
}

/* whether heads may differ, so that one may pass over what another sees, and whether scores gain numbers: of every kind and what is made of it */
static void test_kinds(void **state)
{
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    queries = 2, keys = 3;
    expect_kind(NULL, 0, 0);
    expect_kind(window(ATTN_ALIGN_LAST, 1, 0), 0, 0);
    expect_kind(boolean(), 0, 0);
    static uint8_t bytes[12];
    attn_tensor *of_heads;
    attn_mask *listed_by_head;
    const int64_t shape[4] = {1, 2, 2, 3};
    OK(attn_tensor_wrap(ctx, ATTN_UINT8, 4, shape, NULL, bytes, &of_heads));
    OK(attn_mask_boolean(ctx, of_heads, &listed_by_head));
    attn_tensor_free(of_heads);
    expect_kind(listed_by_head, 1, 0);
    expect_kind(additive(1), 0, 1);
    expect_kind(additive(2), 1, 1);
    for (int first = 0; first < 2; first++) { /* whichever side it stands on */
        attn_mask *number = additive(2), *near = window(ATTN_ALIGN_LAST, 1, 0);
        expect_kind(first ? joined(1, number, near) : joined(1, near, number), 1, 1);
    }
    for (int numbers = 0; numbers < 2; numbers++) {
        attn_mask *one = numbers ? additive(1) : window(ATTN_ALIGN_LAST, 1, 0), *all;
        const attn_mask *const heads[] = {one, NULL};
        OK(attn_mask_heads(ctx, 2, heads, &all));
        attn_mask_free(one);
        expect_kind(all, 1, numbers);
    }
    attn_context_free(ctx);
}

/* no rows or no keys see nothing; distances past 2^62 have no power of two above them */
static void test_ends(void **state)
{
    (void)state;
    const attn_segment queries_at = {0, INT64_MAX, 0, 0}, keys_at = {0, INT64_MAX, 0, 0};
    const attn__pair pair = {0, &queries_at, &keys_at};
    attn_mask *mask = NULL;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn__mask_block(NULL, &pair, 0, 0, 0, 5), ATTN__BLOCK_NONE);
    assert_int_equal(attn__mask_block(NULL, &pair, 0, 5, 0, 0), ATTN__BLOCK_NONE);
    assert_int_equal(attn__mask_block(NULL, &pair, 0, 5, 0, 5), ATTN__BLOCK_FULL);
    OK(attn_mask_logarithmic(ctx, ATTN_ALIGN_FIRST, 0, &mask));
    assert_int_equal(attn__mask_block(mask, &pair, (INT64_C(1) << 62) + 9, 1, 0, 3), ATTN__BLOCK_NONE);
    assert_int_equal(attn__mask_block(mask, &pair, (INT64_C(1) << 62) + 2, 1, 0, 3), ATTN__BLOCK_PARTIAL);
    attn_mask_free(mask);
    queries = 2, keys = 3;
    for (int first = 0; first < 2; first++) { /* one side that does not fit a cache is enough */
        attn_mask *listed_side = boolean(), *near = window(ATTN_ALIGN_LAST, 1, 0);
        mask = first ? joined(0, listed_side, near) : joined(0, near, listed_side);
        assert_int_equal(attn__mask_fits_cache(mask), 0);
        attn_mask_free(mask);
    }
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_joined), cmocka_unit_test(test_fits_a_cache), cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

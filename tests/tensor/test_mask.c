#include <math.h>
#include "mask_cases.h"

static const int64_t block_sizes[] = {1, 3, 64};

static void check_row(const rule *r, const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys)
{
    enum { GUARD = 64, MARK = 0x5a };
    uint8_t room[GUARD + MOST_KEYS + GUARD], *allowed = room + GUARD;
    int64_t low, high;
    memset(room, MARK, sizeof room);
    int32_t bytes = attn__mask_row(mask, pair, head, i, j, keys, &low, &high, allowed);
    int beside = 0;
    for (int64_t c = 1; c <= GUARD; c++) beside |= allowed[-c] != MARK || allowed[keys - 1 + c] != MARK;
    if (beside) fail_msg("rule %d, query %d, keys %d to %d: bytes beside the row", (int)(r - rules), (int)i, (int)j, (int)(j + keys - 1));
    assert_true(low >= 0 && low <= high && high <= keys);
    for (int64_t c = 0; c < keys; c++) {
        int got = c >= low && c < high && (!bytes || allowed[c] == 1);
        if (got != sees(r, pair, head, i, j + c))
            fail_msg("rule %d, pair %d (%d by %d), head %d: query %d, key %d: got %d", (int)(r - rules), (int)pair->index,
                     (int)pair->query->length, (int)pair->key->length, (int)head, (int)i, (int)(j + c), got);
        if (bytes) assert_true(allowed[c] <= 1);
        if (bytes && (c < low || c >= high)) assert_int_equal(allowed[c], 0);
    }
}

static void test_rows_are_the_definition(void **state)
{
    fixture *f = *state;
    for (int t = 0; t < RULES; t++) {
        attn_mask *mask = make_mask(f->ctx, &rules[t]);
        for (int s = 0; s < SIZES; s++) {
            attn_segment query[5], key[5];
            attn__segments q, k;
            make_segments(sizes[s], query, key, &q, &k);
            EXPECT_OK(attn__mask_check(f->ctx, "mask", mask, HEADS, q, k));
            for (int64_t p = 0; p < 5; p++) {
                attn__pair pair = {p, &query[p], &key[p]};
                for (int64_t i = 0; i < query[p].length; i++)
                    for (size_t b = 0; b < 4; b++) { /* pieces of 1, 3, 64, and all at once */
                        int64_t block = b < 3 ? block_sizes[b] : MOST_KEYS, head = (i + (int64_t)b) % HEADS;
                        for (int64_t j = 0; j < key[p].length; j += block)
                            check_row(&rules[t], mask, &pair, head, i, j, key[p].length - j < block ? key[p].length - j : block);
                    }
            }
        }
        attn_mask_free(mask);
    }
}

/* of all heads together, and of each by itself */
static void check_block(const rule *r, const attn_mask *mask, const attn__pair *pair, int64_t i, int64_t rows, int64_t j, int64_t keys)
{
    int64_t seen[HEADS + 1] = {0};
    for (int64_t h = 0; h < HEADS; h++) {
        for (int64_t row = i; row < i + rows; row++)
            for (int64_t c = j; c < j + keys; c++) seen[h] += sees(r, pair, h, row, c);
        seen[HEADS] += seen[h];
    }
    int joined = r->kind >= PER_HEAD || ((r->kind == STRIDED || r->kind == FIXED) && r->dilation == 3);
    for (int64_t h = 0; h <= HEADS; h++) {
        int64_t all = rows * keys * (h < HEADS ? 1 : HEADS);
        int32_t exact = seen[h] == 0 ? ATTN__BLOCK_NONE : seen[h] == all ? ATTN__BLOCK_FULL : ATTN__BLOCK_PARTIAL;
        int32_t got =
            h < HEADS ? attn__mask_block_of_head(mask, pair, h, i, rows, j, keys) : attn__mask_block(mask, pair, i, rows, j, keys);
        if (got != exact && (got != ATTN__BLOCK_PARTIAL || !joined)) /* only unions and intersections may be cautious */
            fail_msg("rule %d, pair %d, head %d: queries %d + %d, keys %d + %d: got %d, expected %d", (int)(r - rules), (int)pair->index,
                     (int)h, (int)i, (int)rows, (int)j, (int)keys, got, exact);
    }
}

static void test_blocks_are_the_definition(void **state)
{
    fixture *f = *state;
    static const int64_t cuts[] = {3, 7, 64};
    for (int t = 0; t < RULES; t++) {
        attn_mask *mask = make_mask(f->ctx, &rules[t]);
        for (int s = 0; s < SIZES; s++) {
            attn_segment query[5], key[5];
            attn__segments q, k;
            make_segments(sizes[s], query, key, &q, &k);
            for (int64_t p = 0; p < 5; p++) {
                attn__pair pair = {p, &query[p], &key[p]};
                int64_t m = query[p].length, n = key[p].length;
                for (int c = 0; c < 3; c++)
                    for (int64_t i = 0; i < m; i += cuts[c])
                        for (int64_t j = 0; j < n; j += cuts[2 - c])
                            check_block(&rules[t], mask, &pair, i, m - i < cuts[c] ? m - i : cuts[c], j,
                                        n - j < cuts[2 - c] ? n - j : cuts[2 - c]);
                for (int64_t i = 0; i < m && m <= 13; i++) /* and single pairs, which are never partial for one head */
                    for (int64_t j = 0; j < n; j++) check_block(&rules[t], mask, &pair, i, 1, j, 1);
            }
        }
        attn_mask_free(mask);
    }
}

/* keys that each query sees, as a row of counts */
static void expect_counts(const attn_mask *mask, int64_t m, int64_t n, const int64_t *counts)
{
    attn_segment query = {0, m, 0, 0}, key = {0, n, 0, 0};
    attn__pair pair = {0, &query, &key};
    for (int64_t i = 0; i < m; i++) {
        int64_t low, high;
        assert_int_equal(attn__mask_row(mask, &pair, 0, i, 0, n, &low, &high, NULL), 0);
        assert_int_equal(high - low, counts[i]);
    }
}

/* Known faults of others: B006, B007, B008 anchor the causal mask at the wrong corner, B043 counts the window one key too wide. */
static void test_known_faults(void **state)
{
    fixture *f = *state;
    attn_mask *causal, *first, *window, *both;
    EXPECT_OK(attn_mask_causal(f->ctx, ATTN_ALIGN_LAST, &causal));
    EXPECT_OK(attn_mask_causal(f->ctx, ATTN_ALIGN_FIRST, &first));
    EXPECT_OK(attn_mask_window(f->ctx, ATTN_ALIGN_LAST, 3, 0, 1, &window));
    EXPECT_OK(attn_mask_intersection(f->ctx, causal, window, &both));
    expect_counts(causal, 1, 8, (const int64_t[]){8});
    expect_counts(causal, 2, 5, (const int64_t[]){4, 5});
    expect_counts(causal, 5, 2, (const int64_t[]){0, 0, 0, 1, 2});
    expect_counts(first, 5, 2, (const int64_t[]){1, 2, 2, 2, 2});
    expect_counts(window, 8, 8, (const int64_t[]){1, 2, 3, 4, 4, 4, 4, 4});
    expect_counts(both, 8, 8, (const int64_t[]){1, 2, 3, 4, 4, 4, 4, 4});
    attn_mask *all[] = {causal, both, window, first};
    for (int i = 0; i < 4; i++) attn_mask_free(all[i]);
}

static void test_boolean_reads_types_and_strides(void **state)
{
    fixture *f = *state;
    int32_t given[2 * 3 * 2] = {0, 9, -1, 9, 0, 9, 256, 9, 0, 9, 5, 9}; /* every second is a gap */
    attn_tensor *allowed;
    attn_mask *mask;
    EXPECT_OK(attn_tensor_wrap(f->ctx, ATTN_INT32, 4, (const int64_t[]){1, 1, 2, 3}, (const int64_t[]){0, 0, 6, 2}, given, &allowed));
    EXPECT_OK(attn_mask_boolean(f->ctx, allowed, &mask));
    memset(given, 0, sizeof given); /* the mask is a copy */
    attn_segment query = {0, 2, 0, 0}, key = {0, 3, 0, 0};
    attn__pair pair = {0, &query, &key};
    static const int expected[2][3] = {{0, 1, 0}, {1, 0, 1}};
    for (int64_t i = 0; i < 2; i++) {
        uint8_t row[3];
        int64_t low, high;
        assert_int_equal(attn__mask_row(mask, &pair, 0, i, 0, 3, &low, &high, row), 1);
        for (int j = 0; j < 3; j++) assert_int_equal(row[j], expected[i][j]);
        assert_int_equal(low, i == 0 ? 1 : 0);
        assert_int_equal(high, i == 0 ? 2 : 3);
    }
    attn_mask_free(mask);
    attn_tensor_free(allowed);
}

static void test_additive_reads_types_and_strides(void **state)
{
    fixture *f = *state;
    double given[2 * 3 * 2] = {-INFINITY, 9, 1.5, 9, -2, 9, 0, 9, -INFINITY, 9, -1e30, 9}; /* every second is a gap */
    attn_tensor *values;
    attn_mask *mask;
    EXPECT_OK(attn_tensor_wrap(f->ctx, ATTN_FLOAT64, 4, (const int64_t[]){1, 1, 2, 3}, (const int64_t[]){0, 0, 6, 2}, given, &values));
    EXPECT_OK(attn_mask_additive(f->ctx, values, &mask));
    attn_segment query = {0, 2, 0, 0}, key = {0, 3, 0, 0};
    attn__pair pair = {0, &query, &key};
    for (int64_t i = 0; i < 2; i++) {
        float scores[3] = {0};
        attn__mask_add_values(mask, &pair, 0, i, 0, 3, scores);
        for (int64_t j = 0; j < 3; j++) {
            assert_true(attn__mask_value(mask, &pair, 0, i, j) == (double)(float)given[6 * i + 2 * j]);
            assert_true(scores[j] == (float)given[6 * i + 2 * j]);
        }
    }
    attn_mask_free(mask);
    attn_tensor_free(values);
}

static void test_boolean_against_a_call(void **state)
{
    fixture *f = *state;
    attn_mask *mask = boolean_mask(f->ctx, (const int64_t[]){3, 2, 4, 5}), *causal, *joined, *turned;
    EXPECT_OK(attn_mask_causal(f->ctx, ATTN_ALIGN_LAST, &causal));
    EXPECT_OK(attn_mask_union(f->ctx, causal, mask, &joined));
    EXPECT_OK(attn_mask_union(f->ctx, mask, causal, &turned));
    attn_segment query[4] = {{0, 4, 0, 0}, {4, 2, 0, 1}, {6, 0, 0, 2}, {6, 0, 0, 3}};
    attn_segment key[4] = {{0, 5, 0, 0}, {5, 1, 0, 1}, {6, 5, 0, 2}, {11, 0, 0, 3}};
    attn__segments q = {3, 6, query}, k = {3, 11, key};
    const attn_mask *all[] = {mask, joined, turned};
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(attn__mask_check(f->ctx, "mask", all[i], 2, q, k));
        EXPECT_FAILS(f->ctx, attn__mask_check(f->ctx, "mask", all[i], 3, q, k), ATTN_ERROR_SHAPE, "mask: got shape [3, 2");
        attn__segments four = {4, 6, query}, four_keys = {4, 11, key};
        EXPECT_FAILS(f->ctx, attn__mask_check(f->ctx, "mask", all[i], 2, four, four_keys), ATTN_ERROR_SHAPE, "1 or 4");
        query[1].length = 5;
        EXPECT_FAILS(f->ctx, attn__mask_check(f->ctx, "mask", all[i], 2, q, k), ATTN_ERROR_SHAPE, "segment 1");
        query[1].length = 2;
        key[2].length = 6;
        EXPECT_FAILS(f->ctx, attn__mask_check(f->ctx, "mask", all[i], 2, q, k), ATTN_ERROR_SHAPE, "segment 2");
        key[2].length = 5;
    }
    EXPECT_OK(attn__mask_check(f->ctx, "mask", NULL, 2, q, k));
    attn_mask_free(causal);
    attn_mask_free(mask);
    attn_mask_free(joined);
    attn_mask_free(turned);
}

static void test_bad_arguments(void **state)
{
    fixture *f = *state;
    attn_context *ctx = f->ctx;
    attn_mask *mask, *other = (attn_mask *)f;
    attn_tensor *floats, *flat;
    EXPECT_OK(attn_tensor_create(ctx, ATTN_FLOAT32, 4, (const int64_t[]){1, 1, 2, 2}, &floats));
    EXPECT_OK(attn_tensor_create(ctx, ATTN_UINT8, 2, (const int64_t[]){2, 2}, &flat));
    EXPECT_OK(attn_mask_causal(ctx, 0, &mask));
    EXPECT_FAILS(ctx, attn_mask_causal(ctx, 3, &other), ATTN_ERROR_INVALID_ARGUMENT, "alignment: got 3");
    EXPECT_FAILS(ctx, attn_mask_causal(ctx, 0, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    EXPECT_FAILS(ctx, attn_mask_window(ctx, -1, 1, 1, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "alignment: got -1");
    EXPECT_FAILS(ctx, attn_mask_window(ctx, 0, -2, 1, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "left");
    EXPECT_FAILS(ctx, attn_mask_window(ctx, 0, 1, -2, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "right");
    EXPECT_FAILS(ctx, attn_mask_window(ctx, 0, 1, 1, 0, &other), ATTN_ERROR_INVALID_ARGUMENT, "dilation: got 0");
    EXPECT_FAILS(ctx, attn_mask_window(ctx, 0, 1, 1, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    EXPECT_FAILS(ctx, attn_mask_boolean(ctx, NULL, &other), ATTN_ERROR_INVALID_ARGUMENT, "allowed: got NULL");
    EXPECT_FAILS(ctx, attn_mask_boolean(ctx, floats, &other), ATTN_ERROR_DTYPE, "allowed: got float32");
    EXPECT_FAILS(ctx, attn_mask_boolean(ctx, flat, &other), ATTN_ERROR_SHAPE, "allowed: got rank 2");
    EXPECT_FAILS(ctx, attn_mask_union(ctx, NULL, mask, &other), ATTN_ERROR_INVALID_ARGUMENT, "a: got NULL");
    EXPECT_FAILS(ctx, attn_mask_intersection(ctx, mask, NULL, &other), ATTN_ERROR_INVALID_ARGUMENT, "b: got NULL");
    EXPECT_FAILS(ctx, attn_mask_union(ctx, mask, mask, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    assert_null(other); /* whatever the failure */
    assert_int_equal(attn_mask_causal(NULL, 0, &other), ATTN_ERROR_INVALID_ARGUMENT);

    attn_tensor *endless, *empty; /* more than there are bytes; and none */
    EXPECT_OK(attn_tensor_wrap(ctx, ATTN_UINT8, 4, (const int64_t[]){1, 1, 1, INT64_MAX}, NULL, f, &endless));
    EXPECT_FAILS(ctx, attn_mask_boolean(ctx, endless, &other), ATTN_ERROR_TOO_LARGE, "mask");
    EXPECT_OK(attn_tensor_create(ctx, ATTN_UINT8, 4, (const int64_t[]){1, 1, 0, 4}, &empty));
    EXPECT_OK(attn_mask_boolean(ctx, empty, &other));
    attn_mask_free(other);
    attn_tensor_free(endless);
    attn_tensor_free(empty);

    attn_mask *doubled = mask; /* each level doubles the work: refused long before it matters */
    int levels = 0;
    for (attn_status status; (status = attn_mask_union(ctx, doubled, doubled, &other)) != ATTN_ERROR_UNSUPPORTED; levels++) {
        EXPECT_OK(status);
        attn_mask_free(doubled);
        doubled = other;
    }
    assert_int_equal(levels, 9);
    for (int i = 0; i < 2; i++) { /* a mask for every head counts as one more */
        attn_status status = attn_mask_heads(ctx, 1, (const attn_mask *const *)&doubled, &other);
        assert_int_equal(status, i == 0 ? ATTN_OK : ATTN_ERROR_UNSUPPORTED);
        attn_mask_free(doubled);
        doubled = other;
    }
    attn_mask *leaf, *chain;
    EXPECT_OK(attn_mask_causal(ctx, 0, &leaf));
    EXPECT_OK(attn_mask_causal(ctx, 0, &chain));
    for (levels = 1; attn_mask_intersection(ctx, leaf, chain, &other) == ATTN_OK; levels++) {
        attn_mask_free(chain);
        chain = other;
    }
    assert_int_equal(levels, 64);
    EXPECT_FAILS(ctx, attn_mask_heads(ctx, 1, (const attn_mask *const *)&chain, &other), ATTN_ERROR_UNSUPPORTED, "65 deep");
    attn_mask_free(chain);
    attn_mask_free(leaf);
    attn_mask_free(NULL);
    attn_tensor_free(floats);
    attn_tensor_free(flat);
}

/* the masks of the sparse systems, of numbers and of heads */
static void test_bad_arguments_of_others(void **state)
{
    fixture *f = *state;
    attn_context *ctx = f->ctx;
    attn_mask *mask, *other = (attn_mask *)f, *number;
    attn_tensor *floats, *flat, *ints;
    const int64_t good[] = {0, 5}, falling[] = {5, 5}, negative[] = {-1};
    const int64_t all = ATTN_PART_LOCAL | ATTN_PART_SUMMARY;
    EXPECT_OK(attn_tensor_create(ctx, ATTN_FLOAT32, 4, (const int64_t[]){1, 1, 2, 2}, &floats));
    EXPECT_OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, (const int64_t[]){2, 2}, &flat));
    EXPECT_OK(attn_tensor_create(ctx, ATTN_INT32, 4, (const int64_t[]){1, 1, 2, 2}, &ints));
    EXPECT_OK(attn_mask_causal(ctx, 0, &mask));
    EXPECT_OK(attn_mask_additive(ctx, floats, &number));
    EXPECT_OK(attn_mask_global(ctx, 0, 0, NULL, &other)); /* no token is global, so nothing is seen */
    const attn_segment four = {0, 4, 0, 0};
    assert_int_equal(attn__mask_block(other, &(attn__pair){0, &four, &four}, 0, 4, 0, 4), ATTN__BLOCK_NONE);
    attn_mask_free(other);
    EXPECT_FAILS(ctx, attn_mask_global(ctx, 3, 2, good, &other), ATTN_ERROR_INVALID_ARGUMENT, "alignment: got 3");
    EXPECT_FAILS(ctx, attn_mask_global(ctx, 0, -1, good, &other), ATTN_ERROR_INVALID_ARGUMENT, "count: got -1");
    EXPECT_FAILS(ctx, attn_mask_global(ctx, 0, INT64_MAX, good, &other), ATTN_ERROR_INVALID_ARGUMENT, "count");
    EXPECT_FAILS(ctx, attn_mask_global(ctx, 0, 2, NULL, &other), ATTN_ERROR_INVALID_ARGUMENT, "indices: got NULL");
    EXPECT_FAILS(ctx, attn_mask_global(ctx, 0, 2, falling, &other), ATTN_ERROR_INVALID_ARGUMENT, "indices: got 5 at place 1");
    EXPECT_FAILS(ctx, attn_mask_global(ctx, 0, 1, negative, &other), ATTN_ERROR_INVALID_ARGUMENT, "indices: got -1");
    EXPECT_FAILS(ctx, attn_mask_global(ctx, 0, 2, good, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    EXPECT_FAILS(ctx, attn_mask_strided(ctx, 3, 4, (int32_t)all, &other), ATTN_ERROR_INVALID_ARGUMENT, "alignment");
    EXPECT_FAILS(ctx, attn_mask_strided(ctx, 0, 0, (int32_t)all, &other), ATTN_ERROR_INVALID_ARGUMENT, "stride: got 0");
    EXPECT_FAILS(ctx, attn_mask_strided(ctx, 0, 4, 0, &other), ATTN_ERROR_INVALID_ARGUMENT, "parts: got 0");
    EXPECT_FAILS(ctx, attn_mask_strided(ctx, 0, 4, 4, &other), ATTN_ERROR_INVALID_ARGUMENT, "parts: got 4");
    EXPECT_FAILS(ctx, attn_mask_strided(ctx, 0, 4, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    EXPECT_FAILS(ctx, attn_mask_fixed(ctx, 0, -2, 1, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "stride: got -2");
    EXPECT_FAILS(ctx, attn_mask_fixed(ctx, 0, 4, 5, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "summaries: got 5");
    EXPECT_FAILS(ctx, attn_mask_fixed(ctx, 0, 4, 0, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "summaries: got 0");
    EXPECT_FAILS(ctx, attn_mask_fixed(ctx, 0, 4, 1, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    EXPECT_FAILS(ctx, attn_mask_random(ctx, 0, 0, 1, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "block: got 0");
    EXPECT_FAILS(ctx, attn_mask_random(ctx, 0, 1, 65, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "count: got 65");
    EXPECT_FAILS(ctx, attn_mask_random(ctx, 0, 1, -1, 1, &other), ATTN_ERROR_INVALID_ARGUMENT, "count: got -1");
    EXPECT_FAILS(ctx, attn_mask_random(ctx, 0, 1, 1, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    EXPECT_FAILS(ctx, attn_mask_logarithmic(ctx, 0, 2, &other), ATTN_ERROR_INVALID_ARGUMENT, "both_sides: got 2");
    EXPECT_FAILS(ctx, attn_mask_logarithmic(ctx, 0, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    EXPECT_FAILS(ctx, attn_mask_additive(ctx, NULL, &other), ATTN_ERROR_INVALID_ARGUMENT, "values: got NULL");
    EXPECT_FAILS(ctx, attn_mask_additive(ctx, ints, &other), ATTN_ERROR_DTYPE, "values: got int32");
    EXPECT_FAILS(ctx, attn_mask_additive(ctx, flat, &other), ATTN_ERROR_SHAPE, "values: got rank 2");
    EXPECT_FAILS(ctx, attn_mask_additive(ctx, floats, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    for (int w = 0; w < 2; w++) {
        ((float *)attn_tensor_data(floats))[3] = w ? NAN : INFINITY;
        EXPECT_FAILS(ctx, attn_mask_additive(ctx, floats, &other), ATTN_ERROR_INVALID_ARGUMENT, "at element 3");
    }
    const attn_mask *const two[] = {mask, NULL}, *const wrong[] = {mask, (const attn_mask *)floats};
    EXPECT_FAILS(ctx, attn_mask_heads(ctx, 0, two, &other), ATTN_ERROR_INVALID_ARGUMENT, "count: got 0");
    EXPECT_FAILS(ctx, attn_mask_heads(ctx, 2, NULL, &other), ATTN_ERROR_INVALID_ARGUMENT, "masks: got NULL");
    EXPECT_FAILS(ctx, attn_mask_heads(ctx, 2, wrong, &other), ATTN_ERROR_INVALID_ARGUMENT, "masks");
    EXPECT_FAILS(ctx, attn_mask_heads(ctx, 2, two, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    other = (attn_mask *)f;
    EXPECT_FAILS(ctx, attn_mask_union(ctx, mask, number, &other), ATTN_ERROR_UNSUPPORTED, "additive");
    assert_null(other);

    attn_segment whole = {0, 2, 0, 0};
    const attn__segments one = {1, 2, &whole};
    EXPECT_OK(attn_mask_heads(ctx, 2, two, &other));
    EXPECT_OK(attn__mask_check(ctx, "mask", other, 2, one, one));
    EXPECT_FAILS(ctx, attn__mask_check(ctx, "mask", other, 3, one, one), ATTN_ERROR_SHAPE, "mask: got masks for 2 heads");
    EXPECT_FAILS(ctx, attn__mask_check(ctx, "mask", other, 1, one, one), ATTN_ERROR_SHAPE, "mask: got masks for 2 heads");
    attn_mask_free(other);
    const attn_mask *const small[] = {NULL, number};
    EXPECT_OK(attn_mask_heads(ctx, 2, small, &other));
    whole.length = 3;
    EXPECT_FAILS(ctx, attn__mask_check(ctx, "mask", number, 1, one, one), ATTN_ERROR_SHAPE, "mask: got shape");
    EXPECT_FAILS(ctx, attn__mask_check(ctx, "mask", other, 2, one, one), ATTN_ERROR_SHAPE, "mask: got shape");
    attn_mask_free(other);

    int64_t seen, layers;
    attn_layout *layout;
    EXPECT_OK(attn_layout_create(ctx, 1, &layout));
    EXPECT_FAILS(ctx, attn_mask_pairs(ctx, mask, 0, layout, layout, &seen, NULL), ATTN_ERROR_INVALID_ARGUMENT, "heads: got 0");
    EXPECT_FAILS(ctx, attn_mask_pairs(ctx, mask, 1, NULL, layout, &seen, NULL), ATTN_ERROR_INVALID_ARGUMENT, "query_layout: got NULL");
    EXPECT_FAILS(ctx, attn_mask_pairs(ctx, mask, 1, layout, NULL, &seen, NULL), ATTN_ERROR_INVALID_ARGUMENT, "key_layout: got NULL");
    attn_layout *two_rows;
    EXPECT_OK(attn_layout_create(ctx, 2, &two_rows));
    EXPECT_OK(attn_layout_set_lengths(ctx, two_rows, 2, (const int64_t[]){1, 1}, 0));
    EXPECT_FAILS(ctx, attn_mask_pairs(ctx, mask, 1, layout, two_rows, &seen, NULL), ATTN_ERROR_SHAPE, "key_layout: got 2 segments");
    attn_layout_free(two_rows);
    EXPECT_FAILS(ctx, attn_mask_path(ctx, mask, -1, &layers, NULL), ATTN_ERROR_INVALID_ARGUMENT, "length: got -1");
    EXPECT_FAILS(ctx, attn_mask_path(ctx, number, 3, &layers, NULL), ATTN_ERROR_SHAPE, "mask");
    attn_layout_free(layout);
    attn_mask_free(mask);
    attn_mask_free(number);
    attn_tensor_free(floats);
    attn_tensor_free(flat);
    attn_tensor_free(ints);
}

static void test_failing_allocator(void **state)
{
    fixture *f = *state;
    attn_mask *causal, *out = NULL;
    EXPECT_OK(attn_mask_causal(f->ctx, 0, &causal));
    f->fail_at = f->calls;
    assert_int_equal(attn_mask_union(f->ctx, causal, causal, &out), ATTN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(attn_mask_window(f->ctx, 0, 1, 1, 1, &out), ATTN_ERROR_OUT_OF_MEMORY);
    assert_null(out);
    attn_mask_free(causal); /* no count was left behind: the teardown finds nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_rows_are_the_definition),
        FIXTURE_TEST(test_blocks_are_the_definition),
        FIXTURE_TEST(test_known_faults),
        FIXTURE_TEST(test_boolean_reads_types_and_strides),
        FIXTURE_TEST(test_boolean_against_a_call),
        FIXTURE_TEST(test_bad_arguments),
        FIXTURE_TEST(test_additive_reads_types_and_strides),
        FIXTURE_TEST(test_bad_arguments_of_others),
        FIXTURE_TEST(test_failing_allocator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

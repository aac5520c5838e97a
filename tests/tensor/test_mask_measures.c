#include <math.h>
#include "mask_cases.h"

static attn_layout *layout_of(attn_context *ctx, const attn_segment *segments, int64_t count)
{
    attn_layout *layout;
    EXPECT_OK(attn_layout_create(ctx, count, &layout));
    EXPECT_OK(attn_layout_set(ctx, layout, count, segments));
    return layout;
}

static void test_pairs_are_the_definition(void **state)
{
    fixture *f = *state;
    for (int t = 0; t < RULES; t++) {
        attn_mask *mask = make_mask(f->ctx, &rules[t]);
        for (int s = 0; s < SIZES; s++) {
            attn_segment query[5], key[5];
            attn__segments q, k;
            int64_t seen, listed, expected = 0, most = 0;
            make_segments(sizes[s], query, key, &q, &k);
            for (int64_t p = 0; p < 5; p++) {
                attn__pair pair = {p, &query[p], &key[p]};
                most += HEADS * query[p].length * key[p].length;
                for (int64_t h = 0; h < HEADS; h++)
                    for (int64_t i = 0; i < query[p].length; i++)
                        for (int64_t j = 0; j < key[p].length; j++) expected += sees(&rules[t], &pair, h, i, j);
            }
            attn_layout *queries = layout_of(f->ctx, query, 5), *keys = layout_of(f->ctx, key, 5);
            EXPECT_OK(attn_mask_pairs(f->ctx, mask, HEADS, queries, keys, &seen, &listed));
            assert_int_equal(seen, expected);
            assert_true(listed >= seen && listed <= most);
            attn_layout_free(queries);
            attn_layout_free(keys);
        }
        attn_mask_free(mask);
    }
}

/* as many pairs as 63 bits count, and one more; heads that see the same are not looked at one by one */
static void test_counts_end_at_63_bits(void **state)
{
    fixture *f = *state;
    const attn_segment one = {0, 1, 0, 0}, two = {0, 2, 0, 0}, some = {0, 8, 0, 0}, all = {0, INT64_MAX, 0, 0};
    const attn_segment twice[2] = {all, all}, each[2] = {one, {1, 1, 0, 1}};
    attn_layout *layout_one = layout_of(f->ctx, &one, 1), *layout_two = layout_of(f->ctx, &two, 1),
                *layout_some = layout_of(f->ctx, &some, 1), *layout_all = layout_of(f->ctx, &all, 1),
                *layout_twice = layout_of(f->ctx, twice, 2), *layout_each = layout_of(f->ctx, each, 2);
    attn_mask *causal;
    int64_t seen, listed;
    EXPECT_OK(attn_mask_causal(f->ctx, ATTN_ALIGN_LAST, &causal));
    EXPECT_OK(attn_mask_pairs(f->ctx, NULL, 1, layout_one, layout_all, &seen, &listed));
    assert_true(seen == INT64_MAX && listed == INT64_MAX);
    EXPECT_FAILS(f->ctx, attn_mask_pairs(f->ctx, NULL, 2, layout_one, layout_all, &seen, &listed), ATTN_ERROR_TOO_LARGE, "pairs");
    EXPECT_FAILS(f->ctx, attn_mask_pairs(f->ctx, NULL, 1, layout_two, layout_all, &seen, &listed), ATTN_ERROR_TOO_LARGE, "pairs");
    EXPECT_FAILS(f->ctx, attn_mask_pairs(f->ctx, NULL, 1, layout_each, layout_twice, &seen, &listed), ATTN_ERROR_TOO_LARGE, "pairs");
    EXPECT_OK(attn_mask_pairs(f->ctx, causal, INT64_C(1) << 56, layout_some, layout_some, &seen, &listed));
    assert_true(seen == INT64_C(36) << 56 && listed == INT64_C(64) << 56);
    EXPECT_FAILS(f->ctx, attn_mask_pairs(f->ctx, causal, INT64_C(1) << 57, layout_some, layout_some, &seen, &listed), ATTN_ERROR_TOO_LARGE,
                 "pairs");
    attn_mask_free(causal);
    attn_layout_free(layout_one);
    attn_layout_free(layout_two);
    attn_layout_free(layout_some);
    attn_layout_free(layout_all);
    attn_layout_free(layout_twice);
    attn_layout_free(layout_each);
}

/* n queries see about n^1.5 pairs with the derived stride, and n log n with distances that double */
static void test_growth(void **state)
{
    fixture *f = *state;
    attn_mask *strided_mask, *fixed_mask, *doubling;
    EXPECT_OK(attn_mask_strided(f->ctx, ATTN_ALIGN_LAST, ATTN_DERIVED, 3, &strided_mask));
    EXPECT_OK(attn_mask_fixed(f->ctx, ATTN_ALIGN_LAST, ATTN_DERIVED, 1, 3, &fixed_mask));
    EXPECT_OK(attn_mask_logarithmic(f->ctx, ATTN_ALIGN_LAST, 0, &doubling));
    for (int64_t n = 256; n <= 4096; n *= 4) {
        attn_segment whole = {0, n, 0, 0};
        attn_layout *layout = layout_of(f->ctx, &whole, 1);
        int64_t seen;
        double root = sqrt((double)n);
        EXPECT_OK(attn_mask_pairs(f->ctx, strided_mask, 1, layout, layout, &seen, NULL));
        assert_true((double)seen > 1.2 * (double)n * root && (double)seen < 1.6 * (double)n * root);
        EXPECT_OK(attn_mask_pairs(f->ctx, fixed_mask, 1, layout, layout, &seen, NULL));
        assert_true((double)seen > 0.8 * (double)n * root && (double)seen < 1.2 * (double)n * root);
        EXPECT_OK(attn_mask_pairs(f->ctx, doubling, 1, layout, layout, &seen, NULL));
        assert_true((double)seen > (double)n * (log2((double)n) - 1) && (double)seen < (double)n * (log2((double)n) + 1));
        attn_layout_free(layout);
    }
    attn_mask_free(strided_mask);
    attn_mask_free(fixed_mask);
    attn_mask_free(doubling);
}

/* by breadth-first search from every position, which knows nothing of layers' bits */
static void plain_path(const rule *r, int64_t n, int64_t *layers, int64_t *connected)
{
    attn_segment whole = {0, n, 0, 0};
    attn__pair pair = {0, &whole, &whole};
    int64_t distance[MOST_KEYS], queue[MOST_KEYS];
    *layers = *connected = 0;
    for (int64_t start = 0; start < n; start++) {
        int64_t head = 0, tail = 1;
        for (int64_t j = 0; j < n; j++) distance[j] = -1;
        distance[start] = 0;
        queue[0] = start;
        for (; head < tail; head++)
            for (int64_t j = 0; j < n; j++) {
                if (distance[j] >= 0 || !sees(r, &pair, 0, queue[head], j)) continue;
                distance[j] = distance[queue[head]] + 1;
                if (distance[j] > *layers) *layers = distance[j];
                queue[tail++] = j;
            }
        *connected += tail;
    }
}

static void test_paths_are_shortest(void **state)
{
    fixture *f = *state;
    static const int64_t lengths[] = {0, 1, 2, 63, 64, 65, 130};
    for (int t = 0; t < RULES; t++) {
        if (rules[t].extent[1] == HEADS || rules[t].extent[0] > 1 || rules[t].kind >= PER_HEAD) continue; /* of one sequence and head */
        attn_mask *mask = make_mask(f->ctx, &rules[t]);
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            int64_t layers, connected, expected_layers, expected_connected;
            EXPECT_OK(attn_mask_path(f->ctx, mask, lengths[l], &layers, &connected));
            plain_path(&rules[t], lengths[l], &expected_layers, &expected_connected);
            if (layers != expected_layers || connected != expected_connected)
                fail_msg("rule %d, length %d: got %d layers and %d pairs, expected %d and %d", t, (int)lengths[l], (int)layers,
                         (int)connected, (int)expected_layers, (int)expected_connected);
        }
        attn_mask_free(mask);
    }
}

/* Table 3.1's column of path lengths */
static void test_paths_of_systems(void **state)
{
    fixture *f = *state;
    attn_mask *band_mask, *token, *both, *doubling;
    int64_t n = 257, layers, connected, first = 0;
    EXPECT_OK(attn_mask_window(f->ctx, ATTN_ALIGN_LAST, 8, 8, 1, &band_mask));
    EXPECT_OK(attn_mask_global(f->ctx, ATTN_ALIGN_LAST, 1, &first, &token));
    EXPECT_OK(attn_mask_union(f->ctx, band_mask, token, &both));
    EXPECT_OK(attn_mask_logarithmic(f->ctx, ATTN_ALIGN_LAST, 0, &doubling));
    const struct {
        const attn_mask *mask;
        int64_t layers, connected;
    } cases[] = {{NULL, 1, n * n}, {band_mask, (n - 1) / 8, n * n}, {both, 2, n * n}, {doubling, 8, n * (n + 1) / 2}};
    for (int c = 0; c < 4; c++) {
        EXPECT_OK(attn_mask_path(f->ctx, cases[c].mask, n, &layers, &connected));
        assert_int_equal(layers, cases[c].layers);
        assert_int_equal(connected, cases[c].connected);
    }
    for (int power = 33; power <= 40; power += 7) /* a bit for each pair, and their bytes, past 63 bits */
        EXPECT_FAILS(f->ctx, attn_mask_path(f->ctx, NULL, INT64_C(1) << power, &layers, &connected), ATTN_ERROR_TOO_LARGE, "paths");
    /* a request to stop ends the walk */
    assert_int_equal(attn_context_cancel(f->ctx), ATTN_OK);
    assert_int_equal(attn_mask_path(f->ctx, band_mask, n, &layers, &connected), ATTN_ERROR_CANCELLED);
    EXPECT_OK(attn_mask_path(f->ctx, band_mask, n, &layers, &connected));
    attn_mask_free(band_mask);
    attn_mask_free(token);
    attn_mask_free(both);
    attn_mask_free(doubling);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_pairs_are_the_definition), FIXTURE_TEST(test_counts_end_at_63_bits), FIXTURE_TEST(test_growth),
        FIXTURE_TEST(test_paths_are_shortest),       FIXTURE_TEST(test_paths_of_systems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

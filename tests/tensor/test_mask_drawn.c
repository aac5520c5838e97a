/* Masks of masks, drawn: trees of rules up to three deep, unions, intersections and masks for each head, on drawn pairs of segments. Each
   answer is held against the definition of the whole tree, pair by pair: rows, blocks, the numbers that are added, what the tree is, and how
   many pairs it lets through. */
#include <math.h>
#include "mask_cases.h"
#include "support/drawn.h"

enum { DRAWS = 6000, MOST = 48, NODES = 16, PAIRS = 5 };

static const int64_t vast = INT64_MAX / 2; /* steps or keys: more than there can be, and times a dilation more than 63 bits hold */

typedef struct tree {
    rule nodes[NODES];
    int count;
} tree;

static const rule *draw_rule(tree *t, random_state *random, int depth, int adds)
{
    rule *r = &t->nodes[t->count++];
    *r = (rule){.alignment = (int32_t)random_integer(random, 0, 3)};
    r->kind = depth > 0 && !drawn_once_in(random, 4) ? (rule_kind)random_integer(random, PER_HEAD, INTERSECTION + 1)
                                                     : (rule_kind)random_integer(random, CAUSAL, PER_HEAD);
    if (r->kind == ADDITIVE && !adds) r->kind = BOOLEAN;
    r->seed = (uint64_t)random_integer(random, 0, 100);
    const int64_t extent[4] = {AMONG(random, 1, PAIRS), AMONG(random, 1, HEADS), MOST, MOST};
    memcpy(r->extent, extent, sizeof extent);
    switch (r->kind) {
    case WINDOW:
        r->left = AMONG(random, -1, 0, 1, 5, 30, vast), r->right = AMONG(random, -1, 0, 0, 2, 17, vast),
        r->dilation = AMONG(random, 1, 1, 2, 7, vast);
        break;
    case GLOBAL: r->right = random_integer(random, 0, 5); break;
    case STRIDED:
    case FIXED:
        r->left = AMONG(random, ATTN_DERIVED, 1, 3, 8, INT64_MAX), r->dilation = random_integer(random, 1, 4);
        r->right = r->left > 1 ? random_integer(random, 1, r->left < 9 ? r->left + 1 : 9) : 1;
        break;
    case RANDOM: r->left = AMONG(random, 1, 4, 16, vast), r->right = random_integer(random, 0, 4); break;
    case LOGARITHMIC: r->dilation = random_integer(random, 0, 2); break;
    default: break;
    }
    if (r->kind < PER_HEAD) return r;
    adds = adds && r->kind != UNION;
    if (r->kind != PER_HEAD || !drawn_once_in(random, 4)) r->a = draw_rule(t, random, depth - 1, adds);
    if (r->kind != PER_HEAD || !drawn_once_in(random, 4)) r->b = draw_rule(t, random, depth - 1, adds);
    return r;
}

static int has_numbers(const rule *r)
{
    return r != NULL && (r->kind == ADDITIVE || has_numbers(r->a) || has_numbers(r->b));
}

/* does an answer stand when the queries before are left out? */
static int fits(const rule *r)
{
    if (r == NULL) return 1;
    if (r->kind >= PER_HEAD) return fits(r->a) && fits(r->b);
    if (r->kind == BOOLEAN || r->kind == ADDITIVE || r->kind == RANDOM) return 0;
    return r->alignment != ATTN_ALIGN_FIRST && ((r->kind != STRIDED && r->kind != FIXED) || r->left > 0);
}

/* what is added to the score of a pair that is seen */
static double number(const rule *r, int64_t head, int64_t i, int64_t j)
{
    if (r == NULL) return 0;
    if (r->kind == PER_HEAD) return number(head == 0 ? r->a : r->b, head, i, j);
    return r->kind == ADDITIVE ? (double)(i - j) : number(r->a, head, i, j) + number(r->b, head, i, j);
}

static void expect_row(const rule *r, const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t first, int64_t count)
{
    uint8_t allowed[MOST];
    float scores[MOST] = {0};
    int64_t low = 0, high = 0;
    const int32_t bytes = attn__mask_row(mask, pair, head, i, first, count, &low, &high, allowed);
    if (low < 0 || high < low || high > count)
        fail_msg("pair %d, head %d, query %d: got keys %d to %d of %d", (int)pair->index, (int)head, (int)i, (int)low, (int)high,
                 (int)count);
    if (attn__mask_has_values(mask)) attn__mask_add_values(mask, pair, head, i, first, count, scores);
    for (int64_t j = 0; j < count; j++) {
        const int got = j >= low && j < high && (!bytes || allowed[j]), want = sees(r, pair, head, i, first + j);
        if (got != want) fail_msg("pair %d, head %d, query %d, key %d: got %d", (int)pair->index, (int)head, (int)i, (int)(first + j), got);
        if (!want) continue;
        const double added = number(r, head, i, first + j);
        if ((double)scores[j] != added || attn__mask_value(mask, pair, head, i, first + j) != added)
            fail_msg("pair %d, head %d, query %d, key %d: %g is added, expected %g", (int)pair->index, (int)head, (int)i, (int)(first + j),
                     (double)scores[j], added);
    }
}

static void expect_block(const rule *r, const attn_mask *mask, const attn__pair *pair, int64_t i, int64_t rows, int64_t j, int64_t keys)
{
    int64_t all = 0;
    for (int64_t h = 0; h < HEADS; h++) {
        int64_t seen = 0;
        for (int64_t row = i; row < i + rows; row++)
            for (int64_t c = j; c < j + keys; c++) seen += sees(r, pair, h, row, c);
        const int32_t got = attn__mask_block_of_head(mask, pair, h, i, rows, j, keys);
        if ((got == ATTN__BLOCK_NONE && seen > 0) || (got == ATTN__BLOCK_FULL && seen < rows * keys))
            fail_msg("head %d, queries %d + %d, keys %d + %d: got %d", (int)h, (int)i, (int)rows, (int)j, (int)keys, got);
        all += seen;
    }
    const int32_t got = attn__mask_block(mask, pair, i, rows, j, keys);
    if ((got == ATTN__BLOCK_NONE && all > 0) || (got == ATTN__BLOCK_FULL && all < HEADS * rows * keys))
        fail_msg("queries %d + %d, keys %d + %d: got %d", (int)i, (int)rows, (int)j, (int)keys, got);
}

static void expect_pair(const rule *r, const attn_mask *mask, const attn__pair *pair, random_state *random)
{
    const int64_t m = pair->query->length, n = pair->key->length;
    for (int64_t i = 0; i < m; i++)
        for (int64_t h = 0; h < HEADS; h++) {
            const int64_t first = n > 0 ? random_integer(random, 0, n) : 0;
            expect_row(r, mask, pair, h, i, 0, n);
            expect_row(r, mask, pair, h, i, first, n > 0 ? random_integer(random, 1, n - first + 1) : 0);
            for (int64_t j = 0; j < n && !attn__mask_by_head(mask); j++)
                if (sees(r, pair, h, i, j) != sees(r, pair, 0, i, j)) fail_msg("heads see different keys, and the mask does not say so");
        }
    for (int k = 0; k < 8 && m > 0 && n > 0; k++) {
        const int64_t i = random_integer(random, 0, m), j = random_integer(random, 0, n);
        expect_block(r, mask, pair, i, random_integer(random, 1, m - i + 1), j, random_integer(random, 1, n - j + 1));
    }
}

static attn_layout *layout_of(attn_context *ctx, const attn_segment *segments)
{
    attn_layout *layout;
    EXPECT_OK(attn_layout_create(ctx, PAIRS, &layout));
    EXPECT_OK(attn_layout_set(ctx, layout, PAIRS, segments));
    return layout;
}

/* what is counted is what the definition lets through, and lies in the blocks that are listed */
static void expect_count(attn_context *ctx, const rule *r, const attn_mask *mask, const attn_segment *query, const attn_segment *key)
{
    attn_layout *queries = layout_of(ctx, query), *keys = layout_of(ctx, key);
    int64_t seen = -1, listed = -1, expected = 0;
    for (int64_t p = 0; p < PAIRS; p++)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < query[p].length; i++)
                for (int64_t j = 0; j < key[p].length; j++) expected += sees(r, &(attn__pair){p, &query[p], &key[p]}, h, i, j);
    EXPECT_OK(attn_mask_pairs(ctx, mask, HEADS, queries, keys, &seen, &listed));
    if (seen != expected || listed < seen)
        fail_msg("%d pairs are counted in %d that are listed, expected %d", (int)seen, (int)listed, (int)expected);
    attn_layout_free(queries);
    attn_layout_free(keys);
}

static void test_drawn(void **state)
{
    fixture *f = *state;
    for (int64_t d = drawn_first(); d < drawn_end(DRAWS); d++) {
        random_state random = {(uint64_t)d};
        static tree t;
        t.count = 0;
        const rule *r = draw_rule(&t, &random, (int)random_integer(&random, 1, 4), 1);
        attn_mask *mask = make_mask(f->ctx, r);
        pair_sizes of[PAIRS];
        attn_segment query[PAIRS], key[PAIRS];
        attn__segments q, k;
        for (int s = 0; s < PAIRS; s++)
            of[s] =
                (pair_sizes){random_integer(&random, 0, MOST + 1) / (1 + s % 3), random_integer(&random, 0, MOST + 1) / (1 + (s + 1) % 3),
                             random_integer(&random, 0, 9), random_integer(&random, 0, 9)};
        make_segments(of, query, key, &q, &k);
        printf("draw %d: kind %d, %d rules\n", (int)d, (int)r->kind, t.count);
        EXPECT_OK(attn__mask_check(f->ctx, "mask", mask, HEADS, q, k));
        assert_int_equal(attn__mask_has_values(mask) != 0, has_numbers(r));
        assert_int_equal(attn__mask_fits_cache(mask) != 0, fits(r));
        for (int64_t p = 0; p < PAIRS; p++) expect_pair(r, mask, &(attn__pair){p, &query[p], &key[p]}, &random);
        expect_count(f->ctx, r, mask, query, key);
        attn_mask_free(mask);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_drawn, fixture_setup, fixture_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

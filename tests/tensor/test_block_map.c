#include "mask_cases.h"

/* The class of each block of the grid, for one pair at a time: what both maps must agree on. */
enum { MOST_BLOCKS = 201 };
typedef struct grid {
    uint8_t at[5][MOST_BLOCKS][MOST_BLOCKS];
} grid;
enum { UNLISTED = 0, PARTIAL = 1, FULL = 2 };

static void mark(grid *g, int64_t pair, int64_t i, int64_t rows, int64_t j, int64_t keys, int64_t query_block, int64_t key_block,
                 int64_t partial)
{
    assert_true(i % query_block == 0 && j % key_block == 0 && rows > 0 && keys > 0);
    for (int64_t a = i / query_block; a * query_block < i + rows; a++)
        for (int64_t b = j / key_block; b * key_block < j + keys; b++) {
            assert_int_equal(g->at[pair][a][b], UNLISTED); /* no block twice */
            g->at[pair][a][b] = partial ? PARTIAL : FULL;
        }
}

/* tiles in row order, each block row once, runs in order, full neighbours joined; the pairs listed */
static void read_block_map(const attn__block_map *map, int64_t query_block, int64_t key_block, grid *g)
{
    int64_t segment = 0, row = 0, runs = 0, listed = 0;
    memset(g, 0, sizeof *g);
    for (int64_t t = 0; t < map->tiles_count; t++) {
        const attn__tile *tile = &map->tiles[t];
        while (row == map->query.at[segment].length) segment++, row = 0;
        int64_t length = map->query.at[segment].length;
        assert_int_equal(tile->segment, segment);
        assert_int_equal(tile->first, row);
        assert_int_equal(tile->count, length - row < query_block ? length - row : query_block);
        assert_int_equal(tile->runs_first, runs);
        runs += tile->runs_count;
        row += tile->count;
        for (int64_t r = tile->runs_first; r < runs; r++) {
            const attn__key_run *run = &map->runs[r];
            assert_true(run->partial == 0 || run->partial == 1);
            if (run->partial) assert_true(run->count <= key_block);
            if (r > tile->runs_first) {
                const attn__key_run *before = run - 1;
                assert_true(before->key + before->count <= run->key);
                if (!before->partial && !run->partial) assert_true(before->key + before->count < run->key);
            }
            assert_true(run->key + run->count <= map->key.at[segment].length);
            mark(g, segment, tile->first, tile->count, run->key, run->count, query_block, key_block, run->partial);
            listed += tile->count * run->count;
        }
    }
    assert_int_equal(runs, map->runs_count);
    assert_int_equal(listed, map->listed);
    int64_t rows = 0, tiled = 0;
    for (int64_t s = 0; s < map->query.count; s++) rows += map->query.at[s].length;
    for (int64_t t = 0; t < map->tiles_count; t++) tiled += map->tiles[t].count;
    assert_int_equal(rows, tiled);
}

static void check_against_rule(const rule *r, const attn__block_map *map, int64_t query_block, int64_t key_block, const grid *g)
{
    for (int64_t p = 0; p < map->query.count; p++) {
        attn__pair pair = {p, &map->query.at[p], &map->key.at[p]};
        for (int64_t i = 0; i < pair.query->length; i++)
            for (int64_t j = 0; j < pair.key->length; j++)
                for (int64_t h = 0; h < HEADS; h++) {
                    int class = g->at[p][i / query_block][j / key_block];
                    if (class != PARTIAL) assert_int_equal(class == FULL, sees(r, &pair, h, i, j));
                }
    }
}

static int same_keys(const attn__segments *key, int64_t a, int64_t b)
{
    return key->at[a].start == key->at[b].start && key->at[a].length == key->at[b].length;
}

/* every key once, under the first pair that uses its segment; then the same grid as the block map's */
static void check_key_map(const attn__key_map *map, int64_t query_block, int64_t key_block, const grid *expected, grid *g)
{
    int64_t runs = 0, tiled = 0, keys = 0;
    memset(g, 0, sizeof *g);
    for (int64_t t = 0; t < map->tiles_count; t++) {
        const attn__tile *tile = &map->tiles[t];
        assert_int_equal(tile->runs_first, runs);
        runs += tile->runs_count;
        tiled += tile->count;
        for (int64_t s = 0; s < tile->segment; s++) assert_false(same_keys(&map->key, s, tile->segment));
        for (int64_t r = tile->runs_first; r < runs; r++) {
            const attn__query_run *run = &map->runs[r], *before = run - 1;
            assert_true(same_keys(&map->key, run->segment, tile->segment));
            if (run->partial) assert_true(run->count <= query_block);
            if (r > tile->runs_first) {
                assert_true(before->segment <= run->segment);
                if (before->segment == run->segment) {
                    assert_true(before->query + before->count <= run->query);
                    if (!before->partial && !run->partial) assert_true(before->query + before->count < run->query);
                }
            }
            mark(g, run->segment, run->query, run->count, tile->first, tile->count, query_block, key_block, run->partial);
        }
    }
    assert_int_equal(runs, map->runs_count);
    for (int64_t s = 0; s < map->key.count; s++) {
        int64_t first = 0;
        while (!same_keys(&map->key, first, s)) first++;
        if (first == s) keys += map->key.at[s].length;
    }
    assert_int_equal(tiled, keys);
    assert_memory_equal(g, expected, sizeof *g);
}

static void check_maps(fixture *f, const rule *r, const attn_mask *mask, attn__segments q, attn__segments k, int64_t query_block,
                       int64_t key_block)
{
    static grid by_query, by_key;
    attn__block_map map;
    attn__key_map transposed;
    attn__arena *arena;
    EXPECT_OK(attn__arena_create(f->ctx->memory, 0, &arena));
    EXPECT_OK(attn__block_map_build(f->ctx, arena, mask, q, k, query_block, key_block, &map));
    EXPECT_OK(attn__key_map_build(f->ctx, arena, mask, q, k, query_block, key_block, &transposed));
    read_block_map(&map, query_block, key_block, &by_query);
    check_against_rule(r, &map, query_block, key_block, &by_query);
    check_key_map(&transposed, query_block, key_block, &by_query, &by_key);
    attn__arena_free(arena);
}

static const int64_t blocks[][2] = {{1, 1}, {3, 64}, {64, 3}, {16, 16}, {64, 48}, {1000, 1000}};

static void test_maps_are_the_definition(void **state)
{
    fixture *f = *state;
    for (int t = 0; t < RULES; t++) {
        attn_mask *mask = make_mask(f->ctx, &rules[t]);
        for (int s = 0; s < SIZES; s++)
            for (size_t b = t % 3 == 0 ? 0 : 1; b < sizeof blocks / sizeof *blocks; b++) {
                attn_segment query[5], key[5];
                attn__segments q, k;
                make_segments(sizes[s], query, key, &q, &k);
                check_maps(f, &rules[t], mask, q, k, blocks[b][0], blocks[b][1]);
            }
        attn_mask_free(mask);
    }
}

/* Beams share an encoder's memory: pairs 0, 2 and 3 see the same keys, with positions of their own; out of row order. */
static void test_repeated_key_segments(void **state)
{
    fixture *f = *state;
    attn_segment query[5] = {{0, 7, 3, 0}, {7, 70, 0, 1}, {77, 0, 0, 2}, {77, 33, 5, 3}, {110, 5, 0, 4}};
    attn_segment key[5] = {{50, 40, 0, 0}, {0, 45, 0, 1}, {50, 40, 9, 2}, {50, 40, 20, 3}, {50, 0, 0, 4}};
    attn__segments q = {5, 115, query}, k = {5, 90, key};
    for (int t = 0; t < RULES; t++) {
        attn_mask *mask = make_mask(f->ctx, &rules[t]);
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) check_maps(f, &rules[t], mask, q, k, blocks[b][0], blocks[b][1]);
        attn_mask_free(mask);
    }
    attn__key_map map;
    attn__arena *arena;
    EXPECT_OK(attn__arena_create(f->ctx->memory, 0, &arena));
    EXPECT_OK(attn__key_map_build(f->ctx, arena, NULL, q, k, 64, 64, &map));
    assert_int_equal(map.tiles_count, 2); /* keys 0 .. 45 of pair 1, keys 50 .. 90 of pairs 0 and 3 */
    assert_int_equal(map.tiles[0].segment, 1);
    assert_int_equal(map.tiles[1].segment, 0);
    assert_int_equal(map.tiles[1].runs_count, 2);
    assert_int_equal(map.runs[2].segment, 3);
    attn__arena_free(arena);
}

/* Long sequences: one full run and a few partial blocks for each tile, whatever the length */
static void test_long_maps_stay_small(void **state)
{
    fixture *f = *state;
    const int64_t n = 65536;
    attn_mask *causal, *window;
    attn__arena *arena;
    attn__block_map map;
    attn__key_map transposed;
    attn_segment segment = {0, n, 0, 0};
    attn__segments all = {1, n, &segment};
    EXPECT_OK(attn_mask_causal(f->ctx, ATTN_ALIGN_LAST, &causal));
    EXPECT_OK(attn_mask_window(f->ctx, ATTN_ALIGN_LAST, 255, 0, 1, &window));
    EXPECT_OK(attn__arena_create(f->ctx->memory, 0, &arena));
    EXPECT_OK(attn__block_map_build(f->ctx, arena, causal, all, all, 64, 64, &map));
    EXPECT_OK(attn__key_map_build(f->ctx, arena, causal, all, all, 64, 64, &transposed));
    assert_int_equal(map.tiles_count, n / 64);
    assert_int_equal(map.runs_count, 2 * (n / 64) - 1);
    assert_int_equal(transposed.runs_count, map.runs_count);
    assert_int_equal(map.listed, n * (n + 64) / 2);
    assert_true(attn__arena_used(arena) < 256 * 1024);
    EXPECT_OK(attn__block_map_build(f->ctx, arena, window, all, all, 64, 64, &map));
    assert_true(map.listed < n * (256 + 64)); /* linear in n */
    EXPECT_OK(attn__block_map_build(f->ctx, arena, NULL, all, all, 64, 64, &map));
    assert_int_equal(map.runs_count, n / 64);
    assert_int_equal(map.listed, n * n);
    attn__arena_free(arena);
    attn_mask_free(causal);
    attn_mask_free(window);
}

/* pairs past 63 bits, of one block or of all, are counted as the most there can be */
static void test_listed_ends_at_63_bits(void **state)
{
    fixture *f = *state;
    attn__arena *arena;
    attn__block_map map;
    attn__key_map transposed;
    attn_segment few[2] = {{0, 2, 0, 0}, {2, 2, 0, 1}}, many[2] = {{0, INT64_MAX / 4 + 1, 0, 0}, {INT64_MAX / 2, INT64_MAX / 4 + 1, 0, 1}};
    EXPECT_OK(attn__arena_create(f->ctx->memory, 0, &arena));
    for (int64_t length = 1; length <= 4; length++)
        for (int64_t count = 1; count <= 2; count++) {
            few[0].length = few[1].length = length;
            attn__segments short_ones = {count, 6, few}, long_ones = {count, INT64_MAX, many};
            const int64_t expected = length * count < 4 ? length * count * (INT64_MAX / 4 + 1) : INT64_MAX;
            EXPECT_OK(attn__block_map_build(f->ctx, arena, NULL, short_ones, long_ones, 64, 64, &map));
            EXPECT_OK(attn__key_map_build(f->ctx, arena, NULL, long_ones, short_ones, 64, 64, &transposed));
            assert_true(map.listed == expected && transposed.listed == expected);
            assert_true(attn__block_map_listed(NULL, short_ones, long_ones, 64, 64) == expected);
        }
    attn__arena_free(arena);
}

static void test_no_segments_and_no_memory(void **state)
{
    fixture *f = *state;
    attn__arena *arena;
    attn__block_map map;
    attn__key_map transposed;
    attn__segments none = {0, 0, NULL};
    EXPECT_OK(attn__arena_create(f->ctx->memory, 0, &arena));
    EXPECT_OK(attn__block_map_build(f->ctx, arena, NULL, none, none, 64, 64, &map));
    EXPECT_OK(attn__key_map_build(f->ctx, arena, NULL, none, none, 64, 64, &transposed));
    assert_int_equal(map.tiles_count + map.runs_count + transposed.tiles_count + transposed.runs_count, 0);
    attn_segment segment = {0, 1 << 22, 0, 0};
    attn__segments all = {1, 1 << 22, &segment};
    f->fail_at = f->calls;
    EXPECT_FAILS(f->ctx, attn__block_map_build(f->ctx, arena, NULL, all, all, 1, 64, &map), ATTN_ERROR_OUT_OF_MEMORY, "block map");
    EXPECT_FAILS(f->ctx, attn__key_map_build(f->ctx, arena, NULL, all, all, 64, 1, &transposed), ATTN_ERROR_OUT_OF_MEMORY, "key map");
    attn__arena_free(arena);
}

/* A cost report counts what maps need and list, and reads none of it. */
static void test_dry(void **state)
{
    fixture *f = *state;
    attn__arena *arena, *dry;
    attn_mask *causal;
    attn__block_map map, counted;
    attn__key_map transposed, transposed_counted;
    attn_segment segments[2] = {{0, 500, 0, 0}, {500, 300, 0, 1}};
    attn__segments all = {2, 800, segments}, copy;
    EXPECT_OK(attn_mask_causal(f->ctx, ATTN_ALIGN_LAST, &causal));
    EXPECT_OK(attn__arena_create(f->ctx->memory, 0, &arena));
    EXPECT_OK(attn__arena_create(f->ctx->memory, 5, &dry));
    EXPECT_OK(attn__block_map_build(f->ctx, arena, causal, all, all, 64, 48, &map));
    EXPECT_OK(attn__key_map_build(f->ctx, arena, causal, all, all, 64, 48, &transposed));
    f->ctx->dry = 1;
    EXPECT_OK(attn__segments_copy(f->ctx, dry, all, &copy));
    EXPECT_OK(attn__block_map_build(f->ctx, dry, causal, copy, copy, 64, 48, &counted));
    EXPECT_OK(attn__key_map_build(f->ctx, dry, causal, copy, copy, 64, 48, &transposed_counted));
    f->ctx->dry = 0;
    assert_int_equal(counted.listed, map.listed);
    assert_int_equal(counted.runs_count, map.runs_count);
    assert_int_equal(transposed_counted.tiles_count, transposed.tiles_count);
    assert_int_equal(transposed_counted.runs_count, transposed.runs_count);
    assert_true(attn__arena_used(dry) > 0);
    attn__arena_free(dry);
    attn__arena_free(arena);
    attn_mask_free(causal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_maps_are_the_definition), FIXTURE_TEST(test_repeated_key_segments),     FIXTURE_TEST(test_long_maps_stay_small),
        FIXTURE_TEST(test_listed_ends_at_63_bits),  FIXTURE_TEST(test_no_segments_and_no_memory), FIXTURE_TEST(test_dry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

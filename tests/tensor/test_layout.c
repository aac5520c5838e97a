#include "fixture.h"
#include "tensor/layout.h"

typedef struct layout_case {
    const char *name;
    int64_t count;
    attn_segment at[4];
    int64_t rows;
    int32_t tiles, distinct;
} layout_case;
static const layout_case cases[] = {
    {"none", 0, {{0}}, 0, 1, 1},
    {"one", 1, {{0, 5, 0, 0}}, 5, 1, 1},
    {"empty ones anywhere", 4, {{3, 0, 9, 1}, {0, 4, 0, 2}, {4, 1, 0, 3}, {1, 0, 0, 4}}, 5, 1, 1},
    {"out of order", 3, {{7, 3, 0, 2}, {0, 4, 0, 0}, {4, 3, 0, 1}}, 10, 1, 1},
    {"gap in front", 1, {{1, 4, 0, 0}}, 5, 0, 1},
    {"gap between", 2, {{6, 4, 0, 0}, {0, 4, 0, 1}}, 10, 0, 1},
    {"repeat", 3, {{0, 4, 0, 0}, {4, 4, 0, 1}, {0, 4, 0, 2}}, 8, 0, 1},
    {"overlap in part", 2, {{3, 4, 0, 0}, {0, 4, 0, 1}}, 7, 0, 0},
    {"shorter at the same start", 2, {{0, 4, 0, 0}, {0, 3, 0, 1}}, 4, 0, 0},
    {"inside", 2, {{0, 9, 0, 0}, {2, 3, 0, 1}}, 9, 0, 0},
    {"overlap behind an inner one", 3, {{0, 9, 0, 0}, {2, 3, 0, 1}, {7, 2, 0, 2}}, 9, 0, 0},
    {"an empty one past the end", 2, {{0, 4, 0, 0}, {9, 0, 0, 1}}, 9, 0, 1},
};

static void test_tiling_and_keys(void **state)
{
    fixture *f = *state;
    attn_layout *layout;
    EXPECT_OK(attn_layout_create(f->ctx, 4, &layout));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const layout_case *one = &cases[c];
        attn__segments segments;
        EXPECT_OK(attn_layout_set(f->ctx, layout, one->count, one->at));
        if (layout->rows != one->rows) fail_msg("%s: got %d rows", one->name, (int)layout->rows);
        attn_status tiling = attn__layout_tiling(f->ctx, "query_layout", layout, one->rows, &segments);
        if (tiling != (one->tiles ? ATTN_OK : ATTN_ERROR_INVALID_ARGUMENT)) fail_msg("%s: got %d", one->name, (int)tiling);
        attn_status keys = attn__layout_keys(f->ctx, "key_layout", layout, one->rows, &segments);
        if ((keys == ATTN_OK) != one->distinct) fail_msg("%s", one->name);
    }
    attn_layout_free(layout);
}

/* lengths tile the rows, whatever segments the layout held before */
static void test_lengths_after_segments(void **state)
{
    fixture *f = *state;
    attn_layout *layout;
    EXPECT_OK(attn_layout_create(f->ctx, 4, &layout));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        attn__segments segments;
        EXPECT_OK(attn_layout_set(f->ctx, layout, cases[c].count, cases[c].at));
        EXPECT_OK(attn_layout_set_lengths(f->ctx, layout, 3, (const int64_t[]){2, 0, 5}, 0));
        if (attn__layout_tiling(f->ctx, "layout", layout, 7, &segments) != ATTN_OK) fail_msg("tiling after: %s", cases[c].name);
        if (attn__layout_keys(f->ctx, "layout", layout, 7, &segments) != ATTN_OK) fail_msg("keys after: %s", cases[c].name);
    }
    attn_layout_free(layout);
}

static void test_checks_against_rows(void **state)
{
    fixture *f = *state;
    attn_layout *layout;
    attn__segments segments;
    EXPECT_OK(attn_layout_create(f->ctx, 2, &layout));
    EXPECT_OK(attn_layout_set(f->ctx, layout, 2, (const attn_segment[]){{0, 3, 5, 7}, {3, 4, 0, -8}}));
    EXPECT_OK(attn__layout_tiling(f->ctx, "layout", layout, 7, &segments));
    assert_int_equal(segments.count, 2);
    assert_int_equal(segments.rows, 7);
    EXPECT_FAILS(f->ctx, attn__layout_tiling(f->ctx, "source_layout", layout, 8, &segments), ATTN_ERROR_SHAPE,
                 "source_layout: got segments of 7");
    EXPECT_OK(attn__layout_keys(f->ctx, "key_layout", layout, 8, &segments));
    EXPECT_FAILS(f->ctx, attn__layout_keys(f->ctx, "key_layout", layout, 6, &segments), ATTN_ERROR_SHAPE,
                 "key_layout: got segments up to row 7");
    EXPECT_FAILS(f->ctx, attn__layout_tiling(f->ctx, "layout", (attn_layout *)f->ctx, 7, &segments), ATTN_ERROR_INVALID_ARGUMENT,
                 "foreign");

    EXPECT_OK(attn__enter(f->ctx)); /* NULL: one segment, in the scratch arena */
    EXPECT_OK(attn__layout_tiling(f->ctx, "layout", NULL, 9, &segments));
    assert_int_equal(segments.count, 1);
    assert_memory_equal(segments.at, (&(attn_segment){0, 9, 0, 0}), sizeof(attn_segment));
    EXPECT_OK(attn__layout_keys(f->ctx, "layout", NULL, 0, &segments));
    assert_int_equal(segments.at[0].length, 0);
    EXPECT_OK(attn__leave(f->ctx, ATTN_OK));
    attn_layout_free(layout);
}

static void test_set_checks_first_and_allocates_nothing(void **state)
{
    fixture *f = *state;
    attn_context *ctx = f->ctx;
    attn_layout *layout;
    attn_segment got;
    const attn_segment good[2] = {{0, 3, 0, 0}, {3, 2, 0, 1}};
    EXPECT_OK(attn_layout_create(ctx, 2, &layout));
    long calls = f->calls;
    EXPECT_OK(attn_layout_set(ctx, layout, 2, good));
    static const struct {
        attn_segment segment;
        attn_status code;
    } bad[] = {
        {{-1, 1, 0, 0}, ATTN_ERROR_INVALID_ARGUMENT},
        {{0, -1, 0, 0}, ATTN_ERROR_INVALID_ARGUMENT},
        {{0, 1, -1, 0}, ATTN_ERROR_INVALID_ARGUMENT},
        {{INT64_MAX, 1, 0, 0}, ATTN_ERROR_TOO_LARGE},
        {{0, 1, INT64_MAX, 0}, ATTN_ERROR_TOO_LARGE},
        {{1, INT64_MAX, 0, 0}, ATTN_ERROR_TOO_LARGE},
        {{INT64_MIN, INT64_MIN, 0, 0}, ATTN_ERROR_INVALID_ARGUMENT},
    };
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        const attn_segment two[2] = {{0, 9, 0, 0}, bad[b].segment};
        EXPECT_FAILS(ctx, attn_layout_set(ctx, layout, 2, two), bad[b].code, "segments[1]: got");
    }
    EXPECT_FAILS(ctx, attn_layout_set(ctx, layout, 3, good), ATTN_ERROR_FULL, "count: got 3 segments, expected at most the capacity of 2");
    EXPECT_FAILS(ctx, attn_layout_set(ctx, layout, -1, good), ATTN_ERROR_INVALID_ARGUMENT, "count: got -1");
    EXPECT_FAILS(ctx, attn_layout_set(ctx, layout, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "segments: got NULL");
    EXPECT_FAILS(ctx, attn_layout_set(ctx, NULL, 1, good), ATTN_ERROR_INVALID_ARGUMENT, "layout: got NULL");
    EXPECT_FAILS(ctx, attn_layout_set_lengths(ctx, layout, 3, (const int64_t[]){1, 1, 1}, 0), ATTN_ERROR_FULL, "count: got 3");
    EXPECT_FAILS(ctx, attn_layout_set_lengths(ctx, layout, 2, (const int64_t[]){1, -1}, 0), ATTN_ERROR_INVALID_ARGUMENT,
                 "lengths[1]: got -1");
    EXPECT_FAILS(ctx, attn_layout_set_lengths(ctx, layout, 2, (const int64_t[]){INT64_MAX, 1}, 0), ATTN_ERROR_TOO_LARGE, "lengths");
    EXPECT_FAILS(ctx, attn_layout_set_lengths(ctx, layout, 2, (const int64_t[]){1, 1}, INT64_MAX), ATTN_ERROR_TOO_LARGE,
                 "first_sequence_id");
    EXPECT_FAILS(ctx, attn_layout_set_lengths(ctx, layout, 2, NULL, 0), ATTN_ERROR_INVALID_ARGUMENT, "lengths: got NULL");
    EXPECT_FAILS(ctx, attn_layout_get(ctx, layout, 2, &got), ATTN_ERROR_INVALID_ARGUMENT, "index: got 2, expected 0 to 1");
    EXPECT_FAILS(ctx, attn_layout_get(ctx, layout, 0, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    for (int64_t i = 0; i < 2; i++) { /* as it was */
        EXPECT_OK(attn_layout_get(ctx, layout, i, &got));
        assert_memory_equal(&got, &good[i], sizeof got);
    }
    EXPECT_OK(attn_layout_set_lengths(ctx, layout, 2, (const int64_t[]){0, 6}, -1));
    EXPECT_OK(attn_layout_get(ctx, layout, 1, &got));
    assert_memory_equal(&got, (&(attn_segment){0, 6, 0, 0}), sizeof got);
    assert_int_equal(attn_layout_count(layout), 2);
    assert_int_equal(attn_layout_count(NULL), 0);
    assert_int_equal(f->calls, calls);
    attn_layout_free(layout);
    layout = (attn_layout *)f;
    EXPECT_FAILS(ctx, attn_layout_create(ctx, -1, &layout), ATTN_ERROR_INVALID_ARGUMENT, "capacity: got -1");
    EXPECT_FAILS(ctx, attn_layout_create(ctx, INT64_MAX, &layout), ATTN_ERROR_TOO_LARGE, "layout");
    EXPECT_FAILS(ctx, attn_layout_create(ctx, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL");
    assert_null(layout);
    attn_layout_free(NULL);
    EXPECT_OK(attn_layout_create(ctx, 0, &layout)); /* room for nothing */
    EXPECT_OK(attn_layout_set(ctx, layout, 0, NULL));
    assert_int_equal(attn_layout_count(layout), 0);
    attn_layout_free(layout);
}

/* heap sort against the definition of sorted, for many sizes */
static void test_order(void **state)
{
    (void)state;
    attn_segment at[257];
    int64_t order[257];
    uint64_t x = 1;
    for (int64_t count = 0; count <= 257; count++) {
        int seen[257] = {0};
        for (int64_t i = 0; i < count; i++) {
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
            at[i] = (attn_segment){(int64_t)(x >> 60), (int64_t)(x >> 57 & 3), 0, i};
        }
        attn__segments_order((attn__segments){count, 0, at}, order);
        for (int64_t i = 0; i < count; i++) {
            assert_false(seen[order[i]]++);
            if (i == 0) continue;
            const attn_segment *a = &at[order[i - 1]], *b = &at[order[i]];
            assert_true(a->start < b->start ||
                        (a->start == b->start && (a->length < b->length || (a->length == b->length && a->sequence_id < b->sequence_id))));
        }
    }
}

static void test_places_and_copies(void **state)
{
    fixture *f = *state;
    const attn_segment at[3] = {{6, 2, 40, -3}, {0, 3, 0, 9}, {4, 0, 7, 7}};
    static const int64_t sequence[9] = {9, 9, 9, -1, -1, -1, -3, -3, -1}, position[9] = {0, 1, 2, -1, -1, -1, 40, 41, -1};
    attn__places places;
    attn__segments copy, from = {3, 8, at};
    attn__arena *arena;
    EXPECT_OK(attn__arena_create(f->ctx->memory, 0, &arena));
    EXPECT_OK(attn__places_expand(f->ctx, arena, from, 9, &places));
    assert_memory_equal(places.sequence, sequence, sizeof sequence);
    assert_memory_equal(places.position, position, sizeof position);
    EXPECT_OK(attn__segments_copy(f->ctx, arena, from, &copy));
    assert_memory_equal(copy.at, at, sizeof at);
    assert_ptr_not_equal(copy.at, at);
    assert_int_equal(copy.rows, 8);
    attn__arena_free(arena);
}

static void test_batch_init(void **state)
{
    (void)state;
    attn_batch batch;
    memset(&batch, 0x77, sizeof batch);
    EXPECT_OK(attn_batch_init(&batch, sizeof batch));
    assert_int_equal(batch.struct_size, sizeof batch);
    assert_true(batch.source == NULL && batch.target == NULL && batch.labels == NULL && batch.source_layout == NULL &&
                batch.target_layout == NULL);
    assert_int_equal(attn_batch_init(NULL, sizeof batch), ATTN_ERROR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_tiling_and_keys),
        FIXTURE_TEST(test_lengths_after_segments),
        FIXTURE_TEST(test_checks_against_rows),
        FIXTURE_TEST(test_set_checks_first_and_allocates_nothing),
        FIXTURE_TEST(test_order),
        FIXTURE_TEST(test_places_and_copies),
        FIXTURE_TEST(test_batch_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

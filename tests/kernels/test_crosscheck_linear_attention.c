/* linear attention, maps of features and projections along the length: BLAS against the two references */
#include "linear_attention_data.h"

static const linear_shape shapes[] = {
    {2, 2, 5, 5, 0, 0, 0, 0, 0, 0, 1, {7}, {9}},
    {2, 2, 5, 5, 1, 0, 0, 0, 0, 0, 1, {9}, {9}},
    {1, 1, 1, 1, 1, 0, 0, 7, 0, 0, 1, {1}, {1}},
    {1, 1, 3, 1, 0, 1, 0, 0, 0, 0, 1, {1}, {70}},
    /* lengths that are no multiple of a chunk or a block, several blocks, grouped heads */
    {4, 2, 16, 8, 0, 0, 0, 0, 0, 0, 2, {130, 70}, {65, 557}},
    {4, 2, 16, 8, 1, 0, 0, 5, 3, 0, 2, {130, 577}, {130, 577}},
    {3, 1, 3, 3, 1, 1, 0, 0, 0, 2, 2, {64, 1100}, {64, 1100}},
    {2, 2, 40, 24, 0, 1, 0, 2, 5, 0, 2, {600, 3}, {1030, 64}},
    {2, 1, 8, 64, 1, 1, 0, 4, 0, 0, 1, {1537}, {1537}},
    /* one query against many keys, more queries than keys, empty sides */
    {4, 2, 8, 8, 1, 0, 0, 0, 0, 0, 4, {1, 1, 1, 5}, {300, 1, 565, 0}},
    {2, 2, 8, 6, 1, 1, 0, 0, 0, 0, 2, {140, 9}, {70, 4}},
    {2, 2, 8, 6, 1, 1, 0, 6, 0, 0, 2, {700, 3}, {20, 600}},
    {2, 2, 8, 8, 0, 1, 0, 0, 0, 0, 4, {0, 5, 0, 3}, {3, 0, 0, 4}},
    {2, 2, 8, 8, 1, 0, 0, 3, 0, 0, 4, {0, 5, 0, 3}, {3, 0, 0, 4}},
    {2, 2, 8, 8, 0, 0, 0, 0, 0, 0, 0, {0}, {0}},
    /* with a state, which ends in the same numbers */
    {2, 1, 6, 5, 1, 0, 1, 0, 0, 0, 3, {1, 70, 0}, {1, 70, 0}},
    {2, 2, 6, 5, 1, 1, 1, 0, 2, 0, 3, {1, 600, 64}, {1, 600, 64}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static double longest_of(const int64_t *lengths, int64_t count)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < count; i++) longest = lengths[i] > longest ? lengths[i] : longest;
    return (double)longest;
}

static void linear_case(crosscheck *c, const void *what)
{
    const linear_shape *s = what;
    linear_data d;
    make_data(c, s, &d);
    for (int run = 0; run < RUNS; run++) {
        attn__linear_arguments a = arguments_of(s, &d, run);
        assert_int_equal(c->table[run]->linear_attention(c->ctx[run], &a), ATTN_OK);
        if (!s->stated) assert_int_equal(c->table[run]->linear_attention_back(c->ctx[run], &a), ATTN_OK);
    }
    double keys = (double)s->features + longest_of(s->keys, s->pairs), queries = (double)s->features + longest_of(s->queries, s->pairs);
    expect_close(c, "linear_attention", keys, &d.output);
    expect_close(c, "linear_attention", keys, &d.normaliser);
    if (s->stated) {
        expect_close(c, "linear_attention", keys, &d.state);
        return;
    }
    d.d_query.least = d.d_key.least = s->add ? 1 : 0.1; /* few keys: terms of that size cancel */
    expect_close(c, "linear_attention_back", keys, &d.d_query);
    expect_close(c, "linear_attention_back", keys + queries, &d.d_key);
    expect_close(c, "linear_attention_back", keys + queries, &d.d_value);
}

static void test_linear_attention(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < SHAPES; i++) crosscheck_run(&c, linear_case, &shapes[i], i < 2 ? 4 : i == SHAPES - 1 ? 1 : 0);
    crosscheck_close(&c);
}

/* each gradient alone is that of all three */
static void test_wanted(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int causal = 0; causal < 2; causal++) {
        for (int wanted = 1; wanted < 7; wanted++) {
            linear_shape s = shapes[5];
            s.causal = causal;
            s.scaled = 1;
            linear_data d;
            make_data(&c, &s, &d);
            for (int run = 0; run < RUNS; run++) {
                attn__linear_arguments a = arguments_of(&s, &d, run);
                if (run != RUN_FLOAT64 && !(wanted & 1)) a.d_query.data = NULL;
                if (run != RUN_FLOAT64 && !(wanted & 2)) a.d_key.data = NULL;
                if (run != RUN_FLOAT64 && !(wanted & 4)) a.d_value.data = NULL;
                assert_int_equal(c.table[run]->linear_attention(c.ctx[run], &a), ATTN_OK);
                assert_int_equal(c.table[run]->linear_attention_back(c.ctx[run], &a), ATTN_OK);
            }
            if (wanted & 1) expect_close(&c, "linear_attention_back", 600, &d.d_query);
            if (wanted & 2) expect_close(&c, "linear_attention_back", 1200, &d.d_key);
            if (wanted & 4) expect_close(&c, "linear_attention_back", 1200, &d.d_value);
            crosscheck_sweep(&c);
        }
    }
    crosscheck_close(&c);
}

/* Queries whose features are all 0 have nothing below the line: zeros, and no gradient comes from them. */
static void test_zero_queries(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int causal = 0; causal < 2; causal++) {
        linear_shape s = shapes[5];
        s.causal = causal;
        s.scaled = 1;
        linear_data d;
        make_data(&c, &s, &d);
        for (int run = 0; run < RUNS; run++) {
            for (int64_t r = 0; r < d.query.at[run].rows; r += 3)
                for (int64_t f = 0; f < s.features; f++) element_set(&d.query.at[run], r, 1, f, 0);
            attn__linear_arguments a = arguments_of(&s, &d, run);
            assert_int_equal(c.table[run]->linear_attention(c.ctx[run], &a), ATTN_OK);
            assert_int_equal(c.table[run]->linear_attention_back(c.ctx[run], &a), ATTN_OK);
            for (int64_t r = 0; r < d.query.at[run].rows; r += 3)
                for (int64_t k = 0; k < s.value_size; k++) assert_true(element_get(&d.output.at[run], r, 1, k) == 0);
        }
        expect_close(&c, "linear_attention", 600, &d.output);
        expect_close(&c, "linear_attention_back", 600, &d.d_query);
        expect_close(&c, "linear_attention_back", 1200, &d.d_key);
        expect_close(&c, "linear_attention_back", 1200, &d.d_value);
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

/* queries before the first key may hold anything */
static void test_blind_queries(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int scaled = 0; scaled < 2; scaled++) {
        const linear_shape s = {2, 2, 8, 6, 1, scaled, 0, 0, 0, 0, 2, {140, 9}, {70, 4}};
        linear_data d;
        make_data(&c, &s, &d);
        for (int run = 0; run < RUNS; run++) {
            for (int64_t r = 0; r < 70; r++) element_set(&d.query.at[run], r, 0, 3, r % 2 ? NAN : INFINITY);
            attn__linear_arguments a = arguments_of(&s, &d, run);
            assert_int_equal(c.table[run]->linear_attention(c.ctx[run], &a), ATTN_OK);
            assert_int_equal(c.table[run]->linear_attention_back(c.ctx[run], &a), ATTN_OK);
            for (int64_t r = 0; r < 70; r++)
                assert_true(element_get(&d.output.at[run], r, 0, 0) == 0 && element_get(&d.d_query.at[run], r, 0, 3) == 0);
        }
        d.d_query.least = d.d_key.least = 0.1;
        expect_close(&c, "linear_attention", 78, &d.output);
        expect_close(&c, "linear_attention_back", 78, &d.d_query);
        expect_close(&c, "linear_attention_back", 218, &d.d_key);
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

/* so may keys and values that no query sees */
static void test_blind_keys(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int causal = 0; causal < 2; causal++) {
        const linear_shape s = {2, 2, 8, 6, causal, 0, 0, 0, 0, 0, 2, {0, 9}, {70, 9}};
        linear_data d;
        make_data(&c, &s, &d);
        for (int run = 0; run < RUNS; run++) {
            for (int64_t r = d.keys[0].start; r < d.keys[0].start + 70; r++) {
                element_set(&d.key.at[run], r, 1, 3, r % 2 ? NAN : INFINITY);
                element_set(&d.value.at[run], r, 0, 2, r % 3 ? NAN : INFINITY);
            }
            attn__linear_arguments a = arguments_of(&s, &d, run);
            assert_int_equal(c.table[run]->linear_attention(c.ctx[run], &a), ATTN_OK);
            assert_int_equal(c.table[run]->linear_attention_back(c.ctx[run], &a), ATTN_OK);
            for (int64_t r = d.keys[0].start; r < d.keys[0].start + 70; r++)
                assert_true(element_get(&d.d_key.at[run], r, 0, 3) == 0 && element_get(&d.d_value.at[run], r, 1, 2) == 0);
        }
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

/* Scales of keys far past what e to them could hold, rising and falling, then rising gently from block to block: the same answers, all finite. */
static void test_scales(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int causal = 0; causal < 2; causal++) {
        for (int how = 0; how < 3; how++) {
            const int64_t rows = how == 2 ? 1300 : 700;
            const linear_shape s = {2, 1, 5, 4, causal, 1, 0, 0, 0, 0, 1, {rows}, {rows}};
            double sign = how == 1 ? -1 : 1;
            linear_data d;
            make_data(&c, &s, &d);
            for (int run = 0; run < RUNS; run++) {
                for (int64_t j = 0; j < rows; j++)
                    element_set(&d.key_scale.at[run], j, 0, 0, how == 2 ? (double)j / 64 : sign * (double)(j * j % 4099 + 900 * (j > 300)));
                attn__linear_arguments a = arguments_of(&s, &d, run);
                assert_int_equal(c.table[run]->linear_attention(c.ctx[run], &a), ATTN_OK);
                assert_int_equal(c.table[run]->linear_attention_back(c.ctx[run], &a), ATTN_OK);
                for (int64_t j = 0; j < rows; j++) {
                    assert_true(isfinite(element_get(&d.output.at[run], j, 0, 0)) && isfinite(element_get(&d.d_query.at[run], j, 1, 0)));
                    assert_true(isfinite(element_get(&d.d_key.at[run], j, 0, 0)) && isfinite(element_get(&d.d_value.at[run], j, 0, 0)));
                }
            }
            d.d_query.least = d.d_key.least = 1; /* where one key has all the weight they cancel to nearly 0 */
            expect_close(&c, "linear_attention", (double)rows, &d.output);
            expect_close(&c, "linear_attention_back", (double)rows, &d.d_query);
            expect_close(&c, "linear_attention_back", 2 * (double)rows, &d.d_key);
            expect_close(&c, "linear_attention_back", 2 * (double)rows, &d.d_value);
            crosscheck_sweep(&c);
        }
    }
    crosscheck_close(&c);
}

typedef struct feature_shape {
    int32_t kind, scaled, add;
    int64_t rows, heads, size, directions, gap, head_gap;
} feature_shape;

static const feature_shape feature_shapes[] = {
    {ATTN_FEATURES_ELU, 0, 0, 5, 2, 7, 0, 0, 0},           {ATTN_FEATURES_ELU, 0, 1, 700, 3, 33, 0, 1, 2},
    {ATTN_FEATURES_ELU, 0, 0, 0, 3, 33, 0, 0, 0},          {ATTN_FEATURES_POSITIVE, 0, 0, 5, 2, 7, 6, 0, 0},
    {ATTN_FEATURES_POSITIVE, 1, 1, 5, 2, 7, 6, 0, 1},      {ATTN_FEATURES_POSITIVE, 1, 0, 333, 4, 16, 70, 3, 0},
    {ATTN_FEATURES_POSITIVE, 1, 0, 3, 1, 1, 1, 0, 0},      {ATTN_FEATURES_TRIGONOMETRIC, 0, 0, 5, 2, 7, 6, 0, 0},
    {ATTN_FEATURES_TRIGONOMETRIC, 1, 1, 5, 2, 3, 6, 1, 1}, {ATTN_FEATURES_TRIGONOMETRIC, 1, 0, 333, 2, 16, 31, 0, 0},
    {ATTN_FEATURES_TRIGONOMETRIC, 0, 0, 1, 1, 1, 1, 0, 0},
};

static void feature_case(crosscheck *c, const void *what)
{
    const feature_shape *s = what;
    int64_t width = s->kind == ATTN_FEATURES_ELU ? s->size : s->kind == ATTN_FEATURES_POSITIVE ? s->directions : 2 * s->directions;
    c->gap = s->gap, c->head_gap = s->head_gap;
    trio x = input_heads(c, s->rows, s->heads, s->size, -1.5, 1.5);
    c->head_gap = 0;
    trio directions = input_rows(c, s->directions, s->size, -1.5, 1.5);
    c->head_gap = s->head_gap;
    trio dy = input_heads(c, s->rows, s->heads, width, -1, 1), y = result_heads(c, s->rows, s->heads, width, 0);
    trio dx = result_heads(c, s->rows, s->heads, s->size, s->add);
    c->gap = c->head_gap = 0;
    trio scale = result_rows(c, s->rows, s->heads, 0);
    for (int run = 0; run < RUNS; run++) {
        const attn__features features = {s->kind, 0, s->kind == ATTN_FEATURES_ELU ? 1 : 0.75, directions.at[run]};
        void *kept = s->scaled ? scale.at[run].data : NULL;
        assert_int_equal(c->table[run]->feature_map(c->ctx[run], &x.at[run], &features, kept, &y.at[run]), ATTN_OK);
        assert_int_equal(c->table[run]->feature_map_back(c->ctx[run], &x.at[run], &features, &y.at[run], &dy.at[run], s->add, &dx.at[run]),
                         ATTN_OK);
    }
    /* an error of an exponent's sum is one of the result */
    expect_close(c, "feature_map", 4 * (double)s->size, &y);
    if (s->scaled) expect_close(c, "feature_map", (double)s->size, &scale);
    expect_close(c, "feature_map_back", 4 * (double)(s->size + s->directions), &dx);
}

static void test_feature_map(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (size_t i = 0; i < sizeof feature_shapes / sizeof *feature_shapes; i++)
        crosscheck_run(&c, feature_case, &feature_shapes[i], feature_shapes[i].rows == 5 && i > 0 ? 3 : 0);
    crosscheck_close(&c);
}

typedef struct project_shape {
    int64_t heads, width, projected, longest;
    int32_t add, reserved;
    int64_t gap, head_gap, pairs, keys[4];
} project_shape;

static const project_shape project_shapes[] = {
    {2, 5, 4, 9, 0, 0, 0, 0, 1, {9}},  {2, 3, 70, 600, 1, 0, 3, 1, 3, {600, 1, 257}},
    {1, 1, 1, 1, 0, 0, 0, 0, 1, {1}},  {3, 8, 5, 300, 0, 0, 0, 0, 3, {0, 300, 65}},
    {2, 8, 5, 30, 1, 0, 0, 0, 0, {0}},
};

static void project_case(crosscheck *c, const void *what)
{
    const project_shape *s = what;
    linear_data d;
    linear_shape like = {.pairs = s->pairs};
    for (int64_t i = 0; i < s->pairs; i++) like.keys[i] = s->keys[i];
    int64_t rows = make_segments(&like, &d);
    c->gap = s->gap, c->head_gap = s->head_gap;
    trio x = input_heads(c, rows, s->heads, s->width, -1, 1);
    c->head_gap = 0;
    trio e = input_rows(c, s->projected, s->longest, -1, 1), de = result_rows(c, s->projected, s->longest, 1);
    c->head_gap = s->head_gap;
    trio dy = input_heads(c, s->pairs * s->projected, s->heads, s->width, -1, 1);
    trio y = result_heads(c, s->pairs * s->projected, s->heads, s->width, 0), dx = result_heads(c, rows, s->heads, s->width, s->add);
    for (int run = 0; run < RUNS; run++) {
        spoil_unused(&d, &x.at[run]);
        const attn__kernels *k = c->table[run];
        assert_int_equal(k->sequence_project(c->ctx[run], &x.at[run], &e.at[run], d.key_segments, &y.at[run]), ATTN_OK);
        assert_int_equal(
            k->sequence_project_back(c->ctx[run], &x.at[run], &e.at[run], d.key_segments, &dy.at[run], s->add, &dx.at[run], NULL), ATTN_OK);
        assert_int_equal(
            k->sequence_project_back(c->ctx[run], &x.at[run], &e.at[run], d.key_segments, &dy.at[run], s->add, NULL, &de.at[run]), ATTN_OK);
    }
    expect_close(c, "sequence_project", (double)s->longest, &y);
    expect_close(c, "sequence_project_back", (double)s->projected, &dx);
    expect_close(c, "sequence_project_back", (double)(s->width * s->heads * 3), &de);
}

static void test_sequence_project(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (size_t i = 0; i < sizeof project_shapes / sizeof *project_shapes; i++)
        crosscheck_run(&c, project_case, &project_shapes[i], i == 0 ? 4 : 0);
    crosscheck_close(&c);
}

/* products counted: linear in the length, and those of a short case by hand */
static void test_counted(void **state)
{
    attn_context *ctx;
    int64_t counted[2][2];
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    for (int causal = 0; causal < 2; causal++) {
        for (int i = 0; i < 2; i++) {
            attn_segment segment = {0, i ? 65536 : 4096, 0, 0};
            view rows = {.rows = segment.length, .heads = 4, .width = 32, .row_stride = 128, .head_stride = 32, .dtype = ATTN_FLOAT32};
            const attn__linear_arguments a = {.query = rows,
                                              .key = rows,
                                              .value = rows,
                                              .output = rows,
                                              .causal = causal,
                                              .query_segments = {1, segment.length, &segment},
                                              .key_segments = {1, segment.length, &segment}};
            ctx->counts = (attn__counts){0, 0};
            assert_int_equal(attn__kernels_count.linear_attention(ctx, &a), ATTN_OK);
            assert_int_equal(ctx->counts.multiply_adds, segment.length * 4 * ((2 + causal) * 32 * 33 + causal * 64 * 65));
            counted[i][0] = ctx->counts.multiply_adds;
            assert_int_equal(attn__kernels_count.linear_attention_back(ctx, &a), ATTN_OK);
            counted[i][1] = ctx->counts.multiply_adds;
            assert_int_equal(counted[i][1] - counted[i][0],
                             segment.length * 4 * ((causal ? 3 + 4 : 2 + 3) * 32 * 33 - 32 + causal * 64 * 3 * 65));
        }
        assert_int_equal(counted[1][0], 16 * counted[0][0]);
        assert_int_equal(counted[1][1], 16 * counted[0][1]);
    }
    attn_context_free(ctx);
}

/* of the call whose status this is */
static int64_t counted_since(attn_context *ctx, attn_status status)
{
    int64_t products = ctx->counts.multiply_adds;
    assert_int_equal(status, ATTN_OK);
    ctx->counts = (attn__counts){0, 0};
    return products;
}

/* maps, projections of two segments and a part of the weights: a product for each pair of numbers that meet */
static void test_counted_others(void **state)
{
    const attn__kernels *k = &attn__kernels_count;
    const attn_segment segments[] = {{0, 50, 0, 0}, {50, 30, 0, 1}};
    const attn__segments both = {2, 80, segments};
    view x = {.rows = 80, .heads = 4, .width = 32, .row_stride = 128, .head_stride = 32, .dtype = ATTN_FLOAT32}, y = x, w = x;
    view e = {.rows = 7, .heads = 1, .width = 60, .row_stride = 60, .dtype = ATTN_FLOAT32};
    attn__features features = {.kind = ATTN_FEATURES_POSITIVE, .scale = 1, .directions = {.rows = 24, .width = 32, .dtype = ATTN_FLOAT32}};
    attn_context *ctx;
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    ctx->counts = (attn__counts){0, 0};
    y.width = 24;
    assert_int_equal(counted_since(ctx, k->feature_map(ctx, &x, &features, NULL, &y)), 80 * 4 * 24 * 32);
    assert_int_equal(counted_since(ctx, k->feature_map_back(ctx, &x, &features, &y, &y, 0, &x)), 80 * 4 * 24 * 32);
    y.width = 32, y.rows = 14;
    assert_int_equal(counted_since(ctx, k->sequence_project(ctx, &x, &e, both, &y)), 80 * 7 * 4 * 32);
    assert_int_equal(counted_since(ctx, k->sequence_project_back(ctx, &x, &e, both, &y, 0, &x, NULL)), 80 * 7 * 4 * 32);
    assert_int_equal(counted_since(ctx, k->sequence_project_back(ctx, &x, &e, both, &y, 0, NULL, &e)), 80 * 7 * 4 * 32);
    assert_int_equal(counted_since(ctx, k->sequence_project_back(ctx, &x, &e, both, &y, 0, &x, &e)), 2 * 80 * 7 * 4 * 32);
    const attn__attention_arguments a = {.query = x, .key = x, .value = x, .query_segments = both, .key_segments = both};
    const attn__weights_part part = {1, 20, 2};
    w.rows = 10, w.heads = 2, w.width = 30;
    assert_int_equal(counted_since(ctx, k->attention_weights(ctx, &a, &part, &w)), 10 * 2 * 30 * 32);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_attention), cmocka_unit_test(test_wanted),           cmocka_unit_test(test_zero_queries),
        cmocka_unit_test(test_blind_queries),    cmocka_unit_test(test_blind_keys),       cmocka_unit_test(test_scales),
        cmocka_unit_test(test_feature_map),      cmocka_unit_test(test_sequence_project), cmocka_unit_test(test_counted),
        cmocka_unit_test(test_counted_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

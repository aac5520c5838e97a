/* attention, its backward and its weights: BLAS against the two references */
#include "attention_data.h"

static const attention_shape shapes[] = {
    /* plain, and the limits of sizes */
    {2, 2, 5, 5, MASK_NONE, 0, 0, 0, 0, 0, 1, {7}, {9}},
    {1, 1, 1, 1, MASK_NONE, 1, 0, 0, 0, 0, 1, {1}, {1}},
    {3, 1, 3, 1, MASK_CAUSAL_LAST, 0, 0, 0, 1, 0, 2, {65, 1}, {65, 64}},
    {4, 2, 1, 3, MASK_CAUSAL_LAST, 1, 0, 0, 0, 0, 2, {64, 67}, {3, 131}},
    {4, 2, 64, 64, MASK_NONE, 0, 0, 0, 0, 0, 2, {130, 70}, {65, 157}},
    {2, 2, 64, 32, MASK_CAUSAL_LAST, 0, 0, 0, 64, 0, 1, {193}, {193}},
    {2, 1, 80, 80, MASK_CAUSAL_FIRST, 1, 0, 0, 3, 2, 1, {97}, {150}},
    /* one query against a cache, and more queries than keys */
    {4, 2, 16, 16, MASK_CAUSAL_LAST, 0, 0, 0, 0, 0, 4, {1, 1, 1, 1}, {300, 1, 65, 0}},
    {2, 2, 8, 8, MASK_CAUSAL_LAST, 0, 0, 0, 0, 0, 2, {9, 140}, {4, 70}},
    /* empty sequences and empty sides */
    {2, 2, 8, 8, MASK_NONE, 0, 0, 0, 0, 0, 4, {0, 5, 0, 3}, {3, 0, 0, 4}},
    {2, 2, 8, 8, MASK_NONE, 1, 0, 0, 0, 0, 0, {0}, {0}},
    /* beams that share a memory */
    {4, 2, 8, 6, MASK_NONE, 0, 0, 0, 0, 0, 4, {5, 70, 3, 2}, {90, -1, 7, -1}},
    {2, 2, 8, 8, MASK_CAUSAL_LAST, 1, 0, 0, 0, 0, 4, {2, 3, 0, 66}, {70, -1, -1, -1}},
    /* masks */
    {2, 2, 16, 16, MASK_CAUSAL_POSITION, 0, 0, 0, 0, 0, 2, {70, 20}, {90, 65}},
    {2, 1, 16, 16, MASK_WINDOW, 1, 0, 0, 0, 0, 2, {200, 30}, {200, 41}},
    {3, 3, 7, 9, MASK_BOOLEAN, 0, 0, 0, 0, 0, 1, {67}, {130}},
    {4, 2, 7, 9, MASK_BOOLEAN_HEADS, 1, 0, 0, 2, 0, 1, {70}, {66}},
    {2, 2, 5, 5, MASK_UNION, 0, 0, 0, 0, 0, 1, {80}, {80}},
    {4, 2, 7, 9, MASK_ADDITIVE, 1, 0, 0, 2, 0, 1, {70}, {66}},
    {2, 2, 7, 9, MASK_ADDITIVE, 0, 1.5, 0.2, 0, 0, 1, {9}, {130}},
    {2, 2, 7, 9, MASK_ADDITIVE, 0, 0, 0, 0, 0, 1, {70}, {700}},
    {3, 1, 7, 9, MASK_NUMBERS, 0, 0, 0, 0, 0, 1, {70}, {150}},
    {4, 2, 8, 8, MASK_PER_HEAD, 0, 0, 0, 0, 0, 2, {200, 20}, {200, 65}},
    {3, 1, 8, 8, MASK_PER_HEAD, 1, 0, 0.2, 0, 0, 1, {70}, {300}},
    {3, 3, 8, 8, MASK_PER_HEAD, 0, 0, 0, 0, 0, 1, {40}, {40}},
    {2, 1, 8, 8, MASK_SPARSE, 0, 0, 0, 0, 0, 2, {200, 70}, {200, 130}},
    {1, 1, 8, 8, MASK_SPARSE, 0, 0, 0, 0, 0, 1, {700}, {700}},
    {1, 1, 8, 8, MASK_PER_HEAD, 0, 0, 0, 0, 0, 1, {700}, {700}},
    /* dropout on the weights and soft caps */
    {2, 2, 8, 8, MASK_NONE, 0, 0, 0.3, 0, 0, 2, {65, 3}, {67, 130}},
    {4, 1, 8, 8, MASK_CAUSAL_LAST, 1, 0, 0.9, 0, 0, 3, {33, 90, 5}, {33, 100, -1}},
    {2, 2, 8, 8, MASK_NONE, 0, 0, 1, 0, 0, 1, {5}, {6}},
    {2, 2, 8, 8, MASK_CAUSAL_LAST, 0, 1.5, 0, 0, 0, 1, {70}, {80}},
    {4, 2, 12, 8, MASK_BOOLEAN_HEADS, 1, 2.5, 0.5, 0, 3, 1, {70}, {66}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static int64_t longest_of(const int64_t *lengths, int64_t count)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < count; i++) longest = lengths[i] > longest ? lengths[i] : longest;
    return longest;
}

static void attention_case(crosscheck *c, const void *what)
{
    const attention_shape *s = what;
    attention_data d;
    make_data(c, s, &d);
    for (int run = 0; run < RUNS; run++) {
        attn__attention_arguments a = arguments_of(s, &d, run);
        assert_int_equal(c->table[run]->attention(c->ctx[run], &a), ATTN_OK);
        assert_int_equal(c->table[run]->attention_back(c->ctx[run], &a), ATTN_OK);
        a.log_sum_exp = a.entropy = NULL; /* not kept */
        if (run == RUN_BLAS) assert_int_equal(c->table[run]->attention(c->ctx[run], &a), ATTN_OK);
    }
    free_masks(&d);
    double terms = (double)s->size + (double)longest_of(s->keys, s->pairs), queries = (double)longest_of(s->queries, s->pairs);
    expect_close(c, "attention", terms, &d.output);
    expect_close(c, "log_sum_exp", terms, &d.log_sum_exp);
    d.entropy.least = 1;
    expect_close(c, "entropy", terms, &d.entropy);
    expect_close(c, "attention_back", terms, &d.d_query);
    expect_close(c, "attention_back", queries + terms, &d.d_key);
    expect_close(c, "attention_back", queries + terms, &d.d_value);
}

/* the last head and the rows after the first alone: the same numbers */
static void expect_part(crosscheck *c, int run, const attn__attention_arguments *a, int64_t pair, const view *whole)
{
    view part = *whole;
    if (whole->rows < 2 || whole->width == 0) return;
    part.rows = whole->rows - 1;
    part.heads = 1;
    part.row_stride = whole->width;
    part.data = take(c, part.rows * part.width * 8);
    const attn__weights_part from = {pair, 1, whole->heads - 1};
    assert_int_equal(c->table[run]->attention_weights(c->ctx[run], a, &from, &part), ATTN_OK);
    for (int64_t r = 0; r < part.rows; r++)
        for (int64_t k = 0; k < part.width; k++) {
            double got = element_get(&part, r, 0, k), want = element_get(whole, r + 1, whole->heads - 1, k);
            if (!(fabs(got - want) < 1e-5)) fail_msg("a part of the weights: got %g at (%d, %d), expected %g", got, (int)r, (int)k, want);
        }
}

static void weights_case(crosscheck *c, const void *what)
{
    const attention_shape *s = what;
    attention_data d;
    make_data(c, s, &d);
    for (int64_t pair = 0; pair < s->pairs; pair++) {
        int64_t m = d.queries[pair].length, n = d.keys[pair].length;
        trio weights = result_rows(c, s->heads * m, n, 0);
        for (int run = 0; run < RUNS; run++) {
            attn__attention_arguments a = arguments_of(s, &d, run);
            view w = weights.at[run]; /* [heads, m, n]: rows are queries */
            w.rows = m, w.heads = s->heads, w.head_stride = m * n;
            assert_int_equal(c->table[run]->attention_weights(c->ctx[run], &a, &(attn__weights_part){pair, 0, 0}, &w), ATTN_OK);
            expect_part(c, run, &a, pair, &w);
        }
        expect_close(c, "attention_weights", (double)s->size, &weights);
    }
    free_masks(&d);
}

static void run_shapes(crosscheck_case *run, int nudges)
{
    crosscheck c;
    crosscheck_open(&c);
    for (int i = 0; i < SHAPES; i++) {
        crosscheck_run(&c, run, &shapes[i], i == 0 ? nudges : 0);
    }
    crosscheck_close(&c);
}

static void test_attention(void **state)
{
    (void)state, run_shapes(attention_case, 4);
}
static void test_weights(void **state)
{
    (void)state, run_shapes(weights_case, 2);
}

/* the three parts of the backward are written or added to each by its own flag */
static void test_add_flags(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int flags = 0; flags < 8; flags++) {
        attention_shape s = {4, 2, 8, 8, MASK_CAUSAL_LAST, 1, 0, 0.2, 0, 0, 2, {70, 5}, {66, -1}};
        attention_data d;
        make_data(&c, &s, &d);
        for (int run = 0; run < RUNS; run++) {
            attn__attention_arguments a = arguments_of(&s, &d, run);
            a.add_query = flags & 1, a.add_key = flags >> 1 & 1, a.add_value = flags >> 2 & 1;
            assert_int_equal(c.table[run]->attention(c.ctx[run], &a), ATTN_OK);
            assert_int_equal(c.table[run]->attention_back(c.ctx[run], &a), ATTN_OK);
        }
        free_masks(&d);
        expect_close(&c, "attention_back", 100, &d.d_query);
        expect_close(&c, "attention_back", 100, &d.d_key);
        expect_close(&c, "attention_back", 100, &d.d_value);
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

static int rows_finite(const view *v, int64_t first, int64_t end)
{
    for (int64_t r = first; r < end; r++) {
        for (int64_t h = 0; h < v->heads; h++) {
            for (int64_t k = 0; k < v->width; k++) {
                if (!isfinite(element_get(v, r, h, k))) return 0;
            }
        }
    }
    return 1;
}

/* A key or value that is not finite reaches the rows that see it and no others: in a key no row sees, in a partial block, in the value
   or in the key alone */
static void test_not_finite(void **state)
{
    const attention_shape table[] = {
        {2, 1, 8, 8, MASK_CAUSAL_LAST, 0, 0, 0, 0, 0, 1, {150}, {150}},  {2, 1, 8, 8, MASK_CAUSAL_LAST, 0, 0, 0.3, 0, 0, 1, {9}, {9}},
        {2, 2, 8, 8, MASK_CAUSAL_FIRST, 0, 0, 0, 0, 0, 1, {130}, {200}}, {2, 2, 8, 8, MASK_BOOLEAN, 0, 0, 0, 0, 0, 1, {70}, {70}},
        {2, 2, 8, 8, MASK_WINDOW, 1, 2, 0, 0, 0, 1, {150}, {150}},       {1, 1, 8, 8, MASK_CAUSAL_LAST, 0, 0, 0, 0, 0, 1, {1}, {9}},
    };
    const double bad[] = {NAN, INFINITY, -INFINITY};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (size_t i = 0; i < 6 * 3 * 2; i++) {
        const attention_shape *s = &table[i % 6];
        attention_data d;
        make_data(&c, s, &d);
        int64_t at = s->mask == MASK_CAUSAL_FIRST ? 150 : s->keys[0] * 2 / 3;
        for (int run = 0; run < RUNS; run++) {
            spoil(i / 18 == 0 ? &d.key.at[run] : &d.value.at[run], 1 + at, bad[i / 6 % 3]);
            attn__attention_arguments a = arguments_of(s, &d, run);
            assert_int_equal(c.table[run]->attention(c.ctx[run], &a), ATTN_OK);
            if (s->mask == MASK_CAUSAL_LAST && s->queries[0] > 1) assert_true(rows_finite(&d.output.at[run], 0, at));
            if (s->mask == MASK_CAUSAL_FIRST) assert_true(rows_finite(&d.output.at[run], 0, d.output.at[run].rows));
            if (i / 6 % 3 == 0 || s->mask == MASK_CAUSAL_FIRST) assert_int_equal(c.table[run]->attention_back(c.ctx[run], &a), ATTN_OK);
        }
        free_masks(&d);
        if (s->rate == 0 && (isnan(bad[i / 6 % 3]) || i / 18 == 1)) expect_close(&c, "attention", 200, &d.output);
        if (s->rate == 0 && (isnan(bad[i / 6 % 3]) || s->mask == MASK_CAUSAL_FIRST)) expect_close(&c, "attention_back", 400, &d.d_query);
        if (s->mask == MASK_CAUSAL_FIRST) {
            expect_close(&c, "attention_back", 400, &d.d_key);
            expect_close(&c, "attention_back", 400, &d.d_value);
        }
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_add_flags),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

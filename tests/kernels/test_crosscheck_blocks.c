/* attention of many blocks: online sums, runs of keys with gaps between them, tiles of the long kind, and what worker scratch it takes */
#include <stdlib.h>
#include "attention_data.h"

/* A block holds at most 256 keys, 16384 / rows of them where there are at most 16 queries; tiles have 64 queries, 256 past 768. */
static const attention_shape shapes[] = {
    {2, 1, 16, 20, MASK_NONE, 0, 0, 0, 0, 0, 1, {70}, {600}},
    {2, 2, 5, 7, MASK_CAUSAL_LAST, 1, 0, 0.3, 0, 0, 2, {300, 66}, {520, 300}},
    {4, 2, 8, 8, MASK_CAUSAL_LAST, 0, 2, 0, 0, 0, 2, {600, 10}, {600, -1}},
    {1, 1, 4, 4, MASK_CAUSAL_LAST, 0, 0, 0, 0, 0, 1, {1}, {17000}},
    {2, 1, 8, 8, MASK_CAUSAL_LAST, 0, 0, 0, 0, 0, 1, {800}, {810}},
    {2, 2, 8, 24, MASK_WINDOW, 0, 0, 0.4, 0, 0, 1, {300}, {300}},
    {2, 1, 8, 8, MASK_DILATED, 0, 0, 0, 0, 0, 1, {700}, {700}},
    {1, 1, 8, 8, MASK_DILATED, 1, 0, 0.2, 0, 0, 2, {90, 60}, {700, 660}},
    {2, 2, 8, 8, MASK_AHEAD, 0, 0, 0, 0, 0, 2, {200, 70}, {500, 300}},
    {2, 2, 8, 8, MASK_BOOLEAN, 0, 0, 0, 0, 0, 1, {70}, {530}},
    {2, 2, 8, 8, MASK_NONE, 0, 0, 0, 0, 0, 3, {5, 3, 7}, {20, -1, -1}}, /* one tile each, one key segment */
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void blocks_case(crosscheck *c, const void *what)
{
    const attention_shape *s = what;
    attention_data d;
    make_data(c, s, &d);
    for (int run = 0; run < RUNS; run++) {
        attn__attention_arguments a = arguments_of(s, &d, run);
        assert_int_equal(c->table[run]->attention(c->ctx[run], &a), ATTN_OK);
        assert_int_equal(c->table[run]->attention_back(c->ctx[run], &a), ATTN_OK);
    }
    free_masks(&d);
    double terms = (double)(s->size + d.key_segments.rows), queries = (double)d.query_segments.rows;
    expect_close(c, "attention", terms, &d.output);
    expect_close(c, "log_sum_exp", terms, &d.log_sum_exp);
    expect_close(c, "attention_back", terms, &d.d_query);
    expect_close(c, "attention_back", queries + terms, &d.d_key);
    expect_close(c, "attention_back", queries + terms, &d.d_value);
}

static void test_blocks(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < SHAPES; i++) crosscheck_run(&c, blocks_case, &shapes[i], 0);
    crosscheck_close(&c);
}

/* one element alone is not finite, in the last column: of a key, a value, a query, or a gradient that arrives */
typedef enum spoilt { IN_KEY, IN_VALUE, IN_QUERY, IN_D_OUTPUT, SPOILT } spoilt;
static void spoil_one(attention_data *d, int run, spoilt where, int64_t row, double with)
{
    const trio *of = where == IN_KEY ? &d->key : where == IN_VALUE ? &d->value : where == IN_QUERY ? &d->query : &d->d_output;
    const view *v = &of->at[run];
    for (int64_t h = 0; h < v->heads; h++) element_set(v, row, h, v->width - 1, with);
}

/* What is not finite reaches the rows that see it, and through them the keys they see, and nothing else: forward and backward have it
   where the references have it. */
static void spoilt_case(crosscheck *c, const attention_shape *s, spoilt where, double with)
{
    attention_data d;
    make_data(c, s, &d);
    int64_t keys_first = d.keys[0].start, row = where <= IN_VALUE ? keys_first + s->keys[0] * 2 / 3 : s->queries[0] / 3;
    for (int run = 0; run < RUNS; run++) {
        spoil_one(&d, run, where, row, with);
        attn__attention_arguments a = arguments_of(s, &d, run);
        assert_int_equal(c->table[run]->attention(c->ctx[run], &a), ATTN_OK);
        assert_int_equal(c->table[run]->attention_back(c->ctx[run], &a), ATTN_OK);
    }
    free_masks(&d);
    expect_close(c, "attention", 400, &d.output);
    expect_close(c, "attention_back", 800, &d.d_query);
    expect_close(c, "attention_back", 800, &d.d_key);
    expect_close(c, "attention_back", 800, &d.d_value);
    crosscheck_sweep(c);
}

static void test_not_finite_alone(void **state)
{
    static const attention_shape table[] = {
        {2, 1, 19, 21, MASK_CAUSAL_LAST, 0, 0, 0, 0, 0, 1, {150}, {150}},
        {2, 2, 17, 18, MASK_BOOLEAN, 0, 0, 0, 0, 0, 1, {70}, {70}},
        {1, 1, 20, 17, MASK_CAUSAL_LAST, 0, 0, 0, 0, 0, 1, {200}, {200}},
        {1, 1, 20, 17, MASK_WINDOW, 1, 0, 0, 0, 0, 1, {200}, {200}},
    };
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        for (int where = 0; where < SPOILT; where++) spoilt_case(&c, &table[i], where, NAN);
    }
    crosscheck_close(&c);
}

/* the same with dropout: rows before the value that is not finite have numbers, forward and backward */
static void test_not_finite_dropped(void **state)
{
    static const attention_shape s = {2, 2, 8, 8, MASK_CAUSAL_LAST, 0, 0, 0.3, 0, 0, 1, {150}, {150}};
    crosscheck c;
    attention_data d;
    (void)state;
    crosscheck_open(&c);
    make_data(&c, &s, &d);
    for (int run = 0; run < RUNS; run++) {
        spoil_one(&d, run, IN_VALUE, d.keys[0].start + 100, NAN);
        attn__attention_arguments a = arguments_of(&s, &d, run);
        assert_int_equal(c.table[run]->attention(c.ctx[run], &a), ATTN_OK);
        assert_int_equal(c.table[run]->attention_back(c.ctx[run], &a), ATTN_OK);
        for (int64_t r = 0; r < 100; r++)
            for (int64_t h = 0; h < 2; h++)
                for (int64_t k = 0; k < 8; k++)
                    assert_true(isfinite(element_get(&d.output.at[run], r, h, k)) && isfinite(element_get(&d.d_query.at[run], r, h, k)));
    }
    free_masks(&d);
    crosscheck_sweep(&c);
    crosscheck_close(&c);
}

/* The room that is asked for beforehand is what a call takes: with any number of queries, nothing more than attention_room says. */
static void test_room(void **state)
{
    static const int64_t longest[] = {1, 15, 17, 64, 200, 1000, 17000}, sizes[] = {1, 8, 80}, queries[] = {1, 2, 7, 16, 17, 64, 800};
    const attn__kernels *table;
    attn_context *ctx;
    (void)state;
    for (size_t i = 0; i < 7 * 3 * 7; i++) {
        int64_t keys = longest[i % 7], size = sizes[i / 7 % 3], rows = queries[i / 21];
        if (rows > keys || (rows > 17 && keys > 1000)) continue;
        attn_segment query = {0, rows, 0, 0}, key = {0, keys, 0, 0};
        assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
        assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT32, &table), ATTN_OK);
        float *numbers = calloc((size_t)((rows + keys) * size), sizeof *numbers);
        view q = {numbers, rows, 1, size, size, 0, ATTN_FLOAT32, 0}, k = {numbers + rows * size, keys, 1, size, size, 0, ATTN_FLOAT32, 0};
        float *output = calloc((size_t)(rows * size), sizeof *output);
        view y = q;
        y.data = output;
        attn__attention_arguments a = {.query = q,
                                       .key = k,
                                       .value = k,
                                       .output = y,
                                       .query_segments = {1, rows, &query},
                                       .key_segments = {1, keys, &key},
                                       .scale = 1};
        const int additive = (int)(i % 2);
        if (additive) a.score_vector = (view){numbers, 1, 1, size, size, 0, ATTN_FLOAT32, 0};
        assert_int_equal(attn__enter(ctx), ATTN_OK); /* products of several threads are none of ours */
        const attn_status status = table->attention(ctx, &a);
        assert_int_equal(attn__leave(ctx, status), ATTN_OK);
        int64_t taken = ctx->worker_bytes, room = table->attention_room(keys, size, -1, additive);
        if (taken > (room + 63) / 64 * 64)
            fail_msg("%lld queries, %lld keys, size %lld: %lld bytes taken, %lld foretold", (long long)rows, (long long)keys,
                     (long long)size, (long long)taken, (long long)room);
        free(output);
        free(numbers);
        attn_context_free(ctx);
    }
    assert_true(attn__kernels_reference_float32.attention_room(100, 64, 3, 1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_not_finite_alone),
        cmocka_unit_test(test_not_finite_dropped),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

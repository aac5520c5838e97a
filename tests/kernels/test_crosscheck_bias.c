/* attention with position biases and additive scores: BLAS against the two references */
#include "bias_data.h"

typedef struct bias_shape {
    int64_t heads, key_heads, size, value_size;
    int32_t what, both_sides;
    int64_t reach, buckets, pair_segments, pair_heads; /* extents of the pair bias; 0: its own, 1: shared */
    int32_t causal;
    double soft_cap, rate;
    int64_t pairs, queries[3], keys[3];
} bias_shape;

static const bias_shape shapes[] = {
    {2, 2, 5, 5, LINEAR, 0, 0, 0, 0, 0, 0, 0, 0, 1, {7}, {9}},
    {2, 2, 5, 5, BUCKETS, 1, 20, 8, 0, 0, 0, 0, 0, 1, {37}, {39}},
    {2, 2, 5, 5, KEYS, 0, 3, 0, 0, 0, 0, 0, 0, 1, {7}, {9}},
    {2, 2, 5, 4, VALUES, 0, 3, 0, 0, 0, 0, 0, 0, 1, {7}, {9}},
    {2, 2, 5, 5, PAIR, 0, 0, 0, 0, 0, 0, 0, 0, 1, {7}, {9}},
    {2, 2, 8, 8, PAIR | TURNED, 0, 0, 0, 0, 0, 0, 0, 0, 2, {140, 9}, {70, 300}},
    {4, 2, 16, 8, LINEAR | KEYS | VALUES | PAIR, 0, 5, 0, 0, 0, 1, 0, 0, 3, {65, 1, 70}, {65, 64, 200}},
    {4, 2, 16, 8, BUCKETS | KEYS | VALUES | PAIR, 0, 16, 6, 1, 0, 1, 0, 0.3, 3, {65, 1, 70}, {65, 64, 200}},
    {2, 1, 8, 8, BUCKETS | PAIR, 1, 128, 32, 0, 1, 0, 2, 0, 2, {140, 9}, {70, 300}},
    {3, 3, 7, 3, VALUES | PAIR, 0, 0, 0, 1, 1, 1, 1.5, 0.5, 2, {66, 40}, {66, 40}},
    {2, 2, 8, 8, LINEAR | KEYS | VALUES, 0, 300, 0, 0, 0, 1, 0, 0, 3, {0, 5, 9}, {3, 0, 4}},
    {2, 2, 2, 3, ADDITIVE, 0, 0, 0, 0, 0, 0, 0, 0, 1, {3}, {4}},
    {4, 2, 16, 8, ADDITIVE | LINEAR | PAIR, 0, 0, 0, 0, 0, 1, 2, 0.3, 3, {65, 1, 70}, {65, 64, 200}},
    {2, 1, 1, 3, ADDITIVE, 0, 0, 0, 0, 0, 0, 0, 0, 3, {0, 5, 9}, {3, 0, 4}},
    {1, 1, 8, 8, ADDITIVE, 0, 0, 0, 0, 0, 1, 0, 0, 1, {700}, {700}},
    /* long enough for two sweeps in the backward: one key head, many tiles */
    {1, 1, 8, 8, BUCKETS | KEYS | VALUES | PAIR, 1, 40, 16, 0, 0, 1, 0, 0, 1, {700}, {700}},
    {1, 1, 4, 4, LINEAR | VALUES, 0, 9, 0, 0, 0, 1, 0, 0, 1, {1000}, {1000}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct bias_data {
    attn_segment queries[3], keys[3];
    attn__segments query_segments, key_segments;
    trio query, key, value, output, log_sum_exp, d_output, d_query, d_key, d_value;
    bias_part part;
    bias_around around;
    bias_numbers bias;
} bias_data;

static int64_t longest(const int64_t *lengths, int64_t count)
{
    int64_t most = 0;
    for (int64_t i = 0; i < count; i++) most = lengths[i] > most ? lengths[i] : most;
    return most;
}

static void make_data(crosscheck *c, const bias_shape *s, bias_data *d)
{
    int64_t rows = 0, keys = 0;
    for (int64_t i = 0; i < s->pairs; i++) {
        d->queries[i] = (attn_segment){rows, s->queries[i], 100 * i + 10, i};
        d->keys[i] = (attn_segment){keys, s->keys[i], 100 * i + 3, i};
        rows += s->queries[i];
        keys += s->keys[i];
    }
    d->query_segments = (attn__segments){s->pairs, rows, d->queries};
    d->key_segments = (attn__segments){s->pairs, keys, d->keys};
    d->part = (bias_part){s->what, s->both_sides, s->reach, s->buckets, s->pair_segments, s->pair_heads};
    d->around = (bias_around){
        s->heads, s->size, s->value_size, s->pairs, longest(s->queries, s->pairs), longest(s->keys, s->pairs), longest(s->keys, s->pairs)};
    d->query = input_heads(c, rows, s->heads, s->size, -1, 1);
    d->key = input_heads(c, keys, s->key_heads, s->size, -1, 1);
    d->value = input_heads(c, keys, s->key_heads, s->value_size, -1, 1);
    d->d_output = input_heads(c, rows, s->heads, s->value_size, -1, 1);
    make_bias(c, &d->part, &d->around, &d->bias);
    d->output = result_heads(c, rows, s->heads, s->value_size, 0);
    d->d_query = result_heads(c, rows, s->heads, s->size, 0);
    d->d_key = result_heads(c, keys, s->key_heads, s->size, 0);
    d->d_value = result_heads(c, keys, s->key_heads, s->value_size, 0);
    d->log_sum_exp = result_rows(c, s->heads, rows, 0);
}

static void bias_case(crosscheck *c, const void *what)
{
    const bias_shape *s = what;
    bias_data d;
    make_data(c, s, &d);
    int64_t m = s->queries[0], n = s->keys[0];
    trio weights = result_heads(c, m, s->heads, n, 0);
    for (int run = 0; run < RUNS; run++) {
        attn_mask *mask = NULL;
        attn__attention_bias bias = bias_of(&d.part, &d.bias, run);
        if (s->causal) assert_int_equal(attn_mask_causal(c->ctx[run], ATTN_ALIGN_LAST, &mask), ATTN_OK);
        attn__attention_arguments a = {
            .query = d.query.at[run],
            .key = d.key.at[run],
            .value = d.value.at[run],
            .output = d.output.at[run],
            .log_sum_exp = d.log_sum_exp.at[run].data,
            .d_query = d.d_query.at[run],
            .d_key = d.d_key.at[run],
            .d_value = d.d_value.at[run],
            .d_output = d.d_output.at[run],
            .query_segments = d.query_segments,
            .key_segments = d.key_segments,
            .mask = mask,
            .scale = 1 / sqrt((double)s->size),
            .soft_cap = s->soft_cap,
            .dropout = {s->rate, 8, 44, 7, {NULL, NULL}},
            .bias = s->what & ~ADDITIVE ? &bias : NULL,
        };
        if (s->what & ADDITIVE) a.score_vector = d.bias.vector.at[run], a.d_score_vector = d.bias.d_vector.at[run];
        assert_int_equal(c->table[run]->attention(c->ctx[run], &a), ATTN_OK);
        assert_int_equal(c->table[run]->attention_back(c->ctx[run], &a), ATTN_OK);
        assert_int_equal(c->table[run]->attention_weights(c->ctx[run], &a, &(attn__weights_part){0, 0, 0}, &weights.at[run]), ATTN_OK);
        attn_mask_free(mask);
    }
    double keys = (double)longest(s->keys, s->pairs), terms = 2 * (double)s->size + keys;
    double rows = (double)d.query_segments.rows;
    expect_close(c, "attention", terms, &d.output);
    expect_close(c, "log_sum_exp", terms, &d.log_sum_exp);
    expect_close(c, "attention_weights", terms, &weights);
    expect_close(c, "attention_back", terms, &d.d_query);
    expect_close(c, "attention_back", rows + terms, &d.d_key);
    expect_close(c, "attention_back", rows + terms, &d.d_value);
    expect_bias(c, &d.part, &d.around, terms, rows, &d.bias);
}

static void test_biases(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    /* the inputs that are nudged: query, key, value, d_output, and the vector where it is used */
    for (int i = 0; i < SHAPES; i++)
        crosscheck_run(&c, bias_case, &shapes[i], i < 2 ? 4 : shapes[i].what == ADDITIVE && shapes[i].queries[0] == 3 ? 5 : 0);
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_biases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

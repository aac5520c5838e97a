#include <attn/attention.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/kernels.h"
#include "support/gradient.h"

/* Position biases of attention: gradients, refusals, and one kind told by another. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

enum { LINEAR = 1, BUCKETS = 2, KEYS = 4, VALUES = 8, PAIR = 16 };
typedef struct bias_case {
    const char *name;
    int64_t rows, key_rows, heads, key_heads, size, value_size, reach, buckets, pair_segments, pair_heads;
    int what, both_sides, causal;
    double dropout, soft_cap;
} bias_case;

static const bias_case cases[] = {
    {"linear", 5, 6, 2, 2, 3, 2, 0, 0, 0, 0, LINEAR, 1, 0, 0, 0},
    {"buckets of both sides", 7, 9, 2, 1, 3, 3, 6, 8, 0, 0, BUCKETS, 1, 0, 0, 0},
    {"buckets of one side, causal", 9, 9, 2, 2, 2, 3, 5, 4, 0, 0, BUCKETS, 0, 1, 0, 0},
    {"relative keys", 4, 6, 2, 1, 3, 2, 2, 0, 0, 0, KEYS, 1, 0, 0, 0},
    {"relative values", 4, 6, 2, 2, 3, 2, 2, 0, 0, 0, VALUES, 1, 0, 0.3, 0},
    {"relative keys and values", 6, 6, 2, 2, 3, 3, 0, 0, 0, 0, KEYS | VALUES, 1, 1, 0, 1.5},
    {"pair", 4, 5, 2, 2, 3, 3, 0, 0, 2, 2, PAIR, 1, 0, 0, 0},
    {"pair shared by heads", 4, 5, 4, 2, 3, 3, 0, 0, 2, 1, PAIR, 1, 0, 0, 0},
    {"pair shared by segments", 6, 6, 2, 2, 3, 3, 0, 0, 1, 2, PAIR, 1, 1, 0.2, 0},
    {"all", 6, 6, 2, 2, 3, 3, 3, 0, 1, 1, LINEAR | KEYS | VALUES | PAIR, 1, 1, 0.2, 2},
};

static attn_status biased(gradient_check *g, attn_tape *tape, const void *what)
{
    const bias_case *c = what;
    attn_attention_bias one[3];
    const attn_attention_bias *biases[3];
    int64_t count = 0;
    int input = 3;
    attn_layout *query = NULL, *key = NULL;
    attn_mask *mask = NULL;
    attn_dot_product_options o;
    attn_dot_product_options_init(&o, sizeof o);
    o.dropout = c->dropout;
    o.soft_cap = c->soft_cap;
    for (int i = 0; i < 3; i++) attn_attention_bias_init(&one[i], sizeof one[i]);
    if (c->what & (LINEAR | BUCKETS)) {
        one[count].kind = c->what & LINEAR ? ATTN_BIAS_LINEAR : ATTN_BIAS_BUCKETS;
        one[count].both_sides = c->both_sides;
        one[count].reach = c->reach;
        one[count++].table = g->input[input++];
    }
    if (c->what & (KEYS | VALUES)) {
        one[count].kind = ATTN_BIAS_RELATIVE;
        one[count].reach = c->reach;
        if (c->what & KEYS) one[count].table = g->input[input++];
        if (c->what & VALUES) one[count].values = g->input[input++];
        count++;
    }
    if (c->what & PAIR) {
        one[count].kind = ATTN_BIAS_PAIR;
        one[count++].table = g->input[input++];
    }
    for (int i = 0; i < 3; i++) biases[i] = &one[i];
    /* two sequences, the second one short */
    const attn_segment queries[2] = {{0, c->rows - 1, 4, 0}, {c->rows - 1, 1, 0, 1}},
                       keys[2] = {{0, c->key_rows - 2, 3, 0}, {c->key_rows - 2, 2, 1, 1}};
    attn_status status = attn_layout_create(g->ctx, 2, &query);
    if (status == ATTN_OK) status = attn_layout_create(g->ctx, 2, &key);
    if (status == ATTN_OK) status = attn_layout_set(g->ctx, query, 2, queries);
    if (status == ATTN_OK) status = attn_layout_set(g->ctx, key, 2, keys);
    if (status == ATTN_OK && c->causal) status = attn_mask_causal(g->ctx, ATTN_ALIGN_FIRST, &mask);
    if (status == ATTN_OK)
        status = attn_biased_attention(g->ctx, tape, g->input[0], g->input[1], g->input[2], query, key, mask, &o, count, biases, g->output);
    attn_layout_free(query);
    attn_layout_free(key);
    attn_mask_free(mask);
    return status;
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bias_case *c = &cases[i];
        gradient_check g;
        gradient_open(&g, 500 + i);
        g.options.training = 1;
        g.options.seed = 3;
        gradient_input(&g, 3, SHAPE(c->rows, c->heads, c->size), -1, 1);
        gradient_input(&g, 3, SHAPE(c->key_rows, c->key_heads, c->size), -1, 1);
        gradient_input(&g, 3, SHAPE(c->key_rows, c->key_heads, c->value_size), -1, 1);
        if (c->what & LINEAR) gradient_input(&g, 1, SHAPE(c->heads), 0.1, 1);
        if (c->what & BUCKETS) gradient_input(&g, 2, SHAPE(c->buckets, c->heads), -1, 1);
        if (c->what & KEYS) gradient_input(&g, 2, SHAPE(2 * c->reach + 1, c->size), -1, 1);
        if (c->what & VALUES) gradient_input(&g, 2, SHAPE(2 * c->reach + 1, c->value_size), -1, 1);
        if (c->what & PAIR) gradient_input(&g, 4, SHAPE(c->pair_segments, c->pair_heads, c->rows, c->key_rows), -1, 1);
        gradient_output(&g, 3, SHAPE(c->rows, c->heads, c->value_size));
        double error = gradient_error(&g, biased, c);
        if (!(error < 1e-6)) fail_msg("%s: differs by %g", c->name, error);
        gradient_expect(&g, biased, c);
        gradient_close(&g);
    }
}

/* where T5's own code begins each bucket, for 32 buckets up to 128 */
static void test_buckets(void **state)
{
    static const int64_t both[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    static const int64_t one[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                  19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
    (void)state;
    for (int sides = 0; sides < 2; sides++) {
        const int64_t *starts = sides ? both : one;
        int64_t count = sides ? 15 : 31, bucket = 0;
        for (int64_t distance = 0; distance < 1000; distance++) {
            while (bucket < count && starts[bucket] <= distance) bucket++;
            assert_int_equal(attn__bucket(-distance, 32, 128, sides), bucket);
            assert_int_equal(attn__bucket(distance, 32, 128, sides), sides ? bucket + (distance > 0 ? 16 : 0) : 0);
        }
    }
    for (int64_t t = -50; t <= 50; t++) { /* the fewest there can be */
        assert_int_equal(attn__bucket(t, 2, 2, 0), t < 0 ? 1 : 0);
        assert_int_equal(attn__bucket(t, 4, 2, 1), (t != 0 ? 1 : 0) + (t > 0 ? 2 : 0));
    }
}

/* those of the ALiBi paper's own code: a power of two of heads, and between two of them every second slope of the larger */
static void test_slopes(void **state)
{
    static const struct {
        int64_t heads;
        double logarithm[12]; /* minus that of the slope, to base 2 */
    } slopes[] = {{1, {8}}, {3, {4, 8, 2}}, {8, {1, 2, 3, 4, 5, 6, 7, 8}}, {12, {1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5}}};
    (void)state;
    for (size_t i = 0; i < sizeof slopes / sizeof *slopes; i++)
        for (int64_t h = 0; h < slopes[i].heads; h++)
            assert_true(fabs(attn__alibi_slope(h, slopes[i].heads) - exp2(-slopes[i].logarithm[h])) < 1e-15);
}

enum { ROWS = 70, HEADS = 2, SIZE = 4 };

static attn_tensor *filled(attn_context *ctx, random_state *random, int32_t rank, const int64_t *shape)
{
    attn_tensor *out;
    int64_t n = 1;
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, rank, shape, &out), ATTN_OK);
    for (int32_t i = 0; i < rank; i++) n *= shape[i];
    random_floats(random, attn_tensor_data(out), n, -1, 1);
    return out;
}

/* ALiBi, T5 of both sides and of one, and relative keys told as the pair bias they are */
static void test_distances_as_pairs(void **state)
{
    attn_context *ctx;
    random_state random = {3};
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    attn_tensor *q = filled(ctx, &random, 3, SHAPE(ROWS, HEADS, SIZE)), *k = filled(ctx, &random, 3, SHAPE(ROWS, HEADS, SIZE));
    attn_tensor *pair = filled(ctx, &random, 4, SHAPE(1, HEADS, ROWS, ROWS)), *y = filled(ctx, &random, 3, SHAPE(ROWS, HEADS, SIZE));
    attn_tensor *z = filled(ctx, &random, 3, SHAPE(ROWS, HEADS, SIZE));
    attn_tensor *table[3] = {filled(ctx, &random, 1, SHAPE(HEADS)), filled(ctx, &random, 2, SHAPE(32, HEADS)),
                             filled(ctx, &random, 2, SHAPE(2 * 3 + 1, SIZE))};
    for (int kind = 0; kind < 4; kind++) {
        const attn_tensor *of = table[kind == 0 ? 0 : kind == 3 ? 2 : 1];
        int one_side = kind == 2;
        attn_attention_bias b, p;
        attn_attention_bias_init(&b, sizeof b);
        attn_attention_bias_init(&p, sizeof p);
        b.kind = kind == 0 ? ATTN_BIAS_LINEAR : kind == 3 ? ATTN_BIAS_RELATIVE : ATTN_BIAS_BUCKETS;
        b.table = of;
        b.both_sides = !one_side;
        if (kind == 3) b.reach = 3;
        p.kind = ATTN_BIAS_PAIR;
        p.table = pair;
        const float *from = attn_tensor_data_const(of), *query = attn_tensor_data_const(q);
        float *to = attn_tensor_data(pair);
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < ROWS; j++) {
                    if (kind < 3) {
                        *to++ = kind == 0 ? -from[h] * (float)abs(j - i) : from[attn__bucket(j - i, 32, 128, !one_side) * HEADS + h];
                        continue;
                    }
                    double sum = 0;
                    int row = (j - i < -3 ? -3 : j - i > 3 ? 3 : j - i) + 3;
                    for (int c = 0; c < SIZE; c++) sum += (double)query[(i * HEADS + h) * SIZE + c] * (double)from[row * SIZE + c];
                    *to++ = (float)(sum / sqrt(SIZE));
                }
        const attn_attention_bias *one[] = {&b}, *other[] = {&p};
        assert_int_equal(attn_biased_attention(ctx, NULL, q, k, k, NULL, NULL, NULL, NULL, 1, one, y), ATTN_OK);
        assert_int_equal(attn_biased_attention(ctx, NULL, q, k, k, NULL, NULL, NULL, NULL, 1, other, z), ATTN_OK);
        if (kind < 3) assert_memory_equal(attn_tensor_data(y), attn_tensor_data(z), ROWS * HEADS * SIZE * sizeof(float));
        for (int e = 0; e < ROWS * HEADS * SIZE; e++)
            assert_true(fabs((double)((float *)attn_tensor_data(y))[e] - (double)((float *)attn_tensor_data(z))[e]) < 1e-6);
        assert_int_equal(attn_dot_product_attention(ctx, NULL, q, k, k, NULL, NULL, NULL, NULL, z), ATTN_OK);
        assert_memory_not_equal(attn_tensor_data(y), attn_tensor_data(z), ROWS * HEADS * SIZE * sizeof(float));
    }
    attn_tensor *all[] = {q, k, pair, y, z, table[0], table[1], table[2]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) attn_tensor_free(all[i]);
    attn_context_free(ctx);
}

static void test_refusals(void **state)
{
    attn_context *ctx;
    random_state random = {4};
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    attn_tensor *q = filled(ctx, &random, 3, SHAPE(3, 2, 4)), *y = filled(ctx, &random, 3, SHAPE(3, 2, 4));
    attn_tensor *slopes = filled(ctx, &random, 1, SHAPE(2)), *wide = filled(ctx, &random, 1, SHAPE(3)),
                *few = filled(ctx, &random, 2, SHAPE(2, 2));
    attn_tensor *odd = filled(ctx, &random, 2, SHAPE(5, 2)), *near = filled(ctx, &random, 2, SHAPE(5, 4)),
                *flat = filled(ctx, &random, 2, SHAPE(3, 3));
    attn_tensor *pair = filled(ctx, &random, 4, SHAPE(1, 2, 3, 3)), *small = filled(ctx, &random, 4, SHAPE(1, 2, 3, 2));
    attn_tensor *strangers = filled(ctx, &random, 4, SHAPE(1, 3, 3, 3)), *many = filled(ctx, &random, 2, SHAPE(32, 2));
    const struct {
        int32_t kind, both_sides;
        int64_t reach;
        const attn_tensor *table, *values;
        attn_status status;
        const char *word;
    } cases_[] = {
        {0, 1, 1, slopes, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.kind"},
        {5, 1, 1, slopes, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.kind"},
        {ATTN_BIAS_LINEAR, 2, 1, slopes, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.both_sides"},
        {ATTN_BIAS_LINEAR, 1, -1, slopes, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.reach"},
        {ATTN_BIAS_BUCKETS, 1, 1, NULL, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.table"},
        {ATTN_BIAS_PAIR, 1, 1, NULL, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.table"},
        {ATTN_BIAS_LINEAR, 1, 1, slopes, slopes, ATTN_ERROR_INVALID_ARGUMENT, "bias.values"},
        {ATTN_BIAS_LINEAR, 1, 1, wide, NULL, ATTN_ERROR_SHAPE, "bias.table"},
        {ATTN_BIAS_BUCKETS, 1, 128, few, NULL, ATTN_ERROR_SHAPE, "bias.table"},
        {ATTN_BIAS_BUCKETS, 1, 128, odd, NULL, ATTN_ERROR_SHAPE, "even"},
        {ATTN_BIAS_BUCKETS, 1, 8, many, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.reach"},
        {ATTN_BIAS_RELATIVE, 1, 2, NULL, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.table"},
        {ATTN_BIAS_RELATIVE, 1, 3, near, NULL, ATTN_ERROR_SHAPE, "bias.table"},
        {ATTN_BIAS_RELATIVE, 1, 2, near, odd, ATTN_ERROR_SHAPE, "bias.values"},
        {ATTN_BIAS_PAIR, 1, 1, flat, NULL, ATTN_ERROR_SHAPE, "bias.table"},
        {ATTN_BIAS_PAIR, 1, 1, small, NULL, ATTN_ERROR_SHAPE, "bias.table"},
        {ATTN_BIAS_PAIR, 1, 1, strangers, NULL, ATTN_ERROR_SHAPE, "bias.table"},
    };
    for (size_t i = 0; i < sizeof cases_ / sizeof *cases_; i++) {
        attn_attention_bias b;
        assert_int_equal(attn_attention_bias_init(&b, sizeof b), ATTN_OK);
        b.kind = cases_[i].kind;
        b.both_sides = cases_[i].both_sides;
        b.reach = cases_[i].reach;
        b.table = cases_[i].table;
        b.values = cases_[i].values;
        const attn_attention_bias *biases[] = {&b};
        if (attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 1, biases, y) != cases_[i].status ||
            strstr(attn_context_last_error(ctx), cases_[i].word) == NULL)
            fail_msg("case %d: %s", (int)i, attn_context_last_error(ctx));
    }
    attn_attention_bias good, again;
    attn_attention_bias_init(&good, sizeof good);
    good.kind = ATTN_BIAS_PAIR;
    good.table = pair;
    again = good;
    const attn_attention_bias *twice[] = {&good, &again}, *none[] = {NULL};
    assert_int_equal(attn_attention_bias_init(NULL, sizeof good), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 2, twice, y), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 1, none, y), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 1, NULL, y), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 4, twice, y), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 1, twice, y), ATTN_OK);
    for (int family = 0; family < 2; family++) { /* two distances, relative rows twice */
        good.kind = family ? ATTN_BIAS_RELATIVE : ATTN_BIAS_LINEAR;
        again.kind = family ? ATTN_BIAS_RELATIVE : ATTN_BIAS_BUCKETS;
        good.table = family ? near : slopes;
        again.table = family ? near : many;
        good.reach = family ? 2 : 128;
        again.reach = good.reach;
        assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 2, twice, y), ATTN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_context_last_error(ctx), "two of one family"));
        assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 1, twice, y), ATTN_OK);
        assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 1, twice + 1, y), ATTN_OK);
    }
    float numbers[1 * 2 * 3 * 6];
    attn_tensor *gaps;
    for (int i = 0; i < 36; i++) numbers[i] = 1;
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 4, SHAPE(1, 2, 3, 3), SHAPE(36, 18, 6, 1), numbers, &gaps), ATTN_OK);
    good.kind = ATTN_BIAS_PAIR;
    good.table = gaps;
    assert_int_equal(attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 1, twice, y), ATTN_ERROR_SHAPE);
    assert_non_null(strstr(attn_context_last_error(ctx), "gaps"));
    attn_tensor_free(gaps);
    attn_tensor *all[] = {q, y, slopes, wide, few, odd, near, flat, pair, small, strangers, many};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) attn_tensor_free(all[i]);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),          cmocka_unit_test(test_buckets),  cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_distances_as_pairs), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

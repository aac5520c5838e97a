/* Several heads, chapter 4: joined and separate, concatenated and summed, the rank of one and what two can do that one cannot. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attend.h"

static attn_attention *layer_of(property *p, int64_t heads, int64_t width, int64_t size, int64_t value_size)
{
    attn_attention_options o;
    attn_attention *layer = NULL;
    OK(p->ctx, attn_attention_options_init(&o, sizeof o));
    o.dtype = p->dtype;
    o.heads = heads;
    o.query_width = width;
    o.head_size = size;
    o.value_head_size = value_size;
    OK(p->ctx, attn_attention_create(p->ctx, &o, &layer));
    model_scramble(attn_attention_parameters(layer), p->seed);
    return layer;
}

static attn_tensor *run(property *p, const attn_attention *layer, attn_tape *tape, const attn_tensor *q, const attn_tensor *k,
                        const attn_mask *mask)
{
    attn_tensor *y = property_copy(p, q);
    OK(p->ctx, attn_attention_forward(p->ctx, layer, tape, q, k, k, NULL, NULL, mask, y));
    return y;
}

/* rows first .. of the joined projections, columns first .. of the joined output: what belongs to one head */
static void take_head(attn_parameters *one, attn_parameters *all, int64_t head, int64_t heads)
{
    const char *const names[] = {"query.weight", "key.weight", "value.weight", "query.bias", "key.bias", "value.bias"};
    for (int n = 0; n < 6; n++) {
        attn_tensor *to = property_parameter(one, names[n]), *from = property_parameter(all, names[n]);
        for (int64_t e = 0; e < model_elements(to); e++) model_set(to, e, model_get(from, head * model_elements(to) + e));
    }
    attn_tensor *to = property_parameter(one, "output.weight"), *from = property_parameter(all, "output.weight");
    int64_t size = property_width(to);
    for (int64_t r = 0; r < attn_tensor_extent(to, 0); r++)
        for (int64_t c = 0; c < size; c++) property_set(to, r, c, property_get(from, r, head * size + c));
    to = property_parameter(one, "output.bias"), from = property_parameter(all, "output.bias");
    for (int64_t e = 0; e < model_elements(to); e++) model_set(to, e, model_get(from, e) / (double)heads);
}

/* Algorithm 1, (4.2), (4.6): the joined layer is the sum of h layers of one head, each with its block of W^O; and a head whose block of W^O
   is zero can be left out. */
static void sum_of_heads(property *p)
{
    const int64_t sizes[][5] = {{1, 4, 4, 4, 3}, {2, 8, 4, 4, 9}, {4, 8, 2, 5, 20}, {3, 7, 6, 1, 67}, {8, 16, 3, 2, 5}};
    for (int s = 0; s < 5; s++) {
        const int64_t heads = sizes[s][0], width = sizes[s][1], rows = sizes[s][4];
        attn_attention *all = layer_of(p, heads, width, sizes[s][2], sizes[s][3]), *one = layer_of(p, 1, width, sizes[s][2], sizes[s][3]);
        attn_tensor *x = property_random(p, rows, width, -1, 1), *k = property_random(p, rows + 3, width, -1, 1);
        attn_mask *mask = NULL;
        OK(p->ctx, attn_mask_causal(p->ctx, ATTN_ALIGN_LAST, &mask));
        for (int way = 0; way < 3; way++) {
            const attn_tensor *keys = way == 0 ? x : k;
            attn_tensor *sum = property_rows(p, rows, width), *rest = property_rows(p, rows, width);
            attn_tensor *joined = run(p, all, NULL, x, keys, way == 2 ? mask : NULL);
            for (int64_t h = 0; h < heads; h++) {
                take_head(attn_attention_parameters(one), attn_attention_parameters(all), h, heads);
                attn_tensor *part = run(p, one, NULL, x, keys, way == 2 ? mask : NULL);
                attn_tensor *to[2] = {sum, h == 0 ? NULL : rest};
                for (int t = 0; t < 2; t++)
                    for (int64_t e = 0; to[t] != NULL && e < model_elements(part); e++)
                        model_set(to[t], e, model_get(to[t], e) + model_get(part, e));
            }
            CLOSE(p, joined, sum, 100);
            if (way != 1) continue;
            attn_tensor *output = property_parameter(attn_attention_parameters(all), "output.weight");
            attn_tensor *bias = property_parameter(attn_attention_parameters(all), "output.bias");
            for (int64_t r = 0; r < width; r++)
                for (int64_t c = 0; c < sizes[s][3]; c++) property_set(output, r, c, 0);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < width; c++) property_set(rest, r, c, property_get(rest, r, c) + model_get(bias, c) / (double)heads);
            CLOSE(p, run(p, all, NULL, x, keys, NULL), rest, 100);
        }
        attn_mask_free(mask);
        attn_attention_free(all);
        attn_attention_free(one);
        property_sweep(p, 0);
    }
}

static void test_sum_of_heads(void **state)
{
    (void)state, property_run(sum_of_heads, 3);
}

/* Heads of one call are those of calls of their own; heads that share keys see the keys repeated. */
static void apart(property *p)
{
    const int64_t sizes[][4] = {{2, 2, 5, 7}, {4, 2, 66, 70}, {6, 1, 9, 131}}; /* heads, key heads, queries, keys */
    for (int s = 0; s < 3; s++) {
        const int64_t heads = sizes[s][0], key_heads = sizes[s][1], m = sizes[s][2], n = sizes[s][3], group = heads / key_heads;
        attn_tensor *q = property_random_heads(p, m, heads, 5, -1, 1), *k = property_random_heads(p, n, key_heads, 5, -1, 1);
        attn_tensor *v = property_random_heads(p, n, key_heads, 3, -1, 1), *y = attend(p, NULL, q, k, v, NAN);
        for (int64_t h = 0; h < heads; h++) {
            attn_tensor *own[3] = {property_heads(p, m, 1, 5), property_heads(p, n, 1, 5), property_heads(p, n, 1, 3)};
            for (int64_t r = 0; r < m; r++)
                for (int64_t c = 0; c < 5; c++) property_set(own[0], r, c, property_get(q, r, h * 5 + c));
            for (int64_t r = 0; r < n; r++) {
                for (int64_t c = 0; c < 5; c++) property_set(own[1], r, c, property_get(k, r, h / group * 5 + c));
                for (int64_t c = 0; c < 3; c++) property_set(own[2], r, c, property_get(v, r, h / group * 3 + c));
            }
            attn_tensor *alone = attend(p, NULL, own[0], own[1], own[2], NAN);
            for (int64_t r = 0; r < m; r++)
                for (int64_t c = 0; c < 3; c++) NEAR(property_get(alone, r, c), property_get(y, r, h * 3 + c), 32 * p->unit);
        }
        property_sweep(p, 0);
    }
}

static void test_apart(void **state)
{
    (void)state, property_run(apart, 3);
}

/* rank by elimination with full pivots; a is spoiled */
static int rank_of(double *a, int64_t rows, int64_t columns, double least)
{
    int rank = 0;
    for (; rank < rows && rank < columns; rank++) {
        int64_t row = rank, column = rank;
        for (int64_t r = rank; r < rows; r++)
            for (int64_t c = rank; c < columns; c++)
                if (fabs(a[r * columns + c]) > fabs(a[row * columns + column])) row = r, column = c;
        if (!(fabs(a[row * columns + column]) > least)) break;
        for (int64_t c = 0; c < columns; c++) {
            double kept = a[rank * columns + c];
            a[rank * columns + c] = a[row * columns + c], a[row * columns + c] = kept;
        }
        for (int64_t r = 0; r < rows; r++) {
            double kept = a[r * columns + rank];
            a[r * columns + rank] = a[r * columns + column], a[r * columns + column] = kept;
        }
        for (int64_t r = rank + 1; r < rows; r++) {
            double factor = a[r * columns + rank] / a[rank * columns + rank];
            for (int64_t c = rank; c < columns; c++) a[r * columns + c] -= factor * a[rank * columns + c];
        }
    }
    return rank;
}

/* Theorem 4.1: the scores of a head have rank d_k at most, and d_k for random rows, however many rows there are. Scores are known by the
   weights up to one number a row: the logarithms less their mean over the keys. */
static void rank(property *p)
{
    enum { ROWS = 20 };
    static double scores[ROWS * ROWS];
    for (int64_t size = 1; size <= 6; size++) {
        attn_tensor *q = property_random_heads(p, ROWS, 1, size, -1, 1), *k = property_random_heads(p, ROWS, 1, size, -1, 1);
        attn_tensor *weights = attend(p, NULL, q, k, attend_units(p, ROWS), 1);
        for (int64_t i = 0; i < ROWS; i++) {
            double mean = 0;
            for (int64_t j = 0; j < ROWS; j++) mean += log(property_get(weights, i, j)) / ROWS;
            for (int64_t j = 0; j < ROWS; j++) scores[i * ROWS + j] = log(property_get(weights, i, j)) - mean;
        }
        assert_int_equal(rank_of(scores, ROWS, ROWS, 1e4 * p->unit), size);
        property_sweep(p, 0);
    }
}

static void test_rank(void **state)
{
    (void)state, property_run(rank, 4);
}

/* Theorem 4.2, constructed: positions are unit vectors, so that a query can ask for the row before or after. One head says the mean of some
   contents, which stays in their hull; two say the difference of the neighbours, which does not. */
static void two_say_more(property *p)
{
    enum { ROWS = 9, WIDTH = ROWS + 1 };
    attn_attention *layer = layer_of(p, 2, WIDTH, ROWS, 1);
    attn_parameters *set = attn_attention_parameters(layer);
    for (int64_t i = 0; i < attn_parameters_count(set); i++) {
        attn_tensor *t = attn_parameters_tensor(set, i);
        for (int64_t e = 0; e < model_elements(t); e++) model_set(t, e, 0);
    }
    for (int64_t r = 0; r < ROWS; r++) { /* head 0 asks for the row before, head 1 for the row after; the ends for themselves */
        property_set(property_parameter(set, "query.weight"), r > 0 ? r - 1 : 0, r, 400);
        property_set(property_parameter(set, "query.weight"), ROWS + (r + 1 < ROWS ? r + 1 : r), r, 400);
        for (int64_t h = 0; h < 2; h++) property_set(property_parameter(set, "key.weight"), h * ROWS + r, r, 1);
    }
    for (int64_t h = 0; h < 2; h++) property_set(property_parameter(set, "value.weight"), h, ROWS, 1);
    property_set(property_parameter(set, "output.weight"), ROWS, 0, 1);
    property_set(property_parameter(set, "output.weight"), ROWS, 1, -1);
    attn_tensor *x = property_rows(p, ROWS, WIDTH);
    double least = INFINITY, outside = 0;
    for (int64_t r = 0; r < ROWS; r++) {
        property_set(x, r, r, 1);
        property_set(x, r, ROWS, random_number(&p->random, 1, 2));
        least = fmin(least, property_get(x, r, ROWS));
    }
    attn_tensor *y = run(p, layer, NULL, x, x, NULL);
    for (int64_t r = 1; r + 1 < ROWS; r++) {
        NEAR(property_get(y, r, ROWS), property_get(x, r - 1, ROWS) - property_get(x, r + 1, ROWS), 64 * p->unit);
        outside = fmax(outside, least - property_get(y, r, ROWS));
    }
    HOLDS(p, outside > 0.5);
    attn_attention_free(layer);
}

static void test_two_say_more(void **state)
{
    (void)state, property_run(two_say_more, 4);
}

enum { LEARN_ROWS = 5, LEARN_STEPS = 250 };

/* squared error of the differences of neighbours, rows that have both, contents being the unit vectors; *lowest over all steps */
static double learn(property *p, int64_t heads, double *lowest)
{
    attn_attention_options o;
    attn_attention *layer = NULL;
    attn_optimizer *optimizer = NULL;
    attn_optimizer_options rates;
    attn_gradients *gradients = NULL;
    OK(p->ctx, attn_attention_options_init(&o, sizeof o));
    o.dtype = p->dtype;
    o.heads = heads;
    o.query_width = o.head_size = LEARN_ROWS;
    o.value_width = o.value_head_size = o.output_width = 1;
    o.bias_value = o.bias_output = 0;
    OK(p->ctx, attn_attention_create(p->ctx, &o, &layer));
    OK(p->ctx, attn_optimizer_options_init(&rates, sizeof rates));
    rates.rate = 0.1;
    OK(p->ctx, attn_optimizer_create(p->ctx, attn_attention_parameters(layer), &rates, &optimizer));
    OK(p->ctx, attn_gradients_create(p->ctx, attn_attention_parameters(layer), &gradients));
    const int64_t all = LEARN_ROWS * LEARN_ROWS, lengths[LEARN_ROWS] = {LEARN_ROWS, LEARN_ROWS, LEARN_ROWS, LEARN_ROWS, LEARN_ROWS};
    attn_layout *layout = property_layout(p, LEARN_ROWS, lengths, 0);
    attn_tensor *place = property_rows(p, all, LEARN_ROWS), *content = property_rows(p, all, 1), *dy = property_rows(p, all, 1);
    attn_tensor *y = property_rows(p, all, 1);
    for (int64_t r = 0; r < all; r++) {
        property_set(place, r, r % LEARN_ROWS, 1);
        property_set(content, r, 0, r / LEARN_ROWS == r % LEARN_ROWS);
    }
    double loss = 0;
    *lowest = INFINITY;
    for (int step = 0; step < LEARN_STEPS; step++) {
        property_begin(p);
        OK(p->ctx, attn_attention_forward(p->ctx, layer, p->tape, place, place, content, layout, layout, NULL, y));
        loss = 0;
        for (int64_t r = 0; r < all; r++) {
            const int64_t i = r % LEARN_ROWS, inner = i > 0 && i + 1 < LEARN_ROWS;
            double apart = inner ? model_get(y, r) - (model_get(content, r - 1) - model_get(content, r + 1)) : 0;
            loss += apart * apart;
            model_set(dy, r, 2 * apart);
        }
        *lowest = fmin(*lowest, loss);
        property_backward(p, y, dy, gradients);
        OK(p->ctx, attn_optimizer_step(p->ctx, optimizer, gradients, 1, NULL));
    }
    attn_layout_free(layout);
    attn_gradients_free(gradients);
    attn_optimizer_free(optimizer);
    attn_attention_free(layer);
    property_sweep(p, 0);
    return loss;
}

/* Theorem 4.2, learned: over contents that are the unit vectors the loss of one head is, for each of the rows with two neighbours,
   |e(i-1) - e(i+1) - m A(i)|^2 with weights A that are not negative: at least 1 whatever m. Two heads have no such floor. */
static void learned(property *p)
{
    double lowest_one, lowest_two;
    learn(p, 1, &lowest_one);
    HOLDS(p, lowest_one >= (LEARN_ROWS - 2) * (1 - 1e-5));
    double two = learn(p, 2, &lowest_two);
    HOLDS(p, two < 0.05);
}

static void test_learned(void **state)
{
    (void)state, property_run(learned, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_of_heads), cmocka_unit_test(test_apart),   cmocka_unit_test(test_rank),
        cmocka_unit_test(test_two_say_more), cmocka_unit_test(test_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

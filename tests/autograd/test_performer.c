#include "linear_case.h"
#include "support/random.h"

/* The Performer: its directions, and what random features give for e^(x . y). */

static attn_tensor *tensor_of(attn_context *ctx, int32_t dtype, int64_t rows, int64_t heads, int64_t size, random_state *random,
                              double reach)
{
    attn_tensor *out;
    assert_int_equal(attn_tensor_create(ctx, dtype, 3, SHAPE(rows, heads, size), &out), ATTN_OK);
    if (random != NULL && dtype == ATTN_FLOAT64) random_doubles(random, attn_tensor_data(out), rows * heads * size, -reach, reach);
    if (random != NULL && dtype == ATTN_FLOAT32) random_floats(random, attn_tensor_data(out), rows * heads * size, -reach, reach);
    return out;
}

/* Queries and keys so large that e^(w . z) is past every number: random features stay finite, and the largest key of a query wins. */
static void test_large(void **state)
{
    enum { ROWS = 80, SIZE = 4 };
    (void)state;
    for (int32_t causal = 0; causal < 2; causal++) {
        attn_context *ctx = contexts[ATTN_BACKEND_BLAS];
        random_state random = {8};
        attn_linear_attention_options o = options_of(ATTN_FEATURES_POSITIVE, causal);
        attn_tensor *q = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, &random, 60),
                    *k = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, &random, 60);
        attn_tensor *v = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, &random, 1), *y = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, NULL, 0);
        assert_int_equal(attn_linear_attention(ctx, NULL, q, k, v, NULL, NULL, &o, y), ATTN_OK);
        int64_t answered = 0; /* rows that found a key: a query's own size does not count */
        for (int64_t e = 0; e < ROWS * SIZE; e++) {
            assert_true(fabs((double)((float *)attn_tensor_data(y))[e]) <= 1.0001);
            answered += ((float *)attn_tensor_data(y))[e] != 0;
        }
        if (answered < ROWS * SIZE / 2) fail_msg("causal %d: %d of %d outputs are not 0", causal, (int)answered, ROWS * SIZE);
        attn_tensor *all[] = {q, k, v, y};
        for (int t = 0; t < 4; t++) attn_tensor_free(all[t]);
    }
}

/* with a log_scale: the features divided by its exponential, which is the largest of them; 4 features a column unless said otherwise */
static void test_log_scale(void **state)
{
    enum { ROWS = 5, HEADS = 2 };
    (void)state;
    for (int32_t i = 0; i < 8; i++) {
        attn_context *ctx = contexts[i % 2];
        const int64_t size = i < 4 ? 3 : 1, count = 4 * size;
        random_state random = {31};
        int32_t map = i % 4 < 2 ? ATTN_FEATURES_POSITIVE : ATTN_FEATURES_TRIGONOMETRIC;
        const attn_linear_attention_options o = options_of(map, 0);
        attn_tensor *x = tensor_of(ctx, ATTN_FLOAT32, ROWS, HEADS, size, &random, 2),
                    *plain = tensor_of(ctx, ATTN_FLOAT32, ROWS, HEADS, count, NULL, 0);
        attn_tensor *scaled = tensor_of(ctx, ATTN_FLOAT32, ROWS, HEADS, count, NULL, 0), *scale,
                    *wrong = tensor_of(ctx, ATTN_FLOAT32, ROWS, HEADS, count / 2, NULL, 0);
        assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 2, SHAPE(ROWS, HEADS), &scale), ATTN_OK);
        assert_int_equal(attn_feature_map(ctx, NULL, x, &o, NULL, plain), ATTN_OK);
        assert_int_equal(attn_feature_map(ctx, NULL, x, &o, scale, scaled), ATTN_OK);
        assert_int_equal(attn_feature_map(ctx, NULL, x, &o, NULL, wrong), ATTN_ERROR_SHAPE);
        for (int64_t row = 0; row < ROWS * HEADS; row++) {
            double largest = 0, by = exp((double)((float *)attn_tensor_data(scale))[row]),
                   m = (double)(map == ATTN_FEATURES_POSITIVE ? count : count / 2);
            for (int64_t f = 0; f < count; f++) {
                double got = ((float *)attn_tensor_data(scaled))[row * count + f],
                       want = ((float *)attn_tensor_data(plain))[row * count + f];
                assert_true(fabs(got * by - want) < 1e-5 * (1 + fabs(want)));
                largest = fmax(largest, fabs(got));
            }
            assert_true(map == ATTN_FEATURES_POSITIVE ? fabs(largest * sqrt(m) - 1) < 1e-5 : largest * sqrt(m) < 1.00001);
        }
        attn_tensor *all[] = {x, plain, scaled, scale, wrong};
        for (int t = 0; t < 5; t++) attn_tensor_free(all[t]);
    }
}

/* estimates of e^(x . y) by m directions, over many seeds */
typedef struct estimates {
    double mean, mean_error, squared, squared_error; /* and their standard errors */
} estimates;

static estimates estimate(int32_t map, int32_t independent, int64_t m, int64_t size, const double *pair, double exact)
{
    enum { DRAWS = 6000 };
    attn_context *ctx = contexts[ATTN_BACKEND_REFERENCE];
    attn_linear_attention_options o = options_of(map, 0);
    int64_t count = o.features = map == ATTN_FEATURES_POSITIVE ? m : 2 * m;
    o.independent = independent;
    o.derive_scale = 0; /* scale 1 */
    attn_tensor *x, *y;
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT64, 3, SHAPE(2, 1, size), NULL, (void *)(uintptr_t)pair, &x), ATTN_OK);
    y = tensor_of(ctx, ATTN_FLOAT64, 2, 1, count, NULL, 0);
    double sum = 0, squares = 0, fourth = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        const double *f = attn_tensor_data(y);
        double value = 0;
        o.seed = (uint64_t)draw;
        assert_int_equal(attn_feature_map(ctx, NULL, x, &o, NULL, y), ATTN_OK);
        for (int64_t c = 0; c < count; c++) value += f[c] * f[count + c];
        sum += value - exact;
        squares += (value - exact) * (value - exact);
        fourth += pow(value - exact, 4);
    }
    attn_tensor_free(x);
    attn_tensor_free(y);
    double squared = squares / DRAWS;
    return (estimates){exact + sum / DRAWS, sqrt(squared / DRAWS), squared, sqrt((fourth / DRAWS - squared * squared) / DRAWS)};
}

/* unbiased; the mean squared error of independent directions is the closed form, within 4 standard errors; orthogonal ones are no worse */
static void test_error(void **state)
{
    enum { SIZE = 8, M = 8 };
    (void)state;
    random_state random = {21};
    for (int round = 0; round < 2; round++) {
        double pair[2 * SIZE], both = 0, apart = 0, inner = 0, squares = 0;
        random_doubles(&random, pair, 2 * SIZE, -0.35, 0.35);
        for (int c = 0; c < SIZE; c++) {
            double x = pair[c], y = pair[SIZE + c];
            both += (x + y) * (x + y);
            apart += (x - y) * (x - y);
            inner += x * y;
            squares += x * x + y * y;
        }
        double exact = exp(inner);
        double expected[] = {exact * exact * expm1(both) / M, exp(squares) * pow(1 - exp(-apart), 2) / (2 * M)};
        for (int32_t i = 0; i < 2; i++) {
            int32_t map = ATTN_FEATURES_POSITIVE + i;
            estimates alone = estimate(map, 1, M, SIZE, pair, exact), orthogonal = estimate(map, 0, M, SIZE, pair, exact);
            if (fabs(alone.mean - exact) > 4 * alone.mean_error || fabs(orthogonal.mean - exact) > 4 * orthogonal.mean_error)
                fail_msg("map %d is biased: %g and %g, expected %g", map, alone.mean, orthogonal.mean, exact);
            if (fabs(alone.squared - expected[i]) > 4 * alone.squared_error)
                fail_msg("map %d: error %g +- %g, expected %g", map, alone.squared, alone.squared_error, expected[i]);
            if (orthogonal.squared > alone.squared)
                fail_msg("map %d: orthogonal %g, independent %g", map, orthogonal.squared, alone.squared);
        }
    }
}

/* rows of a group are orthogonal, lengths are those of normal vectors, a larger m begins with a smaller, seeds differ */
static void test_directions(void **state)
{
    enum { SIZE = 6, M = 600 };
    attn_context *ctx = contexts[ATTN_BACKEND_BLAS];
    attn_tensor *w, *few;
    double squares = 0;
    (void)state;
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT64, 2, SHAPE(M, SIZE), &w), ATTN_OK);
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT64, 2, SHAPE(10, SIZE), &few), ATTN_OK);
    const double *at = attn_tensor_data(w);
    for (int32_t independent = 0; independent < 2; independent++) {
        attn_linear_attention_options o = options_of(ATTN_FEATURES_POSITIVE, 0);
        o.independent = independent;
        double largest = 0;
        assert_int_equal(attn_feature_directions(ctx, &o, w), ATTN_OK);
        assert_int_equal(attn_feature_directions(ctx, &o, few), ATTN_OK);
        assert_memory_equal(at, attn_tensor_data(few), 10 * SIZE * sizeof *at);
        for (int64_t a = 0; a < M; a++) {
            for (int64_t b = a / SIZE * SIZE; b < a; b++) {
                double inner = 0;
                for (int c = 0; c < SIZE; c++) inner += at[a * SIZE + c] * at[b * SIZE + c];
                largest = fmax(largest, fabs(inner));
            }
        }
        assert_true(independent ? largest > 1 : largest < 1e-12);
        squares = 0;
        for (int64_t e = 0; e < M * SIZE; e++) squares += at[e] * at[e];
        assert_true(fabs(squares / (M * SIZE) - 1) < 4 * sqrt(2.0 / (M * SIZE)));
        o.seed = 1;
        assert_int_equal(attn_feature_directions(ctx, &o, few), ATTN_OK);
        assert_true(((double *)attn_tensor_data(few))[0] != at[0]);
    }
    attn_tensor_free(w);
    attn_tensor_free(few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large), cmocka_unit_test(test_log_scale), cmocka_unit_test(test_directions),
                                       cmocka_unit_test(test_error)};
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}

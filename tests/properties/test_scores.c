/* Theorem 2.3, Corollary 2.4: the variance of scores is d_k, and 1 after scaling; and what scaling keeps alive. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attend.h"

enum { HEADS = 4, PAIRS = 500, SAMPLES = HEADS * PAIRS };
enum { NORMAL, SIGNS, UNIFORM, REPEATED };

/* one component of mean 0 and variance 1 */
static double component(property *p, int kind)
{
    if (kind == SIGNS) return random_bits(&p->random) >> 63 ? 1 : -1;
    return kind == UNIFORM ? random_number(&p->random, -1, 1) * sqrt(3) : property_gaussian(p);
}

/* SAMPLES scores of the attention kernel on random pairs: a segment of one query and two keys, of which the second is zero, so that the
   score is the logarithm of the ratio of the weights */
static void sample(property *p, int kind, int64_t size, double scale, double *scores)
{
    static int64_t one[PAIRS], two[PAIRS];
    attn_tensor *q = property_heads(p, PAIRS, HEADS, size), *k = property_heads(p, 2 * PAIRS, HEADS, size);
    attn_tensor *v = property_heads(p, 2 * PAIRS, HEADS, 2), *y = property_heads(p, PAIRS, HEADS, 2);
    for (int64_t i = 0; i < PAIRS; i++) {
        one[i] = 1, two[i] = 2;
        for (int64_t h = 0; h < HEADS; h++) {
            double a = component(p, kind), b = component(p, kind);
            for (int64_t c = 0; c < size; c++) {
                property_set(q, i, h * size + c, kind == REPEATED ? a : component(p, kind));
                property_set(k, 2 * i, h * size + c, kind == REPEATED ? b : component(p, kind));
            }
            property_set(v, 2 * i, 2 * h, 1);
            property_set(v, 2 * i + 1, 2 * h + 1, 1);
        }
    }
    attn_layout *queries = property_layout(p, PAIRS, one, 0), *keys = property_layout(p, PAIRS, two, 0);
    attn_dot_product_options o;
    OK(p->ctx, attn_dot_product_options_init(&o, sizeof o));
    if (scale > 0) o.derive_scale = 0, o.scale = scale;
    OK(p->ctx, attn_dot_product_attention(p->ctx, NULL, q, k, v, queries, keys, NULL, &o, y));
    for (int64_t i = 0; i < SAMPLES; i++) scores[i] = log(model_get(y, 2 * i) / model_get(y, 2 * i + 1));
    attn_layout_free(queries);
    attn_layout_free(keys);
    property_sweep(p, 0);
}

/* mean within four standard errors of 0, variance within four of `want` */
static void expect_variance(const property *p, const double *scores, double want)
{
    double mean = 0, variance = 0, fourth = 0;
    for (int i = 0; i < SAMPLES; i++) mean += scores[i] / SAMPLES;
    for (int i = 0; i < SAMPLES; i++) variance += scores[i] * scores[i] / SAMPLES, fourth += pow(scores[i], 4) / SAMPLES;
    HOLDS(p, fabs(mean) <= 4 * sqrt(variance / SAMPLES));
    NEAR(variance, want, 4 * sqrt((fourth - variance * variance) / SAMPLES));
}

static void variance(property *p)
{
    static double scores[SAMPLES];
    const int64_t sizes[] = {4, 16, 64};
    for (int kind = NORMAL; kind <= REPEATED; kind++)
        for (int s = 0; s < 3; s++) {
            const double d = (double)sizes[s];
            /* scores up to 85 apart can be told by their weights in float32: larger ones are scaled down by a known number */
            const double factor = kind == REPEATED ? 1 / d : d > 16 ? 0.25 : 1;
            sample(p, kind, sizes[s], factor, scores);
            for (int i = 0; i < SAMPLES; i++) scores[i] /= factor;
            expect_variance(p, scores, kind == REPEATED ? d * d : d); /* dependent components: far from d */
            if (kind == REPEATED) continue;
            sample(p, kind, sizes[s], 0, scores);
            expect_variance(p, scores, 1);
        }
}

static void test_variance(void **state)
{
    (void)state, property_run(variance, 2);
}

/* (2.21), (2.22): the cross terms q_i k_i q_j k_j have mean 0, the squares mean 1. */
static void cross_terms(property *p)
{
    enum { SIZE = 8, ROWS = 4000 };
    attn_tensor *q = property_normal(p, ROWS, SIZE), *k = property_normal(p, ROWS, SIZE), *terms = property_rows(p, ROWS, SIZE);
    OK(p->ctx, attn_multiply(p->ctx, NULL, q, k, terms));
    for (int64_t i = 0; i < SIZE; i++)
        for (int64_t j = 0; j <= i; j++) {
            double mean = 0, square = 0;
            for (int64_t r = 0; r < ROWS; r++) {
                double x = property_get(terms, r, i) * property_get(terms, r, j);
                mean += x / ROWS;
                square += x * x / ROWS;
            }
            NEAR(mean, i == j, 4.5 * sqrt((square - mean * mean) / ROWS));
        }
}

static void test_cross_terms(void **state)
{
    (void)state, property_run(cross_terms, 1);
}

/* mean entropy of the weights, and mean size of the gradient by the scores of a random gradient by the weights */
static void liveliness(property *p, int64_t size, double scale, double *entropy, double *gradient)
{
    enum { ROWS = 64, KEYS = 32 };
    attn_tensor *q = property_normal(p, ROWS, size), *k = property_normal(p, KEYS, size), *scores = property_rows(p, ROWS, KEYS);
    attn_tensor *weights = property_rows(p, ROWS, KEYS), *dw = property_random(p, ROWS, KEYS, -1, 1);
    OK(p->ctx, attn_linear(p->ctx, NULL, q, k, NULL, scores));
    for (int64_t e = 0; e < ROWS * KEYS; e++) model_set(scores, e, scale * model_get(scores, e));
    property_begin(p);
    attn_tensor *ds = property_watch(p, scores);
    OK(p->ctx, attn_softmax(p->ctx, p->tape, scores, weights));
    property_backward(p, weights, dw, NULL);
    *entropy = *gradient = 0;
    for (int64_t r = 0; r < ROWS; r++) {
        double square = 0;
        for (int64_t c = 0; c < KEYS; c++) {
            double a = property_get(weights, r, c);
            *entropy -= a > 0 ? a * log(a) / ROWS : 0;
            square += pow(property_get(ds, r, c), 2);
        }
        *gradient += sqrt(square) / ROWS;
    }
    property_sweep(p, 0);
}

/* Key point of 2.4.4: with scaling neither entropy nor gradient falls with d_k; without, both do. At 256: at least 5 times the entropy. */
static void saturation(property *p)
{
    const int64_t sizes[] = {4, 64, 256};
    double plain[3], plain_gradient[3], scaled[3], scaled_gradient[3];
    for (int s = 0; s < 3; s++) {
        liveliness(p, sizes[s], 1, &plain[s], &plain_gradient[s]);
        liveliness(p, sizes[s], 1 / sqrt((double)sizes[s]), &scaled[s], &scaled_gradient[s]);
        HOLDS(p, scaled[s] > 0.8 * log(32) && scaled_gradient[s] > 0.7 * scaled_gradient[0]);
        HOLDS(p, s == 0 || (plain[s] < 0.7 * plain[s - 1] && plain_gradient[s] < plain_gradient[s - 1]));
    }
    HOLDS(p, scaled[2] > 5 * plain[2] && scaled_gradient[2] > 1.4 * plain_gradient[2]);
}

static void test_saturation(void **state)
{
    (void)state, property_run(saturation, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variance),
        cmocka_unit_test(test_cross_terms),
        cmocka_unit_test(test_saturation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

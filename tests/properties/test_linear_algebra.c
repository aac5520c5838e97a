/* Section 2.1: linear maps, inner product, norm, cosine, trace; the dot score among them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attend.h"

static const int64_t sizes[][3] = {{1, 1, 1}, {3, 2, 5}, {7, 13, 4}, {33, 65, 17}, {64, 64, 64}}; /* rows, inner, width */
enum { SIZES = sizeof sizes / sizeof *sizes };

static attn_tensor *linear(property *p, const attn_tensor *x, const attn_tensor *weight)
{
    attn_tensor *y = property_rows(p, attn_tensor_extent(x, 0), attn_tensor_extent(weight, 0));
    OK(p->ctx, attn_linear(p->ctx, NULL, x, weight, NULL, y));
    return y;
}

static attn_tensor *transposed(property *p, const attn_tensor *x)
{
    attn_tensor *y = property_rows(p, property_width(x), attn_tensor_extent(x, 0));
    for (int64_t r = 0; r < attn_tensor_extent(x, 0); r++)
        for (int64_t c = 0; c < property_width(x); c++) property_set(y, c, r, property_get(x, r, c));
    return y;
}

/* s a + t b */
static attn_tensor *mixed(property *p, double s, const attn_tensor *a, double t, const attn_tensor *b)
{
    attn_tensor *y = property_copy(p, a);
    for (int64_t e = 0; e < model_elements(a); e++) model_set(y, e, s * model_get(a, e) + t * model_get(b, e));
    return y;
}

static double inner(property *p, const attn_tensor *a, const attn_tensor *b)
{
    double out = NAN;
    OK(p->ctx, attn_inner_product(p->ctx, a, b, &out));
    return out;
}
static double norm(property *p, const attn_tensor *a)
{
    double out = NAN;
    OK(p->ctx, attn_norm(p->ctx, a, &out));
    return out;
}
static double cosine(property *p, const attn_tensor *a, const attn_tensor *b)
{
    double out = NAN;
    OK(p->ctx, attn_cosine(p->ctx, a, b, &out));
    return out;
}
static double trace(property *p, const attn_tensor *a)
{
    double out = NAN;
    OK(p->ctx, attn_trace(p->ctx, a, &out));
    return out;
}

/* (2.1): T(s a + t b) = s T(a) + t T(b); (2.2): two maps in a row are the one of the product; the transpose is the adjoint. */
static void maps(property *p)
{
    for (int s = 0; s < SIZES; s++) {
        const int64_t rows = sizes[s][0], in = sizes[s][1], out = sizes[s][2];
        attn_tensor *a = property_random(p, rows, in, -1, 1), *b = property_random(p, rows, in, -1, 1);
        attn_tensor *first = property_random(p, out, in, -1, 1), *second = property_random(p, 9, out, -1, 1);
        attn_tensor *y = property_random(p, rows, out, -1, 1);
        double x = random_number(&p->random, -2, 2), z = random_number(&p->random, -2, 2);
        CLOSE(p, linear(p, mixed(p, x, a, z, b), first), mixed(p, x, linear(p, a, first), z, linear(p, b, first)), 200);
        CLOSE(p, linear(p, linear(p, a, first), second), linear(p, a, property_product(p, second, first)), 400);
        NEAR(inner(p, linear(p, a, first), y), inner(p, a, linear(p, y, transposed(p, first))), 2e4 * p->unit);
        property_sweep(p, 0);
    }
}

static void test_maps(void **state)
{
    (void)state, property_run(maps, 5);
}

/* (2.3) to (2.5): bilinear, symmetric; Cauchy and Schwarz, the triangle, the parallelogram; cosine 1, 0, -1 and between. */
static void measures(property *p)
{
    for (int s = 0; s < SIZES; s++) {
        const int64_t rows = sizes[s][0], width = sizes[s][1];
        const double n = (double)(rows * width), within = 16 * n * p->unit;
        attn_tensor *a = property_random(p, rows, width, -1, 1), *b = property_random(p, rows, width, -1, 1);
        attn_tensor *c = property_random(p, rows, width, -1, 1), *zero = property_rows(p, rows, width);
        attn_tensor *sum = mixed(p, 1, a, 1, b), *difference = mixed(p, 1, a, -1, b), *other = mixed(p, -0.75, a, 0, a);
        HOLDS(p, inner(p, a, b) == inner(p, b, a));
        NEAR(inner(p, mixed(p, 2.5, a, -0.5, b), c), 2.5 * inner(p, a, c) - 0.5 * inner(p, b, c), within);
        NEAR(norm(p, a) * norm(p, a), inner(p, a, a), within);
        NEAR(norm(p, other), 0.75 * norm(p, a), within);
        HOLDS(p, fabs(inner(p, a, b)) <= norm(p, a) * norm(p, b) * (1 + 1e-15));
        HOLDS(p, norm(p, sum) <= (norm(p, a) + norm(p, b)) * (1 + 4 * p->unit));
        NEAR(pow(norm(p, sum), 2) + pow(norm(p, difference), 2), 2 * pow(norm(p, a), 2) + 2 * pow(norm(p, b), 2), 64 * within);
        NEAR(cosine(p, a, b), inner(p, a, b) / (norm(p, a) * norm(p, b)), 1e-12);
        HOLDS(p, fabs(cosine(p, a, b)) <= 1);
        NEAR(cosine(p, a, mixed(p, 3, a, 0, a)), 1, within);
        NEAR(cosine(p, a, other), -1, within);
        HOLDS(p, cosine(p, a, mixed(p, 2, a, 0, a)) <= 1 && cosine(p, a, mixed(p, -2, a, 0, a)) >= -1);
        HOLDS(p, cosine(p, a, zero) == 0 && norm(p, zero) == 0);
        if (n > 1) { /* b less its part along a */
            double along = inner(p, a, b) / inner(p, a, a);
            NEAR(cosine(p, a, mixed(p, 1, b, -along, a)), 0, 64 * p->unit);
        }
        property_sweep(p, 0);
    }
}

static void test_measures(void **state)
{
    (void)state, property_run(measures, 5);
}

/* (2.6), (2.7): trace(A B) = trace(B A), of the transpose, of a sum; the Frobenius norm is the root of trace(M' M). */
static void traces(property *p)
{
    for (int s = 0; s < SIZES; s++) {
        const int64_t m = sizes[s][0], n = sizes[s][1];
        const double within = 32 * (double)(m * n) * p->unit;
        attn_tensor *a = property_random(p, m, n, -1, 1), *b = property_random(p, n, m, -1, 1);
        attn_tensor *ab = linear(p, a, transposed(p, b)), *ba = linear(p, b, transposed(p, a));
        NEAR(trace(p, ab), trace(p, ba), within);
        HOLDS(p, trace(p, transposed(p, ab)) == trace(p, ab));
        NEAR(trace(p, mixed(p, 2, ab, 3, property_identity(p, m))), 2 * trace(p, ab) + 3 * (double)m, within);
        NEAR(norm(p, a), sqrt(trace(p, linear(p, transposed(p, a), transposed(p, a)))), within);
        NEAR(trace(p, ab), inner(p, a, transposed(p, b)), within);
        HOLDS(p, norm(p, ab) <= norm(p, a) * norm(p, b) * (1 + 8 * p->unit));
        property_sweep(p, 0);
    }
}

static void test_traces(void **state)
{
    (void)state, property_run(traces, 5);
}

/* the dot score of attention: the logarithm of a weight's ratio to the weight of a zero key */
static double score(property *p, const attn_tensor *q, const attn_tensor *k, double scale)
{
    const int mark = p->count;
    const int64_t n = property_width(q);
    attn_tensor *head = property_heads(p, 1, 1, n), *keys = property_heads(p, 2, 1, n), *units = attend_units(p, 2);
    for (int64_t c = 0; c < n; c++) property_set(head, 0, c, property_get(q, 0, c)), property_set(keys, 0, c, property_get(k, 0, c));
    attn_tensor *y = attend(p, NULL, head, keys, units, scale);
    double ratio = log(property_get(y, 0, 0) / property_get(y, 0, 1));
    property_sweep(p, mark);
    return ratio;
}

/* (2.14): the score is the inner product, a bilinear form; of unit vectors the cosine; the same after turning both. */
static void scores(property *p)
{
    const int64_t widths[] = {1, 2, 8, 65};
    for (int w = 0; w < 4; w++) {
        const int64_t n = widths[w];
        const double within = 100 * p->unit;
        attn_tensor *a = property_random(p, 1, n, -0.5, 0.5), *b = property_random(p, 1, n, -0.5, 0.5);
        attn_tensor *k = property_random(p, 1, n, -0.5, 0.5), *turn = property_identity(p, n);
        NEAR(score(p, a, k, 1), inner(p, a, k), within);
        NEAR(score(p, a, k, NAN), inner(p, a, k) / sqrt((double)n), within);
        NEAR(score(p, mixed(p, 2, a, -1, b), k, 1), 2 * score(p, a, k, 1) - score(p, b, k, 1), 4 * within);
        NEAR(score(p, a, mixed(p, 2, b, -1, k), 1), 2 * score(p, a, b, 1) - score(p, a, k, 1), 4 * within);
        NEAR(score(p, a, k, 0.25), 0.25 * score(p, a, k, 1), within);
        NEAR(score(p, a, k, 1), score(p, k, a, 1), within);
        NEAR(score(p, mixed(p, 1 / norm(p, a), a, 0, a), mixed(p, 1 / norm(p, k), k, 0, k), 1), cosine(p, a, k), within);
        for (int64_t c = 0; c + 1 < n; c += 2) { /* an angle for each pair */
            double angle = random_number(&p->random, 0, 6);
            property_set(turn, c, c, cos(angle)), property_set(turn, c + 1, c + 1, cos(angle));
            property_set(turn, c, c + 1, sin(angle)), property_set(turn, c + 1, c, -sin(angle));
        }
        NEAR(score(p, linear(p, a, turn), linear(p, k, turn), 1), score(p, a, k, 1), within);
        property_sweep(p, 0);
    }
}

static void test_scores(void **state)
{
    (void)state, property_run(scores, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_traces),
        cmocka_unit_test(test_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

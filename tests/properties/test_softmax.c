/* Softmax (2.9), (2.29), its Jacobian (6.16) to (6.18), entropy and temperature; by itself and inside attention. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attend.h"

static const int64_t widths[] = {1, 2, 3, 17, 64, 131};
enum { WIDTHS = sizeof widths / sizeof *widths, ROWS = 5 };

static attn_tensor *softmax(property *p, attn_tape *tape, const attn_tensor *x, int log)
{
    attn_tensor *y = property_copy(p, x);
    OK(p->ctx, (log ? attn_log_softmax : attn_softmax)(p->ctx, tape, x, y));
    return y;
}

static attn_tensor *shifted(property *p, const attn_tensor *x, const double *by)
{
    attn_tensor *y = property_copy(p, x);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < property_width(x); c++) property_set(y, r, c, property_get(x, r, c) + by[r]);
    return y;
}

/* A constant added to a row changes nothing: not by a bit where the sum itself is exact, and never so much that it overflows. */
static void shift(property *p)
{
    const double by[ROWS] = {1, -4, 1e4, -1e4, 0.3}, whole[ROWS] = {1, -2, 64, -1024, 4096};
    for (int w = 0; w < WIDTHS; w++)
        for (int log = 0; log < 2; log++) {
            attn_tensor *x = property_random(p, ROWS, widths[w], -6, 6), *even = property_copy(p, x);
            for (int64_t e = 0; e < model_elements(even); e++) model_set(even, e, floor(8 * model_get(even, e)) / 8);
            CLOSE(p, softmax(p, NULL, shifted(p, x, by), log), softmax(p, NULL, x, log), 3e4); /* the rounding of 1e4 */
            HOLDS(p, property_same_bits(softmax(p, NULL, shifted(p, even, whole), log), softmax(p, NULL, even, log)) ||
                         log); /* log: x - log-sum-exp rounds at the size of x */
            for (int64_t r = 0; r < ROWS; r++) property_set(x, r, 0, 3e38), property_set(x, r, widths[w] - 1, 3e38);
            attn_tensor *y = softmax(p, NULL, x, 0);
            for (int64_t r = 0; r < ROWS; r++) HOLDS(p, property_get(y, r, 0) == (widths[w] == 1 ? 1 : 0.5));
            property_sweep(p, 0);
        }
}

static void test_shift(void **state)
{
    (void)state, property_run(shift, 4);
}

/* Inside attention: a vector added to every key adds one number to all scores of a query. */
static void shift_of_keys(property *p)
{
    const int64_t sizes[][3] = {{3, 5, 4}, {66, 70, 8}, {1, 130, 16}};
    for (int s = 0; s < 3; s++) {
        attn_tensor *q = property_random_heads(p, sizes[s][0], 2, sizes[s][2], -1, 1);
        attn_tensor *k = property_random_heads(p, sizes[s][1], 2, sizes[s][2], -1, 1), *far = property_copy(p, k);
        attn_tensor *v = property_random_heads(p, sizes[s][1], 2, 3, -1, 1);
        for (int64_t c = 0; c < 2 * sizes[s][2]; c++) {
            double by = random_number(&p->random, -8, 8);
            for (int64_t r = 0; r < sizes[s][1]; r++) property_set(far, r, c, property_get(k, r, c) + by);
        }
        CLOSE(p, attend(p, NULL, q, far, v, NAN), attend(p, NULL, q, k, v, NAN), 400);
        property_sweep(p, 0);
    }
}

static void test_shift_of_keys(void **state)
{
    (void)state, property_run(shift_of_keys, 4);
}

/* Rows sum to 1; every place is over 0 as long as scores are less than 80 apart, and larger scores have larger weights; log-softmax is the
   logarithm; order of columns does not matter. */
static void distribution(property *p)
{
    for (int w = 0; w < WIDTHS; w++) {
        int64_t n = widths[w], order[200];
        attn_tensor *x = property_random(p, ROWS, n, -39, 39), *y = softmax(p, NULL, x, 0), *log_y = softmax(p, NULL, x, 1);
        for (int64_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int64_t c = 0; c < n; c++) {
                double weight = property_get(y, r, c);
                HOLDS(p, weight > 0 && weight <= 1);
                NEAR(log(weight), property_get(log_y, r, c), 200 * p->unit);
                for (int64_t d = 0; d < n; d++)
                    HOLDS(p, !(property_get(x, r, d) > property_get(x, r, c)) || property_get(y, r, d) >= weight);
                sum += weight;
            }
            NEAR(sum, 1, 64 * p->unit);
        }
        property_permutation(p, n, order);
        attn_tensor *turned = property_copy(p, x);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < n; c++) property_set(turned, r, c, property_get(x, r, order[c]));
        turned = softmax(p, NULL, turned, 0);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < n; c++) NEAR(property_get(turned, r, c), property_get(y, r, order[c]), 64 * p->unit);
        property_sweep(p, 0);
    }
}

static void test_distribution(void **state)
{
    (void)state, property_run(distribution, 3);
}

/* one row's Jacobian against diag(a) - a a' */
static void expect_jacobian(property *p, const attn_tensor *weights, const attn_tensor *column, int64_t i, int64_t n, double scale)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
        double a = property_get(weights, 0, i), b = property_get(weights, 0, j), got = property_get(column, 0, j);
        NEAR(got, scale * ((i == j ? a : 0) - a * b), 32 * scale * p->unit);
        sum += got;
    }
    NEAR(sum, 0, 64 * scale * p->unit);
}

/* The whole Jacobian, one unit vector at a time: of the operation, and through attention, where unit keys make scale times the query the
   scores and unit values make the output the weights. Differences of the function itself agree in float64. */
static void jacobian(property *p)
{
    const int64_t sizes[] = {1, 2, 5, 33, 66};
    for (int s = 0; s < 5; s++) {
        int64_t n = sizes[s];
        attn_tensor *x = property_random(p, 1, n, -2, 2), *q = property_heads(p, 1, 1, n), *units = attend_units(p, n);
        attn_tensor *weights = softmax(p, NULL, x, 0), *dy = property_rows(p, 1, n), *dq_of = property_heads(p, 1, 1, n);
        for (int64_t c = 0; c < n; c++) property_set(q, 0, c, 2 * property_get(x, 0, c));
        CLOSE(p, attend(p, NULL, q, units, units, 0.5), weights, 16);
        for (int64_t i = 0; i < n; i++) {
            const int mark = p->count;
            for (int64_t c = 0; c < n; c++) property_set(dy, 0, c, c == i), property_set(dq_of, 0, c, c == i);
            property_begin(p);
            attn_tensor *dx = property_watch(p, x), *y = softmax(p, p->tape, x, 0);
            property_backward(p, y, dy, NULL);
            expect_jacobian(p, weights, dx, i, n, 1);
            property_begin(p);
            attn_tensor *dq = property_watch(p, q);
            property_backward(p, attend(p, p->tape, q, units, units, 0.5), dq_of, NULL);
            expect_jacobian(p, weights, dq, i, n, 0.5);
            for (int64_t j = 0; p->ground == GROUND_FLOAT64 && j < n; j++) {
                double kept = property_get(x, 0, j), got = property_get(dx, 0, j);
                property_set(x, 0, j, kept + 1e-5);
                double above = property_get(softmax(p, NULL, x, 0), 0, i);
                property_set(x, 0, j, kept - 1e-5);
                NEAR((above - property_get(softmax(p, NULL, x, 0), 0, i)) / 2e-5, got, 1e-8);
                property_set(x, 0, j, kept);
            }
            property_sweep(p, mark);
        }
        property_sweep(p, 0);
    }
}

static void test_jacobian(void **state)
{
    (void)state, property_run(jacobian, 2);
}

static attn_mask *mask_of(property *p, int which)
{
    attn_mask *mask = NULL;
    if (which == 1) OK(p->ctx, attn_mask_causal(p->ctx, ATTN_ALIGN_LAST, &mask));
    if (which == 2) OK(p->ctx, attn_mask_window(p->ctx, ATTN_ALIGN_FIRST, 9, 4, 1, &mask));
    if (which == 3) OK(p->ctx, attn_mask_window(p->ctx, ATTN_ALIGN_LAST, -1, 0, 3, &mask));
    return mask;
}

/* (6.18): the gradients of a row's scores sum to 0, with masks and with dropout on the weights. A column of ones in the keys sums them
   up: the gradient of that column of the query is the scale times the sum. */
static void sum_of_score_gradients(property *p)
{
    for (int which = 0; which < 8; which++) {
        const int64_t m = which & 4 ? 70 : 9, n = which & 4 ? 133 : 12, size = 6;
        attn_tensor *q = property_random_heads(p, m, 2, size, -2, 2), *k = property_random_heads(p, n, 2, size, -2, 2);
        attn_tensor *v = property_random_heads(p, n, 2, 5, -2, 2), *dy = property_random_heads(p, m, 2, 5, -1, 1);
        attn_tensor *y = property_heads(p, m, 2, 5);
        attn_mask *mask = mask_of(p, which & 3);
        attn_dot_product_options o;
        OK(p->ctx, attn_dot_product_options_init(&o, sizeof o));
        for (int drop = 0; drop < 2; drop++) {
            o.dropout = drop ? 0.4 : 0;
            for (int64_t r = 0; r < n; r++) property_set(k, r, 2, 1), property_set(k, r, size + 2, 1);
            property_begin_training(p, 3, 1);
            attn_tensor *dq = property_watch(p, q);
            OK(p->ctx, attn_dot_product_attention(p->ctx, p->tape, q, k, v, NULL, NULL, mask, &o, y));
            property_backward(p, y, dy, NULL);
            double others = 0;
            for (int64_t r = 0; r < m; r++) {
                NEAR(property_get(dq, r, 2), 0, 200 * p->unit);
                NEAR(property_get(dq, r, size + 2), 0, 200 * p->unit);
                for (int64_t c = 0; c < size; c++) others = fmax(others, c == 2 ? 0 : fabs(property_get(dq, r, c)));
            }
            HOLDS(p, others > 0.01);
        }
        attn_mask_free(mask);
        property_sweep(p, 0);
    }
}

static void test_sum_of_score_gradients(void **state)
{
    (void)state, property_run(sum_of_score_gradients, 2);
}

static double entropy(const attn_tensor *weights, int64_t row)
{
    double sum = 0;
    for (int64_t c = 0; c < property_width(weights); c++) {
        double a = property_get(weights, row, c);
        sum -= a > 0 ? a * log(a) : 0;
    }
    return sum;
}

/* (3.18) on the weights, 0 <= H <= log n. The sharper the scale, the lower; at scale 0 exactly log n, and the mean of the values; at a
   large one 0, and the value of the best key (retrieval, section 7.3). */
static void temperature(property *p)
{
    const int64_t sizes[] = {1, 2, 7, 65, 140};
    const double scales[] = {0, 0.01, 0.1, 0.5, 1, 3, 10, 1000};
    for (int s = 0; s < 5; s++) {
        int64_t n = sizes[s];
        attn_tensor *q = property_random_heads(p, ROWS, 1, n, -1, 1), *units = attend_units(p, n);
        attn_tensor *v = property_random_heads(p, n, 1, 3, -1, 1);
        double before[ROWS];
        for (int i = 0; i < 8; i++) {
            attn_tensor *weights = attend(p, NULL, q, units, units, scales[i]);
            for (int64_t r = 0; r < ROWS; r++) {
                double now = entropy(weights, r);
                HOLDS(p, now >= 0 && now <= log((double)n) + 512 * p->unit);
                HOLDS(p, i == 0 || now <= before[r] + 512 * p->unit);
                if (i == 0) NEAR(now, log((double)n), 512 * p->unit);
                before[r] = now;
            }
        }
        for (int64_t r = 0; r < ROWS; r++) { /* one score well above the others */
            for (int64_t c = 0; c < n; c++) property_set(q, r, c, floor(8 * property_get(q, r, c)) / 8);
            property_set(q, r, (3 * r) % n, 2);
        }
        attn_tensor *flat = attend(p, NULL, q, units, v, 0), *sharp = attend(p, NULL, q, units, v, 1000);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < 3; c++) {
                double mean = 0;
                for (int64_t j = 0; j < n; j++) mean += property_get(v, j, c) / (double)n;
                NEAR(property_get(flat, r, c), mean, 64 * p->unit);
                HOLDS(p, property_get(sharp, r, c) == property_get(v, (3 * r) % n, c));
            }
        property_sweep(p, 0);
    }
}

static void test_temperature(void **state)
{
    (void)state, property_run(temperature, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift),    cmocka_unit_test(test_shift_of_keys),          cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_jacobian), cmocka_unit_test(test_sum_of_score_gradients), cmocka_unit_test(test_temperature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proposition 2.1: the output lies in the convex hull of the visible values; and what attention is at its limits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attend.h"

/* queries, keys, size, value size */
static const int64_t sizes[][4] = {{1, 1, 1, 1}, {5, 3, 2, 2}, {9, 17, 8, 5}, {66, 131, 16, 3}, {130, 65, 4, 64}};
enum { SIZES = sizeof sizes / sizeof *sizes, HEADS = 2, MOST_KEYS = 200 };

static int seen(int causal, int64_t m, int64_t n, int64_t i, int64_t j)
{
    return !causal || j <= i + n - m;
}

/* along one direction, an axis for the first ones: no output is further out than the furthest value it sees */
static void expect_inside(property *p, const attn_tensor *y, const attn_tensor *v, int64_t head, int64_t d, int causal)
{
    static double along[MOST_KEYS];
    const int64_t m = attn_tensor_extent(y, 0), n = attn_tensor_extent(v, 0), width = attn_tensor_extent(v, 2);
    double direction[64], length = 0;
    for (int64_t c = 0; c < width; c++) {
        direction[c] = d < 2 * width ? (c == d / 2 ? (d % 2 ? -1 : 1) : 0) : property_gaussian(p);
        length += direction[c] * direction[c];
    }
    for (int64_t j = 0; j < n; j++) {
        along[j] = 0;
        for (int64_t c = 0; c < width; c++) along[j] += direction[c] * property_get(v, j, head * width + c);
    }
    for (int64_t i = 0; i < m; i++) {
        double furthest = -INFINITY, at = 0;
        for (int64_t c = 0; c < width; c++) at += direction[c] * property_get(y, i, head * width + c);
        for (int64_t j = 0; j < n; j++)
            if (seen(causal, m, n, i, j)) furthest = fmax(furthest, along[j]);
        if (isinf(furthest)) furthest = 0; /* sees nothing: a zero row */
        HOLDS(p, at <= furthest + 64 * p->unit * sqrt((double)width * length));
    }
}

static double square(const attn_tensor *x, int64_t row, int64_t first, int64_t width)
{
    double sum = 0;
    for (int64_t c = first; c < first + width; c++) sum += property_get(x, row, c) * property_get(x, row, c);
    return sum;
}

/* no output is longer than the longest value it sees */
static void expect_short(property *p, const attn_tensor *y, const attn_tensor *v, int64_t head, int causal)
{
    const int64_t m = attn_tensor_extent(y, 0), n = attn_tensor_extent(v, 0), width = attn_tensor_extent(v, 2);
    static double lengths[MOST_KEYS];
    for (int64_t j = 0; j < n; j++) lengths[j] = sqrt(square(v, j, head * width, width));
    for (int64_t i = 0; i < m; i++) {
        double longest = 0;
        for (int64_t j = 0; j < n; j++)
            if (seen(causal, m, n, i, j)) longest = fmax(longest, lengths[j]);
        HOLDS(p, sqrt(square(y, i, head * width, width)) <= longest + 64 * p->unit * sqrt((double)width));
    }
}

/* In every direction the output is no further out than the visible value that is furthest: that is the hull, in any dimension. The axes
   (each coordinate between the least and the largest), random directions, and the norm, which no value exceeds. */
static void hull(property *p)
{
    for (int s = 0; s < SIZES; s++)
        for (int causal = 0; causal < 2; causal++) {
            const int64_t m = sizes[s][0], n = sizes[s][1], width = sizes[s][3];
            attn_mask *mask = NULL;
            if (causal) OK(p->ctx, attn_mask_causal(p->ctx, ATTN_ALIGN_LAST, &mask));
            attn_tensor *q = property_random_heads(p, m, HEADS, sizes[s][2], -3, 3);
            attn_tensor *k = property_random_heads(p, n, HEADS, sizes[s][2], -3, 3);
            attn_tensor *v = property_random_heads(p, n, HEADS, width, -1, 1), *y = attend_masked(p, NULL, q, k, v, mask, 1);
            for (int64_t h = 0; h < HEADS; h++) {
                for (int64_t d = 0; d < 2 * width + 40; d++) expect_inside(p, y, v, h, d, causal);
                expect_short(p, y, v, h, causal);
            }
            attn_mask_free(mask);
            property_sweep(p, 0);
        }
}

static void test_hull(void **state)
{
    (void)state, property_run(hull, 1);
}

/* One key: its value, bit for bit. Equal keys: the mean of the values. Equal values: that value. */
static void limits(property *p)
{
    for (int s = 0; s < SIZES; s++) {
        const int64_t m = sizes[s][0], n = sizes[s][1], size = sizes[s][2], width = sizes[s][3];
        attn_tensor *q = property_random_heads(p, m, HEADS, size, -3, 3), *k = property_random_heads(p, n, HEADS, size, -3, 3);
        attn_tensor *v = property_random_heads(p, n, HEADS, width, -1, 1), *mean = property_heads(p, m, HEADS, width);
        attn_tensor *one_key = property_random_heads(p, 1, HEADS, size, -3, 3), *one = property_random_heads(p, 1, HEADS, width, -9, 9);
        attn_tensor *same = property_copy(p, k), *equal = property_copy(p, v), *y = attend(p, NULL, q, one_key, one, 1);
        for (int64_t i = 0; i < m; i++) HOLDS(p, property_same_row(y, i, one, 0));
        for (int64_t j = 0; j < n; j++) {
            for (int64_t c = 0; c < HEADS * size; c++) property_set(same, j, c, property_get(k, 0, c));
            for (int64_t c = 0; c < HEADS * width; c++) property_set(equal, j, c, property_get(v, 0, c));
        }
        for (int64_t c = 0; c < HEADS * width; c++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += property_get(v, j, c);
            for (int64_t i = 0; i < m; i++) property_set(mean, i, c, sum / (double)n);
        }
        CLOSE(p, attend(p, NULL, q, same, v, 1), mean, 32);
        y = attend(p, NULL, q, k, equal, 1);
        for (int64_t i = 0; i < m; i++)
            for (int64_t c = 0; c < HEADS * width; c++) NEAR(property_get(y, i, c), property_get(v, 0, c), 32 * p->unit);
        property_sweep(p, 0);
    }
}

static void test_limits(void **state)
{
    (void)state, property_run(limits, 4);
}

/* The output is linear in the values; a key and its value given twice count as one with log 2 more; a query of zeros takes the mean. */
static void values(property *p)
{
    for (int s = 1; s < SIZES; s++) {
        const int64_t m = sizes[s][0], n = sizes[s][1], size = sizes[s][2], width = sizes[s][3];
        attn_tensor *q = property_random_heads(p, m, HEADS, size, -1, 1), *k = property_random_heads(p, n, HEADS, size, -1, 1);
        attn_tensor *a = property_random_heads(p, n, HEADS, width, -1, 1), *b = property_random_heads(p, n, HEADS, width, -1, 1);
        attn_tensor *mixed = property_copy(p, a), *want = attend(p, NULL, q, k, a, NAN), *other = attend(p, NULL, q, k, b, NAN);
        for (int64_t e = 0; e < model_elements(a); e++) model_set(mixed, e, 2 * model_get(a, e) - model_get(b, e));
        for (int64_t e = 0; e < model_elements(want); e++) model_set(want, e, 2 * model_get(want, e) - model_get(other, e));
        CLOSE(p, attend(p, NULL, q, k, mixed, NAN), want, 64);
        attn_tensor *keys = property_heads(p, 2 * n, HEADS, size), *twice = property_heads(p, 2 * n, HEADS, width);
        for (int64_t j = 0; j < 2 * n; j++) {
            for (int64_t c = 0; c < HEADS * size; c++) property_set(keys, j, c, property_get(k, j % n, c));
            for (int64_t c = 0; c < HEADS * width; c++) property_set(twice, j, c, property_get(a, j % n, c));
        }
        CLOSE(p, attend(p, NULL, q, keys, twice, NAN), attend(p, NULL, q, k, a, NAN), 64);
        property_sweep(p, 0);
    }
}

static void test_values(void **state)
{
    (void)state, property_run(values, 4);
}

/* Section 1.1: without a mask every output row has a gradient by every input row, in one layer, at any distance. */
static void direct_paths(property *p)
{
    const int64_t lengths[] = {1, 2, 9, 70};
    for (int s = 0; s < 4; s++) {
        const int64_t n = lengths[s];
        attn_tensor *x = property_random_heads(p, n, 1, 4, -1, 1), *dy = property_random_heads(p, n, 1, 4, -1, 1);
        for (int64_t i = 0; i < n; i++) {
            const int mark = p->count;
            attn_tensor *only = property_heads(p, n, 1, 4);
            for (int64_t c = 0; c < 4; c++) property_set(only, i, c, property_get(dy, i, c));
            property_begin(p);
            attn_tensor *dx = property_watch(p, x);
            property_backward(p, attend(p, p->tape, x, x, x, NAN), only, NULL);
            for (int64_t j = 0; j < n; j++) {
                double size = 0;
                for (int64_t c = 0; c < 4; c++) size += fabs(property_get(dx, j, c));
                HOLDS(p, size > 1e-5);
            }
            property_sweep(p, mark);
        }
        property_sweep(p, 0);
    }
}

static void test_direct_paths(void **state)
{
    (void)state, property_run(direct_paths, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hull),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_direct_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The sinusoidal code of positions, section 5.2: shift by a matrix, wavelengths, no two alike. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/property.h"

static const double turn = 6.283185307179586477;

/* the codes of positions first .. first + count - 1 */
static attn_tensor *codes(property *p, int64_t first, int64_t count, int64_t width)
{
    attn_tensor *zero = property_rows(p, count, width), *y = property_rows(p, count, width);
    const attn_segment segment = {0, count, first, 0};
    attn_layout *layout = NULL;
    OK(p->ctx, attn_layout_create(p->ctx, 1, &layout));
    OK(p->ctx, attn_layout_set(p->ctx, layout, 1, &segment));
    OK(p->ctx, attn_positions_sinusoidal(p->ctx, NULL, zero, layout, y));
    attn_layout_free(layout);
    return y;
}

/* The matrix of an offset, from the code of the offset itself: blocks of two, a rotation each. */
static attn_tensor *shift_matrix(property *p, int64_t offset, int64_t width)
{
    attn_tensor *code = codes(p, offset, 1, width), *matrix = property_rows(p, width, width);
    for (int64_t c = 0; c < width; c += 2) {
        double sine = model_get(code, c), cosine = model_get(code, c + 1);
        property_set(matrix, c, c, cosine);
        property_set(matrix, c, c + 1, sine);
        property_set(matrix, c + 1, c, -sine);
        property_set(matrix, c + 1, c + 1, cosine);
    }
    return matrix;
}

/* Proposition 5.1, (5.4) to (5.8): one matrix for an offset maps the codes of all positions, sines and cosines alike, and is a rotation. */
static void shift(property *p)
{
    const int64_t widths[] = {2, 6, 64}, offsets[] = {0, 1, 7, 500, 9999}, firsts[] = {0, 3, 4000};
    for (int w = 0; w < 3; w++)
        for (int k = 0; k < 5; k++) {
            attn_tensor *matrix = shift_matrix(p, offsets[k], widths[w]);
            attn_tensor *square = property_rows(p, widths[w], widths[w]);
            OK(p->ctx, attn_linear(p->ctx, NULL, matrix, matrix, NULL, square));
            CLOSE(p, square, property_identity(p, widths[w]), 4); /* a rotation: its inverse is its transpose */
            for (int f = 0; f < 3; f++) {
                attn_tensor *from = codes(p, firsts[f], 120, widths[w]), *moved = property_rows(p, 120, widths[w]);
                OK(p->ctx, attn_linear(p->ctx, NULL, from, matrix, NULL, moved));
                CLOSE(p, moved, codes(p, firsts[f] + offsets[k], 120, widths[w]), 8 + (p->dtype == ATTN_FLOAT64 ? 1e5 : 0));
            }
            if (offsets[k] > 0) { /* and no other offset's matrix does */
                attn_tensor *from = codes(p, 11, 120, widths[w]), *moved = property_rows(p, 120, widths[w]);
                OK(p->ctx, attn_linear(p->ctx, NULL, from, shift_matrix(p, offsets[k] - 1, widths[w]), NULL, moved));
                HOLDS(p, property_apart(moved, codes(p, 11 + offsets[k], 120, widths[w])) > 0.1);
            }
            property_sweep(p, 0);
        }
}

static void test_shift(void **state)
{
    (void)state, property_run(shift, 1);
}

/* Section 5.2.1: pair i turns by the same angle at every step; the wavelengths run from 2 pi to 2 pi 10000^(1 - 2/d) at a constant ratio. */
static void wavelengths(property *p)
{
    const int64_t widths[] = {2, 4, 10, 64, 512};
    for (int w = 0; w < 5; w++) {
        int64_t d = widths[w];
        attn_tensor *code = codes(p, 0, 300, d);
        double before = 0;
        for (int64_t pair = 0; pair < d / 2; pair++) {
            double step = atan2(property_get(code, 1, 2 * pair), property_get(code, 1, 2 * pair + 1)), length = turn / step;
            for (int64_t r = 0; r < 300; r++) { /* the same step all along, so this is where it repeats */
                double angle = atan2(property_get(code, r, 2 * pair), property_get(code, r, 2 * pair + 1));
                NEAR(remainder(angle - (double)r * step, turn), 0, 2000 * p->unit);
            }
            if (pair == 0) NEAR(length / turn, 1, 4 * p->unit);
            if (pair > 0) NEAR(length / before / pow(10000, 2.0 / (double)d), 1, 8 * p->unit);
            if (pair == d / 2 - 1) NEAR(length / turn / pow(10000, 1 - 2.0 / (double)d), 1, 8 * p->unit);
            before = length;
        }
        property_sweep(p, 0);
    }
}

static void test_wavelengths(void **state)
{
    (void)state, property_run(wavelengths, 1);
}

static double distance(const attn_tensor *code, int64_t a, int64_t b)
{
    double sum = 0;
    for (int64_t c = 0; c < property_width(code); c++) {
        double d = property_get(code, a, c) - property_get(code, b, c);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Each position has a code of its own: the distance of two codes depends on their offset alone, and at width 64 is over 1.4 for all offsets
   under 10,000. An offset's distance is that from position 0. */
static void distinct(property *p)
{
    enum { POSITIONS = 10000, WIDTH = 64 };
    attn_tensor *code = codes(p, 0, POSITIONS, WIDTH);
    double nearest = distance(code, 0, 1);
    HOLDS(p, nearest > 1.4);
    for (int64_t k = 2; k < POSITIONS; k++) HOLDS(p, distance(code, 0, k) > nearest - 1e-6); /* neighbours are the closest */
    for (int i = 0; i < 20000; i++) {
        int64_t a = random_integer(&p->random, 0, POSITIONS), b = random_integer(&p->random, 0, POSITIONS);
        NEAR(distance(code, a, b), distance(code, 0, a > b ? a - b : b - a), 64 * p->unit + 1e-9);
    }
}

static void test_distinct(void **state)
{
    (void)state, property_run(distinct, 1);
}

/* A shifted layout, the sum with what was there, and the last column of an odd width. */
static void sum(property *p)
{
    const int64_t widths[] = {1, 2, 3, 7, 32};
    for (int w = 0; w < 5; w++) {
        attn_tensor *x = property_random(p, 9, widths[w], -2, 2), *y = property_rows(p, 9, widths[w]),
                    *want = property_rows(p, 9, widths[w]);
        attn_tensor *code = codes(p, 0, 9, widths[w]), *late = codes(p, 5, 4, widths[w]), *wider = codes(p, 0, 9, widths[w] + 1);
        OK(p->ctx, attn_positions_sinusoidal(p->ctx, NULL, x, NULL, y));
        OK(p->ctx, attn_add(p->ctx, NULL, x, code, want));
        CLOSE(p, y, want, 2);
        for (int64_t r = 0; r < 4; r++) HOLDS(p, property_same_row(late, r, code, 5 + r));
        for (int64_t r = 0; widths[w] == 1 && r < 9; r++) HOLDS(p, property_get(code, r, 0) == property_get(wider, r, 0));
        property_sweep(p, 0);
    }
}

static void test_sum(void **state)
{
    (void)state, property_run(sum, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift),
        cmocka_unit_test(test_wavelengths),
        cmocka_unit_test(test_distinct),
        cmocka_unit_test(test_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

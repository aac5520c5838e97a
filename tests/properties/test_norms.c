/* LayerNorm and RMSNorm, section 5.4: what they do not see, and what follows for their gradients. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/property.h"

static const int64_t widths[] = {2, 5, 16, 67, 300};
enum { WIDTHS = sizeof widths / sizeof *widths, ROWS = 7 };

static attn_tensor *norm(property *p, int kind, attn_tape *tape, const attn_tensor *x, const attn_tensor *gain, const attn_tensor *shift,
                         double epsilon)
{
    attn_tensor *y = property_copy(p, x);
    if (kind == ATTN_NORM_LAYER)
        OK(p->ctx, attn_layer_norm(p->ctx, tape, x, gain, shift, epsilon, y));
    else
        OK(p->ctx, attn_rms_norm(p->ctx, tape, x, gain, epsilon, y));
    return y;
}

/* x times factor[row] plus constant[row] */
static attn_tensor *moved(property *p, const attn_tensor *x, const double *factor, const double *constant)
{
    attn_tensor *y = property_copy(p, x);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < property_width(x); c++) property_set(y, r, c, factor[r] * property_get(x, r, c) + constant[r]);
    return y;
}

/* the gain and shift of a layer are one-row tensors of rank 1 */
static attn_tensor *vector(property *p, int64_t width, double low, double high)
{
    attn_tensor *made = model_tensor(p->ctx, p->dtype, width, 0);
    for (int64_t e = 0; e < width; e++) model_set(made, e, random_number(&p->random, low, high));
    p->made[p->count++] = made;
    return made;
}

static void invariance(property *p)
{
    const double one[ROWS] = {1, 1, 1, 1, 1, 1, 1}, none[ROWS] = {0}, add[ROWS] = {1, -1, 8, 0.5, 100, -30, 3};
    const double times[ROWS] = {2, 0.5, 3, 1e-3, 1e4, 0.7, 12}, turned[ROWS] = {-1, -2, -3, -1, -1, -1, -1};
    const double doubled[ROWS] = {2, 4, 0.5, 0.25, 1024, 8, 0.125};
    for (int w = 0; w < WIDTHS; w++) {
        attn_tensor *x = property_random(p, ROWS, widths[w], -1, 1), *gain = vector(p, widths[w], 0.5, 2);
        attn_tensor *shift = vector(p, widths[w], -1, 1), *y = norm(p, ATTN_NORM_LAYER, NULL, x, gain, shift, 1e-6);
        attn_tensor *exact = norm(p, ATTN_NORM_LAYER, NULL, x, gain, shift, 0), *rms = norm(p, ATTN_NORM_RMS, NULL, x, gain, NULL, 0);
        double spread = 2e4; /* a narrow row may have a small deviation, which the constant's rounding is measured by */
        CLOSE(p, norm(p, ATTN_NORM_LAYER, NULL, moved(p, x, one, add), gain, shift, 1e-6), y, spread);
        CLOSE(p, norm(p, ATTN_NORM_LAYER, NULL, moved(p, x, times, none), gain, shift, 0), exact, spread);
        CLOSE(p, norm(p, ATTN_NORM_LAYER, NULL, moved(p, x, times, add), gain, shift, 0), exact, 1e4 * spread);
        CLOSE(p, norm(p, ATTN_NORM_RMS, NULL, moved(p, x, times, none), gain, NULL, 0), rms, 100);
        /* powers of two change no rounding */
        HOLDS(p, property_same_bits(norm(p, ATTN_NORM_LAYER, NULL, moved(p, x, doubled, none), gain, shift, 0), exact));
        HOLDS(p, property_same_bits(norm(p, ATTN_NORM_RMS, NULL, moved(p, x, doubled, none), gain, NULL, 0), rms));
        /* the sign is seen, and RMSNorm sees the shift */
        attn_tensor *plain = norm(p, ATTN_NORM_LAYER, NULL, x, NULL, NULL, 0);
        attn_tensor *opposite = norm(p, ATTN_NORM_LAYER, NULL, moved(p, x, turned, none), NULL, NULL, 0);
        CLOSE(p, opposite, moved(p, plain, (const double[ROWS]){-1, -1, -1, -1, -1, -1, -1}, none), 100);
        HOLDS(p, property_apart(norm(p, ATTN_NORM_RMS, NULL, moved(p, x, one, add), gain, NULL, 0), rms) > 0.01);
        property_sweep(p, 0);
    }
}

static void test_invariance(void **state)
{
    (void)state, property_run(invariance, 4);
}

/* Without gain and shift: mean 0 and mean square variance / (variance + epsilon), for any length and row. */
static void moments(property *p)
{
    for (int w = 0; w < WIDTHS; w++)
        for (int e = 0; e < 3; e++) {
            const double epsilon = e == 0 ? 0 : e == 1 ? 1e-6 : 0.1;
            attn_tensor *x = property_random(p, ROWS, widths[w], -2, 2), *y = norm(p, ATTN_NORM_LAYER, NULL, x, NULL, NULL, epsilon);
            for (int64_t r = 0; r < ROWS; r++) {
                double n = (double)widths[w], mean = 0, square = 0, middle = 0, variance = 0;
                for (int64_t c = 0; c < widths[w]; c++) mean += property_get(y, r, c) / n, middle += property_get(x, r, c) / n;
                for (int64_t c = 0; c < widths[w]; c++) {
                    square += property_get(y, r, c) * property_get(y, r, c) / n;
                    variance += pow(property_get(x, r, c) - middle, 2) / n;
                }
                NEAR(mean, 0, 2e3 * p->unit);
                NEAR(square, variance / (variance + epsilon), 2e3 * p->unit);
            }
            property_sweep(p, 0);
        }
}

static void test_moments(void **state)
{
    (void)state, property_run(moments, 4);
}

/* Per sample: a row's result is the same bits alone, in another place and beside other rows. */
static void rows_are_apart(property *p)
{
    for (int kind = 0; kind < 2; kind++)
        for (int w = 0; w < WIDTHS; w++) {
            int64_t order[ROWS];
            attn_tensor *x = property_random(p, ROWS, widths[w], -1, 1), *gain = vector(p, widths[w], 0.5, 2);
            property_permutation(p, ROWS, order);
            attn_tensor *y = norm(p, kind, NULL, x, gain, NULL, 1e-6);
            attn_tensor *z = norm(p, kind, NULL, property_reordered(p, x, order), gain, NULL, 1e-6);
            HOLDS(p, property_same_bits(z, property_reordered(p, y, order)));
            for (int64_t r = 0; r < ROWS; r++) {
                attn_tensor *alone = property_rows(p, 1, widths[w]);
                for (int64_t c = 0; c < widths[w]; c++) property_set(alone, 0, c, property_get(x, r, c));
                HOLDS(p, property_same_row(norm(p, kind, NULL, alone, gain, NULL, 1e-6), 0, y, r));
            }
            for (int64_t c = 0; c < widths[w]; c++) property_set(x, 2, c, c == 0 ? NAN : 1e30);
            z = norm(p, kind, NULL, x, gain, NULL, 1e-6);
            for (int64_t r = 0; r < ROWS; r++) HOLDS(p, r == 2 || property_same_row(z, r, y, r));
            property_sweep(p, 0);
        }
}

static void test_rows_are_apart(void **state)
{
    (void)state, property_run(rows_are_apart, 2);
}

/* What a function does not see its gradient does not point to: the gradient by x is orthogonal to (1 .. 1) (LayerNorm) and, with
   epsilon 0, to x (both). */
static void gradient_directions(property *p)
{
    for (int kind = 0; kind < 2; kind++)
        for (int w = 0; w < WIDTHS; w++) {
            if (widths[w] < 5) continue; /* two columns are always +-1: nothing is left to differentiate */
            attn_tensor *x = property_random(p, ROWS, widths[w], -1, 1), *dy = property_random(p, ROWS, widths[w], -1, 1);
            attn_tensor *gain = vector(p, widths[w], 0.5, 2);
            property_begin(p);
            attn_tensor *dx = property_watch(p, x);
            property_backward(p, norm(p, kind, p->tape, x, gain, NULL, 0), dy, NULL);
            for (int64_t r = 0; r < ROWS; r++) {
                double sum = 0, along = 0, size = 0;
                for (int64_t c = 0; c < widths[w]; c++) {
                    sum += property_get(dx, r, c);
                    along += property_get(dx, r, c) * property_get(x, r, c);
                    size += fabs(property_get(dx, r, c));
                }
                HOLDS(p, size > 1e-3);
                if (kind == ATTN_NORM_LAYER) NEAR(sum / size, 0, 2e3 * p->unit);
                NEAR(along / size, 0, 2e3 * p->unit);
            }
            property_sweep(p, 0);
        }
}

static void test_gradient_directions(void **state)
{
    (void)state, property_run(gradient_directions, 4);
}

/* (5.17): gains start at 1 and shifts at 0, in every norm of a model, whatever way the weights start. */
static void start(property *p)
{
    for (int way = 0; way < 4; way++) {
        attn_transformer_options o = model_options(1, 2);
        attn_transformer *model = NULL;
        o.dtype = p->dtype;
        o.norm_placement = way & 1;
        o.initialisation = way >> 1;
        o.embedding_norm = 1;
        OK(p->ctx, attn_transformer_create(p->ctx, &o, &model));
        attn_parameters *set = attn_transformer_parameters(model);
        int gains = 0, shifts = 0;
        for (int64_t i = 0; i < attn_parameters_count(set); i++) {
            const char *name = attn_parameters_name(set, i), *tail = strstr(name, "norm.");
            if (tail == NULL) continue;
            const int gain = strcmp(tail, "norm.weight") == 0;
            gains += gain, shifts += !gain;
            for (int64_t e = 0; e < o.width; e++) HOLDS(p, model_get(attn_parameters_tensor(set, i), e) == gain);
        }
        assert_int_equal(gains, 2 + 2 + 6 + (way & 1 ? 2 : 0)); /* embeddings, one encoder layer, two decoder layers, ends */
        assert_int_equal(shifts, gains);
        attn_transformer_free(model);
    }
}

static void test_start(void **state)
{
    (void)state, property_run(start, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invariance),          cmocka_unit_test(test_moments), cmocka_unit_test(test_rows_are_apart),
        cmocka_unit_test(test_gradient_directions), cmocka_unit_test(test_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

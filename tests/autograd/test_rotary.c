#include <attn/rotary.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "support/gradient.h"

#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

static attn_context *ctx;

static int open_context(void **state)
{
    attn_context_options options;
    (void)state;
    assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
    options.backend = ATTN_BACKEND_REFERENCE;
    return attn_context_create(&options, &ctx) != ATTN_OK;
}

static int close_context(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

static attn_rotary_options plain(void)
{
    attn_rotary_options o;
    assert_int_equal(attn_rotary_options_init(&o, sizeof o), ATTN_OK);
    return o;
}

/* LINEAR, YARN and LLAMA3 as the transformers library 5.24.0 gives them (in float32), the others by their formulas */
static void test_published_frequencies(void **state)
{
    static const struct {
        int32_t scaling;
        int64_t size;
        double base, factor, context, low, high, magnitude, first[8];
    } cases[] = {
        {ATTN_ROTARY_LINEAR,
         16,
         10000,
         4,
         2048,
         1,
         32,
         1,
         {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
        {ATTN_ROTARY_YARN,
         16,
         10000,
         4,
         2048,
         1,
         32,
         1.138629436111989,
         {1.0, 0.316227764, 0.100000001, 0.025693506, 0.00624999963, 0.00138349656, 0.000250000012, 7.90569466e-05}},
        {ATTN_ROTARY_YARN,
         64,
         10000,
         16,
         4096,
         1,
         32,
         1.2772588722239782,
         {1.0, 0.749894202, 0.562341332, 0.421696514, 0.316227764, 0.237137362, 0.177827939, 0.133352146}},
        {ATTN_ROTARY_LLAMA3,
         16,
         500000,
         8,
         8192,
         1,
         4,
         1,
         {1.0, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}},
        {ATTN_ROTARY_PLAIN,
         16,
         10000,
         1,
         2048,
         1,
         32,
         1,
         {1.0, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766}},
        /* the base times 4^(16 / 14): the last pair is then stretched by exactly the factor */
        {ATTN_ROTARY_NTK,
         16,
         10000,
         4,
         2048,
         1,
         32,
         1,
         {1.0, 0.259412817, 0.0672950096, 0.017457188, 0.00452861832, 0.00117478164, 0.000304753414, 7.90569415e-05}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double frequency[32], magnitude;
        attn_rotary_options o = plain();
        o.scaling = cases[i].scaling;
        o.base = cases[i].base;
        o.factor = cases[i].factor;
        o.context = cases[i].context;
        o.low = cases[i].low;
        o.high = cases[i].high;
        assert_int_equal(attn_rotary_frequencies(ctx, &o, cases[i].size, frequency, &magnitude), ATTN_OK);
        assert_true(fabs(magnitude - cases[i].magnitude) < 1e-12);
        for (int c = 0; c < 8; c++)
            if (!(fabs(frequency[c] / cases[i].first[c] - 1) < 3e-7))
                fail_msg("case %d, pair %d: got %.9g, expected %.9g", (int)i, c, frequency[c], cases[i].first[c]);
    }
}

/* with a context so short that all pairs are stretched, or so long that none is */
static void test_ends_of_the_ramp(void **state)
{
    double stretched[4], kept[4], plain_ones[4];
    attn_rotary_options o = plain();
    (void)state;
    assert_int_equal(attn_rotary_frequencies(ctx, &o, 8, plain_ones, NULL), ATTN_OK);
    o.factor = 4;
    for (o.scaling = ATTN_ROTARY_YARN; o.scaling <= ATTN_ROTARY_LLAMA3; o.scaling++) {
        o.context = 1e-3;
        assert_int_equal(attn_rotary_frequencies(ctx, &o, 8, stretched, NULL), ATTN_OK);
        if (o.scaling == ATTN_ROTARY_YARN) assert_true(fabs(stretched[0] / plain_ones[0] - 1) < 1e-12); /* its ramp begins at pair 0 */
        o.context = 1e12;
        assert_int_equal(attn_rotary_frequencies(ctx, &o, 8, kept, NULL), ATTN_OK);
        for (int c = 0; c < 4; c++) {
            if (c > 0 || o.scaling == ATTN_ROTARY_LLAMA3) assert_true(fabs(stretched[c] * 4 / plain_ones[c] - 1) < 1e-12);
            assert_true(fabs(kept[c] / plain_ones[c] - 1) < 1e-12 || (c == 3 && o.scaling == ATTN_ROTARY_YARN));
        }
    }
}

/* the ramp of YaRN in the middle of a head, pairs 8 to 23, where the end of one side and the beginning of the other show */
static void test_yarn_ramp(void **state)
{
    static const double expected[16] = {
        0.1,           0.0749894209,  0.0562341325,  0.0391285698,  0.0270617992,   0.0185833613,  0.012653142,    0.00852684377,
        0.00567307692, 0.00371341844, 0.00237913638, 0.00147999254, 0.000881788963, 0.00049023591, 0.000239383767, 8.33450895e-05};
    double frequency[32], magnitude;
    attn_rotary_options o = plain();
    (void)state;
    o.scaling = ATTN_ROTARY_YARN;
    o.factor = 16;
    o.context = 4096;
    o.magnitude = 1.5; /* given, not derived */
    assert_int_equal(attn_rotary_frequencies(ctx, &o, 64, frequency, &magnitude), ATTN_OK);
    assert_true(magnitude == 1.5);
    for (int c = 0; c < 16; c++)
        if (!(fabs(frequency[8 + c] / expected[c] - 1) < 1e-8))
            fail_msg("pair %d: got %.9g, expected %.9g", 8 + c, frequency[8 + c], expected[c]);
}

static attn_tensor *tensor_of(int64_t rows, int64_t heads, int64_t size, random_state *random)
{
    attn_tensor *out;
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT64, 3, SHAPE(rows, heads, size), &out), ATTN_OK);
    if (random != NULL) random_doubles(random, attn_tensor_data(out), rows * heads * size, -1, 1);
    return out;
}

/* <R_m q, R_n k> depends on m - n alone, lengths stay, and what is not rotated stays to the bit */
static void test_only_distances_count(void **state)
{
    enum { ROWS = 9, SIZE = 10 };
    random_state random = {5};
    (void)state;
    for (int32_t pairing = 0; pairing < 2; pairing++) {
        attn_rotary_options o = plain();
        o.pairing = pairing;
        o.rotated = 8;
        attn_tensor *x = tensor_of(ROWS, 1, SIZE, &random), *y = tensor_of(ROWS, 1, SIZE, NULL), *later = tensor_of(ROWS, 1, SIZE, NULL);
        const double *in = attn_tensor_data(x), *out = attn_tensor_data(y), *moved = attn_tensor_data(later);
        attn_layout *layout;
        const attn_segment segment = {0, ROWS, 1000, 0};
        assert_int_equal(attn_layout_create(ctx, 1, &layout), ATTN_OK);
        assert_int_equal(attn_layout_set(ctx, layout, 1, &segment), ATTN_OK);
        assert_int_equal(attn_rotary(ctx, NULL, x, NULL, &o, y), ATTN_OK);
        assert_int_equal(attn_rotary(ctx, NULL, x, layout, &o, later), ATTN_OK);
        for (int m = 0; m < ROWS; m++) {
            assert_memory_equal(out + m * SIZE + 8, in + m * SIZE + 8, 2 * sizeof(double));
            for (int n = 0; n < ROWS; n++) {
                double here = 0, there = 0, length = 0, before = 0;
                for (int c = 0; c < SIZE; c++) {
                    here += out[m * SIZE + c] * out[n * SIZE + c];
                    there += moved[m * SIZE + c] * moved[n * SIZE + c];
                    length += out[m * SIZE + c] * out[m * SIZE + c];
                    before += in[m * SIZE + c] * in[m * SIZE + c];
                }
                assert_true(fabs(here - there) < 1e-9 && fabs(length - before) < 1e-12);
            }
        }
        for (int c = 0; c < SIZE; c++) assert_true(out[c] == in[c]); /* position 0 */
        assert_true(fabs(out[SIZE] - (in[SIZE] * cos(1) - in[SIZE + (pairing ? 1 : 4)] * sin(1))) < 1e-15);
        o.rotated = ATTN_DERIVED; /* all columns: the last pair too */
        assert_int_equal(attn_rotary(ctx, NULL, x, NULL, &o, y), ATTN_OK);
        double last = pow(10000, -0.8), with = in[SIZE + (pairing ? 8 : 4)];
        assert_true(fabs(out[SIZE + 9] - (with * sin(last) + in[SIZE + 9] * cos(last))) < 1e-15);
        attn_layout_free(layout);
        attn_tensor_free(x);
        attn_tensor_free(y);
        attn_tensor_free(later);
    }
}

static attn_status rotate(gradient_check *g, attn_tape *tape, const void *what)
{
    return attn_rotary(g->ctx, tape, g->input[0], NULL, what, g->output);
}

/* once plain, once where the input is used twice so that the gradient adds */
static attn_status rotate_twice(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_status status = attn_rotary(g->ctx, tape, g->input[0], NULL, what, g->other[0]);
    if (status == ATTN_OK) status = attn_rotary(g->ctx, tape, g->other[0], NULL, what, g->other[1]);
    return status == ATTN_OK ? attn_multiply(g->ctx, tape, g->other[0], g->other[1], g->output) : status;
}

/* x + R x: the gradient that arrives at R x is shared with x, and what comes back through R adds to it */
static attn_status rotate_added(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_status status = attn_rotary(g->ctx, tape, g->input[0], NULL, what, g->other[0]);
    return status == ATTN_OK ? attn_add(g->ctx, tape, g->input[0], g->other[0], g->output) : status;
}

static void test_gradients(void **state)
{
    (void)state;
    for (int32_t pairing = 0; pairing < 2; pairing++) {
        attn_rotary_options o = plain();
        o.pairing = pairing;
        o.rotated = 4;
        o.scaling = ATTN_ROTARY_YARN;
        o.factor = 2;
        gradient_function *const functions[] = {rotate, rotate_twice, rotate_added};
        for (int f = 0; f < 3; f++) {
            gradient_check g;
            gradient_open(&g, 30);
            gradient_input(&g, 3, SHAPE(5, 2, 6), -2, 2);
            for (int i = 0; i < 2; i++) gradient_other(&g, ATTN_FLOAT64, 3, SHAPE(5, 2, 6), 0, 1);
            gradient_output(&g, 3, SHAPE(5, 2, 6));
            gradient_expect(&g, functions[f], &o);
            gradient_close(&g);
        }
    }
}

static void refuse(attn_rotary_options o, attn_status expected, const char *word)
{
    double magnitude = -5, frequencies[4] = {-5, -5, -5, -5};
    assert_int_equal(attn_rotary_frequencies(ctx, &o, 8, frequencies, &magnitude), expected);
    assert_non_null(strstr(attn_context_last_error(ctx), word));
    assert_true(magnitude == -5 && frequencies[0] == -5);
}

static void test_refusals(void **state)
{
    attn_rotary_options o;
    (void)state;
    assert_int_equal(attn_rotary_options_init(NULL, sizeof o), ATTN_ERROR_INVALID_ARGUMENT);
#define REFUSE(field, value, status) (o = plain(), o.field = value, refuse(o, status, #field))
    REFUSE(pairing, 2, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(scaling, -1, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(scaling, 5, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(rotated, 3, ATTN_ERROR_SHAPE);
    REFUSE(rotated, 0, ATTN_ERROR_SHAPE);
    REFUSE(rotated, 10, ATTN_ERROR_SHAPE);
    REFUSE(base, 1, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(base, NAN, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(factor, 0.5, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(factor, INFINITY, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(context, 0, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(low, 0, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(high, 1, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(magnitude, -1, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(struct_size, 8, ATTN_ERROR_INVALID_ARGUMENT);
    random_state random = {1};
    attn_tensor *x = tensor_of(2, 2, 4, &random), *odd = tensor_of(2, 2, 3, &random), *other = tensor_of(2, 1, 4, &random);
    assert_int_equal(attn_rotary(ctx, NULL, x, NULL, NULL, other), ATTN_ERROR_SHAPE);
    assert_int_equal(attn_rotary(ctx, NULL, odd, NULL, NULL, odd), ATTN_ERROR_SHAPE);
    assert_int_equal(attn_rotary(ctx, NULL, NULL, NULL, NULL, x), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_rotary(ctx, NULL, x, NULL, NULL, x), ATTN_OK); /* in place */
    attn_tensor_free(x);
    attn_tensor_free(odd);
    attn_tensor_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_frequencies), cmocka_unit_test(test_ends_of_the_ramp), cmocka_unit_test(test_yarn_ramp),
        cmocka_unit_test(test_only_distances_count),  cmocka_unit_test(test_gradients),        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}

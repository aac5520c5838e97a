#include <attn/attn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/gradient.h"
#include "support/model.h"

/* Convolutions along the rows: gradients, the formula written out, what a stack of them sees. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

static attn_layout *layout_of(attn_context *ctx, int64_t count, const int64_t *lengths)
{
    attn_layout *layout = NULL;
    OK(ctx, attn_layout_create(ctx, count, &layout));
    OK(ctx, attn_layout_set_lengths(ctx, layout, count, lengths, 0));
    return layout;
}

static attn_convolution_options options_of(int32_t taps, int32_t causal, int64_t dilation)
{
    attn_convolution_options o;
    assert_int_equal(attn_convolution_options_init(&o, sizeof o), ATTN_OK);
    assert_true(o.taps == 3 && o.causal == 0 && o.dilation == 1);
    o.taps = taps;
    o.causal = causal;
    o.dilation = dilation;
    return o;
}

typedef struct convolution_case {
    int64_t in, out, dilation;
    int32_t taps, causal, biased, packed;
} convolution_case;

static const convolution_case cases[] = {{2, 3, 1, 3, 0, 1, 0}, {2, 3, 1, 3, 1, 1, 1}, {3, 2, 2, 4, 0, 0, 1},
                                         {1, 1, 1, 1, 0, 1, 1}, {2, 2, 3, 2, 1, 1, 0}, {1, 2, 9, 3, 0, 1, 1}};
enum { CASES = sizeof cases / sizeof cases[0], ROWS = 8, SEGMENTS = 4 };
static const int64_t lengths[SEGMENTS] = {1, 5, 0, 2};

static attn_status convolve(gradient_check *g, attn_tape *tape, const void *what)
{
    const convolution_case *c = what;
    attn_convolution_options o = options_of(c->taps, c->causal, c->dilation);
    attn_layout *layout = c->packed ? layout_of(g->ctx, SEGMENTS, lengths) : NULL;
    attn_status status = attn_convolution(g->ctx, tape, g->input[0], g->input[1], c->biased ? g->input[2] : NULL, layout, &o, g->output);
    attn_layout_free(layout);
    return status;
}

/* one tensor is input and weight, and used again */
static attn_status one_tensor(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_convolution_options o = options_of(1, 0, 1);
    (void)what;
    attn_status status = attn_convolution(g->ctx, tape, g->input[0], g->input[0], NULL, NULL, &o, g->other[0]);
    return status == ATTN_OK ? attn_multiply(g->ctx, tape, g->other[0], g->input[0], g->output) : status;
}

static void test_gradients(void **state)
{
    gradient_check g;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const convolution_case *c = &cases[i];
        gradient_open(&g, 20 + (uint64_t)i);
        gradient_input(&g, 2, SHAPE(ROWS, c->in), -1, 1);
        gradient_input(&g, 2, SHAPE(c->out, c->taps * c->in), -1, 1);
        if (c->biased) gradient_input(&g, 1, SHAPE(c->out), -1, 1);
        gradient_output(&g, 2, SHAPE(ROWS, c->out));
        gradient_expect(&g, convolve, c);
        gradient_close(&g);
    }
    gradient_open(&g, 40);
    gradient_input(&g, 2, SHAPE(3, 3), -1, 1);
    gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(3, 3), 0, 1);
    gradient_output(&g, 2, SHAPE(3, 3));
    gradient_expect(&g, one_tensor, NULL);
    gradient_close(&g);
}

static attn_tensor *drawn(attn_context *ctx, int32_t dtype, int64_t rows, int64_t width, uint64_t seed)
{
    random_state random = {seed};
    attn_tensor *made = model_tensor(ctx, dtype, rows, width);
    for (int64_t i = 0; i < model_elements(made); i++) model_set(made, i, random_number(&random, -1, 1));
    return made;
}

/* y_r = b + sum of W_k x_(r + k dilation - before), written out */
static double expected(const convolution_case *c, const attn_tensor *x, const attn_tensor *w, double bias, int64_t start, int64_t length,
                       int64_t place, int64_t o)
{
    int64_t reach = (c->taps - 1) * c->dilation, before = c->causal ? reach : reach / 2;
    double sum = bias;
    for (int64_t k = 0; k < c->taps; k++) {
        int64_t at = place + k * c->dilation - before;
        for (int64_t i = 0; at >= 0 && at < length && i < c->in; i++)
            sum += model_get(w, (o * c->taps + k) * c->in + i) * model_get(x, (start + at) * c->in + i);
    }
    return sum;
}

static void test_formula(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * CASES; i++) {
        const convolution_case *c = &cases[i / 2];
        attn_convolution_options o = options_of(c->taps, c->causal, c->dilation);
        attn_context *ctx = model_context(i % 2, 2, 0);
        const int32_t dtype = i % 2 == ATTN_BACKEND_BLAS ? ATTN_FLOAT32 : ATTN_FLOAT64;
        attn_tensor *x = drawn(ctx, dtype, ROWS, c->in, 1), *w = drawn(ctx, dtype, c->out, c->taps * c->in, 2);
        attn_tensor *b = drawn(ctx, dtype, c->out, 0, 3), *y = model_tensor(ctx, dtype, ROWS, c->out);
        attn_layout *layout = layout_of(ctx, SEGMENTS, lengths);
        OK(ctx, attn_convolution(ctx, NULL, x, w, b, layout, &o, y));
        for (int64_t s = 0, start = 0; s < SEGMENTS; start += lengths[s++])
            for (int64_t e = 0; e < lengths[s] * c->out; e++) {
                double want = expected(c, x, w, model_get(b, e % c->out), start, lengths[s], e / c->out, e % c->out);
                assert_true(fabs(model_get(y, start * c->out + e) - want) < (dtype == ATTN_FLOAT32 ? 1e-5 : 1e-14));
            }
        attn_tensor *const all[] = {x, w, b, y};
        for (int t = 0; t < 4; t++) attn_tensor_free(all[t]);
        attn_layout_free(layout);
        attn_context_free(ctx);
    }
}

/* layers of causal convolutions, all weights 1, until the last row hears of the first */
static int layers_to_first(attn_context *ctx, int64_t rows, int32_t taps, int dilated)
{
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, rows, 1), *y = model_tensor(ctx, ATTN_FLOAT32, rows, 1), *swap;
    attn_tensor *w = model_tensor(ctx, ATTN_FLOAT32, 1, taps);
    int layers = 0;
    int64_t dilation = 1;
    for (int64_t i = 0; i < rows; i++) model_set(x, i, i == 0);
    for (int64_t i = 0; i < taps; i++) model_set(w, i, 1);
    for (; model_get(x, rows - 1) == 0 && layers < 100; layers++) {
        attn_convolution_options o = options_of(taps, 1, dilation);
        OK(ctx, attn_convolution(ctx, NULL, x, w, NULL, NULL, &o, y));
        swap = x, x = y, y = swap;
        if (dilated) dilation *= taps;
    }
    attn_tensor *const all[] = {x, y, w};
    for (int t = 0; t < 3; t++) attn_tensor_free(all[t]);
    return layers;
}

/* Table 3.1, R9: between the ends of n rows lie (n - 1) / (k - 1) layers of k taps, rounded up, and log_k n where dilations grow by k */
static void test_path(void **state)
{
    static const int64_t rows[] = {2, 5, 27, 28, 64, 81, 82};
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int32_t taps = 2; taps < 5; taps++) {
            int logarithm = 0;
            for (int64_t reach = 1; reach < rows[i]; reach *= taps) logarithm++;
            assert_int_equal(layers_to_first(ctx, rows[i], taps, 0), (rows[i] - 1 + taps - 2) / (taps - 1));
            assert_int_equal(layers_to_first(ctx, rows[i], taps, 1), logarithm);
        }
    attn_context_free(ctx);
}

/* each gradient alone is what it is among all: the bits of `wanted` say which of x, weight and bias are watched */
static void test_wanted(void **state)
{
    const convolution_case c = {3, 2, 2, 4, 0, 1, 0};
    const attn_convolution_options o = options_of(c.taps, c.causal, c.dilation);
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int32_t dtype = i == ATTN_BACKEND_BLAS ? ATTN_FLOAT32 : ATTN_FLOAT64;
        attn_context *ctx = model_context(i, 2, 0);
        attn_tensor *bias = NULL, *d_bias = NULL, *again = NULL;
        OK(ctx, attn_tensor_create(ctx, dtype, 1, &c.out, &bias));
        OK(ctx, attn_tensor_create(ctx, dtype, 1, &c.out, &d_bias));
        OK(ctx, attn_tensor_create(ctx, dtype, 1, &c.out, &again));
        attn_tensor *given[3] = {drawn(ctx, dtype, ROWS, c.in, 1), drawn(ctx, dtype, c.out, c.taps * c.in, 2), bias};
        attn_tensor *all[3] = {drawn(ctx, dtype, ROWS, c.in, 3), drawn(ctx, dtype, c.out, c.taps * c.in, 4), d_bias};
        attn_tensor *alone[3] = {drawn(ctx, dtype, ROWS, c.in, 5), drawn(ctx, dtype, c.out, c.taps * c.in, 6), again};
        attn_tensor *y = model_tensor(ctx, dtype, ROWS, c.out), *dy = drawn(ctx, dtype, ROWS, c.out, 7);
        attn_tape *tape = NULL;
        OK(ctx, attn_tape_create(ctx, &tape));
        for (int wanted = 7; wanted > 0; wanted--) {
            attn_tensor *const *to = wanted == 7 ? all : alone;
            OK(ctx, attn_tape_begin(ctx, tape, NULL));
            for (int k = 0; k < 3; k++)
                if (wanted >> k & 1) OK(ctx, attn_tape_watch(ctx, tape, given[k], to[k]));
            OK(ctx, attn_convolution(ctx, tape, given[0], given[1], given[2], NULL, &o, y));
            const attn_tensor *const outputs[] = {y}, *const arriving[] = {dy};
            OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, 0, NULL));
            for (int k = 0; k < 3; k++)
                for (int64_t e = 0; wanted >> k & 1 && e < model_elements(to[k]); e++)
                    assert_true(model_get(to[k], e) != 0 && fabs(model_get(to[k], e) - model_get(all[k], e)) < 1e-5);
            for (int k = 0; k < 3; k++)
                for (int64_t e = 0; e < model_elements(alone[k]); e++) model_set(alone[k], e, 0);
        }
        for (int k = 0; k < 3; k++) attn_tensor_free(given[k]), attn_tensor_free(all[k]), attn_tensor_free(alone[k]);
        attn_tensor_free(y);
        attn_tensor_free(dy);
        attn_tape_free(tape);
        attn_context_free(ctx);
    }
}

/* taps times columns, of tensors without rows */
static void test_too_large(void **state)
{
    const attn_convolution_options o = options_of(INT32_MAX, 0, 1);
    (void)state;
    for (int32_t backend = 0; backend < 2; backend++) {
        attn_context *ctx = model_context(backend, 1, 0);
        attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, 0, INT64_C(1) << 60), *w = model_tensor(ctx, ATTN_FLOAT32, 0, 1);
        attn_tensor *y = model_tensor(ctx, ATTN_FLOAT32, 0, 0);
        assert_int_equal(attn_convolution(ctx, NULL, x, w, NULL, NULL, &o, y), ATTN_ERROR_TOO_LARGE);
        attn_tensor *const all[] = {x, w, y};
        for (int t = 0; t < 3; t++) attn_tensor_free(all[t]);
        attn_context_free(ctx);
    }
}

/* after the first rounds nothing is allocated */
static void test_nothing_is_allocated(void **state)
{
    enum { LENGTH = 60, WIDTH = 40 };
    test_allocator allocator = {0};
    (void)state;
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 2);
    attn_tensor *x = drawn(ctx, ATTN_FLOAT32, LENGTH, WIDTH, 5), *w = drawn(ctx, ATTN_FLOAT32, WIDTH, 3 * WIDTH, 6);
    attn_tensor *dx = model_tensor(ctx, ATTN_FLOAT32, LENGTH, WIDTH), *dw = model_tensor(ctx, ATTN_FLOAT32, WIDTH, 3 * WIDTH);
    attn_tensor *y = model_tensor(ctx, ATTN_FLOAT32, LENGTH, WIDTH), *dy = drawn(ctx, ATTN_FLOAT32, LENGTH, WIDTH, 7);
    attn_tape *tape = NULL;
    OK(ctx, attn_tape_create(ctx, &tape));
    int64_t before = 0;
    for (int round = 0; round < 5; round++) {
        if (round == 2) before = model_allocations(ctx);
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        OK(ctx, attn_tape_watch(ctx, tape, w, dw));
        OK(ctx, attn_convolution(ctx, tape, x, w, NULL, NULL, NULL, y));
        const attn_tensor *const outputs[] = {y}, *const arriving[] = {dy};
        OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, 0, NULL));
    }
    assert_int_equal(model_allocations(ctx), before);
    attn_tensor *const all[] = {x, w, dx, dw, y, dy};
    for (int t = 0; t < 6; t++) attn_tensor_free(all[t]);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_formula),
                                       cmocka_unit_test(test_path),      cmocka_unit_test(test_wanted),
                                       cmocka_unit_test(test_too_large), cmocka_unit_test(test_nothing_is_allocated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

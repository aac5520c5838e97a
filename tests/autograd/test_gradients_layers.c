#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "autograd/operations.h"
#include "support/gradient.h"

/* Gradients of linear layers, activations and norms, by the public calls and by the fused forms that modules use. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

static attn_status linear(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    return attn_linear(g->ctx, tape, g->input[0], g->input[1], g->inputs > 2 ? g->input[2] : NULL, g->output);
}

static void test_linear(void **state)
{
    static const int64_t sizes[][3] = {{3, 4, 5}, {1, 1, 1}, {17, 23, 19}, {0, 4, 3}, {3, 0, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int bias = 0; bias < 2; bias++) {
            gradient_check g;
            gradient_open(&g, 1 + i);
            gradient_input(&g, 2, SHAPE(sizes[i][0], sizes[i][1]), -1, 1);
            gradient_input(&g, 2, SHAPE(sizes[i][2], sizes[i][1]), -1, 1);
            if (bias) gradient_input(&g, 1, SHAPE(sizes[i][2]), -1, 1);
            gradient_output(&g, 2, SHAPE(sizes[i][0], sizes[i][2]));
            if (sizes[i][0] * sizes[i][1] > 0)
                gradient_expect(&g, linear, NULL);
            else
                assert_true(gradient_error(&g, linear, NULL) < 1e-6);
            gradient_close(&g);
        }
    }
}

/* x is its own weight: both gradients meet in one buffer */
static attn_status square(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    return attn_linear(g->ctx, tape, g->input[0], g->input[0], NULL, g->output);
}

static void test_linear_shared(void **state)
{
    gradient_check g;
    (void)state;
    gradient_open(&g, 7);
    gradient_input(&g, 2, SHAPE(4, 4), -1, 1);
    gradient_output(&g, 2, SHAPE(4, 4));
    gradient_expect(&g, square, NULL);
    gradient_close(&g);
}

typedef struct fused {
    int32_t activation;
    int gated, beta;
    double rate;
} fused;

/* inputs: x, weight, bias, beta */
static attn_status fused_linear(gradient_check *g, attn_tape *tape, const void *what)
{
    const fused *f = what;
    attn__value v[4], y;
    view at;
    attn__places places = {NULL, NULL};
    const attn_segment segment = {0, 5, 2, 9};
    const attn__activation act = {.kind = f->activation, .beta = 1.5};
    attn_status status = attn__enter(g->ctx);
    for (int i = 0; status == ATTN_OK && i < g->inputs; i++) {
        status = attn__rows(g->ctx, "input", g->input[i], 0, &at);
        if (status == ATTN_OK) status = attn__tape_input(g->ctx, tape, "input", g->input[i], &at, &v[i]);
    }
    if (status == ATTN_OK) status = attn__rows(g->ctx, "y", g->output, 0, &at);
    if (status == ATTN_OK) status = attn__tape_output(g->ctx, tape, "y", g->output, &at, &y);
    if (status == ATTN_OK)
        status = attn__places_expand(g->ctx, attn__tape_records(g->ctx, tape), (attn__segments){1, 5, &segment}, 5, &places);
    const attn__dropout drop = attn__tape_dropout(tape, f->rate, 77, places);
    if (status == ATTN_OK)
        status = (f->gated ? attn__linear_gated : attn__linear)(g->ctx, tape, &v[0], &v[1], &v[2], &act, f->beta ? &v[3] : NULL, &drop, &y);
    return attn__leave(g->ctx, status);
}

static void test_fused(void **state)
{
    static const fused cases[] = {
        {ATTN_ACTIVATION_IDENTITY, 0, 0, 0},    {ATTN_ACTIVATION_IDENTITY, 0, 0, 0.4}, {ATTN_ACTIVATION_GELU, 0, 0, 0},
        {ATTN_ACTIVATION_GELU_TANH, 0, 0, 0.4}, {ATTN_ACTIVATION_SWISH, 0, 0, 0},      {ATTN_ACTIVATION_SWISH, 0, 1, 0.4},
        {ATTN_ACTIVATION_SIGMOID, 0, 0, 0},     {ATTN_ACTIVATION_TANH, 0, 0, 0.4},     {ATTN_ACTIVATION_RELU, 0, 0, 0.4},
        {ATTN_ACTIVATION_SWISH, 1, 1, 0.4},     {ATTN_ACTIVATION_GELU, 1, 0, 0},       {ATTN_ACTIVATION_IDENTITY, 1, 0, 0.4},
        {ATTN_ACTIVATION_GELU_TANH, 1, 0, 0},   {ATTN_ACTIVATION_SIGMOID, 1, 0, 0.9},  {ATTN_ACTIVATION_SWISH, 0, 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gradient_check g;
        int64_t out = cases[i].gated ? 14 : 7;
        gradient_open(&g, 100 + i);
        g.options.training = 1;
        g.options.seed = i;
        gradient_input(&g, 2, SHAPE(5, 6), -1, 1);
        gradient_input(&g, 2, SHAPE(out, 6), -1, 1);
        gradient_input(&g, 1, SHAPE(out), -1, 1);
        if (cases[i].beta) gradient_input(&g, 1, SHAPE(1), 0.5, 2);
        gradient_output(&g, 2, SHAPE(5, 7));
        gradient_expect(&g, fused_linear, &cases[i]);
        gradient_close(&g);
    }
}

static attn_status gated(gradient_check *g, attn_tape *tape, const void *what)
{
    return attn_linear_gated(g->ctx, tape, *(const int32_t *)what, g->input[0], g->input[1], g->input[2], g->output);
}
static attn_status activation(gradient_check *g, attn_tape *tape, const void *what)
{
    return attn_activation(g->ctx, tape, *(const int32_t *)what, g->input[0], g->inputs > 1 ? g->input[1] : NULL, g->output);
}

static void test_activations(void **state)
{
    (void)state;
    for (int32_t kind = ATTN_ACTIVATION_IDENTITY; kind <= ATTN_ACTIVATION_TANH; kind++) {
        for (int beta = 0; beta < (kind == ATTN_ACTIVATION_SWISH ? 2 : 1); beta++) {
            gradient_check g;
            gradient_open(&g, 200 + (uint64_t)kind);
            gradient_input(&g, 2, SHAPE(9, 11), -4, 4);
            if (beta) gradient_input(&g, 1, SHAPE(1), 0.5, 2);
            gradient_output(&g, 2, SHAPE(9, 11));
            gradient_expect(&g, activation, &kind);
            gradient_close(&g);
        }
        gradient_check g;
        gradient_open(&g, 300 + (uint64_t)kind);
        gradient_input(&g, 2, SHAPE(3, 4), -1, 1);
        gradient_input(&g, 2, SHAPE(10, 4), -1, 1);
        gradient_input(&g, 1, SHAPE(10), -1, 1);
        gradient_output(&g, 2, SHAPE(3, 5));
        gradient_expect(&g, gated, &kind);
        gradient_close(&g);
    }
}

static attn_status layer_norm(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    return attn_layer_norm(g->ctx, tape, g->input[0], g->inputs > 1 ? g->input[1] : NULL, g->inputs > 2 ? g->input[2] : NULL, 1e-6,
                           g->output);
}
static attn_status rms_norm(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    return attn_rms_norm(g->ctx, tape, g->input[0], g->inputs > 1 ? g->input[1] : NULL, 1e-5, g->output);
}

static void test_norms(void **state)
{
    (void)state;
    for (int extra = 0; extra < 3; extra++) {
        for (int rms = 0; rms < 2 && extra < 3 - rms; rms++) {
            gradient_check g;
            gradient_open(&g, 400 + (uint64_t)extra);
            gradient_input(&g, 3, SHAPE(2, 3, 7), -2, 2);
            for (int i = 0; i < extra; i++) gradient_input(&g, 1, SHAPE(7), 0.5, 1.5);
            gradient_output(&g, 2, SHAPE(6, 7));
            gradient_expect(&g, rms ? rms_norm : layer_norm, NULL);
            gradient_close(&g);
        }
    }
}

/* The gradient of what comes out is shared with another value, which must not see it change: output = operation(x) + other. */
enum { SHARED_LINEAR, SHARED_ACTIVATION, SHARED_DROPOUT, SHARED_SOFTMAX, SHARED_NORM, SHARED_SUM, SHARED_COUNT };
static attn_status shared(gradient_check *g, attn_tape *tape, const void *what)
{
    attn__value x, other, u, r, y, product;
    view at;
    attn__places places = {NULL, NULL};
    const attn_segment segment = {0, 4, 0, 3};
    const attn__activation act = {.kind = ATTN_ACTIVATION_GELU};
    attn_status status = attn__enter(g->ctx);
    if (status == ATTN_OK) status = attn__rows(g->ctx, "x", g->input[0], 0, &at);
    if (status == ATTN_OK) status = attn__tape_input(g->ctx, tape, "x", g->input[0], &at, &x);
    if (status == ATTN_OK) status = attn__rows(g->ctx, "other", g->input[1], 0, &at);
    if (status == ATTN_OK) status = attn__tape_input(g->ctx, tape, "other", g->input[1], &at, &other);
    if (status == ATTN_OK) status = attn__rows(g->ctx, "y", g->output, 0, &at);
    if (status == ATTN_OK) status = attn__tape_output(g->ctx, tape, "y", g->output, &at, &y);
    if (status == ATTN_OK) status = attn__tape_temporary(g->ctx, tape, 4, 4, ATTN_FLOAT64, &u);
    if (status == ATTN_OK) status = attn__tape_temporary(g->ctx, tape, 4, 4, ATTN_FLOAT64, &r);
    if (status == ATTN_OK) status = attn__tape_temporary(g->ctx, tape, 4, 4, ATTN_FLOAT64, &product);
    if (status == ATTN_OK)
        status = attn__places_expand(g->ctx, attn__tape_records(g->ctx, tape), (attn__segments){1, 4, &segment}, 4, &places);
    if (status != ATTN_OK) return attn__leave(g->ctx, status);
    const attn__dropout drop = attn__tape_dropout(tape, 0.5, 5, places);
    switch (*(const int *)what) {
    case SHARED_LINEAR: status = attn__linear(g->ctx, tape, &x, &other, NULL, &act, NULL, &drop, &u); break;
    case SHARED_ACTIVATION: status = attn__activate(g->ctx, tape, &act, NULL, &x, &u); break;
    case SHARED_DROPOUT: status = attn__drop(g->ctx, tape, &x, &drop, &u); break;
    case SHARED_SOFTMAX: status = attn__softmax(g->ctx, tape, 0, &x, &u); break;
    default:
        status = attn__residual_norm(g->ctx, tape, &x, &other, &drop, ATTN_NORM_LAYER, 1e-6, NULL, NULL, &r, &u);
        if (status != ATTN_OK || *(const int *)what == SHARED_NORM) break;
        /* the sum has a gradient of its own, which comes first; that of the norm is shared */
        status = attn__add(g->ctx, tape, &u, &other, &product);
        if (status == ATTN_OK) status = attn__multiply_elements(g->ctx, tape, &r, &product, &y);
        return attn__leave(g->ctx, status);
    }
    return attn__leave(g->ctx, status == ATTN_OK ? attn__add(g->ctx, tape, &u, &other, &y) : status);
}

static void test_shared(void **state)
{
    (void)state;
    for (int i = 0; i < SHARED_COUNT; i++) {
        gradient_check g;
        gradient_open(&g, 600 + (uint64_t)i);
        g.options.training = 1;
        gradient_input(&g, 2, SHAPE(4, 4), -2, 2);
        gradient_input(&g, 2, SHAPE(4, 4), -2, 2);
        gradient_output(&g, 2, SHAPE(4, 4));
        double error = gradient_error(&g, shared, &i);
        if (!(error < 1e-6)) fail_msg("case %d differs by %g", i, error);
        gradient_close(&g);
    }
}

typedef struct sum_case {
    double rate;
    int32_t norm;
    int keep_sum, use_sum, same, only_sum;
} sum_case;

/* inputs: x, s, gain, shift. output = norm(r) (+ r), r = x + dropout(s); then once more, so that the stream's gradient is shared */
static attn_status residual_norm(gradient_check *g, attn_tape *tape, const void *what)
{
    const sum_case *c = what;
    attn__value v[4], y, r, n, z;
    view at;
    attn__places places = {NULL, NULL};
    const attn_segment segment = {0, 4, 0, 3};
    attn_status status = attn__enter(g->ctx);
    for (int i = 0; status == ATTN_OK && i < 4; i++) {
        status = attn__rows(g->ctx, "input", g->input[i], 0, &at);
        if (status == ATTN_OK) status = attn__tape_input(g->ctx, tape, "input", g->input[i], &at, &v[i]);
    }
    if (c->same) v[1] = v[0];
    if (status == ATTN_OK) status = attn__rows(g->ctx, "y", g->output, 0, &at);
    if (status == ATTN_OK) status = attn__tape_output(g->ctx, tape, "y", g->output, &at, &y);
    if (status == ATTN_OK)
        status = attn__places_expand(g->ctx, attn__tape_records(g->ctx, tape), (attn__segments){1, 4, &segment}, 4, &places);
    const attn__dropout drop = attn__tape_dropout(tape, c->rate, 5, places);
    if (status == ATTN_OK) status = attn__tape_temporary(g->ctx, tape, 4, 6, ATTN_FLOAT64, &r);
    if (status == ATTN_OK) status = attn__tape_temporary(g->ctx, tape, 4, 6, ATTN_FLOAT64, &n);
    if (status == ATTN_OK) status = attn__tape_temporary(g->ctx, tape, 4, 6, ATTN_FLOAT64, &z);
    if (status == ATTN_OK)
        status = attn__residual_norm(g->ctx, tape, &v[0], &v[1], &drop, c->norm, 1e-6, &v[2], c->norm == ATTN_NORM_LAYER ? &v[3] : NULL,
                                     c->keep_sum ? &r : NULL, &n);
    if (status != ATTN_OK) return attn__leave(g->ctx, status);
    if (c->only_sum) return attn__leave(g->ctx, attn__residual(g->ctx, tape, &r, &v[1], &drop, &y));
    if (!c->use_sum) return attn__leave(g->ctx, attn__multiply_elements(g->ctx, tape, &n, &v[0], &y));
    status = attn__multiply_elements(g->ctx, tape, &n, &n, &z);
    return attn__leave(g->ctx, status == ATTN_OK ? attn__residual(g->ctx, tape, &r, &z, &drop, &y) : status);
}

static void test_residual_norms(void **state)
{
    static const sum_case cases[] = {
        {0, ATTN_NORM_LAYER, 1, 1, 0, 0},   {0.3, ATTN_NORM_LAYER, 1, 1, 0, 0}, {0, ATTN_NORM_RMS, 1, 1, 0, 0},
        {0.3, ATTN_NORM_RMS, 1, 1, 0, 0},   {0, ATTN_NORM_LAYER, 0, 0, 0, 0},   {0.3, ATTN_NORM_RMS, 0, 0, 0, 0},
        {0.3, ATTN_NORM_LAYER, 1, 0, 0, 0}, {0, ATTN_NORM_LAYER, 1, 1, 1, 0},   {0.3, ATTN_NORM_RMS, 1, 1, 1, 0},
        {0.3, ATTN_NORM_RMS, 1, 1, 0, 1},   {0, ATTN_NORM_LAYER, 1, 0, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gradient_check g;
        gradient_open(&g, 500 + i);
        g.options.training = 1;
        gradient_input(&g, 2, SHAPE(4, 6), -2, 2);
        gradient_input(&g, 2, SHAPE(4, 6), -2, 2);
        gradient_input(&g, 1, SHAPE(6), 0.5, 1.5);
        gradient_input(&g, 1, SHAPE(6), -1, 1);
        gradient_output(&g, 2, SHAPE(4, 6));
        double error = gradient_error(&g, residual_norm, &cases[i]);
        if (!(error < 1e-6)) fail_msg("case %zu differs by %g", i, error);
        gradient_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),      cmocka_unit_test(test_linear_shared), cmocka_unit_test(test_fused),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_norms),         cmocka_unit_test(test_residual_norms),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/golden.h"

/* Recurrent layers against torch.nn.RNN and torch.nn.LSTM with packed sequences of unequal length and states before the first step, in one
   direction and in both: outputs, final states and every gradient. */
typedef struct layer_case {
    const char *part;
    int32_t kind, directions;
} layer_case;

enum { INPUT, BIAS, WEIGHT, HIDDEN, CELL, GIVEN };
static const char *const names[GIVEN] = {"input", "bias", "weight", "hidden", "cell"};

typedef struct direction {
    attn_tensor *given[GIVEN], *d[GIVEN], *sums, *output, *final[2], *g_final[2]; /* cells are NULL but for the LSTM */
} direction;

static const char *named(const char *way, const char *before, const char *name)
{
    static char text[64];
    snprintf(text, sizeof text, "%s.%s%s", way, before, name);
    return text;
}

static direction open_direction(const golden *g, const char *way, const layer_case *c, int64_t rows)
{
    direction d = {0};
    const int lstm = c->kind == ATTN_RECURRENT_LSTM;
    for (int i = 0; i < GIVEN - !lstm; i++) {
        d.given[i] = golden_tensor(g, named(way, "", names[i]));
        d.d[i] = golden_like(g, d.given[i]);
    }
    for (int i = 0; i < 1 + lstm; i++) {
        d.g_final[i] = golden_tensor(g, named(way, "g_", names[HIDDEN + i]));
        d.final[i] = golden_like(g, d.g_final[i]);
    }
    d.sums = model_tensor(g->ctx, g->dtype, rows, attn_tensor_extent(d.given[WEIGHT], 0));
    d.output = model_tensor(g->ctx, g->dtype, rows, attn_tensor_extent(d.given[WEIGHT], 1));
    return d;
}

static void close_direction(direction *d)
{
    for (int i = 0; i < GIVEN; i++) {
        attn_tensor_free(d->given[i]);
        attn_tensor_free(d->d[i]);
    }
    for (int i = 0; i < 2; i++) {
        attn_tensor_free(d->final[i]);
        attn_tensor_free(d->g_final[i]);
    }
    attn_tensor_free(d->sums);
    attn_tensor_free(d->output);
}

static void expect_direction(const golden *g, const char *way, const direction *d)
{
    for (int i = 0; i < GIVEN; i++)
        if (d->d[i] != NULL) golden_expect(g, named(way, "d", names[i]), d->d[i], 0);
    for (int i = 0; i < 2; i++)
        if (d->final[i] != NULL) golden_expect(g, named(way, "final_", names[HIDDEN + i]), d->final[i], 0);
}

static void run_case(const golden *g, const layer_case *c)
{
    static const char *const ways[2] = {"forward", "backward"};
    attn_context *ctx = g->ctx;
    attn_tensor *x = golden_tensor(g, "x"), *dx = golden_like(g, x), *dy = golden_tensor(g, "g"), *y = golden_like(g, dy);
    attn_layout *layout = golden_layout(g, "lengths");
    direction d[2];
    attn_tape *tape = NULL;
    attn_recurrent_options o;
    OK(ctx, attn_recurrent_options_init(&o, sizeof o));
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    OK(ctx, attn_tape_watch(ctx, tape, x, dx));
    o.kind = c->kind;
    const attn_tensor *outputs[5] = {y}, *gradients[5] = {dy}, *parts[2];
    int64_t count = 1;
    for (o.reverse = 0; o.reverse < c->directions; o.reverse++) {
        direction *to = &d[o.reverse];
        *to = open_direction(g, ways[o.reverse], c, attn_tensor_extent(x, 0));
        for (int i = 0; i < GIVEN; i++)
            if (to->given[i] != NULL) OK(ctx, attn_tape_watch(ctx, tape, to->given[i], to->d[i]));
        OK(ctx, attn_linear(ctx, tape, x, to->given[INPUT], to->given[BIAS], to->sums));
        OK(ctx, attn_recurrent(ctx, tape, to->sums, to->given[WEIGHT], layout, &o, to->given[HIDDEN], to->given[CELL], to->output,
                               to->final[0], to->final[1]));
        for (int i = 0; i < 2 && to->final[i] != NULL; i++) {
            outputs[count] = to->final[i];
            gradients[count++] = to->g_final[i];
        }
        parts[o.reverse] = to->output;
    }
    OK(ctx, attn_concatenate(ctx, tape, c->directions, parts, y));
    OK(ctx, attn_tape_backward(ctx, tape, count, outputs, gradients, 0, NULL));
    golden_expect(g, "output", y, 0);
    golden_expect(g, "dx", dx, 0);
    for (int i = 0; i < c->directions; i++) {
        expect_direction(g, ways[i], &d[i]);
        close_direction(&d[i]);
    }
    attn_tensor *const tensors[] = {x, dx, y, dy};
    for (int i = 0; i < 4; i++) attn_tensor_free(tensors[i]);
    attn_layout_free(layout);
    attn_tape_free(tape);
}

static void test_recurrent(void **state)
{
    (void)state;
    const layer_case cases[] = {{"tanh_1.", ATTN_RECURRENT_TANH, 1},
                                {"tanh_2.", ATTN_RECURRENT_TANH, 2},
                                {"lstm_1.", ATTN_RECURRENT_LSTM, 1},
                                {"lstm_2.", ATTN_RECURRENT_LSTM, 2}};
    for (int32_t backend = 0; backend < 2; backend++) {
        golden g;
        golden_open(&g, "recurrent", backend, backend == ATTN_BACKEND_BLAS ? 5e-6 : 1e-12);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            snprintf(g.part, sizeof g.part, "%s", cases[i].part);
            run_case(&g, &cases[i]);
        }
        golden_close(&g);
    }
}

typedef struct convolution_case {
    const char *part;
    int64_t dilation;
    int32_t taps, causal, biased, reserved;
} convolution_case;

static void convolve(const golden *g, const convolution_case *c)
{
    attn_context *ctx = g->ctx;
    attn_tensor *x = golden_tensor(g, "x"), *w = golden_tensor(g, "weight"), *b = c->biased ? golden_tensor(g, "bias") : NULL;
    attn_tensor *dx = golden_like(g, x), *dw = golden_like(g, w), *db = c->biased ? golden_like(g, b) : NULL;
    attn_tensor *dy = golden_tensor(g, "g"), *y = golden_like(g, dy);
    attn_layout *layout = golden_layout(g, "lengths");
    attn_tape *tape = NULL;
    attn_convolution_options o;
    OK(ctx, attn_convolution_options_init(&o, sizeof o));
    o.taps = c->taps;
    o.dilation = c->dilation;
    o.causal = c->causal;
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    OK(ctx, attn_tape_watch(ctx, tape, x, dx));
    OK(ctx, attn_tape_watch(ctx, tape, w, dw));
    if (b != NULL) OK(ctx, attn_tape_watch(ctx, tape, b, db));
    OK(ctx, attn_convolution(ctx, tape, x, w, b, layout, &o, y));
    const attn_tensor *const outputs[] = {y}, *const gradients[] = {dy};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, gradients, 0, NULL));
    golden_expect(g, "output", y, 0);
    golden_expect(g, "dx", dx, 0);
    golden_expect(g, "dweight", dw, 0);
    if (b != NULL) golden_expect(g, "dbias", db, 0);
    attn_tensor *const tensors[] = {x, w, b, dx, dw, db, dy, y};
    for (int i = 0; i < 8; i++) attn_tensor_free(tensors[i]);
    attn_layout_free(layout);
    attn_tape_free(tape);
}

/* torch.nn.Conv1d, sequence by sequence; in the middle as its padding "same" */
static void test_convolution(void **state)
{
    (void)state;
    const convolution_case cases[] = {
        {"centred.", 1, 3, 0, 1, 0}, {"dilated.", 2, 3, 0, 1, 0}, {"even.", 1, 4, 0, 0, 0}, {"causal.", 2, 4, 1, 1, 0}};
    for (int32_t backend = 0; backend < 2; backend++) {
        golden g;
        golden_open(&g, "convolution", backend, backend == ATTN_BACKEND_BLAS ? 5e-6 : 1e-12);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            snprintf(g.part, sizeof g.part, "%s", cases[i].part);
            convolve(&g, &cases[i]);
        }
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recurrent), cmocka_unit_test(test_convolution)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

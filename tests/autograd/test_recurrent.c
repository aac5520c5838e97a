#include <attn/attn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/gradient.h"
#include "support/model.h"

/* Recurrent layers: gradients through time, the recurrence written out, a state that is carried on, both directions. */
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

static attn_recurrent_options options_of(int32_t kind, int32_t reverse)
{
    attn_recurrent_options o;
    assert_int_equal(attn_recurrent_options_init(&o, sizeof o), ATTN_OK);
    assert_true(o.kind == ATTN_RECURRENT_LSTM && o.reverse == 0);
    o.kind = kind;
    o.reverse = reverse;
    return o;
}

/* inputs x, weight, then the states that are given; finals: also those go into the output */
typedef struct recurrent_case {
    int64_t width, count, lengths[4];
    int32_t kind, reverse, states, finals;
} recurrent_case;

static const recurrent_case cases[] = {
    {3, 1, {4}, ATTN_RECURRENT_TANH, 0, 0, 0},          {3, 1, {4}, ATTN_RECURRENT_LSTM, 0, 0, 0},
    {2, 3, {2, 4, 1}, ATTN_RECURRENT_TANH, 1, 1, 1},    {2, 3, {2, 4, 1}, ATTN_RECURRENT_LSTM, 1, 1, 1},
    {2, 4, {1, 0, 3, 0}, ATTN_RECURRENT_TANH, 0, 1, 1}, {2, 4, {1, 0, 3, 0}, ATTN_RECURRENT_LSTM, 0, 1, 1},
    {1, 2, {2, 3}, ATTN_RECURRENT_LSTM, 0, 0, 1},       {5, 3, {0, 5, 2}, ATTN_RECURRENT_LSTM, 1, 1, 0},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* others: h of the rows, final h, final c, products of h with them */
static attn_status layer(gradient_check *g, attn_tape *tape, const void *what)
{
    const recurrent_case *c = what;
    const int lstm = c->kind == ATTN_RECURRENT_LSTM;
    attn_recurrent_options o = options_of(c->kind, c->reverse);
    attn_layout *layout = layout_of(g->ctx, c->count, c->lengths);
    attn_tensor *h = c->finals ? g->other[0] : g->output, *cell = lstm && c->finals ? g->other[2] : NULL;
    attn_status status = attn_recurrent(g->ctx, tape, g->input[0], g->input[1], layout, &o, c->states ? g->input[2] : NULL,
                                        c->states && lstm ? g->input[3] : NULL, h, c->finals ? g->other[1] : NULL, cell);
    attn_layout_free(layout);
    if (!c->finals || status != ATTN_OK) return status;
    status = attn_linear(g->ctx, tape, h, g->other[1], NULL, lstm ? g->other[3] : g->output);
    if (!lstm || status != ATTN_OK) return status;
    status = attn_linear(g->ctx, tape, h, cell, NULL, g->other[4]);
    return status == ATTN_OK ? attn_add(g->ctx, tape, g->other[3], g->other[4], g->output) : status;
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const recurrent_case *c = &cases[i];
        int64_t rows = 0, wide = (c->kind == ATTN_RECURRENT_LSTM ? 4 : 1) * c->width;
        for (int64_t s = 0; s < c->count; s++) rows += c->lengths[s];
        gradient_check g;
        gradient_open(&g, 30 + (uint64_t)i);
        gradient_input(&g, 2, SHAPE(rows, wide), -1, 1);
        gradient_input(&g, 2, SHAPE(wide, c->width), -1, 1);
        for (int s = 0; s < (c->states ? c->kind == ATTN_RECURRENT_LSTM ? 2 : 1 : 0); s++)
            gradient_input(&g, 2, SHAPE(c->count, c->width), -1, 1);
        gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(rows, c->width), 0, 1);
        for (int s = 0; s < 2; s++) gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(c->count, c->width), 0, 1);
        for (int s = 0; s < 2; s++) gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(rows, c->count), 0, 1);
        gradient_output(&g, 2, SHAPE(rows, c->finals ? c->count : c->width));
        gradient_expect(&g, layer, c);
        gradient_close(&g);
    }
}

/* one tensor is input, weight and state before the first step: its gradients come one after the other */
static attn_status one_tensor(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_recurrent_options o = options_of(ATTN_RECURRENT_TANH, *(const int32_t *)what);
    attn_layout *layout = layout_of(g->ctx, 3, (const int64_t[]){1, 0, 2});
    attn_status status = attn_recurrent(g->ctx, tape, g->input[0], g->input[0], layout, &o, g->input[0], NULL, g->other[0], NULL, NULL);
    attn_layout_free(layout);
    return status == ATTN_OK ? attn_multiply(g->ctx, tape, g->other[0], g->input[0], g->output) : status;
}

static attn_tensor *drawn(attn_context *ctx, int32_t dtype, int64_t rows, int64_t width, uint64_t seed, double reach)
{
    random_state random = {seed};
    attn_tensor *made = model_tensor(ctx, dtype, rows, width);
    for (int64_t i = 0; i < rows * width; i++) model_set(made, i, random_number(&random, -reach, reach));
    return made;
}

/* the same on BLAS in float32: the numbers of the reference */
static void test_one_tensor(void **state)
{
    enum { WIDTH = 33 };
    float *d[2];
    (void)state;
    for (int32_t reverse = 0; reverse < 2; reverse++) {
        for (int b = 0; b < 2; b++) {
            attn_context *ctx = model_context(b, 2, 0);
            attn_recurrent_options o = options_of(ATTN_RECURRENT_TANH, reverse);
            attn_tensor *x = drawn(ctx, ATTN_FLOAT32, WIDTH, WIDTH, 9, 0.2), *dx = model_tensor(ctx, ATTN_FLOAT32, WIDTH, WIDTH);
            attn_tensor *y = model_tensor(ctx, ATTN_FLOAT32, WIDTH, WIDTH), *dy = drawn(ctx, ATTN_FLOAT32, WIDTH, WIDTH, 10, 1);
            int64_t lengths[WIDTH] = {0};
            for (int64_t i = 0; i < 11; i++) lengths[i * 2] = 3;
            attn_layout *layout = layout_of(ctx, WIDTH, lengths);
            attn_tape *tape = NULL;
            OK(ctx, attn_tape_create(ctx, &tape));
            OK(ctx, attn_tape_begin(ctx, tape, NULL));
            OK(ctx, attn_tape_watch(ctx, tape, x, dx));
            OK(ctx, attn_recurrent(ctx, tape, x, x, layout, &o, x, NULL, y, NULL, NULL));
            const attn_tensor *const outputs[] = {y}, *const arriving[] = {dy};
            OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, 0, NULL));
            d[b] = malloc(sizeof(float) * WIDTH * WIDTH);
            assert_non_null(d[b]);
            memcpy(d[b], attn_tensor_data(dx), sizeof(float) * WIDTH * WIDTH);
            attn_tensor *const all[] = {x, dx, y, dy};
            for (int t = 0; t < 4; t++) attn_tensor_free(all[t]);
            attn_layout_free(layout);
            attn_tape_free(tape);
            attn_context_free(ctx);
        }
        for (int i = 0; i < WIDTH * WIDTH; i++) assert_true(fabs((double)d[0][i] - (double)d[1][i]) < 1e-5);
        for (int b = 0; b < 2; b++) free(d[b]);
    }
}

/* hidden and cell are one tensor, and the state after a part goes into the next part */
static attn_status two_parts(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_recurrent_options o = options_of(ATTN_RECURRENT_LSTM, *(const int32_t *)what);
    attn_status status =
        attn_recurrent(g->ctx, tape, g->input[0], g->input[1], NULL, &o, g->input[2], g->input[2], g->other[0], g->other[1], g->other[2]);
    if (status != ATTN_OK) return status;
    return attn_recurrent(g->ctx, tape, g->input[3], g->input[1], NULL, &o, g->other[1], g->other[2], g->output, NULL, NULL);
}

static void test_more_gradients(void **state)
{
    (void)state;
    for (int32_t reverse = 0; reverse < 2; reverse++) {
        gradient_check g;
        gradient_open(&g, 50 + (uint64_t)reverse);
        gradient_input(&g, 2, SHAPE(3, 3), -1, 1);
        gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(3, 3), 0, 1);
        gradient_output(&g, 2, SHAPE(3, 3));
        gradient_expect(&g, one_tensor, &reverse);
        gradient_close(&g);
        gradient_open(&g, 60 + (uint64_t)reverse);
        gradient_input(&g, 2, SHAPE(3, 8), -1, 1);
        gradient_input(&g, 2, SHAPE(8, 2), -1, 1);
        gradient_input(&g, 2, SHAPE(1, 2), -1, 1);
        gradient_input(&g, 2, SHAPE(2, 8), -1, 1);
        gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(3, 2), 0, 1);
        for (int i = 0; i < 2; i++) gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(1, 2), 0, 1);
        gradient_output(&g, 2, SHAPE(2, 2));
        gradient_expect(&g, two_parts, &reverse);
        gradient_close(&g);
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* one step of the definition: h, c [width] in place */
static void step(int32_t kind, int64_t width, const attn_tensor *x, int64_t row, const attn_tensor *weight, double *h, double *c)
{
    double u[4 * 3];
    int64_t wide = (kind == ATTN_RECURRENT_LSTM ? 4 : 1) * width;
    for (int64_t i = 0; i < wide; i++) {
        u[i] = model_get(x, row * wide + i);
        for (int64_t j = 0; j < width; j++) u[i] += model_get(weight, i * width + j) * h[j];
    }
    for (int64_t j = 0; j < width; j++) {
        if (kind == ATTN_RECURRENT_LSTM) {
            c[j] = sigmoid(u[width + j]) * c[j] + sigmoid(u[j]) * tanh(u[2 * width + j]);
            h[j] = sigmoid(u[3 * width + j]) * tanh(c[j]);
        } else {
            h[j] = tanh(u[j]);
        }
    }
}

static void test_formula(void **state)
{
    enum { WIDTH = 3, COUNT = 3, ROWS = 9 };
    static const int64_t lengths[COUNT] = {5, 0, 4};
    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        attn_recurrent_options o = options_of(i / 2, i % 2);
        const int lstm = o.kind == ATTN_RECURRENT_LSTM;
        attn_context *ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
        attn_tensor *x = drawn(ctx, ATTN_FLOAT64, ROWS, lstm ? 4 * WIDTH : WIDTH, 1, 1);
        attn_tensor *weight = drawn(ctx, ATTN_FLOAT64, lstm ? 4 * WIDTH : WIDTH, WIDTH, 2, 1);
        attn_tensor *hidden = drawn(ctx, ATTN_FLOAT64, COUNT, WIDTH, 3, 1), *cell = drawn(ctx, ATTN_FLOAT64, COUNT, WIDTH, 4, 1);
        attn_tensor *y = model_tensor(ctx, ATTN_FLOAT64, ROWS, WIDTH);
        attn_tensor *last = model_tensor(ctx, ATTN_FLOAT64, COUNT, WIDTH), *last_cell = model_tensor(ctx, ATTN_FLOAT64, COUNT, WIDTH);
        attn_layout *layout = layout_of(ctx, COUNT, lengths);
        OK(ctx, attn_recurrent(ctx, NULL, x, weight, layout, &o, hidden, lstm ? cell : NULL, y, last, lstm ? last_cell : NULL));
        for (int64_t s = 0, start = 0; s < COUNT; start += lengths[s++]) {
            double h[WIDTH], c[WIDTH];
            for (int64_t j = 0; j < WIDTH; j++) h[j] = model_get(hidden, s * WIDTH + j), c[j] = model_get(cell, s * WIDTH + j);
            for (int64_t t = 0; t < lengths[s]; t++) {
                int64_t row = start + (o.reverse ? lengths[s] - 1 - t : t);
                step(o.kind, WIDTH, x, row, weight, h, c);
                for (int64_t j = 0; j < WIDTH; j++) assert_true(fabs(model_get(y, row * WIDTH + j) - h[j]) < 1e-14);
            }
            for (int64_t j = 0; j < WIDTH; j++) {
                assert_true(fabs(model_get(last, s * WIDTH + j) - h[j]) < 1e-14);
                if (lstm) assert_true(fabs(model_get(last_cell, s * WIDTH + j) - c[j]) < 1e-14);
            }
        }
        attn_tensor *const all[] = {x, weight, hidden, cell, y, last, last_cell};
        for (int t = 0; t < 7; t++) attn_tensor_free(all[t]);
        attn_layout_free(layout);
        attn_context_free(ctx);
    }
}

/* rows of part p of every sequence, moved between a tensor of all and one of the part */
static void move_part(const attn_tensor *all, int64_t length, int64_t at, int64_t rows, attn_tensor *part, int back)
{
    int64_t width = attn_tensor_extent(all, 1), count = attn_tensor_extent(all, 0) / length;
    for (int64_t s = 0; s < count; s++)
        for (int64_t i = 0; i < rows * width; i++) {
            int64_t whole = (s * length + at) * width + i, piece = s * rows * width + i;
            if (back) assert_true(fabs(model_get(all, whole) - model_get(part, piece)) < 1e-6);
            if (!back) model_set(part, piece, model_get(all, whole));
        }
}

/* sequences in parts, down to single rows, the state carried on: the numbers of one pass, on both backends */
static void test_carried(void **state)
{
    enum { COUNT = 5, LENGTH = 12, WIDTH = 17 };
    static const int64_t parts[] = {1, 1, 7, 0, 3}; /* in time */
    (void)state;
    for (int32_t i = 0; i < 8; i++) {
        attn_recurrent_options o = options_of(i / 2 % 2, i / 4);
        const int lstm = o.kind == ATTN_RECURRENT_LSTM;
        const int64_t wide = lstm ? 4 * WIDTH : WIDTH;
        attn_context *ctx = model_context(i % 2, 2, 0);
        attn_tensor *x = drawn(ctx, ATTN_FLOAT32, COUNT * LENGTH, wide, 5, 1), *weight = drawn(ctx, ATTN_FLOAT32, wide, WIDTH, 6, 0.3);
        attn_tensor *y = model_tensor(ctx, ATTN_FLOAT32, COUNT * LENGTH, WIDTH), *h[2], *c[2];
        for (int k = 0; k < 2; k++) {
            h[k] = drawn(ctx, ATTN_FLOAT32, COUNT, WIDTH, 7, 0);
            c[k] = lstm ? drawn(ctx, ATTN_FLOAT32, COUNT, WIDTH, 7, 0) : NULL;
        }
        attn_tensor *last = model_tensor(ctx, ATTN_FLOAT32, COUNT, WIDTH);
        attn_layout *layout = layout_of(ctx, COUNT, (const int64_t[]){LENGTH, LENGTH, LENGTH, LENGTH, LENGTH});
        OK(ctx, attn_recurrent(ctx, NULL, x, weight, layout, &o, NULL, NULL, y, last, NULL));
        int64_t done = 0;
        int now = 0;
        for (size_t p = 0; p < sizeof parts / sizeof *parts; done += parts[p++], now = !now) {
            int64_t n = parts[p], at = o.reverse ? LENGTH - done - n : done;
            attn_tensor *px = model_tensor(ctx, ATTN_FLOAT32, COUNT * n, wide), *py = model_tensor(ctx, ATTN_FLOAT32, COUNT * n, WIDTH);
            move_part(x, LENGTH, at, n, px, 0);
            OK(ctx, attn_layout_set_lengths(ctx, layout, COUNT, (const int64_t[]){n, n, n, n, n}, at));
            OK(ctx, attn_recurrent(ctx, NULL, px, weight, layout, &o, h[now], c[now], py, h[!now], c[!now]));
            move_part(y, LENGTH, at, n, py, 1);
            attn_tensor_free(px);
            attn_tensor_free(py);
        }
        assert_int_equal(done, LENGTH);
        move_part(last, 1, 0, 1, h[now], 1);
        attn_tensor *const all[] = {x, weight, y, h[0], h[1], c[0], c[1], last};
        for (int t = 0; t < 8; t++) attn_tensor_free(all[t]);
        attn_layout_free(layout);
        attn_context_free(ctx);
    }
}

/* after the first rounds nothing is allocated, with a tape or without */
static void test_nothing_is_allocated(void **state)
{
    enum { COUNT = 3, ROWS = 60, WIDTH = 40 };
    test_allocator allocator = {0};
    (void)state;
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 2);
    attn_tensor *x = drawn(ctx, ATTN_FLOAT32, ROWS, 4 * WIDTH, 5, 1), *weight = drawn(ctx, ATTN_FLOAT32, 4 * WIDTH, WIDTH, 6, 0.3);
    attn_tensor *dx = model_tensor(ctx, ATTN_FLOAT32, ROWS, 4 * WIDTH), *dw = model_tensor(ctx, ATTN_FLOAT32, 4 * WIDTH, WIDTH);
    attn_tensor *y = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *dy = drawn(ctx, ATTN_FLOAT32, ROWS, WIDTH, 8, 1);
    attn_layout *layout = layout_of(ctx, COUNT, (const int64_t[]){30, 10, 20});
    attn_tape *tape = NULL;
    OK(ctx, attn_tape_create(ctx, &tape));
    int64_t before = 0;
    for (int round = 0; round < 5; round++) {
        if (round == 2) before = model_allocations(ctx);
        OK(ctx, attn_recurrent(ctx, NULL, x, weight, layout, NULL, NULL, NULL, y, NULL, NULL));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        OK(ctx, attn_tape_watch(ctx, tape, weight, dw));
        OK(ctx, attn_recurrent(ctx, tape, x, weight, layout, NULL, NULL, NULL, y, NULL, NULL));
        const attn_tensor *const outputs[] = {y}, *const arriving[] = {dy};
        OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, 0, NULL));
    }
    assert_int_equal(model_allocations(ctx), before);
    attn_tensor *const all[] = {x, weight, dx, dw, y, dy};
    for (int t = 0; t < 6; t++) attn_tensor_free(all[t]);
    attn_layout_free(layout);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients),  cmocka_unit_test(test_more_gradients),
                                       cmocka_unit_test(test_one_tensor), cmocka_unit_test(test_formula),
                                       cmocka_unit_test(test_carried),    cmocka_unit_test(test_nothing_is_allocated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* linear, linear_gated and their backward: BLAS against the two references */
#include <attn/operations.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/crosscheck.h"

typedef struct linear_shape {
    int64_t rows, in, out, gap;
    int32_t activation; /* -1: none */
    int bias, keep, add;
    double rate;
} linear_shape;

static const linear_shape shapes[] = {
    {7, 13, 5, 0, -1, 1, 1, 0, 0},
    {7, 13, 5, 0, ATTN_ACTIVATION_GELU, 1, 1, 1, 0},
    {0, 13, 5, 0, ATTN_ACTIVATION_RELU, 1, 1, 0, 0.5},
    {7, 0, 5, 0, ATTN_ACTIVATION_TANH, 1, 1, 1, 0},
    {7, 13, 0, 0, -1, 1, 0, 0, 0},
    {1, 1, 1, 0, ATTN_ACTIVATION_SIGMOID, 0, 1, 0, 0},
    {1, 65, 129, 3, ATTN_ACTIVATION_SWISH, 1, 1, 1, 0.3},
    {2, 64, 64, 0, ATTN_ACTIVATION_IDENTITY, 0, 0, 0, 0.1},
    {64, 64, 64, 0, ATTN_ACTIVATION_GELU_TANH, 1, 1, 1, 0.5},
    {65, 63, 67, 5, ATTN_ACTIVATION_GELU, 0, 0, 1, 0.9},
    {131, 157, 31, 1, ATTN_ACTIVATION_RELU, 1, 0, 0, 1},
    {3, 1031, 217, 0, -1, 1, 0, 1, 0.2},
    {301, 2, 3, 2, ATTN_ACTIVATION_SWISH, 1, 1, 0, 0.2},
    {257, 64, 131, 0, ATTN_ACTIVATION_TANH, 1, 1, 1, 0},
    {9, 5, 600, 0, -1, 1, 0, 0, 0}, /* the weight is frozen, the bias is not: columns are summed 256 at a time */
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static attn__dropout drop_of(crosscheck *c, const linear_shape *s)
{
    attn__dropout drop = {s->rate, 17, 0x1234567890, 3, {NULL, NULL}};
    drop.places = places(c, s->rows, 37);
    return drop;
}

static void forward(crosscheck *c, const linear_shape *s, int gated)
{
    c->gap = s->gap;
    int64_t lines = gated ? 2 * s->out : s->out;
    trio x = input_rows(c, s->rows, s->in, -1, 1), w = input_rows(c, lines, s->in, -1, 1), b = input_rows(c, 1, lines, -1, 1);
    trio y = result_rows(c, s->rows, s->out, 0), u = result_rows(c, s->rows, lines, 0);
    attn__dropout drop = drop_of(c, s);
    attn__activation act = {s->activation, 0, 1.5, NULL};
    for (int run = 0; run < RUNS; run++) {
        const view *bias = s->bias ? &b.at[run] : NULL;
        const attn__activation *a = s->activation >= 0 ? &act : NULL;
        const attn__dropout *d = s->rate > 0 ? &drop : NULL;
        attn_status status =
            gated ? c->table[run]->linear_gated(c->ctx[run], &x.at[run], &w.at[run], bias, a, d, &y.at[run], &u.at[run])
                  : c->table[run]->linear(c->ctx[run], &x.at[run], &w.at[run], bias, a, d, &y.at[run], s->keep ? &u.at[run] : NULL);
        assert_int_equal(status, ATTN_OK);
    }
    expect_close(c, gated ? "linear_gated" : "linear", (double)s->in + 1, &y);
    if (s->keep || gated) expect_close(c, "linear", (double)s->in + 1, &u);
}

static void linear_case(crosscheck *c, const void *what)
{
    forward(c, what, 0);
}
static void gated_case(crosscheck *c, const void *what)
{
    forward(c, what, 1);
}

static void d_input_case(crosscheck *c, const void *what)
{
    const linear_shape *s = what;
    c->gap = s->gap;
    trio dy = input_rows(c, s->rows, s->out, -1, 1), w = input_rows(c, s->out, s->in, -1, 1);
    trio dx = result_rows(c, s->rows, s->in, s->add);
    for (int run = 0; run < RUNS; run++) {
        assert_int_equal(c->table[run]->linear_d_input(c->ctx[run], &dy.at[run], &w.at[run], s->add, &dx.at[run]), ATTN_OK);
    }
    expect_close(c, "linear_d_input", (double)s->out + 1, &dx);
}

static void d_weight_case(crosscheck *c, const void *what)
{
    const linear_shape *s = what;
    c->gap = s->gap;
    trio dy = input_rows(c, s->rows, s->out, -1, 1), x = input_rows(c, s->rows, s->in, -1, 1);
    trio dw = result_rows(c, s->out, s->in, 1), db = result_rows(c, 1, s->out, 1);
    for (int run = 0; run < RUNS; run++) {
        view *to_w = s->keep ? &dw.at[run] : NULL, *to_b = s->bias ? &db.at[run] : NULL;
        assert_int_equal(c->table[run]->linear_d_weight(c->ctx[run], &dy.at[run], &x.at[run], to_w, to_b), ATTN_OK);
    }
    expect_close(c, "linear_d_weight", (double)s->rows + 1, &dw);
    expect_close(c, "linear_d_weight", (double)s->rows + 1, &db);
}

static void run_shapes(crosscheck_case *run, int nudges)
{
    crosscheck c;
    crosscheck_open(&c);
    for (int i = 0; i < SHAPES; i++) crosscheck_run(&c, run, &shapes[i], i == 0 ? nudges : 0);
    crosscheck_close(&c);
}

static void test_linear(void **state)
{
    (void)state, run_shapes(linear_case, 3);
}
static void test_gated(void **state)
{
    (void)state, run_shapes(gated_case, 3);
}
static void test_d_input(void **state)
{
    (void)state, run_shapes(d_input_case, 2);
}
static void test_d_weight(void **state)
{
    (void)state, run_shapes(d_weight_case, 4);
}

/* activations alone, with their own backward */
typedef struct act_shape {
    int64_t rows, width, gap;
    double low, high, rate;
    int learned, add, in_place;
} act_shape;

static const act_shape act_shapes[] = {
    {5, 7, 0, -3, 3, 0, 0, 0, 0},    {0, 7, 0, -3, 3, 0, 1, 0, 0},        {4, 0, 0, -3, 3, 0, 1, 1, 0},    {1, 1, 0, -3, 3, 0, 1, 1, 0},
    {9, 65, 3, -3, 3, 0.4, 1, 1, 0}, {33, 127, 0, -30, 30, 0.1, 0, 0, 1}, {2, 4099, 1, -6, 6, 0, 1, 0, 1}, {3, 64, 0, -90, 90, 0, 1, 0, 0},
};

static int32_t kind; /* of the activation under test */

static void activation_case(crosscheck *c, const void *what)
{
    const act_shape *s = what;
    c->gap = s->gap;
    trio u = input_rows(c, s->rows, s->width, s->low, s->high), dy = input_rows(c, s->rows, s->width, -1, 1);
    trio beta = input_rows(c, 1, 1, 1, 2), y = result_rows(c, s->rows, s->width, 0);
    trio du = result_rows(c, s->rows, s->width, s->add), dbeta = result_rows(c, 1, 1, 1);
    attn__dropout drop = {s->rate, 5, 99, 1, {NULL, NULL}};
    drop.places = places(c, s->rows, 4);
    for (int run = 0; run < RUNS; run++) {
        attn__activation act = {kind, 0, 0.75, s->learned ? &beta.at[run] : NULL};
        view *to = s->in_place ? &dy.at[run] : &du.at[run];
        assert_int_equal(c->table[run]->activation(c->ctx[run], &act, &u.at[run], &drop, &y.at[run]), ATTN_OK);
        assert_int_equal(c->table[run]->activation_back(c->ctx[run], &act, &u.at[run], &drop, &dy.at[run], s->in_place ? 0 : s->add, to,
                                                        s->learned ? &dbeta.at[run] : NULL),
                         ATTN_OK);
    }
    expect_close(c, "activation", 1, &y);
    expect_close(c, "activation_back", 1, s->in_place ? &dy : &du);
    expect_close(c, "activation_back", (double)(s->rows * s->width), &dbeta);
}

static void gate_case(crosscheck *c, const void *what)
{
    const act_shape *s = what;
    c->gap = s->gap;
    trio u = input_rows(c, s->rows, 2 * s->width, s->low, s->high), dy = input_rows(c, s->rows, s->width, -1, 1);
    trio beta = input_rows(c, 1, 1, 1, 2), du = result_rows(c, s->rows, 2 * s->width, 0), dbeta = result_rows(c, 1, 1, 1);
    attn__dropout drop = {s->rate, 5, 99, 1, {NULL, NULL}};
    drop.places = places(c, s->rows, 4);
    for (int run = 0; run < RUNS; run++) {
        attn__activation act = {kind, 0, 0.75, s->learned ? &beta.at[run] : NULL};
        assert_int_equal(
            c->table[run]->gate_back(c->ctx[run], &act, &u.at[run], &drop, &dy.at[run], &du.at[run], s->learned ? &dbeta.at[run] : NULL),
            ATTN_OK);
    }
    expect_close(c, "gate_back", 1, &du);
    expect_close(c, "gate_back", (double)(s->rows * s->width), &dbeta);
}

static void run_activations(crosscheck_case *run, int nudges)
{
    crosscheck c;
    crosscheck_open(&c);
    for (kind = ATTN_ACTIVATION_IDENTITY; kind <= ATTN_ACTIVATION_TANH; kind++) {
        int smooth = kind != ATTN_ACTIVATION_RELU && kind != ATTN_ACTIVATION_TANH && kind != ATTN_ACTIVATION_SIGMOID; /* no flat parts */
        for (size_t i = 0; i < sizeof act_shapes / sizeof act_shapes[0]; i++) {
            crosscheck_run(&c, run, &act_shapes[i], i == 0 && smooth ? nudges : 0);
        }
    }
    crosscheck_close(&c);
}

static void test_activation(void **state)
{
    (void)state, run_activations(activation_case, 2);
}
static void test_gate_back(void **state)
{
    (void)state, run_activations(gate_case, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),   cmocka_unit_test(test_gated),      cmocka_unit_test(test_d_input),
        cmocka_unit_test(test_d_weight), cmocka_unit_test(test_activation), cmocka_unit_test(test_gate_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

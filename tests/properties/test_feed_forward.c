/* The feed-forward network (5.10): row by row, and one linear map without its activation. Its activations' shapes. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "core/guard.h"
#include "modules/feed_forward.h"
#include "support/compare.h"
#include "support/property.h"
#include "tensor/parameters.h"

/* rows, width, hidden width */
static const int64_t sizes[][3] = {{1, 1, 1}, {5, 3, 12}, {13, 8, 32}, {70, 17, 65}};
enum { SIZES = sizeof sizes / sizeof *sizes };

typedef struct net {
    attn__feed_forward_module module;
    attn_parameters *set;
} net;

static void net_open(property *p, net *n, int64_t width, int64_t hidden, int32_t activation, int32_t gated)
{
    const attn__start_rule rule = {ATTN_INITIALISATION_XAVIER, 0};
    const attn__feed_forward_options o = {width, hidden, activation, gated, 1, 0, 1, 0};
    OK(p->ctx, attn__enter(p->ctx));
    OK(p->ctx, attn__parameters_create(p->ctx, p->dtype, &n->set));
    const attn__scope scope = {p->ctx, n->set, ""};
    OK(p->ctx, attn__feed_forward_plan(&scope, "ff", &o, &rule, 1, &n->module));
    OK(p->ctx, attn__parameters_finish(p->ctx, n->set));
    attn__leave(p->ctx, ATTN_OK);
    model_scramble(n->set, p->seed);
}

static attn_tensor *net_run(property *p, const net *n, const attn_tensor *x)
{
    const attn__call call = {p->ctx, NULL, n->set};
    const attn__places none = {NULL, NULL};
    const int64_t rows = attn_tensor_extent(x, 0), width = property_width(x);
    attn_tensor *y = property_rows(p, rows, width);
    attn__value in, out;
    OK(p->ctx, attn__enter(p->ctx));
    OK(p->ctx, attn__tape_temporary(p->ctx, NULL, rows, width, p->dtype, &in));
    OK(p->ctx, attn__tape_temporary(p->ctx, NULL, rows, width, p->dtype, &out));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) element_set(&in.at, r, 0, c, property_get(x, r, c));
    OK(p->ctx, attn__feed_forward_run(&call, &n->module, &in, none, &out));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) property_set(y, r, c, element_get(&out.at, r, 0, c));
    attn__leave(p->ctx, ATTN_OK);
    return y;
}

/* (5.11): each row by itself: rows in another order, alone, and beside a row that is not a number. BLAS may round a row by its place. */
static void row_by_row(property *p)
{
    for (int s = 0; s < SIZES; s++)
        for (int32_t gated = 0; gated < 2; gated++) {
            const int64_t rows = sizes[s][0], width = sizes[s][1];
            const double terms = p->ground == GROUND_BLAS ? 60 : 0;
            int64_t order[100];
            net n;
            net_open(p, &n, width, sizes[s][2], ATTN_ACTIVATION_GELU, gated);
            attn_tensor *x = property_random(p, rows, width, -2, 2), *y = net_run(p, &n, x);
            property_permutation(p, rows, order);
            CLOSE(p, net_run(p, &n, property_reordered(p, x, order)), property_reordered(p, y, order), terms);
            for (int64_t r = 0; r < rows; r++) {
                attn_tensor *alone = property_rows(p, 1, width), *want = property_rows(p, 1, width);
                for (int64_t c = 0; c < width; c++)
                    property_set(alone, 0, c, property_get(x, r, c)), property_set(want, 0, c, property_get(y, r, c));
                CLOSE(p, net_run(p, &n, alone), want, terms);
            }
            for (int64_t c = 0; c < width; c++) property_set(x, rows / 2, c, NAN);
            attn_tensor *beside = net_run(p, &n, x);
            for (int64_t r = 0; r < rows; r++) HOLDS(p, isnan(property_get(beside, r, 0)) == (r == rows / 2));
            for (int64_t r = 0; r < rows; r++) HOLDS(p, r == rows / 2 || property_same_row(beside, r, y, r));
            attn__parameters_release(n.set);
            property_sweep(p, 0);
        }
}

static void test_row_by_row(void **state)
{
    (void)state, property_run(row_by_row, 2);
}

/* Section 5.3.1: with the identity it is x (W2 W1)' + W2 b1 + b2; with an activation it is not. */
static void linear_without_activation(property *p)
{
    for (int s = 0; s < SIZES; s++)
        for (int32_t activation = ATTN_ACTIVATION_IDENTITY; activation <= ATTN_ACTIVATION_TANH; activation++) {
            const int64_t rows = sizes[s][0], width = sizes[s][1], hidden = sizes[s][2];
            net n;
            net_open(p, &n, width, hidden, activation, 0);
            attn_tensor *x = property_random(p, rows, width, -2, 2), *want = property_rows(p, rows, width);
            attn_tensor *second = property_parameter(n.set, "ff.output.weight"), *b1 = property_parameter(n.set, "ff.input.bias");
            attn_tensor *b2 = property_parameter(n.set, "ff.output.bias"), *bias = model_tensor(p->ctx, p->dtype, width, 0);
            attn_tensor *matrix = property_product(p, second, property_parameter(n.set, "ff.input.weight"));
            for (int64_t c = 0; c < width; c++) {
                double sum = model_get(b2, c);
                for (int64_t h = 0; h < hidden; h++) sum += property_get(second, c, h) * model_get(b1, h);
                model_set(bias, c, sum);
            }
            OK(p->ctx, attn_linear(p->ctx, NULL, x, matrix, bias, want));
            attn_tensor *y = net_run(p, &n, x);
            if (activation == ATTN_ACTIVATION_IDENTITY)
                CLOSE(p, y, want, 400);
            else
                HOLDS(p, s == 0 || property_apart(y, want) > 1e-3); /* one number may lie where ReLU is linear */
            attn_tensor_free(bias);
            attn__parameters_release(n.set);
            property_sweep(p, 0);
        }
}

static void test_linear_without_activation(void **state)
{
    (void)state, property_run(linear_without_activation, 2);
}

static attn_tensor *act(property *p, int32_t activation, const attn_tensor *x, double beta)
{
    attn_tensor *y = property_copy(p, x), *one = model_tensor(p->ctx, p->dtype, 1, 0);
    model_set(one, 0, beta);
    OK(p->ctx, attn_activation(p->ctx, NULL, activation, x, activation == ATTN_ACTIVATION_SWISH ? one : NULL, y));
    attn_tensor_free(one);
    return y;
}

/* (5.12), (5.13) over [-40, 40]: act(x) - act(-x) = x for GELU and Swish; Swish is x / 2 at beta 0, ReLU at a large beta, and near GELU at
   1.702; both forms of GELU are close and not the same; ReLU is scaled by what scales x; sigmoid and tanh are one function. */
static void activations(property *p)
{
    enum { POINTS = 1601 };
    attn_tensor *x = property_rows(p, 1, POINTS), *opposite = property_rows(p, 1, POINTS), *twice = property_rows(p, 1, POINTS);
    for (int64_t i = 0; i < POINTS; i++) {
        property_set(x, 0, i, (double)(i - POINTS / 2) / 20);
        property_set(opposite, 0, i, -property_get(x, 0, i));
        property_set(twice, 0, i, 2 * property_get(x, 0, i));
    }
    const struct {
        int32_t kind;
        double beta;
    } odd[] = {{ATTN_ACTIVATION_GELU, 1}, {ATTN_ACTIVATION_GELU_TANH, 1}, {ATTN_ACTIVATION_SWISH, 1}, {ATTN_ACTIVATION_SWISH, 0.3}};
    for (int k = 0; k < 4; k++) {
        attn_tensor *y = act(p, odd[k].kind, x, odd[k].beta), *z = act(p, odd[k].kind, opposite, odd[k].beta);
        for (int64_t i = 0; i < POINTS; i++) NEAR(property_get(y, 0, i) - property_get(z, 0, i), property_get(x, 0, i), 400 * p->unit);
    }
    attn_tensor *relu = act(p, ATTN_ACTIVATION_RELU, x, 1), *half = act(p, ATTN_ACTIVATION_SWISH, x, 0);
    attn_tensor *steep = act(p, ATTN_ACTIVATION_SWISH, x, 1e6), *gelu = act(p, ATTN_ACTIVATION_GELU, x, 1);
    attn_tensor *near = act(p, ATTN_ACTIVATION_SWISH, x, 1.702), *form = act(p, ATTN_ACTIVATION_GELU_TANH, x, 1);
    attn_tensor *sigmoid = act(p, ATTN_ACTIVATION_SIGMOID, twice, 1), *tangent = act(p, ATTN_ACTIVATION_TANH, x, 1);
    attn_tensor *double_relu = act(p, ATTN_ACTIVATION_RELU, twice, 1);
    double forms = 0;
    for (int64_t i = 0; i < POINTS; i++) {
        NEAR(property_get(half, 0, i), property_get(x, 0, i) / 2, 0);
        NEAR(property_get(steep, 0, i), property_get(relu, 0, i), 1e-6);
        NEAR(property_get(near, 0, i), property_get(gelu, 0, i), 0.0204);
        HOLDS(p, property_get(double_relu, 0, i) == 2 * property_get(relu, 0, i));
        NEAR(property_get(tangent, 0, i), 2 * property_get(sigmoid, 0, i) - 1, 16 * p->unit);
        forms = fmax(forms, fabs(property_get(form, 0, i) - property_get(gelu, 0, i)));
    }
    HOLDS(p, forms > 1e-4 && forms < 1e-3);
}

static void test_activations(void **state)
{
    (void)state, property_run(activations, 1);
}

/* The largest numbers lie where an activation is 0 or x: so say its slopes, whatever Swish's beta, whose own gradient is 0 there. */
static void far_slopes(property *p)
{
    static const int32_t kinds[] = {ATTN_ACTIVATION_RELU, ATTN_ACTIVATION_GELU, ATTN_ACTIVATION_GELU_TANH, ATTN_ACTIVATION_SWISH};
    const double most = p->dtype == ATTN_FLOAT32 ? (double)FLT_MAX / 4 : DBL_MAX / 4;
    attn_tape *tape;
    OK(p->ctx, attn_tape_create(p->ctx, &tape));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int steep = 0; steep < 2; steep++) {
            int swish = kinds[k] == ATTN_ACTIVATION_SWISH;
            attn_tensor *x = property_rows(p, 1, 2), *dx = property_rows(p, 1, 2), *y = property_rows(p, 1, 2);
            attn_tensor *beta = model_tensor(p->ctx, p->dtype, 1, 0), *dbeta = model_tensor(p->ctx, p->dtype, 1, 0);
            property_set(x, 0, 0, most), property_set(x, 0, 1, -most);
            model_set(beta, 0, steep ? 16 : 1);
            OK(p->ctx, attn_tape_begin(p->ctx, tape, NULL));
            OK(p->ctx, attn_tape_watch(p->ctx, tape, x, dx));
            OK(p->ctx, attn_tape_watch(p->ctx, tape, beta, dbeta));
            OK(p->ctx, attn_activation(p->ctx, tape, kinds[k], x, swish ? beta : NULL, y));
            OK(p->ctx, attn_tape_backward(p->ctx, tape, 1, (const attn_tensor *const[]){y}, NULL, 0, NULL));
            HOLDS(p, property_get(y, 0, 0) == most && property_get(y, 0, 1) == 0);
            HOLDS(p, property_get(dx, 0, 0) == 1 && property_get(dx, 0, 1) == 0 && model_get(dbeta, 0) == 0);
            attn_tensor_free(beta);
            attn_tensor_free(dbeta);
        }
    attn_tape_free(tape);
}

static void test_far_slopes(void **state)
{
    (void)state, property_run(far_slopes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_by_row),
        cmocka_unit_test(test_linear_without_activation),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_far_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

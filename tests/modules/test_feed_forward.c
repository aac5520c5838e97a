#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "core/guard.h"
#include "modules/feed_forward.h"
#include "support/model.h"
#include "tensor/parameters.h"

/* The feed-forward network (5.10) against a plain loop of its equation, all activations, gated or not. */
enum { ROWS = 7, WIDTH = 5, HIDDEN = 6 };

static double act(int32_t activation, double beta, double u)
{
    switch (activation) {
    case ATTN_ACTIVATION_RELU: return u > 0 ? u : 0;
    case ATTN_ACTIVATION_GELU: return 0.5 * u * (1 + erf(u / sqrt(2)));
    case ATTN_ACTIVATION_GELU_TANH: return 0.5 * u * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (u + 0.044715 * u * u * u)));
    case ATTN_ACTIVATION_SWISH: return u / (1 + exp(-beta * u));
    case ATTN_ACTIVATION_SIGMOID: return 1 / (1 + exp(-u));
    case ATTN_ACTIVATION_TANH: return tanh(u);
    default: return u;
    }
}

static double parameter(attn_parameters *set, const char *name, int64_t element)
{
    int64_t index = attn_parameters_find(set, name);
    return index < 0 ? 0 : model_get(attn_parameters_tensor(set, index), element);
}

static double inner(attn_parameters *set, const char *weight, const char *bias, const double *x, int64_t row, int64_t n)
{
    double sum = parameter(set, bias, row);
    for (int64_t j = 0; j < n; j++) sum += parameter(set, weight, row * n + j) * x[j];
    return sum;
}

static void expect_row(attn_parameters *set, const attn__feed_forward_options *o, const double *x, const double *y, double within)
{
    double hidden[HIDDEN];
    const char *prefix = o->gated ? "ff.gate" : "ff.input";
    double beta = o->learned_beta ? parameter(set, "ff.beta", 0) : o->beta;
    char weight[32], bias[32];
    strcpy(weight, prefix);
    strcpy(bias, prefix);
    strcat(weight, ".weight");
    strcat(bias, ".bias");
    for (int64_t h = 0; h < HIDDEN; h++) {
        hidden[h] = act(o->activation, beta, inner(set, weight, bias, x, h, WIDTH));
        if (o->gated) hidden[h] *= inner(set, "ff.up.weight", "ff.up.bias", x, h, WIDTH);
    }
    for (int64_t j = 0; j < WIDTH; j++) {
        double want = inner(set, "ff.output.weight", "ff.output.bias", hidden, j, HIDDEN);
        if (!(fabs(y[j] - want) <= within))
            fail_msg("activation %d, gated %d: got %.17g, expected %.17g", o->activation, o->gated, y[j], want);
    }
}

static void run_case(int32_t backend, const attn__feed_forward_options *o)
{
    const int32_t dtype = backend == ATTN_BACKEND_BLAS ? ATTN_FLOAT32 : ATTN_FLOAT64;
    attn_context *ctx = model_context(backend, 2, 0);
    attn_parameters *set = NULL;
    attn__feed_forward_module module;
    const attn__start_rule rule = {ATTN_INITIALISATION_XAVIER, 0};
    OK(ctx, attn__enter(ctx));
    OK(ctx, attn__parameters_create(ctx, dtype, &set));
    const attn__scope scope = {ctx, set, ""};
    OK(ctx, attn__feed_forward_plan(&scope, "ff", o, &rule, 1, &module));
    OK(ctx, attn__parameters_finish(ctx, set));
    model_scramble(set, 3);
    int64_t want = 2 * WIDTH * HIDDEN + (o->bias ? HIDDEN + WIDTH : 0) + o->learned_beta;
    if (o->gated) want += WIDTH * HIDDEN + (o->bias ? HIDDEN : 0);
    assert_int_equal(attn_parameters_elements(set), want);

    const attn__call call = {ctx, NULL, set};
    attn__value x, y;
    const attn__places none = {NULL, NULL};
    random_state random = {4};
    OK(ctx, attn__tape_temporary(ctx, NULL, ROWS, WIDTH, dtype, &x));
    OK(ctx, attn__tape_temporary(ctx, NULL, ROWS, WIDTH, dtype, &y));
    random_view(&random, &x.at, -2, 2);
    OK(ctx, attn__feed_forward_run(&call, &module, &x, none, &y));
    for (int64_t r = 0; r < ROWS; r++) {
        double in[WIDTH], out[WIDTH];
        for (int64_t j = 0; j < WIDTH; j++) {
            in[j] = dtype == ATTN_FLOAT64 ? ((double *)x.at.data)[r * x.at.row_stride + j]
                                          : (double)((float *)x.at.data)[r * x.at.row_stride + j];
            out[j] = dtype == ATTN_FLOAT64 ? ((double *)y.at.data)[r * y.at.row_stride + j]
                                           : (double)((float *)y.at.data)[r * y.at.row_stride + j];
        }
        expect_row(set, o, in, out, backend == ATTN_BACKEND_BLAS ? 1e-5 : 1e-13);
    }
    attn__leave(ctx, ATTN_OK);
    attn__parameters_release(set);
    attn_context_free(ctx);
}

static void test_equation(void **state)
{
    (void)state;
    for (int32_t activation = ATTN_ACTIVATION_IDENTITY; activation <= ATTN_ACTIVATION_TANH; activation++)
        for (int which = 0; which < 16; which++) {
            const int32_t learned = (which & 4) && activation == ATTN_ACTIVATION_SWISH;
            const attn__feed_forward_options o = {WIDTH, HIDDEN, activation, which & 1, which & 2 ? 1 : 0, learned, 1.25, 0};
            run_case(which & 8 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, &o);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

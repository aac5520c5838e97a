#include "support/gradient.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/context.h"
#include "core/dtype.h"
#include "support/scenario.h"

#define STEP 2e-4
#define EVERY ((1U << GRADIENT_INPUTS) - 1) /* inputs, as bits */

static int64_t elements(const attn_tensor *tensor)
{
    int64_t n = 1;
    for (int32_t i = 0; i < attn_tensor_rank(tensor); i++) n *= attn_tensor_extent(tensor, i);
    return n;
}

static void ok(gradient_check *g, attn_status status)
{
    if (status != ATTN_OK) fail_msg("%s: %s", attn_status_name(status), attn_context_last_error(g->ctx));
}

void gradient_open(gradient_check *g, uint64_t seed)
{
    attn_context_options options;
    memset(g, 0, sizeof *g);
    g->random.at = seed;
    attn_context_options_init(&options, sizeof options);
    options.backend = ATTN_BACKEND_REFERENCE;
    options.threads = 2;
    assert_int_equal(attn_context_create(&options, &g->ctx), ATTN_OK);
    ok(g, attn_tape_create(g->ctx, &g->tape));
    attn_tape_options_init(&g->options, sizeof g->options);
}

void gradient_close(gradient_check *g)
{
    for (int i = 0; i < g->inputs; i++) attn_tensor_free(g->input[i]);
    for (int i = 0; i < g->inputs; i++) attn_tensor_free(g->gradient[i]);
    for (int i = 0; i < g->others; i++) attn_tensor_free(g->other[i]);
    attn_tensor_free(g->output);
    attn_tensor_free(g->weights);
    attn_tape_free(g->tape);
    attn_context_free(g->ctx);
}

static attn_tensor *tensor(gradient_check *g, int32_t dtype, int32_t rank, const int64_t *shape, double low, double high)
{
    attn_tensor *made = NULL;
    ok(g, attn_tensor_create(g->ctx, dtype, rank, shape, &made));
    if (dtype == ATTN_FLOAT64) random_doubles(&g->random, attn_tensor_data(made), elements(made), low, high);
    int32_t *integers = attn_tensor_data(made);
    for (int64_t i = 0; dtype == ATTN_INT32 && i < elements(made); i++)
        integers[i] = (int32_t)random_integer(&g->random, (int64_t)low, (int64_t)high);
    return made;
}

attn_tensor *gradient_input(gradient_check *g, int32_t rank, const int64_t *shape, double low, double high)
{
    assert_true(g->inputs < GRADIENT_INPUTS);
    g->gradient[g->inputs] = tensor(g, ATTN_FLOAT64, rank, shape, 0, 1);
    g->input[g->inputs] = tensor(g, ATTN_FLOAT64, rank, shape, low, high);
    return g->input[g->inputs++];
}

attn_tensor *gradient_other(gradient_check *g, int32_t dtype, int32_t rank, const int64_t *shape, double low, double high)
{
    assert_true(g->others < GRADIENT_OTHERS);
    return g->other[g->others++] = tensor(g, dtype, rank, shape, low, high);
}

void gradient_output(gradient_check *g, int32_t rank, const int64_t *shape)
{
    g->output = tensor(g, ATTN_FLOAT64, rank, shape, 0, 1);
    g->weights = tensor(g, ATTN_FLOAT64, rank, shape, -1, 1);
}

/* outputs that the function leaves alone (rows in no segment) must not count differently from call to call */
static double value(gradient_check *g, gradient_function *function, const void *what)
{
    double *y = attn_tensor_data(g->output), sum = 0;
    const double *weights = attn_tensor_data(g->weights);
    memset(y, 0, (size_t)elements(g->output) * sizeof *y);
    ok(g, attn_tape_begin(g->ctx, g->tape, &g->options));
    ok(g, function(g, g->tape, what));
    for (int64_t i = 0; i < elements(g->output); i++) sum += weights[i] * y[i];
    return sum;
}

static digest add_tensor(digest so_far, const attn_tensor *tensor)
{
    const int64_t bytes = elements(tensor) * attn__dtype_bytes(attn_tensor_dtype(tensor));
    return digest_add(so_far, attn_tensor_data_const(tensor), (uint64_t)bytes);
}

/* of all that backward reads: it changes gradients, and nothing else */
static digest bytes_read(const gradient_check *g)
{
    digest d = add_tensor(add_tensor(1, g->weights), g->output);
    for (int i = 0; i < g->inputs; i++) d = add_tensor(d, g->input[i]);
    for (int i = 0; i < g->others; i++) d = add_tensor(d, g->other[i]);
    return d;
}

/* watched: a bit for each input that gets its gradient */
static void backward(gradient_check *g, gradient_function *function, const void *what, unsigned watched)
{
    const attn_tensor *outputs[] = {g->output}, *weights[] = {g->weights};
    ok(g, attn_tape_begin(g->ctx, g->tape, &g->options));
    for (int i = 0; i < g->inputs; i++) {
        double *gradient = attn_tensor_data(g->gradient[i]);
        for (int64_t e = 0; e < elements(g->gradient[i]); e++) gradient[e] = NAN;
        if (watched >> i & 1) ok(g, attn_tape_watch(g->ctx, g->tape, g->input[i], g->gradient[i]));
    }
    ok(g, function(g, g->tape, what));
    const digest before = bytes_read(g);
    ok(g, attn_tape_backward(g->ctx, g->tape, 1, outputs, weights, 0, NULL));
    if (bytes_read(g) != before) fail_msg("backward changed a tensor that is no gradient");
}

/* x + by * direction (NULL: along element e) */
static double shifted(gradient_check *g, gradient_function *function, const void *what, int i, const double *direction, int64_t e,
                      double by)
{
    double *x = attn_tensor_data(g->input[i]), before[4096];
    int64_t n = elements(g->input[i]);
    assert_true(n <= 4096);
    memcpy(before, x, (size_t)n * sizeof *x);
    for (int64_t k = 0; k < n; k++)
        if (direction != NULL || k == e) x[k] += by * (direction != NULL ? direction[k] : 1);
    double result = value(g, function, what);
    memcpy(x, before, (size_t)n * sizeof *x);
    return result;
}

/* error of order STEP^4 */
static double difference(gradient_check *g, gradient_function *function, const void *what, int i, const double *direction, int64_t e)
{
    double near = shifted(g, function, what, i, direction, e, STEP) - shifted(g, function, what, i, direction, e, -STEP);
    double far = shifted(g, function, what, i, direction, e, 2 * STEP) - shifted(g, function, what, i, direction, e, -2 * STEP);
    return (8 * near - far) / (12 * STEP);
}

static double input_error(gradient_check *g, gradient_function *function, const void *what, int i)
{
    const double *gradient = attn_tensor_data(g->gradient[i]);
    int64_t n = elements(g->input[i]);
    double largest = 0, worst = 0, direction[4096];
    for (int64_t e = 0; e < n; e++) {
        if (!isfinite(gradient[e])) return INFINITY;
        if (fabs(gradient[e]) > largest) largest = fabs(gradient[e]);
    }
    for (int64_t e = 0; n <= GRADIENT_ELEMENTS && e < n; e++) {
        double error = fabs(difference(g, function, what, i, NULL, e) - gradient[e]);
        if (!(error <= worst)) worst = error;
    }
    for (int round = 0; n > GRADIENT_ELEMENTS && round < 8; round++) {
        double along = 0, length = 0;
        random_doubles(&g->random, direction, n, -1, 1);
        for (int64_t e = 0; e < n; e++) length += direction[e] * direction[e];
        for (int64_t e = 0; e < n; e++) direction[e] /= sqrt(length);
        for (int64_t e = 0; e < n; e++) along += gradient[e] * direction[e];
        double error = fabs(difference(g, function, what, i, direction, 0) - along);
        if (!(error <= worst)) worst = error;
    }
    return worst / (largest > 1e-3 ? largest : 1e-3);
}

static double inputs_error(gradient_check *g, gradient_function *function, const void *what)
{
    double worst = 0;
    for (int i = 0; i < g->inputs; i++) {
        double error = input_error(g, function, what, i);
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

double gradient_error(gradient_check *g, gradient_function *function, const void *what)
{
    backward(g, function, what, EVERY);
    backward(g, function, what, EVERY); /* in memory that is not fresh any more */
    return inputs_error(g, function, what);
}

/* each input watched alone, and all but each: the gradients are those that they are when all are wanted, and no other is written */
static void expect_subsets(gradient_check *g, gradient_function *function, const void *what)
{
    double *whole[GRADIENT_INPUTS];
    for (int i = 0; i < g->inputs; i++) {
        const size_t bytes = (size_t)elements(g->gradient[i]) * sizeof **whole;
        whole[i] = malloc(bytes + 1);
        assert_non_null(whole[i]);
        memcpy(whole[i], attn_tensor_data(g->gradient[i]), bytes);
    }
    for (int subset = 0; subset < 2 * g->inputs; subset++) {
        const unsigned one = 1U << subset / 2, watched = subset % 2 ? EVERY & ~one : one;
        if (g->inputs == 1 && subset == 1) continue; /* nothing at all */
        backward(g, function, what, watched);
        for (int i = 0; i < g->inputs; i++) {
            const double *gradient = attn_tensor_data(g->gradient[i]);
            for (int64_t e = 0; e < elements(g->gradient[i]); e++)
                if (watched >> i & 1 ? !(fabs(gradient[e] - whole[i][e]) <= 1e-10 * (1 + fabs(whole[i][e]))) : !isnan(gradient[e]))
                    fail_msg("input %d of the watched ones 0x%x: element %d of the gradient is %g, and %g when all are watched", i, watched,
                             (int)e, gradient[e], whole[i][e]);
        }
    }
    backward(g, function, what, EVERY);
    for (int i = 0; i < g->inputs; i++) free(whole[i]);
}

void gradient_expect(gradient_check *g, gradient_function *function, const void *what)
{
    double error = gradient_error(g, function, what);
    if (!(error < 1e-6)) fail_msg("gradients differ by %g", error);
    expect_subsets(g, function, what);
    for (int i = 0; i < g->inputs; i++) {
        double *gradient = attn_tensor_data(g->gradient[i]), largest = 1e-3;
        int64_t n = elements(g->gradient[i]);
        if (n == 0) continue;
        for (int64_t e = 0; e < n; e++) largest = fabs(gradient[e]) > largest ? fabs(gradient[e]) : largest;
        gradient[n / 2] += largest * (n <= GRADIENT_ELEMENTS ? 1e-3 : 1);
        if (input_error(g, function, what, i) < 1e-6) fail_msg("a wrong gradient of input %d went unnoticed", i);
    }
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/gradient.h"
#include "support/model.h"

/* Triangle attention against its formula in plain loops, around both nodes; its gradients against differences; BLAS against the reference. */
enum { WIDTH = 6, HEADS = 2, SIZE = 3 };

static attn_attention_options options_of(int32_t dtype, int gated, int alibi)
{
    attn_attention_options o;
    assert_int_equal(attn_attention_options_init(&o, sizeof o), ATTN_OK);
    o.dtype = dtype;
    o.heads = HEADS;
    o.query_width = WIDTH;
    o.pair_bias = 1;
    o.gated_output = gated;
    o.positions = alibi ? ATTN_POSITIONS_ALIBI : ATTN_POSITIONS_NONE;
    return o;
}

static attn_tensor *matrix(attn_context *ctx, int32_t dtype, int64_t n)
{
    const int64_t shape[3] = {n, n, WIDTH};
    attn_tensor *t = NULL;
    OK(ctx, attn_tensor_create(ctx, dtype, 3, shape, &t));
    return t;
}

static void randomise(attn_tensor *t, uint64_t seed)
{
    random_state random = {seed};
    for (int64_t e = 0; e < model_elements(t); e++) model_set(t, e, random_number(&random, -1, 1));
}

static const attn_tensor *parameter(attn_parameters *set, const char *name)
{
    int64_t index = attn_parameters_find(set, name);
    assert_true(index >= 0);
    return attn_parameters_tensor(set, index);
}

/* row `out` of a weight times x, and its bias */
static double affine(attn_parameters *set, const char *weight, const char *bias, int64_t out, const double *x, int64_t width)
{
    double sum = bias != NULL ? model_get(parameter(set, bias), out) : 0;
    for (int64_t c = 0; c < width; c++) sum += model_get(parameter(set, weight), out * width + c) * x[c];
    return sum;
}

/* entry of the pair matrix; around the ending node first and second change places, as they do in the result */
static void entry(const attn_tensor *pair, int64_t n, int axis, int64_t i, int64_t j, double x[WIDTH])
{
    for (int64_t c = 0; c < WIDTH; c++) x[c] = model_get(pair, ((axis ? j : i) * n + (axis ? i : j)) * WIDTH + c);
}

/* algorithms 13 and 14, without the norm before them, and ALiBi beside the third edge; hidden: an entry that no row counts, or -1 */
static void formula(attn_parameters *set, const attn_tensor *pair, int64_t n, int axis, int gated, int alibi, int64_t hidden, double *out)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double here[WIDTH], joined[HEADS * SIZE];
            entry(pair, n, axis, i, j, here);
            for (int64_t h = 0; h < HEADS; h++) {
                double total = 0, sum[SIZE] = {0};
                for (int64_t k = 0; k < n; k++) {
                    double there[WIDTH], third[WIDTH], score = 0;
                    if (k == hidden) continue;
                    entry(pair, n, axis, i, k, there);
                    entry(pair, n, axis, j, k, third);
                    for (int64_t c = h * SIZE; c < (h + 1) * SIZE; c++)
                        score += affine(set, "query.weight", "query.bias", c, here, WIDTH) *
                                 affine(set, "key.weight", "key.bias", c, there, WIDTH);
                    double far = alibi ? pow(2, -8.0 * (double)(h + 1) / HEADS) * fabs((double)(j - k)) : 0;
                    double weight = exp(score / sqrt(SIZE) - far + affine(set, "pair.weight", NULL, h, third, WIDTH));
                    total += weight;
                    for (int64_t c = 0; c < SIZE; c++)
                        sum[c] += weight * affine(set, "value.weight", "value.bias", h * SIZE + c, there, WIDTH);
                }
                for (int64_t c = 0; c < SIZE; c++) {
                    double gate = gated ? 1 / (1 + exp(-affine(set, "gate.weight", "gate.bias", h * SIZE + c, here, WIDTH))) : 1;
                    joined[h * SIZE + c] = gate * sum[c] / total;
                }
            }
            for (int64_t c = 0; c < WIDTH; c++)
                out[((axis ? j : i) * n + (axis ? i : j)) * WIDTH + c] =
                    affine(set, "output.weight", "output.bias", c, joined, HEADS * SIZE);
        }
}

static void test_formula(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 5};
    for (int which = 0; which < 48; which++) {
        const int64_t n = sizes[which % 3];
        const int axis = which / 3 % 2, gated = which / 6 % 2, masked = which / 12 % 2 && n > 1, alibi = which >= 24;
        attn_context *ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
        const attn_attention_options o = options_of(ATTN_FLOAT64, gated, alibi);
        attn_attention *layer = NULL;
        attn_mask *mask = NULL;
        OK(ctx, attn_attention_create(ctx, &o, &layer));
        model_scramble(attn_attention_parameters(layer), 3 + (uint64_t)which);
        attn_tensor *pair = matrix(ctx, ATTN_FLOAT64, n), *y = matrix(ctx, ATTN_FLOAT64, n), *allowed = NULL;
        double *want = calloc((size_t)(n * n * WIDTH), sizeof *want);
        assert_non_null(want);
        randomise(pair, 9);
        if (masked) {
            const int64_t shape[4] = {1, 1, n, n};
            OK(ctx, attn_tensor_create(ctx, ATTN_UINT8, 4, shape, &allowed));
            for (int64_t e = 0; e < n * n; e++) ((uint8_t *)attn_tensor_data(allowed))[e] = e % n != 1;
            OK(ctx, attn_mask_boolean(ctx, allowed, &mask));
        }
        OK(ctx, attn_attention_triangle(ctx, layer, NULL, pair, axis, mask, y));
        formula(attn_attention_parameters(layer), pair, n, axis, gated, alibi, masked ? 1 : -1, want);
        for (int64_t e = 0; e < model_elements(y); e++)
            if (!(fabs(model_get(y, e) - want[e]) < 1e-12))
                fail_msg("n %d, axis %d, gated %d, ALiBi %d: element %d is %.15g, expected %.15g", (int)n, axis, gated, alibi, (int)e,
                         model_get(y, e), want[e]);
        free(want);
        attn_tensor_free(pair);
        attn_tensor_free(y);
        attn_tensor_free(allowed);
        attn_mask_free(mask);
        attn_attention_free(layer);
        attn_context_free(ctx);
    }
}

typedef struct scene {
    attn_context *ctx;
    attn_attention *layer;
    attn_tensor *pair, *y, *weights;
    int32_t axis;
} scene;

static double slope(const scene *s, attn_tensor *of, int64_t e)
{
    const double step = 1e-5, before = model_get(of, e);
    double sum = 0;
    for (int side = -1; side <= 1; side += 2) {
        model_set(of, e, before + side * step);
        OK(s->ctx, attn_attention_triangle(s->ctx, s->layer, NULL, s->pair, s->axis, NULL, s->y));
        for (int64_t i = 0; i < model_elements(s->y); i++) sum += side * model_get(s->y, i) * model_get(s->weights, i);
    }
    model_set(of, e, before);
    return sum / (2 * step);
}

static void expect_gradient(const scene *s, const char *name, attn_tensor *of, const attn_tensor *got)
{
    for (int64_t e = 0; e < model_elements(of); e++) {
        double want = slope(s, of, e);
        if (!(fabs(model_get(got, e) - want) < 1e-8))
            fail_msg("axis %d: d %s[%d] is %.12g, expected %.12g", s->axis, name, (int)e, model_get(got, e), want);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    for (int32_t axis = 0; axis < 2; axis++) {
        const int64_t n = 3;
        const attn_attention_options o = options_of(ATTN_FLOAT64, 1, axis);
        scene s = {.ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0), .axis = axis};
        attn_tape *tape = NULL;
        attn_gradients *gradients = NULL;
        OK(s.ctx, attn_attention_create(s.ctx, &o, &s.layer));
        attn_parameters *set = attn_attention_parameters(s.layer);
        model_scramble(set, 5);
        s.pair = matrix(s.ctx, ATTN_FLOAT64, n);
        s.y = matrix(s.ctx, ATTN_FLOAT64, n);
        s.weights = matrix(s.ctx, ATTN_FLOAT64, n);
        attn_tensor *d_pair = matrix(s.ctx, ATTN_FLOAT64, n);
        randomise(s.pair, 1);
        randomise(s.weights, 2);
        OK(s.ctx, attn_gradients_create(s.ctx, set, &gradients));
        OK(s.ctx, attn_tape_create(s.ctx, &tape));
        OK(s.ctx, attn_tape_begin(s.ctx, tape, NULL));
        OK(s.ctx, attn_tape_watch(s.ctx, tape, s.pair, d_pair));
        OK(s.ctx, attn_attention_triangle(s.ctx, s.layer, tape, s.pair, axis, NULL, s.y));
        const attn_tensor *const outputs[1] = {s.y}, *const seeds[1] = {s.weights};
        OK(s.ctx, attn_tape_backward(s.ctx, tape, 1, outputs, seeds, 1, &gradients));
        expect_gradient(&s, "pair", s.pair, d_pair);
        for (int64_t p = 0; p < attn_parameters_count(set); p++)
            expect_gradient(&s, attn_parameters_name(set, p), attn_parameters_tensor(set, p), attn_gradients_tensor(gradients, p));
        attn_tape_free(tape);
        attn_gradients_free(gradients);
        attn_tensor *const all[] = {s.pair, s.y, s.weights, d_pair};
        for (int i = 0; i < 4; i++) attn_tensor_free(all[i]);
        attn_attention_free(s.layer);
        attn_context_free(s.ctx);
    }
}

/* output and gradients of one backend, of a matrix larger than a block */
static void both(int32_t backend, int32_t threads, int64_t n, int32_t axis, attn_tensor *out[2], attn_context **kept)
{
    attn_context *ctx = model_context(backend, threads, 0);
    const attn_attention_options o = options_of(ATTN_FLOAT32, 1, n > 7);
    attn_attention *layer = NULL;
    attn_tape *tape = NULL;
    attn_gradients *gradients = NULL;
    OK(ctx, attn_attention_create(ctx, &o, &layer));
    model_scramble(attn_attention_parameters(layer), 8);
    attn_tensor *pair = matrix(ctx, ATTN_FLOAT32, n), *seed = matrix(ctx, ATTN_FLOAT32, n);
    out[0] = matrix(ctx, ATTN_FLOAT32, n);
    out[1] = matrix(ctx, ATTN_FLOAT32, n);
    randomise(pair, 4);
    randomise(seed, 5);
    OK(ctx, attn_gradients_create(ctx, attn_attention_parameters(layer), &gradients));
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    OK(ctx, attn_tape_watch(ctx, tape, pair, out[1]));
    OK(ctx, attn_attention_triangle(ctx, layer, tape, pair, axis, NULL, out[0]));
    const attn_tensor *const outputs[1] = {out[0]}, *const seeds[1] = {seed};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, seeds, 1, &gradients));
    attn_tape_free(tape);
    attn_gradients_free(gradients);
    attn_tensor_free(pair);
    attn_tensor_free(seed);
    attn_attention_free(layer);
    *kept = ctx;
}

static void test_backends(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        const int64_t n = which < 2 ? 7 : 67; /* one block, and several of unequal size */
        attn_tensor *got[2], *again[2], *want[2];
        attn_context *ctx[3];
        both(ATTN_BACKEND_BLAS, 1, n, which % 2, got, &ctx[0]);
        both(ATTN_BACKEND_BLAS, 3, n, which % 2, again, &ctx[1]);
        both(ATTN_BACKEND_REFERENCE, 1, n, which % 2, want, &ctx[2]);
        for (int t = 0; t < 2; t++) {
            double most = 0, error = 0;
            for (int64_t e = 0; e < model_elements(got[t]); e++) {
                assert_true(model_get(got[t], e) == model_get(again[t], e));
                most = fmax(most, fabs(model_get(want[t], e)));
                error = fmax(error, fabs(model_get(got[t], e) - model_get(want[t], e)));
            }
            if (!(error <= 2e-5 * most)) fail_msg("n %d, axis %d, tensor %d: off by %g of %g", (int)n, which % 2, t, error, most);
        }
        for (int t = 0; t < 2; t++) {
            attn_tensor_free(got[t]);
            attn_tensor_free(again[t]);
            attn_tensor_free(want[t]);
        }
        for (int c = 0; c < 3; c++) attn_context_free(ctx[c]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formula), cmocka_unit_test(test_gradients), cmocka_unit_test(test_backends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/golden.h"

/* Scaled dot-product attention with gradients, activations and norms against PyTorch. */
static attn_mask *mask_of(const golden *g, const char *name)
{
    attn_mask *mask = NULL;
    if (strcmp(name, "plain") == 0) return NULL;
    if (strcmp(name, "boolean") != 0) {
        OK(g->ctx, attn_mask_causal(g->ctx, ATTN_ALIGN_LAST, &mask));
        return mask;
    }
    attn_tensor *allowed = golden_tensor(g, "allowed");
    OK(g->ctx, attn_mask_boolean(g->ctx, allowed, &mask));
    attn_tensor_free(allowed);
    return mask;
}

static void attention_case(const golden *g)
{
    char name[64];
    attn_context *ctx = g->ctx;
    attn_tensor *in[4], *gradient[3], *output;
    attn_tape *tape = NULL;
    const char *const names[4] = {"q", "k", "v", "g"}, *const wanted[3] = {"dq", "dk", "dv"};
    snprintf(name, sizeof name, "%.*s", (int)strcspn(g->part, "."), g->part);
    for (int i = 0; i < 4; i++) in[i] = golden_tensor(g, names[i]);
    for (int i = 0; i < 3; i++) gradient[i] = golden_like(g, in[i]);
    output = golden_like(g, in[3]);
    attn_layout *queries = golden_layout(g, "query_lengths"), *keys = golden_layout(g, "key_lengths");
    attn_mask *mask = mask_of(g, name);

    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    for (int i = 0; i < 3; i++) OK(ctx, attn_tape_watch(ctx, tape, in[i], gradient[i]));
    OK(ctx, attn_dot_product_attention(ctx, tape, in[0], in[1], in[2], queries, keys, mask, NULL, output));
    golden_expect(g, "output", output, 0);
    const attn_tensor *const outputs[1] = {output}, *const output_gradients[1] = {in[3]};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, output_gradients, 0, NULL));
    double least = 1e-2; /* with one head of size 1 and one key a gradient is 0 but for rounding */
    for (int i = 0; i < 3; i++) golden_expect(g, wanted[i], gradient[i], least);

    attn_tape_free(tape);
    attn_mask_free(mask);
    attn_layout_free(queries);
    attn_layout_free(keys);
    attn_tensor_free(output);
    for (int i = 0; i < 3; i++) attn_tensor_free(gradient[i]);
    for (int i = 0; i < 4; i++) attn_tensor_free(in[i]);
}

static void test_attention(void **state)
{
    (void)state;
    const char *const parts[] = {"plain.", "causal.", "bottom_right.", "grouped.", "boolean.", "head_of_one."};
    for (int32_t backend = 0; backend < 2; backend++) {
        golden g;
        golden_open(&g, "attention", backend, backend == ATTN_BACKEND_BLAS ? 2e-6 : 1e-13);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            snprintf(g.part, sizeof g.part, "%s", parts[i]);
            attention_case(&g);
        }
        golden_close(&g);
    }
}

static void activation_case(const golden *g, int32_t activation, const char *name)
{
    char slope[64];
    attn_context *ctx = g->ctx;
    attn_tensor *x = golden_tensor(g, "x"), *y = golden_like(g, x), *dx = golden_like(g, x);
    attn_tape *tape = NULL;
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    OK(ctx, attn_tape_watch(ctx, tape, x, dx));
    OK(ctx, attn_activation(ctx, tape, activation, x, NULL, y));
    for (int64_t i = 0; i < model_elements(y); i++) { /* each by itself, also the small ones far to the left */
        double want = golden_number(g, name, i), within = g->within * fmax(fabs(want), 1e-2);
        if (!(fabs(model_get(y, i) - want) <= within))
            fail_msg("%s of %g: got %.17g, expected %.17g", name, model_get(x, i), model_get(y, i), want);
    }
    const attn_tensor *const outputs[1] = {y};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, NULL, 0, NULL));
    snprintf(slope, sizeof slope, "%s.slope", name);
    golden_expect(g, slope, dx, 0);
    attn_tape_free(tape);
    attn_tensor_free(x);
    attn_tensor_free(y);
    attn_tensor_free(dx);
}

static void norm_case(const golden *g, int rms)
{
    char name[64];
    const char *const names[3] = {"rows", "weight", "bias"}, *const wanted[3] = {"dx", "dweight", "dbias"};
    attn_context *ctx = g->ctx;
    attn_tensor *in[3], *gradient[3], *along = golden_tensor(g, "g"), *y = golden_like(g, along);
    attn_tape *tape = NULL;
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    for (int i = 0; i < 3; i++) {
        in[i] = golden_tensor(g, names[i]);
        gradient[i] = golden_like(g, in[i]);
        OK(ctx, attn_tape_watch(ctx, tape, in[i], gradient[i]));
    }
    OK(ctx, rms ? attn_rms_norm(ctx, tape, in[0], in[1], 1e-5, y) : attn_layer_norm(ctx, tape, in[0], in[1], in[2], 1e-5, y));
    golden_expect(g, rms ? "rms_norm" : "layer_norm", y, 0);
    const attn_tensor *const outputs[1] = {y}, *const output_gradients[1] = {along};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, output_gradients, 0, NULL));
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", rms ? "rms_norm" : "layer_norm", wanted[i]);
        golden_expect(g, name, gradient[i], 0);
    }
    attn_tape_free(tape);
    attn_tensor_free(y);
    attn_tensor_free(along);
    for (int i = 0; i < 3; i++) attn_tensor_free(in[i]);
    for (int i = 0; i < 3; i++) attn_tensor_free(gradient[i]);
}

static void test_points(void **state)
{
    (void)state;
    const struct {
        int32_t activation;
        const char *name;
    } at[] = {{ATTN_ACTIVATION_RELU, "relu"},   {ATTN_ACTIVATION_GELU, "gelu"},       {ATTN_ACTIVATION_GELU_TANH, "gelu_tanh"},
              {ATTN_ACTIVATION_SWISH, "swish"}, {ATTN_ACTIVATION_SIGMOID, "sigmoid"}, {ATTN_ACTIVATION_TANH, "tanh"}};
    for (int32_t backend = 0; backend < 2; backend++) {
        golden g;
        golden_open(&g, "points", backend, backend == ATTN_BACKEND_BLAS ? 2e-6 : 1e-13);
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) activation_case(&g, at[i].activation, at[i].name);
        g.within = backend == ATTN_BACKEND_BLAS ? 5e-5 : 1e-10; /* a row around 1,000 and a constant one lose digits */
        norm_case(&g, 0);
        norm_case(&g, 1);
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_points)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* A gradient does not depend on which others are wanted: of every operation, each subset of the inputs is watched, and what comes out has the
   bits of the run that watches all. The output is used alone, or by an addition too, so that its gradient is another's as well. */
enum { ROWS = 7, HEADS = 2, SIZE = 4, WIDTH = HEADS * SIZE, PROJECTED = 3, DIRECTIONS = 6, MOST = 5 };
enum {
    LINEAR,
    GATED,
    SWISH,
    LAYER_NORM,
    MULTIPLY,
    CONCATENATE,
    SOFTMAX,
    LOSS,
    DROPOUT,
    EMBEDDING,
    POSITIONS,
    ROTARY,
    ATTENTION,
    ADDITIVE,
    SLOPES,
    BUCKETS,
    RELATIVE,
    PAIR,
    LINEAR_ATTENTION,
    PERFORMER,
    LINFORMER,
    LINFORMER_PROJECT,
    FEATURES,
    OPERATIONS
};

/* extents of the inputs, then of the output: {rank, ...}; heads: [ROWS, HEADS, SIZE] */
#define OF_HEADS \
    { \
        3, ROWS, HEADS, SIZE \
    }
#define OF_ROWS \
    { \
        2, ROWS, WIDTH \
    }
static const struct {
    const char *name;
    int inputs;
    int64_t shape[MOST + 1][5];
} operations[OPERATIONS] = {
    [LINEAR] = {"linear", 3, {OF_ROWS, {2, 5, WIDTH}, {1, 5}, {2, ROWS, 5}}},
    [GATED] = {"gated linear", 3, {OF_ROWS, {2, 10, WIDTH}, {1, 10}, {2, ROWS, 5}}},
    [SWISH] = {"swish", 2, {OF_ROWS, {1, 1}, OF_ROWS}},
    [LAYER_NORM] = {"layer norm", 3, {OF_ROWS, {1, WIDTH}, {1, WIDTH}, OF_ROWS}},
    [MULTIPLY] = {"multiplication", 2, {OF_ROWS, OF_ROWS, OF_ROWS}},
    [CONCATENATE] = {"concatenation", 2, {OF_ROWS, {2, ROWS, 3}, {2, ROWS, WIDTH + 3}}},
    [SOFTMAX] = {"softmax", 1, {OF_ROWS, OF_ROWS}},
    [LOSS] = {"cross-entropy", 1, {OF_ROWS, {1, 1}}},
    [DROPOUT] = {"dropout", 1, {OF_ROWS, OF_ROWS}},
    [EMBEDDING] = {"embedding", 1, {{2, 3, WIDTH}, OF_ROWS}},
    [POSITIONS] = {"learned positions", 2, {OF_ROWS, {2, ROWS, WIDTH}, OF_ROWS}},
    [ROTARY] = {"rotary positions", 1, {OF_HEADS, OF_HEADS}},
    [ATTENTION] = {"attention", 3, {OF_HEADS, OF_HEADS, OF_HEADS, OF_HEADS}},
    [ADDITIVE] = {"additive attention", 4, {OF_HEADS, OF_HEADS, OF_HEADS, {2, HEADS, SIZE}, OF_HEADS}},
    [SLOPES] = {"slopes", 4, {OF_HEADS, OF_HEADS, OF_HEADS, {2, 1, HEADS}, OF_HEADS}},
    [BUCKETS] = {"buckets", 4, {OF_HEADS, OF_HEADS, OF_HEADS, {2, 4, HEADS}, OF_HEADS}},
    [RELATIVE] = {"relative positions", 5, {OF_HEADS, OF_HEADS, OF_HEADS, {2, 5, SIZE}, {2, 5, SIZE}, OF_HEADS}},
    [PAIR] = {"pair bias", 4, {OF_HEADS, OF_HEADS, OF_HEADS, {4, 1, HEADS, ROWS, ROWS}, OF_HEADS}},
    [LINEAR_ATTENTION] = {"linear attention", 3, {OF_HEADS, OF_HEADS, OF_HEADS, OF_HEADS}},
    [PERFORMER] = {"the Performer", 3, {OF_HEADS, OF_HEADS, OF_HEADS, OF_HEADS}},
    [LINFORMER] = {"the Linformer", 5, {OF_HEADS, OF_HEADS, OF_HEADS, {2, PROJECTED, ROWS}, {2, PROJECTED, ROWS}, OF_HEADS}},
    [LINFORMER_PROJECT] = {"a projection of the Linformer", 2, {OF_HEADS, {2, PROJECTED, ROWS}, {3, PROJECTED, HEADS, SIZE}}},
    [FEATURES] = {"features", 1, {OF_HEADS, {3, ROWS, HEADS, DIRECTIONS}}},
};

typedef struct scene {
    attn_context *ctx;
    attn_tape *tape;
    attn_tensor *input[MOST], *gradient[MOST], *first[MOST], *output, *other, *d_other, *sum, *integers;
    int operation;
} scene;

static attn_tensor *tensor(scene *s, const int64_t *shape, uint64_t seed)
{
    attn_tensor *made = NULL;
    random_state random = {seed};
    OK(s->ctx, attn_tensor_create(s->ctx, ATTN_FLOAT32, (int32_t)shape[0], shape + 1, &made));
    for (int64_t i = 0; i < model_elements(made); i++) model_set(made, i, random_number(&random, -1, 1));
    return made;
}

static attn_status biased(const scene *s, int32_t kind, int64_t reach)
{
    attn_tensor *const *in = s->input;
    attn_attention_bias bias;
    const attn_attention_bias *const list[1] = {&bias};
    assert_int_equal(attn_attention_bias_init(&bias, sizeof bias), ATTN_OK);
    bias.kind = kind;
    bias.reach = reach;
    bias.table = in[3];
    bias.values = kind == ATTN_BIAS_RELATIVE ? in[4] : NULL;
    return attn_biased_attention(s->ctx, s->tape, in[0], in[1], in[2], NULL, NULL, NULL, NULL, 1, list, s->output);
}

static attn_status linear_attention(const scene *s, int32_t map)
{
    attn_tensor *const *in = s->input;
    attn_linear_attention_options o;
    assert_int_equal(attn_linear_attention_options_init(&o, sizeof o), ATTN_OK);
    o.map = map;
    o.causal = map == ATTN_FEATURES_ELU;
    o.features = map == ATTN_FEATURES_ELU ? ATTN_DERIVED : DIRECTIONS;
    if (s->operation == FEATURES) return attn_feature_map(s->ctx, s->tape, in[0], &o, NULL, s->output);
    return attn_linear_attention(s->ctx, s->tape, in[0], in[1], in[2], NULL, NULL, &o, s->output);
}

static attn_status operate(const scene *s)
{
    attn_context *ctx = s->ctx;
    attn_tape *t = s->tape;
    attn_tensor *const *in = s->input;
    switch (s->operation) {
    case LINEAR: return attn_linear(ctx, t, in[0], in[1], in[2], s->output);
    case GATED: return attn_linear_gated(ctx, t, ATTN_ACTIVATION_GELU, in[0], in[1], in[2], s->output);
    case SWISH: return attn_activation(ctx, t, ATTN_ACTIVATION_SWISH, in[0], in[1], s->output);
    case LAYER_NORM: return attn_layer_norm(ctx, t, in[0], in[1], in[2], 1e-6, s->output);
    case MULTIPLY: return attn_multiply(ctx, t, in[0], in[1], s->output);
    case CONCATENATE: return attn_concatenate(ctx, t, 2, (const attn_tensor *const[]){in[0], in[1]}, s->output);
    case SOFTMAX: return attn_softmax(ctx, t, in[0], s->output);
    case LOSS: return attn_cross_entropy(ctx, t, in[0], s->integers, NULL, s->output, NULL);
    case DROPOUT: return attn_dropout(ctx, t, in[0], NULL, 0.4, 3, s->output);
    case EMBEDDING: return attn_embedding(ctx, t, s->integers, in[0], 2, s->output);
    case POSITIONS: return attn_positions_learned(ctx, t, in[0], NULL, in[1], s->output);
    case ROTARY: return attn_rotary(ctx, t, in[0], NULL, NULL, s->output);
    case ATTENTION: return attn_dot_product_attention(ctx, t, in[0], in[1], in[2], NULL, NULL, NULL, NULL, s->output);
    case ADDITIVE: return attn_additive_attention(ctx, t, in[0], in[1], in[2], in[3], NULL, NULL, NULL, NULL, s->output);
    case SLOPES: return biased(s, ATTN_BIAS_LINEAR, 5);
    case BUCKETS: return biased(s, ATTN_BIAS_BUCKETS, 5);
    case RELATIVE: return biased(s, ATTN_BIAS_RELATIVE, 2);
    case PAIR: return biased(s, ATTN_BIAS_PAIR, 0);
    case LINEAR_ATTENTION: return linear_attention(s, ATTN_FEATURES_ELU);
    case PERFORMER: return linear_attention(s, ATTN_FEATURES_POSITIVE);
    case LINFORMER: return attn_linformer_attention(ctx, t, in[0], in[1], in[2], in[3], in[4], NULL, NULL, NULL, NULL, s->output);
    case LINFORMER_PROJECT: return attn_linformer_project(ctx, t, in[0], in[1], NULL, s->output);
    default: return linear_attention(s, ATTN_FEATURES_POSITIVE);
    }
}

/* the gradients of a subset; shared: through an addition, whose other term is watched too */
static void run(scene *s, int subset, int shared)
{
    const attn_tape_options o = {.struct_size = sizeof o, .training = 1, .seed = 4};
    OK(s->ctx, attn_tape_begin(s->ctx, s->tape, &o));
    for (int i = 0; i < operations[s->operation].inputs; i++)
        if (subset >> i & 1) OK(s->ctx, attn_tape_watch(s->ctx, s->tape, s->input[i], s->gradient[i]));
    if (shared) OK(s->ctx, attn_tape_watch(s->ctx, s->tape, s->other, s->d_other));
    OK(s->ctx, operate(s));
    if (shared) OK(s->ctx, attn_add(s->ctx, s->tape, s->output, s->other, s->sum));
    const attn_tensor *const outputs[1] = {shared ? s->sum : s->output};
    OK(s->ctx, attn_tape_backward(s->ctx, s->tape, 1, outputs, NULL, 0, NULL));
}

static void check(scene *s)
{
    const int inputs = operations[s->operation].inputs, all = (1 << inputs) - 1;
    for (int shared = 0; shared < 2; shared++)
        for (int subset = all; subset > 0; subset--) {
            run(s, subset, shared);
            for (int i = 0; i < inputs; i++) {
                if (!(subset >> i & 1)) continue;
                size_t bytes = (size_t)model_elements(s->input[i]) * sizeof(float);
                void *got = attn_tensor_data(s->gradient[i]), *want = attn_tensor_data(s->first[i]);
                if (subset == all && !shared)
                    memcpy(want, got, bytes);
                else if (memcmp(got, want, bytes) != 0)
                    fail_msg("%s: input %d of subset %d%s: another gradient", operations[s->operation].name, i, subset,
                             shared ? ", shared" : "");
            }
            for (int64_t e = 0; shared && e < model_elements(s->d_other); e++) assert_true(model_get(s->d_other, e) == 1);
        }
}

static void test_subsets(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++)
        for (int i = 0; i < OPERATIONS; i++) {
            scene s = {.ctx = model_context(backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, 1, 0), .operation = i};
            const int64_t(*shape)[5] = operations[i].shape, *output = shape[operations[i].inputs];
            OK(s.ctx, attn_tape_create(s.ctx, &s.tape));
            s.integers = model_tensor(s.ctx, ATTN_INT32, ROWS, 0);
            for (int64_t r = 0; r < ROWS; r++) model_set(s.integers, r, (double)(r * 2 % 3));
            for (int k = 0; k < operations[i].inputs; k++) {
                s.input[k] = tensor(&s, shape[k], (uint64_t)k);
                s.gradient[k] = tensor(&s, shape[k], 7);
                s.first[k] = tensor(&s, shape[k], 7);
            }
            s.output = tensor(&s, output, 7);
            s.other = tensor(&s, output, 8);
            s.d_other = tensor(&s, output, 7);
            s.sum = tensor(&s, output, 7);
            check(&s);
            for (int k = 0; k < operations[i].inputs; k++) {
                attn_tensor_free(s.input[k]);
                attn_tensor_free(s.gradient[k]);
                attn_tensor_free(s.first[k]);
            }
            attn_tensor *const rest[] = {s.output, s.other, s.d_other, s.sum, s.integers};
            for (int k = 0; k < 5; k++) attn_tensor_free(rest[k]);
            attn_tape_free(s.tape);
            attn_context_free(s.ctx);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_subsets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#ifndef TESTS_MODULES_ATTENTION_PARTS_H
#define TESTS_MODULES_ATTENTION_PARTS_H
#include <attn/rotary.h>
#include <math.h>
#include <stdio.h>
#include "support/model.h"

/* An attention layer, and its forward put together from the public operations. */
typedef struct scene {
    attn_context *ctx;
    attn_attention *layer;
    attn_parameters *parameters;
    attn_layout *queries, *keys;
    attn_mask *mask;
    attn_attention_options o;
} scene;

static attn_tensor *parameter(const scene *s, const char *name)
{
    int64_t index = attn_parameters_find(s->parameters, name);
    return index < 0 ? NULL : attn_parameters_tensor(s->parameters, index);
}

/* one projection by attn_linear, seen as heads */
static attn_tensor *project(const scene *s, const attn_tensor *x, const char *weight, const char *bias, int64_t heads, int64_t size)
{
    const int64_t rows = attn_tensor_extent(x, 0), shape[3] = {rows, heads, size};
    attn_tensor *made = NULL, *flat = NULL, *w = parameter(s, weight);
    OK(s->ctx, attn_tensor_create(s->ctx, attn_tensor_dtype(x), 3, shape, &made));
    const int64_t flat_shape[2] = {rows, heads * size};
    OK(s->ctx, attn_tensor_wrap(s->ctx, attn_tensor_dtype(x), 2, flat_shape, NULL, attn_tensor_data(made), &flat));
    if (w != NULL)
        OK(s->ctx, attn_linear(s->ctx, NULL, x, w, parameter(s, bias), flat));
    else
        for (int64_t i = 0; i < model_elements(x); i++) model_set(flat, i, model_get(x, i));
    attn_tensor_free(flat);
    return made;
}

static attn_tensor *like(const scene *s, const attn_tensor *x, int64_t size)
{
    const int64_t shape[3] = {attn_tensor_extent(x, 0), attn_tensor_extent(x, 1), size};
    attn_tensor *made = NULL;
    OK(s->ctx, attn_tensor_create(s->ctx, attn_tensor_dtype(x), 3, shape, &made));
    return made;
}

static void replace(attn_tensor **x, attn_tensor *by)
{
    attn_tensor_free(*x);
    *x = by;
}

/* norm of every head, then the turn; name: "query_norm" or "key_norm" */
static void norm_and_turn(const scene *s, const char *norm, const attn_layout *layout, attn_tensor **x)
{
    const attn_attention_options *o = &s->o;
    const int64_t size = attn_tensor_extent(*x, 2), shape[2] = {attn_tensor_extent(*x, 0) * attn_tensor_extent(*x, 1), size};
    if (o->query_key_norm != ATTN_QUERY_KEY_NONE) {
        char weight[32], bias[32];
        attn_tensor *y = like(s, *x, size), *from = NULL, *to = NULL;
        snprintf(weight, sizeof weight, "%s.weight", norm);
        snprintf(bias, sizeof bias, "%s.bias", norm);
        OK(s->ctx, attn_tensor_wrap(s->ctx, o->dtype, 2, shape, NULL, attn_tensor_data(*x), &from));
        OK(s->ctx, attn_tensor_wrap(s->ctx, o->dtype, 2, shape, NULL, attn_tensor_data(y), &to));
        if (o->query_key_norm == ATTN_QUERY_KEY_RMS)
            OK(s->ctx, attn_rms_norm(s->ctx, NULL, from, parameter(s, weight), 1e-6, to));
        else
            OK(s->ctx, attn_layer_norm(s->ctx, NULL, from, parameter(s, weight), parameter(s, bias), 1e-6, to));
        attn_tensor_free(from);
        attn_tensor_free(to);
        replace(x, y);
    }
    if (o->positions != ATTN_POSITIONS_ROTARY) return;
    attn_rotary_options rotary;
    OK(s->ctx, attn_rotary_options_init(&rotary, sizeof rotary));
    rotary.pairing = o->rotary_pairing;
    rotary.scaling = o->rotary_scaling;
    rotary.rotated = o->rotated;
    rotary.factor = o->rotary_factor;
    rotary.context = o->rotary_context;
    rotary.magnitude = o->rotary_magnitude;
    OK(s->ctx, attn_rotary(s->ctx, NULL, *x, layout, &rotary, *x));
}

/* q^T W of every head, in loops */
static void multiply(const scene *s, attn_tensor **q)
{
    const attn_tensor *w = parameter(s, "score.weight");
    const int64_t heads = s->o.heads, in = s->o.head_size, out = s->o.key_head_size;
    if (s->o.score != ATTN_SCORE_MULTIPLICATIVE) return;
    attn_tensor *y = like(s, *q, out);
    for (int64_t e = 0; e < model_elements(y); e++) {
        int64_t c = e % out, h = e / out % heads, row = e / out / heads;
        double sum = 0;
        for (int64_t d = 0; d < in; d++) sum += model_get(*q, (row * heads + h) * in + d) * model_get(w, (h * out + c) * in + d);
        model_set(y, e, sum);
    }
    replace(q, y);
}

static void attend(const scene *s, const attn_tensor *q, const attn_tensor *k, const attn_tensor *w, attn_tensor *heads)
{
    const attn_attention_options *o = &s->o;
    attn_dot_product_options d;
    attn_attention_bias bias;
    const attn_attention_bias *biases[1] = {&bias};
    OK(s->ctx, attn_dot_product_options_init(&d, sizeof d));
    OK(s->ctx, attn_attention_bias_init(&bias, sizeof bias));
    d.soft_cap = o->soft_cap;
    d.derive_scale = o->score == ATTN_SCORE_SCALED_DOT ? o->derive_scale : 0;
    d.scale = o->score == ATTN_SCORE_SCALED_DOT ? o->scale : 1;
    if (o->score == ATTN_SCORE_ADDITIVE) {
        OK(s->ctx, attn_additive_attention(s->ctx, NULL, q, k, w, parameter(s, "score.weight"), s->queries, s->keys, s->mask, &d, heads));
        return;
    }
    bias.kind = o->positions == ATTN_POSITIONS_T5      ? ATTN_BIAS_BUCKETS
                : o->positions == ATTN_POSITIONS_ALIBI ? ATTN_BIAS_LINEAR
                                                       : ATTN_BIAS_RELATIVE;
    bias.both_sides = o->position_sides;
    bias.reach = o->position_reach;
    bias.table = parameter(s, "position.weight");
    bias.values = parameter(s, "position_values.weight");
    OK(s->ctx,
       attn_biased_attention(s->ctx, NULL, q, k, w, s->queries, s->keys, s->mask, &d, o->positions >= ATTN_POSITIONS_T5, biases, heads));
}

static void open_gate(const scene *s, const attn_tensor *x, attn_tensor *heads)
{
    if (!s->o.gated_output) return;
    attn_tensor *gate = project(s, x, "gate.weight", "gate.bias", s->o.heads, s->o.value_head_size);
    for (int64_t e = 0; e < model_elements(heads); e++) model_set(heads, e, model_get(heads, e) / (1 + exp(-model_get(gate, e))));
    attn_tensor_free(gate);
}
#endif

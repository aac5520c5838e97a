#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attention_parts.h"
#include "support/gradient.h"
#include "support/model.h"
#include "tensor/parameters.h"

/* The attention layer against the operations it is made of, and its gradients against differences. */
typedef struct variant {
    const char *name;
    attn_attention_options o;
    int shared; /* 1: key is value, 2: all three are one tensor */
    int causal;
} variant;

static attn_attention_options options_of(int64_t heads, int64_t key_heads, int64_t query_width, int64_t head_size, int64_t value_head_size)
{
    attn_attention_options o;
    assert_int_equal(attn_attention_options_init(&o, sizeof o), ATTN_OK);
    o.heads = heads;
    o.key_heads = key_heads;
    o.query_width = query_width;
    o.head_size = head_size;
    o.value_head_size = value_head_size;
    return o;
}

enum { VARIANTS = 22 };
static variant variant_of(int which)
{
    variant v = {"plain", options_of(2, ATTN_DERIVED, 6, ATTN_DERIVED, ATTN_DERIVED), 2, 0};
    attn_attention_options *o = &v.o;
    switch (which) {
    case 1:
        v.name = "causal, three inputs";
        v.shared = 0;
        v.causal = 1;
        break;
    case 2:
        v.name = "key is value";
        v.shared = 1;
        break;
    case 3:
        v.name = "no biases";
        o->bias_query = o->bias_key = o->bias_value = o->bias_output = 0;
        break;
    case 4:
        v.name = "some biases";
        o->bias_key = 0;
        v.causal = 1;
        break;
    case 5:
        v.name = "all sizes differ";
        *o = options_of(3, ATTN_DERIVED, 5, 2, 4);
        o->key_width = 4;
        o->value_width = 3;
        o->output_width = 7;
        v.shared = 0;
        break;
    case 6:
        v.name = "grouped heads";
        *o = options_of(4, 2, 6, 3, 2);
        v.causal = 1;
        break;
    case 7:
        v.name = "no query projection";
        o->project_query = 0;
        v.shared = 1;
        break;
    case 8:
        v.name = "no projections";
        o->project_query = o->project_key = o->project_value = o->project_output = 0;
        v.shared = 0;
        break;
    case 9:
        v.name = "no output projection";
        *o = options_of(2, ATTN_DERIVED, 6, ATTN_DERIVED, 5);
        o->project_output = 0;
        break;
    case 10:
        v.name = "no value projection";
        o->project_value = 0;
        v.shared = 0;
        break;
    case 11:
        v.name = "soft cap and a scale of its own";
        o->soft_cap = 0.7;
        o->derive_scale = 0;
        o->scale = -1.5;
        break;
    case 12:
        v.name = "dot score, one head of size 1";
        *o = options_of(1, 1, 3, 1, 1);
        o->score = ATTN_SCORE_DOT;
        break;
    case 13:
        v.name = "additive score, sizes differ";
        *o = options_of(2, ATTN_DERIVED, 5, 3, 4);
        o->score = ATTN_SCORE_ADDITIVE;
        o->key_width = 4;
        v.shared = 1;
        break;
    case 14:
        v.name = "multiplicative score, sizes differ, grouped heads";
        *o = options_of(4, 2, 6, 3, 2);
        o->score = ATTN_SCORE_MULTIPLICATIVE;
        o->key_head_size = 5;
        o->key_width = 4;
        v.shared = 1;
        break;
    case 15:
        v.name = "multiplicative score of one head, no projections";
        *o = options_of(1, 1, 4, 4, 3);
        o->score = ATTN_SCORE_MULTIPLICATIVE;
        o->key_width = o->key_head_size = 6;
        o->value_width = 3;
        o->project_query = o->project_key = o->project_value = o->project_output = 0;
        v.shared = 0;
        break;
    case 16:
        v.name = "rotary positions of a part, stretched";
        *o = options_of(2, 1, 6, 6, 3);
        o->positions = ATTN_POSITIONS_ROTARY;
        o->rotated = 4;
        o->rotary_pairing = ATTN_ROTARY_PAIRS;
        o->rotary_scaling = ATTN_ROTARY_YARN;
        o->rotary_factor = 4;
        o->rotary_context = 3;
        o->rotary_magnitude = 1.3;
        v.shared = 0;
        v.causal = 1;
        break;
    case 17:
        v.name = "T5's buckets, one side";
        o->positions = ATTN_POSITIONS_T5;
        o->position_sides = 0;
        o->position_buckets = 4;
        o->position_reach = 4;
        v.shared = 1;
        break;
    case 18:
        v.name = "ALiBi of three heads";
        *o = options_of(3, 1, 6, 2, 2);
        o->positions = ATTN_POSITIONS_ALIBI;
        break;
    case 19:
        v.name = "relative keys and values";
        *o = options_of(2, 1, 6, 4, 3);
        o->positions = ATTN_POSITIONS_RELATIVE;
        o->position_reach = 2;
        v.shared = 0;
        break;
    case 20:
        v.name = "queries and keys normed by RMS, turned, gated";
        *o = options_of(2, ATTN_DERIVED, 6, 4, 4);
        o->query_key_norm = ATTN_QUERY_KEY_RMS;
        o->positions = ATTN_POSITIONS_ROTARY;
        o->gated_output = 1;
        break;
    case 21:
        v.name = "queries and keys normed by LayerNorm, gated, no output projection";
        *o = options_of(2, 1, 6, 3, 3);
        o->query_key_norm = ATTN_QUERY_KEY_LAYER;
        o->gated_output = 1;
        o->project_output = 0;
        v.shared = 1;
        break;
    default: break;
    }
    return v;
}

static const int64_t query_lengths[4] = {3, 0, 4, 1}, key_lengths[4] = {5, 2, 4, 0};
enum { SEGMENTS = 4, QUERIES = 8, KEYS = 11 };

static attn_layout *layout_of(attn_context *ctx, const int64_t *lengths)
{
    attn_layout *made = NULL;
    OK(ctx, attn_layout_create(ctx, SEGMENTS, &made));
    OK(ctx, attn_layout_set_lengths(ctx, made, SEGMENTS, lengths, 0));
    return made;
}

static void open_scene(scene *s, attn_context *ctx, const variant *v, int32_t dtype)
{
    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->o = v->o;
    s->o.dtype = dtype;
    OK(ctx, attn_attention_create(ctx, &s->o, &s->layer));
    s->parameters = attn_attention_parameters(s->layer);
    model_scramble(s->parameters, 9);
    s->queries = layout_of(ctx, query_lengths);
    s->keys = v->shared == 2 ? layout_of(ctx, query_lengths) : layout_of(ctx, key_lengths);
    if (v->causal) OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &s->mask));
    /* what is derived, by hand */
    if (s->o.key_heads == ATTN_DERIVED) s->o.key_heads = s->o.heads;
    if (s->o.key_width == ATTN_DERIVED) s->o.key_width = s->o.query_width;
    if (s->o.value_width == ATTN_DERIVED) s->o.value_width = s->o.key_width;
    if (s->o.head_size == ATTN_DERIVED) s->o.head_size = s->o.query_width / s->o.heads;
    if (s->o.key_head_size == ATTN_DERIVED) s->o.key_head_size = s->o.head_size;
    if (s->o.value_head_size == ATTN_DERIVED) s->o.value_head_size = s->o.head_size;
    if (s->o.output_width == ATTN_DERIVED) s->o.output_width = s->o.project_output ? s->o.query_width : s->o.heads * s->o.value_head_size;
}

static void close_scene(scene *s)
{
    attn_mask_free(s->mask);
    attn_layout_free(s->queries);
    attn_layout_free(s->keys);
    attn_attention_free(s->layer);
}

static void test_equals_its_parts(void **state)
{
    (void)state;
    for (int which = 0; which < 2 * VARIANTS; which++) {
        const variant v = variant_of(which % VARIANTS);
        const int32_t dtype = which < VARIANTS ? ATTN_FLOAT32 : ATTN_FLOAT64;
        attn_context *ctx = model_context(which < VARIANTS ? ATTN_BACKEND_BLAS : ATTN_BACKEND_REFERENCE, 2, 0);
        random_state random = {1};
        scene s;
        open_scene(&s, ctx, &v, dtype);
        const int64_t keys = v.shared == 2 ? QUERIES : KEYS, widths[3] = {s.o.query_width, s.o.key_width, s.o.value_width};
        attn_tensor *in[3], *own[3] = {NULL}, *output = model_tensor(ctx, dtype, QUERIES, s.o.output_width);
        for (int i = 0; i < 3; i++) {
            if (i < 3 - v.shared || i == 0) own[i] = model_tensor(ctx, dtype, i == 0 ? QUERIES : keys, widths[i]);
            in[i] = own[i] ? own[i] : in[i - 1];
            for (int64_t e = 0; own[i] && e < model_elements(own[i]); e++) model_set(own[i], e, random_number(&random, -1, 1));
        }
        for (int64_t e = 0; e < model_elements(output); e++) model_set(output, e, NAN);
        OK(ctx, attn_attention_forward(ctx, s.layer, NULL, in[0], in[1], in[2], s.queries, s.keys, s.mask, output));

        attn_tensor *q = project(&s, in[0], "query.weight", "query.bias", s.o.heads, s.o.head_size);
        attn_tensor *k = project(&s, in[1], "key.weight", "key.bias", s.o.key_heads, s.o.key_head_size);
        attn_tensor *w = project(&s, in[2], "value.weight", "value.bias", s.o.key_heads, s.o.value_head_size);
        const int64_t shape[3] = {QUERIES, s.o.heads, s.o.value_head_size}, flat[2] = {QUERIES, s.o.heads * s.o.value_head_size};
        attn_tensor *heads = NULL, *rows = NULL;
        OK(ctx, attn_tensor_create(ctx, dtype, 3, shape, &heads));
        OK(ctx, attn_tensor_wrap(ctx, dtype, 2, flat, NULL, attn_tensor_data(heads), &rows));
        norm_and_turn(&s, "query_norm", s.queries, &q);
        norm_and_turn(&s, "key_norm", s.keys, &k);
        multiply(&s, &q);
        attend(&s, q, k, w, heads);
        open_gate(&s, in[0], heads);
        attn_tensor *want = project(&s, rows, "output.weight", "output.bias", 1, s.o.output_width);
        for (int64_t e = 0; e < model_elements(want); e++)
            if (!(fabs(model_get(want, e) - model_get(output, e)) <= (dtype == ATTN_FLOAT32 ? 2e-6 : 1e-14)))
                fail_msg("%s: element %d is %.9g, expected %.9g", v.name, (int)e, model_get(output, e), model_get(want, e));
        attn_tensor *const all[] = {own[0], own[1], own[2], output, q, k, w, heads, rows, want};
        for (int i = 0; i < 10; i++) attn_tensor_free(all[i]);
        close_scene(&s);
        attn_context_free(ctx);
    }
}

static attn_status run_layer(gradient_check *g, attn_tape *tape, const void *what)
{
    const scene *s = what;
    const int shared = 3 - g->inputs;
    return attn_attention_forward(g->ctx, s->layer, tape, g->input[0], shared == 2 ? g->input[0] : g->input[1],
                                  shared == 2 ? g->input[0] : g->input[g->inputs - 1], s->queries, s->keys, s->mask, g->output);
}

static void test_gradients_of_inputs(void **state)
{
    (void)state;
    for (int which = 0; which < 2 * VARIANTS; which++) {
        variant v = variant_of(which % VARIANTS);
        gradient_check g;
        scene s;
        if (which >= VARIANTS) v.o.dropout = 0.3;
        gradient_open(&g, (uint64_t)which);
        g.options.training = 1;
        open_scene(&s, g.ctx, &v, ATTN_FLOAT64);
        const int64_t q[2] = {QUERIES, s.o.query_width}, k[2] = {KEYS, s.o.key_width}, w[2] = {KEYS, s.o.value_width},
                      y[2] = {QUERIES, s.o.output_width};
        gradient_input(&g, 2, q, -1, 1);
        if (v.shared < 2) gradient_input(&g, 2, k, -1, 1);
        if (v.shared < 1) gradient_input(&g, 2, w, -1, 1);
        gradient_output(&g, 2, y);
        gradient_expect(&g, run_layer, &s);
        close_scene(&s);
        gradient_close(&g);
    }
}

/* parameters frozen one by one break the joined product up, and change neither the output nor the gradients of the others */
static void test_frozen_projections(void **state)
{
    (void)state;
    const char *const patterns[] = {"none", "query.weight", "key.*", "value.bias", "query.bias", "output.*", "*.weight", "*"};
    attn_tensor *first = NULL, *first_gradients = NULL;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    for (size_t which = 0; which < sizeof patterns / sizeof *patterns; which++) {
        const variant v = variant_of(0);
        random_state random = {2};
        scene s;
        attn_tape *tape = NULL;
        attn_gradients *gradients = NULL;
        open_scene(&s, ctx, &v, ATTN_FLOAT32);
        OK(ctx, attn_parameters_freeze(ctx, s.parameters, patterns[which], 1, NULL));
        attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, QUERIES, 6), *dx = model_tensor(ctx, ATTN_FLOAT32, QUERIES, 6),
                    *y = model_tensor(ctx, ATTN_FLOAT32, QUERIES, 6);
        for (int64_t e = 0; e < model_elements(x); e++) model_set(x, e, random_number(&random, -1, 1));
        OK(ctx, attn_gradients_create(ctx, s.parameters, &gradients));
        OK(ctx, attn_tape_create(ctx, &tape));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        OK(ctx, attn_attention_forward(ctx, s.layer, tape, x, x, x, s.queries, s.keys, NULL, y));
        const attn_tensor *const outputs[1] = {y};
        OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, NULL, 1, &gradients));
        attn_tensor *flat = attn_gradients_flat(gradients);
        if (which == 0) {
            first = model_tensor(ctx, ATTN_FLOAT32, 2, QUERIES * 6);
            first_gradients = model_tensor(ctx, ATTN_FLOAT32, model_elements(flat), 0);
            for (int64_t e = 0; e < 2 * QUERIES * 6; e++) model_set(first, e, model_get(e < QUERIES * 6 ? y : dx, e % (QUERIES * 6)));
            for (int64_t e = 0; e < model_elements(flat); e++) model_set(first_gradients, e, model_get(flat, e));
        }
        for (int64_t e = 0; e < 2 * QUERIES * 6; e++)
            if (fabs(model_get(first, e) - model_get(e < QUERIES * 6 ? y : dx, e % (QUERIES * 6))) > 1e-5)
                fail_msg("%s: outputs differ", patterns[which]);
        for (int64_t p = 0; p < attn_parameters_count(s.parameters); p++) {
            attn_tensor *g = attn_gradients_tensor(gradients, p);
            for (int64_t e = 0; e < model_elements(g); e++) {
                double want = s.parameters->at[p].frozen ? 0 : model_get(first_gradients, s.parameters->at[p].offset + e);
                if (fabs(model_get(g, e) - want) > 1e-5)
                    fail_msg("%s frozen: gradient of %s is %g, expected %g", patterns[which], attn_parameters_name(s.parameters, p),
                             model_get(g, e), want);
            }
        }
        attn_tape_free(tape);
        attn_gradients_free(gradients);
        attn_tensor_free(x);
        attn_tensor_free(dx);
        attn_tensor_free(y);
        close_scene(&s);
    }
    attn_tensor_free(first);
    attn_tensor_free(first_gradients);
    attn_context_free(ctx);
}

static void test_errors(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_attention *layer = NULL;
    const struct {
        const char *word;
        size_t offset;
        int size;
        double value;
        attn_status status;
    } wrong[] = {{"heads", offsetof(attn_attention_options, heads), 8, 0, ATTN_ERROR_INVALID_ARGUMENT},
                 {"key_heads", offsetof(attn_attention_options, key_heads), 8, 0, ATTN_ERROR_INVALID_ARGUMENT},
                 {"key_heads", offsetof(attn_attention_options, key_heads), 8, 3, ATTN_ERROR_SHAPE},
                 {"query_width", offsetof(attn_attention_options, query_width), 8, 0, ATTN_ERROR_INVALID_ARGUMENT},
                 {"query_width", offsetof(attn_attention_options, query_width), 8, 7, ATTN_ERROR_SHAPE},
                 {"key_width", offsetof(attn_attention_options, key_width), 8, -2, ATTN_ERROR_INVALID_ARGUMENT},
                 {"head_size", offsetof(attn_attention_options, head_size), 8, 4e18, ATTN_ERROR_TOO_LARGE},
                 {"dropout", offsetof(attn_attention_options, dropout), 0, 1.1, ATTN_ERROR_INVALID_ARGUMENT},
                 {"dropout", offsetof(attn_attention_options, dropout), 0, NAN, ATTN_ERROR_INVALID_ARGUMENT},
                 {"soft_cap", offsetof(attn_attention_options, soft_cap), 0, -1, ATTN_ERROR_INVALID_ARGUMENT},
                 {"scale", offsetof(attn_attention_options, scale), 0, INFINITY, ATTN_ERROR_INVALID_ARGUMENT},
                 {"score", offsetof(attn_attention_options, score), 4, 9, ATTN_ERROR_INVALID_ARGUMENT},
                 {"key_head_size", offsetof(attn_attention_options, key_head_size), 8, 7, ATTN_ERROR_SHAPE},
                 {"positions", offsetof(attn_attention_options, positions), 4, ATTN_POSITIONS_LEARNED, ATTN_ERROR_INVALID_ARGUMENT},
                 {"positions", offsetof(attn_attention_options, positions), 4, 7, ATTN_ERROR_INVALID_ARGUMENT},
                 {"query_key_norm", offsetof(attn_attention_options, query_key_norm), 4, 3, ATTN_ERROR_INVALID_ARGUMENT},
                 {"query_key_epsilon", offsetof(attn_attention_options, query_key_epsilon), 0, NAN, ATTN_ERROR_INVALID_ARGUMENT},
                 {"gated_output", offsetof(attn_attention_options, gated_output), 4, 2, ATTN_ERROR_INVALID_ARGUMENT},
                 {"pair_bias", offsetof(attn_attention_options, pair_bias), 4, 2, ATTN_ERROR_INVALID_ARGUMENT},
                 {"dtype", offsetof(attn_attention_options, dtype), 4, ATTN_INT32, ATTN_ERROR_DTYPE},
                 {"initialisation", offsetof(attn_attention_options, initialisation), 4, 5, ATTN_ERROR_INVALID_ARGUMENT}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        attn_attention_options o = options_of(2, ATTN_DERIVED, 6, ATTN_DERIVED, ATTN_DERIVED);
        const int64_t size = (int64_t)wrong[i].value;
        const int32_t code = (int32_t)(wrong[i].size == 4 ? wrong[i].value : 0);
        if (wrong[i].size == 8)
            memcpy((char *)&o + wrong[i].offset, &size, 8);
        else if (wrong[i].size == 4)
            memcpy((char *)&o + wrong[i].offset, &code, 4);
        else
            memcpy((char *)&o + wrong[i].offset, &wrong[i].value, 8);
        FAILS(ctx, attn_attention_create(ctx, &o, &layer), wrong[i].status, wrong[i].word);
        assert_null(layer);
    }
    attn_attention_options o = options_of(2, ATTN_DERIVED, 6, 2, ATTN_DERIVED);
    o.project_query = 0; /* 6 is not 2 heads of 2 */
    FAILS(ctx, attn_attention_create(ctx, &o, &layer), ATTN_ERROR_SHAPE, "query_width");

    o = options_of(2, ATTN_DERIVED, 6, 2, ATTN_DERIVED);
    o.score = ATTN_SCORE_MULTIPLICATIVE;
    for (int bits = 31; bits <= 62; bits += 31) {
        o.key_head_size = INT64_C(1) << bits;
        FAILS(ctx, attn_attention_create(ctx, &o, &layer), ATTN_ERROR_TOO_LARGE, "key_head_size");
    }
    o = options_of(4, ATTN_DERIVED, 8, ATTN_DERIVED, ATTN_DERIVED);
    o.project_value = 0;
    o.value_width = 3; /* of which four heads have none */
    FAILS(ctx, attn_attention_create(ctx, &o, &layer), ATTN_ERROR_SHAPE, "value_width");

    const variant v = variant_of(1);
    scene s;
    open_scene(&s, ctx, &v, ATTN_FLOAT32);
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, QUERIES, 6), *k = model_tensor(ctx, ATTN_FLOAT32, KEYS, 6),
                *narrow = model_tensor(ctx, ATTN_FLOAT32, KEYS, 5), *y = model_tensor(ctx, ATTN_FLOAT32, QUERIES, 6),
                *tokens = model_tensor(ctx, ATTN_INT32, QUERIES, 6);
    const int64_t one = 3;
    attn_layout *few = NULL;
    OK(ctx, attn_layout_create(ctx, 1, &few));
    OK(ctx, attn_layout_set_lengths(ctx, few, 1, &one, 0));
    FAILS(ctx, attn_attention_forward(ctx, NULL, NULL, x, k, k, s.queries, s.keys, NULL, y), ATTN_ERROR_INVALID_ARGUMENT, "layer");
    FAILS(ctx, attn_attention_forward(ctx, s.layer, NULL, NULL, k, k, s.queries, s.keys, NULL, y), ATTN_ERROR_INVALID_ARGUMENT, "query");
    FAILS(ctx, attn_attention_forward(ctx, s.layer, NULL, tokens, k, k, s.queries, s.keys, NULL, y), ATTN_ERROR_DTYPE, "query");
    FAILS(ctx, attn_attention_forward(ctx, s.layer, NULL, x, narrow, k, s.queries, s.keys, NULL, y), ATTN_ERROR_SHAPE, "key");
    FAILS(ctx, attn_attention_forward(ctx, s.layer, NULL, x, k, x, s.queries, s.keys, NULL, y), ATTN_ERROR_SHAPE, "value");
    FAILS(ctx, attn_attention_forward(ctx, s.layer, NULL, x, k, k, s.queries, s.keys, NULL, k), ATTN_ERROR_SHAPE, "output");
    FAILS(ctx, attn_attention_forward(ctx, s.layer, NULL, x, k, k, s.queries, s.keys, NULL, x), ATTN_ERROR_INVALID_ARGUMENT, "output");
    FAILS(ctx, attn_attention_forward(ctx, s.layer, NULL, x, k, k, few, s.keys, NULL, y), ATTN_ERROR_SHAPE, "query_layout");
    FAILS(ctx, attn_attention_forward(ctx, s.layer, NULL, x, k, k, s.queries, few, NULL, y), ATTN_ERROR_SHAPE, "key_layout");
    attn_tensor *const all[] = {x, k, narrow, y, tokens};
    for (int i = 0; i < 5; i++) attn_tensor_free(all[i]);
    attn_layout_free(few);
    attn_attention_free(NULL);
    assert_null(attn_attention_parameters(NULL));
    close_scene(&s);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_its_parts), cmocka_unit_test(test_gradients_of_inputs),
                                       cmocka_unit_test(test_frozen_projections), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

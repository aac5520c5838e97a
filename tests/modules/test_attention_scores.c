#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* The attention layer's scores, positions and gates: gradients of all its parameters and inputs against differences, the parameters there
   are, and what it refuses. */
enum { QUERIES = 5, KEYS = 6, CASES = 7 };
static const char *const names[CASES] = {"multiplicative, grouped heads",
                                         "multiplicative, no projections, one tensor for all",
                                         "additive",
                                         "T5's buckets",
                                         "relative keys and values, grouped heads",
                                         "RMS of heads, turned, gated",
                                         "LayerNorm of heads, gated, no output projection"};

static attn_attention_options options_of(int which)
{
    attn_attention_options o;
    assert_int_equal(attn_attention_options_init(&o, sizeof o), ATTN_OK);
    o.dtype = ATTN_FLOAT64;
    o.heads = 2;
    o.query_width = o.key_width = 6;
    switch (which) {
    case 0:
        o.score = ATTN_SCORE_MULTIPLICATIVE;
        o.heads = 4;
        o.key_heads = 2;
        o.head_size = 3;
        o.key_head_size = 5;
        break;
    case 1:
        o.score = ATTN_SCORE_MULTIPLICATIVE;
        o.project_query = o.project_key = o.project_value = o.project_output = 0;
        break;
    case 2: o.score = ATTN_SCORE_ADDITIVE; break;
    case 3:
        o.positions = ATTN_POSITIONS_T5;
        o.position_buckets = 4;
        o.position_reach = 4;
        break;
    case 4:
        o.positions = ATTN_POSITIONS_RELATIVE;
        o.position_reach = 2;
        o.key_heads = 1;
        break;
    case 5:
        o.query_key_norm = ATTN_QUERY_KEY_RMS;
        o.positions = ATTN_POSITIONS_ROTARY;
        o.head_size = 4;
        o.gated_output = 1;
        break;
    default:
        o.query_key_norm = ATTN_QUERY_KEY_LAYER;
        o.gated_output = 1;
        o.project_output = 0;
    }
    return o;
}

typedef struct scene {
    attn_context *ctx;
    attn_attention *layer;
    attn_tensor *x, *memory, *y, *weights;
} scene;

static attn_tensor *random_rows(attn_context *ctx, random_state *random, int64_t rows, int64_t width)
{
    attn_tensor *t = model_tensor(ctx, ATTN_FLOAT64, rows, width);
    for (int64_t e = 0; e < model_elements(t); e++) model_set(t, e, random_number(random, -1, 1));
    return t;
}

static void run(const scene *s, attn_tape *tape)
{
    OK(s->ctx, attn_attention_forward(s->ctx, s->layer, tape, s->x, s->memory, s->memory, NULL, NULL, NULL, s->y));
}

/* the derivative of the weighted sum of the outputs by one number */
static double slope(const scene *s, attn_tensor *of, int64_t e)
{
    const double step = 1e-5, before = model_get(of, e);
    double sum = 0;
    for (int side = -1; side <= 1; side += 2) {
        model_set(of, e, before + side * step);
        run(s, NULL);
        for (int64_t i = 0; i < model_elements(s->y); i++) sum += side * model_get(s->y, i) * model_get(s->weights, i);
    }
    model_set(of, e, before);
    return sum / (2 * step);
}

static void expect_gradient(const scene *s, const char *layer, const char *name, attn_tensor *of, const attn_tensor *got)
{
    for (int64_t e = 0; e < model_elements(of); e++) {
        double want = slope(s, of, e);
        if (!(fabs(model_get(got, e) - want) < 1e-8))
            fail_msg("%s: d %s[%d] is %.12g, expected %.12g", layer, name, (int)e, model_get(got, e), want);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    for (int which = 0; which < CASES; which++) {
        random_state random = {(uint64_t)which + 1};
        const attn_attention_options o = options_of(which);
        scene s = {.ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0)};
        attn_tape *tape = NULL;
        attn_gradients *gradients = NULL;
        OK(s.ctx, attn_attention_create(s.ctx, &o, &s.layer));
        attn_parameters *set = attn_attention_parameters(s.layer);
        model_scramble(set, 5);
        s.x = random_rows(s.ctx, &random, which == 1 ? KEYS : QUERIES, 6);
        s.memory = which == 1 ? s.x : random_rows(s.ctx, &random, KEYS, 6);
        s.y = random_rows(s.ctx, &random, which == 1 ? KEYS : QUERIES, 6);
        s.weights = random_rows(s.ctx, &random, which == 1 ? KEYS : QUERIES, 6);
        attn_tensor *dx = random_rows(s.ctx, &random, which == 1 ? KEYS : QUERIES, 6), *dm = random_rows(s.ctx, &random, KEYS, 6);
        OK(s.ctx, attn_gradients_create(s.ctx, set, &gradients));
        OK(s.ctx, attn_tape_create(s.ctx, &tape));
        OK(s.ctx, attn_tape_begin(s.ctx, tape, NULL));
        OK(s.ctx, attn_tape_watch(s.ctx, tape, s.x, dx));
        if (which != 1) OK(s.ctx, attn_tape_watch(s.ctx, tape, s.memory, dm));
        run(&s, tape);
        const attn_tensor *const outputs[1] = {s.y}, *const seeds[1] = {s.weights};
        OK(s.ctx, attn_tape_backward(s.ctx, tape, 1, outputs, seeds, 1, &gradients));
        expect_gradient(&s, names[which], "query", s.x, dx);
        if (which != 1) expect_gradient(&s, names[which], "memory", s.memory, dm);
        for (int64_t p = 0; p < attn_parameters_count(set); p++)
            expect_gradient(&s, names[which], attn_parameters_name(set, p), attn_parameters_tensor(set, p),
                            attn_gradients_tensor(gradients, p));
        attn_tape_free(tape);
        attn_gradients_free(gradients);
        attn_tensor *const all[] = {s.x, which == 1 ? NULL : s.memory, s.y, s.weights, dx, dm};
        for (int i = 0; i < 6; i++) attn_tensor_free(all[i]);
        attn_attention_free(s.layer);
        attn_context_free(s.ctx);
    }
}

/* rows 0: there is no such parameter; columns 0: it is a vector */
static void expect_shape(attn_context *ctx, const attn_attention_options *o, const char *name, int64_t rows, int64_t columns)
{
    attn_attention *layer = NULL;
    OK(ctx, attn_attention_create(ctx, o, &layer));
    attn_parameters *set = attn_attention_parameters(layer);
    int64_t at = attn_parameters_find(set, name);
    assert_int_equal(at >= 0, rows > 0);
    if (at >= 0) assert_int_equal(attn_tensor_extent(attn_parameters_tensor(set, at), 0), rows);
    if (at >= 0 && columns > 0) assert_int_equal(attn_tensor_extent(attn_parameters_tensor(set, at), 1), columns);
    attn_attention_free(layer);
}

static void test_parameters(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    attn_attention_options o = options_of(0);
    (void)state;
    expect_shape(ctx, &o, "score.weight", 20, 3);
    expect_shape(ctx, &o, "key.weight", 10, 6);
    o.key_head_size = ATTN_DERIVED; /* as the head size */
    expect_shape(ctx, &o, "score.weight", 12, 3);
    expect_shape(ctx, &o, "key.weight", 6, 6);
    o = options_of(2);
    expect_shape(ctx, &o, "score.weight", 2, 3);
    o = options_of(4);
    expect_shape(ctx, &o, "position.weight", 5, 3);
    expect_shape(ctx, &o, "position_values.weight", 5, 3);
    o.relative_values = 0;
    expect_shape(ctx, &o, "position.weight", 5, 3);
    expect_shape(ctx, &o, "position_values.weight", 0, 0);
    o = options_of(5);
    expect_shape(ctx, &o, "gate.weight", 8, 6);
    expect_shape(ctx, &o, "gate.bias", 8, 0);
    o.bias_query = 0;
    expect_shape(ctx, &o, "gate.bias", 0, 0);
    attn_context_free(ctx);
}

static void test_refusals(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    attn_attention *layer = NULL;
    static const struct {
        int32_t sides;
        int64_t buckets, reach;
        attn_status status;
    } cases[] = {{1, 5, 128, ATTN_ERROR_INVALID_ARGUMENT},          {1, 2, 128, ATTN_ERROR_INVALID_ARGUMENT},
                 {1, 32, 8, ATTN_ERROR_INVALID_ARGUMENT},           {1, 32, 9, ATTN_OK},
                 {0, 1, 128, ATTN_ERROR_INVALID_ARGUMENT},          {0, 5, 128, ATTN_OK},
                 {0, 32, 16, ATTN_ERROR_INVALID_ARGUMENT},          {0, 32, 17, ATTN_OK},
                 {1, 4, (1 << 20) + 1, ATTN_ERROR_INVALID_ARGUMENT}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_attention_options o = options_of(3);
        o.position_sides = cases[i].sides;
        o.position_buckets = cases[i].buckets;
        o.position_reach = cases[i].reach;
        if (cases[i].status == ATTN_OK)
            OK(ctx, attn_attention_create(ctx, &o, &layer));
        else
            FAILS(ctx, attn_attention_create(ctx, &o, &layer), cases[i].status, "options.position_");
        attn_attention_free(layer);
    }
    attn_attention_options o = options_of(2);
    o.key_head_size = 4;
    FAILS(ctx, attn_attention_create(ctx, &o, &layer), ATTN_ERROR_SHAPE, "options.key_head_size");
    o = options_of(2);
    o.heads = 1;
    o.head_size = 32769;
    FAILS(ctx, attn_attention_create(ctx, &o, &layer), ATTN_ERROR_SHAPE, "options.head_size: got 32769");
    o = options_of(0);
    o.positions = ATTN_POSITIONS_ROTARY;
    FAILS(ctx, attn_attention_create(ctx, &o, &layer), ATTN_ERROR_SHAPE, "rotary");
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_parameters),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

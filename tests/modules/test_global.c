#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"
#include "tensor/mask.h"

/* Longformer's projections of global tokens: their rows are those of a plain layer that has the global projections as its own and no mask, the
   others those of a plain layer with the usual ones under the mask; and so are the gradients. */
enum { WIDTH = 12, ROWS = 17, SEGMENTS = 4, GLOBALS = 3 };
static const int64_t lengths[SEGMENTS] = {7, 0, 1, 9}, indices[GLOBALS] = {0, 3, 8};
/* rows that the indices name, from the first key on */
static const int is_global[ROWS] = {1, 0, 0, 1, 0, 0, 0, /* */ 1, /* */ 1, 0, 0, 1, 0, 0, 0, 0, 1};

typedef struct run {
    attn_attention *layer;
    attn_parameters *parameters;
    attn_gradients *gradients;
    attn_tensor *y, *dx;
} run;

typedef struct fixture {
    attn_context *ctx;
    int32_t dtype;
    attn_tensor *x;
    attn_layout *layout;
    attn_mask *mask, *window, *global;
    attn_tape *tape;
} fixture;

static attn_attention_options options_of(const fixture *f, int which)
{
    attn_attention_options o;
    assert_int_equal(attn_attention_options_init(&o, sizeof o), ATTN_OK);
    o.dtype = f->dtype;
    o.query_width = WIDTH;
    o.heads = 4;
    o.key_heads = which & 1 ? 2 : 4;
    o.value_head_size = which & 2 ? 5 : 3;
    if (which & 4) o.project_output = 0;
    if (which & 8) o.bias_query = o.bias_key = o.bias_value = 0;
    o.gated_output = which >> 4 & 1;
    o.score = which & 4 ? ATTN_SCORE_DOT : ATTN_SCORE_SCALED_DOT;
    o.soft_cap = which & 8 ? 1.5 : 0;
    return o;
}

static void open_fixture(fixture *f, int32_t backend, int32_t dtype)
{
    f->ctx = model_context(backend, 2, 0);
    f->dtype = dtype;
    f->x = model_tensor(f->ctx, dtype, ROWS, WIDTH);
    random_state random = {3};
    for (int64_t i = 0; i < ROWS * WIDTH; i++) model_set(f->x, i, random_number(&random, -1, 1));
    OK(f->ctx, attn_layout_create(f->ctx, SEGMENTS, &f->layout));
    OK(f->ctx, attn_layout_set_lengths(f->ctx, f->layout, SEGMENTS, lengths, 0));
    OK(f->ctx, attn_mask_window(f->ctx, ATTN_ALIGN_FIRST, 1, 1, 1, &f->window));
    OK(f->ctx, attn_mask_global(f->ctx, ATTN_ALIGN_FIRST, GLOBALS, indices, &f->global));
    OK(f->ctx, attn_mask_union(f->ctx, f->window, f->global, &f->mask));
    OK(f->ctx, attn_tape_create(f->ctx, &f->tape));
}

static void close_fixture(fixture *f)
{
    attn_tensor_free(f->x);
    attn_layout_free(f->layout);
    attn_mask_free(f->mask);
    attn_mask_free(f->window);
    attn_mask_free(f->global);
    attn_tape_free(f->tape);
    attn_context_free(f->ctx);
}

static run open_run(const fixture *f, const attn_attention_options *o)
{
    run r = {.layer = NULL};
    OK(f->ctx, attn_attention_create(f->ctx, o, &r.layer));
    r.parameters = attn_attention_parameters(r.layer);
    OK(f->ctx, attn_gradients_create(f->ctx, r.parameters, &r.gradients));
    const int64_t width = o->project_output ? o->query_width : o->heads * o->value_head_size;
    r.y = model_tensor(f->ctx, f->dtype, ROWS, width);
    r.dx = model_tensor(f->ctx, f->dtype, ROWS, WIDTH);
    return r;
}

static void close_run(run *r)
{
    attn_attention_free(r->layer);
    attn_gradients_free(r->gradients);
    attn_tensor_free(r->y);
    attn_tensor_free(r->dx);
}

/* output and gradients, of the sum of the rows that `counts` picks (1: global ones, 0: the others, -1: all), each element weighted */
static void go(const fixture *f, run *r, const attn_mask *mask, int counts)
{
    attn_tape_options t;
    attn_tensor *weights = model_tensor(f->ctx, f->dtype, ROWS, attn_tensor_extent(r->y, 1));
    for (int64_t i = 0, width = attn_tensor_extent(r->y, 1); i < ROWS * width; i++)
        model_set(weights, i, counts >= 0 && is_global[i / width] != counts ? 0 : (double)(i % 7) / 4 - 0.6);
    OK(f->ctx, attn_tape_options_init(&t, sizeof t));
    OK(f->ctx, attn_tape_begin(f->ctx, f->tape, &t));
    OK(f->ctx, attn_tape_watch(f->ctx, f->tape, f->x, r->dx));
    OK(f->ctx, attn_attention_forward(f->ctx, r->layer, f->tape, f->x, f->x, f->x, f->layout, f->layout, mask, r->y));
    OK(f->ctx,
       attn_tape_backward(f->ctx, f->tape, 1, (const attn_tensor *const[]){r->y}, (const attn_tensor *const[]){weights}, 1, &r->gradients));
    attn_tensor_free(weights);
}

static attn_tensor *parameter(const run *r, const char *name)
{
    return attn_parameters_tensor(r->parameters, attn_parameters_find(r->parameters, name));
}
static attn_tensor *gradient(const run *r, const char *name)
{
    return attn_gradients_tensor(r->gradients, attn_parameters_find(r->parameters, name));
}

static void copy(attn_tensor *to, const attn_tensor *from)
{
    for (int64_t i = 0; i < model_elements(to); i++) model_set(to, i, model_get(from, i));
}

static void same(const char *what, int which, const attn_tensor *got, const attn_tensor *a, const attn_tensor *b, double within)
{
    for (int64_t i = 0; i < model_elements(got); i++) {
        const double want = (a != NULL ? model_get(a, i) : 0) + (b != NULL ? model_get(b, i) : 0);
        if (!(fabs(model_get(got, i) - want) <= within * (1 + fabs(want))))
            fail_msg("case %d, %s, element %d: got %.17g, expected %.17g", which, what, (int)i, model_get(got, i), want);
    }
}

static void compare(const fixture *f, int which, double within)
{
    static const char *const projections[] = {"query.weight", "key.weight", "value.weight", "query.bias", "key.bias", "value.bias"};
    static const char *const shared[] = {"output.weight", "output.bias", "gate.weight", "gate.bias"};
    attn_attention_options o = options_of(f, which);
    run usual = open_run(f, &o), global = open_run(f, &o);
    o.global_projections = 1;
    run both = open_run(f, &o);
    char name[64];
    model_scramble(both.parameters, 5);
    for (size_t i = 0; i < sizeof projections / sizeof *projections; i++) {
        if (attn_parameters_find(both.parameters, projections[i]) < 0) continue;
        snprintf(name, sizeof name, "global_%s", projections[i]);
        copy(parameter(&usual, projections[i]), parameter(&both, projections[i]));
        copy(parameter(&global, projections[i]), parameter(&both, name));
    }
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        if (attn_parameters_find(both.parameters, shared[i]) < 0) continue;
        copy(parameter(&usual, shared[i]), parameter(&both, shared[i]));
        copy(parameter(&global, shared[i]), parameter(&both, shared[i]));
    }
    go(f, &both, f->mask, -1);
    go(f, &usual, f->mask, 0);
    go(f, &global, NULL, 1);
    for (int64_t i = 0, width = attn_tensor_extent(both.y, 1); i < ROWS * width; i++) {
        const double want = model_get(is_global[i / width] ? global.y : usual.y, i);
        if (!(fabs(model_get(both.y, i) - want) <= within * (1 + fabs(want))))
            fail_msg("case %d, row %d: got %.17g, expected %.17g", which, (int)(i / width), model_get(both.y, i), want);
    }
    for (size_t i = 0; i < sizeof projections / sizeof *projections; i++) {
        if (attn_parameters_find(both.parameters, projections[i]) < 0) continue;
        snprintf(name, sizeof name, "global_%s", projections[i]);
        same(projections[i], which, gradient(&both, projections[i]), gradient(&usual, projections[i]), NULL, within);
        same(name, which, gradient(&both, name), gradient(&global, projections[i]), NULL, within);
    }
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (attn_parameters_find(both.parameters, shared[i]) >= 0)
            same(shared[i], which, gradient(&both, shared[i]), gradient(&usual, shared[i]), gradient(&global, shared[i]), within);
    same("x", which, both.dx, usual.dx, global.dx, within);
    close_run(&both);
    close_run(&usual);
    close_run(&global);
}

static void test_two_layers(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        fixture f;
        open_fixture(&f, backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, backend ? ATTN_FLOAT64 : ATTN_FLOAT32);
        for (int which = 0; which < 32; which++) compare(&f, which, backend ? 1e-12 : 2e-5);
        close_fixture(&f);
    }
}

/* the largest difference of two outputs, over global rows or over the others */
static double apart(const attn_tensor *a, const attn_tensor *b, int global)
{
    double most = 0;
    for (int64_t i = 0; i < model_elements(a); i++)
        if (is_global[i / attn_tensor_extent(a, 1)] == global) most = fmax(most, fabs(model_get(a, i) - model_get(b, i)));
    return most;
}

/* where the mask names no token, the layer is the plain one, to the bit; the alignment tells which rows are named */
static void test_masks(void **state)
{
    fixture f;
    (void)state;
    open_fixture(&f, ATTN_BACKEND_BLAS, ATTN_FLOAT32);
    for (int output = 0; output < 2; output++) {
        attn_attention_options o = options_of(&f, output ? 0 : 4);
        run plain = open_run(&f, &o);
        o.global_projections = 1;
        run global = open_run(&f, &o), again = open_run(&f, &o);
        for (int64_t i = 0; i < attn_parameters_count(plain.parameters); i++) {
            const char *name = attn_parameters_name(plain.parameters, i);
            copy(parameter(&global, name), parameter(&plain, name));
        }
        for (int64_t i = 0; i < attn_parameters_count(global.parameters); i++)
            copy(attn_parameters_tensor(again.parameters, i), attn_parameters_tensor(global.parameters, i));
        attn_mask *both = NULL, *last = NULL, *first = NULL;
        for (int which = 0; which < 2; which++) {
            go(&f, &plain, which ? f.window : NULL, -1);
            go(&f, &global, which ? f.window : NULL, -1);
            assert_true(apart(plain.y, global.y, 0) == 0 && apart(plain.y, global.y, 1) == 0);
        }
        /* a global mask that is cut down is no global mask: its rows need not see all keys */
        OK(f.ctx, attn_mask_intersection(f.ctx, f.window, f.global, &both));
        go(&f, &plain, both, -1);
        go(&f, &global, both, -1);
        assert_true(apart(plain.y, global.y, 0) == 0 && apart(plain.y, global.y, 1) == 0);
        /* equal lengths of queries and keys: every alignment names the same rows */
        OK(f.ctx, attn_mask_global(f.ctx, ATTN_ALIGN_LAST, GLOBALS, indices, &last));
        go(&f, &global, f.global, -1);
        go(&f, &again, last, -1);
        assert_true(apart(global.y, again.y, 0) == 0 && apart(global.y, again.y, 1) == 0);
        go(&f, &plain, f.global, -1);
        assert_true(apart(plain.y, global.y, 0) == 0 && apart(plain.y, global.y, 1) > 1e-3);
        /* a union is the same from either side */
        OK(f.ctx, attn_mask_union(f.ctx, f.global, f.window, &first));
        go(&f, &global, f.mask, -1);
        go(&f, &again, first, -1);
        assert_true(apart(global.y, again.y, 0) == 0 && apart(global.y, again.y, 1) == 0);
        /* and wherever it stands in a tree of them */
        for (int at = 0; at < 4; at++) {
            attn_mask *inner = NULL, *outer = NULL;
            OK(f.ctx, attn_mask_union(f.ctx, at & 1 ? f.window : f.global, at & 1 ? f.global : f.window, &inner));
            OK(f.ctx, attn_mask_union(f.ctx, at & 2 ? f.window : inner, at & 2 ? inner : f.window, &outer));
            go(&f, &again, outer, -1);
            assert_true(apart(global.y, again.y, 0) == 0 && apart(global.y, again.y, 1) == 0);
            attn_mask_free(inner);
            attn_mask_free(outer);
        }
        /* two global masks name the rows of either, also where they share some */
        attn_mask *half[2] = {NULL, NULL}, *joined = NULL, *outer = NULL;
        OK(f.ctx, attn_mask_global(f.ctx, ATTN_ALIGN_LAST, GLOBALS - 1, indices, &half[0]));
        OK(f.ctx, attn_mask_global(f.ctx, ATTN_ALIGN_FIRST, GLOBALS - 1, indices + 1, &half[1]));
        OK(f.ctx, attn_mask_union(f.ctx, half[0], half[1], &joined));
        OK(f.ctx, attn_mask_union(f.ctx, f.window, joined, &outer));
        go(&f, &again, outer, -1);
        assert_true(apart(global.y, again.y, 0) == 0 && apart(global.y, again.y, 1) == 0);
        attn_mask *const made[] = {half[0], half[1], joined, outer, first, both, last};
        for (size_t i = 0; i < sizeof made / sizeof *made; i++) attn_mask_free(made[i]);
        close_run(&plain);
        close_run(&global);
        close_run(&again);
    }
    close_fixture(&f);
}

static void test_refusals(void **state)
{
    fixture f;
    (void)state;
    open_fixture(&f, ATTN_BACKEND_BLAS, ATTN_FLOAT32);
    for (int which = 0; which < 9; which++) {
        static const char *const words[] = {"options.form",      "options.score",          "options.score",
                                            "options.positions", "options.query_key_norm", "options.pair_bias",
                                            "project_query",     "project_query",          "project_query"};
        attn_attention_options o = options_of(&f, 0);
        attn_attention *layer = NULL;
        o.value_head_size = 3;
        o.global_projections = 1;
        if (which == 0) o.form = ATTN_FORM_LINEAR;
        if (which == 1) o.score = ATTN_SCORE_MULTIPLICATIVE;
        if (which == 2) o.score = ATTN_SCORE_ADDITIVE;
        if (which == 3) o.positions = ATTN_POSITIONS_ALIBI;
        if (which == 4) o.query_key_norm = ATTN_QUERY_KEY_RMS;
        if (which == 5) o.pair_bias = 1;
        if (which == 6) o.project_query = 0;
        if (which == 7) o.project_key = 0;
        if (which == 8) o.project_value = 0;
        FAILS(f.ctx, attn_attention_create(f.ctx, &o, &layer), ATTN_ERROR_UNSUPPORTED, words[which]);
        assert_null(layer);
    }
    close_fixture(&f);
}

/* In a model: of the encoder's self-attention alone, cost reports included; heads that are taken out take their global projections with them, so
   that what is left is the model whose head said nothing. */
static void test_encoder(void **state)
{
    static const int64_t gone[1][3] = {{0, 1, 2}};
    attn_context *ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    attn_transformer_options o = model_options(2, 1);
    attn_cost_report before = {.struct_size = sizeof before}, after = before;
    attn_mask *global = NULL;
    attn_transformer *pruned = NULL;
    model_batch b;
    (void)state;
    o.dtype = ATTN_FLOAT64;
    o.width = 12;
    o.heads = 4;
    OK(ctx, attn_transformer_memory(ctx, &o, 1, 20, 5, &before));
    o.global_projections = 1;
    OK(ctx, attn_transformer_memory(ctx, &o, 1, 20, 5, &after));
    assert_int_equal(after.parameters - before.parameters, 2 * 3 * (12 * 12 + 12));
    attn_transformer *model = model_create(ctx, &o);
    attn_parameters *p = attn_transformer_parameters(model);
    assert_true(attn_parameters_find(p, "encoder.layers.1.self_attention.global_query.weight") >= 0);
    assert_true(attn_parameters_find(p, "decoder.layers.0.self_attention.global_query.weight") < 0);
    assert_true(attn_parameters_find(p, "decoder.layers.0.cross_attention.global_query.weight") < 0);
    OK(ctx, attn_mask_global(ctx, ATTN_ALIGN_LAST, GLOBALS, indices, &global));
    OK(ctx, attn_transformer_set_mask(ctx, model, 0, -1, global));
    model_batch_open(ctx, &b, &o, SEGMENTS, lengths, lengths, 2);
    attn_tensor *want = model_tensor(ctx, ATTN_FLOAT64, ROWS, 11), *got = model_tensor(ctx, ATTN_FLOAT64, ROWS, 11);
    OK(ctx, attn_transformer_prune_heads(ctx, model, 1, &gone[0][0], &pruned));
    OK(ctx, attn_transformer_set_mask(ctx, pruned, 0, -1, global));
    OK(ctx, attn_transformer_forward(ctx, pruned, NULL, &b.batch, got));
    attn_tensor *w = attn_parameters_tensor(p, attn_parameters_find(p, "encoder.layers.1.self_attention.output.weight"));
    for (int64_t i = 0; i < model_elements(w); i++)
        if (i % 12 / 3 == 2) model_set(w, i, 0); /* head 2 says nothing */
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &b.batch, want));
    for (int64_t i = 0; i < model_elements(want); i++)
        if (!(fabs(model_get(want, i) - model_get(got, i)) < 1e-12))
            fail_msg("logit %d: got %.17g, expected %.17g", (int)i, model_get(got, i), model_get(want, i));
    attn_tensor_free(want);
    attn_tensor_free(got);
    attn_mask_free(global);
    model_batch_close(&b);
    attn_transformer_free(pruned);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

/* queries that stand in the middle or at the end of their keys: named by the key that is theirs */
static void test_rows(void **state)
{
    static const struct {
        int32_t alignment;
        int64_t first_position, count, row[2];
    } cases[] = {{ATTN_ALIGN_FIRST, 0, 2, {0, 3}},
                 {ATTN_ALIGN_LAST, 0, 1, {3, 0}},
                 {ATTN_ALIGN_POSITION, 2, 1, {1, 0}},
                 {ATTN_ALIGN_POSITION, 9, 0, {0, 0}}};
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_segment query = {0, 4, cases[i].first_position, 0}, key = {0, 9, 0, 0};
        const attn__pair pair = {0, &query, &key};
        attn_mask *mask = NULL;
        int64_t row[GLOBALS] = {-1, -1, -1};
        OK(ctx, attn_mask_global(ctx, cases[i].alignment, GLOBALS, indices, &mask));
        assert_int_equal(attn__mask_global_rows(mask, &pair, NULL), cases[i].count);
        assert_int_equal(attn__mask_global_rows(mask, &pair, row), cases[i].count);
        for (int64_t g = 0; g < GLOBALS; g++) assert_int_equal(row[g], g < cases[i].count ? cases[i].row[g] : -1);
        attn_mask_free(mask);
    }
    attn_context_free(ctx);
}

/* Dropout of global rows: equal sequences side by side draw each for themselves, and a sequence draws the same alone. */
static void draw_apart(const fixture *f, double within)
{
    enum { LENGTH = 9 };
    const attn_segment both[2] = {{0, LENGTH, 0, 5}, {LENGTH, LENGTH, 0, 6}}, later = {0, LENGTH, 0, 6};
    attn_attention_options o = options_of(f, 4);
    attn_attention *layer = NULL;
    attn_tape_options t;
    attn_tensor *x[2], *y[2];
    int differ = 0;
    o.global_projections = 1;
    o.dropout = 0.4;
    OK(f->ctx, attn_attention_create(f->ctx, &o, &layer));
    const int64_t width = o.heads * o.value_head_size;
    for (int alone = 0; alone < 2; alone++) {
        attn_layout *layout = NULL;
        random_state random = {8};
        x[alone] = model_tensor(f->ctx, f->dtype, (2 - alone) * LENGTH, WIDTH);
        y[alone] = model_tensor(f->ctx, f->dtype, (2 - alone) * LENGTH, width);
        for (int64_t i = 0; i < LENGTH * WIDTH; i++) {
            model_set(x[alone], i, random_number(&random, -1, 1));
            if (!alone) model_set(x[0], LENGTH * WIDTH + i, model_get(x[0], i));
        }
        OK(f->ctx, attn_layout_create(f->ctx, 2, &layout));
        OK(f->ctx, attn_layout_set(f->ctx, layout, 2 - alone, alone ? &later : both));
        OK(f->ctx, attn_tape_options_init(&t, sizeof t));
        t.training = 1;
        OK(f->ctx, attn_tape_begin(f->ctx, f->tape, &t));
        OK(f->ctx, attn_attention_forward(f->ctx, layer, f->tape, x[alone], x[alone], x[alone], layout, layout, f->mask, y[alone]));
        attn_layout_free(layout);
    }
    for (int64_t g = 0; g < GLOBALS; g++)
        for (int64_t c = 0; c < width; c++) {
            const double first = model_get(y[0], indices[g] * width + c), second = model_get(y[0], (LENGTH + indices[g]) * width + c);
            differ += first != second;
            assert_true(fabs(model_get(y[1], indices[g] * width + c) - second) <= within);
        }
    assert_true(differ > GLOBALS * width / 2);
    for (int i = 0; i < 2; i++) {
        attn_tensor_free(x[i]);
        attn_tensor_free(y[i]);
    }
    attn_attention_free(layer);
}

static void test_dropout(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        fixture f;
        open_fixture(&f, backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, backend ? ATTN_FLOAT64 : ATTN_FLOAT32);
        draw_apart(&f, backend ? 1e-12 : 2e-5);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_layers), cmocka_unit_test(test_masks),   cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_rows),       cmocka_unit_test(test_encoder), cmocka_unit_test(test_dropout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

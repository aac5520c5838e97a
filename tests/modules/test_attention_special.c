#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* What is rare in an attention layer: a site of its own, inputs with gaps, and scores whose queries nobody trains. */
enum { ROWS = 5 };

/* two heads */
static attn_attention_options six_wide(void)
{
    attn_attention_options o;
    assert_int_equal(attn_attention_options_init(&o, sizeof o), ATTN_OK);
    o.heads = 2;
    o.query_width = 6;
    return o;
}

/* a site of its own: dropout draws other numbers there; unprojected queries are normed as they lie, and without gaps */
static void test_site_and_gaps(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    const attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, 6), *y[3];
    attn_tape *tape = NULL;
    OK(ctx, attn_tape_create(ctx, &tape));
    for (int64_t e = 0; e < model_elements(x); e++) model_set(x, e, (double)(e * 5 % 7) / 7);
    for (int i = 0; i < 3; i++) {
        attn_attention_options o = six_wide();
        attn_attention *layer = NULL;
        o.dropout = 0.5;
        o.site = i == 1 ? 77 : 0;
        y[i] = model_tensor(ctx, ATTN_FLOAT32, ROWS, 6);
        OK(ctx, attn_attention_create(ctx, &o, &layer));
        OK(ctx, attn_tape_begin(ctx, tape, &training));
        OK(ctx, attn_attention_forward(ctx, layer, tape, x, x, x, NULL, NULL, NULL, y[i]));
        attn_attention_free(layer);
    }
    int differ = 0;
    for (int64_t e = 0; e < model_elements(x); e++) {
        assert_true(model_get(y[0], e) == model_get(y[2], e));
        differ |= model_get(y[0], e) != model_get(y[1], e);
    }
    assert_true(differ);
    static float apart[ROWS * 9];
    attn_tensor *gaps = NULL;
    attn_attention_options o = six_wide();
    attn_attention *layer = NULL;
    o.project_query = 0;
    o.query_key_norm = ATTN_QUERY_KEY_RMS;
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, (const int64_t[]){ROWS, 6}, (const int64_t[]){9, 1}, apart, &gaps));
    OK(ctx, attn_attention_create(ctx, &o, &layer));
    OK(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, NULL, y[0]));
    FAILS(ctx, attn_attention_forward(ctx, layer, NULL, gaps, x, x, NULL, NULL, NULL, y[0]), ATTN_ERROR_SHAPE, "gaps");
    attn_attention_free(layer);
    /* a gate without bias, and relative keys without values */
    o = six_wide();
    o.gated_output = 1;
    o.bias_query = 0;
    o.positions = ATTN_POSITIONS_RELATIVE;
    o.relative_values = 0;
    OK(ctx, attn_attention_create(ctx, &o, &layer));
    assert_int_equal(attn_parameters_find(attn_attention_parameters(layer), "position_values.weight"), -1);
    OK(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, NULL, y[0]));
    attn_attention_free(layer);
    /* the matrix of scores alone is trained: nothing asks for the gradient of its queries */
    attn_gradients *gradients[2] = {NULL, NULL};
    o = six_wide();
    o.score = ATTN_SCORE_MULTIPLICATIVE;
    OK(ctx, attn_attention_create(ctx, &o, &layer));
    attn_parameters *p = attn_attention_parameters(layer);
    for (int i = 0; i < 2; i++) {
        if (i) OK(ctx, attn_parameters_freeze(ctx, p, "query.*", 1, NULL));
        OK(ctx, attn_gradients_create(ctx, p, &gradients[i]));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_attention_forward(ctx, layer, tape, x, x, x, NULL, NULL, NULL, y[0]));
        OK(ctx, attn_tape_backward(ctx, tape, 1, (const attn_tensor *const[]){y[0]}, NULL, 1, &gradients[i]));
    }
    const int64_t score = attn_parameters_find(p, "score.weight");
    for (int64_t e = 0; e < model_elements(attn_parameters_tensor(p, score)); e++)
        assert_true(model_get(attn_gradients_tensor(gradients[0], score), e) == model_get(attn_gradients_tensor(gradients[1], score), e));
    for (int i = 0; i < 2; i++) attn_gradients_free(gradients[i]);
    attn_attention_free(layer);
    attn_tensor *const all[] = {x, y[0], y[1], y[2], gaps};
    for (int i = 0; i < 5; i++) attn_tensor_free(all[i]);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

/* Which of the three inputs are one tensor decides what is projected by one product. Every such pattern gives what three tensors of the same
   numbers give. */
static void test_shared_inputs(void **state)
{
    static const int patterns[][3] = {{0, 0, 0}, {0, 1, 1}, {0, 0, 1}, {0, 1, 0}, {0, 1, 2}};
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_attention_options o = six_wide();
    attn_attention *layer = NULL;
    attn_tensor *x[6], *y[2];
    attn_tape *tape = NULL;
    attn_gradients *gradients[2] = {NULL, NULL};
    OK(ctx, attn_attention_create(ctx, &o, &layer));
    attn_parameters *p = attn_attention_parameters(layer);
    model_scramble(p, 3);
    OK(ctx, attn_tape_create(ctx, &tape));
    for (int i = 0; i < 6; i++) x[i] = model_tensor(ctx, ATTN_FLOAT32, ROWS, 6);
    for (int i = 0; i < 2; i++) {
        y[i] = model_tensor(ctx, ATTN_FLOAT32, ROWS, 6);
        OK(ctx, attn_gradients_create(ctx, p, &gradients[i]));
    }
    for (size_t which = 0; which < sizeof patterns / sizeof *patterns; which++) {
        const int *from = patterns[which];
        for (int i = 0; i < 6; i++) /* tensors 3 to 5 are copies */
            for (int64_t e = 0; e < ROWS * 6; e++) model_set(x[i], e, (double)((e * 5 + 3 * (i < 3 ? i : from[i - 3])) % 7) / 7);
        for (int i = 0; i < 2; i++) {
            OK(ctx, attn_gradients_zero(ctx, gradients[i]));
            OK(ctx, attn_tape_begin(ctx, tape, NULL));
            OK(ctx, attn_attention_forward(ctx, layer, tape, x[i ? 3 : from[0]], x[i ? 4 : from[1]], x[i ? 5 : from[2]], NULL, NULL, NULL,
                                           y[i]));
            OK(ctx, attn_tape_backward(ctx, tape, 1, (const attn_tensor *const[]){y[i]}, NULL, 1, &gradients[i]));
        }
        for (int64_t e = 0; e < ROWS * 6; e++) assert_true(fabs(model_get(y[0], e) - model_get(y[1], e)) < 1e-6);
        for (int64_t e = 0; e < model_elements(attn_gradients_flat(gradients[0])); e++)
            assert_true(fabs(model_get(attn_gradients_flat(gradients[0]), e) - model_get(attn_gradients_flat(gradients[1]), e)) < 1e-5);
    }
    for (int i = 0; i < 6; i++) attn_tensor_free(x[i]);
    for (int i = 0; i < 2; i++) attn_tensor_free(y[i]);
    for (int i = 0; i < 2; i++) attn_gradients_free(gradients[i]);
    attn_tape_free(tape);
    attn_attention_free(layer);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_site_and_gaps), cmocka_unit_test(test_shared_inputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

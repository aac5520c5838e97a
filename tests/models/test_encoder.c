#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/gradient.h"
#include "variants.h"

/* A stack of its own: gradients of its input, its masks, its errors. */
enum { SEGMENTS = 4, ROWS = 8, WIDTH = 8 };
static const int64_t lengths[SEGMENTS] = {3, 0, 4, 1};

static attn_layout *layout_of(attn_context *ctx)
{
    attn_layout *made = NULL;
    OK(ctx, attn_layout_create(ctx, SEGMENTS, &made));
    OK(ctx, attn_layout_set_lengths(ctx, made, SEGMENTS, lengths, 0));
    return made;
}

typedef struct scene {
    attn_encoder *encoder;
    attn_layout *layout;
    attn_mask *mask;
} scene;

static attn_status run(gradient_check *g, attn_tape *tape, const void *what)
{
    const scene *s = what;
    return attn_encoder_forward(g->ctx, s->encoder, tape, g->input[0], s->layout, s->mask, g->output);
}

static void test_gradient_of_the_input(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++) {
        attn_transformer_options o = model_options(2, 0);
        gradient_check g;
        scene s = {NULL, NULL, NULL};
        o.dtype = ATTN_FLOAT64;
        o.activation = ATTN_ACTIVATION_GELU;
        o.norm_placement = which & 1 ? ATTN_PLACEMENT_PRE : ATTN_PLACEMENT_POST;
        o.parallel_block = which & 2 ? 1 : 0;
        o.checkpoint_layers = which & 4 ? 1 : 0;
        o.dropout_attention = o.dropout_sublayer = o.dropout_activation = 0.2;
        gradient_open(&g, (uint64_t)which);
        g.options.training = 1;
        OK(g.ctx, attn_encoder_create(g.ctx, &o, &s.encoder));
        model_scramble(attn_encoder_parameters(s.encoder), 2);
        s.layout = layout_of(g.ctx);
        const int64_t shape[2] = {ROWS, WIDTH};
        gradient_input(&g, 2, shape, -1, 1);
        gradient_output(&g, 2, shape);
        gradient_expect(&g, run, &s);
        attn_layout_free(s.layout);
        attn_encoder_free(s.encoder);
        gradient_close(&g);
    }
}

/* The mask of the call is for layers without a rule of their own; a causal encoder's rows do not see what comes later. */
static void test_masks(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    attn_transformer_options o = model_options(2, 0);
    attn_encoder *encoder = NULL;
    attn_mask *causal = NULL, *wrong = NULL;
    attn_layout *layout = layout_of(ctx);
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *y[2], *small = NULL;
    random_state random = {1};
    OK(ctx, attn_encoder_create(ctx, &o, &encoder));
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &causal));
    for (int64_t e = 0; e < ROWS * WIDTH; e++) model_set(x, e, random_number(&random, -1, 1));
    /* how the mask comes in: not at all, by the call, one layer by its rule and the other by the call, one layer alone, back to none */
    const int sees_later[5] = {1, 0, 0, 1, 1};
    for (int way = 0; way < 5; way++) {
        if (way == 2 || way == 3) OK(ctx, attn_encoder_set_mask(ctx, encoder, 0, causal));
        if (way == 4) OK(ctx, attn_encoder_set_mask(ctx, encoder, -1, NULL));
        for (int change = 0; change < 2; change++) {
            y[change] = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH);
            model_set(x, 6 * WIDTH, 0.25 * change); /* the last row of the third sequence */
            OK(ctx, attn_encoder_forward(ctx, encoder, NULL, x, layout, way == 1 || way == 2 ? causal : NULL, y[change]));
        }
        double earlier = 0, own = 0, others = 0;
        for (int64_t e = 0; e < ROWS * WIDTH; e++) {
            double d = fabs(model_get(y[0], e) - model_get(y[1], e));
            int64_t row = e / WIDTH;
            if (row == 6)
                own = fmax(own, d);
            else if (row >= 3 && row < 6)
                earlier = fmax(earlier, d);
            else
                others = fmax(others, d);
        }
        assert_true(own > 1e-4 && others == 0);
        assert_int_equal(earlier > 0, sees_later[way]);
        attn_tensor_free(y[0]);
        attn_tensor_free(y[1]);
    }
    const int64_t shape[4] = {1, 3, 9, 9};
    OK(ctx, attn_tensor_create(ctx, ATTN_UINT8, 4, shape, &small));
    OK(ctx, attn_mask_boolean(ctx, small, &wrong)); /* for 3 heads */
    y[0] = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH);
    FAILS(ctx, attn_encoder_forward(ctx, encoder, NULL, x, layout, wrong, y[0]), ATTN_ERROR_SHAPE, "mask");
    OK(ctx, attn_encoder_set_mask(ctx, encoder, 1, wrong));
    FAILS(ctx, attn_encoder_forward(ctx, encoder, NULL, x, layout, NULL, y[0]), ATTN_ERROR_SHAPE, "mask");
    FAILS(ctx, attn_encoder_set_mask(ctx, encoder, 2, causal), ATTN_ERROR_INVALID_ARGUMENT, "layer");
    FAILS(ctx, attn_encoder_set_mask(ctx, encoder, -2, causal), ATTN_ERROR_INVALID_ARGUMENT, "layer");
    attn_tensor *const tensors[] = {x, y[0], small};
    for (int i = 0; i < 3; i++) attn_tensor_free(tensors[i]);
    attn_mask_free(causal);
    attn_mask_free(wrong);
    attn_layout_free(layout);
    attn_encoder_free(encoder);
    attn_context_free(ctx);
}

/* in a parallel block the sub-layers read one norm and are added: what each gives alone sums up; not so one after the other */
static void test_parallel_block(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    for (int parallel = 0; parallel < 2; parallel++) {
        attn_transformer_options o = model_options(1, 0);
        attn_encoder *encoder = NULL;
        random_state random = {1};
        attn_layout *layout = layout_of(ctx);
        attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *y[3];
        o.norm_placement = ATTN_PLACEMENT_PRE;
        o.final_norm = 0;
        o.parallel_block = parallel;
        for (int64_t e = 0; e < ROWS * WIDTH; e++) model_set(x, e, random_number(&random, -1, 1));
        const char *const silent[3] = {"none", "layers.0.self_attention.output.", "layers.0.feed_forward.output."};
        OK(ctx, attn_encoder_create(ctx, &o, &encoder));
        attn_parameters *p = attn_encoder_parameters(encoder);
        for (int i = 0; i < 3; i++) {
            model_scramble(p, 2);
            for (int64_t q = 0; q < attn_parameters_count(p); q++)
                for (int64_t e = 0; strstr(attn_parameters_name(p, q), silent[i]) && e < model_elements(attn_parameters_tensor(p, q)); e++)
                    model_set(attn_parameters_tensor(p, q), e, 0);
            y[i] = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH);
            OK(ctx, attn_encoder_forward(ctx, encoder, NULL, x, layout, NULL, y[i]));
        }
        double worst = 0;
        for (int64_t e = 0; e < ROWS * WIDTH; e++)
            worst = fmax(worst, fabs(model_get(y[0], e) + model_get(x, e) - model_get(y[1], e) - model_get(y[2], e)));
        assert_true(parallel ? worst < 1e-5 : worst > 1e-2);
        for (int i = 0; i < 3; i++) attn_tensor_free(y[i]);
        attn_tensor_free(x);
        attn_layout_free(layout);
        attn_encoder_free(encoder);
    }
    attn_context_free(ctx);
}

static void test_errors(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(1, 0);
    attn_encoder *encoder = NULL, *none = NULL;
    attn_layout *layout = layout_of(ctx), *few = NULL;
    const int64_t one = 3;
    OK(ctx, attn_layout_create(ctx, 1, &few));
    OK(ctx, attn_layout_set_lengths(ctx, few, 1, &one, 0));
    OK(ctx, attn_encoder_create(ctx, &o, &encoder));
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *y = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH),
                *wide = model_tensor(ctx, ATTN_FLOAT32, ROWS, 9), *integers = model_tensor(ctx, ATTN_INT32, ROWS, WIDTH);
    FAILS(ctx, attn_encoder_forward(ctx, NULL, NULL, x, layout, NULL, y), ATTN_ERROR_INVALID_ARGUMENT, "encoder");
    FAILS(ctx, attn_encoder_forward(ctx, encoder, NULL, NULL, layout, NULL, y), ATTN_ERROR_INVALID_ARGUMENT, "x");
    FAILS(ctx, attn_encoder_forward(ctx, encoder, NULL, integers, layout, NULL, y), ATTN_ERROR_DTYPE, "x");
    FAILS(ctx, attn_encoder_forward(ctx, encoder, NULL, wide, layout, NULL, y), ATTN_ERROR_SHAPE, "x");
    FAILS(ctx, attn_encoder_forward(ctx, encoder, NULL, x, layout, NULL, wide), ATTN_ERROR_SHAPE, "output");
    FAILS(ctx, attn_encoder_forward(ctx, encoder, NULL, x, layout, NULL, x), ATTN_ERROR_INVALID_ARGUMENT, "output");
    FAILS(ctx, attn_encoder_forward(ctx, encoder, NULL, x, few, NULL, y), ATTN_ERROR_SHAPE, "layout");
    o.heads = 3;
    FAILS(ctx, attn_encoder_create(ctx, &o, &none), ATTN_ERROR_SHAPE, "width");
    assert_null(none);
    o = model_options(0, 0); /* no layers: what goes in comes out */
    OK(ctx, attn_encoder_create(ctx, &o, &none));
    assert_int_equal(attn_parameters_count(attn_encoder_parameters(none)), 0);
    for (int64_t e = 0; e < ROWS * WIDTH; e++) model_set(x, e, (double)e);
    OK(ctx, attn_encoder_forward(ctx, none, NULL, x, layout, NULL, y));
    for (int64_t e = 0; e < ROWS * WIDTH; e++) assert_true(model_get(y, e) == (double)e);
    attn_encoder_free(none);
    attn_encoder_free(NULL);
    assert_null(attn_encoder_parameters(NULL));
    attn_tensor *const tensors[] = {x, y, wide, integers};
    for (int i = 0; i < 4; i++) attn_tensor_free(tensors[i]);
    attn_layout_free(layout);
    attn_layout_free(few);
    attn_encoder_free(encoder);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradient_of_the_input), cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_parallel_block), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

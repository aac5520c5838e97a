#include <attn/rotary.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "models/transformer.h"
#include "support/model.h"

/* What a model's options become in the attention of its layers: self-attention alone knows positions, and the first layer's tables serve the stack. */
static attn_transformer *planned(attn_context *ctx, const attn_transformer_options *o)
{
    attn_transformer *model = NULL;
    OK(ctx, attn_transformer_create(ctx, o, &model));
    return model;
}

static attn_transformer_options rotary_options(void)
{
    attn_transformer_options o = model_options(2, 2);
    o.width = 24;
    o.positions = ATTN_POSITIONS_ROTARY;
    o.rotary_pairing = ATTN_ROTARY_PAIRS;
    o.rotary_scaling = ATTN_ROTARY_YARN;
    o.rotary_base = 500;
    o.rotary_factor = 3;
    o.rotary_context = 77;
    o.rotary_low = 2;
    o.rotary_high = 9;
    o.rotary_magnitude = 1.25;
    return o;
}

static void expect_rotary(const attn_attention_options *a, const attn_transformer_options *o, int64_t rotated)
{
    assert_int_equal(a->positions, ATTN_POSITIONS_ROTARY);
    assert_int_equal(a->rotated, rotated);
    assert_int_equal(a->rotary_pairing, o->rotary_pairing);
    assert_int_equal(a->rotary_scaling, o->rotary_scaling);
    assert_true(a->rotary_base == o->rotary_base && a->rotary_factor == o->rotary_factor && a->rotary_context == o->rotary_context);
    assert_true(a->rotary_low == o->rotary_low && a->rotary_high == o->rotary_high && a->rotary_magnitude == o->rotary_magnitude);
}

/* rotated is of the heads of either stack: all columns stay all of them where the decoder's heads are of another size */
static void test_rotary(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    (void)state;
    for (int which = 0; which < 3; which++) {
        attn_transformer_options o = rotary_options();
        o.rotated = which == 0 ? 6 : ATTN_DERIVED;
        if (which == 2) o.decoder_width = 12, o.tie = 0, o.target_vocabulary = o.source_vocabulary;
        attn_transformer *model = planned(ctx, &o);
        const attn__transformer_plan *plan = attn__transformer_plan_of(model);
        for (int64_t i = 0; i < 2; i++) {
            expect_rotary(&plan->encoder.layers[i].self.options, &o, which == 0 ? 6 : 12);
            expect_rotary(&plan->decoder.layers[i].self.options, &o, which == 0 ? 6 : which == 1 ? 12 : 6);
            assert_int_equal(plan->decoder.layers[i].cross.options.positions, ATTN_POSITIONS_NONE);
        }
        assert_int_equal(plan->source.kind, ATTN_POSITIONS_NONE);
        assert_int_equal(plan->target.kind, ATTN_POSITIONS_NONE);
        attn_transformer_free(model);
    }
    attn_context_free(ctx);
}

static void test_tables(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    (void)state;
    for (int32_t positions = ATTN_POSITIONS_T5; positions <= ATTN_POSITIONS_RELATIVE; positions++) {
        attn_transformer_options o = model_options(3, 3);
        o.positions = positions;
        o.position_buckets = 12;
        o.position_reach = 19;
        attn_transformer *model = planned(ctx, &o);
        const attn__transformer_plan *plan = attn__transformer_plan_of(model);
        for (int decoder = 0; decoder < 2; decoder++) {
            const attn__stack *stack = decoder ? &plan->decoder : &plan->encoder;
            const attn__attention_module *first = &stack->layers[0].self;
            assert_int_equal(first->position_table >= 0, positions != ATTN_POSITIONS_ALIBI);
            assert_int_equal(first->position_values >= 0, positions == ATTN_POSITIONS_RELATIVE);
            for (int64_t i = 0; i < 3; i++) {
                const attn__attention_module *m = &stack->layers[i].self;
                assert_int_equal(m->options.positions, positions);
                assert_int_equal(m->options.position_sides, !decoder);
                assert_int_equal(m->options.position_buckets, 12);
                assert_int_equal(m->options.position_reach, 19);
                assert_int_equal(m->position_table, first->position_table);
                assert_int_equal(m->position_values, first->position_values);
            }
            assert_int_equal(plan->decoder.layers[decoder].cross.position_table, -1);
        }
        if (positions != ATTN_POSITIONS_ALIBI)
            assert_int_not_equal(plan->encoder.layers[0].self.position_table, plan->decoder.layers[0].self.position_table);
        attn_transformer_free(model);
    }
    attn_context_free(ctx);
}

/* in the cross-attention too */
static void test_heads(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(1, 2);
    (void)state;
    o.query_key_norm = ATTN_QUERY_KEY_RMS;
    o.gated_attention = 1;
    o.norm_epsilon = 0.0625;
    o.scaled_scores = 0;
    attn_transformer *model = planned(ctx, &o);
    const attn__transformer_plan *plan = attn__transformer_plan_of(model);
    const attn__attention_module *all[] = {&plan->encoder.layers[0].self, &plan->decoder.layers[1].self, &plan->decoder.layers[1].cross};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(all[i]->options.query_key_norm, ATTN_QUERY_KEY_RMS);
        assert_true(all[i]->query_norm.epsilon == 0.0625 && all[i]->key_norm.epsilon == 0.0625);
        assert_int_equal(all[i]->options.gated_output, 1);
        assert_int_equal(all[i]->options.score, ATTN_SCORE_DOT);
        assert_true(all[i]->options.scale == 1);
    }
    attn_transformer_free(model);
    attn_context_free(ctx);
}

static void test_refusals(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer *model = NULL;
    (void)state;
    static const struct {
        int64_t encoders, buckets, reach;
        attn_status status;
    } cases[] = {{1, 5, 128, ATTN_ERROR_INVALID_ARGUMENT},
                 {1, 2, 128, ATTN_ERROR_INVALID_ARGUMENT},
                 {1, 32, 8, ATTN_ERROR_INVALID_ARGUMENT},
                 {1, 32, 9, ATTN_OK},
                 {0, 5, 128, ATTN_OK},
                 {0, 32, 16, ATTN_ERROR_INVALID_ARGUMENT},
                 {0, 32, 17, ATTN_OK},
                 {0, 2, 2, ATTN_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_transformer_options o = model_options(cases[i].encoders, 1 - cases[i].encoders);
        o.positions = ATTN_POSITIONS_T5;
        o.position_buckets = cases[i].buckets;
        o.position_reach = cases[i].reach;
        model = NULL;
        if (cases[i].status == ATTN_OK)
            OK(ctx, attn_transformer_create(ctx, &o, &model));
        else
            FAILS(ctx, attn_transformer_create(ctx, &o, &model), cases[i].status, "position_");
        attn_transformer_free(model);
    }
    attn_transformer_options o = model_options(1, 1);
    o.reserved = 1;
    FAILS(ctx, attn_transformer_create(ctx, &o, &model), ATTN_ERROR_INVALID_ARGUMENT, "options.reserved: got 1");
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

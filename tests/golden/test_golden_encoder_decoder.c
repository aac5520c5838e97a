#include "model_case.h"

/* A small encoder-decoder and a GPT-2 against PyTorch: logits, loss, gradients of all parameters, and ten steps of Adam and AdamW. */
static attn_transformer_options encoder_decoder_options(int32_t dtype)
{
    attn_transformer_options o = model_options(2, 2);
    o.width = 16;
    o.heads = 4;
    o.feed_forward = 32;
    o.source_vocabulary = 13;
    o.tie = ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE;
    o.embedding_scale = 4;
    o.dtype = dtype;
    return o;
}

static attn_transformer_options gpt_options(int32_t dtype)
{
    attn_transformer_options o;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    OK(ctx, attn_transformer_preset(ctx, "gpt2", &o, sizeof o));
    attn_context_free(ctx);
    o.decoder_layers = 2;
    o.width = 12;
    o.heads = 3;
    o.source_vocabulary = 11;
    o.context = 8;
    o.dropout_attention = o.dropout_embedding = o.dropout_sublayer = 0;
    o.dtype = dtype;
    return o;
}

/* step: one element of a key's bias has a gradient of 0 but for rounding, and Adam makes a step of what rounding left: they are compared in
   float64 alone */
static void expect_change(const model_case *c, const char *optimizer, const model_case *start)
{
    char name[256];
    for (int64_t i = 0; i < attn_parameters_count(c->parameters); i++) {
        const char *parameter = attn_parameters_name(c->parameters, i);
        if (c->g.dtype == ATTN_FLOAT32 && strstr(parameter, "key.bias") != NULL) continue;
        snprintf(name, sizeof name, "%s.change.%s", optimizer, parameter);
        attn_tensor *now = attn_parameters_tensor(c->parameters, i), *before = attn_parameters_tensor(start->parameters, i);
        attn_tensor *change = golden_like(&c->g, now);
        for (int64_t e = 0; e < model_elements(now); e++) model_set(change, e, model_get(now, e) - model_get(before, e));
        golden_expect(&c->g, name, change, 2e-3);
        attn_tensor_free(change);
    }
}

static void expect_steps(int32_t optimizer, int32_t backend, double within, double within_change)
{
    model_case c, start;
    attn_optimizer_options o;
    attn_trainer_options t;
    attn_trainer *trainer = NULL;
    attn_trainer_report report;
    const char *name = optimizer == ATTN_OPTIMIZER_ADAM ? "adam" : "adamw";
    char losses[32];
    open_case(&c, "encoder_decoder", encoder_decoder_options, backend, within);
    open_case(&start, "encoder_decoder", encoder_decoder_options, backend, within);
    attn_context *ctx = c.g.ctx;
    OK(ctx, attn_optimizer_options_init(&o, sizeof o));
    OK(ctx, attn_trainer_options_init(&t, sizeof t));
    OK(ctx, attn_trainer_report_init(&report, sizeof report));
    o.optimizer = optimizer;
    o.rate = 2e-3;
    o.beta2 = 0.98;
    o.epsilon = 1e-6;
    o.weight_decay = optimizer == ATTN_OPTIMIZER_ADAMW ? 0.1 : 0;
    t.label_smoothing = 0.1;
    snprintf(losses, sizeof losses, "%s.losses", name);
    OK(ctx, attn_trainer_create(ctx, c.model, NULL, &o, NULL, &t, &trainer));
    for (int i = 0; i <= 10; i++) {
        if (i == 10) { /* what the step before left behind */
            c.g.within = within_change;
            expect_change(&c, name, &start);
        }
        OK(ctx, attn_trainer_step(ctx, trainer, &c.batch, &report));
        double want = golden_number(&c.g, losses, i);
        if (!(fabs(report.loss - want) <= within * want)) fail_msg("%s step %d: loss %.17g, expected %.17g", name, i, report.loss, want);
        assert_int_equal(report.step, i + 1);
        assert_int_equal(report.tokens, 11);
    }
    attn_trainer_free(trainer);
    close_case(&c);
    close_case(&start);
}

static void test_encoder_decoder(void **state)
{
    (void)state;
    for (int32_t backend = 0; backend < 2; backend++) {
        model_case c;
        open_case(&c, "encoder_decoder", encoder_decoder_options, backend, backend == ATTN_BACKEND_BLAS ? 1e-5 : 1e-12);
        expect_values(&c, 0.1);
        close_case(&c);
    }
}

static void test_gpt(void **state)
{
    (void)state;
    for (int32_t backend = 0; backend < 2; backend++) {
        model_case c;
        open_case(&c, "gpt", gpt_options, backend, backend == ATTN_BACKEND_BLAS ? 1e-5 : 1e-12);
        expect_values(&c, 0);
        close_case(&c);
    }
}

static void test_adam(void **state)
{
    (void)state;
    expect_steps(ATTN_OPTIMIZER_ADAM, ATTN_BACKEND_BLAS, 1e-5, 2e-3);
    expect_steps(ATTN_OPTIMIZER_ADAM, ATTN_BACKEND_REFERENCE, 1e-12, 1e-7);
}

static void test_adamw(void **state)
{
    (void)state;
    expect_steps(ATTN_OPTIMIZER_ADAMW, ATTN_BACKEND_BLAS, 1e-5, 2e-3);
    expect_steps(ATTN_OPTIMIZER_ADAMW, ATTN_BACKEND_REFERENCE, 1e-12, 1e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_encoder_decoder), cmocka_unit_test(test_gpt), cmocka_unit_test(test_adam),
                                       cmocka_unit_test(test_adamw)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

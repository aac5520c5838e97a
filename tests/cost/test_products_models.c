/* The products of whole models: forward, training steps and generation, against what attn_transformer_cost foretells. */
#include "cost/products.h"

/* models with every switch that changes products */
enum { MODELS = 22, RECURRENT = 14, FORMS = 19 };
static attn_transformer_options model_case(int which, char *what, size_t size)
{
    const int64_t encoder[MODELS] = {0, 2, 1, 1, 0, 0, 2, 2, 0, 1, 2, 0, 1, 0, 1, 2, 1, 2, 0, 1, 2, 2},
                  decoder[MODELS] = {2, 0, 1, 2, 2, 2, 0, 1, 2, 1, 2, 1, 1, 2, 1, 2, 1, 2, 2, 0, 0, 1};
    attn_transformer_options o = model_options(encoder[which], decoder[which]);
    o.heads = 4;
    o.context = 2000;
    o.norm_placement = which % 2 ? ATTN_PLACEMENT_POST : ATTN_PLACEMENT_PRE;
    o.key_heads = which % 3 == 1 ? 2 : which % 3 == 2 ? 1 : ATTN_DERIVED;
    o.gated = which % 4 == 2;
    if (o.gated) o.activation = ATTN_ACTIVATION_SWISH;
    o.learned_beta = o.gated;
    if (encoder[which] > 0 && decoder[which] > 0 && which % 3 == 0) {
        o.decoder_width = 12;
        o.decoder_heads = 2;
        o.decoder_feed_forward = 20;
        o.key_heads = ATTN_DERIVED;
    }
    if (which == 5) o.head_size = 5;
    if (which == 8) o.parallel_block = 1;
    if (which == 4 || which == 10) o.checkpoint_layers = 1;
    if (which == 6) o.tie = ATTN_TIE_OUTPUT;
    if (which == 13) o.attention_bias = o.feed_forward_bias = 0;
    if (which >= FORMS) {
        o.form = which - FORMS + ATTN_FORM_LINEAR;
        o.projected = 7;
        o.features = 12;
    } else if (which >= RECURRENT) {
        o.recurrence = which % 2 ? ATTN_RECURRENCE_TANH : ATTN_RECURRENCE_LSTM;
        o.both_ways = which % 3 != 0;
        o.decoder_score = which == 14 ? ATTN_SCORE_ADDITIVE : which == 15 ? ATTN_SCORE_MULTIPLICATIVE : ATTN_SCORE_DOT;
        o.decoder_attention = which != 17;
        if (which > 15) o.decoder_width = ATTN_DERIVED;
    }
    o.dropout_attention = o.dropout_sublayer = which % 2 ? 0.1 : 0;
    snprintf(what, size, "model %d of %d encoder and %d decoder layers", which, (int)encoder[which], (int)decoder[which]);
    return o;
}

/* packed sequences of unequal lengths */
enum { BATCHES = 3 };
static const struct {
    int64_t count, source[4], target[4];
} batches[BATCHES] = {{4, {5, 70, 1, 33}, {66, 7, 130, 1}}, {1, {300}, {280}}, {2, {3, 2}, {2, 3}}};

static void run_model(int which, int b)
{
    char what[96];
    const attn_transformer_options o = model_case(which, what, sizeof what);
    attn_transformer *model = model_create(ctx, &o);
    attn_trainer *trainer = NULL;
    attn_cost_report r = {.struct_size = sizeof r}, inference = r;
    model_batch batch;
    model_batch_open(ctx, &batch, &o, batches[b].count, batches[b].source, batches[b].target, 3);
    OK(ctx, attn_transformer_cost(ctx, &o, 1, batch.source_layout, batch.target_layout, &r));
    OK(ctx, attn_transformer_cost(ctx, &o, 0, batch.source_layout, batch.target_layout, &inference));
    assert_int_equal(r.forward, inference.forward);
    int64_t classes = o.target_vocabulary == ATTN_DERIVED ? o.source_vocabulary : o.target_vocabulary;
    attn_tensor *logits = model_tensor(ctx, ATTN_FLOAT32, batch.rows, classes);
    counter_take();
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, logits));
    agree(what, counter_take(), inference.forward);
    OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
    OK(ctx, attn_trainer_step(ctx, trainer, &batch.batch, NULL));
    agree(what, counter_take(), r.forward + r.backward);
    attn_trainer_free(trainer);
    attn_tensor_free(logits);
    model_batch_close(&batch);
    attn_transformer_free(model);
}

static void test_models(void **state)
{
    (void)state;
    for (int which = 0; which < MODELS; which++)
        for (int b = 0; b < BATCHES; b++) run_model(which, b);
}

/* the prompt and the step after it; from then on a step costs one key more in each layer of each sequence */
static void run_generation(int which, int b)
{
    char what[96];
    const attn_transformer_options o = model_case(which, what, sizeof what);
    attn_transformer *model = model_create(ctx, &o);
    attn_generator *generator = NULL;
    attn_generator_options g;
    attn_cost_report r = {.struct_size = sizeof r};
    model_batch batch;
    int32_t tokens[4], finished[4];
    model_batch_open(ctx, &batch, &o, batches[b].count, batches[b].source, batches[b].target, 3);
    OK(ctx, attn_transformer_cost(ctx, &o, 0, batch.source_layout, batch.target_layout, &r));
    OK(ctx, attn_generator_options_init(&g, sizeof g));
    g.sequences = batches[b].count;
    OK(ctx, attn_generator_create(ctx, model, &g, &generator));
    counter_take();
    OK(ctx, attn_generator_prompt(ctx, generator, &batch.batch));
    agree(what, counter_take(), r.prompt);
    int64_t width = o.decoder_width == ATTN_DERIVED ? o.width : o.decoder_width,
            heads = o.decoder_heads == ATTN_DERIVED ? o.heads : o.decoder_heads,
            size = o.head_size == ATTN_DERIVED ? width / heads : o.head_size;
    for (int64_t step = 0; step < 5; step++) {
        OK(ctx, attn_generator_step(ctx, generator, g.sequences, tokens, finished));
        agree(what, counter_take(),
              r.decode +
                  (which < RECURRENT || o.form == ATTN_FORM_LINFORMER ? step * g.sequences * o.decoder_layers * heads * 2 * size : 0));
    }
    attn_generator_free(generator);
    model_batch_close(&batch);
    attn_transformer_free(model);
}

static void test_generation(void **state)
{
    (void)state;
    for (int which = 0; which < MODELS; which++)
        for (int b = 0; b < BATCHES; b++) {
            char what[96];
            if (model_case(which, what, sizeof what).decoder_layers > 0) run_generation(which, b);
        }
}

/* masks of layers, in a trainer: what the kernels do with them is what attn_attention_cost lists */
static void test_masks_of_layers(void **state)
{
    (void)state;
    const int64_t lengths[2] = {150, 90};
    for (int kind = CAUSAL_FIRST; kind < MASKS; kind++) {
        attn_transformer_options o = model_options(0, 2);
        attn_transformer *model = model_create(ctx, &o);
        attn_mask *mask = mask_of(kind, 150, 150);
        attn_trainer *trainer = NULL;
        attn_cost_report r = {.struct_size = sizeof r}, usual = r, masked = r;
        attn_attention_options a;
        model_batch batch;
        model_batch_open(ctx, &batch, &o, 2, NULL, lengths, 3);
        OK(ctx, attn_transformer_cost(ctx, &o, 1, NULL, batch.target_layout, &r));
        OK(ctx, attn_attention_options_init(&a, sizeof a));
        a.heads = o.heads;
        a.query_width = o.width;
        attn_mask *causal = mask_of(CAUSAL, 0, 0);
        OK(ctx, attn_attention_cost(ctx, &a, batch.target_layout, batch.target_layout, causal, &usual));
        OK(ctx, attn_attention_cost(ctx, &a, batch.target_layout, batch.target_layout, mask, &masked));
        OK(ctx, attn_transformer_set_mask(ctx, model, 1, 1, mask)); /* the second layer alone */
        OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
        counter_take();
        OK(ctx, attn_trainer_step(ctx, trainer, &batch.batch, NULL));
        agree(mask_names[kind], counter_take(), r.forward + r.backward - usual.forward - usual.backward + masked.forward + masked.backward);
        attn_trainer_free(trainer);
        attn_mask_free(mask);
        attn_mask_free(causal);
        model_batch_close(&batch);
        attn_transformer_free(model);
    }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models), cmocka_unit_test(test_generation),
                                       cmocka_unit_test(test_masks_of_layers)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

int main(void)
{
    return run_counted("products of models", run);
}

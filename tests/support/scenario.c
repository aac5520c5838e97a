#include "support/scenario.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

enum { SEQUENCES = 4, GENERATED = 10 };
/* rows of target and source: unequal, one of them alone longer than a tile */
static const int64_t lengths[SEQUENCES] = {97, 1, 40, 23}, source_lengths[SEQUENCES] = {19, 70, 3, 33};

static const char *const names[SCENARIOS] = {"encoder-decoder", "decoder with grouped heads and a gate", "encoder, layers run again",
                                             "decoder with a window, parallel blocks and a soft cap", "narrow encoder-decoder, all tied"};

const char *scenario_name(int which)
{
    return names[which];
}

digest digest_add(digest so_far, const void *bytes, uint64_t size)
{
    const unsigned char *at = bytes;
    for (uint64_t i = 0; i < size; i++) so_far = (so_far ^ at[i]) * UINT64_C(1099511628211); /* FNV-1a */
    return so_far;
}

digest digest_tensor(digest so_far, const attn_tensor *tensor)
{
    uint64_t size = attn_tensor_dtype(tensor) == ATTN_FLOAT64 || attn_tensor_dtype(tensor) == ATTN_INT64 ? 8 : 4;
    return digest_add(so_far, attn_tensor_data_const(tensor), (uint64_t)model_elements(tensor) * size);
}

digest digest_parameters(attn_parameters *parameters)
{
    digest d = 1;
    for (int64_t i = 0; i < attn_parameters_count(parameters); i++) d = digest_tensor(d, attn_parameters_tensor(parameters, i));
    return d;
}

attn_transformer_options scenario_options(int which)
{
    attn_transformer_options o = model_options(which == 0 || which == 4 ? 1 : which == 2 ? 2 : 0, which == 2 ? 0 : which == 4 ? 1 : 2);
    o.width = which == 4 ? 40 : 72;
    o.heads = which == 4 ? 2 : 4;
    o.feed_forward = 131; /* no multiple of anything */
    o.source_vocabulary = 283;
    o.context = 128;
    o.dropout_embedding = o.dropout_attention = o.dropout_sublayer = o.dropout_activation = 0.1;
    o.activation = ATTN_ACTIVATION_GELU;
    if (which > 0) o.norm_placement = ATTN_PLACEMENT_PRE;
    if (which == 1) {
        o.key_heads = 2;
        o.gated = 1;
        o.norm = ATTN_NORM_RMS;
        o.activation = ATTN_ACTIVATION_SWISH;
        o.attention_bias = o.feed_forward_bias = 0;
    }
    if (which == 2) o.checkpoint_layers = 1;
    if (which == 3) {
        o.parallel_block = 1;
        o.soft_cap = 3;
        o.positions = ATTN_POSITIONS_LEARNED;
    }
    if (which == 1 || which == 2) o.tie = ATTN_TIE_OUTPUT;
    if (which == 4) o.tie = ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE;
    return o;
}

attn_transformer *scenario_model(attn_context *ctx, int which)
{
    const attn_transformer_options o = scenario_options(which);
    attn_transformer *model = model_create(ctx, &o);
    if (which == 3) {
        attn_mask *window = NULL;
        OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 20, 0, 1, &window));
        OK(ctx, attn_transformer_set_mask(ctx, model, 1, 0, window));
        attn_mask_free(window);
    }
    return model;
}

void scenario_batch(attn_context *ctx, int which, model_batch *made)
{
    const attn_transformer_options o = scenario_options(which);
    model_batch_open(ctx, made, &o, SEQUENCES, source_lengths, lengths, (uint64_t)which + 1);
}

attn_trainer *scenario_trainer(attn_context *ctx, attn_transformer *model)
{
    attn_optimizer_options optimizer;
    attn_trainer_options o;
    attn_trainer *trainer = NULL;
    OK(ctx, attn_optimizer_options_init(&optimizer, sizeof optimizer));
    OK(ctx, attn_trainer_options_init(&o, sizeof o));
    optimizer.optimizer = ATTN_OPTIMIZER_ADAMW;
    optimizer.weight_decay = 0.1;
    optimizer.clip = 1;
    o.label_smoothing = 0.1;
    o.micro_rows = 100;
    OK(ctx, attn_trainer_create(ctx, model, NULL, &optimizer, NULL, &o, &trainer));
    return trainer;
}

digest scenario_forward(attn_context *ctx, int which, const attn_transformer *model)
{
    const attn_transformer_options o = scenario_options(which);
    model_batch batch;
    scenario_batch(ctx, which, &batch);
    attn_tensor *output = model_tensor(ctx, ATTN_FLOAT32, batch.rows, o.source_vocabulary);
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, output));
    digest d = digest_tensor(1, output);
    attn_tensor_free(output);
    model_batch_close(&batch);
    return d;
}

digest scenario_gradients(attn_context *ctx, int which, const attn_transformer *model)
{
    model_batch batch;
    attn_tape *tape = NULL;
    attn_gradients *gradients = NULL;
    attn_tape_options o;
    attn_tensor *loss = model_tensor(ctx, ATTN_FLOAT32, 1, 0);
    const attn_tensor *output = loss;
    scenario_batch(ctx, which, &batch);
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_gradients_create(ctx, attn_transformer_parameters(model), &gradients));
    OK(ctx, attn_tape_options_init(&o, sizeof o));
    o.training = 1;
    o.seed = 11;
    OK(ctx, attn_tape_begin(ctx, tape, &o));
    OK(ctx, attn_transformer_loss(ctx, model, tape, &batch.batch, NULL, loss, NULL));
    OK(ctx, attn_tape_backward(ctx, tape, 1, &output, NULL, 1, &gradients));
    digest d = digest_tensor(digest_tensor(1, loss), attn_gradients_flat(gradients));
    attn_gradients_free(gradients);
    attn_tape_free(tape);
    attn_tensor_free(loss);
    model_batch_close(&batch);
    return d;
}

attn_generator *scenario_generator(attn_context *ctx, int which, const attn_transformer *model)
{
    attn_generator_options o;
    attn_generator *generator = NULL;
    model_batch batch;
    if (scenario_options(which).decoder_layers == 0) return NULL;
    OK(ctx, attn_generator_options_init(&o, sizeof o));
    o.sequences = SEQUENCES;
    o.temperature = 0.8;
    o.top_k = 40;
    o.top_p = 0.9;
    OK(ctx, attn_generator_create(ctx, model, &o, &generator));
    scenario_batch(ctx, which, &batch);
    batch.batch.labels = NULL;
    OK(ctx, attn_generator_prompt(ctx, generator, &batch.batch));
    model_batch_close(&batch);
    return generator;
}

digest scenario_generate(attn_context *ctx, int which, const attn_transformer *model)
{
    int32_t tokens[SEQUENCES], finished[SEQUENCES], result[GENERATED];
    const attn_tensor *logits = NULL;
    digest d = 1;
    attn_generator *generator = scenario_generator(ctx, which, model);
    if (generator == NULL) return d;
    for (int step = 0; step < GENERATED; step++) {
        OK(ctx, attn_generator_step(ctx, generator, SEQUENCES, tokens, finished));
        OK(ctx, attn_generator_logits(ctx, generator, &logits));
        d = digest_tensor(digest_add(d, tokens, sizeof tokens), logits);
    }
    for (int64_t s = 0; s < SEQUENCES; s++) {
        int64_t count = 0;
        double score = 0;
        OK(ctx, attn_generator_result(ctx, generator, s, 0, GENERATED, result, &count, &score));
        d = digest_add(digest_add(d, result, (uint64_t)count * sizeof *result), &score, sizeof score);
    }
    attn_generator_free(generator);
    return d;
}

digest scenario_train(attn_context *ctx, int which, attn_transformer *model, int steps)
{
    digest d = 1;
    model_batch batch;
    attn_trainer_report report;
    attn_trainer *trainer = scenario_trainer(ctx, model);
    scenario_batch(ctx, which, &batch);
    OK(ctx, attn_trainer_report_init(&report, sizeof report));
    for (int i = 0; i < steps; i++) {
        OK(ctx, attn_trainer_step(ctx, trainer, &batch.batch, &report));
        assert_int_equal(report.skipped, 0);
        d = digest_add(digest_add(d, &report.loss, sizeof report.loss), &report.gradient_norm, sizeof report.gradient_norm);
    }
    digest parameters = digest_parameters(attn_transformer_parameters(model));
    attn_trainer_free(trainer);
    model_batch_close(&batch);
    return digest_add(d, &parameters, sizeof parameters);
}

digest scenario_read(attn_context *ctx, int which, const attn_transformer *model)
{
    const digest parts[3] = {scenario_forward(ctx, which, model), scenario_gradients(ctx, which, model),
                             scenario_generate(ctx, which, model)};
    return digest_add(1, parts, sizeof parts);
}

digest scenario_whole(attn_context *ctx, int which)
{
    attn_transformer *model = scenario_model(ctx, which);
    digest parts[2] = {scenario_train(ctx, which, model, 3), 0};
    parts[1] = scenario_read(ctx, which, model);
    attn_transformer_free(model);
    return digest_add(1, parts, sizeof parts);
}

#include "trainer.h"
#include "../core/options.h"

static const attn_trainer_options defaults = {
    .struct_size = sizeof(attn_trainer_options), .seed = 1, .label_smoothing = 0, .micro_rows = -1, .accumulate = 1, .layer_norms = 0};

attn_status attn_trainer_options_init(attn_trainer_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

attn_status attn_trainer_report_init(attn_trainer_report *report, uint64_t size)
{
    static const attn_trainer_report empty = {.struct_size = sizeof empty};
    return attn__options_init(report, size, &empty, sizeof empty);
}

static const attn__field fields[] = {
    ATTN__REAL(attn_trainer_options, label_smoothing, 0, 0, 1), ATTN__INT64(attn_trainer_options, micro_rows, ATTN__DERIVED, 1, HUGE_VAL),
    ATTN__INT64(attn_trainer_options, accumulate, 0, 1, HUGE_VAL), ATTN__INT32(attn_trainer_options, layer_norms, 0, 1),
    ATTN__INT32(attn_trainer_options, reserved, 0, 0)};

static attn_status build(attn_context *ctx, attn_trainer *t, const attn_optimizer_options *optimizer)
{
    const attn__transformer_plan *plan = attn__trainer_plan(t);
    if (!plan->has_output)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "model: got one without an output head, expected one that has a loss");
    attn_status status = attn__optimizer_make(ctx, t->parameters, "optimizer", optimizer, &t->optimizer);
    if (status == ATTN_OK) status = attn_gradients_create(ctx, t->parameters, &t->gradients);
    if (status == ATTN_OK) status = attn_tape_create(ctx, &t->tape);
    if (status != ATTN_OK || !t->options.layer_norms) return status;
    void *norms;
    t->layer_count = (plan->has_encoder ? plan->encoder.side.layers : 0) + (plan->has_decoder ? plan->decoder.side.layers : 0) + 1;
    status = attn__allocate_zero(t->memory, t->layer_count * (int64_t)sizeof(double), &norms);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "norms of layers");
    t->layer_norms = norms;
    return ATTN_OK;
}

static attn_status make(attn_context *ctx, attn_transformer *model, attn_dataset *dataset, const attn_optimizer_options *optimizer,
                        const attn_schedule_options *schedule, const attn_trainer_options *options, attn_trainer **out)
{
    attn_trainer_options o;
    attn_schedule_options s;
    void *memory;
    attn_status status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK && dataset != NULL) status = attn__expect(ctx, "dataset", dataset, ATTN__MAGIC_DATASET, "attn_dataset");
    if (status == ATTN_OK) status = attn__options_read(ctx, "options", options, &defaults, sizeof o, sizeof o, &o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", &o, fields);
    if (status == ATTN_OK) status = attn__schedule_read(ctx, schedule, &s);
    if (status != ATTN_OK) return status;
    status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_trainer), &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "trainer");
    attn_trainer *t = memory;
    t->magic = ATTN__MAGIC_TRAINER;
    t->memory = attn__memory_retain(ctx->memory);
    t->parameters = attn__parameters_retain(model->parameters);
    t->dataset = attn__dataset_retain(dataset);
    t->options = o;
    t->schedule = s;
    status = build(ctx, t, optimizer);
    if (status == ATTN_OK && schedule != NULL) t->optimizer->rate = attn__schedule_rate(&s, 1); /* without one: the optimizer's, constant */
    if (status == ATTN_OK)
        *out = t;
    else
        attn_trainer_free(t);
    return status;
}

attn_status attn_trainer_create(attn_context *ctx, attn_transformer *model, attn_dataset *dataset, const attn_optimizer_options *optimizer,
                                const attn_schedule_options *schedule, const attn_trainer_options *options, attn_trainer **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    if (out == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the trainer");
    else
        status = make(ctx, model, dataset, optimizer, schedule, options, out);
    return attn__leave(ctx, status);
}

void attn_trainer_free(attn_trainer *t)
{
    if (!attn__is(t, ATTN__MAGIC_TRAINER)) return;
    attn__memory *memory = t->memory;
    attn_optimizer_free(t->optimizer);
    attn_gradients_free(t->gradients);
    attn_tape_free(t->tape);
    attn_dataset_free(t->dataset);
    attn__parameters_release(t->parameters);
    attn__deallocate(memory, t->layer_norms, t->layer_count * (int64_t)sizeof(double));
    t->magic = 0;
    attn__deallocate(memory, t, (int64_t)sizeof *t);
    attn__memory_release(memory);
}

attn_optimizer *attn_trainer_optimizer(const attn_trainer *trainer)
{
    return attn__is(trainer, ATTN__MAGIC_TRAINER) ? trainer->optimizer : NULL;
}

int64_t attn_trainer_steps(const attn_trainer *trainer)
{
    return attn__is(trainer, ATTN__MAGIC_TRAINER) ? trainer->steps : 0;
}

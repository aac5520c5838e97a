#include <string.h>
#include "transformer.h"

static void clear_plan(attn_parameters *parameters)
{
    attn__transformer_plan *plan = parameters->plan;
    if (plan->has_encoder && plan->recurrent == NULL) attn__stack_clear(&plan->encoder);
    if (plan->has_decoder && plan->recurrent == NULL) attn__stack_clear(&plan->decoder);
    attn__recurrent_model_free(plan->recurrent);
    attn__left_free(plan->heads);
    attn__deallocate(parameters->memory, plan, (int64_t)sizeof *plan);
}

const attn__transformer_plan *attn__transformer_plan_of(const attn_transformer *model)
{
    return model->parameters->plan;
}

int64_t attn__transformer_output_width(const attn__transformer_plan *plan)
{
    if (plan->has_output) return plan->output.out;
    return plan->has_decoder ? plan->decoder.side.width : plan->encoder.side.width;
}

/* table and positions of one side; table_of: another side's table to share, or -1 */
static attn_status plan_embedding(const attn__scope *scope, const char *side, const attn_transformer_options *o, int64_t vocabulary,
                                  int64_t width, int64_t table_of, attn__embedding_module *e)
{
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    char name[32];
    attn_status status = ATTN_OK;
    *e = (attn__embedding_module){.table = table_of,
                                  .positions = -1,
                                  .kind = o->positions <= ATTN_POSITIONS_LEARNED ? o->positions
                                                                                 : ATTN_POSITIONS_NONE, /* the rest is in the attention */
                                  .has_norm = o->embedding_norm,
                                  .scale = o->embedding_scale,
                                  .dropout = o->dropout_embedding,
                                  .site = attn__scope_site(scope, side)};
    attn__scope embedding = attn__scope_in(scope, strcmp(side, "source") == 0 ? "source_embedding" : "target_embedding");
    if (e->table < 0) {
        if (strcmp(side, "source") == 0 && o->patch_values > 0)
            status = attn__add_weight(&embedding, "weight", 1, width, o->patch_values, &rule, 1, &e->table);
        else
            status = attn__add_table(&embedding, "weight", vocabulary, width, &rule, &e->table);
    }
    if (status == ATTN_OK && strcmp(side, "source") == 0 && o->patch_values > 0) {
        status = attn__add_vector(&embedding, "bias", 1, width, ATTN__KIND_BIAS, 0, NULL);
        if (status == ATTN_OK) status = attn__add_vector(&embedding, "class_token", 1, width, ATTN__KIND_EMBEDDING, 0, NULL);
    }
    if (status == ATTN_OK && strcmp(side, "source") == 0 && o->segment_types > 0)
        status = attn__add_table(&embedding, "segments", o->segment_types, width, &rule, NULL);
    if (status == ATTN_OK && o->positions == ATTN_POSITIONS_LEARNED) {
        strcpy(name, side);
        strcat(name, "_positions");
        attn__scope positions = attn__scope_in(scope, name);
        status = attn__add_table(&positions, "weight", o->context, width, &rule, &e->positions);
    }
    if (status == ATTN_OK && e->has_norm) {
        strcpy(name, side);
        strcat(name, "_norm");
        status = attn__norm_plan(scope, name, width, o->norm, o->norm_bias, o->norm_epsilon, &e->norm);
    }
    return status;
}

static attn_status plan_output(const attn__scope *scope, attn__transformer_plan *plan)
{
    const attn_transformer_options *o = &plan->options;
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    int64_t width = plan->has_decoder ? o->decoder_width : o->width;
    plan->has_output = o->output_head;
    if (!plan->has_output) return ATTN_OK;
    plan->tied_output = (o->tie & ATTN_TIE_OUTPUT) != 0;
    if (!plan->tied_output) return attn__linear_plan(scope, "output", width, o->target_vocabulary, o->output_bias, &rule, 1, &plan->output);
    plan->output = (attn__linear_module){width, o->target_vocabulary, plan->has_decoder ? plan->target.table : plan->source.table, -1};
    if (!o->output_bias) return ATTN_OK;
    attn__scope here = attn__scope_in(scope, "output");
    return attn__add_vector(&here, "bias", 1, o->target_vocabulary, ATTN__KIND_BIAS, 0, &plan->output.bias);
}

/* other code asks for the number of layers and their width by the sides */
static attn_status plan_recurrent(const attn__scope *scope, attn__transformer_plan *plan)
{
    const attn_transformer_options *o = &plan->options;
    plan->has_encoder = o->encoder_layers > 0;
    plan->has_decoder = o->decoder_layers > 0;
    plan->encoder.side = attn__encoder_side(o);
    plan->decoder.side = attn__decoder_side(o);
    attn_status status = attn__recurrent_model_plan(scope, o, &plan->recurrent);
    return status == ATTN_OK ? plan_output(scope, plan) : status;
}

static attn_status plan_parts(const attn__scope *scope, attn__transformer_plan *plan)
{
    const attn_transformer_options *o = &plan->options;
    attn_status status = ATTN_OK;
    int encodes = o->encoder_layers > 0, decodes = o->decoder_layers > 0;
    if (decodes) status = plan_embedding(scope, "target", o, o->target_vocabulary, o->decoder_width, -1, &plan->target);
    if (status == ATTN_OK && encodes)
        status = plan_embedding(scope, "source", o, o->source_vocabulary, o->width,
                                decodes && (o->tie & ATTN_TIE_SOURCE) ? plan->target.table : -1, &plan->source);
    if (status == ATTN_OK && o->recurrence != ATTN_RECURRENCE_NONE) return plan_recurrent(scope, plan);
    if (status == ATTN_OK && encodes) {
        attn__scope here = attn__scope_in(scope, "encoder");
        attn__side side = attn__encoder_side(o);
        side.left = plan->heads;
        plan->has_encoder = 1;
        status = attn__stack_plan(&here, o, &side, 0, &plan->encoder);
    }
    if (status == ATTN_OK && decodes) {
        attn__scope here = attn__scope_in(scope, "decoder");
        attn__side side = attn__decoder_side(o);
        side.left = plan->heads;
        plan->has_decoder = 1;
        status = attn__stack_plan(&here, o, &side, 1, &plan->decoder);
    }
    return status == ATTN_OK ? plan_output(scope, plan) : status;
}

attn_status attn__transformer_make(attn_context *ctx, const attn_transformer_options *resolved, const attn__left *heads,
                                   attn_transformer **out)
{
    void *memory = NULL, *plan = NULL;
    attn_status status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_transformer), &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "transformer");
    attn_transformer *model = memory;
    model->magic = ATTN__MAGIC_TRANSFORMER;
    model->memory = attn__memory_retain(ctx->memory);
    status = attn__parameters_create(ctx, resolved->dtype, &model->parameters);
    if (status == ATTN_OK) {
        status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn__transformer_plan), &plan);
        if (status != ATTN_OK) attn__fail_memory(ctx, status, "plan of a transformer");
    }
    if (status == ATTN_OK) {
        model->parameters->plan = plan;
        model->parameters->plan_free = clear_plan;
        ((attn__transformer_plan *)plan)->options = *resolved;
        attn__scope scope = {ctx, model->parameters, ""};
        status = attn__left_copy(ctx, heads, &((attn__transformer_plan *)plan)->heads);
        if (status == ATTN_OK) status = plan_parts(&scope, plan);
    }
    if (status == ATTN_OK) status = attn__parameters_finish(ctx, model->parameters);
    if (status == ATTN_OK)
        *out = model;
    else
        attn_transformer_free(model);
    return status;
}

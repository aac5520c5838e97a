#include <string.h>
#include "recurrent.h"

/* Which parameters a recurrent model has. */
static int32_t kind_of(const attn_transformer_options *o)
{
    return o->recurrence == ATTN_RECURRENCE_LSTM ? ATTN_RECURRENT_LSTM : ATTN_RECURRENT_TANH;
}

static attn_status plan_reader(const attn__scope *encoder, const attn_transformer_options *o, int64_t index, attn__recurrent_model *m)
{
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    attn__recurrent_reader *reader = &m->readers[index];
    attn__scope here = attn__scope_at(encoder, "layers", index), forward = attn__scope_in(&here, "forward"),
                backward = attn__scope_in(&here, "backward");
    const int64_t width = m->two_way ? o->width / 2 : o->width;
    reader->site = attn__scope_site(&here, "output");
    attn_status status = attn__recurrent_plan(&forward, kind_of(o), o->width, width, &rule, &reader->forward);
    if (status != ATTN_OK || !m->two_way) return status;
    return attn__recurrent_plan(&backward, kind_of(o), o->width, width, &rule, &reader->backward);
}

static attn_status plan_writer(const attn__scope *decoder, const attn_transformer_options *o, int64_t index, attn__recurrent_model *m)
{
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    attn__scope here = attn__scope_at(decoder, "layers", index);
    m->writers[index].site = attn__scope_site(&here, "output");
    return attn__recurrent_plan(&here, kind_of(o), m->width, m->width, &rule, &m->writers[index].layer);
}

/* one head over all columns; additive scores: query and key projected to the decoder's width, the key's part once, by a module of its own */
static attn_status plan_attention(const attn__scope *decoder, const attn_transformer_options *o, attn__recurrent_model *m)
{
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    const int additive = o->decoder_score == ATTN_SCORE_ADDITIVE;
    attn_attention_options a;
    attn__scope here = attn__scope_in(decoder, "attention");
    attn_status status = attn_attention_options_init(&a, sizeof a);
    if (status != ATTN_OK) return status;
    m->has_key = additive;
    a.dtype = o->dtype;
    a.score = o->decoder_score;
    a.query_width = a.head_size = m->width;
    a.key_width = a.key_head_size = additive ? m->width : m->memory_width;
    a.value_width = a.value_head_size = m->memory_width;
    a.project_query = additive;
    a.bias_query = a.project_key = a.project_value = a.project_output = 0;
    a.soft_cap = o->soft_cap;
    a.dropout = o->dropout_attention;
    a.initialisation = o->initialisation;
    a.initialisation_scale = o->initialisation_scale;
    status = attn__attention_resolve(decoder->ctx, &a, &a);
    if (status == ATTN_OK) status = attn__attention_plan(&here, "", &a, 1, NULL, NULL, &m->attention);
    if (status == ATTN_OK && additive) status = attn__linear_plan(&here, "key", m->memory_width, m->width, 1, &rule, 1, &m->key);
    if (status != ATTN_OK) return status;
    return attn__linear_plan(decoder, "context", m->memory_width, m->writers[0].layer.input.out, 0, &rule, 1, &m->context);
}

static attn_status plan_decoder(const attn__scope *scope, const attn_transformer_options *o, attn__recurrent_model *m)
{
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    attn__scope here = attn__scope_in(scope, "decoder");
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < m->writers_count; i++) status = plan_writer(&here, o, i, m);
    if (status == ATTN_OK && m->has_start)
        status = attn__linear_plan(&here, "start", m->memory_width,
                                   attn__recurrent_state_width(m) - (m->has_attention ? m->memory_width : 0), 1, &rule, 1, &m->start);
    if (status == ATTN_OK && m->has_attention) status = plan_attention(&here, o, m);
    if (status != ATTN_OK) return status;
    m->readout_site = attn__scope_site(&here, "readout");
    return attn__linear_plan(&here, "readout", m->width + (m->has_attention ? m->memory_width : 0), m->width, 1, &rule, 1, &m->readout);
}

attn_status attn__recurrent_model_plan(const attn__scope *scope, const attn_transformer_options *o, attn__recurrent_model **out)
{
    attn_context *ctx = scope->ctx;
    void *memory = NULL, *readers = NULL, *writers = NULL;
    attn_status status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn__recurrent_model), &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "plan of a recurrent model");
    attn__recurrent_model *m = *out = memory;
    m->memory = attn__memory_retain(ctx->memory);
    m->readers_count = o->encoder_layers;
    m->writers_count = o->decoder_layers;
    m->two_way = o->both_ways;
    m->memory_width = o->width;
    m->width = o->decoder_width;
    m->has_start = o->encoder_layers > 0;
    m->has_attention = m->has_start && o->decoder_attention;
    m->dropout = o->dropout_sublayer;
    if (m->readers_count > 0) status = attn__allocate_zero(ctx->memory, m->readers_count * (int64_t)sizeof *m->readers, &readers);
    if (status == ATTN_OK && m->writers_count > 0)
        status = attn__allocate_zero(ctx->memory, m->writers_count * (int64_t)sizeof *m->writers, &writers);
    m->readers = readers;
    m->writers = writers;
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "layers of a recurrent model");
    attn__scope encoder = attn__scope_in(scope, "encoder");
    for (int64_t i = 0; status == ATTN_OK && i < m->readers_count; i++) status = plan_reader(&encoder, o, i, m);
    return status == ATTN_OK && m->writers_count > 0 ? plan_decoder(scope, o, m) : status;
}

void attn__recurrent_model_free(attn__recurrent_model *m)
{
    if (m == NULL) return;
    attn__memory *memory = m->memory;
    attn__deallocate(memory, m->readers, m->readers_count * (int64_t)sizeof *m->readers);
    attn__deallocate(memory, m->writers, m->writers_count * (int64_t)sizeof *m->writers);
    attn__deallocate(memory, m, (int64_t)sizeof *m);
    attn__memory_release(memory);
}

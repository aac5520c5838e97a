#include "attention.h"
#include <string.h>

static int64_t key_columns(const attn_attention_options *o)
{
    return o->key_heads * o->key_head_size;
}
static int64_t value_columns(const attn_attention_options *o)
{
    return o->key_heads * o->value_head_size;
}
static int64_t query_columns(const attn_attention_options *o)
{
    return o->heads * o->head_size;
}

static attn_status plan_biases(const attn__scope *here, const attn_attention_options *o, attn__attention_module *module)
{
    attn_status status = ATTN_OK;
    int32_t group = 1; /* the first one present starts the group */
    if (o->bias_query) {
        status = attn__add_vector(here, "query.bias", group, query_columns(o), ATTN__KIND_BIAS, 0, &module->query_bias);
        group = 0;
    }
    if (status == ATTN_OK && o->bias_key) {
        status = attn__add_vector(here, "key.bias", group, key_columns(o), ATTN__KIND_BIAS, 0, &module->key_bias);
        group = 0;
    }
    if (status == ATTN_OK && o->bias_value)
        status = attn__add_vector(here, "value.bias", group, value_columns(o), ATTN__KIND_BIAS, 0, &module->value_bias);
    return status;
}

attn_status attn__attention_plan(const attn__scope *scope, const char *name, const attn_attention_options *o, double shrink,
                                 const attn__attention_module *shared, const attn__attention_kept *kept, attn__attention_module *module)
{
    attn__scope here = *name ? attn__scope_in(scope, name) : *scope;
    attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    *module = (attn__attention_module){.kept = kept != NULL ? *kept : (attn__attention_kept){o->heads, NULL},
                                       .options = *o,
                                       .query_weight = -1,
                                       .key_weight = -1,
                                       .value_weight = -1,
                                       .output_weight = -1,
                                       .query_bias = -1,
                                       .key_bias = -1,
                                       .value_bias = -1,
                                       .output_bias = -1,
                                       .gate_weight = -1,
                                       .gate_bias = -1,
                                       .position_table = -1,
                                       .position_values = -1,
                                       .score_weight = -1,
                                       .pair_weight = -1,
                                       .key_projection = -1,
                                       .value_projection = -1,
                                       .site = o->site ? o->site : attn__scope_site(&here, "weights")};
    attn_status status = ATTN_OK;
    int64_t width = -1; /* members of a group have one width */
    if (o->project_query) {
        status = attn__add_weight(&here, "query.weight", 1, query_columns(o), o->query_width, &rule, 1, &module->query_weight);
        width = o->query_width;
    }
    if (status == ATTN_OK && o->project_key) {
        status = attn__add_weight(&here, "key.weight", width != o->key_width, key_columns(o), o->key_width, &rule, 1, &module->key_weight);
        width = o->key_width;
    }
    if (status == ATTN_OK && o->project_value)
        status = attn__add_weight(&here, "value.weight", width != o->value_width, value_columns(o), o->value_width, &rule, 1,
                                  &module->value_weight);
    if (status == ATTN_OK) status = plan_biases(&here, o, module);
    if (status == ATTN_OK && o->project_output)
        status = attn__add_weight(&here, "output.weight", 1, o->output_width, o->heads * o->value_head_size, &rule, shrink,
                                  &module->output_weight);
    if (status == ATTN_OK && o->bias_output)
        status = attn__add_vector(&here, "output.bias", 1, o->output_width, ATTN__KIND_BIAS, 0, &module->output_bias);
    if (status == ATTN_OK && o->gated_output)
        status = attn__add_weight(&here, "gate.weight", 1, o->heads * o->value_head_size, o->query_width, &rule, 1, &module->gate_weight);
    if (status == ATTN_OK && o->gated_output && o->bias_query)
        status = attn__add_vector(&here, "gate.bias", 1, o->heads * o->value_head_size, ATTN__KIND_BIAS, 0, &module->gate_bias);
    if (status == ATTN_OK) status = attn__attention_positions_plan(&here, shared, module);
    if (status == ATTN_OK) status = attn__attention_forms_plan(&here, module);
    if (status == ATTN_OK && o->score == ATTN_SCORE_MULTIPLICATIVE)
        status = attn__add_weight(&here, "score.weight", 1, o->heads * o->key_head_size, o->head_size, &rule, 1, &module->score_weight);
    if (status == ATTN_OK && o->score == ATTN_SCORE_ADDITIVE)
        status = attn__add_weight(&here, "score.weight", 1, o->heads, o->head_size, &rule, 1, &module->score_weight);
    if (status == ATTN_OK) status = attn__attention_global_plan(&here, module);
    if (status == ATTN_OK && o->pair_bias)
        status = attn__add_weight(&here, "pair.weight", 1, o->heads, o->query_width, &rule, 1, &module->pair_weight);
    return status;
}

/* y = x times count adjacent projections, [rows, columns] */
static attn_status project(const attn__call *call, const attn__value *x, int64_t weight, int64_t bias, int64_t count, int64_t columns,
                           attn__value *y)
{
    attn__value w, b;
    attn_status status = attn__parameter_value(call, weight, count, &w);
    if (status == ATTN_OK) status = attn__parameter_value(call, bias, count, &b);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, columns, x->at.dtype, y);
    if (status != ATTN_OK) return status;
    return attn__linear(call->ctx, call->tape, x, &w, bias >= 0 ? &b : NULL, NULL, NULL, NULL, y);
}

/* can members first .. first + count be one product? all present, biases all or none, frozen alike, one input */
static int joins(const attn__call *call, const int64_t *weight, const int64_t *bias, int count)
{
    for (int i = 0; i < count; i++)
        if (weight[i] != weight[0] + i || weight[0] < 0 || (bias[0] >= 0 ? bias[i] != bias[0] + i : bias[i] >= 0)) return 0;
    return attn__parameters_alike(call->parameters, weight[0], count) &&
           (bias[0] < 0 || attn__parameters_alike(call->parameters, bias[0], count));
}

/* One projection: a part of a joined product, a product of its own, or the input itself. */
static attn_status project_one(const attn__call *call, const attn__value *x, int64_t weight, int64_t bias, int64_t columns, attn__value *y)
{
    if (weight >= 0) return project(call, x, weight, bias, 1, columns, y);
    *y = *x;
    return ATTN_OK;
}

/* q, k, v: plain rows. What needs no projection is the input. */
static attn_status project_inputs(const attn__call *call, const attn__attention_module *m, const attn__attention_inputs *in, attn__value *q,
                                  attn__value *k, attn__value *v)
{
    const attn_attention_options *o = &m->options;
    int64_t weight[3] = {m->query_weight, m->key_weight, m->value_weight}, bias[3] = {m->query_bias, m->key_bias, m->value_bias};
    int64_t nq = query_columns(o), nk = key_columns(o), nv = value_columns(o);
    attn__value joined;
    attn_status status;
    int apart = o->query_key_norm != ATTN_QUERY_KEY_NONE; /* heads are normed as rows of their own: without gaps */
    if (in->key == NULL) return project_one(call, in->query, weight[0], bias[0], nq, q);
    if (!apart && in->query == in->key && in->key == in->value && joins(call, weight, bias, 3)) {
        status = project(call, in->query, weight[0], bias[0], 3, nq + nk + nv, &joined);
        if (status == ATTN_OK) status = attn__tape_part(call->ctx, call->tape, &joined, 0, nq, q);
        if (status == ATTN_OK) status = attn__tape_part(call->ctx, call->tape, &joined, nq, nk, k);
        if (status == ATTN_OK) status = attn__tape_part(call->ctx, call->tape, &joined, nq + nk, nv, v);
        return status;
    }
    status = project_one(call, in->query, weight[0], bias[0], nq, q);
    if (status != ATTN_OK) return status;
    if (!apart && in->key == in->value && joins(call, weight + 1, bias + 1, 2)) {
        status = project(call, in->key, weight[1], bias[1], 2, nk + nv, &joined);
        if (status == ATTN_OK) status = attn__tape_part(call->ctx, call->tape, &joined, 0, nk, k);
        if (status == ATTN_OK) status = attn__tape_part(call->ctx, call->tape, &joined, nk, nv, v);
        return status;
    }
    status = project_one(call, in->key, weight[1], bias[1], nk, k);
    if (status == ATTN_OK) status = project_one(call, in->value, weight[2], bias[2], nv, v);
    return status;
}

static attn_status put_rows(const attn__call *call, const attn__attention_inputs *in, const view *rows, const view *cache)
{
    const attn__kernels *kernels;
    attn_status status = attn__kernels_for(call->ctx, rows->dtype, &kernels);
    for (int64_t s = 0; status == ATTN_OK && s < in->query_segments.count; s++) {
        const attn_segment *q = &in->query_segments.at[s], *k = &in->key_segments.at[s];
        view from = attn__view_rows(*rows, q->start, q->length);
        view to = attn__view_rows(*cache, k->start + k->length - q->length, q->length); /* the newest rows of the segment */
        status = kernels->copy(call->ctx, &from, 0, &to);
    }
    return status;
}

attn_status attn__attention_remember(const attn__call *call, const attn__attention_module *m, const attn__value *memory,
                                     attn__attention_cache *cache)
{
    const attn__kernels *kernels;
    attn__attention_inputs in = {.query = memory, .key = memory, .value = memory};
    attn__value k, v;
    attn_status status = project_one(call, in.key, m->key_weight, m->key_bias, key_columns(&m->options), &k);
    if (status == ATTN_OK) status = project_one(call, in.value, m->value_weight, m->value_bias, value_columns(&m->options), &v);
    if (status == ATTN_OK) status = attn__attention_turn(call, m, &m->key_norm, m->options.key_heads, (attn__places){NULL, NULL}, &k);
    if (status == ATTN_OK) status = attn__kernels_for(call->ctx, k.at.dtype, &kernels);
    if (status != ATTN_OK) return status;
    view key = attn__view_rows(cache->key, 0, memory->at.rows), value = attn__view_rows(cache->value, 0, memory->at.rows);
    status = kernels->copy(call->ctx, &k.at, 0, &key);
    return status == ATTN_OK ? kernels->copy(call->ctx, &v.at, 0, &value) : status;
}

/* (2.13) q^T W becomes the query of a plain product, head by head */
static attn_status multiply_queries(const attn__call *call, const attn__attention_module *m, attn__value *q)
{
    const attn_attention_options *o = &m->options;
    attn__value w, y, heads;
    attn_status status = attn__parameter_value(call, m->score_weight, 1, &w);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, q->at.rows, o->heads * o->key_head_size, q->at.dtype, &y);
    if (status != ATTN_OK) return status;
    heads = y;
    heads.at = attn__view_heads(y.at, o->heads);
    status = attn__linear_heads(call->ctx, call->tape, q, &w, &heads);
    *q = heads;
    return status;
}

/* heads times sigmoid(x G^T + g), at `asked` or in a temporary */
static attn_status gate(const attn__call *call, const attn__attention_module *m, const attn__value *x, const attn__value *asked,
                        attn__value *heads)
{
    const attn__activation sigmoid = {.kind = ATTN_ACTIVATION_SIGMOID};
    attn__value w, b, opened, y;
    attn_status status = attn__parameter_value(call, m->gate_weight, 1, &w);
    if (status == ATTN_OK) status = attn__parameter_value(call, m->gate_bias, 1, &b);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, heads->at.width, x->at.dtype, &opened);
    if (status == ATTN_OK && asked == NULL)
        status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, heads->at.width, x->at.dtype, &y);
    if (asked != NULL) y = *asked;
    if (status == ATTN_OK)
        status = attn__linear(call->ctx, call->tape, x, &w, m->gate_bias >= 0 ? &b : NULL, &sigmoid, NULL, NULL, &opened);
    if (status == ATTN_OK) status = attn__multiply_elements(call->ctx, call->tape, heads, &opened, &y);
    *heads = y;
    return status;
}

/* what the context's observer wants to know of this module */
static attn_status tell(attn_context *ctx, const attn__attention_module *m, const view *q, const view *k,
                        attn__attention_settings *settings)
{
    const attn__attention_observer *observer = ctx->observer;
    if (observer == NULL || observer->module != m) return ATTN_OK;
    settings->entropy = observer->entropy;
    return observer->weights != NULL ? attn__attention_weights(ctx, q, k, settings, &observer->part, observer->weights) : ATTN_OK;
}

/* one matrix for each head, the same in every segment */
static void add_pairs(const attn__attention_inputs *in, int64_t heads, attn__attention_tables *t, attn__attention_settings *settings)
{
    int64_t n = in->pair_length;
    if (settings->bias == NULL) t->bias = (attn__attention_bias){0};
    t->bias.pair = in->pair->at;
    const int64_t extent[4] = {1, heads, n, n}, stride[4] = {0, n * n, n, 1};
    memcpy(t->bias.pair_extent, extent, sizeof extent);
    memcpy(t->bias.pair_stride, stride, sizeof stride);
    settings->pair = in->pair;
    settings->bias = &t->bias;
}

static attn_status project_output(const attn__call *call, const attn__attention_module *m, const attn__value *heads, attn__value *y)
{
    attn__value w, b;
    attn_status status = attn__parameter_value(call, m->output_weight, 1, &w);
    if (status == ATTN_OK) status = attn__parameter_value(call, m->output_bias, 1, &b);
    if (status != ATTN_OK) return status;
    return attn__linear(call->ctx, call->tape, heads, &w, m->output_bias >= 0 ? &b : NULL, NULL, NULL, NULL, y);
}

attn_status attn__attention_run(const attn__call *call, const attn__attention_module *m, const attn__attention_inputs *in,
                                attn__attention_cache *cache, attn__value *y)
{
    const attn_attention_options *o = &m->options;
    attn__value q, k, v, heads = *y;
    attn_status status = project_inputs(call, m, in, &q, &k, &v);
    if (status == ATTN_OK) status = attn__attention_turn(call, m, &m->query_norm, o->heads, in->query_places, &q);
    if (status == ATTN_OK && in->key != NULL) status = attn__attention_turn(call, m, &m->key_norm, o->key_heads, in->key_places, &k);
    if (status != ATTN_OK) return status;
    const int keeps_state = cache != NULL && o->form != ATTN_FORM_SOFTMAX;
    if (cache != NULL && !keeps_state) {
        if (in->key != NULL) status = put_rows(call, in, &k.at, &cache->key);
        if (in->key != NULL && status == ATTN_OK) status = put_rows(call, in, &v.at, &cache->value);
        k = (attn__value){cache->key, -1, 0};
        v = (attn__value){cache->value, -1, 0};
    }
    int64_t columns = o->heads * o->value_head_size;
    if (status == ATTN_OK && (o->project_output || o->gated_output || o->global_projections))
        status = attn__tape_temporary(call->ctx, call->tape, q.at.rows, columns, q.at.dtype, &heads);
    if (status != ATTN_OK) return status;

    attn__value vector;
    q.at = attn__view_heads(q.at, o->heads);
    if (o->score == ATTN_SCORE_MULTIPLICATIVE) status = multiply_queries(call, m, &q);
    if (status == ATTN_OK && o->score == ATTN_SCORE_ADDITIVE) status = attn__parameter_value(call, m->score_weight, 1, &vector);
    if (status != ATTN_OK) return status;
    k.at = attn__view_heads(k.at, o->key_heads);
    v.at = attn__view_heads(v.at, o->key_heads);
    attn__value joined = heads;
    joined.at = attn__view_heads(heads.at, o->heads);
    const attn__places none = {NULL, NULL};
    attn__attention_tables tables;
    attn__attention_settings settings = {.query_segments = in->query_segments,
                                         .key_segments = in->key_segments,
                                         .mask = in->mask,
                                         .scale = o->scale,
                                         .soft_cap = o->soft_cap,
                                         .dropout = attn__tape_dropout(call->tape, o->dropout, m->site, none)};
    if (o->score == ATTN_SCORE_ADDITIVE) settings.score_vector = &vector;
    status = attn__attention_bias_of(call, m, &tables, &settings);
    if (in->pair != NULL) add_pairs(in, o->heads, &tables, &settings);
    if (status == ATTN_OK) status = tell(call->ctx, m, &q.at, &k.at, &settings);
    if (status == ATTN_OK && o->form == ATTN_FORM_SOFTMAX)
        status = attn__attend(call->ctx, call->tape, &q, &k, &v, &settings, &joined); /* [rows, heads, value_head_size] */
    else if (status == ATTN_OK)
        status = attn__attention_form(call, m, &q, &k, &v, &settings, cache, in->slot, &joined);
    heads.id = joined.id;
    if (status == ATTN_OK && o->global_projections)
        status = attn__attention_global(call, m, in, &settings, o->project_output || o->gated_output ? NULL : y, &heads);
    if (status == ATTN_OK && o->gated_output) status = gate(call, m, in->query, o->project_output ? NULL : y, &heads);
    if (status != ATTN_OK || !o->project_output) {
        y->id = heads.id;
        return status;
    }
    return project_output(call, m, &heads, y);
}

#include <inttypes.h>
#include "../autograd/linear_attention.h"
#include "../tensor/mask.h"
#include "attention.h"

static attn_status unsupported(attn_context *ctx, const char *field, const char *expected)
{
    return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "options.%s: got one that the form does not have, expected %s", field, expected);
}

attn_status attn__attention_forms_resolve(attn_context *ctx, attn_attention_options *o)
{
    if (o->form == ATTN_FORM_SOFTMAX) return ATTN_OK;
    if (o->score == ATTN_SCORE_ADDITIVE) return unsupported(ctx, "score", "a product");
    if (o->pair_bias) return unsupported(ctx, "pair_bias", "0");
    if (o->positions != ATTN_POSITIONS_NONE && o->positions != ATTN_POSITIONS_ROTARY)
        return unsupported(ctx, "positions", "ATTN_POSITIONS_NONE or _ROTARY");
    if (o->form == ATTN_FORM_LINFORMER) {
        if (o->projected < 1 || o->longest < 1)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                              "options.projected, longest: got %" PRId64 " and %" PRId64 ", expected 1 or more", o->projected, o->longest);
        return ATTN_OK;
    }
    if (o->soft_cap > 0) return unsupported(ctx, "soft_cap", "0");
    if (o->dropout > 0) return unsupported(ctx, "dropout", "0");
    if (o->form == ATTN_FORM_PERFORMER && !(o->derive_scale ? 1 : o->scale > 0))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.scale: got %g, expected over 0 with the Performer", o->scale);
    return ATTN_OK;
}

/* the map of LINEAR and PERFORMER; directions are drawn here, once for all calls */
static attn_status plan_features(const attn__scope *scope, attn__attention_module *m)
{
    const attn_attention_options *o = &m->options;
    const int linear = o->form == ATTN_FORM_LINEAR;
    attn_context *ctx = scope->ctx;
    attn_linear_attention_options given, map;
    int64_t bytes;
    attn_status status = attn_linear_attention_options_init(&given, sizeof given);
    given.map = linear ? ATTN_FEATURES_ELU : ATTN_FEATURES_POSITIVE;
    given.features = linear ? ATTN_DERIVED : o->features;
    given.seed = o->feature_seed;
    given.derive_scale = 0;
    given.scale = linear ? 1 : o->scale;
    if (status == ATTN_OK) status = attn__linear_read(ctx, &given, o->key_head_size, &map);
    if (status != ATTN_OK) return status;
    m->feature_count = map.features;
    m->features = (attn__features){.kind = map.map, .scale = map.scale, .directions = {.heads = 1, .dtype = scope->set->dtype}};
    if (linear) return ATTN_OK;
    view directions = {NULL, map.features, 1, o->key_head_size, o->key_head_size, 0, scope->set->dtype, 0};
    if (attn__multiply(map.features, o->key_head_size, &bytes) || attn__multiply(bytes, attn__dtype_bytes(directions.dtype), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "features");
    status = attn__parameters_constant(ctx, scope->set, bytes, &directions.data);
    if (status == ATTN_OK) status = attn__features_draw(ctx, &map, &directions);
    m->features.directions = directions;
    return status;
}

attn_status attn__attention_forms_plan(const attn__scope *scope, attn__attention_module *m)
{
    const attn_attention_options *o = &m->options;
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    if (o->form == ATTN_FORM_LINEAR || o->form == ATTN_FORM_PERFORMER) return plan_features(scope, m);
    if (o->form != ATTN_FORM_LINFORMER) return ATTN_OK;
    attn_status status = attn__add_weight(scope, "key_projection.weight", 1, o->projected, o->longest, &rule, 1, &m->key_projection);
    m->value_projection = m->key_projection;
    if (status != ATTN_OK || !o->separate_projections) return status;
    return attn__add_weight(scope, "value_projection.weight", 1, o->projected, o->longest, &rule, 1, &m->value_projection);
}

static attn_status project_and_attend(const attn__call *call, const attn__attention_module *m, const attn__value *q, const attn__value *k,
                                      const attn__value *v, attn__attention_settings *settings, attn__value *joined)
{
    attn__value of_keys, of_values;
    attn_status status = attn__parameter_value(call, m->key_projection, 1, &of_keys);
    if (status == ATTN_OK) status = attn__parameter_value(call, m->value_projection, 1, &of_values);
    if (status == ATTN_OK && settings->mask != NULL)
        status = attn__fail(call->ctx, ATTN_ERROR_UNSUPPORTED, "mask: got one, expected NULL with the Linformer");
    const attn__linformer_inputs in = {q, k, v, &of_keys, &of_values, settings->key_segments};
    return status == ATTN_OK ? attn__linformer(call->ctx, call->tape, &in, settings, joined) : status;
}

attn_status attn__attention_state_columns(attn_context *ctx, const attn__attention_module *m, int64_t *out)
{
    const attn_attention_options *o = &m->options;
    *out = 0;
    if (o->form != ATTN_FORM_LINEAR && o->form != ATTN_FORM_PERFORMER) return ATTN_OK;
    if (attn__multiply(m->feature_count + 1, o->value_head_size + 1, out) || attn__multiply(*out, o->key_heads, out))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "state of linear attention");
    return ATTN_OK;
}

/* From the states of the segments' slots to their next ones: a call that fails has left them as they were. */
static attn_status attend_with_state(const attn__call *call, const attn__value *q, const attn__value *k, const attn__value *v,
                                     attn__linear_settings *linear, const attn__attention_cache *cache, const int64_t *slot,
                                     attn__value *joined)
{
    const attn__value now = {cache->key, -1, 0};
    attn__value state;
    attn_status status = attn__tape_temporary(call->ctx, NULL, linear->query_segments.count, cache->key.width, cache->key.dtype, &state);
    if (status == ATTN_OK) status = attn__gather_rows(call->ctx, NULL, &now, slot, &state);
    linear->state = state.at.data;
    linear->key_segments = linear->query_segments; /* what was before is in the state */
    if (status == ATTN_OK) status = attn__linear_attend(call->ctx, NULL, q, k, v, linear, joined);
    return status == ATTN_OK ? attn__put_rows(call->ctx, &state.at, slot, &cache->value) : status;
}

attn_status attn__attention_form(const attn__call *call, const attn__attention_module *m, attn__value *q, attn__value *k,
                                 const attn__value *v, attn__attention_settings *settings, const attn__attention_cache *cache,
                                 const int64_t *slot, attn__value *joined)
{
    const attn_attention_options *o = &m->options;
    if (o->form == ATTN_FORM_LINFORMER) return project_and_attend(call, m, q, k, v, settings, joined);
    attn__linear_settings linear = {
        .causal = settings->mask != NULL, .query_segments = settings->query_segments, .key_segments = settings->key_segments};
    if (linear.causal && !attn__mask_is_causal(settings->mask))
        return attn__fail(call->ctx, ATTN_ERROR_UNSUPPORTED,
                          "mask: got one that linear attention does not have, expected NULL or a causal one aligned to the last key");
    attn_status status = attn__linear_features(call->ctx, call->tape, &m->features, m->feature_count, q, k, &linear);
    if (status == ATTN_OK && cache != NULL) return attend_with_state(call, q, k, v, &linear, cache, slot, joined);
    return status == ATTN_OK ? attn__linear_attend(call->ctx, call->tape, q, k, v, &linear, joined) : status;
}

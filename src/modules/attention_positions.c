#include <attn/rotary.h>
#include <math.h>
#include "attention.h"

static attn_rotary_options rotary_of(const attn_attention_options *o)
{
    return (attn_rotary_options){
        sizeof(attn_rotary_options), o->rotary_pairing, o->rotary_scaling, o->rotated,         o->rotary_base, o->rotary_factor,
        o->rotary_context,           o->rotary_low,     o->rotary_high,    o->rotary_magnitude};
}

static attn_status wrong(attn_context *ctx, const char *field, int64_t got, const char *expected)
{
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.%s: got %lld, expected %s", field, (long long)got, expected);
}

attn_status attn__attention_positions_resolve(attn_context *ctx, attn_attention_options *o)
{
    int64_t half = o->position_sides ? o->position_buckets / 2 : o->position_buckets;
    int t5 = o->positions == ATTN_POSITIONS_T5, relative = o->positions == ATTN_POSITIONS_RELATIVE;
    if (o->positions != ATTN_POSITIONS_NONE && (o->positions < ATTN_POSITIONS_ROTARY || o->positions > ATTN_POSITIONS_RELATIVE))
        return wrong(ctx, "positions", o->positions, "ATTN_POSITIONS_NONE, _ROTARY, _T5, _ALIBI or _RELATIVE");
    if (t5 && (o->position_buckets < 2 * (1 + o->position_sides) || o->position_buckets > (1 << 20) ||
               (o->position_sides && o->position_buckets % 2 != 0)))
        return wrong(ctx, "position_buckets", o->position_buckets, "2 or more, with both sides 4 or more and even");
    if ((t5 || relative) && (o->position_reach < 0 || o->position_reach > (1 << 20)))
        return wrong(ctx, "position_reach", o->position_reach, "0 to 2^20");
    if (t5 && o->position_reach <= half / 2)
        return wrong(ctx, "position_reach", o->position_reach, "more than the buckets of single distances");
    if (o->positions != ATTN_POSITIONS_ROTARY) return ATTN_OK;
    if (o->key_head_size != o->head_size)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.key_head_size: got %lld, expected the head_size of %lld with rotary positions",
                          (long long)o->key_head_size, (long long)o->head_size);
    if (!(o->rotary_high > o->rotary_low))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.rotary_high: got %g, expected more than rotary_low, which is %g",
                          o->rotary_high, o->rotary_low);
    attn_rotary_options given = rotary_of(o), rotary;
    attn_status status = attn__rotary_read(ctx, &given, o->head_size, &rotary);
    if (status == ATTN_OK) o->rotated = rotary.rotated;
    return status;
}

attn_status attn__attention_positions_plan(const attn__scope *scope, const attn__attention_module *shared, attn__attention_module *m)
{
    const attn_attention_options *o = &m->options;
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    attn_status status = ATTN_OK;
    if (o->query_key_norm != ATTN_QUERY_KEY_NONE) {
        int32_t norm = o->query_key_norm == ATTN_QUERY_KEY_RMS ? ATTN_NORM_RMS : ATTN_NORM_LAYER;
        status = attn__norm_plan(scope, "query_norm", o->head_size, norm, 1, o->query_key_epsilon, &m->query_norm);
        if (status == ATTN_OK) status = attn__norm_plan(scope, "key_norm", o->key_head_size, norm, 1, o->query_key_epsilon, &m->key_norm);
    }
    if (shared != NULL) {
        m->position_table = shared->position_table;
        m->position_values = shared->position_values;
        return status;
    }
    if (status == ATTN_OK && o->positions == ATTN_POSITIONS_T5)
        status = attn__add_table(scope, "position.weight", o->position_buckets, m->kept.created, &rule, &m->position_table);
    if (status != ATTN_OK || o->positions != ATTN_POSITIONS_RELATIVE) return status;
    int64_t rows = 2 * o->position_reach + 1;
    status = attn__add_table(scope, "position.weight", rows, o->key_head_size, &rule, &m->position_table);
    if (status == ATTN_OK && o->relative_values)
        status = attn__add_table(scope, "position_values.weight", rows, o->value_head_size, &rule, &m->position_values);
    return status;
}

/* y: [rows, heads * size], dense */
static attn_status norm_heads(const attn__call *call, const attn__norm_module *norm, int64_t heads, attn__value *x)
{
    attn__value y, from = *x, to;
    attn_status status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, x->at.width, x->at.dtype, &y);
    if (status != ATTN_OK) return status;
    if (!attn__view_dense(&from.at)) return attn__fail(call->ctx, ATTN_ERROR_SHAPE, "query_key_norm: got rows with gaps, expected none");
    to = y;
    from.at =
        attn__view_shaped(x->at.data, &(view){NULL, x->at.rows * heads, 1, x->at.width / heads, x->at.width / heads, 0, x->at.dtype, 0});
    to.at = attn__view_shaped(y.at.data, &from.at);
    status = attn__norm_run(call, norm, &from, NULL, NULL, NULL, &to);
    y.id = to.id;
    *x = y;
    return status;
}

attn_status attn__attention_turn(const attn__call *call, const attn__attention_module *m, const attn__norm_module *norm, int64_t heads,
                                 attn__places places, attn__value *x)
{
    const attn_attention_options *o = &m->options;
    attn_status status = o->query_key_norm != ATTN_QUERY_KEY_NONE ? norm_heads(call, norm, heads, x) : ATTN_OK;
    if (status != ATTN_OK || o->positions != ATTN_POSITIONS_ROTARY) return status;
    attn_rotary_options options = rotary_of(o);
    attn__rotary rotary;
    attn__value y, from = *x, to;
    status = attn__rotary_of(call->ctx, attn__tape_records(call->ctx, call->tape), &options, &rotary);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, x->at.width, x->at.dtype, &y);
    if (status != ATTN_OK) return status;
    rotary.places = places;
    from.at = attn__view_heads(x->at, heads);
    to = y;
    to.at = attn__view_heads(y.at, heads);
    status = attn__rotate(call->ctx, call->tape, &from, &rotary, &to);
    y.id = to.id;
    *x = y;
    return status;
}

/* What ALiBi and T5 know of a head goes by its number at creation. A constant of the heads that are left: ALiBi: their slopes, one row; T5:
   [heads, created], ones that pick their columns of the table. */
static attn_status constant(const attn__call *call, const attn__attention_module *m, attn__value *out)
{
    attn_context *ctx = call->ctx;
    attn__arena *arena = attn__tape_records(ctx, call->tape);
    const attn_attention_options *o = &m->options;
    const int slopes = o->positions == ATTN_POSITIONS_ALIBI;
    const int64_t rows = slopes ? 1 : o->heads, width = slopes ? o->heads : m->kept.created;
    void *at = attn__take(ctx, arena, rows * width * attn__dtype_bytes(o->dtype), "what heads are known by");
    if (at == NULL) return attn__arena_status(arena);
    *out = (attn__value){{at, rows, 1, width, width, 0, o->dtype, 0}, -1, 0};
    for (int64_t i = 0; !ctx->dry && i < rows * width; i++) {
        const double x = slopes ? attn__alibi_slope(m->kept.heads[i], m->kept.created) : m->kept.heads[i / width] == i % width;
        if (o->dtype == ATTN_FLOAT64)
            ((double *)at)[i] = x;
        else
            ((float *)at)[i] = (float)x;
    }
    return ATTN_OK;
}

/* table [buckets, created] becomes that of the heads that are left, by a product, which has a gradient */
static attn_status columns_left(const attn__call *call, const attn__attention_module *m, attn__value *table)
{
    attn__value ones, y;
    attn_status status = constant(call, m, &ones);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, table->at.rows, m->options.heads, m->options.dtype, &y);
    if (status == ATTN_OK) status = attn__linear(call->ctx, call->tape, table, &ones, NULL, NULL, NULL, NULL, &y);
    if (status == ATTN_OK) *table = y;
    return status;
}

attn_status attn__attention_bias_of(const attn__call *call, const attn__attention_module *m, attn__attention_tables *t,
                                    attn__attention_settings *settings)
{
    const attn_attention_options *o = &m->options;
    attn_status status = ATTN_OK;
    if (o->positions < ATTN_POSITIONS_T5) return ATTN_OK;
    t->bias = (attn__attention_bias){.both_sides = o->position_sides, .furthest = o->position_reach, .reach = o->position_reach};
    if (o->positions == ATTN_POSITIONS_ALIBI) {
        t->bias.distance_kind = ATTN__DISTANCE_LINEAR;
        if (m->kept.heads != NULL) {
            status = constant(call, m, &t->distance);
            t->bias.distance = t->distance.at;
            settings->distance = &t->distance;
        }
    } else if (o->positions == ATTN_POSITIONS_T5) {
        t->bias.distance_kind = ATTN__DISTANCE_BUCKETS;
        status = attn__parameter_value(call, m->position_table, 1, &t->distance);
        if (status == ATTN_OK && m->kept.heads != NULL) status = columns_left(call, m, &t->distance);
        t->bias.distance = t->distance.at;
        settings->distance = &t->distance;
    } else {
        status = attn__parameter_value(call, m->position_table, 1, &t->relative_keys);
        t->bias.relative_keys = t->relative_keys.at;
        settings->relative_keys = &t->relative_keys;
        if (status == ATTN_OK && m->position_values >= 0) {
            status = attn__parameter_value(call, m->position_values, 1, &t->relative_values);
            t->bias.relative_values = t->relative_values.at;
            settings->relative_values = &t->relative_values;
        }
    }
    settings->bias = &t->bias;
    return status;
}

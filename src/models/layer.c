#include "layer.h"
#include <math.h>

attn__side attn__encoder_side(const attn_transformer_options *o)
{
    return (attn__side){o->encoder_layers, o->width, o->heads, o->feed_forward, 0, 0, NULL};
}

attn__side attn__decoder_side(const attn_transformer_options *o)
{
    return (attn__side){
        o->decoder_layers, o->decoder_width, o->decoder_heads, o->decoder_feed_forward, o->encoder_layers > 0 ? o->width : 0, 1, NULL};
}

static void set_positions(const attn_transformer_options *o, const attn__side *side, attn_attention_options *a)
{
    if (o->positions < ATTN_POSITIONS_ROTARY) return; /* added to the embeddings */
    a->positions = o->positions;
    a->position_sides = !side->causal;
    a->position_buckets = o->position_buckets;
    a->position_reach = o->position_reach;
    a->rotary_pairing = o->rotary_pairing;
    a->rotary_scaling = o->rotary_scaling;
    a->rotated = o->rotated == o->head_size ? ATTN_DERIVED : o->rotated; /* all, in a decoder of other heads too */
    a->rotary_base = o->rotary_base;
    a->rotary_factor = o->rotary_factor;
    a->rotary_context = o->rotary_context;
    a->rotary_low = o->rotary_low;
    a->rotary_high = o->rotary_high;
    a->rotary_magnitude = o->rotary_magnitude;
}

/* A Linformer's projected key mixes later rows too: a decoder's is softmax. A Performer's layers err apart: each has directions of its own. */
static void set_form(const attn_transformer_options *o, const attn__side *side, uint64_t site, attn_attention_options *a)
{
    if (o->form == ATTN_FORM_LINFORMER && side->causal) return;
    a->form = o->form;
    a->features = o->features;
    a->feature_seed = attn__mix((uint64_t)o->feature_seed, site);
    a->projected = o->projected;
    a->longest = o->context;
}

/* memory_width 0: self-attention, which alone knows positions, and may have lost heads: kept NULL: none */
static attn_status plan_attention(const attn__scope *scope, const char *name, const attn_transformer_options *o, const attn__side *side,
                                  int64_t memory_width, double shrink, const attn__attention_module *shared, const attn__kept *kept,
                                  attn__attention_module *module)
{
    attn_attention_options a;
    attn_status status = attn_attention_options_init(&a, sizeof a);
    if (status != ATTN_OK) return status;
    a.dtype = o->dtype;
    a.heads = side->heads;
    a.key_heads = o->key_heads == o->heads ? side->heads : o->key_heads;
    a.query_width = a.output_width = side->width;
    a.key_width = a.value_width = memory_width > 0 ? memory_width : side->width;
    if (memory_width == 0) set_positions(o, side, &a);
    if (!o->scaled_scores) a.score = ATTN_SCORE_DOT;
    a.query_key_norm = o->query_key_norm;
    a.query_key_epsilon = o->norm_epsilon;
    a.gated_output = o->gated_attention;
    if (memory_width == 0) set_form(o, side, attn__scope_site(scope, name), &a);
    a.global_projections = o->global_projections && memory_width == 0 && !side->causal;
    a.head_size = o->head_size;
    if (side->width != o->width && side->width % side->heads == 0) a.head_size = side->width / side->heads;
    a.bias_query = a.bias_key = a.bias_value = a.bias_output = o->attention_bias;
    a.dropout = a.form == ATTN_FORM_LINEAR || a.form == ATTN_FORM_PERFORMER ? 0 : o->dropout_attention; /* there are no weights */
    a.soft_cap = o->soft_cap;
    a.initialisation = o->initialisation;
    a.initialisation_scale = o->initialisation_scale;
    const attn__attention_kept heads = {side->heads, kept != NULL ? kept->heads : NULL};
    if (kept != NULL) { /* whole groups: each has a key head */
        a.key_heads = kept->count / (side->heads / a.key_heads);
        a.heads = kept->count;
    }
    status = attn__attention_resolve(scope->ctx, &a, &a);
    return status == ATTN_OK ? attn__attention_plan(scope, name, &a, shrink, shared, &heads, module) : status;
}

static attn_status plan_norm(const attn__scope *scope, const char *name, const attn_transformer_options *o, int64_t width,
                             attn__norm_module *module)
{
    return attn__norm_plan(scope, name, width, o->norm, o->norm_bias, o->norm_epsilon, module);
}

attn_status attn__layer_plan(const attn__scope *scope, const attn_transformer_options *o, const attn__side *side, const attn__layer *first,
                             int64_t index, attn__layer *layer)
{
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    /* what writes to the residual stream starts smaller in deep stacks (GPT-2) */
    double shrink = o->initialisation == ATTN_INITIALISATION_SCALED_NORMAL ? 1 / sqrt(2.0 * (double)side->layers) : 1;
    const attn__feed_forward_options ff = {side->width,          side->feed_forward, o->activation, o->gated,
                                           o->feed_forward_bias, o->learned_beta,    o->swish_beta, o->dropout_activation};
    layer->has_cross = side->memory_width > 0;
    layer->placement = o->norm_placement;
    layer->parallel = o->parallel_block;
    layer->dropout = o->dropout_sublayer;
    layer->self_site = attn__scope_site(scope, "self_attention");
    layer->cross_site = attn__scope_site(scope, "cross_attention");
    layer->feed_forward_site = attn__scope_site(scope, "feed_forward");

    attn_status status = plan_norm(scope, layer->parallel ? "norm" : "self_attention_norm", o, side->width, &layer->self_norm);
    if (status == ATTN_OK)
        status = plan_attention(scope, "self_attention", o, side, 0, shrink, first ? &first->self : NULL,
                                attn__left_of(side->left, side->causal, index), &layer->self);
    if (status == ATTN_OK && layer->has_cross) {
        if (!layer->parallel) status = plan_norm(scope, "cross_attention_norm", o, side->width, &layer->cross_norm);
        if (status == ATTN_OK)
            status = plan_attention(scope, "cross_attention", o, side, side->memory_width, shrink, NULL, NULL, &layer->cross);
    }
    if (status == ATTN_OK && !layer->parallel) status = plan_norm(scope, "feed_forward_norm", o, side->width, &layer->feed_forward_norm);
    if (status == ATTN_OK) status = attn__feed_forward_plan(scope, "feed_forward", &ff, &rule, shrink, &layer->feed_forward);
    return status;
}

/* the place that is asked for, or a temporary */
static attn_status place_like(const attn__call *call, const attn__value *x, const attn__value *asked, attn__value *out)
{
    if (asked == NULL) return attn__tape_temporary(call->ctx, call->tape, x->at.rows, x->at.width, x->at.dtype, out);
    *out = *asked;
    return ATTN_OK;
}

static attn_status run_self(const attn__call *call, const attn__layer *layer, const attn__layer_inputs *in, const attn__value *x,
                            attn__value *y)
{
    const attn__attention_inputs inputs = {.query = x,
                                           .key = x,
                                           .value = x,
                                           .query_segments = in->stream.segments,
                                           .key_segments = in->key_segments,
                                           .mask = in->mask,
                                           .query_places = in->stream.places,
                                           .key_places = in->stream.places,
                                           .slot = in->slot};
    return attn__attention_run(call, &layer->self, &inputs, in->cache ? &in->cache->self : NULL, y);
}

static attn_status run_cross(const attn__call *call, const attn__layer *layer, const attn__layer_inputs *in, const attn__value *x,
                             attn__value *y)
{
    const attn__attention_inputs inputs = {.query = x,
                                           .key = in->memory,
                                           .value = in->memory,
                                           .query_segments = in->stream.segments,
                                           .key_segments = in->memory_segments,
                                           .mask = in->memory_mask};
    return attn__attention_run(call, &layer->cross, &inputs, in->cache ? &in->cache->cross : NULL, y);
}

static attn_status run_feed_forward(const attn__call *call, const attn__layer *layer, const attn__layer_inputs *in, const attn__value *x,
                                    attn__value *y)
{
    return attn__feed_forward_run(call, &layer->feed_forward, x, in->stream.places, y);
}

/* y: its memory exists */
typedef attn_status sub_layer(const attn__call *call, const attn__layer *layer, const attn__layer_inputs *in, const attn__value *x,
                              attn__value *y);

/* stream += dropout(pending), at `asked` or anywhere */
static attn_status add_carry(const attn__call *call, const attn__layer *layer, const attn__layer_inputs *in, attn__carry *carry,
                             const attn__value *asked)
{
    attn__dropout drop = attn__tape_dropout(call->tape, layer->dropout, carry->site, in->stream.places);
    attn__value sum;
    attn_status status = place_like(call, &carry->stream, asked, &sum);
    if (status == ATTN_OK) status = attn__residual(call->ctx, call->tape, &carry->stream, &carry->pending, &drop, &sum);
    carry->stream = sum;
    carry->has_pending = 0;
    return status;
}

/* the same, and y = norm of it */
static attn_status norm_carry(const attn__call *call, const attn__layer *layer, const attn__norm_module *norm, const attn__layer_inputs *in,
                              attn__carry *carry, const attn__value *asked, attn__value *y)
{
    attn_status status = place_like(call, &carry->stream, NULL, y);
    if (status != ATTN_OK) return status;
    if (!carry->has_pending) return attn__norm_run(call, norm, &carry->stream, NULL, NULL, NULL, y);
    attn__dropout drop = attn__tape_dropout(call->tape, layer->dropout, carry->site, in->stream.places);
    attn__value sum;
    status = place_like(call, &carry->stream, asked, &sum);
    if (status == ATTN_OK) status = attn__norm_run(call, norm, &carry->stream, &carry->pending, &drop, &sum, y);
    carry->stream = sum;
    carry->has_pending = 0;
    return status;
}

/* the sub-layer's output becomes what is pending, at `asked` or anywhere */
static attn_status run_sub(const attn__call *call, const attn__layer *layer, sub_layer *sub, uint64_t site, const attn__layer_inputs *in,
                           const attn__value *x, attn__carry *carry, const attn__value *asked)
{
    attn_status status = place_like(call, x, asked, &carry->pending);
    if (status == ATTN_OK) status = sub(call, layer, in, x, &carry->pending);
    carry->has_pending = 1;
    carry->site = site;
    return status;
}

static attn_status run_pre(const attn__call *call, const attn__layer *layer, const attn__norm_module *norm, sub_layer *sub, uint64_t site,
                           const attn__layer_inputs *in, attn__carry *carry, const attn__ends *ends)
{
    attn__value y;
    attn_status status = norm_carry(call, layer, norm, in, carry, ends->stream, &y);
    return status == ATTN_OK ? run_sub(call, layer, sub, site, in, &y, carry, ends->pending) : status;
}

static attn_status run_post(const attn__call *call, const attn__layer *layer, const attn__norm_module *norm, sub_layer *sub, uint64_t site,
                            const attn__layer_inputs *in, attn__carry *carry, const attn__value *asked)
{
    attn__value s, y;
    attn_status status = place_like(call, &carry->stream, NULL, &s);
    if (status == ATTN_OK) status = sub(call, layer, in, &carry->stream, &s);
    if (status == ATTN_OK) status = place_like(call, &carry->stream, asked, &y);
    if (status != ATTN_OK) return status;
    attn__dropout drop = attn__tape_dropout(call->tape, layer->dropout, site, in->stream.places);
    status = attn__norm_run(call, norm, &carry->stream, &s, &drop, NULL, &y);
    carry->stream = y;
    return status;
}

static attn_status run_parallel(const attn__call *call, const attn__layer *layer, const attn__layer_inputs *in, attn__carry *carry,
                                const attn__ends *ends)
{
    attn__value x = carry->stream, y;
    int pre = layer->placement == ATTN_PLACEMENT_PRE;
    attn_status status = pre ? norm_carry(call, layer, &layer->self_norm, in, carry, NULL, &x) : ATTN_OK;
    if (status == ATTN_OK) status = run_sub(call, layer, run_self, layer->self_site, in, &x, carry, NULL);
    if (status == ATTN_OK && layer->has_cross) status = add_carry(call, layer, in, carry, NULL);
    if (status == ATTN_OK && layer->has_cross) status = run_sub(call, layer, run_cross, layer->cross_site, in, &x, carry, NULL);
    if (status == ATTN_OK) status = add_carry(call, layer, in, carry, pre ? ends->stream : NULL);
    if (status == ATTN_OK) status = run_sub(call, layer, run_feed_forward, layer->feed_forward_site, in, &x, carry, ends->pending);
    if (status != ATTN_OK || pre) return status;
    attn__dropout drop = attn__tape_dropout(call->tape, layer->dropout, carry->site, in->stream.places);
    status = place_like(call, &carry->stream, ends->stream, &y);
    if (status == ATTN_OK) status = attn__norm_run(call, &layer->self_norm, &carry->stream, &carry->pending, &drop, NULL, &y);
    carry->stream = y;
    carry->has_pending = 0;
    return status;
}

attn_status attn__layer_run(const attn__call *call, const attn__layer *l, const attn__layer_inputs *in, attn__carry *carry,
                            const attn__ends *ends)
{
    static const attn__ends anywhere = {NULL, NULL};
    attn_status status;
    if (l->parallel) return run_parallel(call, l, in, carry, ends);
    if (l->placement == ATTN_PLACEMENT_PRE) {
        status = run_pre(call, l, &l->self_norm, run_self, l->self_site, in, carry, &anywhere);
        if (status == ATTN_OK && l->has_cross) status = run_pre(call, l, &l->cross_norm, run_cross, l->cross_site, in, carry, &anywhere);
        if (status == ATTN_OK) status = run_pre(call, l, &l->feed_forward_norm, run_feed_forward, l->feed_forward_site, in, carry, ends);
        return status;
    }
    status = run_post(call, l, &l->self_norm, run_self, l->self_site, in, carry, NULL);
    if (status == ATTN_OK && l->has_cross) status = run_post(call, l, &l->cross_norm, run_cross, l->cross_site, in, carry, NULL);
    if (status == ATTN_OK)
        status = run_post(call, l, &l->feed_forward_norm, run_feed_forward, l->feed_forward_site, in, carry, ends->stream);
    return status;
}

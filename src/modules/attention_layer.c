#include <attn/rotary.h>
#include "../autograd/linear_attention.h"
#include "../core/options.h"
#include "../tensor/layout.h"
#include "attention.h"

static const attn_attention_options defaults = {.struct_size = sizeof(attn_attention_options),
                                                .dtype = ATTN_FLOAT32,
                                                .score = ATTN_SCORE_SCALED_DOT,
                                                .heads = 1,
                                                .key_heads = ATTN_DERIVED,
                                                .query_width = 0,
                                                .key_width = ATTN_DERIVED,
                                                .value_width = ATTN_DERIVED,
                                                .output_width = ATTN_DERIVED,
                                                .head_size = ATTN_DERIVED,
                                                .value_head_size = ATTN_DERIVED,
                                                .project_query = 1,
                                                .project_key = 1,
                                                .project_value = 1,
                                                .project_output = 1,
                                                .bias_query = 1,
                                                .bias_key = 1,
                                                .bias_value = 1,
                                                .bias_output = 1,
                                                .scale = 1,
                                                .dropout = 0,
                                                .soft_cap = 0,
                                                .site = 0,
                                                .initialisation = ATTN_INITIALISATION_XAVIER,
                                                .derive_scale = 1,
                                                .initialisation_scale = 0.02,
                                                .position_sides = 1,
                                                .position_buckets = 32,
                                                .position_reach = 128,
                                                .relative_values = 1,
                                                .rotated = ATTN_DERIVED,
                                                .rotary_base = 10000,
                                                .rotary_factor = 1,
                                                .rotary_context = 2048,
                                                .rotary_low = 1,
                                                .rotary_high = 32,
                                                .query_key_epsilon = 1e-6,
                                                .key_head_size = ATTN_DERIVED,
                                                .features = ATTN_DERIVED};

#define SIZE(f, flags) ATTN__INT64(attn_attention_options, f, flags, 1, HUGE_VAL)
#define FLAG(f) ATTN__INT32(attn_attention_options, f, 0, 1)
#define REAL(f, least, most) ATTN__REAL(attn_attention_options, f, 0, least, most)
static const attn__field fields[] = {ATTN__INT32(attn_attention_options, score, ATTN_SCORE_DOT, ATTN_SCORE_ADDITIVE),
                                     SIZE(heads, 0),
                                     SIZE(key_heads, ATTN__DERIVED),
                                     SIZE(query_width, 0),
                                     SIZE(key_width, ATTN__DERIVED),
                                     SIZE(value_width, ATTN__DERIVED),
                                     SIZE(output_width, ATTN__DERIVED),
                                     SIZE(head_size, ATTN__DERIVED),
                                     SIZE(value_head_size, ATTN__DERIVED),
                                     FLAG(project_query),
                                     FLAG(project_key),
                                     FLAG(project_value),
                                     FLAG(project_output),
                                     FLAG(bias_query),
                                     FLAG(bias_key),
                                     FLAG(bias_value),
                                     FLAG(bias_output),
                                     REAL(scale, -HUGE_VAL, HUGE_VAL),
                                     REAL(dropout, 0, 1),
                                     REAL(soft_cap, 0, HUGE_VAL),
                                     FLAG(initialisation),
                                     FLAG(derive_scale),
                                     REAL(initialisation_scale, 0, HUGE_VAL),
                                     FLAG(position_sides),
                                     FLAG(relative_values),
                                     ATTN__INT32(attn_attention_options, query_key_norm, ATTN_QUERY_KEY_NONE, ATTN_QUERY_KEY_RMS),
                                     FLAG(gated_output),
                                     FLAG(pair_bias),
                                     ATTN__INT32(attn_attention_options, rotary_pairing, ATTN_ROTARY_HALVES, ATTN_ROTARY_PAIRS),
                                     ATTN__INT32(attn_attention_options, rotary_scaling, ATTN_ROTARY_PLAIN, ATTN_ROTARY_LLAMA3),
                                     ATTN__REAL(attn_attention_options, rotary_base, ATTN__ABOVE, 1, HUGE_VAL),
                                     REAL(rotary_factor, 1, HUGE_VAL),
                                     ATTN__REAL(attn_attention_options, rotary_context, ATTN__ABOVE, 0, HUGE_VAL),
                                     ATTN__REAL(attn_attention_options, rotary_low, ATTN__ABOVE, 0, HUGE_VAL),
                                     ATTN__REAL(attn_attention_options, rotary_high, ATTN__ABOVE, 0, HUGE_VAL),
                                     REAL(rotary_magnitude, 0, HUGE_VAL),
                                     REAL(query_key_epsilon, 0, 1),
                                     SIZE(key_head_size, ATTN__DERIVED),
                                     ATTN__INT32(attn_attention_options, form, ATTN_FORM_SOFTMAX, ATTN_FORM_LINFORMER),
                                     FLAG(separate_projections),
                                     FLAG(global_projections),
                                     ATTN__INT32(attn_attention_options, reserved, 0, 0),
                                     SIZE(features, ATTN__DERIVED),
                                     ATTN__INT64(attn_attention_options, projected, 0, 0, INT32_MAX),
                                     ATTN__INT64(attn_attention_options, longest, 0, 0, INT32_MAX)};

attn_status attn_attention_options_init(attn_attention_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

static attn_status resolve_sizes(attn_context *ctx, attn_attention_options *o)
{
    if (o->key_heads == ATTN_DERIVED) o->key_heads = o->heads;
    if (o->heads % o->key_heads != 0)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.key_heads: got %lld, expected a divisor of heads %lld", (long long)o->key_heads,
                          (long long)o->heads);
    if (o->key_width == ATTN_DERIVED) o->key_width = o->query_width;
    if (o->value_width == ATTN_DERIVED) o->value_width = o->key_width;
    if (o->head_size == ATTN_DERIVED) {
        if (o->query_width % o->heads != 0)
            return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.query_width: got %lld, expected a multiple of heads %lld (or give head_size)",
                              (long long)o->query_width, (long long)o->heads);
        o->head_size = o->query_width / o->heads;
    }
    if (o->key_head_size == ATTN_DERIVED) o->key_head_size = o->head_size;
    if (o->key_head_size != o->head_size && o->score != ATTN_SCORE_MULTIPLICATIVE)
        return attn__fail(ctx, ATTN_ERROR_SHAPE,
                          "options.key_head_size: got %lld, expected the head_size of %lld unless the score is multiplicative",
                          (long long)o->key_head_size, (long long)o->head_size);
    if (o->score == ATTN_SCORE_ADDITIVE && o->head_size > 32768)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.head_size: got %lld, expected at most 32768 with additive scores",
                          (long long)o->head_size);
    if (o->value_head_size == ATTN_DERIVED) o->value_head_size = o->project_value ? o->head_size : o->value_width / o->key_heads;
    int64_t columns = 0;
    if (attn__multiply(o->heads, o->head_size > o->value_head_size ? o->head_size : o->value_head_size, &columns) || columns > INT32_MAX)
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE,
                          "options.head_size, value_head_size: got %lld and %lld, expected times %lld heads at most 2^31 - 1",
                          (long long)o->head_size, (long long)o->value_head_size, (long long)o->heads);
    if (attn__multiply(o->heads, o->key_head_size, &columns) || columns > INT32_MAX)
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "options.key_head_size: got %lld, expected times %lld heads at most 2^31 - 1",
                          (long long)o->key_head_size, (long long)o->heads);
    if (o->output_width == ATTN_DERIVED) o->output_width = o->project_output ? o->query_width : o->heads * o->value_head_size;
    if (o->value_head_size < 1)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.value_width: got %lld, expected at least key_heads %lld",
                          (long long)o->value_width, (long long)o->key_heads);
    return ATTN_OK;
}

/* without a projection the input is the projection: widths must say so */
static attn_status check_absent(attn_context *ctx, const attn_attention_options *o)
{
    const struct {
        const char *name;
        int32_t project, bias;
        int64_t got, expected;
    } part[] = {{"query_width", o->project_query, o->bias_query, o->query_width, o->heads * o->head_size},
                {"key_width", o->project_key, o->bias_key, o->key_width, o->key_heads * o->key_head_size},
                {"value_width", o->project_value, o->bias_value, o->value_width, o->key_heads * o->value_head_size},
                {"output_width", o->project_output, o->bias_output, o->output_width, o->heads * o->value_head_size}};
    for (int i = 0; i < 4; i++) {
        if (!part[i].project && part[i].got != part[i].expected)
            return attn__fail(ctx, ATTN_ERROR_SHAPE,
                              "options.%s: got %lld, expected %lld (heads times head size), as its projection is absent", part[i].name,
                              (long long)part[i].got, (long long)part[i].expected);
    }
    return ATTN_OK;
}

attn_status attn__attention_resolve(attn_context *ctx, const attn_attention_options *options, attn_attention_options *out)
{
    attn_attention_options o = *options;
    if (o.dtype != ATTN_FLOAT32 && o.dtype != ATTN_FLOAT64)
        return attn__fail(ctx, ATTN_ERROR_DTYPE, "options.dtype: got %d (%s), expected float32 or float64", (int)o.dtype,
                          attn__dtype_name(o.dtype));
    attn_status status = ATTN__CHECK(ctx, "options", &o, fields);
    if (status != ATTN_OK) return status;
    o.bias_query &= o.project_query;
    o.bias_key &= o.project_key;
    o.bias_value &= o.project_value;
    o.bias_output &= o.project_output;
    status = resolve_sizes(ctx, &o);
    if (status == ATTN_OK) status = check_absent(ctx, &o);
    if (status == ATTN_OK) status = attn__attention_positions_resolve(ctx, &o);
    if (status != ATTN_OK) return status;
    status = attn__attention_forms_resolve(ctx, &o);
    if (status == ATTN_OK) status = attn__attention_global_resolve(ctx, &o);
    if (status != ATTN_OK) return status;
    if (o.derive_scale) o.scale = o.score == ATTN_SCORE_SCALED_DOT ? 1 / sqrt((double)o.head_size) : 1;
    *out = o;
    return ATTN_OK;
}

attn_status attn__attention_read(attn_context *ctx, const attn_attention_options *options, attn_attention_options *out)
{
    attn_attention_options o;
    attn_status status =
        attn__options_read(ctx, "options", options, &defaults, sizeof o, offsetof(attn_attention_options, initialisation), &o);
    return status == ATTN_OK ? attn__attention_resolve(ctx, &o, out) : status;
}

static attn_status build(attn_context *ctx, const attn_attention_options *o, attn_attention *layer)
{
    attn_status status = attn__parameters_create(ctx, o->dtype, &layer->parameters);
    attn__scope scope = {ctx, layer->parameters, ""};
    if (status == ATTN_OK) status = attn__attention_plan(&scope, "", o, 1, NULL, NULL, &layer->module);
    if (status == ATTN_OK) status = attn__parameters_finish(ctx, layer->parameters);
    if (status == ATTN_OK) status = attn__initialise(ctx, layer->parameters);
    return status;
}

attn_status attn_attention_create(attn_context *ctx, const attn_attention_options *options, attn_attention **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_attention_options o;
    void *layer = NULL;
    if (out == NULL) status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the layer");
    if (status == ATTN_OK) status = attn__attention_read(ctx, options, &o);
    if (status == ATTN_OK) {
        status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_attention), &layer);
        if (status != ATTN_OK) attn__fail_memory(ctx, status, "attention layer");
    }
    if (status == ATTN_OK) {
        attn_attention *made = layer;
        made->magic = ATTN__MAGIC_ATTENTION;
        made->memory = attn__memory_retain(ctx->memory);
        status = build(ctx, &o, made);
        if (status == ATTN_OK)
            *out = made;
        else
            attn_attention_free(made);
    }
    return attn__leave(ctx, status);
}

void attn_attention_free(attn_attention *layer)
{
    if (!attn__is(layer, ATTN__MAGIC_ATTENTION)) return;
    attn__memory *memory = layer->memory;
    attn__parameters_release(layer->parameters);
    layer->magic = 0;
    attn__deallocate(memory, layer, (int64_t)sizeof *layer);
    attn__memory_release(memory);
}

attn_parameters *attn_attention_parameters(const attn_attention *layer)
{
    return attn__is(layer, ATTN__MAGIC_ATTENTION) ? layer->parameters : NULL;
}

/* the caller's tensors as values; the same tensor given twice is one value, so that projections can be joined */
static attn_status take_inputs(const attn__call *call, const attn_attention_options *o, const attn_tensor *const tensor[3],
                               attn__value value[3], const attn__value *shared[3])
{
    static const char *const names[3] = {"query", "key", "value"};
    const int64_t width[3] = {o->query_width, o->key_width, o->value_width};
    for (int i = 0; i < 3; i++) {
        view at;
        attn_status status = attn__rows(call->ctx, names[i], tensor[i], o->dtype, &at);
        if (status == ATTN_OK) status = attn__expect_shape(call->ctx, names[i], &at, i == 2 ? value[1].at.rows : -1, 1, width[i]);
        if (status == ATTN_OK) status = attn__tape_input(call->ctx, call->tape, names[i], tensor[i], &at, &value[i]);
        if (status != ATTN_OK) return status;
        shared[i] = &value[i];
        for (int j = 0; j < i; j++)
            if (tensor[j] == tensor[i]) shared[i] = shared[j];
    }
    return ATTN_OK;
}

static attn_status forward(const attn__call *call, const attn_attention *layer, const attn_tensor *const tensor[3],
                           const attn_layout *query_layout, const attn_layout *key_layout, const attn_mask *mask, attn_tensor *output)
{
    attn_context *ctx = call->ctx;
    const attn_attention_options *o = &layer->module.options;
    attn__value value[3], y;
    attn__attention_inputs in = {.mask = mask};
    const attn__value *shared[3];
    attn__stream queries, keys;
    view at;
    attn_status status = take_inputs(call, o, tensor, value, shared);
    if (status == ATTN_OK) status = attn__rows(ctx, "output", output, o->dtype, &at);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "output", &at, value[0].at.rows, 1, o->output_width);
    for (int i = 0; status == ATTN_OK && i < 3; i++) status = attn__expect_apart(ctx, "output", &at, "an input", &value[i].at);
    if (status == ATTN_OK) status = attn__output_apart(call, "output", &at);
    if (status == ATTN_OK) status = attn__stream_open(call, "query_layout", query_layout, value[0].at.rows, &queries);
    if (status == ATTN_OK) status = attn__stream_keys(call, "key_layout", key_layout, value[1].at.rows, &keys);
    if (status == ATTN_OK && o->form != ATTN_FORM_SOFTMAX) /* sums over rows: each row counts once */
        status = attn__layout_disjoint(ctx, NULL, "key_layout", key_layout, value[1].at.rows, &(attn__segments){0, 0, NULL});
    if (status == ATTN_OK && queries.segments.count != keys.segments.count)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "key_layout: got %lld segments, expected %lld as in query_layout",
                            (long long)keys.segments.count, (long long)queries.segments.count);
    if (status == ATTN_OK && mask != NULL) status = attn__expect(ctx, "mask", mask, ATTN__MAGIC_MASK, "attn_mask");
    if (status == ATTN_OK) status = attn__mask_check(ctx, "mask", mask, o->heads, queries.segments, keys.segments);
    if (status == ATTN_OK) status = attn__tape_output(ctx, call->tape, "output", output, &at, &y);
    if (status != ATTN_OK) return status;
    in.query = shared[0];
    in.key = shared[1];
    in.value = shared[2];
    in.query_segments = queries.segments;
    in.key_segments = keys.segments;
    in.query_places = queries.places;
    if (o->positions == ATTN_POSITIONS_ROTARY)
        status = attn__places_expand(ctx, attn__tape_records(ctx, call->tape), keys.segments, value[1].at.rows, &in.key_places);
    if (status != ATTN_OK) return status;
    return attn__attention_run(call, &layer->module, &in, NULL, &y);
}

attn_status attn_attention_forward(attn_context *ctx, const attn_attention *layer, attn_tape *tape, const attn_tensor *query,
                                   const attn_tensor *key, const attn_tensor *value, const attn_layout *query_layout,
                                   const attn_layout *key_layout, const attn_mask *mask, attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "layer", layer, ATTN__MAGIC_ATTENTION, "attn_attention");
    if (status == ATTN_OK && tape != NULL) status = attn__expect(ctx, "tape", tape, ATTN__MAGIC_TAPE, "attn_tape");
    if (status == ATTN_OK) {
        const attn__call call = {ctx, tape, layer->parameters};
        const attn_tensor *const tensor[3] = {query, key, value};
        status = forward(&call, layer, tensor, query_layout, key_layout, mask, output);
    }
    return attn__leave(ctx, status);
}

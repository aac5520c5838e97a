#include <attn/inspect.h>
#include <math.h>
#include "../core/options.h"
#include "attention_bias.h"

typedef struct attention_saved {
    attn__attention_settings settings;
    attn__attention_bias bias;
    view vector;       /* of additive scores; data NULL: none */
    void *log_sum_exp; /* [heads, query rows] */
} attention_saved;

enum { ATTENTION_INPUTS = 8 }; /* query, key, value, four tables of biases, and the vector of additive scores */

static attn__attention_arguments arguments_of(const attn__attention_settings *settings, const view *query, const view *key,
                                              const view *value, const view *output, void *log_sum_exp)
{
    return (attn__attention_arguments){.query = *query,
                                       .key = *key,
                                       .value = *value,
                                       .output = *output,
                                       .log_sum_exp = log_sum_exp,
                                       .query_segments = settings->query_segments,
                                       .key_segments = settings->key_segments,
                                       .mask = settings->mask,
                                       .scale = settings->scale,
                                       .soft_cap = settings->soft_cap,
                                       .dropout = settings->dropout,
                                       .bias = settings->bias,
                                       .score_vector = settings->score_vector != NULL ? settings->score_vector->at : (view){.data = NULL}};
}

/* Where the gradient of one argument goes. A buffer of its own when it is not wanted (the kernel writes all three), or when another
   argument is the same value: the kernel may write them in any order. Rows in no segment start as zero. */
typedef struct destination {
    view at, final;
    int add, add_final;
} destination;
static attn_status destine(attn_context *ctx, attn_tape *tape, const attn__value *input, int alone, attn__segments segments,
                           destination *out)
{
    attn_status status = attn__tape_wanted(ctx, tape, input, &out->at, &out->add);
    if (status != ATTN_OK) return status;
    out->final.data = NULL;
    if (out->at.data == NULL || !alone) {
        attn__value temporary;
        if (out->at.data != NULL) {
            out->final = out->at;
            out->add_final = out->add;
        }
        status = attn__tape_temporary(ctx, NULL, input->at.rows, input->at.heads * input->at.width, input->at.dtype, &temporary);
        if (status != ATTN_OK) return status;
        out->at = attn__view_heads(temporary.at, input->at.heads);
        out->add = 0;
    }
    if (!out->add && !attn__segments_tile(segments, input->at.rows)) {
        out->add = 1;
        return attn__fill_view(ctx, 0, &out->at);
    }
    return ATTN_OK;
}

/* One value in two roles. A parameter has an id for each, and one gradient. */
static int same(const attn__value *a, const attn__value *b)
{
    return a->id == b->id || a->at.data == b->at.data;
}

static attn_status settle(attn_context *ctx, destination *one)
{
    return one->final.data != NULL ? attn__copy_view(ctx, &one->at, one->add_final, &one->final) : ATTN_OK;
}

static attn_status attention_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attention_saved *saved = record->saved;
    const attn__value *query = &record->input[0], *key = &record->input[1], *value = &record->input[2];
    const attn__attention_settings *settings = &saved->settings;
    const attn__kernels *k;
    destination dq, dk, dv;
    attn__attention_bias bias = saved->bias;
    view *tables[] = {&bias.d_distance, &bias.d_relative_keys, &bias.d_relative_values, &bias.d_pair};
    attn__attention_arguments a = arguments_of(settings, &query->at, &key->at, &value->at, &record->output[0].at, saved->log_sum_exp);
    attn_status status = attn__kernels_for(ctx, query->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &a.d_output, NULL);
    if (settings->bias != NULL) a.bias = &bias;
    for (int i = 0; i < 4 && status == ATTN_OK && settings->bias != NULL; i++)
        status = attn__tape_added(ctx, tape, &record->input[3 + i], tables[i]);
    if (status == ATTN_OK && saved->vector.data != NULL) status = attn__tape_added(ctx, tape, &record->input[7], &a.d_score_vector);
    a.score_vector = saved->vector;
    if (status == ATTN_OK) status = destine(ctx, tape, query, 1, settings->query_segments, &dq);
    if (status == ATTN_OK) status = destine(ctx, tape, key, !same(key, query), settings->key_segments, &dk);
    if (status == ATTN_OK) status = destine(ctx, tape, value, !same(value, query) && !same(value, key), settings->key_segments, &dv);
    if (status != ATTN_OK) return status;
    a.d_query = dq.at;
    a.d_key = dk.at;
    a.d_value = dv.at;
    a.add_query = dq.add;
    a.add_key = dk.add;
    a.add_value = dv.add;
    status = k->attention_back(ctx, &a);
    if (status == ATTN_OK) status = settle(ctx, &dk);
    return status == ATTN_OK ? settle(ctx, &dv) : status;
}

attn_status attn__attend(attn_context *ctx, attn_tape *tape, const attn__value *query, const attn__value *key, const attn__value *value,
                         const attn__attention_settings *settings, attn__value *output)
{
    const attn__value *inputs[ATTENTION_INPUTS] = {
        query, key, value, settings->distance, settings->relative_keys, settings->relative_values, settings->pair, settings->score_vector};
    attn__value *outputs[] = {output};
    const attn__kernels *k;
    void *log_sum_exp = NULL;
    attn__record *record = NULL;
    int keeps = attn__tape_keeps(tape, ATTENTION_INPUTS, inputs);
    attn_status status = attn__kernels_for(ctx, query->at.dtype, &k);
    if (status == ATTN_OK && keeps) {
        status = attn__tape_memory(ctx, tape, query->at.heads * query->at.rows * attn__dtype_bytes(query->at.dtype), &log_sum_exp);
        if (status == ATTN_OK) status = attn__tape_hold_mask(ctx, tape, settings->mask);
    }
    if (status != ATTN_OK) return status;
    attn__attention_arguments a = arguments_of(settings, &query->at, &key->at, &value->at, &output->at, log_sum_exp);
    a.entropy = settings->entropy;
    status = k->attention(ctx, &a);
    if (status == ATTN_OK)
        status = attn__tape_record(ctx, tape, attention_back, ATTENTION_INPUTS, inputs, 1, outputs, sizeof(attention_saved), &record);
    if (status != ATTN_OK || record == NULL) return status;
    attention_saved *saved = record->saved;
    *saved = (attention_saved){.settings = *settings, .log_sum_exp = log_sum_exp};
    if (settings->score_vector != NULL) saved->vector = settings->score_vector->at;
    saved->settings.score_vector = NULL; /* the caller's; the view above stays */
    if (settings->bias != NULL) {
        saved->bias = *settings->bias;
        saved->settings.bias = &saved->bias;
    }
    return status;
}

attn_status attn__attention_weights(attn_context *ctx, const view *query, const view *key, const attn__attention_settings *settings,
                                    const attn__weights_part *part, view *weights)
{
    const attn__kernels *k;
    const attn__attention_arguments a = arguments_of(settings, query, key, key, query, NULL); /* values and output are not looked at */
    attn_status status = attn__kernels_for(ctx, query->dtype, &k);
    return status == ATTN_OK ? k->attention_weights(ctx, &a, part, weights) : status;
}

static const attn_dot_product_options defaults = {.struct_size = sizeof(attn_dot_product_options), .scale = -1, .derive_scale = 1};

static const attn__field fields[] = {
    ATTN__REAL(attn_dot_product_options, scale, 0, -HUGE_VAL, HUGE_VAL), ATTN__REAL(attn_dot_product_options, dropout, 0, 0, 1),
    ATTN__REAL(attn_dot_product_options, soft_cap, 0, 0, HUGE_VAL), ATTN__INT32(attn_dot_product_options, derive_scale, 0, 1),
    ATTN__INT32(attn_dot_product_options, reserved, 0, 0)};

attn_status attn_dot_product_options_init(attn_dot_product_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

attn_status attn__dot_product_read(attn_context *ctx, const attn_dot_product_options *options, int64_t size, attn_dot_product_options *o)
{
    attn_status status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, sizeof defaults, o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", o, fields);
    if (status == ATTN_OK && o->derive_scale) o->scale = size > 0 ? 1 / sqrt((double)size) : 1;
    return status;
}

/* Query rows belong to one segment at most. */
static attn_status check_queries(attn_context *ctx, const attn_layout *layout, attn__segments segments, int64_t rows)
{
    if (layout == NULL || layout->tiles_rows) return ATTN_OK;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    uint8_t *taken = attn__scratch(ctx, rows);
    if (taken == NULL) return attn__arena_status(ctx->scratch);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < rows; i++) taken[i] = 0;
    for (int64_t i = 0; status == ATTN_OK && i < segments.count; i++) {
        for (int64_t row = 0; status == ATTN_OK && row < segments.at[i].length; row++) {
            if (taken[segments.at[i].start + row]++ == 0) continue;
            status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "query_layout: got row %lld in two segments, expected one at most",
                                (long long)(segments.at[i].start + row));
        }
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

static attn_status check_heads(attn_context *ctx, const view *query, const view *key)
{
    if (key->heads == 0 ? query->heads != 0 : query->heads % key->heads != 0)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "query: got %lld heads, expected a multiple of the %lld heads of key",
                          (long long)query->heads, (long long)key->heads);
    return attn__expect_shape(ctx, "key", key, -1, -1, query->width);
}

static attn_status check_shapes(attn_context *ctx, const view *query, const view *key, const view *value, const view *output)
{
    attn_status status = check_heads(ctx, query, key);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "value", value, key->rows, key->heads, -1);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "output", output, query->rows, query->heads, value->width);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", output, "query", query);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", output, "key", key);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", output, "value", value);
    return status;
}

static attn_status check_layouts(attn_context *ctx, attn_tape *tape, const attn_layout *query_layout, const attn_layout *key_layout,
                                 const view *query, const view *key, const attn_mask *mask, attn__attention_settings *settings)
{
    attn__segments *queries = &settings->query_segments, *keys = &settings->key_segments;
    attn_status status = attn__layout_keys(ctx, "query_layout", query_layout, query->rows, queries);
    if (status == ATTN_OK) status = attn__layout_keys(ctx, "key_layout", key_layout, key->rows, keys);
    if (status == ATTN_OK) status = check_queries(ctx, query_layout, *queries, query->rows);
    if (status != ATTN_OK) return status;
    if (queries->count != keys->count)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "key_layout: got %lld segments, expected the %lld of query_layout", (long long)keys->count,
                          (long long)queries->count);
    status = attn__mask_check(ctx, "mask", mask, query->heads, *queries, *keys);
    settings->mask = mask;
    if (status != ATTN_OK || tape == NULL) return status;
    status = attn__segments_copy(ctx, attn__tape_records(ctx, tape), *queries, queries);
    return status == ATTN_OK ? attn__segments_copy(ctx, attn__tape_records(ctx, tape), *keys, keys) : status;
}

typedef struct attention_tensors {
    const attn_tensor *query, *key, *value;
    const attn_layout *query_layout, *key_layout;
    const attn_mask *mask;
    int64_t biases_count;
    const attn_attention_bias *const *biases;
    const attn_tensor *vector; /* of additive scores, when additive */
    int additive;
} attention_tensors;

enum { ADDITIVE_SIZE = 32768 };

static attn_status read_vector(attn_context *ctx, attn_tape *tape, const attention_tensors *in, const view *query, const view *output,
                               attn__value *vector, attn__attention_settings *settings)
{
    if (!in->additive) return ATTN_OK;
    if (query->width > ADDITIVE_SIZE)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "query: got a size of %lld, expected at most %d", (long long)query->width, ADDITIVE_SIZE);
    attn_status status = attn__argument_input(ctx, tape, "vector", in->vector, query->dtype, vector);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "vector", &vector->at, query->heads, 1, query->width);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", output, "vector", &vector->at);
    settings->score_vector = vector;
    return status;
}

static attn_status dot_product_attention(attn_context *ctx, attn_tape *tape, const attention_tensors *in,
                                         const attn_dot_product_options *options, attn_tensor *output)
{
    view q, k, v, y;
    attn__value vq, vk, vv, vy;
    attn_dot_product_options o;
    attn__bias_arguments biases;
    attn__value vector;
    attn__attention_settings settings = {.scale = 0};
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__heads(ctx, "query", in->query, 0, &q);
    if (status == ATTN_OK) status = attn__heads(ctx, "key", in->key, q.dtype, &k);
    if (status == ATTN_OK) status = attn__heads(ctx, "value", in->value, q.dtype, &v);
    if (status == ATTN_OK) status = attn__heads(ctx, "output", output, q.dtype, &y);
    if (status == ATTN_OK) status = check_shapes(ctx, &q, &k, &v, &y);
    if (status == ATTN_OK) status = attn__dot_product_read(ctx, options, in->additive ? 1 : q.width, &o);
    if (status == ATTN_OK) status = read_vector(ctx, tape, in, &q, &y, &vector, &settings);
    if (status == ATTN_OK) status = check_layouts(ctx, tape, in->query_layout, in->key_layout, &q, &k, in->mask, &settings);
    const attn__bias_call call = {&q, &v, &y, settings.query_segments, settings.key_segments};
    if (status == ATTN_OK) status = attn__bias_read(ctx, tape, in->biases_count, in->biases, &call, &biases, &settings);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "query", in->query, &q, &vq);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "key", in->key, &k, &vk);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "value", in->value, &v, &vv);
    if (status == ATTN_OK) status = attn__tape_output(ctx, tape, "output", output, &y, &vy);
    if (status != ATTN_OK) return status;
    settings.scale = o.scale;
    settings.soft_cap = o.soft_cap;
    settings.dropout = attn__tape_dropout(tape, o.dropout, o.site, (attn__places){NULL, NULL});
    return attn__attend(ctx, tape, &vq, &vk, &vv, &settings, &vy);
}

attn_status attn_dot_product_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                       const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout,
                                       const attn_mask *mask, const attn_dot_product_options *options, attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const attention_tensors in = {query, key, value, query_layout, key_layout, mask, 0, NULL, NULL, 0};
    return attn__leave(ctx, dot_product_attention(ctx, tape, &in, options, output));
}

attn_status attn_biased_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                  const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout,
                                  const attn_mask *mask, const attn_dot_product_options *options, int64_t count,
                                  const attn_attention_bias *const *biases, attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const attention_tensors in = {query, key, value, query_layout, key_layout, mask, count, biases, NULL, 0};
    return attn__leave(ctx, dot_product_attention(ctx, tape, &in, options, output));
}

static attn_status take_weights(attn_context *ctx, const attn__attention_settings *settings, const view *query, const view *key,
                                const attn__weights_part *part, attn_tensor *tensor)
{
    if (part->pair < 0 || part->pair >= settings->query_segments.count)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "segment: got %lld, expected one of the %lld", (long long)part->pair,
                          (long long)settings->query_segments.count);
    const attn_segment *q = &settings->query_segments.at[part->pair], *k = &settings->key_segments.at[part->pair];
    view weights;
    attn_status status = attn__weights_view(ctx, "weights", tensor, query->dtype, k->length, &weights);
    if (status == ATTN_OK && (part->row < 0 || part->row > q->length || weights.rows > q->length - part->row))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "row: got %lld and %lld rows of weights, expected some of the segment's %lld",
                            (long long)part->row, (long long)weights.rows, (long long)q->length);
    if (status == ATTN_OK && (part->head < 0 || part->head > query->heads || weights.heads > query->heads - part->head))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "head: got %lld and %lld heads of weights, expected some of the %lld",
                            (long long)part->head, (long long)weights.heads, (long long)query->heads);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "weights", &weights, "query", query);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "weights", &weights, "key", key);
    return status == ATTN_OK ? attn__attention_weights(ctx, query, key, settings, part, &weights) : status;
}

static attn_status attention_weights(attn_context *ctx, const attention_tensors *in, const attn_dot_product_options *options,
                                     const attn__weights_part *part, attn_tensor *weights)
{
    view q, k;
    attn_dot_product_options o;
    attn__bias_arguments biases;
    attn__attention_settings settings = {.scale = 0};
    attn_status status = attn__heads(ctx, "query", in->query, 0, &q);
    if (status == ATTN_OK) status = attn__heads(ctx, "key", in->key, q.dtype, &k);
    if (status == ATTN_OK) status = check_heads(ctx, &q, &k);
    if (status == ATTN_OK) status = attn__dot_product_read(ctx, options, q.width, &o);
    if (status == ATTN_OK) status = check_layouts(ctx, NULL, in->query_layout, in->key_layout, &q, &k, in->mask, &settings);
    const attn__bias_call call = {&q, &k, &q, settings.query_segments, settings.key_segments};
    if (status == ATTN_OK) status = attn__bias_read(ctx, NULL, in->biases_count, in->biases, &call, &biases, &settings);
    if (status != ATTN_OK) return status;
    settings.scale = o.scale;
    settings.soft_cap = o.soft_cap;
    return take_weights(ctx, &settings, &q, &k, part, weights);
}

attn_status attn_attention_weights(attn_context *ctx, const attn_tensor *query, const attn_tensor *key, const attn_layout *query_layout,
                                   const attn_layout *key_layout, const attn_mask *mask, const attn_dot_product_options *options,
                                   int64_t count, const attn_attention_bias *const *biases, int64_t segment, int64_t row, int64_t head,
                                   attn_tensor *weights)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const attention_tensors in = {query, key, NULL, query_layout, key_layout, mask, count, biases, NULL, 0};
    const attn__weights_part part = {segment, row, head};
    return attn__leave(ctx, attention_weights(ctx, &in, options, &part, weights));
}

attn_status attn_additive_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                    const attn_tensor *value, const attn_tensor *vector, const attn_layout *query_layout,
                                    const attn_layout *key_layout, const attn_mask *mask, const attn_dot_product_options *options,
                                    attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const attention_tensors in = {query, key, value, query_layout, key_layout, mask, 0, NULL, vector, 1};
    return attn__leave(ctx, dot_product_attention(ctx, tape, &in, options, output));
}

#include <attn/attention.h>
#include <math.h>
#include "../core/options.h"
#include "arguments.h"

typedef struct attention_saved {
    attn__attention_settings settings;
    void *log_sum_exp; /* [heads, query rows] */
} attention_saved;

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
                                       .dropout = settings->dropout};
}

/* 1 when the segments, in their order, tile rows 0 .. rows - 1 */
static int tiles(attn__segments segments, int64_t rows)
{
    int64_t next = 0;
    for (int64_t i = 0; i < segments.count; i++)
        if (segments.at[i].start == next) next += segments.at[i].length;
    return next == rows;
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
    if (!out->add && !tiles(segments, input->at.rows)) {
        out->add = 1;
        return attn__fill_view(ctx, 0, &out->at);
    }
    return ATTN_OK;
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
    attn__attention_arguments a = arguments_of(settings, &query->at, &key->at, &value->at, &record->output[0].at, saved->log_sum_exp);
    attn_status status = attn__kernels_for(ctx, query->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &a.d_output, NULL);
    if (status == ATTN_OK) status = destine(ctx, tape, query, 1, settings->query_segments, &dq);
    if (status == ATTN_OK) status = destine(ctx, tape, key, key->id != query->id, settings->key_segments, &dk);
    if (status == ATTN_OK) status = destine(ctx, tape, value, value->id != query->id && value->id != key->id, settings->key_segments, &dv);
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
    const attn__value *inputs[] = {query, key, value};
    attn__value *outputs[] = {output};
    const attn__kernels *k;
    void *log_sum_exp = NULL;
    attn__record *record = NULL;
    int keeps = attn__tape_keeps(tape, 3, inputs);
    attn_status status = attn__kernels_for(ctx, query->at.dtype, &k);
    if (status == ATTN_OK && keeps) {
        status = attn__tape_memory(ctx, tape, query->at.heads * query->at.rows * attn__dtype_bytes(query->at.dtype), &log_sum_exp);
        if (status == ATTN_OK) status = attn__tape_hold_mask(ctx, tape, settings->mask);
    }
    if (status != ATTN_OK) return status;
    attn__attention_arguments a = arguments_of(settings, &query->at, &key->at, &value->at, &output->at, log_sum_exp);
    status = k->attention(ctx, &a);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, attention_back, 3, inputs, 1, outputs, sizeof(attention_saved), &record);
    if (status == ATTN_OK && record != NULL)
        *(attention_saved *)record->saved = (attention_saved){.settings = *settings, .log_sum_exp = log_sum_exp};
    return status;
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

static attn_status read_options(attn_context *ctx, const attn_dot_product_options *options, int64_t size, attn_dot_product_options *o)
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

static attn_status check_shapes(attn_context *ctx, const view *query, const view *key, const view *value, const view *output)
{
    if (key->heads == 0 ? query->heads != 0 : query->heads % key->heads != 0)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "query: got %lld heads, expected a multiple of the %lld heads of key",
                          (long long)query->heads, (long long)key->heads);
    attn_status status = attn__expect_shape(ctx, "key", key, -1, -1, query->width);
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

static attn_status dot_product_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                         const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout,
                                         const attn_mask *mask, const attn_dot_product_options *options, attn_tensor *output)
{
    view q, k, v, y;
    attn__value vq, vk, vv, vy;
    attn_dot_product_options o;
    attn__attention_settings settings = {.scale = 0};
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__heads(ctx, "query", query, 0, &q);
    if (status == ATTN_OK) status = attn__heads(ctx, "key", key, q.dtype, &k);
    if (status == ATTN_OK) status = attn__heads(ctx, "value", value, q.dtype, &v);
    if (status == ATTN_OK) status = attn__heads(ctx, "output", output, q.dtype, &y);
    if (status == ATTN_OK) status = check_shapes(ctx, &q, &k, &v, &y);
    if (status == ATTN_OK) status = read_options(ctx, options, q.width, &o);
    if (status == ATTN_OK) status = check_layouts(ctx, tape, query_layout, key_layout, &q, &k, mask, &settings);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "query", query, &q, &vq);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "key", key, &k, &vk);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "value", value, &v, &vv);
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
    return attn__leave(ctx, dot_product_attention(ctx, tape, query, key, value, query_layout, key_layout, mask, options, output));
}

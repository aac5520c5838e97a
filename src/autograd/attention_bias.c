#include "attention_bias.h"
#include <inttypes.h>
#include "../core/options.h"

enum { MOST_BIASES = 3, MOST_REACH = 1 << 20 };

static const attn_attention_bias defaults = {.struct_size = sizeof(attn_attention_bias), .both_sides = 1, .reach = 128};

attn_status attn_attention_bias_init(attn_attention_bias *bias, uint64_t size)
{
    return attn__options_init(bias, size, &defaults, sizeof defaults);
}

static const attn__field fields[] = {ATTN__INT32(attn_attention_bias, kind, ATTN_BIAS_LINEAR, ATTN_BIAS_PAIR),
                                     ATTN__INT32(attn_attention_bias, both_sides, 0, 1),
                                     ATTN__INT64(attn_attention_bias, reach, 0, 0, MOST_REACH)};

static attn_status check_common(attn_context *ctx, const attn_attention_bias *b)
{
    attn_status status = ATTN__CHECK(ctx, "bias", b, fields);
    if (status != ATTN_OK) return status;
    if (b->kind != ATTN_BIAS_RELATIVE && b->kind != ATTN_BIAS_LINEAR && b->table == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "bias.table: got NULL, expected an attn_tensor");
    if (b->kind == ATTN_BIAS_RELATIVE && b->table == NULL && b->values == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "bias.table, bias.values: got NULL twice, expected an attn_tensor");
    if (b->kind != ATTN_BIAS_RELATIVE && b->values != NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "bias.values: got a tensor, expected NULL but with ATTN_BIAS_RELATIVE");
    return ATTN_OK;
}

/* a table as a value: dense rows, apart from the output */
static attn_status table(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, const attn__bias_call *call,
                         int64_t rows, int64_t width, attn__value *out)
{
    attn_status status = attn__argument_input(ctx, tape, argument, tensor, call->query->dtype, out);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, argument, &out->at, rows, 1, width);
    return status == ATTN_OK ? attn__expect_apart(ctx, "output", call->output, argument, &out->at) : status;
}

static attn_status twice(attn_context *ctx)
{
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                      "biases: got two of one family, expected one at most of distances, relative rows and pairs");
}

static attn_status read_distance(attn_context *ctx, attn_tape *tape, const attn_attention_bias *b, const attn__bias_call *call,
                                 attn__bias_arguments *out)
{
    attn__attention_bias *bias = &out->bias;
    if (bias->distance_kind != 0) return twice(ctx);
    bias->distance_kind = b->kind == ATTN_BIAS_LINEAR ? ATTN__DISTANCE_LINEAR : ATTN__DISTANCE_BUCKETS;
    if (b->table == NULL) return ATTN_OK;
    attn_status status =
        table(ctx, tape, "bias.table", b->table, call, b->kind == ATTN_BIAS_LINEAR ? 1 : -1, call->query->heads, &out->distance);
    if (status != ATTN_OK) return status;
    bias->both_sides = b->both_sides;
    bias->furthest = b->reach;
    bias->distance = out->distance.at;
    int64_t buckets = bias->distance.rows, half = b->both_sides ? buckets / 2 : buckets;
    if (b->kind == ATTN_BIAS_LINEAR) return ATTN_OK;
    if (buckets < 2 * (1 + b->both_sides) || (b->both_sides && buckets % 2 != 0) || buckets > MOST_REACH)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "bias.table: got %" PRId64 " buckets, expected %d or more%s", buckets,
                          2 * (1 + b->both_sides), b->both_sides ? ", and even" : "");
    if (b->reach <= half / 2)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "bias.reach: got %" PRId64 ", expected more than %" PRId64 " with %" PRId64 " buckets", b->reach, half / 2,
                          buckets);
    return ATTN_OK;
}

static attn_status read_relative(attn_context *ctx, attn_tape *tape, const attn_attention_bias *b, const attn__bias_call *call,
                                 attn__bias_arguments *out)
{
    attn__attention_bias *bias = &out->bias;
    attn_status status = ATTN_OK;
    if (bias->relative_keys.data != NULL || bias->relative_values.data != NULL) return twice(ctx);
    bias->reach = b->reach;
    if (b->table != NULL) {
        status = table(ctx, tape, "bias.table", b->table, call, 2 * b->reach + 1, call->query->width, &out->relative_keys);
        if (status == ATTN_OK) bias->relative_keys = out->relative_keys.at;
    }
    if (status == ATTN_OK && b->values != NULL) {
        status = table(ctx, tape, "bias.values", b->values, call, 2 * b->reach + 1, call->value->width, &out->relative_values);
        if (status == ATTN_OK) bias->relative_values = out->relative_values.at;
    }
    return status;
}

static attn_status check_pair(attn_context *ctx, const attn_tensor *tensor, const attn__bias_call *call)
{
    attn_status status = attn__expect(ctx, "bias.table", tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    if (tensor->rank != 4)
        return attn__fail(ctx, ATTN_ERROR_SHAPE,
                          "bias.table: got rank %" PRId32 ", expected 4 ([1 or segments, 1 or heads, queries, keys])", tensor->rank);
    const int64_t *e = tensor->shape;
    if ((e[0] != 1 && e[0] != call->queries.count) || (e[1] != 1 && e[1] != call->query->heads))
        return attn__fail(ctx, ATTN_ERROR_SHAPE,
                          "bias.table: got shape [%" PRId64 ", %" PRId64 ", ...], expected [1 or %" PRId64 ", 1 or %" PRId64 ", ...]", e[0],
                          e[1], call->queries.count, call->query->heads);
    for (int64_t s = 0; s < call->queries.count; s++)
        if (call->queries.at[s].length > e[2] || call->keys.at[s].length > e[3])
            return attn__fail(ctx, ATTN_ERROR_SHAPE,
                              "bias.table: got shape [.., %" PRId64 ", %" PRId64 "], expected at least [.., %" PRId64 ", %" PRId64
                              "] for segment %" PRId64,
                              e[2], e[3], call->queries.at[s].length, call->keys.at[s].length, s);
    return ATTN_OK;
}

static attn_status read_pair(attn_context *ctx, attn_tape *tape, const attn_attention_bias *b, const attn__bias_call *call,
                             attn__bias_arguments *out)
{
    attn__attention_bias *bias = &out->bias;
    if (bias->pair.data != NULL) return twice(ctx);
    attn_status status = check_pair(ctx, b->table, call);
    if (status == ATTN_OK) status = table(ctx, tape, "bias.table", b->table, call, -1, -1, &out->pair);
    if (status != ATTN_OK) return status;
    if (!attn__view_dense(&out->pair.at)) return attn__fail(ctx, ATTN_ERROR_SHAPE, "bias.table: got gaps between its rows, expected none");
    bias->pair = out->pair.at;
    for (int axis = 0; axis < 4; axis++) bias->pair_extent[axis] = b->table->shape[axis];
    bias->pair_stride[3] = 1;
    for (int axis = 2; axis >= 0; axis--) bias->pair_stride[axis] = bias->pair_stride[axis + 1] * bias->pair_extent[axis + 1];
    return ATTN_OK;
}

attn_status attn__bias_read(attn_context *ctx, attn_tape *tape, int64_t count, const attn_attention_bias *const *biases,
                            const attn__bias_call *call, attn__bias_arguments *out, attn__attention_settings *settings)
{
    *out = (attn__bias_arguments){.distance = {.id = -1}, .relative_keys = {.id = -1}, .relative_values = {.id = -1}, .pair = {.id = -1}};
    if (count < 0 || count > MOST_BIASES)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %" PRId64 ", expected 0 to %d", count, MOST_BIASES);
    if (count > 0 && biases == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "biases: got NULL, expected %" PRId64 " of them", count);
    for (int64_t i = 0; i < count; i++) {
        attn_attention_bias b;
        if (biases[i] == NULL)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "biases: got NULL at %" PRId64 ", expected an attn_attention_bias", i);
        attn_status status = attn__options_read(ctx, "bias", biases[i], &defaults, sizeof defaults, sizeof defaults, &b);
        if (status == ATTN_OK) status = check_common(ctx, &b);
        if (status == ATTN_OK)
            status = (b.kind == ATTN_BIAS_RELATIVE ? read_relative
                      : b.kind == ATTN_BIAS_PAIR   ? read_pair
                                                   : read_distance)(ctx, tape, &b, call, out);
        if (status != ATTN_OK) return status;
    }
    if (count == 0) return ATTN_OK;
    settings->bias = &out->bias;
    settings->distance = out->bias.distance.data != NULL ? &out->distance : NULL;
    settings->relative_keys = out->bias.relative_keys.data != NULL ? &out->relative_keys : NULL;
    settings->relative_values = out->bias.relative_values.data != NULL ? &out->relative_values : NULL;
    settings->pair = out->bias.pair.data != NULL ? &out->pair : NULL;
    return ATTN_OK;
}

#include "linear_attention.h"
#include <inttypes.h>

typedef struct linear_saved {
    attn__linear_settings settings;
    void *normaliser; /* [heads, query rows] */
} linear_saved;

static attn__linear_arguments arguments_of(const attn__linear_settings *s, const view *query, const view *key, const view *value,
                                           const view *output, void *normaliser)
{
    return (attn__linear_arguments){.query = *query,
                                    .key = *key,
                                    .value = *value,
                                    .output = *output,
                                    .key_scale = s->key_scale,
                                    .normaliser = normaliser,
                                    .state = s->state,
                                    .causal = s->causal,
                                    .query_segments = s->query_segments,
                                    .key_segments = s->key_segments};
}

attn_status attn__segments_wanted(attn_context *ctx, attn_tape *tape, const attn__value *input, attn__segments segments, view *out,
                                  int32_t *add)
{
    int adds = 0;
    attn_status status = attn__tape_wanted(ctx, tape, input, out, &adds);
    *add = adds;
    if (status != ATTN_OK || out->data == NULL || adds || attn__segments_tile(segments, input->at.rows)) return status;
    *add = 1;
    return attn__fill_view(ctx, 0, out);
}

static attn_status linear_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const linear_saved *saved = record->saved;
    const attn__value *in = record->input;
    const attn__segments *segments[] = {&saved->settings.query_segments, &saved->settings.key_segments, &saved->settings.key_segments};
    const attn__kernels *k;
    attn__linear_arguments a = arguments_of(&saved->settings, &in[0].at, &in[1].at, &in[2].at, &record->output[0].at, saved->normaliser);
    view *to[] = {&a.d_query, &a.d_key, &a.d_value};
    int32_t *add[] = {&a.add_query, &a.add_key, &a.add_value};
    /* one tensor in two places: its gradients are written one after the other */
    int apart = in[0].id != in[1].id && in[0].id != in[2].id && in[1].id != in[2].id;
    attn_status status = attn__kernels_for(ctx, in[0].at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &a.d_output, NULL);
    for (int i = 0; i < 3 && status == ATTN_OK; i++) {
        status = attn__segments_wanted(ctx, tape, &in[i], *segments[i], to[i], add[i]);
        if (status != ATTN_OK || apart || to[i]->data == NULL) continue;
        status = k->linear_attention_back(ctx, &a);
        to[i]->data = NULL;
    }
    return status == ATTN_OK && apart ? k->linear_attention_back(ctx, &a) : status;
}

attn_status attn__linear_attend(attn_context *ctx, attn_tape *tape, const attn__value *query, const attn__value *key,
                                const attn__value *value, const attn__linear_settings *settings, attn__value *output)
{
    const attn__value *inputs[] = {query, key, value};
    attn__value *outputs[] = {output};
    const attn__kernels *k;
    void *normaliser = NULL;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, query->at.dtype, &k);
    if (status == ATTN_OK && attn__tape_keeps(tape, 3, inputs))
        status = attn__tape_memory(ctx, tape, query->at.heads * query->at.rows * attn__dtype_bytes(query->at.dtype), &normaliser);
    if (status != ATTN_OK) return status;
    const attn__linear_arguments a = arguments_of(settings, &query->at, &key->at, &value->at, &output->at, normaliser);
    status = k->linear_attention(ctx, &a);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, linear_back, 3, inputs, 1, outputs, sizeof(linear_saved), &record);
    if (status == ATTN_OK && record != NULL) *(linear_saved *)record->saved = (linear_saved){*settings, normaliser};
    return status;
}

attn_status attn__linear_shapes(attn_context *ctx, const view *query, const view *key, const view *value, const view *output)
{
    if (key->heads == 0 ? query->heads != 0 : query->heads % key->heads != 0 || query->heads == 0)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "query: got %" PRId64 " heads, expected a multiple of the %" PRId64 " heads of key",
                          query->heads, key->heads);
    attn_status status = attn__expect_shape(ctx, "key", key, -1, -1, query->width);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "value", value, key->rows, key->heads, -1);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "output", output, query->rows, query->heads, value->width);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", output, "query", query);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", output, "key", key);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", output, "value", value);
    return status;
}

attn_status attn__layout_disjoint(attn_context *ctx, attn__arena *arena, const char *argument, const attn_layout *layout, int64_t rows,
                                  attn__segments *out)
{
    int64_t bytes;
    attn_status status = attn__layout_keys(ctx, argument, layout, rows, out);
    if (status != ATTN_OK) return status;
    if (layout != NULL && !layout->tiles_rows) { /* identical or disjoint: twins are neighbours in their order */
        if (attn__multiply(out->count, (int64_t)sizeof(int64_t), &bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "segments");
        int64_t *order = attn__scratch(ctx, bytes);
        if (order == NULL) return attn__arena_status(ctx->scratch);
        attn__segments_order(*out, order);
        for (int64_t i = 1; i < out->count; i++) {
            const attn_segment *a = &out->at[order[i - 1]], *b = &out->at[order[i]];
            if (a->length > 0 && b->length > 0 && a->start == b->start)
                return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got row %" PRId64 " in two segments, expected one at most",
                                  argument, a->start);
        }
    }
    return arena != NULL ? attn__segments_copy(ctx, arena, *out, out) : ATTN_OK;
}

/* f(x) in a temporary, divided by the exponential of log_scale (NULL: not) */
static attn_status mapped(attn_context *ctx, attn_tape *tape, const attn__features *features, int64_t count, void *log_scale,
                          attn__value *x)
{
    attn__value y;
    int64_t columns;
    if (features->kind == ATTN_FEATURES_IDENTITY) return ATTN_OK;
    if (attn__multiply(x->at.heads, count, &columns)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "features");
    attn_status status = attn__tape_temporary(ctx, tape, x->at.rows, columns, x->at.dtype, &y);
    if (status != ATTN_OK) return status;
    y.at = attn__view_heads(y.at, x->at.heads);
    status = attn__feature_map(ctx, tape, x, features, log_scale, &y);
    *x = y;
    return status;
}

attn_status attn__linear_features(attn_context *ctx, attn_tape *tape, const attn__features *features, int64_t count, attn__value *query,
                                  attn__value *key, attn__linear_settings *settings)
{
    void *query_scale = NULL, *key_scale = NULL;
    int64_t each = attn__dtype_bytes(query->at.dtype);
    attn__mark mark = attn__arena_mark(ctx->scratch);
    if (features->directions.data != NULL) {
        query_scale = attn__scratch(ctx, query->at.rows * query->at.heads * each);
        if (query_scale == NULL) return attn__arena_status(ctx->scratch);
    }
    attn_status status = mapped(ctx, tape, features, count, query_scale, query);
    if (tape != NULL) attn__arena_rewind(ctx->scratch, mark); /* without a tape the features lie behind it */
    if (status == ATTN_OK && query_scale != NULL) {
        status = attn__tape_memory(ctx, tape, key->at.rows * key->at.heads * each, &key_scale);
        settings->key_scale = key_scale;
    }
    return status == ATTN_OK ? mapped(ctx, tape, features, count, key_scale, key) : status;
}

static attn_status read_key_scale(attn_context *ctx, attn_tape *tape, const attn_linear_attention_options *o, const view *key,
                                  const view *output, attn__linear_settings *settings)
{
    attn__value scale;
    if (o->key_scale == NULL) return ATTN_OK;
    attn_status status = attn__argument_input(ctx, tape, "options.key_scale", o->key_scale, key->dtype, &scale);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "options.key_scale", &scale.at, key->rows, 1, key->heads);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", output, "options.key_scale", &scale.at);
    if (status == ATTN_OK && !attn__view_dense(&scale.at))
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "options.key_scale: got gaps, expected dense rows");
    if (status == ATTN_OK) settings->key_scale = scale.at.data;
    return status;
}

typedef struct linear_tensors {
    const attn_tensor *query, *key, *value;
    const attn_layout *query_layout, *key_layout;
    attn_tensor *state; /* with stepping */
    int stepping;
} linear_tensors;

static attn_status read_state(attn_context *ctx, attn_tensor *state, const linear_tensors *in, const view *key, const view *value,
                              int64_t features, const view *output, attn__linear_settings *settings)
{
    const int64_t expected[] = {settings->key_segments.count, key->heads, features + 1, value->width + 1};
    const view *apart[] = {key, value, output};
    const char *names[] = {"key", "value", "output"};
    view at, query;
    attn_status status = attn__rows(ctx, "state", state, key->dtype, &at);
    if (status != ATTN_OK) return status;
    if (value->width == 0) return attn__fail(ctx, ATTN_ERROR_SHAPE, "value: got a size of 0, expected 1 or more");
    if (state->rank != 4)
        return attn__fail(ctx, ATTN_ERROR_SHAPE,
                          "state: got rank %" PRId32 ", expected 4 ([segments, key_heads, features + 1, value_size + 1])", state->rank);
    for (int32_t i = 0; i < 4; i++) {
        if (state->shape[i] == expected[i]) continue;
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "state: got %" PRId64 " on axis %" PRId32 ", expected %" PRId64, state->shape[i], i,
                          expected[i]);
    }
    if (!attn__view_dense(&at)) return attn__fail(ctx, ATTN_ERROR_SHAPE, "state: got gaps, expected a dense tensor");
    status = attn__heads(ctx, "query", in->query, key->dtype, &query);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "state", &at, "query", &query);
    for (int i = 0; i < 3 && status == ATTN_OK; i++) status = attn__expect_apart(ctx, "state", &at, names[i], apart[i]);
    settings->state = at.data;
    return status;
}

static attn_status linear_attention(attn_context *ctx, attn_tape *tape, const linear_tensors *in,
                                    const attn_linear_attention_options *options, attn_tensor *output)
{
    view q, k, v, y;
    attn__value vq, vk, vv, vy;
    attn_linear_attention_options o;
    attn__linear_settings settings = {.causal = 0};
    attn__features features;
    attn__arena *records = tape != NULL ? attn__tape_records(ctx, tape) : NULL;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__heads(ctx, "query", in->query, 0, &q);
    if (status == ATTN_OK) status = attn__heads(ctx, "key", in->key, q.dtype, &k);
    if (status == ATTN_OK) status = attn__heads(ctx, "value", in->value, q.dtype, &v);
    if (status == ATTN_OK) status = attn__heads(ctx, "output", output, q.dtype, &y);
    if (status == ATTN_OK) status = attn__linear_shapes(ctx, &q, &k, &v, &y);
    if (status == ATTN_OK && in->stepping) status = attn__expect_shape(ctx, "key", &k, q.rows, -1, -1);
    if (status == ATTN_OK) status = attn__linear_read(ctx, options, q.width, &o);
    const char *names[] = {in->stepping ? "layout" : "query_layout", in->stepping ? "layout" : "key_layout"};
    if (status == ATTN_OK) status = attn__layout_disjoint(ctx, records, names[0], in->query_layout, q.rows, &settings.query_segments);
    if (status == ATTN_OK) status = attn__layout_disjoint(ctx, records, names[1], in->key_layout, k.rows, &settings.key_segments);
    if (status == ATTN_OK && settings.query_segments.count != settings.key_segments.count)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "key_layout: got %" PRId64 " segments, expected the %" PRId64 " of query_layout",
                            settings.key_segments.count, settings.query_segments.count);
    if (status == ATTN_OK && in->stepping) status = read_state(ctx, in->state, in, &k, &v, o.features, &y, &settings);
    if (status == ATTN_OK) status = read_key_scale(ctx, tape, &o, &k, &y, &settings);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "query", in->query, &q, &vq);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "key", in->key, &k, &vk);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "value", in->value, &v, &vv);
    if (status == ATTN_OK) status = attn__tape_output(ctx, tape, "output", output, &y, &vy);
    settings.causal = in->stepping || o.causal;
    if (status == ATTN_OK) status = attn__features_of(ctx, tape, &o, q.width, q.dtype, &features);
    if (status == ATTN_OK) status = attn__linear_features(ctx, tape, &features, o.features, &vq, &vk, &settings);
    return status == ATTN_OK ? attn__linear_attend(ctx, tape, &vq, &vk, &vv, &settings, &vy) : status;
}

attn_status attn_linear_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                  const attn_tensor *value, const attn_layout *query_layout, const attn_layout *key_layout,
                                  const attn_linear_attention_options *options, attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const linear_tensors in = {query, key, value, query_layout, key_layout, NULL, 0};
    return attn__leave(ctx, linear_attention(ctx, tape, &in, options, output));
}

attn_status attn_linear_attention_step(attn_context *ctx, const attn_tensor *query, const attn_tensor *key, const attn_tensor *value,
                                       const attn_layout *layout, const attn_linear_attention_options *options, attn_tensor *state,
                                       attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const linear_tensors in = {query, key, value, layout, layout, state, 1};
    return attn__leave(ctx, linear_attention(ctx, NULL, &in, options, output));
}

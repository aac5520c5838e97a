#include <inttypes.h>
#include "linear_attention.h"

static attn_status project_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__value *x = &record->input[0], *e = &record->input[1];
    const attn__segments *segments = record->saved;
    const attn__kernels *k;
    view dy, dx, de;
    int32_t add = 0;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status == ATTN_OK) status = attn__segments_wanted(ctx, tape, x, *segments, &dx, &add);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, e, &de);
    if (status != ATTN_OK) return status;
    return k->sequence_project_back(ctx, &x->at, &e->at, *segments, &dy, add, dx.data != NULL ? &dx : NULL, de.data != NULL ? &de : NULL);
}

attn_status attn__project_sequence(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *projection,
                                   attn__segments segments, attn__value *y)
{
    const attn__value *inputs[] = {x, projection};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = k->sequence_project(ctx, &x->at, &projection->at, segments, &y->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, project_back, 2, inputs, 1, outputs, sizeof segments, &record);
    if (status == ATTN_OK && record != NULL) *(attn__segments *)record->saved = segments;
    return status;
}

static attn_status check_projection(attn_context *ctx, const char *name, const view *e, const char *layout, attn__segments segments)
{
    if (e->rows < 1) return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got no rows, expected 1 or more", name);
    for (int64_t s = 0; s < segments.count; s++) {
        if (segments.at[s].length <= e->width) continue;
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got a segment of %" PRId64 " rows, expected at most the %" PRId64 " columns of %s",
                          layout, segments.at[s].length, e->width, name);
    }
    return ATTN_OK;
}

/* rows of the projected: k for each segment */
static attn_status projected_rows(attn_context *ctx, const view *e, attn__segments segments, int64_t *rows)
{
    return attn__multiply(segments.count, e->rows, rows) ? attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "projected rows") : ATTN_OK;
}

static attn_status linformer_project(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *projection,
                                     const attn_layout *layout, attn_tensor *y)
{
    view from, to;
    attn__value vx, ve, vy;
    attn__segments segments;
    int64_t rows = 0;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__heads(ctx, "x", x, 0, &from);
    if (status == ATTN_OK) status = attn__heads(ctx, "y", y, from.dtype, &to);
    if (status == ATTN_OK)
        status = attn__layout_disjoint(ctx, tape != NULL ? attn__tape_records(ctx, tape) : NULL, "layout", layout, from.rows, &segments);
    if (status == ATTN_OK) status = attn__argument_matrix(ctx, tape, "projection", projection, from.dtype, &ve);
    if (status == ATTN_OK) status = check_projection(ctx, "projection", &ve.at, "layout", segments);
    if (status == ATTN_OK) status = projected_rows(ctx, &ve.at, segments, &rows);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "y", &to, rows, from.heads, from.width);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "y", &to, "x", &from);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "y", &to, "projection", &ve.at);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "x", x, &from, &vx);
    if (status == ATTN_OK) status = attn__tape_output(ctx, tape, "y", y, &to, &vy);
    return status == ATTN_OK ? attn__project_sequence(ctx, tape, &vx, &ve, segments, &vy) : status;
}

attn_status attn_linformer_project(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *projection,
                                   const attn_layout *layout, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, linformer_project(ctx, tape, x, projection, layout, y));
}

typedef struct linformer_tensors {
    const attn_tensor *query, *key, *value, *key_projection, *value_projection;
    const attn_layout *query_layout, *key_layout;
} linformer_tensors;

typedef struct linformer_values {
    attn__value query, key, value, key_projection, value_projection, output;
    attn__segments key_segments;
} linformer_values;

static attn_status read_tensors(attn_context *ctx, attn_tape *tape, const linformer_tensors *in, attn_tensor *output, linformer_values *out,
                                attn__attention_settings *settings)
{
    view q, k, v, y;
    attn__arena *records = tape != NULL ? attn__tape_records(ctx, tape) : NULL;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__heads(ctx, "query", in->query, 0, &q);
    if (status == ATTN_OK) status = attn__heads(ctx, "key", in->key, q.dtype, &k);
    if (status == ATTN_OK) status = attn__heads(ctx, "value", in->value, q.dtype, &v);
    if (status == ATTN_OK) status = attn__heads(ctx, "output", output, q.dtype, &y);
    if (status == ATTN_OK) status = attn__linear_shapes(ctx, &q, &k, &v, &y);
    if (status == ATTN_OK)
        status = attn__layout_disjoint(ctx, records, "query_layout", in->query_layout, q.rows, &settings->query_segments);
    if (status == ATTN_OK) status = attn__layout_disjoint(ctx, records, "key_layout", in->key_layout, k.rows, &out->key_segments);
    if (status == ATTN_OK && settings->query_segments.count != out->key_segments.count)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "key_layout: got %" PRId64 " segments, expected the %" PRId64 " of query_layout",
                            out->key_segments.count, settings->query_segments.count);
    if (status == ATTN_OK) status = attn__argument_matrix(ctx, tape, "key_projection", in->key_projection, q.dtype, &out->key_projection);
    out->value_projection = out->key_projection;
    if (status == ATTN_OK && in->value_projection != NULL) {
        status = attn__argument_matrix(ctx, tape, "value_projection", in->value_projection, q.dtype, &out->value_projection);
        if (status == ATTN_OK)
            status = attn__expect_shape(ctx, "value_projection", &out->value_projection.at, out->key_projection.at.rows, 1,
                                        out->key_projection.at.width);
    }
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", &y, "key_projection", &out->key_projection.at);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", &y, "value_projection", &out->value_projection.at);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "query", in->query, &q, &out->query);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "key", in->key, &k, &out->key);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "value", in->value, &v, &out->value);
    return status == ATTN_OK ? attn__tape_output(ctx, tape, "output", output, &y, &out->output) : status;
}

/* x becomes its projection of so many rows, in a temporary */
static attn_status project(attn_context *ctx, attn_tape *tape, const attn__value *projection, attn__segments segments, int64_t rows,
                           attn__value *x)
{
    attn__value y;
    attn_status status = attn__tape_temporary(ctx, tape, rows, x->at.heads * x->at.width, x->at.dtype, &y);
    if (status != ATTN_OK) return status;
    y.at = attn__view_heads(y.at, x->at.heads);
    status = attn__project_sequence(ctx, tape, x, projection, segments, &y);
    *x = y;
    return status;
}

/* segment s of the projected keys: rows s k to s k + k - 1 */
static attn_status projected_segments(attn_context *ctx, attn_tape *tape, const attn__linformer_inputs *in, attn__lists *lists,
                                      attn__segments *out)
{
    int64_t rows = in->key_projection->at.rows, bytes;
    if (attn__multiply(in->key_segments.count, (int64_t)sizeof(attn_segment), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "segments");
    attn_status status = attn__lists_open(ctx, tape, bytes, "segments", lists);
    attn_segment *at = lists->at;
    if (status != ATTN_OK) return status;
    for (int64_t s = 0; s < in->key_segments.count; s++) at[s] = (attn_segment){s * rows, rows, 0, in->key_segments.at[s].sequence_id};
    *out = (attn__segments){in->key_segments.count, in->key_segments.count * rows, at};
    return ATTN_OK;
}

attn_status attn__linformer(attn_context *ctx, attn_tape *tape, const attn__linformer_inputs *in, attn__attention_settings *settings,
                            attn__value *output)
{
    attn__value key = *in->key, value = *in->value;
    attn__lists lists = {NULL, NULL, 0};
    attn_status status = check_projection(ctx, "key_projection", &in->key_projection->at, "key_layout", in->key_segments);
    int64_t rows = 0; /* of both: their projections have one shape */
    if (status == ATTN_OK) status = projected_rows(ctx, &in->key_projection->at, in->key_segments, &rows);
    if (status == ATTN_OK) status = projected_segments(ctx, tape, in, &lists, &settings->key_segments);
    if (status == ATTN_OK) status = project(ctx, tape, in->key_projection, in->key_segments, rows, &key);
    if (status == ATTN_OK) status = project(ctx, tape, in->value_projection, in->key_segments, rows, &value);
    if (status == ATTN_OK) status = attn__attend(ctx, tape, in->query, &key, &value, settings, output);
    attn__lists_close(ctx, &lists);
    return status;
}

static attn_status linformer_attention(attn_context *ctx, attn_tape *tape, const linformer_tensors *in, const attn_mask *mask,
                                       const attn_dot_product_options *options, attn_tensor *output)
{
    linformer_values v;
    attn_dot_product_options o;
    attn__attention_settings settings = {.scale = 0};
    attn_status status = mask != NULL ? attn__expect(ctx, "mask", mask, ATTN__MAGIC_MASK, "attn_mask") : ATTN_OK;
    if (status == ATTN_OK && mask != NULL)
        status = attn__fail(ctx, ATTN_ERROR_UNSUPPORTED,
                            "mask: got one, expected NULL: each projected key of the Linformer mixes all rows of its segment, so no mask "
                            "can hide some of them, causal neither");
    if (status == ATTN_OK) status = read_tensors(ctx, tape, in, output, &v, &settings);
    if (status == ATTN_OK) status = attn__dot_product_read(ctx, options, v.query.at.width, &o);
    if (status != ATTN_OK) return status;
    settings.scale = o.scale;
    settings.soft_cap = o.soft_cap;
    settings.dropout = attn__tape_dropout(tape, o.dropout, o.site, (attn__places){NULL, NULL});
    const attn__linformer_inputs values = {&v.query, &v.key, &v.value, &v.key_projection, &v.value_projection, v.key_segments};
    return attn__linformer(ctx, tape, &values, &settings, &v.output);
}

attn_status attn_linformer_attention(attn_context *ctx, attn_tape *tape, const attn_tensor *query, const attn_tensor *key,
                                     const attn_tensor *value, const attn_tensor *key_projection, const attn_tensor *value_projection,
                                     const attn_layout *query_layout, const attn_layout *key_layout, const attn_mask *mask,
                                     const attn_dot_product_options *options, attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const linformer_tensors in = {query, key, value, key_projection, value_projection, query_layout, key_layout};
    return attn__leave(ctx, linformer_attention(ctx, tape, &in, mask, options, output));
}

/* Triangle attention (Jumper et al. 2021, algorithms 13 and 14): self-attention along the rows of a pair matrix, where the score of two
   entries (i, j) and (i, k) gains what the third edge (j, k) of the triangle says. */
#include "../tensor/layout.h"
#include "attention.h"

typedef struct triangle {
    const attn__call *call;
    const attn__attention_module *module;
    int64_t n, width;
    const attn_mask *mask;
} triangle;

/* row i of the matrix is sequence i */
static attn_status lay_out(const triangle *t, attn__segments *segments, attn__places *places)
{
    attn_context *ctx = t->call->ctx;
    attn__arena *arena = attn__tape_records(ctx, t->call->tape);
    attn_segment *at = attn__arena_take(arena, t->n * (int64_t)sizeof *at);
    if (at == NULL) return attn__fail_memory(ctx, attn__arena_status(arena), "rows of a pair matrix");
    for (int64_t i = 0; i < t->n; i++) at[i] = (attn_segment){i * t->n, t->n, 0, i};
    *segments = (attn__segments){t->n, t->n * t->n, at};
    return attn__places_expand(ctx, arena, *segments, segments->rows, places);
}

/* b: [heads, n n], b[h, j n + k] = weight[h] . x[j, k] */
static attn_status third_edges(const triangle *t, const attn__value *x, attn__value *b)
{
    const attn__call *call = t->call;
    int64_t heads = t->module->options.heads, rows = t->n * t->n;
    attn__value w, of_rows, from, to;
    attn_status status = attn__parameter_value(call, t->module->pair_weight, 1, &w);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, rows, heads, x->at.dtype, &of_rows);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, heads, rows, x->at.dtype, b);
    if (status == ATTN_OK) status = attn__linear(call->ctx, call->tape, x, &w, NULL, NULL, NULL, NULL, &of_rows);
    if (status != ATTN_OK) return status;
    from = of_rows;
    from.at = attn__view_heads(of_rows.at, heads);
    to = *b;
    to.at = attn__view_heads(b->at, rows);
    status = attn__transpose(call->ctx, call->tape, &from, &to);
    b->id = to.id;
    return status;
}

/* x, y: [n n, width] */
static attn_status along_rows(const triangle *t, const attn__value *x, attn__value *y)
{
    attn__attention_inputs in = {.query = x, .key = x, .value = x, .mask = t->mask, .pair_length = t->n};
    attn__value pair;
    attn_status status = lay_out(t, &in.query_segments, &in.query_places);
    in.key_segments = in.query_segments;
    in.key_places = in.query_places;
    if (status == ATTN_OK)
        status = attn__mask_check(t->call->ctx, "mask", t->mask, t->module->options.heads, in.query_segments, in.key_segments);
    if (status == ATTN_OK) status = third_edges(t, x, &pair);
    in.pair = &pair;
    return status == ATTN_OK ? attn__attention_run(t->call, t->module, &in, NULL, y) : status;
}

/* [n n, width] as [n, n, width]: the same dense memory */
static attn__value as_matrix(const attn__value *rows, int64_t n)
{
    attn__value matrix = *rows;
    const view *v = &rows->at;
    matrix.at = (view){v->data, n, n, v->width, n * v->width, v->width, v->dtype, 0};
    return matrix;
}

/* around the ending node: the same along the columns */
static attn_status along_columns(const triangle *t, const attn__value *x, attn__value *y)
{
    const attn__call *call = t->call;
    attn__value rows, out, from = as_matrix(x, t->n), to;
    attn_status status = attn__tape_temporary(call->ctx, call->tape, t->n * t->n, t->width, x->at.dtype, &rows);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, t->n * t->n, t->width, x->at.dtype, &out);
    if (status != ATTN_OK) return status;
    to = as_matrix(&rows, t->n);
    status = attn__transpose(call->ctx, call->tape, &from, &to);
    rows.id = to.id;
    if (status == ATTN_OK) status = along_rows(t, &rows, &out);
    if (status != ATTN_OK) return status;
    from = as_matrix(&out, t->n);
    to = as_matrix(y, t->n);
    status = attn__transpose(call->ctx, call->tape, &from, &to);
    y->id = to.id;
    return status;
}

static attn_status check_layer(attn_context *ctx, const attn_attention_options *o)
{
    if (!o->pair_bias) return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "layer: got one without pair_bias, expected one that was made with it");
    if (o->key_width != o->query_width || o->value_width != o->query_width || o->output_width != o->query_width)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE,
                          "layer: got one of several widths, expected one that takes and gives rows of one width");
    return ATTN_OK;
}

static attn_status run(const attn__call *call, const attn_attention *layer, const attn_tensor *pair, int32_t axis, const attn_mask *mask,
                       attn_tensor *output)
{
    attn_context *ctx = call->ctx;
    const attn_attention_options *o = &layer->module.options;
    view in, out;
    attn__value x, y;
    attn_status status = check_layer(ctx, o);
    if (status == ATTN_OK) status = attn__heads(ctx, "pair", pair, o->dtype, &in);
    if (status == ATTN_OK) status = attn__heads(ctx, "output", output, o->dtype, &out);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "pair", &in, -1, in.rows, o->query_width);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "output", &out, in.rows, in.rows, o->output_width);
    if (status == ATTN_OK && !attn__view_dense(&in))
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "pair: got gaps between its rows, expected none");
    if (status == ATTN_OK && !attn__view_dense(&out))
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "output: got gaps between its rows, expected none");
    if (status == ATTN_OK && axis != 0 && axis != 1)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "axis: got %d, expected 0 (rows) or 1 (columns)", (int)axis);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "output", &out, "pair", &in);
    if (status == ATTN_OK) status = attn__output_apart(call, "output", &out);
    if (status == ATTN_OK && mask != NULL) status = attn__expect(ctx, "mask", mask, ATTN__MAGIC_MASK, "attn_mask");
    const int64_t n = status == ATTN_OK ? in.rows : 0;
    in = (view){in.data, n * n, 1, o->query_width, o->query_width, 0, o->dtype, 0};
    out = (view){out.data, n * n, 1, o->query_width, o->query_width, 0, o->dtype, 0};
    if (status == ATTN_OK) status = attn__tape_input(ctx, call->tape, "pair", pair, &in, &x);
    if (status == ATTN_OK) status = attn__tape_output(ctx, call->tape, "output", output, &out, &y);
    if (status != ATTN_OK) return status;
    const triangle t = {call, &layer->module, n, o->query_width, mask};
    return axis == 0 ? along_rows(&t, &x, &y) : along_columns(&t, &x, &y);
}

attn_status attn_attention_triangle(attn_context *ctx, const attn_attention *layer, attn_tape *tape, const attn_tensor *pair, int32_t axis,
                                    const attn_mask *mask, attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "layer", layer, ATTN__MAGIC_ATTENTION, "attn_attention");
    if (status == ATTN_OK && tape != NULL) status = attn__expect(ctx, "tape", tape, ATTN__MAGIC_TAPE, "attn_tape");
    if (status == ATTN_OK) {
        const attn__call call = {ctx, tape, layer->parameters};
        status = run(&call, layer, pair, axis, mask, output);
    }
    return attn__leave(ctx, status);
}

#include <attn/cost.h>
#include <stdio.h>
#include <string.h>
#include "../tensor/layout.h"
#include "dry.h"
#include "report.h"

enum { BLOCK = 64 }; /* what blocks of a mask are listed by in reports */

/* adds a * b * c; too large stays at the largest number */
static void grow(int64_t *total, int64_t a, int64_t b, int64_t c)
{
    int64_t part = 0;
    if (attn__multiply(a, b, &part) || attn__multiply(part, c, &part) || attn__sum(*total, part, total)) *total = INT64_MAX;
}

/* multiply-adds of the monograph: projections (3.15), full attention m n (d_k + d_v) per head (2.39), feed-forward (5.10) */
static int64_t pairs(attn__segments query, attn__segments key)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < query.count; i++) grow(&sum, query.at[i].length, key.at[i].length, 1);
    return sum;
}

static void attention_formula(int64_t *sum, const attn_attention_options *o, int64_t rows, int64_t key_rows, int64_t pair_count)
{
    grow(sum, pair_count, o->heads, o->head_size + o->value_head_size);
    if (o->project_query) grow(sum, rows, o->query_width, o->heads * o->head_size);
    if (o->project_key) grow(sum, key_rows, o->key_width, o->key_heads * o->head_size);
    if (o->project_value) grow(sum, key_rows, o->value_width, o->key_heads * o->value_head_size);
    if (o->project_output) grow(sum, rows, o->heads * o->value_head_size, o->output_width);
}

static void stack_formula(int64_t *sum, const attn__stack *stack, int64_t rows, int64_t memory_rows, int64_t own_pairs,
                          int64_t memory_pairs)
{
    for (int64_t i = 0; i < stack->side.layers; i++) {
        const attn__layer *l = &stack->layers[i];
        attention_formula(sum, &l->self.options, rows, rows, own_pairs);
        if (l->has_cross) attention_formula(sum, &l->cross.options, rows, memory_rows, memory_pairs);
        grow(sum, rows, l->feed_forward.options.width, l->feed_forward.options.hidden * (l->feed_forward.options.gated ? 3 : 2));
    }
}

static int64_t formula(const attn__transformer_plan *plan, const attn__batch_views *b)
{
    int64_t sum = 0;
    const attn__segments s = b->source_stream.segments, t = b->target_stream.segments;
    if (plan->has_encoder) stack_formula(&sum, &plan->encoder, b->source.rows, 0, pairs(s, s), 0);
    if (plan->has_decoder)
        stack_formula(&sum, &plan->decoder, b->target.rows, b->source.rows, pairs(t, t), plan->has_encoder ? pairs(t, s) : 0);
    if (plan->has_output) grow(&sum, b->rows, plan->output.in, plan->output.out);
    return sum;
}

static int64_t twice(int64_t n)
{
    return n > INT64_MAX / 2 ? INT64_MAX : 2 * n;
}

/* tokens that are not there, in the segments of a layout */
static attn_status dry_side(const attn__call *call, const attn_layout *layout, view *tokens, attn__stream *stream)
{
    attn__value value;
    attn_status status = attn__tape_temporary(call->ctx, NULL, layout->rows, 1, ATTN_INT32, &value);
    *tokens = value.at;
    return status == ATTN_OK ? attn__stream_open(call, "layout", layout, layout->rows, stream) : status;
}

/* attn__enter of a dry context takes no part: its scratch is rewound by hand */
static attn_status dry_forward(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *views, attn__value *out)
{
    attn_cross_entropy_options o;
    attn__loss_sums sums;
    attn_cross_entropy_options_init(&o, sizeof o);
    attn_status status = attn__tape_temporary(call->ctx, call->tape, 1, 1, plan->options.dtype, out);
    if (status != ATTN_OK || (call->tape != NULL && plan->has_output))
        return status == ATTN_OK ? attn__transformer_loss_run(call, plan, views, &o, out, &sums) : status;
    attn__value hidden, logits;
    int64_t width = plan->has_output ? plan->output.in : attn__transformer_output_width(plan);
    status = attn__tape_temporary(call->ctx, call->tape, views->rows, width, plan->options.dtype, &hidden);
    if (status == ATTN_OK) status = attn__transformer_hidden(call, plan, views, &hidden);
    *out = hidden;
    if (status != ATTN_OK || !plan->has_output) return status;
    status = attn__tape_temporary(call->ctx, call->tape, views->rows, plan->output.out, plan->options.dtype, &logits);
    return status == ATTN_OK ? attn__transformer_logits(call, plan, &hidden, &logits) : status;
}

/* what one kernel at a time takes beside its arguments: partial sums of a norm's gain, a table of positions, the order of tokens, sums of
   attention's rows; and the streams of a batch */
static int64_t kernel_scratch(const attn_transformer_options *o, int64_t rows)
{
    int64_t wide = o->width > o->decoder_width ? o->width : o->decoder_width,
            heads = o->heads > o->decoder_heads ? o->heads : o->decoder_heads;
    int64_t vocabulary = o->source_vocabulary > o->target_vocabulary ? o->source_vocabulary : o->target_vocabulary, sum = 0;
    grow(&sum, rows, wide + heads + 24, 4);
    grow(&sum, vocabulary + 2, 8, 1);
    return sum;
}

static attn_status dry_run(attn__dry *dry, int training, const attn_layout *source, const attn_layout *target, attn_cost_report *r,
                           attn__need *need)
{
    const attn__transformer_plan *plan = attn__transformer_plan_of(dry->model);
    attn_parameters *set = dry->model->parameters;
    const attn__call call = {dry->ctx, training ? dry->tape : NULL, set};
    attn_tape_options tape_options;
    attn__batch_views views;
    attn__value out;
    attn_gradients *gradients = NULL;
    memset(&views, 0, sizeof views);
    attn_tape_options_init(&tape_options, sizeof tape_options);
    tape_options.training = 1;
    attn_status status = training ? attn_tape_begin(dry->ctx, dry->tape, &tape_options) : ATTN_OK;
    if (status == ATTN_OK && plan->has_encoder) status = dry_side(&call, source, &views.source, &views.source_stream);
    if (status == ATTN_OK && plan->has_decoder) status = dry_side(&call, target, &views.target, &views.target_stream);
    views.rows = plan->has_decoder ? views.target.rows : views.source.rows;
    views.labels = plan->has_decoder ? views.target : views.source;
    if (status == ATTN_OK) status = dry_forward(&call, plan, &views, &out);
    r->forward = dry->ctx->counts.multiply_adds;
    if (status == ATTN_OK && training) {
        const view ones = {0};
        status = attn_gradients_create(dry->ctx, set, &gradients);
        if (status == ATTN_OK) status = attn__tape_run(dry->ctx, dry->tape, 1, &out, &ones, 1, &gradients);
        attn_gradients_free(gradients);
    }
    r->backward = dry->ctx->counts.multiply_adds - r->forward;
    r->bytes = dry->ctx->counts.bytes;
    r->forward_formula = formula(plan, &views);
    r->backward_formula = training ? twice(r->forward_formula) : 0;
    int64_t element = attn__dtype_bytes(set->dtype);
    r->parameters = set->elements;
    *need = (attn__need){.scratch = attn__arena_peak(dry->ctx->scratch)};
    grow(&need->scratch, kernel_scratch(&plan->options, views.source.rows + views.target.rows), 1, 1);
    attn__tape_most(dry->tape, &need->values, &need->records, &need->gradients);
    /* weights; with training their gradients and two moments */
    grow(&r->peak_bytes, set->flat_elements, element, training ? 4 : 1);
    const int64_t parts[4] = {need->values, need->records, need->gradients, need->scratch};
    for (int i = 0; i < 4; i++) grow(&r->peak_bytes, parts[i], 1, 1);
    return status;
}

static attn_status check_layout(attn_context *ctx, const char *name, const attn_layout *layout)
{
    attn__segments segments;
    attn_status status = attn__expect(ctx, name, layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    return status == ATTN_OK ? attn__layout_tiling(ctx, name, layout, layout->rows, &segments) : status;
}

static attn_status report_model(attn_context *ctx, const attn_transformer_options *o, int training, const attn_layout *source,
                                const attn_layout *target, attn_cost_report *r, attn__need *need)
{
    attn__dry dry;
    attn_status status = attn__dry_open(ctx, o, &dry);
    if (status != ATTN_OK) return status;
    *r = (attn_cost_report){.struct_size = sizeof *r};
    status = dry_run(&dry, training, source, target, r, need);
    if (status != ATTN_OK) attn__fail(ctx, status, "%s", attn_context_last_error(dry.ctx));
    attn__dry_close(&dry);
    return status;
}

attn_status attn_transformer_cost(attn_context *ctx, const attn_transformer_options *options, int32_t training, const attn_layout *source,
                                  const attn_layout *target, attn_cost_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    attn_cost_report r;
    attn__need need;
    status = attn__transformer_resolve(ctx, options, &o);
    if (status == ATTN_OK && o.encoder_layers > 0) status = check_layout(ctx, "source", source);
    if (status == ATTN_OK && o.decoder_layers > 0) status = check_layout(ctx, "target", target);
    if (status == ATTN_OK && o.encoder_layers > 0 && o.decoder_layers > 0 && source->count != target->count)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "target: got %lld segments, expected %lld as in source", (long long)target->count,
                            (long long)source->count);
    if (status == ATTN_OK) status = report_model(ctx, &o, training != 0, source, target, &r, &need);
    if (status == ATTN_OK) status = attn__report_write(ctx, "report", report, &r, sizeof r, sizeof r);
    return attn__leave(ctx, status);
}

/* rows in segments of at most longest */
static attn_status layout_of(attn_context *ctx, int64_t rows, int64_t longest, attn_layout **out)
{
    int64_t count = rows / longest + (rows % longest != 0);
    attn_status status = attn_layout_create(ctx, count, out);
    int64_t *lengths = status == ATTN_OK ? attn__scratch(ctx, count * (int64_t)sizeof *lengths) : NULL;
    if (lengths == NULL) return status != ATTN_OK ? status : ATTN_ERROR_OUT_OF_MEMORY;
    for (int64_t i = 0; i < count; i++) lengths[i] = i + 1 < count || rows % longest == 0 ? longest : rows % longest;
    return attn_layout_set_lengths(ctx, *out, count, lengths, 0);
}

static attn_status report_rows(attn_context *ctx, const attn_transformer_options *o, int training, int64_t rows, int64_t longest,
                               attn_cost_report *r, attn__need *need)
{
    attn_layout *layout = NULL;
    if (rows < 0 || longest < 1 || rows / longest > INT32_MAX)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "rows, longest: got %lld and %lld, expected rows of at least 0 in sequences of at least 1", (long long)rows,
                          (long long)longest);
    attn_status status = layout_of(ctx, rows, longest, &layout);
    if (status == ATTN_OK) status = report_model(ctx, o, training, layout, layout, r, need);
    attn_layout_free(layout);
    return status;
}

attn_status attn__transformer_need(attn_context *ctx, const attn_transformer_options *options, int training, int64_t rows, int64_t longest,
                                   attn__need *out)
{
    attn_cost_report r;
    return report_rows(ctx, options, training, rows, longest, &r, out);
}

attn_status attn_transformer_memory(attn_context *ctx, const attn_transformer_options *options, int32_t training, int64_t rows,
                                    int64_t longest, attn_cost_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    attn_cost_report r;
    attn__need need;
    status = attn__transformer_resolve(ctx, options, &o);
    if (status == ATTN_OK) status = report_rows(ctx, &o, training != 0, rows, longest, &r, &need);
    if (status == ATTN_OK) status = attn__report_write(ctx, "report", report, &r, sizeof r, sizeof r);
    return attn__leave(ctx, status);
}

attn_status attn_transformer_describe(attn_context *ctx, const attn_transformer_options *options, int64_t index, int64_t capacity,
                                      char *name, int32_t *rank, int64_t *shape)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    attn__dry dry = {NULL, NULL, NULL};
    if (index < 0 || capacity < 1 || name == NULL || rank == NULL || shape == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                            "index, name, rank, shape: got index %lld, capacity %lld or a NULL, expected all three", (long long)index,
                            (long long)capacity);
    if (status == ATTN_OK) status = attn__transformer_resolve(ctx, options, &o);
    if (status == ATTN_OK) status = attn__dry_open(ctx, &o, &dry);
    if (status == ATTN_OK) {
        const attn_parameters *set = dry.model->parameters;
        if (index >= set->count)
            status = attn__fail(ctx, ATTN_ERROR_END_OF_DATA, "index: got %lld, the model has %lld parameters", (long long)index,
                                (long long)set->count);
        else {
            snprintf(name, (size_t)capacity, "%s", set->at[index].name);
            *rank = set->at[index].rank;
            for (int32_t i = 0; i < 4; i++) shape[i] = i < *rank ? set->at[index].shape[i] : 1;
        }
    }
    attn__dry_close(&dry);
    return attn__leave(ctx, status);
}

attn_status attn_attention_cost(attn_context *ctx, const attn_attention_options *options, const attn_layout *query, const attn_layout *key,
                                const attn_mask *mask, attn_cost_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_attention_options o, usual;
    attn__block_map map;
    attn_attention_options_init(&usual, sizeof usual);
    status = attn__options_read(ctx, "options", options, &usual, sizeof o, sizeof o, &o);
    if (status == ATTN_OK) status = attn__attention_resolve(ctx, &o, &o);
    if (status == ATTN_OK) status = check_layout(ctx, "query", query);
    if (status == ATTN_OK) status = attn__expect(ctx, "key", key, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status == ATTN_OK && query->count != key->count)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "key: got %lld segments, expected %lld as in query", (long long)key->count,
                            (long long)query->count);
    if (status == ATTN_OK && mask != NULL) status = attn__expect(ctx, "mask", mask, ATTN__MAGIC_MASK, "attn_mask");
    if (status != ATTN_OK) return attn__leave(ctx, status);
    attn__segments q = attn__layout_segments(query), k = attn__layout_segments(key);
    status = attn__mask_check(ctx, "mask", mask, o.heads, q, k);
    if (status == ATTN_OK) status = attn__block_map_build(ctx, ctx->scratch, mask, q, k, BLOCK, BLOCK, &map);
    if (status != ATTN_OK) return attn__leave(ctx, status);
    attn_cost_report r = {.struct_size = sizeof r};
    const int64_t q_columns = o.heads * o.head_size, k_columns = o.key_heads * o.head_size, v_columns = o.key_heads * o.value_head_size,
                  columns = o.heads * o.value_head_size, element = attn__dtype_bytes(o.dtype);
    attention_formula(&r.forward, &o, query->rows, key->rows, 0);
    r.backward = twice(r.forward);
    grow(&r.forward, map.listed, o.heads, o.head_size + o.value_head_size);
    grow(&r.backward, map.listed, o.heads, 3 * o.head_size + 2 * o.value_head_size); /* scores once more, then dP, dQ, dK, dV */
    attention_formula(&r.forward_formula, &o, query->rows, key->rows, pairs(q, k));
    r.backward_formula = twice(r.forward_formula);
    if (o.project_query) grow(&r.parameters, o.query_width + (o.bias_query != 0), q_columns, 1);
    if (o.project_key) grow(&r.parameters, o.key_width + (o.bias_key != 0), k_columns, 1);
    if (o.project_value) grow(&r.parameters, o.value_width + (o.bias_value != 0), v_columns, 1);
    if (o.project_output) grow(&r.parameters, columns + (o.bias_output != 0), o.output_width, 1);
    grow(&r.bytes, element, r.parameters, 1);
    grow(&r.bytes, element, query->rows, o.query_width + q_columns + columns + o.output_width);
    grow(&r.bytes, element, key->rows, o.key_width + k_columns + v_columns);
    grow(&r.peak_bytes, element, query->rows, q_columns + columns + o.heads);
    grow(&r.peak_bytes, element, key->rows, k_columns + v_columns);
    status = attn__report_write(ctx, "report", report, &r, sizeof r, sizeof r);
    return attn__leave(ctx, status);
}

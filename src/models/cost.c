#include <attn/cost.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "../tensor/layout.h"
#include "report.h"

/* the report of the first version ended here */
enum { REPORT_FIRST = offsetof(attn_cost_report, weights_bytes) };

/* multiply-adds of the monograph: projections (3.15), full attention m n (d_k + d_v) per head (2.39), feed-forward (5.10) */
static int64_t pairs(attn__segments query, attn__segments key)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < query.count; i++) attn__grow(&sum, query.at[i].length, key.at[i].length, 1);
    return sum;
}

static void attention_formula(int64_t *sum, const attn_attention_options *o, int64_t rows, int64_t key_rows, int64_t pair_count)
{
    attn__grow(sum, pair_count, o->heads, o->key_head_size + o->value_head_size); /* additive: the tanh's products (R6) */
    if (o->project_query) attn__grow(sum, rows, o->query_width, o->heads * o->head_size);
    if (o->project_key) attn__grow(sum, key_rows, o->key_width, o->key_heads * o->key_head_size);
    if (o->project_value) attn__grow(sum, key_rows, o->value_width, o->key_heads * o->value_head_size);
    if (o->project_output) attn__grow(sum, rows, o->heads * o->value_head_size, o->output_width);
    if (o->score == ATTN_SCORE_MULTIPLICATIVE) attn__grow(sum, rows, o->heads * o->key_head_size, o->head_size);
    if (o->gated_output) attn__grow(sum, rows, o->query_width, o->heads * o->value_head_size);
}

static void stack_formula(int64_t *sum, const attn__stack *stack, int64_t rows, int64_t memory_rows, int64_t own_pairs,
                          int64_t memory_pairs)
{
    for (int64_t i = 0; i < stack->side.layers; i++) {
        const attn__layer *l = &stack->layers[i];
        attention_formula(sum, &l->self.options, rows, rows, own_pairs);
        if (l->has_cross) attention_formula(sum, &l->cross.options, rows, memory_rows, memory_pairs);
        attn__grow(sum, rows, l->feed_forward.options.width, l->feed_forward.options.hidden * (l->feed_forward.options.gated ? 3 : 2));
    }
}

static int64_t formula(const attn__transformer_plan *plan, attn__segments s, attn__segments t)
{
    int64_t sum = 0;
    if (plan->recurrent != NULL)
        attn__recurrent_formula(plan->recurrent, s.count, s.rows, t.rows, plan->has_encoder ? pairs(t, s) : 0, &sum);
    else if (plan->has_encoder)
        stack_formula(&sum, &plan->encoder, s.rows, 0, pairs(s, s), 0);
    if (plan->has_decoder && plan->recurrent == NULL)
        stack_formula(&sum, &plan->decoder, t.rows, s.rows, pairs(t, t), plan->has_encoder ? pairs(t, s) : 0);
    if (plan->has_output) attn__grow(&sum, plan->has_decoder ? t.rows : s.rows, plan->output.in, plan->output.out);
    return sum;
}

static int64_t twice(int64_t n)
{
    return n > INT64_MAX / 2 ? INT64_MAX : 2 * n;
}

/* heads m n numbers: the matrix of weights that the standard form keeps of one attention (4.9) */
static void weights_formula(int64_t *sum, const attn__stack *stack, int64_t own_pairs, int64_t memory_pairs, int64_t element)
{
    for (int64_t i = 0; i < stack->side.layers; i++) {
        const attn__layer *l = &stack->layers[i];
        attn__grow(sum, l->self.options.heads, own_pairs, element);
        if (l->has_cross) attn__grow(sum, l->cross.options.heads, memory_pairs, element);
    }
}

static int64_t weights_bytes(const attn__transformer_plan *plan, attn__segments s, attn__segments t)
{
    const int64_t element = attn__dtype_bytes(plan->options.dtype);
    int64_t sum = 0;
    if (plan->recurrent != NULL) {
        if (plan->recurrent->has_attention) attn__grow(&sum, pairs(t, s), element, 1);
        return sum;
    }
    if (plan->has_encoder) weights_formula(&sum, &plan->encoder, pairs(s, s), 0, element);
    if (plan->has_decoder) weights_formula(&sum, &plan->decoder, pairs(t, t), plan->has_encoder ? pairs(t, s) : 0, element);
    return sum;
}

/* handles, buffers and scratch of a context that holds this model and nothing else; copies of the parameters: gradients and moments */
static int64_t peak(const attn_context *ctx, const attn_parameters *set, int64_t copies, const attn__reading *read)
{
    /* what a trainer or a generator and each thread take for themselves; an arena takes no less than a block */
    enum { HANDLES = 8192, THREAD = 256, SMALLEST = 1 << 20 };
    const attn__need *need = &read->need;
    const int64_t workers = attn__pool_workers(ctx->pool), scratch = need->scratch > SMALLEST ? need->scratch : SMALLEST;
    const int64_t parts[7] = {need->tape.values, need->tape.records, need->tape.gradients, need->tape.lists,
                              scratch,           read->handles,      read->caches};
    int64_t sum = HANDLES;
    attn__grow(&sum, set->flat_elements, attn__dtype_bytes(set->dtype), copies);
    attn__grow(&sum, need->worker + THREAD, workers, 1);
    for (int i = 0; i < 7; i++) attn__grow(&sum, parts[i], 1, 1);
    return sum;
}

static attn_status check_layout(attn_context *ctx, const char *name, const attn_layout *layout)
{
    attn__segments segments;
    attn_status status = attn__expect(ctx, name, layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    return status == ATTN_OK ? attn__layout_tiling(ctx, name, layout, layout->rows, &segments) : status;
}

/* segments of the sides the model has; a layout NULL: rows in sequences of longest instead */
static attn_status segments_of(attn__dry *dry, const attn_layout *source, const attn_layout *target, int64_t rows, int64_t longest,
                               attn_layout **made, attn__segments *s, attn__segments *t)
{
    const attn__transformer_plan *plan = attn__transformer_plan_of(dry->model);
    const attn__segments none = {0, 0, NULL};
    *made = NULL;
    attn_status status = rows >= 0 ? attn__rows_layout(dry, rows, longest, made) : ATTN_OK;
    if (status != ATTN_OK) return status;
    *s = plan->has_encoder ? attn__layout_segments(*made != NULL ? *made : source) : none;
    *t = plan->has_decoder ? attn__layout_segments(*made != NULL ? *made : target) : none;
    return ATTN_OK;
}

/* rows: not negative where the segments are those of rows in sequences of longest */
static attn_status read_run(attn_context *ctx, attn__dry *dry, int training, attn__segments s, attn__segments t, int64_t rows,
                            int64_t longest, attn_cost_report *r)
{
    const attn__transformer_plan *plan = attn__transformer_plan_of(dry->model);
    const attn_parameters *set = dry->model->parameters;
    attn__reading read = {0};
    attn_status status = attn__read_batch(ctx, dry, training, s, t, &read);
    if (status == ATTN_OK && training && rows >= 0) status = attn__any_layout(ctx, plan, rows, longest, &read.need);
    r->parameters = set->elements;
    r->forward = read.forward;
    r->backward = read.backward;
    r->bytes = read.bytes;
    r->forward_formula = formula(plan, s, t);
    r->backward_formula = training ? twice(r->forward_formula) : 0;
    r->peak_bytes = peak(ctx, set, training ? 4 : 1, &read);
    r->weights_bytes = weights_bytes(plan, s, t);
    return status;
}

static attn_status read_decoding(attn_context *ctx, attn__dry *dry, attn__segments s, attn__segments t, attn_cost_report *r)
{
    const attn__transformer_plan *plan = attn__transformer_plan_of(dry->model);
    attn__reading read = {0};
    if (!plan->has_decoder || !plan->has_output) return ATTN_OK;
    attn_status status = attn__read_decoding(ctx, dry, s, t, 1, attn__longest(t), &read);
    r->prompt = read.prompt;
    r->decode = read.decode;
    attn__grow(&read.handles, read.plan, 1, 1); /* a prompt reads its memory off such a plan, beside the model that decodes */
    r->decode_bytes = peak(ctx, dry->model->parameters, 1, &read);
    return status;
}

/* on layouts, or (rows not negative) on rows in sequences of longest: two readings, each with a plan of its own. like: a model's plan, whose
   heads and masks count; NULL: the options alone */
static attn_status report_model(attn_context *ctx, const attn_transformer_options *o, const attn__transformer_plan *like, int training,
                                const attn_layout *source, const attn_layout *target, int64_t rows, int64_t longest, attn_cost_report *r)
{
    attn_status status = ATTN_OK;
    *r = (attn_cost_report){.struct_size = sizeof *r};
    for (int decoding = 0; status == ATTN_OK && decoding < 2; decoding++) {
        attn__dry dry;
        attn__segments s, t;
        attn_layout *made;
        status = attn__dry_open(ctx, o, like != NULL ? like->heads : NULL, &dry);
        if (status != ATTN_OK) return status;
        made = NULL;
        if (like != NULL) status = attn__dry_masks(&dry, like);
        if (status == ATTN_OK) status = segments_of(&dry, source, target, rows, longest, &made, &s, &t);
        if (status == ATTN_OK)
            status = decoding ? read_decoding(ctx, &dry, s, t, r) : read_run(ctx, &dry, training, s, t, rows, longest, r);
        attn_layout_free(made);
        if (status != ATTN_OK) return attn__dry_fail(ctx, &dry, status);
        attn__dry_close(&dry);
    }
    return status;
}

/* before anything is calculated */
static attn_status check_report(attn_context *ctx, int32_t training, const attn_cost_report *report)
{
    if (training != 0 && training != 1)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "training: got %d, expected 0 or 1", (int)training);
    return attn__report_check(ctx, "report", report, REPORT_FIRST);
}

attn_status attn_transformer_cost(attn_context *ctx, const attn_transformer_options *options, int32_t training, const attn_layout *source,
                                  const attn_layout *target, attn_cost_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    attn_cost_report r;
    status = check_report(ctx, training, report);
    if (status == ATTN_OK) status = attn__transformer_resolve(ctx, options, &o);
    if (status == ATTN_OK && o.encoder_layers > 0) status = check_layout(ctx, "source", source);
    if (status == ATTN_OK && o.decoder_layers > 0) status = check_layout(ctx, "target", target);
    if (status == ATTN_OK && o.encoder_layers > 0 && o.decoder_layers > 0 && source->count != target->count)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "target: got %lld segments, expected %lld as in source", (long long)target->count,
                            (long long)source->count);
    if (status == ATTN_OK) status = report_model(ctx, &o, NULL, training, source, target, -1, 0, &r);
    if (status == ATTN_OK) status = attn__report_write(ctx, "report", report, &r, sizeof r, REPORT_FIRST);
    return attn__leave(ctx, status);
}

static attn_status check_rows(attn_context *ctx, int64_t rows, int64_t longest)
{
    if (rows >= 0 && longest >= 1) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                      "rows, longest: got %lld and %lld, expected rows of at least 0 in sequences of at least 1", (long long)rows,
                      (long long)longest);
}

attn_status attn_transformer_memory(attn_context *ctx, const attn_transformer_options *options, int32_t training, int64_t rows,
                                    int64_t longest, attn_cost_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    attn_cost_report r;
    status = check_report(ctx, training, report);
    if (status == ATTN_OK) status = attn__transformer_resolve(ctx, options, &o);
    if (status == ATTN_OK) status = check_rows(ctx, rows, longest);
    if (status == ATTN_OK) status = report_model(ctx, &o, NULL, training, NULL, NULL, rows, longest, &r);
    if (status == ATTN_OK) status = attn__report_write(ctx, "report", report, &r, sizeof r, REPORT_FIRST);
    return attn__leave(ctx, status);
}

attn_status attn_transformer_model_cost(attn_context *ctx, const attn_transformer *model, int32_t training, int64_t rows, int64_t longest,
                                        attn_cost_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_cost_report r;
    status = check_report(ctx, training, report);
    if (status == ATTN_OK) status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK) status = check_rows(ctx, rows, longest);
    if (status == ATTN_OK) {
        const attn__transformer_plan *plan = attn__transformer_plan_of(model);
        status = report_model(ctx, &plan->options, plan, training, NULL, NULL, rows, longest, &r);
    }
    if (status == ATTN_OK) status = attn__report_write(ctx, "report", report, &r, sizeof r, REPORT_FIRST);
    return attn__leave(ctx, status);
}

attn_status attn_transformer_describe(attn_context *ctx, const attn_transformer_options *options, int64_t index, int64_t capacity,
                                      char *name, int32_t *rank, int64_t *shape)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    attn__dry dry = {NULL, NULL, NULL};
    if (index < 0 || capacity < 1)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "index, capacity: got %lld and %lld, expected at least 0 and 1",
                            (long long)index, (long long)capacity);
    else if (name == NULL || rank == NULL || shape == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got NULL, expected a place for it",
                            name == NULL   ? "name"
                            : rank == NULL ? "rank"
                                           : "shape");
    if (status == ATTN_OK) status = attn__transformer_resolve(ctx, options, &o);
    if (status == ATTN_OK) status = attn__dry_open(ctx, &o, NULL, &dry);
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

typedef struct attention_views {
    view query, key, value;
    attn__segments queries, keys;
} attention_views;

/* products of what is counted since the last time */
static void take_counts(attn_context *ctx, int64_t *sum)
{
    attn__grow(sum, ctx->counts.multiply_adds, 1, 1);
    ctx->counts.multiply_adds = 0;
}

static attn_status softmax_products(attn_context *ctx, const attn_attention_options *o, const attention_views *v, const attn_mask *mask,
                                    attn_cost_report *r)
{
    static char nowhere; /* there is a vector; nobody reads it */
    const attn__attention_arguments a = {.query = v->query,
                                         .key = v->key,
                                         .value = v->value,
                                         .score_vector.data = o->score == ATTN_SCORE_ADDITIVE ? &nowhere : NULL,
                                         .query_segments = v->queries,
                                         .key_segments = v->keys,
                                         .mask = mask};
    attn_status status = attn__kernels_count.attention(ctx, &a);
    take_counts(ctx, &r->forward);
    if (status == ATTN_OK) status = attn__kernels_count.attention_back(ctx, &a);
    take_counts(ctx, &r->backward);
    return status;
}

/* keys and values projected, then attention on segments of equal length */
static attn_status linformer_products(attn_context *ctx, const attn_attention_options *o, attention_views *v, attn_cost_report *r)
{
    const view e = {NULL, o->projected, 1, o->longest, o->longest, 0, o->dtype, 0};
    view to[2] = {v->key, v->value}, d = e;
    int64_t rows, bytes;
    if (attn__multiply(v->keys.count, o->projected, &rows) || attn__multiply(v->keys.count, (int64_t)sizeof(attn_segment), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "segments");
    for (int i = 0; i < 2; i++) {
        view *from = i == 0 ? &v->key : &v->value;
        to[i].rows = rows;
        attn__kernels_count.sequence_project(ctx, from, &e, v->keys, &to[i]);
        take_counts(ctx, &r->forward);
        attn__kernels_count.sequence_project_back(ctx, from, &e, v->keys, &to[i], 0, from, &d);
        take_counts(ctx, &r->backward);
    }
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn_segment *at = attn__scratch(ctx, bytes);
    if (at == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t s = 0; s < v->keys.count; s++) at[s] = (attn_segment){s * o->projected, o->projected, 0, 0};
    v->key = to[0];
    v->value = to[1];
    v->keys = (attn__segments){v->keys.count, rows, at};
    attn_status status = softmax_products(ctx, o, v, NULL, r);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

static attn_status linear_products(attn_context *ctx, const attn_attention_options *o, attention_views *v, const attn_mask *mask,
                                   attn_cost_report *r)
{
    attn__linear_arguments a = {.value = v->value, .causal = mask != NULL, .query_segments = v->queries, .key_segments = v->keys};
    view *const from[2] = {&v->query, &v->key};
    const int64_t features = o->features == ATTN_DERIVED ? 4 * o->key_head_size : o->features;
    attn__features map = {.kind = ATTN_FEATURES_ELU};
    if (o->form == ATTN_FORM_PERFORMER)
        map = (attn__features){ATTN_FEATURES_POSITIVE, 0, 1, {NULL, features, 1, o->key_head_size, o->key_head_size, 0, o->dtype, 0}};
    for (int i = 0; i < 2; i++) {
        view to = *from[i];
        if (o->form == ATTN_FORM_PERFORMER) to.width = features;
        attn__kernels_count.feature_map(ctx, from[i], &map, NULL, &to);
        take_counts(ctx, &r->forward);
        attn__kernels_count.feature_map_back(ctx, from[i], &map, &to, &to, 0, from[i]);
        take_counts(ctx, &r->backward);
        *(i == 0 ? &a.query : &a.key) = to;
    }
    attn_status status = attn__kernels_count.linear_attention(ctx, &a);
    take_counts(ctx, &r->forward);
    if (status == ATTN_OK) status = attn__kernels_count.linear_attention_back(ctx, &a);
    take_counts(ctx, &r->backward);
    return status;
}

/* its products, by the table that counts them: the same views, segments and mask as in a run, without data */
static attn_status attention_products(attn_context *ctx, const attn_attention_options *o, attn__segments q, attn__segments k,
                                      const attn_mask *mask, attn_cost_report *r)
{
    const int64_t before = ctx->counts.multiply_adds;
    attention_views v = {{NULL, q.rows, o->heads, o->key_head_size, 0, 0, o->dtype, 0},
                         {NULL, k.rows, o->key_heads, o->key_head_size, 0, 0, o->dtype, 0},
                         {NULL, k.rows, o->key_heads, o->value_head_size, 0, 0, o->dtype, 0},
                         q,
                         k};
    ctx->counts.multiply_adds = 0;
    attn_status status = o->form == ATTN_FORM_SOFTMAX     ? softmax_products(ctx, o, &v, mask, r)
                         : o->form == ATTN_FORM_LINFORMER ? linformer_products(ctx, o, &v, r)
                                                          : linear_products(ctx, o, &v, mask, r);
    ctx->counts.multiply_adds = before;
    return status;
}

/* What projections for global tokens cost beside that: rows that the mask names, over whole segments. Of masks that name none, nothing. */
static attn_status global_products(attn_context *ctx, const attn_attention_options *o, attn__segments q, attn__segments k,
                                   const attn_mask *mask, attn_cost_report *r)
{
    attn_cost_report more = {.forward = 0};
    int64_t bytes, rows = 0;
    if (!o->global_projections) return ATTN_OK;
    if (attn__multiply(q.count, (int64_t)sizeof(attn_segment), &bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "segments");
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn_segment *at = attn__scratch(ctx, bytes);
    if (at == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t s = 0; s < q.count; s++) {
        const attn__pair pair = {s, &q.at[s], &k.at[s]};
        at[s] = (attn_segment){rows, attn__mask_global_rows(mask, &pair, NULL), 0, 0};
        rows += at[s].length;
    }
    attn_status status = rows > 0 ? attention_products(ctx, o, (attn__segments){q.count, rows, at}, k, NULL, &more) : ATTN_OK;
    attn__arena_rewind(ctx->scratch, mark);
    if (status != ATTN_OK || rows == 0) return status;
    int64_t projections = 0;
    attn__grow(&projections, rows, o->query_width, o->heads * o->head_size);
    attn__grow(&projections, k.rows, o->key_width, o->key_heads * o->key_head_size);
    attn__grow(&projections, k.rows, o->value_width, o->key_heads * o->value_head_size);
    attn__grow(&r->forward, more.forward, 1, 1);
    attn__grow(&r->forward, projections, 1, 1);
    attn__grow(&r->backward, more.backward, 1, 1);
    attn__grow(&r->backward, twice(projections), 1, 1);
    return ATTN_OK;
}

/* a weight, and a bias where there is one */
static void grow_projection(int64_t *sum, int64_t in, int64_t out, int32_t bias)
{
    attn__grow(sum, in, out, 1);
    if (bias) attn__grow(sum, out, 1, 1);
}

/* norms of queries and keys, tables of positions, what scores have of their own, and the gate */
static int64_t other_parameters(const attn_attention_options *o)
{
    const int64_t reach = 2 * o->position_reach + 1, norms = o->query_key_norm == ATTN_QUERY_KEY_LAYER ? 2 : 1;
    int64_t sum = 0;
    if (o->query_key_norm != ATTN_QUERY_KEY_NONE) attn__grow(&sum, norms, o->head_size + o->key_head_size, 1);
    if (o->positions == ATTN_POSITIONS_T5) attn__grow(&sum, o->position_buckets, o->heads, 1);
    if (o->positions == ATTN_POSITIONS_RELATIVE)
        attn__grow(&sum, reach, o->key_head_size + (o->relative_values ? o->value_head_size : 0), 1);
    if (o->score == ATTN_SCORE_ADDITIVE) attn__grow(&sum, o->heads, o->head_size, 1);
    if (o->form == ATTN_FORM_LINFORMER) attn__grow(&sum, o->separate_projections ? 2 : 1, o->projected, o->longest);
    if (o->score == ATTN_SCORE_MULTIPLICATIVE) attn__grow(&sum, o->heads, o->key_head_size, o->head_size);
    if (o->gated_output) grow_projection(&sum, o->query_width, o->heads * o->value_head_size, o->bias_query);
    if (!o->global_projections) return sum;
    grow_projection(&sum, o->query_width, o->heads * o->head_size, o->bias_query);
    grow_projection(&sum, o->key_width, o->key_heads * o->key_head_size, o->bias_key);
    grow_projection(&sum, o->value_width, o->key_heads * o->value_head_size, o->bias_value);
    return sum;
}

/* rows of several widths, each for itself: their sum need not fit in 63 bits */
static void grow_rows(int64_t *total, int64_t element, int64_t rows, int64_t count, const int64_t *widths)
{
    for (int64_t i = 0; i < count; i++) attn__grow(total, element, rows, widths[i]);
}

static void attention_sizes(const attn_attention_options *o, int64_t rows, int64_t key_rows, attn_cost_report *r)
{
    const int64_t q_columns = o->heads * o->head_size, k_columns = o->key_heads * o->key_head_size,
                  v_columns = o->key_heads * o->value_head_size, columns = o->heads * o->value_head_size,
                  element = attn__dtype_bytes(o->dtype);
    if (o->project_query) grow_projection(&r->parameters, o->query_width, q_columns, o->bias_query);
    if (o->project_key) grow_projection(&r->parameters, o->key_width, k_columns, o->bias_key);
    if (o->project_value) grow_projection(&r->parameters, o->value_width, v_columns, o->bias_value);
    if (o->project_output) grow_projection(&r->parameters, columns, o->output_width, o->bias_output);
    attn__grow(&r->parameters, other_parameters(o), 1, 1);
    attn__grow(&r->bytes, element, r->parameters, 1);
    grow_rows(&r->bytes, element, rows, 4, (const int64_t[]){o->query_width, q_columns, columns, o->output_width});
    grow_rows(&r->bytes, element, key_rows, 3, (const int64_t[]){o->key_width, k_columns, v_columns});
    attn__grow(&r->peak_bytes, element, rows, q_columns + columns + o->heads);
    attn__grow(&r->peak_bytes, element, key_rows, k_columns + v_columns);
}

attn_status attn_attention_cost(attn_context *ctx, const attn_attention_options *options, const attn_layout *query, const attn_layout *key,
                                const attn_mask *mask, attn_cost_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_attention_options o;
    attn__segments k;
    status = check_report(ctx, 0, report);
    if (status == ATTN_OK) status = attn__attention_read(ctx, options, &o);
    if (status == ATTN_OK) status = check_layout(ctx, "query", query);
    if (status == ATTN_OK) status = attn__expect(ctx, "key", key, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status == ATTN_OK) status = attn__layout_keys(ctx, "key", key, key->rows, &k);
    if (status == ATTN_OK && query->count != key->count)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "key: got %lld segments, expected %lld as in query", (long long)key->count,
                            (long long)query->count);
    if (status == ATTN_OK && mask != NULL) status = attn__expect(ctx, "mask", mask, ATTN__MAGIC_MASK, "attn_mask");
    if (status != ATTN_OK) return attn__leave(ctx, status);
    attn__segments q = attn__layout_segments(query);
    status = attn__mask_check(ctx, "mask", mask, o.heads, q, k);
    attn_cost_report r = {.struct_size = sizeof r};
    attention_formula(&r.forward, &o, query->rows, key->rows, 0);
    r.backward = twice(r.forward);
    if (status == ATTN_OK) status = attention_products(ctx, &o, q, k, mask, &r);
    if (status == ATTN_OK) status = global_products(ctx, &o, q, k, mask, &r);
    if (status != ATTN_OK) return attn__leave(ctx, status);
    const int64_t every = pairs(q, k);
    attention_formula(&r.forward_formula, &o, query->rows, key->rows, every);
    r.backward_formula = twice(r.forward_formula);
    attn__grow(&r.weights_bytes, o.heads, every, attn__dtype_bytes(o.dtype));
    attention_sizes(&o, query->rows, key->rows, &r);
    status = attn__report_write(ctx, "report", report, &r, sizeof r, REPORT_FIRST);
    return attn__leave(ctx, status);
}

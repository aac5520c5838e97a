#include "attention.h"

/* Longformer's global tokens (Beltagy et al. 2020): their rows are attention of their own, with projections of their own, which takes the place of
   what the usual ones give. */
static attn_status unsupported(attn_context *ctx, const char *field, const char *expected)
{
    return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "options.%s: got one that goes without global_projections, expected %s", field,
                      expected);
}

attn_status attn__attention_global_resolve(attn_context *ctx, const attn_attention_options *o)
{
    if (!o->global_projections) return ATTN_OK;
    if (o->form != ATTN_FORM_SOFTMAX) return unsupported(ctx, "form", "ATTN_FORM_SOFTMAX");
    if (o->score > ATTN_SCORE_SCALED_DOT) return unsupported(ctx, "score", "ATTN_SCORE_DOT or _SCALED_DOT");
    if (o->positions != ATTN_POSITIONS_NONE) return unsupported(ctx, "positions", "ATTN_POSITIONS_NONE");
    if (o->query_key_norm != ATTN_QUERY_KEY_NONE) return unsupported(ctx, "query_key_norm", "ATTN_QUERY_KEY_NONE");
    if (o->pair_bias) return unsupported(ctx, "pair_bias", "0");
    if (!o->project_query || !o->project_key || !o->project_value)
        return unsupported(ctx, "project_query, project_key, project_value", "1");
    return ATTN_OK;
}

attn_status attn__attention_global_plan(const attn__scope *scope, attn__attention_module *m)
{
    const attn_attention_options *o = &m->options;
    const attn__start_rule rule = {o->initialisation, o->initialisation_scale};
    const int64_t nk = o->key_heads * o->key_head_size, nv = o->key_heads * o->value_head_size;
    if (!o->global_projections) return ATTN_OK;
    m->global_site = attn__scope_site(scope, "global_weights");
    attn_status status =
        attn__linear_plan(scope, "global_query", o->query_width, o->heads * o->head_size, o->bias_query, &rule, 1, &m->global_query);
    if (status == ATTN_OK) status = attn__linear_plan(scope, "global_key", o->key_width, nk, o->bias_key, &rule, 1, &m->global_key);
    if (status != ATTN_OK) return status;
    return attn__linear_plan(scope, "global_value", o->value_width, nv, o->bias_value, &rule, 1, &m->global_value);
}

/* The rows of global tokens, and the others; both rising. */
typedef struct parting {
    attn__lists lists;
    attn_segment *segment; /* [segments]: of the global rows, one segment behind another */
    int64_t *global, *other, globals;
} parting;

static int64_t count_globals(const attn__attention_inputs *in, int64_t *row)
{
    int64_t count = 0;
    for (int64_t s = 0; s < in->query_segments.count; s++) {
        const attn_segment *query = &in->query_segments.at[s];
        const attn__pair pair = {s, query, &in->key_segments.at[s]};
        int64_t *to = row != NULL ? row + count : NULL, found = attn__mask_global_rows(in->mask, &pair, to);
        for (int64_t g = 0; to != NULL && g < found; g++) to[g] += query->start;
        count += found;
    }
    return count;
}

static attn_status open_parting(const attn__call *call, const attn__attention_inputs *in, parting *p)
{
    const int64_t rows = in->query->at.rows, count = in->query_segments.count;
    int64_t bytes, numbers, taken = 0, other = 0;
    if (attn__multiply(rows, (int64_t)sizeof(int64_t), &numbers) || attn__multiply(count, (int64_t)sizeof(attn_segment), &bytes) ||
        attn__sum(bytes, numbers, &bytes))
        return attn__fail_memory(call->ctx, ATTN_ERROR_TOO_LARGE, "rows of global tokens");
    attn_status status = attn__lists_open(call->ctx, call->tape, bytes, "rows of global tokens", &p->lists);
    if (status != ATTN_OK) return status;
    p->segment = p->lists.at;
    p->global = (int64_t *)(p->segment + count);
    p->other = p->global + p->globals;
    count_globals(in, p->global);
    for (int64_t s = 0; s < count; s++) {
        const attn_segment *query = &in->query_segments.at[s];
        const int64_t first = taken;
        for (int64_t r = query->start; r < query->start + query->length; r++) {
            if (taken < p->globals && p->global[taken] == r)
                taken++;
            else
                p->other[other++] = r;
        }
        p->segment[s] = (attn_segment){first, taken - first, query->first_position, query->sequence_id};
    }
    return ATTN_OK;
}

static attn_status project(const attn__call *call, const attn__linear_module *module, const attn__value *x, attn__value *y)
{
    attn_status status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, module->out, x->at.dtype, y);
    return status == ATTN_OK ? attn__linear_run(call, module, x, y) : status;
}

/* heads of the global rows alone, [globals, columns] */
static attn_status attend(const attn__call *call, const attn__attention_module *m, const attn__attention_inputs *in,
                          const attn__attention_settings *usual, const parting *p, attn__value *heads)
{
    const attn_attention_options *o = &m->options;
    const attn__places none = {NULL, NULL};
    attn__attention_settings settings = {.query_segments = {in->query_segments.count, p->globals, p->segment},
                                         .key_segments = in->key_segments,
                                         .scale = usual->scale,
                                         .soft_cap = usual->soft_cap,
                                         .dropout = attn__tape_dropout(call->tape, o->dropout, m->global_site, none)};
    attn__value x, q, k, v, joined;
    attn_status status = attn__tape_temporary(call->ctx, call->tape, p->globals, in->query->at.width, in->query->at.dtype, &x);
    if (status == ATTN_OK) status = attn__gather_rows(call->ctx, call->tape, in->query, p->global, &x);
    if (status == ATTN_OK) status = project(call, &m->global_query, &x, &q);
    if (status == ATTN_OK) status = project(call, &m->global_key, in->key, &k);
    if (status == ATTN_OK) status = project(call, &m->global_value, in->value, &v);
    if (status == ATTN_OK)
        status = attn__tape_temporary(call->ctx, call->tape, p->globals, o->heads * o->value_head_size, x.at.dtype, heads);
    if (status != ATTN_OK) return status;
    q.at = attn__view_heads(q.at, o->heads);
    k.at = attn__view_heads(k.at, o->key_heads);
    v.at = attn__view_heads(v.at, o->key_heads);
    joined = *heads;
    joined.at = attn__view_heads(heads->at, o->heads);
    status = attn__attend(call->ctx, call->tape, &q, &k, &v, &settings, &joined);
    heads->id = joined.id;
    return status;
}

/* the global rows in the places of the usual ones */
static attn_status replace(const attn__call *call, const attn__attention_module *m, const attn__attention_inputs *in,
                           const attn__attention_settings *settings, const parting *p, const attn__value *heads, attn__value *y)
{
    attn__row_part part[2] = {{.row = p->global}, {.row = p->other}};
    attn_status status = attend(call, m, in, settings, p, &part[0].value);
    if (status == ATTN_OK)
        status = attn__tape_temporary(call->ctx, call->tape, heads->at.rows - p->globals, heads->at.width, heads->at.dtype, &part[1].value);
    if (status == ATTN_OK) status = attn__gather_rows(call->ctx, call->tape, heads, p->other, &part[1].value);
    return status == ATTN_OK ? attn__join_rows(call->ctx, call->tape, 2, part, y) : status;
}

attn_status attn__attention_global(const attn__call *call, const attn__attention_module *m, const attn__attention_inputs *in,
                                   const attn__attention_settings *settings, const attn__value *asked, attn__value *heads)
{
    const attn__value *parts[1] = {heads};
    parting p = {.globals = count_globals(in, NULL)};
    attn__value y = *heads;
    if (p.globals == 0 && asked == NULL) return ATTN_OK;
    attn_status status = ATTN_OK;
    if (asked != NULL)
        y = *asked;
    else
        status = attn__tape_temporary(call->ctx, call->tape, heads->at.rows, heads->at.width, heads->at.dtype, &y);
    if (status == ATTN_OK && p.globals == 0) status = attn__concatenate(call->ctx, call->tape, 1, parts, &y);
    if (status == ATTN_OK && p.globals > 0) {
        status = open_parting(call, in, &p);
        if (status == ATTN_OK) status = replace(call, m, in, settings, &p, heads, &y);
        attn__lists_close(call->ctx, &p.lists);
    }
    *heads = y;
    return status;
}

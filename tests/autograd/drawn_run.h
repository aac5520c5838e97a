#ifndef TESTS_AUTOGRAD_DRAWN_RUN_H
#define TESTS_AUTOGRAD_DRAWN_RUN_H
#include <attn/linear_attention.h>
#include <attn/recurrent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "autograd/drawn_program.h"
#include "support/compare.h"
#include "support/model.h"

/* A drawn program run forwards on one ground. */
enum { POOL = 1 << 19 };

/* Memory of callers' tensors, some of them side by side in the rows of one buffer. What is no element is NaN, and stays so. */
typedef struct pool {
    char *at, *open;
    int64_t used, rows, stride, column; /* of the buffer that has room left in its rows */
} pool;

typedef struct world {
    attn_context *ctx;
    attn_tape *tape;
    attn_mask *causal;
    const drawn_program *p;
    int32_t dtype, again; /* again: what is detached stays as it is */
    pool values, gradients;
    const int32_t *watched;
    attn_tensor *tensor[VALUES], *gradient[VALUES], *arriving[ASKED];
    attn_parameters *set[SETS];
    attn_gradients *handle[SETS];
    int64_t index[VALUES]; /* of a parameter in its set */
    attn__value output[ASKED];
} world;

/* The values of a run, or of a stretch that runs by itself. */
typedef struct scope {
    attn__value at[VALUES];
    char known[VALUES], given[VALUES]; /* known: not looked up by its address; given: its memory is there already */
    int inside;
} scope;

static attn_tensor *wrap(world *w, pool *of, const drawn_value *v, int64_t gap)
{
    const int64_t bytes = w->dtype == ATTN_FLOAT64 ? 8 : 4, three[3] = {v->rows, v->heads, v->width / v->heads},
                  two[2] = {v->rows, v->width};
    if (of->open == NULL || of->rows != v->rows || of->column + v->width > of->stride) {
        of->open = of->at + of->used;
        of->rows = v->rows, of->stride = v->width + gap, of->column = 0;
        of->used += (v->rows * of->stride * bytes + 63) / 64 * 64;
        assert_true(of->used <= POOL);
    }
    const int64_t strides[3] = {of->stride, v->heads > 1 ? three[2] : 1, 1};
    attn_tensor *made = NULL;
    OK(w->ctx,
       attn_tensor_wrap(w->ctx, w->dtype, v->heads > 1 ? 3 : 2, v->heads > 1 ? three : two, strides, of->open + of->column * bytes, &made));
    of->column += v->width;
    return made;
}

static void fill_nan(const world *w, pool *of)
{
    for (int64_t i = 0; i < of->used / (w->dtype == ATTN_FLOAT64 ? 8 : 4); i++) {
        if (w->dtype == ATTN_FLOAT64)
            ((double *)(void *)of->at)[i] = NAN;
        else
            ((float *)(void *)of->at)[i] = NAN;
    }
}

static int64_t count_numbers(const world *w, const pool *of)
{
    int64_t count = 0;
    for (int64_t i = 0; i < of->used / (w->dtype == ATTN_FLOAT64 ? 8 : 4); i++)
        count += isfinite(w->dtype == ATTN_FLOAT64 ? ((double *)(void *)of->at)[i] : (double)((float *)(void *)of->at)[i]);
    return count;
}

/* the tensor as plain rows */
static view rows_of(const attn_tensor *t)
{
    const int last = attn_tensor_rank(t) - 1;
    view out = {.data = t->data, .rows = t->shape[0], .heads = 1, .width = last == 2 ? t->shape[1] * t->shape[2] : t->shape[1]};
    out.row_stride = t->stride[0], out.dtype = t->dtype;
    return out;
}

static int64_t read_view(const view *at, double *to)
{
    int64_t n = 0;
    for (int64_t r = 0; r < at->rows; r++)
        for (int64_t c = 0; c < at->width; c++) to[n++] = element_get(at, r, 0, c);
    return n;
}

static attn_status find(const world *w, attn_tape *tape, const scope *s, int32_t i, int64_t heads, attn__value *out)
{
    if (s->known[i]) {
        *out = s->at[i];
        if (tape == NULL) out->id = -1;
        out->at = attn__view_heads(out->at, heads);
        return ATTN_OK;
    }
    const view at = attn__view_heads(rows_of(w->tensor[i]), heads);
    return attn__tape_input(w->ctx, tape, "x", w->tensor[i], &at, out);
}

static attn_status place(const world *w, attn_tape *tape, const scope *s, int32_t i, int64_t heads, attn__value *out)
{
    const drawn_value *v = &w->p->value[i];
    attn_status status = ATTN_OK;
    if (s->given[i]) {
        *out = s->at[i];
    } else if (v->outside) {
        const view at = attn__view_heads(rows_of(w->tensor[i]), heads);
        return attn__tape_output(w->ctx, tape, "y", w->tensor[i], &at, out);
    } else {
        status = attn__tape_temporary(w->ctx, tape, v->rows, v->width, w->dtype, out);
    }
    out->at = attn__view_heads(out->at, heads);
    return status;
}

static void keep(const world *w, scope *s, int32_t i, const attn__value *value)
{
    s->at[i] = *value;
    s->at[i].at = attn__view_flat(value->at);
    s->known[i] = (char)(s->inside || !w->p->value[i].outside);
}

static attn_status cut(const world *w, attn_tape *tape, scope *s, const drawn_operation *o, const attn__value *base)
{
    attn_status status = ATTN_OK;
    for (int32_t k = 0; status == ATTN_OK && k < o->outputs; k++) {
        const drawn_value *part = &w->p->value[o->out[k]];
        attn__value made;
        status = attn__tape_part(w->ctx, tape, base, part->first, part->width, &made);
        if (status == ATTN_OK) keep(w, s, o->out[k], &made);
    }
    return status;
}

static attn_status attend(const world *w, attn_tape *tape, const drawn_operation *o, const attn__value *const *x, attn__value *y)
{
    attn__attention_settings settings = {.scale = 0.7, .soft_cap = o->cap, .score_vector = x[3], .mask = o->causal ? w->causal : NULL};
    settings.query_segments = (attn__segments){o->segments_count, x[0]->at.rows, o->segments};
    settings.key_segments = (attn__segments){o->segments_count, x[1]->at.rows, o->keys};
    settings.dropout = attn__tape_dropout(tape, o->rate, o->site, (attn__places){NULL, NULL});
    attn_status status = attn__fill_view(w->ctx, 0, &y->at); /* rows in no segment are not written */
    return status == ATTN_OK ? attn__attend(w->ctx, tape, x[0], x[1], x[2], &settings, y) : status;
}

/* features are positive; one value as queries and keys stays one */
static attn_status attend_linearly(const world *w, attn_tape *tape, const drawn_operation *o, const attn__value *const *x, attn__value *y)
{
    const attn__activation act = {.kind = ATTN_ACTIVATION_SIGMOID};
    attn__value f[2];
    attn__linear_settings settings = {.causal = o->causal};
    settings.query_segments = (attn__segments){o->segments_count, x[0]->at.rows, o->segments};
    settings.key_segments = (attn__segments){o->segments_count, x[1]->at.rows, o->keys};
    attn_status status = attn__fill_view(w->ctx, 0, &y->at);
    for (int i = 0; status == ATTN_OK && i < 2; i++) {
        const int64_t heads = x[i]->at.heads;
        attn__value rows = *x[i];
        rows.at = attn__view_flat(rows.at);
        status = attn__tape_temporary(w->ctx, tape, rows.at.rows, rows.at.width, w->dtype, &f[i]);
        if (status == ATTN_OK) status = attn__activate(w->ctx, tape, &act, NULL, &rows, &f[i]);
        f[i].at = attn__view_heads(f[i].at, heads);
    }
    const attn__value *key = o->in[0] == o->in[1] ? &f[0] : &f[1];
    return status == ATTN_OK ? attn__linear_attend(w->ctx, tape, &f[0], key, x[2], &settings, y) : status;
}

static attn_status map_features(const world *w, attn_tape *tape, const attn__value *x, attn__value *y)
{
    static double wide[2 * WIDEST];
    static float narrow[2 * WIDEST];
    const int64_t size = x->at.width;
    for (int i = 0; i < 2 * WIDEST; i++) wide[i] = narrow[i] = (float)(i % 5) / 4 - 0.5F;
    void *at = w->dtype == ATTN_FLOAT64 ? (void *)wide : (void *)narrow;
    return attn__feature_map(w->ctx, tape, x, &(attn__features){ATTN_FEATURES_POSITIVE, 0, 0.5, {at, 2, 1, size, size, 0, w->dtype, 0}},
                             NULL, y);
}

static attn_status put(const world *w, attn_tape *tape, const drawn_operation *o, const attn__value *const *x, attn__value *y)
{
    attn__row_part parts[2];
    for (int32_t i = 0; i < o->inputs; i++) parts[i] = (attn__row_part){*x[i], o->row + (i > 0 ? o->counts[0] : 0)};
    return attn__join_rows(w->ctx, tape, o->inputs, parts, y);
}

/* a copy becomes the gradient, or logits that are for nobody else */
static attn_status lose(const world *w, attn_tape *tape, const drawn_operation *o, const attn__value *x, attn__value *y)
{
    const view labels = {(void *)(uintptr_t)o->row, x->at.rows, 1, 1, 1, 0, ATTN_INT64, 0};
    attn__value logits = *x;
    attn__loss_sums sums;
    attn_status status = ATTN_OK;
    if (!w->p->value[o->in[0]].taken) {
        status = attn__tape_temporary(w->ctx, tape, x->at.rows, x->at.width, w->dtype, &logits);
        if (status == ATTN_OK) status = attn__copy_view(w->ctx, &x->at, 0, &logits.at);
        logits.id = x->id;
    }
    return status == ATTN_OK ? attn__cross_entropy(w->ctx, tape, &logits, &labels, 0.1, 0, -1, o->reverse, y, &sums) : status;
}

static attn_status apply(const world *w, attn_tape *tape, const drawn_operation *o, const attn__value *const *x, attn__value *y)
{
    static const double frequency[WIDEST] = {1, 0.5, 0.3, 0.2, 0.1};
    static int64_t sequence[ROWS_MOST], position[ROWS_MOST];
    const attn__places places = {sequence, position};
    const attn__dropout drop = attn__tape_dropout(tape, o->rate, o->site, places);
    const attn__activation act = {.kind = o->form, .beta = 1.3};
    const attn__segments segments = {o->segments_count, x[0] != NULL ? x[0]->at.rows : 0, o->segments};
    attn_context *ctx = w->ctx;
    for (int i = 0; i < ROWS_MOST; i++) sequence[i] = i / POSITIONS, position[i] = i % POSITIONS;
    switch (o->kind) {
    case LINEAR: return attn__linear(ctx, tape, x[0], x[1], x[2], &act, x[3], &drop, y);
    case GATED: return attn__linear_gated(ctx, tape, x[0], x[1], x[2], &act, x[3], &drop, y);
    case LINEAR_HEADS: return attn__linear_heads(ctx, tape, x[0], x[1], y);
    case ACTIVATE: return attn__activate(ctx, tape, &act, x[1], x[0], y);
    case NORM: return attn__residual_norm(ctx, tape, x[0], x[1], &drop, o->form, 0.3, x[2], x[3], o->outputs > 1 ? &y[1] : NULL, y);
    case RESIDUAL: return attn__residual(ctx, tape, x[0], x[1], &drop, y);
    case SOFTMAX: return attn__softmax(ctx, tape, o->form, x[0], y);
    case DROP: return attn__drop(ctx, tape, x[0], &drop, y);
    case ADD: return attn__add(ctx, tape, x[0], x[1], y);
    case MULTIPLY: return attn__multiply_elements(ctx, tape, x[0], x[1], y);
    case TRANSPOSE: return attn__transpose(ctx, tape, x[0], y);
    case JOIN: return attn__concatenate(ctx, tape, o->inputs, x, y);
    case GATHER: return attn__gather_rows(ctx, tape, x[0], o->row, y);
    case PUT: return put(w, tape, o, x, y);
    case EMBED: {
        const view tokens = {(void *)(uintptr_t)o->row, y->at.rows, 1, 1, 1, 0, ATTN_INT64, 0};
        return attn__embed(ctx, tape, x[0] != NULL ? &tokens : NULL, x[0], x[1], 1.5, o->form, x[2], places, &drop, y);
    }
    case ATTEND: return attend(w, tape, o, x, y);
    case ROTATE: {
        const int64_t rotated = x[0]->at.width / 2 * 2;
        return attn__rotate(ctx, tape, x[0], &(attn__rotary){frequency, rotated, 1.2, o->reverse, 0, places}, y);
    }
    case LOSS: return lose(w, tape, o, x[0], y);
    case RECURRENT: {
        const attn__recurrent_settings settings = {o->form ? ATTN_RECURRENT_LSTM : ATTN_RECURRENT_TANH, o->reverse, segments};
        return attn__recurrent(ctx, tape, x[0], x[1], x[2], x[3], &settings, y, &y[1], o->outputs > 2 ? &y[2] : NULL);
    }
    case CONVOLVE: {
        const attn__convolution shape = {o->taps, o->dilation, o->first, segments};
        return attn__convolve(ctx, tape, x[0], x[1], x[2], &shape, y);
    }
    case FEATURES: return map_features(w, tape, x[0], y);
    case LINEAR_ATTEND: return attend_linearly(w, tape, o, x, y);
    default: return attn__project_sequence(ctx, tape, x[0], x[1], segments, y);
    }
}

static attn_status operate(const world *w, attn_tape *tape, scope *s, const drawn_operation *o)
{
    attn__value in[READ], made[MADE_MOST];
    const attn__value *x[READ] = {NULL};
    attn_status status = ATTN_OK;
    if (o->detached && w->again) return ATTN_OK;
    if (o->detached) tape = NULL;
    for (int32_t k = 0; status == ATTN_OK && k < o->inputs; k++) {
        if (o->in[k] < 0) continue;
        status = find(w, tape, s, o->in[k], o->in_heads[k], &in[k]);
        x[k] = &in[k];
    }
    if (status == ATTN_OK && o->kind == CUT) return cut(w, tape, s, o, x[0]);
    for (int32_t k = 0; status == ATTN_OK && k < o->outputs; k++) {
        status = place(w, tape, s, o->out[k], o->out_heads[k], &made[k]);
        if (status == ATTN_OK) status = attn__fill_view(w->ctx, NAN, &made[k].at);
    }
    const int64_t used = attn__arena_used(w->ctx->scratch);
    if (status == ATTN_OK) status = apply(w, tape, o, x, made);
    if (status == ATTN_OK && o->kind != LOSS && o->kind != LINEAR_ATTEND &&
        attn__arena_used(w->ctx->scratch) != used) /* but copies of this file's */
        fail_msg("operation %d kept %d bytes of scratch", (int)o->kind, (int)(attn__arena_used(w->ctx->scratch) - used));
    for (int32_t k = 0; status == ATTN_OK && k < o->outputs; k++) keep(w, s, o->out[k], &made[k]);
    return status;
}

typedef struct closure {
    const world *w;
    int32_t stretch, reserved;
} closure;
static attn_status run_range(const world *w, attn_tape *tape, scope *s, int32_t from, int32_t to, int32_t level);

static attn_status run_stretch(attn_context *ctx, attn_tape *tape, const void *what, const attn__value *inputs, attn__value *outputs)
{
    const closure *c = what;
    const drawn_stretch *stretch = &c->w->p->stretch[c->stretch];
    scope s;
    (void)ctx;
    memset(&s, 0, sizeof s);
    s.inside = 1;
    for (int32_t k = 0; k < stretch->inputs; k++) keep(c->w, &s, stretch->in[k], &inputs[k]);
    for (int32_t k = 0; k < stretch->outputs; k++) s.at[stretch->out[k]] = outputs[k], s.given[stretch->out[k]] = 1;
    attn_status status = run_range(c->w, tape, &s, stretch->from, stretch->to, c->stretch + 1);
    for (int32_t k = 0; k < stretch->outputs; k++) outputs[k].id = s.at[stretch->out[k]].id;
    return status;
}

static attn_status checkpoint(const world *w, attn_tape *tape, scope *s, int32_t index)
{
    const drawn_stretch *stretch = &w->p->stretch[index];
    const closure c = {w, index, 0};
    attn__value in[ATTN__RECORD_INPUTS], made[ATTN__RECORD_OUTPUTS];
    attn_status status = ATTN_OK;
    for (int32_t k = 0; status == ATTN_OK && k < stretch->inputs; k++) status = find(w, tape, s, stretch->in[k], 1, &in[k]);
    for (int32_t k = 0; status == ATTN_OK && k < stretch->outputs; k++) status = place(w, tape, s, stretch->out[k], 1, &made[k]);
    if (status == ATTN_OK)
        status = attn__tape_checkpoint(w->ctx, tape, run_stretch, &c, sizeof c, stretch->inputs, in, stretch->outputs, made);
    for (int32_t k = 0; status == ATTN_OK && k < stretch->outputs; k++) keep(w, s, stretch->out[k], &made[k]);
    return status;
}

static attn_status run_range(const world *w, attn_tape *tape, scope *s, int32_t from, int32_t to, int32_t level)
{
    const drawn_program *p = w->p;
    attn_status status = ATTN_OK;
    for (int32_t i = from; status == ATTN_OK; i++) {
        for (int32_t v = 0; !s->inside && status == ATTN_OK && v < p->values; v++)
            if (w->watched[v] && p->value[v].when == i) status = attn_tape_watch(w->ctx, tape, w->tensor[v], w->gradient[v]);
        if (status != ATTN_OK || i == to) break;
        int32_t k = level;
        while (k < p->stretches && (p->stretch[k].from != i || p->stretch[k].to > to)) k++;
        status = k < p->stretches ? checkpoint(w, tape, s, k) : operate(w, tape, s, &p->operation[i]);
        if (k < p->stretches) i = p->stretch[k].to - 1;
    }
    return status;
}
#endif

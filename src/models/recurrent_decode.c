#include <string.h>
#include "recurrent_steps.h"

/* The decoder, one step after another: what a step needs of the one before is its state alone. */

/* Every layer's hidden state and cell, and the context vector, of the sequences that go on. data NULL: zeros. */
typedef struct state {
    attn__value *hidden, *cell; /* [writers] */
    attn__value context;
} state;

typedef struct run {
    const attn__call *call;
    const attn__recurrent_model *model;
    const attn__recurrent_inputs *in;
    attn__recurrent_steps steps;
    attn__value gates;                /* of the first layer by the rows alone, [rows, gates width] */
    state now;                        /* before the step */
    attn__row_part *hidden, *context; /* [steps]: of the last layer */
} run;

int64_t attn__recurrent_state_width(const attn__recurrent_model *m)
{
    int64_t columns = m->has_attention ? m->memory_width : 0;
    for (int64_t i = 0; i < m->writers_count; i++) columns += m->width * (attn__recurrent_has_cell(&m->writers[i].layer) ? 2 : 1);
    return columns;
}

static attn_status temporary(const run *r, int64_t rows, int64_t columns, attn__value *out)
{
    return attn__tape_temporary(r->call->ctx, r->call->tape, rows, columns, r->gates.at.dtype, out);
}

/* columns of the state matrix, in their order */
static attn_status split_state(run *r, const attn__value *from)
{
    const attn__recurrent_model *m = r->model;
    int64_t column = 0;
    attn_status status = ATTN_OK;
    memset(&r->now.context, 0, sizeof r->now.context);
    r->now.context.id = -1;
    for (int64_t i = 0; i < m->writers_count; i++) r->now.hidden[i] = r->now.cell[i] = r->now.context;
    if (from == NULL) return ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < m->writers_count; i++) {
        status = attn__tape_part(r->call->ctx, r->call->tape, from, column, m->width, &r->now.hidden[i]);
        column += m->width;
        if (status != ATTN_OK || !attn__recurrent_has_cell(&m->writers[i].layer)) continue;
        status = attn__tape_part(r->call->ctx, r->call->tape, from, column, m->width, &r->now.cell[i]);
        column += m->width;
    }
    if (status != ATTN_OK || !m->has_attention) return status;
    return attn__tape_part(r->call->ctx, r->call->tape, from, column, m->memory_width, &r->now.context);
}

/* of those that go on, where some have ended */
static attn_status go_on(const run *r, int64_t t, attn__value *v)
{
    const int64_t *first = r->steps.first, count = first[t + 1] - first[t];
    attn__value kept;
    if (v->at.data == NULL || v->at.rows == count) return ATTN_OK;
    attn_status status = temporary(r, count, v->at.width, &kept);
    if (status == ATTN_OK) status = attn__gather_rows(r->call->ctx, r->call->tape, v, r->steps.before + first[t], &kept);
    *v = kept;
    return status;
}

static const attn__value *given(const attn__value *v)
{
    return v->at.data != NULL ? v : NULL;
}

/* are the rows of the batch those of its only step, one by one? segments may lie in any order */
static int rows_in_order(const attn__recurrent_steps *steps)
{
    int64_t row = 0;
    if (steps->count > 1) return 0;
    while (row < steps->rows && steps->row[row] == row) row++;
    return row == steps->rows;
}

/* gates of the first layer: what the rows give and what the context vector does */
static attn_status first_gates(const run *r, int64_t t, attn__value *gates)
{
    const attn__call *call = r->call;
    const int64_t *first = r->steps.first, count = first[t + 1] - first[t];
    attn__value rows, added;
    *gates = r->gates;
    attn_status status = ATTN_OK;
    if (!rows_in_order(&r->steps)) {
        status = temporary(r, count, r->gates.at.width, gates);
        if (status == ATTN_OK) status = attn__gather_rows(call->ctx, call->tape, &r->gates, r->steps.row + first[t], gates);
    }
    if (status != ATTN_OK || given(&r->now.context) == NULL) return status;
    rows = *gates;
    status = temporary(r, count, rows.at.width, &added);
    if (status == ATTN_OK) status = temporary(r, count, rows.at.width, gates);
    if (status == ATTN_OK) status = attn__linear_run(call, &r->model->context, &r->now.context, &added);
    return status == ATTN_OK ? attn__add(call->ctx, call->tape, &rows, &added, gates) : status;
}

/* what goes up from one layer to the next */
static attn_status next_gates(const run *r, int64_t t, int64_t layer, const attn__value *below, attn__value *gates)
{
    const attn__call *call = r->call;
    const int64_t from = r->steps.first[t];
    const attn__places places = {r->steps.places.sequence + from, r->steps.places.position + from};
    attn__value x = *below;
    attn__dropout drop = attn__tape_dropout(call->tape, r->model->dropout, r->model->writers[layer - 1].site, places);
    attn_status status = ATTN_OK;
    if (drop.rate > 0) {
        status = temporary(r, below->at.rows, below->at.width, &x);
        if (status == ATTN_OK) status = attn__drop(call->ctx, call->tape, below, &drop, &x);
    }
    return status == ATTN_OK ? attn__recurrent_input(call, &r->model->writers[layer].layer, &x, gates) : status;
}

static attn_status run_layers(run *r, int64_t t)
{
    const int64_t *first = r->steps.first, count = first[t + 1] - first[t];
    const attn__segments one = {count, count, r->steps.one + first[t]};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < r->model->writers_count; i++) {
        const attn__recurrent_module *layer = &r->model->writers[i].layer;
        attn__value gates, hidden, cell, *h = &r->now.hidden[i], *c = &r->now.cell[i];
        status = i == 0 ? first_gates(r, t, &gates) : next_gates(r, t, i, &r->now.hidden[i - 1], &gates);
        if (status == ATTN_OK) status = temporary(r, count, layer->width, &hidden);
        if (status == ATTN_OK && attn__recurrent_has_cell(layer)) status = temporary(r, count, layer->width, &cell);
        if (status == ATTN_OK) status = attn__recurrent_run(r->call, layer, &gates, 0, one, given(h), given(c), &hidden, NULL, &cell);
        if (status != ATTN_OK) return status;
        *h = hidden;
        if (attn__recurrent_has_cell(layer)) *c = cell;
    }
    return status;
}

/* c_t from h_t and the encoder's rows */
static attn_status ask(run *r, int64_t t)
{
    const int64_t *first = r->steps.first, count = first[t + 1] - first[t];
    const attn__attention_inputs in = {.query = &r->now.hidden[r->model->writers_count - 1],
                                       .key = r->in->keys,
                                       .value = r->in->memory,
                                       .query_segments = {count, count, r->steps.one + first[t]},
                                       .key_segments = {count, r->in->memory->at.rows, r->steps.memory + first[t]}};
    attn_status status = temporary(r, count, r->model->memory_width, &r->now.context);
    return status == ATTN_OK ? attn__recurrent_attend(r->call, &r->model->attention, &in, &r->steps, t, &r->now.context) : status;
}

static attn_status put(attn_context *ctx, const attn__value *from, int64_t row, view to, int64_t *column)
{
    const view one = attn__view_rows(from->at, row, 1);
    view place = attn__view_columns(to, *column, from->at.width);
    *column += from->at.width;
    return attn__copy_view(ctx, &one, 0, &place);
}

/* the state of those that end with this step */
static attn_status leave_state(const run *r, int64_t t)
{
    const int64_t *first = r->steps.first;
    attn_status status = ATTN_OK;
    for (int64_t i = first[t]; status == ATTN_OK && i < first[t + 1]; i++) {
        const int64_t s = r->steps.segment[i], row = i - first[t];
        const view to = attn__view_rows(*r->in->after, s, 1);
        int64_t column = 0;
        if (r->in->stream->segments.at[s].length != t + 1) continue;
        for (int64_t l = 0; status == ATTN_OK && l < r->model->writers_count; l++) {
            status = put(r->call->ctx, &r->now.hidden[l], row, to, &column);
            if (status == ATTN_OK && attn__recurrent_has_cell(&r->model->writers[l].layer))
                status = put(r->call->ctx, &r->now.cell[l], row, to, &column);
        }
        if (status == ATTN_OK && r->model->has_attention) status = put(r->call->ctx, &r->now.context, row, to, &column);
    }
    return status;
}

static attn_status step(run *r, int64_t t)
{
    attn_status status = go_on(r, t, &r->now.context);
    for (int64_t i = 0; status == ATTN_OK && i < r->model->writers_count; i++) {
        status = go_on(r, t, &r->now.hidden[i]);
        if (status == ATTN_OK) status = go_on(r, t, &r->now.cell[i]);
    }
    if (status == ATTN_OK) status = run_layers(r, t);
    if (status == ATTN_OK && r->model->has_attention) status = ask(r, t);
    if (status == ATTN_OK && r->in->after != NULL) status = leave_state(r, t);
    const int64_t *row = r->steps.row + r->steps.first[t];
    r->hidden[t] = (attn__row_part){r->now.hidden[r->model->writers_count - 1], row};
    r->context[t] = (attn__row_part){r->now.context, row};
    return status;
}

/* tanh(W [h; c] + b) of all rows at once */
static attn_status read_out(const run *r, attn__value *hidden)
{
    const attn__recurrent_model *m = r->model;
    const attn__call *call = r->call;
    const attn__activation tanh_of = {.kind = ATTN_ACTIVATION_TANH};
    const int64_t rows = hidden->at.rows;
    attn__value both, part[2];
    const attn__value *parts[2] = {&part[0], &part[1]};
    attn_status status = temporary(r, rows, m->width, &part[0]);
    if (status == ATTN_OK) status = attn__join_rows(call->ctx, call->tape, r->steps.count, r->hidden, &part[0]);
    both = part[0];
    if (status == ATTN_OK && m->has_attention) {
        status = temporary(r, rows, m->memory_width, &part[1]);
        if (status == ATTN_OK) status = attn__join_rows(call->ctx, call->tape, r->steps.count, r->context, &part[1]);
        if (status == ATTN_OK) status = temporary(r, rows, m->readout.in, &both);
        if (status == ATTN_OK) status = attn__concatenate(call->ctx, call->tape, 2, parts, &both);
    }
    if (status != ATTN_OK) return status;
    attn__dropout drop = attn__tape_dropout(call->tape, m->dropout, m->readout_site, r->in->stream->places);
    return attn__linear_activate(call, &m->readout, &both, &tanh_of, &drop, hidden);
}

static attn_status run_steps(run *r, attn__value *hidden)
{
    attn_status status = split_state(r, r->in->state);
    for (int64_t t = 0; status == ATTN_OK && t < r->steps.count; t++) status = step(r, t);
    return status == ATTN_OK ? read_out(r, hidden) : status;
}

/* what the lists of the steps hold: two parts for each step, and the state's values */
static void share_lists(run *r)
{
    r->hidden = r->steps.lists.at;
    r->context = r->hidden + r->steps.count;
    r->now.hidden = (attn__value *)(r->context + r->steps.count);
    r->now.cell = r->now.hidden + r->model->writers_count;
}

attn_status attn__recurrent_decode(const attn__call *call, const attn__recurrent_model *m, const attn__value *x,
                                   const attn__recurrent_inputs *in, attn__value *hidden)
{
    const attn__segments none = {0, 0, NULL};
    run r = {.call = call, .model = m, .in = in};
    attn_status status = attn__recurrent_input(call, &m->writers[0].layer, x, &r.gates);
    if (status != ATTN_OK) return status;
    status = attn__recurrent_steps_open(call, in->stream->segments, m->has_attention ? in->memory_segments : none,
                                        2 * (int64_t)sizeof(attn__row_part), 2 * m->writers_count * (int64_t)sizeof(attn__value), &r.steps);
    if (status == ATTN_OK) {
        share_lists(&r);
        status = run_steps(&r, hidden);
    }
    attn__lists_close(call->ctx, &r.steps.lists);
    return status;
}

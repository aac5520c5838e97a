#include <attn/recurrent.h>
#include "../core/options.h"
#include "arguments.h"

typedef struct recurrent_saved {
    attn__recurrent_settings settings;
    void *gates, *cells;        /* LSTM: [rows, 4 width], [rows, width] */
    int32_t hidden_at, cell_at; /* which outputs the final states are; -1: not wanted */
} recurrent_saved;

static const attn__recurrent_arguments none;

static attn__recurrent_arguments arguments_of(const attn__value *x, const attn__value *weight, const attn__value *hidden,
                                              const attn__value *cell, const attn__value *output, const recurrent_saved *saved)
{
    attn__recurrent_arguments a = none;
    a.x = x->at;
    a.weight = weight->at;
    a.output = output->at;
    if (hidden != NULL) a.hidden = hidden->at;
    if (cell != NULL) a.cell = cell->at;
    a.gates = saved->gates;
    a.cells = saved->cells;
    a.kind = saved->settings.kind;
    a.reverse = saved->settings.reverse;
    a.segments = saved->settings.segments;
    return a;
}

static attn_status arrived_at(attn_context *ctx, attn_tape *tape, const attn__record *record, int32_t at, view *out)
{
    return at >= 0 ? attn__tape_arrived(ctx, tape, &record->output[at], out, NULL) : ATTN_OK;
}

static attn_status wanted(attn_context *ctx, attn_tape *tape, const attn__value *input, view *out, int32_t *add)
{
    int adds = 0;
    attn_status status = attn__tape_wanted(ctx, tape, input, out, &adds);
    *add = adds;
    return status;
}

/* the order of what is asked for is that in which the kernel writes: inputs may be one tensor */
static attn_status recurrent_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const recurrent_saved *saved = record->saved;
    const attn__value *in = record->input;
    const attn__kernels *k;
    attn__recurrent_arguments a = arguments_of(&in[0], &in[1], &in[2], &in[3], &record->output[0], saved);
    attn_status status = attn__kernels_for(ctx, in[0].at.dtype, &k);
    if (status == ATTN_OK) status = arrived_at(ctx, tape, record, 0, &a.d_output);
    if (status == ATTN_OK) status = arrived_at(ctx, tape, record, saved->hidden_at, &a.d_final_hidden);
    if (status == ATTN_OK) status = arrived_at(ctx, tape, record, saved->cell_at, &a.d_final_cell);
    if (status == ATTN_OK) status = wanted(ctx, tape, &in[0], &a.d_x, &a.add_x);
    if (status == ATTN_OK) status = wanted(ctx, tape, &in[2], &a.d_hidden, &a.add_hidden);
    if (status == ATTN_OK) status = wanted(ctx, tape, &in[3], &a.d_cell, &a.add_cell);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, &in[1], &a.d_weight);
    return status == ATTN_OK ? k->recurrent_back(ctx, &a) : status;
}

/* what the backward of an LSTM reads: the gates and the cell of every row */
static attn_status keep(attn_context *ctx, attn_tape *tape, const view *x, const view *output, recurrent_saved *saved)
{
    int64_t gates, cells, each = attn__dtype_bytes(x->dtype);
    if (attn__multiply(x->rows, x->width, &gates) || attn__multiply(gates, each, &gates))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "recurrent layer");
    cells = output->rows * output->width * each; /* no more than the gates */
    attn_status status = attn__tape_memory(ctx, tape, gates, &saved->gates);
    return status == ATTN_OK ? attn__tape_memory(ctx, tape, cells, &saved->cells) : status;
}

attn_status attn__recurrent(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, const attn__value *hidden,
                            const attn__value *cell, const attn__recurrent_settings *settings, attn__value *output,
                            attn__value *final_hidden, attn__value *final_cell)
{
    const attn__value *inputs[] = {x, weight, hidden, cell};
    attn__value *outputs[3] = {output};
    int32_t count = 1;
    recurrent_saved saved = {*settings, NULL, NULL, -1, -1};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK && settings->kind == ATTN_RECURRENT_LSTM && attn__tape_keeps(tape, 4, inputs))
        status = keep(ctx, tape, &x->at, &output->at, &saved);
    if (status != ATTN_OK) return status;
    attn__recurrent_arguments a = arguments_of(x, weight, hidden, cell, output, &saved);
    if (final_hidden != NULL) {
        a.final_hidden = final_hidden->at;
        saved.hidden_at = count;
        outputs[count++] = final_hidden;
    }
    if (final_cell != NULL) {
        a.final_cell = final_cell->at;
        saved.cell_at = count;
        outputs[count++] = final_cell;
    }
    status = k->recurrent(ctx, &a);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, recurrent_back, 4, inputs, count, outputs, sizeof saved, &record);
    if (status == ATTN_OK && record != NULL) *(recurrent_saved *)record->saved = saved;
    return status;
}

static const attn_recurrent_options defaults = {.struct_size = sizeof(attn_recurrent_options), .kind = ATTN_RECURRENT_LSTM};

static const attn__field fields[] = {ATTN__INT32(attn_recurrent_options, kind, ATTN_RECURRENT_TANH, ATTN_RECURRENT_LSTM),
                                     ATTN__INT32(attn_recurrent_options, reverse, 0, 1)};

attn_status attn_recurrent_options_init(attn_recurrent_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

typedef struct recurrent_tensors {
    const attn_tensor *x, *weight, *hidden, *cell;
    const attn_layout *layout;
    const attn_recurrent_options *options;
    attn_tensor *output, *final_hidden, *final_cell;
} recurrent_tensors;

/* inputs and outputs in the order of `recurrent_tensors`; NULL: absent */
typedef struct recurrent_values {
    attn__value at[7];
    const attn__value *input[4];
    attn__value *output[3];
} recurrent_values;

/* a state that stands before the first step, or NULL */
static attn_status read_state(attn_context *ctx, attn_tape *tape, const char *name, const attn_tensor *tensor, int64_t segments,
                              const view *output, attn__value *value, const attn__value **out)
{
    *out = NULL;
    if (tensor == NULL) return ATTN_OK;
    attn_status status = attn__argument_matrix(ctx, tape, name, tensor, output->dtype, value);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, name, &value->at, segments, 1, output->width);
    *out = value;
    return status;
}

/* a final state, or NULL; apart from what was read and from the outputs before it */
static attn_status read_final(attn_context *ctx, attn_tape *tape, const char *name, attn_tensor *tensor, int64_t segments, const view *like,
                              int32_t before, recurrent_values *v)
{
    static const char *const names[] = {"output", "final_hidden"};
    attn__value *value = &v->at[4 + before];
    if (tensor == NULL) return ATTN_OK;
    attn_status status = attn__expect(ctx, name, tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status == ATTN_OK && tensor->rank != 2)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got rank %d, expected 2 ([segments, width])", name, tensor->rank);
    view at;
    if (status == ATTN_OK) status = attn__rows(ctx, name, tensor, like->dtype, &at);
    for (int32_t i = 0; status == ATTN_OK && i < before; i++)
        if (v->output[i] != NULL) status = attn__expect_apart(ctx, name, &at, names[i], &v->output[i]->at);
    if (status == ATTN_OK) status = attn__argument_output(ctx, tape, name, tensor, like->dtype, segments, like->width, 4, v->input, value);
    v->output[before] = value;
    return status;
}

static attn_status read_values(attn_context *ctx, attn_tape *tape, const recurrent_tensors *in, const attn_recurrent_options *o,
                               attn__segments *segments, recurrent_values *v)
{
    const int64_t gates = attn__recurrent_gates(o->kind);
    view like;
    int64_t wide;
    attn_status status = attn__argument_input(ctx, tape, "x", in->x, 0, &v->at[0]);
    if (status == ATTN_OK) status = attn__argument_matrix(ctx, tape, "weight", in->weight, v->at[0].at.dtype, &v->at[1]);
    if (status != ATTN_OK) return status;
    like = v->at[1].at; /* width of the states */
    if (attn__multiply(gates, like.width, &wide)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "recurrent layer");
    status = attn__expect_shape(ctx, "weight", &v->at[1].at, wide, 1, like.width);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "x", &v->at[0].at, -1, 1, wide);
    if (status == ATTN_OK) status = attn__layout_tiling(ctx, "layout", in->layout, v->at[0].at.rows, segments);
    if (status == ATTN_OK && tape != NULL) status = attn__segments_copy(ctx, attn__tape_records(ctx, tape), *segments, segments);
    v->input[0] = &v->at[0];
    v->input[1] = &v->at[1];
    if (status == ATTN_OK) status = read_state(ctx, tape, "hidden", in->hidden, segments->count, &like, &v->at[2], &v->input[2]);
    if (status == ATTN_OK) status = read_state(ctx, tape, "cell", in->cell, segments->count, &like, &v->at[3], &v->input[3]);
    if (status == ATTN_OK)
        status = attn__argument_output(ctx, tape, "output", in->output, like.dtype, v->at[0].at.rows, like.width, 4, v->input, &v->at[4]);
    v->output[0] = &v->at[4];
    if (status == ATTN_OK) status = read_final(ctx, tape, "final_hidden", in->final_hidden, segments->count, &like, 1, v);
    return status == ATTN_OK ? read_final(ctx, tape, "final_cell", in->final_cell, segments->count, &like, 2, v) : status;
}

static attn_status read_options(attn_context *ctx, const recurrent_tensors *in, attn_recurrent_options *o)
{
    attn_status status = attn__options_read(ctx, "options", in->options, &defaults, sizeof defaults, sizeof defaults, o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", o, fields);
    if (status == ATTN_OK && o->kind == ATTN_RECURRENT_TANH && (in->cell != NULL || in->final_cell != NULL))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got a tensor, expected NULL with options.kind ATTN_RECURRENT_TANH",
                            in->cell != NULL ? "cell" : "final_cell");
    return status;
}

static attn_status recurrent(attn_context *ctx, attn_tape *tape, const recurrent_tensors *in)
{
    attn_recurrent_options o;
    recurrent_values v = {.input = {NULL}};
    attn__segments segments;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = read_options(ctx, in, &o);
    if (status == ATTN_OK) status = read_values(ctx, tape, in, &o, &segments, &v);
    if (status != ATTN_OK) return status;
    const attn__recurrent_settings settings = {o.kind, o.reverse, segments};
    return attn__recurrent(ctx, tape, v.input[0], v.input[1], v.input[2], v.input[3], &settings, v.output[0], v.output[1], v.output[2]);
}

attn_status attn_recurrent(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, const attn_layout *layout,
                           const attn_recurrent_options *options, const attn_tensor *hidden, const attn_tensor *cell, attn_tensor *output,
                           attn_tensor *final_hidden, attn_tensor *final_cell)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const recurrent_tensors in = {x, weight, hidden, cell, layout, options, output, final_hidden, final_cell};
    return attn__leave(ctx, recurrent(ctx, tape, &in));
}

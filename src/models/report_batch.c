#include <string.h>
#include "../tensor/layout.h"
#include "report.h"

enum { PART = 16384 }; /* numbers of a flat buffer that the optimizer's sums take at once */

void attn__grow(int64_t *total, int64_t a, int64_t b, int64_t c)
{
    int64_t part = 0;
    if (attn__multiply(a, b, &part) || attn__multiply(part, c, &part) || attn__sum(*total, part, total)) *total = INT64_MAX;
}

int64_t attn__longest(attn__segments segments)
{
    int64_t most = 0;
    for (int64_t i = 0; i < segments.count; i++)
        if (segments.at[i].length > most) most = segments.at[i].length;
    return most;
}

static int64_t form_room(const attn__kernels *kernels, const attn_attention_options *o)
{
    const int random = o->form == ATTN_FORM_PERFORMER;
    return kernels->linear_room(o->key_heads, random ? o->key_head_size : 0, random ? o->features : o->key_head_size, o->value_head_size);
}

static int64_t stack_room(const attn__kernels *kernels, const attn__stack *stack, int64_t longest)
{
    const attn__layer *l = &stack->layers[0];
    const attn_attention_options *self = &l->self.options, *cross = l->has_cross ? &l->cross.options : self;
    const int linear = self->form == ATTN_FORM_LINEAR || self->form == ATTN_FORM_PERFORMER;
    const int64_t form = linear ? form_room(kernels, self) : 0;
    if (linear && !l->has_cross) return form;
    if (linear) self = cross;
    if (self->form == ATTN_FORM_LINFORMER && self->projected > longest) longest = self->projected;
    const int64_t sizes[4] = {self->head_size, self->value_head_size, cross->head_size, cross->value_head_size};
    int64_t size = 0;
    for (int i = 0; i < 4; i++)
        if (sizes[i] > size) size = sizes[i];
    int64_t terms = self->positions == ATTN_POSITIONS_RELATIVE ? 2 * self->position_reach + 1
                    : self->positions >= ATTN_POSITIONS_T5     ? 0
                                                               : -1;
    const int64_t room = kernels->attention_room(longest, size, terms, 0);
    return room > form ? room : form;
}

int64_t attn__worker_room(attn_context *ctx, const attn__transformer_plan *plan, int64_t longest)
{
    const attn__kernels *kernels;
    int64_t encoder = 0, decoder = 0;
    if (longest < 1 || attn__kernels_for(ctx, plan->options.dtype, &kernels) != ATTN_OK) return 0; /* no kernels, nothing to run */
    if (plan->recurrent != NULL) {
        const attn_attention_options *o = &plan->recurrent->attention.options;
        return plan->recurrent->has_attention
                   ? kernels->attention_room(longest, o->key_head_size > o->value_head_size ? o->key_head_size : o->value_head_size, -1,
                                             o->score == ATTN_SCORE_ADDITIVE)
                   : 0;
    }
    if (plan->has_encoder) encoder = stack_room(kernels, &plan->encoder, longest);
    if (plan->has_decoder) decoder = stack_room(kernels, &plan->decoder, longest);
    return encoder > decoder ? encoder : decoder;
}

/* tokens that are not there, in the segments of a layout: a batch as it is checked, and with a tape the piece of it that is run */
static attn_status open_side(const attn__call *call, attn__segments segments, view *tokens, attn__stream *stream)
{
    attn_context *ctx = call->ctx;
    attn_status status = ATTN_OK;
    *tokens = (view){(void *)(uintptr_t)64, segments.rows, 1, 1, 1, 0, ATTN_INT32, 0};
    for (int i = 0; status == ATTN_OK && i <= (call->tape != NULL); i++) {
        attn__arena *arena = i == 0 ? ctx->scratch : attn__tape_records(ctx, call->tape);
        status = attn__segments_copy(ctx, arena, segments, &stream->segments);
        if (status == ATTN_OK) status = attn__places_expand(ctx, arena, stream->segments, segments.rows, &stream->places);
    }
    return status;
}

/* without a tape what comes out is the caller's tensor */
static attn_status infer(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *views)
{
    attn__value hidden, output = {.id = -1};
    int64_t width = attn__transformer_output_width(plan);
    output.at = (view){(void *)(uintptr_t)64, views->rows, 1, width, width, 0, plan->options.dtype, 0};
    if (!plan->has_output) return attn__transformer_hidden(call, plan, views, &output);
    attn_status status = attn__tape_temporary(call->ctx, NULL, views->rows, plan->output.in, plan->options.dtype, &hidden);
    if (status == ATTN_OK) status = attn__transformer_hidden(call, plan, views, &hidden);
    return status == ATTN_OK ? attn__transformer_logits(call, plan, &hidden, &output) : status;
}

/* what a trainer runs; a model without an output head has no loss, and its last rows stand for it */
static attn_status train(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *views, attn__value *out)
{
    attn_cross_entropy_options o;
    attn__loss_sums sums;
    attn_cross_entropy_options_init(&o, sizeof o);
    int64_t width = plan->has_output ? 1 : attn__transformer_output_width(plan), rows = plan->has_output ? 1 : views->rows;
    attn_status status = attn__tape_temporary(call->ctx, call->tape, rows, width, plan->options.dtype, out);
    if (status != ATTN_OK) return status;
    return plan->has_output ? attn__transformer_loss_run(call, plan, views, &o, out, &sums)
                            : attn__transformer_hidden(call, plan, views, out);
}

static int64_t live_bytes(const attn__dry *dry)
{
    int64_t live, peak, allocations;
    attn__memory_read(dry->ctx->memory, &live, &peak, &allocations);
    return live;
}

static attn_status backward(attn__dry *dry, const attn__value *loss, attn__reading *r)
{
    attn_gradients *gradients = NULL;
    const view ones = {0};
    int64_t before = live_bytes(dry);
    attn_status status = attn_gradients_create(dry->ctx, dry->model->parameters, &gradients);
    r->handles += live_bytes(dry) - before;
    if (status == ATTN_OK) status = attn__tape_run(dry->ctx, dry->tape, 1, loss, &ones, 1, &gradients);
    attn_gradients_free(gradients);
    return status;
}

static attn_status run(attn__dry *dry, int training, attn__segments source, attn__segments target, attn__reading *r)
{
    const attn__transformer_plan *plan = attn__transformer_plan_of(dry->model);
    const attn__call call = {dry->ctx, training ? dry->tape : NULL, dry->model->parameters};
    const attn__counts before = dry->ctx->counts;
    attn_tape_options options;
    attn__batch_views views;
    attn__value out;
    memset(&views, 0, sizeof views);
    attn_tape_options_init(&options, sizeof options);
    options.training = 1;
    attn_status status = training ? attn_tape_begin(dry->ctx, dry->tape, &options) : ATTN_OK;
    if (status == ATTN_OK && plan->has_encoder) status = open_side(&call, source, &views.source, &views.source_stream);
    if (status == ATTN_OK && plan->has_decoder) status = open_side(&call, target, &views.target, &views.target_stream);
    views.rows = plan->has_decoder ? views.target.rows : views.source.rows;
    views.labels = plan->has_decoder ? views.target : views.source;
    if (status == ATTN_OK) status = training ? train(&call, plan, &views, &out) : infer(&call, plan, &views);
    r->forward = dry->ctx->counts.multiply_adds - before.multiply_adds;
    if (status == ATTN_OK && training) status = backward(dry, &out, r);
    r->backward = dry->ctx->counts.multiply_adds - before.multiply_adds - r->forward;
    r->bytes = dry->ctx->counts.bytes - before.bytes;
    return status;
}

attn_status attn__read_batch(attn_context *ctx, attn__dry *dry, int training, attn__segments source, attn__segments target,
                             attn__reading *r)
{
    int64_t update = 0, longest = attn__longest(source), other = attn__longest(target);
    r->handles = live_bytes(dry);
    attn__grow(&r->handles, dry->model->parameters->constant_bytes, 1, 1);
    attn_status status = run(dry, training, source, target, r);
    r->need = (attn__need){.tape = attn__tape_needed(dry->tape), .scratch = attn__arena_peak(dry->ctx->scratch)};
    attn__grow(&r->need.scratch, ATTN__NO_LAYOUT, 1, 1);
    r->need.worker = attn__worker_room(ctx, attn__transformer_plan_of(dry->model), longest > other ? longest : other);
    if (training) attn__grow(&update, dry->model->parameters->flat_elements / PART + 9, (int64_t)sizeof(double), 1);
    if (update > r->need.scratch) r->need.scratch = update;
    return status;
}

static int64_t sequences_of(int64_t rows, int64_t longest)
{
    return rows / longest + (rows % longest != 0);
}

/* stairs: of all lengths, from the longest down */
static int64_t length_at(int64_t i, int64_t count, int64_t rows, int64_t longest, int stairs)
{
    if (stairs) return longest - (int64_t)((double)longest * (double)i / (double)count);
    return i + 1 < count || rows % longest == 0 ? longest : rows % longest;
}

static attn_status rows_layout(attn__dry *dry, int64_t rows, int64_t longest, int stairs, attn_layout **out)
{
    void *lengths = NULL;
    *out = NULL;
    if (rows < 0 || longest < 1 || rows / longest > INT32_MAX)
        return attn__fail(dry->ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "rows, longest: got %lld and %lld, expected rows of at least 0 in sequences of at least 1", (long long)rows,
                          (long long)longest);
    const int64_t count = sequences_of(rows, stairs ? (longest + 1) / 2 : longest), bytes = count * (int64_t)sizeof(int64_t);
    attn_status status = attn_layout_create(dry->ctx, count, out);
    if (status != ATTN_OK) return status;
    status = attn__allocate(dry->ctx->memory, bytes, &lengths);
    if (status != ATTN_OK) return attn__fail_memory(dry->ctx, status, "lengths of sequences");
    for (int64_t i = 0; i < count; i++) ((int64_t *)lengths)[i] = length_at(i, count, rows, longest, stairs);
    status = attn_layout_set_lengths(dry->ctx, *out, count, lengths, 0);
    attn__deallocate(dry->ctx->memory, lengths, bytes);
    return status;
}

attn_status attn__rows_layout(attn__dry *dry, int64_t rows, int64_t longest, attn_layout **out)
{
    return rows_layout(dry, rows, longest, 0, out);
}

/* fewer: rows that the target has less than the source */
static attn_status need_of(attn_context *ctx, const attn__transformer_plan *plan, int64_t rows, int64_t fewer, int64_t longest, int stairs,
                           attn__need *out)
{
    const attn__segments none = {0, 0, NULL};
    attn__dry dry;
    attn__reading reading = {0};
    attn_layout *source = NULL, *target = NULL;
    *out = reading.need;
    attn_status status = attn__dry_open(ctx, &plan->options, plan->heads, &dry);
    if (status != ATTN_OK) return status;
    status = attn__dry_masks(&dry, plan);
    if (status == ATTN_OK) status = rows_layout(&dry, rows, longest, stairs, &source);
    if (status == ATTN_OK) status = rows_layout(&dry, rows - fewer, longest, stairs, &target);
    if (status == ATTN_OK)
        status = attn__read_batch(ctx, &dry, 1, plan->has_encoder ? attn__layout_segments(source) : none,
                                  plan->has_decoder ? attn__layout_segments(target) : none, &reading);
    attn_layout_free(source);
    attn_layout_free(target);
    if (status != ATTN_OK) return attn__dry_fail(ctx, &dry, status);
    attn__dry_close(&dry);
    *out = reading.need;
    return ATTN_OK;
}

/* The same rows in `more` sequences more: few and many are those of SAMPLE rows in `apart` fewer and in one each. LESS rows are less memory
   in any column. */
enum { SAMPLE = 64, LESS = 16, ALIGNED = 64 };
static void stretch_bytes(int64_t *need, int64_t few, int64_t many, int64_t apart, int64_t more)
{
    if (many > few) attn__grow(need, more, (many - few) / apart + ALIGNED, 1);
}

static void at_least(int64_t *need, int64_t other)
{
    if (other > *need) *need = other;
}

/* Steps of a recurrent decoder have the fewer rows the later they are, and backward finds no room for more of them in what fewer had: as many
   layouts of stairs as the longest has halves. */
static attn_status any_stairs(attn_context *ctx, const attn__transformer_plan *plan, int64_t rows, int64_t longest, attn__need *need)
{
    attn__need other;
    attn_status status = ATTN_OK;
    if (plan->recurrent == NULL || !plan->has_decoder || rows == 0) return ATTN_OK;
    for (int64_t most = longest; status == ATTN_OK && most > 1; most /= 2) {
        status = need_of(ctx, plan, rows, 0, most, 1, &other);
        at_least(&need->tape.values, other.tape.values);
        at_least(&need->tape.records, other.tape.records);
        at_least(&need->tape.gradients, other.tape.gradients);
        at_least(&need->tape.lists, other.tape.lists);
        at_least(&need->scratch, other.scratch);
        for (int i = 0; i < ATTN__TAPE_LISTS; i++)
            if (other.tape.entries[i] > need->tape.entries[i]) need->tape.entries[i] = other.tape.entries[i];
    }
    return status;
}

attn_status attn__any_layout(attn_context *ctx, const attn__transformer_plan *plan, int64_t rows, int64_t longest, attn__need *need)
{
    const int64_t more = rows - sequences_of(rows, longest), sampled = longest < SAMPLE ? longest : SAMPLE,
                  apart = SAMPLE - sequences_of(SAMPLE, sampled);
    attn__need few, many;
    attn_status status = any_stairs(ctx, plan, rows, longest, need);
    /* a gradient of the decoder's rows, once it is done with, has no room for one of the encoder's if those are more */
    if (status == ATTN_OK && plan->has_encoder && plan->has_decoder && rows > 0) {
        status = need_of(ctx, plan, rows + LESS, LESS, longest, 0, &few);
        at_least(&need->tape.gradients, few.tape.gradients);
    }
    /* the first gradient that is large enough is taken: what lies between those layouts may find an eighth less */
    if (plan->has_decoder && (plan->has_encoder || plan->recurrent != NULL))
        attn__grow(&need->tape.gradients, need->tape.gradients / 8, 1, 1);
    if (more == 0 || status != ATTN_OK) return status;
    status = need_of(ctx, plan, SAMPLE, 0, sampled, 0, &few);
    if (status == ATTN_OK) status = need_of(ctx, plan, SAMPLE, 0, 1, 0, &many);
    if (status != ATTN_OK) return status;
    stretch_bytes(&need->tape.values, few.tape.values, many.tape.values, apart, more);
    stretch_bytes(&need->tape.records, few.tape.records, many.tape.records, apart, more);
    stretch_bytes(&need->tape.gradients, few.tape.gradients, many.tape.gradients, apart, more);
    stretch_bytes(&need->tape.lists, few.tape.lists, many.tape.lists, apart, more);
    stretch_bytes(&need->scratch, few.scratch, many.scratch, apart, more);
    return ATTN_OK;
}

attn_status attn__training_need(attn_context *ctx, const attn__transformer_plan *plan, int64_t rows, int64_t longest, attn__need *out)
{
    attn_status status = need_of(ctx, plan, rows, 0, longest, 0, out);
    return status == ATTN_OK ? attn__any_layout(ctx, plan, rows, longest, out) : status;
}

#include <string.h>
#include "transformer.h"

/* of all rows; -1: none */
static int64_t last_position(attn__segments segments)
{
    int64_t last = -1;
    for (int64_t i = 0; i < segments.count; i++) {
        int64_t end = segments.at[i].first_position + segments.at[i].length - 1;
        if (segments.at[i].length > 0 && end > last) last = end;
    }
    return last;
}

static attn_status check_positions(const attn__call *call, const attn__embedding_module *e, const char *layout, const attn__stream *stream)
{
    if (e->positions < 0) return ATTN_OK;
    int64_t last = last_position(stream->segments), positions = call->parameters->at[e->positions].shape[0];
    if (last < positions) return ATTN_OK;
    return attn__fail(call->ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got position %lld, expected at most %lld, the last one of the model",
                      layout, (long long)last, (long long)positions - 1);
}

attn_status attn__transformer_positions(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *b)
{
    attn_status status = plan->has_encoder ? check_positions(call, &plan->source, "source_layout", &b->source_stream) : ATTN_OK;
    if (status != ATTN_OK || !plan->has_decoder) return status;
    return check_positions(call, &plan->target, "target_layout", &b->target_stream);
}

static attn_status take_tokens(const attn__call *call, const attn__embedding_module *e, const char *name, const attn_tensor *tensor,
                               const attn_layout *layout, view *tokens, attn__stream *stream)
{
    char layout_name[32];
    attn_status status = attn__rows(call->ctx, name, tensor, -1, tokens);
    if (status != ATTN_OK) return status;
    if (attn_tensor_rank(tensor) == 1) { /* [rows], read as one column */
        tokens->rows = tokens->width;
        tokens->width = 1;
        tokens->row_stride = 1;
    }
    status = attn__expect_shape(call->ctx, name, tokens, -1, 1, 1);
    strcpy(layout_name, name);
    strcat(layout_name, "_layout");
    if (status == ATTN_OK) status = attn__expect_indices(call->ctx, name, tokens, call->parameters->at[e->table].shape[0]);
    return status == ATTN_OK ? attn__stream_open(call, layout_name, layout, tokens->rows, stream) : status;
}

attn_status attn__transformer_batch(const attn__call *call, const attn__transformer_plan *plan, const attn_batch *batch, int need_labels,
                                    attn__batch_views *out)
{
    static const attn_batch none = {.struct_size = sizeof none};
    attn_context *ctx = call->ctx;
    attn_batch b;
    memset(out, 0, sizeof *out);
    if (batch == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "batch: got NULL, expected an attn_batch");
    attn_status status = attn__options_read(ctx, "batch", batch, &none, sizeof b, sizeof b, &b);
    if (status == ATTN_OK && plan->has_encoder)
        status = take_tokens(call, &plan->source, "source", b.source, b.source_layout, &out->source, &out->source_stream);
    if (status == ATTN_OK && plan->has_decoder)
        status = take_tokens(call, &plan->target, "target", b.target, b.target_layout, &out->target, &out->target_stream);
    if (status != ATTN_OK) return status;
    if (plan->has_encoder && plan->has_decoder && out->source_stream.segments.count != out->target_stream.segments.count)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "target_layout: got %lld segments, expected %lld as in source_layout",
                          (long long)out->target_stream.segments.count, (long long)out->source_stream.segments.count);
    out->rows = plan->has_decoder ? out->target.rows : out->source.rows;
    if (!need_labels) return ATTN_OK;
    if (!plan->has_output)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "model: got one without an output head, expected one that has a loss");
    status = attn__rows(ctx, "labels", b.labels, -1, &out->labels);
    if (status != ATTN_OK) return status;
    if (attn_tensor_rank(b.labels) == 1) {
        out->labels.rows = out->labels.width;
        out->labels.width = 1;
        out->labels.row_stride = 1;
    }
    return attn__expect_shape(ctx, "labels", &out->labels, out->rows, 1, 1);
}

attn_status attn__transformer_encode(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                     attn__value *memory, attn__value *state)
{
    attn__value x;
    const attn__layer_inputs in = {.stream = batch->source_stream, .key_segments = batch->source_stream.segments};
    attn_status status =
        plan->recurrent == NULL ? attn__stack_check_masks(call->ctx, &plan->encoder, NULL, in.key_segments, in.key_segments) : ATTN_OK;
    if (status == ATTN_OK)
        status = attn__tape_temporary(call->ctx, call->tape, batch->source.rows, plan->options.width, plan->options.dtype, &x);
    if (status == ATTN_OK) status = attn__embedding_run(call, &plan->source, &batch->source, batch->source_stream.places, &x);
    if (status == ATTN_OK && plan->recurrent != NULL)
        return attn__recurrent_encode(call, plan->recurrent, &x, &batch->source_stream, memory, state);
    return status == ATTN_OK ? attn__stack_run(call, &plan->encoder, &x, &in, memory) : status;
}

static attn_status decode(const attn__call *call, const attn__transformer_plan *plan, const view *tokens, const attn__layer_inputs *in,
                          attn__value *hidden)
{
    attn__value x;
    attn_status status = attn__stack_check_masks(call->ctx, &plan->decoder, NULL, in->stream.segments, in->key_segments);
    if (status == ATTN_OK)
        status = attn__tape_temporary(call->ctx, call->tape, tokens->rows, plan->options.decoder_width, plan->options.dtype, &x);
    if (status == ATTN_OK) status = attn__embedding_run(call, &plan->target, tokens, in->stream.places, &x);
    return status == ATTN_OK ? attn__stack_run(call, &plan->decoder, &x, in, hidden) : status;
}

attn_status attn__transformer_decode(const attn__call *call, const attn__transformer_plan *plan, const view *tokens,
                                     const attn__stream *stream, attn__segments key_segments, attn__segments memory_segments,
                                     attn__layer_cache *caches, const int64_t *slot, attn__value *hidden)
{
    const attn__layer_inputs in = {
        .stream = *stream, .key_segments = key_segments, .memory_segments = memory_segments, .cache = caches, .slot = slot};
    return decode(call, plan, tokens, &in, hidden);
}

attn_status attn__transformer_hidden(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                     attn__value *hidden)
{
    if (!plan->has_decoder) return attn__transformer_encode(call, plan, batch, hidden, NULL);
    if (plan->recurrent != NULL) return attn__transformer_recurrent(call, plan, batch, hidden);
    attn__layer_inputs in = {.stream = batch->target_stream, .key_segments = batch->target_stream.segments};
    attn__value memory;
    if (plan->has_encoder) {
        attn_status status =
            attn__tape_temporary(call->ctx, call->tape, batch->source.rows, plan->options.width, plan->options.dtype, &memory);
        if (status == ATTN_OK) status = attn__transformer_encode(call, plan, batch, &memory, NULL);
        if (status != ATTN_OK) return status;
        in.memory = &memory;
        in.memory_segments = batch->source_stream.segments;
    }
    return decode(call, plan, &batch->target, &in, hidden);
}

attn_status attn__transformer_logits(const attn__call *call, const attn__transformer_plan *plan, const attn__value *hidden,
                                     attn__value *logits)
{
    return attn__linear_run(call, &plan->output, hidden, logits);
}

static attn_status hidden_and_logits(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                     attn__value *output)
{
    attn__value hidden;
    if (!plan->has_output) return attn__transformer_hidden(call, plan, batch, output);
    attn_status status = attn__tape_temporary(call->ctx, call->tape, batch->rows, plan->output.in, plan->options.dtype, &hidden);
    if (status == ATTN_OK) status = attn__transformer_hidden(call, plan, batch, &hidden);
    return status == ATTN_OK ? attn__transformer_logits(call, plan, &hidden, output) : status;
}

attn_status attn__transformer_loss_run(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *batch,
                                       const attn_cross_entropy_options *o, attn__value *loss, attn__loss_sums *sums)
{
    attn__value logits;
    attn_status status = attn__tape_temporary(call->ctx, call->tape, batch->rows, plan->output.out, plan->options.dtype, &logits);
    if (status == ATTN_OK) status = hidden_and_logits(call, plan, batch, &logits);
    if (status != ATTN_OK) return status;
    return attn__cross_entropy(call->ctx, call->tape, &logits, &batch->labels, o->label_smoothing, o->smoothing_form, o->ignored_label,
                               o->mean, loss, sums);
}

static attn_status check_model(attn_context *ctx, const attn_transformer *model, attn_tape *tape)
{
    attn_status status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    return status == ATTN_OK ? attn__tape_check(ctx, tape) : status;
}

/* a tensor that is written: apart from tokens, labels and parameters */
static attn_status take_output(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *b, const char *name,
                               attn_tensor *tensor, int64_t rows, int64_t width, attn__value *out)
{
    const struct {
        const char *name;
        const view *at;
    } reads[3] = {{"source", &b->source}, {"target", &b->target}, {"labels", &b->labels}};
    view at;
    attn_status status = attn__rows(call->ctx, name, tensor, plan->options.dtype, &at);
    if (status == ATTN_OK) status = attn__expect_shape(call->ctx, name, &at, rows, 1, width);
    for (int i = 0; status == ATTN_OK && i < 3; i++) status = attn__expect_apart(call->ctx, name, &at, reads[i].name, reads[i].at);
    if (status == ATTN_OK) status = attn__output_apart(call, name, &at);
    return status == ATTN_OK ? attn__tape_output(call->ctx, call->tape, name, tensor, &at, out) : status;
}

static attn_status forward(const attn__call *call, const attn__transformer_plan *plan, const attn_batch *batch, attn_tensor *output)
{
    attn__batch_views views;
    attn__value y;
    attn_status status = attn__transformer_batch(call, plan, batch, 0, &views);
    if (status == ATTN_OK) status = attn__transformer_positions(call, plan, &views);
    if (status == ATTN_OK) status = take_output(call, plan, &views, "output", output, views.rows, attn__transformer_output_width(plan), &y);
    return status == ATTN_OK ? hidden_and_logits(call, plan, &views, &y) : status;
}

attn_status attn_transformer_forward(attn_context *ctx, const attn_transformer *model, attn_tape *tape, const attn_batch *batch,
                                     attn_tensor *output)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = check_model(ctx, model, tape);
    if (status == ATTN_OK) {
        const attn__call call = {ctx, tape, model->parameters};
        status = forward(&call, attn__transformer_plan_of(model), batch, output);
    }
    return attn__leave(ctx, status);
}

static attn_status loss(const attn__call *call, const attn__transformer_plan *plan, const attn_batch *batch,
                        const attn_cross_entropy_options *options, attn_tensor *tensor, attn_loss_report *report)
{
    attn_context *ctx = call->ctx;
    attn_cross_entropy_options o;
    attn__batch_views views;
    attn__value value;
    attn_status status = attn__cross_entropy_read(ctx, options, &o);
    if (status == ATTN_OK) status = attn__transformer_batch(call, plan, batch, 1, &views);
    if (status == ATTN_OK) status = attn__transformer_positions(call, plan, &views);
    if (status == ATTN_OK && tensor != NULL) status = take_output(call, plan, &views, "loss", tensor, 1, 1, &value);
    if (status != ATTN_OK) return status;
    if (tensor == NULL && report == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "loss, report: got NULL and NULL, expected at least one of them");
    attn_loss_report made = {.struct_size = sizeof made};
    if (report != NULL) status = attn__report_check(ctx, "report", report, sizeof made);
    if (status != ATTN_OK) return status;
    attn__loss_sums sums;
    status = attn__transformer_loss_run(call, plan, &views, &o, tensor != NULL ? &value : NULL, &sums);
    if (status != ATTN_OK || report == NULL) return status;
    made = (attn_loss_report){.struct_size = sizeof made, .sum = sums.loss, .unsmoothed_sum = sums.unsmoothed, .count = sums.count};
    return attn__report_write(ctx, "report", report, &made, sizeof made, sizeof made);
}

attn_status attn_transformer_loss(attn_context *ctx, const attn_transformer *model, attn_tape *tape, const attn_batch *batch,
                                  const attn_cross_entropy_options *options, attn_tensor *tensor, attn_loss_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = check_model(ctx, model, tape);
    if (status == ATTN_OK) {
        const attn__call call = {ctx, tape, model->parameters};
        status = loss(&call, attn__transformer_plan_of(model), batch, options, tensor, report);
    }
    return attn__leave(ctx, status);
}

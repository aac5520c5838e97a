#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../tensor/layout.h"
#include "trainer.h"

/* segments first .. first + count of a stream, which lie together, their rows counted from the lowest one's start */
static attn_status slice_stream(const attn__call *call, const attn__stream *from, int64_t first, int64_t count, attn__stream *out,
                                int64_t *start, int64_t *rows)
{
    attn_context *ctx = call->ctx;
    *rows = 0;
    *start = from->segments.at[first].start;
    for (int64_t i = 1; i < count; i++) /* a batch in one piece may have them in any order */
        if (from->segments.at[first + i].start < *start) *start = from->segments.at[first + i].start;
    attn__arena *arena = attn__tape_records(ctx, call->tape);
    attn_segment *at = attn__arena_take(arena, count * (int64_t)sizeof *at);
    if (at == NULL) return attn__fail_memory(ctx, attn__arena_status(arena), "segments of a micro-batch");
    for (int64_t i = 0; i < count; i++) {
        at[i] = from->segments.at[first + i];
        at[i].start -= *start;
        *rows += at[i].length;
    }
    out->segments = (attn__segments){count, *rows, at};
    return attn__places_expand(ctx, arena, out->segments, *rows, &out->places);
}

/* do segments lie one behind another, in order? then a run of them is a run of rows */
static int in_order(attn__segments s)
{
    int64_t row = 0;
    for (int64_t i = 0; i < s.count; i++) {
        if (s.at[i].start != row) return 0;
        row += s.at[i].length;
    }
    return 1;
}

/* how many segments from `first` make one micro-batch: at most micro_rows rows of the output, at least one segment */
static int64_t piece(const attn_trainer *t, const attn__batch_views *b, const attn__stream *stream, int64_t first)
{
    int64_t count = stream->segments.count, rows = 0, i = first;
    if (t->options.micro_rows < 0 || !in_order(b->source_stream.segments) || !in_order(b->target_stream.segments)) return count - first;
    for (; i < count; i++) {
        rows += stream->segments.at[i].length;
        if (i > first && rows > t->options.micro_rows) break;
    }
    return i - first;
}

static attn_status slice(const attn__call *call, const attn__transformer_plan *plan, const attn__batch_views *b, int64_t first,
                         int64_t count, attn__batch_views *out)
{
    int64_t start, rows;
    attn_status status = ATTN_OK;
    memset(out, 0, sizeof *out);
    if (plan->has_encoder) {
        status = slice_stream(call, &b->source_stream, first, count, &out->source_stream, &start, &rows);
        out->source = attn__view_rows(b->source, start, rows);
    }
    if (status == ATTN_OK && plan->has_decoder) {
        status = slice_stream(call, &b->target_stream, first, count, &out->target_stream, &start, &rows);
        out->target = attn__view_rows(b->target, start, rows);
    }
    if (status != ATTN_OK) return status;
    out->labels = attn__view_rows(b->labels, start, rows);
    out->rows = rows;
    return ATTN_OK;
}

static attn_status run_piece(attn_context *ctx, attn_trainer *t, const attn__batch_views *batch, int64_t first, int64_t count,
                             attn__loss_sums *sum)
{
    const attn__call call = {ctx, t->tape, t->parameters};
    const attn__transformer_plan *plan = attn__trainer_plan(t);
    attn_cross_entropy_options o;
    attn_tape_options tape = {.struct_size = sizeof tape, .training = 1, .seed = t->options.seed, .step = t->steps + 1};
    attn__batch_views part;
    attn__loss_sums sums;
    attn__value loss;
    attn_status status = attn_cross_entropy_options_init(&o, sizeof o);
    o.label_smoothing = t->options.label_smoothing;
    o.mean = 0;
    if (status == ATTN_OK) status = attn_tape_begin(ctx, t->tape, &tape);
    if (status == ATTN_OK) status = slice(&call, plan, batch, first, count, &part);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, t->tape, 1, 1, plan->options.dtype, &loss);
    if (status == ATTN_OK) status = attn__transformer_loss_run(&call, plan, &part, &o, &loss, &sums);
    if (status != ATTN_OK) return status;
    sum->loss += sums.loss;
    sum->unsmoothed += sums.unsmoothed;
    sum->count += sums.count;
    if (loss.id < 0) return ATTN_OK; /* everything is frozen */
    const view ones = {0};
    return attn__tape_run(ctx, t->tape, 1, &loss, &ones, 1, &t->gradients);
}

static attn_status run_batch(attn_context *ctx, attn_trainer *t, const attn_batch *batch, attn__loss_sums *sum)
{
    const attn__transformer_plan *plan = attn__trainer_plan(t);
    const attn__call check = {ctx, NULL, t->parameters};
    attn__batch_views views;
    attn_status status = attn__transformer_batch(&check, plan, batch, 1, &views);
    if (status == ATTN_OK) status = attn__transformer_positions(&check, plan, &views);
    const attn__stream *stream = plan->has_decoder ? &views.target_stream : &views.source_stream;
    int64_t count = status == ATTN_OK ? stream->segments.count : 0;
    for (int64_t first = 0, pieces; status == ATTN_OK && first < count; first += pieces) {
        pieces = piece(t, &views, stream, first);
        status = run_piece(ctx, t, &views, first, pieces, sum);
    }
    return status;
}

static attn_status gather(attn_context *ctx, attn_trainer *t, const attn_batch *batch, attn__loss_sums *sum)
{
    if (batch != NULL) return run_batch(ctx, t, batch, sum);
    if (t->dataset == NULL)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "batch: got NULL, expected a batch, as the trainer was made without a data set");
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < t->options.accumulate; i++) {
        attn_batch next;
        attn__mark mark = attn__arena_mark(ctx->scratch);
        status = attn_batch_init(&next, sizeof next);
        if (status == ATTN_OK) status = attn_dataset_next(ctx, t->dataset, &next);
        if (status == ATTN_OK) status = run_batch(ctx, t, &next, sum);
        attn__arena_rewind(ctx->scratch, mark);
    }
    return status;
}

/* the layer a parameter belongs to: encoder layers, decoder layers, then everything else */
static int64_t layer_of(const attn_trainer *t, const char *name)
{
    static const char encoder[] = "encoder.layers.", decoder[] = "decoder.layers.";
    const attn__transformer_plan *plan = attn__trainer_plan(t);
    if (strncmp(name, encoder, sizeof encoder - 1) == 0) return strtoll(name + sizeof encoder - 1, NULL, 10);
    if (strncmp(name, decoder, sizeof decoder - 1) == 0)
        return strtoll(name + sizeof decoder - 1, NULL, 10) + (plan->has_encoder ? plan->encoder.side.layers : 0);
    return t->layer_count - 1;
}

static attn_status measure_layers(attn_context *ctx, attn_trainer *t, double divisor)
{
    const attn_parameters *set = t->parameters;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < t->layer_count; i++) t->layer_norms[i] = 0;
    for (int64_t i = 0, end; status == ATTN_OK && t->layer_count > 0 && i < set->count; i = end) {
        int64_t layer = layer_of(t, set->at[i].name);
        for (end = i + 1; end < set->count && layer_of(t, set->at[end].name) == layer; end++) continue;
        double norm;
        status = attn__optimizer_norm(ctx, t->optimizer, t->gradients, i, end - i, divisor, &norm);
        t->layer_norms[layer] = hypot(t->layer_norms[layer], norm);
    }
    return status;
}

/* Everything up to the update may fail and leaves no trace; the update runs to its end. */
static attn_status step(attn_context *ctx, attn_trainer *t, const attn_batch *batch, attn_trainer_report *r)
{
    attn__loss_sums sum = {0, 0, 0}; /* over all micro-batches */
    attn_optimizer_report update;
    attn_status status = gather(ctx, t, batch, &sum);
    if (status == ATTN_OK && sum.count == 0)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                            "labels: got none that counts, expected one in a step at least (all are negative, so it has no loss)");
    double divisor = (double)sum.count;
    if (status == ATTN_OK) status = measure_layers(ctx, t, divisor);
    if (status != ATTN_OK) return status;
    double before = t->optimizer->rate;
    if (t->schedule.schedule != ATTN_SCHEDULE_CONSTANT ||
        t->schedule.warmup > 0) /* a constant rate is the optimizer's own: it can be set */
        t->optimizer->rate = attn__schedule_rate(&t->schedule, t->steps + 1);
    status = attn__optimizer_update(ctx, t->optimizer, t->gradients, divisor, &update);
    if (status != ATTN_OK) {
        t->optimizer->rate = before;
        return status;
    }
    t->steps++;
    *r = (attn_trainer_report){.struct_size = sizeof *r,
                               .step = t->steps,
                               .tokens = sum.count,
                               .loss = sum.loss / divisor,
                               .unsmoothed_loss = sum.unsmoothed / divisor,
                               .penalty = update.penalty,
                               .rate = t->optimizer->rate,
                               .gradient_norm = update.gradient_norm,
                               .skipped = update.skipped,
                               .layer_count = t->layer_count,
                               .layer_norms = t->layer_norms};
    return ATTN_OK;
}

attn_status attn_trainer_step(attn_context *ctx, attn_trainer *trainer, const attn_batch *batch, attn_trainer_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_trainer_report made = {.struct_size = sizeof made};
    status = attn__expect(ctx, "trainer", trainer, ATTN__MAGIC_TRAINER, "attn_trainer");
    if (status == ATTN_OK && report != NULL) status = attn__report_check(ctx, "report", report, sizeof made);
    if (status != ATTN_OK) return attn__leave(ctx, status);
    int64_t cursor = trainer->dataset != NULL ? attn__dataset_cursor(trainer->dataset) : 0;
    status = step(ctx, trainer, batch, &made);
    if (status == ATTN_OK) {
        if (report != NULL) status = attn__report_write(ctx, "report", report, &made, sizeof made, sizeof made);
        return attn__leave(ctx, status);
    }
    char text[sizeof ctx->error]; /* what went wrong outlives the putting back */
    memcpy(text, ctx->error, sizeof text);
    attn_gradients_zero(ctx, trainer->gradients);
    if (trainer->dataset != NULL) attn__dataset_seek(ctx, trainer->dataset, cursor);
    attn__fail(ctx, status, "%s", text);
    return attn__leave(ctx, status);
}

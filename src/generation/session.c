#include <string.h>
#include "../models/report.h"
#include "../tensor/layout.h"
#include "generator.h"

attn_status attn__generator_check(attn_context *ctx, const attn_generator *g, int prompted)
{
    attn_status status = attn__expect(ctx, "generator", g, ATTN__MAGIC_GENERATOR, "attn_generator");
    if (status == ATTN_OK && prompted && !g->prompted)
        status = attn__fail(ctx, ATTN_ERROR_BAD_STATE, "generator: got one without a prompt, expected attn_generator_prompt first");
    return status;
}

/* positions and cache rows of what is fed; keys: the filled rows and the new ones */
static attn_status place(attn_context *ctx, const attn_generator *g, attn__segments segments, const int64_t *slot, attn__stream *stream,
                         attn__segments *keys, attn__segments *memory)
{
    attn_segment *query = attn__scratch(ctx, segments.count * (int64_t)sizeof *query);
    attn_segment *key = attn__scratch(ctx, segments.count * (int64_t)sizeof *key),
                 *source = attn__scratch(ctx, segments.count * (int64_t)sizeof *source);
    if (query == NULL || key == NULL || source == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t i = 0; i < segments.count; i++) {
        int64_t s = slot[i] / g->options.beam, length = segments.at[i].length;
        if (length > g->options.capacity - g->filled[s])
            return attn__fail(ctx, ATTN_ERROR_FULL,
                              "generator: got sequence %lld with %lld of %lld cache rows left, expected room for %lld", (long long)s,
                              (long long)(g->options.capacity - g->filled[s]), (long long)g->options.capacity, (long long)length);
        query[i] = (attn_segment){segments.at[i].start, length, g->filled[s], s};
        key[i] = (attn_segment){slot[i] * g->options.capacity, g->filled[s] + length, 0, s};
        source[i] = g->memory_segments[s]; /* hypotheses of a sequence share it */
    }
    stream->segments = (attn__segments){segments.count, segments.rows, query};
    *keys = (attn__segments){segments.count, g->slots * g->options.capacity, key};
    *memory = (attn__segments){segments.count, 0, source}; /* rows: each model's own */
    return attn__places_expand(ctx, ctx->scratch, stream->segments, segments.rows, &stream->places);
}

/* of the last row of every segment */
static attn_status last_logits(const attn__call *call, const attn__transformer_plan *plan, const attn__value *hidden,
                               attn__segments segments, attn__value *logits)
{
    const attn__kernels *kernels;
    attn__value last;
    attn_status status = attn__kernels_for(call->ctx, plan->options.dtype, &kernels);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, NULL, segments.count, plan->output.in, plan->options.dtype, &last);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, NULL, segments.count, plan->output.out, plan->options.dtype, logits);
    for (int64_t i = 0; status == ATTN_OK && i < segments.count; i++) {
        const attn_segment *s = &segments.at[i];
        view from = attn__view_rows(hidden->at, s->start + s->length - 1, 1), to = attn__view_rows(last.at, i, 1);
        status = kernels->copy(call->ctx, &from, 0, &to);
    }
    return status == ATTN_OK ? attn__transformer_logits(call, plan, &last, logits) : status;
}

/* Logits of the tokens by one model, in the scratch; what they attend is written to its caches, the states after them to its next ones. */
static attn_status run(attn_context *ctx, const attn__member *m, const view *tokens, const attn__stream *stream, attn__segments keys,
                       attn__segments memory, const int64_t *slot, attn__value *logits)
{
    const attn__transformer_plan *plan = attn__member_plan(m);
    const attn__call call = {ctx, NULL, m->parameters};
    attn__value hidden;
    memory.rows = m->cross_rows;
    attn_status status = attn__tape_temporary(ctx, NULL, tokens->rows, plan->output.in, plan->options.dtype, &hidden);
    if (status == ATTN_OK)
        status = plan->recurrent != NULL
                     ? attn__transformer_decode_recurrent(&call, plan, tokens, stream, memory, &m->recurrent, slot, &hidden)
                     : attn__transformer_decode(&call, plan, tokens, stream, keys, memory, m->caches, slot, &hidden);
    return status == ATTN_OK ? last_logits(&call, plan, &hidden, stream->segments, logits) : status;
}

/* sum of the models' probabilities, [segments, vocabulary], as logarithms */
static attn_status run_all(attn_context *ctx, const attn_generator *g, const view *tokens, const attn__stream *stream, attn__segments keys,
                           attn__segments memory, const int64_t *slot, double **sum)
{
    attn_status status = ATTN_OK;
    *sum = attn__scratch(ctx, keys.count * attn__generator_plan(g)->output.out * (int64_t)sizeof **sum);
    if (*sum == NULL) return attn__arena_status(ctx->scratch);
    for (const attn__member *m = &g->model; status == ATTN_OK && m != NULL; m = m->next) {
        attn__mark mark = attn__arena_mark(ctx->scratch);
        attn__value logits;
        status = run(ctx, m, tokens, stream, keys, memory, slot, &logits);
        if (status == ATTN_OK) status = attn__ensemble_add(ctx, &logits.at, m == &g->model, *sum);
        attn__arena_rewind(ctx->scratch, mark);
    }
    return status;
}

attn_status attn__generator_feed(attn_context *ctx, attn_generator *g, const view *tokens, attn__segments segments, const int64_t *slot,
                                 const int64_t *row)
{
    const int64_t vocabulary = attn__generator_plan(g)->output.out;
    const size_t bytes = (size_t)(vocabulary * attn__dtype_bytes(g->model.parameters->dtype));
    attn__stream stream;
    attn__segments keys, memory;
    attn__value logits;
    double *sum = NULL;
    attn_status status = place(ctx, g, segments, slot, &stream, &keys, &memory);
    if (status == ATTN_OK && g->model.next == NULL)
        status = run(ctx, &g->model, tokens, &stream, keys, memory, slot, &logits);
    else if (status == ATTN_OK)
        status = run_all(ctx, g, tokens, &stream, keys, memory, slot, &sum);
    if (status != ATTN_OK) return status;
    for (int64_t i = 0; i < segments.count; i++) { /* by no kernel: a call that is cancelled would leave some rows new */
        if (sum != NULL)
            attn__ensemble_write(g, row[i], sum + i * vocabulary);
        else
            memcpy((char *)g->logits + (size_t)row[i] * bytes, (const char *)logits.at.data + (size_t)i * bytes, bytes);
        g->filled[slot[i] / g->options.beam] = keys.at[i].length;
        for (const attn__member *m = &g->model; m != NULL; m = m->next) attn__member_take_over(m, slot[i]);
    }
    return ATTN_OK;
}

static void forget(attn_generator *g)
{
    size_t sequences = (size_t)g->options.sequences;
    memset(g->filled, 0, sequences * sizeof *g->filled);
    memset(g->made, 0, sequences * sizeof *g->made);
    memset(g->finished, 0, sequences * sizeof *g->finished);
    memset(g->scores, 0, sequences * sizeof *g->scores);
    for (const attn__member *m = &g->model; m != NULL; m = m->next) attn__member_forget(m);
    g->draws = 0;
    g->prompted = 0;
    g->begun = 1;
}

/* the encoder's rows as keys and values of every layer's cross-attention, projected once */
static attn_status remember(attn_context *ctx, const attn_generator *g, attn__member *m, const attn__batch_views *batch,
                            const int64_t *slot)
{
    const attn__transformer_plan *plan = attn__member_plan(m);
    const attn__call call = {ctx, NULL, m->parameters};
    attn__value memory;
    attn_status status = attn__member_cross_reserve(ctx, g, m, batch->source.rows);
    if (status == ATTN_OK && plan->recurrent != NULL) return attn__transformer_remember_recurrent(&call, plan, batch, &m->recurrent, slot);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, NULL, batch->source.rows, plan->options.width, plan->options.dtype, &memory);
    if (status == ATTN_OK) status = attn__transformer_encode(&call, plan, batch, &memory, NULL);
    for (int64_t i = 0; status == ATTN_OK && i < plan->decoder.side.layers; i++) {
        attn__mark mark = attn__arena_mark(ctx->scratch);
        status = attn__attention_remember(&call, &plan->decoder.layers[i].cross, &memory, &m->caches[i].cross);
        attn__arena_rewind(ctx->scratch, mark);
    }
    return status;
}

static attn_status remember_all(attn_context *ctx, attn_generator *g, const attn__batch_views *batch, const int64_t *slot)
{
    attn_status status = ATTN_OK;
    for (attn__member *m = &g->model; status == ATTN_OK && m != NULL; m = m->next) {
        attn__mark mark = attn__arena_mark(ctx->scratch);
        status = remember(ctx, g, m, batch, slot);
        attn__arena_rewind(ctx->scratch, mark);
    }
    for (int64_t s = 0; s < batch->source_stream.segments.count; s++) g->memory_segments[s] = batch->source_stream.segments.at[s];
    return status;
}

/* Memory of a prompt that is larger than any before, and of the steps after it up to the capacity: taken at once, and exactly, instead of
   growing while it runs. Models run one after another. Nothing may lie in the scratch. */
static attn_status reserve(attn_context *ctx, attn_generator *g, const attn__batch_views *batch)
{
    attn__need most = {.scratch = 0}, need;
    attn_status status = ATTN_OK;
    for (const attn__member *m = &g->model; status == ATTN_OK && m != NULL; m = m->next) {
        status = attn__decoding_need(ctx, attn__member_plan(m), batch->source_stream.segments, batch->target_stream.segments,
                                     g->options.beam, g->options.capacity, &need);
        if (status == ATTN_OK && need.scratch > most.scratch) most.scratch = need.scratch;
        if (status == ATTN_OK && need.worker > most.worker) most.worker = need.worker;
    }
    attn__grow(&most.scratch, attn__ensemble_scratch(g), 1, 1);
    if (status == ATTN_OK) status = attn__worker_scratch_reserve(ctx, most.worker);
    if (status != ATTN_OK) return status;
    attn__arena_reset(ctx->scratch); /* the batch's places with it */
    status = attn__arena_reserve(ctx->scratch, most.scratch);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "temporary memory of a prompt");
    g->reserved_source = batch->source.rows;
    g->reserved_target = batch->target.rows;
    return ATTN_OK;
}

static attn_status check_prompt(attn_context *ctx, const attn_generator *g, attn__segments segments)
{
    if (segments.count != g->options.sequences)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "target_layout: got %lld segments, expected the generator's %lld sequences",
                          (long long)segments.count, (long long)g->options.sequences);
    for (int64_t s = 0; s < segments.count; s++) {
        if (segments.at[s].length < 1)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                              "target_layout: got an empty segment %lld, expected at least one token to start from", (long long)s);
        if (segments.at[s].length > g->options.capacity)
            return attn__fail(ctx, ATTN_ERROR_FULL, "target_layout: got %lld tokens in segment %lld, expected at most the capacity of %lld",
                              (long long)segments.at[s].length, (long long)s, (long long)g->options.capacity);
    }
    return ATTN_OK;
}

/* learned positions of the encoders; the target's are counted from 0 and end with the capacity */
static attn_status check_source(attn_context *ctx, const attn_generator *g, attn__batch_views views)
{
    attn_status status = ATTN_OK;
    views.target_stream.segments.count = 0;
    for (const attn__member *m = &g->model; status == ATTN_OK && m != NULL; m = m->next) {
        const attn__call call = {ctx, NULL, m->parameters};
        status = attn__transformer_positions(&call, attn__member_plan(m), &views);
    }
    return status;
}

static attn_status prompt(attn_context *ctx, attn_generator *g, const attn_batch *batch)
{
    const attn__transformer_plan *plan = attn__generator_plan(g);
    const attn__call call = {ctx, NULL, g->model.parameters};
    attn__batch_views views;
    attn_status status = attn__transformer_batch(&call, plan, batch, 0, &views);
    if (status == ATTN_OK) status = check_prompt(ctx, g, views.target_stream.segments);
    if (status == ATTN_OK) status = check_source(ctx, g, views);
    if (status != ATTN_OK) return status;
    forget(g);
    if (views.source.rows > g->reserved_source || views.target.rows > g->reserved_target) {
        status = reserve(ctx, g, &views);
        if (status == ATTN_OK) status = attn__transformer_batch(&call, plan, batch, 0, &views);
        if (status != ATTN_OK) return status;
    }
    attn__segments segments = views.target_stream.segments;
    int64_t *slot = attn__scratch(ctx, segments.count * (int64_t)sizeof *slot);
    if (slot == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t s = 0; s < segments.count; s++) slot[s] = s * g->options.beam;
    if (plan->has_encoder) status = remember_all(ctx, g, &views, slot);
    if (status == ATTN_OK) status = attn__generator_feed(ctx, g, &views.target, segments, slot, slot);
    if (status == ATTN_OK && g->beam != NULL) attn__beam_begin(g);
    g->prompted = status == ATTN_OK;
    return status;
}

attn_status attn_generator_prompt(attn_context *ctx, attn_generator *generator, const attn_batch *batch)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__generator_check(ctx, generator, 0);
    if (status == ATTN_OK) status = prompt(ctx, generator, batch);
    return attn__leave(ctx, status);
}

static attn_status prompt_tokens(attn_context *ctx, attn_generator *g, int64_t count, const int32_t *tokens)
{
    attn_batch batch;
    attn_tensor target;
    if (g->options.sequences != 1)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "generator: got one of %lld sequences, expected 1 (use attn_generator_prompt)",
                          (long long)g->options.sequences);
    if (attn__generator_plan(g)->has_encoder)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE,
                          "generator: got one whose model has an encoder, expected none (use attn_generator_prompt)");
    if (tokens == NULL || count < 1)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tokens, count: got %s and %lld, expected at least one token",
                          tokens ? "an array" : "NULL", (long long)count);
    const view ids = {(void *)(uintptr_t)tokens, count, 1, 1, 1, 0, ATTN_INT32, 0};
    const attn__transformer_plan *plan = attn__generator_plan(g);
    attn_status status = attn__expect_indices(ctx, "tokens", &ids, g->model.parameters->at[plan->target.table].shape[0]);
    if (status != ATTN_OK) return status;
    attn__tensor_borrow(&target, ATTN_INT32, 1, &count, (void *)(uintptr_t)tokens);
    attn_batch_init(&batch, sizeof batch);
    batch.target = &target;
    return prompt(ctx, g, &batch);
}

attn_status attn_generator_prompt_tokens(attn_context *ctx, attn_generator *generator, int64_t count, const int32_t *tokens)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__generator_check(ctx, generator, 0);
    if (status == ATTN_OK) status = prompt_tokens(ctx, generator, count, tokens);
    return attn__leave(ctx, status);
}

attn_status attn_generator_logits(attn_context *ctx, attn_generator *generator, const attn_tensor **logits)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__generator_check(ctx, generator, 1);
    if (status == ATTN_OK && logits == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "logits: got NULL, expected a place for the tensor");
    if (status == ATTN_OK) *logits = &generator->logits_tensor;
    return attn__leave(ctx, status);
}

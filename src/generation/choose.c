#include <string.h>
#include "generator.h"

int attn__generator_stops(const attn_generator *g, int32_t token)
{
    for (int64_t i = 0; i < g->options.stop_count; i++)
        if (g->stops[i] == token) return 1;
    return 0;
}

view attn__generator_logits_view(const attn_generator *g, int64_t first, int64_t count)
{
    const attn__transformer_plan *plan = attn__generator_plan(g);
    const view all = {g->logits, g->slots, 1, plan->output.out, plan->output.out, 0, plan->options.dtype, 0};
    return attn__view_rows(all, first, count);
}

/* log-probability of each sequence's token, before temperature */
static attn_status token_scores(attn_context *ctx, const attn_generator *g, const int32_t *tokens, double *out)
{
    const attn__kernels *kernels;
    view logits = attn__generator_logits_view(g, 0, g->options.sequences), log_p = logits;
    attn_status status = attn__kernels_for(ctx, logits.dtype, &kernels);
    log_p.data = status == ATTN_OK ? attn__scratch(ctx, logits.rows * logits.width * attn__dtype_bytes(logits.dtype)) : NULL;
    if (log_p.data == NULL) return status != ATTN_OK ? status : attn__arena_status(ctx->scratch);
    status = kernels->softmax(ctx, &logits, 1, &log_p);
    for (int64_t s = 0; status == ATTN_OK && s < logits.rows; s++) {
        if (g->finished[s]) continue;
        out[s] = attn__number(&log_p, s * logits.width + tokens[s]);
    }
    return status;
}

static attn_status check_tokens(attn_context *ctx, const attn_generator *g, int64_t count, const int32_t *tokens)
{
    int64_t vocabulary = attn__generator_plan(g)->output.out;
    if (count != g->options.sequences)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "count: got %lld, expected the generator's %lld sequences", (long long)count,
                          (long long)g->options.sequences);
    if (tokens == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tokens: got NULL, expected an array of %lld", (long long)count);
    for (int64_t s = 0; s < count; s++)
        if (!g->finished[s] && (tokens[s] < 0 || tokens[s] >= vocabulary))
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tokens: got %d for sequence %lld, expected 0 to %lld", (int)tokens[s],
                              (long long)s, (long long)vocabulary - 1);
    return ATTN_OK;
}

/* Takes a token for every sequence that goes on: those that do not stop are fed; all or nothing. */
static attn_status accept(attn_context *ctx, attn_generator *g, const int32_t *tokens)
{
    int64_t sequences = g->options.sequences, fed = 0;
    int32_t *row = attn__scratch(ctx, sequences * (int64_t)sizeof *row);
    int64_t *owner = attn__scratch(ctx, sequences * (int64_t)sizeof *owner);
    attn_segment *segment = attn__scratch(ctx, sequences * (int64_t)sizeof *segment);
    double *score = attn__scratch(ctx, sequences * (int64_t)sizeof *score);
    if (row == NULL || owner == NULL || segment == NULL || score == NULL) return attn__arena_status(ctx->scratch);
    attn_status status = token_scores(ctx, g, tokens, score);
    for (int64_t s = 0; s < sequences; s++) {
        if (g->finished[s] || attn__generator_stops(g, tokens[s])) continue;
        row[fed] = tokens[s];
        owner[fed] = s;
        segment[fed] = (attn_segment){fed, 1, 0, s};
        fed++;
    }
    if (status == ATTN_OK && fed > 0) {
        const view at = {row, fed, 1, 1, 1, 0, ATTN_INT32, 0};
        status = attn__generator_feed(ctx, g, &at, (attn__segments){fed, fed, segment}, owner, owner);
    }
    for (int64_t s = 0; status == ATTN_OK && s < sequences; s++) {
        if (g->finished[s]) continue;
        g->scores[s] += score[s];
        if (attn__generator_stops(g, tokens[s]))
            g->finished[s] = 1;
        else
            g->tokens[s * g->options.capacity + g->made[s]++] = tokens[s];
    }
    return status;
}

attn_status attn_generator_accept(attn_context *ctx, attn_generator *generator, int64_t count, const int32_t *tokens)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__generator_check(ctx, generator, 1);
    if (status == ATTN_OK && generator->beam != NULL)
        status = attn__fail(ctx, ATTN_ERROR_BAD_STATE, "generator: got a beam of %lld, expected 1 (attn_generator_step chooses for beams)",
                            (long long)generator->options.beam);
    if (status == ATTN_OK) status = check_tokens(ctx, generator, count, tokens);
    if (status == ATTN_OK) status = accept(ctx, generator, tokens);
    return attn__leave(ctx, status);
}

/* uniform numbers by seed, sequence and draw: what one sequence gets does not depend on the others. Finished ones get -1. */
static attn_status choose(attn_context *ctx, const attn_generator *g, int32_t *tokens)
{
    const attn__kernels *kernels;
    view logits = attn__generator_logits_view(g, 0, g->options.sequences);
    double *uniform = attn__scratch(ctx, logits.rows * (int64_t)sizeof *uniform);
    if (uniform == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t s = 0; s < logits.rows; s++) {
        uint32_t words[4];
        attn__philox(attn__mix(g->options.seed, (uint64_t)s), (uint32_t)g->draws, (uint32_t)((uint64_t)g->draws >> 32), 0, 0, words);
        uniform[s] = g->finished[s] ? -1 : attn__uniform53(words[0], words[1]);
    }
    attn_status status = attn__kernels_for(ctx, logits.dtype, &kernels);
    return status == ATTN_OK
               ? kernels->next_token(ctx, &logits, g->options.temperature, g->options.top_k, g->options.top_p, uniform, tokens)
               : status;
}

static attn_status step(attn_context *ctx, attn_generator *g, int64_t count, int32_t *tokens, int32_t *finished)
{
    if (count != g->options.sequences)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "count: got %lld, expected the generator's %lld sequences", (long long)count,
                          (long long)g->options.sequences);
    if (tokens == NULL || finished == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got NULL, expected an array of %lld", tokens ? "finished" : "tokens",
                          (long long)count);
    if (g->beam != NULL) return attn__beam_step(ctx, g, tokens, finished);
    int32_t *chosen = attn__scratch(ctx, count * (int64_t)sizeof *chosen);
    if (chosen == NULL) return attn__arena_status(ctx->scratch);
    attn_status status = choose(ctx, g, chosen);
    if (status == ATTN_OK) status = accept(ctx, g, chosen);
    if (status != ATTN_OK) return status;
    g->draws++;
    memcpy(tokens, chosen, (size_t)count * sizeof *tokens);
    memcpy(finished, g->finished, (size_t)count * sizeof *finished);
    return ATTN_OK;
}

attn_status attn_generator_step(attn_context *ctx, attn_generator *generator, int64_t count, int32_t *tokens, int32_t *finished)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__generator_check(ctx, generator, 1);
    if (status == ATTN_OK) status = step(ctx, generator, count, tokens, finished);
    return attn__leave(ctx, status);
}

static attn_status result(attn_context *ctx, const attn_generator *g, int64_t sequence, int64_t rank, int64_t capacity, int32_t *tokens,
                          int64_t *count, double *score)
{
    if (sequence < 0 || sequence >= g->options.sequences)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "sequence: got %lld, expected 0 to %lld", (long long)sequence,
                          (long long)g->options.sequences - 1);
    const int64_t results = g->beam != NULL ? attn__beam_results(g, sequence) : 1;
    if (rank < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "rank: got %lld, expected at least 0", (long long)rank);
    if (rank >= results)
        return attn__fail(ctx, ATTN_ERROR_END_OF_DATA, "rank: got %lld, expected 0 to %lld, the last result of sequence %lld",
                          (long long)rank, (long long)results - 1, (long long)sequence);
    if (count == NULL || capacity < 0 || (capacity > 0 && tokens == NULL))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tokens, count, capacity: got %s and %lld, expected room",
                          count == NULL || tokens == NULL ? "NULL" : "places", (long long)capacity);
    const int32_t *from = g->tokens + sequence * g->options.capacity;
    double sum = g->scores[sequence];
    *count = g->made[sequence];
    if (g->beam != NULL) from = attn__beam_result(g, sequence, rank, count, &sum);
    if (*count > capacity)
        return attn__fail(ctx, ATTN_ERROR_FULL, "capacity: got %lld, expected at least %lld", (long long)capacity, (long long)*count);
    if (score != NULL) *score = sum;
    if (*count > 0) memcpy(tokens, from, (size_t)*count * sizeof *tokens);
    return ATTN_OK;
}

attn_status attn_generator_result(attn_context *ctx, attn_generator *generator, int64_t sequence, int64_t rank, int64_t capacity,
                                  int32_t *tokens, int64_t *count, double *score)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__generator_check(ctx, generator, 1);
    if (status == ATTN_OK) status = result(ctx, generator, sequence, rank, capacity, tokens, count, score);
    return attn__leave(ctx, status);
}

#include "translate.h"
#include <stdlib.h>
#include <string.h>
#include "interrupt.h"
#include "message.h"

/* A batch of sources in one generator. */
typedef struct session {
    const translator *t;
    const pair_ids *sources;
    attn_generator *generator;
    int64_t sequences;                  /* of the generator */
    int64_t *which;                     /* [batch]: the sources of the batch, those that are not empty */
    int32_t *tokens;                    /* source tokens of a batch; or a target */
    int32_t *first, *finished, *newest; /* [batch] each: the start token, and what a step gives */
    int64_t *lengths;                   /* [batch] */
} session;

static attn_status open_generator(session *s, int64_t sequences)
{
    const translator *t = s->t;
    const int32_t stop = (int32_t)t->target_stop;
    attn_generator_options o;
    if (s->generator != NULL && s->sequences == sequences) return ATTN_OK;
    attn_generator_free(s->generator);
    s->generator = NULL;
    attn_status status = attn_generator_options_init(&o, sizeof o);
    o.sequences = sequences;
    o.beam = t->beam;
    o.capacity = t->context + 1; /* the start token, and the longest target */
    o.temperature = 0;
    o.length_penalty = t->length_penalty;
    o.stop_count = 1;
    o.stops = &stop;
    if (status == ATTN_OK) status = attn_generator_create(t->ctx, t->models[0], &o, &s->generator);
    for (int64_t m = 1; status == ATTN_OK && m < t->models_count; m++)
        status = attn_generator_add_model(t->ctx, s->generator, t->models[m]);
    s->sequences = sequences;
    return status;
}

static attn_status prompt(session *s, int64_t count)
{
    const translator *t = s->t;
    attn_batch batch;
    attn_tensor *source = NULL, *target = NULL;
    attn_layout *source_layout = NULL, *target_layout = NULL;
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t p = s->which[i], length = length_of(s->sources, p);
        memcpy(s->tokens + rows, s->sources->tokens + s->sources->ends[p] - length, (size_t)length * sizeof *s->tokens);
        s->tokens[rows + length] = (int32_t)t->source_stop;
        s->lengths[i] = length + 1;
        rows += length + 1;
        s->first[i] = (int32_t)t->target_stop;
    }
    attn_status status = attn_batch_init(&batch, sizeof batch);
    if (status == ATTN_OK) status = attn_tensor_wrap(t->ctx, ATTN_INT32, 1, &rows, NULL, s->tokens, &source);
    if (status == ATTN_OK) status = attn_tensor_wrap(t->ctx, ATTN_INT32, 1, &count, NULL, s->first, &target);
    if (status == ATTN_OK) status = attn_layout_create(t->ctx, count, &source_layout);
    if (status == ATTN_OK) status = attn_layout_create(t->ctx, count, &target_layout);
    if (status == ATTN_OK) status = attn_layout_set_lengths(t->ctx, source_layout, count, s->lengths, 0);
    for (int64_t i = 0; i < count; i++) s->lengths[i] = 1;
    if (status == ATTN_OK) status = attn_layout_set_lengths(t->ctx, target_layout, count, s->lengths, 0);
    batch.source = source;
    batch.target = target;
    batch.source_layout = source_layout;
    batch.target_layout = target_layout;
    if (status == ATTN_OK) status = attn_generator_prompt(t->ctx, s->generator, &batch);
    attn_layout_free(source_layout);
    attn_layout_free(target_layout);
    attn_tensor_free(source);
    attn_tensor_free(target);
    return status;
}

static int all_finished(const int32_t *finished, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!finished[i]) return 0;
    return 1;
}

/* one batch to its end: each sequence stops by itself, or when its target is as long as it may be */
static attn_status run_batch(session *s, int64_t count)
{
    attn_status status = open_generator(s, count);
    if (status == ATTN_OK) status = prompt(s, count);
    memset(s->finished, 0, (size_t)count * sizeof *s->finished);
    for (int64_t step = 0; status == ATTN_OK && step < s->t->context && !all_finished(s->finished, count); step++) {
        if (interrupted()) return ATTN_ERROR_CANCELLED;
        status = attn_generator_step(s->t->ctx, s->generator, count, s->newest, s->finished);
    }
    return status;
}

/* the results of sequence i of the generator, which belongs to a source */
static int give(session *s, int64_t source, int64_t i, translation_taker *take, void *user)
{
    for (int64_t rank = 0; rank < s->t->nbest; rank++) {
        int64_t count = 0;
        double score = 0;
        attn_status status = attn_generator_result(s->t->ctx, s->generator, i, rank, s->t->context + 1, s->tokens, &count, &score);
        if (rank > 0 && (status == ATTN_ERROR_END_OF_DATA || status == ATTN_ERROR_INVALID_ARGUMENT)) return 0; /* there are no more */
        if (status != ATTN_OK) return fail_call(s->t->ctx, status, NULL);
        int stop = take(user, source, rank, s->tokens, count, score);
        if (stop != 0) return stop;
    }
    return 0;
}

/* sources first .. end, of which those that are not empty make a batch */
static int translate_some(session *s, int64_t first, int64_t end, translation_taker *take, void *user)
{
    int64_t count = 0;
    for (int64_t p = first; p < end; p++)
        if (length_of(s->sources, p) > 0) s->which[count++] = p;
    attn_status status = count > 0 ? run_batch(s, count) : ATTN_OK;
    if (status != ATTN_OK) return status == ATTN_ERROR_CANCELLED ? EXIT_INTERRUPTED : fail_call(s->t->ctx, status, NULL);
    int stop = 0;
    for (int64_t p = first, i = 0; stop == 0 && p < end; p++) {
        if (length_of(s->sources, p) > 0)
            stop = give(s, p, i++, take, user);
        else
            stop = take(user, p, 0, s->tokens, 0, 0);
    }
    return stop;
}

int translate(const translator *t, const pair_ids *sources, translation_taker *take, void *user)
{
    int64_t batch = t->batch < sources->count ? t->batch : sources->count, longest = sources->longest + 1;
    int64_t room = batch * longest > t->context + 1 ? batch * longest : t->context + 1;
    session s = {.t = t, .sources = sources};
    s.tokens = malloc((size_t)room * sizeof *s.tokens);
    s.which = malloc((size_t)batch * sizeof *s.which);
    s.lengths = malloc((size_t)batch * sizeof *s.lengths);
    s.first = malloc(3 * (size_t)batch * sizeof *s.first);
    int status = s.tokens == NULL || s.which == NULL || s.lengths == NULL || s.first == NULL ? fail(EXIT_MACHINE, "not enough memory") : 0;
    if (status == 0) {
        s.finished = s.first + batch;
        s.newest = s.finished + batch;
    }
    for (int64_t first = 0; status == 0 && first < sources->count; first += batch)
        status = translate_some(&s, first, first + batch < sources->count ? first + batch : sources->count, take, user);
    attn_generator_free(s.generator);
    free(s.tokens);
    free(s.which);
    free(s.lengths);
    free(s.first);
    return status;
}

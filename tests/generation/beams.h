#ifndef TESTS_GENERATION_BEAMS_H
#define TESTS_GENERATION_BEAMS_H
#include <stdio.h>
#include <stdlib.h>
#include "fixture.h"
#include "generation/beam.h"

/* Beam search as the header of the generator tells it, on full forward passes: every probability from the beginning, no cache. */
enum { BEAMS = 256, VOCABULARY = 16 };
typedef struct text {
    int32_t tokens[MOST];
    int64_t count;
    double score, rank;
} text;

typedef struct trial {
    session s;
    attn_generator_options options;
    int64_t vocabulary, source[4], first_source[4];
    attn_transformer *further[2]; /* models of an ensemble, beside the session's */
    int models;                   /* how many of them */
} trial;

static inline void open_trial(trial *t, int32_t backend, const attn_transformer_options *model, const attn_generator_options *o,
                              const int64_t *source, const int64_t *target)
{
    int64_t row = 0;
    open_session(&t->s, backend, model, o, source, target);
    t->options = *o;
    t->vocabulary = attn__generator_plan(t->s.generator)->output.out;
    for (int64_t i = 0; source != NULL && i < o->sequences; i++) {
        t->first_source[i] = row;
        row += t->source[i] = source[i];
    }
}

static inline int is_stop(const attn_generator_options *o, int64_t token)
{
    for (int64_t i = 0; i < o->stop_count; i++)
        if (o->stops[i] == token) return 1;
    return 0;
}

static inline double rank_of(const attn_generator_options *o, double score, int64_t length)
{
    return score / pow((double)length, o->length_penalty);
}

/* logits of the token after prompt i and a text by one model, and their log-probabilities */
static inline void calculate_one(trial *t, const attn_transformer *model, int64_t i, const text *x, double *logits, double *log_p)
{
    attn_context *ctx = t->s.ctx;
    const int64_t prompt = t->s.lengths[i], rows = prompt + x->count, one = 1;
    attn_tensor *tokens = model_tensor(ctx, ATTN_INT32, rows, 0), *source = NULL,
                *all = model_tensor(ctx, t->s.options.dtype, rows, t->vocabulary);
    attn_layout *layout[2] = {NULL, NULL};
    attn_batch batch;
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) model_set(tokens, r, r < prompt ? t->s.tokens[i][r] : x->tokens[r - prompt]);
    OK(ctx, attn_batch_init(&batch, sizeof batch));
    for (int side = 0; side < 2; side++) {
        OK(ctx, attn_layout_create(ctx, 1, &layout[side]));
        OK(ctx, attn_layout_set_lengths(ctx, layout[side], one, side ? &rows : &t->source[i], 0));
    }
    batch.target = tokens;
    batch.target_layout = layout[1];
    if (t->s.options.encoder_layers > 0) {
        source = model_tensor(ctx, ATTN_INT32, t->source[i], 0);
        for (int64_t r = 0; r < t->source[i]; r++) model_set(source, r, model_get(t->s.batch.source, t->first_source[i] + r));
        batch.source = source;
        batch.source_layout = layout[0];
    }
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch, all));
    for (int64_t v = 0; v < t->vocabulary; v++) sum += exp(logits[v] = model_get(all, (rows - 1) * t->vocabulary + v));
    for (int64_t v = 0; v < t->vocabulary; v++) log_p[v] = logits[v] - log(sum);
    attn_tensor_free(tokens);
    attn_tensor_free(source);
    attn_tensor_free(all);
    attn_layout_free(layout[0]);
    attn_layout_free(layout[1]);
}

/* of an ensemble: the logarithm of the mean, twice */
static inline void calculate(trial *t, int64_t i, const text *x, double *logits, double *log_p)
{
    double more[VOCABULARY], further[VOCABULARY];
    calculate_one(t, t->s.model, i, x, logits, log_p);
    if (t->models == 0) return;
    for (int64_t v = 0; v < t->vocabulary; v++) logits[v] = exp(log_p[v]);
    for (int m = 0; m < t->models; m++) {
        calculate_one(t, t->further[m], i, x, more, further);
        for (int64_t v = 0; v < t->vocabulary; v++) logits[v] += exp(further[v]);
    }
    for (int64_t v = 0; v < t->vocabulary; v++) log_p[v] = logits[v] = log(logits[v] / (t->models + 1));
}

/* a search of one sequence: what the generator's must be after every step */
typedef struct search {
    text live[BEAMS], finished[BEAMS];
    int64_t live_count, finished_count, room;
    int ended, newest;
} search;

static inline void add_finished(search *x, const text *t, int64_t beam)
{
    int64_t at = x->finished_count;
    while (at > 0 && x->finished[at - 1].rank < t->rank) at--;
    for (int64_t i = x->finished_count < beam ? x->finished_count : beam - 1; i > at; i--) x->finished[i] = x->finished[i - 1];
    if (at < beam) x->finished[at] = *t;
    if (x->finished_count < beam) x->finished_count++;
}

static inline void look_for_the_end(search *x, const attn_generator_options *o)
{
    if (x->live_count > 0 && x->live[0].count == x->room) {
        for (int64_t i = 0; i < x->live_count; i++) {
            x->live[i].rank = x->room > 0 ? rank_of(o, x->live[i].score, x->room) : 0;
            add_finished(x, &x->live[i], o->beam);
        }
        x->ended = 1;
    } else if (x->live_count > 0 && x->finished_count == o->beam) {
        x->ended = rank_of(o, x->live[0].score, x->live[0].count + 1) <= x->finished[o->beam - 1].rank;
    }
    if (x->live_count == 0) x->ended = 1;
    if (x->ended) x->live_count = 0;
}

static inline void begin_search(const trial *t, int64_t i, search *x)
{
    memset(x, 0, sizeof *x);
    x->live_count = 1;
    x->room = t->options.capacity - t->s.lengths[i];
    look_for_the_end(x, &t->options);
}

typedef struct choice {
    double score;
    int64_t parent, token;
} choice;

static inline int by_score(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static inline void search_on(trial *t, int64_t i, search *x)
{
    static choice all[BEAMS * VOCABULARY];
    static search before;
    const int64_t beam = t->options.beam;
    int64_t count = 0, stopped[BEAMS] = {0};
    double logits[VOCABULARY], log_p[VOCABULARY];
    before = *x;
    x->newest = -1;
    if (x->ended) return;
    for (int64_t h = 0; h < before.live_count; h++) {
        calculate(t, i, &before.live[h], logits, log_p);
        for (int64_t v = 0; v < t->vocabulary; v++)
            if (log_p[v] > -INFINITY) all[count++] = (choice){before.live[h].score + log_p[v], h, v};
    }
    qsort(all, (size_t)count, sizeof *all, by_score);
    x->live_count = 0;
    for (int64_t c = 0; c < count && c < 2 * beam; c++) {
        text child = before.live[all[c].parent];
        child.score = all[c].score;
        if (is_stop(&t->options, all[c].token)) {
            child.rank = rank_of(&t->options, child.score, child.count + 1);
            if (c < beam && !stopped[all[c].parent]++) add_finished(x, &child, beam);
        } else if (x->live_count < beam) {
            child.tokens[child.count++] = (int32_t)all[c].token;
            x->live[x->live_count++] = child;
        }
    }
    if (x->live_count > 0) x->newest = x->live[0].tokens[x->live[0].count - 1];
    look_for_the_end(x, &t->options);
}

static inline void expect_text(session *s, int64_t i, int64_t rank, const text *want, double within, const char *what)
{
    int32_t tokens[MOST];
    int64_t count = -1;
    double score = NAN;
    OK(s->ctx, attn_generator_result(s->ctx, s->generator, i, rank, MOST, tokens, &count, &score));
    int same = count == want->count && fabs(score - want->score) <= within;
    for (int64_t c = 0; same && c < count; c++) same = tokens[c] == want->tokens[c];
    if (!same)
        fail_msg("%s: sequence %d, rank %d: %d tokens from %d on, score %.9g; expected %d from %d on, %.9g", what, (int)i, (int)rank,
                 (int)count, count > 0 ? (int)tokens[0] : -1, score, (int)want->count, want->count > 0 ? (int)want->tokens[0] : -1,
                 want->score);
}

/* all results of a sequence, and none past them */
static inline void expect_search(session *s, int64_t i, const search *x, double within, const char *what)
{
    int64_t rank = 0, count;
    for (int64_t f = 0; f < x->finished_count; f++) expect_text(s, i, rank++, &x->finished[f], within, what);
    for (int64_t l = 0; l < x->live_count; l++) expect_text(s, i, rank++, &x->live[l], within, what);
    FAILS(s->ctx, attn_generator_result(s->ctx, s->generator, i, rank, 0, NULL, &count, NULL), ATTN_ERROR_END_OF_DATA, "rank");
}

/* output weights of 0 and a bias of the caller's: the same logits whatever was read; needs output_bias */
static inline void set_output(attn_transformer *model, const double *bias)
{
    attn_parameters *p = attn_transformer_parameters(model);
    for (int64_t i = 0; i < attn_parameters_count(p); i++) {
        attn_tensor *tensor = attn_parameters_tensor(p, i);
        if (strncmp(attn_parameters_name(p, i), "output.", 7) != 0) continue;
        for (int64_t e = 0; e < model_elements(tensor); e++) model_set(tensor, e, attn_tensor_rank(tensor) == 1 ? bias[e] : 0);
    }
}
#endif

#ifndef ATTN_GENERATION_GENERATOR_H
#define ATTN_GENERATION_GENERATOR_H
#include <attn/generator.h>
#include "../models/transformer.h"

/* What belongs to one model of a session: its parameters and its caches. Several models are a list. */
typedef struct attn__member {
    struct attn__member *next;
    attn_parameters *parameters;    /* counted; the model's plan lives with it */
    attn__layer_cache *caches;      /* [decoder layers] */
    void *self_cache, *cross_cache; /* the memory of all layers' self and cross caches */
    int64_t self_bytes, cross_bytes, cross_rows;
    int32_t keeps_states, reserved;  /* 1: of linear forms, in place of keys and values */
    attn__recurrent_cache recurrent; /* of a recurrent model, in place of caches; its states are self_cache's memory */
} attn__member;

typedef struct attn__beam attn__beam; /* beam.h */

/* A decoding session: caches for a number of slots, `beam` of them a sequence, one behind another. Slot i owns cache rows i * capacity ..
   (i + 1) * capacity, of which those that its sequence has filled hold keys and values; what lies behind them is never read. */
struct attn_generator {
    uint64_t magic;
    attn__memory *memory;
    attn__member model;             /* the first, in most cases the only one */
    attn_generator_options options; /* stops points into `stops` */
    int32_t *stops;
    attn__beam *beam;              /* NULL: one token a sequence is chosen in each step */
    int64_t slots;                 /* sequences * beam */
    int64_t *filled, *made;        /* [sequences]: rows in the cache; tokens generated */
    int32_t *tokens, *finished;    /* [sequences * capacity] generated tokens; [sequences] */
    double *scores;                /* [sequences] sum of log-probabilities of generated tokens */
    attn_segment *memory_segments; /* [sequences]: rows of the encoder's memory */
    void *logits;                  /* [slots, vocabulary] */
    attn_tensor logits_tensor;
    int64_t draws;                            /* random numbers are a function of seed, sequence and this */
    int64_t reserved_source, reserved_target; /* rows of the largest prompt that memory was taken for */
    int32_t prompted, begun;                  /* begun: there was a prompt, of whatever end */
};
static inline const attn__transformer_plan *attn__member_plan(const attn__member *m)
{
    return m->parameters->plan;
}
static inline const attn__transformer_plan *attn__generator_plan(const attn_generator *g)
{
    return attn__member_plan(&g->model);
}

/* INVALID_ARGUMENT unless it is a generator; with prompted 1 BAD_STATE unless it has a prompt */
attn_status attn__generator_check(attn_context *ctx, const attn_generator *g, int prompted);
/* one allocation of `count` elements, zeroed; what was never taken has a size that may not even be a number, and NULL is fine there */
attn_status attn__generator_take(attn_context *ctx, const attn_generator *g, int64_t count, int64_t element, void *out);
void attn__generator_give_back(const attn_generator *g, void *pointer, int64_t count, int64_t element);

/* a decoder, an output head, masks that a cache can keep, learned positions for the capacity (member.c) */
attn_status attn__member_check(attn_context *ctx, const attn_transformer *model, int64_t capacity);
/* Caches of a model for the generator's slots. What open took is given back by close, after a failure too. */
attn_status attn__member_open(attn_context *ctx, const attn_generator *g, const attn_transformer *model, attn__member *m);
void attn__member_close(const attn_generator *g, attn__member *m);
/* rows of encoder memory: makes room in the cross caches and points the layers' views at it */
attn_status attn__member_cross_reserve(attn_context *ctx, const attn_generator *g, attn__member *m, int64_t rows);

/* what states were before any token, in all slots; and those after a stretch in a slot, which count from now on */
void attn__member_forget(const attn__member *m);
void attn__member_take_over(const attn__member *m, int64_t slot);
/* the first `rows` rows of slot `from` to slot `to`, in all layers; states as they are */
void attn__member_copy(const attn_generator *g, const attn__member *m, int64_t from, int64_t to, int64_t rows);

/* Feeds the stream's tokens: segment i goes to slot[i], behind what its sequence has filled (segments of one sequence are of one length).
   Leaves the logits of its last row in row[i] of g->logits, and counts the rows as filled, both only when all went well. */
attn_status attn__generator_feed(attn_context *ctx, attn_generator *g, const view *tokens, attn__segments segments, const int64_t *slot,
                                 const int64_t *row);
/* Several models (ensemble.c): sum [rows, vocabulary] is of the logarithms of the models' probabilities added up; write puts the logarithm
   of their mean into a row of g->logits. scratch: bytes it takes beside what each model takes. */
attn_status attn__ensemble_add(attn_context *ctx, const view *logits, int first, double *sum);
void attn__ensemble_write(const attn_generator *g, int64_t row, const double *sum);
int64_t attn__ensemble_scratch(const attn_generator *g);
int attn__generator_stops(const attn_generator *g, int32_t token);
/* logits of `count` rows from `first` on */
view attn__generator_logits_view(const attn_generator *g, int64_t first, int64_t count);
static inline double attn__number(const view *v, int64_t at)
{
    return v->dtype == ATTN_FLOAT64 ? ((const double *)v->data)[at] : (double)((const float *)v->data)[at];
}

/* Beam search (beam.c, beam_step.c). begin: after a prompt. step: tokens and finished as in attn_generator_step, [sequences]. */
attn_status attn__beam_open(attn_context *ctx, attn_generator *g);
void attn__beam_close(attn_generator *g);
void attn__beam_begin(attn_generator *g);
attn_status attn__beam_step(attn_context *ctx, attn_generator *g, int32_t *tokens, int32_t *finished);
int64_t attn__beam_results(const attn_generator *g, int64_t s); /* how many ranks there are */
const int32_t *attn__beam_result(const attn_generator *g, int64_t s, int64_t rank, int64_t *count, double *score);
#endif

#ifndef ATTN_GENERATION_GENERATOR_H
#define ATTN_GENERATION_GENERATOR_H
#include <attn/generator.h>
#include "../models/transformer.h"

/* What belongs to one model of a session: its parameters and its caches. */
typedef struct attn__member {
    attn_parameters *parameters;    /* counted; the model's plan lives with it */
    attn__layer_cache *caches;      /* [decoder layers] */
    void *self_cache, *cross_cache; /* the memory of all layers' self and cross caches */
    int64_t self_bytes, cross_bytes, cross_rows;
} attn__member;

/* A decoding session: caches for a number of slots, one for each sequence. Slot i owns cache rows i * capacity .. (i + 1) * capacity, of
   which those that the sequence has filled hold keys and values; what lies behind them is never read. */
struct attn_generator {
    uint64_t magic;
    attn__memory *memory;
    attn__member model;
    attn_generator_options options; /* stops points into `stops` */
    int32_t *stops;
    int64_t slots;
    int64_t *filled, *made;        /* [sequences]: rows in the cache; tokens generated */
    int32_t *tokens, *finished;    /* [sequences * capacity] generated tokens; [sequences] */
    double *scores;                /* [sequences] sum of log-probabilities of generated tokens */
    attn_segment *memory_segments; /* [sequences]: rows of the encoder's memory */
    void *logits;                  /* [slots, vocabulary] */
    attn_tensor logits_tensor;
    int64_t draws;                            /* random numbers are a function of seed, sequence and this */
    int64_t reserved_source, reserved_target; /* rows of the largest prompt that memory was taken for */
    int32_t prompted, reserved;
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

/* a decoder, an output head, masks that a cache can keep (member.c) */
attn_status attn__member_check(attn_context *ctx, const attn_transformer *model);
/* Caches of a model for the generator's slots. What open took is given back by close, after a failure too. */
attn_status attn__member_open(attn_context *ctx, const attn_generator *g, const attn_transformer *model, attn__member *m);
void attn__member_close(const attn_generator *g, attn__member *m);
/* rows of encoder memory: makes room in the cross caches and points the layers' views at it */
attn_status attn__member_cross_reserve(attn_context *ctx, const attn_generator *g, attn__member *m, int64_t rows);

/* Feeds the stream's tokens: segment i of it belongs to sequence owner[i] and starts at filled[owner[i]]. Leaves the logits of every
   segment's last row in g->logits, and counts the rows as filled, both only when all went well. */
attn_status attn__generator_feed(attn_context *ctx, attn_generator *g, const view *tokens, attn__segments segments, const int64_t *owner);
#endif

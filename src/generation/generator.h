#ifndef ATTN_GENERATION_GENERATOR_H
#define ATTN_GENERATION_GENERATOR_H
#include <attn/generator.h>
#include "../models/transformer.h"

/* A decoding session: the caches of one model for a number of sequences. Sequence s owns cache rows s * capacity .. (s + 1) * capacity, of
   which the first filled[s] hold keys and values; what lies behind them is never read. */
struct attn_generator {
    uint64_t magic;
    attn__memory *memory;
    attn_parameters *parameters;    /* counted; the model's plan lives with it */
    attn_generator_options options; /* stops points into `stops` */
    int32_t *stops;
    attn__layer_cache *caches;      /* [decoder layers] */
    void *self_cache, *cross_cache; /* the memory of all layers' self and cross caches */
    int64_t self_bytes, cross_bytes, cross_rows;
    int64_t *filled, *made;        /* [sequences]: rows in the cache; tokens generated */
    int32_t *tokens, *finished;    /* [sequences * capacity] generated tokens; [sequences] */
    double *scores;                /* [sequences] sum of log-probabilities of generated tokens */
    attn_segment *memory_segments; /* [sequences]: rows of the encoder's memory */
    void *logits;                  /* [sequences, vocabulary] */
    attn_tensor logits_tensor;
    int64_t draws;                            /* random numbers are a function of seed, sequence and this */
    int64_t reserved_source, reserved_target; /* rows of the largest prompt that memory was taken for */
    int32_t prompted, reserved;
};
static inline const attn__transformer_plan *attn__generator_plan(const attn_generator *g)
{
    return g->parameters->plan;
}

/* INVALID_ARGUMENT unless it is a generator; with prompted 1 BAD_STATE unless it has a prompt */
attn_status attn__generator_check(attn_context *ctx, const attn_generator *g, int prompted);
/* rows of encoder memory: makes room in the cross caches and points the layers' views at it */
attn_status attn__generator_cross_reserve(attn_context *ctx, attn_generator *g, int64_t rows);
/* Feeds the stream's tokens: segment i of it belongs to sequence owner[i] and starts at filled[owner[i]]. Leaves the logits of every
   segment's last row in g->logits, and counts the rows as filled, both only when all went well. */
attn_status attn__generator_feed(attn_context *ctx, attn_generator *g, const view *tokens, attn__segments segments, const int64_t *owner);
#endif

#ifndef ATTN_GENERATION_BEAM_H
#define ATTN_GENERATION_BEAM_H
#include "generator.h"

/* One text under way or finished. Its tokens lie in the row of the state's tokens that has its own index. */
typedef struct attn__hypothesis {
    double score, rank;   /* sum of log p; what finished ones are ordered by */
    int64_t length, slot; /* tokens kept; of its sequence's cache slots, live ones alone */
    int64_t from;         /* row of the tokens it goes on from, in the state before */
    int32_t token;        /* what it adds to them; -1: nothing */
    int32_t reserved;
} attn__hypothesis;

/* How many of each kind a sequence has; most: tokens there is room for; newest: of the best live one, -1 without one. */
typedef struct attn__search {
    int64_t live, finished, most;
    int32_t ended, newest;
} attn__search;

typedef struct attn__candidate {
    double score;
    int64_t at; /* index of the live hypothesis * vocabulary + token */
} attn__candidate;

/* Every sequence has two states: one that holds, and one that a step builds beside it, so that a step changes nothing before all has gone
   well. In both, rows 0 .. beam - 1 are live hypotheses and beam .. 2 beam - 1 finished ones, each best first. */
struct attn__beam {
    attn__search *search;         /* [2, sequences] */
    attn__hypothesis *hypotheses; /* [2, sequences, 2 beam] */
    int32_t *tokens;              /* [2, sequences, 2 beam, capacity] */
    int32_t *side;                /* [sequences]: which of the two holds */
    attn__candidate *candidates;  /* [2 beam] */
    int32_t *taken;               /* [beam]: slots of the sequence at hand */
    int32_t planned, reserved;    /* 1: the states beside are those of the next step, whatever computes it */
};

/* The state of sequence s that holds (next 0) or is built (next 1). */
typedef struct attn__beam_state {
    attn__search *search;
    attn__hypothesis *live, *finished;
    int32_t *tokens; /* [2 beam, capacity] */
} attn__beam_state;
attn__beam_state attn__beam_state_of(const attn_generator *g, int64_t s, int next);

/* sum of log p over length to the power of length_penalty */
double attn__beam_rank(const attn_generator *g, double score, int64_t length);
/* the search of a sequence that was prompted: one live hypothesis of no token, or with no room for one that as its result */
void attn__beam_start(const attn_generator *g, int64_t s);
/* candidates, best first, of a search that goes on: builds its next state */
void attn__beam_extend(const attn_generator *g, int64_t s, int64_t count, const attn__candidate *candidates);
#endif

#include "beam.h"
#include <math.h>
#include <string.h>

/* Beam search: the hypotheses of each sequence, and what becomes of them in a step. Nothing here computes or can fail but the making. */
attn__beam_state attn__beam_state_of(const attn_generator *g, int64_t s, int next)
{
    const attn__beam *b = g->beam;
    const int64_t at = (b->side[s] ^ next) * g->options.sequences + s, rows = 2 * g->options.beam;
    attn__hypothesis *first = b->hypotheses + at * rows;
    return (attn__beam_state){&b->search[at], first, first + g->options.beam, b->tokens + at * rows * g->options.capacity};
}

attn_status attn__beam_open(attn_context *ctx, attn_generator *g)
{
    const int64_t sequences = g->options.sequences, beam = g->options.beam;
    int64_t rows, numbers;
    if (attn__multiply(g->slots, 4, &rows) || attn__multiply(rows, g->options.capacity, &numbers))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "a generator's caches");
    attn_status status = attn__generator_take(ctx, g, 1, (int64_t)sizeof *g->beam, &g->beam);
    if (status != ATTN_OK) return status;
    attn__beam *b = g->beam;
    status = attn__generator_take(ctx, g, 2 * sequences, (int64_t)sizeof *b->search, &b->search);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, rows, (int64_t)sizeof *b->hypotheses, &b->hypotheses);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, numbers, (int64_t)sizeof *b->tokens, &b->tokens);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, sequences, (int64_t)sizeof *b->side, &b->side);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, 2 * beam, (int64_t)sizeof *b->candidates, &b->candidates);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, beam, (int64_t)sizeof *b->taken, &b->taken);
    return status;
}

void attn__beam_close(attn_generator *g)
{
    attn__beam *b = g->beam;
    const int64_t sequences = g->options.sequences, beam = g->options.beam, rows = 4 * g->slots;
    if (b == NULL) return;
    attn__generator_give_back(g, b->search, 2 * sequences, (int64_t)sizeof *b->search);
    attn__generator_give_back(g, b->hypotheses, rows, (int64_t)sizeof *b->hypotheses);
    attn__generator_give_back(g, b->tokens, rows * g->options.capacity, (int64_t)sizeof *b->tokens);
    attn__generator_give_back(g, b->side, sequences, (int64_t)sizeof *b->side);
    attn__generator_give_back(g, b->candidates, 2 * beam, (int64_t)sizeof *b->candidates);
    attn__generator_give_back(g, b->taken, beam, (int64_t)sizeof *b->taken);
    attn__generator_give_back(g, b, 1, (int64_t)sizeof *b);
}

double attn__beam_rank(const attn_generator *g, double score, int64_t length)
{
    /* a certain text is the best of any length, though the power may be 0 or infinite */
    return score == 0 ? 0 : score / pow((double)(length > 0 ? length : 1), g->options.length_penalty);
}

/* The best `beam` finished ones; of equal ones those that were there first. */
static void keep(const attn_generator *g, attn__beam_state *to, attn__hypothesis h)
{
    int64_t count = to->search->finished, at = count;
    while (at > 0 && to->finished[at - 1].rank < h.rank) at--;
    if (at == g->options.beam) return;
    if (count == g->options.beam) count--;
    memmove(to->finished + at + 1, to->finished + at, (size_t)(count - at) * sizeof h);
    to->finished[at] = h;
    to->search->finished = count + 1;
}

/* With several stop tokens a text could end more than once: its likeliest end came first. */
static int has_stopped(const attn__beam_state *next, int64_t from)
{
    for (int64_t i = 0; i < next->search->finished; i++)
        if (next->finished[i].from == from) return 1;
    return 0;
}

/* A hypothesis' first child goes on in its slot; further children take slots that nobody goes on in. */
static void place(const attn_generator *g, const attn__beam_state *now, attn__beam_state *next)
{
    int32_t *taken = g->beam->taken;
    int64_t unused = 0;
    memset(taken, 0, (size_t)g->options.beam * sizeof *taken);
    for (int64_t i = 0; i < next->search->live; i++) {
        int64_t slot = now->live[next->live[i].from].slot;
        next->live[i].slot = taken[slot] ? -1 : slot;
        taken[slot] = 1;
    }
    for (int64_t i = 0; i < next->search->live; i++) {
        if (next->live[i].slot >= 0) continue;
        while (taken[unused]) unused++;
        next->live[i].slot = unused;
        taken[unused] = 1;
    }
}

/* No row left: live ones are results as they stand. Otherwise the search is over when no live one can beat the finished ones. */
static void end(const attn_generator *g, attn__beam_state *next)
{
    attn__search *search = next->search;
    if (search->live == 0) {
        search->ended = 1;
    } else if (next->live[0].length >= search->most) {
        for (int64_t i = 0; i < search->live; i++) {
            next->live[i].rank = attn__beam_rank(g, next->live[i].score, next->live[i].length);
            keep(g, next, next->live[i]);
        }
        search->ended = 1;
    } else if (search->finished == g->options.beam) {
        double best = attn__beam_rank(g, next->live[0].score, next->live[0].length + 1);
        search->ended = !(best > next->finished[search->finished - 1].rank);
    }
    if (search->ended) search->live = 0;
}

static void write_tokens(const attn_generator *g, const attn__beam_state *now, const attn__beam_state *next, const attn__hypothesis *h,
                         int64_t row)
{
    int32_t *to = next->tokens + row * g->options.capacity;
    const int64_t kept = h->length - (h->token >= 0);
    memcpy(to, now->tokens + h->from * g->options.capacity, (size_t)kept * sizeof *to);
    if (h->token >= 0) to[kept] = h->token;
}

void attn__beam_extend(const attn_generator *g, int64_t s, int64_t count, const attn__candidate *candidates)
{
    const int64_t beam = g->options.beam, vocabulary = attn__generator_plan(g)->output.out;
    const attn__beam_state now = attn__beam_state_of(g, s, 0);
    attn__beam_state next = attn__beam_state_of(g, s, 1);
    attn__search *search = next.search;
    *search = (attn__search){.finished = now.search->finished, .most = now.search->most, .newest = -1};
    memcpy(next.finished, now.finished, (size_t)search->finished * sizeof *next.finished);
    for (int64_t i = 0; i < search->finished; i++) {
        next.finished[i].from = beam + i;
        next.finished[i].token = -1;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = candidates[i].at / vocabulary, length = now.live[from].length + 1; /* with the token */
        const int32_t token = (int32_t)(candidates[i].at % vocabulary);
        attn__hypothesis h = {.score = candidates[i].score, .length = length, .from = from, .token = token};
        if (!attn__generator_stops(g, token)) {
            if (search->live < beam) next.live[search->live++] = h;
        } else if (i < beam && !has_stopped(&next, from)) { /* one that others drown is no end */
            h.rank = attn__beam_rank(g, h.score, length);
            h.length = length - 1;
            h.token = -1;
            keep(g, &next, h);
        }
    }
    if (search->live > 0) search->newest = next.live[0].token;
    place(g, &now, &next);
    end(g, &next);
    for (int64_t i = 0; i < search->live; i++) write_tokens(g, &now, &next, &next.live[i], i);
    for (int64_t i = 0; i < search->finished; i++) write_tokens(g, &now, &next, &next.finished[i], beam + i);
}

void attn__beam_start(const attn_generator *g, int64_t s)
{
    attn__beam_state state = attn__beam_state_of(g, s, 0);
    *state.search = (attn__search){.live = 1, .most = g->options.capacity - g->filled[s], .newest = -1};
    state.live[0] = (attn__hypothesis){.token = -1};
    end(g, &state);
}

int64_t attn__beam_results(const attn_generator *g, int64_t s)
{
    const attn__search *search = attn__beam_state_of(g, s, 0).search;
    return search->finished + search->live;
}

const int32_t *attn__beam_result(const attn_generator *g, int64_t s, int64_t rank, int64_t *count, double *score)
{
    const attn__beam_state state = attn__beam_state_of(g, s, 0);
    const int64_t row = rank < state.search->finished ? g->options.beam + rank : rank - state.search->finished;
    *count = state.live[row].length; /* finished ones lie behind the live ones */
    *score = state.live[row].score;
    return state.tokens + row * g->options.capacity;
}

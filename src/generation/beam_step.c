#include <math.h>
#include <string.h>
#include "beam.h"

/* A step of beam search: the likeliest candidates of every sequence, then the new tokens of those that go on. What a step finds is kept
   until it has been fed, so that a step that failed is made again as it was: caches of hypotheses without children may be gone by then. */
static attn_status check_logits(attn_context *ctx, const view *logits, int64_t s)
{
    for (int64_t r = 0; r < logits->rows; r++) {
        int finite = 0;
        for (int64_t v = 0; v < logits->width; v++) {
            double x = attn__number(logits, r * logits->width + v);
            if (!(x < INFINITY))
                return attn__fail(ctx, ATTN_ERROR_NOT_FINITE, "logits: got %g for token %lld of sequence %lld, expected less than infinity",
                                  x, (long long)v, (long long)s);
            finite |= x > -INFINITY;
        }
        if (!finite)
            return attn__fail(ctx, ATTN_ERROR_NOT_FINITE, "logits: got nothing but -inf for sequence %lld, expected a finite one",
                              (long long)s);
    }
    return ATTN_OK;
}

/* lower, or later among equal ones */
static int worse(const attn__candidate *a, const attn__candidate *b)
{
    return a->score < b->score || (a->score == b->score && a->at > b->at);
}

static void swap(attn__candidate *a, attn__candidate *b)
{
    attn__candidate kept = *a;
    *a = *b;
    *b = kept;
}

/* the worst candidate is the heap's first */
static void sink(attn__candidate *heap, int64_t count, int64_t at)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child + 1 < count && worse(&heap[child + 1], &heap[child])) child++;
        if (child >= count || !worse(&heap[child], &heap[at])) return;
        swap(&heap[child], &heap[at]);
        at = child;
    }
}

static int64_t offer(attn__candidate *heap, int64_t count, int64_t most, attn__candidate c)
{
    int64_t at = count;
    if (count == most) {
        if (worse(&c, &heap[0])) return count;
        heap[0] = c;
        sink(heap, count, 0);
        return count;
    }
    heap[at] = c;
    for (; at > 0 && worse(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2) swap(&heap[at], &heap[(at - 1) / 2]);
    return count + 1;
}

static void sort_best_first(attn__candidate *heap, int64_t count)
{
    while (--count > 0) {
        swap(&heap[0], &heap[count]);
        sink(heap, count, 0);
    }
}

/* The best 2 beam of a sequence's hypotheses and tokens, to its next state. What has no probability is none. */
static attn_status choose(attn_context *ctx, const attn_generator *g, int64_t s)
{
    const attn__kernels *kernels;
    const attn__beam_state now = attn__beam_state_of(g, s, 0);
    const view logits = attn__generator_logits_view(g, s * g->options.beam, now.search->live);
    view log_p = logits;
    attn__candidate *heap = g->beam->candidates;
    int64_t count = 0;
    attn_status status = check_logits(ctx, &logits, s);
    if (status == ATTN_OK) status = attn__kernels_for(ctx, logits.dtype, &kernels);
    if (status != ATTN_OK) return status;
    log_p.data = attn__scratch(ctx, logits.rows * logits.width * attn__dtype_bytes(logits.dtype));
    if (log_p.data == NULL) return attn__arena_status(ctx->scratch);
    status = kernels->softmax(ctx, &logits, 1, &log_p);
    for (int64_t at = 0; status == ATTN_OK && at < logits.rows * logits.width; at++) {
        double p = attn__number(&log_p, at);
        if (p > -INFINITY) count = offer(heap, count, 2 * g->options.beam, (attn__candidate){now.live[at / logits.width].score + p, at});
    }
    if (status != ATTN_OK) return status;
    sort_best_first(heap, count);
    attn__beam_extend(g, s, count, heap);
    return ATTN_OK;
}

static attn_status plan(attn_context *ctx, const attn_generator *g)
{
    attn_status status = ATTN_OK;
    for (int64_t s = 0; status == ATTN_OK && s < g->options.sequences; s++) {
        if (attn__beam_state_of(g, s, 0).search->ended) continue;
        attn__mark mark = attn__arena_mark(ctx->scratch);
        status = choose(ctx, g, s);
        attn__arena_rewind(ctx->scratch, mark);
    }
    return status;
}

/* Feeds the newest tokens of all hypotheses that go on; those that do not go on in their parent's slot get a copy of it first. */
static attn_status feed(attn_context *ctx, attn_generator *g)
{
    const int64_t beam = g->options.beam;
    int64_t fed = 0;
    int32_t *token = attn__scratch(ctx, g->slots * (int64_t)sizeof *token);
    int64_t *slot = attn__scratch(ctx, g->slots * (int64_t)sizeof *slot), *row = attn__scratch(ctx, g->slots * (int64_t)sizeof *row);
    attn_segment *segment = attn__scratch(ctx, g->slots * (int64_t)sizeof *segment);
    if (token == NULL || slot == NULL || row == NULL || segment == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t s = 0; s < g->options.sequences; s++) {
        const attn__beam_state now = attn__beam_state_of(g, s, 0), next = attn__beam_state_of(g, s, 1);
        for (int64_t i = 0; !now.search->ended && i < next.search->live; i++) {
            const int64_t from = now.live[next.live[i].from].slot;
            token[fed] = next.live[i].token;
            slot[fed] = s * beam + next.live[i].slot;
            row[fed] = s * beam + i;
            segment[fed] = (attn_segment){fed, 1, 0, s};
            for (const attn__member *m = &g->model; next.live[i].slot != from && m != NULL; m = m->next)
                attn__member_copy(g, m, s * beam + from, slot[fed], g->filled[s]);
            fed++;
        }
    }
    const view tokens = {token, fed, 1, 1, 1, 0, ATTN_INT32, 0};
    return fed > 0 ? attn__generator_feed(ctx, g, &tokens, (attn__segments){fed, fed, segment}, slot, row) : ATTN_OK;
}

/* logits of hypotheses that are not there */
static void blank(const attn_generator *g, int64_t s, int64_t live)
{
    const view rows = attn__generator_logits_view(g, s * g->options.beam + live, g->options.beam - live);
    for (int64_t i = 0; i < rows.rows * rows.width; i++) {
        if (rows.dtype == ATTN_FLOAT64)
            ((double *)rows.data)[i] = -INFINITY;
        else
            ((float *)rows.data)[i] = -INFINITY;
    }
}

void attn__beam_begin(attn_generator *g)
{
    g->beam->planned = 0;
    for (int64_t s = 0; s < g->options.sequences; s++) {
        attn__beam_start(g, s);
        blank(g, s, attn__beam_state_of(g, s, 0).search->live);
    }
}

attn_status attn__beam_step(attn_context *ctx, attn_generator *g, int32_t *tokens, int32_t *finished)
{
    attn__beam *b = g->beam;
    attn_status status = b->planned ? ATTN_OK : plan(ctx, g);
    if (status != ATTN_OK) return status;
    b->planned = 1;
    status = feed(ctx, g);
    if (status != ATTN_OK) return status;
    b->planned = 0;
    for (int64_t s = 0; s < g->options.sequences; s++) {
        const int before = attn__beam_state_of(g, s, 0).search->ended;
        if (!before) b->side[s] ^= 1;
        const attn__search *search = attn__beam_state_of(g, s, 0).search;
        if (!before) blank(g, s, search->live);
        tokens[s] = before ? -1 : search->newest;
        finished[s] = search->ended;
    }
    return ATTN_OK;
}

#include "beams.h"

/* Beam search against the same rules on full forward passes, and against all texts there are. */
/* everything in the caches that no live hypothesis has filled */
static void spoil(session *s)
{
    const attn_generator *g = s->generator;
    for (int64_t slot = 0; slot < g->slots; slot++) {
        const int64_t i = slot / g->options.beam;
        const attn__beam_state state = attn__beam_state_of(g, i, 0);
        int64_t filled = 0;
        for (int64_t h = 0; h < state.search->live; h++)
            if (state.live[h].slot == slot % g->options.beam) filled = g->filled[i];
        if (s->options.recurrence != ATTN_RECURRENCE_NONE) { /* a state for each slot, and the next one */
            const view *now = &g->model.recurrent.now, *next = &g->model.recurrent.next;
            const size_t row = (size_t)(now->row_stride * attn__dtype_bytes(now->dtype));
            memset((char *)next->data + (size_t)slot * row, 255, row);
            if (filled == 0) memset((char *)now->data + (size_t)slot * row, 255, row);
            continue;
        }
        for (int64_t l = 0; s->options.form != ATTN_FORM_SOFTMAX && l < s->options.decoder_layers; l++) {
            const view *now = &g->model.caches[l].self.key, *next = &g->model.caches[l].self.value;
            const size_t row = (size_t)(now->row_stride * attn__dtype_bytes(now->dtype));
            memset((char *)next->data + (size_t)slot * row, 255, row);
            if (filled == 0) memset((char *)now->data + (size_t)slot * row, 255, row);
        }
        for (int64_t l = 0; s->options.form == ATTN_FORM_SOFTMAX && l < 2 * s->options.decoder_layers; l++) {
            const view *v = l % 2 ? &g->model.caches[l / 2].self.value : &g->model.caches[l / 2].self.key;
            for (int64_t r = slot * g->options.capacity + filled; r < (slot + 1) * g->options.capacity; r++)
                for (int64_t c = 0; c < v->width; c++) {
                    if (v->dtype == ATTN_FLOAT64)
                        ((double *)v->data)[r * v->row_stride + c] = NAN;
                    else
                        ((float *)v->data)[r * v->row_stride + c] = NAN;
                }
        }
    }
}

/* a row for each live hypothesis, as from the beginning (B133), and minus infinity for what is not there */
static void expect_logits(trial *t, int64_t i, const search *x, double within, const char *what)
{
    const attn_tensor *got = NULL;
    double logits[VOCABULARY], log_p[VOCABULARY];
    OK(t->s.ctx, attn_generator_logits(t->s.ctx, t->s.generator, &got));
    assert_int_equal(attn_tensor_extent(got, 0), t->options.sequences * t->options.beam);
    for (int64_t h = 0; h < t->options.beam; h++) {
        if (h < x->live_count) calculate(t, i, &x->live[h], logits, log_p);
        for (int64_t v = 0; v < t->vocabulary; v++) {
            double value = model_get(got, (i * t->options.beam + h) * t->vocabulary + v);
            if (h < x->live_count ? !(fabs(value - logits[v]) <= within) : value != -INFINITY)
                fail_msg("%s: logit %d of hypothesis %d of sequence %d is %.9g", what, (int)v, (int)h, (int)i, value);
        }
    }
}

/* step by step, of several sequences at once: unequal prompts, an empty source between others (B123), one with no room at all */
static void follow(int which, int64_t beam, double penalty, int *ended_early, int *ended_full)
{
    static search all[4];
    static const int32_t stops[5] = {3, 7, 1, 9, 5};
    const int64_t source[4] = {3, 0, 5, 1}, target[4] = {2, 1, 9, 4};
    attn_transformer_options m = model_options(which & 1, 2);
    attn_generator_options o = defaults(4, 9);
    trial t = {0};
    const double within = which & 2 ? 1e-12 : 1e-5;
    char what[64];
    m.dtype = which & 2 ? ATTN_FLOAT64 : ATTN_FLOAT32;
    m.positions = which & 1 ? ATTN_POSITIONS_SINUSOIDAL : ATTN_POSITIONS_ROTARY;
    if (which & 1) m.heads = 4, m.key_heads = 2;
    if (which & 4) m.recurrence = which & 1 ? ATTN_RECURRENCE_LSTM : ATTN_RECURRENCE_TANH;
    if (which & 8) m.form = which & 1 ? ATTN_FORM_LINEAR : ATTN_FORM_PERFORMER;
    o.beam = beam;
    o.length_penalty = penalty;
    o.stop_count = 5;
    o.stops = stops;
    o.temperature = which & 1 ? 0 : 0.3; /* neither this nor the rest is looked at */
    o.top_k = 1;
    o.top_p = 0.1;
    open_trial(&t, which & 2 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, &m, &o, source, target);
    prompt(&t.s);
    for (int64_t i = 0; i < 4; i++) begin_search(&t, i, &all[i]);
    for (int step = 0; step < 9; step++) {
        int32_t tokens[4], finished[4];
        for (int64_t i = 0; i < 4; i++) {
            snprintf(what, sizeof what, "case %d, beam %d, penalty %g, step %d", which, (int)beam, penalty, step);
            expect_search(&t.s, i, &all[i], within, what);
            expect_logits(&t, i, &all[i], within, what);
        }
        spoil(&t.s);
        OK(t.s.ctx, attn_generator_step(t.s.ctx, t.s.generator, 4, tokens, finished));
        for (int64_t i = 0; i < 4; i++) {
            int before = all[i].ended;
            search_on(&t, i, &all[i]);
            assert_int_equal(tokens[i], all[i].newest);
            assert_int_equal(finished[i], all[i].ended);
            if (!before && all[i].ended) (*(step + 1 < all[i].room ? ended_early : ended_full))++;
        }
    }
    close_session(&t.s);
}

static void test_rules(void **state)
{
    static const int64_t beams[4] = {2, 3, 5, 14}; /* 14: more than tokens */
    static const double penalties[4] = {0, 1, 0.6, -0.5};
    int early = 0, full = 0;
    (void)state;
    for (int which = 0; which < 12; which++)
        for (int b = 0; b < 4; b++) follow(which, beams[b], penalties[(b + which) % 4], &early, &full);
    if (early < 10 || full < 10) fail_msg("%d searches ended early, %d at the end of their room", early, full);
}

/* ---- all texts */
static text every[2048];
static int64_t every_count;

static void enumerate(trial *t, int64_t i, const text *x)
{
    const int64_t room = t->options.capacity - t->s.lengths[i];
    double logits[VOCABULARY], log_p[VOCABULARY];
    if (x->count == room) {
        every[every_count] = *x;
        every[every_count++].rank = rank_of(&t->options, x->score, room); /* B124: without a stop token, over what there is */
        return;
    }
    calculate(t, i, x, logits, log_p);
    text stopped = {.score = -INFINITY};
    for (int32_t v = 0; v < t->vocabulary; v++) {
        text longer = *x;
        longer.score += log_p[v];
        if (!is_stop(&t->options, v)) {
            longer.tokens[longer.count++] = v;
            enumerate(t, i, &longer);
        } else if (longer.score > stopped.score) {
            stopped = longer;
        }
    }
    stopped.rank = rank_of(&t->options, stopped.score, stopped.count + 1);
    every[every_count++] = stopped;
}

static int by_rank(const void *a, const void *b)
{
    const text *x = a, *y = b;
    return x->rank > y->rank ? -1 : x->rank < y->rank;
}

/* A beam that holds all texts finds all of them, in order, whatever the penalty; a narrow one none that is better. */
static void test_all_texts(void **state)
{
    static const double penalties[4] = {0, 1, 0.6, -0.5};
    static const int32_t stops[2] = {2, 0};
    const int64_t source[2] = {2, 3}, target[2] = {1, 2};
    const text empty = {.count = 0};
    (void)state;
    for (int which = 0; which < 16; which++) {
        attn_transformer_options m = model_options(which & 1, 1);
        attn_generator_options o = defaults(2, which & 2 ? 4 : 5);
        m.target_vocabulary = which & 2 ? 5 : 4;
        o.length_penalty = penalties[which / 4];
        o.stop_count = which & 2 ? 2 : 1;
        o.stops = stops;
        for (int64_t beam = 160; beam > 1; beam /= 13) {
            trial t = {0};
            o.beam = beam;
            open_trial(&t, ATTN_BACKEND_BLAS, &m, &o, source, target);
            prompt(&t.s);
            for (int step = 0; step < 5; step++) {
                int32_t tokens[2], finished[2];
                OK(t.s.ctx, attn_generator_step(t.s.ctx, t.s.generator, 2, tokens, finished));
            }
            for (int64_t i = 0; i < 2; i++) {
                int64_t count;
                double score;
                every_count = 0;
                enumerate(&t, i, &empty);
                assert_true(every_count < 160);
                qsort(every, (size_t)every_count, sizeof *every, by_rank);
                if (beam == 160) {
                    for (int64_t r = 0; r < every_count; r++) expect_text(&t.s, i, r, &every[r], 1e-5, "all texts");
                    FAILS(t.s.ctx, attn_generator_result(t.s.ctx, t.s.generator, i, every_count, 0, NULL, &count, NULL),
                          ATTN_ERROR_END_OF_DATA, "rank");
                } else {
                    int32_t best[MOST];
                    OK(t.s.ctx, attn_generator_result(t.s.ctx, t.s.generator, i, 0, MOST, best, &count, &score));
                    int64_t length = count + (count < o.capacity - target[i]);
                    assert_true(rank_of(&o, score, length) <= every[0].rank + 1e-5);
                }
            }
            close_session(&t.s);
        }
    }
}

/* A beam of one hypothesis, which the generator does not use for it, is greedy: token by token, and in the score. */
static void test_one_is_greedy(void **state)
{
    static const int32_t stops[3] = {3, 7, 9};
    const int64_t source[3] = {2, 4, 1}, target[3] = {2, 1, 4};
    int stopped = 0;
    (void)state;
    for (int which = 0; which < 4; which++) {
        attn_transformer_options m = model_options(which & 1, 2);
        attn_generator_options o = defaults(3, 14);
        session s, narrow;
        o.temperature = 0;
        o.length_penalty = 0;
        o.stop_count = which & 2 ? 3 : 0;
        o.stops = stops;
        open_session(&s, ATTN_BACKEND_BLAS, &m, &o, source, target);
        open_session(&narrow, ATTN_BACKEND_BLAS, &m, &o, source, target);
        OK(narrow.ctx, attn__beam_open(narrow.ctx, narrow.generator));
        prompt(&s);
        prompt(&narrow);
        for (int step = 0; step < 10; step++) {
            int32_t tokens[2][3], finished[2][3];
            OK(s.ctx, attn_generator_step(s.ctx, s.generator, 3, tokens[0], finished[0]));
            OK(narrow.ctx, attn_generator_step(narrow.ctx, narrow.generator, 3, tokens[1], finished[1]));
            for (int64_t i = 0; i < 3; i++) {
                text want;
                OK(s.ctx, attn_generator_result(s.ctx, s.generator, i, 0, MOST, want.tokens, &want.count, &want.score));
                expect_text(&narrow, i, 0, &want, 0, "a beam of one");
                if (step < 9) assert_int_equal(finished[1][i], finished[0][i]);
                if (!finished[0][i]) assert_int_equal(tokens[1][i], tokens[0][i]);
                stopped += finished[0][i];
            }
        }
        close_session(&s);
        close_session(&narrow);
    }
    assert_true(stopped > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_all_texts),
                                       cmocka_unit_test(test_one_is_greedy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

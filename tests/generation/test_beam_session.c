#include "beams.h"

/* Beam search as a session: neighbours, ties, ends, failures, memory. */
enum { MORE = 64 };
typedef struct outcome {
    text best[MORE];
    int64_t count;
} outcome;

static void read_outcome(session *s, int64_t i, outcome *out)
{
    memset(out, 0, sizeof *out);
    for (; out->count < MORE; out->count++) {
        text *x = &out->best[out->count];
        attn_status status = attn_generator_result(s->ctx, s->generator, i, out->count, MOST, x->tokens, &x->count, &x->score);
        if (status == ATTN_ERROR_END_OF_DATA) return;
        OK(s->ctx, status);
    }
}

static void expect_outcome(session *s, int64_t i, const outcome *want, double within, const char *what)
{
    int64_t count;
    for (int64_t r = 0; r < want->count; r++) expect_text(s, i, r, &want->best[r], within, what);
    FAILS(s->ctx, attn_generator_result(s->ctx, s->generator, i, want->count, 0, NULL, &count, NULL), ATTN_ERROR_END_OF_DATA, "rank");
}

static int steps(session *s, int count)
{
    int32_t tokens[4], finished[4];
    int ended = 0;
    for (int i = 0; i < count; i++) {
        OK(s->ctx, attn_generator_step(s->ctx, s->generator, s->count, tokens, finished));
        for (int64_t q = ended = 0; q < s->count; q++) ended += finished[q];
    }
    return ended;
}

static attn_generator_options beam_options(int64_t sequences, int64_t capacity, int64_t beam)
{
    static const int32_t stops[5] = {3, 7, 1, 9, 5};
    attn_generator_options o = defaults(sequences, capacity);
    o.beam = beam;
    o.stop_count = 5;
    o.stops = stops;
    return o;
}

/* B119, B123: alone, together, and in another order: the same texts */
static void test_neighbours(void **state)
{
    const int64_t source[4] = {3, 0, 5, 2}, target[4] = {2, 1, 6, 4};
    (void)state;
    for (int encoder = 0; encoder < 2; encoder++) {
        const attn_transformer_options m = model_options(encoder, 2);
        attn_generator_options o = beam_options(4, 12, 4);
        trial all = {0};
        outcome want[4];
        open_trial(&all, ATTN_BACKEND_BLAS, &m, &o, source, target);
        prompt(&all.s);
        assert_int_equal(steps(&all.s, 11), 4);
        for (int64_t i = 0; i < 4; i++) read_outcome(&all.s, i, &want[i]);
        /* orders of the four, then each of them alone */
        static const int64_t orders[6][4] = {{3, 1, 0, 2}, {2, 3, 1, 0}, {0, -1}, {1, -1}, {2, -1}, {3, -1}};
        for (int order = 0; order < 6; order++) {
            const int64_t count = order < 2 ? 4 : 1;
            int64_t lengths[2][4], row = 0, source_row = 0;
            session s;
            for (int64_t i = 0; i < count; i++) {
                lengths[0][i] = source[orders[order][i]];
                lengths[1][i] = target[orders[order][i]];
            }
            o.sequences = count;
            open_session(&s, ATTN_BACKEND_BLAS, &m, &o, lengths[0], lengths[1]);
            for (int64_t i = 0; i < count; i++) {
                const int64_t from = orders[order][i];
                for (int64_t t = 0; t < lengths[1][i]; t++) model_set(s.batch.target, row++, all.s.tokens[from][t]);
                for (int64_t t = 0; encoder && t < lengths[0][i]; t++)
                    model_set(s.batch.source, source_row++, model_get(all.s.batch.source, all.first_source[from] + t));
            }
            prompt(&s);
            assert_int_equal(steps(&s, 11), count);
            for (int64_t i = 0; i < count; i++) expect_outcome(&s, i, &want[orders[order][i]], 1e-5, order < 2 ? "order" : "alone");
            close_session(&s);
        }
        close_session(&all.s);
    }
}

/* what has ended stays: results, logits, tokens of -1, and its rows of the caches */
static void test_ended_stays(void **state)
{
    const int64_t source[3] = {3, 1, 4}, target[3] = {9, 1, 6};
    const attn_transformer_options m = model_options(1, 2);
    const attn_generator_options o = beam_options(3, 12, 3);
    session s;
    outcome at_end[3], n_best;
    int32_t tokens[3], finished[3] = {0};
    int looked = 0;
    static float before[4096];
    (void)state;
    open_session(&s, ATTN_BACKEND_BLAS, &m, &o, source, target);
    prompt(&s);
    const view *rows = &s.generator->model.caches[1].self.value;
    const int64_t numbers = o.beam * o.capacity * rows->width;
    assert_true(numbers <= 4096);
    for (int step = 0; step < 13; step++) {
        int32_t was[3];
        memcpy(was, finished, sizeof was);
        memcpy(before, (float *)rows->data, (size_t)numbers * sizeof *before);
        OK(s.ctx, attn_generator_step(s.ctx, s.generator, 3, tokens, finished));
        for (int64_t i = 0; i < 3; i++) {
            if (was[i]) {
                assert_int_equal(tokens[i], -1);
                assert_int_equal(finished[i], 1);
                expect_outcome(&s, i, &at_end[i], 0, "ended");
                if (i == 0) assert_memory_equal(before, rows->data, (size_t)numbers * sizeof *before);
                looked++;
            }
            read_outcome(&s, i, &at_end[i]);
        }
    }
    assert_true(looked > 5);
    for (int64_t i = 0; i < 3; i++) { /* distinct, and in order; at most as many as the beam */
        read_outcome(&s, i, &n_best);
        assert_true(n_best.count > 0 && n_best.count <= o.beam);
        for (int64_t r = 0; r < n_best.count; r++) {
            const text *x = &n_best.best[r];
            n_best.best[r].rank = x->score / (double)(x->count + (x->count < o.capacity - target[i]));
            if (r > 0) assert_true(n_best.best[r - 1].rank >= n_best.best[r].rank);
            for (int64_t q = 0; q < r; q++)
                assert_true(n_best.best[q].count != x->count || memcmp(n_best.best[q].tokens, x->tokens, (size_t)x->count * 4) != 0);
        }
    }
    close_session(&s);
}

static attn_transformer_options constant_model(int64_t vocabulary)
{
    attn_transformer_options m = model_options(0, 1);
    m.source_vocabulary = vocabulary;
    m.output_bias = 1;
    return m;
}

/* all logits equal: the better hypothesis first, then the lower token; a stop token counts where it stands */
static void test_ties(void **state)
{
    static const struct {
        int32_t stop, want[3][2]; /* live ones after two steps, then how many are finished */
        int64_t finished;
    } cases[3] = {{-1, {{0, 0}, {0, 1}, {0, 2}}, 0}, {1, {{0, 0}, {0, 2}, {0, 3}}, 2}, {4, {{0, 0}, {0, 1}, {0, 2}}, 0}};
    static const double bias[VOCABULARY] = {0};
    const int64_t target[1] = {2};
    (void)state;
    for (int c = 0; c < 3; c++)
        for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++) {
            const attn_transformer_options m = constant_model(5);
            attn_generator_options o = defaults(1, 9);
            session s;
            o.beam = 3;
            o.stop_count = cases[c].stop >= 0;
            o.stops = &cases[c].stop;
            open_session(&s, backend, &m, &o, NULL, target);
            set_output(s.model, bias);
            prompt(&s);
            steps(&s, 2);
            text want = {.count = 2, .score = -2 * log(5)};
            for (int r = 0; r < 3; r++) {
                memcpy(want.tokens, cases[c].want[r], sizeof cases[c].want[r]);
                expect_text(&s, 0, cases[c].finished + r, &want, 1e-6, "ties");
            }
            if (cases[c].finished == 2) { /* of rank -log 5 both: the one that came first */
                const text first = {.score = -log(5)}, second = {.tokens = {0}, .count = 1, .score = -2 * log(5)};
                expect_text(&s, 0, 0, &first, 1e-6, "ties");
                expect_text(&s, 0, 1, &second, 1e-6, "ties");
            }
            close_session(&s);
        }
}

/* B118, B121, B124: the prompt counts in no length, the stop token does, and without one the length is that of the tokens */
static void test_lengths(void **state)
{
    static const int64_t targets[2] = {1, 5};
    static const int32_t stop = 2;
    (void)state;
    for (int which = 0; which < 2; which++) {
        const attn_transformer_options m = constant_model(4);
        attn_generator_options o = defaults(1, targets[which] + 3);
        const double bias[4] = {0, 0, 0, 0}, all = -log(4);
        session s;
        outcome got;
        o.beam = 64;
        o.stop_count = 1;
        o.stops = &stop;
        open_session(&s, ATTN_BACKEND_BLAS, &m, &o, NULL, &targets[which]);
        set_output(s.model, bias);
        prompt(&s);
        assert_int_equal(steps(&s, 3), 1);
        read_outcome(&s, 0, &got);
        assert_int_equal(got.count, 1 + 3 + 9 + 27);
        for (int64_t r = 0; r < got.count; r++) {
            const int64_t length = r < 1 ? 0 : r < 4 ? 1 : r < 13 ? 2 : 3; /* all of rank -log 4: as they came */
            assert_int_equal(got.best[r].count, length);
            assert_true(fabs(got.best[r].score - all * (double)(length + (length < 3))) < 1e-5);
        }
        assert_true(fabs(attn__beam_rank(s.generator, -6, 3) + 2) < 1e-12);
        close_session(&s);
    }
}

/* fewer tokens than twice the beam, and fewer still with a probability; one certain token has score 0, whatever the penalty */
static void test_few_candidates(void **state)
{
    static const double penalties[4] = {1, 0, 1e300, -1e300};
    static const int32_t stop = 1;
    const int64_t target[1] = {1};
    (void)state;
    for (int c = 0; c < 12; c++) {
        const int tokens = c % 3; /* how many have one: two, two of which one is the stop token, one */
        const double two[3] = {0, -INFINITY, log(3)}, stopping[3] = {0, log(3), -INFINITY}, one[3] = {-INFINITY, -INFINITY, 0};
        const attn_transformer_options m = constant_model(3);
        attn_generator_options o = defaults(1, 4);
        session s;
        outcome got;
        o.beam = 5;
        o.length_penalty = penalties[c / 3];
        o.stop_count = 1;
        o.stops = &stop;
        open_session(&s, ATTN_BACKEND_BLAS, &m, &o, NULL, target);
        set_output(s.model, tokens == 0 ? two : tokens == 1 ? stopping : one);
        prompt(&s);
        assert_int_equal(steps(&s, 3), 1);
        read_outcome(&s, 0, &got);
        if (tokens == 0) { /* 8 texts, of which the best 5 are there */
            const text best = {.tokens = {2, 2, 2}, .count = 3, .score = 3 * log(0.75)};
            assert_int_equal(got.count, 5);
            if (fabs(o.length_penalty) < 2) expect_text(&s, 0, 0, &best, 1e-6, "two tokens");
        } else if (tokens == 1) { /* the empty one, 0, 00, 000 */
            assert_int_equal(got.count, 4);
        } else {
            const text best = {.tokens = {2, 2, 2}, .count = 3, .score = 0};
            assert_int_equal(got.count, 1);
            expect_text(&s, 0, 0, &best, 0, "one token");
        }
        close_session(&s);
    }
}

/* A text of score 0 comes before those that were finished first, though the power of its length is 0. */
static void test_certain_text(void **state)
{
    static const double penalties[3] = {1, 0, -1e300}, bias[2] = {60, 0};
    static const int32_t stop = 1;
    const int64_t target[1] = {1};
    const text best = {.tokens = {0, 0, 0}, .count = 3, .score = 0};
    (void)state;
    for (int c = 0; c < 3; c++) {
        const attn_transformer_options m = constant_model(2);
        attn_generator_options o = defaults(1, 4);
        session s;
        o.beam = 5;
        o.length_penalty = penalties[c];
        o.stop_count = 1;
        o.stops = &stop;
        open_session(&s, ATTN_BACKEND_BLAS, &m, &o, NULL, target);
        set_output(s.model, bias);
        prompt(&s);
        assert_int_equal(steps(&s, 3), 1);
        expect_text(&s, 0, 0, &best, 0, "a certain text");
        close_session(&s);
    }
}

static void test_not_finite(void **state)
{
    static const double wrong[3][3] = {{0, NAN, 0}, {0, 0, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
    static const double good[3] = {0, 1, 2};
    const int64_t target[2] = {1, 2};
    const attn_transformer_options m = constant_model(3);
    attn_generator_options o = defaults(2, 6);
    session s;
    int32_t tokens[2] = {77, 77}, finished[2] = {77, 77};
    (void)state;
    o.beam = 2;
    for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++) {
        open_session(&s, backend, &m, &o, NULL, target);
        for (int i = 0; i < 3; i++) {
            set_output(s.model, wrong[i]);
            prompt(&s);
            FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished), ATTN_ERROR_NOT_FINITE, "logits");
            assert_int_equal(tokens[0] + finished[1], 154);
        }
        set_output(s.model, good);
        prompt(&s);
        assert_int_equal(steps(&s, 5), 2);
        close_session(&s);
    }
}

/* Without memory, or cancelled, a step has not been: it is made again, in another context too, and what follows is the same. */
static void test_failures(void **state)
{
    const int64_t source[2] = {3, 2}, target[2] = {2, 4};
    const attn_transformer_options m = model_options(1, 2);
    const attn_generator_options o = beam_options(2, 12, 4);
    session s, calm;
    int failed = 0, went = 0;
    (void)state;
    open_session(&s, ATTN_BACKEND_BLAS, &m, &o, source, target);
    open_session(&calm, ATTN_BACKEND_BLAS, &m, &o, source, target);
    prompt(&s);
    prompt(&calm);
    for (int step = 0; step < 8; step++) {
        const size_t bytes = (size_t)(8 * 11) * sizeof(float);
        float logits[8 * 11];
        outcome before[2];
        int32_t tokens[2], finished[2], want[2];
        memcpy(logits, s.generator->logits, bytes);
        for (int64_t i = 0; i < 2; i++) read_outcome(&s, i, &before[i]);
        attn_status status = ATTN_ERROR_OUT_OF_MEMORY;
        for (int at = 0; status != ATTN_OK; at++) {
            test_allocator counted;
            memset(&counted, 0, sizeof counted);
            attn_context *other = model_context_counted(&counted, at % 2 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, 1);
            counted.fail_at = counted.calls + at;
            if (at == 0) {
                counted.fail_at = 0;
                OK(other, attn_context_cancel(other));
            }
            status = attn_generator_step(other, s.generator, 2, tokens, finished);
            if (status == ATTN_OK) {
                went++;
            } else {
                assert_int_equal(status, at == 0 ? ATTN_ERROR_CANCELLED : ATTN_ERROR_OUT_OF_MEMORY);
                assert_memory_equal(logits, s.generator->logits, bytes);
                for (int64_t i = 0; i < 2; i++) expect_outcome(&s, i, &before[i], 0, "a failed step");
                failed++;
            }
            attn_context_free(other);
            if (failed % 5 == 4 && status != ATTN_OK) break; /* go on in the first context */
        }
        if (status != ATTN_OK) OK(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished));
        OK(calm.ctx, attn_generator_step(calm.ctx, calm.generator, 2, want, finished));
        assert_memory_equal(tokens, want, sizeof want);
        for (int64_t i = 0; i < 2; i++) {
            read_outcome(&calm, i, &before[i]);
            expect_outcome(&s, i, &before[i], 1e-5, "after failures");
        }
    }
    assert_true(failed > 8 && went > 2);
    close_session(&s);
    close_session(&calm);
}

/* A step that fails when caches have been copied leaves what it had found: the next one is made of the same, not of what is in the caches. */
static void test_failure_after_copies(void **state)
{
    const int64_t target[1] = {2};
    const attn_transformer_options m = model_options(0, 1);
    const attn_generator_options o = beam_options(1, 12, 6);
    session s, calm;
    static outcome want;
    int32_t token, finished;
    (void)state;
    open_session(&s, ATTN_BACKEND_BLAS, &m, &o, NULL, target);
    prompt(&s);
    open_session(&calm, ATTN_BACKEND_BLAS, &m, &o, NULL, target);
    prompt(&calm);
    for (int step = 0; step < 5; step++) {
        const int64_t filled = s.generator->filled[0];
        s.generator->filled[0] = o.capacity; /* no room for what is fed, which comes out behind the copies */
        FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 1, &token, &finished), ATTN_ERROR_FULL, "cache rows");
        s.generator->filled[0] = filled;
        memset(s.generator->logits, 0, (size_t)(6 * 11) * sizeof(float)); /* more than another context's rounding could do */
        OK(s.ctx, attn_generator_step(s.ctx, s.generator, 1, &token, &finished));
        OK(calm.ctx, attn_generator_step(calm.ctx, calm.generator, 1, &token, &finished));
        read_outcome(&calm, 0, &want);
        expect_outcome(&s, 0, &want, 0, "after copies");
    }
    s.generator->filled[0] = o.capacity;
    FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 1, &token, &finished), ATTN_ERROR_FULL, "cache rows");
    prompt(&s); /* what the failed step had found was of the prompt before */
    prompt(&calm);
    assert_int_equal(steps(&s, 3), steps(&calm, 3));
    read_outcome(&calm, 0, &want);
    expect_outcome(&s, 0, &want, 0, "a prompt after a failure");
    close_session(&s);
    close_session(&calm);
}

/* nothing is allocated in steps, not in the first one either; also where the candidates and many hypotheses weigh most */
static void test_steps_allocate_nothing(void **state)
{
    const int64_t source[2] = {30, 2}, target[2] = {2, 5};
    (void)state;
    for (int which = 0; which < 6; which++) {
        attn_transformer_options m = model_options(which & 1, 2);
        attn_generator_options o = beam_options(2, 20, which < 2 ? 4 : 32);
        session s;
        if (which > 3) m.source_vocabulary = 9000;
        if (which == 1 || which == 2) m.recurrence = ATTN_RECURRENCE_LSTM;
        m.context = 40;
        open_session(&s, which == 3 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, &m, &o, source, target);
        prompt(&s);
        int64_t before = model_allocations(s.ctx);
        steps(&s, 18);
        assert_int_equal(model_allocations(s.ctx), before);
        close_session(&s);
    }
}

/* a second prompt starts anew; the model and the context may go before the generator */
static void test_again(void **state)
{
    const int64_t source[2] = {3, 2}, target[2] = {2, 4};
    const attn_transformer_options m = model_options(1, 2);
    const attn_generator_options o = beam_options(2, 12, 3);
    session s;
    outcome first[2];
    int64_t count;
    (void)state;
    open_session(&s, ATTN_BACKEND_BLAS, &m, &o, source, target);
    for (int round = 0; round < 3; round++) {
        prompt(&s);
        OK(s.ctx, attn_generator_result(s.ctx, s.generator, 1, 0, 0, NULL, &count, NULL)); /* the empty text is live */
        assert_int_equal(count, 0);
        steps(&s, 3 + round);
        steps(&s, 7 - round);
        for (int64_t i = 0; i < 2; i++) {
            if (round == 0) read_outcome(&s, i, &first[i]);
            expect_outcome(&s, i, &first[i], 0, "again");
        }
    }
    attn_transformer_free(s.model);
    s.model = NULL;
    prompt(&s);
    steps(&s, 10);
    for (int64_t i = 0; i < 2; i++) expect_outcome(&s, i, &first[i], 0, "without the model's handle");
    attn_context_free(s.ctx);
    attn_generator_free(s.generator);
    model_batch_close(&s.batch);
}

static void test_errors(void **state)
{
    const int64_t target[2] = {2, 4};
    const attn_transformer_options m = model_options(0, 1);
    const attn_generator_options o = beam_options(2, 8, 3);
    session s;
    int32_t tokens[2] = {1, 1}, finished[2];
    int64_t count;
    (void)state;
    open_session(&s, ATTN_BACKEND_BLAS, &m, &o, NULL, target);
    FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished), ATTN_ERROR_BAD_STATE, "prompt");
    FAILS(s.ctx, attn_generator_result(s.ctx, s.generator, 0, 0, 0, NULL, &count, NULL), ATTN_ERROR_BAD_STATE, "prompt");
    prompt(&s);
    FAILS(s.ctx, attn_generator_accept(s.ctx, s.generator, 2, tokens), ATTN_ERROR_BAD_STATE, "beam of 3");
    FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 6, tokens, finished), ATTN_ERROR_SHAPE, "count");
    FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 2, NULL, finished), ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    FAILS(s.ctx, attn_generator_result(s.ctx, s.generator, 2, 0, 0, NULL, &count, NULL), ATTN_ERROR_INVALID_ARGUMENT, "sequence");
    FAILS(s.ctx, attn_generator_result(s.ctx, s.generator, 0, -1, 0, NULL, &count, NULL), ATTN_ERROR_INVALID_ARGUMENT, "rank");
    FAILS(s.ctx, attn_generator_result(s.ctx, s.generator, 0, 1, 0, NULL, &count, NULL), ATTN_ERROR_END_OF_DATA, "expected 0 to 0");
    steps(&s, 2);
    FAILS(s.ctx, attn_generator_result(s.ctx, s.generator, 0, 0, 0, NULL, &count, NULL), ATTN_ERROR_FULL, "capacity");
    assert_true(count > 0);
    close_session(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_neighbours),
                                       cmocka_unit_test(test_ended_stays),
                                       cmocka_unit_test(test_ties),
                                       cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_few_candidates),
                                       cmocka_unit_test(test_certain_text),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_failure_after_copies),
                                       cmocka_unit_test(test_steps_allocate_nothing),
                                       cmocka_unit_test(test_again),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

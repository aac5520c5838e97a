#include "beams.h"

/* Several models that decode as one. */
static attn_transformer_options kind(int which, int encoder)
{
    attn_transformer_options o = model_options(encoder ? 1 + which : 0, 1 + which);
    if (which == 1) o.width = 12, o.heads = 3, o.positions = ATTN_POSITIONS_ROTARY;
    if (which == 2) o.width = 20, o.heads = 4, o.key_heads = 2, o.feed_forward = 40;
    if (which == 2 && encoder) o.recurrence = ATTN_RECURRENCE_LSTM, o.positions = ATTN_POSITIONS_NONE;
    return o;
}

static attn_transformer *add(trial *t, const attn_transformer_options *o, uint64_t seed)
{
    attn_transformer *model = model_create(t->s.ctx, o);
    model_scramble(attn_transformer_parameters(model), seed);
    OK(t->s.ctx, attn_generator_add_model(t->s.ctx, t->s.generator, model));
    return t->further[t->models++] = model;
}

static void close_trial(trial *t)
{
    for (int m = 0; m < t->models; m++) attn_transformer_free(t->further[m]);
    close_session(&t->s);
}

static attn_generator_options options_of(int64_t sequences, int64_t beam)
{
    static const int32_t stops[5] = {3, 7, 1, 9, 5};
    attn_generator_options o = defaults(sequences, 9);
    o.beam = beam;
    o.temperature = 0;
    o.stop_count = beam > 1 ? 5 : 0;
    o.stops = stops;
    return o;
}

/* one model, three times: the same choices and scores, and logits that are its log-probabilities */
static void test_itself(void **state)
{
    static const double temperatures[3] = {0, 0.7, 1.3};
    const int64_t source[2] = {3, 2}, target[2] = {2, 4};
    (void)state;
    for (int which = 0; which < 12; which++) {
        attn_transformer_options m = model_options(which & 1, 2);
        if (which % 5 == 1) m.recurrence = ATTN_RECURRENCE_LSTM;
        attn_generator_options o = options_of(2, which < 9 ? 1 : 3);
        session one, three;
        int32_t tokens[2][2], finished[2][2];
        o.temperature = temperatures[which % 3];
        o.top_k = which & 4 ? 6 : 0;
        o.top_p = which & 2 ? 0.9 : 1;
        open_session(&one, ATTN_BACKEND_BLAS, &m, &o, source, target);
        open_session(&three, ATTN_BACKEND_BLAS, &m, &o, source, target);
        for (int i = 0; i < 2; i++) OK(three.ctx, attn_generator_add_model(three.ctx, three.generator, three.model));
        prompt(&one);
        prompt(&three);
        for (int step = 0; step < 5; step++) {
            const attn_tensor *raw = NULL, *mean = NULL;
            OK(one.ctx, attn_generator_logits(one.ctx, one.generator, &raw));
            OK(three.ctx, attn_generator_logits(three.ctx, three.generator, &mean));
            for (int64_t row = 0; o.beam == 1 && row < 2; row++) {
                double sum = 0;
                for (int64_t v = 0; v < 11; v++) sum += exp(model_get(raw, row * 11 + v));
                for (int64_t v = 0; v < 11; v++)
                    assert_true(fabs(model_get(raw, row * 11 + v) - log(sum) - model_get(mean, row * 11 + v)) < 1e-5);
            }
            OK(one.ctx, attn_generator_step(one.ctx, one.generator, 2, tokens[0], finished[0]));
            OK(three.ctx, attn_generator_step(three.ctx, three.generator, 2, tokens[1], finished[1]));
            assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
            assert_memory_equal(finished[0], finished[1], sizeof finished[0]);
            for (int64_t i = 0; i < 2; i++) {
                text want;
                OK(one.ctx, attn_generator_result(one.ctx, one.generator, i, 0, MOST, want.tokens, &want.count, &want.score));
                expect_text(&three, i, 0, &want, 1e-5, "a model thrice");
            }
        }
        close_session(&one);
        close_session(&three);
    }
}

/* models of other sizes and weights: logits are the logarithm of the mean of their probabilities, and what is accepted scores by it */
static void test_mean(void **state)
{
    const int64_t source[3] = {3, 0, 5}, target[3] = {2, 4, 1};
    (void)state;
    for (int which = 0; which < 8; which++) {
        const attn_transformer_options first = kind(0, which & 1);
        attn_generator_options o = options_of(3, 1);
        trial t = {0};
        text so_far[3];
        random_state random = {(uint64_t)which};
        attn_transformer_options m[2];
        memset(so_far, 0, sizeof so_far);
        attn_transformer_options typed = first;
        const double within = which & 2 ? 1e-12 : 1e-5;
        for (int i = 0; i < 2; i++) m[i] = kind(i + 1, which & 1);
        if (which & 2) typed.dtype = m[0].dtype = m[1].dtype = ATTN_FLOAT64;
        open_trial(&t, which & 2 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, &typed, &o, source, target);
        for (int i = 0; i < (which & 4 ? 2 : 1); i++) add(&t, &m[i], (uint64_t)(20 + i));
        prompt(&t.s);
        for (int step = 0; step < 5; step++) {
            const attn_tensor *got = NULL;
            int32_t chosen[3], tokens[3], finished[3];
            OK(t.s.ctx, attn_generator_logits(t.s.ctx, t.s.generator, &got));
            for (int64_t i = 0; i < 3; i++) {
                double logits[VOCABULARY], log_p[VOCABULARY];
                int64_t best = 0;
                calculate(&t, i, &so_far[i], logits, log_p);
                for (int64_t v = 0; v < t.vocabulary; v++) {
                    if (!(fabs(model_get(got, i * t.vocabulary + v) - log_p[v]) <= within))
                        fail_msg("case %d, step %d, sequence %d, token %d: %.9g, expected %.9g", which, step, (int)i, (int)v,
                                 model_get(got, i * t.vocabulary + v), log_p[v]);
                    if (log_p[v] > log_p[best]) best = v;
                }
                chosen[i] = step % 2 ? (int32_t)best : (int32_t)random_integer(&random, 0, t.vocabulary);
                so_far[i].tokens[so_far[i].count++] = chosen[i];
                so_far[i].score += log_p[chosen[i]];
            }
            if (step % 2) {
                OK(t.s.ctx, attn_generator_step(t.s.ctx, t.s.generator, 3, tokens, finished));
                assert_memory_equal(tokens, chosen, sizeof tokens);
            } else {
                OK(t.s.ctx, attn_generator_accept(t.s.ctx, t.s.generator, 3, chosen));
            }
            for (int64_t i = 0; i < 3; i++) expect_text(&t.s, i, 0, &so_far[i], within * 10, "mean");
        }
        close_trial(&t);
    }
}

/* beam search by the mean */
static void test_beams(void **state)
{
    static search all[3];
    const int64_t source[3] = {3, 0, 5}, target[3] = {2, 4, 1};
    (void)state;
    for (int which = 0; which < 4; which++) {
        const attn_transformer_options first = kind(0, which & 1), m[2] = {kind(1, which & 1), kind(2, which & 1)};
        const attn_generator_options o = options_of(3, which & 2 ? 2 : 5);
        trial t = {0};
        open_trial(&t, ATTN_BACKEND_BLAS, &first, &o, source, target);
        for (int i = 0; i < 2; i++) add(&t, &m[i], (uint64_t)(20 + i));
        prompt(&t.s);
        for (int64_t i = 0; i < 3; i++) begin_search(&t, i, &all[i]);
        for (int step = 0; step < 8; step++) {
            int32_t tokens[3], finished[3];
            OK(t.s.ctx, attn_generator_step(t.s.ctx, t.s.generator, 3, tokens, finished));
            for (int64_t i = 0; i < 3; i++) {
                search_on(&t, i, &all[i]);
                assert_int_equal(tokens[i], all[i].newest);
                assert_int_equal(finished[i], all[i].ended);
                expect_search(&t.s, i, &all[i], 1e-5, "beams of an ensemble");
            }
        }
        close_trial(&t);
    }
}

/* probabilities of 0, and logits whose exponentials no number holds; a model without any probability is not passed over */
static void test_extremes(void **state)
{
    static const double first[3] = {0, -INFINITY, -INFINITY}, second[3] = {-INFINITY, 3e30, -INFINITY},
                        none[3] = {-INFINITY, -INFINITY, -INFINITY};
    const int64_t target[1] = {2};
    attn_transformer_options m = model_options(0, 1);
    const attn_generator_options o = options_of(1, 1);
    (void)state;
    m.source_vocabulary = 3;
    m.output_bias = 1;
    for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++) {
        trial t = {0};
        const attn_tensor *logits = NULL;
        int32_t token, finished;
        open_trial(&t, backend, &m, &o, NULL, target);
        add(&t, &m, 5);
        set_output(t.s.model, first);
        set_output(t.further[0], second);
        prompt(&t.s);
        OK(t.s.ctx, attn_generator_logits(t.s.ctx, t.s.generator, &logits));
        for (int v = 0; v < 2; v++) assert_true(fabs(model_get(logits, v) + log(2)) < 1e-6);
        assert_true(model_get(logits, 2) == -INFINITY);
        set_output(t.further[0], none);
        prompt(&t.s);
        FAILS(t.s.ctx, attn_generator_step(t.s.ctx, t.s.generator, 1, &token, &finished), ATTN_ERROR_NOT_FINITE, "logits");
        close_trial(&t);
    }
}

static void test_errors(void **state)
{
    const int64_t source[2] = {3, 2}, target[2] = {2, 4};
    (void)state;
    for (int encoder = 0; encoder < 2; encoder++) {
        const attn_transformer_options first = model_options(encoder, 1);
        const attn_generator_options o = options_of(2, 1);
        trial t = {0};
        attn_mask *mask = NULL;
        open_trial(&t, ATTN_BACKEND_REFERENCE, &first, &o, source, target);
        OK(t.s.ctx, attn_mask_causal(t.s.ctx, ATTN_ALIGN_FIRST, &mask));
        for (int c = 0; c < 9; c++) {
            static const attn_status statuses[9] = {ATTN_ERROR_SHAPE,
                                                    ATTN_ERROR_INVALID_ARGUMENT,
                                                    ATTN_ERROR_DTYPE,
                                                    ATTN_ERROR_INVALID_ARGUMENT,
                                                    ATTN_ERROR_UNSUPPORTED,
                                                    ATTN_ERROR_INVALID_ARGUMENT,
                                                    ATTN_ERROR_INVALID_ARGUMENT,
                                                    ATTN_ERROR_INVALID_ARGUMENT,
                                                    ATTN_ERROR_SHAPE};
            attn_transformer_options m = first;
            if (c == 0) m.target_vocabulary = 12;
            if (c == 1) m.encoder_layers = !encoder;
            if (c == 2) m.dtype = ATTN_FLOAT64;
            if (c == 3) m.positions = ATTN_POSITIONS_LEARNED, m.context = 8;
            if (c == 5) m.output_head = 0;
            if (c == 6) m.encoder_layers = 1, m.decoder_layers = 0;
            if (c == 8) m.target_vocabulary = 11, m.source_vocabulary = 12;
            if (c == 8 && !encoder) continue;
            attn_transformer *model = model_create(t.s.ctx, &m);
            if (c == 4) OK(t.s.ctx, attn_transformer_set_mask(t.s.ctx, model, 1, 0, mask));
            FAILS(t.s.ctx, attn_generator_add_model(t.s.ctx, t.s.generator, c == 7 ? NULL : model), statuses[c],
                  c == 3 ? "capacity" : "model");
            attn_transformer_free(model);
        }
        attn_mask_free(mask);
        prompt(&t.s);
        expect_recomputed(&t.s, 1e-5, "none was added");
        FAILS(t.s.ctx, attn_generator_add_model(t.s.ctx, t.s.generator, t.s.model), ATTN_ERROR_BAD_STATE, "prompt");
        expect_recomputed(&t.s, 1e-5, "none was added");
        close_trial(&t);
    }
}

/* a source past the learned positions of any encoder is refused */
static void test_positions(void **state)
{
    const int64_t source[1] = {12}, target[1] = {2};
    const attn_transformer_options first = model_options(1, 1);
    const attn_generator_options o = options_of(1, 1);
    attn_transformer_options m = first;
    trial t = {0};
    (void)state;
    m.positions = ATTN_POSITIONS_LEARNED;
    m.context = 11;
    open_trial(&t, ATTN_BACKEND_BLAS, &first, &o, source, target);
    add(&t, &m, 3);
    FAILS(t.s.ctx, attn_generator_prompt(t.s.ctx, t.s.generator, &t.s.batch.batch), ATTN_ERROR_INVALID_ARGUMENT, "source_layout");
    OK(t.s.ctx, attn_generator_add_model(t.s.ctx, t.s.generator, t.s.model)); /* that was no prompt */
    close_trial(&t);
}

/* a second prompt starts anew in every model: what the first left in states of linear forms and of recurrent models counts no more */
static void test_again(void **state)
{
    const int64_t source[2] = {3, 2}, target[2] = {2, 4};
    (void)state;
    for (int which = 0; which < 8; which++) {
        const attn_transformer_options first = kind(0, which & 1);
        attn_transformer_options m[2] = {first, first};
        const attn_generator_options o = options_of(2, which & 2 ? 3 : 1);
        const attn_tensor *logits = NULL;
        double fresh[2 * VOCABULARY];
        trial t = {0};
        if (which & 4)
            m[0].form = ATTN_FORM_LINEAR;
        else
            m[0].recurrence = ATTN_RECURRENCE_LSTM;
        open_trial(&t, ATTN_BACKEND_BLAS, &first, &o, source, target);
        for (int i = 0; i < 2; i++) add(&t, &m[i], (uint64_t)(20 + i));
        for (int round = 0; round < 2; round++) {
            int32_t tokens[2], finished[2];
            prompt(&t.s);
            OK(t.s.ctx, attn_generator_logits(t.s.ctx, t.s.generator, &logits));
            for (int64_t e = 0; e < 2 * t.vocabulary; e++) {
                const double got = model_get(logits, e / t.vocabulary * o.beam * t.vocabulary + e % t.vocabulary);
                if (round == 0) fresh[e] = got;
                if (got != fresh[e]) fail_msg("case %d, logit %d: %.9g, expected %.9g", which, (int)e, got, fresh[e]);
            }
            for (int step = 0; step < 3; step++) OK(t.s.ctx, attn_generator_step(t.s.ctx, t.s.generator, 2, tokens, finished));
        }
        close_trial(&t);
    }
}

/* steps allocate nothing, whichever model is the largest; models' handles may go before the generator, which may go last */
static void test_memory(void **state)
{
    const int64_t source[2] = {30, 2}, target[2] = {2, 4};
    (void)state;
    for (int which = 0; which < 8; which++) {
        attn_transformer_options m[2] = {kind(0, which & 1), kind(2, which & 1)};
        const attn_generator_options o = options_of(2, which & 2 ? 8 : 1);
        trial t = {0};
        int32_t tokens[2], finished[2];
        for (int i = 0; i < 2; i++) m[i].source_vocabulary = which & 4 ? 40000 : 11;
        open_session(&t.s, ATTN_BACKEND_BLAS, &m[which >> 1 & 1], &o, source, target);
        add(&t, &m[!(which >> 1 & 1)], 7);
        attn_transformer_free(t.further[0]);
        attn_transformer_free(t.s.model);
        prompt(&t.s);
        int64_t before = model_allocations(t.s.ctx);
        for (int step = 0; step < 5; step++) OK(t.s.ctx, attn_generator_step(t.s.ctx, t.s.generator, 2, tokens, finished));
        assert_int_equal(model_allocations(t.s.ctx), before);
        model_batch_close(&t.s.batch);
        attn_context_free(t.s.ctx);
        attn_generator_free(t.s.generator);
    }
}

/* without memory a model is not added, and nothing leaks */
static void test_without_memory(void **state)
{
    const int64_t target[1] = {2};
    const attn_transformer_options m = model_options(0, 2);
    const attn_generator_options o = options_of(1, 3);
    test_allocator counted;
    int failures = 0;
    (void)state;
    memset(&counted, 0, sizeof counted);
    attn_context *ctx = model_context_counted(&counted, ATTN_BACKEND_BLAS, 1);
    attn_transformer *model = model_create(ctx, &m);
    model_batch batch;
    model_batch_open(ctx, &batch, &m, 1, NULL, target, 4);
    for (int at = 1, added = 0; !added; at++) {
        attn_generator *generator = NULL;
        int32_t token, finished;
        OK(ctx, attn_generator_create(ctx, model, &o, &generator));
        counted.fail_at = counted.calls + at;
        attn_status status = attn_generator_add_model(ctx, generator, model);
        counted.fail_at = 0;
        added = status == ATTN_OK;
        if (!added) assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
        failures += !added;
        OK(ctx, attn_generator_prompt(ctx, generator, &batch.batch));
        OK(ctx, attn_generator_step(ctx, generator, 1, &token, &finished));
        attn_generator_free(generator);
    }
    assert_int_equal(failures, 3);
    model_batch_close(&batch);
    attn_transformer_free(model);
    attn_context_free(ctx);
    assert_int_equal(counted.live_pointers, 0);
    assert_int_equal(counted.wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_itself),   cmocka_unit_test(test_mean),   cmocka_unit_test(test_beams),
        cmocka_unit_test(test_extremes), cmocka_unit_test(test_errors), cmocka_unit_test(test_positions),
        cmocka_unit_test(test_again),    cmocka_unit_test(test_memory), cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

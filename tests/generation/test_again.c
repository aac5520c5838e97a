#include "fixture.h"

/* A second prompt starts anew: nothing of the first is left, and what the new one needs more room for gets it. */
enum { SEQUENCES = 3, STEPS = 6 };

typedef struct story {
    int32_t tokens[SEQUENCES][STEPS], finished[SEQUENCES];
    int64_t count[SEQUENCES];
    double score[SEQUENCES];
} story;

static void tell(session *s, story *out)
{
    memset(out, 0, sizeof *out);
    prompt(s);
    for (int step = 0; step < STEPS; step++) {
        int32_t tokens[SEQUENCES];
        OK(s->ctx, attn_generator_step(s->ctx, s->generator, SEQUENCES, tokens, out->finished));
    }
    for (int64_t i = 0; i < SEQUENCES; i++)
        OK(s->ctx, attn_generator_result(s->ctx, s->generator, i, 0, STEPS, out->tokens[i], &out->count[i], &out->score[i]));
}

static void test_same_again(void **state)
{
    (void)state;
    const int64_t source[SEQUENCES] = {2, 4, 1}, target[SEQUENCES] = {2, 1, 3};
    const int32_t stops[4] = {1, 3, 5, 7};
    attn_transformer_options o = model_options(1, 2);
    attn_generator_options g = defaults(SEQUENCES, 12);
    session s;
    static story first, second;
    g.stops = stops;
    g.stop_count = 4;
    g.temperature = 3;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, source, target);
    tell(&s, &first);
    int finished = 0, made = 0;
    for (int i = 0; i < SEQUENCES; i++) finished += first.finished[i], made += first.count[i] > 0;
    assert_true(finished > 0 && made > 0); /* else there would be nothing to forget */
    tell(&s, &second);
    assert_memory_equal(&first, &second, sizeof first);
    close_session(&s);
}

/* the encoder's rows of a longer source, and of a shorter one after it */
static void test_longer_source(void **state)
{
    (void)state;
    const int64_t source[3][2] = {{1, 2}, {6, 5}, {2, 3}}, target[2] = {2, 1};
    attn_transformer_options o = model_options(2, 2);
    attn_generator_options g = defaults(2, 12);
    session s;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, source[0], target);
    for (int round = 0; round < 3; round++) {
        int64_t row = 0;
        model_batch_close(&s.batch);
        model_batch_open(s.ctx, &s.batch, &o, 2, source[round], target, (uint64_t)round + 4);
        for (int64_t i = 0; i < 2; i++) {
            s.lengths[i] = target[i];
            for (int64_t t = 0; t < target[i]; t++) s.tokens[i][t] = (int32_t)model_get(s.batch.target, row++);
        }
        prompt(&s);
        expect_recomputed(&s, 1e-5, "prompt");
    }
    close_session(&s);
}

/* a source longer than any before takes its memory at the prompt: no step after it allocates, not the first one either */
static void test_steps_after_a_longer_source(void **state)
{
    (void)state;
    const int64_t source[2][2] = {{150, 100}, {2000, 1500}}, target[2] = {2, 1};
    attn_transformer_options o = model_options(2, 2);
    attn_generator_options g = defaults(2, 12);
    session s;
    o.context = 2000;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, source[0], target);
    for (int round = 0; round < 2; round++) {
        model_batch_close(&s.batch);
        model_batch_open(s.ctx, &s.batch, &o, 2, source[round], target, 4);
        prompt(&s);
        int64_t before = model_allocations(s.ctx);
        for (int step = 0; step < 4; step++) {
            int32_t tokens[2], finished[2];
            OK(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished));
            assert_int_equal(model_allocations(s.ctx), before);
        }
    }
    close_session(&s);
}

/* sources lie in any order among the rows of their batch */
static void test_sources_in_any_order(void **state)
{
    (void)state;
    const int64_t source[3] = {2, 4, 3}, target[3] = {2, 1, 3};
    const attn_segment turned[3] = {{7, 2, 0, 0}, {0, 4, 0, 1}, {4, 3, 0, 2}};
    for (int32_t recurrence = ATTN_RECURRENCE_NONE; recurrence <= ATTN_RECURRENCE_LSTM; recurrence++) {
        attn_transformer_options o = model_options(2, 2);
        attn_generator_options g = defaults(3, 12);
        session s;
        o.recurrence = recurrence;
        if (recurrence != ATTN_RECURRENCE_NONE) o.positions = ATTN_POSITIONS_NONE;
        open_session(&s, ATTN_BACKEND_BLAS, &o, &g, source, target);
        OK(s.ctx, attn_layout_set(s.ctx, s.batch.source_layout, 3, turned));
        prompt(&s);
        expect_recomputed(&s, 1e-5, "prompt");
        for (int32_t token = 4; token < 7; token++) {
            const int32_t tokens[3] = {token, token + 1, token + 2};
            OK(s.ctx, attn_generator_accept(s.ctx, s.generator, 3, tokens));
            for (int i = 0; i < 3; i++) s.tokens[i][s.lengths[i]++] = tokens[i];
            expect_recomputed(&s, 1e-5, "step");
        }
        close_session(&s);
    }
}

/* the first token past the vocabulary is refused, and nothing has happened */
static void test_token_past_the_end(void **state)
{
    (void)state;
    const int64_t target[1] = {2};
    attn_transformer_options o = model_options(0, 1);
    attn_generator_options g = defaults(1, 12);
    session s;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, NULL, target);
    prompt(&s);
    for (int32_t token = 11; token >= -1; token -= 12)
        FAILS(s.ctx, attn_generator_accept(s.ctx, s.generator, 1, &token), ATTN_ERROR_INVALID_ARGUMENT, "for sequence 0");
    const int32_t last = 10;
    OK(s.ctx, attn_generator_accept(s.ctx, s.generator, 1, &last));
    s.tokens[0][s.lengths[0]++] = last;
    expect_recomputed(&s, 1e-5, "last token of the vocabulary");
    close_session(&s);
}

/* a source longer than the encoder's learned positions is refused, as a forward refuses it, and the session stays as it was */
static void test_source_past_the_positions(void **state)
{
    (void)state;
    const int64_t source[2][1] = {{5}, {6}}, target[1] = {2};
    attn_transformer_options o = model_options(1, 1);
    attn_generator_options g = defaults(1, 5);
    model_batch longer;
    session s;
    o.positions = ATTN_POSITIONS_LEARNED;
    o.context = 5;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, source[0], target);
    model_batch_open(s.ctx, &longer, &o, 1, source[1], target, 5);
    prompt(&s);
    FAILS(s.ctx, attn_generator_prompt(s.ctx, s.generator, &longer.batch), ATTN_ERROR_INVALID_ARGUMENT, "source_layout: got position 5");
    expect_recomputed(&s, 1e-5, "after a source that is too long");
    model_batch_close(&longer);
    close_session(&s);
}

/* a prompt that gets no memory has ended what the one before began: there is nothing to go on from */
static void test_prompt_without_memory(void **state)
{
    (void)state;
    const int64_t source[2][2] = {{2, 1}, {900, 700}}, target[2] = {2, 1};
    attn_transformer_options o = model_options(1, 1);
    attn_generator_options g = defaults(2, 12);
    test_allocator memory;
    session s;
    int refused = 0;
    o.context = 900;
    for (int at = 1; at < 6; at++) {
        int32_t tokens[2], finished[2];
        memset(&memory, 0, sizeof memory);
        open_session(&s, ATTN_BACKEND_BLAS, &o, &g, source[0], target);
        attn_context *ctx = model_context_counted(&memory, ATTN_BACKEND_BLAS, 1);
        attn_generator_free(s.generator);
        OK(ctx, attn_generator_create(ctx, s.model, &g, &s.generator));
        OK(ctx, attn_generator_prompt(ctx, s.generator, &s.batch.batch));
        OK(ctx, attn_generator_step(ctx, s.generator, 2, tokens, finished));
        model_batch_close(&s.batch);
        model_batch_open(s.ctx, &s.batch, &o, 2, source[1], target, 5);
        memory.fail_at = memory.calls + at;
        attn_status status = attn_generator_prompt(ctx, s.generator, &s.batch.batch);
        memory.fail_at = 0;
        if (status != ATTN_OK) {
            refused++;
            FAILS(ctx, attn_generator_step(ctx, s.generator, 2, tokens, finished), ATTN_ERROR_BAD_STATE, "without a prompt");
            OK(ctx, attn_generator_prompt(ctx, s.generator, &s.batch.batch));
        }
        OK(ctx, attn_generator_step(ctx, s.generator, 2, tokens, finished));
        attn_generator_free(s.generator);
        s.generator = NULL;
        attn_context_free(ctx);
        close_session(&s);
        assert_int_equal(memory.live_pointers, 0);
    }
    assert_true(refused > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_again),
        cmocka_unit_test(test_longer_source),
        cmocka_unit_test(test_steps_after_a_longer_source),
        cmocka_unit_test(test_sources_in_any_order),
        cmocka_unit_test(test_token_past_the_end),
        cmocka_unit_test(test_source_past_the_positions),
        cmocka_unit_test(test_prompt_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

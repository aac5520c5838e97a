#include <stdio.h>
#include "fixture.h"

/* Cached decoding against the full forward, full caches, results and errors. */
/* fills what the caches hold behind the filled rows with NaN */
static void spoil(session *s)
{
    attn_generator *g = s->generator;
    if (s->options.recurrence != ATTN_RECURRENCE_NONE) {
        const view *next = &g->model.recurrent.next;
        memset(next->data, 255, (size_t)(next->rows * next->row_stride * attn__dtype_bytes(next->dtype)));
        return;
    }
    for (int64_t l = 0; s->options.form != ATTN_FORM_SOFTMAX && l < s->options.decoder_layers; l++) {
        const view *next = &g->model.caches[l].self.value;
        memset(next->data, 255, (size_t)(next->rows * next->row_stride * attn__dtype_bytes(next->dtype)));
    }
    for (int64_t l = 0; s->options.form == ATTN_FORM_SOFTMAX && l < s->options.decoder_layers; l++)
        for (int which = 0; which < 2; which++) {
            const view *v = which ? &g->model.caches[l].self.value : &g->model.caches[l].self.key;
            for (int64_t i = 0; i < s->count; i++)
                for (int64_t r = i * g->options.capacity + g->filled[i]; r < (i + 1) * g->options.capacity; r++)
                    for (int64_t c = 0; c < v->width; c++) {
                        if (v->dtype == ATTN_FLOAT64)
                            ((double *)v->data)[r * v->row_stride + c] = NAN;
                        else
                            ((float *)v->data)[r * v->row_stride + c] = NAN;
                    }
        }
}

static attn_transformer_options kind(int which)
{
    attn_transformer_options o = model_options(which & 1, 2);
    o.norm_placement = which & 2 ? ATTN_PLACEMENT_PRE : ATTN_PLACEMENT_POST;
    o.parallel_block = which & 4 ? 1 : 0;
    o.positions = which & 8 ? ATTN_POSITIONS_LEARNED : ATTN_POSITIONS_SINUSOIDAL;
    if (which & 32) { /* positions inside the attention, and heads that are normed and gated */
        o.positions = ATTN_POSITIONS_ROTARY + which % 4;
        o.position_buckets = 8;
        o.position_reach = 5;
        o.query_key_norm = which >> 2 & 1;
        o.gated_attention = which >> 3 & 1;
    }
    if ((which & 96) == 96) { /* states in place of keys and values */
        o.form = which & 4 ? ATTN_FORM_PERFORMER : ATTN_FORM_LINEAR;
        o.features = which & 8 ? 6 : ATTN_DERIVED;
        o.positions = which & 2 ? ATTN_POSITIONS_ROTARY : ATTN_POSITIONS_SINUSOIDAL;
        o.dropout_attention = 0.5;
    } else if (which & 64) {
        o.recurrence = which & 4 ? ATTN_RECURRENCE_TANH : ATTN_RECURRENCE_LSTM;
        o.both_ways = which >> 3 & 1;
        o.decoder_score = which >> 1 & 3;
        o.decoder_attention = (which & 47) != 5;
        o.positions = which & 8 ? ATTN_POSITIONS_LEARNED : ATTN_POSITIONS_NONE;
    }
    o.context = MOST;
    if (which & 2) o.tie = ATTN_TIE_OUTPUT;
    if (which & 8) {
        o.heads = 4;
        o.key_heads = 2;
        o.norm = ATTN_NORM_RMS;
        o.gated = 1;
        o.activation = ATTN_ACTIVATION_SWISH;
        o.dropout_sublayer = o.dropout_attention = 0.5; /* does nothing here */
    }
    return o;
}

/* every step of several sequences of unequal prompts; the sequences stop one by one by being handed a stop token */
static void test_cache_equals_the_whole(void **state)
{
    (void)state;
    const int64_t source[4] = {3, 0, 5, 1}, target[4] = {4, 1, 6, 2};
    for (int which = 0; which < 128; which++) {
        attn_transformer_options o = kind(which & 111);
        int32_t backend = which & 16 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS;
        if (which & 16) o.dtype = ATTN_FLOAT64;
        attn_generator_options g = defaults(4, 20);
        session s;
        random_state random = {(uint64_t)which};
        open_session(&s, backend, &o, &g, source, target);
        for (int again = 0; again < 2; again++) { /* a second prompt starts over */
            for (int64_t i = 0; i < 4; i++) s.lengths[i] = target[i];
            spoil(&s);
            prompt(&s);
            spoil(&s);
            for (int step = 0; step < 8; step++) {
                int32_t tokens[4];
                expect_recomputed(&s, backend == ATTN_BACKEND_BLAS ? 1e-5 : 1e-12, "step");
                for (int i = 0; i < 4; i++) tokens[i] = s.tokens[i][s.lengths[i]++] = (int32_t)random_integer(&random, 0, 11);
                OK(s.ctx, attn_generator_accept(s.ctx, s.generator, 4, tokens));
                spoil(&s);
            }
        }
        close_session(&s);
    }
}

/* B130: capacity 8, prompt 5: three tokens fit, then FULL, and nothing changes */
static void test_full(void **state)
{
    (void)state;
    const int64_t target[2] = {5, 4};
    attn_transformer_options o = model_options(0, 1);
    attn_generator_options g = defaults(2, 8);
    session s;
    int32_t tokens[2], finished[2], result[8];
    int64_t count;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, NULL, target);
    prompt(&s);
    for (int i = 0; i < 3; i++) {
        OK(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished));
        for (int q = 0; q < 2; q++) s.tokens[q][s.lengths[q]++] = tokens[q];
    }
    size_t bytes = (size_t)s.generator->model.self_bytes;
    char kept[4096];
    assert_true(bytes <= sizeof kept);
    memcpy(kept, s.generator->model.self_cache, bytes);
    for (int i = 0; i < 2; i++) {
        FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished), ATTN_ERROR_FULL, "sequence 0");
        assert_memory_equal(kept, s.generator->model.self_cache, bytes);
        expect_recomputed(&s, 1e-5, "full");
        OK(s.ctx, attn_generator_result(s.ctx, s.generator, 0, 0, 8, result, &count, NULL));
        assert_int_equal(count, 3);
    }
    attn_generator_free(s.generator);
    g.capacity = 4; /* the prompt does not fit */
    OK(s.ctx, attn_generator_create(s.ctx, s.model, &g, &s.generator));
    FAILS(s.ctx, attn_generator_prompt(s.ctx, s.generator, &s.batch.batch), ATTN_ERROR_FULL, "capacity");
    FAILS(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished), ATTN_ERROR_BAD_STATE, "prompt");
    close_session(&s);
}

/* A stop token ends its sequence, is not part of the result, and leaves the others alone; scores are sums of log-probabilities. */
static void test_stops_result_and_score(void **state)
{
    (void)state;
    const int64_t source[3] = {2, 4, 1}, target[3] = {2, 1, 3};
    const int32_t stops[2] = {10, 4}, plan[4][3] = {{1, 2, 3}, {5, 10, 6}, {7, 0, 4}, {8, -5, 99}};
    attn_transformer_options o = model_options(1, 1);
    attn_generator_options g = defaults(3, 12);
    g.stops = stops;
    g.stop_count = 2;
    session s;
    double score[3] = {0};
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, source, target);
    prompt(&s);
    int done[3] = {0};
    for (int step = 0; step < 4; step++) {
        attn_tensor *logits = recomputed(&s);
        for (int i = 0; i < 3; i++) {
            if (done[i]) continue;
            double sum = 0;
            for (int v = 0; v < 11; v++) sum += exp(model_get(logits, i * 11 + v));
            score[i] += model_get(logits, i * 11 + plan[step][i]) - log(sum);
            done[i] = plan[step][i] == 10 || plan[step][i] == 4;
            if (!done[i]) s.tokens[i][s.lengths[i]++] = plan[step][i];
        }
        attn_tensor_free(logits);
        OK(s.ctx, attn_generator_accept(s.ctx, s.generator, 3, plan[step])); /* a finished sequence's token is not looked at */
    }
    const int64_t counts[3] = {4, 1, 2};
    for (int64_t i = 0; i < 3; i++) {
        int32_t tokens[8];
        int64_t count;
        double got;
        OK(s.ctx, attn_generator_result(s.ctx, s.generator, i, 0, 8, tokens, &count, &got));
        assert_int_equal(count, counts[i]);
        for (int64_t t = 0; t < count; t++) assert_int_equal(tokens[t], plan[t][i]);
        if (!(fabs(got - score[i]) < 1e-5)) fail_msg("sequence %d: score %g, expected %g", (int)i, got, score[i]);
        FAILS(s.ctx, attn_generator_result(s.ctx, s.generator, i, 0, count - 1, tokens, &count, NULL), ATTN_ERROR_FULL, "capacity");
        assert_int_equal(count, counts[i]);
    }
    /* all but one are finished: step says so and gives -1 for them */
    int32_t tokens[3], finished[3];
    OK(s.ctx, attn_generator_step(s.ctx, s.generator, 3, tokens, finished));
    assert_int_equal(finished[1], 1);
    assert_int_equal(finished[2], 1);
    assert_int_equal(tokens[1], -1);
    close_session(&s);
}

static void test_errors(void **state)
{
    (void)state;
    const int64_t target[2] = {2, 3}, empty[2] = {2, 0};
    attn_transformer_options o = model_options(0, 1);
    attn_generator_options g = defaults(2, 8);
    session s;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, NULL, target);
    attn_context *ctx = s.ctx;
    attn_generator *made;
    const attn_tensor *logits;
    int32_t tokens[2] = {1, 1}, finished[2];
    int64_t count;
    FAILS(ctx, attn_generator_logits(ctx, s.generator, &logits), ATTN_ERROR_BAD_STATE, "prompt");
    FAILS(ctx, attn_generator_accept(ctx, s.generator, 2, tokens), ATTN_ERROR_BAD_STATE, "prompt");
    FAILS(ctx, attn_generator_prompt_tokens(ctx, s.generator, 2, tokens), ATTN_ERROR_BAD_STATE, "sequences");
    model_batch batch;
    model_batch_open(ctx, &batch, &o, 2, NULL, empty, 1);
    FAILS(ctx, attn_generator_prompt(ctx, s.generator, &batch.batch), ATTN_ERROR_INVALID_ARGUMENT, "empty");
    model_batch_close(&batch);
    model_batch_open(ctx, &batch, &o, 1, NULL, target, 1);
    FAILS(ctx, attn_generator_prompt(ctx, s.generator, &batch.batch), ATTN_ERROR_SHAPE, "sequences");
    model_batch_close(&batch);
    prompt(&s);
    const int32_t wrong[3][2] = {{1, -1}, {11, 1}, {2147483647, 1}};
    for (int i = 0; i < 3; i++) FAILS(ctx, attn_generator_accept(ctx, s.generator, 2, wrong[i]), ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    FAILS(ctx, attn_generator_accept(ctx, s.generator, 1, tokens), ATTN_ERROR_SHAPE, "count");
    FAILS(ctx, attn_generator_step(ctx, s.generator, 3, tokens, finished), ATTN_ERROR_SHAPE, "count");
    FAILS(ctx, attn_generator_step(ctx, s.generator, 2, tokens, NULL), ATTN_ERROR_INVALID_ARGUMENT, "finished");
    FAILS(ctx, attn_generator_logits(ctx, s.generator, NULL), ATTN_ERROR_INVALID_ARGUMENT, "logits");
    FAILS(ctx, attn_generator_result(ctx, s.generator, 2, 0, 2, tokens, &count, NULL), ATTN_ERROR_INVALID_ARGUMENT, "sequence");
    FAILS(ctx, attn_generator_result(ctx, s.generator, 0, -1, 2, tokens, &count, NULL), ATTN_ERROR_INVALID_ARGUMENT, "rank");
    FAILS(ctx, attn_generator_result(ctx, s.generator, 0, 1, 2, tokens, &count, NULL), ATTN_ERROR_END_OF_DATA, "rank");
    FAILS(ctx, attn_generator_accept(ctx, NULL, 2, tokens), ATTN_ERROR_INVALID_ARGUMENT, "generator");
    expect_recomputed(&s, 1e-5, "after errors"); /* none of them did anything */
    const struct {
        const char *field;
        size_t offset;
        int size;
        double value;
        attn_status status;
    } options[] = {{"sequences", offsetof(attn_generator_options, sequences), 1, 0, ATTN_ERROR_INVALID_ARGUMENT},
                   {"beam", offsetof(attn_generator_options, beam), 1, 0, ATTN_ERROR_INVALID_ARGUMENT},
                   {"memory", offsetof(attn_generator_options, beam), 1, 9e18, ATTN_ERROR_TOO_LARGE},
                   {"capacity", offsetof(attn_generator_options, capacity), 1, 0, ATTN_ERROR_INVALID_ARGUMENT},
                   {"top_k", offsetof(attn_generator_options, top_k), 1, -1, ATTN_ERROR_INVALID_ARGUMENT},
                   {"temperature", offsetof(attn_generator_options, temperature), 0, -1, ATTN_ERROR_INVALID_ARGUMENT},
                   {"temperature", offsetof(attn_generator_options, temperature), 0, NAN, ATTN_ERROR_INVALID_ARGUMENT},
                   {"top_p", offsetof(attn_generator_options, top_p), 0, 0, ATTN_ERROR_INVALID_ARGUMENT},
                   {"top_p", offsetof(attn_generator_options, top_p), 0, 1.5, ATTN_ERROR_INVALID_ARGUMENT},
                   {"length_penalty", offsetof(attn_generator_options, length_penalty), 0, INFINITY, ATTN_ERROR_INVALID_ARGUMENT},
                   {"stops", offsetof(attn_generator_options, stop_count), 1, 1, ATTN_ERROR_INVALID_ARGUMENT},
                   {"memory", offsetof(attn_generator_options, sequences), 1, 9e18, ATTN_ERROR_TOO_LARGE},
                   {"memory", offsetof(attn_generator_options, capacity), 1, 9e18, ATTN_ERROR_TOO_LARGE}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        g = defaults(2, 8);
        const int64_t size = (int64_t)options[i].value;
        if (options[i].size)
            memcpy((char *)&g + options[i].offset, &size, sizeof size);
        else
            memcpy((char *)&g + options[i].offset, &options[i].value, sizeof(double));
        FAILS(ctx, attn_generator_create(ctx, s.model, &g, &made), options[i].status,
              options[i].status == ATTN_ERROR_TOO_LARGE ? "" : options[i].field);
        assert_null(made);
    }
    /* masks: a layer's own window is kept from the cache, one aligned to the first query is not */
    attn_mask *mask = NULL;
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_FIRST, &mask));
    OK(ctx, attn_transformer_set_mask(ctx, s.model, 1, 0, mask));
    FAILS(ctx, attn_generator_create(ctx, s.model, NULL, &made), ATTN_ERROR_UNSUPPORTED, "decoder layer 0");
    attn_mask_free(mask);
    close_session(&s);
    o = model_options(1, 0);
    s.ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    s.model = model_create(s.ctx, &o);
    FAILS(s.ctx, attn_generator_create(s.ctx, s.model, NULL, &made), ATTN_ERROR_INVALID_ARGUMENT, "decoder");
    attn_transformer_free(s.model);
    attn_context_free(s.ctx);
    attn_generator_free(NULL);
}

/* a mask that no cache can keep is refused in whichever layer it is */
static void test_masks_of_later_layers(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    const attn_transformer_options o = model_options(0, 3);
    attn_transformer *model = model_create(ctx, &o);
    attn_generator *made = NULL;
    attn_mask *mask = NULL;
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_FIRST, &mask));
    for (int64_t layer = 0; layer < 3; layer++) {
        char word[32];
        snprintf(word, sizeof word, "decoder layer %d", (int)layer);
        OK(ctx, attn_transformer_set_mask(ctx, model, 1, -1, NULL));
        OK(ctx, attn_transformer_set_mask(ctx, model, 1, layer, mask));
        FAILS(ctx, attn_generator_create(ctx, model, NULL, &made), ATTN_ERROR_UNSUPPORTED, word);
        assert_null(made);
    }
    attn_mask_free(mask);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

/* sliding windows of layers give through the cache what they give in the whole */
static void test_windows(void **state)
{
    (void)state;
    const int64_t target[2] = {5, 2};
    for (int32_t align = ATTN_ALIGN_LAST; align <= ATTN_ALIGN_POSITION; align += 2) {
        attn_transformer_options o = model_options(0, 2);
        attn_generator_options g = defaults(2, 20);
        session s;
        attn_mask *mask = NULL;
        open_session(&s, ATTN_BACKEND_BLAS, &o, &g, NULL, target);
        attn_generator_free(s.generator);
        OK(s.ctx, attn_mask_window(s.ctx, align, 2, 0, 1, &mask));
        OK(s.ctx, attn_transformer_set_mask(s.ctx, s.model, 1, 1, mask));
        OK(s.ctx, attn_generator_create(s.ctx, s.model, &g, &s.generator));
        attn_mask_free(mask);
        prompt(&s);
        for (int step = 0; step < 6; step++) {
            int32_t tokens[2], finished[2];
            expect_recomputed(&s, 1e-5, "window");
            OK(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished));
            for (int i = 0; i < 2; i++) s.tokens[i][s.lengths[i]++] = tokens[i];
        }
        close_session(&s);
    }
}

/* steps allocate nothing once the first two have been */
static void test_steps_allocate_nothing(void **state)
{
    (void)state;
    const int64_t source[2] = {3, 2}, target[2] = {2, 4};
    attn_transformer_options o = model_options(1, 2);
    attn_generator_options g = defaults(2, 20);
    session s;
    int64_t before = 0;
    open_session(&s, ATTN_BACKEND_BLAS, &o, &g, source, target);
    prompt(&s);
    for (int step = 0; step < 12; step++) {
        int32_t tokens[2], finished[2];
        if (step == 2) before = model_allocations(s.ctx);
        OK(s.ctx, attn_generator_step(s.ctx, s.generator, 2, tokens, finished));
    }
    assert_int_equal(model_allocations(s.ctx), before);
    close_session(&s);
}

/* without memory a prompt or a step gives an error; the next try works, and nothing leaks */
static void test_without_memory(void **state)
{
    (void)state;
    const int64_t source[2] = {3, 2}, target[2] = {2, 4};
    test_allocator counted;
    memset(&counted, 0, sizeof counted);
    attn_transformer_options o = model_options(1, 2);
    attn_generator_options g = defaults(2, 20);
    attn_context *ctx = model_context_counted(&counted, ATTN_BACKEND_BLAS, 1);
    attn_transformer *model = model_create(ctx, &o);
    model_batch batch;
    int failures = 0;
    model_batch_open(ctx, &batch, &o, 2, source, target, 4);
    counted.only_once = 1;
    for (int at = 1, reached = 1; reached; at++) {
        attn_generator *generator = NULL;
        int32_t tokens[2] = {1, 2};
        counted.fail_at = counted.calls + at;
        attn_status status = attn_generator_create(ctx, model, &g, &generator);
        if (status != ATTN_OK)
            assert_null(generator);
        else
            status = attn_generator_prompt(ctx, generator, &batch.batch);
        if (status == ATTN_OK) status = attn_generator_accept(ctx, generator, 2, tokens);
        reached = counted.calls >= counted.fail_at;
        counted.fail_at = 0;
        if (status != ATTN_OK) {
            assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
            failures++;
            if (generator != NULL) OK(ctx, attn_generator_prompt(ctx, generator, &batch.batch));
            if (generator != NULL) OK(ctx, attn_generator_accept(ctx, generator, 2, tokens));
        }
        attn_generator_free(generator);
    }
    assert_true(failures > 8);
    model_batch_close(&batch);
    attn_transformer_free(model);
    attn_context_free(ctx);
    assert_int_equal(counted.live_pointers, 0);
    assert_int_equal(counted.wrong, 0);
}

/* sessions whose memory cannot be counted, of every kind of cache */
static void test_too_large(void **state)
{
    static const struct {
        int32_t form, recurrence;
        int64_t sequences, capacity;
    } cases[] = {
        {ATTN_FORM_SOFTMAX, 0, 1, INT64_C(3) << 55}, /* of one layer it can, of two it cannot */
        {ATTN_FORM_SOFTMAX, 0, INT64_C(1) << 61, 2},
        {ATTN_FORM_LINEAR, 0, INT64_C(1) << 56, 1},
        {ATTN_FORM_SOFTMAX, ATTN_RECURRENCE_LSTM, INT64_C(1) << 59, 1},
    };
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_transformer_options o = model_options(0, 2);
        o.form = cases[i].form;
        o.recurrence = cases[i].recurrence;
        attn_transformer *model = model_create(ctx, &o);
        attn_generator_options g = defaults(cases[i].sequences, cases[i].capacity);
        attn_generator *made = NULL;
        FAILS(ctx, attn_generator_create(ctx, model, &g, &made), ATTN_ERROR_TOO_LARGE, "a generator's caches");
        assert_null(made);
        attn_transformer_free(model);
    }
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cache_equals_the_whole),
                                       cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_stops_result_and_score),
                                       cmocka_unit_test(test_windows),
                                       cmocka_unit_test(test_masks_of_later_layers),
                                       cmocka_unit_test(test_steps_allocate_nothing),
                                       cmocka_unit_test(test_without_memory),
                                       cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

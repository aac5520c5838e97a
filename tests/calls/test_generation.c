#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of generator.h. */
RELEASE(generator, attn_generator_free)
THUNK(create, attn_generator_create(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(add_model, attn_generator_add_model(a[0].p, a[1].p, a[2].p))
THUNK(prompt, attn_generator_prompt(a[0].p, a[1].p, a[2].p))
THUNK(prompt_tokens, attn_generator_prompt_tokens(a[0].p, a[1].p, a[2].i, a[3].p))
THUNK(logits, attn_generator_logits(a[0].p, a[1].p, a[2].p))
THUNK(accept, attn_generator_accept(a[0].p, a[1].p, a[2].i, a[3].p))
THUNK(step, attn_generator_step(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p))
THUNK(result, attn_generator_result(a[0].p, a[1].p, a[2].i, a[3].i, a[4].i, a[5].p, a[6].p, a[7].p))

static attn_generator_options options_of(calls *t)
{
    attn_generator_options o;
    OK(t->ctx, attn_generator_options_init(&o, sizeof o));
    o.sequences = 2;
    o.capacity = 6;
    return o;
}

static void creating(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    static const int32_t stops[1] = {3};
    attn_generator_options o = options_of(t);
    attn_transformer_options encoder = model_options(1, 0), headless = model_options(0, 1), learned = model_options(0, 1);
    attn_transformer *model = NULL;
    attn_generator *made = NULL;
    (void)state;
    o.stop_count = 1;
    o.stops = stops;
    ROW(t, attn_generator_create, create);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_made(t, "out", release_generator);
    guard_parameters(t, attn_transformer_parameters(t->live[TRANSFORMER]));
    check_row(t);
    accept_pointer(t, 2, NULL);
    static const int64_t none[3] = {0, -1, INT64_MIN};
    for (int i = 0; i < 3; i++) {
        WRONG_INT64(t, 2, attn_generator_options, sequences, none[i], ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 2, attn_generator_options, beam, none[i], ATTN_ERROR_INVALID_ARGUMENT);
        if (i != 1) WRONG_INT64(t, 2, attn_generator_options, capacity, none[i], ATTN_ERROR_INVALID_ARGUMENT);
        if (i != 0) WRONG_INT64(t, 2, attn_generator_options, top_k, none[i], ATTN_ERROR_INVALID_ARGUMENT);
        if (i != 0) WRONG_INT64(t, 2, attn_generator_options, stop_count, none[i], ATTN_ERROR_INVALID_ARGUMENT);
    }
    WRONG_POINTER_FIELD(t, 2, attn_generator_options, stops, NULL, ATTN_ERROR_INVALID_ARGUMENT);
    const uint64_t sequences = offsetof(attn_generator_options, sequences), beam = offsetof(attn_generator_options, beam),
                   capacity = offsetof(attn_generator_options, capacity);
    wrong_field(t, 2, sequences, 8, &(int64_t){INT64_MAX}, ATTN_ERROR_TOO_LARGE, "caches");
    wrong_field(t, 2, beam, 8, &(int64_t){INT64_MAX}, ATTN_ERROR_TOO_LARGE, "caches");
    wrong_field(t, 2, beam, 8, &(int64_t){INT64_MAX / 64}, ATTN_ERROR_TOO_LARGE, "caches");
    wrong_field(t, 2, capacity, 8, &(int64_t){INT64_MAX}, ATTN_ERROR_TOO_LARGE, "caches");
    wrong_field(t, 2, capacity, 8, &(int64_t){INT64_MAX / 64}, ATTN_ERROR_TOO_LARGE, "caches");
    WRONG_REALS(t, 2, attn_generator_options, temperature, 0, NAN);
    WRONG_REALS_FROM(t, 2, attn_generator_options, top_p, 0, 1);
    WRONG_REALS(t, 2, attn_generator_options, length_penalty, NAN, NAN);

    headless.output_head = 0;
    const attn_transformer_options *const unfit[2] = {&encoder, &headless};
    for (int i = 0; i < 2; i++) {
        OK(t->ctx, attn_transformer_create(t->ctx, unfit[i], &model));
        wrong_pointer(t, 1, model, ATTN_ERROR_INVALID_ARGUMENT, "model");
        attn_transformer_free(model);
    }
    /* a mask that a cache cannot keep */
    attn_mask *first = NULL;
    OK(t->ctx, attn_mask_causal(t->ctx, ATTN_ALIGN_FIRST, &first));
    OK(t->ctx, attn_transformer_create(t->ctx, &learned, &model));
    OK(t->ctx, attn_transformer_set_mask(t->ctx, model, 1, -1, first));
    wrong_pointer(t, 1, model, ATTN_ERROR_UNSUPPORTED, "model");
    attn_mask_free(first);
    attn_transformer_free(model);
    /* more room than learned positions */
    learned.positions = ATTN_POSITIONS_LEARNED;
    learned.context = 5;
    OK(t->ctx, attn_transformer_create(t->ctx, &learned, &model));
    wrong_pointer(t, 1, model, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    o.capacity = 5;
    OK(t->ctx, attn_generator_create(t->ctx, model, &o, &made));
    attn_generator_free(made);
    o.capacity = ATTN_DERIVED;
    o.sequences = 1;
    OK(t->ctx, attn_generator_create(t->ctx, model, &o, &made));
    /* so that a prompt that is too long is FULL, and so is a step with no place left */
    const int32_t tokens[6] = {1, 2, 3, 4, 5, 6};
    int32_t token, finished;
    FAILS(t->ctx, attn_generator_prompt_tokens(t->ctx, made, 6, tokens), ATTN_ERROR_FULL, "capacity");
    OK(t->ctx, attn_generator_prompt_tokens(t->ctx, made, 5, tokens));
    FAILS(t->ctx, attn_generator_step(t->ctx, made, 1, &token, &finished), ATTN_ERROR_FULL, "generator");
    attn_generator_free(made);
    attn_transformer_free(model);
    calls_close(t);
}

/* a prompt before each call: the session is the same each time */
typedef struct session {
    attn_generator *generator;
    model_batch batch;
} session;

static void prompted(calls *t)
{
    session *s = t->user;
    OK(t->ctx, attn_generator_prompt(t->ctx, s->generator, &s->batch.batch));
}

static void unprompted(calls *t, const char *word, attn_status status)
{
    attn_generator_options o = options_of(t);
    attn_generator *made = NULL;
    OK(t->ctx, attn_generator_create(t->ctx, t->live[TRANSFORMER], &o, &made));
    wrong_pointer(t, 1, made, status, word);
    attn_generator_free(made);
}

static void wrong_counts(calls *t, int index)
{
    static const int64_t counts[5] = {0, 1, 3, -1, INT64_MAX};
    for (int i = 0; i < 5; i++) wrong_number(t, index, counts[i], ATTN_ERROR_SHAPE, "count");
}

static void prompts(calls *t, session *s)
{
    static const int64_t three[3] = {1, 1, 1}, empty[2] = {0, 3}, longer[2] = {3, 2};
    attn_tensor *past = OF_TYPE(t, ATTN_INT32, 4), *rows = FLOATS(t, 4);
    attn_layout *layout = NULL, *sources = NULL;
    model_set(past, 3, 11);
    OK(t->ctx, attn_layout_create(t->ctx, 3, &layout));
    OK(t->ctx, attn_layout_create(t->ctx, 3, &sources));
    ROW(t, attn_generator_prompt, prompt);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, s->generator, 0);
    arg_options(t, "batch", &s->batch.batch, sizeof(attn_batch), sizeof(attn_batch));
    t->user = s;
    t->before = prompted;
    check_row(t);
    wrong_pointer(t, 2, NULL, ATTN_ERROR_INVALID_ARGUMENT, "batch");
    WRONG_POINTER_FIELD(t, 2, attn_batch, target, NULL, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_POINTER_FIELD(t, 2, attn_batch, target, past, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_POINTER_FIELD(t, 2, attn_batch, target, rows, ATTN_ERROR_DTYPE);
    WRONG_POINTER_FIELD(t, 2, attn_batch, target, t->freed[TENSOR], ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_POINTER_FIELD(t, 2, attn_batch, source, NULL, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_POINTER_FIELD(t, 2, attn_batch, source, t->live[MASK], ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_POINTER_FIELD(t, 2, attn_batch, target_layout, NULL, ATTN_ERROR_SHAPE);
    OK(t->ctx, attn_layout_set_lengths(t->ctx, layout, 2, empty, 0));
    OK(t->ctx, attn_layout_set(t->ctx, layout, 2, (attn_segment[]){{0, 0, 0, 0}, {0, 4, 0, 1}}));
    WRONG_POINTER_FIELD(t, 2, attn_batch, target_layout, layout, ATTN_ERROR_INVALID_ARGUMENT);
    OK(t->ctx, attn_layout_set_lengths(t->ctx, layout, 2, longer, 0));
    WRONG_POINTER_FIELD(t, 2, attn_batch, target_layout, layout, ATTN_ERROR_SHAPE);
    /* three sequences on both sides, where the generator has two: the session stays as it was */
    attn_batch other = s->batch.batch;
    attn_tensor *six = OF_TYPE(t, ATTN_INT32, 3);
    OK(t->ctx, attn_layout_set_lengths(t->ctx, layout, 3, three, 0));
    OK(t->ctx, attn_layout_set_lengths(t->ctx, sources, 3, three, 0));
    other.source = other.target = six;
    other.source_layout = sources;
    other.target_layout = layout;
    prompted(t);
    FAILS(t->ctx, attn_generator_prompt(t->ctx, s->generator, &other), ATTN_ERROR_SHAPE, "target_layout: got 3");
    attn_tensor *many = OF_TYPE(t, ATTN_INT32, 8);
    other = s->batch.batch;
    other.target = many;
    OK(t->ctx, attn_layout_set_lengths(t->ctx, layout, 2, (int64_t[]){1, 7}, 0));
    other.target_layout = layout;
    FAILS(t->ctx, attn_generator_prompt(t->ctx, s->generator, &other), ATTN_ERROR_FULL, "target_layout");
    int32_t tokens[2], finished[2];
    OK(t->ctx, attn_generator_step(t->ctx, s->generator, 2, tokens, finished));
    attn_layout_free(layout);
    attn_layout_free(sources);
}

static void going_on(calls *t, session *s)
{
    static const int32_t good[2] = {1, 2}, past[2] = {1, 11}, minus[2] = {-1, 2}, least[2] = {1, INT32_MIN};
    ROW(t, attn_generator_logits, logits);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, s->generator, 0);
    arg_result(t, "logits", sizeof(void *), 0);
    t->user = s;
    t->before = prompted;
    check_row(t);
    unprompted(t, "generator", ATTN_ERROR_BAD_STATE);

    ROW(t, attn_generator_accept, accept);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, s->generator, 0);
    arg_number(t, "count", 2);
    arg_pointer(t, "tokens", good, 0);
    t->user = s;
    t->before = prompted;
    check_row(t);
    unprompted(t, "generator", ATTN_ERROR_BAD_STATE);
    wrong_counts(t, 2);
    wrong_pointer(t, 3, past, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    wrong_pointer(t, 3, minus, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    wrong_pointer(t, 3, least, ATTN_ERROR_INVALID_ARGUMENT, "tokens");

    ROW(t, attn_generator_step, step);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, s->generator, 0);
    arg_number(t, "count", 2);
    arg_result(t, "tokens", 2 * sizeof(int32_t), 0);
    arg_result(t, "finished", 2 * sizeof(int32_t), 0);
    t->user = s;
    t->before = prompted;
    check_row(t);
    unprompted(t, "generator", ATTN_ERROR_BAD_STATE);
    wrong_counts(t, 2);
    /* a cache without a row left: the longer sequence has 3 of 6 */
    prompted(t);
    for (int i = 0; i < 3; i++) OK(t->ctx, attn_generator_accept(t->ctx, s->generator, 2, good));
    FAILS(t->ctx, attn_generator_accept(t->ctx, s->generator, 2, good), ATTN_ERROR_FULL, "generator");
}

static void generated(calls *t)
{
    static const int32_t good[2] = {1, 2};
    session *s = t->user;
    prompted(t);
    OK(t->ctx, attn_generator_accept(t->ctx, s->generator, 2, good));
}

static void results(calls *t, session *s)
{
    ROW(t, attn_generator_result, result);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, s->generator, 0);
    arg_number(t, "sequence", 1);
    arg_number(t, "rank", 0);
    arg_number(t, "capacity", 3);
    arg_result(t, "tokens", sizeof(int32_t), 0);
    arg_result(t, "count", sizeof(int64_t), 0);
    arg_result(t, "score", sizeof(double), NULLABLE);
    t->user = s;
    t->before = generated;
    check_row(t);
    unprompted(t, "generator", ATTN_ERROR_BAD_STATE);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "sequence");
    wrong_number(t, 2, 2, ATTN_ERROR_INVALID_ARGUMENT, "sequence");
    wrong_number(t, 2, INT64_MAX, ATTN_ERROR_INVALID_ARGUMENT, "sequence");
    wrong_number(t, 3, 1, ATTN_ERROR_END_OF_DATA, "rank");
    wrong_number(t, 3, INT64_MAX, ATTN_ERROR_END_OF_DATA, "rank");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "rank");
    wrong_number(t, 3, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT, "rank");
    wrong_number(t, 4, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    t->loose = place_of(t, 6); /* what is needed */
    wrong_number(t, 4, 0, ATTN_ERROR_FULL, "capacity");
}

static void sessions(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options model = model_options(1, 1);
    const attn_generator_options o = options_of(t);
    session s;
    (void)state;
    OK(t->ctx, attn_generator_create(t->ctx, t->live[TRANSFORMER], &o, &s.generator));
    model_batch_open(t->ctx, &s.batch, &model, 2, (int64_t[]){2, 3}, (int64_t[]){1, 3}, 3);
    prompts(t, &s);
    going_on(t, &s);
    results(t, &s);
    attn_generator_free(s.generator);
    model_batch_close(&s.batch);
    calls_close(t);
}

static void stepped(calls *t)
{
    session *s = t->user;
    int32_t tokens[2], finished[2];
    prompted(t);
    OK(t->ctx, attn_generator_step(t->ctx, s->generator, 2, tokens, finished));
}

/* the rows of step, accept and result again, for a generator with a beam */
static void beams(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options model = model_options(1, 1);
    static const int32_t good[2] = {1, 2};
    attn_generator_options o = options_of(t);
    session s;
    (void)state;
    o.beam = 3;
    OK(t->ctx, attn_generator_create(t->ctx, t->live[TRANSFORMER], &o, &s.generator));
    model_batch_open(t->ctx, &s.batch, &model, 2, (int64_t[]){2, 3}, (int64_t[]){1, 3}, 3);
    ROW(t, attn_generator_step, step);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, s.generator, 0);
    arg_number(t, "count", 2);
    arg_result(t, "tokens", 2 * sizeof(int32_t), 0);
    arg_result(t, "finished", 2 * sizeof(int32_t), 0);
    t->user = &s;
    t->before = prompted;
    check_row(t);
    wrong_counts(t, 2);
    wrong_number(t, 2, 6, ATTN_ERROR_SHAPE, "count"); /* of sequences, not of hypotheses */

    ROW(t, attn_generator_result, result);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, s.generator, 0);
    arg_number(t, "sequence", 1);
    arg_number(t, "rank", 0);
    arg_number(t, "capacity", 3);
    arg_result(t, "tokens", sizeof(int32_t), 0);
    arg_result(t, "count", sizeof(int64_t), 0);
    arg_result(t, "score", sizeof(double), NULLABLE);
    t->user = &s;
    t->before = stepped; /* three live texts */
    check_row(t);
    wrong_number(t, 3, 3, ATTN_ERROR_END_OF_DATA, "rank");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "rank");
    FAILS(t->ctx, attn_generator_accept(t->ctx, s.generator, 2, good), ATTN_ERROR_BAD_STATE, "generator");
    attn_generator_free(s.generator);
    model_batch_close(&s.batch);
    calls_close(t);
}

/* each valid call adds one more */
static void ensembles(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_REFERENCE);
    const attn_generator_options o = options_of(t);
    const attn_transformer_options usual = model_options(1, 1);
    attn_transformer_options other[5];
    attn_generator *generator = NULL, *begun = NULL;
    attn_transformer *model = NULL;
    model_batch batch;
    (void)state;
    OK(t->ctx, attn_generator_create(t->ctx, t->live[TRANSFORMER], &o, &generator));
    OK(t->ctx, attn_generator_create(t->ctx, t->live[TRANSFORMER], &o, &begun));
    model_batch_open(t->ctx, &batch, &usual, 2, (int64_t[]){2, 3}, (int64_t[]){1, 3}, 3);
    OK(t->ctx, attn_generator_prompt(t->ctx, begun, &batch.batch));
    ROW(t, attn_generator_add_model, add_model);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, generator, 0);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    check_row(t);
    wrong_pointer(t, 1, begun, ATTN_ERROR_BAD_STATE, "generator");
    for (int i = 0; i < 5; i++) other[i] = usual;
    other[0].encoder_layers = 0;
    other[1].target_vocabulary = 12;
    other[2].source_vocabulary = 12, other[2].target_vocabulary = 11;
    other[3].output_head = 0;
    other[4].dtype = ATTN_FLOAT64;
    static const attn_status statuses[5] = {ATTN_ERROR_INVALID_ARGUMENT, ATTN_ERROR_SHAPE, ATTN_ERROR_SHAPE, ATTN_ERROR_INVALID_ARGUMENT,
                                            ATTN_ERROR_DTYPE};
    for (int i = 0; i < 5; i++) {
        OK(t->ctx, attn_transformer_create(t->ctx, &other[i], &model));
        wrong_pointer(t, 2, model, statuses[i], "model");
        attn_transformer_free(model);
    }
    attn_generator_free(generator);
    attn_generator_free(begun);
    model_batch_close(&batch);
    calls_close(t);
}

static void token_prompts(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options o = model_options(0, 1);
    static const int32_t tokens[3] = {1, 2, 3}, past[3] = {1, 11, 2}, minus[3] = {1, 2, -1};
    attn_generator_options two = options_of(t), one = two;
    attn_generator *single = NULL, *pair = NULL, *encoding = NULL;
    attn_transformer *model = NULL;
    (void)state;
    one.sequences = 1;
    OK(t->ctx, attn_transformer_create(t->ctx, &o, &model));
    OK(t->ctx, attn_generator_create(t->ctx, model, &one, &single));
    OK(t->ctx, attn_generator_create(t->ctx, model, &two, &pair));
    OK(t->ctx, attn_generator_create(t->ctx, t->live[TRANSFORMER], &one, &encoding));
    ROW(t, attn_generator_prompt_tokens, prompt_tokens);
    arg_context(t);
    arg_handle(t, "generator", GENERATOR, single, 0);
    arg_number(t, "count", 3);
    arg_pointer(t, "tokens", tokens, 0);
    check_row(t);
    wrong_pointer(t, 1, pair, ATTN_ERROR_BAD_STATE, "generator");
    wrong_pointer(t, 1, encoding, ATTN_ERROR_BAD_STATE, "generator");
    wrong_number(t, 2, 0, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_pointer(t, 3, past, ATTN_ERROR_INVALID_ARGUMENT, "t");
    wrong_pointer(t, 3, minus, ATTN_ERROR_INVALID_ARGUMENT, "t");
    const int32_t many[7] = {1, 1, 1, 1, 1, 1, 1};
    FAILS(t->ctx, attn_generator_prompt_tokens(t->ctx, single, 7, many), ATTN_ERROR_FULL, "capacity");
    attn_generator_free(single);
    attn_generator_free(pair);
    attn_generator_free(encoding);
    attn_transformer_free(model);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(creating), cmocka_unit_test(sessions), cmocka_unit_test(beams),
                                       cmocka_unit_test(ensembles), cmocka_unit_test(token_prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

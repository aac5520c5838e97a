#include "injection/scenario.h"

/* A decoding session without memory: a prompt or a step happens or it does not, and what follows is the same text. */
enum { ENCODER = 1, BEAM = 2, RECURRENT = 4, LINEAR = 8, SEQUENCES = 2, STEPS = 5 };
static void set_up(world *w)
{
    attn_generator_options o;
    attn_transformer_options m = model_options(w->variant & ENCODER, 2);
    if (w->variant & RECURRENT) m.recurrence = ATTN_RECURRENCE_LSTM;
    if (w->variant & LINEAR) m.form = ATTN_FORM_LINEAR;
    w->model = model_create(w->ctx, &m);
    OK(w->ctx, attn_generator_options_init(&o, sizeof o));
    o.sequences = SEQUENCES;
    o.top_k = 5;
    o.top_p = 0.9;
    o.stop_count = 1;
    o.stops = (const int32_t[]){4};
    if (w->variant & BEAM) o.beam = 3;
    OK(w->ctx, attn_generator_create(w->ctx, w->model, &o, &w->generator));
    model_batch_open(w->ctx, &w->batch, &m, SEQUENCES, (const int64_t[]){3, 2}, (const int64_t[]){2, 4}, 3);
}

static attn_status prompt(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_generator_prompt(w->ctx, w->generator, &w->batch.batch));
    return status;
}

/* a failed prompt leaves a session without one */
static void no_prompt(world *w)
{
    int32_t tokens[SEQUENCES], finished[SEQUENCES];
    FAILS(w->ctx, attn_generator_step(w->ctx, w->generator, SEQUENCES, tokens, finished), ATTN_ERROR_BAD_STATE, "prompt");
}

static void result(world *w)
{
    const attn_tensor *logits = NULL;
    OK(w->ctx, attn_generator_logits(w->ctx, w->generator, &logits));
    note_tensor(w, logits);
    for (int64_t s = 0; s < SEQUENCES; s++) {
        int32_t tokens[16];
        int64_t count = 0;
        double score = 0;
        attn_status status = ATTN_OK;
        for (int64_t rank = 0; status == ATTN_OK; rank++) {
            status = attn_generator_result(w->ctx, w->generator, s, rank, 16, tokens, &count, &score);
            if (status == ATTN_ERROR_END_OF_DATA) break;
            OK(w->ctx, status);
            note(w, tokens, count * 4);
            note(w, &score, sizeof score);
        }
    }
}

static void set_up_prompted(world *w)
{
    set_up(w);
    attn_status status = prompt(w);
    OK(w->ctx, status);
}

/* numbers: how many steps there were before a failure */
static attn_status steps(world *w)
{
    int32_t tokens[SEQUENCES], finished[SEQUENCES];
    attn_status status = ATTN_OK;
    for (; status == ATTN_OK && w->numbers[0] < STEPS; w->numbers[0] += status == ATTN_OK) {
        AGAIN(w, status, attn_generator_step(w->ctx, w->generator, SEQUENCES, tokens, finished));
        if (status == ATTN_OK) note(w, tokens, sizeof tokens);
    }
    return status;
}

static attn_status accept(world *w)
{
    const int32_t tokens[SEQUENCES] = {3, 4};
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_generator_accept(w->ctx, w->generator, SEQUENCES, tokens));
    return status;
}

/* ---- one sequence, prompted by an array */
static void set_up_tokens(world *w)
{
    const attn_transformer_options m = model_options(0, 1);
    w->model = model_create(w->ctx, &m);
    OK(w->ctx, attn_generator_create(w->ctx, w->model, NULL, &w->generator));
}

static attn_status prompt_tokens(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_generator_prompt_tokens(w->ctx, w->generator, 3, (const int32_t[]){1, 2, 3}));
    return status;
}

static void result_tokens(world *w)
{
    int32_t token, finished;
    OK(w->ctx, attn_generator_step(w->ctx, w->generator, 1, &token, &finished));
    note(w, &token, sizeof token);
}

/* ---- an ensemble: a model is added or it is not */
static attn_status add_model(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_generator_add_model(w->ctx, w->generator, w->model));
    return status;
}

static void result_ensemble(world *w)
{
    int32_t tokens[SEQUENCES], finished[SEQUENCES];
    attn_status status = prompt(w);
    OK(w->ctx, status);
    OK(w->ctx, attn_generator_step(w->ctx, w->generator, SEQUENCES, tokens, finished));
    result(w);
}

static void set_up_ensemble(world *w)
{
    set_up(w);
    OK(w->ctx, attn_generator_add_model(w->ctx, w->generator, w->model));
}

static void test_ensembles(void **state)
{
    static const scenario all[] = {
        {"a model added", set_up, add_model, result_ensemble, NULL, EACH_AGAIN, 0},
        {"a model with an encoder added to a beam", set_up, add_model, result_ensemble, NULL, EACH_AGAIN, ENCODER | BEAM},
        {"a recurrent model added to a beam", set_up, add_model, result_ensemble, NULL, EACH_AGAIN, ENCODER | BEAM | RECURRENT},
        {"a prompt of an ensemble", set_up_ensemble, prompt, result, no_prompt, EACH_AGAIN | FORETELLS, ENCODER | BEAM}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

static void test_prompts(void **state)
{
    static const scenario all[] = {
        {"a prompt", set_up, prompt, result, no_prompt, EACH_AGAIN | FORETELLS, 0},
        {"a prompt with an encoder", set_up, prompt, result, no_prompt, EACH_AGAIN | FORETELLS, ENCODER},
        {"a prompt of a beam", set_up, prompt, result, no_prompt, EACH_AGAIN | FORETELLS, ENCODER | BEAM},
        {"a prompt of a recurrent model", set_up, prompt, result, no_prompt, EACH_AGAIN | FORETELLS, ENCODER | RECURRENT},
        {"a prompt of linear attention", set_up, prompt, result, no_prompt, EACH_AGAIN | FORETELLS, LINEAR},
        {"a prompt of tokens", set_up_tokens, prompt_tokens, result_tokens, NULL, EACH_AGAIN | FORETELLS, 0}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

static void test_steps(void **state)
{
    static const scenario all[] = {
        {"steps", set_up_prompted, steps, result, NULL, EACH_AGAIN, 0},
        {"steps with an encoder", set_up_prompted, steps, result, NULL, EACH_AGAIN, ENCODER},
        {"steps of a beam", set_up_prompted, steps, result, NULL, EACH_AGAIN, BEAM},
        {"steps of a beam with an encoder", set_up_prompted, steps, result, NULL, EACH_AGAIN, ENCODER | BEAM},
        {"steps of a recurrent model", set_up_prompted, steps, result, NULL, EACH_AGAIN, ENCODER | RECURRENT},
        {"steps of a recurrent beam", set_up_prompted, steps, result, NULL, EACH_AGAIN, ENCODER | BEAM | RECURRENT},
        {"steps of linear attention", set_up_prompted, steps, result, NULL, EACH_AGAIN, LINEAR},
        {"steps of a beam of linear attention", set_up_prompted, steps, result, NULL, EACH_AGAIN, ENCODER | BEAM | LINEAR},
        {"a choice of the caller's", set_up_prompted, accept, result, NULL, EACH_AGAIN, 0}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prompts), cmocka_unit_test(test_steps), cmocka_unit_test(test_ensembles)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}

#include "injection/scenario.h"

/* A trainer without memory or with a disk that fails: a step happens or it does not, a checkpoint is old or new, and a restored trainer is what
   it was or what the file says. */
enum { BY_BATCH = 1, IN_PIECES = 2, OLD_FILE = 4, ENCODER = 8 };
static void set_up(world *w)
{
    int32_t tokens[60];
    attn_dataset_options d;
    attn_trainer_options t;
    attn_transformer_options o = model_options(w->variant & ENCODER ? 1 : 0, 1);
    for (int i = 0; i < 60; i++) tokens[i] = (i * i + i / 3) % 11;
    o.dropout_sublayer = 0.1;
    w->model = model_create(w->ctx, &o);
    OK(w->ctx, attn_dataset_options_init(&d, sizeof d));
    d.context = 4;
    d.batch = 3;
    OK(w->ctx, attn_dataset_tokens(w->ctx, tokens, 60, &d, &w->dataset));
    OK(w->ctx, attn_trainer_options_init(&t, sizeof t));
    t.layer_norms = 1;
    if (w->variant & IN_PIECES) {
        t.micro_rows = 5;
        t.accumulate = 2;
    }
    OK(w->ctx, attn_trainer_create(w->ctx, w->model, w->variant & ENCODER ? NULL : w->dataset, NULL, NULL, &t, &w->trainer));
    model_batch_open(w->ctx, &w->batch, &o, 2, (const int64_t[]){3, 2}, (const int64_t[]){2, 4}, 3);
}

/* parameters, counters, and by one more step moments and the place in the data */
static void result(world *w)
{
    attn_trainer_report r = {.struct_size = sizeof r};
    int64_t steps = attn_trainer_steps(w->trainer);
    note(w, &steps, sizeof steps);
    note_parameters(w, attn_transformer_parameters(w->model));
    const attn_batch *batch = w->variant & (BY_BATCH | ENCODER) ? &w->batch.batch : NULL;
    for (int i = 0; i < 2; i++) OK(w->ctx, attn_trainer_step(w->ctx, w->trainer, batch, &r));
    note(w, &r.loss, sizeof r.loss);
    note(w, &r.gradient_norm, sizeof r.gradient_norm);
    note_parameters(w, attn_transformer_parameters(w->model));
}

static attn_status reserve(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_trainer_reserve(w->ctx, w->trainer, 12, 4));
    return status;
}

static attn_status step(world *w)
{
    attn_status status = ATTN_OK;
    const attn_batch *batch = w->variant & (BY_BATCH | ENCODER) ? &w->batch.batch : NULL;
    for (int i = 0; i < 2; i++) {
        if (attn_trainer_steps(w->trainer) > i) continue; /* taken before the failure */
        AGAIN(w, status, attn_trainer_step(w->ctx, w->trainer, batch, NULL));
    }
    return status;
}

static const char *const keys[] = {"note", "other"};
static const char *const values[] = {"a few words", "{\"n\": 1}"};

static void set_up_save(world *w)
{
    set_up(w);
    world_path(w, "checkpoint.safetensors");
    OK(w->ctx, attn_trainer_step(w->ctx, w->trainer, NULL, NULL));
    if (!(w->variant & OLD_FILE)) return;
    OK(w->ctx, attn_trainer_save(w->ctx, w->trainer, 0, NULL, NULL, w->path));
    OK(w->ctx, attn_trainer_step(w->ctx, w->trainer, NULL, NULL));
}

static attn_status save(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_trainer_save(w->ctx, w->trainer, 2, keys, values, w->path));
    return status;
}

static void set_up_restore(world *w)
{
    set_up_save(w);
    OK(w->ctx, attn_trainer_save(w->ctx, w->trainer, 2, keys, values, w->path));
    for (int i = 0; i < 2; i++) OK(w->ctx, attn_trainer_step(w->ctx, w->trainer, NULL, NULL));
    w->numbers[0] = (int32_t)attn_trainer_steps(w->trainer);
    world before = {.ctx = w->ctx};
    note_parameters(&before, attn_transformer_parameters(w->model));
    memcpy(&w->numbers[2], &before.hash, sizeof before.hash);
}

static attn_status restore(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_trainer_restore(w->ctx, w->trainer, w->path));
    return status;
}

static void as_before(world *w)
{
    world after = {.ctx = w->ctx};
    uint64_t before;
    memcpy(&before, &w->numbers[2], sizeof before);
    note_parameters(&after, attn_transformer_parameters(w->model));
    expect(w, attn_trainer_steps(w->trainer) == w->numbers[0], "steps of a restore that failed");
    expect(w, after.hash == before, "parameters of a restore that failed");
}

static void test_steps(void **state)
{
    static const scenario all[] = {
        {"steps over a data set", set_up, step, result, NULL, EACH_AGAIN, 0},
        {"steps over a batch", set_up, step, result, NULL, EACH_AGAIN, BY_BATCH},
        {"steps in pieces", set_up, step, result, NULL, EACH_AGAIN, IN_PIECES},
        {"steps with an encoder, in pieces", set_up, step, result, NULL, EACH_AGAIN, ENCODER | IN_PIECES},
        {"memory beforehand", set_up, reserve, result, NULL, EACH_AGAIN | FORETELLS, 0},
    };
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

static void test_checkpoints(void **state)
{
    static const scenario all[] = {{"a first checkpoint", set_up_save, save, result, NULL, EACH_AGAIN, 0},
                                   {"a checkpoint over an old one", set_up_save, save, result, NULL, EACH_AGAIN, OLD_FILE},
                                   {"a restore", set_up_restore, restore, result, as_before, EACH_AGAIN | READS_JSON, 0}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_checkpoints)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}

#include "injection/scenario.h"

/* Heads that are taken out, saved, loaded and run, without memory and with a disk that fails. T5: each run picks the columns of its table. */
static const int64_t gone[1][3] = {{1, 1, 0}};

static void set_up(world *w)
{
    attn_transformer_options o = model_options(0, 2);
    o.positions = ATTN_POSITIONS_T5;
    w->model = model_create(w->ctx, &o);
}

static attn_status prune(world *w)
{
    attn_transformer *made = NULL;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_transformer_prune_heads(w->ctx, w->model, 1, &gone[0][0], &made));
    expect(w, (made != NULL) == (status == ATTN_OK), "a model in spite of an error");
    if (status == ATTN_OK) note_parameters(w, attn_transformer_parameters(made));
    attn_transformer_free(made);
    return status;
}

static void set_up_pruned(world *w)
{
    attn_transformer *made = NULL;
    const attn_transformer_options o = model_options(0, 2);
    set_up(w);
    OK(w->ctx, attn_transformer_prune_heads(w->ctx, w->model, 1, &gone[0][0], &made));
    attn_transformer_free(w->model);
    w->model = made;
    model_batch_open(w->ctx, &w->batch, &o, 2, NULL, (const int64_t[]){2, 4}, 3);
    w->tensor[0] = model_tensor(w->ctx, ATTN_FLOAT32, 1, 0);
    OK(w->ctx, attn_gradients_create(w->ctx, attn_transformer_parameters(w->model), &w->gradients));
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
}

static attn_status train(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_gradients_zero(w->ctx, w->gradients));
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, NULL));
    AGAIN(w, status, attn_transformer_loss(w->ctx, w->model, w->tape, &w->batch.batch, NULL, w->tensor[0], NULL));
    return run_backward(w, status, w->tensor[0]);
}

static void result_training(world *w)
{
    note_tensor(w, w->tensor[0]);
    note_gradients(w, w->gradients);
}

static attn_status cost(world *w)
{
    attn_cost_report r = {.struct_size = sizeof r};
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_transformer_model_cost(w->ctx, w->model, 1, 6, 4, &r));
    if (status == ATTN_OK) note(w, &r, sizeof r);
    return status;
}

static void set_up_file(world *w)
{
    world_path(w, "heads.safetensors");
    set_up_pruned(w);
}

static attn_status save(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_transformer_save(w->ctx, w->model, 0, NULL, NULL, w->path));
    return status;
}

static void set_up_load(world *w)
{
    set_up_file(w);
    OK(w->ctx, attn_transformer_save(w->ctx, w->model, 0, NULL, NULL, w->path));
}

static attn_status load(world *w)
{
    attn_transformer *made = NULL;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_transformer_load(w->ctx, w->path, NULL, &made));
    expect(w, (made != NULL) == (status == ATTN_OK), "a model in spite of an error");
    if (status == ATTN_OK) note_parameters(w, attn_transformer_parameters(made));
    attn_transformer_free(made);
    return status;
}

static void result_noted(world *w)
{
    (void)w; /* by act */
}

static void result_model(world *w)
{
    note_parameters(w, attn_transformer_parameters(w->model));
}

static void test_heads(void **state)
{
    static const scenario all[] = {
        {"taken out", set_up, prune, result_noted, NULL, EACH_AGAIN, 0},
        {"forward and backward", set_up_pruned, train, result_training, NULL, EACH_AGAIN, 0},
        {"what it costs", set_up_pruned, cost, result_noted, NULL, EACH_AGAIN | FORETELLS, 0},
        {"to a file", set_up_file, save, result_model, NULL, EACH_AGAIN, 0},
        {"from a file", set_up_load, load, result_noted, NULL, EACH_AGAIN | READS_JSON, 0},
    };
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "files.h"
#include "message.h"
#include "model_file.h"
#include "score.h"
#include "terminal.h"
#include "train_run.h"

static int open_trainer(train_run *run)
{
    const train_settings *s = &run->settings;
    attn_optimizer_options optimizer;
    attn_schedule_options schedule;
    attn_trainer_options trainer;
    attn_transformer_options model;
    attn_status status = attn_transformer_options_init(&model, sizeof model);
    if (status == ATTN_OK) status = attn_transformer_get_options(run->ctx, run->model, &model);
    optimizer_of_settings(s, &optimizer);
    schedule_of_settings(s, model.width, &schedule);
    if (status == ATTN_OK) status = attn_trainer_options_init(&trainer, sizeof trainer);
    trainer.seed = s->seed;
    trainer.accumulate = s->accumulate;
    trainer.label_smoothing = s->label_smoothing;
    if (status == ATTN_OK) status = attn_trainer_create(run->ctx, run->model, run->data, &optimizer, &schedule, &trainer, &run->trainer);
    if (status == ATTN_OK) status = attn_trainer_reserve(run->ctx, run->trainer, run->rows, run->longest);
    return status == ATTN_OK ? 0 : fail_call(run->ctx, status, NULL);
}

static int open_model(train_run *run)
{
    attn_transformer_options o;
    int status = model_of_settings(run->ctx, &run->settings, run->source_vocabulary, run->target_vocabulary, run->context, &o);
    if (status != 0) return status;
    attn_status made = attn_transformer_create(run->ctx, &o, &run->model);
    if (made != ATTN_OK) return fail_call(run->ctx, made, NULL);
    run->parameters = attn_parameters_elements(attn_transformer_parameters(run->model));
    run->context = o.context;
    return 0;
}

static int restore(train_run *run)
{
    const train_settings *s = &run->settings;
    char path[PATH_ROOM];
    if (!s->resume) return 0;
    int failed = path_in(s->out, CHECKPOINT_FILE, path);
    if (failed) return failed;
    attn_status status = attn_trainer_restore(run->ctx, run->trainer, path);
    if (status != ATTN_OK) return fail_call(run->ctx, status, NULL);
    int64_t done = attn_trainer_steps(run->trainer);
    if (s->steps < done)
        return fail(EXIT_INPUT, "--steps: got %lld, but the run in %s has taken %lld steps already", (long long)s->steps, s->out,
                    (long long)done);
    return 0;
}

/* A folder with a model is not touched by accident. */
static int check_folder(const train_settings *s)
{
    static const char *const names[] = {MODEL_FILE, CHECKPOINT_FILE, LOG_FILE};
    char path[PATH_ROOM];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int failed = path_in(s->out, names[i], path);
        if (failed) return failed;
        int exists = !s->resume && !s->overwrite ? file_exists(path) : 0;
        if (exists < 0) return EXIT_MACHINE;
        if (exists)
            return fail(EXIT_INPUT, "--out: %s holds a run already; give --resume to go on with it, or --overwrite to replace it", s->out);
    }
    return 0;
}

int train_open(train_run *run)
{
    run->task = run->settings.task == TASK_SEQ2SEQ ? &pair_task : &text_task;
    int status = check_folder(&run->settings);
    if (status == 0) status = run->task->read(run);
    if (status == 0) status = open_model(run);
    if (status == 0) status = run->task->open_data(run);
    if (status == 0) status = open_trainer(run);
    if (status == 0) status = restore(run);
    if (status == 0 && attn_context_threads(run->ctx, &run->threads) != ATTN_OK) run->threads = 1;
    return status;
}

int train_open_folder(train_run *run)
{
    static const char *const old[] = {CHECKPOINT_FILE, MODEL_FILE, CHART_FILE, LOG_FILE};
    char path[PATH_ROOM];
    int status = make_folder(run->settings.out);
    if (status == 0) remove_leftovers(run->settings.out);
    for (size_t i = 0; status == 0 && run->settings.overwrite && i < sizeof old / sizeof *old; i++) {
        status = path_in(run->settings.out, old[i], path);
        if (status == 0) unlink(path); /* one that cannot go fails when it is written */
    }
    if (status == 0 && (run->settings.resume || run->settings.overwrite)) train_drop_snapshots(run, attn_trainer_steps(run->trainer));
    if (status == 0) status = path_in(run->settings.out, LOG_FILE, path);
    if (status != 0) return status;
    return run->settings.resume ? log_continue(&run->log, path, attn_trainer_steps(run->trainer)) : log_create(&run->log, path);
}

void train_close(train_run *run)
{
    log_close(&run->log);
    attn_trainer_free(run->trainer);
    attn_transformer_free(run->kept);
    attn_transformer_free(run->model);
    attn_dataset_free(run->windows);
    attn_dataset_free(run->data);
    attn_vocabulary_free(run->vocabulary);
    free(run->vocabulary_text);
    free(run->from.at);
    free_ids(&run->source);
    free_ids(&run->target);
    free_ids(&run->valid_source);
    free_ids(&run->valid_target);
    free_vocabularies(&run->vocabularies);
    free_pairs(&run->pairs);
    free_pairs(&run->valid_pairs);
    free(run->chart_title);
    free(run->chart_subtitle);
    attn_context_free(run->ctx);
    free_settings(&run->settings);
}

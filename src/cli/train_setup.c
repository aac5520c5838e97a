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

#define TRAINED_PART 0.9

/* the vocabulary of the text, or the one the checkpoint was made with */
static int open_vocabulary(train_run *run, const text *from)
{
    const train_settings *s = &run->settings;
    char path[PATH_ROOM];
    attn_status status;
    if (s->resume) {
        int failed = path_in(s->out, CHECKPOINT_FILE, path);
        if (failed == 0) failed = read_metadata(run->ctx, path, VOCABULARY_KEY, &run->vocabulary_text);
        if (failed) return failed;
        status = attn_vocabulary_from_text(run->ctx, run->vocabulary_text, (int64_t)strlen(run->vocabulary_text), &run->vocabulary);
        return status == ATTN_OK ? 0 : fail_call(run->ctx, status, path);
    }
    int32_t symbols = s->tokens == TOKENS_BYTES ? ATTN_SYMBOLS_BYTES : ATTN_SYMBOLS_CHARACTERS;
    status = attn_vocabulary_create(run->ctx, symbols, from->at, from->bytes, 0, &run->vocabulary);
    if (status == ATTN_ERROR_INVALID_ARGUMENT && symbols == ATTN_SYMBOLS_CHARACTERS)
        return fail(EXIT_INPUT, "%s: %s (--tokens bytes takes any file)", s->data, attn_context_last_error(run->ctx));
    if (status != ATTN_OK) return fail_call(run->ctx, status, s->data);
    int64_t bytes = 0;
    status = attn_vocabulary_to_text(run->ctx, run->vocabulary, 0, NULL, &bytes);
    if (status == ATTN_ERROR_FULL) {
        run->vocabulary_text = calloc(1, (size_t)bytes + 1);
        if (run->vocabulary_text == NULL) return fail(EXIT_MACHINE, "%s: not enough memory for its vocabulary", s->data);
        status = attn_vocabulary_to_text(run->ctx, run->vocabulary, bytes, run->vocabulary_text, &bytes);
    }
    return status == ATTN_OK ? 0 : fail_call(run->ctx, status, s->data);
}

static int open_data(train_run *run, const int32_t *tokens)
{
    const train_settings *s = &run->settings;
    attn_dataset_options o;
    attn_dataset_options_init(&o, sizeof o);
    o.context = run->context;
    o.batch = s->batch;
    o.seed = s->seed;
    o.last = TRAINED_PART;
    run->trained_tokens = (int64_t)floor(TRAINED_PART * (double)run->tokens);
    if (run->trained_tokens < run->context + 1 || run->tokens - run->trained_tokens < 2) {
        char number[32];
        int64_t least = (int64_t)ceil((double)(run->context + 1) / TRAINED_PART);
        return fail(EXIT_INPUT, "%s: got %lld tokens, expected at least %s for a --context of %lld", s->data, (long long)run->tokens,
                    readable_count(least < 11 ? 11 : least, number), (long long)run->context);
    }
    attn_status status = attn_dataset_tokens(run->ctx, tokens, run->tokens, &o, &run->data);
    if (status != ATTN_OK) return fail_call(run->ctx, status, s->data);
    return open_windows(run->ctx, s->data, tokens, run->tokens, TRAINED_PART, 1, run->context, &run->windows);
}

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
    if (status == ATTN_OK) status = attn_trainer_create(run->ctx, run->model, run->data, &optimizer, &schedule, &trainer, &run->trainer);
    if (status == ATTN_OK) status = attn_trainer_reserve(run->ctx, run->trainer, s->batch * run->context, run->context);
    return status == ATTN_OK ? 0 : fail_call(run->ctx, status, NULL);
}

static int open_model(train_run *run)
{
    attn_transformer_options o;
    int status = model_of_settings(run->ctx, &run->settings, attn_vocabulary_size(run->vocabulary), &o);
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
    text from = {NULL, 0};
    int32_t *tokens = NULL;
    int status = check_folder(&run->settings);
    if (status == 0) status = read_text(run->settings.data, &from);
    if (status == 0) status = open_vocabulary(run, &from);
    if (status == 0) status = open_model(run);
    if (status == 0) status = encode_text(run->ctx, run->vocabulary, run->settings.data, &from, &tokens, &run->tokens);
    if (status == 0) status = open_data(run, tokens);
    if (status == 0) status = open_trainer(run);
    if (status == 0) status = restore(run);
    if (status == 0 && attn_context_threads(run->ctx, &run->threads) != ATTN_OK) run->threads = 1;
    free(tokens);
    free(from.at);
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
    if (status == 0) status = path_in(run->settings.out, LOG_FILE, path);
    if (status != 0) return status;
    return run->settings.resume ? log_continue(&run->log, path, attn_trainer_steps(run->trainer)) : log_create(&run->log, path);
}

void train_close(train_run *run)
{
    log_close(&run->log);
    attn_trainer_free(run->trainer);
    attn_transformer_free(run->model);
    attn_dataset_free(run->windows);
    attn_dataset_free(run->data);
    attn_vocabulary_free(run->vocabulary);
    free(run->vocabulary_text);
    free(run->chart_title);
    free(run->chart_subtitle);
    attn_context_free(run->ctx);
    free_settings(&run->settings);
}

/* Learning the next token of a text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "files.h"
#include "message.h"
#include "model_file.h"
#include "score.h"
#include "terminal.h"
#include "train_run.h"

#define TRAINED_PART 0.9

/* the vocabulary of the text, or the one the checkpoint was made with */
static int open_vocabulary(train_run *run)
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
    status = attn_vocabulary_create(run->ctx, symbols, run->from.at, run->from.bytes, 0, &run->vocabulary);
    if (status == ATTN_ERROR_INVALID_ARGUMENT && symbols == ATTN_SYMBOLS_CHARACTERS)
        return fail(EXIT_INPUT, "%s: %s (--tokens bytes takes any file)", s->data, attn_context_last_error(run->ctx));
    if (status != ATTN_OK) return fail_call(run->ctx, status, s->data);
    return vocabulary_text(run->ctx, run->vocabulary, s->data, &run->vocabulary_text);
}

static int open_sets(train_run *run, const int32_t *tokens)
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

static int read_data(train_run *run)
{
    int status = read_text(run->settings.data, &run->from);
    if (status == 0) status = open_vocabulary(run);
    if (status == 0) run->source_vocabulary = run->target_vocabulary = attn_vocabulary_size(run->vocabulary);
    return status;
}

static int open_data(train_run *run)
{
    const train_settings *s = &run->settings;
    int32_t *tokens = NULL;
    int status = encode_text(run->ctx, run->vocabulary, s->data, &run->from, &tokens, &run->tokens);
    free(run->from.at);
    run->from = (text){NULL, 0};
    if (status == 0) status = open_sets(run, tokens);
    free(tokens);
    run->rows = s->batch * run->context;
    run->longest = run->context;
    run->step_tokens = (double)(s->batch * s->accumulate) * (double)run->context;
    run->evaluation_tokens = (double)(run->tokens - run->trained_tokens) / 3; /* a token costs a third of one in training */
    return status;
}

static int evaluate(train_run *run, const attn_transformer *model, evaluation *out)
{
    int64_t tokens;
    attn_status status = score(run->ctx, model, run->windows, &out->loss, &tokens);
    return status == ATTN_OK ? 0 : status == ATTN_ERROR_CANCELLED ? EXIT_INTERRUPTED : fail_call(run->ctx, status, NULL);
}

static void introduce(const train_run *run)
{
    char a[32], b[32], c[32], d[32];
    printf("data      %s: %s %s, %s kinds; %s to train on, %s to validate\n", run->settings.data, readable_count(run->tokens, a),
           attn_vocabulary_symbols(run->vocabulary) == ATTN_SYMBOLS_BYTES ? "bytes" : "characters",
           readable_count(attn_vocabulary_size(run->vocabulary), b), readable_count(run->trained_tokens, c),
           readable_count(run->tokens - run->trained_tokens, d));
}

static void conclude(const train_run *run, const char *time)
{
    char a[32];
    double valid_loss = NAN;
    for (int64_t i = 0; i < run->log.count; i++)
        if (isfinite(run->log.at[i].valid_loss)) valid_loss = run->log.at[i].valid_loss;
    printf("done      %s steps, %s; validation loss %.4f, perplexity %.2f\n", readable_count(attn_trainer_steps(run->trainer), a), time,
           valid_loss, exp(valid_loss));
    printf("try       attn generate --model %s --tokens 500\n", run->settings.out);
}

const train_task text_task = {read_data, open_data, evaluate, introduce, conclude, "windows"};

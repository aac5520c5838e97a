#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "files.h"
#include "message.h"
#include "model_file.h"
#include "terminal.h"
#include "train_run.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != 0 ? slash + 1 : path;
}

void train_introduce(const train_run *run)
{
    const train_settings *s = &run->settings;
    attn_transformer_options o;
    char a[32], b[32], c[32], d[32];
    attn_transformer_options_init(&o, sizeof o);
    attn_transformer_get_options(run->ctx, run->model, &o);
    printf("data      %s: %s %s, %s kinds; %s to train on, %s to validate\n", s->data, readable_count(run->tokens, a),
           attn_vocabulary_symbols(run->vocabulary) == ATTN_SYMBOLS_BYTES ? "bytes" : "characters",
           readable_count(attn_vocabulary_size(run->vocabulary), b), readable_count(run->trained_tokens, c),
           readable_count(run->tokens - run->trained_tokens, d));
    printf("model     %s: %lld layer%s, %lld head%s, width %lld, context %lld; %s parameters\n", s->preset, (long long)o.decoder_layers,
           o.decoder_layers == 1 ? "" : "s", (long long)o.heads, o.heads == 1 ? "" : "s", (long long)o.width, (long long)o.context,
           readable_count(run->parameters, a));
    printf("training  %s steps of %s tokens on %d thread%s, an evaluation every %s; files in %s\n", readable_count(s->steps, a),
           readable_count(s->batch * s->accumulate * run->context, b), run->threads, run->threads == 1 ? "" : "s",
           readable_count(s->eval_every, c), s->out);
    if (s->resume) printf("resumed   at step %s\n", readable_count(attn_trainer_steps(run->trainer), a));
    output_now();
}

static int prepare_words(train_run *run)
{
    const train_settings *s = &run->settings;
    char count[32];
    if (run->chart_title == NULL && asprintf(&run->chart_title, "Learning %s", base_name(s->data)) < 0) run->chart_title = NULL;
    if (run->chart_subtitle == NULL &&
        asprintf(&run->chart_subtitle, "%s, %s parameters; batches of %lld windows of %lld %s; seed %llu", s->preset,
                 readable_count(run->parameters, count), (long long)(s->batch * s->accumulate), (long long)run->context,
                 s->tokens == TOKENS_BYTES ? "bytes" : "characters", (unsigned long long)s->seed) < 0)
        run->chart_subtitle = NULL;
    return run->chart_title == NULL || run->chart_subtitle == NULL;
}

/* one line about the first failure; the next attempts are silent until one succeeds */
static void not_saved(train_run *run, int *said, const char *what)
{
    if (!run->save_failed && !*said) fail(EXIT_MACHINE, "%s (training goes on, and the next evaluation tries to save again)", what);
    *said = 1;
}

/* A folder that went away is made again: what was trained since must have a place. A line says so, unless one about a failure has. */
static void keep_folder(const train_run *run)
{
    const char *out = run->settings.out;
    if (folder_exists(out) || mkdir(out, 0777) != 0 || run->save_failed) return;
    fail(EXIT_MACHINE, "%s: the folder went away and was made again", out);
}

static void save_chart(train_run *run, int *said)
{
    char path[PATH_ROOM], what[PATH_ROOM + 256];
    const char *problem = "not enough memory";
    if (path_in(run->settings.out, CHART_FILE, path) != 0) return;
    char *picture = NULL;
    if (prepare_words(run) == 0) {
        const chart_words words = {run->chart_title, run->chart_subtitle};
        picture = draw_chart(&run->log, run->settings.steps, &words);
    }
    if (picture == NULL || replace_file(path, picture, (int64_t)strlen(picture), &problem) != 0) {
        snprintf(what, sizeof what, "%s: cannot be written: %s", path, problem);
        not_saved(run, said, what);
    }
    free(picture);
}

/* a request to stop that came too late for a step must not stop the saving */
static attn_status save_one(train_run *run, int checkpoint, const char *path)
{
    static const char *const keys[] = {SETTINGS_KEY, VOCABULARY_KEY};
    char *settings = settings_text(&run->settings, checkpoint);
    const char *const values[] = {settings, run->vocabulary_text};
    attn_status status = settings != NULL ? ATTN_ERROR_CANCELLED : ATTN_ERROR_OUT_OF_MEMORY;
    for (int attempt = 0; attempt < 2 && status == ATTN_ERROR_CANCELLED; attempt++)
        status = checkpoint ? attn_trainer_save(run->ctx, run->trainer, 2, keys, values, path)
                            : attn_transformer_save(run->ctx, run->model, 2, keys, values, path);
    free(settings);
    return status;
}

void train_save(train_run *run)
{
    static const char *const names[] = {MODEL_FILE, CHECKPOINT_FILE};
    char path[PATH_ROOM];
    int said = 0;
    keep_folder(run);
    for (int checkpoint = 1; checkpoint >= 0; checkpoint--) {
        if (path_in(run->settings.out, names[checkpoint], path) != 0) continue;
        attn_status status = save_one(run, checkpoint, path);
        if (status == ATTN_OK) continue;
        const char *why = attn_context_last_error(run->ctx);
        not_saved(run, &said, *why != 0 ? why : attn_status_name(status));
    }
    save_chart(run, &said);
    run->save_failed = said;
}

void train_report(train_run *run, const log_entry *entry)
{
    const char *problem;
    char what[PATH_ROOM + 256];
    keep_folder(run);
    if (log_add(&run->log, entry, &problem) == 0) return;
    int said = 0;
    snprintf(what, sizeof what, "%s: cannot be written: %s", run->log.path, problem);
    not_saved(run, &said, what);
    run->save_failed = 1;
}

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
    char a[32], b[32], c[32];
    attn_transformer_options_init(&o, sizeof o);
    attn_transformer_get_options(run->ctx, run->model, &o);
    run->task->introduce(run);
    printf("model     %s: ", s->preset);
    if (o.encoder_layers > 0) printf("%lld encoder and ", (long long)o.encoder_layers);
    printf("%lld %slayer%s, ", (long long)o.decoder_layers, o.encoder_layers > 0 ? "decoder " : "", o.decoder_layers == 1 ? "" : "s");
    if (o.recurrence != ATTN_RECURRENCE_NONE)
        printf("%s, ", o.recurrence == ATTN_RECURRENCE_LSTM ? "LSTM" : "tanh");
    else
        printf("%lld head%s, ", (long long)o.heads, o.heads == 1 ? "" : "s");
    printf("width %lld, context %lld; %s parameters\n", (long long)o.width, (long long)o.context, readable_count(run->parameters, a));
    printf("training  %s steps of %s%s tokens on %d thread%s, an evaluation every %s; files in %s\n", readable_count(s->steps, a),
           s->task == TASK_LM ? "" : "about ", readable_count((int64_t)(run->step_tokens + 0.5), b), run->threads,
           run->threads == 1 ? "" : "s", readable_count(s->eval_every, c), s->out);
    if (s->resume) printf("resumed   at step %s\n", readable_count(attn_trainer_steps(run->trainer), a));
    output_now();
}

static int describe(const train_run *run, char **out)
{
    const train_settings *s = &run->settings;
    char count[32];
    readable_count(run->parameters, count);
    long long batch = s->batch * s->accumulate;
    if (s->task == TASK_SEQ2SEQ)
        return asprintf(out, "%s, %s parameters; batches of %lld pairs; seed %llu", s->preset, count, batch, (unsigned long long)s->seed);
    return asprintf(out, "%s, %s parameters; batches of %lld windows of %lld %s; seed %llu", s->preset, count, batch,
                    (long long)run->context, s->tokens == TOKENS_BYTES ? "bytes" : "characters", (unsigned long long)s->seed);
}

static int prepare_words(train_run *run)
{
    const train_settings *s = &run->settings;
    if (run->chart_title == NULL && asprintf(&run->chart_title, "Learning %s", base_name(s->data)) < 0) run->chart_title = NULL;
    if (run->chart_subtitle == NULL && describe(run, &run->chart_subtitle) < 0) run->chart_subtitle = NULL;
    return run->chart_title == NULL || run->chart_subtitle == NULL;
}

/* one line about the first failure; the next attempts are silent until one succeeds */
static void not_saved(train_run *run, int *said, const char *what)
{
    if (!run->save_failed && !*said) fail(EXIT_MACHINE, "%s (training goes on, and the next evaluation tries to save again)", what);
    *said = 1;
}

static void log_not_written(train_run *run, int *said, const char *problem)
{
    char what[PATH_ROOM + 256];
    snprintf(what, sizeof what, "%s: cannot be written: %s", run->log.path, problem);
    not_saved(run, said, what);
}

/* A folder that went away is made again: what was trained since must have a place. A line says so, unless one about a failure has. */
static void keep_folder(const train_run *run)
{
    const char *out = run->settings.out;
    if (folder_exists(out) || mkdir(out, 0777) != 0 || run->save_failed) return;
    fail(EXIT_MACHINE, "%s: the folder went away and was made again", out);
}

static void save_chart(train_run *run, int kind, const char *name, int *said)
{
    char path[PATH_ROOM], what[PATH_ROOM + 256];
    const char *problem = "not enough memory";
    if (path_in(run->settings.out, name, path) != 0) return;
    char *picture = NULL;
    if (prepare_words(run) == 0) {
        const chart_words words = {run->chart_title, run->chart_subtitle};
        picture = draw_chart(&run->log, run->settings.steps, kind, &words);
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
    static const char *const of_text[] = {SETTINGS_KEY, VOCABULARY_KEY};
    static const char *const of_pairs[] = {SETTINGS_KEY, SOURCE_VOCABULARY_KEY, TARGET_VOCABULARY_KEY};
    char *settings = settings_text(&run->settings, checkpoint);
    int pairs = run->settings.task == TASK_SEQ2SEQ, count = pairs ? 3 : 2;
    const char *const *keys = pairs ? of_pairs : of_text;
    const char *const values[] = {settings, pairs ? run->vocabularies.source_text : run->vocabulary_text, run->vocabularies.target_text};
    const attn_transformer *model = run->kept != NULL ? run->kept : run->model;
    attn_status status = settings != NULL ? ATTN_ERROR_CANCELLED : ATTN_ERROR_OUT_OF_MEMORY;
    for (int attempt = 0; attempt < 2 && status == ATTN_ERROR_CANCELLED; attempt++)
        status = checkpoint ? attn_trainer_save(run->ctx, run->trainer, count, keys, values, path)
                            : attn_transformer_save(run->ctx, model, count, keys, values, path);
    free(settings);
    return status;
}

/* the last evaluation's model, if it is the best so far; without one, the model as it is */
static int is_kept(const train_run *run)
{
    int64_t since = 0;
    if (run->settings.task == TASK_LM) return 1;
    const log_entry *best = train_best(run, &since);
    return best == NULL || (since == 0 && best->step == attn_trainer_steps(run->trainer));
}

/* The model comes first: a run that ends between the two goes on from the checkpoint before, and makes the same model again. */
void train_save(train_run *run)
{
    static const char *const names[] = {MODEL_FILE, CHECKPOINT_FILE};
    char path[PATH_ROOM];
    int said = 0;
    keep_folder(run);
    for (int checkpoint = 0; checkpoint <= 1; checkpoint++) {
        if ((!checkpoint && !is_kept(run)) || path_in(run->settings.out, names[checkpoint], path) != 0) continue;
        attn_status status = save_one(run, checkpoint, path);
        if (status == ATTN_OK) continue;
        const char *why = attn_context_last_error(run->ctx);
        not_saved(run, &said, *why != 0 ? why : attn_status_name(status));
    }
    save_chart(run, CHART_LOSS, CHART_FILE, &said);
    if (run->settings.task == TASK_SEQ2SEQ) save_chart(run, CHART_ERRORS, ERRORS_FILE, &said);
    const char *problem;
    if (log_catch_up(&run->log, &problem) != 0) log_not_written(run, &said, problem);
    run->save_failed = said;
}

void train_report(train_run *run, const log_entry *entry)
{
    const char *problem;
    int said = 0;
    keep_folder(run);
    if (log_add(&run->log, entry, &problem) == 0) return;
    log_not_written(run, &said, problem);
    run->save_failed = 1;
}

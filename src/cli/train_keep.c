/* Which model of a run is kept: the best evaluated one, or the mean of several. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "files.h"
#include "message.h"
#include "train_run.h"

enum { MOST_SNAPSHOTS = 128 }; /* in a folder; --average is at most 100 */

static int better(const train_settings *s, const log_entry *a, const log_entry *b)
{
    if (s->task == TASK_LM || s->choose == CHOOSE_LAST) return 1;
    if (s->choose == CHOOSE_ERROR && a->word_error != b->word_error) return a->word_error < b->word_error;
    return a->valid_loss < b->valid_loss;
}

const log_entry *train_best(const train_run *run, int64_t *since)
{
    const log_entry *best = NULL;
    int64_t later = 0;
    for (int64_t i = 0; i < run->log.count; i++) {
        const log_entry *e = &run->log.at[i];
        if (!isfinite(e->valid_loss)) continue;
        later++;
        if (best != NULL && !better(&run->settings, e, best)) continue;
        best = e;
        later = 0;
    }
    if (since != NULL) *since = later;
    return best;
}

static int snapshot_path(const train_run *run, int64_t step, char path[PATH_ROOM])
{
    char name[64];
    snprintf(name, sizeof name, "snapshot-%lld.safetensors", (long long)step);
    return path_in(run->settings.out, name, path);
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* the steps above `low` and below `high` whose models lie in the folder, the newest first */
static int64_t find_snapshots(const train_run *run, int64_t low, int64_t high, int64_t steps[MOST_SNAPSHOTS])
{
    int64_t count = 0;
    DIR *folder = opendir(run->settings.out);
    const struct dirent *entry;
    while (folder != NULL && count < MOST_SNAPSHOTS && (entry = readdir(folder)) != NULL) {
        long long at = 0;
        int end = 0;
        if (sscanf(entry->d_name, "snapshot-%18lld.safetensors%n", &at, &end) == 1 && end > 0 && entry->d_name[end] == 0 && at > low &&
            at < high)
            steps[count++] = at;
    }
    if (folder != NULL) closedir(folder);
    qsort(steps, (size_t)count, sizeof *steps, compare);
    return count;
}

static int64_t elements(const attn_tensor *tensor)
{
    int64_t count = 1;
    for (int32_t axis = 0; axis < attn_tensor_rank(tensor); axis++) count *= attn_tensor_extent(tensor, axis);
    return count;
}

/* mean += (model - mean) / number: the mean of `number` models, this one the last of them */
static void add_model(const attn_transformer *model, const attn_transformer *mean, int64_t number)
{
    attn_parameters *from = attn_transformer_parameters(model), *to = attn_transformer_parameters(mean);
    const float part = 1 / (float)number;
    for (int64_t i = 0; i < attn_parameters_count(to); i++) {
        attn_tensor *target = attn_parameters_tensor(to, i);
        const float *x = attn_tensor_data_const(attn_parameters_tensor(from, i));
        float *y = attn_tensor_data(target);
        const int64_t count = elements(target);
        for (int64_t e = 0; e < count; e++) y[e] = number == 1 ? x[e] : y[e] + (x[e] - y[e]) * part;
    }
}

static attn_status make_kept(train_run *run)
{
    attn_transformer_options o;
    if (run->kept != NULL) return ATTN_OK;
    attn_status status = attn_transformer_options_init(&o, sizeof o);
    if (status == ATTN_OK) status = attn_transformer_get_options(run->ctx, run->model, &o);
    return status == ATTN_OK ? attn_transformer_create(run->ctx, &o, &run->kept) : status;
}

void train_drop_snapshots(const train_run *run, int64_t step)
{
    char path[PATH_ROOM];
    int64_t steps[MOST_SNAPSHOTS];
    for (int64_t count; (count = find_snapshots(run, step, INT64_MAX, steps)) > 0;) {
        int64_t removed = 0;
        for (int64_t i = 0; i < count; i++) removed += snapshot_path(run, steps[i], path) == 0 && unlink(path) == 0;
        if (removed == 0) return; /* those that cannot go are written over */
    }
}

/* the mean of this model and the last ones before it, whose files lie in the folder; files that are not needed any more go */
static attn_status average(train_run *run, int64_t step)
{
    char path[PATH_ROOM];
    int64_t steps[MOST_SNAPSHOTS], count = find_snapshots(run, 0, step, steps);
    attn_status status = make_kept(run);
    if (status == ATTN_OK) add_model(run->model, run->kept, 1);
    for (int64_t i = 0; status == ATTN_OK && i < count; i++) {
        attn_transformer *old = NULL;
        if (snapshot_path(run, steps[i], path) != 0) return ATTN_ERROR_IO;
        if (i + 1 >= run->settings.average) {
            unlink(path);
            continue;
        }
        status = attn_transformer_load(run->ctx, path, NULL, &old);
        if (status == ATTN_OK) add_model(old, run->kept, i + 2);
        attn_transformer_free(old);
    }
    if (status == ATTN_OK && snapshot_path(run, step, path) != 0) status = ATTN_ERROR_IO;
    return status == ATTN_OK ? attn_transformer_save(run->ctx, run->model, 0, NULL, NULL, path) : status;
}

int train_evaluate(train_run *run, evaluation *out)
{
    *out = (evaluation){NAN, NAN, NAN};
    if (run->settings.task == TASK_LM || run->settings.average == 1) return run->task->evaluate(run, run->model, out);
    attn_status status = average(run, attn_trainer_steps(run->trainer));
    if (status == ATTN_ERROR_CANCELLED) return EXIT_INTERRUPTED;
    return status == ATTN_OK ? run->task->evaluate(run, run->kept, out) : fail_call(run->ctx, status, "--average");
}

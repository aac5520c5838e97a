#include "train_settings.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "files.h"
#include "message.h"
#include "model_file.h"

static int given(const train_settings *s, const char *name)
{
    return s->from.given[find_flag(&train_flags, name)];
}

static void set_given(train_settings *s, const char *name)
{
    s->from.given[find_flag(&train_flags, name)] = 1;
}

/* flags that have a meaning for one task alone */
static int check_task(const train_settings *s)
{
    static const char *const of_pairs[] = {
        "valid",        "source", "target", "threshold", "encoder-layers", "decoder-width", "decoder-heads", "decoder-feed-forward",
        "batch-tokens", "bucket", "choose", "average",   "patience"};
    static const char *const of_text[] = {"tokens"};
    int pairs = s->task == TASK_SEQ2SEQ;
    for (size_t i = 0; !pairs && i < sizeof of_pairs / sizeof *of_pairs; i++)
        if (given(s, of_pairs[i])) return fail(EXIT_INPUT, "--%s: goes with --task seq2seq alone", of_pairs[i]);
    for (size_t i = 0; pairs && i < sizeof of_text / sizeof *of_text; i++)
        if (given(s, of_text[i]))
            return fail(EXIT_INPUT, "--%s: goes with --task lm alone (--source and --target say it for pairs)", of_text[i]);
    if (pairs && s->valid == NULL)
        return fail(EXIT_INPUT, "--valid: needed with --task seq2seq, pairs to validate on (\"attn help train\" shows an example)");
    return 0;
}

/* numbers that follow from others, as if they had been given; each task has defaults of its own */
static int settle(train_settings *s)
{
    int pairs = s->task == TASK_SEQ2SEQ;
    if (!given(s, "preset")) s->preset = given(s, "model") && s->model == 1 ? "lstm-attention" : pairs ? "g2p" : "gpt-char";
    if (!given(s, "batch")) s->batch = pairs ? 256 : 12;
    if (!given(s, "steps")) s->steps = pairs ? 4000 : 2000;
    if (!given(s, "label-smoothing")) s->label_smoothing = pairs ? 0.1 : 0;
    if (!given(s, "decay-steps")) s->decay_steps = s->steps;
    if (!given(s, "warmup")) s->warmup = s->decay_steps / 20 < 100 ? s->decay_steps / 20 : 100;
    if (!given(s, "min-lr")) s->final_rate = s->rate / 10;
    if (!given(s, "weight-decay")) s->weight_decay = s->optimizer == ATTN_OPTIMIZER_ADAMW ? 0.1 : 0;
    if (s->optimizer == ATTN_OPTIMIZER_ADAM && s->weight_decay != 0)
        return fail(EXIT_INPUT,
                    "--weight-decay: got %g with --optimizer adam, expected 0 (adamw decays weights; --l2 is a penalty in the loss)",
                    s->weight_decay);
    int falls = s->schedule == ATTN_SCHEDULE_LINEAR || s->schedule == ATTN_SCHEDULE_COSINE;
    if (falls && s->warmup > s->decay_steps)
        return fail(EXIT_INPUT, "--warmup: got %lld, expected at most the %lld of --decay-steps", (long long)s->warmup,
                    (long long)s->decay_steps);
    if (falls && s->final_rate > s->rate)
        return fail(EXIT_INPUT, "--min-lr: got %g, expected at most the %g of --lr", s->final_rate, s->rate);
    if (s->schedule == ATTN_SCHEDULE_MONOGRAPH && given(s, "lr"))
        return fail(EXIT_INPUT, "--lr: goes with no --schedule monograph, whose rate follows from --width and --warmup");
    return 0;
}

static json_t *value_of(const flag *f, const train_settings *s)
{
    const char *at = (const char *)s + f->offset;
    const char *words;
    char digits[32];
    int64_t whole;
    uint64_t seed;
    double real;
    int32_t code;
    switch (f->kind) {
    case FLAG_TEXT: memcpy(&words, at, sizeof words); return json_string(words);
    case FLAG_INTEGER: memcpy(&whole, at, sizeof whole); return json_integer(whole);
    case FLAG_SEED: /* a number, as text when JSON's 63 bits do not hold it */
        memcpy(&seed, at, sizeof seed);
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)seed);
        return seed <= INT64_MAX ? json_integer((json_int_t)seed) : json_string(digits);
    case FLAG_REAL: memcpy(&real, at, sizeof real); return json_real(real);
    case FLAG_CHOICE: memcpy(&code, at, sizeof code); return json_string(f->choices[code]);
    default: memcpy(&code, at, sizeof code); return json_boolean(code);
    }
}

/* files that a run reads: they may lie elsewhere when it is resumed, and a model's file does not tell where they were */
static int is_place(const flag *f)
{
    return strcmp(f->name, "data") == 0 || strcmp(f->name, "valid") == 0;
}

static int store_place(const flag *f, const train_settings *s, json_t *object)
{
    const char *path;
    memcpy(&path, (const char *)s + f->offset, sizeof path);
    if (path == NULL) return 0;
    errno = 0;
    char *place = realpath(path, NULL);
    int failed = place == NULL && errno == ENOMEM;
    json_t *where = json_string(place != NULL ? place : path); /* NULL for a name that is no UTF-8: then it must be given */
    if (!failed && where != NULL)
        failed = json_object_set_new(object, f->name, where) != 0;
    else
        json_decref(where);
    free(place);
    return failed;
}

char *settings_text(const train_settings *s, int checkpoint)
{
    json_t *object = json_object();
    int failed = object == NULL;
    for (int i = 0; !failed && i < train_flags.count; i++) {
        const flag *f = &train_flags.at[i];
        if (f->role == FLAG_FREE || (f->role == FLAG_MODEL && !s->from.given[i])) continue;
        if (is_place(f)) {
            failed = checkpoint && store_place(f, s, object) != 0;
            continue;
        }
        failed = json_object_set_new(object, f->name, value_of(f, s)) != 0;
    }
    char *text = failed ? NULL : json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(object);
    return text;
}

/* one stored value; the file is not trusted, so it passes the same checks as a flag */
static int take_stored(const flag *f, const json_t *value, train_settings *s)
{
    double real = json_number_value(value);
    int64_t whole = json_integer_value(value);
    char *at = (char *)s + f->offset;
    switch (f->kind) {
    case FLAG_TEXT:
    case FLAG_CHOICE: return json_is_string(value) ? set_flag(f, json_string_value(value), s) : -1;
    case FLAG_SEED:
        if (json_is_string(value)) return set_flag(f, json_string_value(value), s);
        if (!json_is_integer(value) || whole < 0) return -1;
        memcpy(at, &whole, sizeof whole);
        return 0;
    case FLAG_INTEGER:
        if (!json_is_integer(value) || (double)whole < f->least || (double)whole > f->most) return -1;
        memcpy(at, &whole, sizeof whole);
        return 0;
    case FLAG_REAL:
        if (!json_is_number(value) || !(real >= f->least && real <= f->most)) return -1;
        memcpy(at, &real, sizeof real);
        return 0;
    default: return json_is_true(value) ? set_flag(f, "", s) : -1;
    }
}

static int load_stored(const char *path, const char *words, train_settings *s)
{
    s->stored = json_loads(words, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(s->stored)) return fail(EXIT_INPUT, "%s: its settings are no JSON object", path);
    const char *name;
    json_t *value;
    json_object_foreach(s->stored, name, value)
    {
        int index = find_flag(&train_flags, name);
        if (index < 0 || train_flags.at[index].role == FLAG_FREE)
            return fail(EXIT_INPUT, "%s: unknown setting \"%.60s\"; was it made by a later version?", path, name);
        int failed = take_stored(&train_flags.at[index], value, s);
        if (failed > 0) return failed;
        if (failed < 0) return fail(EXIT_INPUT, "%s: the setting \"%s\" has no sensible value", path, name);
        s->from.given[index] = 1;
    }
    static const char *const needed[] = {"steps", "decay-steps", "warmup", "min-lr", "weight-decay", "preset"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!given(s, needed[i])) return fail(EXIT_INPUT, "%s: the setting \"%s\" is missing", path, needed[i]);
    return 0;
}

static size_t size_of(flag_kind kind)
{
    return kind == FLAG_TEXT ? sizeof(char *) : kind == FLAG_CHOICE || kind == FLAG_SWITCH ? sizeof(int32_t) : sizeof(int64_t);
}

/* whether one flag of the command line says something else than the run it goes on with; -1: it makes no sense there, and a line said so */
static int differs(attn_context *ctx, int index, const train_settings *line, const train_settings *stored)
{
    const flag *f = &train_flags.at[index];
    if (f->role == FLAG_MODEL) { /* a flag may spell out what the preset says */
        train_settings with = *stored;
        attn_transformer_options a, b;
        memcpy((char *)&with + f->offset, (const char *)line + f->offset, size_of(f->kind));
        with.from.given[index] = 1;
        if (model_of_settings(ctx, stored, 2, 2, 0, &a) != 0 || model_of_settings(ctx, &with, 2, 2, 0, &b) != 0) return -1;
        return memcmp(&a, &b, sizeof a) != 0;
    }
    const char *at = (const char *)line + f->offset, *other = (const char *)stored + f->offset;
    if (f->kind != FLAG_TEXT) return memcmp(at, other, size_of(f->kind)) != 0;
    const char *words, *others;
    memcpy(&words, at, sizeof words);
    memcpy(&others, other, sizeof others);
    return strcmp(words, others) != 0;
}

/* the checkpoint's settings, with --steps and what does not change the result from the command line */
static int resume(attn_context *ctx, const train_settings *line, train_settings *out)
{
    char path[PATH_ROOM], *words = NULL;
    int status = path_in(line->out, CHECKPOINT_FILE, path);
    int exists = status == 0 ? file_exists(path) : 0;
    if (exists < 0) return EXIT_MACHINE;
    if (status == 0 && !exists) status = fail(EXIT_INPUT, "--resume: %s does not exist, so there is nothing to go on with", path);
    if (status == 0) status = read_metadata(ctx, path, SETTINGS_KEY, &words);
    if (status == 0) status = load_stored(path, words, out);
    free(words);
    for (int i = 0; status == 0 && i < train_flags.count; i++) {
        const flag *f = &train_flags.at[i];
        int may_change = f->role == FLAG_FREE || strcmp(f->name, "steps") == 0 || is_place(f);
        if (!line->from.given[i]) continue;
        int other = may_change ? 0 : differs(ctx, i, line, out);
        if (other < 0) return EXIT_INPUT;
        if (other)
            return fail(EXIT_INPUT, "--%s: differs from the run in %s; --resume takes its settings from there, --steps apart", f->name,
                        line->out);
        if (!may_change) continue;
        memcpy((char *)out + f->offset, (const char *)line + f->offset, size_of(f->kind));
        out->from.given[i] = 1;
    }
    if (status == 0 && out->task == TASK_SEQ2SEQ && !given(out, "valid"))
        status = fail(EXIT_INPUT, "--valid: needed, %s does not say where its pairs are", path);
    if (status == 0 && !given(out, "data")) status = fail(EXIT_INPUT, "--data: needed, %s does not say where its text is", path);
    return status;
}

int read_settings(attn_context *ctx, int argc, char **argv, train_settings *out)
{
    train_settings line = {.threads = ATTN_THREADS_ALL, .eval_every = BY_ITSELF};
    *out = line;
    int status = parse_flags(&train_flags, argc, argv, &line, &line.from);
    if (status == 0 && line.out == NULL)
        status = fail(EXIT_INPUT, "--out: needed, the folder for the model (\"attn help train\" shows an example)");
    if (status == 0 && line.resume && line.overwrite) status = fail(EXIT_INPUT, "--overwrite: goes with no --resume");
    if (status != 0) return status;
    if (line.resume) {
        *out = line;
        memset(&out->from, 0, sizeof out->from);
        return resume(ctx, &line, out);
    }
    if (line.data == NULL) return fail(EXIT_INPUT, "--data: needed, the text to learn from (\"attn help train\" shows an example)");
    status = check_task(&line);
    if (status == 0) status = settle(&line);
    *out = line;
    static const char *const settled[] = {"decay-steps", "warmup", "min-lr", "weight-decay", "preset", "batch", "steps", "label-smoothing"};
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++) set_given(out, settled[i]);
    return status;
}

void free_settings(train_settings *s)
{
    json_decref(s->stored);
    s->stored = NULL;
}

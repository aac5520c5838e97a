#include "run_log.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "files.h"
#include "message.h"

enum { LINE = 512 };

static int remember(run_log *log, const log_entry *entry)
{
    if (log->count == log->room) {
        int64_t room = log->room > 0 ? 2 * log->room : 256;
        log_entry *larger = realloc(log->at, (size_t)room * sizeof *larger);
        if (larger == NULL) return fail(EXIT_MACHINE, "%s: not enough memory", log->path);
        log->at = larger;
        log->room = room;
    }
    log->at[log->count++] = *entry;
    return 0;
}

static int open_end(run_log *log)
{
    log->file = fopen(log->path, "ae");
    if (log->file != NULL) return 0;
    return fail(EXIT_MACHINE, "%s: cannot be written: %s", log->path, strerror(errno));
}

static int start(run_log *log, const char *path)
{
    *log = (run_log){.path = strdup(path)};
    return log->path != NULL ? 0 : fail(EXIT_MACHINE, "%s: not enough memory", path);
}

int log_create(run_log *log, const char *path)
{
    int status = start(log, path);
    return status == 0 ? open_end(log) : status;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* a line of the file, when it is a report: a line that a crash cut short is none */
static int read_entry(const char *line, size_t length, log_entry *out)
{
    json_t *object = json_loadb(line, length, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    int good = json_is_integer(step);
    if (good)
        *out = (log_entry){json_integer_value(step), number(object, "loss"),      number(object, "valid_loss"),
                           number(object, "lr"),     number(object, "grad_norm"), number(object, "tokens_per_second")};
    json_decref(object);
    return good;
}

/* copies the lines to keep over those before them; the bytes kept */
static int keep_lines(run_log *log, char *text, size_t bytes, int64_t step, size_t *kept)
{
    size_t at = 0;
    int64_t last = 0;
    *kept = 0;
    while (at < bytes) {
        char *end = memchr(text + at, '\n', bytes - at);
        if (end == NULL) break;
        size_t length = (size_t)(end - text) - at + 1;
        log_entry entry;
        if (read_entry(text + at, length, &entry) && entry.step > last && entry.step <= step) {
            if (remember(log, &entry) != 0) return EXIT_MACHINE;
            last = entry.step;
            memmove(text + *kept, text + at, length);
            *kept += length;
        }
        at += length;
    }
    return 0;
}

static int read_old(const char *path, char **text, size_t *bytes)
{
    FILE *file = fopen(path, "rbe");
    *text = NULL;
    *bytes = 0;
    if (file == NULL) return errno == ENOENT ? 0 : fail(EXIT_MACHINE, "%s: cannot be read: %s", path, strerror(errno));
    int status = 0;
    for (size_t room = 0, got = 1; status == 0 && got > 0; *bytes += got) {
        if (*bytes == room) {
            room = room > 0 ? 2 * room : 1 << 16;
            char *larger = realloc(*text, room);
            if (larger == NULL) {
                status = fail(EXIT_MACHINE, "%s: not enough memory", path);
                break;
            }
            *text = larger;
        }
        got = fread(*text + *bytes, 1, room - *bytes, file);
    }
    if (status == 0 && ferror(file)) status = fail(EXIT_MACHINE, "%s: cannot be read: %s", path, strerror(errno));
    fclose(file);
    return status;
}

int log_continue(run_log *log, const char *path, int64_t step)
{
    char *text = NULL;
    size_t bytes = 0, kept = 0;
    const char *problem;
    int status = start(log, path);
    if (status == 0) status = read_old(path, &text, &bytes);
    if (status == 0) status = keep_lines(log, text, bytes, step, &kept);
    if (status == 0 && kept < bytes && replace_file(path, text, (int64_t)kept, &problem) != 0)
        status = fail(EXIT_MACHINE, "%s: cannot be written: %s", path, problem);
    free(text);
    return status == 0 ? open_end(log) : status;
}

static void print_number(char line[LINE], const char *key, const char *format, double value)
{
    size_t used = strlen(line);
    snprintf(line + used, LINE - used, ", \"%s\": ", key);
    used = strlen(line);
    snprintf(line + used, LINE - used, isfinite(value) ? format : "null", value); /* JSON has no NaN */
}

int log_add(run_log *log, const log_entry *entry, const char **problem)
{
    char line[LINE];
    snprintf(line, sizeof line, "{\"step\": %lld", (long long)entry->step);
    print_number(line, "loss", "%.7g", entry->loss);
    print_number(line, "valid_loss", "%.7g", entry->valid_loss);
    print_number(line, "lr", "%.7g", entry->rate);
    print_number(line, "grad_norm", "%.7g", entry->gradient_norm);
    print_number(line, "tokens_per_second", "%.0f", entry->tokens_per_second);
    *problem = NULL;
    if (remember(log, entry) != 0) *problem = "not enough memory";
    clearerr(log->file);
    if (fprintf(log->file, "%s}\n", line) < 0 || fflush(log->file) != 0) *problem = strerror(errno);
    return *problem != NULL;
}

void log_close(run_log *log)
{
    if (log->file != NULL) fclose(log->file); /* every line was flushed */
    free(log->at);
    free(log->path);
    *log = (run_log){0};
}

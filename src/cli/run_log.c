#include "run_log.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "files.h"
#include "message.h"

enum { LINE = 512, FIRST_ROOM = 256 };

/* Grows long before it is full: a lack of memory that passes costs no entry. */
static int remember(run_log *log, const log_entry *entry)
{
    if (log->count >= log->room / 2) {
        int64_t room = 2 * log->room;
        log_entry *larger = realloc(log->at, (size_t)room * sizeof *larger);
        if (larger == NULL && log->count == log->room) return 1;
        if (larger != NULL) {
            log->at = larger;
            log->room = room;
        }
    }
    log->at[log->count++] = *entry;
    return 0;
}

static int start(run_log *log, const char *path)
{
    *log = (run_log){.path = strdup(path), .at = malloc(FIRST_ROOM * sizeof *log->at), .room = FIRST_ROOM};
    return log->path != NULL && log->at != NULL ? 0 : fail(EXIT_MACHINE, "%s: not enough memory", path);
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
        *out = (log_entry){json_integer_value(step),     number(object, "loss"),       number(object, "valid_loss"),
                           number(object, "lr"),         number(object, "grad_norm"),  number(object, "tokens_per_second"),
                           number(object, "word_error"), number(object, "token_error")};
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
            if (remember(log, &entry) != 0) return fail(EXIT_MACHINE, "%s: not enough memory", log->path);
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
    (void)fclose(file); /* it was only read */
    return status;
}

static void print_number(char line[LINE], const char *key, const char *format, double value)
{
    size_t used = strlen(line);
    snprintf(line + used, LINE - used, ", \"%s\": ", key);
    used = strlen(line);
    if (isfinite(value))
        snprintf(line + used, LINE - used, format, value);
    else
        snprintf(line + used, LINE - used, "null");
}

static int64_t print_entry(char line[LINE], const log_entry *entry)
{
    snprintf(line, LINE, "{\"step\": %lld", (long long)entry->step);
    print_number(line, "loss", "%.7g", entry->loss);
    print_number(line, "valid_loss", "%.7g", entry->valid_loss);
    print_number(line, "lr", "%.7g", entry->rate);
    print_number(line, "grad_norm", "%.7g", entry->gradient_norm);
    print_number(line, "tokens_per_second", "%.0f", entry->tokens_per_second);
    if (isfinite(entry->word_error)) {
        print_number(line, "word_error", "%.7g", entry->word_error);
        print_number(line, "token_error", "%.7g", entry->token_error);
    }
    strcat(line, "}\n");
    return (int64_t)strlen(line);
}

static int write_at(int descriptor, const char *from, int64_t bytes, int64_t offset)
{
    while (bytes > 0) {
        ssize_t wrote = pwrite(descriptor, from, (size_t)bytes, offset);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return wrote < 0 ? errno : EIO;
        from += wrote;
        bytes -= wrote;
        offset += wrote;
    }
    return 0;
}

/* Brings the file up to what is in memory: all of it when the file is not the one it was, what is missing after a full disk, the new
   entry as a rule. A line is whole or not there. 0, or an error number. */
static int write_missing(run_log *log)
{
    struct stat about;
    char line[LINE];
    int descriptor = open(log->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) return errno;
    int error = fstat(descriptor, &about) != 0 ? errno : 0;
    if (error == 0 && about.st_size < log->bytes) log->written = log->bytes = 0;
    if (error == 0 && about.st_size > log->bytes && ftruncate(descriptor, log->bytes) != 0) error = errno;
    while (error == 0 && log->written < log->count) {
        int64_t bytes = print_entry(line, &log->at[log->written]);
        error = write_at(descriptor, line, bytes, log->bytes);
        if (error != 0) break;
        log->written++;
        log->bytes += bytes;
    }
    if (error != 0 && ftruncate(descriptor, log->bytes) != 0) errno = 0; /* the next attempt cuts it */
    close(descriptor);
    return error;
}

static int first_write(run_log *log)
{
    int error = write_missing(log);
    return error == 0 ? 0 : fail(EXIT_MACHINE, "%s: cannot be written: %s", log->path, strerror(error));
}

int log_create(run_log *log, const char *path)
{
    int status = start(log, path);
    return status == 0 ? first_write(log) : status;
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
    log->written = log->count;
    log->bytes = (int64_t)kept;
    return status == 0 ? first_write(log) : status;
}

/* as the file has it, so that the chart of a resumed run is that of one that was never interrupted */
static double as_written(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", value);
    return isfinite(value) ? strtod(text, NULL) : value;
}

int log_add(run_log *log, const log_entry *entry, const char **problem)
{
    log_entry kept = *entry;
    kept.loss = as_written(entry->loss);
    kept.valid_loss = as_written(entry->valid_loss);
    kept.word_error = as_written(entry->word_error);
    kept.token_error = as_written(entry->token_error);
    int error = remember(log, &kept) == 0 ? write_missing(log) : ENOMEM;
    *problem = error != 0 ? strerror(error) : NULL;
    return error != 0;
}

int log_catch_up(run_log *log, const char **problem)
{
    int error = log->written < log->count ? write_missing(log) : 0;
    *problem = error != 0 ? strerror(error) : NULL;
    return error != 0;
}

void log_close(run_log *log)
{
    free(log->at);
    free(log->path);
    *log = (run_log){0};
}

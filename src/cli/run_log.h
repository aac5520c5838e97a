#ifndef ATTN_CLI_RUN_LOG_H
#define ATTN_CLI_RUN_LOG_H
#include <stdint.h>

/* One report of a run. NAN: not known. */
typedef struct log_entry {
    int64_t step;
    double loss, valid_loss, rate, gradient_norm, tokens_per_second;
    double word_error, token_error; /* of the validation pairs, in per cent */
} log_entry;

/* DIR/log.jsonl: a JSON object a line, and the same in memory for the chart. */
typedef struct run_log {
    char *path;
    log_entry *at;
    int64_t count, room;
    int64_t written, bytes; /* entries that are in the file, and where the last of them ends */
} run_log;

/* A new log. 0, or the exit status after one line. */
int log_create(run_log *log, const char *path);

/* An old log up to a step, what came later is cut off; an absent log is a new one, and lines that are no reports are dropped. */
int log_continue(run_log *log, const char *path, int64_t step);

/* Writes a line at once, after those that could not be written before. 0, or 1 with the system's reason; the entry is kept then. */
int log_add(run_log *log, const log_entry *entry, const char **problem);

/* Writes what could not be written before, if there is any. As log_add. */
int log_catch_up(run_log *log, const char **problem);

void log_close(run_log *log);
#endif

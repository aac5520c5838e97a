#ifndef ATTN_CLI_TERMINAL_H
#define ATTN_CLI_TERMINAL_H
#include <stdint.h>

/* What a run has to say at a moment. */
typedef struct progress {
    int64_t step, steps;
    double loss, valid_loss, word_error; /* NAN: not evaluated */
    double tokens_per_second, seconds_left;
} progress;

/* On a terminal: one line, rewritten in place at most ten times a second, which an evaluation leaves standing. Otherwise: a line for
   every report. 0 when standard output is gone. */
int terminal_progress(const progress *p, int report);

/* Ends the line that is being rewritten, if there is one. */
void terminal_close_line(void);

/* Numbers for people: 1,115,394 - 12.3 MiB - 1.2 G - 1:02:03. Each returns text. */
const char *readable_count(int64_t count, char text[32]);
const char *readable_bytes(int64_t bytes, char text[32]);
const char *readable_amount(double amount, char text[32]);
const char *readable_time(double seconds, char text[32]);

double seconds_now(void); /* of a clock that never jumps */
#endif

#ifndef ATTN_CLI_MESSAGE_H
#define ATTN_CLI_MESSAGE_H
#include <attn/context.h>
#include <stdint.h>

/* How the program ends. */
enum { EXIT_FINE = 0, EXIT_MACHINE = 1, EXIT_INPUT = 2, EXIT_INTERRUPTED = 130 };

/* Prints "attn: " and the text as one line on standard error (control characters become '?'). Returns exit_status. */
int fail(int exit_status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a call of the library that failed: what it was doing (may be NULL), then the library's text. The exit status follows
   from the kind of failure; CANCELLED prints nothing. */
int fail_call(const attn_context *ctx, attn_status status, const char *doing);
int exit_of(attn_status status);

/* The exit status of a system call that failed on a path of the user's: a wrong path, or a machine that cannot. */
int exit_of_error(int error);

/* Flushes standard output. A reader that went away is no failure of ours: the program ends quietly. Returns the exit status. */
int finish_output(int exit_status);

/* Prints what is buffered now; 0 when the reader is gone or the disk is full (after one line about it). */
int output_now(void);
#endif

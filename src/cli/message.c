#include "message.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "terminal.h"

int fail(int exit_status, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c != 0; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    terminal_close_line();
    fprintf(stderr, "attn: %s\n", text);
    return exit_status;
}

int exit_of(attn_status status)
{
    switch (status) {
    case ATTN_OK: return EXIT_FINE;
    case ATTN_ERROR_CANCELLED: return EXIT_INTERRUPTED;
    case ATTN_ERROR_OUT_OF_MEMORY:
    case ATTN_ERROR_MEMORY_CAP:
    case ATTN_ERROR_IO:
    case ATTN_ERROR_BLAS:
    case ATTN_ERROR_NOT_FINITE: return EXIT_MACHINE;
    default: return EXIT_INPUT;
    }
}

int exit_of_error(int error)
{
    return error == ENOENT || error == EACCES || error == ENOTDIR || error == EISDIR || error == ENAMETOOLONG || error == ELOOP
               ? EXIT_INPUT
               : EXIT_MACHINE;
}

int fail_call(const attn_context *ctx, attn_status status, const char *doing)
{
    if (status == ATTN_ERROR_CANCELLED) return EXIT_INTERRUPTED;
    const char *text = attn_context_last_error(ctx);
    if (*text == 0) text = attn_status_name(status);
    return fail(exit_of(status), "%s%s%s", doing != NULL ? doing : "", doing != NULL ? ": " : "", text);
}

static int reader_gone; /* standard output is a pipe that nobody reads any more */
static int output_failed;

int output_now(void)
{
    if (reader_gone || output_failed) return 0;
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return 1;
    if (errno == EPIPE) {
        reader_gone = 1;
    } else {
        output_failed = 1;
        fail(EXIT_MACHINE, "standard output: %s", errno != 0 ? strerror(errno) : "cannot be written");
    }
    return 0;
}

int finish_output(int exit_status)
{
    if (exit_status == EXIT_FINE || exit_status == EXIT_INTERRUPTED) output_now(); /* else one line has said what is wrong */
    return output_failed ? EXIT_MACHINE : exit_status;
}

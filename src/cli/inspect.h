#ifndef ATTN_CLI_INSPECT_H
#define ATTN_CLI_INSPECT_H
#include <stdint.h>

enum { INSPECT_TOKENS = 64 }; /* a map has no more rows or columns, ends aside */

typedef struct inspect_settings {
    const char *model, *text, *out;
    int64_t threads;
} inspect_settings;

/* The picture of a model of pairs: what its target's tokens read of the source. 0, or the exit status after one line. */
int inspect_pair(const inspect_settings *s);
#endif

#ifndef ATTN_CLI_PAIRS_H
#define ATTN_CLI_PAIRS_H
#include "text.h"

/* A file of pairs: a source, a tab, a target on every line; what follows a second tab is not read. A byte order mark at the beginning and a
   carriage return at the end of a line are dropped. */
typedef struct pair_line {
    const char *source, *target; /* not ended by a NUL; target NULL when it was not asked for */
    int64_t source_bytes, target_bytes, number;
} pair_line;
typedef struct pair_text {
    const char *path;
    text from;
    pair_line *at;
    int64_t count, empty; /* empty lines, which are left out */
} pair_text;

/* Reads and checks a file. 0, or the exit status after one line with file and line number. */
int read_pairs(const char *path, pair_text *out);

/* Sources alone, one a line (the first column, where there are more); an empty line is an empty source. "-": standard input. */
int read_sources(const char *path, pair_text *out);

void free_pairs(pair_text *pairs);
#endif

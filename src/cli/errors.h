#ifndef ATTN_CLI_ERRORS_H
#define ATTN_CLI_ERRORS_H
#include <stdint.h>

/* How wrong hypotheses are: a word (a whole target) is right or wrong, tokens by edit distance. */
typedef struct error_counts {
    int64_t words, word_errors, tokens, token_errors; /* tokens: of the references */
} error_counts;

/* An unknown token of the reference matches nothing. room: [reference_count + 1]. */
void count_errors(error_counts *to, const int32_t *hypothesis, int64_t count, const int32_t *reference, int64_t reference_count,
                  int32_t unknown, int64_t *room);

/* Of all: 0 to 100 (tokens may be more). */
double word_error_rate(const error_counts *c);
double token_error_rate(const error_counts *c);
#endif

#include "errors.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Levenshtein's distance, a row at a time: row[j] is that of the hypothesis so far to the first j of the reference */
static int64_t distance(const int32_t *a, int64_t n, const int32_t *b, int64_t m, int32_t unknown, int64_t *row)
{
    for (int64_t j = 0; j <= m; j++) row[j] = j;
    for (int64_t i = 1; i <= n; i++) {
        int64_t corner = row[0];
        row[0] = i;
        for (int64_t j = 1; j <= m; j++) {
            int64_t changed = corner + (a[i - 1] != b[j - 1] || b[j - 1] == unknown);
            corner = row[j];
            row[j] = least(changed, least(row[j - 1], row[j]) + 1);
        }
    }
    return row[m];
}

void count_errors(error_counts *to, const int32_t *hypothesis, int64_t count, const int32_t *reference, int64_t reference_count,
                  int32_t unknown, int64_t *room)
{
    int64_t edits = distance(hypothesis, count, reference, reference_count, unknown, room);
    to->words++;
    to->word_errors += edits > 0;
    to->tokens += reference_count;
    to->token_errors += edits;
}

double word_error_rate(const error_counts *c)
{
    return c->words > 0 ? 100.0 * (double)c->word_errors / (double)c->words : 0;
}

double token_error_rate(const error_counts *c)
{
    return c->tokens > 0 ? 100.0 * (double)c->token_errors / (double)c->tokens : 0;
}

#ifndef ATTN_CLI_CHART_H
#define ATTN_CLI_CHART_H
#include "run_log.h"

typedef struct chart_words {
    const char *title, *subtitle;
} chart_words;

/* LOSS: training loss, smoothed over what was measured, and validation loss. ERRORS: words and tokens of the validation pairs that are wrong. */
enum { CHART_LOSS, CHART_ERRORS };

/* The curves of a run as an SVG picture. NULL when memory is short; the caller frees the text. steps: where the axis ends at least. */
char *draw_chart(const run_log *log, int64_t steps, int kind, const chart_words *words);
#endif

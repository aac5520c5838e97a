#ifndef ATTN_CLI_SCORE_H
#define ATTN_CLI_SCORE_H
#include <attn/attn.h>

/* The part [first, last) of `count` tokens, as windows of `context` that do not overlap: a data set for score. 0, or the exit status
   after one line. */
int open_windows(attn_context *ctx, const char *path, const int32_t *tokens, int64_t count, double first, double last, int64_t context,
                 attn_dataset **out);

/* The mean loss over a pass through the windows, each token but the first predicted once. */
attn_status score(attn_context *ctx, const attn_transformer *model, attn_dataset *windows, double *loss, int64_t *tokens);
#endif

#ifndef ATTN_MODELS_REPORT_H
#define ATTN_MODELS_REPORT_H
#include <attn/cost.h>
#include "transformer.h"

/* Bytes one run needs beside the parameters: rows (of each side) in sequences of at most longest. options resolved. */
typedef struct attn__need {
    int64_t values, records, gradients, scratch;
} attn__need;
attn_status attn__transformer_need(attn_context *ctx, const attn_transformer_options *options, int training, int64_t rows, int64_t longest,
                                   attn__need *out);
#endif

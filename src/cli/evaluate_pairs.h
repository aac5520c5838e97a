#ifndef ATTN_CLI_EVALUATE_PAIRS_H
#define ATTN_CLI_EVALUATE_PAIRS_H
#include <stdint.h>

/* "attn eval" of a model of pairs. */
typedef struct pair_evaluation {
    const char *model, *data;
    int64_t beam, batch, threads;
    double length_penalty;
    int32_t json, reserved;
} pair_evaluation;
int evaluate_pairs(const pair_evaluation *wanted);
#endif

#ifndef ATTN_DATA_PAIRS_ORDER_H
#define ATTN_DATA_PAIRS_ORDER_H
#include "../core/context.h"

/* In which order pairs come in one pass, and how they are cut into batches: a pure function of what stands above the line. */
typedef struct attn__pair_order {
    int64_t count, batch, batch_tokens, bucket;
    uint64_t seed;
    const int64_t *source_rows, *target_rows; /* [count] of each pair, in a batch */
    int32_t shuffled, reserved;
    /* made by attn__pair_order_prepare */
    int64_t pass; /* -1: none yet */
    int64_t batches;
    int64_t *pair;  /* [count] */
    int64_t *first; /* [count + 1]: where in there batch b begins, and the end */
    int64_t *turn;  /* [count]: batches in the order in which they come */
} attn__pair_order;
void attn__pair_order_prepare(attn__pair_order *order, int64_t pass);
/* ascending, in place */
void attn__sort(int64_t *numbers, int64_t count);
#endif

#ifndef ATTN_MODELS_REPORT_H
#define ATTN_MODELS_REPORT_H
#include <attn/cost.h>
#include "dry.h"

/* What a run needs beside the parameters, at most at once. */
typedef struct attn__need {
    attn__tape_need tape;
    int64_t scratch, worker; /* of the calling thread; of each thread of the pool */
} attn__need;

/* What was counted of one run of a batch or of a decoding session. */
typedef struct attn__reading {
    int64_t forward, backward, bytes; /* multiply-adds; bytes that kernels read and write */
    int64_t prompt, decode;           /* multiply-adds of a prompt and of the step that follows */
    int64_t caches;                   /* bytes of a generator's caches, tokens and logits */
    int64_t handles;                  /* bytes of a context, a model, a tape, without buffers */
    int64_t plan;                     /* bytes that the reading itself took, most at once; of decoding */
    attn__need need;
} attn__reading;

enum { ATTN__NO_LAYOUT = 256 }; /* bytes for the one segment of each side that comes without a layout */

/* adds a * b * c; too large stays at the largest number */
void attn__grow(int64_t *total, int64_t a, int64_t b, int64_t c);

/* One forward, with training one backward. Segments: of the sides the model has, readable. */
attn_status attn__read_batch(attn_context *ctx, attn__dry *dry, int training, attn__segments source, attn__segments target,
                             attn__reading *out);
/* Prompts of the target's segments (on the source's), caches for `beam` hypotheses of `capacity` tokens each, and the step that follows. */
attn_status attn__read_decoding(attn_context *ctx, attn__dry *dry, attn__segments source, attn__segments target, int64_t beam,
                                int64_t capacity, attn__reading *out);
/* rows in sequences of longest, the last one perhaps shorter; errors are in dry */
attn_status attn__rows_layout(attn__dry *dry, int64_t rows, int64_t longest, attn_layout **out);
/* scratch of each thread for attention over segments of at most longest, by the kernels that ctx computes with */
int64_t attn__worker_room(attn_context *ctx, const attn__transformer_plan *plan, int64_t longest);
int64_t attn__longest(attn__segments segments);

/* A need that was read off such a layout becomes that of every layout of no more rows in no longer sequences: more sequences have longer lists,
   steps or a side with fewer rows have gradients that are no room for others. */
attn_status attn__any_layout(attn_context *ctx, const attn__transformer_plan *plan, int64_t rows, int64_t longest, attn__need *need);
/* What training takes: batches of at most `rows` rows (of each side) in sequences of at most longest; masks are the plan's. */
attn_status attn__training_need(attn_context *ctx, const attn__transformer_plan *plan, int64_t rows, int64_t longest, attn__need *out);
/* What a generator's prompt and the steps after it take. */
attn_status attn__decoding_need(attn_context *ctx, const attn__transformer_plan *plan, attn__segments source, attn__segments target,
                                int64_t beam, int64_t capacity, attn__need *out);
#endif

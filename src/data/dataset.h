#ifndef ATTN_DATA_DATASET_H
#define ATTN_DATA_DATASET_H
#include <attn/data.h>
#include "../core/context.h"

/* The whole state of a data set between two batches is one number. Saved with a checkpoint together with the fingerprint, it makes
   a resumed training see the batches (and sequence ids) it would have seen. Sequence ids never repeat unless an order of random
   windows is rewound. */
int64_t attn__dataset_cursor(const attn_dataset *dataset);
attn_dataset *attn__dataset_retain(attn_dataset *dataset);                                /* NULL is fine; attn_dataset_free lets go */
attn_status attn__dataset_seek(attn_context *ctx, attn_dataset *dataset, int64_t cursor); /* negative or absurd: INVALID_ARGUMENT */
/* a hash of the tokens of the part and of the options that choose windows: context, batch, seed, order */
uint64_t attn__dataset_fingerprint(const attn_dataset *dataset);
/* most rows and most segments of a batch */
void attn__dataset_size(const attn_dataset *dataset, int64_t *rows, int64_t *segments);
#endif

#ifndef ATTN_DATA_DATASET_H
#define ATTN_DATA_DATASET_H
#include <attn/data.h>
#include <stdatomic.h>
#include "../core/context.h"

/* What every data set has; each kind begins with it. The whole state between two batches is one number, the cursor. Saved with a checkpoint
   together with the fingerprint, it makes a resumed training see the batches (and sequence ids) it would have seen. Sequence ids never
   repeat unless an endless order is rewound. */
typedef struct attn__dataset_kind {
    /* fills batch from the cursor on; the cursor moves last */
    attn_status (*next)(attn_context *ctx, attn_dataset *dataset, attn_batch *batch);
    int64_t (*rewound)(const attn_dataset *dataset); /* the cursor after attn_dataset_rewind */
    void (*clear)(attn_dataset *dataset);            /* frees what the kind holds */
    int64_t bytes;                                   /* of its struct */
} attn__dataset_kind;
struct attn_dataset {
    uint64_t magic;
    attn__memory *memory;
    atomic_int references; /* the caller's handle, and a trainer's */
    int32_t reserved;
    const attn__dataset_kind *kind;
    int64_t cursor, rows, segments; /* most rows and segments of a batch */
    uint64_t fingerprint;
};
#define ATTN__MOST_CURSOR (INT64_MAX / 4)

/* An empty one of a kind, all zero behind the head. */
attn_status attn__dataset_make(attn_context *ctx, const attn__dataset_kind *kind, attn_dataset **out);

/* Token ids of a batch on one side, and where its sequences lie. */
typedef struct attn__batch_side {
    int64_t rows, segments; /* room */
    int32_t *tokens;
    attn_segment *at;
    attn_tensor *tensor;
    attn_layout *layout; /* NULL when there is no room for segments */
} attn__batch_side;
attn_status attn__batch_side_make(attn_context *ctx, attn__memory *memory, int64_t rows, int64_t segments, attn__batch_side *out);
attn_status attn__batch_side_set(attn_context *ctx, attn__batch_side *side, int64_t rows, int64_t segments); /* never allocates */
void attn__batch_side_free(attn__memory *memory, attn__batch_side *side);

int64_t attn__dataset_cursor(const attn_dataset *dataset);
attn_dataset *attn__dataset_retain(attn_dataset *dataset);                                /* NULL is fine; attn_dataset_free lets go */
attn_status attn__dataset_seek(attn_context *ctx, attn_dataset *dataset, int64_t cursor); /* negative or absurd: INVALID_ARGUMENT */
/* a hash of the tokens and of the options that choose batches */
uint64_t attn__dataset_fingerprint(const attn_dataset *dataset);
/* most rows and most segments of a batch */
void attn__dataset_size(const attn_dataset *dataset, int64_t *rows, int64_t *segments);
#endif

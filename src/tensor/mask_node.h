#ifndef ATTN_TENSOR_MASK_NODE_H
#define ATTN_TENSOR_MASK_NODE_H
#include <stdatomic.h>
#include "mask.h"

/* The nodes of a mask's tree; shared by mask.c (making and freeing) and mask_rules.c (answering). */
enum { ATTN__MASK_CAUSAL = 1, ATTN__MASK_WINDOW = 2, ATTN__MASK_BOOLEAN = 3, ATTN__MASK_UNION = 4, ATTN__MASK_INTERSECTION = 5 };
/* bounds on the stack and on the time that answers need; a mask used twice counts twice */
enum { ATTN__MASK_MAX_DEPTH = 64, ATTN__MASK_MAX_NODES = 1024 };

struct attn_mask {
    uint64_t magic;
    attn__memory *memory;
    atomic_int references;
    int32_t kind, alignment, depth, nodes;
    int32_t interval;    /* each row sees one run of keys: answers never need bytes */
    int64_t left, right; /* steps of dilation; -1: no limit */
    int64_t dilation;
    attn_mask *a, *b;  /* counted */
    int64_t extent[4]; /* allowed: [1|segments, 1|heads, queries, keys], bytes 0 and 1, behind this struct */
    int64_t bytes;     /* of the whole allocation */
    uint8_t allowed[];
};
#endif

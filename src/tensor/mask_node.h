#ifndef ATTN_TENSOR_MASK_NODE_H
#define ATTN_TENSOR_MASK_NODE_H
#include <stdatomic.h>
#include "mask.h"

/* The nodes of a mask's tree; shared by mask.c (making and freeing) and mask_rules.c (answering). */
enum {
    ATTN__MASK_CAUSAL = 1,
    ATTN__MASK_WINDOW = 2,
    ATTN__MASK_BOOLEAN = 3,
    ATTN__MASK_UNION = 4,
    ATTN__MASK_INTERSECTION = 5,
    ATTN__MASK_SPARSE = 6, /* from here on: mask_sparse.c */
    ATTN__MASK_GLOBAL = 6,
    ATTN__MASK_STRIDED = 7,
    ATTN__MASK_FIXED = 8,
    ATTN__MASK_RANDOM = 9,
    ATTN__MASK_LOGARITHMIC = 10,
    ATTN__MASK_ADDITIVE = 11, /* mask_additive.c */
    ATTN__MASK_HEADS = 12     /* mask_heads.c */
};
/* bounds on the stack and on the time that answers need; a mask used twice counts twice */
enum { ATTN__MASK_MAX_DEPTH = 64, ATTN__MASK_MAX_NODES = 1024, ATTN__MASK_RANDOM_MOST = 64 };

struct attn_mask {
    uint64_t magic;
    attn__memory *memory;
    atomic_int references;
    int32_t kind, alignment, depth, nodes;
    int32_t interval;    /* each row sees one run of keys: answers never need bytes */
    int64_t left, right; /* steps of dilation; -1: no limit */
    int64_t dilation;
    int64_t stride, count; /* strided, fixed: stride (-1: root of the keys), summaries; random: block, blocks; global: indices */
    int32_t parts, both_sides;
    int32_t by_head, has_values; /* heads may see different keys; scores gain numbers */
    uint64_t seed;
    attn_mask *a, *b;  /* counted */
    int64_t extent[4]; /* allowed: [1|segments, 1|heads, queries, keys], bytes 0 and 1, behind this struct */
    int64_t bytes;     /* of the whole allocation */
    _Alignas(int64_t)
        uint8_t allowed[]; /* or global indices, int64, rising; additive values, float, laid out as extent; masks of heads, counted */
};

/* memory behind the node is for `bytes` more bytes */
attn_status attn__mask_node(attn_context *ctx, int32_t kind, int64_t bytes, attn_mask **out);
attn_status attn__mask_alignment(attn_context *ctx, int32_t alignment);

/* the key index where query i stands; may lie outside the keys */
static inline int64_t attn__mask_place(const attn_mask *mask, const attn__pair *pair, int64_t i)
{
    if (mask->alignment == ATTN_ALIGN_LAST) return i + (pair->key->length - pair->query->length);
    if (mask->alignment == ATTN_ALIGN_FIRST) return i;
    return pair->query->first_position + i - pair->key->first_position;
}

/* windows, by place: also the parts of strided masks */
int32_t attn__mask_window_block(const attn_mask *mask, int64_t place, int64_t rows, int64_t j, int64_t keys);
int32_t attn__mask_window_row(const attn_mask *mask, int64_t place, int64_t j, int64_t keys, int64_t *low, int64_t *high, uint8_t *allowed);
int32_t attn__mask_additive_block(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t rows, int64_t j,
                                  int64_t keys);
void attn__mask_additive_row(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys,
                             uint8_t *allowed);
static inline const attn_mask *const *attn__mask_heads(const attn_mask *mask)
{
    return (const attn_mask *const *)(const void *)mask->allowed;
}
/* extents against a call's heads and segments */
attn_status attn__mask_check_extents(attn_context *ctx, const char *argument, const attn_mask *mask, int64_t heads, attn__segments query,
                                     attn__segments key);
/* sparse kinds; place: of the first row. The row writes allowed whole. */
int32_t attn__mask_sparse_block(const attn_mask *mask, const attn__pair *pair, int64_t place, int64_t rows, int64_t j, int64_t keys);
void attn__mask_sparse_row(const attn_mask *mask, const attn__pair *pair, int64_t place, int64_t j, int64_t keys, uint8_t *allowed);
#endif

/* What a mask's tree answers for a pair of segments; i: index of a query, j: index of a key. */
#include <string.h>
#include "mask.h"
#include "mask_node.h"

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b > 0 ? INT64_MAX : INT64_MIN;
}

/* How far a window reaches, in keys; -1 steps: to the end. */
static int64_t reach(int64_t steps, int64_t dilation)
{
    int64_t keys;
    return steps < 0 || __builtin_mul_overflow(steps, dilation, &keys) ? INT64_MAX : keys;
}

/* keys [*low, *high) around place; causal is a window without keys to the right */
static void window_bounds(const attn_mask *mask, int64_t place, int64_t *low, int64_t *high)
{
    *low = add(place, -reach(mask->left, mask->dilation));
    *high = add(add(place, reach(mask->right, mask->dilation)), 1);
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* keys from `from` to the next one at a whole number of steps from place */
static int64_t keys_to_step(int64_t place, int64_t from, int64_t dilation)
{
    int64_t a = place % dilation, b = from % dilation;
    a += a < 0 ? dilation : 0;
    return a >= b ? a - b : a - b + dilation;
}

/* A block holds every distance from that of its first query and last key to that of its last query and first key. Two distances in
   a row are not both whole steps, so with dilation only single pairs are full. */
static int32_t dilated_block(const attn_mask *mask, int64_t place, int64_t rows, int64_t j, int64_t keys)
{
    int64_t low = add(place, -(j + keys - 1)), high = add(place, rows - 1 - j);
    int64_t left = reach(mask->left, mask->dilation), right = reach(mask->right, mask->dilation);
    if (low < -right) low = -right;
    if (high > left) high = left;
    if (low > high) return ATTN__BLOCK_NONE;
    int64_t over = low % mask->dilation, to_step = over > 0 ? mask->dilation - over : -over;
    if (to_step > high - low) return ATTN__BLOCK_NONE;
    return rows == 1 && keys == 1 ? ATTN__BLOCK_FULL : ATTN__BLOCK_PARTIAL;
}

int32_t attn__mask_window_block(const attn_mask *mask, int64_t place, int64_t rows, int64_t j, int64_t keys)
{
    int64_t first_low, first_high, last_low, last_high;
    if (mask->dilation > 1) return dilated_block(mask, place, rows, j, keys);
    window_bounds(mask, place, &first_low, &first_high);
    window_bounds(mask, place + rows - 1, &last_low, &last_high);
    if (j >= last_high || j + keys <= first_low) return ATTN__BLOCK_NONE;
    return j + keys <= first_high && j >= last_low ? ATTN__BLOCK_FULL : ATTN__BLOCK_PARTIAL;
}

int32_t attn__mask_window_row(const attn_mask *mask, int64_t place, int64_t j, int64_t keys, int64_t *low, int64_t *high, uint8_t *allowed)
{
    int64_t first, end;
    window_bounds(mask, place, &first, &end);
    *low = clamp(first, j, j + keys) - j;
    *high = clamp(end, j, j + keys) - j;
    if (mask->dilation == 1) return 0;
    memset(allowed, 0, (size_t)keys);
    if (*low >= *high) return 1;
    int64_t left = *high - *low, step = keys_to_step(place, j + *low, mask->dilation);
    for (uint8_t *at = allowed + *low; step < left; step = mask->dilation) {
        at += step;
        left -= step;
        *at = 1;
    }
    return 1;
}

static const uint8_t *boolean_row_at(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i)
{
    const int64_t *extent = mask->extent;
    int64_t segment = extent[0] == 1 ? 0 : pair->index, of_head = extent[1] == 1 ? 0 : head;
    return mask->allowed + ((segment * extent[1] + of_head) * extent[2] + i) * extent[3];
}

/* head -1: over all of them */
static int32_t boolean_block(const attn_mask *mask, const attn__pair *pair, int64_t only, int64_t i, int64_t rows, int64_t j, int64_t keys)
{
    int some = 0, not_all = 0;
    int64_t first = only < 0 || mask->extent[1] == 1 ? 0 : only, end = only < 0 ? mask->extent[1] : first + 1;
    for (int64_t head = first; head < end; head++)
        for (int64_t row = i; row < i + rows; row++) {
            const uint8_t *at = boolean_row_at(mask, pair, head, row) + j;
            some |= !some && memchr(at, 1, (size_t)keys) != NULL;
            not_all |= !not_all && memchr(at, 0, (size_t)keys) != NULL;
            if (some && not_all) return ATTN__BLOCK_PARTIAL;
        }
    return some ? ATTN__BLOCK_FULL : ATTN__BLOCK_NONE;
}

static int32_t heads_block(const attn_mask *mask, const attn__pair *pair, int64_t i, int64_t rows, int64_t j, int64_t keys)
{
    int32_t all = attn__mask_block_of_head(attn__mask_heads(mask)[0], pair, 0, i, rows, j, keys);
    for (int64_t h = 1; h < mask->count && all != ATTN__BLOCK_PARTIAL; h++)
        if (attn__mask_block_of_head(attn__mask_heads(mask)[h], pair, h, i, rows, j, keys) != all) all = ATTN__BLOCK_PARTIAL;
    return all;
}

int32_t attn__mask_block(const attn_mask *mask, const attn__pair *pair, int64_t i, int64_t rows, int64_t j, int64_t keys)
{
    return attn__mask_block_of_head(mask, pair, -1, i, rows, j, keys);
}

int32_t attn__mask_block_of_head(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t rows, int64_t j,
                                 int64_t keys)
{
    if (rows == 0 || keys == 0) return ATTN__BLOCK_NONE;
    if (mask == NULL) return ATTN__BLOCK_FULL;
    if (mask->kind == ATTN__MASK_BOOLEAN) return boolean_block(mask, pair, head, i, rows, j, keys);
    if (mask->kind == ATTN__MASK_ADDITIVE) return attn__mask_additive_block(mask, pair, head, i, rows, j, keys);
    if (mask->kind == ATTN__MASK_HEADS && head < 0) return heads_block(mask, pair, i, rows, j, keys);
    if (mask->kind == ATTN__MASK_HEADS) return attn__mask_block_of_head(attn__mask_heads(mask)[head], pair, head, i, rows, j, keys);
    if (mask->kind == ATTN__MASK_CAUSAL || mask->kind == ATTN__MASK_WINDOW)
        return attn__mask_window_block(mask, attn__mask_place(mask, pair, i), rows, j, keys);
    if (mask->kind >= ATTN__MASK_SPARSE) return attn__mask_sparse_block(mask, pair, attn__mask_place(mask, pair, i), rows, j, keys);
    int32_t decides = mask->kind == ATTN__MASK_UNION ? ATTN__BLOCK_FULL : ATTN__BLOCK_NONE; /* alone, whatever the other says */
    int32_t a = attn__mask_block_of_head(mask->a, pair, head, i, rows, j, keys);
    if (a == decides) return a;
    int32_t b = attn__mask_block_of_head(mask->b, pair, head, i, rows, j, keys);
    return b == decides || a == b ? b : ATTN__BLOCK_PARTIAL;
}

static int32_t node_row(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, int64_t *low,
                        int64_t *high, uint8_t *allowed);

/* a head's own mask, as bytes whatever its kind: a heads node is never an interval */
static int32_t whole_row(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, int64_t *low,
                         int64_t *high, uint8_t *allowed);

static void write_interval(uint8_t *allowed, int64_t keys, int64_t low, int64_t high)
{
    memset(allowed, 0, (size_t)keys);
    if (low < high) memset(allowed + low, 1, (size_t)(high - low));
}

/* The second operand is met in pieces, so that its bytes fit the stack. */
static void merge_bytes(const attn_mask *mask, const attn_mask *second, const attn__pair *pair, int64_t head, int64_t i, int64_t j,
                        int64_t keys, uint8_t *allowed)
{
    uint8_t piece[256];
    for (int64_t at = 0; at < keys; at += (int64_t)sizeof piece) {
        int64_t low, high, count = keys - at < (int64_t)sizeof piece ? keys - at : (int64_t)sizeof piece;
        if (!node_row(second, pair, head, i, j + at, count, &low, &high, piece)) write_interval(piece, count, low, high);
        for (int64_t c = 0; c < count; c++)
            allowed[at + c] = mask->kind == ATTN__MASK_UNION ? allowed[at + c] | piece[c] : allowed[at + c] & piece[c];
    }
}

static int32_t merge_rows(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, int64_t *low,
                          int64_t *high, uint8_t *allowed)
{
    const attn_mask *first = mask->a->interval ? mask->b : mask->a, *second = mask->a->interval ? mask->a : mask->b;
    int32_t bytes = node_row(first, pair, head, i, j, keys, low, high, allowed);
    if (!bytes && second->interval) {
        int64_t other_low, other_high;
        node_row(second, pair, head, i, j, keys, &other_low, &other_high, NULL);
        int64_t inner_low = *low > other_low ? *low : other_low, inner_high = *high < other_high ? *high : other_high;
        if (mask->kind == ATTN__MASK_INTERSECTION) {
            *low = inner_low;
            *high = inner_low < inner_high ? inner_high : inner_low;
            return 0;
        }
        if (other_low >= other_high) return 0;
        int alone = *low >= *high;
        if (alone || inner_low <= inner_high) { /* they touch: one run */
            *low = alone || other_low < *low ? other_low : *low;
            *high = alone || other_high > *high ? other_high : *high;
            return 0;
        }
    }
    if (!bytes) write_interval(allowed, keys, *low, *high);
    merge_bytes(mask, second, pair, head, i, j, keys, allowed);
    *low = 0;
    *high = keys;
    return 1;
}

static int32_t node_row(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, int64_t *low,
                        int64_t *high, uint8_t *allowed)
{
    if (mask->kind == ATTN__MASK_CAUSAL || mask->kind == ATTN__MASK_WINDOW)
        return attn__mask_window_row(mask, attn__mask_place(mask, pair, i), j, keys, low, high, allowed);
    if (mask->kind == ATTN__MASK_UNION || mask->kind == ATTN__MASK_INTERSECTION)
        return merge_rows(mask, pair, head, i, j, keys, low, high, allowed);
    if (mask->kind == ATTN__MASK_HEADS) return whole_row(attn__mask_heads(mask)[head], pair, head, i, j, keys, low, high, allowed);
    if (mask->kind == ATTN__MASK_ADDITIVE)
        attn__mask_additive_row(mask, pair, head, i, j, keys, allowed);
    else if (mask->kind == ATTN__MASK_BOOLEAN)
        memcpy(allowed, boolean_row_at(mask, pair, head, i) + j, (size_t)keys);
    else
        attn__mask_sparse_row(mask, pair, attn__mask_place(mask, pair, i), j, keys, allowed);
    *low = 0;
    *high = keys;
    return 1;
}

static int32_t whole_row(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, int64_t *low,
                         int64_t *high, uint8_t *allowed)
{
    *low = 0;
    *high = keys;
    if (mask == NULL)
        memset(allowed, 1, (size_t)keys);
    else if (!node_row(mask, pair, head, i, j, keys, low, high, allowed))
        write_interval(allowed, keys, *low, *high);
    *low = 0;
    *high = keys;
    return 1;
}

int32_t attn__mask_row(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, int64_t *low,
                       int64_t *high, uint8_t *allowed)
{
    *low = 0;
    *high = keys;
    if (mask == NULL || keys == 0) return 0;
    if (!node_row(mask, pair, head, i, j, keys, low, high, allowed)) return 0;
    while (*low < *high && !allowed[*low]) ++*low;
    while (*low < *high && !allowed[*high - 1]) --*high;
    return *low < *high;
}

int attn__mask_fits_cache(const attn_mask *mask)
{
    if (mask == NULL) return 1;
    switch (mask->kind) {
    case ATTN__MASK_CAUSAL:
    case ATTN__MASK_WINDOW: return mask->alignment != ATTN_ALIGN_FIRST;
    case ATTN__MASK_GLOBAL:
    case ATTN__MASK_LOGARITHMIC: return mask->alignment != ATTN_ALIGN_FIRST;
    case ATTN__MASK_STRIDED:
    case ATTN__MASK_FIXED: return mask->alignment != ATTN_ALIGN_FIRST && mask->stride > 0; /* the root of n grows with the cache */
    case ATTN__MASK_HEADS:
        for (int64_t h = 0; h < mask->count; h++)
            if (!attn__mask_fits_cache(attn__mask_heads(mask)[h])) return 0;
        return 1;
    case ATTN__MASK_BOOLEAN:
    case ATTN__MASK_ADDITIVE:
    case ATTN__MASK_RANDOM: return 0; /* random: which blocks there are depends on how many keys there are */
    default: return attn__mask_fits_cache(mask->a) && attn__mask_fits_cache(mask->b);
    }
}

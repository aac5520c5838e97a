#ifndef ATTN_TENSOR_MASK_H
#define ATTN_TENSOR_MASK_H
#include "view.h"

/* A mask is an expression tree, counted (attn_mask_free releases; a tape's record and a union retain). It answers two questions for a
   pair of segments (query segment of m rows, key segment of n rows; i and j are indices within them): what a block of the m by n
   matrix is, and which keys one row sees. mask NULL everywhere: all keys are seen. */
attn_mask *attn__mask_retain(attn_mask *mask);

typedef struct attn__pair {
    int64_t index;
    const attn_segment *query, *key;
} attn__pair; /* index of the segment pair */
enum { ATTN__BLOCK_NONE = 0, ATTN__BLOCK_PARTIAL = 1, ATTN__BLOCK_FULL = 2 };
/* rows i .. i + rows by keys j .. j + keys, over all heads; PARTIAL is always a safe answer, NONE and FULL are exact (windows and
   boolean masks never say PARTIAL where another answer holds) */
int32_t attn__mask_block(const attn_mask *mask, const attn__pair *pair, int64_t i, int64_t rows, int64_t j, int64_t keys);
/* the same of one head; 1 when heads may see different keys, so that it can say NONE where the other says PARTIAL */
int32_t attn__mask_block_of_head(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t rows, int64_t j,
                                 int64_t keys);
int attn__mask_by_head(const attn_mask *mask);
/* What additive masks add to the score of query i and key j: of one pair, and to a row of scores. 1 when there are any. */
int attn__mask_has_values(const attn_mask *mask);
double attn__mask_value(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j);
void attn__mask_add_values(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, float *scores);
/* Keys of row i among j .. j + keys: those in [*low, *high) relative to j; and, when 1 is returned, only where allowed[] is 1
   (allowed has `keys` bytes and is written whole in that case). *low == *high: none. */
int32_t attn__mask_row(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, int64_t *low,
                       int64_t *high, uint8_t *allowed);
/* a boolean mask's shape against a call's segments and heads; fails by name */
attn_status attn__mask_check(attn_context *ctx, const char *argument, const attn_mask *mask, int64_t heads, attn__segments query,
                             attn__segments key);

/* 1 for attn_mask_causal aligned to the last key, alone */
int attn__mask_is_causal(const attn_mask *mask);

/* Which queries of a pair are named by the global masks that the mask is, or is a union with: they see every key. Their numbers, rising, go to
   row (NULL: they are counted alone). */
int64_t attn__mask_global_rows(const attn_mask *mask, const attn__pair *pair, int64_t *row);

/* 1 when the keys that a row sees may have gaps: then the size of blocks decides how much is listed (windows and causal masks lose no more
   than their edges). NULL: 0. */
int attn__mask_has_gaps(const attn_mask *mask);

/* 1 when the mask's answer for a key does not change when the queries before it are left out (they lie in a cache): aligned to the last key
   or by position. NULL: 1. */
int attn__mask_fits_cache(const attn_mask *mask);

/* The block map: per tile of queries, the runs of keys it sees. Full neighbours are joined to one run of any length; partial blocks stay
   single (key_block keys at most). One tile never crosses a segment; tiles are in row order, runs in key order. */
typedef struct attn__key_run {
    int64_t key, count, partial;
} attn__key_run; /* key: index within the key segment */
typedef struct attn__tile {
    int64_t segment, first, count, runs_first, runs_count;
} attn__tile; /* rows first .. first + count of the query segment */
typedef struct attn__block_map {
    attn__segments query, key; /* as given */
    const attn_mask *mask;
    int64_t tiles_count, runs_count;
    const attn__tile *tiles;
    const attn__key_run *runs;
    int64_t listed; /* query-key pairs in listed blocks: what products are spent on; past 63 bits the largest number */
} attn__block_map;
static inline void attn__list_pairs(int64_t *listed, int64_t queries, int64_t keys)
{
    int64_t pairs;
    if (attn__multiply(queries, keys, &pairs) || attn__sum(*listed, pairs, listed)) *listed = INT64_MAX;
}
/* Made in the arena; query_block and key_block >= 1. In a dry context tiles and runs are counted and taken, and may not be read. */
attn_status attn__block_map_build(attn_context *ctx, attn__arena *arena, const attn_mask *mask, attn__segments query, attn__segments key,
                                  int64_t query_block, int64_t key_block, attn__block_map *out);
/* the map's `listed` alone, without memory */
int64_t attn__block_map_listed(const attn_mask *mask, attn__segments query, attn__segments key, int64_t query_block, int64_t key_block);
/* The same blocks the other way round: tiles of keys (segment: index of the first pair that uses the key segment), runs of queries with
   the pair they belong to. Key segments that repeat are one: their tiles list the queries of every pair, pair after pair.
   Full neighbours of one pair are joined here too; partial runs have query_block queries at most. Tiles are in row order of the keys. */
typedef struct attn__query_run {
    int64_t segment, query, count, partial;
} attn__query_run;
typedef struct attn__key_map {
    attn__segments query, key;
    const attn_mask *mask;
    int64_t tiles_count, runs_count;
    const attn__tile *tiles; /* first, count: keys within the key segment; runs_* index runs */
    const attn__query_run *runs;
    int64_t listed; /* as in the block map */
} attn__key_map;
attn_status attn__key_map_build(attn_context *ctx, attn__arena *arena, const attn_mask *mask, attn__segments query, attn__segments key,
                                int64_t query_block, int64_t key_block, attn__key_map *out);
#endif

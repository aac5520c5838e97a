/* What a mask amounts to: pairs seen and listed, and the path from position to position through layers. */
#include <inttypes.h>
#include <string.h>
#include "layout.h"
#include "mask.h"

enum { BLOCK = 64 };

/* of one partial run, all heads */
static int64_t seen_in_run(const attn_mask *mask, const attn__pair *pair, int64_t heads, const attn__tile *tile, const attn__key_run *run)
{
    int64_t sum = 0;
    for (int64_t head = 0; head < heads; head++)
        for (int64_t i = tile->first; i < tile->first + tile->count; i++) {
            uint8_t allowed[BLOCK];
            int64_t low, high;
            int32_t bytes = attn__mask_row(mask, pair, head, i, run->key, run->count, &low, &high, allowed);
            for (int64_t j = low; bytes && j < high; j++) sum += allowed[j];
            if (!bytes) sum += high - low;
        }
    return sum;
}

static int64_t seen_in_map(const attn__block_map *map, int64_t heads)
{
    int64_t sum = 0;
    for (int64_t t = 0; t < map->tiles_count; t++) {
        const attn__tile *tile = &map->tiles[t];
        attn__pair pair = {tile->segment, &map->query.at[tile->segment], &map->key.at[tile->segment]};
        for (int64_t r = 0; r < tile->runs_count; r++) {
            const attn__key_run *run = &map->runs[tile->runs_first + r];
            sum += run->partial ? seen_in_run(map->mask, &pair, heads, tile, run) : tile->count * run->count * heads;
        }
    }
    return sum;
}

/* what is counted is no more than all pairs of all heads */
static attn_status check_count(attn_context *ctx, int64_t heads, attn__segments query, attn__segments key)
{
    int64_t sum = 0, all = 0;
    int over = 0;
    for (int64_t s = 0; !over && s < query.count; s++)
        over = attn__multiply(query.at[s].length, key.at[s].length, &all) || attn__sum(sum, all, &sum);
    if (!over && !attn__multiply(sum, heads, &all)) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "query_layout, key_layout: got more pairs over %" PRId64 " heads than 63 bits count",
                      heads);
}

static attn_status pairs(attn_context *ctx, const attn_mask *mask, int64_t heads, const attn_layout *query_layout,
                         const attn_layout *key_layout, int64_t *seen, int64_t *listed)
{
    attn__block_map map;
    attn_status status = attn__expect(ctx, "query_layout", query_layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status == ATTN_OK) status = attn__expect(ctx, "key_layout", key_layout, ATTN__MAGIC_LAYOUT, "attn_layout");
    if (status != ATTN_OK) return status;
    if (heads < 1) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "heads: got %" PRId64 ", expected 1 or more", heads);
    attn__segments query = attn__layout_segments(query_layout), key = attn__layout_segments(key_layout);
    if (query.count != key.count)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "key_layout: got %" PRId64 " segments, expected the %" PRId64 " of query_layout",
                          key.count, query.count);
    status = attn__mask_check(ctx, "mask", mask, heads, query, key);
    if (status == ATTN_OK) status = check_count(ctx, heads, query, key);
    if (status != ATTN_OK) return status;
    const int64_t apart = attn__mask_by_head(mask) ? heads : 1; /* the others see the same */
    attn__mark mark = attn__arena_mark(ctx->scratch);
    status = attn__block_map_build(ctx, ctx->scratch, mask, query, key, BLOCK, BLOCK, &map);
    if (status == ATTN_OK && seen != NULL) *seen = seen_in_map(&map, apart) * (heads / apart);
    if (status == ATTN_OK && listed != NULL) *listed = map.listed * heads;
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

attn_status attn_mask_pairs(attn_context *ctx, const attn_mask *mask, int64_t heads, const attn_layout *query_layout,
                            const attn_layout *key_layout, int64_t *seen, int64_t *listed)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, pairs(ctx, mask, heads, query_layout, key_layout, seen, listed));
}

/* Rows of bits: who is reached. Two squares, read and written in turn. */
typedef struct reach {
    uint64_t *from, *to; /* [length, words] */
    uint8_t *allowed;    /* [length] */
    int64_t length, words;
} reach;

static int bit_of(const uint64_t *row, int64_t j)
{
    return (int)(row[j >> 6] >> (j & 63) & 1);
}

static attn_status make_reach(attn_context *ctx, int64_t length, reach *r)
{
    int64_t words = length / 64 + (length % 64 != 0), square;
    *r = (reach){.length = length, .words = words};
    if (attn__multiply(length, words, &square) || attn__multiply(square, (int64_t)sizeof(uint64_t), &square))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "paths");
    r->allowed = attn__scratch(ctx, length);
    r->from = r->allowed == NULL ? NULL : attn__scratch(ctx, square);
    r->to = r->from == NULL ? NULL : attn__scratch(ctx, square);
    if (r->to == NULL) return attn__arena_status(ctx->scratch);
    memset(r->from, 0, (size_t)square);
    for (int64_t i = 0; i < length; i++) r->from[i * words + (i >> 6)] |= UINT64_C(1) << (i & 63);
    return ATTN_OK;
}

/* Position i keeps what it reaches and gains what the keys it sees reach. Returns 1 when something was gained. */
static int step_row(const attn_mask *mask, const attn__pair *pair, reach *r, int64_t i)
{
    int64_t low, high, words = r->words;
    uint64_t *to = r->to + i * words, gained = 0;
    int32_t bytes = attn__mask_row(mask, pair, 0, i, 0, r->length, &low, &high, r->allowed);
    memcpy(to, r->from + i * words, (size_t)words * sizeof *to);
    for (int64_t j = low; j < high; j++) {
        if (bytes && !r->allowed[j]) continue;
        for (int64_t w = 0; w < words; w++) to[w] |= r->from[j * words + w];
    }
    for (int64_t w = 0; w < words; w++) gained |= to[w] ^ r->from[i * words + w];
    return gained != 0;
}

static attn_status path(attn_context *ctx, const attn_mask *mask, int64_t length, int64_t *layers, int64_t *connected)
{
    if (length < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "length: got %" PRId64 ", expected 0 or more", length);
    attn_segment whole = {0, length, 0, 0};
    attn__segments segments = {1, length, &whole};
    attn__pair pair = {0, &whole, &whole};
    attn_status status = attn__mask_check(ctx, "mask", mask, 1, segments, segments);
    if (status != ATTN_OK) return status;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    reach r;
    int64_t steps = 0, sum = 0;
    status = make_reach(ctx, length, &r);
    for (int more = 1; status == ATTN_OK && more; steps += more) {
        more = 0;
        for (int64_t i = 0; i < length; i++) more |= step_row(mask, &pair, &r, i);
        uint64_t *read = r.to;
        r.to = r.from;
        r.from = read;
        status = attn__cancelled(ctx);
    }
    for (int64_t i = 0; status == ATTN_OK && i < length; i++)
        for (int64_t j = 0; j < length; j++) sum += bit_of(r.from + i * r.words, j);
    if (status == ATTN_OK && layers != NULL) *layers = steps;
    if (status == ATTN_OK && connected != NULL) *connected = sum;
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

attn_status attn_mask_path(attn_context *ctx, const attn_mask *mask, int64_t length, int64_t *layers, int64_t *connected)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, path(ctx, mask, length, layers, connected));
}

#include "layout.h"
#include "mask.h"

/* Where tiles and runs go; with tiles NULL they are only counted. */
typedef struct writer {
    attn__tile *tiles;
    attn__query_run *runs;
    int64_t tiles_count, runs_count, listed;
    int64_t open_end; /* end of a full run of this pair that the next block may lengthen; -1: none */
} writer;

static void add_run(writer *to, int64_t segment, int64_t query, int64_t count, int64_t keys, int64_t partial)
{
    int joins = !partial && to->open_end == query;
    to->open_end = partial ? -1 : query + count;
    attn__list_pairs(&to->listed, count, keys);
    if (joins) {
        if (to->runs != NULL) to->runs[to->runs_count - 1].count += count;
        return;
    }
    if (to->runs != NULL) to->runs[to->runs_count] = (attn__query_run){segment, query, count, partial};
    to->runs_count++;
}

/* query blocks first .. first + blocks, in halves as in the block map */
static void walk(writer *to, const attn_mask *mask, const attn__pair *pair, int64_t j, int64_t keys, int64_t first, int64_t blocks,
                 int64_t query_block)
{
    int64_t query = first * query_block, left = pair->query->length - query;
    int64_t most = blocks > left / query_block ? left : blocks * query_block;
    int32_t answer = attn__mask_block(mask, pair, query, most, j, keys);
    if (answer == ATTN__BLOCK_NONE) return;
    if (answer == ATTN__BLOCK_FULL || blocks == 1) {
        add_run(to, pair->index, query, most, keys, answer == ATTN__BLOCK_PARTIAL);
        return;
    }
    walk(to, mask, pair, j, keys, first, blocks / 2, query_block);
    walk(to, mask, pair, j, keys, first + blocks / 2, blocks - blocks / 2, query_block);
}

/* order: pairs by key segment, those that share one side by side; NULL: as they come, each alone */
static void write_map(writer *to, const attn_mask *mask, attn__segments query, attn__segments key, int64_t query_block, int64_t key_block,
                      const int64_t *order)
{
    for (int64_t first = 0, end; first < key.count; first = end) {
        const attn_segment *keys_of = &key.at[order == NULL ? first : order[first]];
        for (end = first + 1; order != NULL && end < key.count; end++)
            if (key.at[order[end]].start != keys_of->start || key.at[order[end]].length != keys_of->length) break;
        int64_t keys;
        for (int64_t j = 0; j < keys_of->length; j += keys) {
            keys = keys_of->length - j < key_block ? keys_of->length - j : key_block;
            int64_t runs_first = to->runs_count;
            for (int64_t at = first; at < end; at++) {
                int64_t s = order == NULL ? at : order[at];
                attn__pair pair = {s, &query.at[s], &key.at[s]};
                int64_t blocks = pair.query->length / query_block + (pair.query->length % query_block != 0);
                to->open_end = -1;
                if (blocks > 0) walk(to, mask, &pair, j, keys, 0, blocks, query_block);
            }
            if (to->tiles != NULL)
                to->tiles[to->tiles_count] = (attn__tile){keys_of - key.at, j, keys, runs_first, to->runs_count - runs_first};
            to->tiles_count++;
        }
    }
}

attn_status attn__key_map_build(attn_context *ctx, attn__arena *arena, const attn_mask *mask, attn__segments query, attn__segments key,
                                int64_t query_block, int64_t key_block, attn__key_map *out)
{
    int64_t *order = NULL, tiles_bytes, runs_bytes, order_bytes;
    if (attn__multiply(key.count, (int64_t)sizeof *order, &order_bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "key map");
    if (!ctx->dry) { /* a cost report cannot read what it takes: there repeated key segments count as several */
        order = attn__arena_take(arena, order_bytes);
        if (order == NULL) return attn__fail_memory(ctx, attn__arena_status(arena), "key map");
        attn__segments_order(key, order);
    }
    writer count = {NULL, NULL, 0, 0, 0, -1};
    write_map(&count, mask, query, key, query_block, key_block, order);
    if (attn__multiply(count.tiles_count, (int64_t)sizeof(attn__tile), &tiles_bytes) ||
        attn__multiply(count.runs_count, (int64_t)sizeof(attn__query_run), &runs_bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "key map");
    attn__tile *tiles = attn__arena_take(arena, tiles_bytes);
    attn__query_run *runs = tiles == NULL ? NULL : attn__arena_take(arena, runs_bytes);
    if (runs == NULL) return attn__fail_memory(ctx, attn__arena_status(arena), "key map");

    writer fill = {tiles, runs, 0, 0, 0, -1};
    if (!ctx->dry) write_map(&fill, mask, query, key, query_block, key_block, order);
    *out = (attn__key_map){query, key, mask, count.tiles_count, count.runs_count, tiles, runs, count.listed};
    return ATTN_OK;
}

#include "mask.h"

/* Where tiles and runs go; with tiles NULL they are only counted. */
typedef struct writer {
    attn__tile *tiles;
    attn__key_run *runs;
    int64_t tiles_count, runs_count, listed;
    int64_t open_end; /* end of a full run that the next block may lengthen; -1: none */
} writer;

static void add_run(writer *to, int64_t rows, int64_t key, int64_t count, int64_t partial)
{
    int joins = !partial && to->open_end == key;
    attn__list_pairs(&to->listed, rows, count);
    to->open_end = partial ? -1 : key + count;
    if (joins) {
        if (to->runs != NULL) to->runs[to->runs_count - 1].count += count;
        return;
    }
    if (to->runs != NULL) to->runs[to->runs_count] = (attn__key_run){key, count, partial};
    to->runs_count++;
}

/* Key blocks first .. first + blocks: asked as a whole, then in halves. What is full or empty as a whole is so in each block, so
   a causal mask or window costs a logarithm of the keys per tile. */
static void walk(writer *to, const attn_mask *mask, const attn__pair *pair, int64_t i, int64_t rows, int64_t first, int64_t blocks,
                 int64_t key_block)
{
    int64_t key = first * key_block, left = pair->key->length - key, most = blocks > left / key_block ? left : blocks * key_block;
    int32_t answer = attn__mask_block(mask, pair, i, rows, key, most);
    if (answer == ATTN__BLOCK_NONE) return;
    if (answer == ATTN__BLOCK_FULL || blocks == 1) {
        add_run(to, rows, key, most, answer == ATTN__BLOCK_PARTIAL);
        return;
    }
    walk(to, mask, pair, i, rows, first, blocks / 2, key_block);
    walk(to, mask, pair, i, rows, first + blocks / 2, blocks - blocks / 2, key_block);
}

static void write_map(writer *to, const attn_mask *mask, attn__segments query, attn__segments key, int64_t query_block, int64_t key_block)
{
    for (int64_t s = 0; s < query.count; s++) {
        attn__pair pair = {s, &query.at[s], &key.at[s]};
        int64_t rows, blocks = pair.key->length / key_block + (pair.key->length % key_block != 0);
        for (int64_t i = 0; i < pair.query->length; i += rows) {
            rows = pair.query->length - i < query_block ? pair.query->length - i : query_block;
            int64_t runs_first = to->runs_count;
            to->open_end = -1;
            if (blocks > 0) walk(to, mask, &pair, i, rows, 0, blocks, key_block);
            if (to->tiles != NULL) to->tiles[to->tiles_count] = (attn__tile){s, i, rows, runs_first, to->runs_count - runs_first};
            to->tiles_count++;
        }
    }
}

int64_t attn__block_map_listed(const attn_mask *mask, attn__segments query, attn__segments key, int64_t query_block, int64_t key_block)
{
    writer count = {NULL, NULL, 0, 0, 0, -1};
    write_map(&count, mask, query, key, query_block, key_block);
    return count.listed;
}

attn_status attn__block_map_build(attn_context *ctx, attn__arena *arena, const attn_mask *mask, attn__segments query, attn__segments key,
                                  int64_t query_block, int64_t key_block, attn__block_map *out)
{
    writer count = {NULL, NULL, 0, 0, 0, -1};
    write_map(&count, mask, query, key, query_block, key_block);
    int64_t tiles_bytes, runs_bytes;
    if (attn__multiply(count.tiles_count, (int64_t)sizeof(attn__tile), &tiles_bytes) ||
        attn__multiply(count.runs_count, (int64_t)sizeof(attn__key_run), &runs_bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "block map");
    attn__tile *tiles = attn__arena_take(arena, tiles_bytes);
    attn__key_run *runs = tiles == NULL ? NULL : attn__arena_take(arena, runs_bytes);
    if (runs == NULL) return attn__fail_memory(ctx, attn__arena_status(arena), "block map");

    writer fill = {tiles, runs, 0, 0, 0, -1};
    if (!ctx->dry) write_map(&fill, mask, query, key, query_block, key_block);
    *out = (attn__block_map){query, key, mask, count.tiles_count, count.runs_count, tiles, runs, count.listed};
    return ATTN_OK;
}

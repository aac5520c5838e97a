#include "attention_cut.h"

/* Measured with OpenBLAS on AVX-512: products of up to 10^6 multiply-adds run without packing at 110 GFLOP/s where nothing is transposed
   on the right (62 otherwise), larger ones at 95. So short and middling segments take tiles of 64 queries and as many keys as keep a
   product under that, and turn the keys on their side first; long ones take large blocks, which any library likes. A few queries take
   long rows of keys: their products read each key once. A mask with gaps that lists a third less by small tiles is worth them. */
enum { BLOCK_SHORT = 64, BLOCK_LONG = 256, BLOCK_KEYS = 256, KEYS_STEP = 64, SHORT_SEGMENT = 768, KEY_TILE = 128 };
enum { FEW_ROWS = 16, FEW_SCORES = 16384 };
enum { JOBS_ENOUGH = 8, PAIRS_FEW = 1 << 14 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

attn__attention_cut attn__attention_cut_of(int64_t queries, int64_t keys, int64_t size)
{
    attn__attention_cut cut = {BLOCK_LONG, BLOCK_KEYS, 0};
    size = size > 0 ? least(size, ATTN__SMALL_PRODUCT / ATTN__TURN_ROWS) : 1; /* wider ones are never turned */
    if (queries <= SHORT_SEGMENT) {
        cut.rows = BLOCK_SHORT;
        cut.keys = least(BLOCK_KEYS, ATTN__SMALL_PRODUCT / (BLOCK_SHORT * size) / KEYS_STEP * KEYS_STEP);
    }
    cut.rows = least(cut.rows, queries > 0 ? queries : 1);
    if (cut.keys < KEYS_STEP) cut.keys = KEYS_STEP;
    if (cut.rows <= FEW_ROWS) cut.keys = FEW_SCORES / cut.rows;
    cut.keys = (cut.keys + ATTN__LANES - 1) / ATTN__LANES * ATTN__LANES;
    cut.keys = least(cut.keys, keys > 0 ? keys : 1);
    cut.key_tile = least(cut.keys, KEY_TILE);
    return cut;
}

static int64_t longest(attn__segments segments)
{
    int64_t most = 0;
    for (int64_t s = 0; s < segments.count; s++) {
        if (segments.at[s].length > most) most = segments.at[s].length;
    }
    return most;
}

static int64_t listed_by(const attn__attention_arguments *a, int64_t rows)
{
    return attn__block_map_listed(a->mask, a->query_segments, a->key_segments, rows, ATTN__KEY_BLOCK);
}

attn__attention_cut attn__attention_cut_for(const attn__attention_arguments *a)
{
    int64_t size = a->query.width > a->value.width ? a->query.width : a->value.width;
    int64_t queries = longest(a->query_segments), keys = longest(a->key_segments);
    attn__attention_cut cut = attn__attention_cut_of(queries, keys, size);
    if (cut.rows <= BLOCK_SHORT || !attn__mask_has_gaps(a->mask)) return cut;
    if (listed_by(a, BLOCK_SHORT) > listed_by(a, cut.rows) / 3 * 2) return cut;
    cut = attn__attention_cut_of(SHORT_SEGMENT, keys, size);
    cut.key_tile = least(cut.key_tile, ATTN__KEY_BLOCK);
    return cut;
}

int attn__attention_one_sweep(int64_t groups, int64_t key_heads, int64_t tiles, int64_t listed)
{
    return groups * key_heads >= JOBS_ENOUGH || tiles <= 2 * groups || listed <= PAIRS_FEW;
}

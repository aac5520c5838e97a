/* What the sparse masks answer; p: the place of a query among the keys, j: the index of a key. */
#include <string.h>
#include "../core/random.h"
#include "mask_node.h"

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int32_t answer_of(int some, int all)
{
    return all ? ATTN__BLOCK_FULL : some ? ATTN__BLOCK_PARTIAL : ATTN__BLOCK_NONE;
}

/* how many of the rising indices lie below x */
static int64_t globals_below(const attn_mask *mask, int64_t x)
{
    const int64_t *at = (const int64_t *)(const void *)mask->allowed;
    int64_t low = 0, high = mask->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (at[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int32_t global_block(const attn_mask *mask, int64_t p, int64_t rows, int64_t j, int64_t keys)
{
    int64_t queries = globals_below(mask, p + rows) - globals_below(mask, p),
            columns = globals_below(mask, j + keys) - globals_below(mask, j);
    return answer_of(queries + columns > 0, queries == rows || columns == keys);
}

static void global_row(const attn_mask *mask, int64_t p, int64_t j, int64_t keys, uint8_t *allowed)
{
    const int64_t *at = (const int64_t *)(const void *)mask->allowed;
    int whole = globals_below(mask, p + 1) > globals_below(mask, p);
    memset(allowed, whole, (size_t)keys);
    for (int64_t g = globals_below(mask, j), end = globals_below(mask, j + keys); g < end; g++) allowed[at[g] - j] = 1;
}

/* the given stride, or the root of the keys, rounded up */
static int64_t stride_of(const attn_mask *mask, const attn__pair *pair)
{
    int64_t n = pair->key->length, low = 1, high = INT64_C(3037000499);
    if (mask->stride > 0) return mask->stride;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (middle * middle >= n)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The two parts of a strided mask are windows: the stride's keys before the query, and every key a whole number of strides before it. */
static attn_mask part_of(const attn__pair *pair, const attn_mask *mask, int32_t part)
{
    int64_t stride = stride_of(mask, pair);
    return part == ATTN_PART_LOCAL ? (attn_mask){.left = stride, .dilation = 1} : (attn_mask){.left = -1, .dilation = stride};
}

static int32_t strided_block(const attn_mask *mask, const attn__pair *pair, int64_t p, int64_t rows, int64_t j, int64_t keys)
{
    int32_t answer = ATTN__BLOCK_NONE;
    for (int32_t part = ATTN_PART_LOCAL; part <= ATTN_PART_SUMMARY; part <<= 1) {
        if (!(mask->parts & part)) continue;
        attn_mask window = part_of(pair, mask, part);
        int32_t one = attn__mask_window_block(&window, p, rows, j, keys);
        if (one > answer) answer = one;
    }
    return answer;
}

static void strided_row(const attn_mask *mask, const attn__pair *pair, int64_t p, int64_t j, int64_t keys, uint8_t *allowed)
{
    int64_t low = 0, high = 0, stride = stride_of(mask, pair);
    memset(allowed, 0, (size_t)keys);
    if (mask->parts & ATTN_PART_SUMMARY) {
        attn_mask window = part_of(pair, mask, ATTN_PART_SUMMARY);
        if (!attn__mask_window_row(&window, p, j, keys, &low, &high, allowed) && low < high) /* stride 1 */
            memset(allowed + low, 1, (size_t)(high - low));
    }
    if (!(mask->parts & ATTN_PART_LOCAL)) return;
    low = p - j > stride ? p - j - stride : 0; /* a query may stand before all keys, and a stride be as large as any number */
    high = p + 1 - j > keys ? keys : p + 1 - j;
    if (low < high) memset(allowed + low, 1, (size_t)(high - low));
}

/* keys of j .. j + keys that are summaries: the last `count` of each stride */
static int64_t summaries_below(int64_t x, int64_t stride, int64_t count)
{
    int64_t rest = x % stride - (stride - count);
    return x / stride * count + (rest > 0 ? rest : 0);
}

static int32_t fixed_block(const attn_mask *mask, const attn__pair *pair, int64_t p, int64_t rows, int64_t j, int64_t keys)
{
    int64_t stride = stride_of(mask, pair), count = mask->count < stride ? mask->count : stride, last = p + rows - 1;
    if (j > last) return ATTN__BLOCK_NONE;
    int some = 0, all = 0;
    if (mask->parts & ATTN_PART_LOCAL) {
        int64_t from = floor_divide(p, stride), to = floor_divide(last, stride), first = j / stride, end = (j + keys - 1) / stride;
        some |= end >= from; /* first is at most to, as j is at most last */
        all |= from == to && first == from && end == from && j + keys - 1 <= p;
    }
    if (mask->parts & ATTN_PART_SUMMARY) {
        int64_t reach = last + 1 < j + keys ? last + 1 : j + keys;
        some |= summaries_below(reach, stride, count) > summaries_below(j, stride, count);
        all |= j + keys - 1 <= p && summaries_below(j + keys, stride, count) - summaries_below(j, stride, count) == keys;
    }
    return answer_of(some, all);
}

static void fixed_row(const attn_mask *mask, const attn__pair *pair, int64_t p, int64_t j, int64_t keys, uint8_t *allowed)
{
    int64_t stride = stride_of(mask, pair), count = mask->count < stride ? mask->count : stride;
    int local = (mask->parts & ATTN_PART_LOCAL) != 0, summary = (mask->parts & ATTN_PART_SUMMARY) != 0;
    for (int64_t c = 0; c < keys; c++) {
        int64_t key = j + c;
        int near = local && key / stride == floor_divide(p, stride), far = summary && key % stride >= stride - count;
        allowed[c] = (uint8_t)(key <= p && (near || far));
    }
}

/* The blocks that query block q sees: min(count, blocks) different ones of 0 .. blocks - 1 (Floyd's sampling), a pure function of seed and q. */
static int64_t draw_blocks(const attn_mask *mask, int64_t q, int64_t blocks, int64_t *drawn)
{
    int64_t count = mask->count < blocks ? mask->count : blocks;
    for (int64_t c = 0; c < count; c++) {
        uint32_t word[4];
        int64_t top = blocks - count + c, pick, seen = 0;
        attn__philox(mask->seed, (uint32_t)c, (uint32_t)q, (uint32_t)((uint64_t)q >> 32), 0, word);
        pick = (int64_t)(((uint64_t)word[0] << 32 | word[1]) % (uint64_t)(top + 1));
        for (int64_t d = 0; d < c; d++) seen |= drawn[d] == pick;
        drawn[c] = seen ? top : pick;
    }
    return count;
}

/* of the keys j .. j + keys, how many query block q sees */
static int64_t drawn_keys(const attn_mask *mask, const attn__pair *pair, int64_t q, int64_t j, int64_t keys, uint8_t *allowed)
{
    int64_t block = mask->stride, n = pair->key->length, drawn[ATTN__MASK_RANDOM_MOST], sum = 0;
    int64_t count = q < 0 ? 0 : draw_blocks(mask, q, n / block + (n % block != 0), drawn);
    for (int64_t d = 0; d < count; d++) {
        int64_t first = drawn[d] * block, end = n - first < block ? n : first + block;
        if (first < j) first = j;
        if (end > j + keys) end = j + keys;
        if (first >= end) continue;
        sum += end - first;
        if (allowed != NULL) memset(allowed + (first - j), 1, (size_t)(end - first));
    }
    return sum;
}

static int32_t random_block(const attn_mask *mask, const attn__pair *pair, int64_t p, int64_t rows, int64_t j, int64_t keys)
{
    int some = 0, all = 1;
    for (int64_t q = floor_divide(p, mask->stride); q <= floor_divide(p + rows - 1, mask->stride); q++) {
        int64_t seen = drawn_keys(mask, pair, q, j, keys, NULL);
        some |= seen > 0;
        all &= seen == keys;
        if (some && !all) break;
    }
    return answer_of(some, all);
}

static int is_logarithmic(int64_t distance)
{
    return (distance & (distance - 1)) == 0; /* 0, 1, 2, 4, 8 ... */
}

/* distances low .. high, not negative: is one of them seen? */
static int some_logarithmic(int64_t low, int64_t high)
{
    if (low > high) return 0;
    if (low <= 1 || is_logarithmic(low)) return 1;
    int bits = 64 - __builtin_clzll((unsigned long long)low);
    return bits < 63 && INT64_C(1) << bits <= high;
}

static int sees_logarithmic(const attn_mask *mask, int64_t p, int64_t j)
{
    int64_t distance = p - j;
    return distance >= 0 ? is_logarithmic(distance) : mask->both_sides && is_logarithmic(-distance);
}

/* Three distances in a row that are all seen are 0, 1, 2 and no others, so full blocks are tiny: they are looked at pair by pair. */
static int32_t logarithmic_block(const attn_mask *mask, int64_t p, int64_t rows, int64_t j, int64_t keys)
{
    int64_t low = p - (j + keys - 1), high = p + rows - 1 - j;
    int some = some_logarithmic(low > 0 ? low : 0, high), all = rows + keys <= 6;
    if (mask->both_sides) some |= some_logarithmic(high < 0 ? -high : 0, -low);
    for (int64_t d = low; all && d <= high; d++) all = sees_logarithmic(mask, d, 0);
    return answer_of(some, some && all);
}

int32_t attn__mask_sparse_block(const attn_mask *mask, const attn__pair *pair, int64_t place, int64_t rows, int64_t j, int64_t keys)
{
    switch (mask->kind) {
    case ATTN__MASK_GLOBAL: return global_block(mask, place, rows, j, keys);
    case ATTN__MASK_STRIDED: return strided_block(mask, pair, place, rows, j, keys);
    case ATTN__MASK_FIXED: return fixed_block(mask, pair, place, rows, j, keys);
    case ATTN__MASK_RANDOM: return random_block(mask, pair, place, rows, j, keys);
    default: return logarithmic_block(mask, place, rows, j, keys);
    }
}

void attn__mask_sparse_row(const attn_mask *mask, const attn__pair *pair, int64_t place, int64_t j, int64_t keys, uint8_t *allowed)
{
    switch (mask->kind) {
    case ATTN__MASK_GLOBAL: global_row(mask, place, j, keys, allowed); return;
    case ATTN__MASK_STRIDED: strided_row(mask, pair, place, j, keys, allowed); return;
    case ATTN__MASK_FIXED: fixed_row(mask, pair, place, j, keys, allowed); return;
    case ATTN__MASK_RANDOM:
        memset(allowed, 0, (size_t)keys);
        drawn_keys(mask, pair, floor_divide(place, mask->stride), j, keys, allowed);
        return;
    default:
        for (int64_t c = 0; c < keys; c++) allowed[c] = (uint8_t)sees_logarithmic(mask, place, j + c);
    }
}

/* is a row of the segment one of a global mask, or of one in a union? */
static int names_row(const attn_mask *mask, const attn__pair *pair, int64_t row)
{
    for (; mask != NULL && mask->kind == ATTN__MASK_UNION; mask = mask->b)
        if (names_row(mask->a, pair, row)) return 1;
    if (mask == NULL || mask->kind != ATTN__MASK_GLOBAL) return 0;
    const int64_t place = attn__mask_place(mask, pair, row);
    return globals_below(mask, place + 1) > globals_below(mask, place);
}

int64_t attn__mask_global_rows(const attn_mask *mask, const attn__pair *pair, int64_t *row)
{
    int64_t count = 0;
    for (int64_t r = 0; r < pair->query->length; r++) {
        if (!names_row(mask, pair, r)) continue;
        if (row != NULL) row[count] = r;
        count++;
    }
    return count;
}

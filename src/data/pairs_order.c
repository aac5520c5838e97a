#include "pairs_order.h"
#include "../core/random.h"

#define STREAM UINT64_C(0x7061697273657401) /* this order's own stream of the seed's random numbers */

static void sift(int64_t *heap, int64_t at, int64_t count)
{
    int64_t moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= moved) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

void attn__sort(int64_t *numbers, int64_t count)
{
    for (int64_t at = count / 2 - 1; at >= 0; at--) sift(numbers, at, count);
    for (int64_t end = count - 1; end > 0; end--) {
        int64_t largest = numbers[0];
        numbers[0] = numbers[end];
        numbers[end] = largest;
        sift(numbers, 0, end);
    }
}

/* Fisher and Yates, with numbers drawn by (seed, which, place) */
static void shuffle(int64_t *numbers, int64_t count, uint64_t seed, uint64_t which)
{
    uint64_t key = attn__mix(attn__mix(seed, STREAM), which);
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t words[4];
        attn__philox(key, (uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0, 0, words);
        int64_t j = (int64_t)(attn__uniform53(words[0], words[1]) * (double)(i + 1)), kept = numbers[i];
        if (j > i) j = i;
        numbers[i] = numbers[j];
        numbers[j] = kept;
    }
}

static int64_t longer_side(const attn__pair_order *order, int64_t pair)
{
    return order->source_rows[pair] > order->target_rows[pair] ? order->source_rows[pair] : order->target_rows[pair];
}

/* by length, equal ones as they stood: the length above, the place below, in one number; turn lends its room */
static void sort_bucket(attn__pair_order *order, int64_t first, int64_t count)
{
    int64_t *pair = order->pair + first, *kept = order->turn + first, *key = order->first + first;
    for (int64_t i = 0; i < count; i++) {
        kept[i] = pair[i];
        key[i] = longer_side(order, pair[i]) << 31 | i;
    }
    attn__sort(key, count);
    for (int64_t i = 0; i < count; i++) pair[i] = kept[key[i] & (((int64_t)1 << 31) - 1)];
}

static void cut(attn__pair_order *order)
{
    int64_t source = 0, target = 0, begin = 0;
    order->batches = 0;
    for (int64_t i = 0; i < order->count; i++) {
        int64_t s = order->source_rows[order->pair[i]], t = order->target_rows[order->pair[i]], most = order->batch_tokens;
        int full = i - begin == order->batch || (most > 0 && (source + s > most || target + t > most));
        if (full && i > begin) {
            order->first[order->batches++] = begin;
            begin = i;
            source = target = 0;
        }
        source += s;
        target += t;
    }
    order->first[order->batches++] = begin;
    order->first[order->batches] = order->count;
}

void attn__pair_order_prepare(attn__pair_order *order, int64_t pass)
{
    if (order->pass == pass || (order->pass >= 0 && !order->shuffled)) return;
    for (int64_t i = 0; i < order->count; i++) order->pair[i] = i;
    if (order->shuffled) {
        shuffle(order->pair, order->count, order->seed, 2 * (uint64_t)pass);
        for (int64_t i = 0; order->bucket > 1 && i < order->count; i += order->bucket)
            sort_bucket(order, i, order->count - i < order->bucket ? order->count - i : order->bucket);
    }
    cut(order);
    for (int64_t b = 0; b < order->batches; b++) order->turn[b] = b;
    if (order->shuffled && order->bucket > 1) shuffle(order->turn, order->batches, order->seed, 2 * (uint64_t)pass + 1);
    order->pass = pass;
}

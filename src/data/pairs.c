/* Pairs of sequences, for an encoder and a decoder. */
#include <attn/tensor.h>
#include <string.h>
#include "../core/options.h"
#include "../core/random.h"
#include "dataset.h"
#include "pairs_order.h"

enum { SMALLEST_OPTIONS = sizeof(attn_pairs_options), NOT_GIVEN = -1 };
#define STREAM UINT64_C(0x7061697273657402)
#define MOST INT64_C(2147483647) /* pairs, and tokens of a side: sorting packs two such numbers into one */

/* cursor = pass * (pairs + 1) + batch; a pass has at most as many batches as pairs */
typedef struct pair_set {
    attn_dataset base;
    attn_pairs_options options;
    int64_t count, source_count, target_count; /* pairs; tokens of all of them */
    int64_t *numbers;                          /* [7 count + 1]: rows of each pair on both sides, where its tokens begin; the order's */
    int64_t *source_first, *target_first;      /* [count] */
    int32_t *tokens;                           /* sources, then targets */
    attn__pair_order order;
    attn__batch_side source, target, labels;
} pair_set;
enum { NUMBERS = 7 }; /* of int64 for each pair */

static const attn_pairs_options defaults = {.struct_size = sizeof(attn_pairs_options),
                                            .batch = 32,
                                            .order = ATTN_ORDER_SHUFFLED,
                                            .source_stop = NOT_GIVEN,
                                            .start = NOT_GIVEN,
                                            .stop = NOT_GIVEN};

attn_status attn_pairs_options_init(attn_pairs_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

static const attn__field fields[] = {ATTN__INT64(attn_pairs_options, batch, 0, 1, HUGE_VAL),
                                     ATTN__INT64(attn_pairs_options, batch_tokens, 0, 0, HUGE_VAL),
                                     ATTN__INT64(attn_pairs_options, bucket, 0, 0, HUGE_VAL),
                                     ATTN__INT32(attn_pairs_options, order, ATTN_ORDER_SEQUENTIAL, ATTN_ORDER_SHUFFLED),
                                     ATTN__INT32(attn_pairs_options, source_stop, NOT_GIVEN, INT32_MAX),
                                     ATTN__INT32(attn_pairs_options, start, 0, INT32_MAX),
                                     ATTN__INT32(attn_pairs_options, stop, 0, INT32_MAX)};

static attn_status check_side(attn_context *ctx, const char *name, int64_t count, const int32_t *tokens, const int64_t *ends)
{
    int64_t before = 0;
    if (ends == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s_ends: got NULL, expected %lld numbers", name, (long long)count);
    for (int64_t p = 0; p < count; before = ends[p++])
        if (ends[p] < before)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s_ends: got %lld for pair %lld, expected at least %lld", name,
                              (long long)ends[p], (long long)p, (long long)before);
    if (before > MOST - 2 * count)
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "%s_ends: got %lld tokens in %lld pairs, expected fewer than 2^31 in all", name,
                          (long long)before, (long long)count);
    if (before > 0 && tokens == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got NULL, expected %lld tokens", name, (long long)before);
    for (int64_t i = 0; i < before; i++)
        if (tokens[i] < 0)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got %d at index %lld, expected 0 or more", name, (int)tokens[i],
                              (long long)i);
    return ATTN_OK;
}

/* where each pair's tokens begin, and the rows it takes with `added` ones */
static void lay_out(int64_t count, const int64_t *ends, int64_t added, int64_t *first, int64_t *rows)
{
    for (int64_t p = 0; p < count; p++) {
        first[p] = p > 0 ? ends[p - 1] : 0;
        rows[p] = ends[p] - first[p] + added;
    }
}

/* the most rows that a batch may have on one side: of the longest pairs together, within the limit; room has count numbers */
static int64_t most_rows(const attn_pairs_options *o, int64_t count, const int64_t *rows, int64_t *room)
{
    int64_t sum = 0, pairs = o->batch < count ? o->batch : count;
    memcpy(room, rows, (size_t)count * sizeof *rows);
    attn__sort(room, count);
    for (int64_t i = count - pairs; i < count; i++) sum += room[i];
    if (o->batch_tokens == 0 || sum <= o->batch_tokens) return sum;
    return room[count - 1] > o->batch_tokens ? room[count - 1] : o->batch_tokens;
}

static uint64_t fingerprint(const pair_set *set)
{
    const attn_pairs_options *o = &set->options;
    const uint64_t numbers[] = {(uint64_t)set->count, (uint64_t)o->batch,       (uint64_t)o->batch_tokens, (uint64_t)o->bucket, o->seed,
                                (uint64_t)o->order,   (uint64_t)o->source_stop, (uint64_t)o->start,        (uint64_t)o->stop};
    uint64_t hash = STREAM;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) hash = attn__mix(hash, numbers[i]);
    for (int64_t p = 0; p < set->count; p++)
        hash = attn__mix(hash, (uint64_t)set->order.source_rows[p] << 32 | (uint64_t)set->order.target_rows[p]);
    for (int64_t i = 0; i < set->source_count + set->target_count; i++) hash = attn__mix(hash, (uint64_t)set->tokens[i]);
    return hash;
}

static attn_status take(attn_context *ctx, pair_set *set)
{
    void *numbers = NULL, *tokens = NULL;
    int64_t count = set->count;
    attn_status status = attn__allocate(set->base.memory, (NUMBERS * count + 1) * (int64_t)sizeof(int64_t), &numbers);
    set->numbers = numbers;
    if (status == ATTN_OK)
        status = attn__allocate(set->base.memory, (set->source_count + set->target_count) * (int64_t)sizeof(int32_t), &tokens);
    set->tokens = tokens;
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a data set of pairs");
    set->source_first = set->numbers;
    set->target_first = set->numbers + count;
    set->order = (attn__pair_order){.count = count,
                                    .batch = set->options.batch,
                                    .batch_tokens = set->options.batch_tokens,
                                    .bucket = set->options.bucket,
                                    .seed = set->options.seed,
                                    .source_rows = set->numbers + 2 * count,
                                    .target_rows = set->numbers + 3 * count,
                                    .shuffled = set->options.order == ATTN_ORDER_SHUFFLED,
                                    .pass = -1,
                                    .pair = set->numbers + 4 * count,
                                    .turn = set->numbers + 5 * count,
                                    .first = set->numbers + 6 * count};
    return ATTN_OK;
}

static attn_status fill(attn_context *ctx, pair_set *set, const int32_t *source, const int64_t *source_ends, const int32_t *target,
                        const int64_t *target_ends)
{
    const attn_pairs_options *o = &set->options;
    int64_t count = set->count, *source_rows, *target_rows;
    attn_status status = take(ctx, set);
    if (status != ATTN_OK) return status;
    source_rows = set->numbers + 2 * count;
    target_rows = set->numbers + 3 * count;
    lay_out(count, source_ends, o->source_stop >= 0, set->source_first, source_rows);
    lay_out(count, target_ends, 1, set->target_first, target_rows);
    if (set->source_count > 0) memcpy(set->tokens, source, (size_t)set->source_count * sizeof *source);
    if (set->target_count > 0) memcpy(set->tokens + set->source_count, target, (size_t)set->target_count * sizeof *target);
    int64_t segments = o->batch < count ? o->batch : count, most_source = most_rows(o, count, source_rows, set->order.pair);
    int64_t most_target = most_rows(o, count, target_rows, set->order.pair);
    set->base.rows = most_source > most_target ? most_source : most_target;
    set->base.segments = segments;
    status = attn__batch_side_make(ctx, set->base.memory, most_source, segments, &set->source);
    if (status == ATTN_OK) status = attn__batch_side_make(ctx, set->base.memory, most_target, segments, &set->target);
    if (status == ATTN_OK) status = attn__batch_side_make(ctx, set->base.memory, most_target, 0, &set->labels);
    set->base.fingerprint = fingerprint(set);
    return status;
}

/* one pair behind what the batch has; moves source_row and target_row on */
static void append(pair_set *set, int64_t pair, int64_t id, int64_t index, int64_t *source_row, int64_t *target_row)
{
    const attn_pairs_options *o = &set->options;
    int64_t source = set->order.source_rows[pair], target = set->order.target_rows[pair];
    int32_t *to = set->source.tokens + *source_row, *in = set->target.tokens + *target_row, *out = set->labels.tokens + *target_row;
    const int32_t *y = set->tokens + set->source_count + set->target_first[pair];
    memcpy(to, set->tokens + set->source_first[pair], (size_t)(source - (o->source_stop >= 0)) * sizeof *to);
    if (o->source_stop >= 0) to[source - 1] = o->source_stop;
    in[0] = o->start;
    memcpy(in + 1, y, (size_t)(target - 1) * sizeof *in);
    memcpy(out, y, (size_t)(target - 1) * sizeof *out);
    out[target - 1] = o->stop;
    set->source.at[index] = (attn_segment){*source_row, source, 0, id};
    set->target.at[index] = (attn_segment){*target_row, target, 0, id};
    *source_row += source;
    *target_row += target;
}

static attn_status next(attn_context *ctx, attn_dataset *dataset, attn_batch *batch)
{
    pair_set *set = (pair_set *)dataset;
    attn__pair_order *order = &set->order;
    int64_t pass = dataset->cursor / (set->count + 1), number = dataset->cursor % (set->count + 1), source = 0, target = 0;
    attn__pair_order_prepare(order, pass);
    if (number >= order->batches && !order->shuffled)
        return attn__fail(ctx, ATTN_ERROR_END_OF_DATA, "dataset: all %lld pairs were given", (long long)set->count);
    if (number >= order->batches) attn__pair_order_prepare(order, ++pass), number = 0;
    int64_t cursor = pass * (set->count + 1) + number;
    if (cursor > ATTN__MOST_CURSOR) return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "dataset: too many batches were given");
    attn_batch values = {sizeof values, set->source.tensor, set->target.tensor, set->labels.tensor, set->source.layout, set->target.layout};
    attn_status status = attn__report_write(ctx, "batch", batch, &values, sizeof values, sizeof values);
    if (status != ATTN_OK) return status;
    int64_t first = order->first[order->turn[number]], count = order->first[order->turn[number] + 1] - first;
    for (int64_t i = 0; i < count; i++) {
        int64_t pair = order->pair[first + i];
        append(set, pair, pass * set->count + pair, i, &source, &target);
    }
    status = attn__batch_side_set(ctx, &set->source, source, count);
    if (status == ATTN_OK) status = attn__batch_side_set(ctx, &set->target, target, count);
    if (status == ATTN_OK) status = attn__batch_side_set(ctx, &set->labels, target, 0);
    if (status == ATTN_OK) dataset->cursor = cursor + 1;
    return status;
}

static int64_t rewound(const attn_dataset *dataset)
{
    const pair_set *set = (const pair_set *)dataset;
    int64_t pass = set->count + 1, begun = dataset->cursor % pass;
    return set->order.shuffled ? 0 : dataset->cursor + (begun > 0 ? pass - begun : 0);
}

static void clear(attn_dataset *dataset)
{
    pair_set *set = (pair_set *)dataset;
    attn__batch_side_free(dataset->memory, &set->labels);
    attn__batch_side_free(dataset->memory, &set->target);
    attn__batch_side_free(dataset->memory, &set->source);
    attn__deallocate(dataset->memory, set->tokens, (set->source_count + set->target_count) * (int64_t)sizeof *set->tokens);
    attn__deallocate(dataset->memory, set->numbers, (NUMBERS * set->count + 1) * (int64_t)sizeof *set->numbers);
}

static const attn__dataset_kind kind = {next, rewound, clear, sizeof(pair_set)};

static attn_status create(attn_context *ctx, int64_t count, const int32_t *source, const int64_t *source_ends, const int32_t *target,
                          const int64_t *target_ends, const attn_pairs_options *options, attn_dataset **out)
{
    attn_pairs_options o;
    attn_dataset *made;
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the data set");
    attn_status status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, SMALLEST_OPTIONS, &o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", &o, fields);
    if (status != ATTN_OK) return status;
    if (count < 1) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %lld, expected at least one pair", (long long)count);
    if (count > MOST / 4) return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "count: got %lld, expected fewer than 2^29 pairs", (long long)count);
    status = check_side(ctx, "source", count, source, source_ends);
    if (status == ATTN_OK) status = check_side(ctx, "target", count, target, target_ends);
    if (status == ATTN_OK) status = attn__dataset_make(ctx, &kind, &made);
    if (status != ATTN_OK) return status;
    pair_set *set = (pair_set *)made;
    set->options = o;
    set->count = count;
    set->source_count = source_ends[count - 1];
    set->target_count = target_ends[count - 1];
    status = fill(ctx, set, source, source_ends, target, target_ends);
    if (status == ATTN_OK)
        *out = made;
    else
        attn_dataset_free(made);
    return status;
}

attn_status attn_dataset_pairs(attn_context *ctx, int64_t count, const int32_t *source, const int64_t *source_ends, const int32_t *target,
                               const int64_t *target_ends, const attn_pairs_options *options, attn_dataset **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, create(ctx, count, source, source_ends, target, target_ends, options, out));
}

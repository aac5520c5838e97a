/* Windows over one long run of tokens, for predicting the next one. */
#include <string.h>
#include "../core/options.h"
#include "../core/random.h"
#include "dataset.h"

enum { SMALLEST_OPTIONS = sizeof(attn_dataset_options) };
#define STREAM UINT64_C(0x6461746173657401) /* the data set's own stream of the seed's random numbers */

/* The order of random windows draws window number `cursor` from (seed, cursor). The sequential order counts passes too:
   cursor = pass * (windows + 1) + window, where window == windows means that the pass has ended. */
typedef struct window_set {
    attn_dataset base;
    attn_dataset_options options;
    int64_t count, windows; /* tokens of the part; windows of a pass (sequential), or starts to draw from */
    int32_t *tokens;        /* [count] */
    attn__batch_side target, labels;
} window_set;

static const attn_dataset_options defaults = {sizeof(attn_dataset_options), 128, 16, 0, ATTN_ORDER_RANDOM_WINDOWS, 0, 0, 1};

attn_status attn_dataset_options_init(attn_dataset_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

static const attn__field fields[] = {ATTN__INT64(attn_dataset_options, context, 0, 1, HUGE_VAL),
                                     ATTN__INT64(attn_dataset_options, batch, 0, 1, HUGE_VAL),
                                     ATTN__INT32(attn_dataset_options, order, ATTN_ORDER_RANDOM_WINDOWS, ATTN_ORDER_SEQUENTIAL),
                                     ATTN__INT32(attn_dataset_options, reserved, 0, 0),
                                     ATTN__REAL(attn_dataset_options, first, ATTN__BELOW, 0, 1),
                                     ATTN__REAL(attn_dataset_options, last, ATTN__ABOVE, 0, 1)};

static attn_status check_options(attn_context *ctx, const attn_dataset_options *o, int64_t *rows)
{
    int64_t bytes;
    attn_status status = ATTN__CHECK(ctx, "options", o, fields);
    if (status != ATTN_OK) return status;
    if (attn__multiply(o->context, o->batch, rows) || attn__multiply(*rows, sizeof(int32_t), &bytes) ||
        attn__multiply(o->batch, sizeof(attn_segment), &bytes))
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "options.context: %lld times a batch of %lld overflows", (long long)o->context,
                          (long long)o->batch);
    if (o->first >= o->last)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.first: got %g, expected less than last %g", o->first, o->last);
    return ATTN_OK;
}

/* The part [begin, end) of the tokens, checked to be ids and to hold a window with its labels. */
static attn_status check_tokens(attn_context *ctx, const int32_t *tokens, int64_t count, const attn_dataset_options *o, int64_t *begin,
                                int64_t *end)
{
    if (tokens == NULL || count < 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tokens, count: got %s and %lld, expected an array",
                          tokens == NULL ? "NULL" : "one", (long long)count);
    *begin = (int64_t)(o->first * (double)count);
    *end = o->last < 1 ? (int64_t)(o->last * (double)count) : count;
    int64_t smallest = o->order == ATTN_ORDER_SEQUENTIAL ? 2 : o->context + 1; /* a token more than the smallest window */
    if (*end - *begin < smallest)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "tokens: got %lld in the part %g to %g of %lld, expected at least %lld for one window",
                          (long long)(*end - *begin), o->first, o->last, (long long)count, (long long)smallest);
    for (int64_t i = *begin; i < *end; i++)
        if (tokens[i] < 0)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tokens: got %d at index %lld, expected 0 or more", (int)tokens[i],
                              (long long)i);
    return ATTN_OK;
}

static uint64_t fingerprint(const window_set *set)
{
    const attn_dataset_options *o = &set->options;
    uint64_t hash = attn__mix(STREAM, (uint64_t)set->count);
    hash = attn__mix(hash, (uint64_t)o->context);
    hash = attn__mix(hash, (uint64_t)o->batch);
    hash = attn__mix(hash, o->seed);
    hash = attn__mix(hash, (uint64_t)o->order);
    for (int64_t i = 0; i < set->count; i++) hash = attn__mix(hash, (uint64_t)set->tokens[i]);
    return hash;
}

static attn_status fill(attn_context *ctx, window_set *set, const int32_t *tokens, int64_t rows)
{
    void *copy;
    attn_status status = attn__allocate(set->base.memory, set->count * (int64_t)sizeof *tokens, &copy);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a data set");
    set->tokens = copy;
    memcpy(set->tokens, tokens, (size_t)set->count * sizeof *tokens);
    status = attn__batch_side_make(ctx, set->base.memory, rows, set->options.batch, &set->target);
    if (status == ATTN_OK) status = attn__batch_side_make(ctx, set->base.memory, rows, 0, &set->labels);
    return status;
}

static const attn__dataset_kind windows_kind;

static attn_status create(attn_context *ctx, const int32_t *tokens, int64_t count, const attn_dataset_options *options, attn_dataset **out)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the data set");
    attn_dataset_options o;
    attn_dataset *made;
    int64_t rows = 0, begin = 0, end = 0;
    attn_status status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, SMALLEST_OPTIONS, &o);
    if (status == ATTN_OK) status = check_options(ctx, &o, &rows);
    if (status == ATTN_OK) status = check_tokens(ctx, tokens, count, &o, &begin, &end);
    if (status == ATTN_OK) status = attn__dataset_make(ctx, &windows_kind, &made);
    if (status != ATTN_OK) return status;
    window_set *set = (window_set *)made;
    set->options = o;
    set->count = end - begin;
    made->rows = rows;
    made->segments = o.batch;
    int64_t predictions = set->count - 1;
    set->windows = o.order == ATTN_ORDER_SEQUENTIAL ? predictions / o.context + (predictions % o.context != 0) : set->count - o.context;
    status = fill(ctx, set, tokens + begin, rows);
    if (status != ATTN_OK) {
        attn_dataset_free(made);
        return status;
    }
    made->fingerprint = fingerprint(set);
    *out = made;
    return ATTN_OK;
}

attn_status attn_dataset_tokens(attn_context *ctx, const int32_t *tokens, int64_t count, const attn_dataset_options *options,
                                attn_dataset **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, create(ctx, tokens, count, options, out));
}

/* Start of the window with number `draw`, uniform over the starts: 53 bits of the seed's Philox stream at that counter */
static int64_t drawn_start(const window_set *set, int64_t draw)
{
    uint32_t words[4];
    uint64_t counter = (uint64_t)draw;
    attn__philox(attn__mix(set->options.seed, STREAM), (uint32_t)counter, (uint32_t)(counter >> 32), 0, 0, words);
    int64_t start = (int64_t)(attn__uniform53(words[0], words[1]) * (double)set->windows);
    return start < set->windows ? start : set->windows - 1;
}

/* Windows of the next batch, from number `cursor` on; 0 when the pass has ended */
static int64_t windows_left(const window_set *set)
{
    int64_t batch = set->options.batch;
    if (set->options.order == ATTN_ORDER_RANDOM_WINDOWS) return batch;
    int64_t left = set->windows - set->base.cursor % (set->windows + 1);
    return left < batch ? left : batch;
}

/* Copies `count` windows and says where they lie. Returns the rows. */
static int64_t gather(window_set *set, int64_t count)
{
    int64_t context = set->options.context, row = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t number = set->base.cursor + i, start, length = context;
        if (set->options.order == ATTN_ORDER_RANDOM_WINDOWS) {
            start = drawn_start(set, number);
        } else {
            start = number % (set->windows + 1) * context;
            if (length > set->count - 1 - start) length = set->count - 1 - start;
        }
        memcpy(set->target.tokens + row, set->tokens + start, (size_t)length * sizeof(int32_t));
        memcpy(set->labels.tokens + row, set->tokens + start + 1, (size_t)length * sizeof(int32_t));
        set->target.at[i] = (attn_segment){row, length, 0, number};
        row += length;
    }
    return row;
}

static attn_status next(attn_context *ctx, attn_dataset *dataset, attn_batch *batch)
{
    window_set *set = (window_set *)dataset;
    int64_t count = windows_left(set);
    if (count == 0) return attn__fail(ctx, ATTN_ERROR_END_OF_DATA, "dataset: all %lld windows were given", (long long)set->windows);
    if (dataset->cursor > ATTN__MOST_CURSOR) return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "dataset: too many windows were drawn");
    attn_batch values = {sizeof values, NULL, set->target.tensor, set->labels.tensor, NULL, set->target.layout};
    attn_status status = attn__report_write(ctx, "batch", batch, &values, sizeof values, sizeof values);
    if (status != ATTN_OK) return status;
    int64_t rows = gather(set, count);
    status = attn__batch_side_set(ctx, &set->target, rows, count);
    if (status == ATTN_OK) status = attn__batch_side_set(ctx, &set->labels, rows, 0);
    if (status == ATTN_OK) dataset->cursor += count;
    return status;
}

static int64_t rewound(const attn_dataset *dataset)
{
    const window_set *set = (const window_set *)dataset;
    if (set->options.order == ATTN_ORDER_RANDOM_WINDOWS) return 0;
    int64_t pass = set->windows + 1, begun = dataset->cursor % pass;
    return dataset->cursor + (begun > 0 ? pass - begun : 0);
}

static void clear(attn_dataset *dataset)
{
    window_set *set = (window_set *)dataset;
    attn__batch_side_free(dataset->memory, &set->labels);
    attn__batch_side_free(dataset->memory, &set->target);
    attn__deallocate(dataset->memory, set->tokens, set->count * (int64_t)sizeof *set->tokens);
}

static const attn__dataset_kind windows_kind = {next, rewound, clear, sizeof(window_set)};

#include "dataset.h"
#include <attn/tensor.h>
#include <string.h>
#include "../core/options.h"
#include "../core/random.h"

enum { SMALLEST_OPTIONS = sizeof(attn_dataset_options) };
#define STREAM UINT64_C(0x6461746173657401) /* the data set's own stream of the seed's random numbers */
#define MOST_CURSOR (INT64_MAX / 4)

/* The order of random windows draws window number `cursor` from (seed, cursor). The sequential order counts passes too:
   cursor = pass * (windows + 1) + window, where window == windows means that the pass has ended. */
struct attn_dataset {
    uint64_t magic;
    attn__memory *memory;
    atomic_int references; /* the caller's handle, and a trainer's */
    attn_dataset_options options;
    int64_t count, windows; /* tokens of the part; windows of a pass (sequential), or starts to draw from */
    int64_t cursor;
    uint64_t fingerprint;
    int32_t *tokens;          /* [count] */
    int32_t *target, *labels; /* [batch * context] each */
    attn_segment *segments;   /* [batch] */
    attn_tensor *target_tensor, *labels_tensor;
    attn_layout *layout;
};

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
    int64_t smallest = o->order == ATTN_ORDER_SEQUENTIAL ? 2 : o->context; /* a token more than the smallest window */
    if (o->order == ATTN_ORDER_RANDOM_WINDOWS && attn__sum(o->context, 1, &smallest)) smallest = INT64_MAX;
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

static uint64_t fingerprint(const attn_dataset *dataset)
{
    const attn_dataset_options *o = &dataset->options;
    uint64_t hash = attn__mix(STREAM, (uint64_t)dataset->count);
    hash = attn__mix(hash, (uint64_t)o->context);
    hash = attn__mix(hash, (uint64_t)o->batch);
    hash = attn__mix(hash, o->seed);
    hash = attn__mix(hash, (uint64_t)o->order);
    for (int64_t i = 0; i < dataset->count; i++) hash = attn__mix(hash, (uint64_t)dataset->tokens[i]);
    return hash;
}

static attn_status allocate(attn_context *ctx, attn_dataset *dataset, int64_t rows)
{
    attn__memory *memory = dataset->memory;
    attn_status status = attn__allocate(memory, dataset->count * (int64_t)sizeof(int32_t), (void **)&dataset->tokens);
    if (status == ATTN_OK) status = attn__allocate_zero(memory, rows * (int64_t)sizeof(int32_t), (void **)&dataset->target);
    if (status == ATTN_OK) status = attn__allocate_zero(memory, rows * (int64_t)sizeof(int32_t), (void **)&dataset->labels);
    if (status == ATTN_OK)
        status = attn__allocate(memory, dataset->options.batch * (int64_t)sizeof(attn_segment), (void **)&dataset->segments);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a data set");
    status = attn_tensor_wrap(ctx, ATTN_INT32, 1, &rows, NULL, dataset->target, &dataset->target_tensor);
    if (status == ATTN_OK) status = attn_tensor_wrap(ctx, ATTN_INT32, 1, &rows, NULL, dataset->labels, &dataset->labels_tensor);
    if (status == ATTN_OK) status = attn_layout_create(ctx, dataset->options.batch, &dataset->layout);
    return status;
}

static attn_status create(attn_context *ctx, const int32_t *tokens, int64_t count, const attn_dataset_options *options, attn_dataset **out)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the data set");
    attn_dataset_options o;
    int64_t rows = 0, begin = 0, end = 0;
    attn_status status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, SMALLEST_OPTIONS, &o);
    if (status == ATTN_OK) status = check_options(ctx, &o, &rows);
    if (status == ATTN_OK) status = check_tokens(ctx, tokens, count, &o, &begin, &end);
    if (status != ATTN_OK) return status;
    attn_dataset *dataset;
    status = attn__allocate_zero(ctx->memory, sizeof *dataset, (void **)&dataset);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a data set");
    dataset->magic = ATTN__MAGIC_DATASET;
    atomic_init(&dataset->references, 1);
    dataset->memory = attn__memory_retain(ctx->memory);
    dataset->options = o;
    dataset->count = end - begin;
    int64_t predictions = dataset->count - 1;
    dataset->windows =
        o.order == ATTN_ORDER_SEQUENTIAL ? predictions / o.context + (predictions % o.context != 0) : dataset->count - o.context;
    status = allocate(ctx, dataset, rows);
    if (status != ATTN_OK) {
        attn_dataset_free(dataset);
        return status;
    }
    memcpy(dataset->tokens, tokens + begin, (size_t)dataset->count * sizeof *tokens);
    dataset->fingerprint = fingerprint(dataset);
    *out = dataset;
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

attn_dataset *attn__dataset_retain(attn_dataset *dataset)
{
    if (dataset != NULL) atomic_fetch_add(&dataset->references, 1);
    return dataset;
}

void attn_dataset_free(attn_dataset *dataset)
{
    if (!attn__is(dataset, ATTN__MAGIC_DATASET)) return;
    if (atomic_fetch_sub(&dataset->references, 1) > 1) return;
    attn__memory *memory = dataset->memory;
    int64_t rows = dataset->options.batch * dataset->options.context;
    dataset->magic = 0;
    attn_layout_free(dataset->layout);
    attn_tensor_free(dataset->target_tensor);
    attn_tensor_free(dataset->labels_tensor);
    attn__deallocate(memory, dataset->segments, dataset->options.batch * (int64_t)sizeof(attn_segment));
    attn__deallocate(memory, dataset->labels, rows * (int64_t)sizeof(int32_t));
    attn__deallocate(memory, dataset->target, rows * (int64_t)sizeof(int32_t));
    attn__deallocate(memory, dataset->tokens, dataset->count * (int64_t)sizeof(int32_t));
    attn__deallocate(memory, dataset, sizeof *dataset);
    attn__memory_release(memory);
}

/* Start of the window with number `draw`, uniform over the starts: 53 bits of the seed's Philox stream at that counter */
static int64_t drawn_start(const attn_dataset *dataset, int64_t draw)
{
    uint32_t words[4];
    uint64_t counter = (uint64_t)draw;
    attn__philox(attn__mix(dataset->options.seed, STREAM), (uint32_t)counter, (uint32_t)(counter >> 32), 0, 0, words);
    int64_t start = (int64_t)(attn__uniform53(words[0], words[1]) * (double)dataset->windows);
    return start < dataset->windows ? start : dataset->windows - 1;
}

/* Windows of the next batch, from number `cursor` on; 0 when the pass has ended */
static int64_t windows_left(const attn_dataset *dataset)
{
    int64_t batch = dataset->options.batch;
    if (dataset->options.order == ATTN_ORDER_RANDOM_WINDOWS) return batch;
    int64_t left = dataset->windows - dataset->cursor % (dataset->windows + 1);
    return left < batch ? left : batch;
}

/* Copies `count` windows and says where they lie. Returns the rows. */
static int64_t gather(attn_dataset *dataset, int64_t count)
{
    int64_t context = dataset->options.context, row = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t number = dataset->cursor + i, start, length = context;
        if (dataset->options.order == ATTN_ORDER_RANDOM_WINDOWS) {
            start = drawn_start(dataset, number);
        } else {
            start = number % (dataset->windows + 1) * context;
            if (length > dataset->count - 1 - start) length = dataset->count - 1 - start;
        }
        memcpy(dataset->target + row, dataset->tokens + start, (size_t)length * sizeof(int32_t));
        memcpy(dataset->labels + row, dataset->tokens + start + 1, (size_t)length * sizeof(int32_t));
        dataset->segments[i] = (attn_segment){row, length, 0, number};
        row += length;
    }
    return row;
}

static attn_status next(attn_context *ctx, attn_dataset *dataset, attn_batch *batch)
{
    attn_status status = attn__expect(ctx, "dataset", dataset, ATTN__MAGIC_DATASET, "attn_dataset");
    if (status != ATTN_OK) return status;
    int64_t count = windows_left(dataset);
    if (count == 0) return attn__fail(ctx, ATTN_ERROR_END_OF_DATA, "dataset: all %lld windows were given", (long long)dataset->windows);
    if (dataset->cursor > MOST_CURSOR) return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "dataset: too many windows were drawn");
    attn_batch values = {sizeof values, NULL, dataset->target_tensor, dataset->labels_tensor, NULL, dataset->layout};
    status = attn__report_write(ctx, "batch", batch, &values, sizeof values, sizeof values);
    if (status != ATTN_OK) return status;
    int64_t rows = gather(dataset, count);
    status = attn_tensor_rebind(ctx, dataset->target_tensor, &rows, NULL, dataset->target);
    if (status == ATTN_OK) status = attn_tensor_rebind(ctx, dataset->labels_tensor, &rows, NULL, dataset->labels);
    if (status == ATTN_OK) status = attn_layout_set(ctx, dataset->layout, count, dataset->segments);
    if (status == ATTN_OK) dataset->cursor += count;
    return status;
}

void attn__dataset_size(const attn_dataset *dataset, int64_t *rows, int64_t *segments)
{
    *segments = dataset->options.batch;
    *rows = dataset->options.batch * dataset->options.context; /* fits: it was allocated */
}

attn_status attn_dataset_next(attn_context *ctx, attn_dataset *dataset, attn_batch *batch)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, next(ctx, dataset, batch));
}

attn_status attn_dataset_rewind(attn_context *ctx, attn_dataset *dataset)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "dataset", dataset, ATTN__MAGIC_DATASET, "attn_dataset");
    if (status != ATTN_OK) return attn__leave(ctx, status);
    if (dataset->options.order == ATTN_ORDER_RANDOM_WINDOWS) {
        dataset->cursor = 0;
    } else {
        int64_t pass = dataset->windows + 1, begun = dataset->cursor % pass;
        if (begun > 0) dataset->cursor += pass - begun;
    }
    return attn__leave(ctx, ATTN_OK);
}

int64_t attn__dataset_cursor(const attn_dataset *dataset)
{
    return dataset->cursor;
}

attn_status attn__dataset_seek(attn_context *ctx, attn_dataset *dataset, int64_t cursor)
{
    if (cursor < 0 || cursor > MOST_CURSOR) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "cursor: got %lld", (long long)cursor);
    dataset->cursor = cursor;
    return ATTN_OK;
}

uint64_t attn__dataset_fingerprint(const attn_dataset *dataset)
{
    return dataset->fingerprint;
}

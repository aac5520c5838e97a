#include <attn/attn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "support/allocator.h"

enum { TOKENS = 1000 };
static attn_context *ctx;
static test_allocator counted;
static int32_t tokens[TOKENS]; /* token i is i: a window tells where it starts */

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < TOKENS; i++) tokens[i] = i;
    attn_allocator allocator = test_allocator_hooks(&counted);
    attn_context_options options;
    attn_context_options_init(&options, sizeof options);
    options.threads = 1;
    options.allocator = &allocator;
    return attn_context_create(&options, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

static attn_dataset_options options_of(int32_t order, int64_t context, int64_t batch)
{
    attn_dataset_options o;
    assert_int_equal(attn_dataset_options_init(&o, sizeof o), ATTN_OK);
    o.order = order;
    o.context = context;
    o.batch = batch;
    return o;
}

static attn_dataset *make(int64_t count, const attn_dataset_options *o)
{
    attn_dataset *dataset;
    assert_int_equal(attn_dataset_tokens(ctx, tokens, count, o, &dataset), ATTN_OK);
    return dataset;
}

static attn_batch batch_of(void)
{
    attn_batch batch;
    assert_int_equal(attn_batch_init(&batch, sizeof batch), ATTN_OK);
    return batch;
}

/* The batch is whole: tiled segments from position 0, labels are the tokens after. Gives the starts. */
static int64_t check_batch(const attn_batch *batch, int64_t *starts, int64_t *ids)
{
    assert_null(batch->source);
    assert_null(batch->source_layout);
    const int32_t *target = attn_tensor_data_const(batch->target), *labels = attn_tensor_data_const(batch->labels);
    int64_t count = attn_layout_count(batch->target_layout), row = 0;
    assert_int_equal(attn_tensor_dtype(batch->target), ATTN_INT32);
    assert_int_equal(attn_tensor_rank(batch->labels), 1);
    for (int64_t i = 0; i < count; i++) {
        attn_segment segment;
        assert_int_equal(attn_layout_get(ctx, batch->target_layout, i, &segment), ATTN_OK);
        assert_int_equal(segment.start, row);
        assert_int_equal(segment.first_position, 0);
        starts[i] = target[row];
        ids[i] = segment.sequence_id;
        for (int64_t k = 0; k < segment.length; k++) {
            assert_int_equal(target[row + k], starts[i] + k);
            assert_int_equal(labels[row + k], starts[i] + k + 1);
        }
        row += segment.length;
    }
    assert_int_equal(attn_tensor_extent(batch->target, 0), row);
    assert_int_equal(attn_tensor_extent(batch->labels, 0), row);
    return count;
}

static void test_sequential(void **state)
{
    (void)state;
    static const int64_t counts[] = {2, 5, 6, 7, 8, 9, 10, 11, 21, 22, 23}; /* context 5, batch 2 */
    attn_dataset_options o = options_of(ATTN_ORDER_SEQUENTIAL, 5, 2);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        attn_dataset *dataset = make(counts[c], &o);
        int64_t next_id = 0;
        for (int pass = 0; pass < 3; pass++) {
            int64_t at = 0, starts[2], ids[2];
            attn_batch batch = batch_of();
            attn_status status;
            while ((status = attn_dataset_next(ctx, dataset, &batch)) == ATTN_OK) {
                int64_t windows = check_batch(&batch, starts, ids);
                assert_in_range(windows, 1, 2);
                for (int64_t i = 0; i < windows; i++, at += 5) {
                    assert_int_equal(starts[i], at);
                    assert_true(ids[i] >= next_id);
                    next_id = ids[i] + 1;
                }
                assert_int_equal(starts[windows - 1] + 5 < counts[c] - 1, at < counts[c] - 1);
            }
            assert_int_equal(status, ATTN_ERROR_END_OF_DATA);
            assert_true(at >= counts[c] - 1 && at < counts[c] + 4); /* every token but the first was predicted */
            attn_batch untouched = batch_of();
            assert_int_equal(attn_dataset_next(ctx, dataset, &untouched), ATTN_ERROR_END_OF_DATA); /* and stays at the end */
            assert_null(untouched.target);
            assert_int_equal(attn_dataset_rewind(ctx, dataset), ATTN_OK);
            assert_int_equal(attn_dataset_rewind(ctx, dataset), ATTN_OK);
        }
        attn_dataset_free(dataset);
    }
}

static void test_random(void **state)
{
    (void)state;
    attn_dataset_options o = options_of(ATTN_ORDER_RANDOM_WINDOWS, 7, 5);
    o.first = 0.1;
    o.last = 0.9;
    int seen[TOKENS] = {0}, lowest = TOKENS, highest = 0;
    attn_dataset *dataset = make(100, &o); /* tokens 10 to 89: starts 10 to 82 */
    attn_batch batch = batch_of();
    int64_t starts[5], ids[5], first_starts[5];
    for (int64_t round = 0; round < 2000; round++) {
        assert_int_equal(attn_dataset_next(ctx, dataset, &batch), ATTN_OK);
        assert_int_equal(check_batch(&batch, starts, ids), 5);
        if (round == 0) memcpy(first_starts, starts, sizeof starts);
        for (int64_t i = 0; i < 5; i++) {
            assert_in_range(starts[i], 10, 82);
            assert_int_equal(ids[i], 5 * round + i);
            seen[starts[i]]++;
            if (starts[i] < lowest) lowest = (int)starts[i];
            if (starts[i] > highest) highest = (int)starts[i];
        }
    }
    assert_int_equal(lowest, 10);
    assert_int_equal(highest, 82);
    double chi = 0; /* 72 degrees of freedom: mean 72, deviation 12 */
    for (int i = 10; i <= 82; i++) chi += (seen[i] - 10000.0 / 73) * (seen[i] - 10000.0 / 73) / (10000.0 / 73);
    assert_true(chi > 30 && chi < 125);
    assert_int_equal(attn_dataset_rewind(ctx, dataset), ATTN_OK);
    assert_int_equal(attn_dataset_next(ctx, dataset, &batch), ATTN_OK);
    check_batch(&batch, starts, ids);
    assert_memory_equal(starts, first_starts, sizeof starts);
    attn_dataset_free(dataset);
    o.seed = 1; /* other windows */
    dataset = make(100, &o);
    assert_int_equal(attn_dataset_next(ctx, dataset, &batch), ATTN_OK);
    check_batch(&batch, starts, ids);
    assert_memory_not_equal(starts, first_starts, sizeof starts);
    attn_dataset_free(dataset);
}

/* Resume: from a cursor saved after any batch, another data set gives the same batches, ids and ends. */
static void test_cursor(void **state)
{
    (void)state;
    for (int32_t order = ATTN_ORDER_RANDOM_WINDOWS; order <= ATTN_ORDER_SEQUENTIAL; order++) {
        attn_dataset_options o = options_of(order, 4, 3);
        attn_dataset *dataset = make(50, &o), *resumed = make(50, &o);
        assert_true(attn__dataset_fingerprint(dataset) == attn__dataset_fingerprint(resumed));
        for (int step = 0; step < 20; step++) {
            attn_batch a = batch_of(), b = batch_of();
            assert_int_equal(attn__dataset_seek(ctx, resumed, attn__dataset_cursor(dataset)), ATTN_OK);
            attn_status status = attn_dataset_next(ctx, dataset, &a);
            assert_int_equal(attn_dataset_next(ctx, resumed, &b), status);
            if (status == ATTN_OK) {
                int64_t starts[2][3], ids[2][3], count = check_batch(&a, starts[0], ids[0]);
                assert_int_equal(check_batch(&b, starts[1], ids[1]), count);
                assert_memory_equal(starts[0], starts[1], (size_t)count * sizeof(int64_t));
                assert_memory_equal(ids[0], ids[1], (size_t)count * sizeof(int64_t));
            } else {
                assert_int_equal(status, ATTN_ERROR_END_OF_DATA);
                attn_dataset_rewind(ctx, dataset);
            }
        }
        assert_int_equal(attn__dataset_seek(ctx, resumed, -1), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(attn__dataset_seek(ctx, resumed, INT64_MAX), ATTN_ERROR_INVALID_ARGUMENT);
        attn_dataset_free(dataset);
        attn_dataset_free(resumed);
    }
}

/* All 64 bits of a draw's number count: windows do not come again after 2^32 of them. */
static void test_late_draws(void **state)
{
    (void)state;
    const attn_dataset_options o = options_of(ATTN_ORDER_RANDOM_WINDOWS, 4, 16);
    attn_dataset *dataset = make(1000, &o);
    int64_t starts[3][16], ids[3][16];
    for (int i = 0; i < 3; i++) {
        attn_batch batch = batch_of();
        assert_int_equal(attn__dataset_seek(ctx, dataset, i * (INT64_C(1) << 32)), ATTN_OK);
        assert_int_equal(attn_dataset_next(ctx, dataset, &batch), ATTN_OK);
        check_batch(&batch, starts[i], ids[i]);
        for (int j = 0; j < i; j++) assert_memory_not_equal(starts[i], starts[j], sizeof starts[i]);
    }
    attn_dataset_free(dataset);
}

static void test_fingerprint(void **state)
{
    (void)state;
    attn_dataset_options o[7];
    uint64_t prints[8];
    for (int i = 0; i < 7; i++) o[i] = options_of(ATTN_ORDER_RANDOM_WINDOWS, 4, 3);
    o[1].context = 5;
    o[2].batch = 4;
    o[3].seed = 1;
    o[4].order = ATTN_ORDER_SEQUENTIAL;
    o[5].last = 0.9;
    o[6].first = 0.1;
    for (int i = 0; i < 8; i++) {
        if (i == 7) tokens[30] = 0;
        attn_dataset *dataset = make(50, &o[i % 7]);
        prints[i] = attn__dataset_fingerprint(dataset);
        attn_dataset_free(dataset);
        for (int k = 0; k < i; k++) assert_true(prints[i] != prints[k]);
    }
    tokens[30] = 30;
}

static void test_steady_state_allocates_nothing(void **state)
{
    (void)state;
    for (int32_t order = ATTN_ORDER_RANDOM_WINDOWS; order <= ATTN_ORDER_SEQUENTIAL; order++) {
        attn_dataset_options o = options_of(order, 6, 4);
        attn_dataset *dataset = make(100, &o);
        attn_batch batch = batch_of();
        long long calls = counted.calls;
        for (int i = 0; i < 50; i++)
            if (attn_dataset_next(ctx, dataset, &batch) != ATTN_OK) attn_dataset_rewind(ctx, dataset);
        assert_int_equal(counted.calls, calls);
        attn_dataset_free(dataset);
    }
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    attn_dataset_options o = options_of(ATTN_ORDER_SEQUENTIAL, 6, 4);
    long long live = counted.live_pointers;
    attn_dataset *dataset = NULL;
    int rounds = 0;
    for (; dataset == NULL; rounds++) {
        counted.fail_at = counted.calls + rounds + 1;
        attn_status status = attn_dataset_tokens(ctx, tokens, TOKENS, &o, &dataset);
        assert_int_equal(status, dataset != NULL ? ATTN_OK : ATTN_ERROR_OUT_OF_MEMORY);
        if (dataset == NULL) assert_int_equal(counted.live_pointers, live);
    }
    counted.fail_at = 0;
    assert_in_range(rounds, 6, 30);
    attn_dataset_free(dataset);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    attn_dataset *dataset = (attn_dataset *)&dataset;
    attn_dataset_options good = options_of(ATTN_ORDER_RANDOM_WINDOWS, 10, 2), bad[12];
    for (int i = 0; i < 12; i++) bad[i] = good;
    bad[0].context = 0;
    bad[1].context = -1;
    bad[2].batch = 0;
    bad[3].order = 2;
    bad[4].first = 0.5, bad[4].last = 0.5;
    bad[5].first = -0.1;
    bad[6].last = 1.1;
    bad[7].last = NAN;
    bad[8].first = INFINITY;
    bad[9].reserved = 1;
    bad[10].struct_size = 8;
    bad[11].context = TOKENS; /* one more is needed for the labels */
    for (int i = 0; i < 12; i++) {
        assert_int_equal(attn_dataset_tokens(ctx, tokens, TOKENS, &bad[i], &dataset), ATTN_ERROR_INVALID_ARGUMENT);
        assert_null(dataset);
    }
    assert_non_null(strstr(attn_context_last_error(ctx), "got 1000 in the part 0 to 1 of 1000, expected at least 1001"));
    bad[0] = good;
    bad[0].context = bad[0].batch = INT64_C(1) << 40;
    assert_int_equal(attn_dataset_tokens(ctx, tokens, TOKENS, &bad[0], &dataset), ATTN_ERROR_TOO_LARGE);
    bad[0].batch = 1;
    bad[0].context = INT64_MAX;
    assert_int_equal(attn_dataset_tokens(ctx, tokens, TOKENS, &bad[0], &dataset), ATTN_ERROR_TOO_LARGE);
    bad[0].batch = INT64_C(1) << 60; /* their tokens fit, where they lie does not */
    bad[0].context = 1;
    assert_int_equal(attn_dataset_tokens(ctx, tokens, TOKENS, &bad[0], &dataset), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(attn_dataset_tokens(ctx, tokens, 10, &good, &dataset), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_dataset_tokens(ctx, NULL, 11, &good, &dataset), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_dataset_tokens(ctx, tokens, -1, &good, &dataset), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_dataset_tokens(ctx, tokens, 11, &good, NULL), ATTN_ERROR_INVALID_ARGUMENT);
    tokens[5] = -3;
    assert_int_equal(attn_dataset_tokens(ctx, tokens, 20, &good, &dataset), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "got -3 at index 5"));
    tokens[5] = 5;
    good.order = ATTN_ORDER_SEQUENTIAL;
    assert_int_equal(attn_dataset_tokens(ctx, tokens, 1, &good, &dataset), ATTN_ERROR_INVALID_ARGUMENT);

    dataset = make(11, &good);
    attn_batch batch = {0}; /* not initialised */
    assert_int_equal(attn_dataset_next(ctx, dataset, &batch), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_dataset_next(ctx, dataset, NULL), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__dataset_cursor(dataset), 0);
    batch = batch_of();
    assert_int_equal(attn_dataset_next(ctx, NULL, &batch), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_dataset_rewind(ctx, NULL), ATTN_ERROR_INVALID_ARGUMENT);
    attn_dataset_free(dataset);
    attn_dataset_free(NULL);
    dataset = make(TOKENS, NULL); /* the defaults */
    assert_int_equal(attn_dataset_next(ctx, dataset, &batch), ATTN_OK);
    assert_int_equal(attn_tensor_extent(batch.target, 0), 128 * 16);
    attn_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_cursor),
        cmocka_unit_test(test_late_draws),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_steady_state_allocates_nothing),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_bad_arguments),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    return failed + (counted.live_pointers != 0 || counted.wrong != 0); /* a teardown that fails is not counted */
}

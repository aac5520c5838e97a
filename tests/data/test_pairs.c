#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "data/pairs_order.h"

/* Data sets of pairs: what a batch holds, that a pass gives each pair once, how it is cut, and that all of it follows from seed and place. */
#define OK(call) assert_int_equal(call, ATTN_OK)
enum { PAIRS = 23, SOURCE_STOP = 90, START = 91, STOP = 92 };
static attn_context *ctx;
/* pair p has (5 p) % 7 source tokens and (3 p) % 5 target tokens; token k of its source is 100 + p, of its target 200 + p */
static int32_t source[PAIRS * 7], target[PAIRS * 5];
static int64_t source_ends[PAIRS], target_ends[PAIRS];

static int setup(void **state)
{
    int64_t s = 0, t = 0;
    (void)state;
    for (int p = 0; p < PAIRS; p++) {
        for (int k = 0; k < 5 * p % 7; k++) source[s++] = 100 + p;
        for (int k = 0; k < 3 * p % 5; k++) target[t++] = 200 + p;
        source_ends[p] = s;
        target_ends[p] = t;
    }
    return attn_context_create(NULL, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

static attn_pairs_options options(void)
{
    attn_pairs_options o;
    OK(attn_pairs_options_init(&o, sizeof o));
    o.start = START;
    o.stop = STOP;
    o.batch = 4;
    return o;
}

static attn_dataset *make(const attn_pairs_options *o)
{
    attn_dataset *made = NULL;
    OK(attn_dataset_pairs(ctx, PAIRS, source, source_ends, target, target_ends, o, &made));
    return made;
}

static int64_t length_of(const int64_t *ends, int64_t p)
{
    return ends[p] - (p > 0 ? ends[p - 1] : 0);
}

/* one pair of a batch is the pair `p`, whole and in its place; its number is given back through its segment's id */
static void expect_pair(const attn_batch *b, int64_t index, int64_t p, int stopped, int64_t *source_row, int64_t *target_row)
{
    const int32_t *x = attn_tensor_data_const(b->source), *y = attn_tensor_data_const(b->target),
                  *labels = attn_tensor_data_const(b->labels);
    int64_t sources = length_of(source_ends, p), targets = length_of(target_ends, p);
    attn_segment from, to;
    OK(attn_layout_get(ctx, b->source_layout, index, &from));
    OK(attn_layout_get(ctx, b->target_layout, index, &to));
    assert_true(from.start == *source_row && from.length == sources + stopped && from.first_position == 0);
    assert_true(to.start == *target_row && to.length == targets + 1 && to.first_position == 0);
    assert_int_equal(from.sequence_id, to.sequence_id);
    for (int64_t k = 0; k < sources; k++) assert_int_equal(x[from.start + k], 100 + p);
    if (stopped) assert_int_equal(x[from.start + sources], SOURCE_STOP);
    assert_int_equal(y[to.start], START);
    for (int64_t k = 0; k < targets; k++) assert_true(y[to.start + 1 + k] == 200 + p && labels[to.start + k] == 200 + p);
    assert_int_equal(labels[to.start + targets], STOP);
    *source_row += from.length;
    *target_row += to.length;
}

/* a whole batch; seen[p] counts; returns its pairs */
static int64_t expect_batch(const attn_batch *b, int stopped, int64_t pass, int *seen)
{
    int64_t source_row = 0, target_row = 0, count = attn_layout_count(b->source_layout);
    assert_int_equal(attn_layout_count(b->target_layout), count);
    for (int64_t i = 0; i < count; i++) {
        attn_segment s;
        OK(attn_layout_get(ctx, b->source_layout, i, &s));
        int64_t p = s.sequence_id - pass * PAIRS; /* ids count on from pass to pass */
        assert_true(p >= 0 && p < PAIRS);
        expect_pair(b, i, p, stopped, &source_row, &target_row);
        seen[p]++;
    }
    assert_int_equal(attn_tensor_extent(b->source, 0), source_row);
    assert_int_equal(attn_tensor_extent(b->target, 0), target_row);
    assert_int_equal(attn_tensor_extent(b->labels, 0), target_row);
    return count;
}

static void expect_once(const int *seen, int times)
{
    for (int p = 0; p < PAIRS; p++) assert_int_equal(seen[p], times);
}

static void test_sequential(void **state)
{
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        attn_pairs_options o = options();
        attn_batch batch;
        o.order = ATTN_ORDER_SEQUENTIAL;
        o.bucket = 7; /* means nothing here */
        if (stopped) o.source_stop = SOURCE_STOP;
        attn_dataset *d = make(&o);
        OK(attn_batch_init(&batch, sizeof batch));
        for (int64_t pass = 0; pass < 3; pass++) {
            int seen[PAIRS] = {0}, batches = 0;
            attn_status status;
            while ((status = attn_dataset_next(ctx, d, &batch)) == ATTN_OK) {
                assert_int_equal(expect_batch(&batch, stopped, pass, seen), batches++ < 5 ? 4 : 3);
                assert_int_equal(seen[batches * 4 < PAIRS ? batches * 4 - 1 : PAIRS - 1], 1); /* as they stand */
            }
            assert_int_equal(status, ATTN_ERROR_END_OF_DATA);
            assert_int_equal(batches, 6);
            expect_once(seen, 1);
            OK(attn_dataset_rewind(ctx, d));
            int64_t begun = attn__dataset_cursor(d);
            OK(attn_dataset_rewind(ctx, d));
            assert_int_equal(attn__dataset_cursor(d), begun); /* nothing happens at the beginning of a pass */
        }
        attn_dataset_free(d);
    }
}

/* the pairs of so many batches, in their order; -1 between batches */
static int64_t trace(attn_dataset *d, int64_t batches, int64_t *out)
{
    int64_t at = 0;
    attn_batch batch;
    OK(attn_batch_init(&batch, sizeof batch));
    for (int64_t b = 0; b < batches; b++) {
        OK(attn_dataset_next(ctx, d, &batch));
        for (int64_t i = 0; i < attn_layout_count(batch.source_layout); i++) {
            attn_segment s;
            OK(attn_layout_get(ctx, batch.source_layout, i, &s));
            out[at++] = s.sequence_id;
        }
        out[at++] = -1;
    }
    return at;
}

static void test_shuffled(void **state)
{
    (void)state;
    int64_t first[200], again[200], other[200];
    attn_batch batch;
    OK(attn_batch_init(&batch, sizeof batch));
    for (int64_t bucket = 0; bucket < 12; bucket += 11) {
        attn_pairs_options o = options();
        o.bucket = bucket;
        o.seed = 3;
        attn_dataset *d = make(&o);
        for (int64_t pass = 0; pass < 3; pass++) { /* there is no end */
            int seen[PAIRS] = {0};
            for (int b = 0; b < 6; b++) {
                OK(attn_dataset_next(ctx, d, &batch));
                expect_batch(&batch, 0, pass, seen);
            }
            expect_once(seen, 1);
        }
        OK(attn_dataset_rewind(ctx, d));
        int64_t count = trace(d, 18, first);
        OK(attn__dataset_seek(ctx, d, 0));
        assert_int_equal(trace(d, 18, again), count);
        assert_memory_equal(first, again, (size_t)count * sizeof *first);
        int same = 1; /* two passes differ */
        for (int i = 0; i < 20; i++) same &= first[i] == -1 || first[29 + i] == -1 || first[i] == first[29 + i] - PAIRS;
        assert_false(same);
        /* from any place: the pass is made anew */
        int64_t cursor = 0;
        OK(attn__dataset_seek(ctx, d, 0));
        for (int b = 0; b < 8; b++) OK(attn_dataset_next(ctx, d, &batch));
        cursor = attn__dataset_cursor(d);
        int64_t rest = trace(d, 3, again);
        attn_dataset *e = make(&o);
        OK(attn__dataset_seek(ctx, e, cursor));
        assert_int_equal(trace(e, 3, other), rest);
        assert_memory_equal(other, again, (size_t)rest * sizeof *other);
        attn_dataset_free(e);
        o.seed = 4;
        e = make(&o);
        trace(e, 18, other);
        assert_memory_not_equal(first, other, 20 * sizeof *first);
        attn_dataset_free(e);
        attn_dataset_free(d);
    }
}

/* any order can come: also one in which a pair stands where it stood */
static void test_every_place(void **state)
{
    (void)state;
    enum { PASSES = 300 };
    static int64_t given[PASSES * (PAIRS + 6)];
    int kept = 0, first[PAIRS] = {0};
    attn_pairs_options o = options();
    attn_dataset *d = make(&o);
    trace(d, PASSES * 6, given);
    for (int64_t pass = 0, at = 0; pass < PASSES; pass++)
        for (int64_t place = 0; place < PAIRS; at++) {
            if (given[at] < 0) continue;
            int64_t pair = given[at] - pass * PAIRS;
            kept += pair == place;
            first[pair] += place == 0;
            place++;
        }
    assert_true(kept > PASSES / 2 && kept < 2 * PASSES); /* one a pass on the mean */
    for (int p = 0; p < PAIRS; p++) assert_true(first[p] > 0 && first[p] < 40);
    attn_dataset_free(d);
}

static int64_t longer(int64_t p)
{
    int64_t s = length_of(source_ends, p), t = length_of(target_ends, p) + 1;
    return s > t ? s : t;
}

/* a bucket of all pairs: batches are runs of the sorted pairs, and come in another order than that */
static void test_bucket(void **state)
{
    (void)state;
    attn_pairs_options o = options();
    o.bucket = 100;
    attn_dataset *d = make(&o);
    int64_t given[200], before = 0, rising = 1, low[6] = {0}, high[6] = {0};
    trace(d, 6, given);
    for (int64_t i = 0, b = 0; b < 6; i++) {
        if (given[i] < 0) {
            b++;
            continue;
        }
        int64_t length = longer(given[i]);
        if (i == 0 || given[i - 1] < 0) low[b] = length;
        if (i > 0 && given[i - 1] >= 0) assert_true(length >= before);
        high[b] = before = length;
    }
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++) assert_true(a == b || low[a] >= high[b] || low[b] >= high[a]);
    for (int b = 1; b < 6; b++) rising &= low[b] >= low[b - 1];
    assert_false(rising);
    attn_dataset_free(d);
}

/* no side of a batch has more rows than it may, a pair alone excepted, and none could have taken the next pair */
static void test_tokens(void **state)
{
    (void)state;
    for (int64_t most = 1; most < 20; most++) {
        attn_pairs_options o = options();
        int seen[PAIRS] = {0}, total = 0;
        attn_batch batch;
        int64_t rows, segments, source_before = 0, target_before = 0;
        o.order = ATTN_ORDER_SEQUENTIAL;
        o.batch_tokens = most;
        o.source_stop = SOURCE_STOP;
        o.batch = 5;
        attn_dataset *d = make(&o);
        attn__dataset_size(d, &rows, &segments);
        assert_true(segments == 5 && rows <= (most > 7 ? most : 7));
        OK(attn_batch_init(&batch, sizeof batch));
        for (int64_t count = 0; attn_dataset_next(ctx, d, &batch) == ATTN_OK; total += (int)count) {
            int64_t s = length_of(source_ends, total) + 1, t = length_of(target_ends, total) + 1;
            if (total > 0) assert_true(count == 5 || source_before + s > most || target_before + t > most);
            count = expect_batch(&batch, 1, 0, seen);
            assert_true(count > 0); /* no batch is empty */
            source_before = attn_tensor_extent(batch.source, 0);
            target_before = attn_tensor_extent(batch.target, 0);
            assert_true(count == 1 || (source_before <= most && target_before <= most));
            assert_true(source_before <= rows && target_before <= rows);
        }
        expect_once(seen, 1);
        attn_dataset_free(d);
    }
}

/* a pair that is too long for a batch is one of its own, also where it comes first */
static void test_long_pairs(void **state)
{
    (void)state;
    attn_pairs_options o = options();
    attn_batch batch;
    o.batch_tokens = 1;
    attn_dataset *d = make(&o);
    OK(attn_batch_init(&batch, sizeof batch));
    for (int64_t pass = 0; pass < 20; pass++) {
        int seen[PAIRS] = {0}, total = 0;
        while (total < PAIRS) {
            OK(attn_dataset_next(ctx, d, &batch));
            int64_t count = expect_batch(&batch, 0, pass, seen);
            assert_true(count == 1);
            total += (int)count;
        }
        expect_once(seen, 1);
    }
    attn_dataset_free(d);
}

/* sides without any token: a source of nothing, and a target of its start alone, whose label is the stop */
static void test_empty_sides(void **state)
{
    (void)state;
    static const int64_t nothing[3] = {0, 0, 0};
    static const int32_t ids[1] = {7};
    static const int64_t one[3] = {0, 1, 1};
    attn_pairs_options o = options();
    attn_batch batch;
    attn_dataset *d = NULL;
    o.order = ATTN_ORDER_SEQUENTIAL;
    o.batch_tokens = 100;
    OK(attn_batch_init(&batch, sizeof batch));
    OK(attn_dataset_pairs(ctx, 3, NULL, nothing, NULL, nothing, &o, &d));
    OK(attn_dataset_next(ctx, d, &batch));
    assert_int_equal(attn_tensor_extent(batch.source, 0), 0);
    assert_int_equal(attn_tensor_extent(batch.target, 0), 3);
    for (int i = 0; i < 3; i++)
        assert_true(((const int32_t *)attn_tensor_data_const(batch.target))[i] == START &&
                    ((const int32_t *)attn_tensor_data_const(batch.labels))[i] == STOP);
    attn_dataset_free(d);
    assert_int_equal(attn_dataset_pairs(ctx, 3, NULL, one, NULL, nothing, &o, &d), ATTN_ERROR_INVALID_ARGUMENT);
    OK(attn_dataset_pairs(ctx, 3, ids, one, ids, one, &o, &d));
    attn_dataset_free(d);
}

/* a batch that cannot be written leaves the place as it was; and there is a last place */
static void test_places(void **state)
{
    (void)state;
    attn_pairs_options o = options();
    attn_batch batch;
    attn_dataset *d = make(&o);
    OK(attn_batch_init(&batch, sizeof batch));
    batch.struct_size = 3;
    assert_int_equal(attn_dataset_next(ctx, d, &batch), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__dataset_cursor(d), 0);
    OK(attn_batch_init(&batch, sizeof batch));
    OK(attn__dataset_seek(ctx, d, INT64_MAX / 4));
    attn_status status = ATTN_OK;
    for (int i = 0; i < 8 && status == ATTN_OK; i++) status = attn_dataset_next(ctx, d, &batch);
    assert_int_equal(status, ATTN_ERROR_TOO_LARGE);
    attn_dataset_free(d);
}

/* the room of batches is that of the longest pairs together, in any order */
static void test_room(void **state)
{
    (void)state;
    attn_pairs_options o = options();
    int64_t rows, segments;
    o.batch = PAIRS + 10;
    attn_dataset *d = make(&o);
    attn__dataset_size(d, &rows, &segments);
    assert_true(segments == PAIRS && rows == source_ends[PAIRS - 1]);
    attn_dataset_free(d);
    o.batch = 1;
    d = make(&o);
    attn__dataset_size(d, &rows, &segments);
    assert_true(segments == 1 && rows == 6);
    attn_dataset_free(d);
}

/* what makes other batches has another fingerprint */
static void test_fingerprint(void **state)
{
    (void)state;
    enum { CHANGES = 10 };
    uint64_t seen[CHANGES + 2];
    for (int change = 0; change < CHANGES; change++) {
        attn_pairs_options o = options();
        if (change == 1) o.batch = 5;
        if (change == 2) o.batch_tokens = 5;
        if (change == 3) o.bucket = 5;
        if (change == 4) o.seed = 5;
        if (change == 5) o.order = ATTN_ORDER_SEQUENTIAL;
        if (change == 6) o.source_stop = 5;
        if (change == 7) o.start = 5;
        if (change == 8) o.stop = 5;
        if (change == 9) o.source_stop = 6; /* as many rows as with 5 */
        attn_dataset *d = make(&o);
        seen[change] = attn__dataset_fingerprint(d);
        attn_dataset_free(d);
    }
    attn_pairs_options o = options();
    source[3]++; /* another token */
    attn_dataset *d = make(&o);
    seen[CHANGES] = attn__dataset_fingerprint(d);
    attn_dataset_free(d);
    source[3]--;
    source_ends[1]--; /* the same tokens, another pair's */
    d = make(&o);
    seen[CHANGES + 1] = attn__dataset_fingerprint(d);
    attn_dataset_free(d);
    source_ends[1]++;
    for (int a = 0; a < CHANGES + 2; a++)
        for (int b = 0; b < a; b++) assert_true(seen[a] != seen[b]);
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* the smallest set, of the smallest tokens: zeros that start, stop and are said */
static void test_one_pair(void **state)
{
    static const int32_t said[3] = {0, 3, 0}, answered[1] = {0}, fed[2] = {0, 0};
    const int64_t said_end = 2, answered_end = 1;
    (void)state;
    attn_pairs_options o = options();
    attn_dataset *d = NULL;
    attn_batch batch;
    o.source_stop = o.start = o.stop = 0;
    OK(attn_dataset_pairs(ctx, 1, said, &said_end, answered, &answered_end, &o, &d));
    OK(attn_batch_init(&batch, sizeof batch));
    for (int pass = 0; pass < 3; pass++) {
        OK(attn_dataset_next(ctx, d, &batch));
        assert_int_equal(attn_tensor_extent(batch.source, 0), 3);
        assert_int_equal(attn_tensor_extent(batch.target, 0), 2);
        assert_memory_equal(attn_tensor_data_const(batch.source), said, sizeof said);
        assert_memory_equal(attn_tensor_data_const(batch.target), fed, sizeof fed);
        assert_memory_equal(attn_tensor_data_const(batch.labels), fed, sizeof fed);
    }
    attn_dataset_free(d);
}

static void test_sort(void **state)
{
    (void)state;
    uint64_t draw = 1;
    for (int64_t count = 0; count < 40; count++) {
        int64_t numbers[40], wanted[40];
        for (int64_t i = 0; i < count; i++) {
            draw = draw * UINT64_C(6364136223846793005) + 1;
            numbers[i] = wanted[i] = (int64_t)(draw >> 60) - 8;
        }
        qsort(wanted, (size_t)count, sizeof *wanted, compare);
        attn__sort(numbers, count);
        assert_memory_equal(numbers, wanted, (size_t)count * sizeof *numbers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential),  cmocka_unit_test(test_shuffled), cmocka_unit_test(test_every_place),
        cmocka_unit_test(test_bucket),      cmocka_unit_test(test_tokens),   cmocka_unit_test(test_long_pairs),
        cmocka_unit_test(test_empty_sides), cmocka_unit_test(test_places),   cmocka_unit_test(test_room),
        cmocka_unit_test(test_fingerprint), cmocka_unit_test(test_one_pair), cmocka_unit_test(test_sort)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

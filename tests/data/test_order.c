#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "data/dataset.h"

/* The order of symbols and of windows: ties, every kind of space, and a rewind where there is nothing to go back over. */
#define OK(call) assert_int_equal(call, ATTN_OK)
static attn_context *ctx;

static int setup(void **state)
{
    (void)state;
    return attn_context_create(NULL, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

static void expect_words(const char *text, int64_t words, const char *const *in_order)
{
    attn_vocabulary *v = NULL;
    OK(attn_vocabulary_create(ctx, ATTN_SYMBOLS_WORDS, text, (int64_t)strlen(text), 0, &v));
    assert_int_equal(attn_vocabulary_size(v), words);
    for (int32_t i = 0; i < words; i++) {
        char got[20] = "";
        int64_t bytes = 0;
        OK(attn_vocabulary_decode(ctx, v, &i, 1, sizeof got - 1, got, &bytes));
        got[bytes] = 0;
        assert_string_equal(got, in_order[i]);
    }
    attn_vocabulary_free(v);
}

/* as often as one another: by their bytes, the shorter first where it is the beginning of the longer */
static void test_words(void **state)
{
    static const char *const by_bytes[] = {"a", "ab", "abc", "b", "ba"};
    static const char *const by_count[] = {"ba", "abc", "b"};
    (void)state;
    expect_words("abc ba ab b a", 5, by_bytes);
    expect_words("b\rba\vabc\fba\nba\tabc", 3, by_count);
}

static attn_dataset *sequence(const int32_t *tokens, int64_t count)
{
    attn_dataset_options o;
    attn_dataset *made = NULL;
    OK(attn_dataset_options_init(&o, sizeof o));
    o.order = ATTN_ORDER_SEQUENTIAL;
    o.context = 2;
    o.batch = 2;
    OK(attn_dataset_tokens(ctx, tokens, count, &o, &made));
    return made;
}

static void test_windows(void **state)
{
    static const int32_t tokens[7] = {5, 6, 7, 8, 9, 10, 11}, swapped[7] = {5, 7, 6, 8, 9, 10, 11};
    attn_batch batch;
    attn_segment segment;
    (void)state;
    attn_dataset *a = sequence(tokens, 7), *b = sequence(swapped, 7);
    assert_true(attn__dataset_fingerprint(a) != attn__dataset_fingerprint(b));
    attn_dataset_free(b);
    OK(attn_batch_init(&batch, sizeof batch));
    OK(attn_dataset_rewind(ctx, a)); /* nothing was given yet */
    assert_int_equal(attn__dataset_cursor(a), 0);
    OK(attn_dataset_next(ctx, a, &batch));
    OK(attn_layout_get(ctx, batch.target_layout, 0, &segment));
    assert_int_equal(segment.sequence_id, 0);
    OK(attn_dataset_rewind(ctx, a)); /* to the next pass, whose windows have numbers of their own */
    int64_t pass = attn__dataset_cursor(a);
    OK(attn_dataset_rewind(ctx, a));
    assert_true(pass > 2 && attn__dataset_cursor(a) == pass);
    OK(attn_dataset_next(ctx, a, &batch));
    assert_int_equal(((const int32_t *)attn_tensor_data_const(batch.target))[0], 5);
    OK(attn_layout_get(ctx, batch.target_layout, 0, &segment));
    assert_int_equal(segment.sequence_id, pass);
    attn_dataset_free(a);
}

/* the last number that a window may have, and not one more */
static void test_most_windows(void **state)
{
    (void)state;
    const int32_t tokens[4] = {1, 2, 3, 4};
    attn_dataset_options o;
    attn_dataset *a = NULL;
    attn_batch batch;
    OK(attn_dataset_options_init(&o, sizeof o));
    OK(attn_batch_init(&batch, sizeof batch));
    o.context = 2;
    o.batch = 1;
    OK(attn_dataset_tokens(ctx, tokens, 4, &o, &a));
    OK(attn__dataset_seek(ctx, a, INT64_MAX / 4));
    OK(attn_dataset_next(ctx, a, &batch));
    assert_int_equal(attn_dataset_next(ctx, a, &batch), ATTN_ERROR_TOO_LARGE);
    attn_dataset_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_windows), cmocka_unit_test(test_most_windows)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

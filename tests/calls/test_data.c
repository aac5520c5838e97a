#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of data.h. */
#define PATH "calls_data.vocabulary"
#define OTHER "calls_data.other"
RELEASE(vocabulary, attn_vocabulary_free)
RELEASE(dataset, attn_dataset_free)
THUNK(create, attn_vocabulary_create(a[0].p, (int32_t)a[1].i, a[2].p, a[3].i, a[4].i, a[5].p))
THUNK(save, attn_vocabulary_save(a[0].p, a[1].p, a[2].p))
THUNK(load, attn_vocabulary_load(a[0].p, a[1].p, a[2].p))
THUNK(to_text, attn_vocabulary_to_text(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p))
THUNK(from_text, attn_vocabulary_from_text(a[0].p, a[1].p, a[2].i, a[3].p))
THUNK(encode, attn_vocabulary_encode(a[0].p, a[1].p, a[2].p, a[3].i, a[4].i, a[5].p, a[6].p))
THUNK(decode, attn_vocabulary_decode(a[0].p, a[1].p, a[2].p, a[3].i, a[4].i, a[5].p, a[6].p))

static attn_vocabulary *of_text(calls *t, int32_t symbols, const char *text)
{
    attn_vocabulary *made = NULL;
    OK(t->ctx, attn_vocabulary_create(t->ctx, symbols, text, (int64_t)strlen(text), 0, &made));
    return made;
}

static void making(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    (void)state;
    ROW(t, attn_vocabulary_create, create);
    arg_context(t);
    arg_number(t, "symbols", ATTN_SYMBOLS_CHARACTERS);
    arg_pointer(t, "text", "some text", 0);
    arg_number(t, "bytes", 9);
    arg_number(t, "threshold", 2);
    arg_made(t, "out", release_vocabulary);
    check_row(t);
    wrong_number(t, 1, 3, ATTN_ERROR_INVALID_ARGUMENT, "symbols");
    wrong_number(t, 1, -1, ATTN_ERROR_INVALID_ARGUMENT, "symbols");
    wrong_pointer(t, 2, "so\xC3(ething", ATTN_ERROR_INVALID_ARGUMENT, "text");
    wrong_pointer(t, 2, "som\xED\xA0\x80 te", ATTN_ERROR_INVALID_ARGUMENT, "text");
    wrong_number(t, 3, 0, ATTN_ERROR_INVALID_ARGUMENT, "text");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "bytes");
    wrong_number(t, 3, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT, "bytes");
    wrong_number(t, 4, -1, ATTN_ERROR_INVALID_ARGUMENT, "threshold");
    attn_vocabulary *none = NULL;
    FAILS(t->ctx, attn_vocabulary_create(t->ctx, ATTN_SYMBOLS_WORDS, " \t\n", 3, 0, &none), ATTN_ERROR_INVALID_ARGUMENT, "text");
    FAILS(t->ctx, attn_vocabulary_create(t->ctx, ATTN_SYMBOLS_BYTES, NULL, 1, 0, &none), ATTN_ERROR_INVALID_ARGUMENT, "text");
    OK(t->ctx, attn_vocabulary_create(t->ctx, ATTN_SYMBOLS_BYTES, NULL, 0, 0, &none));
    attn_vocabulary_free(none);

    NOTED(attn_vocabulary_size);
    NOTED(attn_vocabulary_symbols);
    NOTED(attn_vocabulary_unknown);
    attn_vocabulary *const bad[3] = {NULL, t->live[DATASET], t->freed[VOCABULARY]};
    for (int i = 0; i < 3; i++)
        assert_true(attn_vocabulary_size(bad[i]) == -1 && attn_vocabulary_symbols(bad[i]) == -1 && attn_vocabulary_unknown(bad[i]) == -1);
    calls_close(t);
}

static void files(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_vocabulary *words = of_text(t, ATTN_SYMBOLS_WORDS, "a b c");
    char text[256];
    int64_t bytes = 0;
    (void)state;
    ROW(t, attn_vocabulary_save, save);
    arg_context(t);
    arg_handle(t, "vocabulary", VOCABULARY, words, 0);
    arg_pointer(t, "path", PATH, 0);
    check_row(t);
    wrong_pointer(t, 2, "no/such/folder/file", ATTN_ERROR_IO, "no/such/folder");
    wrong_pointer(t, 2, "", ATTN_ERROR_INVALID_ARGUMENT, "path");
    FILE *other = fopen(OTHER, "wb");
    assert_non_null(other);
    assert_true(fputs("{\"format\": \"something else\"}", other) >= 0);
    assert_int_equal(fclose(other), 0);
    ROW(t, attn_vocabulary_load, load);
    arg_context(t);
    arg_pointer(t, "path", PATH, 0);
    arg_made(t, "out", release_vocabulary);
    check_row(t);
    wrong_pointer(t, 1, "calls_data.nothing", ATTN_ERROR_IO, "calls_data.nothing");
    wrong_pointer(t, 1, ".", ATTN_ERROR_IO, ".");
    wrong_pointer(t, 1, "", ATTN_ERROR_INVALID_ARGUMENT, "path");
    wrong_pointer(t, 1, OTHER, ATTN_ERROR_BAD_FILE, OTHER);

    OK(t->ctx, attn_vocabulary_to_text(t->ctx, words, sizeof text, text, &bytes));
    ROW(t, attn_vocabulary_to_text, to_text);
    arg_context(t);
    arg_handle(t, "vocabulary", VOCABULARY, words, 0);
    arg_number(t, "capacity", bytes);
    arg_result(t, "text", (uint64_t)bytes, 0);
    arg_result(t, "bytes", sizeof bytes, 0);
    check_row(t);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    t->loose = place_of(t, 4); /* what is needed */
    wrong_number(t, 2, bytes - 1, ATTN_ERROR_FULL, "capacity");

    ROW(t, attn_vocabulary_from_text, from_text);
    arg_context(t);
    arg_pointer(t, "text", text, 0);
    arg_number(t, "bytes", bytes);
    arg_made(t, "out", release_vocabulary);
    check_row(t);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "bytes");
    wrong_number(t, 2, 0, ATTN_ERROR_BAD_FILE, "text");
    wrong_number(t, 2, bytes - 1, ATTN_ERROR_BAD_FILE, "text");
    wrong_pointer(t, 1, calls_memory(t), ATTN_ERROR_BAD_FILE, "text");
    unlink(PATH);
    unlink(OTHER);
    attn_vocabulary_free(words);
    calls_close(t);
}

static void coding(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_vocabulary *letters = of_text(t, ATTN_SYMBOLS_CHARACTERS, "abc");
    static const int32_t good[3] = {0, 1, 2}, past[3] = {0, 3, 1}, minus[3] = {0, 1, -1}, least[3] = {INT32_MIN, 0, 0};
    (void)state;
    ROW(t, attn_vocabulary_encode, encode);
    arg_context(t);
    arg_handle(t, "vocabulary", VOCABULARY, letters, 0);
    arg_pointer(t, "text", "abba", 0);
    arg_number(t, "bytes", 4);
    arg_number(t, "capacity", 4);
    arg_result(t, "tokens", 4 * sizeof(int32_t), 0);
    arg_result(t, "count", sizeof(int64_t), 0);
    check_row(t);
    wrong_pointer(t, 2, "abXa", ATTN_ERROR_INVALID_ARGUMENT, "text");
    wrong_pointer(t, 2, "ab\xC3(", ATTN_ERROR_INVALID_ARGUMENT, "text");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "bytes");
    wrong_number(t, 4, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    t->loose = place_of(t, 6);
    wrong_number(t, 4, 3, ATTN_ERROR_FULL, "capacity");

    ROW(t, attn_vocabulary_decode, decode);
    arg_context(t);
    arg_handle(t, "vocabulary", VOCABULARY, letters, 0);
    arg_pointer(t, "tokens", good, 0);
    arg_number(t, "count", 3);
    arg_number(t, "capacity", 3);
    arg_result(t, "text", 3, 0);
    arg_result(t, "bytes", sizeof(int64_t), 0);
    check_row(t);
    wrong_pointer(t, 2, past, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    wrong_pointer(t, 2, minus, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    wrong_pointer(t, 2, least, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 4, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    t->loose = place_of(t, 6);
    wrong_number(t, 4, 2, ATTN_ERROR_FULL, "capacity");
    attn_vocabulary_free(letters);
    calls_close(t);
}

THUNK(tokens, attn_dataset_tokens(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p))
THUNK(next, attn_dataset_next(a[0].p, a[1].p, a[2].p))
THUNK(rewind_set, attn_dataset_rewind(a[0].p, a[1].p))

static void rewound(calls *t)
{
    OK(t->ctx, attn_dataset_rewind(t->ctx, t->live[DATASET]));
}

static void datasets(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    static const int32_t good[8] = {1, 2, 3, 4, 5, 6, 7, 8}, minus[8] = {1, 2, 3, -4, 5, 6, 7, 8};
    attn_dataset_options o;
    (void)state;
    OK(t->ctx, attn_dataset_options_init(&o, sizeof o));
    o.context = o.batch = 2;
    ROW(t, attn_dataset_tokens, tokens);
    arg_context(t);
    arg_pointer(t, "tokens", good, 0);
    arg_number(t, "count", 8);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_made(t, "out", release_dataset);
    check_row(t);
    wrong_pointer(t, 1, minus, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, 0, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    wrong_number(t, 2, 2, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    wrong_pointer(t, 3, NULL, ATTN_ERROR_INVALID_ARGUMENT, "tokens"); /* 128 by default: too few tokens */
    static const int64_t none[3] = {0, -1, INT64_MIN};
    for (int i = 0; i < 3; i++) {
        WRONG_INT64(t, 3, attn_dataset_options, context, none[i], ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 3, attn_dataset_options, batch, none[i], ATTN_ERROR_INVALID_ARGUMENT);
    }
    const uint64_t context = offsetof(attn_dataset_options, context), batch = offsetof(attn_dataset_options, batch);
    wrong_field(t, 3, context, 8, &(int64_t){INT64_MAX}, ATTN_ERROR_TOO_LARGE, "context");
    wrong_field(t, 3, batch, 8, &(int64_t){INT64_MAX / 4}, ATTN_ERROR_TOO_LARGE, "batch");
    WRONG_INT32(t, 3, attn_dataset_options, order, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 3, attn_dataset_options, order, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 3, attn_dataset_options, reserved, 1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_REALS_TO(t, 3, attn_dataset_options, first, 0, 1);
    WRONG_REALS_FROM(t, 3, attn_dataset_options, last, 0, 1);

    ROW(t, attn_dataset_next, next);
    arg_context(t);
    arg_handle(t, "dataset", DATASET, t->live[DATASET], 0);
    arg_report(t, "batch", sizeof(attn_batch), 0);
    t->before = rewound;
    check_row(t);

    ROW(t, attn_dataset_rewind, rewind_set);
    arg_context(t);
    arg_handle(t, "dataset", DATASET, t->live[DATASET], 0);
    check_row(t);

    /* the end of a pass leaves the batch as it was */
    attn_dataset *sequential = NULL;
    attn_batch given, before;
    o.order = ATTN_ORDER_SEQUENTIAL;
    o.batch = 4;
    OK(t->ctx, attn_dataset_tokens(t->ctx, good, 8, &o, &sequential));
    OK(t->ctx, attn_batch_init(&given, sizeof given));
    OK(t->ctx, attn_dataset_next(t->ctx, sequential, &given));
    before = given;
    FAILS(t->ctx, attn_dataset_next(t->ctx, sequential, &given), ATTN_ERROR_END_OF_DATA, "dataset");
    assert_memory_equal(&given, &before, sizeof given);
    attn_dataset_free(sequential);
    calls_close(t);
}

THUNK(pairs_call, attn_dataset_pairs(a[0].p, a[1].i, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p))

static void pairs(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    static const int32_t source[5] = {1, 2, 3, 4, 5}, target[3] = {6, 7, 8}, minus[5] = {1, 2, -3, 4, 5};
    static const int64_t ends[3] = {2, 2, 5}, target_ends[3] = {1, 2, 3}, falling[3] = {2, 1, 5}, below[3] = {-1, 2, 5};
    static const int64_t far[3] = {2, 2, INT64_MAX};
    attn_pairs_options o;
    (void)state;
    OK(t->ctx, attn_pairs_options_init(&o, sizeof o));
    o.start = o.stop = 9;
    ROW(t, attn_dataset_pairs, pairs_call);
    arg_context(t);
    arg_number(t, "count", 3);
    arg_pointer(t, "source", source, 0);
    arg_pointer(t, "source_ends", ends, 0);
    arg_pointer(t, "target", target, 0);
    arg_pointer(t, "target_ends", target_ends, 0);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_made(t, "out", release_dataset);
    check_row(t);
    wrong_number(t, 1, 0, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 1, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 1, INT64_MAX, ATTN_ERROR_TOO_LARGE, "count");
    wrong_pointer(t, 2, minus, ATTN_ERROR_INVALID_ARGUMENT, "source");
    wrong_pointer(t, 4, minus, ATTN_ERROR_INVALID_ARGUMENT, "target");
    for (int side = 3; side < 6; side += 2) {
        const char *name = side == 3 ? "source_ends" : "target_ends";
        wrong_pointer(t, side, falling, ATTN_ERROR_INVALID_ARGUMENT, name);
        wrong_pointer(t, side, below, ATTN_ERROR_INVALID_ARGUMENT, name);
        wrong_pointer(t, side, far, ATTN_ERROR_TOO_LARGE, name);
    }
    wrong_pointer(t, 6, NULL, ATTN_ERROR_INVALID_ARGUMENT, "start"); /* the defaults have none */
    WRONG_INT64(t, 6, attn_pairs_options, batch, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 6, attn_pairs_options, batch, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 6, attn_pairs_options, batch_tokens, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 6, attn_pairs_options, bucket, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 6, attn_pairs_options, order, ATTN_ORDER_RANDOM_WINDOWS, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 6, attn_pairs_options, order, 3, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 6, attn_pairs_options, source_stop, -2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 6, attn_pairs_options, start, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 6, attn_pairs_options, stop, -1, ATTN_ERROR_INVALID_ARGUMENT);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(making), cmocka_unit_test(files), cmocka_unit_test(coding),
                                       cmocka_unit_test(datasets), cmocka_unit_test(pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

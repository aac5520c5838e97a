#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/random.h"
#include "core/utf8.h"
#include "support/allocator.h"

static attn_context *ctx;
static test_allocator counted;
static char folder[] = "/tmp/attn-test-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/vocabulary.json", folder);
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
    unlink(path);
    rmdir(folder);
    attn_context_free(ctx);
    return 0;
}

static attn_vocabulary *make(int32_t symbols, const char *text, int64_t threshold)
{
    attn_vocabulary *vocabulary;
    assert_int_equal(attn_vocabulary_create(ctx, symbols, text, (int64_t)strlen(text), threshold, &vocabulary), ATTN_OK);
    return vocabulary;
}

static void expect_tokens(const attn_vocabulary *vocabulary, const char *text, int64_t bytes, int64_t count, const int32_t *tokens)
{
    int32_t got[64] = {0};
    int64_t got_count;
    assert_int_equal(attn_vocabulary_encode(ctx, vocabulary, text, bytes, 64, got, &got_count), ATTN_OK);
    assert_int_equal(got_count, count);
    for (int64_t i = 0; i < count; i++) assert_int_equal(got[i], tokens[i]);
}

static void expect_text(const attn_vocabulary *vocabulary, int64_t count, const int32_t *tokens, const char *text)
{
    char got[64];
    int64_t bytes;
    assert_int_equal(attn_vocabulary_decode(ctx, vocabulary, tokens, count, 64, got, &bytes), ATTN_OK);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(got, text, (size_t)bytes);
}

/* B151, B154: every byte and every character comes back, in one piece or token by token */
static void expect_round_trip(const attn_vocabulary *vocabulary, const unsigned char *text, int64_t bytes)
{
    static int32_t tokens[1 << 16];
    static char back[1 << 16];
    int64_t count, back_bytes, at = 0;
    assert_int_equal(attn_vocabulary_encode(ctx, vocabulary, text, bytes, 1 << 16, tokens, &count), ATTN_OK);
    assert_int_equal(attn_vocabulary_decode(ctx, vocabulary, tokens, count, bytes, back, &back_bytes), ATTN_OK);
    assert_int_equal(back_bytes, bytes);
    if (bytes > 0) assert_memory_equal(back, text, (size_t)bytes);
    for (int64_t i = 0; i < count; i++, at += back_bytes)
        assert_int_equal(attn_vocabulary_decode(ctx, vocabulary, tokens + i, 1, bytes - at, back + at, &back_bytes), ATTN_OK);
    assert_int_equal(at, bytes);
    if (bytes > 0) assert_memory_equal(back, text, (size_t)bytes);
}

static void test_bytes(void **state)
{
    (void)state;
    attn_vocabulary *vocabulary;
    unsigned char text[4096];
    assert_int_equal(attn_vocabulary_create(ctx, ATTN_SYMBOLS_BYTES, NULL, 0, 5, &vocabulary), ATTN_OK);
    assert_int_equal(attn_vocabulary_size(vocabulary), 256);
    assert_int_equal(attn_vocabulary_symbols(vocabulary), ATTN_SYMBOLS_BYTES);
    assert_int_equal(attn_vocabulary_unknown(vocabulary), -1);
    for (int i = 0; i < 4096; i++) text[i] = (unsigned char)(attn__mix(3, (uint64_t)i) & 0xFF);
    expect_round_trip(vocabulary, text, sizeof text);
    expect_round_trip(vocabulary, (const unsigned char *)" ? hello ! n't\0\xF0\x9F\x98\x8A", 19);
    expect_tokens(vocabulary, "\0a\xFF", 3, 3, (const int32_t[]){0, 97, 255});
    expect_tokens(vocabulary, NULL, 0, 0, NULL);
    expect_text(vocabulary, 0, NULL, "");
    attn_vocabulary_free(vocabulary);
}

static void test_characters(void **state)
{
    (void)state;
    const char text[] = "b\xF0\x9F\x98\x8A"
                        "a\xC3\xA9"
                        "a\0\xEF\xBF\xBD\n";
    attn_vocabulary *vocabulary;
    assert_int_equal(attn_vocabulary_create(ctx, ATTN_SYMBOLS_CHARACTERS, text, sizeof text - 1, 1, &vocabulary), ATTN_OK);
    assert_int_equal(attn_vocabulary_size(vocabulary), 7); /* U+0, LF, a, b, U+E9, U+FFFD, U+1F60A */
    assert_int_equal(attn_vocabulary_unknown(vocabulary), -1);
    expect_tokens(vocabulary, text, sizeof text - 1, 8, (const int32_t[]){3, 6, 2, 4, 2, 0, 5, 1});
    expect_round_trip(vocabulary, (const unsigned char *)text, sizeof text - 1);
    int64_t count = 9;
    int32_t tokens[2] = {7, 7};
    assert_int_equal(attn_vocabulary_encode(ctx, vocabulary, "aXb", 3, 2, tokens, &count), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "'X' at offset 1"));
    assert_int_equal(attn_vocabulary_encode(ctx, vocabulary, "a\x7F", 2, 2, tokens, &count), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "byte 0x7f at offset 1")); /* not as it is: terminals take it for more */
    assert_int_equal(attn_vocabulary_encode(ctx, vocabulary, "a\xC3", 2, 2, tokens, &count), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "0xc3 at offset 1"));
    assert_int_equal(tokens[0], 7);
    attn_vocabulary_free(vocabulary);
}

static void test_threshold(void **state)
{
    (void)state;
    attn_vocabulary *v = make(ATTN_SYMBOLS_CHARACTERS, "aabbbc", 2);
    assert_int_equal(attn_vocabulary_size(v), 3);
    assert_int_equal(attn_vocabulary_unknown(v), 0);
    expect_tokens(v, "abcd", 4, 4, (const int32_t[]){1, 2, 0, 0});
    expect_text(v, 3, (const int32_t[]){2, 0, 1}, "b<unk>a");
    attn_vocabulary_free(v);
    v = make(ATTN_SYMBOLS_CHARACTERS, "abc", 9); /* nothing is left */
    assert_int_equal(attn_vocabulary_size(v), 1);
    expect_tokens(v, "ab", 2, 2, (const int32_t[]){0, 0});
    attn_vocabulary_free(v);
}

/* B153: the text "<unk>" is a word like any other; B157: only spaces */
static void test_words(void **state)
{
    (void)state;
    attn_vocabulary *v = make(ATTN_SYMBOLS_WORDS, " the cat\tthe  <unk>\nzoo the cat <unk> a ", 2);
    assert_int_equal(attn_vocabulary_size(v), 4); /* unknown; the 3; <unk> 2; cat 2 */
    expect_tokens(v, "the cat <unk> zoo\xC3\xA9", 19, 4, (const int32_t[]){1, 3, 2, 0});
    expect_text(v, 4, (const int32_t[]){1, 3, 2, 0}, "the cat <unk> <unk>");
    expect_tokens(v, " \t\n ", 4, 0, NULL);
    attn_vocabulary_free(v);
    v = make(ATTN_SYMBOLS_WORDS, "b a c a", 0);
    int64_t count;
    expect_tokens(v, "c b  a", 6, 3, (const int32_t[]){2, 1, 0});
    assert_int_equal(attn_vocabulary_encode(ctx, v, "a bb", 4, 0, NULL, &count), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "'bb' at offset 2"));
    char word[101]; /* shown as far as it fits */
    memset(word, 'w', 100);
    word[100] = 0;
    assert_int_equal(attn_vocabulary_encode(ctx, v, word, 100, 0, NULL, &count), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "'wwww"));
    assert_null(strstr(attn_context_last_error(ctx), word));
    for (int i = 1; i < 99; i += 2) memcpy(word + i, "\xC3\xA9", 2); /* the cut comes in the middle of a character */
    assert_int_equal(attn_vocabulary_encode(ctx, v, word, 99, 0, NULL, &count), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "\xC3\xA9?' at offset 0"));
    assert_true(attn__utf8_invalid(attn_context_last_error(ctx), (int64_t)strlen(attn_context_last_error(ctx))) < 0);
    for (int i = 0; i < 2; i++) { /* what cannot be shown is a number */
        assert_int_equal(attn_vocabulary_encode(ctx, v, i ? "a \x7F" : "a \x01", 3, 0, NULL, &count), ATTN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_context_last_error(ctx), i ? "byte 0x7f at offset 2" : "byte 0x01 at offset 2"));
    }
    attn_vocabulary_free(v);
}

static void test_capacity(void **state)
{
    (void)state;
    attn_vocabulary *v = make(ATTN_SYMBOLS_CHARACTERS, "ab\xC3\xA9", 1);
    int64_t count;
    int32_t tokens[4] = {9, 9, 9, 9};
    char text[5] = "....";
    assert_int_equal(attn_vocabulary_encode(ctx, v, "abba", 4, 0, NULL, &count), ATTN_ERROR_FULL);
    assert_int_equal(count, 4);
    assert_int_equal(attn_vocabulary_encode(ctx, v, "abba", 4, 3, tokens, &count), ATTN_ERROR_FULL);
    assert_int_equal(count, 4);
    assert_int_equal(tokens[0], 9);
    assert_int_equal(attn_vocabulary_encode(ctx, v, "abba", 4, 4, tokens, &count), ATTN_OK);
    tokens[0] = 2;
    assert_int_equal(attn_vocabulary_decode(ctx, v, tokens, 4, 0, NULL, &count), ATTN_ERROR_FULL);
    assert_int_equal(count, 5);
    assert_int_equal(attn_vocabulary_decode(ctx, v, tokens, 4, 4, text, &count), ATTN_ERROR_FULL);
    assert_string_equal(text, "....");
    assert_int_equal(attn_vocabulary_decode(ctx, v, tokens, 4, 5, text, &count), ATTN_OK);
    assert_memory_equal(text,
                        "\xC3\xA9"
                        "bba",
                        5);
    attn_vocabulary_free(v);
}

/* B159, B160 and every argument */
static void test_bad_arguments(void **state)
{
    (void)state;
    attn_vocabulary *v = NULL, *good = make(ATTN_SYMBOLS_CHARACTERS, "ab", 1);
    static const int32_t outside[] = {-1, 2, INT32_MAX, INT32_MIN};
    char text[8] = "........";
    int32_t tokens[8];
    int64_t count;
    for (int i = 0; i < 4; i++) {
        int32_t ids[2] = {1, outside[i]};
        assert_int_equal(attn_vocabulary_decode(ctx, good, ids, 2, 8, text, &count), ATTN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_context_last_error(ctx), "at index 1, expected 0 to 1"));
        assert_memory_equal(text, "........", 8);
    }
    static const char *const invalid[] = {"\xC0\x80",     "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82",
                                          "\x80",         "\xFF",         "\xF5\x80\x80\x80", "\xE0\x9F\xBF",
                                          "\xE2\x82\x7F", "\xE2\x82\xC0", "\xF0\x9F\x98z",    "\xF0\x8F\xBF\xBF"};
    for (int i = 0; i < (int)(sizeof invalid / sizeof *invalid); i++) {
        char whole[8] = "ab";
        strcat(whole, invalid[i]);
        for (int32_t kind = ATTN_SYMBOLS_CHARACTERS; kind <= ATTN_SYMBOLS_WORDS; kind++) {
            assert_int_equal(attn_vocabulary_create(ctx, kind, whole, (int64_t)strlen(whole), 1, &v), ATTN_ERROR_INVALID_ARGUMENT);
            assert_non_null(strstr(attn_context_last_error(ctx), "at offset 2, expected valid UTF-8"));
            assert_null(v);
        }
    }
#define REFUSED(call) assert_int_equal(call, ATTN_ERROR_INVALID_ARGUMENT)
    REFUSED(attn_vocabulary_create(ctx, 3, "a", 1, 1, &v));
    REFUSED(attn_vocabulary_create(ctx, -1, "a", 1, 1, &v));
    REFUSED(attn_vocabulary_create(ctx, 1, NULL, 1, 1, &v));
    REFUSED(attn_vocabulary_create(ctx, 1, "a", -1, 1, &v));
    REFUSED(attn_vocabulary_create(ctx, 1, "a", 1, -1, &v));
    REFUSED(attn_vocabulary_create(ctx, 1, "", 0, 1, &v));
    REFUSED(attn_vocabulary_create(ctx, 2, "  ", 2, 1, &v));
    REFUSED(attn_vocabulary_create(ctx, 1, "a", 1, 1, NULL));
    REFUSED(attn_vocabulary_create(NULL, 1, "a", 1, 1, &v));
    REFUSED(attn_vocabulary_encode(ctx, NULL, "a", 1, 8, tokens, &count));
    REFUSED(attn_vocabulary_encode(ctx, (const attn_vocabulary *)(const void *)ctx, "a", 1, 8, tokens, &count));
    REFUSED(attn_vocabulary_encode(ctx, good, NULL, 1, 8, tokens, &count));
    REFUSED(attn_vocabulary_encode(ctx, good, "a", 1, 8, NULL, &count));
    REFUSED(attn_vocabulary_encode(ctx, good, "a", 1, -1, tokens, &count));
    REFUSED(attn_vocabulary_encode(ctx, good, "a", 1, 8, tokens, NULL));
    REFUSED(attn_vocabulary_decode(ctx, good, NULL, 1, 8, text, &count));
    REFUSED(attn_vocabulary_decode(ctx, good, tokens, -1, 8, text, &count));
    REFUSED(attn_vocabulary_decode(ctx, NULL, tokens, 1, 8, text, &count));
    REFUSED(attn_vocabulary_save(ctx, NULL, path));
    REFUSED(attn_vocabulary_save(ctx, good, NULL));
    REFUSED(attn_vocabulary_load(ctx, NULL, &v));
    REFUSED(attn_vocabulary_load(ctx, path, NULL));
    REFUSED(attn_vocabulary_to_text(ctx, good, 1, NULL, &count));
    REFUSED(attn_vocabulary_from_text(ctx, NULL, 0, &v));
    assert_int_equal(attn_vocabulary_size(NULL), -1);
    attn_vocabulary_free(NULL);
    attn_vocabulary_free(good);
}

static int next_descriptor(void)
{
    int next = dup(STDOUT_FILENO);
    assert_true(next >= 0);
    close(next);
    return next;
}

static void expect_ascii(void)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (int c; (c = fgetc(file)) != EOF;) assert_true(c < 0x80);
    fclose(file);
}

/* a file of more than 256 MiB is refused unread */
static void test_long_file(void **state)
{
    (void)state;
    attn_vocabulary *v;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    int cut = ftruncate(fileno(file), (256 << 20) + 1);
    fclose(file);
    if (cut != 0) skip(); /* a file system without holes, or full */
    assert_int_equal(attn_vocabulary_load(ctx, path, &v), ATTN_ERROR_BAD_FILE);
    assert_non_null(strstr(attn_context_last_error(ctx), "expected a vocabulary of at most"));
}

static void test_files(void **state)
{
    (void)state;
    const char text[] = "a\"\\\n\0\x7F \xC3\xA9\xF0\x9F\x98\x8A zz a a";
    for (int32_t kind = ATTN_SYMBOLS_BYTES; kind <= ATTN_SYMBOLS_WORDS; kind++)
        for (int64_t threshold = 1; threshold <= 2; threshold++) {
            attn_vocabulary *made, *loaded, *parsed;
            assert_int_equal(attn_vocabulary_create(ctx, kind, text, sizeof text - 1, threshold, &made), ATTN_OK);
            assert_int_equal(attn_vocabulary_save(ctx, made, path), ATTN_OK);
            int next = next_descriptor();
            assert_int_equal(attn_vocabulary_load(ctx, path, &loaded), ATTN_OK);
            assert_int_equal(next_descriptor(), next); /* the file is closed */
            expect_ascii();
            char first[1024], second[1024];
            int64_t bytes, again;
            assert_int_equal(attn_vocabulary_to_text(ctx, made, 0, NULL, &bytes), ATTN_ERROR_FULL);
            assert_int_equal(attn_vocabulary_to_text(ctx, made, bytes - 1, first, &again), ATTN_ERROR_FULL);
            assert_int_equal(again, bytes);
            assert_int_equal(attn_vocabulary_to_text(ctx, made, bytes, first, &bytes), ATTN_OK);
            for (int64_t i = 0; i < bytes; i++) assert_in_range(first[i], 0x20, 0x7F); /* fits any C string */
            assert_int_equal(attn_vocabulary_from_text(ctx, first, bytes, &parsed), ATTN_OK);
            for (int i = 0; i < 2; i++) {
                const attn_vocabulary *other = i ? parsed : loaded;
                assert_int_equal(attn_vocabulary_to_text(ctx, other, 1024, second, &again), ATTN_OK);
                assert_int_equal(again, bytes);
                assert_memory_equal(first, second, (size_t)bytes);
                int32_t tokens[64];
                int64_t count;
                assert_int_equal(attn_vocabulary_encode(ctx, made, text, sizeof text - 1, 64, tokens, &count), ATTN_OK);
                expect_tokens(other, text, sizeof text - 1, count, tokens);
                assert_int_equal(attn_vocabulary_unknown(other), attn_vocabulary_unknown(made));
            }
            attn_vocabulary_free(made);
            attn_vocabulary_free(loaded);
            attn_vocabulary_free(parsed);
        }
}

typedef struct hostile {
    const char *text;
    attn_status code;
    const char *says;
} hostile;
#define V(kind, unknown, tokens) \
    "{\"format\":\"attn_vocabulary\",\"version\":1,\"symbols\":\"" kind "\",\"unknown\":" unknown ",\"tokens\":" tokens "}"
#define F(rest) "{\"format\":\"attn_vocabulary\",\"version\":1," rest "}"

static void test_hostile_text(void **state)
{
    (void)state;
    static const hostile cases[] = {
        {"", ATTN_ERROR_BAD_FILE, "not valid JSON"},
        {"[]", ATTN_ERROR_BAD_FILE, "not a vocabulary"},
        {"{}", ATTN_ERROR_BAD_FILE, "not a vocabulary"},
        {"{\"a\":1,\"a\":2}", ATTN_ERROR_BAD_FILE, "duplicate name"},
        {"{\"format\":\"attn_vocabulary\",\"version\":2}", ATTN_ERROR_UNSUPPORTED, "version 2"},
        {"{\"format\":\"attn_vocabulary\",\"version\":0}", ATTN_ERROR_UNSUPPORTED, "version 0"},
        {"{\"format\":\"attn_vocabulary\",\"version\":-1}", ATTN_ERROR_UNSUPPORTED, "version -1"},
        {V("runes", "false", "[\"a\"]"), ATTN_ERROR_BAD_FILE, "symbols: expected"},
        {V("characters", "0", "[\"a\"]"), ATTN_ERROR_BAD_FILE, "expected exactly"},
        {V("characters", "false", "{}"), ATTN_ERROR_BAD_FILE, "expected exactly"},
        {"{\"format\":\"attn_vocabulary\",\"version\":1,\"symbols\":\"words\",\"unknown\":true,\"tokens\":[],\"more\":1}",
         ATTN_ERROR_BAD_FILE, "expected exactly"},
        {V("characters", "false", "[]"), ATTN_ERROR_BAD_FILE, "at least one"},
        {V("characters", "false", "[\"a\",\"b\",\"a\"]"), ATTN_ERROR_BAD_FILE, "duplicate name at entry 2"},
        {V("characters", "false", "[\"a\",\"bc\"]"), ATTN_ERROR_BAD_FILE, "entry 1 is not one symbol"},
        {V("characters", "false", "[\"\"]"), ATTN_ERROR_BAD_FILE, "entry 0 is not one symbol"},
        {V("characters", "false", "[1]"), ATTN_ERROR_BAD_FILE, "entry 0 is not one symbol"},
        {V("characters", "false", "[[\"a\"]]"), ATTN_ERROR_BAD_FILE, "nested 3 deep"},
        {V("words", "false", "[\"a b\"]"), ATTN_ERROR_BAD_FILE, "entry 0 is not one symbol"},
        {V("words", "false", "[\" \"]"), ATTN_ERROR_BAD_FILE, "entry 0 is not one symbol"},
        {V("bytes", "false", "[\"a\"]"), ATTN_ERROR_BAD_FILE, "entry 0 is not one symbol"},
        {V("bytes", "true", "[]"), ATTN_ERROR_BAD_FILE, "no unknown symbol"},
        {"{\"format\":1,\"version\":1}", ATTN_ERROR_BAD_FILE, "not a vocabulary"},
        {"{\"format\":\"another\",\"version\":1}", ATTN_ERROR_BAD_FILE, "not a vocabulary"},
        {"{\"format\":\"attn_vocabulary\"}", ATTN_ERROR_BAD_FILE, "not a vocabulary"},
        {"{\"format\":\"attn_vocabulary\",\"version\":\"1\"}", ATTN_ERROR_BAD_FILE, "not a vocabulary"},
        {F("\"x\":0,\"unknown\":true,\"tokens\":[]"), ATTN_ERROR_BAD_FILE, "expected exactly"},
        {F("\"symbols\":0,\"unknown\":true,\"tokens\":[]"), ATTN_ERROR_BAD_FILE, "expected exactly"},
        {F("\"symbols\":\"words\",\"x\":0,\"tokens\":[]"), ATTN_ERROR_BAD_FILE, "expected exactly"},
        {F("\"symbols\":\"words\",\"unknown\":true,\"x\":0"), ATTN_ERROR_BAD_FILE, "expected exactly"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attn_vocabulary *v = NULL;
        assert_int_equal(attn_vocabulary_from_text(ctx, cases[i].text, (int64_t)strlen(cases[i].text), &v), cases[i].code);
        assert_non_null(strstr(attn_context_last_error(ctx), cases[i].says));
        assert_null(v);
    }
    attn_vocabulary *v;
    assert_int_equal(attn_vocabulary_load(ctx, folder, &v), ATTN_ERROR_IO);
    const char *good = V("words", "true", "[\"a\",\"b\"]"), *alone = V("characters", "true", "[]");
    assert_int_equal(attn_vocabulary_from_text(ctx, alone, (int64_t)strlen(alone), &v), ATTN_OK); /* the unknown symbol is one */
    assert_int_equal(attn_vocabulary_size(v), 1);
    attn_vocabulary_free(v);
    for (size_t bytes = 0; bytes < strlen(good); bytes++)
        assert_int_equal(attn_vocabulary_from_text(ctx, good, (int64_t)bytes, &v), ATTN_ERROR_BAD_FILE);
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    char text[4096];
    for (int i = 0; i < 4095; i++) text[i] = i % 5 == 4 ? ' ' : (char)('a' + attn__mix(1, (uint64_t)i) % 26);
    text[4095] = 0;
    long long live = counted.live_pointers;
    attn_status status = ATTN_ERROR_OUT_OF_MEMORY;
    int rounds = 0;
    for (; status != ATTN_OK; rounds++) {
        attn_vocabulary *v, *loaded = NULL;
        assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
        counted.fail_at = counted.calls + rounds + 1;
        status = attn_vocabulary_create(ctx, ATTN_SYMBOLS_WORDS, text, 4095, 1, &v);
        if (status == ATTN_OK) status = attn_vocabulary_save(ctx, v, path);
        if (status == ATTN_OK) status = attn_vocabulary_load(ctx, path, &loaded);
        assert_true((status == ATTN_OK) == (loaded != NULL));
        attn_vocabulary_free(v);
        attn_vocabulary_free(loaded);
        assert_int_equal(counted.live_pointers, live);
    }
    counted.fail_at = 0;
    assert_in_range(rounds, 20, 100);
}

/* Many symbols in a long text: time must not be quadratic, and every one is found again. */
static void test_many_words(void **state)
{
    (void)state;
    enum { WORDS = 100000 };
    char *text = malloc(WORDS * 8);
    int32_t *tokens = malloc(WORDS * sizeof *tokens);
    assert_non_null(text);
    assert_non_null(tokens);
    int64_t bytes = 0, count;
    for (int i = 0; i < WORDS; i++) bytes += snprintf(text + bytes, 8, "%06d ", i);
    attn_vocabulary *v;
    assert_int_equal(attn_vocabulary_create(ctx, ATTN_SYMBOLS_WORDS, text, bytes, 1, &v), ATTN_OK);
    assert_int_equal(attn_vocabulary_size(v), WORDS);
    assert_int_equal(attn_vocabulary_encode(ctx, v, text, bytes, WORDS, tokens, &count), ATTN_OK);
    for (int i = 0; i < WORDS; i++) assert_int_equal(tokens[i], i);
    assert_int_equal(attn_vocabulary_save(ctx, v, path), ATTN_OK);
    attn_vocabulary_free(v);
    assert_int_equal(attn_vocabulary_load(ctx, path, &v), ATTN_OK);
    assert_int_equal(attn_vocabulary_size(v), WORDS);
    attn_vocabulary_free(v);
    free(text);
    free(tokens);
}

/* The beginning of a word is not the word, wherever the table happens to look. */
static void test_prefixes(void **state)
{
    (void)state;
    enum { COMMON = 30, WORDS = 100 };
    char text[WORDS * (COMMON + 3) + 1], prefix[COMMON + 1];
    memset(prefix, 'a', COMMON);
    prefix[COMMON] = 0;
    for (int i = 0; i < WORDS; i++) snprintf(text + i * (COMMON + 3), COMMON + 4, "%s%c%c ", prefix, '0' + i / 10, '0' + i % 10);
    attn_vocabulary *v = make(ATTN_SYMBOLS_WORDS, text, 1);
    int64_t count;
    for (int length = 1; length <= COMMON; length++)
        assert_int_equal(attn_vocabulary_encode(ctx, v, prefix, length, 0, NULL, &count), ATTN_ERROR_INVALID_ARGUMENT);
    attn_vocabulary_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_characters),   cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_words),      cmocka_unit_test(test_capacity),     cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_files),      cmocka_unit_test(test_hostile_text), cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_many_words), cmocka_unit_test(test_prefixes),     cmocka_unit_test(test_long_file),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    return failed + (counted.live_pointers != 0 || counted.wrong != 0); /* a teardown that fails is not counted */
}

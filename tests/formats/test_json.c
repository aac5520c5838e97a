#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "formats/json.h"
#include "support/allocator.h"

/* The look through hostile text before the parser takes memory, to the last value and the last depth; the text of a value. */
static test_allocator counted;
static attn_context *ctx;

static attn_status parse(const char *text, int32_t depth, int64_t values, int32_t nul)
{
    json_t *root;
    attn_status status = attn__json_parse(ctx, "it", text, (int64_t)strlen(text), depth, values, nul, &root);
    assert_int_equal(root != NULL, status == ATTN_OK);
    json_decref(root);
    return status;
}

static void test_limits(void **state)
{
    (void)state;
    const struct {
        const char *text;
        int32_t depth;
        int64_t values; /* an upper bound: commas, colons, openings and one */
    } cases[] = {
        {"{}", 1, 2},
        {"[1,2]", 1, 3},
        {"{\"a\":1}", 1, 3},
        {"[[],[],[[]]]", 3, 8}, /* side by side is no deeper */
        {"[\"[[{,,::\"]", 1, 2},
        {"[\"\\\"[[{,:\",\"\\\\\",[]]", 2, 5}, /* a quote and a backslash within a string */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].text, cases[i].depth, cases[i].values, 0), ATTN_OK);
        assert_int_equal(parse(cases[i].text, cases[i].depth, cases[i].values - 1, 0), ATTN_ERROR_BAD_FILE);
        assert_non_null(strstr(ctx->error, "it: JSON of about"));
        assert_int_equal(parse(cases[i].text, cases[i].depth - 1, cases[i].values, 0), ATTN_ERROR_BAD_FILE);
        assert_non_null(strstr(ctx->error, "it: JSON nested"));
    }
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(parse("[\"a\\u0000\"]", 1, 9, 1), ATTN_OK);
    assert_int_equal(parse("[\"a\\u0000\"]", 1, 9, 0), ATTN_ERROR_BAD_FILE);
    assert_int_equal(parse("{\"a\":1,\"a\":1}", 1, 9, 1), ATTN_ERROR_BAD_FILE);
    assert_non_null(strstr(ctx->error, "it: duplicate name"));
    assert_int_equal(parse("[1,]", 1, 9, 1), ATTN_ERROR_BAD_FILE);
    assert_non_null(strstr(ctx->error, "it: not valid JSON at byte 4"));
}

static void test_text(void **state)
{
    (void)state;
    char *text;
    int64_t bytes;
    json_t *root = json_pack("[i]", 7);
    assert_int_equal(attn__json_text(ctx, "it", root, JSON_COMPACT, &text, &bytes), ATTN_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(text, "[7]", 4); /* the NUL after it too */
    attn__deallocate(ctx->memory, text, bytes + 1);
    json_decref(root);
    assert_int_equal(attn__json_text(ctx, "it", NULL, 0, &text, &bytes), ATTN_ERROR_OUT_OF_MEMORY);
    assert_true(text == NULL && bytes == 0);
    assert_int_equal(counted.wrong, 0);
}

static void *take_little(size_t size)
{
    return size <= 2000 ? malloc(size) : NULL;
}

/* the parser reads past its buffer when it gets no memory for a long string: it is not called then */
static void test_string_without_memory(void **state)
{
    (void)state;
    char text[8001];
    json_malloc_t take;
    json_free_t give_back;
    memset(text, 'a', 8000);
    memcpy(text, "[\"", 2);
    memcpy(text + 7998, "\"]", 3);
    json_get_alloc_funcs(&take, &give_back);
    json_set_alloc_funcs(take_little, free);
    assert_int_equal(parse(text, 1, 9, 0), ATTN_ERROR_OUT_OF_MEMORY);
    json_set_alloc_funcs(take, give_back);
    assert_int_equal(parse(text, 1, 9, 0), ATTN_OK);
}

static void *dirty(void *user, uint64_t size, uint64_t alignment)
{
    const attn_allocator hooks = test_allocator_hooks(user);
    void *taken = hooks.allocate(user, size, alignment);
    return taken != NULL ? memset(taken, 0xA5, (size_t)size) : NULL;
}

static int setup(void **state)
{
    (void)state;
    attn_allocator allocator = test_allocator_hooks(&counted);
    attn_context_options options;
    allocator.allocate = dirty;
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_refused), cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_string_without_memory)};
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    return failed + (counted.live_pointers != 0 || counted.wrong != 0); /* a teardown that fails is not counted */
}

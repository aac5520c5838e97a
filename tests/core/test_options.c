#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <string.h>
#include <cmocka.h>
#include "core/options.h"

/* One struct in the three versions a caller may have been compiled with. */
typedef struct {
    uint64_t struct_size;
    int64_t a;
} old_options;
typedef struct {
    uint64_t struct_size;
    int64_t a, b;
} own_options;
typedef struct {
    uint64_t struct_size;
    int64_t a, b, c;
} new_options;

static const own_options defaults = {sizeof(own_options), 10, 20};
static attn_context *ctx;

static int create(void **state)
{
    (void)state;
    return attn_context_create(NULL, &ctx);
}

static int destroy(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

static void test_init(void **state)
{
    (void)state;
    old_options old;
    new_options new;
    memset(&old, 0xFF, sizeof old);
    memset(&new, 0xFF, sizeof new);
    assert_int_equal(attn__options_init(&old, sizeof old, &defaults, sizeof defaults), ATTN_OK);
    assert_int_equal(old.struct_size, sizeof old);
    assert_int_equal(old.a, 10);
    assert_int_equal(attn__options_init(&new, sizeof new, &defaults, sizeof defaults), ATTN_OK);
    assert_int_equal(new.struct_size, sizeof new);
    assert_int_equal(new.a, 10);
    assert_int_equal(new.b, 20);
    assert_int_equal(new.c, 0);
    assert_int_equal(attn__options_init(NULL, sizeof new, &defaults, sizeof defaults), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__options_init(&new, 7, &defaults, sizeof defaults), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__options_init(&new, 4097, &defaults, sizeof defaults), ATTN_ERROR_INVALID_ARGUMENT);
}

static attn_status read(const void *options, own_options *out)
{
    return attn__options_read(ctx, "options", options, &defaults, sizeof defaults, sizeof(old_options), out);
}

static void test_read(void **state)
{
    (void)state;
    own_options out;
    assert_int_equal(read(NULL, &out), ATTN_OK);
    assert_memory_equal(&out, &defaults, sizeof out);
    old_options old = {sizeof old, 0}; /* zero is a value */
    assert_int_equal(read(&old, &out), ATTN_OK);
    assert_int_equal(out.struct_size, sizeof out);
    assert_int_equal(out.a, 0);
    assert_int_equal(out.b, 20);
    new_options new = {sizeof new, 1, 2, 0};
    assert_int_equal(read(&new, &out), ATTN_OK);
    assert_int_equal(out.struct_size, sizeof out);
    assert_int_equal(out.a, 1);
    assert_int_equal(out.b, 2);
}

static void test_read_refuses(void **state)
{
    (void)state;
    own_options out;
    unsigned char large[4200] = {0};
    new_options *new = (new_options *)(void *)large;
    static const struct {
        uint64_t size;
        int64_t c;
        const char *text;
    } cases[] = {
        {0, 0, "struct_size 0, expected 16 to 4096"},
        {15, 0, "struct_size 15, expected 16"},
        {4097, 0, "struct_size 4097"},
        {UINT64_MAX, 0, "struct_size 18446744073709551615"},
        {sizeof(new_options), 1, "at byte 24 that this library does not know, it is older"},
        {sizeof(new_options), INT64_MIN, "at byte 31"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        new->struct_size = cases[i].size;
        new->c = cases[i].c;
        assert_int_equal(read(new, &out), ATTN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(ctx->error, "options: got "));
        assert_non_null(strstr(ctx->error, cases[i].text));
    }
    new->struct_size = 4096;
    new->c = 0;
    assert_int_equal(read(new, &out), ATTN_OK); /* a long tail of zeros says nothing */
}

static void test_report(void **state)
{
    (void)state;
    own_options values = {sizeof values, 1, 2};
    old_options old = {sizeof old, 0};
    new_options new = {sizeof new, 9, 9, 9};
    assert_int_equal(attn__report_write(ctx, "report", &old, &values, sizeof values, sizeof old), ATTN_OK);
    assert_int_equal(old.struct_size, sizeof old);
    assert_int_equal(old.a, 1);
    assert_int_equal(attn__report_write(ctx, "report", &new, &values, sizeof values, sizeof old), ATTN_OK);
    assert_int_equal(new.struct_size, sizeof new);
    assert_int_equal(new.a, 1);
    assert_int_equal(new.b, 2);
    assert_int_equal(new.c, 0);
    assert_int_equal(attn__report_write(ctx, "report", NULL, &values, sizeof values, sizeof old), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(ctx->error, "report: got NULL"));
    old = (old_options){8, 77};
    assert_int_equal(attn__report_write(ctx, "report", &old, &values, sizeof values, sizeof old), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(old.a, 77);
}

/* which ends belong to a range, and how far the table reaches */
static void test_ranges(void **state)
{
    (void)state;
    typedef struct {
        uint64_t struct_size;
        int64_t count;
        double open, half, any;
    } ranged;
    static const attn__field fields[] = {ATTN__INT64(ranged, count, ATTN__DERIVED, 1, 8),
                                         ATTN__REAL(ranged, open, ATTN__ABOVE, 0, HUGE_VAL), ATTN__REAL(ranged, half, ATTN__BELOW, 0, 1),
                                         ATTN__REAL(ranged, any, 0, -HUGE_VAL, HUGE_VAL)};
    const struct {
        ranged at;
        const char *text; /* NULL: fine */
    } cases[] = {
        {{0, 1, 1e-300, 0, -1e300}, NULL},
        {{0, 8, 1e300, 0.5, 1e300}, NULL},
        {{0, -1, 1, 0, 0}, NULL},
        {{0, 0, 1, 0, 0}, "it.count: got 0, expected 1 to 8, or -1"},
        {{0, 9, 1, 0, 0}, "it.count: got 9"},
        {{0, -2, 1, 0, 0}, "it.count: got -2"},
        {{0, 1, 0, 0, 0}, "it.open: got 0"},
        {{0, 1, HUGE_VAL, 0, 0}, "it.open: got inf, expected a finite number"},
        {{0, 1, 1, 1, 0}, "it.half: got 1, expected 0 to below 1"},
        {{0, 1, 1, NAN, 0}, "it.half: got "},
        {{0, 1, 1, 0, -HUGE_VAL}, "it.any: got -inf, expected a finite number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_status status = ATTN__CHECK(ctx, "it", &cases[i].at, fields);
        assert_int_equal(status, cases[i].text != NULL ? ATTN_ERROR_INVALID_ARGUMENT : ATTN_OK);
        if (status != ATTN_OK && strstr(ctx->error, cases[i].text) == NULL) fail_msg("got \"%s\"", ctx->error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init),   cmocka_unit_test(test_read),   cmocka_unit_test(test_read_refuses),
        cmocka_unit_test(test_report), cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}

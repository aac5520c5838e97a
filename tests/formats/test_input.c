#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "formats/input.h"
#include "support/model.h"

/* Files that are read: what of a long path is shown, what is no file, and that no descriptor stays behind. */
static const char PATH[] = "formats_input";
static attn_context *ctx;

static int next_descriptor(void)
{
    int next = dup(STDOUT_FILENO);
    assert_true(next >= 0);
    close(next);
    return next;
}

static void write_file(const char *text)
{
    FILE *file = fopen(PATH, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void test_path_shown(void **state)
{
    (void)state;
    char path[302];
    memset(path, 'a', 300);
    path[300] = 0;
    assert_ptr_equal(attn__path_shown(path + 100), path + 100); /* 200 bytes fit */
    assert_ptr_equal(attn__path_shown(path + 99), path + 100);
    assert_ptr_equal(attn__path_shown(path), path + 100);
    memcpy(path + 98, "\xF0\x9F\x98\x8A", 4); /* not from the middle of a character */
    assert_ptr_equal(attn__path_shown(path), path + 102);
}

static void test_refused(void **state)
{
    (void)state;
    int32_t descriptor = 7;
    int64_t bytes = 7;
    int next = next_descriptor();
    FAILS(ctx, attn__check_path(ctx, NULL), ATTN_ERROR_INVALID_ARGUMENT, "path: got NULL");
    FAILS(ctx, attn__check_path(ctx, ""), ATTN_ERROR_INVALID_ARGUMENT, "path: got \"\"");
    FAILS(ctx, attn__input_open(ctx, ".", &descriptor, &bytes), ATTN_ERROR_IO, ".: cannot be read: ");
    unlink(PATH);
    assert_int_equal(mkfifo(PATH, 0600), 0); /* nobody writes: an open that waits would not come back */
    alarm(10);
    FAILS(ctx, attn__input_open(ctx, PATH, &descriptor, &bytes), ATTN_ERROR_IO, "not a regular file");
    alarm(0);
    assert_int_equal(unlink(PATH), 0);
    FAILS(ctx, attn__input_open(ctx, PATH, &descriptor, &bytes), ATTN_ERROR_IO, "cannot be opened");
    assert_true(descriptor == -1 && bytes == 0);
    assert_int_equal(next_descriptor(), next);
}

static void test_read(void **state)
{
    (void)state;
    char text[8] = "";
    int32_t descriptor;
    int64_t bytes;
    write_file("0123456789");
    OK(ctx, attn__input_open(ctx, PATH, &descriptor, &bytes));
    assert_int_equal(bytes, 10);
    OK(ctx, attn__input_read(ctx, PATH, descriptor, 6, text, 4));
    assert_memory_equal(text, "6789", 4);
    OK(ctx, attn__input_read(ctx, PATH, descriptor, 10, text, 0));
    FAILS(ctx, attn__input_read(ctx, PATH, descriptor, 7, text, 8), ATTN_ERROR_BAD_FILE, "ends at byte 10, expected 5 more");
    attn__input_close(descriptor);
    attn__input_close(-1);
    unlink(PATH);
}

/* a program without standard input gets its number for the first file it opens */
static void test_descriptor_0(void **state)
{
    (void)state;
    int32_t descriptor;
    int64_t bytes;
    int kept = dup(STDIN_FILENO);
    write_file("0");
    close(STDIN_FILENO);
    OK(ctx, attn__input_open(ctx, PATH, &descriptor, &bytes));
    assert_int_equal(descriptor, STDIN_FILENO);
    attn__input_close(descriptor);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    unlink(PATH);
}

static int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_path_shown), cmocka_unit_test(test_refused), cmocka_unit_test(test_read),
                                       cmocka_unit_test(test_descriptor_0)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

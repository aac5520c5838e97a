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

#include "formats/safetensors.h"

/* Every type that is written comes back with its bytes; the pieces of a tensor are counted as they come. */
#define OK(call) assert_int_equal(call, ATTN_OK)
enum { ELEMENTS = 6, MOST_BYTES = 8 * ELEMENTS };
static const struct {
    const char *name;
    int32_t dtype, bytes;
} types[] = {{"f32", ATTN_FLOAT32, 4}, {"f64", ATTN_FLOAT64, 8},   {"i32", ATTN_INT32, 4}, {"i64", ATTN_INT64, 8},
             {"f16", ATTN_FLOAT16, 2}, {"bf16", ATTN_BFLOAT16, 2}, {"u8", ATTN_UINT8, 1}};
enum { TYPES = sizeof types / sizeof types[0] };

static attn_context *ctx;
static char folder[] = "/tmp/attn-test-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file.safetensors", folder);
    return attn_context_create(NULL, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    rmdir(folder);
    attn_context_free(ctx);
    return 0;
}

static void test_every_type(void **state)
{
    static const int64_t shape[2] = {2, 3};
    unsigned char bytes[TYPES][MOST_BYTES], got[MOST_BYTES];
    attn__writer *writer = NULL;
    attn__file *file = NULL;
    (void)state;
    OK(attn__writer_create(ctx, &writer));
    for (int i = 0; i < TYPES; i++) {
        for (int b = 0; b < MOST_BYTES; b++) bytes[i][b] = (unsigned char)(i * 50 + b);
        OK(attn__writer_tensor(ctx, writer, types[i].name, types[i].dtype, 2, shape, bytes[i]));
    }
    OK(attn__file_write(ctx, writer, path));
    attn__writer_free(writer);
    OK(attn__file_open(ctx, path, &file));
    assert_int_equal(file->count, TYPES);
    for (int i = 0; i < TYPES; i++) {
        int64_t index = attn__file_find(file, types[i].name), size = ELEMENTS * types[i].bytes;
        assert_true(index >= 0);
        const attn__file_entry *entry = &file->entries[index];
        assert_int_equal(entry->dtype, types[i].dtype);
        assert_int_equal(entry->end - entry->begin, size);
        assert_true(entry->rank == 2 && entry->shape[0] == 2 && entry->shape[1] == 3);
        OK(attn__file_read(ctx, file, index, got, size));
        assert_memory_equal(got, bytes[i], (size_t)size);
        assert_int_equal(attn__file_read(ctx, file, index, got, size + 1), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(attn__file_read(ctx, file, index, got, size - 1), ATTN_ERROR_INVALID_ARGUMENT);
    }
    attn__file_close(file);
}

/* more than is left is refused at once, and what fits still goes in */
static void test_pieces(void **state)
{
    static const int64_t shape[1] = {2};
    static const float numbers[2] = {1, 2};
    attn__writer *writer = NULL;
    (void)state;
    OK(attn__writer_create(ctx, &writer));
    OK(attn__writer_tensor(ctx, writer, "x", ATTN_FLOAT32, 1, shape, NULL));
    assert_int_equal(attn__writer_chunk(ctx, writer, numbers, 9), ATTN_ERROR_INVALID_ARGUMENT);
    OK(attn__writer_chunk(ctx, writer, numbers, 6));
    assert_int_equal(attn__writer_chunk(ctx, writer, numbers, 3), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "at most 2"));
    assert_int_equal(attn__file_write(ctx, writer, path), ATTN_ERROR_INVALID_ARGUMENT);
    OK(attn__writer_chunk(ctx, writer, (const char *)numbers + 6, 2));
    OK(attn__file_write(ctx, writer, path));
    attn__writer_free(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_type), cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

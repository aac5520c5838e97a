#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "formats/safetensors.h"
#include "support/model.h"

/* What a safetensors file may hold at most, from both sides, and the forms of a tensor's entry one by one. */
static const char PATH[] = "formats_limits.safetensors";
static attn_context *ctx;

static attn__writer *new_writer(void)
{
    attn__writer *writer = NULL;
    OK(ctx, attn__writer_create(ctx, &writer));
    return writer;
}

static void put(const char *header, size_t bytes, size_t data_bytes)
{
    FILE *file = fopen(PATH, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++) fputc((int)(bytes >> (8 * i) & 0xFF), file);
    assert_int_equal(fwrite(header, 1, bytes, file), bytes);
    for (size_t i = 0; i < data_bytes; i++) fputc(0, file);
    assert_int_equal(fclose(file), 0);
}

static void refused(const char *header, size_t bytes, size_t data_bytes, const char *says)
{
    attn__file *file = NULL;
    put(header, bytes, data_bytes);
    FAILS(ctx, attn__file_open(ctx, PATH, &file), ATTN_ERROR_BAD_FILE, says);
    assert_null(file);
}

/* each of the three fields left out for another, and of another type */
static void test_entries(void **state)
{
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"{\"a\":{\"x\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", "expected exactly dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"x\":1,\"data_offsets\":[0,1]}}", "expected exactly dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"x\":1}}", "expected exactly dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", "expected exactly dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{}}}", "expected exactly dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}", "shape: expected integers"},
        {"{\"a\":1}", "not an object"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]},"
         "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         NULL}, /* one that is empty comes before one that begins with it */
        {"{\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         NULL}};
    (void)state;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        attn__file *file = NULL;
        if (cases[i].says != NULL) {
            refused(cases[i].header, strlen(cases[i].header), 1, cases[i].says);
            continue;
        }
        put(cases[i].header, strlen(cases[i].header), 1);
        OK(ctx, attn__file_open(ctx, PATH, &file));
        assert_string_equal(file->entries[0].name, "c");
        assert_string_equal(file->entries[1].name, "a");
        attn__file_close(file);
    }
}

/* a header of so many entries: of tensors that are none, or of metadata */
static void many(int metadata, int entries, const char *says)
{
    char *header = malloc((size_t)entries * 16 + 64);
    assert_non_null(header);
    size_t at = (size_t)sprintf(header, metadata ? "{\"__metadata__\":{" : "{");
    for (int i = 0; i < entries; i++) at += (size_t)sprintf(header + at, metadata ? "%s\"%d\":\"\"" : "%s\"%d\":0", i > 0 ? "," : "", i);
    at += (size_t)sprintf(header + at, metadata ? "}}" : "}");
    if (says != NULL) {
        refused(header, at, 0, says);
    } else {
        attn__file *file = NULL;
        put(header, at, 0);
        OK(ctx, attn__file_open(ctx, PATH, &file));
        assert_int_equal(file->metadata_count, entries);
        attn__file_close(file);
    }
    free(header);
}

static void test_many_entries(void **state)
{
    (void)state;
    many(1, ATTN__FILE_ENTRIES, NULL);
    many(1, ATTN__FILE_ENTRIES + 1, "more than 100000");
    many(0, ATTN__FILE_ENTRIES + 1, "more than 100000");
}

static void test_writer_counts(void **state)
{
    char name[16];
    const int64_t none = 0;
    attn__writer *writer = new_writer();
    (void)state;
    for (int i = 0; i <= ATTN__FILE_ENTRIES; i++) {
        snprintf(name, sizeof name, "%d", i);
        attn_status tensor = attn__writer_tensor(ctx, writer, name, ATTN_UINT8, 1, &none, NULL);
        attn_status entry = attn__writer_metadata(ctx, writer, name, "");
        assert_int_equal(tensor, i < ATTN__FILE_ENTRIES ? ATTN_OK : ATTN_ERROR_TOO_LARGE);
        assert_int_equal(entry, tensor);
    }
    attn__writer_free(writer);
}

/* data that overflows together, a header over its limit: nothing is written */
static void test_writer_sizes(void **state)
{
    const int64_t half = INT64_C(1) << 62;
    attn__writer *writer = new_writer();
    (void)state;
    (void)unlink(PATH);
    for (int i = 0; i < 2; i++) OK(ctx, attn__writer_tensor(ctx, writer, i ? "a" : "b", ATTN_UINT8, 1, &half, "never read"));
    FAILS(ctx, attn__file_write(ctx, writer, PATH), ATTN_ERROR_TOO_LARGE, "overflows");
    attn__writer_free(writer);
    char *text = malloc(ATTN__FILE_HEADER_BYTES + 1);
    assert_non_null(text);
    memset(text, 'x', ATTN__FILE_HEADER_BYTES);
    text[ATTN__FILE_HEADER_BYTES] = 0;
    writer = new_writer();
    OK(ctx, attn__writer_metadata(ctx, writer, "k", text));
    FAILS(ctx, attn__file_write(ctx, writer, PATH), ATTN_ERROR_TOO_LARGE, "header");
    FAILS(ctx, attn__file_write(ctx, writer, NULL), ATTN_ERROR_INVALID_ARGUMENT, "path");
    attn__writer_free(writer);
    free(text);
    assert_int_equal(access(PATH, F_OK), -1);
}

static void test_writer_arguments(void **state)
{
    const int64_t two = 2;
    attn__file *file = NULL;
    attn__writer *writer = new_writer();
    (void)state;
    FAILS(ctx, attn__writer_metadata(ctx, writer, "k", NULL), ATTN_ERROR_INVALID_ARGUMENT, "value");
    FAILS(ctx, attn__writer_tensor(ctx, writer, "a", ATTN_UINT8, -1, &two, "xy"), ATTN_ERROR_SHAPE, "rank -1");
    FAILS(ctx, attn__writer_tensor(ctx, writer, "a", ATTN_UINT8, 1, NULL, "xy"), ATTN_ERROR_SHAPE, "shape");
    OK(ctx, attn__writer_tensor(ctx, writer, "a", ATTN_UINT8, 1, &two, NULL));
    FAILS(ctx, attn__writer_chunk(ctx, writer, "x", -1), ATTN_ERROR_INVALID_ARGUMENT, "-1 bytes");
    FAILS(ctx, attn__writer_chunk(ctx, writer, NULL, 1), ATTN_ERROR_INVALID_ARGUMENT, "at NULL");
    OK(ctx, attn__writer_chunk(ctx, writer, NULL, 0));
    OK(ctx, attn__writer_chunk(ctx, writer, "xy", 2));
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
    OK(ctx, attn__file_open(ctx, PATH, &file));
    assert_int_equal(file->count, 1);
    attn__file_close(file);
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
    (void)unlink(PATH);
    attn_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_entries), cmocka_unit_test(test_many_entries),
                                       cmocka_unit_test(test_writer_counts), cmocka_unit_test(test_writer_sizes),
                                       cmocka_unit_test(test_writer_arguments)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

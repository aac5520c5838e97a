#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "formats/safetensors.h"
#include "support/model.h"

/* Tensors of a file through the public calls: names in the order of the data, every type and shape that tensors have, and refusals. */
#define PATH "formats_files.safetensors"

enum { TENSORS = 9 };
static const struct {
    const char *name;
    int32_t dtype, rank;
    int64_t shape[3];
    int64_t bytes;
} written[TENSORS] = {{"query", ATTN_FLOAT32, 3, {2, 1, 3}, 24},
                      {"a/b \xC3\xA9", ATTN_FLOAT64, 1, {3}, 24},
                      {"scalar", ATTN_FLOAT32, 0, {0}, 4},
                      {"empty", ATTN_FLOAT32, 2, {0, 5}, 0},
                      {"ids", ATTN_INT32, 1, {2}, 8},
                      {"longer ids", ATTN_INT64, 2, {1, 2}, 16},
                      {"mask", ATTN_UINT8, 1, {5}, 5},
                      {"half", ATTN_FLOAT16, 1, {2}, 4},
                      {"brain", ATTN_BFLOAT16, 1, {1}, 2}};

/* byte k of tensor i */
static unsigned char byte_of(int64_t i, int64_t k)
{
    return (unsigned char)(7 * i + 3 * k + 1);
}

static void write_file(attn_context *ctx)
{
    attn__writer *writer = NULL;
    unsigned char data[TENSORS][32];
    OK(ctx, attn__writer_create(ctx, &writer));
    for (int64_t i = 0; i < TENSORS; i++) {
        for (int64_t k = 0; k < 32; k++) data[i][k] = byte_of(i, k);
        OK(ctx, attn__writer_tensor(ctx, writer, written[i].name, written[i].dtype, written[i].rank, written[i].shape, data[i]));
    }
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
}

static void test_read(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_memory_report before = {.struct_size = sizeof before}, after = before;
    char name[160];
    int64_t bytes = 0;
    write_file(ctx);
    OK(ctx, attn_context_memory(ctx, &before));
    for (int64_t i = 0; i < TENSORS; i++) {
        attn_tensor *t = NULL;
        OK(ctx, attn_file_tensor_name(ctx, PATH, i, sizeof name, name, &bytes));
        assert_string_equal(name, written[i].name);
        assert_int_equal(bytes, strlen(name) + 1);
        if (written[i].dtype == ATTN_FLOAT16 || written[i].dtype == ATTN_BFLOAT16) {
            FAILS(ctx, attn_file_read_tensor(ctx, PATH, name, &t), ATTN_ERROR_DTYPE, "float16");
            assert_null(t);
            continue;
        }
        OK(ctx, attn_file_read_tensor(ctx, PATH, name, &t));
        assert_int_equal(attn_tensor_dtype(t), written[i].dtype);
        assert_int_equal(attn_tensor_rank(t), written[i].rank);
        for (int32_t axis = 0; axis < written[i].rank; axis++) assert_int_equal(attn_tensor_extent(t, axis), written[i].shape[axis]);
        const unsigned char *got = attn_tensor_data_const(t);
        for (int64_t k = 0; k < written[i].bytes; k++) assert_int_equal(got[k], byte_of(i, k));
        attn_tensor_free(t);
    }
    FAILS(ctx, attn_file_tensor_name(ctx, PATH, TENSORS, sizeof name, name, &bytes), ATTN_ERROR_END_OF_DATA, "index: got 9");
    OK(ctx, attn_context_memory(ctx, &after));
    assert_int_equal(after.live, before.live);
    unlink(PATH);
    attn_context_free(ctx);
}

/* the exact room is enough, one byte less is told, and a failure leaves nothing behind */
static void test_refusals(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_tensor *t = NULL;
    char name[6] = "xxxxx";
    int64_t bytes = 0;
    write_file(ctx);
    FAILS(ctx, attn_file_tensor_name(ctx, PATH, 0, 5, name, &bytes), ATTN_ERROR_FULL, "capacity: got 5 bytes, expected at least 6");
    assert_int_equal(bytes, 6);
    assert_string_equal(name, "xxxxx");
    OK(ctx, attn_file_tensor_name(ctx, PATH, 0, 6, name, &bytes));
    assert_string_equal(name, "query");
    FAILS(ctx, attn_file_read_tensor(ctx, PATH, "quer", &t), ATTN_ERROR_END_OF_DATA, "\"quer\"");
    assert_null(t);
    assert_int_equal(truncate(PATH, 400), 0);
    FAILS(ctx, attn_file_read_tensor(ctx, PATH, "query", &t), ATTN_ERROR_BAD_FILE, PATH);
    assert_null(t);
    unlink(PATH);
    FAILS(ctx, attn_file_read_tensor(ctx, PATH, "query", &t), ATTN_ERROR_IO, PATH);
    assert_null(t);
    attn_context_free(ctx);
}

/* a file may have types that nothing here computes with: they are named, and what is beside them can be read */
static void test_other_types(void **state)
{
    static const char *const types[3] = {"BOOL", "I16", "F8_E4M3"};
    static const int sizes[3] = {1, 2, 1};
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    for (int i = 0; i < 3; i++) {
        attn_tensor *t = NULL;
        char header[160] = "";
        FILE *file = fopen(PATH, "wb");
        assert_non_null(file);
        unsigned char length[8] = {0}, data[8] = {3, 0, 0, 0};
        int bytes = snprintf(header, sizeof header,
                             "{\"known\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                             "\"other\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[4,%d]}}",
                             types[i], 4 + 2 * sizes[i]);
        length[0] = (unsigned char)bytes;
        assert_true(fwrite(length, 1, 8, file) == 8 && fwrite(header, 1, (size_t)bytes, file) == (size_t)bytes);
        assert_true(fwrite(data, 1, (size_t)(4 + 2 * sizes[i]), file) == (size_t)(4 + 2 * sizes[i]));
        assert_int_equal(fclose(file), 0);
        FAILS(ctx, attn_file_read_tensor(ctx, PATH, "other", &t), ATTN_ERROR_DTYPE,
              "\"other\" has elements of a type that libattn does not compute with");
        assert_null(t);
        OK(ctx, attn_file_read_tensor(ctx, PATH, "known", &t));
        assert_int_equal(*(const int32_t *)attn_tensor_data_const(t), 3);
        attn_tensor_free(t);
    }
    unlink(PATH);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_refusals), cmocka_unit_test(test_other_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "formats/digest.h"
#include "support/model.h"

/* The digest that a checkpoint carries: any bit that flips in the file is noticed when it is opened or verified. */
static const char PATH[] = "formats_digest.safetensors", KEY[] = "attn.digest";
enum { MOST = 4096 };
#define SUM_TENSOR UINT64_C(0xa5ec6575f97ea268)
#define SUM_METADATA UINT64_C(0xd1a6c693719ded75)

static uint64_t digest_of(const unsigned char *data, int64_t bytes, int64_t piece)
{
    attn__digest digest;
    attn__digest_start(&digest);
    for (int64_t at = 0; at < bytes; at += piece) attn__digest_add(&digest, data + at, bytes - at < piece ? bytes - at : piece);
    return attn__digest_end(&digest);
}

static void test_pieces(void **state)
{
    (void)state;
    unsigned char data[100];
    random_state random = {1};
    for (int i = 0; i < 100; i++) data[i] = (unsigned char)random_bits(&random);
    for (int64_t bytes = 0; bytes <= 100; bytes++) {
        uint64_t whole = digest_of(data, bytes, 100);
        for (int64_t piece = 1; piece < 20; piece++) assert_true(digest_of(data, bytes, piece) == whole);
        for (int64_t bit = 0; bit < 8 * bytes; bit++) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_true(digest_of(data, bytes, 100) != whole);
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        if (bytes == 100) break;
        unsigned char after = data[bytes];
        data[bytes] = 0; /* a zero more is another text */
        assert_true(digest_of(data, bytes + 1, 100) != whole);
        data[bytes] = after;
    }
}

static void write_file(attn_context *ctx, int seal)
{
    static const float numbers[6] = {1, -2, 3.5F, 0, 1e-30F, -1e30F};
    static const unsigned char bytes[3] = {1, 2, 3};
    attn__writer *writer;
    OK(ctx, attn__writer_create(ctx, &writer));
    OK(ctx, attn__writer_tensor(ctx, writer, "a", ATTN_FLOAT32, 2, (const int64_t[]){2, 3}, numbers));
    OK(ctx, attn__writer_metadata(ctx, writer, "one", "two"));
    OK(ctx, attn__writer_tensor(ctx, writer, "b", ATTN_UINT8, 1, (const int64_t[]){3}, NULL));
    OK(ctx, attn__writer_chunk(ctx, writer, bytes, 1));
    OK(ctx, attn__writer_chunk(ctx, writer, bytes + 1, 2));
    OK(ctx, attn__writer_tensor(ctx, writer, "empty", ATTN_FLOAT64, 2, (const int64_t[]){0, 4}, NULL));
    if (seal) OK(ctx, attn__writer_seal(ctx, writer, KEY));
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
}

static attn_status open_and_verify(attn_context *ctx)
{
    attn__file *file;
    attn_status status = attn__file_open(ctx, PATH, &file);
    if (status == ATTN_OK) status = attn__file_verify(ctx, file, KEY);
    attn__file_close(file);
    return status;
}

static size_t read_file(unsigned char data[MOST])
{
    FILE *file = fopen(PATH, "rb");
    assert_non_null(file);
    size_t bytes = fread(data, 1, MOST, file);
    fclose(file);
    return bytes;
}

static void test_every_flipped_bit(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    unsigned char data[MOST];
    write_file(ctx, 1);
    OK(ctx, open_and_verify(ctx));
    size_t bytes = read_file(data), key = (size_t)((const unsigned char *)memmem(data, bytes, KEY, strlen(KEY)) - data);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        int in_key = bit / 8 >= key && bit / 8 < key + strlen(KEY); /* then the file says that it has no digest */
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        unlink(PATH); /* some file systems wait for the disk when a file is cut and written again */
        FILE *file = fopen(PATH, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(data, 1, bytes, file), bytes);
        assert_int_equal(fclose(file), 0);
        attn_status status = open_and_verify(ctx);
        if (!in_key || status != ATTN_OK) assert_int_equal(status, ATTN_ERROR_BAD_FILE);
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_int_equal(unlink(PATH), 0);
    attn_context_free(ctx);
}

/* what is named is told apart, and the numbers are those of files that were sealed before */
static void test_heads(void **state)
{
    (void)state;
    assert_true(attn__digest_metadata("ab", "c") != attn__digest_metadata("a", "bc"));
    const struct {
        const char *name;
        int32_t dtype, rank;
        int64_t shape[2];
    } heads[] = {{"a", ATTN_FLOAT32, 2, {2, 3}},
                 {"a", ATTN_FLOAT32, 2, {2, 4}},
                 {"a", ATTN_INT32, 2, {2, 3}},
                 {"a", ATTN_FLOAT32, 1, {2, 3}},
                 {"b", ATTN_FLOAT32, 2, {2, 3}}};
    uint64_t sums[5];
    for (int i = 0; i < 5; i++) {
        attn__digest digest;
        attn__digest_tensor(&digest, heads[i].name, heads[i].dtype, heads[i].rank, heads[i].shape);
        sums[i] = attn__digest_end(&digest);
        for (int j = 0; j < i; j++) assert_true(sums[i] != sums[j]);
    }
    if (*(const unsigned char *)&(const uint16_t){1} != 1) return; /* the numbers are for the little end first */
    if (sums[0] != SUM_TENSOR || attn__digest_metadata("ab", "c") != SUM_METADATA)
        fail_msg("got %016llx, %016llx", (unsigned long long)sums[0], (unsigned long long)attn__digest_metadata("ab", "c"));
}

/* more than is read at once */
static void test_long_tensor(void **state)
{
    (void)state;
    enum { BYTES = 300000 };
    test_allocator allocator = {0};
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 1);
    attn__writer *writer;
    static unsigned char bytes[BYTES];
    for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i / 251 + i);
    OK(ctx, attn__writer_create(ctx, &writer));
    OK(ctx, attn__writer_tensor(ctx, writer, "long", ATTN_UINT8, 1, (const int64_t[]){BYTES}, bytes));
    OK(ctx, attn__writer_seal(ctx, writer, KEY));
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
    OK(ctx, open_and_verify(ctx));
    assert_int_equal(unlink(PATH), 0);
    attn_context_free(ctx);
    assert_true(allocator.wrong == 0 && allocator.live_pointers == 0);
}

/* files from before, or of other makers */
static void test_without_digest(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    write_file(ctx, 0);
    OK(ctx, open_and_verify(ctx));
    attn__writer *writer; /* an empty one is not the beginning of the right one */
    OK(ctx, attn__writer_create(ctx, &writer));
    OK(ctx, attn__writer_metadata(ctx, writer, KEY, ""));
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
    assert_int_equal(open_and_verify(ctx), ATTN_ERROR_BAD_FILE);
    assert_int_equal(unlink(PATH), 0);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_heads), cmocka_unit_test(test_long_tensor),
                                       cmocka_unit_test(test_every_flipped_bit), cmocka_unit_test(test_without_digest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

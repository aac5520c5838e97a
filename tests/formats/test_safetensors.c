#include <attn/attn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/random.h"
#include "formats/safetensors.h"
#include "support/allocator.h"

static attn_context *ctx;
static char folder[] = "/tmp/attn-test-XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file.safetensors", folder);
    attn_context_options options;
    attn_context_options_init(&options, sizeof options);
    options.threads = 1;
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

static int64_t live_bytes(void)
{
    attn_memory_report report = {.struct_size = sizeof report};
    assert_int_equal(attn_context_memory(ctx, &report), ATTN_OK);
    return report.live;
}

static int64_t peak_bytes(void)
{
    attn_memory_report report = {.struct_size = sizeof report};
    assert_int_equal(attn_context_memory(ctx, &report), ATTN_OK);
    return report.peak;
}

static void put(const void *bytes, size_t count)
{
    unlink(path); /* some file systems wait for the disk when a file is truncated and written again */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* A file of a header and so many bytes of data (byte i is i); length: what the first 8 bytes say, -1: the truth */
static void put_file(const char *header, size_t header_bytes, int64_t length, size_t data_bytes)
{
    static char buffer[1 << 21];
    uint64_t says = length < 0 ? header_bytes : (uint64_t)length;
    for (int i = 0; i < 8; i++) buffer[i] = (char)(says >> (8 * i) & 0xFF);
    memcpy(buffer + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++) buffer[8 + header_bytes + i] = (char)(i & 0xFF);
    put(buffer, 8 + header_bytes + data_bytes);
}

static char *get(size_t *count)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    static char buffer[1 << 16];
    *count = fread(buffer, 1, sizeof buffer, file);
    fclose(file);
    return buffer;
}

static void expect_refused(attn_status code, const char *says)
{
    attn__file *file = (attn__file *)&code;
    int64_t before = live_bytes();
    attn_context_reset_peak(ctx);
    attn_status status = attn__file_open(ctx, path, &file);
    if (status != code || strstr(attn_context_last_error(ctx), says) == NULL)
        print_message("got %d '%s', expected %d '%s'\n", (int)status, attn_context_last_error(ctx), (int)code, says);
    assert_int_equal(status, code);
    assert_null(file);
    assert_non_null(strstr(attn_context_last_error(ctx), says));
    assert_non_null(strstr(attn_context_last_error(ctx), path)); /* the message says which file */
    assert_int_equal(live_bytes(), before);
    assert_true(peak_bytes() - before < 1 << 20);
}

typedef struct hostile {
    const char *header;
    size_t data;
    const char *says;
} hostile;

#define A(offsets) "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" offsets "}}"
#define T(name, shape, offsets) "\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* B135 B137 B139 B144 B145 and the rules of the format */
static const hostile headers[] = {
    {A("[]"), 4, "expected two integers"},
    {A("[4]"), 4, "expected two integers"},
    {A("[0,4,4]"), 4, "expected two integers"},
    {A("[8,4]"), 8, "do not lie"},
    {A("[0,1099511627776]"), 4, "do not lie"},
    {A("[-4,0]"), 4, "expected two integers"},
    {A("[0,4.0]"), 4, "expected two integers"},
    {A("[0,9223372036854775808]"), 4, "not valid JSON"},
    {A("\"0,4\""), 4, "expected exactly dtype"},
    {A("[0,8]"), 8, "span 8 bytes, expected 4"},
    {"{" T("a", "[2]", "[0,2]") "," T("a", "[2]", "[2,4]") "}", 4, "duplicate name"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "duplicate name"},
    {"{\"a\":{\"dtype\":\"X9\",\"shape\":[1],\"data_offsets\":[9223372036854775807,8]}}", 8, "unknown dtype"},
    {"{\"a\":{\"dtype\":\"X9\",\"shape\":[1],\"data_offsets\":[9223372036854775808,8]}}", 8, "not valid JSON"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "expected exactly dtype"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1, "expected exactly dtype"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "expected exactly dtype"},
    {"{\"a\":[]}", 0, "not an object"},
    {"{" T("a", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "got rank 9"},
    {"{" T("a", "[-1]", "[0,1]") "}", 1, "shape: expected integers"},
    {"{" T("a", "[4294967296,4294967296]", "[0,0]") "}", 0, "overflows"},
    {"{" T("a", "[0,4294967296,4294967296]", "[0,0]") "}", 0, "overflows"},
    {"{" T("a", "[[1]]", "[0,1]") "}", 1, "nested 4 deep"},
    {"{" T("a", "[2]", "[0,2]") "," T("b", "[2]", "[3,5]") "}", 5, "a hole"},
    {"{" T("a", "[2]", "[1,3]") "}", 3, "a hole"},
    {"{" T("a", "[2]", "[0,2]") "," T("b", "[2]", "[1,3]") "}", 3, "an overlap"},
    {"{" T("a", "[2]", "[0,2]") "," T("b", "[2]", "[0,2]") "}", 2, "an overlap"},
    {"{" T("a", "[2]", "[0,2]") "}", 3, "end at byte 2"},
    {"{}", 1, "end at byte 0"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "strings only"},
    {"{\"__metadata__\":[]}", 0, "expected an object"},
    {"{} x", 0, "padding by spaces"},
    {"{}\n", 0, "padding by spaces"},
    {"{}{}", 0, "not valid JSON"},
    {" {}", 0, "does not start with '{'"},
    {"[]", 0, "does not start with '{'"},
    {"{\"a\\u0000b\":{}}", 0, "not valid JSON"},
    {"{\"\xC3\x28\":{}}", 0, "not valid JSON"},
    {"{\"a\":", 0, "padding by spaces"},
};

static void test_hostile_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        put_file(headers[i].header, strlen(headers[i].header), -1, headers[i].data);
        expect_refused(ATTN_ERROR_BAD_FILE, headers[i].says);
    }
    put_file("{}\0\0\0\0\0\0", 8, -1, 0);
    expect_refused(ATTN_ERROR_BAD_FILE, "ends with byte 0x00");
}

static void test_hostile_lengths(void **state)
{
    (void)state;
    static const int64_t lengths[] = {INT64_MIN + 1, INT64_MIN, 100000001, 100000000, 3, 1, 0, INT64_MAX, INT64_MIN + 100000000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char raw[10];
        for (int b = 0; b < 8; b++) raw[b] = (char)((uint64_t)lengths[i] >> (8 * b) & 0xFF);
        memcpy(raw + 8, "{}", 2);
        put(raw, sizeof raw);
        expect_refused(ATTN_ERROR_BAD_FILE, lengths[i] == 100000000 || lengths[i] == 3 ? "truncated" : "expected 2 to 100000000");
    }
    put("", 0);
    expect_refused(ATTN_ERROR_BAD_FILE, "got 0 bytes");
}

/* Rank of 10^6, nesting of 10^5, a name of 160 bytes: refused with little memory taken */
static void test_hostile_sizes(void **state)
{
    (void)state;
    static char header[1 << 21];
    int at = snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1");
    for (int i = 1; i < 250000; i++) at += snprintf(header + at, 3, ",1");
    at += snprintf(header + at, 8, "]}}");
    put_file(header, (size_t)at, -1, 1);
    expect_refused(ATTN_ERROR_BAD_FILE, "got rank 250000");
    memset(header, '[', 100000);
    memcpy(header, "{\"a\":", 5);
    header[100000] = '}';
    put_file(header, 100001, -1, 0);
    expect_refused(ATTN_ERROR_BAD_FILE, "deep");
    char name[161];
    for (int bytes = 159; bytes <= 160; bytes++) {
        memset(name, 'n', sizeof name);
        name[bytes] = 0;
        at = snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
        put_file(header, (size_t)at, -1, 1);
        if (bytes == 160) {
            expect_refused(ATTN_ERROR_BAD_FILE, "longer than 159");
            continue;
        }
        attn__file *file;
        assert_int_equal(attn__file_open(ctx, path, &file), ATTN_OK);
        assert_int_equal(attn__file_find(file, name), 0);
        attn__file_close(file);
    }
}

/* What is legal: spaces, order by offset and not by header, rank 0, empty tensors, empty metadata (B141), types without a number */
static void test_accepted(void **state)
{
    (void)state;
    const char *header = "{" T("b", "[2]", "[4,6]") ",\"__metadata__\":{}," T("a", "[]", "[0,1]") "," T(
        "empty", "[0,7]", "[1,1]") ","
                                   "\"c\":{\"shape\":[3],\"data_offsets\":[1,4],\"dtype\":\"BOOL\"}}     ";
    put_file(header, strlen(header), -1, 6);
    attn__file *file;
    assert_int_equal(attn__file_open(ctx, path, &file), ATTN_OK);
    assert_int_equal(file->count, 4);
    assert_int_equal(file->metadata_count, 0);
    static const char *const order[] = {"a", "empty", "c", "b"};
    for (int64_t i = 0; i < 4; i++) {
        assert_string_equal(file->entries[i].name, order[i]);
        assert_int_equal(attn__file_find(file, order[i]), i);
    }
    assert_int_equal(attn__file_find(file, "d"), -1);
    assert_int_equal(attn__file_find(file, ""), -1);
    assert_int_equal(file->entries[0].rank, 0);
    assert_int_equal(file->entries[0].dtype, ATTN_UINT8);
    assert_int_equal(file->entries[1].shape[1], 7);
    assert_int_equal(file->entries[2].dtype, 0);
    unsigned char data[3] = {9, 9, 9};
    assert_int_equal(attn__file_read(ctx, file, 3, data, 2), ATTN_OK);
    assert_memory_equal(data, "\4\5\11", 3);
    assert_int_equal(attn__file_read(ctx, file, 1, NULL, 0), ATTN_OK);
    assert_int_equal(attn__file_read(ctx, file, 3, data, 3), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__file_read(ctx, file, 4, data, 1), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__file_read(ctx, file, -1, data, 1), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(truncate(path, (off_t)file->data_start + 5), 0); /* after it was opened */
    assert_int_equal(attn__file_read(ctx, file, 3, data, 2), ATTN_ERROR_BAD_FILE);
    assert_non_null(strstr(attn_context_last_error(ctx), "truncated"));
    attn__file_close(file);
    attn__file_close(NULL);
}

static const float weights[6] = {1, -2, 3.5f, 4, 5, 6};
static const int64_t numbers[2] = {INT64_MIN, 7};

/* Two tensors, one of them in chunks, a scalar, an empty one, and metadata that needs escapes */
static attn__writer *small_writer(void)
{
    attn__writer *writer;
    const int64_t shape[2] = {2, 3}, two = 2, none[2] = {3, 0};
    assert_int_equal(attn__writer_create(ctx, &writer), ATTN_OK);
    assert_int_equal(attn__writer_metadata(ctx, writer, "format", "attn"), ATTN_OK);
    assert_int_equal(attn__writer_metadata(ctx, writer, "text", "\"[[[[[\\/\n\x7F\xC3\xA9"), ATTN_OK);
    assert_int_equal(attn__writer_tensor(ctx, writer, "w", ATTN_FLOAT32, 2, shape, NULL), ATTN_OK);
    assert_int_equal(attn__writer_chunk(ctx, writer, weights, 8), ATTN_OK);
    assert_int_equal(attn__writer_chunk(ctx, writer, weights + 2, 16), ATTN_OK);
    assert_int_equal(attn__writer_tensor(ctx, writer, "empty", ATTN_FLOAT16, 2, none, NULL), ATTN_OK);
    assert_int_equal(attn__writer_tensor(ctx, writer, "a.b", ATTN_INT64, 1, &two, numbers), ATTN_OK);
    assert_int_equal(attn__writer_tensor(ctx, writer, "s", ATTN_UINT8, 0, NULL, "x"), ATTN_OK);
    return writer;
}

static void write_small(void)
{
    attn__writer *writer = small_writer();
    assert_int_equal(attn__file_write(ctx, writer, path), ATTN_OK);
    attn__writer_free(writer);
}

static void test_round_trip(void **state)
{
    (void)state;
    size_t count, again;
    int64_t before = live_bytes();
    write_small();
    static char first[1 << 16];
    memcpy(first, get(&count), sizeof first);
    assert_int_equal((unsigned char)first[0] % 8, 0); /* data begins at a multiple of 8 */
    const char *starts = "{\"__metadata__\":{\"format\":\"attn\",\"text\":\"\\\"[[[[[\\\\/\\n\x7F\xC3\xA9\"},"
                         "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}";
    assert_memory_equal(first + 8, starts, strlen(starts));

    attn__file *file;
    assert_int_equal(attn__file_open(ctx, path, &file), ATTN_OK);
    assert_int_equal(file->count, 4);
    assert_string_equal(attn__file_metadata(file, "text"), "\"[[[[[\\/\n\x7F\xC3\xA9");
    assert_null(attn__file_metadata(file, "tex"));
    /* written again from what was read: the same bytes */
    attn__writer *writer;
    char data[4][24];
    assert_int_equal(attn__writer_create(ctx, &writer), ATTN_OK);
    for (int64_t i = 0; i < file->metadata_count; i++)
        assert_int_equal(attn__writer_metadata(ctx, writer, file->metadata[i].key, file->metadata[i].value), ATTN_OK);
    for (int64_t i = 0; i < file->count; i++) {
        const attn__file_entry *e = &file->entries[i];
        assert_int_equal(attn__file_read(ctx, file, i, data[i], e->end - e->begin), ATTN_OK);
        assert_int_equal(attn__writer_tensor(ctx, writer, e->name, e->dtype, e->rank, e->shape, data[i]), ATTN_OK);
    }
    assert_memory_equal(data[attn__file_find(file, "w")], weights, sizeof weights);
    assert_memory_equal(data[attn__file_find(file, "a.b")], numbers, sizeof numbers);
    assert_int_equal(attn__file_write(ctx, writer, path), ATTN_OK); /* over the open file */
    attn__writer_free(writer);
    attn__file_close(file);
    assert_memory_equal(get(&again), first, count);
    assert_int_equal(again, count);
    assert_int_equal(live_bytes(), before);
}

/* B142: metadata and no tensors; and nothing at all */
static void test_no_tensors(void **state)
{
    (void)state;
    for (int entries = 0; entries <= 1; entries++) {
        attn__writer *writer;
        attn__file *file;
        assert_int_equal(attn__writer_create(ctx, &writer), ATTN_OK);
        if (entries) assert_int_equal(attn__writer_metadata(ctx, writer, "key", "value"), ATTN_OK);
        assert_int_equal(attn__file_write(ctx, writer, path), ATTN_OK);
        attn__writer_free(writer);
        assert_int_equal(attn__file_open(ctx, path, &file), ATTN_OK);
        assert_int_equal(file->count, 0);
        assert_int_equal(file->metadata_count, entries);
        if (entries) assert_string_equal(attn__file_metadata(file, "key"), "value");
        attn__file_close(file);
    }
}

static void test_every_truncation(void **state)
{
    (void)state;
    size_t count;
    write_small();
    static char whole[1 << 16];
    memcpy(whole, get(&count), sizeof whole);
    for (size_t length = 0; length < count; length++) {
        put(whole, length);
        expect_refused(ATTN_ERROR_BAD_FILE, path);
    }
    whole[count] = 0;
    put(whole, count + 1);
    expect_refused(ATTN_ERROR_BAD_FILE, "of the data");
}

/* Flipped bits never crash: refused, or opened with entries that lie inside the file and can be read. */
static void test_bit_flips(void **state)
{
    (void)state;
    size_t count;
    int opened = 0;
    write_small();
    static char whole[1 << 16], broken[1 << 16];
    memcpy(whole, get(&count), sizeof whole);
    for (uint32_t round = 0; round < 4000; round++) {
        uint32_t words[4];
        attn__philox(11, round, 0, 0, 0, words);
        memcpy(broken, whole, count);
        for (uint32_t flip = 0; flip <= words[3] % 3; flip++) broken[words[flip] % count] ^= (char)(1 << (words[flip] >> 29));
        put(broken, count);
        attn__file *file;
        attn_status status = attn__file_open(ctx, path, &file);
        assert_true(status == ATTN_OK || status == ATTN_ERROR_BAD_FILE);
        if (status != ATTN_OK) continue;
        opened++;
        for (int64_t i = 0; i < file->count; i++) {
            char data[64];
            assert_true(file->entries[i].end - file->entries[i].begin <= 64);
            assert_int_equal(attn__file_read(ctx, file, i, data, file->entries[i].end - file->entries[i].begin), ATTN_OK);
        }
        attn__file_close(file);
    }
    assert_true(opened > 100 && opened < 3900);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    attn__writer *writer;
    const int64_t one = 1, negative = -1, huge[2] = {INT64_MAX, INT64_MAX}, ranks[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    char name[161];
    memset(name, 'n', 160);
    name[160] = 0;
    assert_int_equal(attn__writer_create(ctx, &writer), ATTN_OK);
    assert_int_equal(attn__writer_chunk(ctx, writer, "x", 1), ATTN_ERROR_BAD_STATE);
    assert_int_equal(attn__writer_tensor(ctx, writer, name, ATTN_UINT8, 1, &one, "x"), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__writer_tensor(ctx, writer, "\xFF", ATTN_UINT8, 1, &one, "x"), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__writer_tensor(ctx, writer, "__metadata__", ATTN_UINT8, 1, &one, "x"), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__writer_tensor(ctx, writer, NULL, ATTN_UINT8, 1, &one, "x"), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__writer_tensor(ctx, writer, "a", 0, 1, &one, "x"), ATTN_ERROR_DTYPE);
    assert_int_equal(attn__writer_tensor(ctx, writer, "a", 99, 1, &one, "x"), ATTN_ERROR_DTYPE);
    assert_int_equal(attn__writer_tensor(ctx, writer, "a", ATTN_UINT8, 9, ranks, "x"), ATTN_ERROR_SHAPE);
    assert_int_equal(attn__writer_tensor(ctx, writer, "a", ATTN_UINT8, 1, &negative, "x"), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(attn__writer_tensor(ctx, writer, "a", ATTN_UINT8, 2, huge, "x"), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(attn__writer_metadata(ctx, writer, "k", "\xC0\x80"), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__writer_metadata(ctx, writer, NULL, ""), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn__writer_tensor(ctx, writer, "a", ATTN_UINT8, 1, &one, NULL), ATTN_OK);
    assert_int_equal(attn__writer_chunk(ctx, writer, "xy", 2), ATTN_ERROR_INVALID_ARGUMENT);
    unlink(path);
    assert_int_equal(attn__file_write(ctx, writer, path), ATTN_ERROR_INVALID_ARGUMENT); /* a chunk is missing */
    assert_int_equal(attn__writer_chunk(ctx, writer, "x", 1), ATTN_OK);
    assert_int_equal(attn__writer_tensor(ctx, writer, "a", ATTN_UINT8, 1, &one, "x"), ATTN_OK);
    assert_int_equal(attn__file_write(ctx, writer, path), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "duplicate name 'a'"));
    attn__writer_free(writer);
    attn__writer_free(NULL);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_cannot_open(void **state)
{
    (void)state;
    attn__file *file;
    char other[80];
    assert_int_equal(attn__file_open(ctx, folder, &file), ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "Is a directory"));
    assert_int_equal(attn__file_open(ctx, "/dev/null", &file), ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), "not a regular file"));
    snprintf(other, sizeof other, "%s/none/file", folder);
    assert_int_equal(attn__file_open(ctx, other, &file), ATTN_ERROR_IO);
    assert_non_null(strstr(attn_context_last_error(ctx), other));
    assert_non_null(strstr(attn_context_last_error(ctx), "No such file"));
    snprintf(other, sizeof other, "%s/pipe", folder);
    assert_int_equal(mkfifo(other, 0600), 0);
    assert_int_equal(attn__file_open(ctx, other, &file), ATTN_ERROR_IO); /* and does not wait for a writer */
    unlink(other);
    assert_int_equal(attn__file_open(ctx, NULL, &file), ATTN_ERROR_INVALID_ARGUMENT);
}

/* Every allocation fails once: an error, nothing lost, the file of before untouched. */
static void test_every_allocation_fails(void **state)
{
    (void)state;
    static test_allocator counted;
    attn_allocator allocator = test_allocator_hooks(&counted);
    attn_context_options options;
    attn_context_options_init(&options, sizeof options);
    options.threads = 1;
    options.allocator = &allocator;
    attn_context *usual = ctx;
    write_small();
    assert_int_equal(attn_context_create(&options, &ctx), ATTN_OK);
    attn__writer *writer = small_writer();
    long long live = counted.live_pointers;
    attn_status status = ATTN_ERROR_OUT_OF_MEMORY;
    for (int allowed = 1; status != ATTN_OK; allowed++) {
        assert_true(allowed < 100);
        assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
        attn__file *file;
        counted.fail_at = counted.calls + allowed;
        status = attn__file_open(ctx, path, &file);
        assert_true((status == ATTN_OK) == (file != NULL));
        if (status == ATTN_OK) status = attn__file_write(ctx, writer, path);
        attn__file_close(file);
        assert_int_equal(counted.live_pointers, live);
    }
    counted.fail_at = 0;
    attn__writer_free(writer);
    attn_context_free(ctx);
    ctx = usual;
    assert_int_equal(counted.live_pointers, 0);
    assert_int_equal(counted.wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_hostile_lengths),
        cmocka_unit_test(test_hostile_sizes),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_cannot_open),
        cmocka_unit_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../core/utf8.h"
#include "digest.h"
#include "input.h"
#include "replace.h"
#include "safetensors_header.h"

#define METADATA "__metadata__"
enum { FIRST_CAPACITY = 16, ALIGNMENT = 8 };

typedef struct tensor {
    char name[ATTN__FILE_NAME_BYTES + 1];
    const attn__file_type *type;
    int32_t rank, reserved;
    int64_t shape[ATTN__FILE_RANK];
    int64_t bytes, given; /* by the shape; by data and chunks */
} tensor;

typedef struct string {
    char *text;
    int64_t key_bytes, bytes;
} string; /* key, NUL, value, NUL */

typedef struct list {
    void *at;
    int64_t count, capacity;
} list;

struct attn__writer {
    attn__memory *memory;
    list tensors, metadata, pieces; /* of tensor, string, attn__piece */
};

attn_status attn__writer_create(attn_context *ctx, attn__writer **out)
{
    *out = NULL;
    attn__writer *writer;
    attn_status status = attn__allocate_zero(ctx->memory, sizeof *writer, (void **)&writer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a file writer");
    writer->memory = attn__memory_retain(ctx->memory);
    *out = writer;
    return ATTN_OK;
}

void attn__writer_free(attn__writer *writer)
{
    if (writer == NULL) return;
    attn__memory *memory = writer->memory;
    string *strings = writer->metadata.at;
    for (int64_t i = 0; i < writer->metadata.count; i++) attn__deallocate(memory, strings[i].text, strings[i].bytes);
    attn__deallocate(memory, writer->tensors.at, writer->tensors.capacity * (int64_t)sizeof(tensor));
    attn__deallocate(memory, writer->metadata.at, writer->metadata.capacity * (int64_t)sizeof(string));
    attn__deallocate(memory, writer->pieces.at, writer->pieces.capacity * (int64_t)sizeof(attn__piece));
    attn__deallocate(memory, writer, sizeof *writer);
    attn__memory_release(memory);
}

/* Room for one more item of item_bytes; *out is its place. The count is the caller's to raise. */
static attn_status grow(attn_context *ctx, attn__writer *writer, list *items, int64_t item_bytes, void **out)
{
    if (items->count == items->capacity) {
        int64_t capacity = items->capacity > 0 ? 2 * items->capacity : FIRST_CAPACITY;
        void *at;
        attn_status status = attn__allocate(writer->memory, capacity * item_bytes, &at);
        if (status != ATTN_OK) return attn__fail_memory(ctx, status, "table of a file");
        if (items->count > 0) memcpy(at, items->at, (size_t)(items->count * item_bytes));
        attn__deallocate(writer->memory, items->at, items->capacity * item_bytes);
        items->at = at;
        items->capacity = capacity;
    }
    *out = (char *)items->at + items->count * item_bytes;
    return ATTN_OK;
}

attn_status attn__writer_metadata(attn_context *ctx, attn__writer *writer, const char *key, const char *value)
{
    if (key == NULL || value == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got NULL", key == NULL ? "key" : "value");
    int64_t key_bytes = (int64_t)strlen(key), value_bytes = (int64_t)strlen(value);
    int64_t invalid = attn__utf8_invalid(key, key_bytes);
    if (invalid >= 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "keys: got byte %lld of one that is not valid UTF-8, expected text",
                          (long long)invalid);
    invalid = attn__utf8_invalid(value, value_bytes);
    if (invalid >= 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "values: got byte %lld of that of '%.100s' that is not valid UTF-8, expected text", (long long)invalid, key);
    if (writer->metadata.count >= ATTN__FILE_ENTRIES)
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "metadata: expected at most %d entries", (int)ATTN__FILE_ENTRIES);
    string *item;
    attn_status status = grow(ctx, writer, &writer->metadata, sizeof *item, (void **)&item);
    if (status != ATTN_OK) return status;
    item->key_bytes = key_bytes;
    item->bytes = key_bytes + value_bytes + 2;
    status = attn__allocate(writer->memory, item->bytes, (void **)&item->text);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "metadata of a file");
    memcpy(item->text, key, (size_t)key_bytes + 1);
    memcpy(item->text + key_bytes + 1, value, (size_t)value_bytes + 1);
    writer->metadata.count++;
    return ATTN_OK;
}

attn_status attn__writer_chunk(attn_context *ctx, attn__writer *writer, const void *data, int64_t bytes)
{
    if (writer->tensors.count == 0) return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "chunk: no tensor was added before");
    tensor *last = (tensor *)writer->tensors.at + writer->tensors.count - 1;
    if (bytes < 0 || (data == NULL && bytes > 0) || bytes > last->bytes - last->given)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "chunk: got %lld bytes%s, expected at most %lld of tensor '%s'",
                          (long long)bytes, data == NULL ? " at NULL" : "", (long long)(last->bytes - last->given), last->name);
    attn__piece *piece;
    attn_status status = grow(ctx, writer, &writer->pieces, sizeof *piece, (void **)&piece);
    if (status != ATTN_OK) return status;
    *piece = (attn__piece){data, bytes};
    writer->pieces.count++;
    last->given += bytes;
    return ATTN_OK;
}

attn_status attn__writer_tensor(attn_context *ctx, attn__writer *writer, const char *name, int32_t dtype, int32_t rank,
                                const int64_t *shape, const void *data)
{
    if (name == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "name: got NULL");
    size_t name_bytes = strlen(name);
    if (name_bytes > ATTN__FILE_NAME_BYTES || attn__utf8_invalid(name, (int64_t)name_bytes) >= 0 || strcmp(name, METADATA) == 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "name: got '%.100s', expected at most %d bytes of UTF-8 other than " METADATA,
                          name, (int)ATTN__FILE_NAME_BYTES);
    const attn__file_type *type = attn__file_type_of(dtype);
    if (type == NULL) return attn__fail(ctx, ATTN_ERROR_DTYPE, "tensor '%s': got dtype %d", name, (int)dtype);
    if (rank < 0 || rank > ATTN__FILE_RANK || (rank > 0 && shape == NULL))
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "tensor '%s': got rank %d, expected 0 to %d and a shape", name, (int)rank,
                          (int)ATTN__FILE_RANK);
    int64_t bytes;
    if (attn__file_tensor_bytes(type, rank, shape, &bytes))
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "tensor '%s': its size overflows or an extent is negative", name);
    if (writer->tensors.count >= ATTN__FILE_ENTRIES)
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "tensors: expected at most %d in a file", (int)ATTN__FILE_ENTRIES);
    tensor *item;
    attn_status status = grow(ctx, writer, &writer->tensors, sizeof *item, (void **)&item);
    if (status != ATTN_OK) return status;
    memset(item, 0, sizeof *item);
    memcpy(item->name, name, name_bytes + 1);
    item->type = type;
    item->rank = rank;
    item->bytes = bytes;
    for (int32_t i = 0; i < rank; i++) item->shape[i] = shape[i];
    writer->tensors.count++;
    if (data == NULL) return ATTN_OK;
    status = attn__writer_chunk(ctx, writer, data, bytes);
    if (status != ATTN_OK) writer->tensors.count--;
    return status;
}

attn_status attn__writer_seal(attn_context *ctx, attn__writer *writer, const char *key)
{
    const string *strings = writer->metadata.at;
    const tensor *tensors = writer->tensors.at;
    const attn__piece *piece = writer->pieces.at;
    uint64_t sum = 0;
    char text[17];
    for (int64_t i = 0; i < writer->metadata.count; i++)
        sum += attn__digest_metadata(strings[i].text, strings[i].text + strings[i].key_bytes + 1);
    for (int64_t i = 0; i < writer->tensors.count; i++) {
        attn__digest digest;
        attn__digest_tensor(&digest, tensors[i].name, tensors[i].type->dtype, tensors[i].rank, tensors[i].shape);
        for (int64_t left = tensors[i].given; left > 0; left -= piece++->bytes) attn__digest_add(&digest, piece->data, piece->bytes);
        sum += attn__digest_end(&digest);
    }
    snprintf(text, sizeof text, "%016" PRIx64, sum);
    return attn__writer_metadata(ctx, writer, key, text);
}

static attn_status duplicate(attn_context *ctx, const char *name)
{
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "keys: got duplicate name '%.159s', expected each name once", name);
}

static attn_status no_memory(attn_context *ctx)
{
    return attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, "header of a file");
}

static attn_status add_metadata(attn_context *ctx, const attn__writer *writer, json_t *root)
{
    const string *strings = writer->metadata.at;
    if (writer->metadata.count == 0) return ATTN_OK;
    json_t *object = json_object();
    if (json_object_set_new(root, METADATA, object) != 0) return no_memory(ctx);
    for (int64_t i = 0; i < writer->metadata.count; i++) {
        if (json_object_get(object, strings[i].text) != NULL) return duplicate(ctx, strings[i].text);
        if (json_object_set_new(object, strings[i].text, json_string(strings[i].text + strings[i].key_bytes + 1)) != 0)
            return no_memory(ctx);
    }
    return ATTN_OK;
}

static json_t *integers(const int64_t *values, int32_t count)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < count; i++)
        if (json_array_append_new(array, json_integer(values[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static attn_status add_tensors(attn_context *ctx, const attn__writer *writer, json_t *root)
{
    const tensor *tensors = writer->tensors.at;
    int64_t begin = 0;
    for (int64_t i = 0; i < writer->tensors.count; i++) {
        const tensor *item = &tensors[i];
        if (item->given != item->bytes)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tensor '%s': got %lld bytes of data, expected %lld", item->name,
                              (long long)item->given, (long long)item->bytes);
        if (json_object_get(root, item->name) != NULL) return duplicate(ctx, item->name);
        int64_t offsets[2] = {begin, 0};
        if (attn__sum(begin, item->bytes, &offsets[1]))
            return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "tensor '%s': the file overflows", item->name);
        begin = offsets[1];
        json_t *object = json_object();
        if (json_object_set_new(root, item->name, object) != 0 ||
            json_object_set_new(object, "dtype", json_string(item->type->name)) != 0 ||
            json_object_set_new(object, "shape", integers(item->shape, item->rank)) != 0 ||
            json_object_set_new(object, "data_offsets", integers(offsets, 2)) != 0)
            return no_memory(ctx);
    }
    return ATTN_OK;
}

/* The length and the header, padded by spaces so that the data is aligned. */
static attn_status build_head(attn_context *ctx, const attn__writer *writer, json_t *root, char **head, int64_t *head_bytes)
{
    size_t length = json_dumpb(root, NULL, 0, JSON_COMPACT);
    if (length == 0) return no_memory(ctx);
    size_t padded = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (padded > ATTN__FILE_HEADER_BYTES)
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "header: got %llu bytes, expected at most %d", (unsigned long long)padded,
                          (int)ATTN__FILE_HEADER_BYTES);
    int64_t bytes = (int64_t)padded + 8;
    attn_status status = attn__allocate(writer->memory, bytes, (void **)head);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "header of a file");
    *head_bytes = bytes;
    memset(*head, ' ', (size_t)bytes);
    for (int32_t i = 0; i < 8; i++) (*head)[i] = (char)(unsigned char)((uint64_t)padded >> (8 * i) & 0xFF);
    return json_dumpb(root, *head + 8, length, JSON_COMPACT) == length ? ATTN_OK : no_memory(ctx);
}

attn_status attn__file_write(attn_context *ctx, const attn__writer *writer, const char *path)
{
    if (path == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "path: got NULL, expected a file name");
    if (!attn__little_endian())
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "%s: files are little-endian and this machine is not", attn__path_shown(path));
    json_t *root = json_object();
    if (root == NULL) return no_memory(ctx);
    char *head = NULL;
    int64_t head_bytes = 0, pieces_bytes = (writer->pieces.count + 1) * (int64_t)sizeof(attn__piece);
    attn__piece *pieces = NULL;
    attn_status status = add_metadata(ctx, writer, root);
    if (status == ATTN_OK) status = add_tensors(ctx, writer, root);
    if (status == ATTN_OK) status = build_head(ctx, writer, root, &head, &head_bytes);
    json_decref(root);
    if (status == ATTN_OK) {
        status = attn__allocate(writer->memory, pieces_bytes, (void **)&pieces);
        if (status != ATTN_OK) attn__fail_memory(ctx, status, "table of a file");
    }
    if (status == ATTN_OK) {
        pieces[0] = (attn__piece){head, head_bytes};
        if (writer->pieces.count > 0) memcpy(pieces + 1, writer->pieces.at, (size_t)writer->pieces.count * sizeof *pieces);
        status = attn__file_replace(ctx, path, pieces, writer->pieces.count + 1);
    }
    attn__deallocate(writer->memory, pieces, pieces_bytes);
    attn__deallocate(writer->memory, head, head_bytes);
    return status;
}

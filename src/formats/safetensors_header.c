#include "safetensors_header.h"
#include <attn/tensor.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "input.h"
#include "json.h"

#define METADATA "__metadata__"
/* header -> tensor -> shape */
enum { HEADER_DEPTH = 3, HEADER_VALUES = 24 * ATTN__FILE_ENTRIES, NAME_SHOWN = 100 };

static const attn__file_type types[] = {
    {"F32", 4, ATTN_FLOAT32},
    {"F64", 8, ATTN_FLOAT64},
    {"I32", 4, ATTN_INT32},
    {"I64", 8, ATTN_INT64},
    {"F16", 2, ATTN_FLOAT16},
    {"BF16", 2, ATTN_BFLOAT16},
    {"U8", 1, ATTN_UINT8},
    {"I8", 1, 0},
    {"BOOL", 1, 0},
    {"I16", 2, 0},
    {"U16", 2, 0},
    {"U32", 4, 0},
    {"U64", 8, 0},
    {"F8_E4M3", 1, 0},
    {"F8_E5M2", 1, 0},
};
enum { TYPES = sizeof types / sizeof types[0] };

const attn__file_type *attn__file_type_named(const char *name)
{
    for (int32_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const attn__file_type *attn__file_type_of(int32_t dtype)
{
    for (int32_t i = 0; i < TYPES; i++)
        if (dtype != 0 && types[i].dtype == dtype) return &types[i];
    return NULL;
}

int attn__little_endian(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

int attn__file_tensor_bytes(const attn__file_type *type, int32_t rank, const int64_t *shape, int64_t *bytes)
{
    int64_t product = type->bytes;
    int empty = 0;
    /* an extent of 0 must not hide the overflow of the others: strides are computed from them */
    for (int32_t i = 0; i < rank; i++) {
        if (shape[i] < 0) return 1;
        if (shape[i] == 0)
            empty = 1;
        else if (attn__multiply(product, shape[i], &product))
            return 1;
    }
    *bytes = empty ? 0 : product;
    return 0;
}

/* BAD_FILE, "path: tensor 'name': reason" */
static attn_status bad_tensor(attn_context *ctx, const attn__file *file, const char *name, const char *reason)
{
    return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: tensor '%.*s': %s", attn__path_shown(file->path), NAME_SHOWN, name, reason);
}

static attn_status bad_header(attn_context *ctx, const attn__file *file, const char *reason)
{
    return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: header: %s", attn__path_shown(file->path), reason);
}

/* A list of integers that are not negative */
static int read_integers(json_t *list, int64_t *to)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0) return 1;
        to[i] = json_integer_value(item);
    }
    return 0;
}

static attn_status read_entry(attn_context *ctx, const attn__file *file, const char *name, json_t *object, attn__file_entry *entry)
{
    if (strlen(name) > ATTN__FILE_NAME_BYTES) return bad_tensor(ctx, file, name, "a name longer than 159 bytes");
    if (!json_is_object(object)) return bad_tensor(ctx, file, name, "not an object");
    json_t *dtype = json_object_get(object, "dtype"), *shape = json_object_get(object, "shape");
    json_t *offsets = json_object_get(object, "data_offsets");
    if (json_object_size(object) != 3 || !json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets))
        return bad_tensor(ctx, file, name, "expected exactly dtype (a string), shape and data_offsets (lists)");
    const attn__file_type *type = attn__file_type_named(json_string_value(dtype));
    if (type == NULL)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: tensor '%.*s': unknown dtype '%.20s'", attn__path_shown(file->path), NAME_SHOWN,
                          name, json_string_value(dtype));
    if (json_array_size(shape) > ATTN__FILE_RANK)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: tensor '%.*s': got rank %llu, expected at most %d", attn__path_shown(file->path),
                          NAME_SHOWN, name, (unsigned long long)json_array_size(shape), (int)ATTN__FILE_RANK);
    entry->rank = (int32_t)json_array_size(shape);
    entry->dtype = type->dtype;
    int64_t range[2], bytes;
    if (read_integers(shape, entry->shape)) return bad_tensor(ctx, file, name, "shape: expected integers from 0");
    if (json_array_size(offsets) != 2 || read_integers(offsets, range))
        return bad_tensor(ctx, file, name, "data_offsets: expected two integers from 0");
    if (range[0] > range[1] || range[1] > file->data_bytes)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: tensor '%.*s': data_offsets [%lld, %lld] do not lie in the %lld bytes of data",
                          attn__path_shown(file->path), NAME_SHOWN, name, (long long)range[0], (long long)range[1],
                          (long long)file->data_bytes);
    if (attn__file_tensor_bytes(type, entry->rank, entry->shape, &bytes)) return bad_tensor(ctx, file, name, "shape: its size overflows");
    if (bytes != range[1] - range[0])
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: tensor '%.*s': data_offsets span %lld bytes, expected %lld by dtype and shape",
                          attn__path_shown(file->path), NAME_SHOWN, name, (long long)(range[1] - range[0]), (long long)bytes);
    entry->begin = range[0];
    entry->end = range[1];
    return ATTN_OK;
}

static int by_offset(const void *left, const void *right)
{
    const attn__file_entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

typedef struct named {
    const char *name;
    int64_t index;
} named;

static int by_name(const void *left, const void *right)
{
    return strcmp(((const named *)left)->name, ((const named *)right)->name);
}

/* Sorts the entries into the order of their data, which must fill the file without a hole. */
static attn_status order_entries(attn_context *ctx, attn__file *file)
{
    if (file->count > 1) qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_offset);
    int64_t at = 0;
    for (int64_t i = 0; i < file->count; i++) {
        const attn__file_entry *entry = &file->entries[i];
        if (entry->begin != at)
            return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: tensor '%.*s': data starts at %lld, expected %lld (%s)",
                              attn__path_shown(file->path), NAME_SHOWN, entry->name, (long long)entry->begin, (long long)at,
                              entry->begin < at ? "an overlap" : "a hole");
        at = entry->end;
    }
    if (at == file->data_bytes) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: the tensors end at byte %lld of the data, expected %lld", attn__path_shown(file->path),
                      (long long)at, (long long)file->data_bytes);
}

static attn_status order_names(attn_context *ctx, attn__file *file)
{
    named *list = NULL;
    int64_t bytes = file->count * (int64_t)sizeof *list;
    attn_status status = attn__allocate(file->memory, bytes, (void **)&list);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "names of a file");
    for (int64_t i = 0; i < file->count; i++) list[i] = (named){file->entries[i].name, i};
    if (file->count > 1) qsort(list, (size_t)file->count, sizeof *list, by_name);
    for (int64_t i = 0; i < file->count; i++) file->by_name[i] = list[i].index;
    attn__deallocate(file->memory, list, bytes);
    return ATTN_OK;
}

/* Counts entries and the bytes of all strings, and checks what is not a tensor. */
static attn_status count_header(attn_context *ctx, attn__file *file, json_t *root, int64_t *string_bytes)
{
    const char *key;
    json_t *value, *metadata = json_object_get(root, METADATA);
    int64_t strings = 0;
    if (metadata != NULL && !json_is_object(metadata)) return bad_header(ctx, file, METADATA ": expected an object");
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) return bad_header(ctx, file, METADATA ": expected strings only");
        strings += (int64_t)strlen(key) + (int64_t)json_string_length(value) + 2;
    }
    file->metadata_count = (int64_t)json_object_size(metadata);
    file->count = (int64_t)json_object_size(root) - (metadata != NULL);
    json_object_foreach(root, key, value) strings += (int64_t)strlen(key) + 1;
    if (file->count > ATTN__FILE_ENTRIES || file->metadata_count > ATTN__FILE_ENTRIES)
        return bad_header(ctx, file, "more than 100000 tensors or metadata entries");
    *string_bytes = strings;
    return ATTN_OK;
}

static const char *keep_string(char **at, const char *text, size_t bytes)
{
    char *kept = *at;
    memcpy(kept, text, bytes);
    kept[bytes] = 0;
    *at += bytes + 1;
    return kept;
}

static attn_status fill_file(attn_context *ctx, attn__file *file, json_t *root)
{
    int64_t strings = 0;
    attn_status status = count_header(ctx, file, root, &strings);
    if (status != ATTN_OK) return status;
    /* the counts are limited: no overflow */
    int64_t entries = file->count * (int64_t)sizeof(attn__file_entry), metadata = file->metadata_count * (int64_t)sizeof(attn__file_string);
    int64_t names = file->count * (int64_t)sizeof(int64_t);
    file->block_bytes = entries + metadata + names + strings;
    status = attn__allocate(file->memory, file->block_bytes, &file->block);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "table of a file");
    char *at = file->block;
    file->entries = (attn__file_entry *)(void *)at;
    file->metadata = (attn__file_string *)(void *)(at + entries);
    file->by_name = (int64_t *)(void *)(at + entries + metadata);
    at += entries + metadata + names;

    const char *key;
    json_t *value;
    int64_t index = 0;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, METADATA) == 0) continue;
        attn__file_entry *entry = &file->entries[index++];
        status = read_entry(ctx, file, key, value, entry);
        if (status != ATTN_OK) return status;
        entry->name = keep_string(&at, key, strlen(key));
    }
    index = 0;
    json_object_foreach(json_object_get(root, METADATA), key, value)
    {
        attn__file_string *string = &file->metadata[index++];
        string->key = keep_string(&at, key, strlen(key));
        string->value = keep_string(&at, json_string_value(value), json_string_length(value));
    }
    status = order_entries(ctx, file);
    return status == ATTN_OK ? order_names(ctx, file) : status;
}

attn_status attn__file_parse_header(attn_context *ctx, attn__file *file, const char *text, int64_t bytes)
{
    if (bytes < 2 || text[0] != '{') return bad_header(ctx, file, "does not start with '{'");
    while (text[bytes - 1] == ' ') bytes--; /* stops at the '{' at the latest */
    if (text[bytes - 1] != '}')
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: header: ends with byte 0x%02x, expected '}' and padding by spaces only",
                          attn__path_shown(file->path), (unsigned)(unsigned char)text[bytes - 1]);
    char what[256] = "";
    const char *shown = attn__path_shown(file->path);
    size_t length = strlen(shown);
    memcpy(what, shown, length);
    memcpy(what + length, ": header", sizeof ": header");
    json_t *root;
    attn_status status = attn__json_parse(ctx, what, text, bytes, HEADER_DEPTH, HEADER_VALUES, 0, &root);
    if (status != ATTN_OK) return status;
    status = fill_file(ctx, file, root);
    json_decref(root);
    if (status == ATTN_OK) return ATTN_OK;
    attn__deallocate(file->memory, file->block, file->block_bytes);
    file->block = NULL;
    file->block_bytes = file->count = file->metadata_count = 0;
    return status;
}

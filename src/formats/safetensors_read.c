#include <string.h>
#include "input.h"
#include "safetensors_header.h"

enum { LENGTH_BYTES = 8, SMALLEST_HEADER = 2 };

/* The length of the header, checked against the size of the file. */
static attn_status read_length(attn_context *ctx, const attn__file *file, int64_t file_bytes, int64_t *out)
{
    const char *path = attn__path_shown(file->path);
    unsigned char raw[LENGTH_BYTES];
    if (file_bytes < LENGTH_BYTES + SMALLEST_HEADER)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: got %lld bytes, expected a safetensors file of at least 10", path,
                          (long long)file_bytes);
    attn_status status = attn__input_read(ctx, file->path, file->descriptor, 0, raw, sizeof raw);
    if (status != ATTN_OK) return status;
    uint64_t length = 0;
    for (int32_t i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)raw[i] << (8 * i);
    if (length < SMALLEST_HEADER || length > ATTN__FILE_HEADER_BYTES)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: header of %llu bytes, expected 2 to %d", path, (unsigned long long)length,
                          (int)ATTN__FILE_HEADER_BYTES);
    if ((int64_t)length > file_bytes - LENGTH_BYTES)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: truncated: header of %llu bytes in a file of %lld", path,
                          (unsigned long long)length, (long long)file_bytes);
    *out = (int64_t)length;
    return ATTN_OK;
}

static attn_status read_header(attn_context *ctx, attn__file *file, int64_t file_bytes)
{
    int64_t length = 0;
    attn_status status = read_length(ctx, file, file_bytes, &length);
    if (status != ATTN_OK) return status;
    file->data_start = LENGTH_BYTES + length;
    file->data_bytes = file_bytes - file->data_start;
    void *text;
    status = attn__allocate(file->memory, length, &text);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "header of a file");
    status = attn__input_read(ctx, file->path, file->descriptor, LENGTH_BYTES, text, length);
    if (status == ATTN_OK) status = attn__file_parse_header(ctx, file, text, length);
    attn__deallocate(file->memory, text, length);
    return status;
}

attn_status attn__file_open(attn_context *ctx, const char *path, attn__file **out)
{
    *out = NULL;
    if (path == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "path: got NULL, expected a file name");
    if (!attn__little_endian())
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "%s: files are little-endian and this machine is not", attn__path_shown(path));
    attn__file *file;
    attn_status status = attn__allocate_zero(ctx->memory, sizeof *file, (void **)&file);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "an open file");
    file->memory = attn__memory_retain(ctx->memory);
    file->descriptor = -1;
    int64_t path_bytes = (int64_t)strlen(path) + 1, file_bytes = 0;
    status = attn__allocate(file->memory, path_bytes, (void **)&file->path);
    if (status != ATTN_OK) {
        attn__file_close(file);
        return attn__fail_memory(ctx, status, "path of a file");
    }
    file->path_bytes = path_bytes;
    memcpy(file->path, path, (size_t)path_bytes);
    status = attn__input_open(ctx, path, &file->descriptor, &file_bytes);
    if (status == ATTN_OK) status = read_header(ctx, file, file_bytes);
    if (status != ATTN_OK) {
        attn__file_close(file);
        return status;
    }
    *out = file;
    return ATTN_OK;
}

void attn__file_close(attn__file *file)
{
    if (file == NULL) return;
    attn__memory *memory = file->memory;
    attn__input_close(file->descriptor);
    attn__deallocate(memory, file->block, file->block_bytes);
    attn__deallocate(memory, file->path, file->path_bytes);
    attn__deallocate(memory, file, sizeof *file);
    attn__memory_release(memory);
}

int64_t attn__file_find(const attn__file *file, const char *name)
{
    for (int64_t low = 0, high = file->count; low < high;) {
        int64_t middle = low + (high - low) / 2, index = file->by_name[middle];
        int order = strcmp(name, file->entries[index].name);
        if (order == 0) return index;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

const char *attn__file_metadata(const attn__file *file, const char *key)
{
    for (int64_t i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
    return NULL;
}

attn_status attn__file_read(attn_context *ctx, const attn__file *file, int64_t index, void *to, int64_t bytes)
{
    if (index < 0 || index >= file->count)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "index: got %lld, expected 0 to %lld", (long long)index,
                          (long long)file->count - 1);
    const attn__file_entry *entry = &file->entries[index];
    if (bytes != entry->end - entry->begin)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "bytes: got %lld, expected %lld of tensor '%s'", (long long)bytes,
                          (long long)(entry->end - entry->begin), entry->name);
    return attn__input_read(ctx, file->path, file->descriptor, file->data_start + entry->begin, to, bytes);
}

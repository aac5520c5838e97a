#include <string.h>
#include "transformer_file.h"

static attn_status copy_value(attn_context *ctx, const attn__file *file, const char *path, const char *key, int64_t capacity, char *text,
                              int64_t *bytes)
{
    const char *value = attn__file_metadata(file, key);
    if (value == NULL) return attn__fail(ctx, ATTN_ERROR_END_OF_DATA, "%s: no metadata under the key \"%.64s\"", path, key);
    *bytes = (int64_t)strlen(value) + 1;
    if (*bytes > capacity)
        return attn__fail(ctx, ATTN_ERROR_FULL, "capacity: got %lld bytes, expected at least %lld", (long long)capacity, (long long)*bytes);
    memcpy(text, value, (size_t)*bytes);
    return ATTN_OK;
}

attn_status attn_file_metadata(attn_context *ctx, const char *path, const char *key, int64_t capacity, char *text, int64_t *bytes)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn__file *file = NULL;
    status = attn__check_metadata(ctx, 0, NULL, NULL, path);
    if (status == ATTN_OK && (key == NULL || bytes == NULL || capacity < 0 || (capacity > 0 && text == NULL)))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "key, text, bytes: got NULL or a capacity of %lld, expected a key and room",
                            (long long)capacity);
    if (status == ATTN_OK) status = attn__file_open(ctx, path, &file);
    if (status == ATTN_OK) status = copy_value(ctx, file, path, key, capacity, text, bytes);
    attn__file_close(file);
    return attn__leave(ctx, status);
}

#include <attn/files.h>
#include <string.h>
#include "../tensor/tensor.h"
#include "input.h"
#include "safetensors.h"

static attn_status copy_name(attn_context *ctx, const attn__file *file, const char *path, int64_t index, int64_t capacity, char *text,
                             int64_t *bytes)
{
    if (index >= file->count)
        return attn__fail(ctx, ATTN_ERROR_END_OF_DATA, "index: got %lld, expected less than the %lld tensors of %s", (long long)index,
                          (long long)file->count, attn__path_shown(path));
    const char *name = file->entries[index].name;
    *bytes = (int64_t)strlen(name) + 1;
    if (*bytes > capacity)
        return attn__fail(ctx, ATTN_ERROR_FULL, "capacity: got %lld bytes, expected at least %lld", (long long)capacity, (long long)*bytes);
    memcpy(text, name, (size_t)*bytes);
    return ATTN_OK;
}

attn_status attn_file_tensor_name(attn_context *ctx, const char *path, int64_t index, int64_t capacity, char *text, int64_t *bytes)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn__file *file = NULL;
    status = attn__check_path(ctx, path);
    if (status == ATTN_OK && index < 0)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "index: got %lld, expected 0 or more", (long long)index);
    if (status == ATTN_OK && (capacity < 0 || (capacity > 0 && text == NULL)))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "capacity, text: got %lld bytes at %s, expected room", (long long)capacity,
                            text == NULL ? "NULL" : "a place");
    if (status == ATTN_OK && bytes == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "bytes: got NULL, expected where to put the number of bytes");
    if (status == ATTN_OK) status = attn__file_open(ctx, path, &file);
    if (status == ATTN_OK) status = copy_name(ctx, file, path, index, capacity, text, bytes);
    attn__file_close(file);
    return attn__leave(ctx, status);
}

/* The reader has held the bytes of every entry against the size of the file, so that no more memory is taken than the file has data. */
static attn_status read_entry(attn_context *ctx, const attn__file *file, const char *path, const char *name, attn_tensor **out)
{
    int64_t at = attn__file_find(file, name);
    if (at < 0)
        return attn__fail(ctx, ATTN_ERROR_END_OF_DATA, "name: got \"%.160s\", expected a tensor of %s", name, attn__path_shown(path));
    const attn__file_entry *e = &file->entries[at];
    if (e->dtype == 0 || e->dtype == ATTN_FLOAT16 || e->dtype == ATTN_BFLOAT16)
        return attn__fail(ctx, ATTN_ERROR_DTYPE, "name: \"%s\" has elements of %s, expected float32, float64, int32, int64 or uint8", name,
                          e->dtype == 0 ? "a type that libattn does not compute with" : attn__dtype_name(e->dtype));
    attn_tensor *tensor = NULL;
    attn_status status = attn_tensor_create(ctx, e->dtype, e->rank, e->shape, &tensor);
    if (status == ATTN_OK) status = attn__file_read(ctx, file, at, tensor->data, e->end - e->begin);
    if (status != ATTN_OK) {
        attn_tensor_free(tensor);
        return status;
    }
    *out = tensor;
    return ATTN_OK;
}

attn_status attn_file_read_tensor(attn_context *ctx, const char *path, const char *name, attn_tensor **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn__file *file = NULL;
    status = attn__check_path(ctx, path);
    if (status == ATTN_OK && name == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "name: got NULL, expected the name of a tensor");
    if (status == ATTN_OK && out == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the tensor");
    if (status == ATTN_OK) status = attn__file_open(ctx, path, &file);
    if (status == ATTN_OK) status = read_entry(ctx, file, path, name, out);
    attn__file_close(file);
    return attn__leave(ctx, status);
}

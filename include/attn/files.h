#ifndef ATTN_FILES_H
#define ATTN_FILES_H
#include "tensor.h"
ATTN_BEGIN
/* Tensors of safetensors files, one by one: numbers that another program wrote, or single parameters of a model. A file is not trusted
   (docs/files.md). Both calls open it anew. attn_file_metadata (transformer.h) reads the texts of such a file. */

/* The name of tensor `index`, from 0, in the order of the data. *bytes: what it needs, the final NUL included (160 are enough for any);
   FULL when capacity is less, and nothing is written then (capacity 0 with text NULL asks for it). END_OF_DATA: the file has no so many.
   INVALID_ARGUMENT, IO, BAD_FILE, UNSUPPORTED (big-endian machine), OUT_OF_MEMORY, MEMORY_CAP. From any thread. Since: 0.0.2 */
ATTN_API attn_status attn_file_tensor_name(attn_context *ctx, const char *path, int64_t index, int64_t capacity, char *text,
                                           int64_t *bytes);
/* Reads the tensor of that name into a new one with memory of its own: dense, of the file's shape and type. The caller frees *out, which is NULL
   on failure. Errors: INVALID_ARGUMENT, END_OF_DATA (no such name), DTYPE (a type that tensors do not have: 16-bit floats, booleans ...), IO,
   BAD_FILE, UNSUPPORTED (big-endian machine), OUT_OF_MEMORY, MEMORY_CAP. From any thread. Since: 0.0.2 */
ATTN_API attn_status attn_file_read_tensor(attn_context *ctx, const char *path, const char *name, attn_tensor **out);
ATTN_END
#endif

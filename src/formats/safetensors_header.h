#ifndef ATTN_FORMATS_SAFETENSORS_HEADER_H
#define ATTN_FORMATS_SAFETENSORS_HEADER_H
#include "safetensors.h"

typedef struct attn__file_type {
    char name[12];
    int32_t bytes, dtype;
} attn__file_type;                                              /* dtype 0: no number in attn/tensor.h */
const attn__file_type *attn__file_type_named(const char *name); /* NULL: unknown */
const attn__file_type *attn__file_type_of(int32_t dtype);       /* NULL: unknown */
int attn__little_endian(void);
/* Bytes of a dense tensor, or 1 where that overflows. */
int attn__file_tensor_bytes(const attn__file_type *type, int32_t rank, const int64_t *shape, int64_t *bytes);

/* Checks the header against file->data_bytes and fills the file's block: entries, metadata, names. On failure the file holds
   nothing new. */
attn_status attn__file_parse_header(attn_context *ctx, attn__file *file, const char *text, int64_t bytes);
#endif

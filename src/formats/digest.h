#ifndef ATTN_FORMATS_DIGEST_H
#define ATTN_FORMATS_DIGEST_H
#include "safetensors.h"

/* A digest of 64 bits, against damage and not against intent: a change inside one aligned 8 bytes is always noticed, any other one
   but for a chance of about 2^-64. Bytes may come in pieces of any size. */
typedef struct attn__digest {
    uint64_t state, rest, bytes; /* rest: the last bytes % 8 bytes */
} attn__digest;

void attn__digest_start(attn__digest *digest);
void attn__digest_add(attn__digest *digest, const void *data, int64_t bytes);
uint64_t attn__digest_end(const attn__digest *digest);

/* What a digest of a file adds up: one number for each entry, in any order. The data of the tensor follows its head. */
uint64_t attn__digest_metadata(const char *key, const char *value);
void attn__digest_tensor(attn__digest *digest, const char *name, int32_t dtype, int32_t rank, const int64_t *shape);

/* Adds to the writer's metadata, under key, the digest of all tensors and metadata that were collected. */
attn_status attn__writer_seal(attn_context *ctx, attn__writer *writer, const char *key);
/* Reads the whole file and compares. BAD_FILE: it holds something else than was written. A file without the key is let pass. */
attn_status attn__file_verify(attn_context *ctx, const attn__file *file, const char *key);
#endif

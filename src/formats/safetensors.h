#ifndef ATTN_FORMATS_SAFETENSORS_H
#define ATTN_FORMATS_SAFETENSORS_H
#include "../core/context.h"

/* Files of named tensors in the safetensors format: 8 bytes of header length (little-endian), a JSON header, the data.
   Reading trusts nothing: everything is checked against the size of the file before memory is taken for it. On a big-endian
   machine both directions give UNSUPPORTED (the data is little-endian). */

enum {
    ATTN__FILE_NAME_BYTES = 159, /* longest name of a tensor */
    ATTN__FILE_RANK = 8,
    ATTN__FILE_ENTRIES = 100000, /* most tensors, and most metadata entries */
    ATTN__FILE_HEADER_BYTES = 100000000
};

typedef struct attn__file_entry {
    const char *name;
    int32_t dtype; /* ATTN_FLOAT32 ...; 0: a known type without a number here (I16, BOOL, F8_E4M3 ...) */
    int32_t rank;
    int64_t shape[ATTN__FILE_RANK]; /* rank 0: one element */
    int64_t begin, end;             /* bytes, from the start of the data */
} attn__file_entry;

typedef struct attn__file_string {
    const char *key, *value;
} attn__file_string;

/* An open file. Entries stand in the order of their data. Used by one thread at a time. */
typedef struct attn__file {
    attn__memory *memory;
    int32_t descriptor;
    int32_t reserved;
    char *path;
    int64_t path_bytes;
    int64_t data_start, data_bytes; /* where the data begins in the file, and how much there is */
    int64_t count, metadata_count;
    attn__file_entry *entries;   /* [count] */
    attn__file_string *metadata; /* [metadata_count], in the order of the file */
    int64_t *by_name;            /* [count]: indices in the order of names */
    void *block;                 /* holds the three arrays and all strings */
    int64_t block_bytes;
} attn__file;

/* IO: cannot be opened or read, or is no regular file. BAD_FILE: breaks a rule of the format. The file stays open. */
attn_status attn__file_open(attn_context *ctx, const char *path, attn__file **out);
void attn__file_close(attn__file *file);                                  /* NULL is fine */
int64_t attn__file_find(const attn__file *file, const char *name);        /* index, or -1 */
const char *attn__file_metadata(const attn__file *file, const char *key); /* borrowed; NULL: none */
/* The data of an entry; bytes must be all of it (end - begin). Cut short since it was opened: BAD_FILE, and what `to` holds is
   unspecified. */
attn_status attn__file_read(attn_context *ctx, const attn__file *file, int64_t index, void *to, int64_t bytes);

/* Collects what a file will hold. Same entries in the same order give the same bytes. Names and metadata are copied; data is
   borrowed until attn__file_write has returned. */
typedef struct attn__writer attn__writer;
attn_status attn__writer_create(attn_context *ctx, attn__writer **out);
void attn__writer_free(attn__writer *writer);                                                                   /* NULL is fine */
attn_status attn__writer_metadata(attn_context *ctx, attn__writer *writer, const char *key, const char *value); /* UTF-8 */
/* data NULL: the bytes follow as chunks */
attn_status attn__writer_tensor(attn_context *ctx, attn__writer *writer, const char *name, int32_t dtype, int32_t rank,
                                const int64_t *shape, const void *data);
attn_status attn__writer_chunk(attn_context *ctx, attn__writer *writer, const void *data, int64_t bytes); /* of the last tensor */
/* Replaces the file at path by what was collected, or leaves it as it was (see attn__file_replace). A name twice, or chunks that
   do not add up to the shape: INVALID_ARGUMENT. */
attn_status attn__file_write(attn_context *ctx, const attn__writer *writer, const char *path);
#endif

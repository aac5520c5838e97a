#ifndef ATTN_MODELS_TRANSFORMER_FILE_H
#define ATTN_MODELS_TRANSFORMER_FILE_H
#include "../formats/safetensors.h"
#include "transformer.h"

/* Pieces of saving and loading that a trainer's checkpoint shares. */
/* options, aliases and parameters into a writer */
attn_status attn__transformer_write(attn_context *ctx, attn__writer *writer, const attn_parameters *parameters);
/* a path and the caller's own metadata: no NULLs, no key that starts with "attn." */
attn_status attn__check_metadata(attn_context *ctx, int64_t count, const char *const *keys, const char *const *values, const char *path);
/* resolved: what an older version did not know is what it was then, as for a caller who does not know it */
attn_status attn__transformer_file_options(attn_context *ctx, const attn__file *file, const char *path, attn_transformer_options *out);
/* options resolved; *out NULL: all heads are there */
attn_status attn__transformer_file_heads(attn_context *ctx, const attn__file *file, const char *path,
                                         const attn_transformer_options *options, attn__left **out);
#endif

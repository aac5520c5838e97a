#ifndef ATTN_FORMATS_INPUT_H
#define ATTN_FORMATS_INPUT_H
#include "../core/context.h"

/* INVALID_ARGUMENT: NULL or empty */
attn_status attn__check_path(attn_context *ctx, const char *path);
/* Regular files opened for reading. IO errors carry the path and the reason. */
attn_status attn__input_open(attn_context *ctx, const char *path, int32_t *descriptor, int64_t *bytes);
/* bytes at offset; a file that ends before them is BAD_FILE */
attn_status attn__input_read(attn_context *ctx, const char *path, int32_t descriptor, int64_t offset, void *to, int64_t bytes);
void attn__input_close(int32_t descriptor);
/* IO: "path: what failed: why" from errno */
attn_status attn__fail_io(attn_context *ctx, const char *path, const char *what, int error);
/* the end of a path that is too long for a message */
const char *attn__path_shown(const char *path);
#endif

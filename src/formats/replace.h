#ifndef ATTN_FORMATS_REPLACE_H
#define ATTN_FORMATS_REPLACE_H
#include "../core/context.h"

typedef struct attn__piece {
    const void *data;
    int64_t bytes;
} attn__piece;

/* Makes the file at path hold the pieces, one after another; whatever happens it is the old file or the new one, whole. Written to
   a new file ".attn-<process>-<random>.tmp" in the same folder, flushed to the disk, renamed over the old one. A link stays a link
   and its target is replaced; an old file's permissions are kept. IO: any system call that fails, with the path and the reason;
   the new file is then removed. A full disk or a file size limit is an error, never a signal. */
attn_status attn__file_replace(attn_context *ctx, const char *path, const attn__piece *pieces, int64_t count);
#endif

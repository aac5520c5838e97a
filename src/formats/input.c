#include "input.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SHOWN = 200, READ_AT_ONCE = 1 << 30 };

const char *attn__path_shown(const char *path)
{
    size_t bytes = strlen(path);
    if (bytes <= PATH_SHOWN) return path;
    path += bytes - PATH_SHOWN;
    while (((unsigned char)*path & 0xC0) == 0x80) path++; /* not from the middle of a character */
    return path;
}

attn_status attn__fail_io(attn_context *ctx, const char *path, const char *what, int error)
{
    char text[128];
    /* strerror may share its buffer between threads; the GNU strerror_r gives back the text, the POSIX one writes it */
#ifdef __GLIBC__
    const char *reason = strerror_r(error, text, sizeof text);
#else
    const char *reason = strerror_r(error, text, sizeof text) == 0 ? text : "unknown error";
#endif
    return attn__fail(ctx, ATTN_ERROR_IO, "%s: %s: %s", attn__path_shown(path), what, reason);
}

attn_status attn__check_path(attn_context *ctx, const char *path)
{
    if (path != NULL && *path != 0) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "path: got %s, expected a file name", path ? "\"\"" : "NULL");
}

attn_status attn__input_open(attn_context *ctx, const char *path, int32_t *descriptor, int64_t *bytes)
{
    *descriptor = -1;
    *bytes = 0;
    int fd;
    /* a pipe must not make the open wait */
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return attn__fail_io(ctx, path, "cannot be opened", errno);
    struct stat about;
    attn_status status = ATTN_OK;
    if (fstat(fd, &about) != 0)
        status = attn__fail_io(ctx, path, "cannot be examined", errno);
    else if (S_ISDIR(about.st_mode))
        status = attn__fail_io(ctx, path, "cannot be read", EISDIR);
    else if (!S_ISREG(about.st_mode))
        status = attn__fail(ctx, ATTN_ERROR_IO, "%s: not a regular file", attn__path_shown(path));
    if (status != ATTN_OK) {
        close(fd);
        return status;
    }
    *descriptor = fd;
    *bytes = (int64_t)about.st_size;
    return ATTN_OK;
}

attn_status attn__input_read(attn_context *ctx, const char *path, int32_t descriptor, int64_t offset, void *to, int64_t bytes)
{
    char *at = to;
    for (int64_t done = 0; done < bytes;) {
        int64_t left = bytes - done;
        ssize_t got = pread(descriptor, at + done, (size_t)(left < READ_AT_ONCE ? left : READ_AT_ONCE), (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return attn__fail_io(ctx, path, "cannot be read", errno);
        if (got == 0)
            return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: truncated: ends at byte %lld, expected %lld more", attn__path_shown(path),
                              (long long)(offset + done), (long long)left);
        done += got;
    }
    return ATTN_OK;
}

void attn__input_close(int32_t descriptor)
{
    if (descriptor >= 0) close(descriptor);
}

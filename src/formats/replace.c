#include "replace.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "../core/random.h"
#include "input.h"

enum { LINKS = 40, ATTEMPTS = 100, WRITE_AT_ONCE = 1 << 30, OWN_NAME = 64 };

/* One replacement under way */
typedef struct replacement {
    const char *path;      /* as the caller wrote it, for messages */
    char target[PATH_MAX]; /* what the path leads to, itself no link */
    size_t folder;         /* bytes of target up to and with the last slash */
    char temporary[PATH_MAX + OWN_NAME];
    int descriptor;
} replacement;

/* Follows links to the file itself, which need not exist. 0, or an error number. */
static int resolve(replacement *r)
{
    char link[PATH_MAX];
    if (strlen(r->path) >= sizeof r->target) return ENAMETOOLONG;
    memcpy(r->target, r->path, strlen(r->path) + 1);
    for (int links = 0;; links++) {
        char *slash = strrchr(r->target, '/');
        r->folder = slash != NULL ? (size_t)(slash - r->target) + 1 : 0;
        ssize_t bytes = readlink(r->target, link, sizeof link - 1);
        if (bytes < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno; /* EINVAL: not a link */
        if (links == LINKS) return ELOOP;
        size_t keep = link[0] == '/' ? 0 : r->folder;
        if (keep + (size_t)bytes >= sizeof r->target) return ENAMETOOLONG;
        memcpy(r->target + keep, link, (size_t)bytes);
        r->target[keep + (size_t)bytes] = 0;
    }
}

/* 0, or an error number. The name needs no secret: O_EXCL refuses one that exists. */
static int open_temporary(replacement *r)
{
    for (uint64_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t random = attn__mix(attn__mix((uint64_t)now.tv_sec, (uint64_t)now.tv_nsec), attn__mix((uint64_t)(uintptr_t)r, attempt));
        memcpy(r->temporary, r->target, r->folder);
        snprintf(r->temporary + r->folder, OWN_NAME, ".attn-%lld-%016llx.tmp", (long long)getpid(), (unsigned long long)random);
        do r->descriptor = open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        while (r->descriptor < 0 && errno == EINTR);
        if (r->descriptor >= 0) return 0;
        if (errno != EEXIST) return errno;
    }
    return EEXIST;
}

/* An old file keeps its permissions: a private checkpoint stays private. */
static int keep_mode(int descriptor, mode_t old)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0) return errno;
    mode_t mode = old & 0777;
    if ((about.st_mode & 0777) == mode) return 0;
    return fchmod(descriptor, mode) != 0 ? errno : 0;
}

static int write_pieces(int descriptor, const attn__piece *pieces, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const char *at = pieces[i].data;
        for (int64_t left = pieces[i].bytes; left > 0;) {
            ssize_t wrote = write(descriptor, at, (size_t)(left < WRITE_AT_ONCE ? left : WRITE_AT_ONCE));
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote <= 0) return wrote < 0 ? errno : EIO;
            at += wrote;
            left -= wrote;
        }
    }
    return 0;
}

/* A write past the process's file size limit raises SIGXFSZ, which by default ends the process. It is sent to the writing
   thread: held back here and taken away, unless the caller had one pending or holds it back itself. */
static int write_quietly(int descriptor, const attn__piece *pieces, int64_t count)
{
    sigset_t mine, before, pending;
    sigemptyset(&mine);
    sigaddset(&mine, SIGXFSZ);
    sigpending(&pending);
    int blocked = pthread_sigmask(SIG_BLOCK, &mine, &before) == 0;
    int error = write_pieces(descriptor, pieces, count);
    if (!blocked) return error;
    if (error == EFBIG && !sigismember(&pending, SIGXFSZ)) {
        struct timespec at_once = {0, 0};
        while (sigtimedwait(&mine, NULL, &at_once) < 0 && errno == EINTR) continue;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* The new name is safe only when its folder is. A folder that cannot be opened or flushed (some file systems) is let be. */
static int flush_folder(const replacement *r)
{
    char folder[PATH_MAX];
    memcpy(folder, r->target, r->folder);
    folder[r->folder] = 0;
    int descriptor, error;
    do descriptor = open(r->folder > 0 ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) return 0;
    do error = fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
    while (error == EINTR);
    close(descriptor);
    return error;
}

/* Fills, flushes and closes the temporary file. Names the step that failed. */
static int fill(replacement *r, const struct stat *old, const attn__piece *pieces, int64_t count, const char **step)
{
    *step = "permissions cannot be kept";
    int error = old != NULL ? keep_mode(r->descriptor, old->st_mode) : 0;
    if (error == 0) {
        *step = "cannot be written";
        error = write_quietly(r->descriptor, pieces, count);
    }
    if (error == 0) {
        *step = "cannot be flushed to the disk";
        do error = fsync(r->descriptor) != 0 ? errno : 0;
        while (error == EINTR);
    }
    if (close(r->descriptor) != 0 && error == 0 && errno != EINTR) { /* after EINTR the descriptor is closed, and fsync has been */
        *step = "cannot be closed";
        error = errno;
    }
    return error;
}

attn_status attn__file_replace(attn_context *ctx, const char *path, const attn__piece *pieces, int64_t count)
{
    replacement r;
    r.path = path;
    int error = resolve(&r);
    if (error != 0) return attn__fail_io(ctx, path, "cannot be resolved", error);
    struct stat old;
    int exists = lstat(r.target, &old) == 0;
    if (!exists && errno != ENOENT) return attn__fail_io(ctx, path, "cannot be examined", errno);
    if (exists && S_ISDIR(old.st_mode)) return attn__fail_io(ctx, path, "cannot be written", EISDIR);
    if (exists && !S_ISREG(old.st_mode))
        return attn__fail(ctx, ATTN_ERROR_IO, "%s: cannot be written: not a regular file", attn__path_shown(path));
    if (r.target[r.folder] == 0) return attn__fail_io(ctx, path, "cannot be written", r.folder > 0 ? EISDIR : ENOENT);
    error = open_temporary(&r);
    if (error != 0) return attn__fail_io(ctx, path, "no new file can be made in its folder", error);

    const char *step;
    error = fill(&r, exists ? &old : NULL, pieces, count, &step);
    if (error == 0 && rename(r.temporary, r.target) != 0) {
        step = "cannot be put in place";
        error = errno;
    }
    if (error != 0) {
        unlink(r.temporary);
        return attn__fail_io(ctx, path, step, error);
    }
    error = flush_folder(&r);
    return error == 0 ? ATTN_OK : attn__fail_io(ctx, path, "was replaced, but its folder cannot be flushed to the disk", error);
}

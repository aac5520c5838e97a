/* Loaded before the C library (LD_PRELOAD): counts the calls that change files and interferes with one of them.
   ATTN_SHIM=MODE:CALL:N[:M]   MODE: kill (before the call), torn (after half of it), term (SIGTERM to itself, then the call),
                               full (no space left), sick (EIO). CALL: any, open, write, sync, rename. N: the n-th such call, from 1;
                               full and sick go on for M calls, 0: for ever.
   ATTN_SHIM_COUNTS=FILE       at the end, writes how many there were: any open write sync rename */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ANY, OPEN, WRITE, SYNC, RENAME, CALLS };
static const char *const names[CALLS] = {"any", "open", "write", "sync", "rename"};
static long counts[CALLS]; /* one thread alone writes files */
static char mode[8];
static int call;
static long first, length;

__attribute__((constructor)) static void start(void)
{
    char word[8] = "";
    const char *text = getenv("ATTN_SHIM");
    if (text == NULL || sscanf(text, "%7[a-z]:%7[a-z]:%ld:%ld", mode, word, &first, &length) < 3) mode[0] = 0;
    while (call < CALLS - 1 && strcmp(names[call], word) != 0) call++;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("ATTN_SHIM_COUNTS");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL) return;
    for (int i = 0; i < CALLS; i++) fprintf(file, "%ld ", counts[i]);
    fclose(file);
}

/* Is this the call to interfere with? Those that only need a signal are served here. */
static int chosen(int which)
{
    counts[ANY]++;
    counts[which]++;
    if (mode[0] == 0 || (call != ANY && call != which)) return 0;
    long n = counts[call];
    int lasts = mode[0] == 'f' || mode[0] == 's';
    if (lasts ? n < first || (length > 0 && n >= first + length) : n != first) return 0;
    if (mode[0] == 'k') kill(getpid(), SIGKILL);
    if (strcmp(mode, "term") == 0) kill(getpid(), SIGTERM);
    return strcmp(mode, "term") != 0;
}

/* the end of an interfered call: the process dies, or an error number is set */
static int fails(void)
{
    if (strcmp(mode, "torn") == 0) kill(getpid(), SIGKILL);
    errno = mode[0] == 'f' ? ENOSPC : EIO;
    return -1;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}
#define NEXT(type, name) ((type)(size_t)next(name))

static int is_file(int descriptor)
{
    struct stat about;
    int before = errno, yes = fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode);
    errno = before;
    return yes;
}

int open(const char *path, int flags, ...)
{
    int permissions = 0;
    if (flags & O_CREAT) {
        va_list arguments;
        va_start(arguments, flags);
        permissions = va_arg(arguments, int);
        va_end(arguments);
    }
    int made = (flags & O_CREAT) && chosen(OPEN);
    if (made && mode[0] != 't') return fails();
    int descriptor = NEXT(int (*)(const char *, int, ...), "open")(path, flags, permissions);
    return made ? fails() : descriptor;
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

ssize_t write(int descriptor, const void *data, size_t bytes)
{
    ssize_t (*real)(int, const void *, size_t) = NEXT(ssize_t(*)(int, const void *, size_t), "write");
    if (!is_file(descriptor) || !chosen(WRITE)) return real(descriptor, data, bytes);
    ssize_t wrote = mode[0] != 's' && bytes > 1 ? real(descriptor, data, bytes / 2) : 0;
    return mode[0] == 'f' && wrote > 0 && counts[call] == first ? wrote : fails(); /* a full disk takes what fits, then no more */
}

ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = NEXT(ssize_t(*)(int, const void *, size_t, off_t), "pwrite");
    if (!is_file(descriptor) || !chosen(WRITE)) return real(descriptor, data, bytes, offset);
    ssize_t wrote = mode[0] != 's' && bytes > 1 ? real(descriptor, data, bytes / 2, offset) : 0;
    return mode[0] == 'f' && wrote > 0 && counts[call] == first ? wrote : fails();
}

ssize_t pwrite64(int descriptor, const void *data, size_t bytes, off_t offset) __attribute__((alias("pwrite")));

int fsync(int descriptor)
{
    int hit = chosen(SYNC);
    if (hit && mode[0] != 't') return fails();
    int result = NEXT(int (*)(int), "fsync")(descriptor);
    return hit ? fails() : result;
}

int rename(const char *from, const char *to)
{
    int hit = chosen(RENAME);
    if (hit && mode[0] != 't') return fails();
    int result = NEXT(int (*)(const char *, const char *), "rename")(from, to);
    return hit ? fails() : result;
}

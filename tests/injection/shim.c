/* Loaded before the C library (LD_PRELOAD): counts the calls of a program that can fail and lets some of them fail. Calls that others make for
   themselves (BLAS, the loader) are left alone: who calls is known by the return address.
   ATTN_INJECT=KIND:MODE:N   KIND: any, memory, files, threads. MODE: once (the N-th call of the kind) or always (it and all after it).
   ATTN_INJECT_COUNT=FILE    at the end, writes how many there were of each kind, and 1 when a file could not be removed. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ANY, MEMORY, FILES, THREADS, KINDS };
static const char *const kinds[KINDS] = {"any", "memory", "files", "threads"};
static atomic_long counts[KINDS], removals;
static atomic_int armed;
static int kind, always;
static long nth;
static struct {
    uintptr_t from, to;
} callers[16];
static int callers_count;

static int remember(struct dl_phdr_info *info, size_t size, void *data)
{
    static const char *const watched[] = {"/libattn.so", "/libjansson.so", "/libc.so"};
    (void)size;
    (void)data;
    int wanted = info->dlpi_name[0] == 0; /* the program itself */
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) wanted |= strstr(info->dlpi_name, watched[i]) != NULL;
    for (int i = 0; wanted && i < info->dlpi_phnum && callers_count < 16; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        callers[callers_count].from = info->dlpi_addr + p->p_vaddr;
        callers[callers_count++].to = info->dlpi_addr + p->p_vaddr + p->p_memsz;
    }
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    char word[16] = "", mode[16] = "";
    const char *text = getenv("ATTN_INJECT");
    if (text != NULL && sscanf(text, "%15[a-z]:%15[a-z]:%ld", word, mode, &nth) == 3) {
        while (kind < KINDS - 1 && strcmp(kinds[kind], word) != 0) kind++;
        always = strcmp(mode, "always") == 0;
    }
    dl_iterate_phdr(remember, NULL);
    armed = 1;
}

__attribute__((destructor)) static void end(void)
{
    armed = 0;
    const char *path = getenv("ATTN_INJECT_COUNT");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL) return;
    for (int i = 0; i < KINDS; i++) fprintf(file, "%ld ", counts[i]);
    fprintf(file, "%d\n", removals > 0);
    fclose(file);
}

/* does this call fail? */
static int fails(int what, const void *caller, int error)
{
    if (!armed) return 0;
    int ours = 0;
    for (int i = 0; i < callers_count; i++) ours |= (uintptr_t)caller >= callers[i].from && (uintptr_t)caller < callers[i].to;
    if (!ours) return 0;
    long all = ++counts[ANY], own = ++counts[what], call = kind == ANY ? all : own;
    if (nth == 0 || (kind != ANY && kind != what) || (always ? call < nth : call != nth)) return 0;
    errno = error;
    return 1;
}
#define FAILS(what, error) fails(what, __builtin_return_address(0), error)

/* the function of the C library, or of a sanitizer, that stands behind ours */
#define NEXT(name, type, ...) \
    static type (*next)(__VA_ARGS__); \
    if (next == NULL) { \
        void *symbol = dlsym(RTLD_NEXT, name); \
        memcpy(&next, &symbol, sizeof next); \
    }

/* dlsym may itself ask for memory before it has said where that is: it comes from here, and is never given back */
static _Alignas(64) char early[65536];
static size_t early_used;
static __thread int resolving;
static void *take_early(size_t size)
{
    size = (size + 63) / 64 * 64;
    if (size > sizeof early - early_used) return NULL;
    early_used += size;
    return early + early_used - size;
}

static int is_early(const void *pointer)
{
    return (uintptr_t)pointer >= (uintptr_t)early && (uintptr_t)pointer < (uintptr_t)early + sizeof early;
}

/* as NEXT, for what dlsym itself may call */
#define NEXT_MEMORY(name, early_result, type, ...) \
    static type (*next)(__VA_ARGS__); \
    if (next == NULL) { \
        if (resolving) return early_result; \
        resolving = 1; \
        void *symbol = dlsym(RTLD_NEXT, name); \
        memcpy(&next, &symbol, sizeof next); \
        resolving = 0; \
    }

void *malloc(size_t size)
{
    NEXT_MEMORY("malloc", take_early(size), void *, size_t)
    return FAILS(MEMORY, ENOMEM) ? NULL : next(size);
}

void *calloc(size_t count, size_t size)
{
    NEXT_MEMORY("calloc", take_early(count * size), void *, size_t, size_t)
    return FAILS(MEMORY, ENOMEM) ? NULL : next(count, size);
}

void *realloc(void *pointer, size_t size)
{
    NEXT_MEMORY("realloc", NULL, void *, void *, size_t)
    if (is_early(pointer)) {
        size_t room = (size_t)(early + sizeof early - (char *)pointer);
        void *made = malloc(size);
        return made != NULL ? memcpy(made, pointer, size < room ? size : room) : NULL;
    }
    return FAILS(MEMORY, ENOMEM) ? NULL : next(pointer, size);
}

void free(void *pointer)
{
    if (is_early(pointer)) return;
    NEXT_MEMORY("free", (void)0, void, void *)
    next(pointer);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    NEXT("posix_memalign", int, void **, size_t, size_t)
    return FAILS(MEMORY, ENOMEM) ? ENOMEM : next(out, alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    NEXT("aligned_alloc", void *, size_t, size_t)
    return FAILS(MEMORY, ENOMEM) ? NULL : next(alignment, size);
}

int open(const char *path, int flags, ...)
{
    NEXT("open", int, const char *, int, ...)
    int permissions = 0;
    if (flags & O_CREAT) {
        va_list arguments;
        va_start(arguments, flags);
        permissions = va_arg(arguments, int);
        va_end(arguments);
    }
    return FAILS(FILES, EIO) ? -1 : next(path, flags, permissions);
}
int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int close(int descriptor)
{
    NEXT("close", int, int)
    int failed = FAILS(FILES, EIO), result = next(descriptor); /* it is closed whatever the result says */
    if (failed) errno = EIO;
    return failed ? -1 : result;
}

ssize_t read(int descriptor, void *to, size_t bytes)
{
    NEXT("read", ssize_t, int, void *, size_t)
    return FAILS(FILES, EIO) ? -1 : next(descriptor, to, bytes);
}

ssize_t pread(int descriptor, void *to, size_t bytes, off_t offset)
{
    NEXT("pread", ssize_t, int, void *, size_t, off_t)
    return FAILS(FILES, EIO) ? -1 : next(descriptor, to, bytes, offset);
}
ssize_t pread64(int descriptor, void *to, size_t bytes, off_t offset) __attribute__((alias("pread")));

/* half of it is written first */
ssize_t write(int descriptor, const void *from, size_t bytes)
{
    NEXT("write", ssize_t, int, const void *, size_t)
    if (!FAILS(FILES, ENOSPC)) return next(descriptor, from, bytes);
    if (bytes > 1) (void)!next(descriptor, from, bytes / 2);
    errno = ENOSPC;
    return -1;
}

ssize_t pwrite(int descriptor, const void *from, size_t bytes, off_t offset)
{
    NEXT("pwrite", ssize_t, int, const void *, size_t, off_t)
    if (!FAILS(FILES, ENOSPC)) return next(descriptor, from, bytes, offset);
    if (bytes > 1) (void)!next(descriptor, from, bytes / 2, offset);
    errno = ENOSPC;
    return -1;
}
ssize_t pwrite64(int descriptor, const void *from, size_t bytes, off_t offset) __attribute__((alias("pwrite")));

int fsync(int descriptor)
{
    (void)descriptor; /* nobody cuts the power */
    return FAILS(FILES, EIO) ? -1 : 0;
}

int fstat(int descriptor, struct stat *out)
{
    NEXT("fstat", int, int, struct stat *)
    return FAILS(FILES, EIO) ? -1 : next(descriptor, out);
}
int fstat64(int descriptor, struct stat64 *out) __attribute__((alias("fstat")));

int stat(const char *path, struct stat *out)
{
    NEXT("stat", int, const char *, struct stat *)
    return FAILS(FILES, EIO) ? -1 : next(path, out);
}
int stat64(const char *path, struct stat64 *out) __attribute__((alias("stat")));

int lstat(const char *path, struct stat *out)
{
    NEXT("lstat", int, const char *, struct stat *)
    return FAILS(FILES, EIO) ? -1 : next(path, out);
}
int lstat64(const char *path, struct stat64 *out) __attribute__((alias("lstat")));

ssize_t readlink(const char *path, char *to, size_t bytes)
{
    NEXT("readlink", ssize_t, const char *, char *, size_t)
    return FAILS(FILES, EIO) ? -1 : next(path, to, bytes);
}

char *realpath(const char *path, char *to)
{
    NEXT("realpath", char *, const char *, char *)
    return FAILS(FILES, EIO) ? NULL : next(path, to);
}

int fchmod(int descriptor, mode_t permissions)
{
    NEXT("fchmod", int, int, mode_t)
    return FAILS(FILES, EIO) ? -1 : next(descriptor, permissions);
}

int ftruncate(int descriptor, off_t bytes)
{
    NEXT("ftruncate", int, int, off_t)
    return FAILS(FILES, EIO) ? -1 : next(descriptor, bytes);
}
int ftruncate64(int descriptor, off_t bytes) __attribute__((alias("ftruncate")));

int rename(const char *from, const char *to)
{
    NEXT("rename", int, const char *, const char *)
    return FAILS(FILES, EIO) ? -1 : next(from, to);
}

int unlink(const char *path)
{
    NEXT("unlink", int, const char *)
    if (!FAILS(FILES, EIO)) return next(path);
    removals++;
    return -1;
}

int unlinkat(int folder, const char *path, int flags)
{
    NEXT("unlinkat", int, int, const char *, int)
    if (!FAILS(FILES, EIO)) return next(folder, path, flags);
    removals++;
    return -1;
}

int mkdir(const char *path, mode_t permissions)
{
    NEXT("mkdir", int, const char *, mode_t)
    return FAILS(FILES, EIO) ? -1 : next(path, permissions);
}

FILE *fopen(const char *path, const char *how)
{
    NEXT("fopen", FILE *, const char *, const char *)
    return FAILS(FILES, EIO) ? NULL : next(path, how);
}
FILE *fopen64(const char *path, const char *how) __attribute__((alias("fopen")));

#define ERROR_SEEN 0x20 /* of glibc's flags: what ferror looks at */

size_t fread(void *to, size_t size, size_t count, FILE *file)
{
    NEXT("fread", size_t, void *, size_t, size_t, FILE *)
    if (!FAILS(FILES, EIO)) return next(to, size, count, file);
    file->_flags |= ERROR_SEEN;
    return 0;
}

/* what was buffered is lost, but for its first half */
int fflush(FILE *file)
{
    NEXT("fflush", int, FILE *)
    if (file == NULL || file == stderr || !FAILS(FILES, ENOSPC)) return next(file);
    file->_IO_write_ptr -= (file->_IO_write_ptr - file->_IO_write_base + 1) / 2;
    next(file);
    file->_flags |= ERROR_SEEN;
    errno = ENOSPC;
    return EOF;
}

int fclose(FILE *file)
{
    NEXT("fclose", int, FILE *)
    int failed = FAILS(FILES, EIO), result = next(file);
    if (failed) errno = EIO;
    return failed ? EOF : result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    NEXT("pthread_create", int, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    return FAILS(THREADS, EAGAIN) ? EAGAIN : next(thread, attributes, run, argument);
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    NEXT("pthread_mutex_init", int, pthread_mutex_t *, const pthread_mutexattr_t *)
    return FAILS(MEMORY, ENOMEM) ? ENOMEM : next(mutex, attributes);
}

int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    NEXT("pthread_cond_init", int, pthread_cond_t *, const pthread_condattr_t *)
    return FAILS(MEMORY, ENOMEM) ? ENOMEM : next(condition, attributes);
}

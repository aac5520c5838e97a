#include "injection/inject.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "autograd/tape_state.h"
#include "kernels/kernels.h"

enum { MEMORY = 1, FILES = 2, INTERRUPTIBLE = 4, DIVISIBLE = 8, FATAL = 16, REMOVAL = 32, LOOK = 64, KERNELS = 128 }; /* what a call is */
enum { DO_IT, FAIL, INTERRUPT, SHORTEN, CANCEL };

static atomic_int armed;
static int mode;
static long nth;
static atomic_long calls, memory_failed, files_failed, fatal, removals, cancels, kernels, live, wrong;
static const char *_Atomic first_name;
static const attn__arena *_Atomic refused_arena;

void inject_arm(int new_mode, long number)
{
    mode = new_mode;
    nth = number;
    calls = memory_failed = files_failed = fatal = removals = cancels = kernels = 0;
    first_name = NULL;
    refused_arena = NULL;
    armed = 1;
}

inject_report inject_disarm(void)
{
    armed = 0;
    return (inject_report){calls, memory_failed, files_failed, cancels, kernels, fatal, removals, first_name};
}

long inject_live(void)
{
    return live;
}

long inject_wrong(void)
{
    return wrong;
}

/* what happens to a call of these traits */
static int decide(int traits, const char *name)
{
    if (!armed) return DO_IT;
    if (mode == INJECT_INTERRUPT && !(traits & INTERRUPTIBLE)) return DO_IT;
    if (mode == INJECT_SHORT && !(traits & DIVISIBLE)) return DO_IT;
    if ((mode == INJECT_CANCEL) != ((traits & LOOK) != 0)) return DO_IT;
    long call = ++calls;
    if (mode == INJECT_ALWAYS ? call < nth : call != nth) return DO_IT;
    const char *none = NULL;
    atomic_compare_exchange_strong(&first_name, &none, name);
    if (mode == INJECT_INTERRUPT) return INTERRUPT;
    if (mode == INJECT_SHORT) return SHORTEN;
    if (mode == INJECT_CANCEL) {
        cancels++;
        return CANCEL;
    }
    if (traits & KERNELS) kernels++;
    if (traits & MEMORY) memory_failed++;
    if (traits & FILES) files_failed++;
    if (traits & FATAL) fatal++;
    if (traits & REMOVAL) removals++;
    return FAIL;
}

static void *counted(void *pointer)
{
    if (pointer != NULL) live++;
    return pointer;
}

/* 1 with errno set when the call is not to be made */
static int refused(int traits, const char *name, int error)
{
    int what = decide(traits, name);
    if (what == FAIL) errno = error;
    if (what == INTERRUPT) errno = EINTR;
    return what == FAIL || what == INTERRUPT;
}

/* Hooks of a context and the JSON reader's memory: a header holds the size. */
enum { HEADER = 128, SCRIBBLED = 4096 };
void *__real_malloc(size_t size);
void __real_free(void *pointer);
int __real_posix_memalign(void **out, size_t alignment, size_t size);

static void *take(const char *name, uint64_t size)
{
    void *base = NULL;
    if (decide(MEMORY, name) == FAIL || size > PTRDIFF_MAX / 2 || __real_posix_memalign(&base, HEADER, (size_t)size + HEADER) != 0)
        return NULL;
    memcpy(base, &size, sizeof size);
    return (char *)counted(base) + HEADER;
}

static void give_back(void *pointer, uint64_t *size)
{
    char *base = (char *)pointer - HEADER;
    memcpy(size, base, sizeof *size);
    memset(base, 0xDB, *size < SCRIBBLED ? (size_t)*size + HEADER : SCRIBBLED);
    live--;
    __real_free(base);
}

static void *allocate(void *user, uint64_t size, uint64_t alignment)
{
    (void)user;
    if (alignment != 64) wrong++;
    return take("allocate", size);
}

static void release(void *user, void *pointer, uint64_t size)
{
    uint64_t booked;
    (void)user;
    give_back(pointer, &booked);
    if (booked != size) wrong++;
}

attn_allocator inject_allocator(void)
{
    return (attn_allocator){sizeof(attn_allocator), allocate, release, NULL};
}

static int json_spared;
void inject_spare_json(int spared)
{
    json_spared = spared;
}

static void *json_take(size_t size)
{
    int before = armed;
    if (json_spared) armed = 0;
    void *taken = take("malloc of the JSON reader", size);
    armed = before;
    return taken;
}

static void json_give_back(void *pointer)
{
    uint64_t size;
    if (pointer != NULL) give_back(pointer, &size);
}

void inject_json(void)
{
    json_set_alloc_funcs(json_take, json_give_back);
}

/* Everything below is called in place of the function whose name it bears. */
#define WRAP(type, name, ...) \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return refused(MEMORY, "malloc", ENOMEM) ? NULL : counted(__real_malloc(size));
}

WRAP(void *, calloc, size_t count, size_t size)
{
    return refused(MEMORY, "calloc", ENOMEM) ? NULL : counted(__real_calloc(count, size));
}

WRAP(void *, realloc, void *pointer, size_t size)
{
    if (refused(MEMORY, "realloc", ENOMEM)) return NULL;
    void *made = __real_realloc(pointer, size);
    return pointer == NULL ? counted(made) : made;
}

WRAP(void *, aligned_alloc, size_t alignment, size_t size)
{
    return refused(MEMORY, "aligned_alloc", ENOMEM) ? NULL : counted(__real_aligned_alloc(alignment, size));
}

WRAP(char *, strdup, const char *text)
{
    return refused(MEMORY, "strdup", ENOMEM) ? NULL : counted(__real_strdup(text));
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    if (decide(MEMORY, "posix_memalign") == FAIL) return ENOMEM;
    int error = __real_posix_memalign(out, alignment, size);
    if (error == 0) live++;
    return error;
}

void __wrap_free(void *pointer);
void __wrap_free(void *pointer)
{
    if (pointer != NULL) live--;
    __real_free(pointer);
}

/* An arena takes memory in large pieces; whenever it is asked for some, it could need one. */
WRAP(void *, attn__arena_take, attn__arena *arena, int64_t bytes)
{
    int fails = decide(MEMORY, "attn__arena_take") == FAIL;
    void *taken = fails ? NULL : __real_attn__arena_take(arena, bytes);
    if (taken == NULL) refused_arena = fails ? arena : NULL; /* an arena's status stays until it fails again */
    return taken;
}

WRAP(attn_status, attn__arena_status, const attn__arena *arena)
{
    return arena == refused_arena ? ATTN_ERROR_OUT_OF_MEMORY : __real_attn__arena_status(arena);
}

WRAP(attn_status, attn__arena_reserve, attn__arena *arena, int64_t bytes)
{
    return decide(MEMORY, "attn__arena_reserve") == FAIL ? ATTN_ERROR_OUT_OF_MEMORY : __real_attn__arena_reserve(arena, bytes);
}

/* so does a list of a tape; of spans, a watch has made sure that there is room */
WRAP(attn_status, attn__list_add, attn_context *ctx, attn_tape *tape, attn__list *list, int64_t entry_bytes, void **entry)
{
    if (list != &tape->spans && decide(MEMORY, "attn__list_add") == FAIL) return attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, "tape");
    return __real_attn__list_add(ctx, tape, list, entry_bytes, entry);
}

/* a cancel is looked for before anything runs, and not while a step commits */
WRAP(attn_status, attn__run, attn_context *ctx, int64_t tiles, attn__tile_function *tile, void *job)
{
    if (tiles > 0 && !ctx->committing && decide(LOOK, "attn__run") == CANCEL) (void)attn_context_cancel(ctx);
    return __real_attn__run(ctx, tiles, tile, job);
}

WRAP(attn_status, attn__cancelled, attn_context *ctx)
{
    if (decide(LOOK, "attn__cancelled") == CANCEL) (void)attn_context_cancel(ctx);
    return __real_attn__cancelled(ctx);
}

static int kernels_spared;
void inject_spare_kernels(int spared)
{
    kernels_spared = spared;
}

/* as when BLAS gives a wrong answer, or the backend was changed between forward and backward */
WRAP(attn_status, attn__kernels_for, attn_context *ctx, int32_t dtype, const attn__kernels **out)
{
    if (ctx->dry || ctx->committing || kernels_spared || decide(KERNELS | FATAL, "attn__kernels_for") != FAIL)
        return __real_attn__kernels_for(ctx, dtype, out);
    *out = NULL;
    return attn__fail(ctx, ATTN_ERROR_BLAS, "BLAS: refused by this test");
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned permissions = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    /* a folder is opened to be flushed: where that cannot be, it is let be */
    if (refused(flags & O_DIRECTORY ? FILES : FILES | FATAL | INTERRUPTIBLE, "open", EIO)) return -1;
    return __real_open(path, flags, permissions);
}

WRAP(int, close, int descriptor)
{
    int written = (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY;
    int failed = refused(written ? FILES | FATAL | INTERRUPTIBLE : FILES | INTERRUPTIBLE, "close", EIO), error = errno;
    int result = __real_close(descriptor); /* it is closed whatever the result says */
    if (failed) errno = error;
    return failed ? -1 : result;
}

WRAP(ssize_t, pread, int descriptor, void *to, size_t bytes, off_t offset)
{
    int what = decide(FILES | FATAL | INTERRUPTIBLE | (bytes > 1 ? DIVISIBLE : 0), "pread");
    if (what == FAIL || what == INTERRUPT) errno = what == FAIL ? EIO : EINTR;
    return what == FAIL || what == INTERRUPT ? -1 : __real_pread(descriptor, to, what == SHORTEN ? 1 : bytes, offset);
}

WRAP(ssize_t, write, int descriptor, const void *from, size_t bytes)
{
    int what = decide(FILES | FATAL | INTERRUPTIBLE | (bytes > 1 ? DIVISIBLE : 0), "write");
    if (what == FAIL || what == INTERRUPT) errno = what == FAIL ? ENOSPC : EINTR;
    return what == FAIL || what == INTERRUPT ? -1 : __real_write(descriptor, from, what == SHORTEN ? 1 : bytes);
}

WRAP(int, fsync, int descriptor)
{
    if (refused(FILES | FATAL | INTERRUPTIBLE, "fsync", EIO)) return -1;
    return fcntl(descriptor, F_GETFD) < 0 ? __real_fsync(descriptor) : 0; /* no test cuts the power: the disk need not be waited for */
}

WRAP(int, fstat, int descriptor, struct stat *out)
{
    return refused(FILES | FATAL, "fstat", EIO) ? -1 : __real_fstat(descriptor, out);
}

WRAP(int, lstat, const char *path, struct stat *out)
{
    return refused(FILES | FATAL, "lstat", EIO) ? -1 : __real_lstat(path, out);
}

WRAP(ssize_t, readlink, const char *path, char *to, size_t bytes)
{
    return refused(FILES | FATAL, "readlink", EIO) ? -1 : __real_readlink(path, to, bytes);
}

WRAP(int, fchmod, int descriptor, mode_t permissions)
{
    return refused(FILES | FATAL, "fchmod", EIO) ? -1 : __real_fchmod(descriptor, permissions);
}

WRAP(int, rename, const char *from, const char *to)
{
    return refused(FILES | FATAL, "rename", EIO) ? -1 : __real_rename(from, to);
}

WRAP(int, unlink, const char *path)
{
    return refused(FILES | REMOVAL, "unlink", EIO) ? -1 : __real_unlink(path);
}

WRAP(int, sched_getaffinity, pid_t pid, size_t bytes, cpu_set_t *set)
{
    return refused(0, "sched_getaffinity", EINVAL) ? -1 : __real_sched_getaffinity(pid, bytes, set);
}

WRAP(int, pthread_attr_init, pthread_attr_t *attributes)
{
    return decide(0, "pthread_attr_init") == FAIL ? ENOMEM : __real_pthread_attr_init(attributes);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    if (decide(0, "pthread_create") == FAIL) return EAGAIN;
    int error = __real_pthread_create(thread, attributes, run, argument);
    if (error == 0) live++;
    return error;
}

WRAP(int, pthread_join, pthread_t thread, void **result)
{
    live--;
    return __real_pthread_join(thread, result);
}

WRAP(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    if (decide(MEMORY, "pthread_mutex_init") == FAIL) return ENOMEM;
    int error = __real_pthread_mutex_init(mutex, attributes);
    if (error == 0) live++;
    return error;
}

WRAP(int, pthread_mutex_destroy, pthread_mutex_t *mutex)
{
    live--;
    return __real_pthread_mutex_destroy(mutex);
}

WRAP(int, pthread_cond_init, pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    if (decide(MEMORY, "pthread_cond_init") == FAIL) return ENOMEM;
    int error = __real_pthread_cond_init(condition, attributes);
    if (error == 0) live++;
    return error;
}

WRAP(int, pthread_cond_destroy, pthread_cond_t *condition)
{
    live--;
    return __real_pthread_cond_destroy(condition);
}

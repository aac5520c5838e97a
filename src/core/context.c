#include "context.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "guard.h"
#include "utf8.h"

static const attn_context_options default_options = {
    .struct_size = sizeof(attn_context_options),
    .threads = ATTN_THREADS_ALL,
    .memory_cap = -1,
    .guard_blas = 1,
};

int attn__context_valid(const attn_context *ctx)
{
    return attn__is(ctx, ATTN__MAGIC_CONTEXT);
}

/* What a width of the format or the end of the buffer cut in the middle of a character, and bytes of an argument that are no text: a text
   of errors is UTF-8 whatever it quotes, and other languages may read it as such. */
static void keep_text(char *text)
{
    const int64_t bytes = (int64_t)strlen(text);
    for (int64_t at = attn__utf8_invalid(text, bytes); at >= 0; at = attn__utf8_invalid(text, bytes)) text[at] = '?';
}

attn_status attn__fail(attn_context *ctx, attn_status code, const char *format, ...)
{
    char text[sizeof ctx->error]; /* an argument may be the present text */
    va_list arguments;
    if (!attn__context_valid(ctx)) return code;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) snprintf(text, sizeof text, "%s", attn_status_name(code));
    keep_text(text);
    memcpy(ctx->error, text, strlen(text) + 1);
    return code;
}

attn_status attn__fail_memory(attn_context *ctx, attn_status code, const char *what)
{
    int64_t live = 0, peak, allocations;
    if (!attn__context_valid(ctx)) return code;
    attn__memory_read(ctx->memory, &live, &peak, &allocations);
    switch (code) {
    case ATTN_ERROR_MEMORY_CAP:
        return attn__fail(ctx, code, "%s: does not fit under the memory cap of %lld bytes, %lld of them are in use", what,
                          (long long)attn__memory_cap(ctx->memory), (long long)live);
    case ATTN_ERROR_TOO_LARGE: return attn__fail(ctx, code, "%s: its size in bytes is too large for this machine", what);
    default: return attn__fail(ctx, code, "%s: %s, %lld bytes are in use", what, attn_status_name(code), (long long)live);
    }
}

attn_status attn__expect(attn_context *ctx, const char *argument, const void *handle, uint64_t magic, const char *kind)
{
    if (attn__is(handle, magic)) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got %s, expected an %s", argument,
                      handle == NULL ? "NULL" : "a freed or foreign handle", kind);
}

attn_status attn__enter(attn_context *ctx)
{
    if (!attn__context_valid(ctx)) return ATTN_ERROR_INVALID_ARGUMENT;
    if (ctx->depth++ > 0) return ATTN_OK;
    ctx->error[0] = '\0';
    if (ctx->guard_blas) attn__guard_enter(&ctx->saved_omp_threads);
    return ATTN_OK;
}

attn_status attn__leave(attn_context *ctx, attn_status code)
{
    if (--ctx->depth > 0) return code;
    if (ctx->guard_blas) attn__guard_leave(ctx->saved_omp_threads);
    attn__arena_reset(ctx->scratch);
    if (code == ATTN_OK)
        ctx->error[0] = '\0';
    else if (ctx->error[0] == '\0')
        attn__fail(ctx, code, "%s", attn_status_name(code));
    return code;
}

void *attn__take(attn_context *ctx, attn__arena *arena, int64_t bytes, const char *what)
{
    void *pointer = ctx->dry ? attn__arena_pretend(arena, bytes) : attn__arena_take(arena, bytes);
    if (pointer == NULL) attn__fail_memory(ctx, attn__arena_status(arena), what);
    return pointer;
}

void *attn__scratch(attn_context *ctx, int64_t bytes)
{
    void *pointer = attn__arena_take(ctx->scratch, bytes);
    if (pointer == NULL) attn__fail_memory(ctx, attn__arena_status(ctx->scratch), "temporary memory");
    return pointer;
}

static void drop_worker_scratch(attn_context *ctx)
{
    attn__deallocate(ctx->memory, ctx->worker_scratch, ctx->worker_bytes * attn__pool_workers(ctx->pool));
    ctx->worker_scratch = NULL;
    ctx->worker_bytes = 0;
}

attn_status attn__worker_scratch_reserve(attn_context *ctx, int64_t bytes_per_worker)
{
    int64_t bytes, total;
    if (attn__sum(bytes_per_worker, 63, &bytes) || attn__multiply(bytes / 64 * 64, attn__pool_workers(ctx->pool), &total)) {
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "temporary memory of the threads");
    }
    if (bytes_per_worker <= ctx->worker_bytes) return ATTN_OK;
    drop_worker_scratch(ctx);
    attn_status status = attn__allocate(ctx->memory, total, &ctx->worker_scratch);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "temporary memory of the threads");
    ctx->worker_bytes = bytes / 64 * 64;
    return ATTN_OK;
}

void *attn__worker_scratch(attn_context *ctx, int32_t worker)
{
    return ctx->worker_bytes > 0 ? (char *)ctx->worker_scratch + ctx->worker_bytes * worker : NULL;
}

static attn_status take_cancel(attn_context *ctx)
{
    atomic_store(&ctx->cancel, 0);
    return attn__fail(ctx, ATTN_ERROR_CANCELLED, "the call was stopped by attn_context_cancel");
}

/* what stops a job; of one that commits, nothing */
static atomic_int *stops(attn_context *ctx)
{
    return ctx->committing ? NULL : &ctx->cancel;
}

attn_status attn__run(attn_context *ctx, int64_t tiles, attn__tile_function *tile, void *job)
{
    int stopped = attn__pool_run(ctx->pool, tiles, tile, job, stops(ctx), ctx->guard_blas ? attn__guard_thread : NULL);
    return stopped ? take_cancel(ctx) : ATTN_OK;
}

attn_status attn__run_light(attn_context *ctx, int64_t tiles, attn__tile_function *tile, void *job, int64_t multiply_adds)
{
    if (multiply_adds >= ATTN__WORTH_WAKING) return attn__run(ctx, tiles, tile, job);
    return attn__pool_run_alone(tiles, tile, job, stops(ctx)) ? take_cancel(ctx) : ATTN_OK;
}

attn_status attn__cancelled(attn_context *ctx)
{
    return atomic_load_explicit(&ctx->cancel, memory_order_relaxed) != 0 ? take_cancel(ctx) : ATTN_OK;
}

attn_status attn_context_options_init(attn_context_options *options, uint64_t size)
{
    return attn__options_init(options, size, &default_options, sizeof default_options);
}

/* Copies the options onto the defaults and checks every field; the allocator's struct is read the same way. */
static attn_status read_options(const attn_context_options *options, attn_context_options *read, attn_allocator *allocator)
{
    static const attn_allocator no_allocator = {.struct_size = sizeof(attn_allocator)};
    attn_status status =
        attn__options_read(NULL, "options", options, &default_options, sizeof default_options, sizeof default_options, read);
    if (status != ATTN_OK) return status;
    status = attn__options_read(NULL, "allocator", read->allocator, &no_allocator, sizeof no_allocator, sizeof no_allocator, allocator);
    if (status != ATTN_OK) return status;
    if (read->allocator != NULL && (allocator->allocate == NULL || allocator->release == NULL)) return ATTN_ERROR_INVALID_ARGUMENT;
    if (read->backend != ATTN_BACKEND_BLAS && read->backend != ATTN_BACKEND_REFERENCE) return ATTN_ERROR_INVALID_ARGUMENT;
    if (read->threads < 1 && read->threads != ATTN_THREADS_ALL) return ATTN_ERROR_INVALID_ARGUMENT;
    if (read->memory_cap < -1 || read->guard_blas < 0 || read->guard_blas > 1 || read->reserved != 0) return ATTN_ERROR_INVALID_ARGUMENT;
    return ATTN_OK;
}

static void destroy(attn_context *ctx)
{
    attn__memory *memory = ctx->memory;
    if (ctx->pool != NULL) drop_worker_scratch(ctx);
    attn__pool_free(ctx->pool);
    attn__arena_free(ctx->scratch);
    ctx->magic = 0;
    attn__deallocate(memory, ctx, sizeof *ctx);
    attn__memory_release(memory);
}

/* Takes over the caller's reference to memory, also when it fails. */
static attn_status build(attn__memory *memory, const attn_context_options *options, attn_context **out)
{
    void *p;
    attn_status status = attn__allocate_zero(memory, sizeof(attn_context), &p);
    if (status != ATTN_OK) {
        attn__memory_release(memory);
        return status;
    }
    attn_context *ctx = p;
    ctx->memory = memory;
    ctx->backend = options->backend;
    ctx->guard_blas = options->guard_blas;
    ctx->seed = options->seed;
    atomic_init(&ctx->cancel, 0);
    status = attn__arena_create(memory, 0, &ctx->scratch);
    if (status == ATTN_OK)
        status = attn__pool_create(memory, options->threads == ATTN_THREADS_ALL ? attn__cpu_count() : options->threads, &ctx->pool);
    if (status != ATTN_OK) {
        destroy(ctx);
        return status;
    }
    ctx->magic = ATTN__MAGIC_CONTEXT;
    *out = ctx;
    return ATTN_OK;
}

attn_status attn_context_create(const attn_context_options *options, attn_context **out)
{
    attn_context_options read;
    attn_allocator allocator;
    if (out == NULL) return ATTN_ERROR_INVALID_ARGUMENT;
    *out = NULL;
    attn_status status = read_options(options, &read, &allocator);
    if (status != ATTN_OK) return status;
    attn__memory *memory = attn__memory_create(read.allocator != NULL ? &allocator : NULL, read.memory_cap);
    return memory != NULL ? build(memory, &read, out) : ATTN_ERROR_OUT_OF_MEMORY;
}

void attn_context_free(attn_context *ctx)
{
    if (attn__context_valid(ctx)) destroy(ctx);
}

const char *attn_context_last_error(const attn_context *ctx)
{
    return attn__context_valid(ctx) ? ctx->error : "";
}

attn_status attn_context_set_backend(attn_context *ctx, int32_t backend)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    if (backend == ATTN_BACKEND_BLAS || backend == ATTN_BACKEND_REFERENCE)
        ctx->backend = backend;
    else
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                            "backend: got %d, expected ATTN_BACKEND_BLAS (0) or ATTN_BACKEND_REFERENCE (1)", backend);
    return attn__leave(ctx, status);
}

/* Readers take a const context; its text of the last error is still theirs to write, every context is made by build. */
static attn_context *writable(const attn_context *ctx)
{
    return (attn_context *)(uintptr_t)ctx;
}

attn_status attn_context_threads(const attn_context *ctx, int32_t *out)
{
    attn_status status = attn__enter(writable(ctx));
    if (status != ATTN_OK) return status;
    if (out != NULL)
        *out = attn__pool_threads(ctx->pool);
    else
        status = attn__fail(writable(ctx), ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the number");
    return attn__leave(writable(ctx), status);
}

attn_status attn_context_memory(const attn_context *ctx, attn_memory_report *report)
{
    attn_memory_report values = {.struct_size = sizeof values};
    attn_status status = attn__enter(writable(ctx));
    if (status != ATTN_OK) return status;
    attn__memory_read(ctx->memory, &values.live, &values.peak, &values.allocations);
    status = attn__report_write(writable(ctx), "report", report, &values, sizeof values, sizeof values);
    return attn__leave(writable(ctx), status);
}

attn_status attn_context_reset_peak(attn_context *ctx)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn__memory_reset_peak(ctx->memory);
    return attn__leave(ctx, ATTN_OK);
}

attn_status attn_context_cancel(attn_context *ctx)
{
    if (!attn__context_valid(ctx)) return ATTN_ERROR_INVALID_ARGUMENT;
    atomic_store(&ctx->cancel, 1);
    return ATTN_OK;
}

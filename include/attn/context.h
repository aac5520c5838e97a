#ifndef ATTN_CONTEXT_H
#define ATTN_CONTEXT_H
#include "status.h"
ATTN_BEGIN

/* Where computation happens: threads, memory, backend and the text of the last error. A context is used by one thread at a time and may
   move between threads; any number of contexts may share a model. After fork, a child may go on with it, on one thread (OpenBLAS built with
   pthreads starts its own threads again in a child that computes, whoever calls it).
   The library has no other state but two counts and one lock. OpenBLAS built with pthreads has one thread number for the whole process (as
   have BLIS and FlexiBLAS), so the contexts that compute at the same time count themselves, the first sets it to 1 and the last sets it back
   (guard_blas). OpenBLAS built without threads must not be called by two threads at once, so our products then go one by one. Threads inside
   BLAS are counted, and fork waits for them, since a child would wait for what they lock there. The host's own calls of BLAS are the host's
   to keep apart from ours and from forks. */
typedef struct attn_context attn_context;

/* BLAS is what users run; the reference is the equations in plain loops, slow and easy to check. */
enum { ATTN_BACKEND_BLAS = 0, ATTN_BACKEND_REFERENCE = 1 };
enum { ATTN_THREADS_ALL = -1 }; /* one for each processor that the process may run on */

/* Where the memory of a context and of its objects comes from. Both functions are called on any thread, several at once, and must outlive
   the last object. allocate gives size bytes at a multiple of alignment (64; size need not be one), or NULL, which makes the call fail with
   ATTN_ERROR_OUT_OF_MEMORY; release gets the same size. What BLAS and the reader of JSON take for themselves does not come from here. */
typedef struct attn_allocator {
    uint64_t struct_size;
    void *(*allocate)(void *user, uint64_t size, uint64_t alignment);
    void (*release)(void *user, void *pointer, uint64_t size);
    void *user;
} attn_allocator;

typedef struct attn_context_options {
    uint64_t struct_size;
    int32_t backend;                 /* ATTN_BACKEND_BLAS (default) or ATTN_BACKEND_REFERENCE */
    int32_t threads;                 /* 1 or more, the caller included, or ATTN_THREADS_ALL (default); at most 256 are made */
    uint64_t seed;                   /* of parameters at their creation, default 0; a tape has a seed of its own */
    int64_t memory_cap;              /* bytes, over all objects of the context; -1: none (default) */
    int32_t guard_blas;              /* 1 (default): BLAS is held to one thread while a call computes; 0: its threads are left alone */
    int32_t reserved;                /* 0 */
    const attn_allocator *allocator; /* copied; NULL (default): malloc */
} attn_context_options;

typedef struct attn_memory_report {
    uint64_t struct_size;
    int64_t live;        /* bytes now */
    int64_t peak;        /* most bytes at once since creation or attn_context_reset_peak */
    int64_t allocations; /* calls of the allocator that gave memory, since creation */
} attn_memory_report;

/* Writes the defaults into size bytes at options: size is sizeof *options of the caller.
   Errors: INVALID_ARGUMENT (NULL; size under 8 or over 4096). From any thread. Since: 0.0.1 */
ATTN_API attn_status attn_context_options_init(attn_context_options *options, uint64_t size);

/* Makes a context and starts its threads; fewer than asked for when the system refuses, which is no error. Results do not depend on their
   number. options: NULL for the defaults; read during the call. *out: the caller's, to be freed by attn_context_free; NULL on failure.
   There is no context yet to hold a text. Errors: INVALID_ARGUMENT (out NULL, a bad struct_size, an option out of range),
   OUT_OF_MEMORY, MEMORY_CAP. From any thread. Since: 0.0.1 */
ATTN_API attn_status attn_context_create(const attn_context_options *options, attn_context **out);

/* Ends the threads and gives back the memory; NULL is fine. Objects made with the context live on, in any order of freeing, and can be used
   with another context. No call may be running in it. From any thread. Since: 0.0.1 */
ATTN_API void attn_context_free(attn_context *ctx);

/* The text of the last call's error in this context; "" after a success and for NULL. Always valid UTF-8: '?' stands for bytes of an
   argument that are none, a name cut short among them. Borrowed: valid until the next call with this context. Since: 0.0.1 */
ATTN_API const char *attn_context_last_error(const attn_context *ctx);

/* Chooses the backend of the calls to come. Errors: INVALID_ARGUMENT (unknown number). Since: 0.0.1 */
ATTN_API attn_status attn_context_set_backend(attn_context *ctx, int32_t backend);

/* *out: the number of threads that compute, the caller included: what the system granted; 1 in a forked child.
   Errors: INVALID_ARGUMENT (NULL). Since: 0.0.1 */
ATTN_API attn_status attn_context_threads(const attn_context *ctx, int32_t *out);

/* Fills report, whose struct_size the caller has set, with the bytes of the context and of all objects made with it that still
   live. Errors: INVALID_ARGUMENT (NULL, a bad struct_size). Since: 0.0.1 */
ATTN_API attn_status attn_context_memory(const attn_context *ctx, attn_memory_report *report);

/* Lets the peak start again at the bytes that live now. Errors: INVALID_ARGUMENT (NULL). Since: 0.0.1 */
ATTN_API attn_status attn_context_reset_peak(attn_context *ctx);

/* Asks the running call to stop: it returns CANCELLED soon, between two pieces of its work. The request stays until a call has seen it, so
   one that comes between two calls stops the next long call. Outputs of a cancelled call are unspecified; handles, parameters and files are
   whole. From any thread and from signal handlers, as long as the context lives. Errors: INVALID_ARGUMENT (NULL). Since: 0.0.1 */
ATTN_API attn_status attn_context_cancel(attn_context *ctx);

ATTN_END
#endif

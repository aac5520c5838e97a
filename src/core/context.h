#ifndef ATTN_CORE_CONTEXT_H
#define ATTN_CORE_CONTEXT_H
#include <attn/context.h>
#include <stdatomic.h>
#include "memory.h"
#include "threads.h"

/* What the counting kernel table adds up (multiply-adds of products, bytes a kernel reads and writes). */
typedef struct attn__counts {
    int64_t multiply_adds, bytes;
} attn__counts;

struct attn_context {
    uint64_t magic;
    attn__memory *memory;
    attn__pool *pool;
    attn__arena *scratch; /* of the calling thread: temporaries between a mark and its rewind */
    void *worker_scratch; /* threads slices of worker_bytes each */
    int64_t worker_bytes;
    const void *kernels[3];                  /* opaque slots, filled by floor 3 at the first computation: blas f32, reference f32, f64 */
    int32_t backend, guard_blas, depth, dry; /* dry: cost reports only; nothing but the counting table runs */
    int32_t committing, reserved;            /* committing 1: a cancel is not looked at, the call runs to its end */
    atomic_int cancel;
    uint64_t seed;
    attn__counts counts;
    char error[512];
    int saved_omp_threads; /* what the BLAS guard gives back to the caller */
    const void *observer;  /* opaque: what a module is to tell about itself in this call; NULL: nothing */
};

/* Sets the text and gives back the code. A text names the argument, what it got and what it expected. */
attn_status attn__fail(attn_context *ctx, attn_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));
attn_status attn__fail_memory(attn_context *ctx, attn_status code, const char *what); /* out of memory, cap, too large */

/* Brackets of every public call: enter checks the handle (NULL or foreign: INVALID_ARGUMENT), clears the error, takes the
   BLAS guard; leave gives it back and rewinds the scratch arena. They nest: only the outermost pair acts. Usage:
       attn_status status = attn__enter(ctx);
       if (status != ATTN_OK) return status;
       ...
       return attn__leave(ctx, status); */
attn_status attn__enter(attn_context *ctx);
attn_status attn__leave(attn_context *ctx, attn_status code);
int attn__context_valid(const attn_context *ctx);

/* of any arena; counted only, in a cost report; NULL after attn__fail_memory with `what` */
void *attn__take(attn_context *ctx, attn__arena *arena, int64_t bytes, const char *what);
void *attn__scratch(attn_context *ctx, int64_t bytes);                                         /* NULL after attn__fail_memory */
attn_status attn__worker_scratch_reserve(attn_context *ctx, int64_t bytes_per_worker);         /* before attn__run, never inside */
void *attn__worker_scratch(attn_context *ctx, int32_t worker);                                 /* 64-byte aligned, inside tiles */
attn_status attn__run(attn_context *ctx, int64_t tiles, attn__tile_function *tile, void *job); /* OK or CANCELLED (flag cleared) */
/* The same where tiles may be tiny: with less than ATTN__WORTH_WAKING multiply-adds in all of them, some microseconds, no other thread is woken. */
enum { ATTN__WORTH_WAKING = 65536 };
attn_status attn__run_light(attn_context *ctx, int64_t tiles, attn__tile_function *tile, void *job, int64_t multiply_adds);
attn_status attn__cancelled(attn_context *ctx); /* the same look, between pieces of a long call */

/* Options structs: *_init writes the defaults into the caller's bytes; read overlays the caller's bytes on the defaults.
   first field uint64_t struct_size. caller NULL: the defaults. */
attn_status attn__options_init(void *options, uint64_t size, const void *defaults, uint64_t own_size);
attn_status attn__options_read(attn_context *ctx, const char *argument, const void *options, const void *defaults, uint64_t own_size,
                               uint64_t smallest, void *out);
/* A struct the library will write (a report), checked before anything is computed. */
attn_status attn__report_check(attn_context *ctx, const char *argument, const void *report, uint64_t smallest);
/* for structs the library writes (reports): copies min(struct_size, own_size) bytes, keeps the caller's struct_size */
attn_status attn__report_write(attn_context *ctx, const char *argument, void *report, const void *values, uint64_t own_size,
                               uint64_t smallest);

/* Checked arithmetic on sizes: 1 on overflow or a negative operand. */
static inline int attn__multiply(int64_t a, int64_t b, int64_t *out)
{
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, out);
}
static inline int attn__sum(int64_t a, int64_t b, int64_t *out)
{
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, out);
}

/* Handles start with a magic number of their kind; freeing overwrites it. */
#define ATTN__MAGIC(a, b, c, d) \
    (UINT64_C(0x6174746e00000000) | ((uint64_t)(a) << 24) | ((uint64_t)(b) << 16) | ((uint64_t)(c) << 8) | (uint64_t)(d))
#define ATTN__MAGIC_CONTEXT ATTN__MAGIC('c', 't', 'x', '0')
#define ATTN__MAGIC_TENSOR ATTN__MAGIC('t', 'e', 'n', 's')
#define ATTN__MAGIC_LAYOUT ATTN__MAGIC('l', 'a', 'y', 't')
#define ATTN__MAGIC_MASK ATTN__MAGIC('m', 'a', 's', 'k')
#define ATTN__MAGIC_PARAMETERS ATTN__MAGIC('p', 'a', 'r', 'm')
#define ATTN__MAGIC_GRADIENTS ATTN__MAGIC('g', 'r', 'a', 'd')
#define ATTN__MAGIC_TAPE ATTN__MAGIC('t', 'a', 'p', 'e')
#define ATTN__MAGIC_ATTENTION ATTN__MAGIC('a', 't', 't', 'n')
#define ATTN__MAGIC_ENCODER ATTN__MAGIC('e', 'n', 'c', 'o')
#define ATTN__MAGIC_DECODER ATTN__MAGIC('d', 'e', 'c', 'o')
#define ATTN__MAGIC_TRANSFORMER ATTN__MAGIC('t', 'r', 'a', 'n')
#define ATTN__MAGIC_OPTIMIZER ATTN__MAGIC('o', 'p', 't', 'i')
#define ATTN__MAGIC_TRAINER ATTN__MAGIC('t', 'r', 'n', 'r')
#define ATTN__MAGIC_VOCABULARY ATTN__MAGIC('v', 'o', 'c', 'a')
#define ATTN__MAGIC_DATASET ATTN__MAGIC('d', 'a', 't', 'a')
#define ATTN__MAGIC_GENERATOR ATTN__MAGIC('g', 'e', 'n', 'r')
/* 1 when handle is a live object of that kind */
static inline int attn__is(const void *handle, uint64_t magic)
{
    return handle != NULL && *(const uint64_t *)handle == magic;
}
/* Fails with INVALID_ARGUMENT, "layout: got NULL, expected an attn_layout", unless attn__is. */
attn_status attn__expect(attn_context *ctx, const char *argument, const void *handle, uint64_t magic, const char *kind);
#endif

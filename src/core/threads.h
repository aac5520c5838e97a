#ifndef ATTN_CORE_THREADS_H
#define ATTN_CORE_THREADS_H
#include <stdatomic.h>
#include <stdint.h>
#include "memory.h"

/* A pool of plain pthreads. Work is a number of tiles whose borders do not depend on the number of threads;
   worker (0 is the caller) picks scratch memory and nothing else, so results are the same bits for any count. */
typedef struct attn__pool attn__pool;
typedef void attn__tile_function(void *job, int64_t tile, int32_t worker);

attn_status attn__pool_create(attn__memory *memory, int32_t threads, attn__pool **out); /* fewer when the system refuses */
void attn__pool_free(attn__pool *pool);                                                 /* joins; in a forked child only forgets */
int32_t attn__pool_threads(const attn__pool *pool);                                     /* 1 in a forked child */
int32_t attn__pool_workers(const attn__pool *pool); /* one more than the largest worker number, in a child as well */
int32_t attn__cpu_count(void);                      /* processors this process may use, 1 to 256 */
/* Runs every tile once and returns; cancel (may be NULL) is looked at between tiles. 0, or 1 when cancelled.
   on_thread is called once on each worker before its first tile (the BLAS guard needs it); may be NULL. */
int attn__pool_run(attn__pool *pool, int64_t tiles, attn__tile_function *tile, void *job, atomic_int *cancel, void (*on_thread)(void));
/* the same on the calling thread */
int attn__pool_run_alone(int64_t tiles, attn__tile_function *tile, void *job, const atomic_int *cancel);
#endif

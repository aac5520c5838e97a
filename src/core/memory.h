#ifndef ATTN_CORE_MEMORY_H
#define ATTN_CORE_MEMORY_H
#include <attn/context.h>

/* Where every byte comes from: the caller's allocator (or malloc), a cap, and atomic accounting.
   Reference-counted: every object holds one of these and not the context, so that objects can be freed in
   any order and from any thread. The accounting leaves out this record itself. */
typedef struct attn__memory attn__memory;

attn__memory *attn__memory_create(const attn_allocator *allocator, int64_t cap); /* NULL: no memory; cap -1: none */
attn__memory *attn__memory_retain(attn__memory *memory);
void attn__memory_release(attn__memory *memory); /* NULL is fine */
void attn__memory_read(const attn__memory *memory, int64_t *live, int64_t *peak, int64_t *allocations);
int64_t attn__memory_cap(const attn__memory *memory); /* -1: none */
attn_allocator attn__memory_allocator(const attn__memory *memory);
void attn__memory_reset_peak(attn__memory *memory);

/* 64-byte aligned. ATTN_ERROR_OUT_OF_MEMORY, ATTN_ERROR_MEMORY_CAP or ATTN_ERROR_TOO_LARGE (negative size);
   *out is NULL on failure. 0 bytes give a valid pointer. The caller remembers the size. */
attn_status attn__allocate(attn__memory *memory, int64_t bytes, void **out);
attn_status attn__allocate_zero(attn__memory *memory, int64_t bytes, void **out);
void attn__deallocate(attn__memory *memory, void *pointer, int64_t bytes); /* NULL is fine */

/* A bump allocator that keeps its memory: what is taken is given back all at once. Grows by blocks;
   attn__arena_reset joins several blocks to one, so that a repeated job stops allocating after its first round.
   dry > 0: hands out addresses that nobody may read (a range of its own for each value of dry) and only counts;
   used to report the memory of a model without having it. */
typedef struct attn__arena attn__arena;
typedef struct attn__mark {
    int64_t block, used;
} attn__mark;
attn_status attn__arena_create(attn__memory *memory, int32_t dry, attn__arena **out);
void attn__arena_free(attn__arena *arena);                          /* NULL is fine */
attn_status attn__arena_reserve(attn__arena *arena, int64_t bytes); /* one block with room for this much, now and after every reset */
void *attn__arena_take(attn__arena *arena, int64_t bytes);          /* 64-byte aligned, not zeroed; NULL: see attn__arena_status */
/* Counts as a take and gives an address that nobody may read, in arenas that are not dry too; those count it until their next reset. */
void *attn__arena_pretend(attn__arena *arena, int64_t bytes);
attn_status attn__arena_status(const attn__arena *arena); /* why the last take gave NULL */
attn__mark attn__arena_mark(const attn__arena *arena);
void attn__arena_rewind(attn__arena *arena, attn__mark mark); /* keeps the memory; a full rewind to the start joins blocks like reset */
void attn__arena_reset(attn__arena *arena);
int64_t attn__arena_used(const attn__arena *arena);
int64_t attn__arena_peak(const attn__arena *arena); /* most bytes in use at once since creation */
#endif

#include "memory.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64

struct attn__memory {
    attn_allocator allocator;
    int64_t cap; /* -1: none */
    _Atomic int64_t references, live, peak, allocations;
};

static void *default_allocate(void *user, uint64_t size, uint64_t alignment)
{
    void *pointer = NULL;
    (void)user;
    return posix_memalign(&pointer, (size_t)alignment, (size_t)size) == 0 ? pointer : NULL;
}

static void default_release(void *user, void *pointer, uint64_t size)
{
    (void)user;
    (void)size;
    free(pointer);
}

static const attn_allocator default_allocator = {sizeof(attn_allocator), default_allocate, default_release, NULL};

/* NULL as well for a pointer that breaks the promise of alignment: the kernels would fault on it. */
static void *obtain(const attn_allocator *allocator, int64_t bytes)
{
    void *pointer = allocator->allocate(allocator->user, (uint64_t)bytes, ALIGNMENT);
    if (pointer != NULL && (uintptr_t)pointer % ALIGNMENT != 0) {
        allocator->release(allocator->user, pointer, (uint64_t)bytes);
        return NULL;
    }
    return pointer;
}

attn__memory *attn__memory_create(const attn_allocator *allocator, int64_t cap)
{
    if (allocator == NULL) allocator = &default_allocator;
    attn__memory *memory = obtain(allocator, sizeof *memory);
    if (memory == NULL) return NULL;
    memory->allocator = *allocator;
    memory->cap = cap;
    atomic_init(&memory->references, 1);
    atomic_init(&memory->live, 0);
    atomic_init(&memory->peak, 0);
    atomic_init(&memory->allocations, 0);
    return memory;
}

attn__memory *attn__memory_retain(attn__memory *memory)
{
    atomic_fetch_add_explicit(&memory->references, 1, memory_order_relaxed);
    return memory;
}

void attn__memory_release(attn__memory *memory)
{
    if (memory == NULL || atomic_fetch_sub_explicit(&memory->references, 1, memory_order_acq_rel) != 1) return;
    attn_allocator allocator = memory->allocator;
    allocator.release(allocator.user, memory, sizeof *memory);
}

void attn__memory_read(const attn__memory *memory, int64_t *live, int64_t *peak, int64_t *allocations)
{
    *live = atomic_load_explicit(&memory->live, memory_order_relaxed);
    *peak = atomic_load_explicit(&memory->peak, memory_order_relaxed);
    *allocations = atomic_load_explicit(&memory->allocations, memory_order_relaxed);
}

int64_t attn__memory_cap(const attn__memory *memory)
{
    return memory->cap;
}

attn_allocator attn__memory_allocator(const attn__memory *memory)
{
    return memory->allocator;
}

void attn__memory_reset_peak(attn__memory *memory)
{
    atomic_store_explicit(&memory->peak, atomic_load_explicit(&memory->live, memory_order_relaxed), memory_order_relaxed);
}

/* Books the bytes before they are asked for, so that threads together never pass the cap. */
static attn_status book(attn__memory *memory, int64_t bytes, int64_t *live)
{
    int64_t before = atomic_load_explicit(&memory->live, memory_order_relaxed), after;
    do {
        if (__builtin_add_overflow(before, bytes, &after)) return ATTN_ERROR_TOO_LARGE;
        if (memory->cap >= 0 && after > memory->cap) return ATTN_ERROR_MEMORY_CAP;
    } while (!atomic_compare_exchange_weak_explicit(&memory->live, &before, after, memory_order_relaxed, memory_order_relaxed));
    *live = after;
    return ATTN_OK;
}

static void raise_peak(attn__memory *memory, int64_t live)
{
    int64_t peak = atomic_load_explicit(&memory->peak, memory_order_relaxed);
    while (live > peak && !atomic_compare_exchange_weak_explicit(&memory->peak, &peak, live, memory_order_relaxed, memory_order_relaxed)) {}
}

attn_status attn__allocate(attn__memory *memory, int64_t bytes, void **out)
{
    int64_t live;
    *out = NULL;
    if (bytes < 0 || (uint64_t)bytes > PTRDIFF_MAX) return ATTN_ERROR_TOO_LARGE;
    if (bytes == 0) bytes = 1;
    attn_status status = book(memory, bytes, &live);
    if (status != ATTN_OK) return status;
    void *pointer = obtain(&memory->allocator, bytes);
    if (pointer == NULL) {
        atomic_fetch_sub_explicit(&memory->live, bytes, memory_order_relaxed);
        return ATTN_ERROR_OUT_OF_MEMORY;
    }
    raise_peak(memory, live);
    atomic_fetch_add_explicit(&memory->allocations, 1, memory_order_relaxed);
    *out = pointer;
    return ATTN_OK;
}

attn_status attn__allocate_zero(attn__memory *memory, int64_t bytes, void **out)
{
    attn_status status = attn__allocate(memory, bytes, out);
    if (status == ATTN_OK) memset(*out, 0, (size_t)bytes);
    return status;
}

void attn__deallocate(attn__memory *memory, void *pointer, int64_t bytes)
{
    if (pointer == NULL) return;
    if (bytes == 0) bytes = 1;
    memory->allocator.release(memory->allocator.user, pointer, (uint64_t)bytes);
    atomic_fetch_sub_explicit(&memory->live, bytes, memory_order_relaxed);
}

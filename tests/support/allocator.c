#include "allocator.h"
#include <stdlib.h>
#include <string.h>

#define HEADER 128 /* holds the size; keeps the alignment of what follows */

static void *allocate(void *user, uint64_t size, uint64_t alignment)
{
    test_allocator *state = user;
    long long call = atomic_fetch_add(&state->calls, 1) + 1;
    if (alignment != 64) atomic_fetch_add(&state->wrong, 1);
    if (state->fail_at > 0 && (state->only_once ? call == state->fail_at : call >= state->fail_at)) return NULL;
    void *base = NULL;
    if (size > PTRDIFF_MAX - 2 * HEADER || posix_memalign(&base, HEADER, (size_t)size + HEADER + 8) != 0) return NULL;
    memcpy(base, &size, sizeof size);
    atomic_fetch_add(&state->live_bytes, (long long)size);
    atomic_fetch_add(&state->live_pointers, 1);
    return (char *)base + HEADER + (state->misalign ? 8 : 0);
}

static void release(void *user, void *pointer, uint64_t size)
{
    test_allocator *state = user;
    uint64_t booked;
    char *base = (char *)pointer - HEADER - (state->misalign ? 8 : 0);
    memcpy(&booked, base, sizeof booked);
    if (booked != size) atomic_fetch_add(&state->wrong, 1);
    atomic_fetch_sub(&state->live_bytes, (long long)size);
    atomic_fetch_sub(&state->live_pointers, 1);
    free(base);
}

attn_allocator test_allocator_hooks(test_allocator *state)
{
    return (attn_allocator){sizeof(attn_allocator), allocate, release, state};
}

#include "memory.h"

#define ALIGNMENT 64
#define BLOCKS 64
#define GROWTH 4
#define SMALLEST_BLOCK (INT64_C(1) << 20)
#define DRY_BITS 44 /* each dry arena has a range of 2^44 addresses */

typedef struct block {
    char *base;
    int64_t size, used;
} block;

/* Blocks 0 .. current hold what is taken, later ones are empty and kept for the next round. A block has at least a quarter of what
   all earlier ones have together, so that little is taken in vain and a table of 64 still holds more than a terabyte. */
struct attn__arena {
    attn__memory *memory;
    int64_t count, current;
    int64_t used, peak, joined; /* joined: the size of the one block that follows a reset; 0: no wish */
    int64_t reserved;           /* what was asked for ahead: a block that joins others is not smaller */
    int32_t dry;
    attn_status status;
    block blocks[BLOCKS];
};

/* 1 on overflow or a negative size */
static int round_up(int64_t bytes, int64_t *out)
{
    if (bytes < 0 || bytes > INT64_MAX - (ALIGNMENT - 1)) return 1;
    *out = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return 0;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

attn_status attn__arena_create(attn__memory *memory, int32_t dry, attn__arena **out)
{
    void *p;
    *out = NULL;
    attn_status status = attn__allocate_zero(memory, sizeof(attn__arena), &p);
    if (status != ATTN_OK) return status;
    attn__arena *arena = p;
    arena->memory = attn__memory_retain(memory);
    arena->dry = dry;
    *out = arena;
    return ATTN_OK;
}

/* Gives back the blocks from first on; nothing may be taken from them. */
static void drop_blocks(attn__arena *arena, int64_t first)
{
    for (int64_t i = first; i < arena->count; i++) attn__deallocate(arena->memory, arena->blocks[i].base, arena->blocks[i].size);
    if (first < arena->count) arena->count = first;
    if (arena->current >= arena->count) arena->current = arena->count > 0 ? arena->count - 1 : 0;
}

void attn__arena_free(attn__arena *arena)
{
    if (arena == NULL) return;
    attn__memory *memory = arena->memory;
    drop_blocks(arena, 0);
    attn__deallocate(memory, arena, sizeof *arena);
    attn__memory_release(memory);
}

static int64_t capacity(const attn__arena *arena)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < arena->count; i++) sum += arena->blocks[i].size;
    return sum;
}

/* Makes the next block the current one, of wanted bytes or, where memory is short, of fewer but at least asked. */
static attn_status add_block(attn__arena *arena, int64_t asked, int64_t wanted)
{
    int64_t keep = arena->count == 0 ? 0 : arena->current + (arena->blocks[arena->current].used > 0);
    drop_blocks(arena, keep);
    if (keep == BLOCKS) return ATTN_ERROR_OUT_OF_MEMORY;
    for (int64_t size = larger(wanted, asked);; size = larger(size / 2 / ALIGNMENT * ALIGNMENT, asked)) {
        void *p;
        attn_status status = attn__allocate(arena->memory, size, &p);
        if (status == ATTN_OK) {
            arena->blocks[keep] = (block){p, size, 0};
            arena->count = keep + 1;
            arena->current = keep;
            return ATTN_OK;
        }
        if (size == asked) return status;
    }
}

/* Sees to it that the current block has room for asked bytes; a new block gets wanted bytes. */
static attn_status make_room(attn__arena *arena, int64_t asked, int64_t wanted)
{
    if (arena->count > 0) {
        const block *now = &arena->blocks[arena->current];
        if (asked <= now->size - now->used) return ATTN_OK;
        for (int64_t i = arena->current + 1; i < arena->count; i++) {
            if (asked > arena->blocks[i].size) continue;
            arena->current = i;
            return ATTN_OK;
        }
    }
    attn_status status = add_block(arena, asked, wanted);
    if (status == ATTN_OK) arena->joined = 0;
    return status;
}

attn_status attn__arena_reserve(attn__arena *arena, int64_t bytes)
{
    int64_t asked;
    if (round_up(bytes, &asked)) return ATTN_ERROR_TOO_LARGE;
    if (arena->dry > 0 || asked == 0) return ATTN_OK;
    if (asked > INT64_MAX - arena->used) return ATTN_ERROR_TOO_LARGE;
    if (arena->used == 0 && arena->count > 0 && arena->blocks[0].size < asked) drop_blocks(arena, 0);
    attn_status status = make_room(arena, asked, asked);
    if (status == ATTN_OK) arena->reserved = larger(arena->reserved, arena->used + asked);
    return status;
}

static void *fail(attn__arena *arena, attn_status status)
{
    arena->status = status;
    return NULL;
}

static void *take_dry(attn__arena *arena, int64_t asked)
{
    if (asked > (INT64_C(1) << DRY_BITS) - arena->used) return fail(arena, ATTN_ERROR_TOO_LARGE);
    uint64_t address = (uint64_t)arena->dry << DRY_BITS | (uint64_t)arena->used;
    arena->used += asked;
    arena->peak = larger(arena->peak, arena->used);
    return (void *)(uintptr_t)address;
}

void *attn__arena_take(attn__arena *arena, int64_t bytes)
{
    int64_t asked;
    if (round_up(bytes, &asked)) return fail(arena, ATTN_ERROR_TOO_LARGE);
    if (arena->dry > 0) return take_dry(arena, asked);
    attn_status status = make_room(arena, asked, larger(larger(SMALLEST_BLOCK, arena->joined), capacity(arena) / GROWTH));
    if (status != ATTN_OK) return fail(arena, status);
    block *b = &arena->blocks[arena->current];
    void *pointer = b->base + b->used;
    b->used += asked;
    arena->used += asked;
    arena->peak = larger(arena->peak, arena->used);
    return pointer;
}

void *attn__arena_pretend(attn__arena *arena, int64_t bytes)
{
    int64_t asked;
    if (arena->dry > 0) return attn__arena_take(arena, bytes);
    if (round_up(bytes, &asked) || asked > INT64_MAX - arena->used) return fail(arena, ATTN_ERROR_TOO_LARGE);
    arena->used += asked;
    arena->peak = larger(arena->peak, arena->used);
    return (void *)(uintptr_t)ALIGNMENT;
}

attn_status attn__arena_status(const attn__arena *arena)
{
    return arena->status;
}

attn__mark attn__arena_mark(const attn__arena *arena)
{
    if (arena->dry > 0) return (attn__mark){0, arena->used};
    return (attn__mark){arena->current, arena->count > 0 ? arena->blocks[arena->current].used : 0};
}

void attn__arena_rewind(attn__arena *arena, attn__mark mark)
{
    if (mark.block == 0 && mark.used == 0) {
        attn__arena_reset(arena);
        return;
    }
    if (arena->dry > 0) {
        arena->used = mark.used;
        return;
    }
    for (int64_t i = mark.block; i <= arena->current; i++) {
        int64_t kept = i == mark.block ? mark.used : 0;
        arena->used -= arena->blocks[i].used - kept;
        arena->blocks[i].used = kept;
    }
    arena->current = mark.block;
}

void attn__arena_reset(attn__arena *arena)
{
    arena->used = 0;
    if (arena->count > 1) {
        arena->joined = larger(arena->peak, arena->reserved);
        drop_blocks(arena, 0);
    }
    if (arena->count == 1) arena->blocks[0].used = 0;
    arena->current = 0;
}

int64_t attn__arena_used(const attn__arena *arena)
{
    return arena->used;
}

int64_t attn__arena_peak(const attn__arena *arena)
{
    return arena->peak;
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <string.h>
#include <cmocka.h>
#include "core/memory.h"
#include "support/allocator.h"

#define MIB (INT64_C(1) << 20)

static attn__arena *create(attn__memory *memory, int32_t dry)
{
    attn__arena *arena;
    assert_int_equal(attn__arena_create(memory, dry, &arena), ATTN_OK);
    return arena;
}

static int64_t allocations(const attn__memory *memory)
{
    int64_t live, peak, count;
    attn__memory_read(memory, &live, &peak, &count);
    return count;
}

static int64_t live(const attn__memory *memory)
{
    int64_t bytes, peak, count;
    attn__memory_read(memory, &bytes, &peak, &count);
    return bytes;
}

static void destroy(attn__memory *memory, attn__arena *arena)
{
    attn__arena_free(arena);
    assert_int_equal(live(memory), 0);
    attn__memory_release(memory);
}

/* Many takes of odd sizes: aligned, apart from each other, unchanged by later growth. */
static void test_takes(void **state)
{
    (void)state;
    enum { TAKES = 400 };
    unsigned char *p[TAKES];
    int64_t sizes[TAKES], sum = 0;
    attn__memory *memory = attn__memory_create(NULL, -1);
    attn__arena *arena = create(memory, 0);
    for (int i = 0; i < TAKES; i++) {
        sizes[i] = (int64_t)i * 7919 % 30011;
        p[i] = attn__arena_take(arena, sizes[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        memset(p[i], i, (size_t)sizes[i]);
        sum += (sizes[i] + 63) / 64 * 64;
    }
    for (int i = 0; i < TAKES; i++) {
        for (int64_t b = 0; b < sizes[i]; b++) assert_int_equal(p[i][b], (unsigned char)i);
    }
    assert_int_equal(attn__arena_used(arena), sum);
    assert_int_equal(attn__arena_peak(arena), sum);
    assert_true(allocations(memory) < 8); /* blocks double */
    destroy(memory, arena);
}

/* The second round of the same job allocates one joined block, the third nothing. */
static void test_steady_state(void **state)
{
    (void)state;
    attn__memory *memory = attn__memory_create(NULL, -1);
    attn__arena *arena = create(memory, 0);
    int64_t count[4];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 50; i++) assert_non_null(attn__arena_take(arena, 300000));
        count[round] = allocations(memory);
        attn__arena_reset(arena);
        assert_int_equal(attn__arena_used(arena), 0);
    }
    assert_true(count[0] > 3);
    assert_int_equal(count[1], count[0] + 1);
    assert_int_equal(count[2], count[1]);
    assert_int_equal(count[3], count[1]);
    assert_int_equal(attn__arena_peak(arena), 50 * 300032);
    assert_true(live(memory) < 50 * 300032 + 65536); /* the joined block is as large as the peak, not as the blocks before */
    destroy(memory, arena);
}

static void test_mark_and_rewind(void **state)
{
    (void)state;
    attn__memory *memory = attn__memory_create(NULL, -1);
    attn__arena *arena = create(memory, 0);
    char *kept = attn__arena_take(arena, 100);
    memset(kept, 42, 100);
    attn__mark mark = attn__arena_mark(arena);
    char *first = attn__arena_take(arena, 64);
    int64_t count = 0;
    for (int round = 0; round < 3; round++) {
        attn__arena_rewind(arena, mark);
        assert_int_equal(attn__arena_used(arena), 128);
        assert_ptr_equal(attn__arena_take(arena, 64), first); /* the same place again */
        assert_non_null(attn__arena_take(arena, 3 * MIB));    /* in a later block */
        attn__mark inner = attn__arena_mark(arena);
        char *large = attn__arena_take(arena, 9 * MIB);
        memset(large, 1, (size_t)(9 * MIB));
        attn__arena_rewind(arena, inner);
        assert_int_equal(attn__arena_used(arena), 128 + 64 + 3 * MIB);
        if (round == 0) count = allocations(memory);
    }
    assert_int_equal(allocations(memory), count); /* a rewind keeps the blocks */
    for (int i = 0; i < 100; i++) assert_int_equal(kept[i], 42);
    assert_int_equal(attn__arena_peak(arena), 128 + 64 + 12 * MIB);
    attn__arena_rewind(arena, (attn__mark){0, 0}); /* to the start: joins */
    assert_int_equal(attn__arena_used(arena), 0);
    assert_true(live(memory) < MIB);
    assert_non_null(attn__arena_take(arena, 1));
    assert_int_equal(allocations(memory), count + 1);
    assert_non_null(attn__arena_take(arena, 12 * MIB));
    assert_int_equal(allocations(memory), count + 1);
    destroy(memory, arena);
}

/* A mark at the start of an empty later block stays good when that block is replaced by a larger one. */
static void test_replaced_block(void **state)
{
    (void)state;
    attn__memory *memory = attn__memory_create(NULL, -1);
    attn__arena *arena = create(memory, 0);
    assert_non_null(attn__arena_take(arena, 64));
    attn__mark outer = attn__arena_mark(arena);
    assert_non_null(attn__arena_take(arena, MIB));
    attn__arena_rewind(arena, outer);
    char *p = attn__arena_take(arena, 40 * MIB);
    memset(p, 3, (size_t)(40 * MIB));
    attn__arena_rewind(arena, outer);
    assert_int_equal(attn__arena_used(arena), 64);
    assert_int_equal(allocations(memory), 4); /* the arena, the first block, 1 MiB, 40 MiB in its place */
    assert_true(live(memory) < 42 * MIB);
    destroy(memory, arena);
}

/* what was reserved over a smaller block, or while something was in use, outlives resets */
static void test_reserve_stays(void **state)
{
    (void)state;
    for (int in_use = 0; in_use < 2; in_use++) {
        attn__memory *memory = attn__memory_create(NULL, -1);
        attn__arena *arena = create(memory, 0);
        assert_non_null(attn__arena_take(arena, 100));
        if (!in_use) attn__arena_reset(arena);
        assert_int_equal(attn__arena_reserve(arena, 9 * MIB), ATTN_OK);
        for (int round = 0; round < 2; round++) { /* a short round, after which the memory is one block */
            attn__arena_reset(arena);
            assert_non_null(attn__arena_take(arena, 50));
        }
        const int64_t before = allocations(memory);
        for (int round = 0; round < 3; round++) {
            attn__arena_reset(arena);
            for (int i = 0; i < 9; i++) assert_non_null(attn__arena_take(arena, MIB));
            assert_int_equal(allocations(memory), before);
        }
        destroy(memory, arena);
    }
}

static void test_reserve(void **state)
{
    (void)state;
    attn__memory *memory = attn__memory_create(NULL, -1);
    attn__arena *arena = create(memory, 0);
    assert_int_equal(attn__arena_reserve(arena, 5 * MIB), ATTN_OK);
    assert_int_equal(allocations(memory), 2);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++) assert_non_null(attn__arena_take(arena, MIB));
        attn__arena_reset(arena);
        assert_int_equal(attn__arena_reserve(arena, 5 * MIB), ATTN_OK);
    }
    assert_int_equal(allocations(memory), 2);
    char *p = attn__arena_take(arena, 64);
    memset(p, 9, 64);
    assert_int_equal(attn__arena_reserve(arena, 20 * MIB), ATTN_OK); /* beside what is in use */
    int64_t count = allocations(memory);
    for (int i = 0; i < 20; i++) assert_non_null(attn__arena_take(arena, MIB));
    assert_int_equal(allocations(memory), count);
    assert_int_equal(p[63], 9);
    assert_int_equal(attn__arena_reserve(arena, -1), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(attn__arena_reserve(arena, INT64_MAX), ATTN_ERROR_TOO_LARGE);
    destroy(memory, arena);
}

/* to reserve more than the first block holds leaves alone what was taken from it */
static void test_reserve_while_in_use(void **state)
{
    (void)state;
    attn__memory *memory = attn__memory_create(NULL, -1);
    attn__arena *arena = create(memory, 0);
    unsigned char *p = attn__arena_take(arena, 1000);
    assert_non_null(p);
    memset(p, 7, 1000);
    int64_t before = live(memory);
    assert_int_equal(attn__arena_reserve(arena, 4 * MIB), ATTN_OK);
    assert_true(live(memory) >= before + 4 * MIB);
    assert_int_equal(attn__arena_used(arena), 1024);
    int64_t count = allocations(memory);
    assert_non_null(attn__arena_take(arena, 4 * MIB));
    assert_int_equal(allocations(memory), count);
    for (int i = 0; i < 1000; i++) assert_int_equal(p[i], 7);
    destroy(memory, arena);
}

static void test_refusals(void **state)
{
    (void)state;
    attn__memory *memory = attn__memory_create(NULL, 8 * MIB);
    attn__arena *arena = create(memory, 0);
    assert_null(attn__arena_take(arena, -1));
    assert_int_equal(attn__arena_status(arena), ATTN_ERROR_TOO_LARGE);
    assert_null(attn__arena_take(arena, INT64_MAX));
    assert_int_equal(attn__arena_status(arena), ATTN_ERROR_TOO_LARGE);
    assert_null(attn__arena_take(arena, 9 * MIB));
    assert_int_equal(attn__arena_status(arena), ATTN_ERROR_MEMORY_CAP);
    /* what the cap leaves can be used nearly to the end, in small pieces */
    int64_t taken = 0;
    while (attn__arena_take(arena, 10000) != NULL) taken += 10048;
    assert_int_equal(attn__arena_status(arena), ATTN_ERROR_MEMORY_CAP);
    assert_true(taken > 7 * MIB);
    attn__arena_reset(arena); /* and the next round has the same */
    for (int64_t again = 0; again < taken; again += 10048) assert_non_null(attn__arena_take(arena, 10000));
    destroy(memory, arena);
    attn__arena_free(NULL);
}

static void test_failing_allocator(void **state)
{
    (void)state;
    for (int at = 1; at < 12; at++) {
        test_allocator counts = {.fail_at = at};
        attn_allocator hooks = test_allocator_hooks(&counts);
        attn__memory *memory = attn__memory_create(&hooks, -1);
        attn__arena *arena = NULL;
        if (memory != NULL && attn__arena_create(memory, 0, &arena) == ATTN_OK) {
            for (int i = 0; i < 100; i++) {
                char *p = attn__arena_take(arena, 200000);
                if (p == NULL)
                    assert_int_equal(attn__arena_status(arena), ATTN_ERROR_OUT_OF_MEMORY);
                else
                    memset(p, 1, 200000);
            }
        } else {
            assert_null(arena);
        }
        attn__arena_free(arena);
        attn__memory_release(memory);
        assert_int_equal(counts.live_pointers, 0);
        assert_int_equal(counts.wrong, 0);
    }
}

static void test_dry(void **state)
{
    (void)state;
    attn__memory *memory = attn__memory_create(NULL, -1);
    attn__arena *one = create(memory, 1), *two = create(memory, 2);
    int64_t before = allocations(memory);
    assert_int_equal((uintptr_t)attn__arena_take(one, 100), UINT64_C(1) << 44);
    assert_int_equal((uintptr_t)attn__arena_take(one, INT64_C(1) << 40), (UINT64_C(1) << 44) + 128);
    assert_int_equal((uintptr_t)attn__arena_take(two, 0), UINT64_C(2) << 44);
    attn__mark mark = attn__arena_mark(one);
    assert_non_null(attn__arena_take(one, 1000));
    attn__arena_rewind(one, mark);
    assert_int_equal(attn__arena_used(one), (INT64_C(1) << 40) + 128);
    assert_int_equal(attn__arena_peak(one), (INT64_C(1) << 40) + 128 + 1024);
    assert_int_equal(attn__arena_reserve(one, INT64_C(1) << 43), ATTN_OK);
    assert_null(attn__arena_take(one, INT64_C(1) << 44)); /* would run into the next range */
    assert_int_equal(attn__arena_status(one), ATTN_ERROR_TOO_LARGE);
    attn__arena_reset(one);
    assert_int_equal(attn__arena_used(one), 0);
    assert_int_equal(allocations(memory), before);
    attn__arena_free(two);
    destroy(memory, one);
}

/* an allocator that gives 64 bytes at most: every take is a block of its own, until the table of blocks is full */
static void *give_little(void *user, uint64_t size, uint64_t alignment)
{
    (void)user;
    return size > 64 && size < MIB * 2 && size % 64 == 0 && size / 64 > 60 ? NULL : aligned_alloc(alignment, (size + 63) / 64 * 64);
}

static void take_back(void *user, void *pointer, uint64_t size)
{
    (void)user, (void)size;
    free(pointer);
}

static void test_full_table(void **state)
{
    (void)state;
    const attn_allocator hooks = {sizeof hooks, give_little, take_back, NULL};
    attn__memory *memory = attn__memory_create(&hooks, -1);
    attn__arena *arena = create(memory, 0);
    int taken = 0;
    while (attn__arena_take(arena, 2048) != NULL) assert_true(++taken < 1000);
    assert_int_equal(attn__arena_status(arena), ATTN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(taken, 64);
    attn__arena_reset(arena);
    assert_non_null(attn__arena_take(arena, 2048));
    assert_int_equal(attn__arena_reserve(arena, MIB), ATTN_ERROR_OUT_OF_MEMORY);
    destroy(memory, arena);
}

/* sums of what is asked for and what is used already, past 63 bits */
static void test_sums(void **state)
{
    (void)state;
    attn__memory *memory = attn__memory_create(NULL, -1);
    attn__arena *arena = create(memory, 0), *dry = create(memory, 1);
    assert_int_equal(attn__arena_reserve(dry, 0), ATTN_OK);
    assert_int_equal(attn__arena_reserve(arena, 0), ATTN_OK);
    assert_non_null(attn__arena_take(arena, 100));
    assert_int_equal(attn__arena_reserve(arena, INT64_MAX - 64), ATTN_ERROR_TOO_LARGE);
    assert_null(attn__arena_pretend(arena, INT64_MAX - 64));
    assert_null(attn__arena_pretend(arena, -1));
    assert_int_equal(attn__arena_status(arena), ATTN_ERROR_TOO_LARGE);
    assert_non_null(attn__arena_pretend(arena, INT64_C(1) << 60)); /* counted alone */
    attn__arena_free(dry);
    destroy(memory, arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes),
        cmocka_unit_test(test_steady_state),
        cmocka_unit_test(test_mark_and_rewind),
        cmocka_unit_test(test_replaced_block),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_reserve_stays),
        cmocka_unit_test(test_reserve_while_in_use),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_failing_allocator),
        cmocka_unit_test(test_dry),
        cmocka_unit_test(test_full_table),
        cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

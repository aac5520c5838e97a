#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/memory.h"
#include "support/allocator.h"
#include "support/meet.h"

static void expect_read(const attn__memory *memory, int64_t live, int64_t peak, int64_t allocations)
{
    int64_t got[3];
    attn__memory_read(memory, &got[0], &got[1], &got[2]);
    assert_int_equal(got[0], live);
    assert_int_equal(got[1], peak);
    assert_int_equal(got[2], allocations);
}

static void test_sizes_and_alignment(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 63, 64, 65, 4096, 1000003};
    attn__memory *memory = attn__memory_create(NULL, -1);
    assert_non_null(memory);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *p, *zero;
        assert_int_equal(attn__allocate(memory, sizes[i], &p), ATTN_OK);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 0xAB, (size_t)sizes[i]);
        attn__deallocate(memory, p, sizes[i]);
        assert_int_equal(attn__allocate_zero(memory, sizes[i], &zero), ATTN_OK);
        for (int64_t b = 0; b < sizes[i]; b++) assert_int_equal(((unsigned char *)zero)[b], 0);
        attn__deallocate(memory, zero, sizes[i]);
    }
    int64_t live, peak, allocations;
    attn__memory_read(memory, &live, &peak, &allocations);
    assert_int_equal(live, 0);
    attn__memory_release(memory);
}

static void test_accounting(void **state)
{
    (void)state;
    void *a, *b;
    attn__memory *memory = attn__memory_create(NULL, -1);
    expect_read(memory, 0, 0, 0);
    assert_int_equal(attn__allocate(memory, 1000, &a), ATTN_OK);
    assert_int_equal(attn__allocate(memory, 500, &b), ATTN_OK);
    expect_read(memory, 1500, 1500, 2);
    attn__deallocate(memory, a, 1000);
    expect_read(memory, 500, 1500, 2);
    attn__memory_reset_peak(memory);
    expect_read(memory, 500, 500, 2);
    attn__deallocate(memory, NULL, 77);
    attn__deallocate(memory, b, 500);
    expect_read(memory, 0, 500, 2);
    assert_int_equal(attn__memory_cap(memory), -1);
    attn__memory_release(memory);
    attn__memory_release(NULL);
}

static void test_refusals(void **state)
{
    (void)state;
    void *p = &p, *q;
    attn__memory *memory = attn__memory_create(NULL, 1000);
    static const struct {
        int64_t bytes;
        attn_status status;
    } cases[] = {
        {-1, ATTN_ERROR_TOO_LARGE}, {INT64_MIN, ATTN_ERROR_TOO_LARGE}, {1001, ATTN_ERROR_MEMORY_CAP}, {INT64_MAX, ATTN_ERROR_MEMORY_CAP}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p = &p;
        assert_int_equal(attn__allocate(memory, cases[i].bytes, &p), cases[i].status);
        assert_null(p);
    }
    assert_int_equal(attn__allocate(memory, 1000, &p), ATTN_OK); /* the cap itself fits */
    assert_int_equal(attn__allocate(memory, 1, &q), ATTN_ERROR_MEMORY_CAP);
    assert_int_equal(attn__allocate(memory, INT64_MAX, &q), ATTN_ERROR_TOO_LARGE); /* live + size overflows */
    attn__deallocate(memory, p, 1000);
    expect_read(memory, 0, 1000, 1);
    attn__memory_release(memory);
}

static void test_failing_allocator(void **state)
{
    (void)state;
    test_allocator counts = {0};
    attn_allocator hooks = test_allocator_hooks(&counts);
    attn__memory *memory = attn__memory_create(&hooks, -1);
    attn__memory *second = attn__memory_retain(memory);
    void *p, *q;
    assert_int_equal(attn__allocate(memory, 100, &p), ATTN_OK);
    assert_int_equal(counts.live_pointers, 2);
    counts.fail_at = counts.calls + 1;
    assert_int_equal(attn__allocate(memory, 100, &q), ATTN_ERROR_OUT_OF_MEMORY);
    assert_null(q);
    assert_int_equal(attn__allocate_zero(memory, 100, &q), ATTN_ERROR_OUT_OF_MEMORY);
    expect_read(memory, 100, 100, 1); /* a refused request leaves no trace */
    attn__memory_release(memory);
    attn__deallocate(second, p, 100); /* the second owner still works */
    attn__memory_release(second);
    assert_int_equal(counts.live_pointers, 0);
    assert_int_equal(counts.live_bytes, 0);
    assert_int_equal(counts.wrong, 0);
    assert_null(attn__memory_create(&hooks, -1));
}

static void test_misaligned_allocator(void **state)
{
    (void)state;
    test_allocator counts = {.misalign = 1};
    attn_allocator hooks = test_allocator_hooks(&counts);
    assert_null(attn__memory_create(&hooks, -1));
    assert_int_equal(counts.calls, 1);
    assert_int_equal(counts.live_pointers, 0);
    assert_int_equal(counts.wrong, 0);
}

#define ROUNDS 20000
static void *hammer(void *argument)
{
    attn__memory *memory = argument;
    intptr_t granted = 0;
    for (int i = 0; i < ROUNDS; i++) {
        void *p;
        if (attn__allocate(memory, 400, &p) != ATTN_OK) continue;
        int64_t live, peak, allocations;
        attn__memory_read(memory, &live, &peak, &allocations);
        if (live > 1000 || peak > 1000) return (void *)(intptr_t)-1;
        attn__deallocate(memory, p, 400);
        granted++;
    }
    return (void *)granted;
}

/* Four threads want 400 bytes each of 1000: never more than two at once, and the books balance. */
static void test_cap_with_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    int64_t live, peak, allocations;
    intptr_t granted = 0;
    attn__memory *memory = attn__memory_create(NULL, 1000);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, hammer, memory), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_true((intptr_t)result >= 0);
        granted += (intptr_t)result;
    }
    attn__memory_read(memory, &live, &peak, &allocations);
    assert_int_equal(live, 0);
    assert_int_equal(allocations, granted);
    assert_true(peak == 400 || peak == 800);
    attn__memory_release(memory);
}

/* pieces of one size are all the same one, so that threads meet in the books and not in the allocator */
enum { PIECE = 448, PIECE_ROUNDS = 4000000 };
static void *one_piece(void *user, uint64_t size, uint64_t alignment)
{
    return size == PIECE ? user : aligned_alloc((size_t)alignment, (size_t)((size + alignment - 1) / alignment * alignment));
}

static void keep_piece(void *user, void *pointer, uint64_t size)
{
    (void)size;
    if (pointer != user) free(pointer);
}

static pthread_barrier_t begin;
static void *book_and_return(void *argument)
{
    attn__memory *memory = argument;
    void *p;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < PIECE_ROUNDS; i++)
        if (attn__allocate(memory, PIECE, &p) == ATTN_OK) attn__deallocate(memory, p, PIECE);
    return NULL;
}

/* no bytes get lost between threads that take and give back at the same time */
static void test_books_with_threads(void **state)
{
    (void)state;
    static _Alignas(64) char piece[PIECE];
    const attn_allocator hooks = {sizeof hooks, one_piece, keep_piece, piece};
    pthread_t threads[4];
    attn__memory *memory = attn__memory_create(&hooks, -1);
    int64_t live, peak, allocations;
    assert_int_equal(pthread_barrier_init(&begin, NULL, 4), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, book_and_return, memory), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&begin);
    attn__memory_read(memory, &live, &peak, &allocations);
    assert_int_equal(live, 0);
    assert_int_equal(allocations, 4 * PIECE_ROUNDS);
    assert_true(peak >= PIECE && peak <= 4 * PIECE && peak % PIECE == 0);
    attn__memory_release(memory);
}

enum { LAST_ROUNDS = 100000, LAST_SECONDS = 2 }; /* whichever is over first */
static _Atomic int last_over;
typedef struct asker {
    attn__memory *memory;
    pthread_t thread;
    int number, granted, rounds;
} asker;

static void *ask_for_the_last(void *argument)
{
    asker *a = argument;
    void *p;
    const double from = meet_seconds();
    meet_on(a->number);
    for (int64_t round = 0;; a->rounds = (int)++round) {
        if (a->number == 0 && (round == LAST_ROUNDS || meet_seconds() - from > LAST_SECONDS)) atomic_store(&last_over, 1);
        meet(4 * round + 2);
        if (atomic_load(&last_over)) return NULL;
        const attn_status status = attn__allocate(a->memory, PIECE, &p);
        meet(4 * round + 4);
        if (status != ATTN_OK) continue;
        attn__deallocate(a->memory, p, PIECE);
        a->granted++;
    }
}

/* where one piece fits, of two threads that ask in the same moment one gets it, every time */
static void test_last_bytes_with_threads(void **state)
{
    (void)state;
    static _Alignas(64) char piece[PIECE];
    const attn_allocator hooks = {sizeof hooks, one_piece, keep_piece, piece};
    attn__memory *memory = attn__memory_create(&hooks, 2 * PIECE - 1);
    asker askers[2] = {{.memory = memory, .number = 0}, {.memory = memory, .number = 1}};
    atomic_store(&meet_arrivals, 0);
    atomic_store(&last_over, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_for_the_last, &askers[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(askers[i].thread, NULL);
    assert_true(askers[0].rounds > 0 && askers[0].rounds == askers[1].rounds);
    expect_read(memory, 0, PIECE, askers[0].rounds);
    assert_int_equal(askers[0].granted + askers[1].granted, askers[0].rounds);
    attn__memory_release(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_and_alignment),
        cmocka_unit_test(test_accounting),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_failing_allocator),
        cmocka_unit_test(test_misaligned_allocator),
        cmocka_unit_test(test_cap_with_threads),
        cmocka_unit_test(test_books_with_threads),
        cmocka_unit_test(test_last_bytes_with_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

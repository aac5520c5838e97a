#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include "core/memory.h"
#include "core/threads.h"

/* A pointer that misses the promised alignment is given back and counts as no memory; a pool that is freed leaves no thread behind. */
static int64_t held;
static uintptr_t offset;

static void *allocate(void *user, uint64_t size, uint64_t alignment)
{
    void *p = NULL;
    (void)user, (void)alignment;
    if (posix_memalign(&p, 64, (size_t)size + 64) != 0) return NULL;
    held++;
    return (char *)p + offset;
}

static void release(void *user, void *pointer, uint64_t size)
{
    (void)user, (void)size;
    held--;
    free((char *)pointer - (uintptr_t)pointer % 64);
}

static void test_alignment(void **state)
{
    const attn_allocator hooks = {sizeof hooks, allocate, release, NULL};
    void *p;
    (void)state;
    offset = 0;
    attn__memory *memory = attn__memory_create(&hooks, -1);
    assert_non_null(memory);
    for (offset = 4; offset < 64; offset *= 2) {
        assert_int_equal(attn__allocate(memory, 100, &p), ATTN_ERROR_OUT_OF_MEMORY);
        assert_null(p);
        assert_int_equal(held, 1); /* the record itself */
        assert_null(attn__memory_create(&hooks, -1));
    }
    offset = 0;
    attn__memory_release(memory);
    assert_int_equal(held, 0);
}

static int threads_of_process(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    if (tasks == NULL) return -1;
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* a thread that was joined may stand in the list a moment longer */
static void expect_threads(int expected)
{
    int count = threads_of_process();
    for (int tries = 0; tries < 2000 && count != expected; tries++, count = threads_of_process()) usleep(1000);
    assert_int_equal(count, expected);
}

static void tile(void *job, int64_t index, int32_t worker)
{
    (void)worker;
    ((int *)job)[index]++;
}

static void test_threads_end(void **state)
{
    int runs[8] = {0}, before = 0;
    (void)state;
    if (threads_of_process() < 0) skip(); /* no such folder here */
    for (int round = 0; round <= 20; round++) {
        attn__memory *memory = attn__memory_create(NULL, -1);
        attn__pool *pool = NULL;
        assert_int_equal(attn__pool_create(memory, 4, &pool), ATTN_OK);
        if (round > 0) expect_threads(before + attn__pool_threads(pool) - 1);
        assert_int_equal(attn__pool_run(pool, 8, tile, runs, NULL, NULL), 0);
        attn__pool_free(pool);
        attn__memory_release(memory);
        if (round == 0) usleep(10000);
        if (round == 0) before = threads_of_process(); /* a sanitizer has a thread of its own since the first one began */
        expect_threads(before);
        for (int i = 0; i < 8; i++) assert_int_equal(runs[i], round + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alignment), cmocka_unit_test(test_threads_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#ifndef TESTS_TENSOR_FIXTURE_H
#define TESTS_TENSOR_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"

/* A context whose allocator counts, so that every test ends with a look for leaks, and that can be told to fail. */
typedef struct fixture {
    attn_context *ctx;
    atomic_long live, calls;
    long fail_at; /* this call of the allocator, and those after it, give nothing; -1: none */
} fixture;

static void *fixture_allocate(void *user, uint64_t size, uint64_t alignment)
{
    fixture *f = user;
    long call = atomic_fetch_add(&f->calls, 1);
    if (f->fail_at >= 0 && call >= f->fail_at) return NULL;
    void *pointer = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (pointer == NULL) return NULL;
    memset(pointer, 0xa5, size); /* nobody may count on zeros */
    atomic_fetch_add(&f->live, (long)size);
    return pointer;
}

static void fixture_release(void *user, void *pointer, uint64_t size)
{
    fixture *f = user;
    if (pointer != NULL) atomic_fetch_sub(&f->live, (long)size);
    free(pointer);
}

static int fixture_setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    attn_context_options options;
    assert_non_null(f);
    f->fail_at = -1;
    attn_allocator allocator = {sizeof allocator, fixture_allocate, fixture_release, f};
    assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
    options.threads = 1;
    options.allocator = &allocator;
    assert_int_equal(attn_context_create(&options, &f->ctx), ATTN_OK);
    *state = f;
    return 0;
}

static int fixture_teardown(void **state)
{
    fixture *f = *state;
    attn_context_free(f->ctx);
    long live = f->live;
    free(f);
    if (live != 0) fprintf(stderr, "%ld bytes were not freed\n", live);
    return live != 0;
}

#define FIXTURE_TEST(function) cmocka_unit_test_setup_teardown(function, fixture_setup, fixture_teardown)
#define EXPECT_OK(call) assert_int_equal(call, ATTN_OK)
/* the call fails with this code and the text names this */
#define EXPECT_FAILS(ctx, call, code, text) \
    do { \
        assert_int_equal(call, code); \
        if (strstr(attn_context_last_error(ctx), text) == NULL) fail_msg("\"%s\" not in \"%s\"", text, attn_context_last_error(ctx)); \
    } while (0)
#endif

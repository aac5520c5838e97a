#ifndef ATTN_TESTS_ALLOCATOR_H
#define ATTN_TESTS_ALLOCATOR_H
#include <attn/context.h>
#include <stdatomic.h>

/* An allocator for tests: counts, checks sizes on release, and fails on demand. */
typedef struct test_allocator {
    atomic_llong calls, live_bytes, live_pointers, wrong; /* wrong: releases with another size, requests with another alignment */
    long long fail_at;                                    /* the call that fails, and all after it; counted from 1; 0: none */
    int only_once;                                        /* 1: only that call fails */
    int misalign;                                         /* 1: pointers that break the promise of alignment */
} test_allocator;

/* The struct to pass in attn_context_options; state must outlive it. */
attn_allocator test_allocator_hooks(test_allocator *state);
#endif

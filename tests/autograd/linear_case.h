#ifndef TESTS_AUTOGRAD_LINEAR_CASE_H
#define TESTS_AUTOGRAD_LINEAR_CASE_H
#include <attn/linear_attention.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

/* What the tests of linear attention and of the Performer share: a context of each backend, options. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

static attn_context *contexts[2]; /* by backend */

static inline int open_contexts(void **state)
{
    (void)state;
    for (int32_t backend = 0; backend < 2; backend++) {
        attn_context_options options;
        assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
        options.backend = backend;
        options.threads = 2;
        assert_int_equal(attn_context_create(&options, &contexts[backend]), ATTN_OK);
    }
    return 0;
}

static inline int close_contexts(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) attn_context_free(contexts[i]);
    return 0;
}

static inline attn_linear_attention_options options_of(int32_t map, int32_t causal)
{
    attn_linear_attention_options o;
    assert_int_equal(attn_linear_attention_options_init(&o, sizeof o), ATTN_OK);
    o.map = map;
    o.causal = causal;
    return o;
}
#endif

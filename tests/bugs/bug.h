#ifndef TESTS_BUGS_BUG_H
#define TESTS_BUGS_BUG_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* Faults that users of other libraries met, by their numbers: B001 and so on. Each test runs in a context of its own. */
static attn_context *ctx;

static inline void begin(int32_t backend)
{
    ctx = model_context(backend, 2, 1);
}

static inline void end(void)
{
    attn_context_free(ctx);
}

typedef void body(void);
/* in both backends */
static inline void on_both(body *test)
{
    for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++) {
        begin(backend);
        test();
        end();
    }
}

#define NUMBERS(...) ((const float[]){__VA_ARGS__})
#define SHAPE(...) \
    (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) \
    { \
        __VA_ARGS__ \
    }

/* from: dense numbers, or NULL for zeros */
static inline attn_tensor *tensor(int32_t rank, const int64_t *shape, const float *from)
{
    attn_tensor *made;
    OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, rank, shape, &made));
    if (from != NULL) memcpy(attn_tensor_data(made), from, (size_t)model_elements(made) * sizeof *from);
    return made;
}

static inline attn_tensor *filled(int32_t rank, const int64_t *shape, double value)
{
    attn_tensor *made = tensor(rank, shape, NULL);
    for (int64_t i = 0; i < model_elements(made); i++) model_set(made, i, value);
    return made;
}

static inline attn_tensor *noise(int32_t rank, const int64_t *shape, uint64_t seed)
{
    attn_tensor *made = tensor(rank, shape, NULL);
    random_state random = {seed};
    for (int64_t i = 0; i < model_elements(made); i++) model_set(made, i, random_number(&random, -1, 1));
    return made;
}

static inline void near_to(const attn_tensor *got, int64_t index, double want, double within)
{
    double value = model_get(got, index);
    if (!(fabs(value - want) <= within)) fail_msg("element %lld: got %.9g, expected %.9g", (long long)index, value, want);
}

static inline void all_finite(const attn_tensor *got)
{
    for (int64_t i = 0; i < model_elements(got); i++) assert_true(isfinite(model_get(got, i)));
}

static inline attn_layout *lengths(int64_t count, const int64_t *of)
{
    attn_layout *made;
    OK(ctx, attn_layout_create(ctx, count, &made));
    OK(ctx, attn_layout_set_lengths(ctx, made, count, of, 0));
    return made;
}

static inline attn_tape *tape_open(int32_t training, uint64_t seed)
{
    attn_tape *tape;
    attn_tape_options o;
    OK(ctx, attn_tape_options_init(&o, sizeof o));
    o.training = training;
    o.seed = seed;
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, &o));
    return tape;
}

static inline void backward(attn_tape *tape, const attn_tensor *output)
{
    OK(ctx, attn_tape_backward(ctx, tape, 1, &output, NULL, 0, NULL));
}

/* bytes [1, heads, queries, keys] as a mask */
static inline attn_mask *boolean(int64_t heads, int64_t queries, int64_t keys, const uint8_t *allowed)
{
    attn_tensor *bytes;
    attn_mask *made;
    OK(ctx, attn_tensor_wrap(ctx, ATTN_UINT8, 4, (const int64_t[]){1, heads, queries, keys}, NULL, (void *)(uintptr_t)allowed, &bytes));
    OK(ctx, attn_mask_boolean(ctx, bytes, &made));
    attn_tensor_free(bytes);
    return made;
}

static inline void attend(attn_tape *tape, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_mask *mask,
                          attn_tensor *y)
{
    OK(ctx, attn_dot_product_attention(ctx, tape, q, k, v, NULL, NULL, mask, NULL, y));
}

/* frees its arguments */
#define FREE(...) \
    do { \
        attn_tensor *those[] = {__VA_ARGS__}; \
        for (size_t at = 0; at < sizeof those / sizeof *those; at++) attn_tensor_free(those[at]); \
    } while (0)
#endif

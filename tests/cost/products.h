#ifndef TESTS_COST_PRODUCTS_H
#define TESTS_COST_PRODUCTS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "cost/counter.h"
#include "support/model.h"

/* Counted against foretold, for the programs of this folder; each is one file and one context. */
static attn_context *ctx;
static int64_t cases, counted_sum, foretold_sum;

static inline void agree(const char *what, int64_t counted, int64_t foretold)
{
    cases++;
    counted_sum += counted;
    foretold_sum += foretold;
    if (counted != foretold)
        fail_msg("%s: %lld multiply-adds reached BLAS, %lld were foretold", what, (long long)counted, (long long)foretold);
}

static inline attn_layout *layout_of(int64_t count, const int64_t *lengths)
{
    attn_layout *made = NULL;
    OK(ctx, attn_layout_create(ctx, count, &made));
    OK(ctx, attn_layout_set_lengths(ctx, made, count, lengths, 0));
    return made;
}

enum { FULL, CAUSAL, CAUSAL_FIRST, WINDOW, DILATED, BOOLEAN, UNION, INTERSECTION, GLOBAL, MASKS };
static const char *const mask_names[MASKS] = {"full",    "causal", "causal from the first", "window",           "dilated window",
                                              "boolean", "union",  "intersection",          "window and global"};

/* blocks of 40 by 50 on a chessboard */
static inline attn_mask *boolean_mask(int64_t queries, int64_t keys)
{
    const int64_t shape[4] = {1, 1, queries, keys};
    attn_tensor *allowed = NULL;
    attn_mask *made = NULL;
    OK(ctx, attn_tensor_create(ctx, ATTN_UINT8, 4, shape, &allowed));
    uint8_t *at = attn_tensor_data(allowed);
    for (int64_t i = 0; i < queries; i++)
        for (int64_t j = 0; j < keys; j++) at[i * keys + j] = (i / 40 + j / 50) % 2 == 0;
    OK(ctx, attn_mask_boolean(ctx, allowed, &made));
    attn_tensor_free(allowed);
    return made;
}

static inline attn_mask *mask_of(int kind, int64_t queries, int64_t keys)
{
    attn_mask *made = NULL, *window = NULL, *other = NULL;
    switch (kind) {
    case CAUSAL: OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &made)); return made;
    case CAUSAL_FIRST: OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_FIRST, &made)); return made;
    case WINDOW: OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 70, 3, 1, &made)); return made;
    case DILATED: OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_FIRST, 9, 0, 13, &made)); return made;
    case BOOLEAN: return boolean_mask(queries, keys);
    case GLOBAL:
        OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 20, 20, 1, &window));
        OK(ctx, attn_mask_global(ctx, ATTN_ALIGN_LAST, 3, (const int64_t[]){0, 2, 60}, &other));
        OK(ctx, attn_mask_union(ctx, window, other, &made));
        attn_mask_free(window);
        attn_mask_free(other);
        return made;
    case UNION:
    case INTERSECTION:
        OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 100, 100, 1, &window));
        other = boolean_mask(queries, keys);
        if (kind == UNION)
            OK(ctx, attn_mask_union(ctx, window, other, &made));
        else
            OK(ctx, attn_mask_intersection(ctx, window, other, &made));
        attn_mask_free(window);
        attn_mask_free(other);
        return made;
    default: return NULL;
    }
}

static inline int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    attn_tensor *one = model_tensor(ctx, ATTN_FLOAT32, 1, 1), *y = model_tensor(ctx, ATTN_FLOAT32, 1, 1);
    OK(ctx, attn_linear(ctx, NULL, one, one, NULL, y)); /* the first computation tries BLAS */
    attn_tensor_free(one);
    attn_tensor_free(y);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

static inline int run_counted(const char *name, int (*run)(void))
{
    if (!counter_works()) {
        printf("BLAS is linked into this program: its products cannot be counted\n");
        return 77;
    }
    int failed = run();
    printf("%s: %lld in %lld cases, %lld multiply-adds counted, %lld foretold\n", name, (long long)counter_calls, (long long)cases,
           (long long)counted_sum, (long long)foretold_sum);
    return failed;
}
#endif

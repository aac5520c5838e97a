#ifndef TESTS_SUPPORT_DRAWN_H
#define TESTS_SUPPORT_DRAWN_H
#include <stdlib.h>
#include "random.h"

/* Cases that are drawn, each from its own number: what lists have one at a time, together. ATTN_DRAW=N: case N alone. ATTN_DRAWS=N: the
   first N in place of those the suite runs. */
static inline int64_t drawn_number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoll(text) : otherwise;
}

static inline int64_t drawn_first(void)
{
    return drawn_number("ATTN_DRAW", 0);
}

static inline int64_t drawn_end(int64_t count)
{
    const int64_t one = drawn_number("ATTN_DRAW", -1);
    return one < 0 ? drawn_number("ATTN_DRAWS", count) : one + 1;
}

static inline int64_t drawn_among(random_state *random, int64_t count, const int64_t *of)
{
    return of[random_integer(random, 0, count)];
}
#define AMONG(random, ...) \
    drawn_among(random, (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

/* one in so many */
static inline int drawn_once_in(random_state *random, int64_t count)
{
    return random_integer(random, 0, count) == 0;
}
#endif

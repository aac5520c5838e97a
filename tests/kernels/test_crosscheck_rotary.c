/* rotary positions: BLAS against the two references */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/compare.h"
#include "support/crosscheck.h"

typedef struct shape {
    int64_t rows, heads, width, rotated, gap, head_gap;
    int32_t pairing;
    int back, add, in_place, far;
} shape;

static const shape shapes[] = {
    {5, 1, 8, 8, 0, 0, ATTN_ROTARY_HALVES, 0, 0, 0, 0},      {5, 2, 6, 6, 0, 3, ATTN_ROTARY_PAIRS, 0, 1, 0, 0},
    {0, 2, 8, 8, 0, 0, ATTN_ROTARY_HALVES, 0, 0, 0, 0},      {1, 1, 2, 2, 0, 0, ATTN_ROTARY_HALVES, 1, 0, 0, 0},
    {1, 3, 2, 2, 1, 0, ATTN_ROTARY_PAIRS, 1, 1, 0, 0},       {33, 3, 7, 4, 5, 1, ATTN_ROTARY_HALVES, 1, 1, 0, 0},
    {33, 3, 7, 4, 0, 1, ATTN_ROTARY_PAIRS, 0, 0, 1, 0},      {700, 8, 64, 64, 0, 0, ATTN_ROTARY_HALVES, 0, 0, 1, 0},
    {13, 2, 258, 258, 0, 0, ATTN_ROTARY_HALVES, 1, 0, 0, 0}, {13, 2, 259, 134, 3, 0, ATTN_ROTARY_PAIRS, 1, 0, 1, 0},
    {40, 2, 8, 8, 0, 0, ATTN_ROTARY_HALVES, 0, 0, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void rotate_case(crosscheck *c, const void *what)
{
    const shape *s = what;
    c->gap = s->gap;
    c->head_gap = s->head_gap;
    trio x = input_heads(c, s->rows, s->heads, s->width, -1, 1), y = result_heads(c, s->rows, s->heads, s->width, s->add && !s->in_place);
    double *frequency = take(c, s->rotated / 2 * 8);
    for (int64_t i = 0; i < s->rotated / 2; i++) frequency[i] = random_number(&c->random, 0, 3);
    attn__rotary rotary = {frequency, s->rotated, 1.25, s->pairing, 0, places(c, s->rows, 5000)};
    for (int64_t r = 0; r < s->rows; r += 4) ((int64_t *)(intptr_t)rotary.places.position)[r] -= 3000; /* before the first, too */
    for (int64_t r = 0; r < s->rows && s->far; r++) ((int64_t *)(intptr_t)rotary.places.position)[r] = (INT64_C(1) << 37) + r * 1000003;
    for (int run = 0; run < RUNS; run++)
        assert_int_equal(c->table[run]->rotate(c->ctx[run], &x.at[run], &rotary, s->back, s->in_place ? 0 : s->add,
                                               s->in_place ? &x.at[run] : &y.at[run]),
                         ATTN_OK);
    expect_close(c, "rotate", 2, s->in_place ? &x : &y);
}

static void test_rotate(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < SHAPES; i++) crosscheck_run(&c, rotate_case, &shapes[i], i < 2 ? 1 : 0);
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rotate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* kernels that treat elements alone, measures, Adam and sampling: BLAS against the two references */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/compare.h"
#include "support/crosscheck.h"
#include "tensor/parameters.h"

typedef struct shape {
    int64_t rows, heads, width, gap;
    int add, in_place;
    double rate;
} shape;

static const shape shapes[] = {
    {5, 1, 7, 0, 0, 0, 0.25},  {0, 1, 7, 0, 1, 0, 0.5},   {4, 1, 0, 0, 0, 0, 0},  {1, 1, 1, 0, 1, 0, 0.5},     {9, 1, 64, 3, 0, 1, 0.4},
    {33, 2, 65, 0, 1, 0, 0.1}, {2, 1, 20011, 5, 0, 1, 0}, {67, 3, 5, 1, 0, 0, 1}, {3000, 1, 13, 0, 1, 1, 0.9},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void dropout_case(crosscheck *c, const void *what)
{
    const shape *s = what;
    c->gap = s->gap;
    trio x = input_rows(c, s->rows, s->width, 1, 2), y = result_rows(c, s->rows, s->width, s->add && !s->in_place);
    attn__dropout drop = {s->rate, UINT64_MAX, 4, 1, {NULL, NULL}};
    drop.places = places(c, s->rows, 19);
    for (int64_t r = 0; r < s->rows; r += 5) ((int64_t *)(intptr_t)drop.places.position)[r] += INT64_C(1) << 33;
    for (int run = 0; run < RUNS; run++) {
        const attn__dropout *d = s->rate > 0 ? &drop : NULL;
        assert_int_equal(
            c->table[run]->dropout(c->ctx[run], &x.at[run], d, s->in_place ? 0 : s->add, s->in_place ? &x.at[run] : &y.at[run]), ATTN_OK);
    }
    expect_close(c, "dropout", 1, s->in_place ? &x : &y);
}

static void elements_case(crosscheck *c, const void *what)
{
    const shape *s = what;
    c->gap = s->gap;
    trio a = input_heads(c, s->rows, s->heads, s->width, -1, 1), b = input_heads(c, s->rows, s->heads, s->width, -1, 1);
    trio factor = input_rows(c, 1, 1, 2, 3), sum = result_heads(c, s->rows, s->heads, s->width, 0);
    trio product = result_heads(c, s->rows, s->heads, s->width, s->add), copied = result_heads(c, s->rows, s->heads, s->width, s->add);
    trio scaled = input_heads(c, s->rows, s->heads, s->width, -1, 1);
    double dot[RUNS], squares[RUNS];
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        attn_context *ctx = c->ctx[run];
        assert_int_equal(t->dot(ctx, &a.at[run], &b.at[run], &dot[run]), ATTN_OK);
        assert_int_equal(t->copy(ctx, &a.at[run], s->add, &copied.at[run]), ATTN_OK);
        assert_int_equal(t->multiply(ctx, &a.at[run], &b.at[run], s->add, &product.at[run]), ATTN_OK);
        assert_int_equal(t->scale(ctx, &factor.at[run], &scaled.at[run]), ATTN_OK);
        assert_int_equal(t->sum_squares(ctx, b.at[run].data, s->rows * s->heads * s->width, &squares[run]), ATTN_OK);
        assert_int_equal(t->add(ctx, &a.at[run], &b.at[run], s->in_place ? &b.at[run] : &sum.at[run]), ATTN_OK);
    }
    if (s->in_place && c->nudge == 0) assert_true(compare_views(&b.at[RUN_BLAS], &b.at[RUN_FLOAT32], 0) == 0);
    expect_close(c, "add", 1, s->in_place ? &b : &sum);
    expect_close(c, "multiply", 1, &product);
    expect_close(c, "copy", 1, &copied);
    expect_close(c, "scale", 1, &scaled);
    expect_close_numbers(c, "dot", (double)(s->rows * s->heads * s->width), dot);
    expect_close_numbers(c, "sum_squares", 1, squares);
}

/* gaps between the rows of some of the views: only where all are dense is there one long row */
static void mixed_case(crosscheck *c, const void *what)
{
    const shape *s = what;
    for (int gaps = 0; gaps < 8; gaps++) {
        c->gap = gaps & 1 ? 3 : 0;
        trio a = input_rows(c, s->rows, s->width, -1, 1);
        c->gap = gaps & 2 ? 2 : 0;
        trio b = input_rows(c, s->rows, s->width, -1, 1);
        c->gap = gaps & 4 ? 1 : 0;
        trio sum = result_rows(c, s->rows, s->width, 0), product = result_rows(c, s->rows, s->width, 1),
             copied = result_rows(c, s->rows, s->width, 0);
        for (int run = 0; run < RUNS; run++) {
            const attn__kernels *t = c->table[run];
            assert_int_equal(t->add(c->ctx[run], &a.at[run], &b.at[run], &sum.at[run]), ATTN_OK);
            assert_int_equal(t->multiply(c->ctx[run], &a.at[run], &b.at[run], 1, &product.at[run]), ATTN_OK);
            assert_int_equal(t->copy(c->ctx[run], &b.at[run], 0, &copied.at[run]), ATTN_OK);
        }
        expect_close(c, "add", 1, &sum);
        expect_close(c, "multiply", 1, &product);
        expect_close(c, "copy", 1, &copied);
    }
}

static void fill_case(crosscheck *c, const void *what)
{
    const shape *s = what;
    c->gap = s->gap;
    for (int32_t start = ATTN__START_CONSTANT; start <= ATTN__START_NORMAL; start++) {
        trio y = result_heads(c, s->rows, s->heads, s->width, 0);
        for (int run = 0; run < RUNS; run++) assert_int_equal(c->table[run]->fill(c->ctx[run], &y.at[run], start, 0.7, 12345), ATTN_OK);
        expect_close(c, "fill", 1, &y);
    }
}

static int64_t step; /* of Adam */

static void adam_case(crosscheck *c, const void *what)
{
    const shape *s = what;
    int64_t n = s->rows * s->heads * s->width;
    trio g = input_rows(c, 1, n, -1, 1), m = input_rows(c, 1, n, -0.1, 0.1), v = input_rows(c, 1, n, 0.001, 0.1),
         p = input_rows(c, 1, n, -1, 1);
    trio update = result_rows(c, 1, n, 0);
    for (int run = 0; run < RUNS; run++) {
        for (int64_t i = 0; i < n; i++) element_set(&update.at[run], 0, 0, i, -element_get(&p.at[run], 0, 0, i));
        assert_int_equal(c->table[run]->adam(c->ctx[run], p.at[run].data, g.at[run].data, m.at[run].data, v.at[run].data, n, 0.3, 0.01, 1.5,
                                             0.9, 0.98, 1e-9, 0.05, step),
                         ATTN_OK);
        for (int64_t i = 0; i < n; i++) {
            element_set(&update.at[run], 0, 0, i, element_get(&update.at[run], 0, 0, i) + element_get(&p.at[run], 0, 0, i));
        }
    }
    expect_close(c, "adam", 1, &m);
    expect_close(c, "adam", 1, &v);
    expect_close(c, "adam", 1, &p);
    expect_close(c, "adam", 4, &update);
    if (c->nudge == 0) expect_close(c, "copy", 1, &g);
    for (int64_t i = 0; i < n; i++) assert_true(element_get(&g.at[RUN_BLAS], 0, 0, i) == 0);
}

static void run_shapes(crosscheck_case *run, int nudges)
{
    crosscheck c;
    crosscheck_open(&c);
    for (int i = 0; i < SHAPES; i++) crosscheck_run(&c, run, &shapes[i], i == 0 ? nudges : 0);
    crosscheck_close(&c);
}

static void test_dropout(void **state)
{
    (void)state, run_shapes(dropout_case, 1);
}
static void test_elements(void **state)
{
    (void)state, run_shapes(elements_case, 4);
}
static void test_mixed(void **state)
{
    static const shape few = {5, 1, 7, 0, 0, 0, 0};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    crosscheck_run(&c, mixed_case, &few, 0);
    crosscheck_close(&c);
}
static void test_fill(void **state)
{
    (void)state, run_shapes(fill_case, 0);
}

static void test_adam(void **state)
{
    (void)state;
    for (step = 1; step < 2000000; step = step * 31 + 1) run_shapes(adam_case, 4);
}

/* the same tokens from every table, whatever temperature, k and p */
static void test_next_token(void **state)
{
    const double temperatures[] = {0, 1e-30, 0.5, 1, 3}, nucleus[] = {1, 0.9, 0.3, 1e-9};
    const int64_t widths[] = {1, 2, 17, 300}, tops[] = {0, 1, 5, 1000};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < 4 * 5 * 4 * 4; i++) {
        int64_t rows = 23, width = widths[i % 4], k = tops[i / 80];
        double temperature = temperatures[i / 4 % 5], p = nucleus[i / 20 % 4], uniform[23];
        c.gap = i % 3;
        trio logits = input_rows(&c, rows, width, -3, 3);
        int32_t tokens[RUNS][23];
        random_doubles(&c.random, uniform, rows, 0, 1);
        uniform[0] = 0, uniform[1] = 1 - 0x1p-53;
        for (int run = 0; run < RUNS; run++) {
            if (width > 5) element_set(&logits.at[run], 2, 0, 3, -INFINITY);
            assert_int_equal(c.table[run]->next_token(c.ctx[run], &logits.at[run], temperature, k, p, uniform, tokens[run]), ATTN_OK);
            assert_memory_equal(tokens[run], tokens[0], sizeof tokens[0]);
        }
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

/* tokens whose weights reach p exactly are enough: of n equal ones, the first half with p 0.5 */
static void test_nucleus_reached_exactly(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int64_t width = 2; width <= 64; width *= 2) {
        trio logits = input_rows(&c, 1, width, 0, 1);
        for (int run = 0; run < RUNS; run++) {
            for (int64_t k = 0; k < width; k++) element_set(&logits.at[run], 0, 0, k, 1.5);
            for (int64_t k = 0; k <= width; k += width > 2 ? width / 2 : width) {
                const double uniform = 1 - 0x1p-53;
                const int64_t first = k > 0 ? k : width; /* of the k likeliest, when there is a k */
                int32_t token = -1;
                assert_int_equal(c.table[run]->next_token(c.ctx[run], &logits.at[run], 1, k, 0.5, &uniform, &token), ATTN_OK);
                assert_int_equal(token, first / 2 - 1);
            }
        }
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

static void test_refused(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int run = 0; run < RUNS; run++) {
        trio logits = input_rows(&c, 3, 4, -1, 1);
        view *x = &logits.at[run];
        double uniform[3] = {0.5, 0.5, 0.5};
        int32_t tokens[3] = {-7, -7, -7};
        const attn__kernels *t = c.table[run];
        attn_context *ctx = c.ctx[run];
        assert_int_equal(t->next_token(ctx, x, -1, 0, 1, uniform, tokens), ATTN_ERROR_INVALID_ARGUMENT); /* B125 */
        assert_int_equal(t->next_token(ctx, x, NAN, 0, 1, uniform, tokens), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(t->next_token(ctx, x, 1, -1, 1, uniform, tokens), ATTN_ERROR_INVALID_ARGUMENT); /* B126 */
        assert_int_equal(t->next_token(ctx, x, 1, 0, 0, uniform, tokens), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(t->next_token(ctx, x, 1, 0, 1.5, uniform, tokens), ATTN_ERROR_INVALID_ARGUMENT);
        const double bad[] = {NAN, INFINITY};
        for (int i = 0; i < 2; i++) {
            element_set(x, 2, 0, 1, bad[i]);
            assert_int_equal(t->next_token(ctx, x, i, 0, 1, uniform, tokens), ATTN_ERROR_NOT_FINITE);
            assert_non_null(strstr(attn_context_last_error(ctx), "2"));
        }
        for (int64_t k = 0; k < 4; k++) element_set(x, 2, 0, k, -INFINITY);
        assert_int_equal(t->next_token(ctx, x, 1, 0, 1, uniform, tokens), ATTN_ERROR_NOT_FINITE);
        assert_int_equal(tokens[0], -7);
        uniform[2] = -1; /* left out, whatever its logits are */
        for (int greedy = 0; greedy < 2; greedy++) {
            assert_int_equal(t->next_token(ctx, x, greedy ? 0 : 1, 0, 1, uniform, tokens), ATTN_OK);
            assert_true(tokens[0] >= 0 && tokens[1] >= 0 && tokens[2] == -1);
        }
    }
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout), cmocka_unit_test(test_elements),   cmocka_unit_test(test_fill),
        cmocka_unit_test(test_adam),    cmocka_unit_test(test_next_token), cmocka_unit_test(test_nucleus_reached_exactly),
        cmocka_unit_test(test_mixed),   cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

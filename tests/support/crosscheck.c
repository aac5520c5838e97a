#include "crosscheck.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "compare.h"

static const double MARK = 12345678;

void crosscheck_open(crosscheck *c)
{
    *c = (crosscheck){0};
    for (int run = 0; run < RUNS; run++) {
        attn_context_options options;
        assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
        options.backend = run == RUN_BLAS || run == RUN_ALONE ? ATTN_BACKEND_BLAS : ATTN_BACKEND_REFERENCE;
        options.threads = run == RUN_BLAS ? 3 : 1;
        assert_int_equal(attn_context_create(&options, &c->ctx[run]), ATTN_OK);
        assert_int_equal(attn__enter(c->ctx[run]), ATTN_OK);
        assert_int_equal(attn__kernels_for(c->ctx[run], run == RUN_FLOAT64 ? ATTN_FLOAT64 : ATTN_FLOAT32, &c->table[run]), ATTN_OK);
    }
}

/* between two cases; a kernel leaves the scratch as it found it, or a long call would take more and more */
void crosscheck_sweep(crosscheck *c)
{
    for (int run = 0; run < RUNS; run++)
        if (attn__arena_used(c->ctx[run]->scratch) != 0)
            fail_msg("kernels kept %d bytes of scratch", (int)attn__arena_used(c->ctx[run]->scratch));
    while (c->memory_count > 0) free(c->memory[--c->memory_count]);
    c->gap = c->head_gap = c->made = c->missed = 0;
}

void crosscheck_close(crosscheck *c)
{
    crosscheck_sweep(c);
    for (int run = 0; run < RUNS; run++) {
        attn__leave(c->ctx[run], ATTN_OK);
        attn_context_free(c->ctx[run]);
    }
}

void *take(crosscheck *c, int64_t bytes)
{
    assert_true(c->memory_count < (int)(sizeof c->memory / sizeof c->memory[0]));
    void *out = calloc(1, (size_t)bytes + 64);
    assert_non_null(out);
    c->memory[c->memory_count++] = out;
    return out;
}

static trio make(crosscheck *c, int64_t rows, int64_t heads, int64_t width)
{
    trio t = {0};
    int64_t head_stride = width + c->head_gap, row_stride = heads * head_stride + c->gap;
    for (int run = 0; run < RUNS; run++) {
        int32_t dtype = run == RUN_FLOAT64 ? ATTN_FLOAT64 : ATTN_FLOAT32;
        void *data = take(c, rows * row_stride * (dtype == ATTN_FLOAT64 ? 8 : 4));
        t.at[run] = (view){data, rows, heads, width, row_stride, heads > 1 || c->head_gap > 0 ? head_stride : 0, dtype, 0};
        for (int64_t i = 0; i < rows * row_stride; i++) {
            if (dtype == ATTN_FLOAT64)
                ((double *)data)[i] = MARK;
            else
                ((float *)data)[i] = (float)MARK;
        }
    }
    return t;
}

/* the largest value of the BLAS run, times 1.001 */
static void nudge(const view *v)
{
    int64_t place[3] = {0};
    double largest = -INFINITY;
    for (int64_t r = 0; r < v->rows; r++) {
        for (int64_t h = 0; h < v->heads; h++) {
            for (int64_t k = 0; k < v->width; k++) {
                if (element_get(v, r, h, k) <= largest) continue;
                largest = element_get(v, r, h, k);
                place[0] = r, place[1] = h, place[2] = k;
            }
        }
    }
    element_set(v, place[0], place[1], place[2], largest * 1.001);
}

trio input_heads(crosscheck *c, int64_t rows, int64_t heads, int64_t width, double low, double high)
{
    trio t = make(c, rows, heads, width);
    random_state start = c->random;
    for (int run = 0; run < RUNS; run++) {
        c->random = start;
        random_view(&c->random, &t.at[run], low, high);
    }
    if (++c->made == c->nudge) nudge(&t.at[RUN_BLAS]);
    return t;
}

trio input_rows(crosscheck *c, int64_t rows, int64_t width, double low, double high)
{
    return input_heads(c, rows, 1, width, low, high);
}

trio result_heads(crosscheck *c, int64_t rows, int64_t heads, int64_t width, int add)
{
    trio t = add ? input_heads(c, rows, heads, width, -1, 1) : make(c, rows, heads, width);
    t.least = add;
    if (add) return t;
    for (int run = 0; run < RUNS; run++) {
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t h = 0; h < heads; h++) {
                for (int64_t k = 0; k < width; k++) element_set(&t.at[run], r, h, k, NAN);
            }
        }
    }
    return t;
}

trio result_rows(crosscheck *c, int64_t rows, int64_t width, int add)
{
    return result_heads(c, rows, 1, width, add);
}

view integers(crosscheck *c, int32_t dtype, int64_t rows, int64_t low, int64_t high)
{
    void *data = take(c, rows * 8);
    for (int64_t r = 0; r < rows; r++) {
        int64_t value = random_integer(&c->random, low, high);
        if (dtype == ATTN_INT32)
            ((int32_t *)data)[r] = (int32_t)value;
        else
            ((int64_t *)data)[r] = value;
    }
    return (view){data, rows, 1, 1, 1, 0, dtype, 0};
}

attn__places places(crosscheck *c, int64_t rows, int64_t positions)
{
    int64_t *sequence = take(c, rows * 8), *position = take(c, rows * 8);
    for (int64_t r = 0; r < rows; r++) {
        sequence[r] = 3 + r / positions;
        position[r] = r % positions;
    }
    return (attn__places){sequence, position};
}

static void expect_gaps(const char *operation, const view *v)
{
    for (int64_t r = 0; r < v->rows; r++) {
        for (int64_t k = v->heads * (v->head_stride > 0 ? v->head_stride : v->width); k < v->row_stride; k++) {
            double mark = element_get(v, r, 0, k);
            if (mark != MARK) fail_msg("%s wrote past row %lld: %g at column %lld", operation, (long long)r, mark, (long long)k);
        }
    }
}

static void expect_same_bits(const char *operation, const view *a, const view *b)
{
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t h = 0; h < a->heads; h++) {
            for (int64_t k = 0; k < a->width; k++) {
                double x = element_get(a, r, h, k), y = element_get(b, r, h, k);
                if (x == y || (isnan(x) && isnan(y))) continue;
                fail_msg("%s: %.9g on three threads, %.9g on one at (%lld, %lld, %lld)", operation, x, y, (long long)r, (long long)h,
                         (long long)k);
            }
        }
    }
}

void expect_close(crosscheck *c, const char *operation, double terms, const trio *result)
{
    for (int run = 0; run < RUNS; run++) expect_gaps(operation, &result->at[run]);
    if (c->nudge > 0) {
        c->missed += compare_views(&result->at[RUN_BLAS], &result->at[RUN_FLOAT64], result->least) > compare_bound(operation, terms);
        return;
    }
    expect_views_close(operation, terms, &result->at[RUN_FLOAT32], &result->at[RUN_FLOAT64], result->least);
    expect_views_close(operation, terms, &result->at[RUN_BLAS], &result->at[RUN_FLOAT32], result->least);
    expect_views_close(operation, terms, &result->at[RUN_BLAS], &result->at[RUN_FLOAT64], result->least);
    expect_same_bits(operation, &result->at[RUN_BLAS], &result->at[RUN_ALONE]);
}

void expect_close_numbers(crosscheck *c, const char *operation, double terms, const double value[RUNS])
{
    double most = compare_bound(operation, terms);
    if (c->nudge > 0) {
        c->missed += compare_numbers(value[RUN_BLAS], value[RUN_FLOAT64]) > most;
        return;
    }
    if (compare_numbers(value[RUN_ALONE], value[RUN_BLAS]) != 0) {
        fail_msg("%s: %.17g on three threads, %.17g on one", operation, value[RUN_BLAS], value[RUN_ALONE]);
    }
    for (int run = 0; run < RUN_FLOAT64; run++) {
        if (compare_numbers(value[run], value[RUN_FLOAT64]) <= most) continue;
        fail_msg("%s, %s: got %.9g, expected %.9g: bound %.3g", c->table[RUN_BLAS]->name, operation, value[run], value[RUN_FLOAT64], most);
    }
}

void crosscheck_run(crosscheck *c, crosscheck_case *run, const void *what, int nudges)
{
    random_state start = c->random;
    const attn__kernels *chosen = c->table[RUN_BLAS];
    for (int set = 1; attn__kernels_blas(set) != NULL; set++) {
        c->random = start;
        c->table[RUN_BLAS] = c->table[RUN_ALONE] = attn__kernels_blas(set);
        run(c, what);
        crosscheck_sweep(c);
    }
    c->table[RUN_BLAS] = c->table[RUN_ALONE] = chosen;
    for (c->nudge = 0; c->nudge <= nudges; c->nudge++) {
        c->random = start;
        run(c, what);
        if (c->nudge > 0 && c->made < c->nudge) fail_msg("the case has %d inputs, %d were to be nudged", c->made, nudges);
        if (c->nudge > 0 && c->missed == 0) fail_msg("input %d times 1.001 in one coefficient went unnoticed", c->nudge);
        crosscheck_sweep(c);
    }
    c->nudge = 0;
}

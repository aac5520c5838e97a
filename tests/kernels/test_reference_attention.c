/* Attention against known values, with the reference in float64 and with BLAS. Names B000 are rows of the project's table of faults
   seen in other libraries. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/compare.h"
#include "support/crosscheck.h"

typedef struct problem {
    int64_t heads, key_heads, size, pairs;
    attn_segment queries[3], keys[3];
    trio q, k, v, out, d_out, dq, dk, dv, log_sum_exp;
    attn_mask *mask[RUNS];
} problem;

static void set_all(trio *t, double value)
{
    for (int run = 0; run < RUNS; run++) {
        for (int64_t r = 0; r < t->at[run].rows; r++) {
            for (int64_t h = 0; h < t->at[run].heads; h++) {
                for (int64_t k = 0; k < t->at[run].width; k++) element_set(&t->at[run], r, h, k, value);
            }
        }
    }
}

static void set(trio *t, int64_t row, int64_t head, int64_t column, double value)
{
    for (int run = 0; run < RUNS; run++) element_set(&t->at[run], row, head, column, value);
}

/* queries of zeros: equal scores; values are for the caller to set; every result is NaN before */
static problem zeros(crosscheck *c, int64_t heads, int64_t key_heads, int64_t size, int64_t pairs, const int64_t *queries,
                     const int64_t *keys)
{
    problem p = {.heads = heads, .key_heads = key_heads, .size = size, .pairs = pairs};
    int64_t m = 0, n = 0;
    for (int64_t i = 0; i < pairs; m += queries[i], n += keys[i], i++) {
        p.queries[i] = (attn_segment){m, queries[i], 0, i};
        p.keys[i] = (attn_segment){n, keys[i], 0, i};
    }
    p.q = input_heads(c, m, heads, size, 0, 1);
    p.k = input_heads(c, n, key_heads, size, -1, 1);
    p.v = input_heads(c, n, key_heads, 1, -1, 1);
    p.d_out = input_heads(c, m, heads, 1, -1, 1);
    p.out = result_heads(c, m, heads, 1, 0);
    p.dq = result_heads(c, m, heads, size, 0);
    p.dk = result_heads(c, n, key_heads, size, 0);
    p.dv = result_heads(c, n, key_heads, 1, 0);
    p.log_sum_exp = result_rows(c, heads, m, 0);
    set_all(&p.q, 0);
    return p;
}

static void run(crosscheck *c, problem *p, double scale, double rate)
{
    for (int i = 0; i < RUNS; i++) {
        attn__attention_arguments a = {.query = p->q.at[i], .key = p->k.at[i], .value = p->v.at[i], .output = p->out.at[i]};
        a.log_sum_exp = p->log_sum_exp.at[i].data;
        a.d_query = p->dq.at[i], a.d_key = p->dk.at[i], a.d_value = p->dv.at[i], a.d_output = p->d_out.at[i];
        a.query_segments = (attn__segments){p->pairs, p->q.at[i].rows, p->queries};
        a.key_segments = (attn__segments){p->pairs, p->k.at[i].rows, p->keys};
        a.mask = p->mask[i];
        a.scale = scale;
        a.dropout = (attn__dropout){rate, 1, 2, 3, {NULL, NULL}};
        assert_int_equal(c->table[i]->attention(c->ctx[i], &a), ATTN_OK);
        assert_int_equal(c->table[i]->attention_back(c->ctx[i], &a), ATTN_OK);
    }
}

static void expect_column(const trio *t, const double *want)
{
    for (int i = 0; i < RUNS; i++) {
        for (int64_t r = 0; r < t->at[i].rows; r++) {
            for (int64_t h = 0; h < t->at[i].heads; h++) expect_number(element_get(&t->at[i], r, h, 0), want[r * t->at[i].heads + h], 2e-6);
        }
    }
}

static void expect_all(const trio *t, double value)
{
    for (int i = 0; i < RUNS; i++) {
        for (int64_t r = 0; r < t->at[i].rows; r++) {
            for (int64_t h = 0; h < t->at[i].heads; h++) {
                for (int64_t k = 0; k < t->at[i].width; k++) expect_number(element_get(&t->at[i], r, h, k), value, 0);
            }
        }
    }
}

/* B006, B007, B008: the last query stands against the last key unless another alignment is chosen */
static void test_causal_alignment(void **state)
{
    const struct {
        int32_t alignment;
        int64_t queries, keys;
        double values[8], want[5];
    } cases[] = {
        {ATTN_ALIGN_LAST, 1, 8, {1, 2, 3, 4, 5, 6, 7, 8}, {4.5}}, {ATTN_ALIGN_FIRST, 1, 8, {1, 2, 3, 4, 5, 6, 7, 8}, {1}},
        {ATTN_ALIGN_LAST, 2, 5, {1, 2, 3, 4, 5}, {2.5, 3}},       {ATTN_ALIGN_FIRST, 2, 5, {1, 2, 3, 4, 5}, {1, 1.5}},
        {ATTN_ALIGN_LAST, 5, 2, {10, 20}, {0, 0, 0, 10, 15}},     {ATTN_ALIGN_FIRST, 5, 2, {10, 20}, {10, 15, 15, 15, 15}},
    };
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        problem p = zeros(&c, 1, 1, 4, 1, &cases[i].queries, &cases[i].keys);
        for (int64_t j = 0; j < cases[i].keys; j++) set(&p.v, j, 0, 0, cases[i].values[j]);
        for (int k = 0; k < RUNS; k++) assert_int_equal(attn_mask_causal(c.ctx[k], cases[i].alignment, &p.mask[k]), ATTN_OK);
        run(&c, &p, 0.5, 0);
        expect_column(&p.out, cases[i].want);
        for (int k = 0; k < RUNS; k++) {
            for (int64_t r = 0; i == 4 && r < 3; r++) { /* rows that see nothing */
                assert_true(element_get(&p.log_sum_exp.at[k], 0, 0, r) == -INFINITY);
                for (int64_t s = 0; s < 4; s++) assert_true(element_get(&p.dq.at[k], r, 0, s) == 0);
            }
            attn_mask_free(p.mask[k]);
        }
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

/* B023: the scale is the caller's */
static void test_scale(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    problem p = zeros(&c, 1, 1, 4, 1, (int64_t[]){1}, (int64_t[]){2});
    set_all(&p.q, 1);
    for (int64_t k = 0; k < 4; k++) {
        set(&p.k, 0, 0, k, 1);
        set(&p.k, 1, 0, k, 0);
    }
    set(&p.v, 0, 0, 0, 1);
    set(&p.v, 1, 0, 0, 0);
    run(&c, &p, 0.5, 0);
    expect_column(&p.out, (double[]){0.880797});
    expect_column(&p.log_sum_exp, (double[]){2.126928});
    crosscheck_close(&c);
}

/* B024, B026: query head h uses key head h / (heads / key heads) */
static void test_grouped_heads(void **state)
{
    const struct {
        int64_t heads, key_heads;
        double want[12];
    } cases[] = {{4, 2, {0, 0, 1, 1}}, {12, 3, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}}};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < 2; i++) {
        problem p = zeros(&c, cases[i].heads, cases[i].key_heads, 4, 1, (int64_t[]){1}, (int64_t[]){1});
        double sums[3] = {0};
        for (int64_t h = 0; h < cases[i].key_heads; h++) set(&p.v, 0, h, 0, (double)h);
        for (int64_t h = 0; h < cases[i].heads; h++) {
            sums[(int)cases[i].want[h]] += (double)(1 << h);
            set(&p.d_out, 0, h, 0, (double)(1 << h));
        }
        run(&c, &p, 0.5, 0);
        expect_column(&p.out, cases[i].want);
        expect_column(&p.dv, sums);
    }
    crosscheck_close(&c);
}

/* B013, B015: sequences with no keys or no queries give zeros and leave their neighbours alone */
static void test_empty_sides(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    problem p = zeros(&c, 1, 1, 4, 3, (int64_t[]){0, 2, 1}, (int64_t[]){3, 2, 0});
    set(&p.v, 3, 0, 0, 1);
    set(&p.v, 4, 0, 0, 3);
    run(&c, &p, 0.5, 0);
    expect_column(&p.out, (double[]){2, 2, 0});
    for (int i = 0; i < RUNS; i++) {
        double sum = element_get(&p.d_out.at[i], 0, 0, 0) + element_get(&p.d_out.at[i], 1, 0, 0);
        for (int64_t r = 0; r < 3; r++) {
            expect_number(element_get(&p.dv.at[i], r, 0, 0), 0, 0);
            for (int64_t k = 0; k < 4; k++) expect_number(element_get(&p.dk.at[i], r, 0, k), 0, 0);
        }
        for (int64_t k = 0; k < 4; k++) expect_number(element_get(&p.dq.at[i], 2, 0, k), 0, 0);
        expect_number(element_get(&p.dv.at[i], 3, 0, 0), sum / 2, 1e-6);
    }
    crosscheck_close(&c);
}

/* B005: with dropout too, a row that sees nothing is zero; with rate 1 every row is */
static void test_blocked_with_dropout(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    problem p = zeros(&c, 2, 2, 4, 1, (int64_t[]){3}, (int64_t[]){2});
    for (int k = 0; k < RUNS; k++) assert_int_equal(attn_mask_causal(c.ctx[k], ATTN_ALIGN_LAST, &p.mask[k]), ATTN_OK);
    run(&c, &p, 0.5, 0.5);
    for (int k = 0; k < RUNS; k++) {
        for (int64_t h = 0; h < 2; h++) expect_number(element_get(&p.out.at[k], 0, h, 0), 0, 0);
    }
    run(&c, &p, 0.5, 1);
    expect_all(&p.out, 0);
    expect_all(&p.dq, 0);
    expect_all(&p.dk, 0);
    expect_all(&p.dv, 0);
    for (int k = 0; k < RUNS; k++) attn_mask_free(p.mask[k]);
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal_alignment),     cmocka_unit_test(test_scale),
        cmocka_unit_test(test_grouped_heads),        cmocka_unit_test(test_empty_sides),
        cmocka_unit_test(test_blocked_with_dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What the monograph says of time and memory: Propositions 3.2, 3.3, 4.3, sections 2.5.2 and 2.5.3, in numbers of the cost functions and in
   measured peaks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attend.h"

typedef struct size {
    int64_t heads, width, size, value_size, queries, keys;
} size;

static attn_cost_report cost(property *p, const size *s, const attn_mask *mask)
{
    attn_attention_options o;
    attn_cost_report report = {.struct_size = sizeof report};
    attn_layout *queries = property_layout(p, 1, &s->queries, 0), *keys = property_layout(p, 1, &s->keys, 0);
    OK(p->ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = s->width;
    o.heads = s->heads;
    o.head_size = s->size;
    o.value_head_size = s->value_size;
    OK(p->ctx, attn_attention_cost(p->ctx, &o, queries, keys, mask, &report));
    attn_layout_free(queries);
    attn_layout_free(keys);
    return report;
}

/* Proposition 4.3, (4.7), (4.8): at one width the products cost the same for any number of heads, forward and backward. */
static void heads(property *p)
{
    const int64_t widths[] = {16, 64, 512}, lengths[] = {1, 64, 100, 1000};
    for (int w = 0; w < 3; w++)
        for (int n = 0; n < 4; n++) {
            const size alone = {1, widths[w], ATTN_DERIVED, ATTN_DERIVED, lengths[n], lengths[n]};
            const attn_cost_report one = cost(p, &alone, NULL);
            for (int64_t h = 2; h <= 16; h *= 2) {
                const size many = {h, widths[w], ATTN_DERIVED, ATTN_DERIVED, lengths[n], lengths[n]};
                const attn_cost_report all = cost(p, &many, NULL);
                assert_true(all.forward_formula == one.forward_formula && all.backward_formula == one.backward_formula);
                assert_true(all.forward == one.forward && all.parameters == one.parameters);
            }
            assert_true(one.parameters == 4 * widths[w] * widths[w] + 4 * widths[w]);
        }
}

static void test_heads(void **state)
{
    (void)state, property_run(heads, 1);
}

/* (3.15), (2.28): n d (projections) + n^2 (2 d): exactly, in m, n, d_k and d_v apart; the halves are equal at n = 2 d_model. */
static void growth(property *p)
{
    const size sizes[] = {{1, 8, 8, 8, 64, 64}, {4, 32, 8, 8, 128, 128}, {2, 20, 7, 3, 50, 90}, {3, 12, 5, 11, 200, 64}};
    for (int i = 0; i < 4; i++) {
        const size s = sizes[i];
        size twice = s, longer = s;
        twice.queries *= 2, twice.keys *= 2;
        longer.keys *= 2;
        const int64_t one = cost(p, &s, NULL).forward_formula, two = cost(p, &twice, NULL).forward_formula;
        const int64_t pairs = s.heads * s.queries * s.keys * (s.size + s.value_size);
        const int64_t key_rows = s.keys * s.width * s.heads * (s.size + s.value_size);
        assert_true(two - 2 * one == 2 * pairs);                                          /* the square alone is left */
        assert_true(cost(p, &s, NULL).weights_bytes == 4 * s.heads * s.queries * s.keys); /* (4.9), float32 */
        assert_true(one - pairs == key_rows + s.queries * s.width * s.heads * (s.size + s.value_size));
        assert_true(cost(p, &longer, NULL).forward_formula - one == pairs + key_rows);
    }
    for (int64_t width = 8; width <= 512; width *= 4) {
        const size at = {4, width, ATTN_DERIVED, ATTN_DERIVED, 2 * width, 2 * width};
        assert_true(cost(p, &at, NULL).forward_formula == 2 * (4 * at.queries * width * width));
    }
}

static void test_growth(void **state)
{
    (void)state, property_run(growth, 1);
}

/* A window costs in proportion to n, a causal mask about half of the full square. */
static void masks(property *p)
{
    attn_mask *window = NULL, *causal = NULL;
    int64_t before = 0, grown = 0;
    OK(p->ctx, attn_mask_window(p->ctx, ATTN_ALIGN_LAST, 99, 0, 1, &window));
    OK(p->ctx, attn_mask_causal(p->ctx, ATTN_ALIGN_LAST, &causal));
    for (int64_t n = 1024; n <= 8192; n += 1024) {
        const size s = {2, 64, ATTN_DERIVED, ATTN_DERIVED, n, n};
        const int64_t now = cost(p, &s, window).forward, full = cost(p, &s, NULL).forward, half = cost(p, &s, causal).forward;
        const int64_t projections = 4 * n * 64 * 64;
        if (n > 2048) assert_true(now - before == grown);
        grown = now - before, before = now;
        const double share = (double)(half - projections) / (double)(full - projections); /* in whole tiles */
        assert_true(share >= 0.5 && share <= 0.5 + 160.0 / (double)n);
    }
    attn_mask_free(window);
    attn_mask_free(causal);
}

static void test_masks(void **state)
{
    (void)state, property_run(masks, 1);
}

static int64_t peak(property *p, int64_t queries, int64_t keys, int back)
{
    attn_memory_report report = {.struct_size = sizeof report};
    attn_tensor *q = property_random_heads(p, queries, 1, 16, -1, 1), *k = property_random_heads(p, keys, 1, 16, -1, 1);
    property_begin(p);
    if (back) property_watch(p, q), property_watch(p, k);
    attn_tensor *y = attend(p, back ? p->tape : NULL, q, k, k, NAN);
    if (back) property_backward(p, y, NULL, NULL);
    OK(p->ctx, attn_context_memory(p->ctx, &report));
    return report.peak;
}

/* Section 2.5.3: the standard form keeps m n weights; this one does not: twice the length takes twice the memory, both ways. */
static void test_peak(void **state)
{
    (void)state;
    for (int back = 0; back < 2; back++) {
        int64_t peaks[3];
        for (int i = 0; i < 3; i++) {
            property p;
            property_open(&p, GROUND_BLAS, 1);
            peaks[i] = peak(&p, 1024 << i, 1024 << i, back);
            property_close(&p);
        }
        assert_true(peaks[2] - peaks[1] < 2.2 * (double)(peaks[1] - peaks[0]));
        assert_true(peaks[2] < 4096 * INT64_C(4096)); /* a quarter of the weights in float32 */
    }
}

/* 65,536 keys in bounded memory: the weights of 256 queries would be 64 MiB. One row against a plain loop. */
static void test_many_keys(void **state)
{
    enum { QUERIES = 256, KEYS = 65536, SIZE = 8, ROW = 77 };
    (void)state;
    property p;
    attn_memory_report before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    property_open(&p, GROUND_BLAS, 1);
    attn_tensor *q = property_random_heads(&p, QUERIES, 1, SIZE, -1, 1), *k = property_random_heads(&p, KEYS, 1, SIZE, -1, 1);
    attn_tensor *v = property_random_heads(&p, KEYS, 1, SIZE, -1, 1);
    OK(p.ctx, attn_context_memory(p.ctx, &before));
    attn_tensor *y = attend(&p, NULL, q, k, v, 1);
    OK(p.ctx, attn_context_memory(p.ctx, &after));
    assert_true(after.peak - before.live < 4 << 20);
    double sum = 0, want[SIZE] = {0};
    for (int64_t j = 0; j < KEYS; j++) {
        double score = 0;
        for (int64_t c = 0; c < SIZE; c++) score += property_get(q, ROW, c) * property_get(k, j, c);
        sum += exp(score);
        for (int64_t c = 0; c < SIZE; c++) want[c] += exp(score) * property_get(v, j, c);
    }
    for (int64_t c = 0; c < SIZE; c++) NEAR(property_get(y, ROW, c), want[c] / sum, 2e-6);
    property_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads), cmocka_unit_test(test_growth),    cmocka_unit_test(test_masks),
        cmocka_unit_test(test_peak),  cmocka_unit_test(test_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include "core/random.h"

/* Known answers of the Random123 distribution for philox4x32-10. */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint64_t key;
        uint32_t counter[4], expected[4];
    } cases[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {UINT64_C(0x299f31d0a4093822), {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        const uint32_t *c = cases[i].counter;
        attn__philox(cases[i].key, c[0], c[1], c[2], c[3], out);
        for (int w = 0; w < 4; w++) assert_int_equal(out[w], cases[i].expected[w]);
    }
}

/* attn__mix(seed, n) is number n of the splitmix64 sequence of that seed; the hash is FNV-1a. */
static void test_mix_and_hash(void **state)
{
    (void)state;
    assert_true(attn__mix(0, 0) == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(attn__mix(1234567, 0) == UINT64_C(6457827717110365317));
    assert_true(attn__mix(1234567, 1) == UINT64_C(3203168211198807973));
    assert_true(attn__mix(1234567, 2) == UINT64_C(9817491932198370423));
    assert_true(attn__hash("") == UINT64_C(0xcbf29ce484222325));
    assert_true(attn__hash("a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(attn__hash("foobar") == UINT64_C(0x85944171f73967e8));
}

static void test_uniform(void **state)
{
    (void)state;
    assert_true(attn__uniform53(0, 0) == 0.0);
    assert_true(attn__uniform53(UINT32_C(0x80000000), 0) == 0.5);
    assert_true(attn__uniform53(UINT32_MAX, UINT32_MAX) < 1.0);
    double sum = 0, squares = 0;
    const int count = 100000;
    for (int i = 0; i < count; i++) {
        uint32_t out[4];
        attn__philox(7, (uint32_t)i, 0, 0, 0, out);
        double u = attn__uniform53(out[0], out[1]);
        sum += u;
        squares += u * u;
    }
    assert_true(sum / count > 0.495 && sum / count < 0.505); /* 5 deviations: 0.0046 */
    assert_true(squares / count > 1.0 / 3 - 0.005 && squares / count < 1.0 / 3 + 0.005);
}

static void test_dropout_edges(void **state)
{
    (void)state;
    assert_true(attn__dropout_threshold(0) == 0);                        /* every word is kept */
    assert_true(attn__dropout_threshold(1) == (uint64_t)UINT32_MAX + 1); /* none */
    assert_true(attn__dropout_threshold(0.5) == UINT64_C(0x80000000));
    assert_true(attn__dropout_scale(0) == 1 && attn__dropout_scale(0.5) == 2 && attn__dropout_scale(1) == 0);
    uint64_t key = attn__dropout_key(1, 2, 3);
    assert_true(attn__dropout_row_key(key, 5, 6) == key); /* small numbers are in the counter */
    assert_true(attn__dropout_row_key(key, (int64_t)1 << 32, 0) != key);
    assert_true(attn__dropout_row_key(key, 0, (int64_t)1 << 32) != key);
    assert_true(attn__dropout_row_key(key, (int64_t)1 << 32, 0) != attn__dropout_row_key(key, 0, (int64_t)1 << 32));
    assert_true(attn__dropout_key(2, 2, 3) != key && attn__dropout_key(1, 3, 3) != key && attn__dropout_key(1, 2, 4) != key);
}

/* The share that is kept, and its independence of the neighbour step, within 5 deviations. */
static void test_dropout_rates(void **state)
{
    (void)state;
    static const double rates[] = {0.1, 0.3, 0.9};
    const int blocks = 50000;
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        uint64_t threshold = attn__dropout_threshold(rates[r]);
        double kept = 0, both = 0, n = 4.0 * blocks, p = 1 - rates[r];
        for (int i = 0; i < blocks; i++) {
            uint32_t a[4], b[4];
            attn__philox(attn__dropout_key(1, 1, 9), (uint32_t)i, 0, 3, 4, a);
            attn__philox(attn__dropout_key(1, 2, 9), (uint32_t)i, 0, 3, 4, b);
            for (int w = 0; w < 4; w++) {
                kept += a[w] >= threshold;
                both += a[w] >= threshold && b[w] >= threshold;
            }
        }
        double away = kept / n - p, apart = both / n - p * p;
        assert_true(away * away < 25 * p * (1 - p) / n);
        assert_true(apart * apart < 25 * p * p * (1 - p * p) / n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),        cmocka_unit_test(test_mix_and_hash),  cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_dropout_edges), cmocka_unit_test(test_dropout_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

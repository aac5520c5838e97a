#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/blas/exp.h"

/* The logarithm and the exponential that the kernels compute by themselves, at their ends and along the way, against those of libm. */
static void test_ends(void **state)
{
    (void)state;
    assert_true(attn__log(0) == -INFINITY && attn__log(1) == 0 && attn__log(INFINITY) == INFINITY);
    assert_true(isnan(attn__log(-1)) && isnan(attn__log(-INFINITY)) && isnan(attn__log(NAN)) && isnan(attn__log(-FLT_MIN)));
    assert_true(attn__exp(-INFINITY) == 0 && attn__exp(0) == 1 && attn__exp(INFINITY) == INFINITY && isnan(attn__exp(NAN)));
}

static void test_way(void **state)
{
    (void)state;
    for (int i = -1480; i < 1270; i++) {
        float x = (float)exp2(i / 10.0);
        assert_true(fabs((double)attn__log(x) - log((double)x)) <= 3e-7 * fabs(log((double)x)) + 1e-7);
    }
    for (int i = -870; i < 870; i++) {
        float x = (float)i / 10;
        assert_true(fabs((double)attn__exp(x) - exp((double)x)) <= 1e-6 * exp((double)x));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends), cmocka_unit_test(test_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

static attn_context *ctx;

static attn_schedule_options schedule_of(int32_t schedule, int64_t warmup, int64_t total, double rate, double final_rate)
{
    attn_schedule_options o;
    OK(ctx, attn_schedule_options_init(&o, sizeof o));
    o.schedule = schedule;
    o.warmup = warmup;
    o.total = total;
    o.rate = rate;
    o.final_rate = final_rate;
    return o;
}

static void expect_rate(const attn_schedule_options *o, int64_t step, double want)
{
    double got = NAN;
    OK(ctx, attn_learning_rate(ctx, o, step, &got));
    if (!(fabs(got - want) <= 1e-15 + 1e-12 * fabs(want)))
        fail_msg("schedule %d, step %d: got %.17g, expected %.17g", o->schedule, (int)step, got, want);
}

/* values worked out by hand */
static void test_values(void **state)
{
    (void)state;
    const struct {
        int32_t schedule;
        int64_t warmup, total;
        double rate, final_rate;
        int64_t step;
        double want;
    } at[] = {{ATTN_SCHEDULE_CONSTANT, 0, 0, 0.5, 0, 1, 0.5},
              {ATTN_SCHEDULE_CONSTANT, 0, 0, 0.5, 0, 1000, 0.5},
              /* the first update trains with a fourth of the rate, not with 0 */
              {ATTN_SCHEDULE_CONSTANT, 4, 0, 1, 0, 1, 0.25},
              {ATTN_SCHEDULE_CONSTANT, 4, 0, 1, 0, 2, 0.5},
              {ATTN_SCHEDULE_CONSTANT, 4, 0, 1, 0, 3, 0.75},
              {ATTN_SCHEDULE_CONSTANT, 4, 0, 1, 0, 4, 1},
              {ATTN_SCHEDULE_CONSTANT, 4, 0, 1, 0, 5, 1},
              {ATTN_SCHEDULE_LINEAR, 2, 10, 1, 0.2, 1, 0.5},
              {ATTN_SCHEDULE_LINEAR, 2, 10, 1, 0.2, 2, 1},
              {ATTN_SCHEDULE_LINEAR, 2, 10, 1, 0.2, 4, 0.8},
              {ATTN_SCHEDULE_LINEAR, 2, 10, 1, 0.2, 6, 0.6},
              {ATTN_SCHEDULE_LINEAR, 2, 10, 1, 0.2, 10, 0.2},
              {ATTN_SCHEDULE_LINEAR, 2, 10, 1, 0.2, 99, 0.2},
              {ATTN_SCHEDULE_COSINE, 2, 10, 1, 0.2, 2, 1},
              {ATTN_SCHEDULE_COSINE, 2, 10, 1, 0.2, 4, 0.2 + 0.4 * (1 + 0.70710678118654752)},
              {ATTN_SCHEDULE_COSINE, 2, 10, 1, 0.2, 6, 0.6},
              {ATTN_SCHEDULE_COSINE, 2, 10, 1, 0.2, 10, 0.2},
              {ATTN_SCHEDULE_COSINE, 2, 10, 1, 0.2, 11, 0.2},
              {ATTN_SCHEDULE_INVERSE_SQRT, 4, 0, 1, 0, 2, 0.5},
              {ATTN_SCHEDULE_INVERSE_SQRT, 4, 0, 1, 0, 4, 1},
              {ATTN_SCHEDULE_INVERSE_SQRT, 4, 0, 1, 0, 16, 0.5},
              {ATTN_SCHEDULE_INVERSE_SQRT, 0, 0, 1, 0, 1, 1},
              {ATTN_SCHEDULE_INVERSE_SQRT, 0, 0, 1, 0, 4, 0.5}, /* no division by the warm-up */
              {ATTN_SCHEDULE_LINEAR, 10, 10, 1, 0.2, 5, 0.5},
              {ATTN_SCHEDULE_LINEAR, 10, 10, 1, 0.2, 12, 0.2}}; /* nor by total minus warm-up */
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        attn_schedule_options o = schedule_of(at[i].schedule, at[i].warmup, at[i].total, at[i].rate, at[i].final_rate);
        expect_rate(&o, at[i].step, at[i].want);
        o.factor = 3;
        expect_rate(&o, at[i].step, 3 * at[i].want);
    }
}

/* (6.6): width^-1/2 min(t^-1/2, t warmup^-3/2) */
static void test_monograph(void **state)
{
    (void)state;
    attn_schedule_options o = schedule_of(ATTN_SCHEDULE_MONOGRAPH, 4000, 0, 0, 0);
    expect_rate(&o, 1, 1 / (sqrt(512) * pow(4000, 1.5)));
    expect_rate(&o, 2000, 2000 / (sqrt(512) * pow(4000, 1.5)));
    expect_rate(&o, 4000, 1 / sqrt(512.0 * 4000));
    expect_rate(&o, 100000, 1 / sqrt(512.0 * 100000));
    o.warmup = 0;
    o.width = 64;
    expect_rate(&o, 1, 0.125);
    expect_rate(&o, 4, 0.0625);
}

/* every schedule, whatever its lengths: finite, not negative, never above the rate */
static void test_all_are_sane(void **state)
{
    (void)state;
    for (int32_t schedule = ATTN_SCHEDULE_CONSTANT; schedule <= ATTN_SCHEDULE_INVERSE_SQRT; schedule++)
        for (int64_t warmup = 0; warmup < 12; warmup += 3)
            for (int64_t total = warmup; total < 14; total += 2)
                for (int64_t step = 1; step < 20; step++) {
                    attn_schedule_options o = schedule_of(schedule, warmup, total, 0.5, 0.1);
                    double rate;
                    OK(ctx, attn_learning_rate(ctx, &o, step, &rate));
                    assert_true(isfinite(rate) && rate > 0 && rate <= 0.5);
                }
}

static void test_errors(void **state)
{
    (void)state;
    double rate = 7;
    attn_schedule_options o = schedule_of(ATTN_SCHEDULE_COSINE, 5, 4, 1, 0);
    FAILS(ctx, attn_learning_rate(ctx, &o, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "total");
    o = schedule_of(5, 0, 0, 1, 0);
    FAILS(ctx, attn_learning_rate(ctx, &o, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "schedule");
    o = schedule_of(0, -1, 0, 1, 0);
    FAILS(ctx, attn_learning_rate(ctx, &o, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "warmup");
    o = schedule_of(0, 0, 0, NAN, 0);
    FAILS(ctx, attn_learning_rate(ctx, &o, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "rate");
    o = schedule_of(0, 0, 0, 1, -1);
    FAILS(ctx, attn_learning_rate(ctx, &o, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "final_rate");
    o = schedule_of(ATTN_SCHEDULE_LINEAR, 1000, 1000, 1e305, 0); /* finite itself, but not times a step of the warm-up */
    FAILS(ctx, attn_learning_rate(ctx, &o, 999, &rate), ATTN_ERROR_INVALID_ARGUMENT, "factor");
    o = schedule_of(ATTN_SCHEDULE_MONOGRAPH, 0, 0, 1, 0);
    o.width = 0;
    FAILS(ctx, attn_learning_rate(ctx, &o, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "width");
    FAILS(ctx, attn_learning_rate(ctx, NULL, 0, &rate), ATTN_ERROR_INVALID_ARGUMENT, "step");
    FAILS(ctx, attn_learning_rate(ctx, NULL, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out");
    assert_true(rate == 7);
}

static int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_monograph), cmocka_unit_test(test_all_are_sane),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

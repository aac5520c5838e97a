#include "schedule.h"
#include <math.h>
#include "../core/options.h"

static const attn_schedule_options defaults = {.struct_size = sizeof(attn_schedule_options),
                                               .schedule = ATTN_SCHEDULE_CONSTANT,
                                               .warmup = 0,
                                               .total = 0,
                                               .width = 512,
                                               .rate = 1e-3,
                                               .final_rate = 0,
                                               .factor = 1};

attn_status attn_schedule_options_init(attn_schedule_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

static const attn__field fields[] = {ATTN__INT32(attn_schedule_options, schedule, ATTN_SCHEDULE_CONSTANT, ATTN_SCHEDULE_INVERSE_SQRT),
                                     ATTN__INT32(attn_schedule_options, reserved, 0, 0),
                                     ATTN__INT64(attn_schedule_options, warmup, 0, 0, HUGE_VAL),
                                     ATTN__REAL(attn_schedule_options, rate, 0, 0, HUGE_VAL),
                                     ATTN__REAL(attn_schedule_options, final_rate, 0, 0, HUGE_VAL),
                                     ATTN__REAL(attn_schedule_options, factor, 0, 0, HUGE_VAL)};

attn_status attn__schedule_read(attn_context *ctx, const attn_schedule_options *options, attn_schedule_options *out)
{
    attn_status status = attn__options_read(ctx, "schedule", options, &defaults, sizeof *out, sizeof *out, out);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "schedule", out, fields);
    if (status != ATTN_OK) return status;
    int falls = out->schedule == ATTN_SCHEDULE_LINEAR || out->schedule == ATTN_SCHEDULE_COSINE;
    if (falls && out->total < out->warmup)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "schedule.total: got %lld, expected at least the warm-up of %lld steps",
                          (long long)out->total, (long long)out->warmup);
    if (out->schedule == ATTN_SCHEDULE_MONOGRAPH && out->width < 1)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "schedule.width: got %lld, expected the model's width", (long long)out->width);
    /* no rate that is calculated from these overflows; the warm-up multiplies before it divides */
    double larger = out->rate > out->final_rate ? out->rate : out->final_rate;
    if (!isfinite(2 * out->factor * larger * (out->warmup > 1 ? (double)out->warmup : 1)))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "schedule.factor: got %g for a rate of %g, expected a product that is finite",
                          out->factor, larger);
    return ATTN_OK;
}

double attn__schedule_rate(const attn_schedule_options *o, int64_t step)
{
    double t = (double)step, w = (double)o->warmup;
    if (o->schedule == ATTN_SCHEDULE_MONOGRAPH) { /* (6.6) */
        double fall = 1 / sqrt(t), rise = o->warmup > 0 ? t / (w * sqrt(w)) : fall;
        return o->factor * (fall < rise ? fall : rise) / sqrt((double)o->width);
    }
    if (step < o->warmup) return o->factor * o->rate * t / w;
    if (o->schedule == ATTN_SCHEDULE_INVERSE_SQRT) return o->factor * o->rate * sqrt((w > 1 ? w : 1) / t);
    if (o->schedule == ATTN_SCHEDULE_CONSTANT) return o->factor * o->rate;
    double done = o->total > o->warmup ? (t - w) / (double)(o->total - o->warmup) : 1;
    if (done > 1) done = 1;
    double left = o->schedule == ATTN_SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(3.14159265358979323846 * done));
    return o->factor * (o->final_rate + left * (o->rate - o->final_rate));
}

attn_status attn_learning_rate(attn_context *ctx, const attn_schedule_options *schedule, int64_t step, double *out)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_schedule_options o;
    if (out == NULL) status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the rate");
    if (status == ATTN_OK && step < 1)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "step: got %lld, expected at least 1 (steps count from 1)", (long long)step);
    if (status == ATTN_OK) status = attn__schedule_read(ctx, schedule, &o);
    if (status == ATTN_OK) *out = attn__schedule_rate(&o, step);
    return attn__leave(ctx, status);
}

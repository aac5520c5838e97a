/* Adam, AdamW, clipping and the schedule, section 6.2 to 6.4: what follows from the formulas for any numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/property.h"

/* a layer whose parameters are the numbers to be optimised */
typedef struct subject {
    attn_attention *layer;
    attn_parameters *set;
    attn_gradients *gradients;
    attn_optimizer *optimizer;
    attn_optimizer_report report;
} subject;

static attn_optimizer_options adam(void)
{
    attn_optimizer_options o;
    assert_int_equal(attn_optimizer_options_init(&o, sizeof o), ATTN_OK);
    o.rate = 0x1p-7;
    return o;
}

static subject open(property *p, const attn_optimizer_options *options)
{
    attn_attention_options o;
    subject s = {.report = {.struct_size = sizeof s.report}};
    OK(p->ctx, attn_attention_options_init(&o, sizeof o));
    o.dtype = p->dtype;
    o.query_width = 6;
    OK(p->ctx, attn_attention_create(p->ctx, &o, &s.layer));
    s.set = attn_attention_parameters(s.layer);
    model_scramble(s.set, p->seed);
    OK(p->ctx, attn_gradients_create(p->ctx, s.set, &s.gradients));
    OK(p->ctx, attn_optimizer_create(p->ctx, s.set, options, &s.optimizer));
    return s;
}

static void close(subject *s)
{
    attn_optimizer_free(s->optimizer);
    attn_gradients_free(s->gradients);
    attn_attention_free(s->layer);
}

/* the gradient of every number: random, of both signs and no smaller than 0.1, times factor; the same for the same seed */
static void fill(subject *s, uint64_t seed, double factor)
{
    random_state random = {seed};
    for (int64_t i = 0; i < attn_parameters_count(s->set); i++) {
        attn_tensor *g = attn_gradients_tensor(s->gradients, i);
        for (int64_t e = 0; e < model_elements(g); e++) {
            double x = random_number(&random, -1, 1);
            model_set(g, e, (x < 0 ? x - 0.125 : x + 0.125) * factor);
        }
    }
}

static void step(property *p, subject *s, double divisor)
{
    OK(p->ctx, attn_optimizer_step(p->ctx, s->optimizer, s->gradients, divisor, &s->report));
}

/* parameter e of tensor i, one number after another */
#define EACH(s, i, e) \
    for (int64_t i = 0; i < attn_parameters_count((s)->set); i++) \
        for (int64_t e = 0; e < model_elements(attn_parameters_tensor((s)->set, i)); e++)

static double at(const subject *s, int64_t i, int64_t e)
{
    return model_get(attn_parameters_tensor(s->set, i), e);
}

/* Section 6.2.1: beta 0.9 and 0.999, epsilon 1e-8, and nothing else switched on. */
static void test_defaults(void **state)
{
    (void)state;
    attn_optimizer_options o;
    assert_int_equal(attn_optimizer_options_init(&o, sizeof o), ATTN_OK);
    assert_true(o.optimizer == ATTN_OPTIMIZER_ADAM && o.beta1 == 0.9 && o.beta2 == 0.999 && o.epsilon == 1e-8);
    assert_true(o.weight_decay == 0 && o.l2 == 0 && o.clip == 0);
}

/* Bias correction: the first step is the rate times the sign of the gradient whatever the betas; under a constant gradient every step is. */
static void bias_correction(property *p)
{
    const double betas[][2] = {{0.9, 0.999}, {0, 0}, {0.5, 0.99}, {0.99, 0.5}};
    for (int b = 0; b < 4; b++) {
        attn_optimizer_options o = adam();
        o.beta1 = betas[b][0];
        o.beta2 = betas[b][1];
        subject s = open(p, &o), start = open(p, &o);
        for (int n = 1; n <= 5; n++) {
            fill(&s, p->seed, 1);
            fill(&start, p->seed, 1);
            step(p, &s, 1);
            EACH(&s, i, e)
            {
                double sign = model_get(attn_gradients_tensor(start.gradients, i), e) > 0 ? 1 : -1;
                NEAR(at(&s, i, e), at(&start, i, e) - n * o.rate * sign, 64 * p->unit + 1e-8 * o.rate * 80);
            }
        }
        close(&s);
        close(&start);
    }
}

static void test_bias_correction(void **state)
{
    (void)state, property_run(bias_correction, 2);
}

/* Each parameter has its own step size: gradients 1000 times as large give the same steps. A loss times a constant of the form 2^k, divided
   by it before the update (6.20), (6.21), gives the same bits. */
static void scales(property *p)
{
    attn_optimizer_options o = adam();
    subject plain = open(p, &o), large = open(p, &o), scaled = open(p, &o);
    for (uint64_t n = 1; n <= 6; n++) {
        fill(&plain, n, 1), fill(&large, n, 1000), fill(&scaled, n, 1024);
        step(p, &plain, 1), step(p, &large, 1), step(p, &scaled, 1024);
        NEAR(scaled.report.gradient_norm, plain.report.gradient_norm, 0);
    }
    EACH(&plain, i, e) NEAR(at(&large, i, e), at(&plain, i, e), 64 * p->unit + 1e-7 * o.rate * 20);
    HOLDS(p, model_same_bits(scaled.set, plain.set));
    close(&plain);
    close(&large);
    close(&scaled);
}

static void test_scales(void **state)
{
    (void)state, property_run(scales, 3);
}

/* (6.12) and (6.11): with zero gradients AdamW shrinks every number by exactly 1 - rate lambda, while the penalty under Adam takes the full
   rate towards zero whatever lambda and the number are; with lambda 0 all are Adam, bit for bit. */
static void decay(property *p)
{
    attn_optimizer_options o = adam(), w = adam(), l = adam();
    w.optimizer = ATTN_OPTIMIZER_ADAMW;
    w.weight_decay = 0.25;
    l.l2 = 0.25;
    subject start = open(p, &o), decoupled = open(p, &w), penalty = open(p, &l);
    EACH(&start, i, e)
    for (int k = 0; k < 3; k++) /* zero numbers have no direction */
        if (fabs(at(&start, i, e)) < 1e-3)
            model_set(attn_parameters_tensor((k == 0 ? start : k == 1 ? decoupled : penalty).set, i), e, 0.5);
    step(p, &decoupled, 1);
    step(p, &penalty, 1);
    double squares = 0, most = 0;
    EACH(&start, i, e)
    {
        double x = at(&start, i, e);
        NEAR(at(&decoupled, i, e), x * (1 - o.rate * 0.25), 2 * p->unit * fabs(x));
        NEAR(at(&penalty, i, e), x - o.rate * (x > 0 ? 1 : -1), 16 * p->unit + o.rate * 1e-8 / (0.25 * fabs(x)) * 2);
        most = fmax(most, fabs(at(&penalty, i, e) - at(&decoupled, i, e)));
        squares += x * x;
    }
    HOLDS(p, most > 0.5 * o.rate);
    NEAR(penalty.report.penalty, 0.125 * squares, 200 * p->unit * squares);
    HOLDS(p, decoupled.report.penalty == 0);
    w.weight_decay = l.l2 = 0;
    subject a = open(p, &o), b = open(p, &w), c = open(p, &l);
    for (uint64_t n = 1; n <= 3; n++) {
        fill(&a, n, 1), fill(&b, n, 1), fill(&c, n, 1);
        step(p, &a, 1), step(p, &b, 1), step(p, &c, 1);
    }
    HOLDS(p, model_same_bits(a.set, b.set) && model_same_bits(a.set, c.set));
    subject *all[] = {&start, &decoupled, &penalty, &a, &b, &c};
    for (int k = 0; k < 6; k++) close(all[k]);
}

static void test_decay(void **state)
{
    (void)state, property_run(decay, 3);
}

/* (6.11): the penalty's gradient is lambda theta: a step with it is the step with that gradient added by hand. */
static void penalty_gradient(property *p)
{
    attn_optimizer_options o = adam(), l = adam();
    l.l2 = 0.5;
    subject by_hand = open(p, &o), option = open(p, &l);
    fill(&by_hand, 5, 1);
    fill(&option, 5, 1);
    EACH(&by_hand, i, e)
    {
        attn_tensor *g = attn_gradients_tensor(by_hand.gradients, i);
        model_set(g, e, model_get(g, e) + 0.5 * at(&by_hand, i, e));
    }
    step(p, &by_hand, 1);
    step(p, &option, 1);
    NEAR(option.report.gradient_norm / by_hand.report.gradient_norm, 1, 16 * p->unit);
    EACH(&by_hand, i, e) NEAR(at(&option, i, e), at(&by_hand, i, e), o.rate * 1e-3);
    close(&by_hand);
    close(&option);
}

static void test_penalty_gradient(void **state)
{
    (void)state, property_run(penalty_gradient, 3);
}

/* (6.19): above the bound the gradient becomes that of norm exactly the bound, in the same direction; below it no bit changes. */
static void clipping(property *p)
{
    const double bounds[] = {0.5, 1, 1e9};
    for (int b = 0; b < 3; b++) {
        attn_optimizer_options o = adam(), clipped = adam();
        o.epsilon = clipped.epsilon = 1; /* so that the size of a gradient is seen in the step */
        clipped.clip = bounds[b];
        subject free = open(p, &o), bound = open(p, &clipped);
        for (uint64_t n = 1; n <= 3; n++) {
            double norm;
            fill(&bound, n, 3);
            OK(p->ctx, attn_gradients_norm(p->ctx, bound.gradients, &norm));
            fill(&free, n, norm > bounds[b] ? 3 * bounds[b] / norm : 3);
            step(p, &free, 1);
            step(p, &bound, 1);
            NEAR(bound.report.gradient_norm / norm, 1, 8 * p->unit);
            NEAR(free.report.gradient_norm, fmin(norm, bounds[b]), 16 * norm * p->unit);
        }
        EACH(&free, i, e) NEAR(at(&bound, i, e), at(&free, i, e), 8 * p->unit);
        if (bounds[b] > 1e8) HOLDS(p, model_same_bits(free.set, bound.set));
        close(&free);
        close(&bound);
    }
}

static void test_clipping(void **state)
{
    (void)state, property_run(clipping, 3);
}

static double rate_of(property *p, int64_t width, int64_t warmup, int64_t t)
{
    attn_schedule_options o;
    double rate = NAN;
    OK(p->ctx, attn_schedule_options_init(&o, sizeof o));
    o.schedule = ATTN_SCHEDULE_MONOGRAPH;
    o.width = width;
    o.warmup = warmup;
    OK(p->ctx, attn_learning_rate(p->ctx, &o, t, &rate));
    return rate;
}

/* (6.6) to (6.8): both branches meet at the warm-up step, the peak, (d w)^-0.5; it rises by equal steps before and falls as t^-0.5 after;
   a model four times as wide has half the rate. */
static void schedule(property *p)
{
    const int64_t warmups[] = {1, 2, 100, 4000, 8000}, widths[] = {1, 64, 512};
    for (int w = 0; w < 5; w++)
        for (int d = 0; d < 3; d++) {
            const double peak = 1 / sqrt((double)(widths[d] * warmups[w]));
            NEAR(rate_of(p, widths[d], warmups[w], warmups[w]) / peak, 1, 1e-14);
            for (int64_t t = 1; t <= 10 * warmups[w]; t += 1 + warmups[w] / 50) {
                const double now = rate_of(p, widths[d], warmups[w], t), next = rate_of(p, widths[d], warmups[w], t + 1);
                const double linear = peak * (double)t / (double)warmups[w], root = 1 / sqrt((double)(widths[d] * t));
                NEAR(now / (t < warmups[w] ? linear : root), 1, 1e-14);
                NEAR(now / fmin(linear, root), 1, 1e-14);
                HOLDS(p, (next > now) == (t < warmups[w]));
                NEAR(rate_of(p, 4 * widths[d], warmups[w], t) / now, 0.5, 1e-14);
            }
        }
}

static void test_schedule(void **state)
{
    (void)state, property_run(schedule, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_bias_correction),  cmocka_unit_test(test_scales),
        cmocka_unit_test(test_decay),    cmocka_unit_test(test_penalty_gradient), cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

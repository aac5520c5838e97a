/* Cross-entropy and label smoothing, section 6.1: where the loss is least, and that nothing drives logits past it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/property.h"

typedef struct smoothed {
    attn_cross_entropy_options options;
    attn_loss_report report;
    attn_tensor *loss, *labels;
} smoothed;

static smoothed open(property *p, int64_t rows, int64_t classes, double smoothing, int32_t form)
{
    smoothed s = {.report = {.struct_size = sizeof s.report}};
    OK(p->ctx, attn_cross_entropy_options_init(&s.options, sizeof s.options));
    s.options.label_smoothing = smoothing;
    s.options.smoothing_form = form;
    s.loss = property_rows(p, 1, 1);
    s.labels = model_tensor(p->ctx, ATTN_INT32, rows, 0);
    p->made[p->count++] = s.labels;
    for (int64_t r = 0; r < rows; r++) model_set(s.labels, r, (double)random_integer(&p->random, 0, classes));
    return s;
}

/* the sum over rows, and its gradient by the logits */
static double loss_of(property *p, smoothed *s, const attn_tensor *logits, attn_tensor **gradient)
{
    property_begin(p);
    *gradient = property_watch(p, logits);
    OK(p->ctx, attn_cross_entropy(p->ctx, p->tape, logits, s->labels, &s->options, s->loss, &s->report));
    property_backward(p, s->loss, NULL, NULL);
    return s->report.sum;
}

static void set_gap(attn_tensor *logits, const attn_tensor *labels, double gap)
{
    for (int64_t r = 0; r < attn_tensor_extent(logits, 0); r++)
        for (int64_t c = 0; c < property_width(logits); c++)
            property_set(logits, r, c, (int64_t)model_get(labels, r) == c ? gap + (double)r : (double)r);
}

static double largest(const attn_tensor *x)
{
    double most = 0;
    for (int64_t e = 0; e < model_elements(x); e++) most = fmax(most, fabs(model_get(x, e)));
    return most;
}

/* entropy of the smoothed target */
static double target_entropy(int64_t classes, double on, double off)
{
    return -(on > 0 ? on * log(on) : 0) - (off > 0 ? (double)(classes - 1) * off * log(off) : 0);
}

/* Smoothed by e over V classes, the loss is least at the gap log(1 + V (1 - e) / e) between the label's logit and the others: the gradient
   is zero there, the value is the entropy of the target, and everywhere else it is more. Form 1: log((V - 1)(1 - e) / e). */
static void minimum(property *p)
{
    const int64_t sizes[] = {2, 3, 11, 1000};
    const double smoothings[] = {0.01, 0.1, 0.5, 0.9};
    for (int s = 0; s < 4; s++)
        for (int e = 0; e < 4; e++)
            for (int32_t form = 0; form < 2; form++) {
                const int64_t n = sizes[s], rows = 3;
                const double classes = (double)n, part = smoothings[e];
                const double gap = form ? log((classes - 1) * (1 - part) / part) : log(1 + classes * (1 - part) / part);
                const double off = form ? part / (classes - 1) : part / classes, on = form ? 1 - part : 1 - part + part / classes;
                attn_tensor *logits = property_rows(p, rows, n), *gradient;
                smoothed made = open(p, rows, n, part, form);
                set_gap(logits, made.labels, gap);
                const double least = loss_of(p, &made, logits, &gradient), within = (400 + 4 * classes) * p->unit;
                NEAR(largest(gradient), 0, (64 + classes) * p->unit);
                NEAR(least / (double)rows, target_entropy(n, on, off), within);
                for (int i = 0; i < 12; i++) {
                    attn_tensor *other = property_copy(p, logits);
                    if (i < 6)
                        set_gap(other, made.labels, gap + (i - 2.5) * 1.5);
                    else
                        for (int64_t x = 0; x < rows * n; x++) model_set(other, x, model_get(logits, x) + property_gaussian(p));
                    double sum = loss_of(p, &made, other, &gradient);
                    HOLDS(p, sum > least);
                    if (i < 6) /* the gradient by the label's logit has the sign of the distance */
                        HOLDS(p, (property_get(gradient, 0, (int64_t)model_get(made.labels, 0)) > 0) == (i > 2));
                }
                property_sweep(p, 0);
            }
}

static void test_minimum(void **state)
{
    (void)state, property_run(minimum, 2);
}

/* Descent on the logits themselves: smoothed, the gap ends where it is least; not smoothed, it grows with every step. */
static void descent(property *p)
{
    const int64_t rows = 4, n = 7;
    for (int smoothing = 0; smoothing < 2; smoothing++) {
        attn_tensor *logits = property_random(p, rows, n, -0.5, 0.5), *gradient;
        smoothed made = open(p, rows, n, smoothing ? 0.1 : 0, 0);
        double before = -INFINITY, gap = 0;
        for (int step = 0; step < 400; step++) {
            const int mark = p->count;
            loss_of(p, &made, logits, &gradient);
            for (int64_t e = 0; e < rows * n; e++) model_set(logits, e, model_get(logits, e) - 4 * model_get(gradient, e));
            property_sweep(p, mark);
            if (step % 100 != 99) continue;
            gap = INFINITY;
            for (int64_t r = 0; r < rows; r++) {
                int64_t label = (int64_t)model_get(made.labels, r);
                for (int64_t c = 0; c < n; c++)
                    if (c != label) gap = fmin(gap, property_get(logits, r, label) - property_get(logits, r, c));
            }
            HOLDS(p, smoothing || gap > before + 0.2);
            before = gap;
        }
        if (smoothing)
            NEAR(gap, log(1 + (double)n * 0.9 / 0.1), 1e-4);
        else
            HOLDS(p, gap > 7);
        property_sweep(p, 0);
    }
}

static void test_descent(void **state)
{
    (void)state, property_run(descent, 2);
}

/* (6.3), (6.5): the gradient is softmax minus target, rows of it sum to 0; a number added to a row of logits changes nothing; equal logits
   cost log V whatever the label; the sum is the mean times the count; the smoothed loss is a mixture of the plain one and of all labels'. */
static void identities(property *p)
{
    const int64_t sizes[][2] = {{1, 2}, {5, 7}, {33, 129}};
    const double smoothings[] = {0, 0.1, 1};
    for (int s = 0; s < 3; s++)
        for (int e = 0; e < 3; e++) {
            const int64_t rows = sizes[s][0], n = sizes[s][1];
            const double within = 64 * p->unit * (double)rows, part = smoothings[e];
            attn_tensor *logits = property_random(p, rows, n, -4, 4), *weights = property_rows(p, rows, n), *gradient;
            smoothed made = open(p, rows, n, part, 0);
            const double sum = loss_of(p, &made, logits, &gradient), plain = made.report.unsmoothed_sum;
            attn_tensor *logs = property_rows(p, rows, n), *moved = property_copy(p, logits), *ignored;
            OK(p->ctx, attn_softmax(p->ctx, NULL, logits, weights));
            OK(p->ctx, attn_log_softmax(p->ctx, NULL, logits, logs));
            double want = 0, all = 0;
            for (int64_t r = 0; r < rows; r++) {
                int64_t label = (int64_t)model_get(made.labels, r);
                double total = 0;
                for (int64_t c = 0; c < n; c++) {
                    double target = part / (double)n + (c == label ? 1 - part : 0);
                    NEAR(property_get(gradient, r, c), property_get(weights, r, c) - target, 16 * p->unit);
                    total += property_get(gradient, r, c);
                    all -= property_get(logs, r, c) / (double)n;
                    property_set(moved, r, c, property_get(logits, r, c) + (double)(8 * r - 16));
                }
                want -= property_get(logs, r, label);
                NEAR(total, 0, 64 * p->unit);
            }
            NEAR(plain, want, 8 * within);
            NEAR(sum, (1 - part) * want + part * all, 8 * within);
            NEAR(loss_of(p, &made, moved, &ignored), sum, 400 * within);
            made.options.mean = 1;
            loss_of(p, &made, logits, &ignored);
            assert_int_equal(made.report.count, rows);
            NEAR(model_get(made.loss, 0) * (double)rows, sum, 8 * within);
            attn_tensor *flat = property_rows(p, rows, n);
            NEAR(loss_of(p, &made, flat, &ignored), (double)rows * log((double)n), 8 * within);
            property_sweep(p, 0);
        }
}

static void test_identities(void **state)
{
    (void)state, property_run(identities, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minimum),
        cmocka_unit_test(test_descent),
        cmocka_unit_test(test_identities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

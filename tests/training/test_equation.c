#include <math.h>
#include <stdlib.h>
#include "fixture.h"
#include "kernels/kernels.h"

/* The optimizer and the trainer against their equations, written out: (6.11) penalty, (6.19) clipping, decay, moments; and a step of the
   trainer as the public calls it stands for. */
enum { STEPS = 3 };

typedef struct by_hand {
    double *p, *m, *v, *g; /* [elements] of every parameter, one after another */
    int64_t elements;
} by_hand;

static int spared(const attn_parameters *set, int64_t i, int32_t flags)
{
    int32_t kind = set->at[i].kind;
    return ((flags & ATTN_NO_DECAY_BIAS) && (kind == ATTN__KIND_BIAS || kind == ATTN__KIND_SCALAR)) ||
           ((flags & ATTN_NO_DECAY_NORM) && kind == ATTN__KIND_NORM) || ((flags & ATTN_NO_DECAY_EMBEDDING) && kind == ATTN__KIND_EMBEDDING);
}

/* one update; returns the norm before clipping */
static double update(by_hand *h, const attn_parameters *set, const attn_optimizer_options *o, double divisor, int step)
{
    double square = 0;
    for (int64_t e = 0; e < h->elements; e++) {
        h->g[e] = h->g[e] / divisor + o->l2 * h->p[e];
        square += h->g[e] * h->g[e];
    }
    double norm = sqrt(square), shrink = o->clip > 0 && norm > o->clip ? o->clip / norm : 1;
    int64_t e = 0;
    for (int64_t i = 0; i < attn_parameters_count(set); i++) {
        double decay = spared(set, i, o->no_decay) ? 0 : o->weight_decay;
        for (int64_t k = 0; k < set->at[i].elements; k++, e++) {
            double g = shrink * h->g[e];
            h->m[e] = o->beta1 * h->m[e] + (1 - o->beta1) * g;
            h->v[e] = o->beta2 * h->v[e] + (1 - o->beta2) * g * g;
            double mean = h->m[e] / (1 - pow(o->beta1, step)), root = sqrt(h->v[e] / (1 - pow(o->beta2, step)));
            h->p[e] -= o->rate * decay * h->p[e] + o->rate * mean / (root + o->epsilon);
        }
    }
    return norm;
}

static void read_all(attn_parameters *set, double *to)
{
    for (int64_t i = 0, e = 0; i < attn_parameters_count(set); i++) {
        attn_tensor *t = attn_parameters_tensor(set, i);
        for (int64_t k = 0; k < model_elements(t); k++) to[e++] = model_get(t, k);
    }
}

static void expect_update(const attn_optimizer_options *o, double divisor)
{
    attn_transformer_options options = model_options(1, 0);
    attn_encoder *encoder = NULL;
    attn_gradients *gradients = NULL;
    attn_optimizer *optimizer = NULL;
    attn_optimizer_report report = {.struct_size = sizeof report};
    random_state random = {17};
    options.dtype = ATTN_FLOAT64;
    options.activation = ATTN_ACTIVATION_SWISH;
    options.learned_beta = 1;
    attn_context *ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    OK(ctx, attn_encoder_create(ctx, &options, &encoder));
    attn_parameters *set = attn_encoder_parameters(encoder);
    model_scramble(set, 6);
    OK(ctx, attn_gradients_create(ctx, set, &gradients));
    OK(ctx, attn_optimizer_create(ctx, set, o, &optimizer));
    int64_t n = attn_parameters_elements(set);
    double *numbers = calloc((size_t)(5 * n), sizeof *numbers), *got = numbers + 4 * n;
    assert_non_null(numbers);
    by_hand h = {numbers, numbers + n, numbers + 2 * n, numbers + 3 * n, n};
    read_all(set, h.p);
    for (int step = 1; step <= STEPS; step++) {
        double penalty = 0;
        for (int64_t e = 0; e < n; e++) penalty += 0.5 * o->l2 * h.p[e] * h.p[e];
        for (int64_t i = 0, e = 0; i < attn_parameters_count(set); i++) {
            attn_tensor *t = attn_gradients_tensor(gradients, i);
            for (int64_t k = 0; k < model_elements(t); k++) model_set(t, k, h.g[e++] = random_number(&random, -1, 1));
        }
        double norm = update(&h, set, o, divisor, step);
        OK(ctx, attn_optimizer_step(ctx, optimizer, gradients, divisor, &report));
        assert_true(fabs(report.gradient_norm / norm - 1) < 1e-12 && fabs(report.penalty - penalty) <= 1e-12 * fabs(penalty));
        assert_true(report.step == step && report.skipped == 0);
        read_all(set, got);
        for (int64_t e = 0; e < n; e++)
            if (!(fabs(got[e] - h.p[e]) <= 1e-11))
                fail_msg("step %d, element %lld: got %.15g, expected %.15g", step, (long long)e, got[e], h.p[e]);
    }
    free(numbers);
    attn_optimizer_free(optimizer);
    attn_gradients_free(gradients);
    attn_encoder_free(encoder);
    attn_context_free(ctx);
}

static void test_optimizer(void **state)
{
    static const struct {
        int32_t optimizer, no_decay;
        double l2, clip, decay, divisor;
    } cases[] = {
        {ATTN_OPTIMIZER_ADAM, 0, 0, 0, 0, 1},      {ATTN_OPTIMIZER_ADAM, 0, 0.3, 0, 0, 7},      {ATTN_OPTIMIZER_ADAM, 0, 0.3, 0.5, 0, 7},
        {ATTN_OPTIMIZER_ADAMW, 0, 0, 1e6, 0.1, 3}, {ATTN_OPTIMIZER_ADAMW, 0, 0.2, 2, 0.1, 0.5}, {ATTN_OPTIMIZER_ADAMW, 1, 0, 1, 0.2, 1},
        {ATTN_OPTIMIZER_ADAMW, 2, 0, 1, 0.2, 1},   {ATTN_OPTIMIZER_ADAMW, 7, 0, 1, 0.2, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attn_optimizer_options o;
        assert_int_equal(attn_optimizer_options_init(&o, sizeof o), ATTN_OK);
        o.optimizer = cases[i].optimizer;
        o.no_decay = cases[i].no_decay;
        o.l2 = cases[i].l2;
        o.clip = cases[i].clip;
        o.weight_decay = cases[i].decay;
        o.rate = 0.05;
        o.beta1 = 0.8;
        o.beta2 = 0.95;
        expect_update(&o, cases[i].divisor);
    }
}

/* The same step by the public calls: for each batch the loss on a tape that has the trainer's seed and the number of the step, gradients
   added up, one update divided by all counted tokens. */
static void test_trainer(void **state)
{
    (void)state;
    for (int64_t accumulate = 1; accumulate <= 3; accumulate += 2) {
        training_options o = training_defaults();
        training t, hand;
        attn_gradients *gradients = NULL;
        attn_optimizer *optimizer = NULL;
        attn_tape *tape = NULL;
        o.trainer.label_smoothing = 0.1;
        o.trainer.seed = 9;
        o.trainer.accumulate = accumulate;
        training_open(&t, &o);
        training_open(&hand, &o); /* its model and data set are used, not its trainer */
        attn_context *ctx = hand.ctx;
        double first;
        OK(ctx, attn_learning_rate(ctx, &o.schedule, 1, &first));
        assert_true(attn_optimizer_rate(attn_trainer_optimizer(t.trainer)) == first);
        attn_tensor *loss = model_tensor(ctx, ATTN_FLOAT32, 1, 0);
        OK(ctx, attn_gradients_create(ctx, hand.parameters, &gradients));
        OK(ctx, attn_optimizer_create(ctx, hand.parameters, &o.optimizer, &optimizer));
        OK(ctx, attn_tape_create(ctx, &tape));
        for (int step = 1; step <= STEPS; step++) {
            attn_loss_report sum = {.struct_size = sizeof sum}, one = sum;
            attn_optimizer_report report = {.struct_size = sizeof report};
            for (int64_t i = 0; i < accumulate; i++) {
                attn_batch batch;
                attn_tape_options tape_options;
                attn_cross_entropy_options loss_options;
                OK(ctx, attn_batch_init(&batch, sizeof batch));
                OK(ctx, attn_dataset_next(ctx, hand.dataset, &batch));
                OK(ctx, attn_tape_options_init(&tape_options, sizeof tape_options));
                OK(ctx, attn_cross_entropy_options_init(&loss_options, sizeof loss_options));
                tape_options.training = 1;
                tape_options.seed = 9;
                tape_options.step = step;
                loss_options.label_smoothing = 0.1;
                OK(ctx, attn_tape_begin(ctx, tape, &tape_options));
                OK(ctx, attn_transformer_loss(ctx, hand.model, tape, &batch, &loss_options, loss, &one));
                OK(ctx, attn_tape_backward(ctx, tape, 1, (const attn_tensor *const *)&loss, NULL, 1, &gradients));
                sum.sum += one.sum;
                sum.unsmoothed_sum += one.unsmoothed_sum;
                sum.count += one.count;
            }
            double rate;
            OK(ctx, attn_learning_rate(ctx, &o.schedule, step, &rate));
            OK(ctx, attn_optimizer_set_rate(ctx, optimizer, rate));
            OK(ctx, attn_optimizer_step(ctx, optimizer, gradients, (double)sum.count, &report));
            training_steps(&t, 1);
            assert_true(model_same_bits(t.parameters, hand.parameters));
            assert_true(t.report.step == step && t.report.tokens == sum.count && t.report.rate == rate);
            assert_true(t.report.gradient_norm == report.gradient_norm);
            assert_true(fabs(t.report.loss - sum.sum / (double)sum.count) < 1e-12);
            assert_true(fabs(t.report.unsmoothed_loss - sum.unsmoothed_sum / (double)sum.count) < 1e-12);
            assert_true(t.report.loss > t.report.unsmoothed_loss * 1.0001 || t.report.loss < t.report.unsmoothed_loss * 0.9999);
        }
        attn_tape_free(tape);
        attn_optimizer_free(optimizer);
        attn_gradients_free(gradients);
        attn_tensor_free(loss);
        training_close(&hand);
        training_close(&t);
    }
}

/* the norm that is clipped cannot be had: the update has not happened, and neither has the step of the schedule */
static attn_status no_squares(attn_context *ctx, const void *flat, int64_t n, double *out)
{
    (void)flat, (void)n, (void)out;
    return attn__fail(ctx, ATTN_ERROR_OUT_OF_MEMORY, "sums: played");
}

static void test_failing_update(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t, whole;
    training_open(&t, &o);
    training_open(&whole, &o);
    training_steps(&t, 1);
    training_steps(&whole, 1);
    const attn__kernels *usual = t.ctx->kernels[0];
    attn__kernels failing = *usual;
    failing.sum_squares = no_squares;
    t.ctx->kernels[0] = &failing;
    FAILS(t.ctx, attn_trainer_step(t.ctx, t.trainer, NULL, &t.report), ATTN_ERROR_OUT_OF_MEMORY, "played");
    t.ctx->kernels[0] = usual;
    assert_true(training_same(&t, &whole));
    training_steps(&t, 1);
    training_steps(&whole, 1);
    assert_true(training_same(&t, &whole));
    training_close(&whole);
    training_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_trainer),
        cmocka_unit_test(test_failing_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

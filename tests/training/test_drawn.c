/* Trainings of drawn options: one that is saved, and restored elsewhere at drawn steps, is to the bit the one that is not; pieces of a batch are
   the batch within rounding. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>
#include "fixture.h"
#include "support/drawn.h"

enum { DRAWS = 60, STEPS = 7 };

static double real(random_state *random, int count, const double *of)
{
    return of[random_integer(random, 0, count)];
}
#define REAL(random, ...) real(random, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (const double[]){__VA_ARGS__})

static training_options draw(random_state *random)
{
    training_options o = training_defaults();
    attn_optimizer_options *a = &o.optimizer;
    attn_schedule_options *s = &o.schedule;
    o.backend = drawn_once_in(random, 2) ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS;
    o.dtype = o.backend == ATTN_BACKEND_REFERENCE && drawn_once_in(random, 2) ? ATTN_FLOAT64 : ATTN_FLOAT32;
    o.order = drawn_once_in(random, 3) ? ATTN_ORDER_SEQUENTIAL : ATTN_ORDER_RANDOM_WINDOWS;
    o.batch = o.order == ATTN_ORDER_SEQUENTIAL ? AMONG(random, 1, 2, 4) : AMONG(random, 1, 2, 4, 5); /* the data last */
    o.model.tie = drawn_once_in(random, 2) ? ATTN_TIE_NONE : ATTN_TIE_OUTPUT;
    if (drawn_once_in(random, 3)) o.model.recurrence = ATTN_RECURRENCE_LSTM;
    a->optimizer = drawn_once_in(random, 2) ? ATTN_OPTIMIZER_ADAM : ATTN_OPTIMIZER_ADAMW;
    a->weight_decay = a->optimizer == ATTN_OPTIMIZER_ADAMW ? REAL(random, 0, 0.1, 0.5) : 0;
    a->no_decay = (int32_t)random_integer(random, 0, 8);
    a->beta1 = REAL(random, 0, 0.5, 0.9), a->beta2 = REAL(random, 0, 0.9, 0.999);
    a->epsilon = REAL(random, 1e-8, 1e-4);
    a->l2 = REAL(random, 0, 0, 0.01);
    a->clip = REAL(random, 0, 0.1, 1);
    s->schedule = (int32_t)random_integer(random, 0, 5);
    s->warmup = AMONG(random, 0, 1, 3, 9);
    s->total = s->warmup + AMONG(random, 0, 1, 4, 20);
    s->final_rate = REAL(random, 0, 1e-3);
    s->factor = REAL(random, 1, 0.3);
    s->width = 8;
    o.trainer.seed = (uint64_t)random_integer(random, 0, 100);
    o.trainer.label_smoothing = REAL(random, 0, 0.1);
    o.trainer.micro_rows = AMONG(random, -1, -1, 1, 6, 13);
    o.trainer.accumulate = AMONG(random, 1, 1, 2, 3);
    printf(
        "backend %d, dtype %d, order %d, batch %d, recurrence %d, optimizer %d, no_decay %d, schedule %d (%d to %d), pieces %d, batches %d\n",
        o.backend, o.dtype, o.order, (int)o.batch, o.model.recurrence, a->optimizer, a->no_decay, s->schedule, (int)s->warmup,
        (int)s->total, (int)o.trainer.micro_rows, (int)o.trainer.accumulate);
    return o;
}

static void freeze(training *t, int64_t which)
{
    static const char *const patterns[] = {NULL, NULL, "*bias", "*.layers.0.*"};
    if (patterns[which] != NULL) OK(t->ctx, attn_parameters_freeze(t->ctx, t->parameters, patterns[which], 1, NULL));
}

/* the first step in pieces and in one: the loss and the norm of its gradient; an update of Adam's has the gradient's sign alone */
static void expect_one_piece(const training_options *o, int64_t frozen)
{
    const double within = o->dtype == ATTN_FLOAT64 ? 1e-10 : 1e-5;
    training_options whole = *o;
    training pieces, one;
    whole.trainer.micro_rows = -1;
    training_open(&pieces, o);
    training_open(&one, &whole);
    freeze(&pieces, frozen), freeze(&one, frozen);
    training_steps(&pieces, 1);
    training_steps(&one, 1);
    const attn_trainer_report *got = &pieces.report, *want = &one.report;
    assert_true(got->tokens == want->tokens && fabs(got->loss - want->loss) <= within * want->loss);
    assert_true(fabs(got->gradient_norm - want->gradient_norm) <= within * (1 + want->gradient_norm));
    training_close(&pieces);
    training_close(&one);
}

static void test_drawn(void **state)
{
    char path[64];
    (void)state;
    snprintf(path, sizeof path, "training-drawn-%d.safetensors", (int)getpid());
    for (int64_t i = drawn_first(); i < drawn_end(DRAWS); i++) {
        random_state random = {(uint64_t)i};
        printf("draw %d: ", (int)i);
        training_options o = draw(&random);
        const int64_t frozen = random_integer(&random, 0, 4);
        training whole, parts;
        training_open(&whole, &o);
        training_open(&parts, &o);
        freeze(&whole, frozen), freeze(&parts, frozen);
        for (int step = 0; step < STEPS; step++) {
            training_steps(&whole, 1);
            training_steps(&parts, 1);
            assert_true(training_same(&parts, &whole));
            assert_true(parts.report.loss == whole.report.loss && parts.report.rate == whole.report.rate &&
                        parts.report.tokens == whole.report.tokens && parts.report.gradient_norm == whole.report.gradient_norm);
            if (!drawn_once_in(&random, 3)) continue;
            OK(parts.ctx, attn_trainer_save(parts.ctx, parts.trainer, 0, NULL, NULL, path));
            training_close(&parts);
            o.threads = 1 + (int32_t)random_integer(&random, 0, 3);
            training_open(&parts, &o);
            freeze(&parts, frozen);
            OK(parts.ctx, attn_trainer_restore(parts.ctx, parts.trainer, path));
            assert_true(training_same(&parts, &whole));
        }
        remove(path);
        training_close(&whole);
        training_close(&parts);
        expect_one_piece(&o, frozen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

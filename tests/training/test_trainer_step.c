#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include "fixture.h"

/* A step takes all its micro-batches, or has not happened. */
/* an allocator that cancels the context, or fails, at one of its calls */
typedef struct trap {
    attn_allocator under;
    attn_context *ctx;
    long long at, calls;
    int cancel;
} trap;

static void *trap_allocate(void *user, uint64_t size, uint64_t alignment)
{
    trap *t = user;
    if (t->at > 0 && ++t->calls == t->at) {
        if (!t->cancel) return NULL;
        attn_context_cancel(t->ctx);
    }
    return t->under.allocate(t->under.user, size, alignment);
}

static void trap_release(void *user, void *pointer, uint64_t size)
{
    trap *t = user;
    t->under.release(t->under.user, pointer, size);
}

static attn_context *trap_context(trap *t, test_allocator *counted, int cancel)
{
    attn_context_options o;
    *t = (trap){.under = test_allocator_hooks(counted), .cancel = cancel};
    const attn_allocator hooks = {sizeof hooks, trap_allocate, trap_release, t};
    assert_int_equal(attn_context_options_init(&o, sizeof o), ATTN_OK);
    o.threads = 2;
    o.allocator = &hooks;
    assert_int_equal(attn_context_create(&o, &t->ctx), ATTN_OK);
    return t->ctx;
}

/* The step after `steps` good ones is disturbed at each of its allocations in turn: it has not happened, and the next has the bits of a run
   that nothing disturbed. */
static void disturbed(int cancel, int steps, int reserve)
{
    training_options o = training_defaults();
    training still, before;
    o.trainer.accumulate = 2; /* the disturbance may fall between two batches */
    training_open(&still, &o);
    training_open(&before, &o);
    training_steps(&before, steps);
    training_steps(&still, steps + 1);
    int seen = 0;
    for (long long at = 1;; at++) {
        test_allocator counted;
        trap trapped;
        training t;
        memset(&counted, 0, sizeof counted);
        memset(&t, 0, sizeof t);
        t.ctx = trap_context(&trapped, &counted, cancel);
        training_build(&t, &o);
        if (reserve) OK(t.ctx, attn_trainer_reserve(t.ctx, t.trainer, 24, 6));
        training_steps(&t, steps);
        trapped.at = at;
        attn_status status = attn_trainer_step(t.ctx, t.trainer, NULL, &t.report);
        int reached = trapped.calls >= at;
        trapped.at = 0;
        if (status != ATTN_OK) {
            assert_int_equal(status, cancel ? ATTN_ERROR_CANCELLED : ATTN_ERROR_OUT_OF_MEMORY);
            assert_true(strlen(attn_context_last_error(t.ctx)) > 0);
            assert_true(training_same(&t, &before));
            seen++;
            training_steps(&t, 1);
        }
        assert_true(training_same(&t, &still));
        training_close(&t);
        assert_int_equal(counted.live_pointers, 0);
        assert_int_equal(counted.wrong, 0);
        if (!reached) break;
    }
    if (steps == 0 && !reserve) assert_true(seen > 3);
    training_close(&still);
    training_close(&before);
}

static void test_a_step_without_memory_has_not_happened(void **state)
{
    (void)state;
    disturbed(0, 0, 0);
    disturbed(0, 1, 0);
    disturbed(0, 0, 1);
}

static void test_a_cancelled_step_has_not_happened(void **state)
{
    (void)state;
    disturbed(1, 0, 0);
    disturbed(1, 1, 0);
}

typedef struct canceller {
    attn_context *ctx;
    atomic_int stop;
} canceller;

static void *cancel_often(void *user)
{
    canceller *c = user;
    const struct timespec pause = {0, 50000};
    while (!atomic_load(&c->stop)) {
        attn_context_cancel(c->ctx);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void test_cancelled_at_any_moment(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training still, t;
    pthread_t thread;
    training_open(&still, &o);
    training_open(&t, &o);
    training_steps(&still, 150);
    training_steps(&t, 2);
    canceller c = {t.ctx, 0};
    assert_int_equal(pthread_create(&thread, NULL, cancel_often, &c), 0);
    int cancelled = 0;
    for (int tries = 0; attn_trainer_steps(t.trainer) < 150 && tries < 100000; tries++) {
        int64_t steps = attn_trainer_steps(t.trainer);
        attn_status status = attn_trainer_step(t.ctx, t.trainer, NULL, &t.report);
        if (status != ATTN_OK) {
            assert_int_equal(status, ATTN_ERROR_CANCELLED);
            assert_int_equal(attn_trainer_steps(t.trainer), steps);
            cancelled++;
        }
        if (tries == 2000) atomic_store(&c.stop, 1);
    }
    atomic_store(&c.stop, 1);
    pthread_join(thread, NULL);
    assert_true(cancelled > 0);
    assert_true(training_same(&t, &still));
    training_close(&t);
    training_close(&still);
}

/* a cancel that comes while parameters are being updated waits for the next call */
static const attn__kernels *real_kernels;

static attn_status cancelling_adam(attn_context *ctx, void *p, void *g, void *m, void *v, int64_t n, double multiplier, double l2,
                                   double rate, double beta1, double beta2, double epsilon, double decay, int64_t step)
{
    attn_context_cancel(ctx);
    return real_kernels->adam(ctx, p, g, m, v, n, multiplier, l2, rate, beta1, beta2, epsilon, decay, step);
}

static void test_an_update_runs_to_its_end(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training still, t;
    o.optimizer.no_decay = ATTN_NO_DECAY_BIAS | ATTN_NO_DECAY_NORM; /* many runs of parameters */
    training_open(&still, &o);
    training_open(&t, &o);
    training_steps(&t, 1);
    training_steps(&still, 2);
    OK(t.ctx, attn__kernels_for(t.ctx, ATTN_FLOAT32, &real_kernels));
    attn__kernels table = *real_kernels;
    table.adam = cancelling_adam;
    t.ctx->kernels[0] = &table;
    training_steps(&t, 1);
    assert_true(training_same(&t, &still));
    t.ctx->kernels[0] = real_kernels;
    FAILS(t.ctx, attn_trainer_step(t.ctx, t.trainer, NULL, &t.report), ATTN_ERROR_CANCELLED, "");
    assert_true(training_same(&t, &still));
    training_steps(&t, 1);
    training_steps(&still, 1);
    assert_true(training_same(&t, &still));
    training_close(&t);
    training_close(&still);
}

/* the rows of each piece that the loss is taken of */
static int64_t piece_rows[8], piece_count;
static attn_status counting_loss(attn_context *ctx, attn__view *logits, const attn__view *labels, double smoothing, int32_t form,
                                 int64_t ignored, int gradient, attn__loss_sums *sums)
{
    piece_rows[piece_count++ % 8] = logits->rows;
    return real_kernels->loss(ctx, logits, labels, smoothing, form, ignored, gradient, sums);
}

/* as many whole sequences in a piece as micro_rows allows, and no more */
static void test_pieces_are_filled(void **state)
{
    static const struct {
        int64_t micro_rows, rows[5];
    } cases[] = {{1, {4, 6, 1, 4}}, {4, {4, 6, 1, 4}}, {5, {4, 6, 5}}, {9, {4, 7, 4}}, {10, {10, 5}},
                 {11, {11, 4}},     {14, {11, 4}},     {15, {15}},     {-1, {15}}};
    const int64_t target[4] = {4, 6, 1, 4};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        training_options o = training_defaults();
        training t;
        model_batch batch;
        o.trainer.micro_rows = cases[i].micro_rows;
        training_open(&t, &o);
        model_batch_open(t.ctx, &batch, &o.model, 4, NULL, target, 1);
        OK(t.ctx, attn__kernels_for(t.ctx, ATTN_FLOAT32, &real_kernels));
        attn__kernels table = *real_kernels;
        table.loss = counting_loss;
        t.ctx->kernels[0] = &table;
        piece_count = 0;
        OK(t.ctx, attn_trainer_step(t.ctx, t.trainer, &batch.batch, &t.report));
        for (int64_t k = 0; k <= piece_count && k < 5; k++) assert_int_equal(k < piece_count ? piece_rows[k] : 0, cases[i].rows[k]);
        t.ctx->kernels[0] = real_kernels;
        model_batch_close(&batch);
        training_close(&t);
    }
}

/* a sequence past the model's last position is refused as a whole, whichever piece it would be in, and the step has not happened */
static void test_positions_end(void **state)
{
    (void)state;
    for (int side = 0; side < 2; side++) {
        for (int64_t micro_rows = -1; micro_rows < 8; micro_rows += 4) {
            training_options o = training_defaults();
            training t, still;
            model_batch good, long_one;
            o.model.encoder_layers = 1;
            o.trainer.micro_rows = micro_rows > 0 ? micro_rows : -1;
            const int64_t lengths[3] = {2, 3, o.model.context}, longer[3] = {2, 3, o.model.context + 1};
            training_open(&t, &o);
            training_open(&still, &o);
            model_batch_open(t.ctx, &good, &o.model, 3, lengths, lengths, 1);
            model_batch_open(t.ctx, &long_one, &o.model, 3, side ? lengths : longer, side ? longer : lengths, 1);
            FAILS(t.ctx, attn_trainer_step(t.ctx, t.trainer, &long_one.batch, &t.report), ATTN_ERROR_INVALID_ARGUMENT,
                  side ? "target_layout: got position" : "source_layout: got position");
            OK(t.ctx, attn_trainer_step(t.ctx, t.trainer, &good.batch, &t.report));
            OK(still.ctx, attn_trainer_step(still.ctx, still.trainer, &good.batch, &still.report));
            assert_true(training_same(&t, &still));
            model_batch_close(&good);
            model_batch_close(&long_one);
            training_close(&t);
            training_close(&still);
        }
    }
}

/* without a schedule, and with one that is constant, every step has the rate of the optimizer */
static void test_without_schedule(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training with, without;
    o.schedule.schedule = ATTN_SCHEDULE_CONSTANT;
    o.schedule.warmup = 0;
    o.schedule.rate = o.optimizer.rate = 0.03;
    training_open(&with, &o);
    training_open(&without, &o);
    attn_trainer_free(without.trainer);
    OK(without.ctx, attn_trainer_create(without.ctx, without.model, without.dataset, &o.optimizer, NULL, &o.trainer, &without.trainer));
    for (int i = 0; i < 3; i++) {
        training_steps(&with, 1);
        training_steps(&without, 1);
        assert_true(without.report.rate == 0.03 && with.report.rate == 0.03);
    }
    assert_true(training_same(&with, &without));
    training_close(&with);
    training_close(&without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_step_without_memory_has_not_happened),
                                       cmocka_unit_test(test_a_cancelled_step_has_not_happened),
                                       cmocka_unit_test(test_cancelled_at_any_moment),
                                       cmocka_unit_test(test_an_update_runs_to_its_end),
                                       cmocka_unit_test(test_pieces_are_filled),
                                       cmocka_unit_test(test_positions_end),
                                       cmocka_unit_test(test_without_schedule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

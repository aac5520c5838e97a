#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "support/scenario.h"

/* Another thread asks the calls to stop at random moments. Whatever was stopped is whole, is called again, and the end is, byte for byte,
   what it is undisturbed. */
typedef struct canceller {
    attn_context *ctx, *quiet; /* quiet: for all that is not to be stopped; a request may outlive the call it was meant for */
    pthread_t thread;
    random_state random;
    atomic_int stop, delay; /* delay: microseconds until the next request, -1: none is due */
    int64_t longest;        /* of a call so far, in microseconds */
    struct timespec begun;
    int64_t stopped, calls;
} canceller;

static void *cancel_at_times(void *argument)
{
    canceller *c = argument;
    while (!c->stop) {
        int delay = c->delay;
        if (delay >= 0) {
            usleep((unsigned)delay);
            attn_context_cancel(c->ctx);
            c->delay = -1;
        } else {
            usleep(50);
        }
    }
    return NULL;
}

static void open_canceller(canceller *c, int32_t threads, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->ctx = model_context(ATTN_BACKEND_BLAS, threads, 0);
    c->quiet = model_context(ATTN_BACKEND_BLAS, 1, 0);
    c->random.at = seed;
    c->delay = -1;
    c->longest = 500;
    assert_int_equal(pthread_create(&c->thread, NULL, cancel_at_times, c), 0);
}

static void close_canceller(canceller *c)
{
    c->stop = 1;
    pthread_join(c->thread, NULL);
    if (c->stopped < 5) fail_msg("%d of %d calls were stopped: that shows nothing", (int)c->stopped, (int)c->calls);
    attn_context_free(c->ctx);
    attn_context_free(c->quiet);
}

/* Before a call: every fourth goes undisturbed, so that all ends. A request may come after the call and stop the next. */
static void arm(canceller *c)
{
    int64_t delay = random_integer(&c->random, 0, c->longest + c->longest / 8);
    clock_gettime(CLOCK_MONOTONIC, &c->begun);
    if (c->calls++ % 4 != 3) c->delay = (int)delay;
}

/* after it: was it stopped? Any other error ends the test. */
static int was_stopped(canceller *c, attn_status status)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t took = (now.tv_sec - c->begun.tv_sec) * 1000000 + (now.tv_nsec - c->begun.tv_nsec) / 1000;
    if (status == ATTN_OK && took > c->longest && took < 50000) c->longest = took;
    model_expect(c->ctx, status, status == ATTN_ERROR_CANCELLED ? status : ATTN_OK, status == ATTN_OK ? "" : "attn_context_cancel",
                 "a call", __FILE__, __LINE__);
    while (c->delay >= 0) usleep(50);
    c->stopped += status != ATTN_OK;
    return status != ATTN_OK;
}

static int rounds(void)
{
    const char *wanted = getenv("ATTN_CANCELS");
    return wanted != NULL ? atoi(wanted) : 1;
}

/* a step has happened or has not */
static void train(canceller *c, int which)
{
    attn_transformer *model = scenario_model(c->quiet, which), *undisturbed = scenario_model(c->quiet, which);
    attn_trainer *trainer = scenario_trainer(c->quiet, model);
    attn_parameters *parameters = attn_transformer_parameters(model);
    model_batch batch;
    enum { STEPS = 4 };
    scenario_batch(c->quiet, which, &batch);
    for (int64_t done = 0; done < STEPS;) {
        digest before = digest_parameters(parameters);
        arm(c);
        int stopped = was_stopped(c, attn_trainer_step(c->ctx, trainer, &batch.batch, NULL));
        done += !stopped;
        assert_int_equal(attn_trainer_steps(trainer), done);
        assert_true((digest_parameters(parameters) == before) == stopped);
    }
    scenario_train(c->quiet, which, undisturbed, STEPS);
    assert_true(model_same_bits(parameters, attn_transformer_parameters(undisturbed)));
    attn_transformer_free(undisturbed);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    model_batch_close(&batch);
}

static void test_training(void **state)
{
    (void)state;
    for (int32_t round = 0; round < rounds(); round++)
        for (int32_t threads = 1; threads <= 3; threads += 2) {
            canceller c;
            open_canceller(&c, threads, (uint64_t)(round * 3 + threads));
            for (int which = 0; which < SCENARIOS; which++) train(&c, which);
            close_canceller(&c);
        }
}

/* A step that is nearly all update: many parameters, three tokens. Half an update would be the worst of all. */
static void test_update(void **state)
{
    (void)state;
    canceller c;
    const int64_t length = 3;
    model_batch batch;
    attn_transformer_options o = model_options(0, 1);
    o.source_vocabulary = 30000;
    o.width = 32;
    o.tie = ATTN_TIE_OUTPUT;
    open_canceller(&c, 2, 3);
    attn_transformer *model = model_create(c.quiet, &o), *undisturbed = model_create(c.quiet, &o);
    attn_trainer *trainer = scenario_trainer(c.quiet, model), *quiet = scenario_trainer(c.quiet, undisturbed);
    model_batch_open(c.quiet, &batch, &o, 1, NULL, &length, 1);
    for (int64_t done = 0; done < 25 * rounds();) {
        arm(&c);
        int stopped = was_stopped(&c, attn_trainer_step(c.ctx, trainer, &batch.batch, NULL));
        if (!stopped) OK(c.quiet, attn_trainer_step(c.quiet, quiet, &batch.batch, NULL));
        done += !stopped;
        assert_true(model_same_bits(attn_transformer_parameters(model), attn_transformer_parameters(undisturbed)));
    }
    close_canceller(&c);
    model_batch_close(&batch);
    attn_trainer_free(trainer);
    attn_trainer_free(quiet);
    attn_transformer_free(model);
    attn_transformer_free(undisturbed);
}

/* outputs and gradients can be computed again; the model is whole */
static void read_model(canceller *c, int which, const attn_transformer *model, digest *forward, digest *gradients)
{
    const attn_transformer_options o = scenario_options(which);
    model_batch batch;
    attn_tape *tape = NULL;
    attn_gradients *sums = NULL;
    attn_tape_options begin;
    scenario_batch(c->quiet, which, &batch);
    attn_tensor *output = model_tensor(c->quiet, ATTN_FLOAT32, batch.rows, o.source_vocabulary),
                *loss = model_tensor(c->quiet, ATTN_FLOAT32, 1, 0);
    const attn_tensor *losses = loss;
    OK(c->quiet, attn_tape_create(c->quiet, &tape));
    OK(c->quiet, attn_gradients_create(c->quiet, attn_transformer_parameters(model), &sums));
    OK(c->ctx, attn_tape_options_init(&begin, sizeof begin));
    begin.training = 1;
    begin.seed = 11;
    do arm(c);
    while (was_stopped(c, attn_transformer_forward(c->ctx, model, NULL, &batch.batch, output)));
    *forward = digest_tensor(1, output);
    for (int stopped = 1; stopped;) {
        arm(c);
        attn_status status = attn_gradients_zero(c->ctx, sums);
        if (status == ATTN_OK) status = attn_tape_begin(c->ctx, tape, &begin);
        if (status == ATTN_OK) status = attn_transformer_loss(c->ctx, model, tape, &batch.batch, NULL, loss, NULL);
        if (status == ATTN_OK) status = attn_tape_backward(c->ctx, tape, 1, &losses, NULL, 1, &sums);
        stopped = was_stopped(c, status);
    }
    *gradients = digest_tensor(digest_tensor(1, loss), attn_gradients_flat(sums));
    attn_gradients_free(sums);
    attn_tape_free(tape);
    attn_tensor_free(loss);
    attn_tensor_free(output);
    model_batch_close(&batch);
}

static void test_forward_and_backward(void **state)
{
    (void)state;
    canceller c;
    open_canceller(&c, 3, 5);
    for (int round = 0; round < 2 * rounds(); round++)
        for (int which = 0; which < SCENARIOS; which++) {
            digest forward, gradients;
            attn_transformer *model = scenario_model(c.quiet, which);
            read_model(&c, which, model, &forward, &gradients);
            assert_true(forward == scenario_forward(c.quiet, which, model));
            assert_true(gradients == scenario_gradients(c.quiet, which, model));
            attn_transformer_free(model);
        }
    close_canceller(&c);
}

/* a stopped step leaves the session as it was; a stopped prompt leaves it without one */
static void generate(canceller *c, int which, attn_generator *generator, attn_generator *undisturbed)
{
    model_batch batch;
    const attn_tensor *logits = NULL, *expected = NULL;
    scenario_batch(c->quiet, which, &batch);
    do arm(c);
    while (was_stopped(c, attn_generator_prompt(c->ctx, generator, &batch.batch)));
    model_batch_close(&batch);
    for (int step = 0; step < 12; step++) {
        int32_t tokens[4] = {-7, -7, -7, -7}, finished[4], wanted[4];
        OK(c->ctx, attn_generator_logits(c->ctx, generator, &logits));
        digest before = digest_tensor(1, logits);
        for (;;) {
            arm(c);
            if (!was_stopped(c, attn_generator_step(c->ctx, generator, 4, tokens, finished))) break;
            assert_int_equal(tokens[0], -7);
            OK(c->ctx, attn_generator_logits(c->ctx, generator, &logits));
            assert_true(digest_tensor(1, logits) == before);
        }
        OK(c->quiet, attn_generator_step(c->quiet, undisturbed, 4, wanted, finished));
        OK(c->quiet, attn_generator_logits(c->quiet, undisturbed, &expected));
        assert_memory_equal(tokens, wanted, sizeof wanted);
        assert_true(digest_tensor(1, logits) == digest_tensor(1, expected));
    }
}

static void test_generation(void **state)
{
    (void)state;
    canceller c;
    open_canceller(&c, 3, 8);
    for (int round = 0; round < 2 * rounds(); round++)
        for (int which = 0; which < SCENARIOS; which++) {
            if (scenario_options(which).decoder_layers == 0) continue;
            attn_transformer *model = scenario_model(c.quiet, which);
            attn_generator *generator = scenario_generator(c.quiet, which, model), *undisturbed = scenario_generator(c.quiet, which, model);
            generate(&c, which, generator, undisturbed);
            attn_generator_free(generator);
            attn_generator_free(undisturbed);
            attn_transformer_free(model);
        }
    close_canceller(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training), cmocka_unit_test(test_update),
                                       cmocka_unit_test(test_forward_and_backward), cmocka_unit_test(test_generation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"
#include "training/trainer.h"

/* Wrong calls of optimizer.h and trainer.h. */
#define PATH "calls_training.model"
#define OTHER "calls_training.other"
RELEASE(optimizer, attn_optimizer_free)
RELEASE(trainer, attn_trainer_free)
THUNK(learning_rate, attn_learning_rate(a[0].p, a[1].p, a[2].i, a[3].p))
THUNK(create_optimizer, attn_optimizer_create(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(set_rate, attn_optimizer_set_rate(a[0].p, a[1].p, a[2].d))
THUNK(update, attn_optimizer_step(a[0].p, a[1].p, a[2].p, a[3].d, a[4].p))

static void wrong_schedules(calls *t, int index)
{
    WRONG_INT32(t, index, attn_schedule_options, schedule, 5, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_schedule_options, schedule, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_schedule_options, reserved, 1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_schedule_options, warmup, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_schedule_options, warmup, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_schedule_options, total, 1, ATTN_ERROR_INVALID_ARGUMENT); /* the warm-up takes 2 */
    WRONG_INT64(t, index, attn_schedule_options, total, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_REALS(t, index, attn_schedule_options, rate, 0, NAN);
    WRONG_REALS(t, index, attn_schedule_options, final_rate, 0, NAN);
    WRONG_REALS(t, index, attn_schedule_options, factor, 0, NAN);
}

static attn_schedule_options schedule_of(calls *t)
{
    attn_schedule_options o;
    OK(t->ctx, attn_schedule_options_init(&o, sizeof o));
    o.schedule = ATTN_SCHEDULE_COSINE;
    o.warmup = 2;
    o.total = 8;
    return o;
}

static void wrong_optimizers(calls *t, int index)
{
    WRONG_INT32(t, index, attn_optimizer_options, optimizer, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_optimizer_options, optimizer, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_optimizer_options, no_decay, 8, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_optimizer_options, no_decay, INT32_MIN, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_REALS(t, index, attn_optimizer_options, rate, 0, NAN);
    WRONG_REALS_TO(t, index, attn_optimizer_options, beta1, 0, 1);
    WRONG_REALS_TO(t, index, attn_optimizer_options, beta2, 0, 1);
    WRONG_REALS(t, index, attn_optimizer_options, epsilon, 0, NAN);
    WRONG_REALS(t, index, attn_optimizer_options, weight_decay, 0, NAN);
    WRONG_REALS(t, index, attn_optimizer_options, l2, 0, NAN);
    WRONG_REALS(t, index, attn_optimizer_options, clip, 0, NAN);
    WRONG_REAL(t, index, attn_optimizer_options, weight_decay, 0.1, ATTN_ERROR_INVALID_ARGUMENT); /* with Adam */
}

static void schedules(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_schedule_options o = schedule_of(t);
    (void)state;
    ROW(t, attn_learning_rate, learning_rate);
    arg_context(t);
    arg_options(t, "schedule", &o, sizeof o, sizeof o);
    arg_number(t, "step", 3);
    arg_result(t, "out", sizeof(double), 0);
    check_row(t);
    accept_pointer(t, 1, NULL);
    wrong_schedules(t, 1);
    wrong_number(t, 2, 0, ATTN_ERROR_INVALID_ARGUMENT, "step");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "step");
    wrong_number(t, 2, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT, "step");
    attn_schedule_options wide = o;
    wide.schedule = ATTN_SCHEDULE_MONOGRAPH;
    wide.width = 0;
    double rate = 0;
    FAILS(t->ctx, attn_learning_rate(t->ctx, &wide, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "width");
    /* no rate that two finite numbers give is infinite: refused, or finite at every step */
    static const double large[4] = {1e308, 1e200, 1e154, 1};
    static const int64_t steps[5] = {1, 2, 1000, 1 << 30, INT64_MAX};
    for (int32_t kind = 0; kind < 5; kind++)
        for (int r = 0; r < 4; r++)
            for (int f = 0; f < 4; f++)
                for (int w = 0; w < 5; w++) {
                    attn_schedule_options at = {sizeof at, kind, 0, steps[w] - 1, INT64_MAX, 1, large[r], large[3 - r], large[f]};
                    for (int s = 0; s < 5; s++) {
                        attn_status status = attn_learning_rate(t->ctx, &at, steps[s], &rate);
                        if (status == ATTN_OK ? !isfinite(rate) : status != ATTN_ERROR_INVALID_ARGUMENT)
                            fail_msg("schedule %d gave %g at step %lld", kind, rate, (long long)steps[s]);
                    }
                }
    wide = o;
    wide.factor = wide.rate = 1e200;
    FAILS(t->ctx, attn_learning_rate(t->ctx, &wide, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "schedule.factor");
    calls_close(t);
}

static void clear_gradients(calls *t)
{
    OK(t->ctx, attn_gradients_zero(t->ctx, t->live[GRADIENTS]));
}

static void optimizers(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_parameters *set = t->live[PARAMETERS];
    attn_gradients *strange = NULL;
    attn_optimizer_options o;
    (void)state;
    OK(t->ctx, attn_optimizer_options_init(&o, sizeof o));
    OK(t->ctx, attn_gradients_create(t->ctx, attn_encoder_parameters(t->live[ENCODER]), &strange));
    ROW(t, attn_optimizer_create, create_optimizer);
    arg_context(t);
    arg_handle(t, "parameters", PARAMETERS, set, 0);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_made(t, "out", release_optimizer);
    guard_parameters(t, set);
    check_row(t);
    accept_pointer(t, 2, NULL);
    wrong_optimizers(t, 2);

    ROW(t, attn_optimizer_set_rate, set_rate);
    arg_context(t);
    arg_handle(t, "optimizer", OPTIMIZER, t->live[OPTIMIZER], 0);
    arg_real(t, "rate", 0.25);
    check_row(t);
    static const double bad[4] = {NAN, INFINITY, -INFINITY, -1e-9};
    for (int i = 0; i < 4; i++) wrong_real(t, 2, bad[i], ATTN_ERROR_INVALID_ARGUMENT, "rate");
    NOTED(attn_optimizer_rate);
    FAILS(t->ctx, attn_optimizer_set_rate(t->ctx, t->live[OPTIMIZER], NAN), ATTN_ERROR_INVALID_ARGUMENT, "rate");
    assert_true(attn_optimizer_rate(t->live[OPTIMIZER]) == 0.25);
    assert_true(isnan(attn_optimizer_rate(NULL)) && isnan(attn_optimizer_rate(t->live[TENSOR])));
    assert_true(isnan(attn_optimizer_rate(t->freed[OPTIMIZER])));

    ROW(t, attn_optimizer_step, update);
    arg_context(t);
    arg_handle(t, "optimizer", OPTIMIZER, t->live[OPTIMIZER], 0);
    arg_handle(t, "gradients", GRADIENTS, t->live[GRADIENTS], 0);
    arg_real(t, "divisor", 2);
    arg_report(t, "report", sizeof(attn_optimizer_report), NULLABLE);
    guard_parameters(t, set); /* of gradients that are zero: an update leaves them as they are */
    t->before = clear_gradients;
    t->flags = VARIES; /* the count of updates */
    check_row(t);
    wrong_pointer(t, 2, strange, ATTN_ERROR_INVALID_ARGUMENT, "gradients");
    static const double divisors[5] = {0, -1, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 5; i++) wrong_real(t, 3, divisors[i], ATTN_ERROR_INVALID_ARGUMENT, "divisor");
    attn_gradients_free(strange);
    calls_close(t);
}

THUNK(create_trainer, attn_trainer_create(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p))
THUNK(reserve, attn_trainer_reserve(a[0].p, a[1].p, a[2].i, a[3].i))
THUNK(step, attn_trainer_step(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(step_only, attn_trainer_step(a[0].p, a[1].p, a[2].p, NULL))
THUNK(save, attn_trainer_save(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p, a[5].p))
THUNK(restore, attn_trainer_restore(a[0].p, a[1].p, a[2].p))

static void creating(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_schedule_options schedule = schedule_of(t);
    attn_transformer_options headless = model_options(1, 1);
    attn_optimizer_options optimizer;
    attn_trainer_options o;
    attn_transformer *rows = NULL;
    (void)state;
    headless.output_head = 0;
    OK(t->ctx, attn_transformer_create(t->ctx, &headless, &rows));
    OK(t->ctx, attn_optimizer_options_init(&optimizer, sizeof optimizer));
    OK(t->ctx, attn_trainer_options_init(&o, sizeof o));
    ROW(t, attn_trainer_create, create_trainer);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_handle(t, "dataset", DATASET, t->live[DATASET], NULLABLE);
    arg_options(t, "optimizer", &optimizer, sizeof optimizer, sizeof optimizer);
    arg_options(t, "schedule", &schedule, sizeof schedule, sizeof schedule);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_made(t, "out", release_trainer);
    guard_parameters(t, attn_transformer_parameters(t->live[TRANSFORMER]));
    check_row(t);
    for (int i = 3; i <= 5; i++) accept_pointer(t, i, NULL);
    wrong_pointer(t, 1, rows, ATTN_ERROR_INVALID_ARGUMENT, "model");
    wrong_optimizers(t, 3);
    wrong_schedules(t, 4);
    WRONG_REALS(t, 5, attn_trainer_options, label_smoothing, 0, 1);
    WRONG_INT64(t, 5, attn_trainer_options, micro_rows, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 5, attn_trainer_options, micro_rows, -2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 5, attn_trainer_options, accumulate, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 5, attn_trainer_options, accumulate, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 5, attn_trainer_options, layer_norms, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 5, attn_trainer_options, reserved, 1, ATTN_ERROR_INVALID_ARGUMENT);
    attn_transformer_free(rows);

    NOTED(attn_trainer_optimizer);
    NOTED(attn_trainer_steps);
    attn_trainer *const bad[3] = {NULL, t->live[TENSOR], t->freed[TRAINER]};
    for (int i = 0; i < 3; i++) assert_true(attn_trainer_optimizer(bad[i]) == NULL && attn_trainer_steps(bad[i]) == 0);
    calls_close(t);
}

/* every call of the row begins with the same trainer: what a step changed is put back */
typedef struct saved {
    attn_trainer *trainer;
    int64_t steps;
} saved;
static void put_back(calls *t)
{
    saved *s = t->user;
    OK(t->ctx, attn_trainer_restore(t->ctx, s->trainer, PATH));
}

static void expect_steps(const saved *s)
{
    assert_true(attn_trainer_steps(s->trainer) == s->steps);
}

static void stepping(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options options = model_options(1, 1);
    saved s = {t->live[TRAINER], 0};
    attn_trainer *trainer = s.trainer;
    model_batch b;
    (void)state;
    model_batch_open(t->ctx, &b, &options, 2, (int64_t[]){2, 3}, (int64_t[]){1, 3}, 3);
    ROW(t, attn_trainer_reserve, reserve);
    arg_context(t);
    arg_handle(t, "trainer", TRAINER, trainer, 0);
    arg_number(t, "rows", 8);
    arg_number(t, "longest", 4);
    check_row(t);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "rows");
    wrong_number(t, 2, INT64_MAX, ATTN_ERROR_INVALID_ARGUMENT, "rows");
    wrong_number(t, 3, 0, ATTN_ERROR_INVALID_ARGUMENT, "longest");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "longest");

    OK(t->ctx, attn_trainer_step(t->ctx, trainer, &b.batch, NULL));
    s.steps = 1;
    OK(t->ctx, attn_trainer_save(t->ctx, trainer, 0, NULL, NULL, PATH));
    ROW(t, attn_trainer_step, step);
    arg_context(t);
    arg_handle(t, "trainer", TRAINER, trainer, 0);
    arg_options(t, "batch", &b.batch, sizeof b.batch, sizeof b.batch);
    arg_report(t, "report", sizeof(attn_trainer_report), NULLABLE);
    t->user = &s;
    t->before = put_back;
    check_row(t);
    wrong_pointer(t, 2, NULL, ATTN_ERROR_BAD_STATE, "batch");

    /* nothing of the trainer changes: parameters, moments, counters, rate */
    attn_parameters *set = attn_transformer_parameters(t->live[TRANSFORMER]);
    attn_tensor *tokens = OF_TYPE(t, ATTN_INT32, 4), *none = OF_TYPE(t, ATTN_INT32, 4), *rows = FLOATS(t, 4),
                *three = OF_TYPE(t, ATTN_INT32, 3);
    model_set(tokens, 2, 11);
    for (int i = 0; i < 4; i++) model_set(none, i, -1);
    const struct {
        uint64_t offset;
        const void *at;
        attn_status status;
        const char *word;
    } bad[] = {{offsetof(attn_batch, target), tokens, ATTN_ERROR_INVALID_ARGUMENT, "target"},
               {offsetof(attn_batch, target), rows, ATTN_ERROR_DTYPE, "target"},
               {offsetof(attn_batch, target), NULL, ATTN_ERROR_INVALID_ARGUMENT, "target"},
               {offsetof(attn_batch, source), t->freed[TENSOR], ATTN_ERROR_INVALID_ARGUMENT, "source"},
               {offsetof(attn_batch, source), NULL, ATTN_ERROR_INVALID_ARGUMENT, "source"},
               {offsetof(attn_batch, labels), tokens, ATTN_ERROR_INVALID_ARGUMENT, "labels"},
               {offsetof(attn_batch, labels), none, ATTN_ERROR_INVALID_ARGUMENT, "labels"},
               {offsetof(attn_batch, labels), three, ATTN_ERROR_SHAPE, "labels"},
               {offsetof(attn_batch, labels), NULL, ATTN_ERROR_INVALID_ARGUMENT, "labels"},
               {offsetof(attn_batch, source_layout), NULL, ATTN_ERROR_SHAPE, "target_layout"},
               {offsetof(attn_batch, target_layout), t->live[TAPE], ATTN_ERROR_INVALID_ARGUMENT, "target_layout"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int64_t flat = trainer->parameters->flat_elements * 4;
        unsigned char before[3][8192];
        const void *const kept[3] = {trainer->parameters->flat, trainer->optimizer->first, trainer->optimizer->second};
        attn_batch batch = b.batch;
        memcpy((char *)&batch + bad[i].offset, &bad[i].at, sizeof(void *));
        put_back(t);
        assert_true(flat <= (int64_t)sizeof before[0] && trainer->parameters == set);
        for (int k = 0; k < 3; k++) memcpy(before[k], kept[k], (size_t)flat);
        FAILS(t->ctx, attn_trainer_step(t->ctx, trainer, &batch, NULL), bad[i].status, bad[i].word);
        for (int k = 0; k < 3; k++) assert_memory_equal(before[k], kept[k], (size_t)flat);
        expect_steps(&s);
        wrong_field(t, 2, bad[i].offset, sizeof(void *), &bad[i].at, bad[i].status, bad[i].word);
    }
    calls_row(t, "attn_trainer_step without a report", step_only);
    arg_context(t);
    arg_handle(t, "trainer", TRAINER, trainer, 0);
    arg_pointer(t, "batch", &b.batch, 0);
    accept_row(t);
    wrong_pointer(t, 2, NULL, ATTN_ERROR_BAD_STATE, "batch");
    model_batch_close(&b);
    unlink(PATH);
    calls_close(t);
}

static void files(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    static const char *const keys[2] = {"a", "b"}, *const values[2] = {"1", "2"}, *const reserved[2] = {"a", "attn.b"},
                             *const twice[2] = {"a", "a"}, *const null_key[2] = {NULL, "b"};
    attn_trainer *trainer = t->live[TRAINER];
    (void)state;
    ROW(t, attn_trainer_save, save);
    arg_context(t);
    arg_handle(t, "trainer", TRAINER, trainer, 0);
    arg_number(t, "count", 2);
    arg_pointer(t, "keys", keys, 0);
    arg_pointer(t, "values", values, 0);
    arg_pointer(t, "path", PATH, 0);
    check_row(t);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_pointer(t, 3, reserved, ATTN_ERROR_INVALID_ARGUMENT, "keys");
    wrong_pointer(t, 3, twice, ATTN_ERROR_INVALID_ARGUMENT, "key");
    wrong_pointer(t, 3, null_key, ATTN_ERROR_INVALID_ARGUMENT, "keys");
    wrong_pointer(t, 4, null_key, ATTN_ERROR_INVALID_ARGUMENT, "values");
    wrong_pointer(t, 5, "", ATTN_ERROR_INVALID_ARGUMENT, "path");
    wrong_pointer(t, 5, "no/such/folder/file", ATTN_ERROR_IO, "no/such/folder");

    /* another model's checkpoint, a model without a trainer, nothing at all */
    const attn_transformer_options o = model_options(1, 2);
    attn_transformer *other = NULL;
    attn_trainer *others = NULL;
    OK(t->ctx, attn_transformer_create(t->ctx, &o, &other));
    OK(t->ctx, attn_trainer_create(t->ctx, other, NULL, NULL, NULL, NULL, &others));
    OK(t->ctx, attn_trainer_save(t->ctx, others, 0, NULL, NULL, OTHER));
    ROW(t, attn_trainer_restore, restore);
    arg_context(t);
    arg_handle(t, "trainer", TRAINER, trainer, 0);
    arg_pointer(t, "path", PATH, 0);
    guard_parameters(t, attn_transformer_parameters(t->live[TRANSFORMER]));
    guard_memory(t, trainer->optimizer, sizeof *trainer->optimizer);
    guard_memory(t, trainer, sizeof *trainer);
    check_row(t);
    wrong_pointer(t, 2, "", ATTN_ERROR_INVALID_ARGUMENT, "path");
    wrong_pointer(t, 2, ".", ATTN_ERROR_IO, ".");
    wrong_pointer(t, 2, "calls_training.nothing", ATTN_ERROR_IO, "calls_training.nothing");
    wrong_pointer(t, 2, OTHER, ATTN_ERROR_MISMATCH, OTHER);
    OK(t->ctx, attn_transformer_save(t->ctx, t->live[TRANSFORMER], 0, NULL, NULL, OTHER));
    wrong_pointer(t, 2, OTHER, ATTN_ERROR_BAD_FILE, OTHER);
    attn_trainer_free(others);
    attn_transformer_free(other);
    unlink(PATH);
    unlink(OTHER);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(schedules), cmocka_unit_test(optimizers), cmocka_unit_test(creating),
                                       cmocka_unit_test(stepping), cmocka_unit_test(files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

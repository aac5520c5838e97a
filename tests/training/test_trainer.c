#include <math.h>
#include "fixture.h"

static void test_pieces_equal_the_whole(void **state)
{
    (void)state;
    /* batches of the data set, and the rows of one micro-batch */
    const struct {
        int64_t batch, accumulate, micro_rows;
    } cases[] = {{4, 1, -1}, {2, 2, -1}, {1, 4, -1}, {4, 1, 6}, {4, 1, 13}, {4, 1, 1}, {2, 2, 6}};
    for (int dtype = ATTN_FLOAT32; dtype <= ATTN_FLOAT64; dtype++) {
        training_options o = training_defaults();
        o.dtype = dtype;
        o.backend = dtype == ATTN_FLOAT64 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS;
        o.optimizer.epsilon = 1e-3; /* else rounding of gradients near zero shows in the steps */
        training whole, parts;
        training_open(&whole, &o);
        training_steps(&whole, 3);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            o.batch = cases[i].batch;
            o.trainer.accumulate = cases[i].accumulate;
            o.trainer.micro_rows = cases[i].micro_rows;
            training_open(&parts, &o);
            training_steps(&parts, 3);
            double apart = training_distance(&whole, &parts);
            if (!(apart <= (dtype == ATTN_FLOAT64 ? 1e-13 : 2e-6)))
                fail_msg("batch %d, accumulate %d, micro_rows %d: parameters are %g apart", (int)o.batch, (int)o.trainer.accumulate,
                         (int)o.trainer.micro_rows, apart);
            assert_true(fabs(whole.report.loss - parts.report.loss) < 1e-5);
            assert_int_equal(parts.report.tokens, 24);
            training_close(&parts);
        }
        training_close(&whole);
    }
}

/* one step's pieces of different lengths: the sum of their gradients over all tokens, not a mean of means */
static void test_pieces_of_unequal_length(void **state)
{
    (void)state;
    const int64_t source[4] = {3, 0, 5, 2}, target[4] = {4, 6, 1, 4};
    for (int64_t encoder_layers = 0; encoder_layers < 2; encoder_layers++) {
        training_options o = training_defaults();
        o.model.encoder_layers = encoder_layers;
        o.optimizer.epsilon = 1e-3;
        training whole, parts;
        model_batch a, b;
        training_open(&whole, &o);
        o.trainer.micro_rows = 4;
        training_open(&parts, &o);
        model_batch_open(whole.ctx, &a, &o.model, 4, source, target, 1);
        model_batch_open(parts.ctx, &b, &o.model, 4, source, target, 1);
        for (int i = 0; i < 3; i++) {
            OK(whole.ctx, attn_trainer_step(whole.ctx, whole.trainer, &a.batch, &whole.report));
            OK(parts.ctx, attn_trainer_step(parts.ctx, parts.trainer, &b.batch, &parts.report));
            assert_int_equal(parts.report.tokens, 14);
            assert_true(fabs(whole.report.loss - parts.report.loss) < 1e-5);
            assert_true(fabs(whole.report.gradient_norm / parts.report.gradient_norm - 1) < 1e-5);
        }
        assert_true(training_distance(&whole, &parts) < 2e-6);
        model_batch_close(&a);
        model_batch_close(&b);
        training_close(&whole);
        training_close(&parts);
    }
}

/* segments that do not lie in row order cannot be cut: the batch is one piece then, of the same loss as the model's */
static void test_pieces_need_order(void **state)
{
    (void)state;
    const int64_t lengths[3] = {3, 2, 5};
    const attn_segment turned[3] = {{7, 3, 0, 0}, {0, 2, 0, 1}, {2, 5, 0, 2}};
    training_options o = training_defaults();
    o.model.dropout_embedding = o.model.dropout_attention = o.model.dropout_sublayer = o.model.dropout_activation = 0;
    for (int which = 0; which < 6; which++) { /* source turned, target turned, both; in one piece as well */
        training t;
        model_batch b;
        attn_loss_report report = {.struct_size = sizeof report};
        o.model.encoder_layers = 1;
        o.trainer.micro_rows = which < 3 ? 5 : -1;
        training_open(&t, &o);
        model_batch_open(t.ctx, &b, &o.model, 3, lengths, lengths, 1);
        if (which % 3 != 1) OK(t.ctx, attn_layout_set(t.ctx, b.source_layout, 3, turned));
        if (which % 3 != 0) OK(t.ctx, attn_layout_set(t.ctx, b.target_layout, 3, turned));
        OK(t.ctx, attn_transformer_loss(t.ctx, t.model, NULL, &b.batch, NULL, NULL, &report));
        OK(t.ctx, attn_trainer_step(t.ctx, t.trainer, &b.batch, &t.report));
        if (!(fabs(t.report.loss - report.sum / (double)report.count) < 1e-5))
            fail_msg("case %d: the step's loss is %g, the model's %g", which, t.report.loss, report.sum / (double)report.count);
        model_batch_close(&b);
        training_close(&t);
    }
}

static void test_threads_give_the_same_bits(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training one, two;
    o.threads = 1;
    training_open(&one, &o);
    o.threads = 2;
    training_open(&two, &o);
    for (int i = 0; i < 8; i++) {
        training_steps(&one, 1);
        training_steps(&two, 1);
        assert_true(training_same(&one, &two));
        assert_true(one.report.loss == two.report.loss && one.report.gradient_norm == two.report.gradient_norm);
    }
    training_close(&one);
    training_close(&two);
}

static void test_loss_falls(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    const int64_t length = 8;
    o.model.dropout_embedding = o.model.dropout_attention = o.model.dropout_sublayer = o.model.dropout_activation = 0;
    o.schedule.schedule = ATTN_SCHEDULE_CONSTANT;
    training_open(&t, &o);
    model_batch batch;
    model_batch_open(t.ctx, &batch, &o.model, 1, NULL, &length, 1);
    for (int i = 0; i < 120; i++) OK(t.ctx, attn_trainer_step(t.ctx, t.trainer, &batch.batch, &t.report));
    if (!(t.report.loss < 0.1)) fail_msg("one batch learned by heart has a loss of %g", t.report.loss);
    model_batch_close(&batch);
    training_close(&t);
}

/* steps of sequences of this length, four at a time */
static void steps_of_length(training *t, const training_options *o, int64_t length, int count)
{
    const int64_t lengths[4] = {length, 1, length, length / 2};
    model_batch batch;
    model_batch_open(t->ctx, &batch, &o->model, 4, lengths, lengths, 1);
    int64_t before = model_allocations(t->ctx);
    for (int i = 0; i < count; i++) {
        OK(t->ctx, attn_trainer_step(t->ctx, t->trainer, &batch.batch, &t->report));
        if (model_allocations(t->ctx) != before && count > 2)
            fail_msg("checkpoint_layers %d, %d encoder layers, length %d: step %d allocated %d times", (int)o->model.checkpoint_layers,
                     (int)o->model.encoder_layers, (int)length, i, (int)(model_allocations(t->ctx) - before));
    }
    model_batch_close(&batch);
}

static void test_nothing_is_allocated_after_the_second_step(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        training_options o = training_defaults();
        training t;
        o.model.checkpoint_layers = i & 1;
        o.model.encoder_layers = i & 2 ? 2 : 0;
        o.model.context = 300;
        o.trainer.layer_norms = 1;
        training_open(&t, &o);
        if (i & 4) { /* within the reserve steps may grow */
            OK(t.ctx, attn_trainer_reserve(t.ctx, t.trainer, 4 * 280, 280));
            steps_of_length(&t, &o, 3, 2);
            steps_of_length(&t, &o, 100, 3);
        } else
            steps_of_length(&t, &o, 280, 2);
        steps_of_length(&t, &o, 280, 3);
        steps_of_length(&t, &o, 5, 3);
        training_close(&t);
    }
}

static void test_frozen_parameters_do_not_move(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t, start;
    int64_t matched;
    training_open(&t, &o);
    training_open(&start, &o);
    OK(t.ctx, attn_parameters_freeze(t.ctx, t.parameters, "decoder.layers.0.*", 1, &matched));
    assert_true(matched > 8);
    OK(t.ctx, attn_parameters_freeze(t.ctx, t.parameters, "*key.weight", 1, &matched));
    assert_int_equal(matched, 2);
    training_steps(&t, 4);
    for (int64_t i = 0; i < attn_parameters_count(t.parameters); i++) {
        const char *name = attn_parameters_name(t.parameters, i);
        int frozen = strstr(name, "layers.0.") != NULL || strstr(name, "key.weight") != NULL, moved = 0;
        attn_tensor *now = attn_parameters_tensor(t.parameters, i), *before = attn_parameters_tensor(start.parameters, i);
        for (int64_t e = 0; e < model_elements(now); e++) moved |= model_get(now, e) != model_get(before, e);
        if (frozen == moved) fail_msg("%s: frozen %d, moved %d", name, frozen, moved);
    }
    /* everything frozen: a step is legal and changes nothing */
    OK(t.ctx, attn_parameters_freeze(t.ctx, t.parameters, "*", 1, NULL));
    OK(start.ctx, attn_parameters_freeze(start.ctx, start.parameters, "*", 1, NULL));
    training again;
    training_open(&again, &o);
    training_steps(&start, 2);
    assert_true(model_same_bits(start.parameters, again.parameters));
    assert_true(start.report.gradient_norm == 0);
    training_close(&again);
    training_close(&t);
    training_close(&start);
}

static void test_not_finite_is_skipped(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t, still;
    training_open(&t, &o);
    training_open(&still, &o);
    training_steps(&t, 2);
    training_steps(&still, 2);
    attn_tensor *weight = attn_parameters_tensor(t.parameters, 0);
    double kept = model_get(weight, 0);
    for (int64_t i = 0; i < model_elements(weight); i += 8) model_set(weight, i, i == 0 ? NAN : model_get(weight, i));
    /* token 0 may be missing from the batch as an input, but tied logits see every row */
    training_steps(&t, 1);
    assert_int_equal(t.report.skipped, 1);
    assert_true(!isfinite(t.report.gradient_norm));
    assert_int_equal(t.report.step, 3);
    model_set(weight, 0, kept);
    assert_true(model_same_bits(t.parameters, still.parameters));
    assert_int_equal(t.trainer->optimizer->step, 2);
    training_steps(&t, 1);
    assert_int_equal(t.report.skipped, 0);
    assert_true(isfinite(t.report.loss) && isfinite(t.report.gradient_norm));
    training_close(&t);
    training_close(&still);
}

/* A skipped step counts, though it is no update: it and the next one have the rates of their own numbers. */
static void test_skipped_steps_move_the_rate(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    training_open(&t, &o);
    attn_tensor *weight = attn_parameters_tensor(t.parameters, 0);
    for (int i = 1; i <= 5; i++) {
        double kept = model_get(weight, 0), want;
        if (i == 2) model_set(weight, 0, NAN);
        training_steps(&t, 1);
        assert_int_equal(t.report.skipped, i == 2);
        if (i == 2) model_set(weight, 0, kept);
        OK(t.ctx, attn_learning_rate(t.ctx, &o.schedule, i, &want));
        assert_true(t.report.rate == want);
    }
    training_close(&t);
}

/* Nor does the next step draw the dropout of the skipped one again. At a rate of 0 two trainers stay the same but for what was skipped. */
static void test_skipped_steps_move_the_dropout(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t, still;
    o.schedule.rate = 0;
    training_open(&t, &o);
    training_open(&still, &o);
    attn_tensor *weight = attn_parameters_tensor(t.parameters, 0);
    double kept = model_get(weight, 0);
    model_set(weight, 0, NAN);
    training_steps(&t, 1);
    assert_int_equal(t.report.skipped, 1);
    model_set(weight, 0, kept);
    training_steps(&t, 1);
    training_steps(&still, 2);
    assert_true(model_same_bits(t.parameters, still.parameters));
    assert_true(t.report.loss == still.report.loss);
    training_close(&t);
    training_close(&still);
}

static void test_norms_of_layers(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    const int64_t source[2] = {3, 4}, target[2] = {5, 2};
    o.model.encoder_layers = 1;
    o.optimizer.clip = 0;
    o.trainer.layer_norms = 1;
    training_open(&t, &o);
    model_batch batch;
    model_batch_open(t.ctx, &batch, &o.model, 2, source, target, 1);
    OK(t.ctx, attn_trainer_step(t.ctx, t.trainer, &batch.batch, &t.report));
    assert_int_equal(t.report.layer_count, 4); /* encoder 1, decoder 2, the rest */
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        assert_true(t.report.layer_norms[i] > 0);
        sum += t.report.layer_norms[i] * t.report.layer_norms[i];
    }
    assert_true(fabs(sqrt(sum) / t.report.gradient_norm - 1) < 1e-6);
    OK(t.ctx, attn_parameters_freeze(t.ctx, t.parameters, "encoder.*", 1, NULL));
    OK(t.ctx, attn_trainer_step(t.ctx, t.trainer, &batch.batch, &t.report));
    assert_true(t.report.layer_norms[0] == 0 && t.report.layer_norms[1] > 0);
    model_batch_close(&batch);
    training_close(&t);
}

/* of an encoder alone too: its layer, and the rest */
static void test_norms_of_an_encoder(void **state)
{
    (void)state;
    const int64_t source[2] = {3, 4};
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(1, 0);
    attn_transformer *model = model_create(ctx, &o);
    attn_trainer_options trainer_options;
    attn_trainer *trainer = NULL;
    attn_trainer_report report = {.struct_size = sizeof report};
    model_batch batch;
    assert_int_equal(attn_trainer_options_init(&trainer_options, sizeof trainer_options), ATTN_OK);
    trainer_options.layer_norms = 1;
    OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, &trainer_options, &trainer));
    model_batch_open(ctx, &batch, &o, 2, source, NULL, 1);
    OK(ctx, attn_trainer_step(ctx, trainer, &batch.batch, &report));
    assert_int_equal(report.layer_count, 2);
    assert_true(report.layer_norms[0] > 0 && report.layer_norms[1] > 0);
    model_batch_close(&batch);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

static void test_rate(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    o.schedule.total = 5;
    for (int32_t kind = ATTN_SCHEDULE_CONSTANT; kind <= ATTN_SCHEDULE_INVERSE_SQRT; kind++)
        for (o.schedule.warmup = 0; o.schedule.warmup <= 3; o.schedule.warmup += 3) {
            if (kind == ATTN_SCHEDULE_MONOGRAPH && o.schedule.warmup == 0) continue; /* it has one */
            o.schedule.schedule = kind;
            training_open(&t, &o);
            for (int i = 1; i <= 6; i++) {
                double want;
                training_steps(&t, 1);
                OK(t.ctx, attn_learning_rate(t.ctx, &o.schedule, i, &want));
                assert_true(t.report.rate == want && attn_optimizer_rate(attn_trainer_optimizer(t.trainer)) == want);
            }
            training_close(&t);
        }
    o.schedule.schedule = ATTN_SCHEDULE_CONSTANT; /* the rate can be set */
    o.schedule.warmup = 0;
    training_open(&t, &o);
    training_steps(&t, 1);
    assert_true(t.report.rate == 1e-2);
    OK(t.ctx, attn_optimizer_set_rate(t.ctx, attn_trainer_optimizer(t.trainer), 5e-3));
    training_steps(&t, 1);
    assert_true(t.report.rate == 5e-3);
    training_close(&t);
}

static void test_errors(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t, still;
    attn_trainer *made;
    const int64_t length = 3;
    training_open(&t, &o);
    training_open(&still, &o);
    attn_context *ctx = t.ctx;
    model_batch batch;
    model_batch_open(ctx, &batch, &o.model, 1, NULL, &length, 1);
    for (int64_t i = 0; i < 3; i++) model_set(batch.labels, i, -1);
    FAILS(ctx, attn_trainer_step(ctx, t.trainer, &batch.batch, NULL), ATTN_ERROR_INVALID_ARGUMENT, "labels");
    model_set(batch.labels, 0, 11);
    FAILS(ctx, attn_trainer_step(ctx, t.trainer, &batch.batch, NULL), ATTN_ERROR_INVALID_ARGUMENT, "label");
    model_set(batch.labels, 0, 1);
    model_set(batch.target, 2, 11);
    FAILS(ctx, attn_trainer_step(ctx, t.trainer, &batch.batch, NULL), ATTN_ERROR_INVALID_ARGUMENT, "11");
    FAILS(ctx, attn_trainer_step(ctx, NULL, &batch.batch, NULL), ATTN_ERROR_INVALID_ARGUMENT, "trainer");
    attn_batch empty;
    OK(ctx, attn_batch_init(&empty, sizeof empty));
    FAILS(ctx, attn_trainer_step(ctx, t.trainer, &empty, NULL), ATTN_ERROR_INVALID_ARGUMENT, "target");
    assert_true(training_same(&t, &still)); /* none of that was a step */
    training_steps(&t, 1);
    training_steps(&still, 1);
    assert_true(training_same(&t, &still));

    OK(ctx, attn_trainer_create(ctx, t.model, NULL, NULL, NULL, NULL, &made));
    FAILS(ctx, attn_trainer_step(ctx, made, NULL, NULL), ATTN_ERROR_BAD_STATE, "batch");
    attn_trainer_free(made);
    const struct {
        const char *field;
        double *real;
        int64_t *size;
        double value;
    } wrong[] = {{"label_smoothing", &o.trainer.label_smoothing, NULL, 1.5},
                 {"label_smoothing", &o.trainer.label_smoothing, NULL, NAN},
                 {"micro_rows", NULL, &o.trainer.micro_rows, 0},
                 {"accumulate", NULL, &o.trainer.accumulate, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = training_defaults();
        if (wrong[i].real)
            *wrong[i].real = wrong[i].value;
        else
            *wrong[i].size = (int64_t)wrong[i].value;
        FAILS(ctx, attn_trainer_create(ctx, t.model, NULL, &o.optimizer, &o.schedule, &o.trainer, &made), ATTN_ERROR_INVALID_ARGUMENT,
              wrong[i].field);
        assert_null(made);
    }
    FAILS(ctx, attn_trainer_create(ctx, NULL, NULL, NULL, NULL, NULL, &made), ATTN_ERROR_INVALID_ARGUMENT, "model");
    FAILS(ctx, attn_trainer_reserve(ctx, t.trainer, 8, 0), ATTN_ERROR_INVALID_ARGUMENT, "longest");
    attn_trainer_free(NULL);
    model_batch_close(&batch);
    training_close(&t);
    training_close(&still);
}

/* a pass that ends between two batches of one step is no step, and its batch is not lost */
static void test_end_of_data(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    o.order = ATTN_ORDER_SEQUENTIAL;
    o.batch = 10;
    o.trainer.accumulate = 3; /* 100 windows: 10 batches */
    training_open(&t, &o);
    training_steps(&t, 3);
    int64_t cursor = attn__dataset_cursor(t.dataset);
    FAILS(t.ctx, attn_trainer_step(t.ctx, t.trainer, NULL, &t.report), ATTN_ERROR_END_OF_DATA, "");
    assert_int_equal(attn__dataset_cursor(t.dataset), cursor);
    assert_int_equal(attn_trainer_steps(t.trainer), 3);
    OK(t.ctx, attn_dataset_rewind(t.ctx, t.dataset));
    training_steps(&t, 1);
    training_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces_equal_the_whole),
                                       cmocka_unit_test(test_pieces_of_unequal_length),
                                       cmocka_unit_test(test_pieces_need_order),
                                       cmocka_unit_test(test_threads_give_the_same_bits),
                                       cmocka_unit_test(test_loss_falls),
                                       cmocka_unit_test(test_nothing_is_allocated_after_the_second_step),
                                       cmocka_unit_test(test_frozen_parameters_do_not_move),
                                       cmocka_unit_test(test_not_finite_is_skipped),
                                       cmocka_unit_test(test_skipped_steps_move_the_rate),
                                       cmocka_unit_test(test_skipped_steps_move_the_dropout),
                                       cmocka_unit_test(test_norms_of_layers),
                                       cmocka_unit_test(test_norms_of_an_encoder),
                                       cmocka_unit_test(test_rate),
                                       cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_end_of_data)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"
#include "training/optimizer.h"

/* One set of parameters of all kinds: an encoder of one layer. Gradients are written by hand. */
typedef struct bench {
    attn_context *ctx;
    attn_encoder *encoder;
    attn_parameters *parameters;
    attn_gradients *gradients;
    attn_optimizer *optimizer;
    attn_optimizer_report report;
} bench;

static attn_optimizer_options recipe(int32_t optimizer)
{
    attn_optimizer_options o;
    assert_int_equal(attn_optimizer_options_init(&o, sizeof o), ATTN_OK);
    o.optimizer = optimizer;
    o.rate = 0.1;
    return o;
}

static void open_bench(bench *b, int32_t backend, const attn_optimizer_options *o)
{
    attn_transformer_options m = model_options(1, 0);
    m.dtype = backend == ATTN_BACKEND_BLAS ? ATTN_FLOAT32 : ATTN_FLOAT64;
    memset(b, 0, sizeof *b);
    b->ctx = model_context(backend, 2, 0);
    OK(b->ctx, attn_encoder_create(b->ctx, &m, &b->encoder));
    b->parameters = attn_encoder_parameters(b->encoder);
    OK(b->ctx, attn_gradients_create(b->ctx, b->parameters, &b->gradients));
    OK(b->ctx, attn_optimizer_create(b->ctx, b->parameters, o, &b->optimizer));
    b->report.struct_size = sizeof b->report;
}

static void close_bench(bench *b)
{
    attn_optimizer_free(b->optimizer);
    attn_gradients_free(b->gradients);
    attn_encoder_free(b->encoder);
    attn_context_free(b->ctx);
}

static void set_all(bench *b, double parameter, double gradient)
{
    for (int64_t i = 0; i < attn_parameters_count(b->parameters); i++) {
        attn_tensor *p = attn_parameters_tensor(b->parameters, i), *g = attn_gradients_tensor(b->gradients, i);
        for (int64_t e = 0; e < model_elements(p); e++) {
            model_set(p, e, parameter);
            model_set(g, e, gradient);
        }
    }
}

static void step(bench *b, double divisor)
{
    OK(b->ctx, attn_optimizer_step(b->ctx, b->optimizer, b->gradients, divisor, &b->report));
}

static double value_of(bench *b, const char *name)
{
    int64_t index = attn_parameters_find(b->parameters, name);
    assert_true(index >= 0);
    return model_get(attn_parameters_tensor(b->parameters, index), 3);
}

static void expect_near(bench *b, const char *name, double want)
{
    double got = value_of(b, name), within = b->parameters->dtype == ATTN_FLOAT64 ? 3e-9 : 1e-6; /* epsilon shows at 1e-9 */
    if (!(fabs(got - want) <= within * fmax(1, fabs(want)))) fail_msg("%s: got %.17g, expected %.17g", name, got, want);
}

static const char WEIGHT[] = "layers.0.feed_forward.input.weight", BIAS[] = "layers.0.feed_forward.input.bias",
                  NORM[] = "layers.0.feed_forward_norm.weight";

static void test_values(void **state)
{
    (void)state;
    for (int32_t backend = 0; backend < 2; backend++) {
        bench b;
        attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAMW);
        o.weight_decay = 0.1;
        open_bench(&b, backend, &o); /* w = 1, g = 1: 1 - 0.1 - 0.01 */
        set_all(&b, 1, 1);
        step(&b, 1);
        expect_near(&b, WEIGHT, 0.89);
        assert_int_equal(b.report.step, 1);
        assert_true(fabs(b.report.gradient_norm / sqrt((double)attn_parameters_elements(b.parameters)) - 1) < 1e-6);
        for (int64_t i = 0; i < model_elements(attn_gradients_flat(b.gradients)); i++)
            assert_true(model_get(attn_gradients_flat(b.gradients), i) == 0);
        close_bench(&b);

        o = recipe(ATTN_OPTIMIZER_ADAM); /* a gradient near epsilon: a step of half the rate (Algorithm 1) */
        o.rate = 1;
        open_bench(&b, backend, &o);
        set_all(&b, 0, 4e-8);
        step(&b, 4);
        expect_near(&b, WEIGHT, -0.5);
        close_bench(&b);

        o = recipe(ATTN_OPTIMIZER_ADAM); /* two steps with other betas, by hand */
        o.beta1 = 0.5;
        o.beta2 = 0.75;
        open_bench(&b, backend, &o);
        set_all(&b, 1, 2);
        step(&b, 1);
        double m = 1, v = 1, p = 1 - 0.1 * (m / 0.5) / (sqrt(v / 0.25) + 1e-8);
        expect_near(&b, BIAS, p);
        set_all(&b, p, -1);
        step(&b, 1);
        m = 0.5 * m - 0.5;
        v = 0.75 * v + 0.25;
        expect_near(&b, BIAS, p - 0.1 * (m / 0.75) / (sqrt(v / 0.4375) + 1e-8));
        close_bench(&b);
    }
}

/* without epsilon: what had no gradient stays, as does the padding between parameters, over which the penalty's sums go */
static void test_no_epsilon(void **state)
{
    (void)state;
    for (int32_t backend = 0; backend < 2; backend++) {
        bench b;
        attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAM);
        o.epsilon = 0;
        open_bench(&b, backend, &o);
        set_all(&b, 1, 0);
        step(&b, 1);
        assert_true(value_of(&b, WEIGHT) == 1 && value_of(&b, BIAS) == 1 && value_of(&b, NORM) == 1);
        close_bench(&b);

        o.l2 = 0.5;
        open_bench(&b, backend, &o);
        set_all(&b, 1, 2);
        step(&b, 1);
        expect_near(&b, WEIGHT, 0.9);
        step(&b, 1);
        assert_int_equal(b.report.skipped, 0);
        assert_true(isfinite(b.report.penalty) && isfinite(value_of(&b, WEIGHT)));
        close_bench(&b);
    }
}

/* decoupled decay spares by group; the penalty in the loss does not, and shows in the report and in the gradient */
static void test_decay(void **state)
{
    (void)state;
    for (int32_t spare = 0; spare < 4; spare++) {
        bench b;
        attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAMW);
        o.weight_decay = 0.1;
        o.no_decay = spare;
        open_bench(&b, ATTN_BACKEND_BLAS, &o);
        set_all(&b, 1, 0);
        step(&b, 1);
        expect_near(&b, WEIGHT, 0.99);
        expect_near(&b, "layers.0.self_attention.output.weight", 0.99);
        expect_near(&b, BIAS, spare & ATTN_NO_DECAY_BIAS ? 1 : 0.99);
        expect_near(&b, "layers.0.self_attention.key.bias", spare & ATTN_NO_DECAY_BIAS ? 1 : 0.99);
        expect_near(&b, NORM, spare & ATTN_NO_DECAY_NORM ? 1 : 0.99);
        expect_near(&b, "layers.0.feed_forward_norm.bias", spare & ATTN_NO_DECAY_NORM ? 1 : 0.99);
        close_bench(&b);
    }
    bench b;
    attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAM);
    o.l2 = 0.5;
    open_bench(&b, ATTN_BACKEND_REFERENCE, &o);
    set_all(&b, 2, 3); /* gradient 3 / 3 + 0.5 * 2 = 2 */
    step(&b, 3);
    double n = (double)attn_parameters_elements(b.parameters);
    assert_true(fabs(b.report.gradient_norm / (2 * sqrt(n)) - 1) < 1e-12);
    assert_true(fabs(b.report.penalty / (0.25 * 4 * n) - 1) < 1e-12);
    expect_near(&b, WEIGHT, 1.9);
    assert_true(fabs(((double *)b.optimizer->first)[0] - 0.2) < 1e-15);
    close_bench(&b);
}

/* tables of embeddings are a group of their own; the bias of the output is a bias, and starts as zero */
static void test_decay_of_a_model(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options m = model_options(0, 1);
    m.output_bias = 1;
    for (int32_t spare = 0; spare < 8; spare++) {
        attn_transformer *model = NULL;
        bench b = {.ctx = ctx, .report = {.struct_size = sizeof b.report}};
        attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAMW);
        o.weight_decay = 0.1;
        o.no_decay = spare;
        OK(ctx, attn_transformer_create(ctx, &m, &model));
        b.parameters = attn_transformer_parameters(model);
        assert_true(value_of(&b, "output.bias") == 0 && value_of(&b, "output.weight") != 0);
        OK(ctx, attn_gradients_create(ctx, b.parameters, &b.gradients));
        OK(ctx, attn_optimizer_create(ctx, b.parameters, &o, &b.optimizer));
        set_all(&b, 1, 0);
        step(&b, 1);
        expect_near(&b, "output.weight", 0.99);
        expect_near(&b, "output.bias", spare & ATTN_NO_DECAY_BIAS ? 1 : 0.99);
        expect_near(&b, "target_embedding.weight", spare & ATTN_NO_DECAY_EMBEDDING ? 1 : 0.99);
        attn_optimizer_free(b.optimizer);
        attn_gradients_free(b.gradients);
        attn_transformer_free(model);
    }
    attn_context_free(ctx);
}

static void test_clip(void **state)
{
    (void)state;
    bench b;
    attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAM);
    o.clip = 0.5;
    open_bench(&b, ATTN_BACKEND_REFERENCE, &o);
    double n = (double)attn_parameters_elements(b.parameters);
    set_all(&b, 0, 8); /* norm 4 sqrt(n) before, 0.5 after */
    step(&b, 2);
    assert_true(fabs(b.report.gradient_norm / (4 * sqrt(n)) - 1) < 1e-12);
    assert_true(fabs(((double *)b.optimizer->first)[0] / (0.1 * 0.5 / sqrt(n)) - 1) < 1e-12);
    close_bench(&b);
    open_bench(&b, ATTN_BACKEND_REFERENCE, &o);
    set_all(&b, 0, 0.1 / sqrt(n)); /* below the threshold: as it is */
    step(&b, 1);
    assert_true(fabs(((double *)b.optimizer->first)[0] / (0.1 * 0.1 / sqrt(n)) - 1) < 1e-12);
    set_all(&b, 1, 0); /* nothing to clip is no division by 0 */
    step(&b, 1);
    assert_true(b.report.gradient_norm == 0 && isfinite(value_of(&b, WEIGHT)));
    close_bench(&b);
}

static void test_not_finite(void **state)
{
    (void)state;
    const double bad[3] = {NAN, INFINITY, -INFINITY};
    for (int32_t backend = 0; backend < 2; backend++)
        for (int i = 0; i < 3; i++) {
            bench b;
            attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAMW);
            o.clip = 1;
            o.weight_decay = 0.1;
            open_bench(&b, backend, &o);
            set_all(&b, 1, 1);
            model_set(attn_gradients_tensor(b.gradients, 5), 1, bad[i]);
            step(&b, 1);
            assert_int_equal(b.report.skipped, 1);
            assert_true(!(b.report.gradient_norm <= 1e300));
            assert_int_equal(b.report.step, 0);
            size_t bytes = (size_t)b.parameters->flat_elements * (backend ? 8 : 4);
            for (int64_t p = 0; p < attn_parameters_count(b.parameters); p++)
                for (int64_t e = 0; e < model_elements(attn_parameters_tensor(b.parameters, p)); e++)
                    assert_true(model_get(attn_parameters_tensor(b.parameters, p), e) == 1);
            for (size_t e = 0; e < bytes; e++) assert_true(((char *)b.optimizer->first)[e] == 0 && ((char *)b.optimizer->second)[e] == 0);
            double norm;
            OK(b.ctx, attn_gradients_norm(b.ctx, b.gradients, &norm)); /* the bad gradient is gone */
            assert_true(norm == 0);
            close_bench(&b);
        }
}

/* frozen parameters stay, with their moments, and do not count in the norm, even when their gradient is not finite */
static void test_frozen(void **state)
{
    (void)state;
    bench b;
    attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAMW);
    o.weight_decay = 0.1;
    open_bench(&b, ATTN_BACKEND_BLAS, &o);
    set_all(&b, 1, 1);
    OK(b.ctx, attn_parameters_freeze(b.ctx, b.parameters, "*feed_forward*", 1, NULL));
    model_set(attn_gradients_tensor(b.gradients, attn_parameters_find(b.parameters, BIAS)), 0, NAN);
    step(&b, 1);
    assert_int_equal(b.report.skipped, 0);
    assert_true(value_of(&b, WEIGHT) == 1 && value_of(&b, BIAS) == 1 && value_of(&b, NORM) == 1);
    expect_near(&b, "layers.0.self_attention.query.weight", 0.89);

    /* their gradients stay as they are, whether the others lead to an update or are dropped */
    for (int finite = 0; finite < 2; finite++) {
        set_all(&b, 1, finite ? 1 : INFINITY);
        model_set(attn_gradients_tensor(b.gradients, attn_parameters_find(b.parameters, BIAS)), 0, 7);
        step(&b, 1);
        assert_int_equal(b.report.skipped, !finite);
        assert_true(model_get(attn_gradients_tensor(b.gradients, attn_parameters_find(b.parameters, BIAS)), 0) == 7);
        assert_true(
            model_get(attn_gradients_tensor(b.gradients, attn_parameters_find(b.parameters, "layers.0.self_attention.query.weight")), 0) ==
            0);
    }
    close_bench(&b);
}

/* the defaults are those of the header; a rate of 0 is one, at the start and later; a refused one changes nothing */
static void test_rates(void **state)
{
    (void)state;
    attn_optimizer_options o;
    assert_int_equal(attn_optimizer_options_init(&o, sizeof o), ATTN_OK);
    assert_true(o.optimizer == ATTN_OPTIMIZER_ADAM && o.no_decay == 0 && o.rate == 1e-3 && o.beta1 == 0.9 && o.beta2 == 0.999);
    assert_true(o.epsilon == 1e-8 && o.weight_decay == 0 && o.l2 == 0 && o.clip == 0);
    bench b;
    o.rate = 0;
    open_bench(&b, ATTN_BACKEND_BLAS, &o);
    assert_true(attn_optimizer_rate(b.optimizer) == 0);
    OK(b.ctx, attn_optimizer_set_rate(b.ctx, b.optimizer, 0.5));
    FAILS(b.ctx, attn_optimizer_set_rate(b.ctx, b.optimizer, INFINITY), ATTN_ERROR_INVALID_ARGUMENT, "rate");
    FAILS(b.ctx, attn_optimizer_set_rate(b.ctx, b.optimizer, -1e-300), ATTN_ERROR_INVALID_ARGUMENT, "rate");
    assert_true(attn_optimizer_rate(b.optimizer) == 0.5);
    OK(b.ctx, attn_optimizer_set_rate(b.ctx, b.optimizer, 0));
    assert_true(attn_optimizer_rate(b.optimizer) == 0);
    close_bench(&b);
}

/* whichever of its pieces finds no memory, nothing stays behind */
static void test_without_memory(void **state)
{
    (void)state;
    test_allocator allocator = {.only_once = 1};
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 1);
    attn_transformer_options m = model_options(1, 0);
    attn_encoder *encoder = NULL;
    attn_optimizer *made = NULL;
    OK(ctx, attn_encoder_create(ctx, &m, &encoder));
    const long long live = allocator.live_pointers;
    for (int piece = 1; piece <= 3; piece++) {
        allocator.fail_at = allocator.calls + piece;
        FAILS(ctx, attn_optimizer_create(ctx, attn_encoder_parameters(encoder), NULL, &made), ATTN_ERROR_OUT_OF_MEMORY, "optimizer");
        assert_null(made);
        assert_int_equal(allocator.live_pointers, live);
    }
    OK(ctx, attn_optimizer_create(ctx, attn_encoder_parameters(encoder), NULL, &made));
    attn_optimizer_free(made);
    attn_encoder_free(encoder);
    attn_context_free(ctx);
    assert_true(allocator.wrong == 0 && allocator.live_pointers == 0);
}

static void test_errors(void **state)
{
    (void)state;
    const struct {
        const char *field;
        size_t offset;
        double value;
    } wrong[] = {
        {"rate", offsetof(attn_optimizer_options, rate), -1},        {"rate", offsetof(attn_optimizer_options, rate), INFINITY},
        {"beta1", offsetof(attn_optimizer_options, beta1), 1},       {"beta2", offsetof(attn_optimizer_options, beta2), -0.1},
        {"epsilon", offsetof(attn_optimizer_options, epsilon), NAN}, {"weight_decay", offsetof(attn_optimizer_options, weight_decay), -1},
        {"l2", offsetof(attn_optimizer_options, l2), NAN},           {"clip", offsetof(attn_optimizer_options, clip), -1}};
    bench b, other;
    attn_optimizer *made;
    attn_optimizer_options o = recipe(ATTN_OPTIMIZER_ADAMW);
    open_bench(&b, ATTN_BACKEND_BLAS, &o);
    open_bench(&other, ATTN_BACKEND_BLAS, &o);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = recipe(ATTN_OPTIMIZER_ADAMW);
        memcpy((char *)&o + wrong[i].offset, &wrong[i].value, sizeof(double));
        FAILS(b.ctx, attn_optimizer_create(b.ctx, b.parameters, &o, &made), ATTN_ERROR_INVALID_ARGUMENT, wrong[i].field);
        assert_null(made);
    }
    o = recipe(7);
    FAILS(b.ctx, attn_optimizer_create(b.ctx, b.parameters, &o, &made), ATTN_ERROR_INVALID_ARGUMENT, "optimizer");
    o = recipe(ATTN_OPTIMIZER_ADAM);
    o.weight_decay = 0.1;
    FAILS(b.ctx, attn_optimizer_create(b.ctx, b.parameters, &o, &made), ATTN_ERROR_INVALID_ARGUMENT, "weight_decay");
    o.weight_decay = 0;
    o.no_decay = 8;
    FAILS(b.ctx, attn_optimizer_create(b.ctx, b.parameters, &o, &made), ATTN_ERROR_INVALID_ARGUMENT, "no_decay");
    FAILS(b.ctx, attn_optimizer_create(b.ctx, NULL, NULL, &made), ATTN_ERROR_INVALID_ARGUMENT, "parameters");
    FAILS(b.ctx, attn_optimizer_step(b.ctx, b.optimizer, other.gradients, 1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "gradients");
    FAILS(b.ctx, attn_optimizer_step(b.ctx, b.optimizer, b.gradients, 0, NULL), ATTN_ERROR_INVALID_ARGUMENT, "divisor");
    FAILS(b.ctx, attn_optimizer_step(b.ctx, b.optimizer, b.gradients, NAN, NULL), ATTN_ERROR_INVALID_ARGUMENT, "divisor");
    FAILS(b.ctx, attn_optimizer_set_rate(b.ctx, b.optimizer, NAN), ATTN_ERROR_INVALID_ARGUMENT, "rate");
    assert_true(attn_optimizer_rate(b.optimizer) == 0.1 && isnan(attn_optimizer_rate(NULL)));
    attn_optimizer_free(NULL);
    close_bench(&b);
    close_bench(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),    cmocka_unit_test(test_decay),          cmocka_unit_test(test_decay_of_a_model),
        cmocka_unit_test(test_clip),      cmocka_unit_test(test_not_finite),     cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_rates),     cmocka_unit_test(test_without_memory), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_no_epsilon)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

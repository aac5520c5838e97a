#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "variants.h"

/* One run of one model: loss and gradients. A model without an output head is run for the sum of its rows, weighted. */
typedef struct run {
    attn_context *ctx;
    attn_transformer_options options;
    attn_transformer *model;
    attn_parameters *parameters;
    attn_gradients *gradients;
    attn_tape *tape;
    attn_tensor *loss, *output;
    model_batch batch;
    double value;
} run;

enum { SEQUENCES = 6 };
/* an empty source, both empty, one token, more target than source, and the reverse */
static const int64_t source_lengths[SEQUENCES] = {3, 0, 7, 0, 1, 2}, target_lengths[SEQUENCES] = {5, 2, 1, 0, 3, 7};

static void open_run(run *r, int32_t backend, int32_t threads, const attn_transformer_options *o)
{
    memset(r, 0, sizeof *r);
    r->ctx = model_context(backend, threads, 0);
    r->options = *o;
    r->model = model_create(r->ctx, o);
    r->parameters = attn_transformer_parameters(r->model);
    model_batch_open(r->ctx, &r->batch, o, SEQUENCES, source_lengths, target_lengths, 3);
    OK(r->ctx, attn_gradients_create(r->ctx, r->parameters, &r->gradients));
    OK(r->ctx, attn_tape_create(r->ctx, &r->tape));
    int64_t width = o->decoder_layers > 0 && o->decoder_width != ATTN_DERIVED ? o->decoder_width : o->width;
    if (o->output_head) width = o->target_vocabulary == ATTN_DERIVED ? o->source_vocabulary : o->target_vocabulary;
    r->output = model_tensor(r->ctx, o->dtype, r->batch.rows, width);
    r->loss = model_tensor(r->ctx, o->dtype, 1, 0);
}

static void close_run(run *r)
{
    attn_tensor_free(r->loss);
    attn_tensor_free(r->output);
    attn_tape_free(r->tape);
    attn_gradients_free(r->gradients);
    model_batch_close(&r->batch);
    attn_transformer_free(r->model);
    attn_context_free(r->ctx);
}

static void begin(run *r)
{
    attn_tape_options o;
    OK(r->ctx, attn_tape_options_init(&o, sizeof o));
    o.training = 1;
    o.seed = 11;
    o.step = 2;
    OK(r->ctx, attn_tape_begin(r->ctx, r->tape, &o));
}

static double weight_of(int64_t i)
{
    return (double)(i % 7) / 4 - 0.7;
}

static void forward(run *r)
{
    begin(r);
    if (r->options.output_head) {
        attn_cross_entropy_options o;
        OK(r->ctx, attn_cross_entropy_options_init(&o, sizeof o));
        o.label_smoothing = 0.1;
        OK(r->ctx, attn_transformer_loss(r->ctx, r->model, r->tape, &r->batch.batch, &o, r->loss, NULL));
        r->value = model_get(r->loss, 0);
        return;
    }
    OK(r->ctx, attn_transformer_forward(r->ctx, r->model, r->tape, &r->batch.batch, r->output));
    r->value = 0;
    for (int64_t i = 0; i < model_elements(r->output); i++) r->value += weight_of(i) * model_get(r->output, i);
}

static void backward(run *r)
{
    const attn_tensor *output = r->options.output_head ? r->loss : r->output, *along = NULL;
    forward(r);
    OK(r->ctx, attn_gradients_zero(r->ctx, r->gradients));
    attn_tensor *weights = NULL;
    if (!r->options.output_head) {
        weights = model_tensor(r->ctx, r->options.dtype, attn_tensor_extent(r->output, 0), attn_tensor_extent(r->output, 1));
        for (int64_t i = 0; i < model_elements(weights); i++) model_set(weights, i, weight_of(i));
        along = weights;
    }
    OK(r->ctx, attn_tape_backward(r->ctx, r->tape, 1, &output, along ? &along : NULL, 1, &r->gradients));
    attn_tensor_free(weights);
}

static double largest(const attn_tensor *t)
{
    double most = 0;
    for (int64_t i = 0; i < model_elements(t); i++) most = fmax(most, fabs(model_get(t, i)));
    return most;
}

/* the largest difference, relative to the largest number; infinity when there is a NaN */
static double apart(const attn_tensor *a, const attn_tensor *b)
{
    double worst = 0, most = fmax(largest(b), 1e-30);
    for (int64_t i = 0; i < model_elements(a); i++) {
        double d = fabs(model_get(a, i) - model_get(b, i));
        if (!(d <= worst)) worst = isfinite(d) ? d : INFINITY;
    }
    return worst / most;
}

/* over all parameters, whose places in the flat buffer differ with the dtype */
static double gradients_apart(const run *a, const run *b)
{
    double worst = 0, most = fmax(largest(attn_gradients_flat(b->gradients)), 1e-30);
    for (int64_t i = 0; i < attn_parameters_count(a->parameters); i++) {
        const attn_tensor *x = attn_gradients_tensor(a->gradients, i), *y = attn_gradients_tensor(b->gradients, i);
        worst = fmax(worst, apart(x, y) * fmax(largest(y), 1e-30) / most);
    }
    return worst;
}

/* what a variant is compared with: one table of bounds */
static const struct pair {
    int32_t backend, dtype;
    double within;
    const char *name;
} pairs[] = {{ATTN_BACKEND_BLAS, ATTN_FLOAT32, 2e-5, "BLAS"}, {ATTN_BACKEND_REFERENCE, ATTN_FLOAT32, 2e-5, "reference float32"}};

static void crosscheck(const variant *v, double dropout)
{
    const attn_transformer_options wide = variant_options(v, ATTN_FLOAT64, dropout);
    run exact;
    open_run(&exact, ATTN_BACKEND_REFERENCE, 1, &wide);
    backward(&exact);
    OK(exact.ctx, attn_transformer_forward(exact.ctx, exact.model, NULL, &exact.batch.batch, exact.output));
    assert_true(isfinite(exact.value) && largest(attn_gradients_flat(exact.gradients)) > 0);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const attn_transformer_options o = variant_options(v, pairs[i].dtype, dropout);
        run other;
        open_run(&other, pairs[i].backend, 2, &o);
        backward(&other);
        double value = fabs(other.value - exact.value) / fmax(fabs(exact.value), 1), gradients = gradients_apart(&other, &exact);
        for (int64_t e = 0; e < model_elements(other.output); e++) model_set(other.output, e, NAN); /* everything is written */
        OK(other.ctx, attn_transformer_forward(other.ctx, other.model, NULL, &other.batch.batch, other.output));
        double logits = apart(other.output, exact.output);
        if (!(value <= pairs[i].within && gradients <= pairs[i].within && logits <= pairs[i].within))
            fail_msg("%s, dropout %g, %s: loss %g, gradients %g, output %g apart", v->name, dropout, pairs[i].name, value, gradients,
                     logits);
        close_run(&other);
    }
    close_run(&exact);
}

static void test_crosscheck(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        crosscheck(&variants[i], 0);
        crosscheck(&variants[i], 0.3);
    }
}

/* the derivative along a random direction within one parameter, against the gradient */
static double direction_error(run *r, int64_t index, random_state *random)
{
    const double h = 1e-5;
    attn_tensor *p = attn_parameters_tensor(r->parameters, index), *g = attn_gradients_tensor(r->gradients, index);
    int64_t n = model_elements(p);
    double *at = attn_tensor_data(p), *kept = malloc((size_t)n * sizeof *kept), *along = malloc((size_t)n * sizeof *along), want = 0,
           norm = 0, value[2];
    assert_true(kept != NULL && along != NULL);
    memcpy(kept, at, (size_t)n * sizeof *kept);
    for (int64_t e = 0; e < n; e++) {
        along[e] = random_number(random, -1, 1);
        want += along[e] * model_get(g, e);
        norm += model_get(g, e) * model_get(g, e);
    }
    for (int side = 0; side < 2; side++) {
        for (int64_t e = 0; e < n; e++) at[e] = kept[e] + (side ? -h : h) * along[e];
        forward(r);
        value[side] = r->value;
    }
    memcpy(at, kept, (size_t)n * sizeof *kept);
    free(kept);
    free(along);
    return fabs((value[0] - value[1]) / (2 * h) - want) / fmax(sqrt(norm), 1e-2);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++)
        for (int drop = 0; drop < 2; drop++) {
            const attn_transformer_options o = variant_options(&variants[i], ATTN_FLOAT64, drop ? 0.3 : 0);
            random_state random = {(uint64_t)i};
            run r;
            open_run(&r, ATTN_BACKEND_REFERENCE, 1, &o);
            backward(&r);
            for (int64_t p = 0; p < attn_parameters_count(r.parameters); p++) {
                double error = direction_error(&r, p, &random);
                if (!(error <= 1e-6))
                    fail_msg("%s, dropout %d: the gradient of %s is off by %g", variants[i].name, drop,
                             attn_parameters_name(r.parameters, p), error);
            }
            /* a wrong gradient is noticed */
            int64_t last = attn_parameters_count(r.parameters) - 1;
            attn_tensor *g = attn_gradients_tensor(r.gradients, last);
            for (int64_t e = 0; e < model_elements(g); e++) model_set(g, e, model_get(g, e) * 1.001 + 1e-3);
            assert_true(direction_error(&r, last, &random) > 1e-6);
            close_run(&r);
        }
}

static int same_run(const run *a, const run *b)
{
    attn_tensor *x = attn_gradients_flat(a->gradients), *y = attn_gradients_flat(b->gradients);
    return a->value == b->value && memcmp(attn_tensor_data(x), attn_tensor_data(y), (size_t)model_elements(x) * 4) == 0;
}

/* layers that run again, and other numbers of threads: the same bits, dropout on */
static void test_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        attn_transformer_options o = variant_options(&variants[i], ATTN_FLOAT32, 0.3);
        run a, b, c;
        o.checkpoint_layers = 0;
        open_run(&a, ATTN_BACKEND_BLAS, 1, &o);
        open_run(&b, ATTN_BACKEND_BLAS, 2, &o);
        o.checkpoint_layers = 1;
        open_run(&c, ATTN_BACKEND_BLAS, 2, &o);
        backward(&a);
        backward(&b);
        backward(&c);
        backward(&c); /* a second round is as the first */
        if (!same_run(&a, &b)) fail_msg("%s: threads change the bits", variants[i].name);
        if (!same_run(&a, &c))
            fail_msg("%s: checkpoint_layers changes the bits, the loss by %g and gradients by %g", variants[i].name, c.value - a.value,
                     gradients_apart(&a, &c));
        close_run(&a);
        close_run(&b);
        close_run(&c);
    }
}

/* a sequence's rows do not depend on its neighbours: each alone gives what it gives in the batch */
static void test_sequences_are_apart(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        const attn_transformer_options o = variant_options(&variants[i], ATTN_FLOAT32, 0.3);
        run all;
        int64_t source = 0, target = 0;
        open_run(&all, ATTN_BACKEND_BLAS, 2, &o);
        OK(all.ctx, attn_transformer_forward(all.ctx, all.model, NULL, &all.batch.batch, all.output));
        for (int s = 0; s < SEQUENCES; s++) {
            attn_batch one = all.batch.batch;
            int64_t first = o.decoder_layers > 0 ? target : source, rows = o.decoder_layers > 0 ? target_lengths[s] : source_lengths[s];
            int64_t width = attn_tensor_extent(all.output, 1);
            attn_tensor *s_tokens = model_tensor(all.ctx, ATTN_INT64, source_lengths[s], 0),
                        *t_tokens = model_tensor(all.ctx, ATTN_INT32, target_lengths[s], 1);
            attn_tensor *output = model_tensor(all.ctx, ATTN_FLOAT32, rows, width), *part = NULL;
            for (int64_t e = 0; all.batch.source && e < source_lengths[s]; e++)
                model_set(s_tokens, e, model_get(all.batch.source, source + e));
            for (int64_t e = 0; all.batch.target && e < target_lengths[s]; e++)
                model_set(t_tokens, e, model_get(all.batch.target, target + e));
            one.source = s_tokens; /* int64 and [rows, 1] are tokens too; no layouts: one segment of all rows */
            one.target = t_tokens;
            one.source_layout = one.target_layout = NULL;
            OK(all.ctx, attn_transformer_forward(all.ctx, all.model, NULL, &one, output));
            const int64_t shape[2] = {rows, width};
            OK(all.ctx,
               attn_tensor_wrap(all.ctx, ATTN_FLOAT32, 2, shape, NULL, (float *)attn_tensor_data(all.output) + first * width, &part));
            if (!(apart(output, part) <= 2e-5)) fail_msg("%s: sequence %d alone differs by %g", variants[i].name, s, apart(output, part));
            attn_tensor_free(part);
            attn_tensor_free(output);
            attn_tensor_free(s_tokens);
            attn_tensor_free(t_tokens);
            source += source_lengths[s];
            target += target_lengths[s];
        }
        close_run(&all);
    }
}

/* a mask of one layer, of all, and back to the usual one; a decoder is causal by itself */
static void test_masks(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(1, 2);
    run r;
    attn_mask *window = NULL, *causal = NULL;
    attn_tensor *usual;
    open_run(&r, ATTN_BACKEND_BLAS, 2, &o);
    usual = model_tensor(r.ctx, ATTN_FLOAT32, r.batch.rows, 11);
    OK(r.ctx, attn_mask_window(r.ctx, ATTN_ALIGN_LAST, 1, 0, 1, &window));
    OK(r.ctx, attn_mask_causal(r.ctx, ATTN_ALIGN_LAST, &causal));
    OK(r.ctx, attn_transformer_forward(r.ctx, r.model, NULL, &r.batch.batch, usual));
    const struct {
        int32_t decoder;
        int64_t layer;
        attn_mask *mask;
        int same;
    } steps[] = {{1, -1, causal, 1}, {1, 1, window, 0},  {1, 1, NULL, 1}, {0, -1, causal, 0},
                 {0, 0, NULL, 1},    {1, -1, window, 0}, {1, -1, NULL, 1}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        OK(r.ctx, attn_transformer_set_mask(r.ctx, r.model, steps[i].decoder, steps[i].layer, steps[i].mask));
        OK(r.ctx, attn_transformer_forward(r.ctx, r.model, NULL, &r.batch.batch, r.output));
        assert_int_equal(apart(r.output, usual) < 1e-6, steps[i].same);
    }
    FAILS(r.ctx, attn_transformer_set_mask(r.ctx, r.model, 1, 2, window), ATTN_ERROR_INVALID_ARGUMENT, "layer");
    FAILS(r.ctx, attn_transformer_set_mask(r.ctx, NULL, 1, 0, window), ATTN_ERROR_INVALID_ARGUMENT, "model");
    attn_mask_free(window); /* the model needs none of the caller's holds */
    attn_mask_free(causal);
    backward(&r);
    attn_tensor_free(usual);
    close_run(&r);
    o = model_options(0, 1);
    open_run(&r, ATTN_BACKEND_BLAS, 1, &o);
    FAILS(r.ctx, attn_transformer_set_mask(r.ctx, r.model, 0, 0, NULL), ATTN_ERROR_INVALID_ARGUMENT, "encoder");
    close_run(&r);
}

static void test_errors(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(1, 1);
    run r;
    open_run(&r, ATTN_BACKEND_BLAS, 1, &o);
    attn_context *ctx = r.ctx;
    attn_batch b = r.batch.batch;
    for (int64_t e = 0; e < model_elements(r.output); e++) model_set(r.output, e, 7);
    FAILS(ctx, attn_transformer_forward(ctx, NULL, NULL, &b, r.output), ATTN_ERROR_INVALID_ARGUMENT, "model");
    FAILS(ctx, attn_transformer_forward(ctx, r.model, NULL, NULL, r.output), ATTN_ERROR_INVALID_ARGUMENT, "batch");
    FAILS(ctx, attn_transformer_forward(ctx, r.model, NULL, &b, NULL), ATTN_ERROR_INVALID_ARGUMENT, "output");
    FAILS(ctx, attn_transformer_forward(ctx, r.model, NULL, &b, r.loss), ATTN_ERROR_SHAPE, "output");
    b.source = NULL;
    FAILS(ctx, attn_transformer_forward(ctx, r.model, NULL, &b, r.output), ATTN_ERROR_INVALID_ARGUMENT, "source");
    b.source = r.output;
    FAILS(ctx, attn_transformer_forward(ctx, r.model, NULL, &b, r.output), ATTN_ERROR_DTYPE, "source");
    b = r.batch.batch;
    b.source_layout = b.target_layout;
    FAILS(ctx, attn_transformer_forward(ctx, r.model, NULL, &b, r.output), ATTN_ERROR_SHAPE, "source_layout");
    b.source_layout = NULL; /* one segment against six */
    FAILS(ctx, attn_transformer_forward(ctx, r.model, NULL, &b, r.output), ATTN_ERROR_SHAPE, "target_layout");
    b = r.batch.batch;
    const double kept = model_get(r.batch.target, 1), bad[3] = {-1, 11, 2147483647};
    for (int i = 0; i < 3; i++) {
        model_set(r.batch.target, 1, bad[i]);
        FAILS(ctx, attn_transformer_forward(ctx, r.model, NULL, &b, r.output), ATTN_ERROR_INVALID_ARGUMENT, "1");
    }
    model_set(r.batch.target, 1, kept);
    b.labels = NULL;
    FAILS(ctx, attn_transformer_loss(ctx, r.model, NULL, &b, NULL, r.loss, NULL), ATTN_ERROR_INVALID_ARGUMENT, "labels");
    for (int64_t e = 0; e < model_elements(r.output); e++) assert_true(model_get(r.output, e) == 7); /* nothing was written */
    FAILS(ctx, attn_transformer_loss(ctx, r.model, NULL, &r.batch.batch, NULL, NULL, NULL), ATTN_ERROR_INVALID_ARGUMENT, "loss");
    close_run(&r);
    o.output_head = 0;
    open_run(&r, ATTN_BACKEND_BLAS, 1, &o);
    FAILS(r.ctx, attn_transformer_loss(r.ctx, r.model, NULL, &r.batch.batch, NULL, r.loss, NULL), ATTN_ERROR_BAD_STATE, "output head");
    close_run(&r);
    /* learned positions end */
    o = model_options(0, 1);
    o.positions = ATTN_POSITIONS_LEARNED;
    o.context = 6;
    open_run(&r, ATTN_BACKEND_BLAS, 1, &o);
    FAILS(r.ctx, attn_transformer_forward(r.ctx, r.model, NULL, &r.batch.batch, r.output), ATTN_ERROR_INVALID_ARGUMENT, "position");
    close_run(&r);
    /* a sequence without tokens has none, wherever it would begin */
    o.context = 7;
    open_run(&r, ATTN_BACKEND_BLAS, 1, &o);
    attn_segment at[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) OK(r.ctx, attn_layout_get(r.ctx, r.batch.target_layout, i, &at[i]));
    at[3].first_position = 1000;
    OK(r.ctx, attn_layout_set(r.ctx, r.batch.target_layout, SEQUENCES, at));
    OK(r.ctx, attn_transformer_forward(r.ctx, r.model, NULL, &r.batch.batch, r.output));
    close_run(&r);
    /* float64 needs the reference backend */
    attn_transformer *model = NULL;
    attn_context *blas = model_context(ATTN_BACKEND_BLAS, 1, 0);
    o = model_options(0, 1);
    o.dtype = ATTN_FLOAT64;
    FAILS(blas, attn_transformer_create(blas, &o, &model), ATTN_ERROR_UNSUPPORTED, "reference");
    assert_null(model);
    attn_context_free(blas);
    attn_transformer_free(NULL);
    assert_null(attn_transformer_parameters(NULL));
}

/* creation that runs out of memory at any point gives an error and leaks nothing */
static void test_creation_without_memory(void **state)
{
    (void)state;
    test_allocator counted;
    memset(&counted, 0, sizeof counted);
    attn_transformer_options o = variant_options(&variants[1], ATTN_FLOAT32, 0);
    o.embedding_norm = 1;
    attn_context *ctx = model_context_counted(&counted, ATTN_BACKEND_BLAS, 1);
    long long live = counted.live_pointers;
    counted.only_once = 1;
    int failures = 0;
    for (int at = 1;; at++) {
        attn_transformer *model = NULL;
        counted.fail_at = counted.calls + at;
        attn_status status = attn_transformer_create(ctx, &o, &model);
        int reached = counted.calls >= counted.fail_at;
        counted.fail_at = 0;
        if (status != ATTN_OK) {
            assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
            assert_null(model);
            failures++;
        }
        attn_transformer_free(model);
        if (!reached) break;
    }
    assert_true(failures > 20);
    attn_context_free(ctx);
    (void)live;
    assert_int_equal(counted.live_pointers, 0);
    assert_int_equal(counted.wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crosscheck),
                                       cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_sequences_are_apart),
                                       cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_creation_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

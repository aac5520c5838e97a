/* Models of drawn options: what must hold of every model, whatever its switches are together. */
#include <stdio.h>
#include <unistd.h>
#include "generation/fixture.h"
#include "models/drawn.h"

enum { DRAWS = 150, SEQUENCES = 3, VOCABULARY = 11 };

/* unequal sequences, an empty source and an empty target among them */
static const int64_t sources[SEQUENCES] = {4, 0, 7}, targets[SEQUENCES] = {5, 2, 0};

typedef struct run {
    attn_context *ctx;
    attn_transformer *model;
    attn_parameters *parameters;
    attn_gradients *gradients;
    attn_tensor *output, *along;
    attn_tape *tape;
    model_batch batch;
    int has_loss;
} run;

static int64_t width_of(const attn_transformer_options *o)
{
    if (o->output_head) return VOCABULARY;
    return o->decoder_layers > 0 && o->decoder_width != ATTN_DERIVED ? o->decoder_width : o->width;
}

/* 0: no such model */
static int open_run(run *r, int32_t backend, int32_t threads, const attn_transformer_options *o)
{
    memset(r, 0, sizeof *r);
    r->ctx = model_context(backend, threads, 0);
    if (attn_transformer_create(r->ctx, o, &r->model) != ATTN_OK) {
        printf("   refused: %s\n", attn_context_last_error(r->ctx));
        attn_context_free(r->ctx);
        return 0;
    }
    r->parameters = attn_transformer_parameters(r->model);
    model_scramble(r->parameters, 7);
    r->has_loss = o->output_head;
    OK(r->ctx, attn_gradients_create(r->ctx, r->parameters, &r->gradients));
    OK(r->ctx, attn_tape_create(r->ctx, &r->tape));
    model_batch_open(r->ctx, &r->batch, o, SEQUENCES, sources, targets, 3);
    r->output = r->has_loss ? model_tensor(r->ctx, o->dtype, 1, 0) : model_tensor(r->ctx, o->dtype, r->batch.rows, width_of(o));
    r->along = r->has_loss ? model_tensor(r->ctx, o->dtype, 1, 0) : model_tensor(r->ctx, o->dtype, r->batch.rows, width_of(o));
    for (int64_t i = 0; i < model_elements(r->along); i++) model_set(r->along, i, r->has_loss ? 1 : (double)(i % 7) / 4 - 0.7);
    return 1;
}

static void close_run(run *r)
{
    attn_tensor_free(r->output);
    attn_tensor_free(r->along);
    attn_tape_free(r->tape);
    attn_gradients_free(r->gradients);
    model_batch_close(&r->batch);
    attn_transformer_free(r->model);
    attn_context_free(r->ctx);
}

/* the loss, or the weighted sum of the rows of a model without one */
static double value(run *r)
{
    const attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 11};
    double sum = 0;
    OK(r->ctx, attn_tape_begin(r->ctx, r->tape, &training));
    if (r->has_loss)
        OK(r->ctx, attn_transformer_loss(r->ctx, r->model, r->tape, &r->batch.batch, NULL, r->output, NULL));
    else
        OK(r->ctx, attn_transformer_forward(r->ctx, r->model, r->tape, &r->batch.batch, r->output));
    for (int64_t i = 0; i < model_elements(r->output); i++) sum += model_get(r->output, i) * model_get(r->along, i);
    return sum;
}

static double backward(run *r)
{
    const double got = value(r);
    OK(r->ctx, attn_gradients_zero(r->ctx, r->gradients));
    OK(r->ctx, attn_tape_backward(r->ctx, r->tape, 1, (const attn_tensor *const[]){r->output}, (const attn_tensor *const[]){r->along}, 1,
                                  &r->gradients));
    return got;
}

/* all parameters by `step` along a random direction; what the gradient says of that */
static double move(run *r, double step)
{
    random_state random = {21};
    double slope = 0;
    for (int64_t i = 0; i < attn_parameters_count(r->parameters); i++) {
        attn_tensor *w = attn_parameters_tensor(r->parameters, i), *g = attn_gradients_tensor(r->gradients, i);
        for (int64_t e = 0; e < model_elements(w); e++) {
            const double along = random_number(&random, -1, 1);
            slope += along * model_get(g, e);
            model_set(w, e, model_get(w, e) + step * along);
        }
    }
    return slope;
}

/* the gradient is that of the loss: differences of fourth order, as scores of normed queries and keys bend */
static void expect_slope(run *r)
{
    const double step = 1e-5;
    static const double places[4] = {1, -1, 2, -2}, factors[4] = {8, -8, -1, 1};
    double difference = 0, slope = 0;
    backward(r);
    for (int i = 0; i < 4; i++) {
        slope = move(r, places[i] * step);
        difference += factors[i] * value(r) / (12 * step);
        model_scramble(r->parameters, 7); /* as they were, to the bit */
    }
    if (!(fabs(difference - slope) <= 1e-6 * (1 + fabs(slope)))) fail_msg("the slope is %.12g, the gradient says %.12g", difference, slope);
}

static int64_t bytes_of(const attn_tensor *t)
{
    return model_elements(t) * (attn_tensor_dtype(t) == ATTN_FLOAT64 ? 8 : 4);
}

static void expect_same(const run *a, const run *b, double within, const char *what)
{
    attn_tensor *x = attn_gradients_flat(a->gradients), *y = attn_gradients_flat(b->gradients);
    if (within == 0) {
        if (memcmp(attn_tensor_data(a->output), attn_tensor_data(b->output), (size_t)bytes_of(a->output)) != 0)
            fail_msg("%s: another output", what);
        if (memcmp(attn_tensor_data(x), attn_tensor_data(y), (size_t)bytes_of(x)) != 0) fail_msg("%s: other gradients", what);
        return;
    }
    double most = 1e-3, worst = 0;
    for (int64_t i = 0; i < attn_parameters_count(a->parameters); i++) {
        const attn_tensor *g = attn_gradients_tensor(a->gradients, i), *h = attn_gradients_tensor(b->gradients, i);
        for (int64_t e = 0; e < model_elements(g); e++) {
            const double apart = fabs(model_get(g, e) - model_get(h, e));
            most = fmax(most, fabs(model_get(h, e)));
            if (!(apart <= worst)) worst = isfinite(apart) ? apart : INFINITY;
        }
    }
    if (!(worst <= within * most)) fail_msg("%s: gradients up to %g are %g apart", what, most, worst);
    for (int64_t e = 0; e < model_elements(a->output); e++)
        if (!(fabs(model_get(a->output, e) - model_get(b->output, e)) <= within * (1 + fabs(model_get(b->output, e)))))
            fail_msg("%s: output %d is %.9g, expected %.9g", what, (int)e, model_get(a->output, e), model_get(b->output, e));
}

/* from its file: the same parameters, the same numbers */
static void expect_file(run *r, const attn_transformer_options *o)
{
    char path[64];
    attn_transformer *again = NULL;
    attn_tensor *want = model_tensor(r->ctx, o->dtype, r->batch.rows, width_of(o)),
                *got = model_tensor(r->ctx, o->dtype, r->batch.rows, width_of(o));
    snprintf(path, sizeof path, "models-drawn-%d.safetensors", (int)getpid());
    OK(r->ctx, attn_transformer_save(r->ctx, r->model, 0, NULL, NULL, path));
    OK(r->ctx, attn_transformer_load(r->ctx, path, NULL, &again));
    remove(path);
    assert_true(model_same_bits(r->parameters, attn_transformer_parameters(again)));
    OK(r->ctx, attn_transformer_forward(r->ctx, r->model, NULL, &r->batch.batch, want));
    OK(r->ctx, attn_transformer_forward(r->ctx, again, NULL, &r->batch.batch, got));
    assert_memory_equal(attn_tensor_data(want), attn_tensor_data(got), (size_t)bytes_of(want));
    attn_tensor_free(want);
    attn_tensor_free(got);
    attn_transformer_free(again);
}

/* steps of a session are the whole text's */
static int expect_steps(const attn_transformer_options *o)
{
    const int64_t prompts[SEQUENCES] = {3, 1, 4};
    attn_generator_options g = defaults(SEQUENCES, 9);
    attn_context *ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    attn_transformer *model = model_create(ctx, o);
    attn_generator *made = NULL;
    const int can = attn_generator_create(ctx, model, &g, &made) == ATTN_OK;
    attn_generator_free(made);
    attn_transformer_free(model);
    attn_context_free(ctx);
    if (!can) return 0;
    session s;
    random_state random = {5};
    open_session(&s, ATTN_BACKEND_REFERENCE, o, &g, sources, prompts);
    for (int again = 0; again < 2; again++) {
        for (int64_t i = 0; i < SEQUENCES; i++) s.lengths[i] = prompts[i];
        prompt(&s);
        for (int step = 0; step < 4; step++) {
            int32_t tokens[SEQUENCES];
            expect_recomputed(&s, 1e-11, "a step");
            for (int64_t i = 0; i < SEQUENCES; i++)
                tokens[i] = s.tokens[i][s.lengths[i]++] = (int32_t)random_integer(&random, 0, VOCABULARY);
            OK(s.ctx, attn_generator_accept(s.ctx, s.generator, SEQUENCES, tokens));
        }
    }
    close_session(&s);
    return 1;
}

/* in float32 by BLAS: near the reference, for any number of threads the same; and the gradient does not depend on what layers keep */
static void expect_others(const run *r, const attn_transformer_options *o)
{
    attn_transformer_options single = *o, kept = *o;
    run blas, alone, other;
    single.dtype = ATTN_FLOAT32;
    kept.checkpoint_layers = !o->checkpoint_layers;
    assert_true(open_run(&blas, ATTN_BACKEND_BLAS, 3, &single) && open_run(&alone, ATTN_BACKEND_BLAS, 1, &single));
    backward(&blas);
    backward(&alone);
    expect_same(&blas, &alone, 0, "three threads and one");
    expect_same(&blas, r, o->query_key_norm ? 2e-3 : 2e-4, "BLAS"); /* short queries that are made long again lose digits */
    close_run(&blas);
    close_run(&alone);
    if (!open_run(&other, ATTN_BACKEND_REFERENCE, 1, &kept)) return;
    backward(&other);
    expect_same(&other, r, 0, "layers run again");
    close_run(&other);
}

/* a third of the parameters frozen, whatever products that breaks up: the others have the gradients they had, and the output is as it was */
static void expect_frozen(const run *r, const attn_transformer_options *o, int64_t number)
{
    random_state random = {(uint64_t)number};
    run some;
    assert_true(open_run(&some, ATTN_BACKEND_REFERENCE, 1, o));
    for (int64_t i = 0; i < attn_parameters_count(some.parameters); i++) {
        attn_tensor *g = attn_gradients_tensor(r->gradients, i);
        if (!drawn_once_in(&random, 3)) continue;
        OK(some.ctx, attn_parameters_freeze(some.ctx, some.parameters, attn_parameters_name(some.parameters, i), 1, NULL));
        for (int64_t e = 0; e < model_elements(g); e++) model_set(g, e, 0);
    }
    backward(&some);
    expect_same(&some, r, 1e-9, "frozen");
    close_run(&some);
}

static void test_drawn(void **state)
{
    int64_t first = drawn_first(), end = drawn_end(DRAWS), made = 0, decoded = 0;
    (void)state;
    for (int64_t i = first; i < end; i++) {
        const attn_transformer_options o = drawn_options(i);
        run r;
        if (!open_run(&r, ATTN_BACKEND_REFERENCE, 1, &o)) continue;
        made++;
        expect_slope(&r);
        backward(&r);
        expect_others(&r, &o);
        expect_file(&r, &o);
        expect_frozen(&r, &o, i);
        close_run(&r);
        if (o.decoder_layers > 0 && o.output_head) decoded += expect_steps(&o);
    }
    printf("%d of %d made, %d decoded\n", (int)made, (int)(end - first), (int)decoded);
    if (end - first >= DRAWS) assert_true(made > (end - first) / 3 && decoded > made / 3); /* refusals are no rule */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What is taken for a layer, or for a model of an ensemble, is given back before the next: more of the same take no more temporary memory.
   Foretold and measured memory grow together where this fails, so that their comparison does not notice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "models/drawn.h"
#include "models/report.h"
#include "models/transformer.h"
#include "tensor/layout.h"

enum { DRAWS = 150, ROWS = 60, LONGEST = 12, BEAM = 2, FEW = 2, MANY = 5 };

typedef struct needs {
    attn__need training, inference, decoding;
} needs;

/* 0: a model that is not to be had */
static int read_needs(attn_context *ctx, attn_transformer_options o, int64_t layers, needs *n)
{
    attn_transformer *model = NULL;
    attn_layout *layout = NULL;
    attn__reading reading;
    attn__dry dry;
    memset(n, 0, sizeof *n);
    memset(&reading, 0, sizeof reading);
    if (o.encoder_layers > 0) o.encoder_layers = layers;
    if (o.decoder_layers > 0) o.decoder_layers = layers;
    if (attn_transformer_create(ctx, &o, &model) != ATTN_OK) return 0;
    const attn__transformer_plan *plan = attn__transformer_plan_of(model);
    OK(ctx, attn__training_need(ctx, plan, ROWS, LONGEST, &n->training));
    OK(ctx, attn__dry_open(ctx, &plan->options, NULL, &dry));
    OK(ctx, attn__rows_layout(&dry, ROWS, LONGEST, &layout));
    const attn__segments segments = attn__layout_segments(layout);
    OK(ctx, attn__read_batch(ctx, &dry, 0, segments, segments, &reading));
    n->inference = reading.need;
    if (plan->has_decoder && plan->has_output) OK(ctx, attn__decoding_need(ctx, plan, segments, segments, BEAM, LONGEST, &n->decoding));
    attn_layout_free(layout);
    attn__dry_close(&dry);
    attn_transformer_free(model);
    return 1;
}

static void expect_same(const char *what, const attn__need *few, const attn__need *many)
{
    if (few->scratch != many->scratch)
        fail_msg("%s: %d bytes of scratch with %d layers, %d with %d", what, (int)few->scratch, FEW, (int)many->scratch, MANY);
    assert_int_equal(few->worker, many->worker);
}

static void test_layers(void **state)
{
    int64_t seen = 0;
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    for (int64_t i = drawn_first(); i < drawn_end(DRAWS); i++) {
        attn_transformer_options o = drawn_options(i);
        needs few, many;
        o.dtype = ATTN_FLOAT32;
        if (!read_needs(ctx, o, FEW, &few) || !read_needs(ctx, o, MANY, &many)) continue;
        expect_same("training", &few.training, &many.training);
        seen++;
        /* the steps of a recurrent decoder keep the rows of all layers in a forward */
        if (o.recurrence != ATTN_RECURRENCE_NONE && o.decoder_layers > 0) continue;
        expect_same("forward", &few.inference, &many.inference);
        expect_same("decoding", &few.decoding, &many.decoding);
    }
    attn_context_free(ctx);
    printf("%d models\n", (int)seen);
}

static int64_t live(const attn_context *of)
{
    attn_memory_report report = {.struct_size = sizeof report};
    OK(of, attn_context_memory(of, &report));
    return report.live;
}

/* what prompts and steps of so many models take beside their caches */
static int64_t taken_by_models(int64_t models)
{
    enum { SEQUENCES = 8, CAPACITY = 20, LENGTH = 16 };
    int64_t lengths[SEQUENCES];
    attn_generator *generator = NULL;
    attn_generator_options g;
    int32_t tokens[SEQUENCES], finished[SEQUENCES];
    attn_context *outside = model_context(ATTN_BACKEND_BLAS, 1, 0), *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(0, 1);
    o.width = o.feed_forward = 64;
    attn_transformer *model = model_create(ctx, &o);
    model_batch batch;
    for (int i = 0; i < SEQUENCES; i++) lengths[i] = LENGTH;
    model_batch_open(outside, &batch, &o, SEQUENCES, lengths, lengths, 1);
    OK(ctx, attn_generator_options_init(&g, sizeof g));
    g.sequences = SEQUENCES;
    g.capacity = CAPACITY;
    OK(ctx, attn_generator_create(ctx, model, &g, &generator));
    for (int64_t i = 1; i < models; i++) OK(ctx, attn_generator_add_model(ctx, generator, model));
    const int64_t before = live(ctx);
    OK(ctx, attn_generator_prompt(ctx, generator, &batch.batch));
    for (int i = 0; i < 2; i++) OK(ctx, attn_generator_step(ctx, generator, SEQUENCES, tokens, finished));
    const int64_t taken = live(ctx) - before;
    attn_generator_free(generator);
    model_batch_close(&batch);
    attn_transformer_free(model);
    attn_context_free(ctx);
    attn_context_free(outside);
    return taken;
}

static void test_ensemble(void **state)
{
    (void)state;
    const int64_t two = taken_by_models(2);
    assert_true(two > 0);
    assert_int_equal(taken_by_models(6), two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_ensemble)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

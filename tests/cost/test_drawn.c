/* Models of drawn options: the products that reach BLAS are those foretold, and memory is no more than foretold; steps allocate nothing. */
#include "cost/products.h"
#include "models/drawn.h"

enum { DRAWS = 150, MOST = 8, LONGEST = 9, ROWS = 30 };

/* sequences of a batch, of at most ROWS rows on each side */
static int64_t count, sources[MOST], targets[MOST];
static void draw_lengths(int64_t number)
{
    random_state random = {(uint64_t)number + 1000000};
    int64_t source = 0, target = 0;
    for (count = 0; count < MOST; count++) {
        sources[count] = count == 0 ? 4 : AMONG(&random, 0, 1, 1, 2, 4, 7, LONGEST);
        targets[count] = AMONG(&random, 1, 1, 2, 5, 5, LONGEST);
        source += sources[count], target += targets[count];
        if (count > 0 && (source > ROWS || target > ROWS || drawn_once_in(&random, 5))) break;
    }
}

static int64_t peak(const attn_context *of)
{
    attn_memory_report report = {.struct_size = sizeof report};
    OK(of, attn_context_memory(of, &report));
    return report.peak;
}

/* the report leaves the products with tables of relative positions out, and counts causal forms from above */
static void agree_or_less(const attn_transformer_options *o, const char *what, int64_t counted, int64_t foretold)
{
    if (o->positions == ATTN_POSITIONS_RELATIVE || o->form == ATTN_FORM_LINEAR || o->form == ATTN_FORM_PERFORMER) {
        if (o->positions != ATTN_POSITIONS_RELATIVE && counted > foretold)
            fail_msg("%s: %d counted, %d foretold", what, (int)counted, (int)foretold);
        return;
    }
    agree(what, counted, foretold);
}

static void expect_at_most(const char *what, int64_t measured, int64_t foretold)
{
    if (measured > foretold) fail_msg("%s: %d bytes measured, %d foretold", what, (int)measured, (int)foretold);
}

static void train(const attn_transformer_options *o, const attn_cost_report *r, model_batch *batch, int64_t rows)
{
    attn_transformer *model = NULL;
    attn_trainer *trainer = NULL;
    attn_cost_report memory = {.struct_size = sizeof memory};
    attn_context *own = model_context(ATTN_BACKEND_BLAS, 2, 0);
    OK(own, attn_transformer_memory(own, o, 1, rows, LONGEST, &memory));
    OK(own, attn_transformer_create(own, o, &model));
    OK(own, attn_trainer_create(own, model, NULL, NULL, NULL, NULL, &trainer));
    OK(own, attn_trainer_reserve(own, trainer, rows, LONGEST));
    const int64_t allocations = model_allocations(own);
    counter_take();
    OK(own, attn_trainer_step(own, trainer, &batch->batch, NULL));
    agree_or_less(o, "a step of training", counter_take(), r->forward + r->backward);
    OK(own, attn_trainer_step(own, trainer, &batch->batch, NULL));
    assert_int_equal(model_allocations(own), allocations);
    expect_at_most("training", peak(own), memory.peak_bytes);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    attn_context_free(own);
}

static int decode(const attn_transformer_options *o, const attn_cost_report *r, model_batch *batch)
{
    attn_transformer *model = NULL;
    attn_generator *generator = NULL;
    attn_generator_options g;
    attn_cost_report memory = {.struct_size = sizeof memory};
    int32_t tokens[MOST], finished[MOST];
    attn_context *own = model_context(ATTN_BACKEND_BLAS, 2, 0);
    OK(own, attn_transformer_memory(own, o, 0, count * (LONGEST + 2), LONGEST + 2, &memory));
    OK(own, attn_transformer_create(own, o, &model));
    OK(own, attn_generator_options_init(&g, sizeof g));
    g.sequences = count;
    g.capacity = LONGEST + 2;
    const int made = attn_generator_create(own, model, &g, &generator) == ATTN_OK;
    if (made) {
        counter_take();
        OK(own, attn_generator_prompt(own, generator, &batch->batch));
        agree_or_less(o, "a prompt", counter_take(), r->prompt);
        const int64_t allocations = model_allocations(own);
        for (int i = 0; i < 2; i++) OK(own, attn_generator_step(own, generator, count, tokens, finished));
        assert_int_equal(model_allocations(own), allocations);
        expect_at_most("decoding", peak(own), memory.decode_bytes);
    }
    attn_generator_free(generator);
    attn_transformer_free(model);
    attn_context_free(own);
    return made;
}

static void test_drawn(void **state)
{
    int64_t trained = 0, decoded = 0;
    (void)state;
    for (int64_t i = drawn_first(); i < drawn_end(DRAWS); i++) {
        attn_transformer_options o = drawn_options(i);
        attn_cost_report r = {.struct_size = sizeof r}, inference = r;
        attn_transformer *model = NULL;
        model_batch batch;
        o.dtype = ATTN_FLOAT32;
        draw_lengths(i);
        if (attn_transformer_create(ctx, &o, &model) != ATTN_OK || !o.output_head) {
            attn_transformer_free(model);
            continue;
        }
        model_batch_open(ctx, &batch, &o, count, sources, targets, 3);
        OK(ctx, attn_transformer_cost(ctx, &o, 1, batch.source_layout, batch.target_layout, &r));
        OK(ctx, attn_transformer_cost(ctx, &o, 0, batch.source_layout, batch.target_layout, &inference));
        attn_tensor *logits = model_tensor(ctx, ATTN_FLOAT32, batch.rows, 11);
        counter_take();
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, logits));
        agree_or_less(&o, "a forward", counter_take(), inference.forward);
        train(&o, &r, &batch, ROWS);
        trained++;
        if (o.decoder_layers > 0) decoded += decode(&o, &inference, &batch);
        attn_tensor_free(logits);
        model_batch_close(&batch);
        attn_transformer_free(model);
    }
    printf("%d trained, %d decoded\n", (int)trained, (int)decoded);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

int main(void)
{
    return run_counted("products of drawn models", run);
}

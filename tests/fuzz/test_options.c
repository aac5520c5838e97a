/* Any bytes in every struct of options, and what is made with them, under a cap of memory.
   Input: which struct, then changes of its defaults (fuzz_overlay). */
#include <string.h>
#include "support/fuzz.h"

enum { ROOM = 5000, CAP = 4 << 20, FEW = 20000, MOST_LAYERS = 40 };

/* A struct with room after it, so that its struct_size may say more than it is: o points at the defaults, changed */
#define OPTIONS(kind, o) \
    union { \
        attn_##kind##_options at; \
        uint8_t room[ROOM]; \
    } o##_room = {.room = {0}}; \
    attn_##kind##_options *const o = &o##_room.at; \
    fuzz_require(attn_##kind##_options_init(o, sizeof *o) == ATTN_OK, "the defaults")
#define CHANGE(o) fuzz_overlay(in, o, sizeof *o, ROOM)

static attn_tensor *numbers(attn_context *ctx, int32_t dtype, int64_t rows, int64_t width)
{
    const int64_t shape[2] = {rows, width};
    attn_tensor *made = NULL;
    return attn_tensor_create(ctx, dtype, width > 0 ? 2 : 1, shape, &made) == ATTN_OK ? made : NULL;
}

static void context_options(attn_context *ctx, fuzz_input *in)
{
    attn_context *made = NULL;
    (void)ctx;
    OPTIONS(context, o);
    CHANGE(o);
    o->allocator = NULL; /* an address cannot be judged */
    if (o->threads > 2 || o->threads == ATTN_THREADS_ALL) o->threads = 2;
    attn_status status = attn_context_create(o, &made);
    fuzz_require((status == ATTN_OK) == (made != NULL), "a context if and only if it succeeded");
    attn_tensor *x = made != NULL ? numbers(made, ATTN_FLOAT32, 3, 3) : NULL, *y = made != NULL ? numbers(made, ATTN_FLOAT32, 3, 3) : NULL;
    if (x != NULL && y != NULL) status = attn_softmax(made, NULL, x, y);
    attn_tensor_free(x);
    attn_tensor_free(y);
    attn_context_free(made);
}

static void layer_options(attn_context *ctx, fuzz_input *in)
{
    attn_attention *layer = NULL;
    attn_cost_report report = {.struct_size = sizeof report};
    int64_t widths[4];
    attn_layout *layout = NULL;
    OPTIONS(attention, o);
    CHANGE(o);
    if (fuzz_byte(in) % 4 > 0 && o->query_width == 0) o->query_width = 4;
    fuzz_require(attn_layout_create(ctx, 1, &layout) == ATTN_OK, "a layout");
    fuzz_require(attn_layout_set_lengths(ctx, layout, 1, (const int64_t[]){3}, 0) == ATTN_OK, "a segment");
    attn_status status = attn_attention_cost(ctx, o, layout, layout, NULL, &report);
    fuzz_status(ctx, status, status == ATTN_OK);
    status = attn_attention_create(ctx, o, &layer);
    fuzz_status(ctx, status, layer != NULL);
    if (status == ATTN_OK) {
        fuzz_require(report.parameters == attn_parameters_elements(attn_attention_parameters(layer)), "as many parameters as foretold");
        widths[0] = o->query_width;
        widths[1] = o->key_width == ATTN_DERIVED ? o->query_width : o->key_width;
        widths[2] = o->value_width == ATTN_DERIVED ? widths[1] : o->value_width;
        widths[3] = o->output_width == ATTN_DERIVED ? o->query_width : o->output_width;
        attn_tensor *at[4];
        for (int i = 0; i < 4; i++) at[i] = numbers(ctx, o->dtype, 3, widths[i]);
        if (at[0] != NULL && at[1] != NULL && at[2] != NULL && at[3] != NULL) {
            status = attn_attention_forward(ctx, layer, NULL, at[0], at[1], at[2], layout, layout, NULL, at[3]);
            fuzz_require(status == ATTN_OK || status == ATTN_ERROR_SHAPE || status == ATTN_ERROR_MEMORY_CAP, "a layer that was made runs");
        }
        for (int i = 0; i < 4; i++) attn_tensor_free(at[i]);
    }
    attn_attention_free(layer);
    attn_layout_free(layout);
}

/* a prompt of two tokens and two more */
static void generate(attn_context *ctx, fuzz_input *in, const attn_transformer *model)
{
    attn_generator *generator = NULL;
    int32_t token, finished, stops[2] = {0, 1};
    OPTIONS(generator, o);
    CHANGE(o);
    o->stops = o->stop_count > 0 && o->stop_count <= 2 ? stops : NULL;
    if (o->stop_count > 2) o->stop_count = 0;
    attn_status status = attn_generator_create(ctx, model, o, &generator);
    fuzz_status(ctx, status, generator != NULL);
    if (status == ATTN_OK) status = attn_generator_prompt_tokens(ctx, generator, 2, (const int32_t[]){0, 0});
    for (int i = 0; i < 2 && status == ATTN_OK; i++) status = attn_generator_step(ctx, generator, 1, &token, &finished);
    attn_generator_free(generator);
}

/* a step of a trainer over two tokens */
static void train(attn_context *ctx, fuzz_input *in, attn_transformer *model, const attn_transformer_options *m)
{
    attn_trainer *trainer = NULL;
    attn_batch batch;
    OPTIONS(optimizer, optimizer);
    CHANGE(optimizer);
    OPTIONS(schedule, schedule);
    CHANGE(schedule);
    OPTIONS(trainer, o);
    CHANGE(o);
    attn_status status = attn_trainer_create(ctx, model, NULL, optimizer, schedule, o, &trainer);
    fuzz_status(ctx, status, trainer != NULL);
    fuzz_require(attn_batch_init(&batch, sizeof batch) == ATTN_OK, "a batch");
    attn_tensor *tokens = status == ATTN_OK ? numbers(ctx, ATTN_INT32, 2, 0) : NULL;
    if (m->encoder_layers > 0) batch.source = tokens;
    if (m->decoder_layers > 0) batch.target = tokens;
    batch.labels = tokens;
    for (int i = 0; i < 2 && tokens != NULL && status == ATTN_OK; i++) {
        int64_t steps = attn_trainer_steps(trainer);
        status = attn_trainer_step(ctx, trainer, &batch, NULL);
        fuzz_require(attn_trainer_steps(trainer) == steps + (status == ATTN_OK), "a step has happened or has not");
    }
    attn_tensor_free(tokens);
    attn_trainer_free(trainer);
}

static void check_description(attn_context *ctx, const attn_transformer_options *o, const attn_transformer *model)
{
    char name[160];
    int32_t rank;
    int64_t shape[4], elements = 1;
    attn_status status = attn_transformer_describe(ctx, o, 0, sizeof name, name, &rank, shape);
    fuzz_status(ctx, status, status == ATTN_OK);
    if (model == NULL) return;
    attn_parameters *set = attn_transformer_parameters(model);
    fuzz_require(status == ATTN_OK && attn_parameters_find(set, name) == 0, "the first parameter as described");
    for (int i = 0; i < 4; i++) elements *= shape[i];
    fuzz_require(elements > 0, "a shape");
}

static void model_options(attn_context *ctx, fuzz_input *in)
{
    attn_transformer *model = NULL;
    attn_cost_report cost = {.struct_size = sizeof cost}, memory = {.struct_size = sizeof memory};
    int whole = fuzz_byte(in) % 64 == 0, small = fuzz_byte(in) % 8 > 0;
    OPTIONS(transformer, o);
    if (small) {
        o->encoder_layers = o->decoder_layers = 1;
        o->width = 8, o->heads = 2, o->source_vocabulary = 7, o->context = 6;
    }
    CHANGE(o);
    if (!whole && o->encoder_layers > MOST_LAYERS) o->encoder_layers %= MOST_LAYERS; /* many take long */
    if (!whole && o->decoder_layers > MOST_LAYERS) o->decoder_layers %= MOST_LAYERS;
    attn_status foretold = attn_transformer_cost(ctx, o, 1, NULL, NULL, &cost);
    fuzz_status(ctx, foretold, foretold == ATTN_OK);
    foretold = attn_transformer_memory(ctx, o, fuzz_byte(in) & 1, fuzz_between(in, 0, 9), fuzz_between(in, 0, 4), &memory);
    fuzz_status(ctx, foretold, foretold == ATTN_OK);
    attn_status status = attn_transformer_create(ctx, o, &model);
    fuzz_status(ctx, status, model != NULL);
    check_description(ctx, o, model);
    if (foretold == ATTN_OK && model != NULL)
        fuzz_require(memory.parameters == attn_parameters_elements(attn_transformer_parameters(model)), "as many parameters as foretold");
    if (model != NULL && memory.parameters <= FEW) {
        generate(ctx, in, model);
        train(ctx, in, model, o);
    }
    attn_transformer_free(model);
}

static void loss_options(attn_context *ctx, fuzz_input *in)
{
    attn_loss_report report = {.struct_size = sizeof report};
    attn_tensor *logits = numbers(ctx, ATTN_FLOAT32, 3, 4), *labels = numbers(ctx, ATTN_INT32, 3, 0), *loss = NULL;
    OPTIONS(cross_entropy, o);
    CHANGE(o);
    fuzz_require(attn_tensor_create(ctx, ATTN_FLOAT32, 0, NULL, &loss) == ATTN_OK && logits != NULL && labels != NULL, "tensors");
    attn_status status = attn_cross_entropy(ctx, NULL, logits, labels, o, loss, &report);
    fuzz_status(ctx, status, status == ATTN_OK);
    attn_tensor_free(logits);
    attn_tensor_free(labels);
    attn_tensor_free(loss);
}

static void dot_product_options(attn_context *ctx, fuzz_input *in)
{
    attn_tape *tape = NULL;
    const int64_t shape[3] = {3, 2, 4};
    attn_tensor *at[4] = {NULL};
    OPTIONS(dot_product, o);
    CHANGE(o);
    OPTIONS(tape, t);
    CHANGE(t);
    fuzz_require(attn_tape_create(ctx, &tape) == ATTN_OK, "a tape");
    for (int i = 0; i < 4; i++) fuzz_require(attn_tensor_create(ctx, ATTN_FLOAT32, 3, shape, &at[i]) == ATTN_OK, "a tensor");
    attn_status status = attn_tape_begin(ctx, tape, t);
    fuzz_status(ctx, status, status == ATTN_OK);
    status = attn_dot_product_attention(ctx, status == ATTN_OK ? tape : NULL, at[0], at[1], at[2], NULL, NULL, NULL, o, at[3]);
    fuzz_status(ctx, status, status == ATTN_OK);
    for (int i = 0; i < 4; i++) attn_tensor_free(at[i]);
    attn_tape_free(tape);
}

static void schedule_options(attn_context *ctx, fuzz_input *in)
{
    double rate = -1;
    OPTIONS(schedule, o);
    CHANGE(o);
    attn_status status = attn_learning_rate(ctx, o, fuzz_integer(in), &rate);
    fuzz_status(ctx, status, status == ATTN_OK);
    if (status == ATTN_OK) fuzz_require(rate >= 0, "a rate is a number from 0");
}

static void dataset_options(attn_context *ctx, fuzz_input *in)
{
    attn_dataset *dataset = NULL;
    attn_batch batch;
    int32_t tokens[30] = {1, 2, 3};
    OPTIONS(dataset, o);
    CHANGE(o);
    if (fuzz_byte(in) % 4 > 0) o->context %= 12, o->batch %= 5;
    attn_status status = attn_dataset_tokens(ctx, tokens, 30, o, &dataset);
    fuzz_status(ctx, status, dataset != NULL);
    fuzz_require(attn_batch_init(&batch, sizeof batch) == ATTN_OK, "a batch");
    for (int i = 0; i < 3 && status == ATTN_OK; i++) status = attn_dataset_next(ctx, dataset, &batch);
    attn_dataset_free(dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const kinds[])(attn_context *, fuzz_input *) = {context_options,     layer_options,    model_options,   loss_options,
                                                                  dot_product_options, schedule_options, dataset_options, model_options};
    fuzz_context f;
    fuzz_input in = {data, size};
    uint8_t kind = fuzz_byte(&in);
    fuzz_open(&f, kind & 8 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, CAP);
    kinds[kind % 8](f.ctx, &in);
    fuzz_close(&f);
    return 0;
}

#ifndef ATTN_FUZZER
int main(int argc, char **argv)
{
    return fuzz_replay(argc, argv, "options");
}
#endif

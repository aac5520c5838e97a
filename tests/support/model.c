#include "support/model.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "tensor/parameters.h"

void model_expect(const attn_context *ctx, attn_status got, attn_status want, const char *word, const char *call, const char *file,
                  int line)
{
    const char *text = attn_context_last_error(ctx);
    if (text == NULL) text = "";
    if (got != want) {
        print_error("%s:%d: %s\n  gave \"%s\", expected \"%s\": %s\n", file, line, call, attn_status_name(got), attn_status_name(want),
                    text);
        _fail(file, line);
    }
    if (strstr(text, word) == NULL) {
        print_error("%s:%d: %s\n  the error does not say \"%s\": %s\n", file, line, call, word, text);
        _fail(file, line);
    }
}

static attn_context *context_of(int32_t backend, int32_t threads, uint64_t seed, const attn_allocator *allocator)
{
    attn_context_options o;
    attn_context *ctx = NULL;
    assert_int_equal(attn_context_options_init(&o, sizeof o), ATTN_OK);
    o.backend = backend;
    o.threads = threads;
    o.seed = seed;
    o.allocator = allocator;
    assert_int_equal(attn_context_create(&o, &ctx), ATTN_OK);
    return ctx;
}

attn_context *model_context(int32_t backend, int32_t threads, uint64_t seed)
{
    return context_of(backend, threads, seed, NULL);
}

attn_context *model_context_counted(test_allocator *allocator, int32_t backend, int32_t threads)
{
    const attn_allocator hooks = test_allocator_hooks(allocator);
    return context_of(backend, threads, 0, &hooks);
}

int64_t model_allocations(const attn_context *ctx)
{
    attn_memory_report report = {.struct_size = sizeof report};
    assert_int_equal(attn_context_memory(ctx, &report), ATTN_OK);
    return report.allocations;
}

attn_tensor *model_tensor(attn_context *ctx, int32_t dtype, int64_t rows, int64_t width)
{
    const int64_t shape[2] = {rows, width};
    attn_tensor *made = NULL;
    OK(ctx, attn_tensor_create(ctx, dtype, width > 0 ? 2 : 1, shape, &made));
    return made;
}

int64_t model_elements(const attn_tensor *tensor)
{
    int64_t n = 1;
    for (int32_t i = 0; i < attn_tensor_rank(tensor); i++) n *= attn_tensor_extent(tensor, i);
    return n;
}

double model_get(const attn_tensor *tensor, int64_t index)
{
    const void *data = attn_tensor_data_const(tensor);
    switch (attn_tensor_dtype(tensor)) {
    case ATTN_FLOAT32: return (double)((const float *)data)[index];
    case ATTN_FLOAT64: return ((const double *)data)[index];
    case ATTN_INT32: return ((const int32_t *)data)[index];
    default: return (double)((const int64_t *)data)[index];
    }
}

void model_set(attn_tensor *tensor, int64_t index, double value)
{
    void *data = attn_tensor_data(tensor);
    switch (attn_tensor_dtype(tensor)) {
    case ATTN_FLOAT32: ((float *)data)[index] = (float)value; return;
    case ATTN_FLOAT64: ((double *)data)[index] = value; return;
    case ATTN_INT32: ((int32_t *)data)[index] = (int32_t)value; return;
    default: ((int64_t *)data)[index] = (int64_t)value;
    }
}

void model_scramble(attn_parameters *parameters, uint64_t seed)
{
    random_state random = {seed};
    for (int64_t i = 0; i < attn_parameters_count(parameters); i++) {
        attn_tensor *tensor = attn_parameters_tensor(parameters, i);
        const int32_t kind = parameters->at[i].kind, rank = attn_tensor_rank(tensor);
        double reach = rank > 1 ? 1.7 / sqrt((double)attn_tensor_extent(tensor, rank - 1)) : 0.3;
        double middle = kind == ATTN__KIND_NORM || kind == ATTN__KIND_SCALAR ? 1 : 0;
        for (int64_t e = 0; e < model_elements(tensor); e++) model_set(tensor, e, (float)(middle + random_number(&random, -reach, reach)));
    }
}

int model_same_bits(attn_parameters *a, attn_parameters *b)
{
    if (attn_parameters_count(a) != attn_parameters_count(b)) return 0;
    for (int64_t i = 0; i < attn_parameters_count(a); i++) {
        attn_tensor *x = attn_parameters_tensor(a, i), *y = attn_parameters_tensor(b, i);
        size_t bytes = (size_t)model_elements(x) * (attn_tensor_dtype(x) == ATTN_FLOAT64 ? 8 : 4);
        if (attn_tensor_dtype(x) != attn_tensor_dtype(y) || model_elements(x) != model_elements(y)) return 0;
        if (memcmp(attn_tensor_data(x), attn_tensor_data(y), bytes) != 0) return 0;
    }
    return 1;
}

attn_transformer_options model_options(int64_t encoder_layers, int64_t decoder_layers)
{
    attn_transformer_options o;
    assert_int_equal(attn_transformer_options_init(&o, sizeof o), ATTN_OK);
    o.encoder_layers = encoder_layers;
    o.decoder_layers = decoder_layers;
    o.width = 8;
    o.heads = 2;
    o.feed_forward = 12;
    o.source_vocabulary = 11;
    o.context = 16;
    return o;
}

attn_transformer *model_create(attn_context *ctx, const attn_transformer_options *options)
{
    attn_transformer *model = NULL;
    OK(ctx, attn_transformer_create(ctx, options, &model));
    model_scramble(attn_transformer_parameters(model), 5);
    return model;
}

static attn_tensor *tokens_of(attn_context *ctx, random_state *random, int64_t rows, int64_t vocabulary)
{
    attn_tensor *made = model_tensor(ctx, ATTN_INT32, rows, 0);
    for (int64_t i = 0; i < rows; i++) model_set(made, i, (double)random_integer(random, 0, vocabulary));
    return made;
}

static attn_layout *layout_of(attn_context *ctx, int64_t count, const int64_t *lengths, int64_t *rows)
{
    attn_layout *made = NULL;
    OK(ctx, attn_layout_create(ctx, count, &made));
    OK(ctx, attn_layout_set_lengths(ctx, made, count, lengths, 7));
    *rows = 0;
    for (int64_t i = 0; i < count; i++) *rows += lengths[i];
    return made;
}

void model_batch_open(attn_context *ctx, model_batch *made, const attn_transformer_options *o, int64_t count, const int64_t *source_lengths,
                      const int64_t *target_lengths, uint64_t seed)
{
    random_state random = {seed};
    int64_t target_vocabulary = o->target_vocabulary == ATTN_DERIVED ? o->source_vocabulary : o->target_vocabulary;
    memset(made, 0, sizeof *made);
    OK(ctx, attn_batch_init(&made->batch, sizeof made->batch));
    if (o->encoder_layers > 0) {
        made->source_layout = layout_of(ctx, count, source_lengths, &made->rows);
        made->source = tokens_of(ctx, &random, made->rows, o->source_vocabulary);
    }
    if (o->decoder_layers > 0) {
        made->target_layout = layout_of(ctx, count, target_lengths, &made->rows);
        made->target = tokens_of(ctx, &random, made->rows, target_vocabulary);
    }
    made->labels = tokens_of(ctx, &random, made->rows, target_vocabulary);
    if (made->rows > 3) model_set(made->labels, 2, -1);
    made->batch.source = made->source;
    made->batch.target = made->target;
    made->batch.labels = made->labels;
    made->batch.source_layout = made->source_layout;
    made->batch.target_layout = made->target_layout;
}

void model_batch_close(model_batch *batch)
{
    attn_tensor_free(batch->source);
    attn_tensor_free(batch->target);
    attn_tensor_free(batch->labels);
    attn_layout_free(batch->source_layout);
    attn_layout_free(batch->target_layout);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "core/context.h"
#include "support/model.h"

/* Weights and entropies of a model's attention. */
static attn_tensor *room(attn_context *ctx, int32_t dtype, int64_t heads, int64_t rows, int64_t keys)
{
    attn_tensor *made = NULL;
    const int64_t shape[3] = {heads, rows, keys};
    OK(ctx, attn_tensor_create(ctx, dtype, 3, shape, &made));
    for (int64_t i = 0; i < model_elements(made); i++) model_set(made, i, NAN);
    return made;
}

static const int64_t source_lengths[3] = {4, 1, 6}, target_lengths[3] = {5, 0, 3};

/* rows sum to 1, nothing from blocked keys, and entropy is what the formula makes of the weights */
static void check_part(attn_context *ctx, const attn_transformer *model, const model_batch *batch, int32_t dtype, int32_t part,
                       int64_t layer)
{
    const int64_t *queries = part == ATTN_INSPECT_ENCODER ? source_lengths : target_lengths;
    const int64_t *keys = part == ATTN_INSPECT_DECODER ? target_lengths : source_lengths;
    int64_t rows = part == ATTN_INSPECT_ENCODER ? 11 : 8, start = 0;
    double within = dtype == ATTN_FLOAT32 ? 2e-5 : 1e-13;
    attn_inspect_request r;
    attn_tensor *entropy = model_tensor(ctx, dtype, 2, rows);
    OK(ctx, attn_inspect_request_init(&r, sizeof r));
    r.part = part;
    r.layer = layer;
    r.entropy = entropy;
    OK(ctx, attn_transformer_inspect(ctx, model, &batch->batch, &r));
    r.entropy = NULL;
    for (int64_t s = 0; s < 3; start += queries[s++]) {
        attn_tensor *weights = room(ctx, dtype, 2, queries[s], keys[s]);
        r.segment = s;
        r.weights = weights;
        OK(ctx, attn_transformer_inspect(ctx, model, &batch->batch, &r));
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < queries[s]; i++) {
                double sum = 0, expected = 0;
                for (int64_t j = 0; j < keys[s]; j++) {
                    double w = model_get(weights, (h * queries[s] + i) * keys[s] + j);
                    if (part == ATTN_INSPECT_DECODER && j > i) assert_true(w == 0);
                    assert_true(w >= 0);
                    sum += w;
                    if (w > 0) expected -= w * log(w);
                }
                assert_true(fabs(sum - 1) < within);
                double got = model_get(entropy, h * rows + start + i);
                if (!(fabs(got - expected) < 10 * within)) fail_msg("entropy: got %.9g, expected %.9g", got, expected);
            }
        attn_tensor_free(weights);
    }
    attn_tensor_free(entropy);
}

static void test_weights_and_entropy(void **state)
{
    (void)state;
    for (int which = 0; which < 6; which++) {
        int32_t backend = which % 2 ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, dtype = which % 2 ? ATTN_FLOAT64 : ATTN_FLOAT32;
        attn_context *ctx = model_context(backend, 2, 0);
        attn_transformer_options o = model_options(2, 2);
        o.dtype = dtype;
        o.positions = which < 2 ? ATTN_POSITIONS_SINUSOIDAL : which < 4 ? ATTN_POSITIONS_T5 : ATTN_POSITIONS_RELATIVE;
        o.dropout_attention = 0.5; /* does nothing here */
        o.soft_cap = which < 4 ? 0 : 1.5;
        attn_transformer *model = model_create(ctx, &o);
        model_batch batch;
        model_batch_open(ctx, &batch, &o, 3, source_lengths, target_lengths, 3);
        for (int32_t part = ATTN_INSPECT_ENCODER; part <= ATTN_INSPECT_CROSS; part++)
            for (int64_t layer = 0; layer < 2; layer++) check_part(ctx, model, &batch, dtype, part, layer);
        model_batch_close(&batch);
        attn_transformer_free(model);
        attn_context_free(ctx);
    }
}

/* Layers and heads have weights of their own, a part of them is the same numbers as the whole, and what was asked for once is left alone after. */
static void test_parts_of_a_model(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(2, 2);
    attn_transformer *model = model_create(ctx, &o);
    model_batch batch;
    attn_inspect_request r;
    attn_tensor *whole[2] = {room(ctx, ATTN_FLOAT32, 2, 5, 4), room(ctx, ATTN_FLOAT32, 2, 5, 4)}, *part = room(ctx, ATTN_FLOAT32, 1, 3, 4);
    attn_tensor *entropy = model_tensor(ctx, ATTN_FLOAT32, 2, 8), *logits = model_tensor(ctx, ATTN_FLOAT32, 8, o.source_vocabulary);
    (void)state;
    model_batch_open(ctx, &batch, &o, 3, source_lengths, target_lengths, 3);
    OK(ctx, attn_inspect_request_init(&r, sizeof r));
    r.part = ATTN_INSPECT_CROSS;
    for (r.layer = 0; r.layer < 2; r.layer++) {
        r.weights = whole[r.layer];
        OK(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r));
    }
    r.layer = 1;
    r.weights = part;
    r.row = 2;
    r.head = 1;
    r.entropy = entropy;
    OK(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r));
    for (int64_t e = 0; e < 12; e++) {
        assert_true(fabs(model_get(part, e) - model_get(whole[1], 20 + 8 + e)) < 1e-6);
        assert_true(fabs(model_get(whole[0], e) - model_get(whole[1], e)) > 1e-6); /* another layer */
    }
    assert_null(ctx->observer);
    for (int64_t e = 0; e < 16; e++) model_set(entropy, e, -7);
    for (int64_t e = 0; e < 12; e++) model_set(part, e, -7);
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, logits));
    for (int64_t e = 0; e < 16; e++) assert_true(model_get(entropy, e) == -7);
    for (int64_t e = 0; e < 12; e++) assert_true(model_get(part, e) == -7);
    attn_tensor *all[] = {whole[0], whole[1], part, entropy, logits};
    for (int i = 0; i < 5; i++) attn_tensor_free(all[i]);
    model_batch_close(&batch);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

/* the operation, all of it and a part */
static void test_of_operands(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_mask *mask = NULL;
    const int64_t shape[3] = {9, 2, 4};
    attn_tensor *q = NULL, *k = NULL, *whole = room(ctx, ATTN_FLOAT32, 2, 9, 9), *part = room(ctx, ATTN_FLOAT32, 1, 3, 9);
    random_state random = {5};
    (void)state;
    OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 3, shape, &q));
    OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 3, shape, &k));
    random_floats(&random, attn_tensor_data(q), 72, -2, 2);
    random_floats(&random, attn_tensor_data(k), 72, -2, 2);
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask));
    OK(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, mask, NULL, 0, NULL, 0, 0, 0, whole));
    OK(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, mask, NULL, 0, NULL, 0, 5, 1, part));
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 9; i++) {
            double sum = 0, w[9];
            for (int j = 0; j <= i; j++) {
                double s = 0;
                for (int c = 0; c < 4; c++) s += model_get(q, (i * 2 + h) * 4 + c) * model_get(k, (j * 2 + h) * 4 + c);
                sum += w[j] = exp(s / 2);
            }
            for (int j = 0; j < 9; j++) {
                double want = j <= i ? w[j] / sum : 0;
                assert_true(fabs(model_get(whole, (h * 9 + i) * 9 + j) - want) < 1e-6);
                if (h == 1 && i >= 5 && i < 8) assert_true(fabs(model_get(part, (i - 5) * 9 + j) - want) < 1e-6);
            }
        }
    /* rows of [rows, heads, keys], seen as [heads, rows, keys], with a scale and a soft cap of the caller's */
    float apart[3 * 2 * 9];
    attn_tensor *turned = NULL;
    attn_dot_product_options options;
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, (const int64_t[]){2, 3, 9}, (const int64_t[]){9, 18, 1}, apart, &turned));
    OK(ctx, attn_dot_product_options_init(&options, sizeof options));
    options.derive_scale = 0;
    options.scale = 0.75;
    options.soft_cap = 1.5;
    OK(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, NULL, &options, 0, NULL, 0, 4, 0, turned));
    for (int h = 0; h < 2; h++)
        for (int i = 4; i < 7; i++) {
            double sum = 0, w[9];
            for (int j = 0; j < 9; j++) {
                double s = 0;
                for (int c = 0; c < 4; c++) s += model_get(q, (i * 2 + h) * 4 + c) * model_get(k, (j * 2 + h) * 4 + c);
                sum += w[j] = exp(1.5 * tanh(0.75 * s / 1.5));
            }
            for (int j = 0; j < 9; j++) assert_true(fabs((double)apart[((i - 4) * 2 + h) * 9 + j] - w[j] / sum) < 1e-6);
        }
    attn_tensor_free(turned);
    FAILS(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, mask, NULL, 0, NULL, 1, 0, 0, whole), ATTN_ERROR_INVALID_ARGUMENT,
          "segment: got 1");
    FAILS(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, mask, NULL, 0, NULL, 0, 7, 0, part), ATTN_ERROR_INVALID_ARGUMENT,
          "row: got 7");
    FAILS(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, mask, NULL, 0, NULL, 0, 0, 2, part), ATTN_ERROR_INVALID_ARGUMENT,
          "head: got 2");
    FAILS(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, mask, NULL, 0, NULL, 0, -1, 0, part), ATTN_ERROR_INVALID_ARGUMENT, "row");
    FAILS(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, mask, NULL, 0, NULL, 0, 0, 0, q), ATTN_ERROR_SHAPE, "weights: got 4 keys");
    FAILS(ctx, attn_attention_weights(ctx, q, k, NULL, NULL, mask, NULL, 0, NULL, 0, 0, 0, NULL), ATTN_ERROR_INVALID_ARGUMENT, "weights");
    attn_tensor *all[] = {q, k, whole, part};
    for (int i = 0; i < 4; i++) attn_tensor_free(all[i]);
    attn_mask_free(mask);
    attn_context_free(ctx);
}

static void test_refusals(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = model_create(ctx, &o);
    model_batch batch;
    attn_inspect_request r;
    attn_tensor *weights = room(ctx, ATTN_FLOAT32, 2, 5, 5), *entropy = model_tensor(ctx, ATTN_FLOAT32, 2, 8);
    (void)state;
    model_batch_open(ctx, &batch, &o, 3, NULL, target_lengths, 3);
    assert_int_equal(attn_inspect_request_init(NULL, sizeof r), ATTN_ERROR_INVALID_ARGUMENT);
#define WITH(field, value, status, word) \
    (OK(ctx, attn_inspect_request_init(&r, sizeof r)), r.part = ATTN_INSPECT_DECODER, r.weights = weights, r.field = value, \
     FAILS(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r), status, word))
    WITH(part, ATTN_INSPECT_ENCODER, ATTN_ERROR_INVALID_ARGUMENT, "request.part");
    WITH(part, ATTN_INSPECT_CROSS, ATTN_ERROR_INVALID_ARGUMENT, "request.part");
    WITH(part, 3, ATTN_ERROR_INVALID_ARGUMENT, "request.part");
    WITH(reserved, 1, ATTN_ERROR_INVALID_ARGUMENT, "request.reserved");
    WITH(layer, 1, ATTN_ERROR_INVALID_ARGUMENT, "request.layer: got 1");
    WITH(segment, 3, ATTN_ERROR_INVALID_ARGUMENT, "request.segment: got 3");
    WITH(segment, 2, ATTN_ERROR_SHAPE, "request.weights");
    WITH(row, 1, ATTN_ERROR_INVALID_ARGUMENT, "request.row: got 1");
    WITH(head, 1, ATTN_ERROR_INVALID_ARGUMENT, "request.head: got 1");
    WITH(weights, entropy, ATTN_ERROR_SHAPE, "request.weights");
    WITH(entropy, weights, ATTN_ERROR_SHAPE, "request.entropy");
    WITH(struct_size, 8, ATTN_ERROR_INVALID_ARGUMENT, "request");
    attn_tensor *gaps = NULL, *shared = NULL;
    float numbers[2 * 5 * 5];
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, (const int64_t[]){2, 8}, (const int64_t[]){20, 1}, numbers, &gaps));
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, (const int64_t[]){2, 8}, NULL, attn_tensor_data(weights), &shared));
    WITH(entropy, gaps, ATTN_ERROR_SHAPE, "request.entropy: got gaps");
    WITH(entropy, shared, ATTN_ERROR_INVALID_ARGUMENT, "request.entropy");
    attn_tensor_free(gaps);
    attn_tensor_free(shared);
    OK(ctx, attn_inspect_request_init(&r, sizeof r));
    r.part = ATTN_INSPECT_DECODER;
    FAILS(ctx, attn_transformer_inspect(ctx, NULL, &batch.batch, &r), ATTN_ERROR_INVALID_ARGUMENT, "model");
    FAILS(ctx, attn_transformer_inspect(ctx, model, NULL, &r), ATTN_ERROR_INVALID_ARGUMENT, "batch");
    FAILS(ctx, attn_transformer_inspect(ctx, model, &batch.batch, NULL), ATTN_ERROR_INVALID_ARGUMENT, "request");
    OK(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r)); /* nothing is asked for */
    model_batch_close(&batch);
    attn_tensor_free(weights);
    attn_tensor_free(entropy);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

/* linear attention has no weights to look at; what stands beside it, across, has */
static void test_linear(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(1, 1);
    model_batch batch;
    attn_inspect_request r;
    (void)state;
    o.form = ATTN_FORM_LINEAR;
    attn_transformer *model = model_create(ctx, &o);
    model_batch_open(ctx, &batch, &o, 1, (const int64_t[]){4}, (const int64_t[]){3}, 3);
    attn_tensor *entropy = model_tensor(ctx, ATTN_FLOAT32, 2, 3);
    OK(ctx, attn_inspect_request_init(&r, sizeof r));
    r.entropy = entropy;
    for (r.part = ATTN_INSPECT_ENCODER; r.part <= ATTN_INSPECT_DECODER; r.part++)
        FAILS(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r), ATTN_ERROR_UNSUPPORTED, "request.part");
    r.part = ATTN_INSPECT_CROSS;
    OK(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r));
    model_batch_close(&batch);
    attn_tensor_free(entropy);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

/* An inspection that was stopped half way is over: what runs after it writes to its tensors no more. */
static void test_stopped(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(1, 1);
    attn_transformer *model = model_create(ctx, &o);
    attn_tensor *entropy = model_tensor(ctx, ATTN_FLOAT32, 2, 8), *logits = model_tensor(ctx, ATTN_FLOAT32, 8, 11);
    model_batch batch;
    attn_inspect_request r;
    (void)state;
    model_batch_open(ctx, &batch, &o, 3, source_lengths, target_lengths, 3);
    for (int64_t i = 0; i < 16; i++) model_set(entropy, i, -1);
    OK(ctx, attn_inspect_request_init(&r, sizeof r));
    r.part = ATTN_INSPECT_DECODER;
    r.entropy = entropy;
    OK(ctx, attn_context_cancel(ctx));
    FAILS(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r), ATTN_ERROR_CANCELLED, "attn_context_cancel");
    assert_null(ctx->observer);
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, logits));
    for (int64_t i = 0; i < 16; i++) assert_true(model_get(entropy, i) < 0);
    OK(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r));
    assert_null(ctx->observer);
    for (int64_t i = 0; i < 16; i++) assert_true(model_get(entropy, i) >= 0);
    model_batch_close(&batch);
    attn_tensor_free(entropy);
    attn_tensor_free(logits);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_and_entropy),
        cmocka_unit_test(test_parts_of_a_model),
        cmocka_unit_test(test_of_operands),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of encoders and decoders of their own. Their options are those of the whole model: tests/calls/test_transformer.c. */
enum { SMALLEST = 8 + 14 * 8, WIDTH = 8 };
RELEASE(encoder, attn_encoder_free)
RELEASE(decoder, attn_decoder_free)
THUNK(create_encoder, attn_encoder_create(a[0].p, a[1].p, a[2].p))
THUNK(create_decoder, attn_decoder_create(a[0].p, a[1].p, a[2].p))
THUNK(mask_encoder, attn_encoder_set_mask(a[0].p, a[1].p, a[2].i, a[3].p))
THUNK(mask_decoder, attn_decoder_set_mask(a[0].p, a[1].p, a[2].i, a[3].p))
THUNK(encode, attn_encoder_forward(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p))
THUNK(decode, attn_decoder_forward(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p, a[8].p, a[9].p))

static void creating(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options o = model_options(2, 2);
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            ROW(t, attn_encoder_create, create_encoder);
        else
            ROW(t, attn_decoder_create, create_decoder);
        arg_context(t);
        arg_options(t, "options", &o, sizeof o, SMALLEST);
        arg_made(t, "out", i == 0 ? release_encoder : release_decoder);
        check_row(t);
        WRONG_INT64(t, 1, attn_transformer_options, encoder_layers, -1, ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 1, attn_transformer_options, decoder_layers, 10001, ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 1, attn_transformer_options, width, 7, ATTN_ERROR_SHAPE);
        WRONG_INT64(t, 1, attn_transformer_options, width, 0, ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 1, attn_transformer_options, width, INT64_MAX, ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 1, attn_transformer_options, feed_forward, INT32_MAX, ATTN_ERROR_TOO_LARGE);
        WRONG_INT64(t, 1, attn_transformer_options, segment_types, 2, ATTN_ERROR_UNSUPPORTED);
        WRONG_INT32(t, 1, attn_transformer_options, dtype, ATTN_INT32, ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT32(t, 1, attn_transformer_options, dtype, ATTN_FLOAT64, ATTN_ERROR_UNSUPPORTED);
        WRONG_REALS(t, 1, attn_transformer_options, norm_epsilon, 0, 1);
        WRONG_REALS(t, 1, attn_transformer_options, dropout_sublayer, 0, 1);
    }
    calls_close(t);
}

static void masking(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            ROW(t, attn_encoder_set_mask, mask_encoder);
        else
            ROW(t, attn_decoder_set_mask, mask_decoder);
        arg_context(t);
        arg_handle(t, i == 0 ? "encoder" : "decoder", i == 0 ? ENCODER : DECODER, t->live[i == 0 ? ENCODER : DECODER], 0);
        arg_number(t, "layer", -1);
        arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
        check_row(t);
        wrong_number(t, 2, -2, ATTN_ERROR_INVALID_ARGUMENT, "layer");
        wrong_number(t, 2, 1, ATTN_ERROR_INVALID_ARGUMENT, "layer");
        wrong_number(t, 2, INT64_MAX, ATTN_ERROR_INVALID_ARGUMENT, "layer");
    }
    calls_close(t);
}

static void begin(calls *t)
{
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
}

static const attn_segment two[2] = {{0, 1, 0, 0}, {1, 3, 0, 1}}, three[3] = {{0, 1, 0, 0}, {1, 2, 0, 1}, {3, 1, 0, 2}},
                          gap[2] = {{0, 1, 0, 0}, {2, 2, 0, 1}}, twice[2] = {{0, 4, 0, 0}, {0, 4, 0, 1}},
                          part[2] = {{0, 3, 0, 0}, {1, 3, 0, 1}}, longer[2] = {{0, 1, 0, 0}, {1, 9, 0, 1}};

/* a boolean mask of two queries is too small for three */
static void wrong_masks(calls *t, int index)
{
    static const int64_t bad[3][4] = {{1, 1, 2, 9}, {3, 1, 4, 9}, {1, 3, 4, 9}};
    for (int i = 0; i < 3; i++) {
        attn_mask *mask = NULL;
        OK(t->ctx, attn_mask_boolean(t->ctx, calls_tensor(t, ATTN_UINT8, 4, bad[i]), &mask));
        wrong_pointer(t, index, mask, ATTN_ERROR_SHAPE, "mask");
        attn_mask_free(mask);
    }
}

/* an output over the stack's own parameters */
static void wrong_outputs(calls *t, int index, attn_parameters *set)
{
    static const int64_t shape[2] = {4, WIDTH};
    for (int64_t i = 0; i < attn_parameters_count(set); i++) {
        float *data = attn_tensor_data(attn_parameters_tensor(set, i));
        wrong_pointer(t, index, calls_over(t, ATTN_FLOAT32, 2, shape, NULL, data), ATTN_ERROR_INVALID_ARGUMENT, "output");
    }
}

static void encoding(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    attn_layout *layout = calls_layout(t, 2, two);
    attn_parameters *set = attn_encoder_parameters(t->live[ENCODER]);
    ROW(t, attn_encoder_forward, encode);
    arg_context(t);
    arg_handle(t, "encoder", ENCODER, t->live[ENCODER], 0);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arg_input(t, "x", FLOATS(t, 4, WIDTH), LEADS);
    arg_handle(t, "layout", LAYOUT, layout, NULLABLE);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    arg_output(t, "output", FLOATS(t, 4, WIDTH), 0);
    guard_parameters(t, set);
    if (taped) t->before = begin;
    check_row(t);
    wrong_pointer(t, 3, OF_TYPE(t, ATTN_FLOAT64, 4, WIDTH), ATTN_ERROR_DTYPE, "x");
    wrong_layout(t, 4, 2, gap, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 4, 2, twice, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 4, 2, longer, ATTN_ERROR_SHAPE, "layout");
    wrong_masks(t, 5);
    wrong_outputs(t, 6, set);
    attn_layout_free(layout);
    calls_close(t);
}

static void decoding(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    attn_layout *layout = calls_layout(t, 2, two), *memory = calls_layout(t, 2, (attn_segment[]){{0, 2, 0, 0}, {2, 3, 0, 1}});
    attn_parameters *set = attn_decoder_parameters(t->live[DECODER]);
    ROW(t, attn_decoder_forward, decode);
    arg_context(t);
    arg_handle(t, "decoder", DECODER, t->live[DECODER], 0);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arg_input(t, "x", FLOATS(t, 4, WIDTH), LEADS);
    arg_input(t, "memory", FLOATS(t, 5, WIDTH), LEADS | ANY_ROWS);
    arg_pointer(t, "layout", layout, 0);
    arg_pointer(t, "memory_layout", memory, 0);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    arg_handle(t, "memory_mask", MASK, t->live[MASK], NULLABLE);
    arg_output(t, "output", FLOATS(t, 4, WIDTH), 0);
    guard_parameters(t, set);
    if (taped) t->before = begin;
    t->at[5].kind = t->at[6].kind = NUMBER; /* NULL has another count: below */
    check_row(t);
    wrong_pointer(t, 3, OF_TYPE(t, ATTN_FLOAT64, 4, WIDTH), ATTN_ERROR_DTYPE, "x");
    wrong_pointer(t, 4, OF_TYPE(t, ATTN_FLOAT64, 5, WIDTH), ATTN_ERROR_DTYPE, "memory");
    wrong_pointer(t, 5, NULL, ATTN_ERROR_SHAPE, "memory_layout");
    wrong_pointer(t, 6, NULL, ATTN_ERROR_SHAPE, "memory_layout");
    wrong_layout_handles(t, 5);
    wrong_layout_handles(t, 6);
    wrong_layout(t, 5, 2, gap, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 5, 3, three, ATTN_ERROR_SHAPE, "memory_layout");
    wrong_layout(t, 6, 3, three, ATTN_ERROR_SHAPE, "memory_layout");
    wrong_layout(t, 6, 2, part, ATTN_ERROR_INVALID_ARGUMENT, "memory_layout");
    wrong_layout(t, 6, 2, longer, ATTN_ERROR_SHAPE, "memory_layout");
    wrong_masks(t, 7);
    wrong_masks(t, 8);
    wrong_outputs(t, 9, set);
    attn_layout_free(layout);
    attn_layout_free(memory);
    calls_close(t);
}

static void forward(void **state)
{
    (void)state;
    encoding(ATTN_BACKEND_BLAS, 0);
    encoding(ATTN_BACKEND_REFERENCE, 1);
    decoding(ATTN_BACKEND_BLAS, 0);
    decoding(ATTN_BACKEND_REFERENCE, 1);
}

/* a decoder without cross-attention reads no memory */
static void no_memory(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options o = model_options(0, 1);
    attn_decoder *decoder = NULL;
    attn_tensor *x = FLOATS(t, 4, WIDTH), *y = FLOATS(t, 4, WIDTH), *memory = FLOATS(t, 5, WIDTH);
    (void)state;
    OK(t->ctx, attn_decoder_create(t->ctx, &o, &decoder));
    OK(t->ctx, attn_decoder_forward(t->ctx, decoder, NULL, x, NULL, NULL, NULL, NULL, NULL, y));
    FAILS(t->ctx, attn_decoder_forward(t->ctx, decoder, NULL, x, memory, NULL, NULL, NULL, NULL, y), ATTN_ERROR_INVALID_ARGUMENT, "memory");
    attn_decoder_free(decoder);

    NOTED(attn_encoder_parameters);
    NOTED(attn_decoder_parameters);
    assert_true(attn_encoder_parameters(NULL) == NULL && attn_decoder_parameters(NULL) == NULL);
    assert_true(attn_encoder_parameters(t->live[DECODER]) == NULL && attn_decoder_parameters(t->live[ENCODER]) == NULL);
    assert_true(attn_encoder_parameters(t->freed[ENCODER]) == NULL && attn_decoder_parameters(t->freed[DECODER]) == NULL);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(creating), cmocka_unit_test(masking), cmocka_unit_test(forward),
                                       cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

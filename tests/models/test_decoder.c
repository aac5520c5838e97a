#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/gradient.h"
#include "variants.h"

/* A decoder of its own, with and without a memory. */
enum { SEGMENTS = 4, ROWS = 9, MEMORY = 7, WIDTH = 6, MEMORY_WIDTH = 8 };
static const int64_t lengths[SEGMENTS] = {3, 2, 0, 4}, memory_lengths[SEGMENTS] = {2, 0, 1, 4};

typedef struct scene {
    attn_decoder *decoder;
    attn_layout *layout, *memory_layout;
    attn_mask *mask, *memory_mask;
} scene;

static attn_transformer_options options_of(int64_t encoder_layers, int32_t dtype)
{
    attn_transformer_options o = model_options(encoder_layers, 2);
    o.decoder_width = WIDTH;
    o.decoder_heads = 3;
    o.activation = ATTN_ACTIVATION_GELU;
    o.dtype = dtype;
    return o;
}

static void open_scene(attn_context *ctx, const attn_transformer_options *o, scene *s)
{
    memset(s, 0, sizeof *s);
    OK(ctx, attn_decoder_create(ctx, o, &s->decoder));
    model_scramble(attn_decoder_parameters(s->decoder), 2);
    OK(ctx, attn_layout_create(ctx, SEGMENTS, &s->layout));
    OK(ctx, attn_layout_set_lengths(ctx, s->layout, SEGMENTS, lengths, 0));
    OK(ctx, attn_layout_create(ctx, SEGMENTS, &s->memory_layout));
    OK(ctx, attn_layout_set_lengths(ctx, s->memory_layout, SEGMENTS, memory_lengths, 0));
}

static void close_scene(scene *s)
{
    attn_mask_free(s->mask);
    attn_mask_free(s->memory_mask);
    attn_layout_free(s->layout);
    attn_layout_free(s->memory_layout);
    attn_decoder_free(s->decoder);
}

static attn_status run(gradient_check *g, attn_tape *tape, const void *what)
{
    const scene *s = what;
    const attn_tensor *memory = g->inputs > 1 ? g->input[1] : NULL;
    return attn_decoder_forward(g->ctx, s->decoder, tape, g->input[0], memory, s->layout, memory ? s->memory_layout : NULL, s->mask,
                                s->memory_mask, g->output);
}

static void test_gradients_of_inputs(void **state)
{
    (void)state;
    for (int which = 0; which < 16; which++) {
        attn_transformer_options o = options_of(which & 1, ATTN_FLOAT64);
        gradient_check g;
        scene s;
        o.norm_placement = which & 2 ? ATTN_PLACEMENT_PRE : ATTN_PLACEMENT_POST;
        o.parallel_block = which & 4 ? 1 : 0;
        o.checkpoint_layers = which & 8 ? 1 : 0;
        o.dropout_attention = o.dropout_sublayer = o.dropout_activation = which & 2 ? 0.2 : 0;
        gradient_open(&g, (uint64_t)which);
        g.options.training = 1;
        open_scene(g.ctx, &o, &s);
        const int64_t x[2] = {ROWS, WIDTH}, memory[2] = {MEMORY, MEMORY_WIDTH};
        gradient_input(&g, 2, x, -1, 1);
        if (which & 1) gradient_input(&g, 2, memory, -1, 1);
        gradient_output(&g, 2, x);
        if (which & 4) OK(g.ctx, attn_mask_window(g.ctx, ATTN_ALIGN_FIRST, 1, 1, 1, &s.memory_mask));
        gradient_expect(&g, run, &s);
        close_scene(&s);
        gradient_close(&g);
    }
}

/* causal without being told; a memory in any order with its keys permuted gives the same; masks of the memory keep keys out */
static void test_what_is_seen(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    attn_transformer_options o = options_of(1, ATTN_FLOAT32);
    scene s;
    random_state random = {1};
    open_scene(ctx, &o, &s);
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *memory = model_tensor(ctx, ATTN_FLOAT32, MEMORY, MEMORY_WIDTH), *y[4];
    for (int64_t e = 0; e < ROWS * WIDTH; e++) model_set(x, e, random_number(&random, -1, 1));
    for (int64_t e = 0; e < MEMORY * MEMORY_WIDTH; e++) model_set(memory, e, random_number(&random, -1, 1));
    for (int i = 0; i < 4; i++) y[i] = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH);
    OK(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, s.memory_layout, NULL, NULL, y[0]));
    /* the third row of the last sequence changes: only it and the one after it do */
    const double kept = model_get(x, 7 * WIDTH);
    model_set(x, 7 * WIDTH, kept + 1);
    OK(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, s.memory_layout, NULL, NULL, y[1]));
    model_set(x, 7 * WIDTH, kept);
    for (int64_t row = 0; row < ROWS; row++) {
        double d = 0;
        for (int64_t c = 0; c < WIDTH; c++) d = fmax(d, fabs(model_get(y[0], row * WIDTH + c) - model_get(y[1], row * WIDTH + c)));
        assert_int_equal(d > 0, row >= 7);
    }
    /* the last memory's first and last rows change places */
    for (int64_t c = 0; c < MEMORY_WIDTH; c++) {
        double first = model_get(memory, 3 * MEMORY_WIDTH + c);
        model_set(memory, 3 * MEMORY_WIDTH + c, model_get(memory, 6 * MEMORY_WIDTH + c));
        model_set(memory, 6 * MEMORY_WIDTH + c, first);
    }
    OK(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, s.memory_layout, NULL, NULL, y[2]));
    for (int64_t e = 0; e < ROWS * WIDTH; e++) assert_true(fabs(model_get(y[0], e) - model_get(y[2], e)) < 1e-5);
    /* kept out of sight, the last key may be anything */
    OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_FIRST, -1, 0, 1, &s.memory_mask));
    for (int change = 0; change < 2; change++) {
        model_set(memory, 6 * MEMORY_WIDTH, 100 * change);
        OK(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, s.memory_layout, NULL, s.memory_mask, y[2 + change]));
    }
    for (int64_t row = 0; row < ROWS; row++) /* the last key is seen from the last row alone */
        for (int64_t c = 0; c < WIDTH && row < 8; c++) assert_true(model_get(y[2], row * WIDTH + c) == model_get(y[3], row * WIDTH + c));
    assert_true(model_get(y[2], 8 * WIDTH) != model_get(y[3], 8 * WIDTH));
    for (int i = 0; i < 4; i++) attn_tensor_free(y[i]);
    attn_tensor_free(x);
    attn_tensor_free(memory);
    close_scene(&s);
    attn_context_free(ctx);
}

static void test_errors(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = options_of(1, ATTN_FLOAT32);
    attn_decoder *none = NULL;
    scene s, alone;
    open_scene(ctx, &o, &s);
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *y = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH),
                *memory = model_tensor(ctx, ATTN_FLOAT32, MEMORY, MEMORY_WIDTH);
    FAILS(ctx, attn_decoder_forward(ctx, NULL, NULL, x, memory, s.layout, s.memory_layout, NULL, NULL, y), ATTN_ERROR_INVALID_ARGUMENT,
          "decoder");
    FAILS(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, NULL, s.layout, s.memory_layout, NULL, NULL, y), ATTN_ERROR_INVALID_ARGUMENT,
          "memory");
    FAILS(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, x, s.layout, s.layout, NULL, NULL, y), ATTN_ERROR_SHAPE, "memory");
    FAILS(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, NULL, NULL, NULL, y), ATTN_ERROR_SHAPE, "memory_layout");
    FAILS(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.memory_layout, s.memory_layout, NULL, NULL, y), ATTN_ERROR_SHAPE,
          "layout");
    FAILS(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, s.layout, NULL, NULL, y), ATTN_ERROR_SHAPE, "memory_layout");
    FAILS(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, s.memory_layout, NULL, NULL, x), ATTN_ERROR_INVALID_ARGUMENT,
          "output");
    o = options_of(0, ATTN_FLOAT32);
    open_scene(ctx, &o, &alone);
    FAILS(ctx, attn_decoder_forward(ctx, alone.decoder, NULL, x, memory, s.layout, s.memory_layout, NULL, NULL, y),
          ATTN_ERROR_INVALID_ARGUMENT, "memory");
    OK(ctx, attn_decoder_forward(ctx, alone.decoder, NULL, x, NULL, s.layout, NULL, NULL, NULL, y));
    FAILS(ctx, attn_decoder_forward(ctx, alone.decoder, NULL, x, NULL, s.layout, NULL, NULL, (const attn_mask *)(const void *)ctx, y),
          ATTN_ERROR_INVALID_ARGUMENT, "memory_mask");
    o.decoder_heads = 4; /* 6 columns are not 4 heads: those of the encoder's size are taken, 4 */
    OK(ctx, attn_decoder_create(ctx, &o, &none));
    attn_decoder_free(none);
    o.decoder_layers = 0;
    o.norm_placement = ATTN_PLACEMENT_PRE; /* a final norm is all there is */
    OK(ctx, attn_decoder_create(ctx, &o, &none));
    assert_int_equal(attn_parameters_count(attn_decoder_parameters(none)), 2);
    OK(ctx, attn_decoder_forward(ctx, none, NULL, x, NULL, s.layout, NULL, NULL, NULL, y));
    attn_decoder_free(none);
    attn_decoder_free(NULL);
    assert_null(attn_decoder_parameters(NULL));
    attn_tensor_free(x);
    attn_tensor_free(y);
    attn_tensor_free(memory);
    close_scene(&s);
    close_scene(&alone);
    attn_context_free(ctx);
}

/* a mask of the memory has rows for the queries and columns for the memory */
static void test_boolean_memory_mask(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = options_of(1, ATTN_FLOAT32);
    static const int64_t other_lengths[SEGMENTS] = {1, 0, 1, 5}, fits[4] = {1, 1, 4, 5}, turned[4] = {1, 1, 5, 4};
    scene s;
    open_scene(ctx, &o, &s);
    OK(ctx, attn_layout_set_lengths(ctx, s.memory_layout, SEGMENTS, other_lengths, 0));
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *y = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH),
                *memory = model_tensor(ctx, ATTN_FLOAT32, MEMORY, MEMORY_WIDTH), *seen[2] = {NULL, NULL};
    OK(ctx, attn_tensor_create(ctx, ATTN_UINT8, 4, fits, &seen[0]));
    OK(ctx, attn_tensor_create(ctx, ATTN_UINT8, 4, turned, &seen[1]));
    OK(ctx, attn_mask_boolean(ctx, seen[0], &s.memory_mask));
    OK(ctx, attn_mask_boolean(ctx, seen[1], &s.mask));
    OK(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, s.memory_layout, NULL, s.memory_mask, y));
    FAILS(ctx, attn_decoder_forward(ctx, s.decoder, NULL, x, memory, s.layout, s.memory_layout, NULL, s.mask, y), ATTN_ERROR_SHAPE,
          "memory_mask");
    attn_tensor *const tensors[] = {x, y, memory, seen[0], seen[1]};
    for (int i = 0; i < 5; i++) attn_tensor_free(tensors[i]);
    close_scene(&s);
    attn_context_free(ctx);
}

/* vocabularies are nothing to a stack, and all that it took is given back as it was taken */
static void test_own_stack(void **state)
{
    (void)state;
    test_allocator allocator = {0};
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 1);
    attn_transformer_options o = options_of(1, ATTN_FLOAT32);
    attn_decoder *decoder = NULL;
    attn_encoder *encoder = NULL;
    attn_mask *mask = NULL;
    o.source_vocabulary = -7;
    o.target_vocabulary = -7;
    o.tie = -7;
    OK(ctx, attn_decoder_create(ctx, &o, &decoder));
    OK(ctx, attn_encoder_create(ctx, &o, &encoder));
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask));
    OK(ctx, attn_decoder_set_mask(ctx, decoder, 1, mask));
    OK(ctx, attn_encoder_set_mask(ctx, encoder, 0, mask));
    attn_mask_free(mask);
    attn_decoder_free(decoder);
    attn_encoder_free(encoder);
    attn_context_free(ctx);
    assert_true(allocator.wrong == 0 && allocator.live_pointers == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients_of_inputs), cmocka_unit_test(test_what_is_seen),
                                       cmocka_unit_test(test_errors), cmocka_unit_test(test_boolean_memory_mask),
                                       cmocka_unit_test(test_own_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

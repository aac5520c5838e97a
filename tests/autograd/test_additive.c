#include <attn/attention.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "support/gradient.h"

/* Additive attention (2.12): its gradients, the formula itself, refusals. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

typedef struct additive_case {
    int64_t rows, key_rows, heads, key_heads, size, value_size;
    int causal;
    double dropout, soft_cap, scale;
} additive_case;

static const additive_case cases[] = {
    {4, 6, 1, 1, 3, 2, 0, 0, 0, 0},   {5, 5, 2, 2, 4, 3, 1, 0, 0, 0},   {3, 1, 4, 2, 1, 3, 0, 0.3, 0, 0},
    {6, 6, 2, 1, 3, 3, 1, 0, 1.5, 2}, {5, 2, 2, 2, 2, 2, 1, 0, 0, 0.5}, /* causal with more queries: some see nothing */
};

static attn_status additive(gradient_check *g, attn_tape *tape, const void *what)
{
    const additive_case *c = what;
    attn_mask *mask = NULL;
    attn_dot_product_options o;
    attn_dot_product_options_init(&o, sizeof o);
    o.dropout = c->dropout;
    o.soft_cap = c->soft_cap;
    o.derive_scale = c->scale == 0;
    o.scale = c->scale;
    attn_status status = c->causal ? attn_mask_causal(g->ctx, ATTN_ALIGN_LAST, &mask) : ATTN_OK;
    if (status == ATTN_OK)
        status = attn_additive_attention(g->ctx, tape, g->input[0], g->input[1], g->input[2], g->input[3], NULL, NULL, mask, &o, g->output);
    attn_mask_free(mask);
    return status;
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const additive_case *c = &cases[i];
        gradient_check g;
        gradient_open(&g, 700 + i);
        g.options.training = 1;
        gradient_input(&g, 3, SHAPE(c->rows, c->heads, c->size), -1, 1);
        gradient_input(&g, 3, SHAPE(c->key_rows, c->key_heads, c->size), -1, 1);
        gradient_input(&g, 3, SHAPE(c->key_rows, c->key_heads, c->value_size), -1, 1);
        gradient_input(&g, 2, SHAPE(c->heads, c->size), -1, 1);
        gradient_output(&g, 3, SHAPE(c->rows, c->heads, c->value_size));
        gradient_expect(&g, additive, c);
        gradient_close(&g);
    }
}

/* one head, three keys, written out */
static void test_formula(void **state)
{
    attn_context *ctx;
    const float q[2] = {0.3f, -0.8f}, k[6] = {0.1f, 0.9f, -0.4f, 0.2f, 1.1f, -0.6f}, v[3] = {1, 2, 4}, vector[2] = {0.7f, -1.3f};
    float y;
    attn_tensor *t[5];
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(1, 1, 2), NULL, (void *)(uintptr_t)q, &t[0]), ATTN_OK);
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(3, 1, 2), NULL, (void *)(uintptr_t)k, &t[1]), ATTN_OK);
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(3, 1, 1), NULL, (void *)(uintptr_t)v, &t[2]), ATTN_OK);
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, SHAPE(1, 2), NULL, (void *)(uintptr_t)vector, &t[3]), ATTN_OK);
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(1, 1, 1), NULL, &y, &t[4]), ATTN_OK);
    assert_int_equal(attn_additive_attention(ctx, NULL, t[0], t[1], t[2], t[3], NULL, NULL, NULL, NULL, t[4]), ATTN_OK);
    double sum = 0, expected = 0;
    for (int j = 0; j < 3; j++) {
        double e = exp(vector[0] * tanh(q[0] + k[2 * j]) + vector[1] * tanh(q[1] + k[2 * j + 1]));
        sum += e;
        expected += e * v[j];
    }
    assert_true(fabs(y - expected / sum) < 1e-5);
    /* refusals */
    assert_int_equal(attn_additive_attention(ctx, NULL, t[0], t[1], t[2], NULL, NULL, NULL, NULL, NULL, t[4]), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "vector"));
    assert_int_equal(attn_additive_attention(ctx, NULL, t[0], t[1], t[2], t[1], NULL, NULL, NULL, NULL, t[4]), ATTN_ERROR_SHAPE);
    assert_non_null(strstr(attn_context_last_error(ctx), "vector"));
    for (int i = 0; i < 5; i++) attn_tensor_free(t[i]);
    attn_context_free(ctx);
}

/* a blocked key may hold NaN: no bit changes, forward and backward */
static void test_blocked_nan(void **state)
{
    (void)state;
    for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++) {
        attn_context_options options;
        attn_context *ctx;
        attn_mask *mask;
        attn_tape *tape;
        attn_tensor *t[4], *d[4], *y, *dy;
        float kept[2][5 * 3];
        random_state random = {9};
        assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
        options.backend = backend;
        assert_int_equal(attn_context_create(&options, &ctx), ATTN_OK);
        assert_int_equal(attn_mask_causal(ctx, ATTN_ALIGN_FIRST, &mask), ATTN_OK);
        assert_int_equal(attn_tape_create(ctx, &tape), ATTN_OK);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 3, SHAPE(i == 3 ? 1 : i == 0 ? 5 : 6, 1, 3), &t[i]), ATTN_OK);
            assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 3, SHAPE(i == 3 ? 1 : i == 0 ? 5 : 6, 1, 3), &d[i]), ATTN_OK);
            random_floats(&random, attn_tensor_data(t[i]), i == 3 ? 3 : i == 0 ? 15 : 18, -1, 1);
        }
        assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 3, SHAPE(5, 1, 3), &y), ATTN_OK);
        assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 3, SHAPE(5, 1, 3), &dy), ATTN_OK);
        random_floats(&random, attn_tensor_data(dy), 15, -1, 1);
        for (int spoiled = 0; spoiled < 2; spoiled++) {
            for (int c = 15; spoiled && c < 18; c++) ((float *)attn_tensor_data(t[1]))[c] = ((float *)attn_tensor_data(t[2]))[c] = NAN;
            assert_int_equal(attn_tape_begin(ctx, tape, NULL), ATTN_OK);
            for (int i = 0; i < 4; i++) assert_int_equal(attn_tape_watch(ctx, tape, t[i], d[i]), ATTN_OK);
            assert_int_equal(attn_additive_attention(ctx, tape, t[0], t[1], t[2], t[3], NULL, NULL, mask, NULL, y), ATTN_OK);
            const attn_tensor *outputs[] = {y}, *gradients[] = {dy};
            assert_int_equal(attn_tape_backward(ctx, tape, 1, outputs, gradients, 0, NULL), ATTN_OK);
            if (!spoiled) memcpy(kept[0], attn_tensor_data(y), sizeof kept[0]);
            if (!spoiled) memcpy(kept[1], attn_tensor_data(d[0]), sizeof kept[1]);
        }
        assert_memory_equal(kept[0], attn_tensor_data(y), sizeof kept[0]);
        assert_memory_equal(kept[1], attn_tensor_data(d[0]), sizeof kept[1]);
        for (int c = 0; c < 18; c++)
            assert_true(isfinite(((float *)attn_tensor_data(d[1]))[c]) && isfinite(((float *)attn_tensor_data(d[2]))[c]));
        for (int c = 0; c < 3; c++) assert_true(isfinite(((float *)attn_tensor_data(d[3]))[c]));
        for (int i = 0; i < 4; i++) attn_tensor_free(t[i]), attn_tensor_free(d[i]);
        attn_tensor_free(y), attn_tensor_free(dy);
        attn_mask_free(mask);
        attn_tape_free(tape);
        attn_context_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_formula),
                                       cmocka_unit_test(test_blocked_nan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

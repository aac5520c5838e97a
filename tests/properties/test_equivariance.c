/* Theorem 3.1: without positions and masks, rows in another order give the same outputs in that order. Positions and masks break it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attend.h"

static attn_tensor *encode(property *p, const attn_encoder *encoder, attn_tape *tape, const attn_tensor *x, const attn_mask *mask)
{
    attn_tensor *y = property_copy(p, x);
    OK(p->ctx, attn_encoder_forward(p->ctx, encoder, tape, x, NULL, mask, y));
    return y;
}

static attn_tensor *layer_run(property *p, const attn_attention *layer, const attn_tensor *q, const attn_tensor *k)
{
    attn_tensor *y = property_copy(p, q);
    OK(p->ctx, attn_attention_forward(p->ctx, layer, NULL, q, k, k, NULL, NULL, NULL, y));
    return y;
}

/* (3.7) to (3.14): projections, weights and outputs permute, A to P A P'; the order of keys alone changes nothing; the mean over rows
   stays. With a causal mask it fails. */
static void attention(property *p)
{
    const int64_t lengths[] = {2, 5, 17, 66, 130};
    for (int s = 0; s < 5; s++) {
        int64_t n = lengths[s], order[200];
        attn_attention_options o;
        attn_attention *layer = NULL;
        attn_mask *causal = NULL;
        OK(p->ctx, attn_attention_options_init(&o, sizeof o));
        o.dtype = p->dtype;
        o.query_width = 8;
        o.heads = 2;
        OK(p->ctx, attn_attention_create(p->ctx, &o, &layer));
        model_scramble(attn_attention_parameters(layer), p->seed);
        attn_tensor *x = property_random(p, n, 8, -1, 1), *y = layer_run(p, layer, x, x);
        property_permutation(p, n, order);
        attn_tensor *turned = property_reordered(p, x, order), *z = layer_run(p, layer, turned, turned);
        CLOSE(p, z, property_reordered(p, y, order), 64);
        CLOSE(p, layer_run(p, layer, x, turned), y, 64);
        for (int64_t c = 0; c < 8; c++) {
            double before = 0, after = 0;
            for (int64_t r = 0; r < n; r++) before += property_get(y, r, c), after += property_get(z, r, c);
            NEAR(after, before, 64 * p->unit * (double)n);
        }
        attn_tensor *q = property_rows(p, n, 8), *q_turned = property_rows(p, n, 8);
        attn_tensor *weight = property_parameter(attn_attention_parameters(layer), "query.weight");
        OK(p->ctx, attn_linear(p->ctx, NULL, x, weight, NULL, q));
        OK(p->ctx, attn_linear(p->ctx, NULL, turned, weight, NULL, q_turned));
        CLOSE(p, q_turned, property_reordered(p, q, order), p->ground == GROUND_BLAS ? 8 : 0);
        /* the weights themselves, seen through unit values */
        attn_tensor *h = property_random_heads(p, n, 1, 6, -1, 1), *units = attend_units(p, n);
        attn_tensor *g = property_reordered(p, h, order), *a = attend(p, NULL, h, h, units, NAN), *b = attend(p, NULL, g, g, units, NAN);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) NEAR(property_get(b, i, j), property_get(a, order[i], order[j]), 16 * p->unit);
        OK(p->ctx, attn_mask_causal(p->ctx, ATTN_ALIGN_LAST, &causal));
        attn_tensor *masked = attend_masked(p, NULL, h, h, h, causal, NAN);
        HOLDS(p, property_apart(attend_masked(p, NULL, g, g, g, causal, NAN), property_reordered(p, masked, order)) > 1e-3);
        attn_mask_free(causal);
        attn_attention_free(layer);
        property_sweep(p, 0);
    }
}

static void test_attention(void **state)
{
    (void)state, property_run(attention, 4);
}

/* A whole encoder, post and pre-norm, with its gradients; broken by a window. */
static void encoder(property *p)
{
    enum { ROWS = 13 };
    for (int way = 0; way < 4; way++) {
        int64_t order[ROWS];
        attn_transformer_options o = model_options(2, 0);
        attn_encoder *made = NULL;
        attn_mask *window = NULL;
        o.dtype = p->dtype;
        o.norm_placement = way & 1;
        o.norm = way >> 1;
        OK(p->ctx, attn_encoder_create(p->ctx, &o, &made));
        model_scramble(attn_encoder_parameters(made), p->seed);
        attn_tensor *x = property_random(p, ROWS, 8, -1, 1), *dy = property_random(p, ROWS, 8, -1, 1);
        property_permutation(p, ROWS, order);
        attn_tensor *turned = property_reordered(p, x, order), *y = encode(p, made, NULL, x, NULL);
        CLOSE(p, encode(p, made, NULL, turned, NULL), property_reordered(p, y, order), 400);
        property_begin(p);
        attn_tensor *dx = property_watch(p, x);
        property_backward(p, encode(p, made, p->tape, x, NULL), dy, NULL);
        property_begin(p);
        attn_tensor *dx_turned = property_watch(p, turned);
        property_backward(p, encode(p, made, p->tape, turned, NULL), property_reordered(p, dy, order), NULL);
        CLOSE(p, dx_turned, property_reordered(p, dx, order), 4000);
        OK(p->ctx, attn_mask_window(p->ctx, ATTN_ALIGN_LAST, 1, 1, 1, &window));
        y = encode(p, made, NULL, x, window);
        HOLDS(p, property_apart(encode(p, made, NULL, turned, window), property_reordered(p, y, order)) > 1e-3);
        attn_mask_free(window);
        attn_encoder_free(made);
        property_sweep(p, 0);
    }
}

static void test_encoder(void **state)
{
    (void)state, property_run(encoder, 3);
}

/* Tokens: equivariant without positions, and only then. The source's order does not matter to the target without positions in it. */
static void positions(property *p)
{
    enum { ROWS = 10 };
    const int32_t kinds[] = {ATTN_POSITIONS_NONE, ATTN_POSITIONS_SINUSOIDAL, ATTN_POSITIONS_LEARNED};
    for (int k = 0; k < 6; k++) {
        int64_t order[ROWS];
        const int64_t length = ROWS;
        attn_transformer_options o = model_options(1, k / 3);
        model_batch batch;
        o.dtype = p->dtype;
        o.positions = kinds[k % 3];
        attn_transformer *model = model_create(p->ctx, &o);
        model_batch_open(p->ctx, &batch, &o, 1, &length, &length, p->seed);
        attn_tensor *y = property_rows(p, ROWS, 11), *z = property_rows(p, ROWS, 11), *tokens = batch.source;
        int32_t *at = attn_tensor_data(tokens), kept[ROWS];
        property_permutation(p, ROWS, order);
        at[order[0]] = 1 + at[0] % 10; /* not the same tokens in the same order */
        OK(p->ctx, attn_transformer_forward(p->ctx, model, NULL, &batch.batch, y));
        for (int r = 0; r < ROWS; r++) kept[r] = at[r];
        for (int r = 0; r < ROWS; r++) at[r] = kept[order[r]];
        OK(p->ctx, attn_transformer_forward(p->ctx, model, NULL, &batch.batch, z));
        attn_tensor *want = k < 3 ? property_reordered(p, y, order) : y;
        if (o.positions == ATTN_POSITIONS_NONE)
            CLOSE(p, z, want, 400);
        else
            HOLDS(p, property_apart(z, want) > 1e-3);
        model_batch_close(&batch);
        attn_transformer_free(model);
        property_sweep(p, 0);
    }
}

static void test_positions(void **state)
{
    (void)state, property_run(positions, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

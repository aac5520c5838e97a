/* Theorem 5.2 and (5.22): what a residual connection passes on, by one sub-layer and by a stack. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/property.h"

enum { ROWS = 3, WIDTH = 4, ALL = ROWS * WIDTH };

/* what writes to the stream, made zero */
static void silence(attn_parameters *set)
{
    for (int64_t i = 0; i < attn_parameters_count(set); i++) {
        const char *name = attn_parameters_name(set, i);
        attn_tensor *t = attn_parameters_tensor(set, i);
        const int writes = strstr(name, "attention.output.") != NULL || strstr(name, "feed_forward.output.") != NULL;
        for (int64_t e = 0; writes && e < model_elements(t); e++) model_set(t, e, 0);
    }
}

/* Sub-layers that give zero: a pre-norm stack of any depth, with or without checkpoints, returns its input and passes the gradient bit for
   bit; so does a decoder, whose memory then gets a gradient of exactly 0. */
static void zero_sublayers(property *p)
{
    const int64_t depths[] = {1, 2, 6, 24};
    for (int d = 0; d < 4; d++)
        for (int way = 0; way < 8; way++) {
            attn_transformer_options o = model_options(way & 4 ? 1 : depths[d], depths[d]);
            o.dtype = p->dtype;
            o.norm_placement = ATTN_PLACEMENT_PRE;
            o.final_norm = 0;
            o.parallel_block = way & 1;
            o.checkpoint_layers = way >> 1 & 1;
            attn_tensor *x = property_random(p, 7, 8, -3, 3), *dy = property_random(p, 7, 8, -1, 1), *y = property_rows(p, 7, 8);
            attn_tensor *memory = property_random(p, 5, 8, -1, 1), *d_memory = NULL;
            attn_encoder *encoder = NULL;
            attn_decoder *decoder = NULL;
            property_begin(p);
            attn_tensor *dx = property_watch(p, x);
            if (way & 4) {
                OK(p->ctx, attn_decoder_create(p->ctx, &o, &decoder));
                model_scramble(attn_decoder_parameters(decoder), p->seed);
                silence(attn_decoder_parameters(decoder));
                d_memory = property_watch(p, memory);
                OK(p->ctx, attn_decoder_forward(p->ctx, decoder, p->tape, x, memory, NULL, NULL, NULL, NULL, y));
            } else {
                OK(p->ctx, attn_encoder_create(p->ctx, &o, &encoder));
                model_scramble(attn_encoder_parameters(encoder), p->seed);
                silence(attn_encoder_parameters(encoder));
                OK(p->ctx, attn_encoder_forward(p->ctx, encoder, p->tape, x, NULL, NULL, y));
            }
            property_backward(p, y, dy, NULL);
            HOLDS(p, property_same_bits(y, x));
            HOLDS(p, property_same_bits(dx, dy));
            for (int64_t e = 0; d_memory != NULL && e < model_elements(d_memory); e++) HOLDS(p, model_get(d_memory, e) == 0);
            attn_encoder_free(encoder);
            attn_decoder_free(decoder);
            property_sweep(p, 0);
        }
}

static void test_zero_sublayers(void **state)
{
    (void)state, property_run(zero_sublayers, 1);
}

static attn_tensor *sublayer(property *p, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, int residual)
{
    attn_tensor *u = property_copy(p, x), *f = property_copy(p, x), *y = property_copy(p, x);
    OK(p->ctx, attn_linear(p->ctx, tape, x, weight, NULL, u));
    OK(p->ctx, attn_activation(p->ctx, tape, ATTN_ACTIVATION_TANH, u, NULL, f));
    if (!residual) return f;
    OK(p->ctx, attn_add(p->ctx, tape, x, f, y));
    return y;
}

/* (5.21): the gradient through x + F(x) is the incoming one plus that through F alone. R21: it can vanish, when F is the negative identity. */
static void one_sublayer(property *p)
{
    const int64_t widths[] = {1, 4, 9, 33};
    for (int w = 0; w < 4; w++) {
        attn_tensor *x = property_random(p, 5, widths[w], -1, 1), *dy = property_random(p, 5, widths[w], -1, 1), *gradient[2];
        attn_tensor *weight = property_random(p, widths[w], widths[w], -1, 1), *minus = property_identity(p, widths[w]);
        for (int residual = 0; residual < 2; residual++) {
            property_begin(p);
            gradient[residual] = property_watch(p, x);
            property_backward(p, sublayer(p, p->tape, x, weight, residual), dy, NULL);
        }
        for (int64_t e = 0; e < model_elements(x); e++) model_set(gradient[0], e, model_get(gradient[0], e) + model_get(dy, e));
        CLOSE(p, gradient[1], gradient[0], 8);
        for (int64_t e = 0; e < model_elements(minus); e++) model_set(minus, e, -model_get(minus, e));
        attn_tensor *f = property_copy(p, x), *y = property_copy(p, x);
        property_begin(p);
        attn_tensor *dx = property_watch(p, x);
        OK(p->ctx, attn_linear(p->ctx, p->tape, x, minus, NULL, f));
        OK(p->ctx, attn_add(p->ctx, p->tape, x, f, y));
        property_backward(p, y, dy, NULL);
        for (int64_t e = 0; e < model_elements(dx); e++) HOLDS(p, model_get(dx, e) == 0);
        property_sweep(p, 0);
    }
}

static void test_one_sublayer(void **state)
{
    (void)state, property_run(one_sublayer, 3);
}

/* J [ALL, ALL] of an encoder at x: row i is the gradient of output element i */
static attn_tensor *jacobian(property *p, const attn_encoder *encoder, const attn_tensor *x, attn_tensor *y)
{
    attn_tensor *j = property_rows(p, ALL, ALL), *only = property_rows(p, ROWS, WIDTH), *out = property_rows(p, ROWS, WIDTH);
    for (int64_t i = 0; i < ALL; i++) {
        const int mark = p->count;
        for (int64_t e = 0; e < ALL; e++) model_set(only, e, e == i);
        property_begin(p);
        attn_tensor *dx = property_watch(p, x);
        OK(p->ctx, attn_encoder_forward(p->ctx, encoder, p->tape, x, NULL, NULL, out));
        property_backward(p, out, only, NULL);
        for (int64_t e = 0; e < ALL; e++) property_set(j, i, e, model_get(dx, e));
        property_sweep(p, mark);
    }
    OK(p->ctx, attn_encoder_forward(p->ctx, encoder, NULL, x, NULL, NULL, y));
    return j;
}

static attn_encoder *encoder_of(property *p, int64_t layers, int way)
{
    attn_transformer_options o = model_options(layers, 0);
    attn_encoder *made = NULL;
    o.dtype = p->dtype;
    o.width = WIDTH;
    o.norm_placement = way & 1;
    o.norm = way >> 1 & 1;
    o.parallel_block = way >> 2 & 1;
    o.final_norm = 0;
    o.activation = ATTN_ACTIVATION_GELU;
    OK(p->ctx, attn_encoder_create(p->ctx, &o, &made));
    model_scramble(attn_encoder_parameters(made), p->seed);
    return made;
}

/* layer `layer` of the stack becomes layer 0 of one */
static void take_layer(attn_parameters *one, attn_parameters *stack, int64_t layer)
{
    for (int64_t i = 0; i < attn_parameters_count(one); i++) {
        char name[160];
        const char *tail = attn_parameters_name(one, i) + strlen("layers.0");
        name[0] = 0;
        strcat(name, layer == 0 ? "layers.0" : layer == 1 ? "layers.1" : "layers.2");
        strncat(name, tail, sizeof name - 16);
        attn_tensor *to = attn_parameters_tensor(one, i), *from = property_parameter(stack, name);
        for (int64_t e = 0; e < model_elements(to); e++) model_set(to, e, model_get(from, e));
    }
}

/* (5.22): the stack is its layers one after another, and its Jacobian the product of theirs; pre-norm and post-norm, both norms. */
static void stack(property *p)
{
    enum { LAYERS = 3 };
    for (int way = 0; way < 8; way++) {
        attn_encoder *whole = encoder_of(p, LAYERS, way), *one = encoder_of(p, 1, way);
        attn_tensor *x = property_random(p, ROWS, WIDTH, -1, 1), *y = property_rows(p, ROWS, WIDTH);
        attn_tensor *want = jacobian(p, whole, x, y), *product = property_identity(p, ALL);
        for (int64_t layer = 0; layer < LAYERS; layer++) {
            attn_tensor *next = property_rows(p, ROWS, WIDTH);
            take_layer(attn_encoder_parameters(one), attn_encoder_parameters(whole), layer);
            product = property_product(p, jacobian(p, one, x, next), product);
            x = next;
        }
        CLOSE(p, x, y, 200);
        CLOSE(p, want, product, 1e5); /* norms of width 4 may stand near a constant row */
        HOLDS(p, property_apart(want, property_identity(p, ALL)) > 0.01);
        attn_encoder_free(whole);
        attn_encoder_free(one);
        property_sweep(p, 0);
    }
}

static void test_stack(void **state)
{
    (void)state, property_run(stack, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_sublayers),
        cmocka_unit_test(test_one_sublayer),
        cmocka_unit_test(test_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

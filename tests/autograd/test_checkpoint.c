#include <attn/tape.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "autograd/operations.h"
#include "support/random.h"

/* A stretch that is dropped and run again: the same bits, dropout on (B047), in less memory. */
enum { ROWS = 12, WIDTH = 32, LAYERS = 6 };
#define OK(call) assert_int_equal(call, ATTN_OK)

typedef struct layer_closure {
    attn_parameters *set;
    uint64_t site;
    attn__places places;
    int depth; /* a stretch within the stretch */
} layer_closure;

/* y = x + dropout(gelu(x W^T + b) * part), with parts of a joined product of the input */
static attn_status layer(attn_context *ctx, attn_tape *tape, const void *closure, const attn__value *x, attn__value *y)
{
    const layer_closure *c = closure;
    attn__value weight, bias, joined, left, right, hidden, sum;
    const attn__activation act = {.kind = ATTN_ACTIVATION_GELU};
    const attn__dropout drop = attn__tape_dropout(tape, 0.3, c->site, c->places);
    view w = attn__parameters_view(c->set, 0), b = attn__parameters_view(c->set, 1);
    attn_status status = attn__tape_parameter(ctx, tape, c->set, &w, 0, &weight);
    if (status == ATTN_OK) status = attn__tape_parameter(ctx, tape, c->set, &b, 0, &bias);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, tape, ROWS, 2 * WIDTH, ATTN_FLOAT32, &joined);
    if (status == ATTN_OK) status = attn__linear(ctx, tape, x, &weight, &bias, &act, NULL, NULL, &joined);
    if (status == ATTN_OK) status = attn__tape_part(ctx, tape, &joined, 0, WIDTH, &left);
    if (status == ATTN_OK) status = attn__tape_part(ctx, tape, &joined, WIDTH, WIDTH, &right);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &hidden);
    if (status == ATTN_OK) status = attn__multiply_elements(ctx, tape, &left, &right, &hidden);
    if (status != ATTN_OK || c->depth == 0) return status != ATTN_OK ? status : attn__residual(ctx, tape, x, &hidden, &drop, y);
    const layer_closure inner = {c->set, c->site + 100, c->places, c->depth - 1};
    status = attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &sum);
    if (status == ATTN_OK) status = attn__residual(ctx, tape, x, &hidden, &drop, &sum);
    return status == ATTN_OK ? attn__tape_checkpoint(ctx, tape, layer, &inner, sizeof inner, 1, &sum, 1, y) : status;
}

typedef struct result {
    float y[ROWS * WIDTH], dx[ROWS * WIDTH], dw[2 * WIDTH * (WIDTH + 1)];
    int64_t values, records;                           /* after the forward */
    int64_t most_values, most_records, most_gradients; /* of the whole round */
} result;

static void run(attn_context *ctx, attn_parameters *const *sets, int checkpoint, int depth, int watch, result *out)
{
    attn_tape *tape = NULL;
    attn_tensor *x = NULL, *dx = NULL;
    attn_gradients *gradients[LAYERS];
    random_state random = {3};
    attn__value v[LAYERS + 1];
    view from;
    const attn_segment segment = {0, ROWS, 4, 7};
    int64_t used;
    attn_tape_options o;
    attn_tape_options_init(&o, sizeof o);
    o.training = 1;
    o.seed = 5;
    o.step = 9;
    memset(out, 0, sizeof *out);
    OK(attn_tape_create(ctx, &tape));
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, (int64_t[]){ROWS, WIDTH}, &x));
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, (int64_t[]){ROWS, WIDTH}, &dx));
    random_floats(&random, attn_tensor_data(x), ROWS * WIDTH, -1, 1);
    OK(attn_tape_begin(ctx, tape, &o));
    if (watch) OK(attn_tape_watch(ctx, tape, x, dx));
    OK(attn__enter(ctx));
    OK(attn__rows(ctx, "x", x, 0, &from));
    OK(attn__tape_input(ctx, tape, "x", x, &from, &v[0]));
    layer_closure c = {.depth = depth};
    OK(attn__places_expand(ctx, attn__tape_records(ctx, tape), (attn__segments){1, ROWS, &segment}, ROWS, &c.places));
    for (int i = 0; i < LAYERS; i++) {
        c.set = sets[i];
        c.site = (uint64_t)i;
        OK(attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &v[i + 1]));
        OK(checkpoint ? attn__tape_checkpoint(ctx, tape, layer, &c, sizeof c, 1, &v[i], 1, &v[i + 1])
                      : layer(ctx, tape, &c, &v[i], &v[i + 1]));
        OK(attn_gradients_create(ctx, sets[i], &gradients[i]));
    }
    memcpy(out->y, v[LAYERS].at.data, sizeof out->y);
    attn__tape_used(tape, &out->values, &out->records, &used);
    OK(attn__tape_run(ctx, tape, 1, &v[LAYERS], NULL, LAYERS, gradients));
    attn__tape_most(tape, &out->most_values, &out->most_records, &out->most_gradients);
    OK(attn__leave(ctx, ATTN_OK));
    memcpy(out->dx, attn_tensor_data(dx), sizeof out->dx);
    for (int i = 0; i < LAYERS; i++) {
        const float *flat = attn_tensor_data(attn_gradients_flat(gradients[i]));
        for (int64_t e = 0; e < attn_tensor_extent(attn_gradients_flat(gradients[i]), 0) && e < 2 * WIDTH * (WIDTH + 1); e++)
            out->dw[e] += (float)(i + 1) * flat[e];
        attn_gradients_free(gradients[i]);
    }
    attn_tensor_free(x);
    attn_tensor_free(dx);
    attn_tape_free(tape);
}

static void test_same_bits(void **state)
{
    static result plain, dropped;
    attn_context *ctx = NULL;
    attn_parameters *sets[LAYERS];
    random_state random = {8};
    (void)state;
    OK(attn_context_create(NULL, &ctx));
    for (int i = 0; i < LAYERS; i++) {
        OK(attn__parameters_create(ctx, ATTN_FLOAT32, &sets[i]));
        OK(attn__parameters_add(ctx, sets[i], "weight", 1, 2, (int64_t[]){2 * WIDTH, WIDTH}, 0, 0, 0, NULL));
        OK(attn__parameters_add(ctx, sets[i], "bias", 1, 1, (int64_t[]){2 * WIDTH}, 1, 0, 0, NULL));
        OK(attn__parameters_finish(ctx, sets[i]));
        random_floats(&random, attn_tensor_data(attn_parameters_tensor(sets[i], 0)), 2 * WIDTH * WIDTH, -0.3, 0.3);
    }
    for (int depth = 0; depth < 3; depth++) {
        for (int watch = 0; watch < 2; watch++) { /* not watched: the first layer's input is a constant, its parameters are not */
            run(ctx, sets, 0, depth, watch, &plain);
            run(ctx, sets, 1, depth, watch, &dropped);
            assert_memory_equal(plain.y, dropped.y, sizeof plain.y);
            assert_memory_equal(plain.dx, dropped.dx, sizeof plain.dx);
            assert_memory_equal(plain.dw, dropped.dw, sizeof plain.dw);
            assert_true(plain.dw[0] != 0 && plain.dw[1] != 0 && (plain.dx[0] != 0) == watch);
            assert_true(dropped.values * 3 < plain.values);
            /* a stretch that ran again gives back its values, its records and its gradients */
            assert_true(dropped.most_values - dropped.values <= (depth + 1) * dropped.values * 5 / 4);
            assert_true(dropped.most_records - dropped.records <= (depth + 1) * dropped.records * 5 / 4);
            assert_true(dropped.most_gradients <= plain.most_gradients);
        }
    }
    for (int i = 0; i < LAYERS; i++) attn__parameters_release(sets[i]);
    attn_context_free(ctx);
}

/* the product of the halves of x, and their sum, of which nobody asks for the gradient */
static attn_status halves(attn_context *ctx, attn_tape *tape, const void *closure, const attn__value *x, attn__value *y)
{
    attn__value left, right;
    (void)closure;
    attn_status status = attn__tape_part(ctx, tape, x, 0, WIDTH / 2, &left);
    if (status == ATTN_OK) status = attn__tape_part(ctx, tape, x, WIDTH / 2, WIDTH / 2, &right);
    if (status == ATTN_OK) status = attn__multiply_elements(ctx, tape, &left, &right, &y[0]);
    return status == ATTN_OK ? attn__add(ctx, tape, &left, &right, &y[1]) : status;
}

/* a stretch that takes parts of what comes in: they go with it, and what was outside has its gradient */
static void test_parts_of_the_input(void **state)
{
    attn_context *ctx = NULL;
    attn_tape *tape = NULL;
    attn_tensor *x = NULL, *dx = NULL;
    random_state random = {3};
    float first[ROWS * WIDTH];
    const attn__activation act = {.kind = ATTN_ACTIVATION_TANH};
    (void)state;
    OK(attn_context_create(NULL, &ctx));
    OK(attn_tape_create(ctx, &tape));
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, (int64_t[]){ROWS, WIDTH}, &x));
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, (int64_t[]){ROWS, WIDTH}, &dx));
    random_floats(&random, attn_tensor_data(x), ROWS * WIDTH, -1, 1);
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        attn__value in, between, out[2];
        view at;
        int closure = 0;
        OK(attn_tape_begin(ctx, tape, NULL));
        OK(attn_tape_watch(ctx, tape, x, dx));
        OK(attn__enter(ctx));
        OK(attn__rows(ctx, "x", x, 0, &at));
        OK(attn__tape_input(ctx, tape, "x", x, &at, &in));
        OK(attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &between));
        OK(attn__activate(ctx, tape, &act, NULL, &in, &between));
        for (int i = 0; i < 2; i++) OK(attn__tape_temporary(ctx, tape, ROWS, WIDTH / 2, ATTN_FLOAT32, &out[i]));
        OK(checkpoint ? attn__tape_checkpoint(ctx, tape, halves, &closure, sizeof closure, 1, &between, 2, out)
                      : halves(ctx, tape, &closure, &between, out));
        OK(attn__tape_run(ctx, tape, 1, out, NULL, 0, NULL));
        OK(attn__leave(ctx, ATTN_OK));
        if (checkpoint)
            assert_memory_equal(attn_tensor_data(dx), first, sizeof first);
        else
            memcpy(first, attn_tensor_data(dx), sizeof first);
        assert_true(first[0] != 0 && first[WIDTH - 1] != 0);
    }
    attn_tensor_free(x);
    attn_tensor_free(dx);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

/* the loss of x, whose gradient lies where a copy of x was */
static attn_status lose(attn_context *ctx, attn_tape *tape, const void *closure, const attn__value *x, attn__value *y)
{
    static int64_t numbers[ROWS];
    const view labels = {numbers, ROWS, 1, 1, 1, 0, ATTN_INT64, 0};
    attn__value logits;
    attn__loss_sums sums;
    (void)closure;
    attn_status status = attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &logits);
    if (status == ATTN_OK) status = attn__copy_view(ctx, &x->at, 0, &logits.at);
    logits.id = x->id;
    return status == ATTN_OK ? attn__cross_entropy(ctx, tape, &logits, &labels, 0, 0, -1, 0, y, &sums) : status;
}

static attn_status fourth_power(attn_context *ctx, attn_tape *tape, const void *closure, const attn__value *x, attn__value *y)
{
    attn__value square;
    (void)closure;
    attn_status status = attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &square);
    if (status == ATTN_OK) status = attn__multiply_elements(ctx, tape, x, x, &square);
    return status == ATTN_OK ? attn__multiply_elements(ctx, tape, &square, &square, y) : status;
}

/* a gradient that a stretch leaves to a value outside is not in the memory that the next stretch takes */
static void test_gradients_stay(void **state)
{
    attn_context *ctx = NULL;
    attn_tape *tape = NULL;
    attn_tensor *x = NULL, *dx = NULL;
    random_state random = {6};
    float first[ROWS * WIDTH];
    const attn__activation act = {.kind = ATTN_ACTIVATION_TANH};
    (void)state;
    OK(attn_context_create(NULL, &ctx));
    OK(attn_tape_create(ctx, &tape));
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, (int64_t[]){ROWS, WIDTH}, &x));
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, (int64_t[]){ROWS, WIDTH}, &dx));
    random_floats(&random, attn_tensor_data(x), ROWS * WIDTH, -1, 1);
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        attn__value in, between, out[2];
        view at;
        int closure = 0;
        OK(attn_tape_begin(ctx, tape, NULL));
        OK(attn_tape_watch(ctx, tape, x, dx));
        OK(attn__enter(ctx));
        OK(attn__rows(ctx, "x", x, 0, &at));
        OK(attn__tape_input(ctx, tape, "x", x, &at, &in));
        OK(attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &between));
        OK(attn__activate(ctx, tape, &act, NULL, &in, &between));
        OK(attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &out[0]));
        OK(attn__tape_temporary(ctx, tape, 1, 1, ATTN_FLOAT32, &out[1]));
        for (int i = 0; i < 2; i++) {
            attn__stretch *one = i == 0 ? fourth_power : lose;
            OK(checkpoint ? attn__tape_checkpoint(ctx, tape, one, &closure, sizeof closure, 1, &between, 1, &out[i])
                          : one(ctx, tape, &closure, &between, &out[i]));
        }
        OK(attn__tape_run(ctx, tape, 2, out, NULL, 0, NULL));
        OK(attn__leave(ctx, ATTN_OK));
        if (checkpoint)
            assert_memory_equal(attn_tensor_data(dx), first, sizeof first);
        else
            memcpy(first, attn_tensor_data(dx), sizeof first);
    }
    attn_tensor_free(x);
    attn_tensor_free(dx);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_parts_of_the_input),
                                       cmocka_unit_test(test_gradients_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

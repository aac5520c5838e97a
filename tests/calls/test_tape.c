#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"
#include "tensor/parameters.h"

/* Wrong calls of tape.h and parameters.h. */
RELEASE(tape, attn_tape_free)
RELEASE(gradients, attn_gradients_free)
THUNK(create_tape, attn_tape_create(a[0].p, a[1].p))
THUNK(begin, attn_tape_begin(a[0].p, a[1].p, a[2].p))
THUNK(watch, attn_tape_watch(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(backward, attn_tape_backward(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p, a[5].i, a[6].p))

/* y = x W^T with W a parameter of the stock's attention layer; x is watched */
typedef struct bench {
    attn_tensor *x, *dx, *y, *other, *weight;
} bench;

static void round_begun(calls *t)
{
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
}

static void round_watched(calls *t)
{
    bench *b = t->user;
    round_begun(t);
    OK(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], b->x, b->dx));
}

static void round_recorded(calls *t)
{
    bench *b = t->user;
    round_watched(t);
    OK(t->ctx, attn_linear(t->ctx, t->live[TAPE], b->x, b->weight, NULL, b->y));
    OK(t->ctx, attn_gradients_zero(t->ctx, t->live[GRADIENTS]));
}

static bench open_bench(calls *t)
{
    return (bench){FLOATS(t, 4, 4), FLOATS(t, 4, 4), FLOATS(t, 4, 4), FLOATS(t, 4, 4), attn_parameters_tensor(t->live[PARAMETERS], 0)};
}

static attn_tensor *over(calls *t, void *data)
{
    return calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){4, 4}, NULL, data);
}

static void tapes(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_tape_options o;
    (void)state;
    ROW(t, attn_tape_create, create_tape);
    arg_context(t);
    arg_made(t, "out", release_tape);
    check_row(t);

    OK(t->ctx, attn_tape_options_init(&o, sizeof o));
    ROW(t, attn_tape_begin, begin);
    arg_context(t);
    arg_handle(t, "tape", TAPE, t->live[TAPE], ANY_FORM); /* in any state */
    arg_options(t, "options", &o, sizeof o, sizeof o);
    check_row(t);
    accept_pointer(t, 2, NULL);
    WRONG_INT32(t, 2, attn_tape_options, training, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 2, attn_tape_options, training, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 2, attn_tape_options, reserved, 1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 2, attn_tape_options, step, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 2, attn_tape_options, step, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT);
    calls_close(t);
}

static void watching(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    bench b = open_bench(t);
    float *x = attn_tensor_data(b.x), *dx = attn_tensor_data(b.dx);
    (void)state;
    ROW(t, attn_tape_watch, watch);
    arg_context(t);
    arg_handle(t, "tape", TAPE, t->live[TAPE], 0);
    arg_input(t, "input", b.other, LEADS);
    arg_output(t, "gradient", FLOATS(t, 4, 4), 0);
    guard_memory(t, dx, 64);
    t->user = &b;
    t->before = round_watched;
    t->flags = VARIES; /* nothing is written before backward */
    check_row(t);
    wrong_pointer(t, 2, b.x, ATTN_ERROR_BAD_STATE, "input");
    wrong_pointer(t, 2, over(t, x + 1), ATTN_ERROR_BAD_STATE, "input");
    wrong_pointer(t, 2, b.dx, ATTN_ERROR_BAD_STATE, "input");
    wrong_pointer(t, 2, b.weight, ATTN_ERROR_INVALID_ARGUMENT, "input");
    wrong_pointer(t, 3, FLOATS(t, 2, 8), ATTN_ERROR_SHAPE, "gradient");
    wrong_pointer(t, 3, FLOATS(t, 16), ATTN_ERROR_SHAPE, "gradient");
    /* over another watched input, over the gradient of one, over a parameter */
    wrong_pointer(t, 3, b.x, ATTN_ERROR_INVALID_ARGUMENT, "gradient");
    wrong_pointer(t, 3, over(t, x + 15), ATTN_ERROR_INVALID_ARGUMENT, "gradient");
    wrong_pointer(t, 3, b.dx, ATTN_ERROR_INVALID_ARGUMENT, "gradient");
    wrong_pointer(t, 3, over(t, dx + 15), ATTN_ERROR_INVALID_ARGUMENT, "gradient");
    wrong_pointer(t, 3, b.weight, ATTN_ERROR_INVALID_ARGUMENT, "gradient");
    t->before = round_recorded; /* after its use, over a value */
    wrong_pointer(t, 2, b.y, ATTN_ERROR_BAD_STATE, "input");
    wrong_pointer(t, 3, b.y, ATTN_ERROR_INVALID_ARGUMENT, "gradient");
    /* a constant of a record is needed as well */
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
    OK(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], b.x, b.dx));
    OK(t->ctx, attn_multiply(t->ctx, t->live[TAPE], b.x, b.other, b.y));
    attn_tensor *free_one = FLOATS(t, 4, 4);
    FAILS(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], free_one, b.other), ATTN_ERROR_INVALID_ARGUMENT, "gradient");
    FAILS(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], b.other, free_one), ATTN_ERROR_BAD_STATE, "input");
    OK(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], free_one, FLOATS(t, 4, 4)));
    /* columns of one buffer beside each other are apart */
    float *wide = calls_memory(t);
    static const int64_t shape[2] = {4, 2}, strides[2] = {4, 1};
    attn_tensor *left = calls_over(t, ATTN_FLOAT32, 2, shape, strides, wide),
                *right = calls_over(t, ATTN_FLOAT32, 2, shape, strides, wide + 2);
    OK(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], FLOATS(t, 4, 2), left));
    OK(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], FLOATS(t, 4, 2), right));
    calls_close(t);
}

static void running(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    bench b = open_bench(t);
    attn_gradients *own = t->live[GRADIENTS], *other = NULL;
    attn_encoder *encoder = t->live[ENCODER];
    attn_tensor *seed = FLOATS(t, 4, 4), *flat = FLOATS(t, 16), *whole = OF_TYPE(t, ATTN_INT32, 4, 4);
    attn_tensor *seed_over_gradient = b.dx;
    (void)state;
    OK(t->ctx, attn_gradients_create(t->ctx, attn_encoder_parameters(encoder), &other));
    const attn_tensor *const outputs[1] = {b.y}, *const none[1] = {NULL}, *const foreign[1] = {t->live[MASK]}, *const unknown[1] = {seed},
                             *const inside[1] = {over(t, (float *)attn_tensor_data(b.y) + 1)};
    const attn_tensor *const seeds[1] = {seed}, *const flats[1] = {flat}, *const wholes[1] = {whole}, *const freed[1] = {t->freed[TENSOR]},
                             *const seeds_over[1] = {seed_over_gradient};
    attn_gradients *const handles[1] = {own}, *const twice[2] = {own, own}, *const strange[1] = {other}, *const null[1] = {NULL},
                          *const wrong[1] = {t->live[TAPE]}, *const gone[1] = {t->freed[GRADIENTS]};
    ROW(t, attn_tape_backward, backward);
    arg_context(t);
    arg_handle(t, "tape", TAPE, t->live[TAPE], 0);
    arg_number(t, "count", 1);
    arg_pointer(t, "outputs", outputs, 0);
    arg_pointer(t, "output_gradients", seeds, NULLABLE);
    arg_number(t, "gradients_count", 1);
    arg_pointer(t, "gradients", handles, 0);
    attn_tensor *gradient = attn_gradients_flat(own);
    guard_written(t, attn_tensor_data(b.dx), 64);
    guard_memory(t, attn_tensor_data(seed), 64);
    guard_parameters(t, t->live[PARAMETERS]);
    t->user = &b;
    t->before = round_recorded;
    check_row(t);
    wrong_number(t, 2, 0, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, INT64_MAX, ATTN_ERROR_TOO_LARGE, "count");
    wrong_pointer(t, 3, none, ATTN_ERROR_INVALID_ARGUMENT, "outputs[0]");
    wrong_pointer(t, 3, foreign, ATTN_ERROR_INVALID_ARGUMENT, "outputs[0]");
    wrong_pointer(t, 3, freed, ATTN_ERROR_INVALID_ARGUMENT, "outputs[0]");
    wrong_pointer(t, 3, unknown, ATTN_ERROR_INVALID_ARGUMENT, "outputs[0]");
    wrong_pointer(t, 3, inside, ATTN_ERROR_INVALID_ARGUMENT, "outputs[0]");
    wrong_pointer(t, 3, wholes, ATTN_ERROR_DTYPE, "outputs[0]");
    wrong_pointer(t, 4, flats, ATTN_ERROR_SHAPE, "output_gradients[0]");
    wrong_pointer(t, 4, wholes, ATTN_ERROR_DTYPE, "output_gradients[0]");
    wrong_pointer(t, 4, foreign, ATTN_ERROR_INVALID_ARGUMENT, "output_gradients[0]");
    wrong_pointer(t, 4, freed, ATTN_ERROR_INVALID_ARGUMENT, "output_gradients[0]");
    wrong_pointer(t, 4, seeds_over, ATTN_ERROR_INVALID_ARGUMENT, "output_gradients[0]");
    accept_pointer(t, 4, none);
    wrong_number(t, 5, -1, ATTN_ERROR_INVALID_ARGUMENT, "gradients_count");
    wrong_pointer(t, 6, strange, ATTN_ERROR_INVALID_ARGUMENT, "gradients[0]");
    wrong_pointer(t, 6, null, ATTN_ERROR_INVALID_ARGUMENT, "gradients");
    wrong_pointer(t, 6, wrong, ATTN_ERROR_INVALID_ARGUMENT, "gradients");
    wrong_pointer(t, 6, gone, ATTN_ERROR_INVALID_ARGUMENT, "gradients");
    round_recorded(t);
    FAILS(t->ctx, attn_tape_backward(t->ctx, t->live[TAPE], 1, outputs, NULL, 2, twice), ATTN_ERROR_INVALID_ARGUMENT, "gradients[1]");
    for (int64_t i = 0; i < model_elements(gradient); i++) assert_true(model_get(gradient, i) == 0);
    /* refused arguments leave the tape as it was */
    OK(t->ctx, attn_tape_backward(t->ctx, t->live[TAPE], 1, outputs, NULL, 1, handles));
    FAILS(t->ctx, attn_tape_backward(t->ctx, t->live[TAPE], 1, outputs, NULL, 1, handles), ATTN_ERROR_BAD_STATE, "tape");
    attn_gradients_free(other);
    calls_close(t);
}

/* The parameters are met after the watch, whose gradient lies over them or over their gradients: found before anything is written. */
static void gradients_over_parameters(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    bench b = open_bench(t);
    attn_gradients *own = t->live[GRADIENTS];
    const attn_tensor *const outputs[1] = {b.y};
    void *const places[2] = {attn_tensor_data(b.weight), attn_tensor_data(attn_gradients_tensor(own, 0))};
    float before[2][16], after[2][16];
    (void)state;
    OK(t->ctx, attn_gradients_zero(t->ctx, own));
    for (int i = 0; i < 2; i++) memcpy(before[i], places[i], sizeof before[i]);
    for (int i = 0; i < 2; i++) {
        OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
        OK(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], b.x, over(t, places[i])));
        OK(t->ctx, attn_linear(t->ctx, t->live[TAPE], b.x, b.weight, NULL, b.y));
        FAILS(t->ctx, attn_tape_backward(t->ctx, t->live[TAPE], 1, outputs, NULL, 1, &own), ATTN_ERROR_INVALID_ARGUMENT,
              "gradient of a watched input");
        for (int j = 0; j < 2; j++) memcpy(after[j], places[j], sizeof after[j]);
        assert_memory_equal(before, after, sizeof before);
    }
    /* known before the watch: refused there */
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
    OK(t->ctx, attn_linear(t->ctx, t->live[TAPE], b.x, b.weight, NULL, b.y));
    FAILS(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], b.other, over(t, places[0])), ATTN_ERROR_INVALID_ARGUMENT, "gradient");
    calls_close(t);
}

THUNK(freeze, attn_parameters_freeze(a[0].p, a[1].p, a[2].p, (int32_t)a[3].i, a[4].p))
THUNK(create_gradients, attn_gradients_create(a[0].p, a[1].p, a[2].p))
THUNK(zero, attn_gradients_zero(a[0].p, a[1].p))
THUNK(norm, attn_gradients_norm(a[0].p, a[1].p, a[2].p))

static void parameters(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_parameters *set = t->live[PARAMETERS];
    (void)state;
    ROW(t, attn_parameters_freeze, freeze);
    arg_context(t);
    arg_handle(t, "parameters", PARAMETERS, set, 0);
    arg_pointer(t, "pattern", "*.bias", 0);
    arg_number(t, "frozen", 0);
    arg_result(t, "matched", sizeof(int64_t), NULLABLE);
    guard_parameters(t, set);
    guard_memory(t, set->at, (uint64_t)set->count * sizeof *set->at);
    check_row(t);
    wrong_number(t, 3, 2, ATTN_ERROR_INVALID_ARGUMENT, "frozen");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "frozen");

    ROW(t, attn_gradients_create, create_gradients);
    arg_context(t);
    arg_handle(t, "parameters", PARAMETERS, set, 0);
    arg_made(t, "out", release_gradients);
    guard_parameters(t, set);
    check_row(t);

    ROW(t, attn_gradients_zero, zero);
    arg_context(t);
    arg_handle(t, "gradients", GRADIENTS, t->live[GRADIENTS], 0);
    check_row(t);

    ROW(t, attn_gradients_norm, norm);
    arg_context(t);
    arg_handle(t, "gradients", GRADIENTS, t->live[GRADIENTS], 0);
    arg_result(t, "out", sizeof(double), 0);
    check_row(t);
    calls_close(t);
}

static void accessors(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_parameters *set = t->live[PARAMETERS], *const bad[3] = {NULL, t->live[TENSOR], t->freed[PARAMETERS]};
    attn_gradients *gradients = t->live[GRADIENTS], *const wrong[3] = {NULL, t->live[TENSOR], t->freed[GRADIENTS]};
    const int64_t count = attn_parameters_count(set), indices[4] = {-1, count, INT64_MIN, INT64_MAX};
    (void)state;
    NOTED(attn_parameters_count);
    NOTED(attn_parameters_elements);
    NOTED(attn_parameters_name);
    NOTED(attn_parameters_find);
    NOTED(attn_parameters_tensor);
    NOTED(attn_gradients_tensor);
    NOTED(attn_gradients_flat);
    for (int i = 0; i < 3; i++) {
        assert_true(attn_parameters_count(bad[i]) == 0 && attn_parameters_elements(bad[i]) == 0);
        assert_true(attn_parameters_name(bad[i], 0) == NULL && attn_parameters_tensor(bad[i], 0) == NULL);
        assert_true(attn_parameters_find(bad[i], "query.weight") == -1);
        assert_true(attn_gradients_tensor(wrong[i], 0) == NULL && attn_gradients_flat(wrong[i]) == NULL);
    }
    for (int i = 0; i < 4; i++) {
        assert_true(attn_parameters_name(set, indices[i]) == NULL && attn_parameters_tensor(set, indices[i]) == NULL);
        assert_null(attn_gradients_tensor(gradients, indices[i]));
    }
    assert_true(attn_parameters_find(set, NULL) == -1 && attn_parameters_find(set, "") == -1 && attn_parameters_find(set, "nothing") == -1);
    assert_true(attn_parameters_find(set, "query.weight") == 0);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tapes),      cmocka_unit_test(watching),
                                       cmocka_unit_test(running),    cmocka_unit_test(gradients_over_parameters),
                                       cmocka_unit_test(parameters), cmocka_unit_test(accessors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

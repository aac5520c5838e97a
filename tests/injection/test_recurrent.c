#include "injection/scenario.h"

/* Recurrent layers, forward and backward, with every state given and asked for; a convolution. */
enum { X, WEIGHT, HIDDEN, CELL, GIVEN, OUTPUT = 2 * GIVEN, FINAL_HIDDEN, FINAL_CELL };

static void set_up(world *w)
{
    const int64_t wide = w->variant == ATTN_RECURRENT_LSTM ? 12 : 3;
    const int64_t shapes[GIVEN][2] = {[X] = {5, wide}, [WEIGHT] = {wide, 3}, [HIDDEN] = {2, 3}, [CELL] = {2, 3}};
    for (int i = 0; i < 2 * GIVEN; i++) w->tensor[i] = random_tensor(w, i, 2, shapes[i % GIVEN]);
    w->tensor[OUTPUT] = RANDOM_TENSOR(w, 8, 5, 3);
    for (int i = FINAL_HIDDEN; i <= FINAL_CELL; i++) w->tensor[i] = RANDOM_TENSOR(w, i, 2, 3);
    OK(w->ctx, attn_layout_create(w->ctx, 2, &w->layout));
    OK(w->ctx, attn_layout_set_lengths(w->ctx, w->layout, 2, (const int64_t[]){3, 2}, 0));
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
}

static attn_status act(world *w)
{
    attn_tensor *const *t = w->tensor;
    const int lstm = w->variant == ATTN_RECURRENT_LSTM;
    attn_recurrent_options o;
    attn_status status = ATTN_OK;
    if (attn_recurrent_options_init(&o, sizeof o) != ATTN_OK) return ATTN_ERROR_INVALID_ARGUMENT;
    o.kind = w->variant;
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, NULL));
    for (int i = 0; i < GIVEN - !lstm; i++) AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, t[i], t[GIVEN + i]));
    AGAIN(w, status,
          attn_recurrent(w->ctx, w->tape, t[X], t[WEIGHT], w->layout, &o, t[HIDDEN], lstm ? t[CELL] : NULL, t[OUTPUT], t[FINAL_HIDDEN],
                         lstm ? t[FINAL_CELL] : NULL));
    return run_backward(w, status, t[OUTPUT]);
}

static void result(world *w)
{
    for (int i = GIVEN; i <= FINAL_CELL; i++) note_tensor(w, w->tensor[i]);
}

enum { CONVOLUTION_GIVEN = 3, CONVOLUTION_OUTPUT = 2 * CONVOLUTION_GIVEN }; /* x, weight, bias, their gradients */

static void set_up_convolution(world *w)
{
    for (int i = 0; i < 2; i++) {
        w->tensor[CONVOLUTION_GIVEN * i] = RANDOM_TENSOR(w, i, 5, 2);
        w->tensor[CONVOLUTION_GIVEN * i + 1] = RANDOM_TENSOR(w, 2 + i, 3, 6);
        w->tensor[CONVOLUTION_GIVEN * i + 2] = RANDOM_TENSOR(w, 4 + i, 3);
    }
    w->tensor[CONVOLUTION_OUTPUT] = RANDOM_TENSOR(w, 6, 5, 3);
    OK(w->ctx, attn_layout_create(w->ctx, 2, &w->layout));
    OK(w->ctx, attn_layout_set_lengths(w->ctx, w->layout, 2, (const int64_t[]){3, 2}, 0));
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
}

static attn_status convolve(world *w)
{
    attn_tensor *const *t = w->tensor;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, NULL));
    for (int i = 0; i < CONVOLUTION_GIVEN; i++) AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, t[i], t[CONVOLUTION_GIVEN + i]));
    AGAIN(w, status, attn_convolution(w->ctx, w->tape, t[0], t[1], t[2], w->layout, NULL, t[CONVOLUTION_OUTPUT]));
    return run_backward(w, status, t[CONVOLUTION_OUTPUT]);
}

static void result_convolution(world *w)
{
    for (int i = CONVOLUTION_GIVEN; i <= CONVOLUTION_OUTPUT; i++) note_tensor(w, w->tensor[i]);
}

static void test_recurrent(void **state)
{
    static const scenario all[] = {{"a recurrent layer of tanh", set_up, act, result, NULL, EACH_AGAIN, ATTN_RECURRENT_TANH},
                                   {"an LSTM", set_up, act, result, NULL, EACH_AGAIN, ATTN_RECURRENT_LSTM},
                                   {"a convolution", set_up_convolution, convolve, result_convolution, NULL, EACH_AGAIN, 0}};
    (void)state;
    run_on_both(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recurrent)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}

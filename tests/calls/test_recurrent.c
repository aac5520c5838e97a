#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of recurrent.h. */
INIT(attn_recurrent_options, attn_recurrent_options_init)
INIT(attn_convolution_options, attn_convolution_options_init)
THUNK(convolution, attn_convolution(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p))
THUNK(recurrent, attn_recurrent(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p, a[8].p, a[9].p, a[10].p))

static const attn_segment two[2] = {{0, 1, 0, 0}, {1, 4, 0, 1}}, three[3] = {{0, 1, 0, 0}, {1, 2, 0, 1}, {3, 2, 0, 2}},
                          part[2] = {{0, 3, 0, 0}, {1, 4, 0, 1}}, gap[2] = {{0, 1, 0, 0}, {2, 3, 0, 1}},
                          beyond[2] = {{0, 1, 0, 0}, {1, 9, 0, 1}};

static void wrong_layouts(calls *t, int index)
{
    wrong_layout_handles(t, index);
    wrong_layout(t, index, 2, part, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, index, 2, gap, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, index, 2, beyond, ATTN_ERROR_SHAPE, "layout");
}

/* over what is read or written elsewhere */
static void wrong_overlap(calls *t, int index, int other, const char *word)
{
    void *data = (void *)(uintptr_t)attn_tensor_data_const(place_of(t, other));
    wrong_pointer(t, index, calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){2, 3}, NULL, data), ATTN_ERROR_INVALID_ARGUMENT, word);
}

static void layers(int32_t backend, int32_t kind)
{
    calls *t = calls_open(backend);
    const int lstm = kind == ATTN_RECURRENT_LSTM;
    attn_layout *layout = calls_layout(t, 2, two);
    attn_recurrent_options o;
    OK(t->ctx, attn_recurrent_options_init(&o, sizeof o));
    o.kind = kind;
    ROW(t, attn_recurrent, recurrent);
    arg_context(t);
    arg_tape(t, NULL);
    arg_input(t, "x", lstm ? FLOATS(t, 5, 12) : FLOATS(t, 5, 3), LEADS);
    arg_input(t, "weight", lstm ? FLOATS(t, 12, 3) : FLOATS(t, 3, 3), IS_MATRIX);
    arg_handle(t, "layout", LAYOUT, layout, 0);
    t->at[4].kind = NUMBER; /* NULL: another number of states */
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_input(t, "hidden", FLOATS(t, 2, 3), IS_MATRIX | NULLABLE);
    if (lstm)
        arg_input(t, "cell", FLOATS(t, 2, 3), IS_MATRIX | NULLABLE);
    else
        arg_handle(t, "cell", NUMBER, NULL, 0);
    arg_output(t, "output", FLOATS(t, 5, 3), 0);
    arg_output(t, "final_hidden", FLOATS(t, 2, 3), IS_MATRIX | NULLABLE);
    if (lstm)
        arg_output(t, "final_cell", FLOATS(t, 2, 3), IS_MATRIX | NULLABLE);
    else
        arg_handle(t, "final_cell", NUMBER, NULL, 0);
    check_row(t);
    wrong_layouts(t, 4);
    wrong_pointer(t, 4, NULL, ATTN_ERROR_SHAPE, "hidden");
    wrong_layout(t, 4, 3, three, ATTN_ERROR_SHAPE, "hidden");
    WRONG_INT32(t, 5, attn_recurrent_options, kind, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 5, attn_recurrent_options, kind, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 5, attn_recurrent_options, reverse, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 5, attn_recurrent_options, reverse, 2, ATTN_ERROR_INVALID_ARGUMENT);
    wrong_pointer(t, 3, lstm ? FLOATS(t, 11, 3) : FLOATS(t, 4, 3), ATTN_ERROR_SHAPE, "weight");
    wrong_pointer(t, 3, lstm ? FLOATS(t, 16, 4) : FLOATS(t, 4, 4), ATTN_ERROR_SHAPE, "x");
    for (int i = 6; i < 11; i += i == 7 ? 2 : 1) {
        if (!lstm && (i == 7 || i == 10)) {
            wrong_pointer(t, i, FLOATS(t, 2, 3), ATTN_ERROR_INVALID_ARGUMENT, t->at[i].name);
            continue;
        }
        wrong_pointer(t, i, FLOATS(t, 3, 3), ATTN_ERROR_SHAPE, t->at[i].name);
        wrong_pointer(t, i, FLOATS(t, 6), ATTN_ERROR_SHAPE, t->at[i].name);
    }
    for (int i = 2; i < 9; i += i == 3 ? 3 : i == 6 && !lstm ? 2 : 1) {
        wrong_overlap(t, 9, i, "final_hidden");
        if (lstm) wrong_overlap(t, 10, i, "final_cell");
    }
    if (lstm) wrong_overlap(t, 10, 9, "final_cell");
    attn_layout_free(layout);
    calls_close(t);
}

static void convolutions(int32_t backend)
{
    calls *t = calls_open(backend);
    attn_layout *layout = calls_layout(t, 2, two);
    attn_convolution_options o;
    OK(t->ctx, attn_convolution_options_init(&o, sizeof o));
    ROW(t, attn_convolution, convolution);
    arg_context(t);
    arg_tape(t, NULL);
    arg_input(t, "x", FLOATS(t, 5, 2), LEADS);
    arg_input(t, "weight", FLOATS(t, 3, 6), LEADS | IS_MATRIX);
    arg_input(t, "bias", FLOATS(t, 3), IS_VECTOR | NULLABLE);
    arg_handle(t, "layout", LAYOUT, layout, NULLABLE);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "y", FLOATS(t, 5, 3), 0);
    check_row(t);
    wrong_layouts(t, 5);
    WRONG_INT32(t, 6, attn_convolution_options, taps, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 6, attn_convolution_options, taps, -3, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 6, attn_convolution_options, causal, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 6, attn_convolution_options, causal, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 6, attn_convolution_options, dilation, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 6, attn_convolution_options, dilation, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, 6, attn_convolution_options, dilation, (int64_t)INT32_MAX + 1, ATTN_ERROR_INVALID_ARGUMENT);
    wrong_field(t, 6, offsetof(attn_convolution_options, taps), 4, &(int32_t){2}, ATTN_ERROR_SHAPE, "weight");
    wrong_pointer(t, 3, FLOATS(t, 3, 4), ATTN_ERROR_SHAPE, "weight");
    wrong_pointer(t, 3, FLOATS(t, 4, 6), ATTN_ERROR_SHAPE, "bias");
    attn_layout_free(layout);
    calls_close(t);
}

static void test_convolution(void **state)
{
    (void)state;
    convolutions(ATTN_BACKEND_BLAS);
    convolutions(ATTN_BACKEND_REFERENCE);
    NOTED(attn_convolution_options_init);
    check_init(init_attn_convolution_options, sizeof(attn_convolution_options));
}

static void test_recurrent(void **state)
{
    (void)state;
    for (int32_t kind = ATTN_RECURRENT_TANH; kind <= ATTN_RECURRENT_LSTM; kind++) {
        layers(ATTN_BACKEND_BLAS, kind);
        layers(ATTN_BACKEND_REFERENCE, kind);
    }
    NOTED(attn_recurrent_options_init);
    check_init(init_attn_recurrent_options, sizeof(attn_recurrent_options));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recurrent), cmocka_unit_test(test_convolution)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

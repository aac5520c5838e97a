#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of rotary.h. */
INIT(attn_rotary_options, attn_rotary_options_init)
THUNK(rotary, attn_rotary(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p))
THUNK(frequencies, attn_rotary_frequencies(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p))

static void begin(calls *t)
{
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
}

static void wrong_options(calls *t, int index)
{
    WRONG_INT32(t, index, attn_rotary_options, pairing, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_rotary_options, pairing, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_rotary_options, scaling, 5, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_rotary_options, scaling, -1, ATTN_ERROR_INVALID_ARGUMENT);
    static const int64_t turned[] = {0, 1, 3, 6, -2, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 7; i++) WRONG_INT64(t, index, attn_rotary_options, rotated, turned[i], ATTN_ERROR_SHAPE);
    WRONG_REALS_FROM(t, index, attn_rotary_options, base, 1, NAN);
    WRONG_REALS(t, index, attn_rotary_options, factor, 1, NAN);
    WRONG_REALS_FROM(t, index, attn_rotary_options, context, 0, NAN);
    WRONG_REALS_FROM(t, index, attn_rotary_options, low, 0, NAN);
    WRONG_REALS_FROM(t, index, attn_rotary_options, high, 1, NAN);
    WRONG_REALS(t, index, attn_rotary_options, magnitude, 0, NAN);
}

static void rotating(int32_t backend)
{
    static const attn_segment two[2] = {{0, 1, 0, 0}, {1, 3, 0, 1}}, gap[2] = {{0, 1, 0, 0}, {2, 2, 0, 1}},
                              beyond[2] = {{0, 1, 0, 0}, {1, 9, 0, 1}}, same[2] = {{0, 4, 0, 0}, {0, 4, 0, 1}};
    calls *t = calls_open(backend);
    attn_layout *layout = calls_layout(t, 2, two);
    attn_rotary_options o;
    OK(t->ctx, attn_rotary_options_init(&o, sizeof o));
    o.scaling = ATTN_ROTARY_YARN;
    o.factor = 2;
    ROW(t, attn_rotary, rotary);
    arg_context(t);
    arg_tape(t, t->live[TAPE]); /* without one y may be x */
    arg_input(t, "x", FLOATS(t, 4, 2, 4), LEADS | IS_HEADS);
    arg_handle(t, "layout", LAYOUT, layout, NULLABLE);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "y", FLOATS(t, 4, 2, 4), IS_HEADS);
    t->before = begin;
    check_row(t);
    wrong_options(t, 4);
    accept_pointer(t, 4, NULL);
    wrong_layout(t, 3, 2, gap, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 3, 2, same, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 3, 2, beyond, ATTN_ERROR_SHAPE, "layout");

    ROW(t, attn_rotary_frequencies, frequencies);
    arg_context(t);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_number(t, "size", 4);
    arg_result(t, "frequencies", 16, NULLABLE);
    arg_result(t, "magnitude", 8, NULLABLE);
    check_row(t);
    wrong_options(t, 1);
    static const int64_t sizes[] = {0, 1, 3, -1, INT64_MIN};
    for (int i = 0; i < 5; i++) wrong_number(t, 2, sizes[i], ATTN_ERROR_SHAPE, "options.rotated");
    attn_layout_free(layout);
    calls_close(t);
}

static void test_rotary(void **state)
{
    (void)state;
    rotating(ATTN_BACKEND_BLAS);
    rotating(ATTN_BACKEND_REFERENCE);
    NOTED(attn_rotary_options_init);
    check_init(init_attn_rotary_options, sizeof(attn_rotary_options));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rotary)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

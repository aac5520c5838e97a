#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of layout.h and mask.h. */
RELEASE(layout, attn_layout_free)
RELEASE(mask, attn_mask_free)

THUNK(create, attn_layout_create(a[0].p, a[1].i, a[2].p))
THUNK(set, attn_layout_set(a[0].p, a[1].p, a[2].i, a[3].p))
THUNK(set_lengths, attn_layout_set_lengths(a[0].p, a[1].p, a[2].i, a[3].p, a[4].i))
THUNK(get, attn_layout_get(a[0].p, a[1].p, a[2].i, a[3].p))

/* what a layout holds, as the caller sees it; it must not change */
static void expect_segments(calls *t, const attn_layout *layout, int64_t count, int64_t last_start)
{
    attn_segment segment;
    assert_true(attn_layout_count(layout) == count);
    OK(t->ctx, attn_layout_get(t->ctx, layout, count - 1, &segment));
    assert_true(segment.start == last_start);
}

static void layouts(void **state)
{
    static const attn_segment two[3] = {{0, 2, 0, 0}, {2, 3, 0, 1}, {5, 1, 0, 2}};
    static const attn_segment bad[4][2] = {
        {{0, 2, 0, 0}, {-1, 3, 0, 1}}, {{0, 2, 0, 0}, {2, -3, 0, 1}}, {{0, 2, 0, 0}, {2, 3, -1, 1}}, {{INT64_MIN, 2, 0, 0}, {2, 3, 0, 1}}};
    static const attn_segment large[2][2] = {{{0, 2, 0, 0}, {INT64_MAX, 1, 0, 1}}, {{0, 2, INT64_MAX - 1, 0}, {2, 3, 0, 1}}};
    static const int64_t lengths[3] = {2, 3, 1}, minus[2] = {2, -1}, over[2] = {INT64_MAX, 1};
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_layout *layout = t->live[LAYOUT];
    (void)state;
    ROW(t, attn_layout_create, create);
    arg_context(t);
    arg_number(t, "capacity", 2);
    arg_made(t, "out", release_layout);
    check_row(t);
    wrong_number(t, 1, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    wrong_number(t, 1, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    wrong_number(t, 1, INT64_MAX, ATTN_ERROR_TOO_LARGE, "layout");
    wrong_number(t, 1, INT64_MAX / 40, ATTN_ERROR_TOO_LARGE, "layout");

    ROW(t, attn_layout_set, set);
    arg_context(t);
    arg_handle(t, "layout", LAYOUT, layout, 0);
    arg_number(t, "count", 2);
    arg_pointer(t, "segments", two, 0);
    check_row(t);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, 3, ATTN_ERROR_FULL, "count");
    wrong_number(t, 2, INT64_MAX, ATTN_ERROR_FULL, "count");
    for (int i = 0; i < 4; i++) {
        OK(t->ctx, attn_layout_set(t->ctx, layout, 2, two));
        wrong_pointer(t, 3, bad[i], ATTN_ERROR_INVALID_ARGUMENT, "segments[");
    }
    for (int i = 0; i < 2; i++) wrong_pointer(t, 3, large[i], ATTN_ERROR_TOO_LARGE, "segments[");
    FAILS(t->ctx, attn_layout_set(t->ctx, layout, 2, bad[0]), ATTN_ERROR_INVALID_ARGUMENT, "segments");
    expect_segments(t, layout, 2, 2);

    ROW(t, attn_layout_set_lengths, set_lengths);
    arg_context(t);
    arg_handle(t, "layout", LAYOUT, layout, 0);
    arg_number(t, "count", 2);
    arg_pointer(t, "lengths", lengths, 0);
    arg_number(t, "first_sequence_id", 0);
    check_row(t);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, 3, ATTN_ERROR_FULL, "count");
    wrong_pointer(t, 3, minus, ATTN_ERROR_INVALID_ARGUMENT, "lengths");
    wrong_pointer(t, 3, over, ATTN_ERROR_TOO_LARGE, "lengths");
    wrong_number(t, 4, INT64_MAX, ATTN_ERROR_TOO_LARGE, "first_sequence_id");
    FAILS(t->ctx, attn_layout_set_lengths(t->ctx, layout, 2, minus, 0), ATTN_ERROR_INVALID_ARGUMENT, "lengths");
    expect_segments(t, layout, 2, 2);

    ROW(t, attn_layout_get, get);
    arg_context(t);
    arg_handle(t, "layout", LAYOUT, layout, 0);
    arg_number(t, "index", 1);
    arg_result(t, "out", sizeof(attn_segment), 0);
    check_row(t);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "index");
    wrong_number(t, 2, 2, ATTN_ERROR_INVALID_ARGUMENT, "index");
    wrong_number(t, 2, INT64_MAX, ATTN_ERROR_INVALID_ARGUMENT, "index");

    NOTED(attn_layout_count);
    assert_true(attn_layout_count(NULL) == 0 && attn_layout_count(t->live[TENSOR]) == 0 && attn_layout_count(t->freed[LAYOUT]) == 0);
    calls_close(t);
}

THUNK(pack, attn_pack(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(unpack, attn_unpack(a[0].p, a[1].p, a[2].p, a[3].p))

/* layouts that neither can use; padded is [2, 3, 2], rows [4, 2] */
static void wrong_layouts(calls *t, int index)
{
    static const attn_segment part[2] = {{0, 2, 0, 0}, {1, 2, 0, 1}}, beyond[2] = {{0, 2, 0, 0}, {2, 3, 0, 1}},
                              longer[2] = {{0, 4, 0, 0}, {0, 0, 0, 1}};
    const struct {
        const attn_segment *at;
        int64_t count;
        attn_status status;
    } bad[] = {
        {part, 2, ATTN_ERROR_INVALID_ARGUMENT}, {beyond, 2, ATTN_ERROR_SHAPE}, {longer, 2, ATTN_ERROR_SHAPE}, {part, 1, ATTN_ERROR_SHAPE}};
    attn_layout *layout = NULL;
    OK(t->ctx, attn_layout_create(t->ctx, 2, &layout));
    wrong_pointer(t, index, layout, ATTN_ERROR_SHAPE, "layout"); /* no segment at all */
    for (int i = 0; i < 4; i++) {
        OK(t->ctx, attn_layout_set(t->ctx, layout, bad[i].count, bad[i].at));
        wrong_pointer(t, index, layout, bad[i].status, "layout");
    }
    attn_layout_free(layout);
}

static void packing(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_layout *layout = t->live[LAYOUT];
    static const int32_t types[4] = {ATTN_FLOAT32, ATTN_INT32, ATTN_INT64, ATTN_FLOAT32};
    (void)state;
    OK(t->ctx, attn_layout_set_lengths(t->ctx, layout, 2, (int64_t[]){3, 1}, 0));
    for (int i = 0; i < 4; i++) { /* the last: tokens without an axis of their own */
        attn_tensor *padded = i < 3 ? OF_TYPE(t, types[i], 2, 3, 2) : OF_TYPE(t, types[i], 2, 3);
        attn_tensor *rows = i < 3 ? OF_TYPE(t, types[i], 4, 2) : OF_TYPE(t, types[i], 4);
        const int flags = i == 3 ? ANY_WIDTH | ANY_ROWS : 0;
        ROW(t, attn_pack, pack);
        arg_context(t);
        arg_input(t, "padded", padded, LEADS | ANY_FORM);
        arg_handle(t, "layout", LAYOUT, layout, 0);
        arg_output(t, "rows", rows, flags | ANY_ROWS);
        check_row(t);
        wrong_pointer(t, 1, OF_TYPE(t, ATTN_UINT8, 2, 3, 2), i < 3 ? ATTN_ERROR_DTYPE : ATTN_ERROR_SHAPE, NULL);
        wrong_pointer(t, 1, OF_TYPE(t, types[i], 6), ATTN_ERROR_SHAPE, "padded");
        wrong_pointer(t, 1, OF_TYPE(t, types[i], 2, 3, 2, 1), ATTN_ERROR_SHAPE, "rows");
        if (i < 3) wrong_pointer(t, 1, OF_TYPE(t, types[i], 2, 3, 3), ATTN_ERROR_SHAPE, "rows");
        if (i < 3) wrong_pointer(t, 1, OF_TYPE(t, types[i], 3, 3, 2), ATTN_ERROR_SHAPE, "layout");
        if (i < 3) wrong_pointer(t, 1, OF_TYPE(t, types[i], 2, 2, 2), ATTN_ERROR_SHAPE, "layout");
        wrong_layouts(t, 2);
        ROW(t, attn_unpack, unpack);
        arg_context(t);
        arg_input(t, "rows", rows, ANY_ROWS | flags);
        arg_handle(t, "layout", LAYOUT, layout, 0);
        arg_output(t, "padded", padded, LEADS | ANY_FORM);
        check_row(t);
        wrong_pointer(t, 3, OF_TYPE(t, types[i], 6), ATTN_ERROR_SHAPE, "padded");
        wrong_pointer(t, 3, calls_over(t, types[i], i < 3 ? 3 : 2, (int64_t[]){2, 3, 2}, NULL, attn_tensor_data(rows)),
                      ATTN_ERROR_INVALID_ARGUMENT, "padded");
        if (i < 3) wrong_pointer(t, 3, OF_TYPE(t, types[i], 2, 3, 3), ATTN_ERROR_SHAPE, "rows");
        wrong_layouts(t, 2);
    }
    calls_close(t);
}

THUNK(causal, attn_mask_causal(a[0].p, (int32_t)a[1].i, a[2].p))
THUNK(window, attn_mask_window(a[0].p, (int32_t)a[1].i, a[2].i, a[3].i, a[4].i, a[5].p))
THUNK(boolean, attn_mask_boolean(a[0].p, a[1].p, a[2].p))
THUNK(either, attn_mask_union(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(both, attn_mask_intersection(a[0].p, a[1].p, a[2].p, a[3].p))

static void wrong_alignments(calls *t)
{
    wrong_number(t, 1, -1, ATTN_ERROR_INVALID_ARGUMENT, "alignment");
    wrong_number(t, 1, 3, ATTN_ERROR_INVALID_ARGUMENT, "alignment");
    wrong_number(t, 1, INT32_MIN, ATTN_ERROR_INVALID_ARGUMENT, "alignment");
}

static void masks(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_mask *mask = t->live[MASK];
    (void)state;
    ROW(t, attn_mask_causal, causal);
    arg_context(t);
    arg_number(t, "alignment", ATTN_ALIGN_FIRST);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_alignments(t);

    ROW(t, attn_mask_window, window);
    arg_context(t);
    arg_number(t, "alignment", ATTN_ALIGN_LAST);
    arg_number(t, "left", 2);
    arg_number(t, "right", -1);
    arg_number(t, "dilation", 1);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_alignments(t);
    wrong_number(t, 2, -2, ATTN_ERROR_INVALID_ARGUMENT, "left");
    wrong_number(t, 3, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT, "right");
    wrong_number(t, 4, 0, ATTN_ERROR_INVALID_ARGUMENT, "dilation");
    wrong_number(t, 4, -1, ATTN_ERROR_INVALID_ARGUMENT, "dilation");

    ROW(t, attn_mask_boolean, boolean);
    arg_context(t);
    arg_input(t, "allowed", OF_TYPE(t, ATTN_UINT8, 1, 1, 2, 3), ANY_FORM);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_pointer(t, 1, FLOATS(t, 1, 1, 2, 3), ATTN_ERROR_DTYPE, "allowed");
    wrong_pointer(t, 1, OF_TYPE(t, ATTN_INT64, 1, 1, 2, 3), ATTN_ERROR_DTYPE, "allowed");
    wrong_pointer(t, 1, OF_TYPE(t, ATTN_UINT8, 2, 3), ATTN_ERROR_SHAPE, "allowed");
    wrong_pointer(t, 1, OF_TYPE(t, ATTN_UINT8, 1, 1, 1, 2, 3), ATTN_ERROR_SHAPE, "allowed");

    for (int i = 0; i < 2; i++) {
        if (i == 0)
            ROW(t, attn_mask_union, either);
        else
            ROW(t, attn_mask_intersection, both);
        arg_context(t);
        arg_handle(t, "a", MASK, mask, 0);
        arg_handle(t, "b", MASK, mask, 0);
        arg_made(t, "out", release_mask);
        check_row(t);
        /* too deep: every level holds the one below it, so that only the last is to be freed */
        attn_mask *deep = NULL, *next = NULL;
        OK(t->ctx, attn_mask_causal(t->ctx, ATTN_ALIGN_LAST, &deep));
        for (int level = 1; level < 64; level++) {
            OK(t->ctx, attn_mask_union(t->ctx, deep, mask, &next));
            attn_mask_free(deep);
            deep = next;
        }
        wrong_pointer(t, 1, deep, ATTN_ERROR_UNSUPPORTED, "a");
        wrong_pointer(t, 2, deep, ATTN_ERROR_UNSUPPORTED, "b");
        attn_mask_free(deep);
    }
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts), cmocka_unit_test(packing), cmocka_unit_test(masks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

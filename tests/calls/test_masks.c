#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of mask.h: the masks of the sparse systems, of numbers and of heads, and what masks amount to. */
RELEASE(mask, attn_mask_free)
THUNK(global, attn_mask_global(a[0].p, (int32_t)a[1].i, a[2].i, a[3].p, a[4].p))
THUNK(strided, attn_mask_strided(a[0].p, (int32_t)a[1].i, a[2].i, (int32_t)a[3].i, a[4].p))
THUNK(fixed, attn_mask_fixed(a[0].p, (int32_t)a[1].i, a[2].i, a[3].i, (int32_t)a[4].i, a[5].p))
THUNK(drawn, attn_mask_random(a[0].p, (int32_t)a[1].i, a[2].i, a[3].i, (uint64_t)a[4].i, a[5].p))
THUNK(logarithmic, attn_mask_logarithmic(a[0].p, (int32_t)a[1].i, (int32_t)a[2].i, a[3].p))
THUNK(additive, attn_mask_additive(a[0].p, a[1].p, a[2].p))
THUNK(of_heads, attn_mask_heads(a[0].p, a[1].i, a[2].p, a[3].p))
THUNK(pairs, attn_mask_pairs(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p, a[5].p, a[6].p))
THUNK(path, attn_mask_path(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p))

/* context and alignment, which all of these begin with; wrong numbers at `index`, which the text names */
static void begin(calls *t)
{
    arg_context(t);
    arg_number(t, "alignment", ATTN_ALIGN_LAST);
}

static void wrong_alignments(calls *t)
{
    wrong_number(t, 1, -1, ATTN_ERROR_INVALID_ARGUMENT, "alignment");
    wrong_number(t, 1, 3, ATTN_ERROR_INVALID_ARGUMENT, "alignment");
}

static void wrong_numbers(calls *t, int index, int count, const int64_t *values)
{
    for (int i = 0; i < count; i++) wrong_number(t, index, values[i], ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name);
}
#define WRONG(t, index, ...) wrong_numbers(t, index, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

static void sparse(void **state)
{
    static const int64_t good[2] = {0, 5}, falling[2] = {5, 4}, same[2] = {5, 5}, negative[2] = {-1, 5};
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    (void)state;
    ROW(t, attn_mask_global, global);
    begin(t);
    arg_number(t, "count", 2);
    arg_pointer(t, "indices", good, 0);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_alignments(t);
    WRONG(t, 2, -1, INT64_MIN, INT64_MAX, INT64_MAX / 8 + 1);
    wrong_pointer(t, 3, falling, ATTN_ERROR_INVALID_ARGUMENT, "indices");
    wrong_pointer(t, 3, same, ATTN_ERROR_INVALID_ARGUMENT, "indices");
    wrong_pointer(t, 3, negative, ATTN_ERROR_INVALID_ARGUMENT, "indices");

    ROW(t, attn_mask_strided, strided);
    begin(t);
    arg_number(t, "stride", 4);
    arg_number(t, "parts", ATTN_PART_LOCAL | ATTN_PART_SUMMARY);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_alignments(t);
    WRONG(t, 2, 0, -2, INT64_MIN);
    WRONG(t, 3, 0, -1, 4, INT32_MIN);

    ROW(t, attn_mask_fixed, fixed);
    begin(t);
    arg_number(t, "stride", 4);
    arg_number(t, "summaries", 4);
    arg_number(t, "parts", ATTN_PART_SUMMARY);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_alignments(t);
    WRONG(t, 2, 0, -2, INT64_MIN);
    wrong_number(t, 2, 3, ATTN_ERROR_INVALID_ARGUMENT, "summaries"); /* fewer than the summaries */
    WRONG(t, 3, 0, -1, 5, INT64_MAX);
    WRONG(t, 4, 0, -1, 4);

    ROW(t, attn_mask_random, drawn);
    begin(t);
    arg_number(t, "block", 4);
    arg_number(t, "count", 64);
    arg_number(t, "seed", 7);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_alignments(t);
    WRONG(t, 2, 0, -1, INT64_MIN);
    WRONG(t, 3, -1, 65, INT64_MAX);

    ROW(t, attn_mask_logarithmic, logarithmic);
    begin(t);
    arg_number(t, "both_sides", 1);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_alignments(t);
    WRONG(t, 2, -1, 2);
    calls_close(t);
}

static void numbers_and_heads(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_tensor *values = FLOATS(t, 1, 1, 2, 3);
    attn_mask *number = NULL;
    (void)state;
    ROW(t, attn_mask_additive, additive);
    arg_context(t);
    arg_input(t, "values", values, ANY_FORM);
    arg_made(t, "out", release_mask);
    check_row(t);
    wrong_pointer(t, 1, OF_TYPE(t, ATTN_INT32, 1, 1, 2, 3), ATTN_ERROR_DTYPE, "values");
    wrong_pointer(t, 1, OF_TYPE(t, ATTN_UINT8, 1, 1, 2, 3), ATTN_ERROR_DTYPE, "values");
    wrong_pointer(t, 1, FLOATS(t, 2, 3), ATTN_ERROR_SHAPE, "values");
    wrong_pointer(t, 1, FLOATS(t, 1, 1, 1, 2, 3), ATTN_ERROR_SHAPE, "values");
    accept_pointer(t, 1, OF_TYPE(t, ATTN_FLOAT64, 1, 1, 2, 3));
    for (int i = 0; i < 3; i++) { /* numbers that are none, and one that float32 cannot hold */
        attn_tensor *bad = OF_TYPE(t, i == 2 ? ATTN_FLOAT64 : ATTN_FLOAT32, 1, 1, 2, 3);
        if (i == 2)
            ((double *)attn_tensor_data(bad))[5] = 1e300;
        else
            ((float *)attn_tensor_data(bad))[5] = i == 0 ? NAN : INFINITY;
        wrong_pointer(t, 1, bad, ATTN_ERROR_INVALID_ARGUMENT, "values");
    }
    OK(t->ctx, attn_mask_additive(t->ctx, values, &number));

    const attn_mask *const two[2] = {t->live[MASK], NULL}, *const foreign[2] = {NULL, (const attn_mask *)t->live[TENSOR]},
                           *const freed[2] = {t->freed[MASK], NULL};
    ROW(t, attn_mask_heads, of_heads);
    arg_context(t);
    arg_number(t, "count", 2);
    arg_pointer(t, "masks", two, 0);
    arg_made(t, "out", release_mask);
    check_row(t);
    WRONG(t, 1, 0, -1, INT64_MAX, INT64_MAX / 8 + 1);
    wrong_pointer(t, 2, foreign, ATTN_ERROR_INVALID_ARGUMENT, "masks");
    wrong_pointer(t, 2, freed, ATTN_ERROR_INVALID_ARGUMENT, "masks");
    /* too deep; and numbers have no union */
    attn_mask *deep = NULL, *next = NULL;
    OK(t->ctx, attn_mask_causal(t->ctx, ATTN_ALIGN_LAST, &deep));
    for (int level = 1; level < 64; level++) {
        OK(t->ctx, attn_mask_intersection(t->ctx, deep, t->live[MASK], &next));
        attn_mask_free(deep);
        deep = next;
    }
    const attn_mask *const of_deep[2] = {NULL, deep};
    wrong_pointer(t, 2, of_deep, ATTN_ERROR_UNSUPPORTED, "masks");
    FAILS(t->ctx, attn_mask_union(t->ctx, number, t->live[MASK], &next), ATTN_ERROR_UNSUPPORTED, "a");
    FAILS(t->ctx, attn_mask_union(t->ctx, t->live[MASK], number, &next), ATTN_ERROR_UNSUPPORTED, "b");
    attn_mask_free(deep);
    attn_mask_free(number);
    calls_close(t);
}

static void measures(void **state)
{
    static const attn_segment two[2] = {{0, 1, 0, 0}, {1, 3, 0, 1}}, three[3] = {{0, 1, 0, 0}, {1, 2, 0, 1}, {3, 1, 0, 2}};
    static const int64_t small[4] = {1, 1, 2, 5}, of_three[4] = {1, 3, 4, 5};
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, (attn_segment[]){{0, 2, 0, 0}, {2, 3, 0, 1}});
    attn_mask *little = NULL, *heads = NULL;
    (void)state;
    OK(t->ctx, attn_mask_boolean(t->ctx, calls_tensor(t, ATTN_UINT8, 4, small), &little));
    OK(t->ctx, attn_mask_boolean(t->ctx, calls_tensor(t, ATTN_UINT8, 4, of_three), &heads));
    ROW(t, attn_mask_pairs, pairs);
    arg_context(t);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    arg_number(t, "heads", 2);
    arg_handle(t, "query_layout", LAYOUT, queries, 0);
    arg_handle(t, "key_layout", LAYOUT, keys, 0);
    arg_result(t, "seen", 8, NULLABLE);
    arg_result(t, "listed", 8, NULLABLE);
    check_row(t);
    WRONG(t, 2, 0, -1, INT64_MIN);
    wrong_layout(t, 3, 3, three, ATTN_ERROR_SHAPE, "key_layout");
    wrong_layout(t, 4, 3, three, ATTN_ERROR_SHAPE, "key_layout");
    wrong_pointer(t, 1, little, ATTN_ERROR_SHAPE, "mask");
    wrong_pointer(t, 1, heads, ATTN_ERROR_SHAPE, "mask");

    ROW(t, attn_mask_path, path);
    arg_context(t);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    arg_number(t, "length", 5);
    arg_result(t, "layers", 8, NULLABLE);
    arg_result(t, "connected", 8, NULLABLE);
    check_row(t);
    WRONG(t, 2, -1, INT64_MIN);
    wrong_number(t, 2, INT64_MAX, ATTN_ERROR_TOO_LARGE, "paths");
    wrong_pointer(t, 1, little, ATTN_ERROR_SHAPE, "mask");
    wrong_pointer(t, 1, heads, ATTN_ERROR_SHAPE, "mask");
    attn_mask_free(little);
    attn_mask_free(heads);
    attn_layout_free(queries);
    attn_layout_free(keys);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sparse), cmocka_unit_test(numbers_and_heads), cmocka_unit_test(measures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

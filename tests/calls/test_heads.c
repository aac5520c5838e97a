#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of heads.h, and of attn_transformer_model_cost. */
RELEASE(transformer, attn_transformer_free)
THUNK(prune, attn_transformer_prune_heads(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p))
THUNK(heads, attn_transformer_heads(a[0].p, a[1].p, (int32_t)a[2].i, a[3].i, a[4].i, a[5].p, a[6].p))
THUNK(model_cost, attn_transformer_model_cost(a[0].p, a[1].p, (int32_t)a[2].i, a[3].i, a[4].i, a[5].p))

static void pruning(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS); /* a model of one layer a side, each of 2 heads */
    static const int64_t good[2][3] = {{1, 0, 1}, {0, 0, 0}};
    static const int64_t bad[][2][3] = {{{1, 0, 1}, {2, 0, 0}}, {{1, 0, 1}, {-1, 0, 0}}, {{1, 1, 1}, {0, 0, 0}}, {{1, -1, 1}, {0, 0, 0}},
                                        {{1, 0, 2}, {0, 0, 0}}, {{1, 0, 1}, {1, 0, 1}},  {{1, 0, 1}, {1, 0, 0}}};
    (void)state;
    ROW(t, attn_transformer_prune_heads, prune);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_number(t, "count", 2);
    arg_pointer(t, "heads", good, 0);
    arg_made(t, "out", release_transformer);
    guard_parameters(t, attn_transformer_parameters(t->live[TRANSFORMER]));
    check_row(t);
    wrong_number(t, 2, 0, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) wrong_pointer(t, 3, bad[i], ATTN_ERROR_INVALID_ARGUMENT, "heads");
    calls_close(t);
}

static void listing(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    int64_t count = 0;
    (void)state;
    ROW(t, attn_transformer_heads, heads);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_number(t, "decoder", 1);
    arg_number(t, "layer", 0);
    arg_number(t, "capacity", 2);
    arg_result(t, "heads", 2 * sizeof(int64_t), 0);
    arg_result(t, "count", sizeof(int64_t), 0);
    check_row(t);
    wrong_number(t, 2, 2, ATTN_ERROR_INVALID_ARGUMENT, "decoder");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "decoder");
    wrong_number(t, 3, 1, ATTN_ERROR_INVALID_ARGUMENT, "layer");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "layer");
    wrong_number(t, 4, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    t->loose = place_of(t, 6); /* what is needed */
    wrong_number(t, 4, 1, ATTN_ERROR_FULL, "capacity");
    FAILS(t->ctx, attn_transformer_heads(t->ctx, t->live[TRANSFORMER], 0, 0, 0, NULL, &count), ATTN_ERROR_FULL, "capacity");
    assert_int_equal(count, 2);

    ROW(t, attn_transformer_model_cost, model_cost);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_number(t, "training", 1);
    arg_number(t, "rows", 4);
    arg_number(t, "longest", 3);
    arg_report(t, "report", sizeof(attn_cost_report), 0);
    t->at[t->count - 1].smallest = offsetof(attn_cost_report, weights_bytes); /* the first version ended there */
    guard_parameters(t, attn_transformer_parameters(t->live[TRANSFORMER]));
    check_row(t);
    wrong_number(t, 2, 2, ATTN_ERROR_INVALID_ARGUMENT, "training");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "rows");
    wrong_number(t, 4, 0, ATTN_ERROR_INVALID_ARGUMENT, "longest");
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pruning), cmocka_unit_test(listing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

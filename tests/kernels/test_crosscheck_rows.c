/* norms, softmax, embedding and loss: BLAS against the two references */
#include <attn/operations.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/compare.h"
#include "support/crosscheck.h"

typedef struct row_shape {
    int64_t rows, width, gap;
    int optional; /* bits: which of the optional arguments are given */
    int add, in_place;
    double rate;
} row_shape;

static const row_shape shapes[] = {
    {5, 7, 0, 31, 0, 0, 0},     {0, 7, 0, 31, 1, 0, 0.5},    {4, 0, 0, 31, 0, 0, 0},    {1, 1, 0, 31, 1, 0, 0},
    {3, 2, 1, 0, 0, 0, 0},      {9, 64, 3, 1, 1, 1, 0.4},    {33, 65, 0, 2, 0, 0, 0.1}, {2, 1031, 5, 4, 1, 1, 0},
    {67, 127, 0, 8, 0, 1, 0.9}, {13, 256, 0, 16, 1, 0, 0.2}, {129, 48, 2, 27, 0, 0, 1}, {6, 515, 0, 15, 1, 1, 0.3},
    {300, 5, 0, 23, 0, 0, 0.3},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static int32_t norm; /* under test */

static attn__dropout drop_of(crosscheck *c, const row_shape *s)
{
    attn__dropout drop = {s->rate, 23, 77, 12, {NULL, NULL}};
    drop.places = places(c, s->rows, 31);
    return drop;
}

static void norm_case(crosscheck *c, const void *what)
{
    const row_shape *s = what;
    int has_gain = s->optional & 1, has_shift = s->optional & 2, has_s = s->optional & 4, keeps_r = s->optional & 8,
        keeps_statistics = s->optional & 16;
    c->gap = s->gap;
    trio x = input_rows(c, s->rows, s->width, -2, 3), add = input_rows(c, s->rows, s->width, -1, 1);
    trio gain = input_rows(c, 1, s->width, 0.5, 1.5), shift = input_rows(c, 1, s->width, -1, 1);
    trio r = result_rows(c, s->rows, s->width, 0), y = result_rows(c, s->rows, s->width, 0);
    c->gap = 0;
    trio statistics = result_rows(c, s->rows, 2, 0);
    attn__dropout drop = drop_of(c, s);
    for (int run = 0; run < RUNS; run++) {
        view *to = !keeps_r ? NULL : s->in_place ? &x.at[run] : &r.at[run];
        assert_int_equal(c->table[run]->residual_norm(c->ctx[run], &x.at[run], has_s ? &add.at[run] : NULL, &drop, norm, 1e-5,
                                                      has_gain ? &gain.at[run] : NULL, has_shift ? &shift.at[run] : NULL, to, &y.at[run],
                                                      keeps_statistics ? statistics.at[run].data : NULL),
                         ATTN_OK);
    }
    expect_close(c, "residual_norm", 4, &y);
    expect_close(c, "residual", 1, &x);
    if (s->width > 1) expect_close(c, "residual_norm", 4, &statistics); /* of one column: a deviation of rounding */
    if (!has_s || s->in_place) return;
    expect_close(c, "residual", 1, &r);
}

static void norm_back_case(crosscheck *c, const void *what)
{
    const row_shape *s = what;
    int has_gain = s->optional & 1, has_in = s->optional & 2, has_ds = s->optional & 4, has_dgain = s->optional & 8,
        has_dshift = s->optional & 16;
    c->gap = s->gap;
    trio dy = input_rows(c, s->rows, s->width, -1, 1), r = input_rows(c, s->rows, s->width, -2, 3);
    trio gain = input_rows(c, 1, s->width, 0.5, 1.5), dr_in = input_rows(c, s->rows, s->width, -1, 1);
    trio dr = result_rows(c, s->rows, s->width, 0), ds = result_rows(c, s->rows, s->width, 0);
    trio dgain = result_rows(c, 1, s->width, 1), dshift = result_rows(c, 1, s->width, 1);
    c->gap = 0;
    trio statistics = result_rows(c, s->rows, 2, 0), y = result_rows(c, s->rows, s->width, 0);
    attn__dropout drop = drop_of(c, s);
    trio *to = !s->in_place ? &dr : has_in ? &dr_in : &dy;
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        assert_int_equal(
            t->residual_norm(c->ctx[run], &r.at[run], NULL, NULL, norm, 1e-5, NULL, NULL, NULL, &y.at[run], statistics.at[run].data),
            ATTN_OK);
        assert_int_equal(t->residual_norm_back(c->ctx[run], &dy.at[run], has_in ? &dr_in.at[run] : NULL, &r.at[run],
                                               statistics.at[run].data, &drop, norm, has_gain ? &gain.at[run] : NULL, &to->at[run],
                                               has_ds ? &ds.at[run] : NULL, has_dgain ? &dgain.at[run] : NULL,
                                               has_dshift ? &dshift.at[run] : NULL),
                         ATTN_OK);
    }
    if (s->width < 3 && norm == ATTN_NORM_LAYER) return; /* nothing but rounding is left of one or two columns */
    expect_close(c, "residual_norm_back", 4, to);
    expect_close(c, "residual_norm_back", 4, &ds);
    expect_close(c, "residual_norm_back", (double)s->rows + 1, &dgain);
    expect_close(c, "residual_norm_back", (double)s->rows + 1, &dshift);
}

static void residual_case(crosscheck *c, const void *what)
{
    const row_shape *s = what;
    c->gap = s->gap;
    trio x = input_rows(c, s->rows, s->width, -1, 1), add = input_rows(c, s->rows, s->width, -1, 1),
         r = result_rows(c, s->rows, s->width, 0);
    attn__dropout drop = drop_of(c, s);
    trio *to = s->in_place ? &x : &r;
    for (int run = 0; run < RUNS; run++) {
        assert_int_equal(c->table[run]->residual(c->ctx[run], &x.at[run], &add.at[run], s->optional & 1 ? &drop : NULL, &to->at[run]),
                         ATTN_OK);
    }
    expect_close(c, "residual", 1, to);
}

/* Rows far from 0: the mean that is kept for the backward is the nearest float32, so that no more than its rounding is lost there. */
static void far_case(crosscheck *c, const void *what)
{
    const row_shape *s = what;
    for (double base = 1; base < 1e7; base *= 7) {
        trio x = input_rows(c, s->rows, s->width, base, base + 2), y = result_rows(c, s->rows, s->width, 0),
             statistics = result_rows(c, s->rows, 2, 0);
        for (int run = 0; run < RUNS; run++)
            assert_int_equal(c->table[run]->residual_norm(c->ctx[run], &x.at[run], NULL, NULL, ATTN_NORM_LAYER, 1e-5, NULL, NULL, NULL,
                                                          &y.at[run], statistics.at[run].data),
                             ATTN_OK);
        for (int64_t r = 0; r < s->rows; r++) {
            double mean = element_get(&statistics.at[RUN_BLAS], r, 0, 0), right = element_get(&statistics.at[RUN_FLOAT64], r, 0, 0);
            double step = (double)nextafterf((float)right, INFINITY) - (double)(float)right;
            if (!(fabs(mean - right) <= 0.55 * step))
                fail_msg("%d columns at %g: mean %.9g, expected %.9g", (int)s->width, base, mean, right);
        }
    }
}

static int log_form; /* of softmax under test */

/* some rows hold minus infinities, one only those */
static void block(const trio *x)
{
    for (int run = 0; run < RUNS; run++) {
        for (int64_t r = 1; r < x->at[run].rows; r += 3) {
            for (int64_t k = r == 4 ? 0 : 1; k < x->at[run].width; k += r == 4 ? 1 : 2) element_set(&x->at[run], r, 0, k, -INFINITY);
        }
    }
}

static void softmax_case(crosscheck *c, const void *what)
{
    const row_shape *s = what;
    c->gap = s->gap;
    trio x = input_rows(c, s->rows, s->width, -4, 4), dy = input_rows(c, s->rows, s->width, -1, 1);
    trio y = result_rows(c, s->rows, s->width, 0), dx = result_rows(c, s->rows, s->width, s->add);
    if (s->rows > 5) block(&x);
    for (int run = 0; run < RUNS; run++) {
        assert_int_equal(c->table[run]->softmax(c->ctx[run], &x.at[run], log_form, &y.at[run]), ATTN_OK);
        assert_int_equal(c->table[run]->softmax_back(c->ctx[run], &y.at[run], log_form, &dy.at[run], s->add, &dx.at[run]), ATTN_OK);
    }
    expect_close(c, "softmax", 4, &y);
    expect_close(c, "softmax_back", log_form ? (double)s->width : 4, &dx);
}

static void embed_case(crosscheck *c, const void *what)
{
    const row_shape *s = what;
    int32_t kind = s->optional % 3;
    int from_x = s->optional == 8 || s->optional == 4;
    c->gap = s->gap;
    trio table = input_rows(c, 11, s->width, -1, 1), x = input_rows(c, s->rows, s->width, -1, 1),
         learned = input_rows(c, 40, s->width, -1, 1);
    trio dy = input_rows(c, s->rows, s->width, -1, 1), y = result_rows(c, s->rows, s->width, 0),
         dx = result_rows(c, s->rows, s->width, s->add);
    trio dtable = result_rows(c, 11, s->width, 1), dlearned = result_rows(c, 40, s->width, 1);
    view tokens = integers(c, s->rows % 2 ? ATTN_INT32 : ATTN_INT64, s->rows, 0, 11);
    attn__dropout drop = drop_of(c, s);
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        assert_int_equal(t->embed(c->ctx[run], from_x ? NULL : &tokens, from_x ? NULL : &table.at[run], from_x ? &x.at[run] : NULL, 1.75,
                                  kind, kind == ATTN_POSITIONS_LEARNED ? &learned.at[run] : NULL, drop.places, &drop, &y.at[run]),
                         ATTN_OK);
        assert_int_equal(t->embed_back(c->ctx[run], from_x ? NULL : &tokens, 1.75, drop.places, &drop, &dy.at[run],
                                       from_x ? NULL : &dtable.at[run], kind == ATTN_POSITIONS_LEARNED ? &dlearned.at[run] : NULL, s->add,
                                       from_x ? &dx.at[run] : NULL),
                         ATTN_OK);
    }
    expect_close(c, "embed", 2, &y);
    expect_close(c, "embed_back", (double)s->rows, &dtable);
    expect_close(c, "embed_back", (double)s->rows, &dlearned);
    expect_close(c, "embed_back", 2, &dx);
}

static void loss_case(crosscheck *c, const void *what)
{
    const row_shape *s = what;
    double smoothing = s->rate == 1 ? 0.5 : s->rate, value[2][RUNS];
    int32_t form = s->optional % 2;
    c->gap = s->gap;
    trio logits = input_rows(c, s->rows, s->width, -6, 6);
    view labels = integers(c, s->rows % 2 ? ATTN_INT32 : ATTN_INT64, s->rows, -1, s->width);
    attn__loss_sums sums[RUNS];
    int64_t ignored = s->width > 3 ? 2 : -1;
    if (s->width < 2 && form == 1) smoothing = 0;
    if (smoothing == 0 && s->rows > 3) {
        for (int run = 0; run < RUNS && s->width > 3; run++) element_set(&logits.at[run], 3, 0, 2, -INFINITY); /* label 2 is ignored */
    }
    for (int run = 0; run < RUNS; run++) {
        assert_int_equal(c->table[run]->loss(c->ctx[run], &logits.at[run], &labels, smoothing, form, ignored, s->add, &sums[run]), ATTN_OK);
        value[0][run] = sums[run].loss;
        value[1][run] = sums[run].unsmoothed;
    }
    assert_int_equal(sums[RUN_BLAS].count, sums[RUN_FLOAT64].count);
    assert_int_equal(sums[RUN_FLOAT32].count, sums[RUN_FLOAT64].count);
    if (!s->add) {
        expect_close_numbers(c, "loss", 4, value[0]);
        expect_close_numbers(c, "loss", 4, value[1]);
    } else {
        expect_close(c, "loss", 4, &logits);
    }
}

static void run_shapes(crosscheck_case *run, int nudged, int nudges)
{
    crosscheck c;
    crosscheck_open(&c);
    for (int i = 0; i < SHAPES; i++) crosscheck_run(&c, run, &shapes[i], i == nudged ? nudges : 0);
    crosscheck_close(&c);
}

static void test_norms(void **state)
{
    (void)state;
    for (norm = ATTN_NORM_LAYER; norm <= ATTN_NORM_RMS; norm++) {
        run_shapes(norm_case, 0, 4);
        run_shapes(norm_back_case, 0, 4);
    }
}

static void test_far_norms(void **state)
{
    static const row_shape far[] = {{9, 4, 0, 0, 0, 0, 0}, {9, 100, 0, 0, 0, 0, 0}, {9, 500, 0, 0, 0, 0, 0}, {9, 1400, 0, 0, 0, 0, 0}};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < 4; i++) crosscheck_run(&c, far_case, &far[i], 0);
    crosscheck_close(&c);
}

static void test_softmax(void **state)
{
    (void)state;
    for (log_form = 0; log_form < 2; log_form++) run_shapes(softmax_case, 0, 2);
}

static void test_residual(void **state)
{
    (void)state, run_shapes(residual_case, 0, 2);
}
static void test_embed(void **state)
{
    (void)state, run_shapes(embed_case, SHAPES - 1, 1);
}
static void test_loss(void **state)
{
    (void)state, run_shapes(loss_case, 0, 1);
}

/* values that are refused, by every table, before anything is written */
static void test_refused(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    trio table = input_rows(&c, 5, 3, -1, 1), logits = input_rows(&c, 4, 5, -1, 1), before = logits, y = result_rows(&c, 4, 3, 0);
    attn__places at = places(&c, 4, 4);
    view tokens = integers(&c, ATTN_INT64, 4, 0, 5), labels = integers(&c, ATTN_INT64, 4, 0, 5);
    trio learned = input_rows(&c, 3, 3, -1, 1); /* positions reach 3 */
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c.table[run];
        attn_context *ctx = c.ctx[run];
        attn__loss_sums sums = {0};
        ((int64_t *)labels.data)[2] = 5;
        double first = element_get(&before.at[run], 0, 0, 0);
        assert_int_equal(t->loss(ctx, &logits.at[run], &labels, 0, 0, -1, 1, &sums), ATTN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_context_last_error(ctx), "2"));
        assert_non_null(strstr(attn_context_last_error(ctx), "5"));
        expect_number(element_get(&logits.at[run], 0, 0, 0), first, 0);
        for (int64_t bad = -1; bad <= 5; bad += 6) {
            ((int64_t *)tokens.data)[3] = bad;
            assert_int_equal(t->embed(ctx, &tokens, &table.at[run], NULL, 1, ATTN_POSITIONS_NONE, NULL, at, NULL, &y.at[run]),
                             ATTN_ERROR_INVALID_ARGUMENT);
            assert_non_null(strstr(attn_context_last_error(ctx), "3"));
        }
        ((int64_t *)tokens.data)[3] = 0;
        assert_int_equal(t->embed(ctx, &tokens, &table.at[run], NULL, 1, ATTN_POSITIONS_LEARNED, &learned.at[run], at, NULL, &y.at[run]),
                         ATTN_ERROR_INVALID_ARGUMENT);
        assert_true(isnan(element_get(&y.at[run], 0, 0, 0)));
    }
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms), cmocka_unit_test(test_residual), cmocka_unit_test(test_softmax), cmocka_unit_test(test_far_norms),
        cmocka_unit_test(test_embed), cmocka_unit_test(test_loss),     cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

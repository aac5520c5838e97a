/* The reference backend against known values. Names B000 are rows of the project's table of faults seen in other libraries. */
#include <attn/operations.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/kernels.h"
#include "support/compare.h"
#include "tensor/parameters.h"

static attn_context *ctx;
static const attn__kernels *table;

static int open_reference(void **state)
{
    attn_context_options options;
    (void)state;
    assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
    options.backend = ATTN_BACKEND_REFERENCE;
    options.threads = 1;
    assert_int_equal(attn_context_create(&options, &ctx), ATTN_OK);
    assert_int_equal(attn__enter(ctx), ATTN_OK);
    return attn__kernels_for(ctx, ATTN_FLOAT64, &table);
}

static int close_reference(void **state)
{
    (void)state;
    attn__leave(ctx, ATTN_OK);
    attn_context_free(ctx);
    return 0;
}

static view rows(double *data, int64_t count, int64_t width)
{
    return (view){data, count, 1, width, width, 0, ATTN_FLOAT64, 0};
}
static view floats(float *data, int64_t count, int64_t width)
{
    return (view){data, count, 1, width, width, 0, ATTN_FLOAT32, 0};
}

static void expect_row(const double *got, const double *want, int64_t n, double within)
{
    for (int64_t i = 0; i < n; i++) expect_number(got[i], want[i], within);
}

static void test_linear(void **state)
{
    double x[] = {1, 2, 3, -1, 0, 1}, w[] = {1, 0, -1, 2, 2, 2}, b[] = {10, 20}, y[4], u[4], d[4] = {1, 2, 3, 4}, dx[6], dw[6] = {0},
           db[2] = {5, 5};
    const double want_u[] = {8, 32, 8, 20}, want_dx[] = {5, 4, 3, 11, 8, 5}, want_dw[] = {-2, 2, 6, -2, 4, 10};
    view vx = rows(x, 2, 3), vw = rows(w, 2, 3), vb = rows(b, 1, 2), vy = rows(y, 2, 2), vu = rows(u, 2, 2), vd = rows(d, 2, 2),
         vdx = rows(dx, 2, 3);
    view vdw = rows(dw, 2, 3), vdb = rows(db, 1, 2);
    attn__activation act = {ATTN_ACTIVATION_RELU, 0, 1, NULL};
    (void)state;
    assert_int_equal(table->linear(ctx, &vx, &vw, &vb, NULL, NULL, &vy, NULL), ATTN_OK);
    expect_row(y, want_u, 4, 0);
    b[0] = -2 * want_u[0]; /* 1 - 3 - 16 is negative */
    assert_int_equal(table->linear(ctx, &vx, &vw, &vb, &act, NULL, &vy, &vu), ATTN_OK);
    expect_number(u[0], -18, 0);
    expect_number(y[0], 0, 0);
    assert_int_equal(table->linear_d_input(ctx, &vd, &vw, 0, &vdx), ATTN_OK);
    expect_row(dx, want_dx, 6, 0);
    assert_int_equal(table->linear_d_weight(ctx, &vd, &vx, &vdw, &vdb), ATTN_OK);
    expect_row(dw, want_dw, 6, 0);
    expect_number(db[0], 9, 0);
    expect_number(db[1], 11, 0);
}

static void test_activations(void **state)
{
    const struct {
        int32_t kind;
        double x, y, within;
    } values[] = {
        /* B059: both forms of GELU */
        {ATTN_ACTIVATION_GELU, 1, 0.841345, 1e-6},
        {ATTN_ACTIVATION_GELU, -1, -0.158655, 1e-6},
        {ATTN_ACTIVATION_GELU, -2, -0.0455003, 1e-7},
        {ATTN_ACTIVATION_GELU, -5, -1.43326e-6, 1e-11},
        {ATTN_ACTIVATION_GELU_TANH, 1, 0.841192, 1e-6},
        {ATTN_ACTIVATION_GELU_TANH, -1, -0.158808, 1e-6},
        {ATTN_ACTIVATION_GELU_TANH, -2, -0.0454023, 1e-7},
        {ATTN_ACTIVATION_GELU_TANH, -5, -2.2918e-7, 1e-11},
        {ATTN_ACTIVATION_RELU, -3, 0, 0},
        {ATTN_ACTIVATION_RELU, 3, 3, 0},
        {ATTN_ACTIVATION_RELU, NAN, NAN, 0},
        {ATTN_ACTIVATION_SWISH, 2, 2 * 0.95257412682243336, 1e-12}, /* beta 1.5 */
        {ATTN_ACTIVATION_SWISH, -1000, 0, 1e-300},
        {ATTN_ACTIVATION_SIGMOID, 0, 0.5, 0},
        {ATTN_ACTIVATION_SIGMOID, -800, 0, 1e-300},
        {ATTN_ACTIVATION_TANH, 0.5, 0.46211715726000976, 1e-15},
        {ATTN_ACTIVATION_IDENTITY, -7, -7, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        double x = values[i].x, y;
        view vx = rows(&x, 1, 1), vy = rows(&y, 1, 1);
        attn__activation act = {values[i].kind, 0, 1.5, NULL};
        assert_int_equal(table->activation(ctx, &act, &vx, NULL, &vy), ATTN_OK);
        expect_number(y, values[i].y, values[i].within);
    }
}

static void norm_of(int32_t norm, double *x, int64_t n, double epsilon, double shift, double *y)
{
    double shifts[1024], statistics[2];
    for (int64_t i = 0; i < n; i++) shifts[i] = shift;
    view vx = rows(x, 1, n), vy = rows(y, 1, n), vs = rows(shifts, 1, n);
    assert_int_equal(table->residual_norm(ctx, &vx, NULL, NULL, norm, epsilon, NULL, &vs, NULL, &vy, statistics), ATTN_OK);
}

static void test_norms(void **state)
{
    double y[1024], x[1024];
    (void)state;
    memcpy(x, (double[]){40000, 40001, 40002, 40003}, 4 * sizeof *x); /* B050 */
    norm_of(ATTN_NORM_LAYER, x, 4, 1e-5, 0, y);
    expect_row(y, (double[]){-1.341635, -0.447212, 0.447212, 1.341635}, 4, 1e-5);
    for (int i = 0; i < 256; i++) x[i] = 1234; /* B052 */
    norm_of(ATTN_NORM_LAYER, x, 256, 1e-5, 0.5, y);
    for (int i = 0; i < 256; i++) expect_number(y[i], 0.5, 0);
    memcpy(x, (double[]){0, 2e-3}, 2 * sizeof *x); /* B054 */
    norm_of(ATTN_NORM_LAYER, x, 2, 1e-5, 0, y);
    expect_row(y, (double[]){-0.301511, 0.301511}, 2, 1e-6);
    memset(x, 0, sizeof x);
    norm_of(ATTN_NORM_LAYER, x, 2, 1e-5, 0, y);
    expect_row(y, (double[]){0, 0}, 2, 0);
    memcpy(x, (double[]){1e-3, 1e-3}, 2 * sizeof *x); /* B055 */
    norm_of(ATTN_NORM_RMS, x, 2, 1e-5, 0, y);
    expect_row(y, (double[]){0.301511, 0.301511}, 2, 1e-6);
    memset(x, 0, sizeof x);
    norm_of(ATTN_NORM_RMS, x, 1024, 1e-5, 0, y); /* B056 */
    expect_number(y[7], 0, 0);
    x[7] = 100;
    norm_of(ATTN_NORM_RMS, x, 1024, 1e-5, 0, y);
    expect_number(y[7], 31.99998, 1e-5);
    expect_number(y[8], 0, 0);
}

static void test_softmax(void **state)
{
    const attn__kernels *single;
    float x[3] = {90, 2, -2}, y[3];
    double d[2] = {-INFINITY, -INFINITY}, out[2];
    view vx = floats(x, 1, 3), vy = floats(y, 1, 3), vd = rows(d, 1, 2), vo = rows(out, 1, 2);
    (void)state;
    assert_int_equal(attn__kernels_for(ctx, ATTN_FLOAT32, &single), ATTN_OK);
    assert_int_equal(single->softmax(ctx, &vx, 0, &vy), ATTN_OK); /* B018 */
    expect_number((double)y[0], 1, 0);
    expect_number((double)y[1], 0, 1e-38);
    expect_number((double)y[2], 0, 1e-38);
    assert_int_equal(table->softmax(ctx, &vd, 0, &vo), ATTN_OK); /* B020: all minus infinity, and one of them */
    expect_row(out, (double[]){0, 0}, 2, 0);
    assert_int_equal(table->softmax(ctx, &vd, 1, &vo), ATTN_OK);
    expect_row(out, (double[]){-INFINITY, -INFINITY}, 2, 0);
    d[1] = 0;
    assert_int_equal(table->softmax(ctx, &vd, 1, &vo), ATTN_OK);
    expect_row(out, (double[]){-INFINITY, 0}, 2, 0);
    d[0] = NAN;
    assert_int_equal(table->softmax(ctx, &vd, 0, &vo), ATTN_OK);
    assert_true(isnan(out[0]) && isnan(out[1]));
}

static void test_dropout(void **state)
{
    double x[1024], y[1024];
    int64_t sequence[1] = {3}, position[1] = {5}, kept = 0;
    view vx = rows(x, 1, 1024), vy = rows(y, 1, 1024);
    attn__dropout drop = {1, 7, 9, 1, {sequence, position}};
    (void)state;
    for (int i = 0; i < 1024; i++) x[i] = i % 2 ? NAN : 1;
    assert_int_equal(table->dropout(ctx, &vx, &drop, 0, &vy), ATTN_OK); /* B048: everything goes, NaN too */
    for (int i = 0; i < 1024; i++) expect_number(y[i], 0, 0);
    for (int i = 0; i < 1024; i++) x[i] = 1 + i;
    drop.rate = 0;
    assert_int_equal(table->dropout(ctx, &vx, &drop, 0, &vy), ATTN_OK);
    expect_row(y, x, 1024, 0);
    drop.rate = 0.25;
    assert_int_equal(table->dropout(ctx, &vx, &drop, 0, &vy), ATTN_OK);
    for (int i = 0; i < 1024; i++) {
        uint32_t word[4];
        attn__philox(attn__dropout_key(7, 1, 9), (uint32_t)i / 4, 0, 5, 3, word);
        int stays = word[i % 4] >= attn__dropout_threshold(0.25);
        expect_number(y[i], stays ? x[i] / 0.75 : 0, 1e-12);
        kept += stays;
    }
    assert_in_range(kept, 700, 836); /* 768 expected, deviation 14 */
}

static void test_positions(void **state)
{
    double x[15] = {0}, y[15];
    int64_t sequence[3] = {0}, position[3] = {0, 1, 1000};
    view vx = rows(x, 3, 5), vy = rows(y, 3, 5);
    (void)state;
    assert_int_equal(table->embed(ctx, NULL, NULL, &vx, 1, ATTN_POSITIONS_SINUSOIDAL, NULL, (attn__places){sequence, position}, NULL, &vy),
                     ATTN_OK);
    expect_row(y, (double[]){0, 1, 0, 1, 0}, 5, 0); /* the last column of an odd width is a sine */
    expect_row(y + 5, (double[]){sin(1), cos(1), sin(pow(10, -1.6)), cos(pow(10, -1.6)), sin(pow(10, -3.2))}, 5, 1e-15);
    expect_row(y + 10, (double[]){sin(1000), cos(1000), sin(pow(10, 1.4)), cos(pow(10, 1.4)), sin(pow(10, -0.2))}, 5, 1e-12);
}

static void test_embedding(void **state)
{
    double entries[] = {1, 2, 3, 4, 5, 6}, learned[] = {0.5, 0.25, -1, -2}, y[4], dentries[6] = {0}, dlearned[4] = {0},
           dy[] = {1, 2, 10, 20};
    int64_t sequence[2] = {0}, position[2] = {1, 0};
    int32_t tokens[2] = {2, 2};
    view vt = {tokens, 2, 1, 1, 1, 0, ATTN_INT32, 0}, ve = rows(entries, 3, 2), vl = rows(learned, 2, 2), vy = rows(y, 2, 2);
    view vde = rows(dentries, 3, 2), vdl = rows(dlearned, 2, 2), vdy = rows(dy, 2, 2);
    attn__places places = {sequence, position};
    (void)state;
    assert_int_equal(table->embed(ctx, &vt, &ve, NULL, 10, ATTN_POSITIONS_LEARNED, &vl, places, NULL, &vy), ATTN_OK);
    expect_row(y, (double[]){49, 58, 50.5, 60.25}, 4, 0);
    assert_int_equal(table->embed_back(ctx, &vt, 10, places, NULL, &vdy, &vde, &vdl, 0, NULL), ATTN_OK);
    expect_row(dentries, (double[]){0, 0, 0, 0, 110, 220}, 6, 0);
    expect_row(dlearned, (double[]){10, 20, 1, 2}, 4, 0);
}

static void test_loss(void **state)
{
    const double p[] = {0.1, 0.2, 0.3, 0.4};
    int64_t labels[] = {3, -1, 2, 0};
    (void)state;
    for (int form = 0; form < 2; form++) {
        double x[16], smooth = 0.2, other = form == 0 ? 0.05 : 0.2 / 3, on = form == 0 ? 0.85 : 0.8, want = 0;
        for (int i = 0; i < 16; i++) x[i] = log(p[i % 4]) + 3 * (i / 4);
        view vx = rows(x, 4, 4), vl = {labels, 4, 1, 1, 1, 0, ATTN_INT64, 0};
        attn__loss_sums sums;
        assert_int_equal(table->loss(ctx, &vx, &vl, smooth, form, 2, 1, &sums), ATTN_OK); /* rows 1 and 2 do not count */
        for (int k = 0; k < 4; k++) want -= (k == 3 ? on : other) * log(p[k]) + (k == 0 ? on : other) * log(p[k]);
        assert_int_equal(sums.count, 2);
        expect_number(sums.loss, want, 1e-12);
        expect_number(sums.unsmoothed, -log(0.4) - log(0.1), 1e-12);
        expect_row(x, (double[]){0.1 - other, 0.2 - other, 0.3 - other, 0.4 - on}, 4, 1e-12);
        expect_row(x + 4, (double[]){0, 0, 0, 0, 0, 0, 0, 0}, 8, 0);
    }
    double x[] = {-INFINITY, 1, 1}; /* a class that cannot be */
    int64_t label = 1;
    view vx = rows(x, 1, 3), vl = {&label, 1, 1, 1, 1, 0, ATTN_INT64, 0};
    attn__loss_sums sums;
    assert_int_equal(table->loss(ctx, &vx, &vl, 0, 0, -1, 1, &sums), ATTN_OK);
    expect_number(sums.loss, log(2), 1e-15);
    expect_row(x, (double[]){0, -0.5, 0.5}, 3, 1e-15);
}

static void test_adam(void **state)
{
    double p = 1, g = 4, m = 0, v = 0;
    (void)state;
    /* the first step moves by the rate, whatever the gradient; decay acts before */
    assert_int_equal(table->adam(ctx, &p, &g, &m, &v, 1, 0.5, 0, 0.1, 0.9, 0.999, 0, 0.5, 1), ATTN_OK);
    expect_number(p, 1 - 0.05 - 0.1, 1e-12);
    expect_number(m, 0.2, 1e-15);
    expect_number(v, 0.004, 1e-15);
    expect_number(g, 0, 0);
    g = -2;
    assert_int_equal(table->adam(ctx, &p, &g, &m, &v, 1, 1, 0, 0.1, 0.9, 0.999, 1e-8, 0, 2), ATTN_OK);
    double mean = (0.9 * 0.2 - 0.1 * 2) / (1 - 0.81), square = (0.999 * 0.004 + 0.001 * 4) / (1 - 0.999 * 0.999);
    expect_number(p, 0.85 - 0.1 * mean / (sqrt(square) + 1e-8), 1e-12);
}

static int32_t draw(double *logits, int64_t n, double temperature, int64_t k, double p, double uniform)
{
    view x = rows(logits, 1, n);
    int32_t token = -1;
    assert_int_equal(table->next_token(ctx, &x, temperature, k, p, &uniform, &token), ATTN_OK);
    return token;
}

/* which tokens can come, as bits */
static int reachable(double *logits, int64_t n, double temperature, int64_t k, double p)
{
    int bits = 0;
    for (int i = 0; i < 1000; i++) bits |= 1 << draw(logits, n, temperature, k, p, i / 1000.0);
    return bits;
}

static void test_sampling(void **state)
{
    double ties[] = {1, 3, 3}, four[] = {log(0.5), log(0.3), log(0.15), log(0.05)}, shuffled[] = {log(0.15), log(0.5), log(0.05), log(0.3)};
    (void)state;
    assert_int_equal(reachable(ties, 3, 0, 0, 1), 2);     /* B125: the lowest index */
    assert_int_equal(reachable(ties, 3, 1e-30, 0, 1), 6); /* the same maxima */
    assert_int_equal(reachable(ties, 3, 1e-320, 0, 1), 6);
    assert_int_equal(reachable(four, 4, 1, 0, 1), 15); /* B126: k 0 is off */
    assert_int_equal(reachable(four, 4, 1, 1, 1), 1);
    assert_int_equal(reachable(four, 4, 1, 4, 1), 15);
    assert_int_equal(reachable(four, 4, 1, 9, 1), 15);
    assert_int_equal(reachable(four, 4, 1, 0, 0.9), 7); /* B128: three tokens */
    assert_int_equal(reachable(four, 4, 1, 0, 0.4), 1);
    assert_int_equal(reachable(shuffled, 4, 1, 0, 0.9), 11);
    assert_int_equal(reachable(ties, 3, 1, 1, 1), 2);
    assert_int_equal(reachable(shuffled, 4, 1, 3, 0.6), 10); /* k first: 0.5 / 0.95 and 0.3 / 0.95 */
    assert_int_equal(draw(shuffled, 4, 1, 0, 1, 0.149), 0);  /* in index order */
    assert_int_equal(draw(shuffled, 4, 1, 0, 1, 0.151), 1);
    assert_int_equal(draw(shuffled, 4, 1, 0, 1, 1 - 0x1p-53), 3);
}

static void test_fill(void **state)
{
    enum { COUNT = 20000 };
    static double x[COUNT], y[COUNT];
    double mean = 0, square = 0;
    view vx = rows(x, 200, 100), vy = {y, 2, 1, 100, 150, 0, ATTN_FLOAT64, 0};
    (void)state;
    assert_int_equal(table->fill(ctx, &vx, ATTN__START_UNIFORM, 2, 5), ATTN_OK);
    for (int i = 0; i < COUNT; i++) {
        assert_true(x[i] >= -2 && x[i] < 2);
        mean += x[i] / COUNT;
    }
    expect_number(mean, 0, 0.03);
    assert_int_equal(table->fill(ctx, &vx, ATTN__START_NORMAL, 2, 5), ATTN_OK);
    for (int i = 0; i < COUNT; i++) square += x[i] * x[i] / COUNT;
    expect_number(square, 4, 0.15);
    assert_int_equal(table->fill(ctx, &vy, ATTN__START_NORMAL, 2, 5), ATTN_OK); /* gaps do not count */
    expect_row(y, x, 100, 0);
    expect_row(y + 150, x + 100, 100, 0);
    assert_int_equal(table->fill(ctx, &vy, ATTN__START_CONSTANT, 3, 5), ATTN_OK);
    expect_number(y[249], 3, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),    cmocka_unit_test(test_activations), cmocka_unit_test(test_norms),
        cmocka_unit_test(test_softmax),   cmocka_unit_test(test_dropout),     cmocka_unit_test(test_positions),
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_loss),        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_sampling),  cmocka_unit_test(test_fill),
    };
    return cmocka_run_group_tests(tests, open_reference, close_reference);
}

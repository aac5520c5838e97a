/* Every product of a recurrent layer and of a convolution that reaches BLAS is counted, and the counting table has foretold each multiply-add. */
#include "cost/products.h"
#include "kernels/kernels.h"

enum { WIDTH = 20, MOST = 6 };
typedef struct layer_case {
    int64_t count, lengths[MOST];
    int32_t kind, states;
} layer_case;

static const layer_case layers[] = {
    {3, {5, 2, 9}, ATTN_RECURRENT_TANH, 0},
    {3, {5, 2, 9}, ATTN_RECURRENT_TANH, 1},
    {3, {5, 2, 9}, ATTN_RECURRENT_LSTM, 0},
    {3, {5, 2, 9}, ATTN_RECURRENT_LSTM, 1},
    {6, {0, 1, 0, 1, 1, 0}, ATTN_RECURRENT_LSTM, 0},
    {6, {0, 1, 0, 1, 1, 0}, ATTN_RECURRENT_LSTM, 1},
    {1, {40}, ATTN_RECURRENT_LSTM, 1},
    {6, {30, 1, 2, 1, 2, 1}, ATTN_RECURRENT_LSTM, 1},
};

static view view_of(attn_tensor *tensor)
{
    return (view){.data = attn_tensor_data(tensor),
                  .rows = attn_tensor_extent(tensor, 0),
                  .heads = 1,
                  .width = attn_tensor_extent(tensor, 1),
                  .row_stride = attn_tensor_extent(tensor, 1),
                  .dtype = ATTN_FLOAT32};
}

/* what the counting table says of this call, without touching a number */
static int64_t foretold(attn__recurrent_arguments *a, int back)
{
    int64_t before = ctx->counts.multiply_adds;
    OK(ctx, back ? attn__kernels_count.recurrent_back(ctx, a) : attn__kernels_count.recurrent(ctx, a));
    return ctx->counts.multiply_adds - before;
}

enum { X, WEIGHT, OUTPUT, HIDDEN, CELL, GATES, CELLS, TENSORS };
static void run_case(const layer_case *c, int wanted)
{
    const int lstm = c->kind == ATTN_RECURRENT_LSTM;
    const int64_t wide = attn__recurrent_gates(c->kind) * WIDTH;
    const attn__kernels *k = NULL;
    attn_segment segments[MOST];
    int64_t rows = 0;
    char what[64];
    for (int64_t s = 0; s < c->count; rows += c->lengths[s++]) segments[s] = (attn_segment){rows, c->lengths[s], 0, s};
    const int64_t shapes[TENSORS][2] = {{rows, wide},      {wide, WIDTH}, {rows, WIDTH}, {c->count, WIDTH},
                                        {c->count, WIDTH}, {rows, wide},  {rows, WIDTH}};
    attn_tensor *t[TENSORS], *d[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        t[i] = model_tensor(ctx, ATTN_FLOAT32, shapes[i][0], shapes[i][1]);
        d[i] = model_tensor(ctx, ATTN_FLOAT32, shapes[i][0], shapes[i][1]);
        for (int64_t e = 0; e < shapes[i][0] * shapes[i][1]; e++) model_set(t[i], e, 0.01), model_set(d[i], e, 0.01);
    }
    attn__recurrent_arguments a = {.x = view_of(t[X]), .weight = view_of(t[WEIGHT]), .output = view_of(t[OUTPUT]), .kind = c->kind};
    a.segments = (attn__segments){c->count, rows, segments};
    if (c->states) a.hidden = view_of(t[HIDDEN]);
    if (c->states && lstm) a.cell = view_of(t[CELL]);
    if (lstm) a.gates = attn_tensor_data(t[GATES]), a.cells = attn_tensor_data(t[CELLS]);
    a.d_output = view_of(d[OUTPUT]);
    a.d_x = view_of(d[X]);
    if (wanted & 1) a.d_weight = view_of(d[WEIGHT]);
    if (wanted & 2) a.d_hidden = view_of(d[HIDDEN]);
    snprintf(what, sizeof what, "recurrent layer of %d rows, kind %d, gradients %d", (int)rows, c->kind, wanted);
    OK(ctx, attn__kernels_for(ctx, ATTN_FLOAT32, &k));
    int64_t forward = foretold(&a, 0), backward = foretold(&a, 1);
    counter_take();
    OK(ctx, k->recurrent(ctx, &a));
    agree(what, counter_take(), forward);
    OK(ctx, k->recurrent_back(ctx, &a));
    agree(what, counter_take(), backward);
    for (int i = 0; i < TENSORS; i++) {
        attn_tensor_free(t[i]);
        attn_tensor_free(d[i]);
    }
}

static void test_recurrent(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int wanted = 0; wanted < 4; wanted++) run_case(&layers[i], wanted);
}

/* k n d^2 for each of the three */
static void test_convolution(void **state)
{
    enum { IN = 12, OUT = 20, TAPS = 3, LENGTH = 150 };
    attn_segment segments[2] = {{0, 100, 0, 0}, {100, 50, 0, 1}};
    const attn__convolution shape = {TAPS, 2, -2, {2, LENGTH, segments}};
    const attn__kernels *k = NULL;
    attn_tensor *t[6];
    const int64_t shapes[3][2] = {{LENGTH, IN}, {OUT, TAPS * IN}, {LENGTH, OUT}};
    (void)state;
    OK(ctx, attn__kernels_for(ctx, ATTN_FLOAT32, &k));
    for (int i = 0; i < 6; i++) {
        t[i] = model_tensor(ctx, ATTN_FLOAT32, shapes[i / 2][0], shapes[i / 2][1]);
        for (int64_t e = 0; e < model_elements(t[i]); e++) model_set(t[i], e, 0.01);
    }
    view x = view_of(t[0]), dx = view_of(t[1]), w = view_of(t[2]), dw = view_of(t[3]), y = view_of(t[4]), dy = view_of(t[5]);
    for (int wanted = 0; wanted < 4; wanted++) {
        int64_t before = ctx->counts.multiply_adds, between;
        OK(ctx, attn__kernels_count.convolution(ctx, &x, &w, NULL, &shape, &y));
        between = ctx->counts.multiply_adds;
        OK(ctx, attn__kernels_count.convolution_back(ctx, &x, &w, &shape, &dy, 0, wanted & 1 ? &dx : NULL, wanted & 2 ? &dw : NULL, NULL));
        assert_int_equal(between - before, LENGTH * OUT * TAPS * IN);
        counter_take();
        OK(ctx, k->convolution(ctx, &x, &w, NULL, &shape, &y));
        agree("convolution", counter_take(), between - before);
        OK(ctx, k->convolution_back(ctx, &x, &w, &shape, &dy, 0, wanted & 1 ? &dx : NULL, wanted & 2 ? &dw : NULL, NULL));
        agree("convolution, backward", counter_take(), ctx->counts.multiply_adds - between);
    }
    for (int i = 0; i < 6; i++) attn_tensor_free(t[i]);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recurrent), cmocka_unit_test(test_convolution)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

int main(void)
{
    return run_counted("recurrent", run);
}

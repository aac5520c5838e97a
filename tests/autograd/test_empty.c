#include <attn/attn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* Tensors without elements: no rows, no heads, heads of no size, with memory nowhere. They are shapes as any other: forward and backward
   give what has elements left its right numbers, or a clear error. And shapes whose extents are too large for what is computed of them. */
enum { MOST = 16 };
static attn_context *ctx;
static attn_tape *tape;
static attn_tensor *made[MOST];
static int count;

static void open_all(int backend)
{
    ctx = model_context(backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, 1, 0);
    OK(ctx, attn_tape_create(ctx, &tape));
}

static void drop(void)
{
    while (count > 0) attn_tensor_free(made[--count]);
}

static void close_all(void)
{
    drop();
    attn_tape_free(tape);
    attn_context_free(ctx);
}

/* elements of 1; without any, at NULL */
static attn_tensor *make(int32_t dtype, int32_t rank, const int64_t *shape)
{
    attn_tensor *t = NULL;
    int64_t elements = 1;
    for (int32_t i = 0; i < rank; i++) elements = shape[i] == 0 || elements == 0 ? 0 : elements * shape[i];
    if (elements == 0)
        OK(ctx, attn_tensor_wrap(ctx, dtype, rank, shape, NULL, NULL, &t));
    else
        OK(ctx, attn_tensor_create(ctx, dtype, rank, shape, &t));
    for (int64_t i = 0; i < elements; i++) model_set(t, i, dtype == ATTN_INT32 ? 0 : 1);
    assert_true(count < MOST);
    return made[count++] = t;
}
#define FLOATS(...) make(ATTN_FLOAT32, sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__})

static attn_tensor *watch(attn_tensor *x)
{
    int64_t shape[8];
    int32_t rank = attn_tensor_rank(x);
    for (int32_t i = 0; i < rank; i++) shape[i] = attn_tensor_extent(x, i);
    attn_tensor *dx = make(ATTN_FLOAT32, rank, shape);
    OK(ctx, attn_tape_watch(ctx, tape, x, dx));
    return dx;
}

static void begin(void)
{
    const attn_tape_options o = {.struct_size = sizeof o, .training = 1, .seed = 4};
    drop();
    OK(ctx, attn_tape_begin(ctx, tape, &o));
}

static void backward(attn_tensor *y)
{
    OK(ctx, attn_tape_backward(ctx, tape, 1, (const attn_tensor *const[]){y}, NULL, 0, NULL));
}

static void every(const attn_tensor *t, double value)
{
    for (int64_t i = 0; i < model_elements(t); i++) assert_true(fabs(model_get(t, i) - value) <= 1e-6);
}

/* rows by columns, one of them 0 */
static void rows_of(int64_t rows, int64_t width)
{
    begin();
    attn_tensor *x = FLOATS(rows, width), *w = FLOATS(3, width), *b = FLOATS(3), *y = FLOATS(rows, 3), *dx = watch(x), *dw = watch(w),
                *db = watch(b);
    OK(ctx, attn_linear(ctx, tape, x, w, b, y));
    every(y, 1);
    backward(y);
    every(dx, 3);
    every(dw, 0);
    every(db, (double)rows);
    for (int which = 0; which < 8; which++) {
        begin();
        x = FLOATS(rows, width), y = FLOATS(rows, width);
        attn_tensor *one = FLOATS(width), *same = FLOATS(rows, width);
        dx = watch(x);
        attn_tensor *d_same = watch(same), *joined = FLOATS(rows, 2 * width), *loss = FLOATS(1), *ids = make(ATTN_INT32, 1, &rows),
                    *z = which == 6   ? joined
                         : which == 7 ? loss
                                      : y;
        switch (which) {
        case 0: OK(ctx, attn_layer_norm(ctx, tape, x, one, one, 1e-6, y)); break;
        case 1: OK(ctx, attn_softmax(ctx, tape, x, y)); break;
        case 2: OK(ctx, attn_log_softmax(ctx, tape, x, y)); break;
        case 3: OK(ctx, attn_dropout(ctx, tape, x, NULL, 0.4, 3, y)); break;
        case 4: OK(ctx, attn_positions_sinusoidal(ctx, tape, x, NULL, y)); break;
        case 5: OK(ctx, attn_add(ctx, tape, x, same, y)); break;
        case 6: OK(ctx, attn_concatenate(ctx, tape, 2, (const attn_tensor *const[]){x, same}, joined)); break;
        default:
            if (width == 0 && rows > 0) {
                FAILS(ctx, attn_cross_entropy(ctx, tape, x, ids, NULL, loss, NULL), ATTN_ERROR_INVALID_ARGUMENT, "labels");
                continue;
            }
            OK(ctx, attn_cross_entropy(ctx, tape, x, ids, NULL, loss, NULL));
            every(loss, 0);
        }
        backward(z);
        (void)d_same;
    }
}

/* a table of no lines for no tokens */
static void lines(void)
{
    const int64_t none = 0;
    begin();
    attn_tensor *table = FLOATS(0, 4), *d_table = watch(table), *y = FLOATS(0, 4);
    OK(ctx, attn_embedding(ctx, tape, make(ATTN_INT32, 1, &none), table, 1, y));
    backward(y);
    assert_int_equal(model_elements(d_table), 0);
}

static void heads_of(int64_t rows, int64_t heads, int64_t size, int64_t value_size)
{
    for (int which = 0; which < 6; which++) {
        begin();
        attn_tensor *q = FLOATS(rows, heads, size), *k = FLOATS(rows, heads, size), *v = FLOATS(rows, heads, value_size),
                    *y = FLOATS(rows, heads, value_size), *features = FLOATS(rows, heads, 6), *turned = FLOATS(rows, heads, size);
        watch(q), watch(k);
        attn_tensor *dv = watch(v), *z = which == 3 ? features : which == 4 ? turned : y;
        attn_linear_attention_options o;
        OK(ctx, attn_linear_attention_options_init(&o, sizeof o));
        o.map = which == 1 ? ATTN_FEATURES_ELU : ATTN_FEATURES_POSITIVE;
        if (which == 3) o.features = 6;
        switch (which) {
        case 0: OK(ctx, attn_dot_product_attention(ctx, tape, q, k, v, NULL, NULL, NULL, NULL, y)); break;
        case 1:
        case 2: OK(ctx, attn_linear_attention(ctx, tape, q, k, v, NULL, NULL, &o, y)); break;
        case 3: OK(ctx, attn_feature_map(ctx, tape, q, &o, NULL, features)); break;
        case 4: {
            attn_status status = attn_rotary(ctx, tape, q, NULL, NULL, turned);
            if (size == 0) continue; /* nothing can be turned: the options say so */
            assert_int_equal(status, ATTN_OK);
            break;
        }
        default: OK(ctx, attn_linformer_attention(ctx, tape, q, k, v, FLOATS(2, rows > 0 ? rows : 1), NULL, NULL, NULL, NULL, NULL, y));
        }
        if (which == 0 && rows > 0 && size == 0) every(y, 1); /* equal scores: the mean of ones */
        backward(z);
        if (which == 0) every(dv, 1);
    }
}

static void test_empty(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        open_all(backend);
        rows_of(0, 4);
        rows_of(3, 0);
        rows_of(0, 0);
        lines();
        heads_of(0, 2, 4, 2);
        heads_of(3, 0, 4, 2);
        heads_of(3, 2, 0, 2);
        heads_of(3, 2, 4, 0);
        heads_of(3, 2, 0, 0);
        close_all();
    }
}

/* several empty tensors at one address are values of their own */
static void test_one_address(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        open_all(backend);
        begin();
        attn_tensor *a = FLOATS(0, 4), *b = FLOATS(0, 4), *c = FLOATS(3, 0, 2), *d = FLOATS(3, 2, 0), *sum = FLOATS(0, 4);
        watch(a), watch(b), watch(c), watch(d), watch(a);
        OK(ctx, attn_add(ctx, tape, a, b, sum));
        backward(sum);
        close_all();
    }
}

/* what would be computed of the extents does not fit into 63 bits */
static void test_too_large(void **state)
{
    const int64_t large = INT64_C(1) << 60, half = INT64_C(1) << 33;
    attn_linear_attention_options o;
    (void)state;
    open_all(0);
    assert_int_equal(attn_linear_attention_options_init(&o, sizeof o), ATTN_OK);
    o.map = ATTN_FEATURES_POSITIVE;
    FAILS(ctx, attn_feature_directions(ctx, &o, FLOATS(0, half)), ATTN_ERROR_TOO_LARGE, "directions");
    FAILS(ctx, attn_feature_directions(ctx, &o, FLOATS(0, half / 4)), ATTN_ERROR_TOO_LARGE, "directions");
    o.independent = 1;
    FAILS(ctx, attn_feature_directions(ctx, &o, FLOATS(0, large)), ATTN_ERROR_TOO_LARGE, "directions");
    attn_tensor *q = FLOATS(0, 8, 0), *v = FLOATS(0, 8, 2), *y = FLOATS(0, 8, 2);
    o.features = large;
    FAILS(ctx, attn_linear_attention(ctx, NULL, q, q, v, NULL, NULL, &o, y), ATTN_ERROR_TOO_LARGE, "features");
    o.features = INT64_MAX;
    FAILS(ctx, attn_linear_attention(ctx, NULL, FLOATS(0, 1, 2), FLOATS(0, 1, 2), FLOATS(0, 1, 2), NULL, NULL, &o, FLOATS(0, 1, 2)),
          ATTN_ERROR_TOO_LARGE, "too large");
    drop();
    q = FLOATS(0, 1, half * 8), v = FLOATS(0, 1, half), y = FLOATS(0, 1, half);
    FAILS(ctx, attn_linear_attention(ctx, NULL, q, q, v, NULL, NULL, NULL, y), ATTN_ERROR_TOO_LARGE, "sums of linear attention");
    drop();
    q = FLOATS(0, 1, half * 4), v = FLOATS(0, 1, half / 16), y = FLOATS(0, 1, half / 16);
    FAILS(ctx, attn_linear_attention(ctx, NULL, q, q, v, NULL, NULL, NULL, y), ATTN_ERROR_TOO_LARGE, "sums of linear attention");
    drop();
    q = FLOATS(0, large / 2, 1), v = FLOATS(0, large / 2, 1), y = FLOATS(0, large / 2, 1);
    attn_layout *layout = NULL;
    OK(ctx, attn_layout_create(ctx, 16, &layout));
    OK(ctx, attn_layout_set_lengths(ctx, layout, 16, (const int64_t[16]){0}, 0));
    FAILS(ctx, attn_linear_attention(ctx, NULL, q, q, v, layout, layout, NULL, y), ATTN_ERROR_TOO_LARGE, "sums of linear attention");
    FAILS(ctx, attn_linear_attention(ctx, NULL, q, q, v, NULL, NULL, NULL, y), ATTN_ERROR_TOO_LARGE, "sums of linear attention");
    drop();
    FAILS(ctx, attn_linformer_project(ctx, NULL, FLOATS(0, 1, 1), FLOATS(large, 0), layout, FLOATS(0, 1, 1)), ATTN_ERROR_TOO_LARGE,
          "projected rows");
    drop();
    FAILS(ctx,
          attn_linformer_attention(ctx, NULL, FLOATS(0, 1, 4), FLOATS(0, 1, 4), FLOATS(0, 1, 4), FLOATS(large, 0), NULL, NULL, NULL, NULL,
                                   NULL, FLOATS(0, 1, 4)),
          ATTN_ERROR_TOO_LARGE, "too large");
    FAILS(ctx,
          attn_linformer_attention(ctx, NULL, FLOATS(0, 1, 4), FLOATS(0, 1, 4), FLOATS(0, 1, 4), FLOATS(large, 0), NULL, layout, layout,
                                   NULL, NULL, FLOATS(0, 1, 4)),
          ATTN_ERROR_TOO_LARGE, "projected rows");
    attn_layout_free(layout);
    drop();
    const attn_tensor *parts[8];
    for (int i = 0; i < 8; i++) parts[i] = FLOATS(0, large);
    FAILS(ctx, attn_concatenate(ctx, NULL, 8, parts, FLOATS(0, 8)), ATTN_ERROR_TOO_LARGE, "widths");
    drop();
    FAILS(ctx,
          attn_additive_attention(ctx, NULL, FLOATS(0, 1, 32769), FLOATS(0, 1, 32769), FLOATS(0, 1, 4), FLOATS(1, 32769), NULL, NULL, NULL,
                                  NULL, FLOATS(0, 1, 4)),
          ATTN_ERROR_SHAPE, "32768");
    close_all();
    open_all(1);
    FAILS(ctx, attn_softmax(ctx, NULL, FLOATS(0, large), FLOATS(0, large)), ATTN_ERROR_TOO_LARGE, "temporary memory");
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_empty), cmocka_unit_test(test_one_address), cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

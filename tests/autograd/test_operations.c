#include <attn/attention.h>
#include <attn/embedding.h>
#include <attn/loss.h>
#include <attn/measures.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "support/random.h"

/* Public operations: values worked out by hand, and what they refuse, by name. Everything on both backends. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }
#define NUMBERS(...) \
    (float[]) \
    { \
        __VA_ARGS__ \
    }
#define OK(call) expect_ok(t, call, #call)
#define FAILS(code, text, call) expect_failure(t, code, text, call, #call)

typedef struct fixture {
    attn_context *ctx;
    attn_tape *tape;
    attn_tensor *made[64];
    int count;
} fixture;

static void expect_ok(fixture *t, attn_status status, const char *call)
{
    if (status != ATTN_OK) fail_msg("%s: %s: %s", call, attn_status_name(status), attn_context_last_error(t->ctx));
}
static void expect_failure(fixture *t, attn_status code, const char *text, attn_status status, const char *call)
{
    const char *error = attn_context_last_error(t->ctx);
    if (status != code || strstr(error, text) == NULL) fail_msg("%s: %s: %s", call, attn_status_name(status), error);
}
static attn_tensor *wrap(fixture *t, int32_t dtype, int32_t rank, const int64_t *shape, void *data)
{
    attn_tensor *tensor = NULL;
    OK(attn_tensor_wrap(t->ctx, dtype, rank, shape, NULL, data, &tensor));
    return t->made[t->count++] = tensor;
}
static attn_tensor *floats(fixture *t, int64_t rows, int64_t width, float *data)
{
    return wrap(t, ATTN_FLOAT32, 2, SHAPE(rows, width), data);
}
static void expect_values(const float *got, int n, const double *want, double within)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= within)) fail_msg("element %d: got %.9g, expected %.9g", i, (double)got[i], want[i]);
}
#define VALUES(got, within, ...) expect_values(got, (int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)), (double[]){__VA_ARGS__}, within)

typedef void case_function(fixture *t);
static void on_both(case_function *function)
{
    for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++) {
        fixture f, *t = &f;
        attn_context_options o;
        memset(t, 0, sizeof *t);
        attn_context_options_init(&o, sizeof o);
        o.backend = backend;
        o.threads = 1;
        assert_int_equal(attn_context_create(&o, &t->ctx), ATTN_OK);
        OK(attn_tape_create(t->ctx, &t->tape));
        function(t);
        for (int i = 0; i < t->count; i++) attn_tensor_free(t->made[i]);
        attn_tape_free(t->tape);
        attn_context_free(t->ctx);
    }
}

static void values(fixture *t)
{
    float y[8];
    attn_tensor *y12 = floats(t, 1, 2, y), *y13 = floats(t, 1, 3, y), *y14 = floats(t, 1, 4, y), *y11 = floats(t, 1, 1, y);
    /* B018 and its neighbours */
    OK(attn_softmax(t->ctx, NULL, floats(t, 1, 3, NUMBERS(90, 2, -2)), y13));
    VALUES(y, 1e-7, 1, 0, 0);
    assert_true(y[1] < 1e-37f && y[2] < 1e-37f);
    OK(attn_softmax(t->ctx, NULL, floats(t, 1, 3, NUMBERS(-INFINITY, -INFINITY, -INFINITY)), y13));
    VALUES(y, 0, 0, 0, 0);
    OK(attn_log_softmax(t->ctx, NULL, floats(t, 1, 3, NUMBERS(1e4f, 0, -1e4f)), y13));
    VALUES(y, 1e-2, 0, -1e4, -2e4);
    /* B050, B054, B055 */
    OK(attn_layer_norm(t->ctx, NULL, floats(t, 1, 4, NUMBERS(40000, 40001, 40002, 40003)), NULL, NULL, 1e-5, y14));
    VALUES(y, 1e-4, -1.341635, -0.447212, 0.447212, 1.341635);
    OK(attn_layer_norm(t->ctx, NULL, floats(t, 1, 2, NUMBERS(0, 2e-3f)), NULL, NULL, 1e-5, y12));
    VALUES(y, 1e-5, -0.301511, 0.301511);
    OK(attn_rms_norm(t->ctx, NULL, floats(t, 1, 2, NUMBERS(1e-3f, 1e-3f)), NULL, 1e-5, y12));
    VALUES(y, 1e-5, 0.301511, 0.301511);
    /* B059 */
    attn_tensor *u = floats(t, 1, 4, NUMBERS(1, -1, -2, -5));
    OK(attn_activation(t->ctx, NULL, ATTN_ACTIVATION_GELU, u, NULL, y14));
    VALUES(y, 1e-6, 0.841345, -0.158655, -0.0455003, -1.43326e-6);
    OK(attn_activation(t->ctx, NULL, ATTN_ACTIVATION_GELU_TANH, u, NULL, y14));
    VALUES(y, 1e-6, 0.841192, -0.158808, -0.0454023, -2.2918e-7);
    OK(attn_activation(t->ctx, NULL, ATTN_ACTIVATION_SWISH, u, floats(t, 1, 1, NUMBERS(0)), y14));
    VALUES(y, 1e-6, 0.5, -0.5, -1, -2.5);
    /* weights are [out, in]; SwiGLU of one gate and one up row */
    OK(attn_linear(t->ctx, NULL, floats(t, 1, 2, NUMBERS(1, 2)), floats(t, 3, 2, NUMBERS(1, 0, 0, 1, 3, 4)),
                   wrap(t, ATTN_FLOAT32, 1, SHAPE(3), NUMBERS(10, 20, 30)), y13));
    VALUES(y, 0, 11, 22, 41);
    OK(attn_linear_gated(t->ctx, NULL, ATTN_ACTIVATION_SIGMOID, floats(t, 1, 2, NUMBERS(1, 2)), floats(t, 2, 2, NUMBERS(0, 0, 3, 4)), NULL,
                         y11));
    VALUES(y, 1e-6, 5.5);
    OK(attn_embedding(t->ctx, NULL, wrap(t, ATTN_INT64, 1, SHAPE(2), (int64_t[]){1, 0}), floats(t, 2, 2, NUMBERS(1, 2, 3, 4)), 2,
                      floats(t, 2, 2, y)));
    VALUES(y, 0, 6, 8, 2, 4);
    OK(attn_positions_sinusoidal(t->ctx, NULL, floats(t, 2, 3, NUMBERS(0, 0, 0, 1, 1, 1)), NULL, floats(t, 2, 3, y)));
    VALUES(y, 1e-6, 0, 1, 0, 1 + sin(1), 1 + cos(1), 1 + sin(pow(10000, -2.0 / 3)));
    OK(attn_concatenate(t->ctx, NULL, 2, (const attn_tensor *const[]){floats(t, 2, 1, NUMBERS(1, 2)), floats(t, 2, 2, NUMBERS(3, 4, 5, 6))},
                        floats(t, 2, 3, y)));
    VALUES(y, 0, 1, 3, 4, 2, 5, 6);
}
static void test_values(void **state)
{
    (void)state;
    on_both(values);
}

/* of many parts the last alone has a gradient: a record that names a few inputs knows of it */
static void last_part(fixture *t)
{
    enum { PARTS = 12 };
    float other[2] = {3, 4}, y[2 * PARTS], dy[2 * PARTS], dx[2] = {0, 0};
    attn_tensor *x = floats(t, 2, 1, NUMBERS(1, 2)), *joined = floats(t, 2, PARTS, y);
    const attn_tensor *parts[PARTS];
    for (int i = 0; i < PARTS; i++) parts[i] = i < PARTS - 1 ? floats(t, 2, 1, other) : x;
    for (int i = 0; i < 2 * PARTS; i++) dy[i] = (float)i;
    const attn_tensor *const outputs[1] = {joined}, *const gradients[1] = {floats(t, 2, PARTS, dy)};
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    OK(attn_tape_watch(t->ctx, t->tape, x, floats(t, 2, 1, dx)));
    OK(attn_concatenate(t->ctx, t->tape, PARTS, parts, joined));
    OK(attn_tape_backward(t->ctx, t->tape, 1, outputs, gradients, 0, NULL));
    VALUES(dx, 0, PARTS - 1, 2 * PARTS - 1);
}
static void test_last_part(void **state)
{
    (void)state;
    on_both(last_part);
}

/* B046 and B048 */
static void dropout(fixture *t)
{
    float y[2], d[2];
    attn_tensor *x = floats(t, 1, 2, NUMBERS(1, 2)), *g = floats(t, 1, 2, d), *out = floats(t, 1, 2, y);
    static const double bad[] = {-0.1, 1.5, NAN, INFINITY};
    attn_tape_options o;
    attn_tape_options_init(&o, sizeof o);
    for (o.training = 0; o.training < 2; o.training++) {
        for (int rate = 0; rate < 2; rate++) {
            OK(attn_tape_begin(t->ctx, t->tape, &o));
            OK(attn_tape_watch(t->ctx, t->tape, x, g));
            OK(attn_dropout(t->ctx, t->tape, x, NULL, rate, 0, out));
            OK(attn_tape_backward(t->ctx, t->tape, 1, (const attn_tensor *const[]){out}, NULL, 0, NULL));
            int dropped = o.training && rate == 1;
            VALUES(y, 0, dropped ? 0 : 1, dropped ? 0 : 2);
            VALUES(d, 0, dropped ? 0 : 1, dropped ? 0 : 1);
        }
    }
    for (int i = 0; i < 4; i++) FAILS(ATTN_ERROR_INVALID_ARGUMENT, "rate", attn_dropout(t->ctx, NULL, x, NULL, bad[i], 0, out));
    for (o.seed = 1; o.seed < 3; o.seed++) { /* evaluation: no dropping, whatever the seed */
        float z[4] = {0}, q[4] = {1, 2, 3, 4};
        attn_dot_product_options a;
        attn_dot_product_options_init(&a, sizeof a);
        attn_tensor *in = wrap(t, ATTN_FLOAT32, 3, SHAPE(2, 1, 2), q), *plain = wrap(t, ATTN_FLOAT32, 3, SHAPE(2, 1, 2), z),
                    *with = wrap(t, ATTN_FLOAT32, 3, SHAPE(2, 1, 2), (float[4]){0});
        o.training = 0;
        a.dropout = 0.8;
        OK(attn_tape_begin(t->ctx, t->tape, &o));
        OK(attn_dot_product_attention(t->ctx, t->tape, in, in, in, NULL, NULL, NULL, &a, with));
        OK(attn_dot_product_attention(t->ctx, NULL, in, in, in, NULL, NULL, NULL, NULL, plain));
        assert_memory_equal(attn_tensor_data(with), z, sizeof z);
    }
}
static void test_dropout(void **state)
{
    (void)state;
    on_both(dropout);
}

/* B062, B064, and both forms of smoothing */
static void loss(fixture *t)
{
    float y = 7, d[4];
    attn_tensor *logits = floats(t, 2, 2, NUMBERS(0, 0, 3, 0)), *g = floats(t, 2, 2, d), *out = wrap(t, ATTN_FLOAT32, 0, NULL, &y);
    attn_cross_entropy_options o;
    attn_loss_report r = {.struct_size = sizeof r};
    attn_cross_entropy_options_init(&o, sizeof o);
    o.mean = 1;
    o.label_smoothing = 0.2;
    OK(attn_cross_entropy(t->ctx, NULL, logits, wrap(t, ATTN_INT32, 1, SHAPE(2), (int32_t[]){0, -1}), &o, out, &r));
    assert_true(fabs(y - 0.693147) < 1e-6 && r.count == 1);
    OK(attn_cross_entropy(t->ctx, NULL, logits, wrap(t, ATTN_INT32, 1, SHAPE(2), (int32_t[]){-1, 1}), &o, out, &r));
    assert_true(fabs(y - (3 * 0.9 + log1p(exp(-3)))) < 1e-5 && fabs(r.unsmoothed_sum - (3 + log1p(exp(-3)))) < 1e-5);
    o.smoothing_form = 1;
    OK(attn_cross_entropy(t->ctx, NULL, logits, wrap(t, ATTN_INT32, 1, SHAPE(2), (int32_t[]){-1, 1}), &o, NULL, &r));
    assert_true(fabs(r.sum - (3 * 0.8 + log1p(exp(-3)))) < 1e-5);
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    OK(attn_tape_watch(t->ctx, t->tape, logits, g));
    OK(attn_cross_entropy(t->ctx, t->tape, logits, wrap(t, ATTN_INT32, 1, SHAPE(2), (int32_t[]){-1, -1}), &o, out, &r));
    OK(attn_tape_backward(t->ctx, t->tape, 1, (const attn_tensor *const[]){out}, NULL, 0, NULL));
    assert_true(y == 0 && r.count == 0);
    VALUES(d, 0, 0, 0, 0, 0);
    VALUES((const float *)attn_tensor_data(logits), 0, 0, 0, 3, 0); /* only read */
    y = 7;
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "",
          attn_cross_entropy(t->ctx, NULL, logits, wrap(t, ATTN_INT32, 1, SHAPE(2), (int32_t[]){0, 2}), &o, out, &r));
    assert_true(y == 7);
    attn_tensor *labels = wrap(t, ATTN_INT32, 1, SHAPE(2), (int32_t[]){0, 1});
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "loss", attn_cross_entropy(t->ctx, NULL, logits, labels, NULL, NULL, NULL));
    FAILS(ATTN_ERROR_SHAPE, "labels",
          attn_cross_entropy(t->ctx, NULL, logits, wrap(t, ATTN_INT32, 1, SHAPE(3), (int32_t[3]){0}), NULL, out, NULL));
    FAILS(ATTN_ERROR_DTYPE, "labels", attn_cross_entropy(t->ctx, NULL, logits, g, NULL, out, NULL));
    FAILS(ATTN_ERROR_SHAPE, "loss", attn_cross_entropy(t->ctx, NULL, logits, labels, NULL, floats(t, 1, 2, d), NULL));
    o.label_smoothing = NAN;
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "label_smoothing", attn_cross_entropy(t->ctx, NULL, logits, labels, &o, out, NULL));
}
static void test_loss(void **state)
{
    (void)state;
    on_both(loss);
}

static void refusals(fixture *t)
{
    float data[3][16] = {{0}};
    attn_tensor *x = floats(t, 3, 4, data[0]), *w = floats(t, 2, 4, data[1]), *y = floats(t, 3, 2, data[2]), *z = floats(t, 3, 4, data[2]);
    attn_tensor *narrow = floats(t, 3, 5, data[1]), *whole = wrap(t, ATTN_INT32, 2, SHAPE(3, 4), data[1]);
    attn_tensor *vector = wrap(t, ATTN_FLOAT32, 1, SHAPE(3), data[1]);
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "x: got NULL", attn_linear(t->ctx, NULL, NULL, w, NULL, y));
    FAILS(ATTN_ERROR_SHAPE, "weight: got shape [3, 5], expected [*, 4]", attn_linear(t->ctx, NULL, x, narrow, NULL, y));
    FAILS(ATTN_ERROR_SHAPE, "weight: got rank 1", attn_linear(t->ctx, NULL, x, vector, NULL, y));
    FAILS(ATTN_ERROR_SHAPE, "bias: got shape [3], expected [2]", attn_linear(t->ctx, NULL, x, w, vector, y));
    FAILS(ATTN_ERROR_SHAPE, "y: got shape [3, 4], expected [3, 2]", attn_linear(t->ctx, NULL, x, w, NULL, z));
    FAILS(ATTN_ERROR_DTYPE, "x: got int32", attn_linear(t->ctx, NULL, whole, w, NULL, y));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "y: got memory shared", attn_softmax(t->ctx, NULL, x, x));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "tape", attn_softmax(t->ctx, (attn_tape *)x, x, z));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "activation: got 7", attn_activation(t->ctx, NULL, 7, x, NULL, z));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "beta", attn_activation(t->ctx, NULL, ATTN_ACTIVATION_GELU, x, floats(t, 1, 1, data[1]), z));
    FAILS(ATTN_ERROR_SHAPE, "beta: got 3", attn_activation(t->ctx, NULL, ATTN_ACTIVATION_SWISH, x, vector, z));
    FAILS(ATTN_ERROR_SHAPE, "weight: got 3 rows", attn_linear_gated(t->ctx, NULL, 1, x, floats(t, 3, 4, data[1]), NULL, y));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "epsilon", attn_layer_norm(t->ctx, NULL, x, NULL, NULL, NAN, z));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "epsilon", attn_rms_norm(t->ctx, NULL, x, NULL, -1, z));
    FAILS(ATTN_ERROR_SHAPE, "b: got shape", attn_add(t->ctx, NULL, x, y, z));
    FAILS(ATTN_ERROR_SHAPE, "parts[1]", attn_concatenate(t->ctx, NULL, 2, (const attn_tensor *const[]){x, w}, z));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "parts[1]", attn_concatenate(t->ctx, NULL, 2, (const attn_tensor *const[]){x, NULL}, z));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "count", attn_concatenate(t->ctx, NULL, 0, NULL, z));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "scale", attn_embedding(t->ctx, NULL, whole, x, INFINITY, z));
    FAILS(ATTN_ERROR_DTYPE, "tokens", attn_embedding(t->ctx, NULL, x, x, 1, z));
    /* B160: nothing is written */
    static const int32_t bad[] = {-1, 3, INT32_MAX};
    for (int i = 0; i < 3; i++) {
        int32_t ids[3] = {0, bad[i], 1};
        data[2][0] = 42;
        FAILS(ATTN_ERROR_INVALID_ARGUMENT, "1", attn_embedding(t->ctx, NULL, wrap(t, ATTN_INT32, 1, SHAPE(3), ids), x, 1, z));
        assert_true(data[2][0] == 42);
    }
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "2", attn_positions_learned(t->ctx, NULL, x, NULL, floats(t, 2, 4, data[1]), z));
}
static void test_refusals(void **state)
{
    (void)state;
    on_both(refusals);
}

static void attention_refusals(fixture *t)
{
    static float data[4][64];
    attn_tensor *q = wrap(t, ATTN_FLOAT32, 3, SHAPE(4, 2, 3), data[0]), *k = wrap(t, ATTN_FLOAT32, 3, SHAPE(5, 2, 3), data[1]),
                *v = wrap(t, ATTN_FLOAT32, 3, SHAPE(5, 2, 2), data[2]), *y = wrap(t, ATTN_FLOAT32, 3, SHAPE(4, 2, 2), data[3]);
    attn_tensor *three = wrap(t, ATTN_FLOAT32, 3, SHAPE(5, 3, 3), data[1]), *size = wrap(t, ATTN_FLOAT32, 3, SHAPE(5, 2, 4), data[1]);
    attn_layout *one = NULL, *two = NULL;
    attn_dot_product_options o;
    attn_dot_product_options_init(&o, sizeof o);
    assert_true(o.derive_scale == 1 && o.struct_size == sizeof o);
    OK(attn_layout_create(t->ctx, 2, &one));
    OK(attn_layout_create(t->ctx, 2, &two));
    OK(attn_layout_set(t->ctx, one, 1, &(attn_segment){0, 4, 0, 0}));
    OK(attn_layout_set(t->ctx, two, 2, (attn_segment[]){{0, 2, 0, 0}, {0, 2, 0, 1}}));
#define CALL(q, k, v, ql, kl, y) attn_dot_product_attention(t->ctx, NULL, q, k, v, ql, kl, NULL, &o, y)
    OK(CALL(q, k, v, NULL, NULL, y));
    FAILS(ATTN_ERROR_SHAPE, "query: got 2 heads, expected a multiple of the 3 heads", CALL(q, three, v, NULL, NULL, y));
    FAILS(ATTN_ERROR_SHAPE, "key: got", CALL(q, size, v, NULL, NULL, y));
    FAILS(ATTN_ERROR_SHAPE, "value: got", CALL(q, k, q, NULL, NULL, y));
    FAILS(ATTN_ERROR_SHAPE, "output: got", CALL(q, k, v, NULL, NULL, q));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "output: got memory shared", CALL(q, k, k, NULL, NULL, q));
    FAILS(ATTN_ERROR_SHAPE, "key_layout: got 2 segments", CALL(q, k, v, one, two, y));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "query_layout: got row 0 in two", CALL(q, k, v, two, two, y));
    OK(attn_layout_set(t->ctx, one, 1, &(attn_segment){0, 6, 0, 0}));
    FAILS(ATTN_ERROR_SHAPE, "query_layout", CALL(q, k, v, one, NULL, y));
    static const struct {
        double scale, dropout, soft_cap;
        int32_t derive, reserved;
        const char *name;
    } bad[] = {{NAN, 0, 0, 0, 0, "scale"},      {INFINITY, 0, 0, 0, 0, "scale"}, {1, 1.5, 0, 1, 0, "dropout"},
               {1, NAN, 0, 1, 0, "dropout"},    {1, 0, -1, 1, 0, "soft_cap"},    {1, 0, INFINITY, 1, 0, "soft_cap"},
               {1, 0, 0, 2, 0, "derive_scale"}, {1, 0, 0, 1, 1, "reserved"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.scale = bad[i].scale;
        o.dropout = bad[i].dropout;
        o.soft_cap = bad[i].soft_cap;
        o.derive_scale = bad[i].derive;
        o.reserved = bad[i].reserved;
        FAILS(ATTN_ERROR_INVALID_ARGUMENT, bad[i].name, CALL(q, k, v, NULL, NULL, y));
    }
    attn_layout_free(one);
    attn_layout_free(two);
}
static void test_attention_refusals(void **state)
{
    (void)state;
    on_both(attention_refusals);
}

/* B006, B008, B023, B024 by the public call; unlisted rows keep what they have */
static void attention_values(fixture *t)
{
    float y[16], ones[32] = {1, 1, 1, 1}, zeros[32] = {0}, eight[] = {1, 2, 3, 4, 5, 6, 7, 8};
    attn_mask *causal = NULL;
    OK(attn_mask_causal(t->ctx, ATTN_ALIGN_LAST, &causal));
#define HEADS(n, h, d, p) wrap(t, ATTN_FLOAT32, 3, SHAPE(n, h, d), p)
    OK(attn_dot_product_attention(t->ctx, NULL, HEADS(1, 1, 1, zeros), HEADS(8, 1, 1, zeros), HEADS(8, 1, 1, eight), NULL, NULL, causal,
                                  NULL, HEADS(1, 1, 1, y)));
    VALUES(y, 1e-6, 4.5);
    OK(attn_dot_product_attention(t->ctx, NULL, HEADS(5, 1, 1, zeros), HEADS(2, 1, 1, zeros), HEADS(2, 1, 1, NUMBERS(10, 20)), NULL, NULL,
                                  causal, NULL, HEADS(5, 1, 1, y)));
    VALUES(y, 1e-6, 0, 0, 0, 10, 15);
    OK(attn_dot_product_attention(t->ctx, NULL, HEADS(1, 1, 4, ones), HEADS(2, 1, 4, ones), HEADS(2, 1, 1, NUMBERS(1, 0)), NULL, NULL, NULL,
                                  NULL, HEADS(1, 1, 1, y)));
    VALUES(y, 1e-6, 0.880797);
    OK(attn_dot_product_attention(t->ctx, NULL, HEADS(1, 4, 1, zeros), HEADS(1, 2, 1, zeros), HEADS(1, 2, 1, NUMBERS(0, 1)), NULL, NULL,
                                  NULL, NULL, HEADS(1, 4, 1, y)));
    VALUES(y, 0, 0, 0, 1, 1);
    attn_layout *layout = NULL;
    OK(attn_layout_create(t->ctx, 1, &layout));
    OK(attn_layout_set(t->ctx, layout, 1, &(attn_segment){1, 1, 0, 0}));
    y[0] = y[2] = 42;
    OK(attn_dot_product_attention(t->ctx, NULL, HEADS(3, 1, 1, zeros), HEADS(3, 1, 1, zeros), HEADS(3, 1, 1, NUMBERS(NAN, 5, NAN)), layout,
                                  layout, NULL, NULL, HEADS(3, 1, 1, y)));
    VALUES(y, 1e-6, 42, 5, 42);
    attn_layout_free(layout);
    attn_mask_free(causal);
}
static void test_attention_values(void **state)
{
    (void)state;
    on_both(attention_values);
}

static void measures(fixture *t)
{
    double out = -7;
    attn_tensor *a = floats(t, 1, 3, NUMBERS(1, 2, 2)), *b = floats(t, 1, 3, NUMBERS(2, -1, 0)),
                *big = floats(t, 1, 2, NUMBERS(3e30f, 4e30f));
    attn_tensor *m = floats(t, 2, 2, NUMBERS(1, 2, 3, 4)), *n = floats(t, 2, 3, NUMBERS(1, 2, 3, 4, 5, 6)),
                *zero = floats(t, 1, 3, NUMBERS(0, 0, 0));
    OK(attn_inner_product(t->ctx, a, b, &out));
    assert_true(out == 0);
    OK(attn_norm(t->ctx, a, &out));
    assert_true(out == 3);
    OK(attn_norm(t->ctx, big, &out));
    assert_true(fabs(out / 5e30 - 1) < 1e-6);
    OK(attn_cosine(t->ctx, a, a, &out));
    assert_true(out <= 1 && out > 1 - 1e-12);
    OK(attn_cosine(t->ctx, a, b, &out));
    assert_true(out == 0);
    OK(attn_cosine(t->ctx, a, zero, &out));
    assert_true(out == 0);
    OK(attn_trace(t->ctx, m, &out));
    assert_true(out == 5);
    FAILS(ATTN_ERROR_SHAPE, "a", attn_trace(t->ctx, n, &out));
    FAILS(ATTN_ERROR_SHAPE, "b", attn_inner_product(t->ctx, a, big, &out));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "out", attn_norm(t->ctx, a, NULL));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "b", attn_cosine(t->ctx, a, NULL, &out));
    assert_true(out == 5);
}
static void test_measures(void **state)
{
    (void)state;
    on_both(measures);
}

static void pack(fixture *t)
{
    attn_layout *layout = NULL;
    int32_t ids[6] = {1, 2, 9, 3, 9, 9}, rows[3] = {0}, back[6];
    float padded[12] = {1, 2, 3, 4, 99, 99, 5, 6, 99, 99, 99, 99}, packed[6], again[12];
    OK(attn_layout_create(t->ctx, 2, &layout));
    OK(attn_layout_set_lengths(t->ctx, layout, 2, SHAPE(2, 1), 0));
    attn_tensor *batch = wrap(t, ATTN_INT32, 2, SHAPE(2, 3), ids), *flat = wrap(t, ATTN_INT32, 1, SHAPE(3), rows);
    OK(attn_pack(t->ctx, batch, layout, flat));
    assert_true(rows[0] == 1 && rows[1] == 2 && rows[2] == 3);
    OK(attn_unpack(t->ctx, wrap(t, ATTN_INT32, 1, SHAPE(3), rows), layout, wrap(t, ATTN_INT32, 2, SHAPE(2, 3), back)));
    assert_true(back[0] == 1 && back[1] == 2 && back[2] == 0 && back[3] == 3 && back[4] == 0 && back[5] == 0);
    OK(attn_pack(t->ctx, wrap(t, ATTN_FLOAT32, 3, SHAPE(2, 3, 2), padded), layout, wrap(t, ATTN_FLOAT32, 2, SHAPE(3, 2), packed)));
    VALUES(packed, 0, 1, 2, 3, 4, 5, 6);
    OK(attn_unpack(t->ctx, wrap(t, ATTN_FLOAT32, 2, SHAPE(3, 2), packed), layout, wrap(t, ATTN_FLOAT32, 3, SHAPE(2, 3, 2), again)));
    VALUES(again, 0, 1, 2, 3, 4, 0, 0, 5, 6, 0, 0, 0, 0);
    OK(attn_pack(t->ctx, wrap(t, ATTN_FLOAT32, 4, SHAPE(2, 3, 2, 1), padded), layout, wrap(t, ATTN_FLOAT32, 3, SHAPE(3, 2, 1), again)));
    VALUES(again, 0, 1, 2, 3, 4, 5, 6);
    FAILS(ATTN_ERROR_SHAPE, "rows", attn_pack(t->ctx, batch, layout, batch));
    FAILS(ATTN_ERROR_SHAPE, "layout",
          attn_pack(t->ctx, wrap(t, ATTN_INT32, 2, SHAPE(2, 1), ids), layout, wrap(t, ATTN_INT32, 1, SHAPE(3), rows)));
    FAILS(ATTN_ERROR_SHAPE, "layout",
          attn_pack(t->ctx, wrap(t, ATTN_INT32, 2, SHAPE(3, 2), ids), layout, wrap(t, ATTN_INT32, 1, SHAPE(3), rows)));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "layout", attn_pack(t->ctx, batch, NULL, flat));
    attn_layout_free(layout);
}
static void test_pack(void **state)
{
    (void)state;
    on_both(pack);
}

/* float64 belongs to the reference backend, and says so */
static void test_float64(void **state)
{
    fixture f = {.count = 0}, *t = &f;
    double x[2] = {0, log(3)}, y[2];
    (void)state;
    assert_int_equal(attn_context_create(NULL, &t->ctx), ATTN_OK);
    attn_tensor *a = wrap(t, ATTN_FLOAT64, 1, SHAPE(2), x), *b = wrap(t, ATTN_FLOAT64, 1, SHAPE(2), y);
    FAILS(ATTN_ERROR_UNSUPPORTED, "reference", attn_softmax(t->ctx, NULL, a, b));
    OK(attn_context_set_backend(t->ctx, ATTN_BACKEND_REFERENCE));
    OK(attn_softmax(t->ctx, NULL, a, b));
    assert_true(fabs(y[1] - 0.75) < 1e-15);
    attn_tensor_free(a);
    attn_tensor_free(b);
    attn_context_free(t->ctx);
    assert_int_equal(attn_softmax(NULL, NULL, NULL, NULL), ATTN_ERROR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_last_part),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_attention_refusals),
        cmocka_unit_test(test_attention_values),
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

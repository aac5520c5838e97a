#include <attn/attn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "core/context.h"
#include "kernels/kernels.h"
#include "support/model.h"

/* What is rare: numbers that are none, one class, parameters as operands, heads with gaps, one tensor in several places, types a backend lacks. */
static attn_context *ctx;
static attn_tape *tape;
static attn_tensor *made[64];
static int count;

static void open_all(int32_t backend)
{
    count = 0;
    ctx = model_context(backend, 1, 0);
    OK(ctx, attn_tape_create(ctx, &tape));
}

static void close_all(void)
{
    while (count > 0) attn_tensor_free(made[--count]);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

static attn_tensor *make(int32_t dtype, int32_t rank, const int64_t *shape)
{
    attn_tensor *t = NULL;
    random_state random = {(uint64_t)count};
    OK(ctx, attn_tensor_create(ctx, dtype, rank, shape, &t));
    for (int64_t i = 0; i < model_elements(t); i++) model_set(t, i, dtype == ATTN_INT32 ? 0 : random_number(&random, -1, 1));
    return made[count++] = t;
}
#define FLOATS(...) make(ATTN_FLOAT32, sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__})
#define OF_TYPE(dtype, ...) make(dtype, sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__})

static void fill(attn_tensor *t, const double *numbers)
{
    for (int64_t i = 0; i < model_elements(t); i++) model_set(t, i, numbers[i]);
}

static void backward(const attn_tensor *y)
{
    OK(ctx, attn_tape_backward(ctx, tape, 1, &y, NULL, 0, NULL));
}

/* rows without a number above minus infinity: zeros where nothing is possible, NaN where one was */
static void test_impossible_rows(void **state)
{
    const double other = copysign(NAN, -1); /* a NaN may have a sign */
    const double rows[15] = {-INFINITY, -INFINITY, -INFINITY, NAN,   NAN,       NAN,   -INFINITY, NAN,
                             -INFINITY, other,     other,     other, -INFINITY, other, -INFINITY};
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        open_all(backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS);
        attn_tensor *x = FLOATS(5, 3), *y = FLOATS(5, 3), *labels = OF_TYPE(ATTN_INT32, 1), *loss = FLOATS(1), *dx = FLOATS(1, 3);
        fill(x, rows);
        for (int log_form = 0; log_form < 2; log_form++) {
            OK(ctx, (log_form ? attn_log_softmax : attn_softmax)(ctx, NULL, x, y));
            for (int i = 0; i < 15; i++) {
                double got = model_get(y, i);
                assert_true(i < 3 ? got == (log_form ? -INFINITY : 0) : isnan(got));
            }
        }
        for (int row = 0; row < 5; row++) {
            attn_tensor *one = FLOATS(1, 3);
            attn_loss_report r = {.struct_size = sizeof r};
            fill(one, rows + 3 * row);
            OK(ctx, attn_tape_begin(ctx, tape, NULL));
            OK(ctx, attn_tape_watch(ctx, tape, one, dx));
            OK(ctx, attn_cross_entropy(ctx, tape, one, labels, NULL, loss, &r));
            assert_int_equal(r.count, 1);
            assert_true(row == 0 ? r.sum == INFINITY && r.unsmoothed_sum == INFINITY : isnan(r.sum) && isnan(r.unsmoothed_sum));
            backward(loss);
            for (int i = 0; i < 3; i++) assert_true(row == 0 ? model_get(dx, i) == (i == 0 ? -1 : 0) : isnan(model_get(dx, i)));
            OK(ctx, attn_cross_entropy(ctx, NULL, one, labels, NULL, NULL, &r)); /* no gradient is wanted */
            assert_true(row == 0 ? r.sum == INFINITY : isnan(r.sum));
        }
        close_all();
    }
}

/* one class: no loss, whatever the smoothing and its form; a slope of what is no number is none */
static void test_single_class_and_slopes(void **state)
{
    const double numbers[4] = {NAN, 0, -1, 2};
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        open_all(backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS);
        for (int32_t form = 0; form < 2; form++) {
            attn_tensor *x = FLOATS(2, 1), *labels = OF_TYPE(ATTN_INT32, 2), *loss = FLOATS(1);
            attn_cross_entropy_options o;
            assert_int_equal(attn_cross_entropy_options_init(&o, sizeof o), ATTN_OK);
            o.label_smoothing = 0.1;
            o.smoothing_form = form;
            OK(ctx, attn_cross_entropy(ctx, NULL, x, labels, &o, loss, NULL));
            assert_true(fabs(model_get(loss, 0)) < 1e-6);
        }
        attn_tensor *u = FLOATS(1, 4), *y = FLOATS(1, 4), *du = FLOATS(1, 4);
        fill(u, numbers);
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_tape_watch(ctx, tape, u, du));
        OK(ctx, attn_activation(ctx, tape, ATTN_ACTIVATION_RELU, u, NULL, y));
        backward(y);
        assert_true(isnan(model_get(y, 0)) && isnan(model_get(du, 0)));
        assert_true(model_get(du, 1) == 0 && model_get(du, 2) == 0 && model_get(du, 3) == 1);
        /* the angle with a vector of no length is none */
        const double zeros[4] = {0, 0, 0, 0}, ones[4] = {1, 1, 1, 1};
        double cosine = 7;
        fill(u, zeros), fill(y, ones);
        OK(ctx, attn_cosine(ctx, u, y, &cosine));
        assert_true(cosine == 0);
        OK(ctx, attn_cosine(ctx, y, u, &cosine));
        assert_true(cosine == 0);
        close_all();
    }
}

/* what a kernel is asked for with numbers that no options let through */
static void test_next_token(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        open_all(backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS);
        attn_tensor *x = FLOATS(1, 4);
        const double uniform = 0.5;
        int32_t token = 7;
        const attn__kernels *k;
        view logits = {attn_tensor_data(x), 1, 1, 4, 4, 0, ATTN_FLOAT32, 0},
             wide = {NULL, 0, 1, INT64_C(1) << 60, INT64_C(1) << 60, 0, ATTN_FLOAT32, 0};
        OK(ctx, attn__enter(ctx));
        OK(ctx, attn__kernels_for(ctx, ATTN_FLOAT32, &k));
        const double temperatures[] = {NAN, -1, INFINITY};
        for (int i = 0; i < 3; i++)
            FAILS(ctx, k->next_token(ctx, &logits, temperatures[i], 0, 1, &uniform, &token), ATTN_ERROR_INVALID_ARGUMENT, "temperature");
        FAILS(ctx, k->next_token(ctx, &wide, 1, 0, 1, &uniform, &token), ATTN_ERROR_TOO_LARGE, "");
        assert_int_equal(token, 7);
        (void)attn__leave(ctx, ATTN_OK);
        close_all();
    }
}

/* copies from heads that lie together to others, and back; of heads without columns nothing */
static void test_copies(void **state)
{
    enum { ROWS = 3, HEADS = 2, SIZE = 4 };
    static float near[ROWS * HEADS * SIZE], apart[ROWS * 20];
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        open_all(backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS);
        const attn__kernels *k;
        view dense = {near, ROWS, HEADS, SIZE, HEADS * SIZE, SIZE, ATTN_FLOAT32, 0},
             gaps = {apart, ROWS, HEADS, SIZE, 20, 7, ATTN_FLOAT32, 0};
        view none = {near, ROWS, HEADS, 0, 20, 7, ATTN_FLOAT32, 0};
        OK(ctx, attn__enter(ctx));
        OK(ctx, attn__kernels_for(ctx, ATTN_FLOAT32, &k));
        for (int i = 0; i < ROWS * HEADS * SIZE; i++) near[i] = (float)i;
        for (int i = 0; i < ROWS * 20; i++) apart[i] = -1;
        OK(ctx, k->copy(ctx, &dense, 0, &gaps));
        for (int i = 0; i < ROWS * HEADS * SIZE; i++) assert_true(apart[i / 8 * 20 + i / SIZE % HEADS * 7 + i % SIZE] == (float)i);
        assert_true(apart[4] == -1 && apart[6] == -1 && apart[11] == -1 && apart[19] == -1);
        OK(ctx, k->copy(ctx, &gaps, 1, &dense));
        for (int i = 0; i < ROWS * HEADS * SIZE; i++) assert_true(near[i] == (float)(2 * i));
        OK(ctx, k->copy(ctx, &none, 0, &none));
        (void)attn__leave(ctx, ATTN_OK);
        close_all();
    }
}

/* a parameter as an operand of additions and losses: its gradient goes to its set's handle where there is one, and else nowhere */
static void test_parameters(void **state)
{
    (void)state;
    for (int handle = 0; handle < 2; handle++) {
        open_all(ATTN_BACKEND_BLAS);
        attn_transformer_options o = model_options(0, 1);
        attn_transformer *model = model_create(ctx, &o);
        attn_parameters *p = attn_transformer_parameters(model);
        attn_gradients *gradients = NULL;
        attn_tensor *w = attn_parameters_tensor(p, 0); /* [11, 8] */
        attn_tensor *x = FLOATS(11, 8), *dx = FLOATS(11, 8), *y = FLOATS(11, 8), *labels = OF_TYPE(ATTN_INT32, 11), *loss = FLOATS(1);
        OK(ctx, attn_gradients_create(ctx, p, &gradients));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        OK(ctx, attn_add(ctx, tape, x, w, y));
        OK(ctx, attn_tape_backward(ctx, tape, 1, (const attn_tensor *const[]){y}, NULL, handle, &gradients));
        const attn_tensor *dw = attn_gradients_tensor(gradients, 0);
        for (int64_t i = 0; i < 88; i++) assert_true(model_get(dx, i) == 1 && model_get(dw, i) == handle);
        OK(ctx, attn_gradients_zero(ctx, gradients));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_cross_entropy(ctx, tape, w, labels, NULL, loss, NULL));
        OK(ctx, attn_tape_backward(ctx, tape, 1, (const attn_tensor *const[]){loss}, NULL, handle, &gradients));
        double sum = 0;
        for (int64_t i = 0; i < 88; i++) sum += fabs(model_get(dw, i));
        assert_int_equal(sum > 1, handle);
        /* and of every other operation on one, whose output an addition shares */
        for (int which = 0; which < 7; which++) {
            const attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
            attn_tensor *wide = FLOATS(11, 16), *other = FLOATS(11, which == 3 ? 16 : 8), *d_other = FLOATS(11, which == 3 ? 16 : 8),
                        *z = which == 3 ? wide : y, *shared = FLOATS(11, which == 3 ? 16 : 8);
            OK(ctx, attn_gradients_zero(ctx, gradients));
            OK(ctx, attn_tape_begin(ctx, tape, &training));
            OK(ctx, attn_tape_watch(ctx, tape, other, d_other));
            switch (which) {
            case 0: OK(ctx, attn_softmax(ctx, tape, w, y)); break;
            case 1: OK(ctx, attn_dropout(ctx, tape, w, NULL, 0.4, 3, y)); break;
            case 2: OK(ctx, attn_activation(ctx, tape, ATTN_ACTIVATION_GELU, w, NULL, y)); break;
            case 3: OK(ctx, attn_concatenate(ctx, tape, 2, (const attn_tensor *const[]){w, x}, wide)); break;
            case 4: OK(ctx, attn_layer_norm(ctx, tape, w, NULL, NULL, 1e-6, y)); break;
            case 5: OK(ctx, attn_embedding(ctx, tape, labels, w, 1, y)); break;
            default: OK(ctx, attn_multiply(ctx, tape, w, x, y));
            }
            OK(ctx, attn_add(ctx, tape, z, other, shared));
            const attn_tensor *const outputs[1] = {shared}, *const arriving[1] = {other};
            OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, handle, &gradients));
            sum = 0;
            for (int64_t i = 0; i < 88; i++) sum += fabs(model_get(dw, i));
            assert_int_equal(sum > 1e-3, handle);
        }
        attn_gradients_free(gradients);
        attn_transformer_free(model);
        close_all();
    }
}

/* ... and of layers without projections, which turn it or map it to features */
static void test_parameters_of_layers(void **state)
{
    static const int32_t forms[] = {ATTN_FORM_SOFTMAX, ATTN_FORM_LINEAR, ATTN_FORM_PERFORMER};
    (void)state;
    for (int which = 0; which < 6; which++) {
        const int handle = which / 3;
        open_all(ATTN_BACKEND_BLAS);
        attn_attention_options o;
        attn_attention *projected = NULL, *plain = NULL;
        attn_gradients *gradients = NULL;
        OK(ctx, attn_attention_options_init(&o, sizeof o));
        o.query_width = 8, o.heads = 2;
        OK(ctx, attn_attention_create(ctx, &o, &projected));
        o.project_query = o.project_key = o.project_value = o.project_output = 0;
        o.form = forms[which % 3];
        if (which % 3 == 0) o.positions = ATTN_POSITIONS_ROTARY;
        OK(ctx, attn_attention_create(ctx, &o, &plain));
        attn_parameters *set = attn_attention_parameters(projected);
        const attn_tensor *w = attn_parameters_tensor(set, 0), *y = FLOATS(8, 8), *arriving = FLOATS(8, 8);
        OK(ctx, attn_gradients_create(ctx, set, &gradients));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_attention_forward(ctx, plain, tape, w, w, w, NULL, NULL, NULL, made[0]));
        OK(ctx, attn_tape_backward(ctx, tape, 1, &y, &arriving, handle, &gradients));
        double sum = 0;
        for (int64_t i = 0; i < 64; i++) sum += fabs(model_get(attn_gradients_tensor(gradients, 0), i));
        assert_int_equal(sum > 1e-3, handle);
        attn_gradients_free(gradients);
        attn_attention_free(projected);
        attn_attention_free(plain);
        close_all();
    }
}

/* heads that lie apart, and rows: gradients are copied or cleared there, and what lies between stays */
static void test_gaps(void **state)
{
    enum { ROWS = 3, HEADS = 2, SIZE = 4, HEAD = 7, ROW = 20 };
    static float memory[2][ROWS * ROW];
    const int64_t shape[3] = {ROWS, HEADS, SIZE}, strides[3] = {ROW, HEAD, 1};
    (void)state;
    for (int backend = 0; backend < 2; backend++)
        for (int used = 0; used < 2; used++) {
            open_all(backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS);
            attn_tensor *x = NULL, *dx = NULL, *near = FLOATS(ROWS, HEADS, SIZE), *dy = FLOATS(ROWS, HEADS, SIZE),
                        *y = FLOATS(ROWS, HEADS, SIZE);
            for (int i = 0; i < ROWS * ROW; i++) memory[0][i] = (float)i / 10, memory[1][i] = 77;
            OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, shape, strides, memory[0], &x));
            OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, shape, strides, memory[1], &dx));
            made[count++] = x, made[count++] = dx;
            OK(ctx, attn_tape_begin(ctx, tape, NULL));
            OK(ctx, attn_tape_watch(ctx, tape, x, dx));
            attn_tensor *dn = FLOATS(ROWS, HEADS, SIZE);
            OK(ctx, attn_tape_watch(ctx, tape, near, dn));
            OK(ctx, attn_rotary(ctx, tape, used ? x : near, NULL, NULL, y));
            OK(ctx, attn_tape_backward(ctx, tape, 1, (const attn_tensor *const[]){y}, (const attn_tensor *const[]){dy}, 0, NULL));
            for (int i = 0; i < ROWS * ROW; i++) {
                int within = i % ROW < SIZE || (i % ROW >= HEAD && i % ROW < HEAD + SIZE);
                if (!within) assert_true(memory[1][i] == 77);
                if (within && !used) assert_true(memory[1][i] == 0);
                if (within && used && i < SIZE) assert_true(memory[1][i] == (float)model_get(dy, i)); /* position 0 turns nothing */
            }
            close_all();
        }
}

/* other tensors over the memory of a value: the same elements are the value, however they are cut; a part of it, or another type, is refused;
   what has no elements is apart */
static void test_same_address(void **state)
{
    static double memory[8];
    static const struct {
        int32_t dtype, rank;
        int64_t shape[2], strides[2];
        attn_status status;
    } cases[] = {{ATTN_FLOAT32, 2, {4, 4}, {4, 1}, ATTN_OK},
                 {ATTN_FLOAT32, 2, {2, 8}, {8, 1}, ATTN_OK},
                 {ATTN_FLOAT32, 1, {16, 0}, {1, 0}, ATTN_OK},
                 {ATTN_FLOAT32, 2, {0, 4}, {4, 1}, ATTN_OK},
                 {ATTN_FLOAT32, 2, {4, 0}, {4, 1}, ATTN_OK},
                 {ATTN_FLOAT32, 2, {2, 4}, {4, 1}, ATTN_ERROR_BAD_STATE},
                 {ATTN_FLOAT32, 2, {4, 2}, {4, 1}, ATTN_ERROR_BAD_STATE},
                 {ATTN_FLOAT32, 2, {2, 2}, {8, 1}, ATTN_ERROR_BAD_STATE},
                 {ATTN_FLOAT64, 2, {2, 4}, {4, 1}, ATTN_ERROR_BAD_STATE},
                 {ATTN_FLOAT64, 2, {1, 2}, {2, 1}, ATTN_ERROR_BAD_STATE}};
    (void)state;
    open_all(ATTN_BACKEND_REFERENCE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_tensor *x = NULL, *other = NULL, *dx = FLOATS(4, 4), *y = OF_TYPE(cases[i].dtype, 8, 8), *z = NULL;
        int64_t rows = cases[i].rank == 1 ? 1 : cases[i].shape[0], width = cases[i].shape[cases[i].rank - 1];
        OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, (const int64_t[]){4, 4}, NULL, memory, &x));
        OK(ctx, attn_tensor_wrap(ctx, cases[i].dtype, cases[i].rank, cases[i].shape, cases[i].strides, memory, &other));
        OK(ctx, attn_tensor_wrap(ctx, cases[i].dtype, 2, (const int64_t[]){rows, width}, NULL, attn_tensor_data(y), &z));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        attn_status status = attn_softmax(ctx, tape, other, z);
        if (status != cases[i].status) fail_msg("case %zu: %s", i, attn_context_last_error(ctx));
        if (status == ATTN_OK && rows * width > 0) backward(z);
        attn_tensor_free(x);
        attn_tensor_free(other);
        attn_tensor_free(z);
    }
    /* the same of values with gaps, of one row, and of none */
    static const int64_t watched[3][4] = {{2, 2, 4, 1}, {1, 4, 0, 1}, {0, 4, 4, 1}},
                         used[3][4] = {{2, 2, 6, 1}, {1, 2, 0, 1}, {2, 4, 4, 1}};
    for (int i = 0; i < 3; i++) {
        attn_tensor *x = NULL, *other = NULL, *dx = FLOATS(watched[i][0], watched[i][1]), *y = FLOATS(used[i][0], used[i][1]);
        OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, watched[i], watched[i] + 2, memory, &x));
        OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, used[i], used[i] + 2, memory, &other));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        assert_int_equal(attn_softmax(ctx, tape, other, y), i == 2 ? ATTN_OK : ATTN_ERROR_BAD_STATE);
        attn_tensor_free(x);
        attn_tensor_free(other);
    }
    close_all();
}

/* one tensor in two or three places of linear attention: its gradient is the sum of those of three */
static void test_places(void **state)
{
    static const int places[4][3] = {{0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {0, 0, 0}};
    (void)state;
    for (int which = 0; which < 4; which++) {
        open_all(ATTN_BACKEND_REFERENCE);
        attn_tensor *own[3], *d_own[3], *same[2], *d_same[2], *y = FLOATS(5, 2, 4);
        for (int i = 0; i < 2; i++) same[i] = FLOATS(5, 2, 4), d_same[i] = FLOATS(5, 2, 4);
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        for (int i = 0; i < 3; i++) {
            own[i] = FLOATS(5, 2, 4), d_own[i] = FLOATS(5, 2, 4);
            for (int64_t e = 0; e < 40; e++) model_set(own[i], e, model_get(same[places[which][i]], e));
            OK(ctx, attn_tape_watch(ctx, tape, own[i], d_own[i]));
        }
        OK(ctx, attn_linear_attention(ctx, tape, own[0], own[1], own[2], NULL, NULL, NULL, y));
        backward(y);
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        for (int i = 0; i < 2; i++) OK(ctx, attn_tape_watch(ctx, tape, same[i], d_same[i]));
        OK(ctx,
           attn_linear_attention(ctx, tape, same[places[which][0]], same[places[which][1]], same[places[which][2]], NULL, NULL, NULL, y));
        backward(y);
        for (int i = 0; i < 2; i++)
            for (int64_t e = 0; e < 40; e++) {
                double sum = 0;
                for (int k = 0; k < 3; k++) sum += places[which][k] == i ? model_get(d_own[k], e) : 0;
                assert_true(fabs(sum - model_get(d_same[i], e)) < 1e-5);
            }
        close_all();
    }
}

static void test_refusals(void **state)
{
    open_all(ATTN_BACKEND_BLAS);
    attn_tensor *q = FLOATS(3, 2, 4), *y = FLOATS(3, 2, 4), *none = FLOATS(3, 0, 4), *weights = OF_TYPE(ATTN_FLOAT64, 2, 3, 3),
                *wide = OF_TYPE(ATTN_FLOAT64, 3, 2, 4), *padded = OF_TYPE(ATTN_FLOAT64, 2, 3, 4), *rows = OF_TYPE(ATTN_FLOAT64, 5, 4);
    attn_attention_bias bias[2];
    const attn_attention_bias *const list[2] = {&bias[0], &bias[1]};
    attn_linear_attention_options o;
    (void)state;
    for (int i = 0; i < 2; i++) assert_int_equal(attn_attention_bias_init(&bias[i], sizeof bias[i]), ATTN_OK);
    bias[0].kind = bias[1].kind = ATTN_BIAS_RELATIVE;
    bias[0].reach = bias[1].reach = 1;
    bias[0].values = bias[1].values = FLOATS(3, 4);
    FAILS(ctx, attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 2, list, y), ATTN_ERROR_INVALID_ARGUMENT,
          "two of one family");
    bias[0] = bias[1];
    bias[0].values = NULL;
    bias[0].kind = ATTN_BIAS_BUCKETS;
    bias[0].both_sides = 0;
    bias[0].table = FLOATS(1, 2);
    FAILS(ctx, attn_biased_attention(ctx, NULL, q, q, q, NULL, NULL, NULL, NULL, 1, list, y), ATTN_ERROR_SHAPE, "expected 2 or more");
    bias[0].table = FLOATS((1 << 20) + 2, 0);
    FAILS(ctx, attn_biased_attention(ctx, NULL, none, none, none, NULL, NULL, NULL, NULL, 1, list, FLOATS(3, 0, 4)), ATTN_ERROR_SHAPE,
          "buckets");
    FAILS(ctx, attn_linear_attention(ctx, NULL, none, q, q, NULL, NULL, NULL, none), ATTN_ERROR_SHAPE, "heads");
    FAILS(ctx, attn_linear_attention(ctx, NULL, q, none, none, NULL, NULL, NULL, y), ATTN_ERROR_SHAPE, "heads");
    /* scales with gaps, values of no size */
    static float apart[3 * 5];
    attn_tensor *scale = NULL;
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, (const int64_t[]){3, 2}, (const int64_t[]){5, 1}, apart, &scale));
    assert_int_equal(attn_linear_attention_options_init(&o, sizeof o), ATTN_OK);
    o.map = ATTN_FEATURES_IDENTITY;
    o.key_scale = scale;
    FAILS(ctx, attn_linear_attention(ctx, NULL, q, q, q, NULL, NULL, &o, y), ATTN_ERROR_SHAPE, "gaps");
    attn_tensor_free(scale);
    FAILS(ctx, attn_linear_attention_step(ctx, q, q, FLOATS(3, 2, 0), NULL, NULL, FLOATS(1, 2, 5, 1), FLOATS(3, 2, 0)), ATTN_ERROR_SHAPE,
          "value: got a size of 0");
    /* float64 is the reference's alone */
    FAILS(ctx, attn_attention_weights(ctx, wide, wide, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, weights), ATTN_ERROR_UNSUPPORTED,
          "float64");
    attn_layout *layout = NULL;
    OK(ctx, attn_layout_create(ctx, 2, &layout));
    OK(ctx, attn_layout_set_lengths(ctx, layout, 2, (const int64_t[]){3, 2}, 0));
    FAILS(ctx, attn_pack(ctx, padded, layout, rows), ATTN_ERROR_UNSUPPORTED, "float64");
    FAILS(ctx, attn_unpack(ctx, rows, layout, padded), ATTN_ERROR_UNSUPPORTED, "float64");
    OK(ctx, attn_context_set_backend(ctx, ATTN_BACKEND_REFERENCE));
    OK(ctx, attn_pack(ctx, padded, layout, rows));
    for (int64_t i = 0; i < 20; i++) assert_true(model_get(rows, i) == model_get(padded, i));
    OK(ctx, attn_unpack(ctx, rows, layout, padded));
    for (int64_t i = 20; i < 24; i++) assert_true(model_get(padded, i) == 0);
    /* integers of no width move nowhere */
    OK(ctx, attn_pack(ctx, OF_TYPE(ATTN_INT32, 2, 3, 0), layout, OF_TYPE(ATTN_INT32, 5, 0)));
    OK(ctx, attn_unpack(ctx, OF_TYPE(ATTN_INT32, 5, 0), layout, OF_TYPE(ATTN_INT32, 2, 3, 0)));
    attn_layout_free(layout);
    close_all();
}

/* a head of two columns has one pair, whose frequency no base stretches */
static void test_one_pair(void **state)
{
    attn_rotary_options o;
    (void)state;
    open_all(ATTN_BACKEND_BLAS);
    attn_tensor *x = FLOATS(4, 1, 2), *plain = FLOATS(4, 1, 2), *scaled = FLOATS(4, 1, 2);
    assert_int_equal(attn_rotary_options_init(&o, sizeof o), ATTN_OK);
    OK(ctx, attn_rotary(ctx, NULL, x, NULL, &o, plain));
    o.scaling = ATTN_ROTARY_NTK;
    o.factor = 8;
    OK(ctx, attn_rotary(ctx, NULL, x, NULL, &o, scaled));
    for (int64_t i = 0; i < 8; i++) assert_true(model_get(plain, i) == model_get(scaled, i));
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_impossible_rows),
                                       cmocka_unit_test(test_single_class_and_slopes),
                                       cmocka_unit_test(test_next_token),
                                       cmocka_unit_test(test_copies),
                                       cmocka_unit_test(test_parameters),
                                       cmocka_unit_test(test_parameters_of_layers),
                                       cmocka_unit_test(test_gaps),
                                       cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_same_address),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_one_pair)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of operations.h, embedding.h, loss.h and measures.h. Each row once without a tape and once with a tape that records. */
#define CODE(at) ((int32_t)(at).i)
THUNK(linear, attn_linear(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p))
THUNK(linear_gated, attn_linear_gated(a[0].p, a[1].p, CODE(a[2]), a[3].p, a[4].p, a[5].p, a[6].p))
THUNK(activation, attn_activation(a[0].p, a[1].p, CODE(a[2]), a[3].p, a[4].p, a[5].p))
THUNK(softmax, attn_softmax(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(log_softmax, attn_log_softmax(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(layer_norm, attn_layer_norm(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].d, a[6].p))
THUNK(rms_norm, attn_rms_norm(a[0].p, a[1].p, a[2].p, a[3].p, a[4].d, a[5].p))
THUNK(dropout, attn_dropout(a[0].p, a[1].p, a[2].p, a[3].p, a[4].d, (uint64_t)a[5].i, a[6].p))
THUNK(add, attn_add(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p))
THUNK(multiply, attn_multiply(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p))
THUNK(concatenate, attn_concatenate(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p))

typedef struct bench {
    attn_tensor *x, *dx; /* watched by a tape */
} bench;

/* a new round: x is watched, so that its operations are recorded */
static void begin(calls *t)
{
    bench *b = t->user;
    attn_tape_options o;
    OK(t->ctx, attn_tape_options_init(&o, sizeof o));
    o.training = 1;
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], &o));
    OK(t->ctx, attn_tape_watch(t->ctx, t->live[TAPE], b->x, b->dx));
}

static void arg_round(calls *t, bench *b, int taped)
{
    arg_context(t);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    if (!taped) return;
    t->user = b;
    t->before = begin;
}

/* x is argument `index`, y the last one: with a tape, a part of a value is no input and a live value no place to write to; a parameter is no
   such place either */
static void check_round(calls *t, bench *b, int taped, int index)
{
    const int y = t->count - 1;
    const attn_tensor *out = t->at[y].valid.p;
    int64_t shape[ATTN_MAX_RANK];
    check_row(t);
    if (!taped || b == NULL || t->at[y].kind != OUTPUT_KIND || out == NULL) return;
    for (int32_t i = 0; i < attn_tensor_rank(out); i++) shape[i] = attn_tensor_extent(out, i);
    attn_tensor *gradient = calls_over(t, attn_tensor_dtype(out), attn_tensor_rank(out), shape, NULL, attn_tensor_data(b->dx));
    wrong_pointer(t, y, gradient, ATTN_ERROR_BAD_STATE, t->at[y].name);
    wrong_pointer(t, y, attn_parameters_tensor(t->live[PARAMETERS], 0),
                  attn_tensor_rank(out) == 2 ? ATTN_ERROR_BAD_STATE : ATTN_ERROR_SHAPE, t->at[y].name);
    for (int32_t i = 0; i < attn_tensor_rank(b->x); i++) shape[i] = attn_tensor_extent(b->x, i);
    attn_tensor *part = calls_over(t, ATTN_FLOAT32, attn_tensor_rank(b->x), shape, NULL, (float *)attn_tensor_data(b->x) + 1);
    wrong_pointer(t, index, part, ATTN_ERROR_BAD_STATE, t->at[index].name);
}

static void wrong_codes(calls *t, int index)
{
    static const int32_t codes[4] = {-1, 7, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) wrong_number(t, index, codes[i], ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name);
}

static void wrong_numbers(calls *t, int index, int count)
{
    static const double numbers[4] = {NAN, INFINITY, -INFINITY, -0.001};
    for (int i = 0; i < count; i++) wrong_real(t, index, numbers[i], ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name);
}

/* [4, 4] everywhere, as the parameter of the stock: where it is refused, it is not for its shape */
static void products(calls *t, bench *b, int taped)
{
    ROW(t, attn_linear, linear);
    arg_round(t, b, taped);
    arg_input(t, "x", b->x, LEADS);
    arg_input(t, "weight", FLOATS(t, 4, 4), IS_MATRIX | LEADS);
    arg_input(t, "bias", FLOATS(t, 4), NULLABLE | IS_VECTOR);
    arg_output(t, "y", FLOATS(t, 4, 4), 0);
    check_round(t, b, taped, 2);

    ROW(t, attn_linear_gated, linear_gated);
    arg_round(t, b, taped);
    arg_number(t, "activation", ATTN_ACTIVATION_SWISH);
    arg_input(t, "x", b->x, LEADS);
    arg_input(t, "weight", FLOATS(t, 8, 4), IS_MATRIX | LEADS);
    arg_input(t, "bias", FLOATS(t, 8), NULLABLE | IS_VECTOR);
    arg_output(t, "y", FLOATS(t, 4, 4), 0);
    check_round(t, b, taped, 3);
    wrong_codes(t, 2);
    wrong_pointer(t, 4, FLOATS(t, 7, 4), ATTN_ERROR_SHAPE, "weight");
}

static void elementwise(calls *t, bench *b, int taped)
{
    ROW(t, attn_activation, activation);
    arg_round(t, b, taped);
    arg_number(t, "activation", ATTN_ACTIVATION_SWISH);
    arg_input(t, "x", b->x, LEADS);
    arg_input(t, "beta", FLOATS(t, 1), NULLABLE | ANY_WIDTH);
    arg_output(t, "y", FLOATS(t, 4, 4), 0);
    check_round(t, b, taped, 3);
    wrong_codes(t, 2);
    wrong_pointer(t, 4, FLOATS(t, 2), ATTN_ERROR_SHAPE, "beta");
    wrong_number(t, 2, ATTN_ACTIVATION_GELU, ATTN_ERROR_INVALID_ARGUMENT, "beta");

    for (int i = 0; i < 2; i++) {
        if (i == 0)
            ROW(t, attn_softmax, softmax);
        else
            ROW(t, attn_log_softmax, log_softmax);
        arg_round(t, b, taped);
        arg_input(t, "x", b->x, LEADS);
        arg_output(t, "y", FLOATS(t, 4, 4), 0);
        check_round(t, b, taped, 2);
    }
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            ROW(t, attn_add, add);
        else
            ROW(t, attn_multiply, multiply);
        arg_round(t, b, taped);
        arg_input(t, "a", b->x, LEADS);
        arg_input(t, "b", FLOATS(t, 4, 4), 0);
        arg_output(t, "y", FLOATS(t, 4, 4), 0);
        check_round(t, b, taped, 2);
    }
}

static void norms(calls *t, bench *b, int taped)
{
    ROW(t, attn_layer_norm, layer_norm);
    arg_round(t, b, taped);
    arg_input(t, "x", b->x, LEADS);
    arg_input(t, "weight", FLOATS(t, 4), NULLABLE | IS_VECTOR);
    arg_input(t, "bias", FLOATS(t, 4), NULLABLE | IS_VECTOR);
    arg_real(t, "epsilon", 1e-6);
    arg_output(t, "y", FLOATS(t, 4, 4), 0);
    check_round(t, b, taped, 2);
    wrong_numbers(t, 5, 4);

    ROW(t, attn_rms_norm, rms_norm);
    arg_round(t, b, taped);
    arg_input(t, "x", b->x, LEADS);
    arg_input(t, "weight", FLOATS(t, 4), NULLABLE | IS_VECTOR);
    arg_real(t, "epsilon", 1e-6);
    arg_output(t, "y", FLOATS(t, 4, 4), 0);
    check_round(t, b, taped, 2);
    wrong_numbers(t, 4, 4);
}

/* layouts that do not cover four rows once */
static void wrong_layouts(calls *t, int index)
{
    static const attn_segment gap[2] = {{0, 1, 0, 0}, {2, 2, 0, 1}}, twice[2] = {{0, 4, 0, 0}, {0, 4, 0, 1}}, longer[1] = {{0, 5, 0, 0}};
    attn_layout *layout = NULL;
    OK(t->ctx, attn_layout_create(t->ctx, 2, &layout));
    wrong_pointer(t, index, layout, ATTN_ERROR_SHAPE, "layout");
    OK(t->ctx, attn_layout_set(t->ctx, layout, 2, gap));
    wrong_pointer(t, index, layout, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    OK(t->ctx, attn_layout_set(t->ctx, layout, 2, twice));
    wrong_pointer(t, index, layout, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    OK(t->ctx, attn_layout_set(t->ctx, layout, 1, longer));
    wrong_pointer(t, index, layout, ATTN_ERROR_SHAPE, "layout");
    attn_layout_free(layout);
}

static void dropping(calls *t, bench *b, int taped)
{
    ROW(t, attn_dropout, dropout);
    arg_round(t, b, taped);
    arg_input(t, "x", b->x, LEADS);
    arg_handle(t, "layout", LAYOUT, t->live[LAYOUT], NULLABLE);
    arg_real(t, "rate", 0.5);
    arg_number(t, "site", 7);
    arg_output(t, "y", FLOATS(t, 4, 4), 0);
    check_round(t, b, taped, 2);
    wrong_numbers(t, 4, 4);
    wrong_real(t, 4, 1.001, ATTN_ERROR_INVALID_ARGUMENT, "rate");
    wrong_layouts(t, 3);
}

static void concatenating(calls *t, bench *b, int taped)
{
    attn_tensor *other = FLOATS(t, 4, 2), *short_one = FLOATS(t, 3, 2), *whole = OF_TYPE(t, ATTN_INT32, 4, 2);
    const attn_tensor *const parts[2] = {b->x, other}, *const none[2] = {b->x, NULL}, *const foreign[2] = {t->live[LAYOUT], other},
                             *const freed[2] = {b->x, t->freed[TENSOR]}, *const rows[2] = {b->x, short_one},
                             *const types[2] = {b->x, whole};
    ROW(t, attn_concatenate, concatenate);
    arg_round(t, b, taped);
    arg_number(t, "count", 2);
    arg_pointer(t, "parts", parts, 0);
    arg_output(t, "y", FLOATS(t, 4, 6), 0);
    check_row(t);
    wrong_number(t, 2, 0, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, INT64_MAX, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 2, 1, ATTN_ERROR_SHAPE, "y");
    wrong_pointer(t, 3, none, ATTN_ERROR_INVALID_ARGUMENT, "parts[1]");
    wrong_pointer(t, 3, foreign, ATTN_ERROR_INVALID_ARGUMENT, "parts[0]");
    wrong_pointer(t, 3, freed, ATTN_ERROR_INVALID_ARGUMENT, "parts[1]");
    wrong_pointer(t, 3, rows, ATTN_ERROR_SHAPE, "parts[1]");
    wrong_pointer(t, 3, types, ATTN_ERROR_DTYPE, "parts[1]");
    wrong_pointer(t, 4, calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){4, 6}, NULL, attn_tensor_data(other)), ATTN_ERROR_INVALID_ARGUMENT, "y");
}

THUNK(transpose, attn_transpose(a[0].p, a[1].p, a[2].p, a[3].p))

static void transposing(calls *t, bench *b, int taped)
{
    ROW(t, attn_transpose, transpose);
    arg_round(t, b, taped);
    arg_input(t, "x", FLOATS(t, 2, 3, 4), LEADS | IS_HEADS);
    arg_output(t, "y", FLOATS(t, 3, 2, 4), IS_HEADS);
    check_row(t);
    wrong_pointer(t, 3, FLOATS(t, 2, 3, 4), ATTN_ERROR_SHAPE, "y");
    wrong_pointer(t, 3, FLOATS(t, 3, 2, 5), ATTN_ERROR_SHAPE, "y");
}

THUNK(embedding, attn_embedding(a[0].p, a[1].p, a[2].p, a[3].p, a[4].d, a[5].p))
THUNK(sinusoidal, attn_positions_sinusoidal(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p))
THUNK(learned, attn_positions_learned(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p))

static void embeddings(calls *t, bench *b, int taped)
{
    static const int32_t types[2] = {ATTN_INT32, ATTN_INT64};
    for (int i = 0; i < 2; i++) {
        attn_tensor *tokens = OF_TYPE(t, types[i], 4), *bad = OF_TYPE(t, types[i], 4);
        ROW(t, attn_embedding, embedding);
        arg_round(t, b, taped);
        arg_input(t, "tokens", tokens, INTEGERS | LEADS);
        arg_input(t, "table", FLOATS(t, 3, 4), IS_MATRIX | LEADS | ANY_ROWS);
        arg_real(t, "scale", 2);
        arg_output(t, "y", FLOATS(t, 4, 4), 0);
        check_row(t);
        wrong_numbers(t, 4, 3);
        for (int token = 0; token < 4; token++) {
            static const double values[4] = {-1, 3, INT32_MAX, INT32_MIN};
            model_set(bad, 2, values[token]);
            wrong_pointer(t, 2, bad, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
        }
        if (i == 1) model_set(bad, 2, 4294967296.0); /* 0 in its lower half */
        if (i == 1) wrong_pointer(t, 2, bad, ATTN_ERROR_INVALID_ARGUMENT, "tokens");
    }
    ROW(t, attn_positions_sinusoidal, sinusoidal);
    arg_round(t, b, taped);
    arg_input(t, "x", b->x, LEADS);
    arg_handle(t, "layout", LAYOUT, t->live[LAYOUT], NULLABLE);
    arg_output(t, "y", FLOATS(t, 4, 4), 0);
    check_round(t, b, taped, 2);
    wrong_layouts(t, 3);

    ROW(t, attn_positions_learned, learned);
    arg_round(t, b, taped);
    arg_input(t, "x", b->x, LEADS);
    arg_handle(t, "layout", LAYOUT, t->live[LAYOUT], NULLABLE);
    arg_input(t, "table", FLOATS(t, 4, 4), IS_MATRIX | ANY_ROWS);
    arg_output(t, "y", FLOATS(t, 4, 4), 0);
    check_round(t, b, taped, 2);
    wrong_layouts(t, 3);
    wrong_pointer(t, 4, FLOATS(t, 1, 4), ATTN_ERROR_INVALID_ARGUMENT, NULL); /* a position past the table */
}

THUNK(cross_entropy, attn_cross_entropy(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p))
THUNK(cross_entropy_of_nothing, attn_cross_entropy(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, NULL, a[5].p))

static void losses(calls *t, bench *b, int taped)
{
    attn_cross_entropy_options o;
    attn_tensor *bad = OF_TYPE(t, ATTN_INT32, 4);
    OK(t->ctx, attn_cross_entropy_options_init(&o, sizeof o));
    o.label_smoothing = 0.1;
    ROW(t, attn_cross_entropy, cross_entropy);
    arg_round(t, b, taped);
    arg_input(t, "logits", b->x, LEADS | ANY_WIDTH);
    arg_input(t, "labels", OF_TYPE(t, ATTN_INT32, 4), INTEGERS);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "loss", FLOATS(t, 1), NULLABLE);
    arg_report(t, "report", sizeof(attn_loss_report), NULLABLE);
    check_row(t);
    accept_pointer(t, 4, NULL);
    for (int i = 0; i < 3; i++) {
        static const int32_t labels[3] = {4, INT32_MAX, 1 << 20};
        model_set(bad, 1, labels[i]);
        wrong_pointer(t, 3, bad, ATTN_ERROR_INVALID_ARGUMENT, "labels");
    }
    WRONG_REALS(t, 4, attn_cross_entropy_options, label_smoothing, 0, 1);
    WRONG_INT32(t, 4, attn_cross_entropy_options, mean, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 4, attn_cross_entropy_options, mean, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 4, attn_cross_entropy_options, smoothing_form, 2, ATTN_ERROR_INVALID_ARGUMENT);
    calls_row(t, "attn_cross_entropy of nothing", cross_entropy_of_nothing);
    arg_round(t, b, taped);
    arg_input(t, "logits", b->x, LEADS | ANY_WIDTH);
    arg_input(t, "labels", OF_TYPE(t, ATTN_INT32, 4), INTEGERS);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_report(t, "report", sizeof(attn_loss_report), 0);
    accept_row(t);
    wrong_pointer(t, 5, NULL, ATTN_ERROR_INVALID_ARGUMENT, "loss");
}

static void run(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    bench b = {FLOATS(t, 4, 4), FLOATS(t, 4, 4)};
    OK(t->ctx, attn_layout_set_lengths(t->ctx, t->live[LAYOUT], 2, (int64_t[]){1, 3}, 0));
    products(t, &b, taped);
    elementwise(t, &b, taped);
    norms(t, &b, taped);
    dropping(t, &b, taped);
    concatenating(t, &b, taped);
    transposing(t, &b, taped);
    embeddings(t, &b, taped);
    losses(t, &b, taped);
    calls_close(t);
}

static void operations(void **state)
{
    (void)state;
    run(ATTN_BACKEND_BLAS, 0);
    run(ATTN_BACKEND_REFERENCE, 0);
}
static void operations_on_a_tape(void **state)
{
    (void)state;
    run(ATTN_BACKEND_BLAS, 1);
    run(ATTN_BACKEND_REFERENCE, 1);
}

THUNK(inner_product, attn_inner_product(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(norm, attn_norm(a[0].p, a[1].p, a[2].p))
THUNK(cosine, attn_cosine(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(trace, attn_trace(a[0].p, a[1].p, a[2].p))

static void measures(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            ROW(t, attn_inner_product, inner_product);
        else
            ROW(t, attn_cosine, cosine);
        arg_context(t);
        arg_input(t, "a", FLOATS(t, 2, 3), LEADS);
        arg_input(t, "b", FLOATS(t, 2, 3), 0);
        arg_result(t, "out", sizeof(double), 0);
        check_row(t);
    }
    ROW(t, attn_norm, norm);
    arg_context(t);
    arg_input(t, "a", FLOATS(t, 2, 3), LEADS | ANY_ROWS | ANY_WIDTH);
    arg_result(t, "out", sizeof(double), 0);
    check_row(t);
    ROW(t, attn_trace, trace);
    arg_context(t);
    arg_input(t, "a", FLOATS(t, 3, 3), IS_MATRIX | LEADS);
    arg_result(t, "out", sizeof(double), 0);
    check_row(t);
    calls_close(t);
}

/* float64 is the reference backend's, and says so */
static void double_precision(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    (void)state;
    ROW(t, attn_softmax, softmax);
    arg_context(t);
    arg_handle(t, "tape", TAPE, NULL, NULLABLE);
    arg_input(t, "x", FLOATS(t, 2, 3), ANY_FORM);
    arg_output(t, "y", FLOATS(t, 2, 3), ANY_FORM);
    accept_row(t);
    attn_tensor *x = OF_TYPE(t, ATTN_FLOAT64, 2, 3), *y = OF_TYPE(t, ATTN_FLOAT64, 2, 3);
    FAILS(t->ctx, attn_softmax(t->ctx, NULL, x, y), ATTN_ERROR_UNSUPPORTED, "expected float32");
    OK(t->ctx, attn_context_set_backend(t->ctx, ATTN_BACKEND_REFERENCE));
    OK(t->ctx, attn_softmax(t->ctx, NULL, x, y));
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(operations), cmocka_unit_test(operations_on_a_tape), cmocka_unit_test(measures),
                                       cmocka_unit_test(double_precision)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

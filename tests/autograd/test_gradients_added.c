#include <attn/attention.h>
#include <attn/embedding.h>
#include <attn/loss.h>
#include <attn/measures.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "autograd/arguments.h"
#include "core/context.h"
#include "support/random.h"

/* A value that several operations read gets the sum of their gradients, whichever of them runs first: the gradient of two uses together is
   that of the one plus that of the other. */
#define OK(call) assert_int_equal(call, ATTN_OK)
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }
enum { MOST = 64, INPUTS = 3, ROWS = 5, WIDTH = 4 };
enum {
    SOFTMAX,
    LOG_SOFTMAX,
    ADD,
    MULTIPLY,
    GELU,
    SWISH,
    DROPOUT,
    LAYER_NORM,
    RMS_NORM,
    LINEAR,
    GATED,
    JOIN,
    JOIN_TWICE,
    TRANSPOSE,
    LOOK_UP,
    LEARNED,
    SINUSOIDAL,
    ATTEND,
    LOSS,
    PICK_ROWS,
    PUT_ROWS,
    OPERATIONS
};

/* inputs [rows, width] of each operation, and its output; the rank is 3 where there are heads, 1 where rows are 0 */
typedef struct form {
    int64_t inputs[INPUTS][2], output[2], heads;
} form;
static const form forms[OPERATIONS] = {
    [SOFTMAX] = {{{5, 4}}, {5, 4}, 0},
    [LOG_SOFTMAX] = {{{5, 4}}, {5, 4}, 0},
    [ADD] = {{{5, 4}, {5, 4}}, {5, 4}, 0},
    [MULTIPLY] = {{{5, 4}, {5, 4}}, {5, 4}, 0},
    [GELU] = {{{5, 4}}, {5, 4}, 0},
    [SWISH] = {{{5, 4}, {0, 1}}, {5, 4}, 0},
    [DROPOUT] = {{{5, 4}}, {5, 4}, 0},
    [LAYER_NORM] = {{{5, 4}, {0, 4}, {0, 4}}, {5, 4}, 0},
    [RMS_NORM] = {{{5, 4}, {0, 4}}, {5, 4}, 0},
    [LINEAR] = {{{5, 4}, {6, 4}, {0, 6}}, {5, 6}, 0},
    [GATED] = {{{5, 4}, {8, 4}, {0, 8}}, {5, 4}, 0},
    [JOIN] = {{{5, 4}, {5, 3}}, {5, 7}, 0},
    [JOIN_TWICE] = {{{5, 4}}, {5, 8}, 0}, /* the first value on the tape, and the only one */
    [TRANSPOSE] = {{{3, 12}}, {3, 12}, 3},
    [LOOK_UP] = {{{6, 4}}, {5, 4}, 0},
    [LEARNED] = {{{5, 4}, {7, 4}}, {5, 4}, 0},
    [SINUSOIDAL] = {{{5, 4}}, {5, 4}, 0},
    [ATTEND] = {{{5, 4}, {5, 4}, {5, 4}}, {5, 4}, 2},
    [LOSS] = {{{5, 4}}, {0, 1}, 0},
    [PICK_ROWS] = {{{4, 4}}, {3, 4}, 0}, /* inside the library, as the steps of a recurrent decoder are */
    [PUT_ROWS] = {{{3, 4}, {2, 4}}, {5, 4}, 0},
};

typedef struct world {
    attn_context *ctx;
    attn_tape *tape;
    random_state random;
    int32_t dtype, count;
    attn_tensor *made[MOST];
} world;

static void open_world(world *w, int32_t dtype)
{
    memset(w, 0, sizeof *w);
    w->random.at = 31;
    w->dtype = dtype;
    OK(attn_context_create(NULL, &w->ctx));
    if (dtype == ATTN_FLOAT64) OK(attn_context_set_backend(w->ctx, ATTN_BACKEND_REFERENCE));
    OK(attn_tape_create(w->ctx, &w->tape));
}

static void close_world(world *w)
{
    for (int i = 0; i < w->count; i++) attn_tensor_free(w->made[i]);
    attn_tape_free(w->tape);
    attn_context_free(w->ctx);
}

static double get(const world *w, const attn_tensor *t, int64_t i)
{
    const void *data = attn_tensor_data_const(t);
    return w->dtype == ATTN_FLOAT64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static attn_tensor *make(world *w, const int64_t size[2], int64_t heads)
{
    attn_tensor *t = NULL;
    int32_t rank = heads > 0 ? 3 : size[0] > 0 ? 2 : 1;
    const int64_t three[3] = {size[0], heads, heads > 0 ? size[1] / heads : 0}, one = size[1];
    OK(attn_tensor_create(w->ctx, w->dtype, rank, rank == 3 ? three : rank == 2 ? size : &one, &t));
    int64_t n = (size[0] > 0 ? size[0] : 1) * size[1];
    if (w->dtype == ATTN_FLOAT64)
        random_doubles(&w->random, attn_tensor_data(t), n, -1, 1);
    else
        random_floats(&w->random, attn_tensor_data(t), n, -1, 1);
    return w->made[w->count++] = t;
}

/* tokens and labels */
static attn_tensor *integers(world *w)
{
    static int32_t numbers[ROWS] = {2, 0, 2, 3, 1};
    attn_tensor *t = NULL;
    OK(attn_tensor_wrap(w->ctx, ATTN_INT32, 1, SHAPE(ROWS), NULL, numbers, &t));
    return w->made[w->count++] = t;
}

/* rows of values by their numbers, which no public call does */
static attn_status move_rows(world *w, int operation, attn_tensor *const *x, attn_tensor *y)
{
    static const int64_t picked[3] = {3, 0, 1}, first[3] = {4, 0, 2}, second[2] = {3, 1};
    attn_context *ctx = w->ctx;
    attn__row_part parts[2] = {{.row = first}, {.row = second}};
    attn__value to;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    for (int i = 0; status == ATTN_OK && i < (operation == PUT_ROWS ? 2 : 1); i++)
        status = attn__argument_input(ctx, w->tape, "x", x[i], 0, &parts[i].value);
    if (status == ATTN_OK) status = attn__argument_output(ctx, w->tape, "y", y, w->dtype, attn_tensor_extent(y, 0), WIDTH, 0, NULL, &to);
    if (status == ATTN_OK)
        status = operation == PUT_ROWS ? attn__join_rows(ctx, w->tape, 2, parts, &to)
                                       : attn__gather_rows(ctx, w->tape, &parts[0].value, picked, &to);
    return attn__leave(ctx, status);
}

static attn_status run(world *w, int operation, attn_tensor *const *x, attn_tensor *y)
{
    attn_context *ctx = w->ctx;
    attn_tape *tape = w->tape;
    const attn_tensor *parts[2] = {x[0], operation == JOIN ? x[1] : x[0]};
    switch (operation) {
    case SOFTMAX: return attn_softmax(ctx, tape, x[0], y);
    case LOG_SOFTMAX: return attn_log_softmax(ctx, tape, x[0], y);
    case ADD: return attn_add(ctx, tape, x[0], x[1], y);
    case MULTIPLY: return attn_multiply(ctx, tape, x[0], x[1], y);
    case GELU: return attn_activation(ctx, tape, ATTN_ACTIVATION_GELU, x[0], NULL, y);
    case SWISH: return attn_activation(ctx, tape, ATTN_ACTIVATION_SWISH, x[0], x[1], y);
    case DROPOUT: return attn_dropout(ctx, tape, x[0], NULL, 0.3, 5, y);
    case LAYER_NORM: return attn_layer_norm(ctx, tape, x[0], x[1], x[2], 1e-5, y);
    case RMS_NORM: return attn_rms_norm(ctx, tape, x[0], x[1], 1e-5, y);
    case LINEAR: return attn_linear(ctx, tape, x[0], x[1], x[2], y);
    case GATED: return attn_linear_gated(ctx, tape, ATTN_ACTIVATION_SWISH, x[0], x[1], x[2], y);
    case JOIN:
    case JOIN_TWICE: return attn_concatenate(ctx, tape, 2, parts, y);
    case TRANSPOSE: return attn_transpose(ctx, tape, x[0], y);
    case LOOK_UP: return attn_embedding(ctx, tape, integers(w), x[0], 1.5, y);
    case LEARNED: return attn_positions_learned(ctx, tape, x[0], NULL, x[1], y);
    case SINUSOIDAL: return attn_positions_sinusoidal(ctx, tape, x[0], NULL, y);
    case ATTEND: return attn_dot_product_attention(ctx, tape, x[0], x[1], x[2], NULL, NULL, NULL, NULL, y);
    case PICK_ROWS:
    case PUT_ROWS: return move_rows(w, operation, x, y);
    default: return attn_cross_entropy(ctx, tape, x[0], integers(w), NULL, y, NULL);
    }
}

/* What is recorded and what is asked for. SUMMED: z = y + x, so that y and x share one gradient. */
enum { OPERATION = 1, OTHERS = 2, OTHERS_FIRST = 4, SUMMED = 8 };

static void gradients(world *w, int operation, int what, double out[INPUTS][MOST])
{
    const form *f = &forms[operation];
    attn_tape_options o;
    attn_tensor *x[INPUTS] = {NULL}, *g[INPUTS] = {NULL}, *other[INPUTS], *factor[INPUTS];
    const attn_tensor *asked[1 + INPUTS], *seeds[1 + INPUTS];
    int64_t n = 0, inputs = 0;
    w->random.at = 77; /* the same numbers each time */
    OK(attn_tape_options_init(&o, sizeof o));
    o.training = 1;
    OK(attn_tape_begin(w->ctx, w->tape, &o));
    for (; inputs < INPUTS && f->inputs[inputs][1] > 0; inputs++) {
        x[inputs] = make(w, f->inputs[inputs], f->heads);
        g[inputs] = make(w, f->inputs[inputs], f->heads);
        other[inputs] = make(w, f->inputs[inputs], f->heads);
        factor[inputs] = make(w, f->inputs[inputs], f->heads);
        OK(attn_tape_watch(w->ctx, w->tape, x[inputs], g[inputs]));
    }
    attn_tensor *y = make(w, f->output, f->heads), *z = make(w, f->output, f->heads), *seed = make(w, f->output, f->heads);
    for (int64_t i = 0; (what & OTHERS_FIRST) && i < inputs; i++) OK(attn_multiply(w->ctx, w->tape, x[i], factor[i], other[i]));
    if (what & (OPERATION | SUMMED)) {
        if (run(w, operation, x, y) != ATTN_OK) fail_msg("operation %d: %s", operation, attn_context_last_error(w->ctx));
        if (what & SUMMED) OK(attn_add(w->ctx, w->tape, y, x[0], z));
        asked[n] = what & SUMMED ? z : y;
        seeds[n++] = seed;
    }
    for (int64_t i = 0; (what & OTHERS) && !(what & OTHERS_FIRST) && i < inputs; i++)
        OK(attn_multiply(w->ctx, w->tape, x[i], factor[i], other[i]));
    for (int64_t i = 0; (what & OTHERS) && i < inputs; i++) {
        asked[n] = other[i];
        seeds[n++] = NULL; /* ones */
    }
    OK(attn_tape_backward(w->ctx, w->tape, n, asked, seeds, 0, NULL));
    for (int64_t i = 0; i < inputs; i++) {
        int64_t size = (f->inputs[i][0] > 0 ? f->inputs[i][0] : 1) * f->inputs[i][1];
        for (int64_t e = 0; e < size; e++) out[i][e] = get(w, g[i], e) - (what & SUMMED && i == 0 ? get(w, seed, e) : 0);
    }
    while (w->count > 0) attn_tensor_free(w->made[--w->count]);
}

static void expect_sum(int operation, const char *how, int32_t dtype, const double *got, const double *a, const double *b)
{
    double bound = dtype == ATTN_FLOAT64 ? 1e-13 : 1e-6, largest = 1;
    for (int i = 0; i < MOST; i++) largest = fmax(largest, fmax(fabs(a[i]), b != NULL ? fabs(b[i]) : 0));
    for (int i = 0; i < MOST; i++) {
        double want = a[i] + (b != NULL ? b[i] : 0);
        if (!(fabs(got[i] - want) <= bound * largest))
            fail_msg("operation %d, %s: element %d: got %g, expected %g", operation, how, i, got[i], want);
    }
}

static void added(int32_t dtype)
{
    static double own[INPUTS][MOST], others[INPUTS][MOST], both[INPUTS][MOST];
    world w;
    open_world(&w, dtype);
    for (int operation = 0; operation < OPERATIONS; operation++) {
        const form *f = &forms[operation];
        memset(own, 0, sizeof own), memset(others, 0, sizeof others), memset(both, 0, sizeof both);
        gradients(&w, operation, OPERATION, own);
        gradients(&w, operation, OTHERS, others);
        for (int i = 0; i < INPUTS && f->inputs[i][1] > 0; i++) assert_true(own[i][0] != 0 && others[i][0] != 0);
        gradients(&w, operation, OPERATION | OTHERS, both);
        for (int i = 0; i < INPUTS; i++) expect_sum(operation, "after another use", dtype, both[i], own[i], others[i]);
        gradients(&w, operation, OPERATION | OTHERS | OTHERS_FIRST, both);
        for (int i = 0; i < INPUTS; i++) expect_sum(operation, "before another use", dtype, both[i], own[i], others[i]);
        if (memcmp(f->inputs[0], f->output, sizeof f->output) != 0) continue;
        gradients(&w, operation, SUMMED, both);
        for (int i = 0; i < INPUTS; i++) expect_sum(operation, "added to its input", dtype, both[i], own[i], NULL);
    }
    close_world(&w);
}

static void test_added(void **state)
{
    (void)state;
    added(ATTN_FLOAT64);
    added(ATTN_FLOAT32);
}

/* keys that are the values too: their gradient is that of both roles */
static void test_keys_are_values(void **state)
{
    (void)state;
    for (int32_t dtype = ATTN_FLOAT32; dtype <= ATTN_FLOAT64; dtype++) {
        world w;
        open_world(&w, dtype);
        const int64_t size[2] = {ROWS, WIDTH};
        double sum[MOST] = {0}, one[MOST] = {0};
        for (int shared = 0; shared < 2; shared++) {
            w.random.at = 5;
            attn_tensor *q = make(&w, size, 1), *k = make(&w, size, 1), *dq = make(&w, size, 1), *dk = make(&w, size, 1);
            attn_tensor *y = make(&w, size, 1), *seed = make(&w, size, 1), *v = make(&w, size, 1), *dv = make(&w, size, 1);
            memcpy(attn_tensor_data(v), attn_tensor_data(k), sizeof(double) / (dtype == ATTN_FLOAT64 ? 1 : 2) * ROWS * WIDTH);
            OK(attn_tape_begin(w.ctx, w.tape, NULL));
            OK(attn_tape_watch(w.ctx, w.tape, q, dq));
            OK(attn_tape_watch(w.ctx, w.tape, k, dk));
            if (!shared) OK(attn_tape_watch(w.ctx, w.tape, v, dv));
            OK(attn_dot_product_attention(w.ctx, w.tape, q, k, shared ? k : v, NULL, NULL, NULL, NULL, y));
            OK(attn_tape_backward(w.ctx, w.tape, 1, (const attn_tensor *const *)&y, (const attn_tensor *const *)&seed, 0, NULL));
            for (int64_t e = 0; e < ROWS * WIDTH; e++) (shared ? one : sum)[e] = get(&w, dk, e) + (shared ? 0 : get(&w, dv, e));
        }
        expect_sum(ATTEND, "keys are values", dtype, one, sum, NULL);
        close_world(&w);
    }
}

/* A parameter that is queries, keys and values has one gradient, which the threads of a kernel must not add to at once. */
static void test_parameter_in_all_roles(void **state)
{
    enum { LONG = 700, HEADS = 4, NUMBERS = LONG * 32 };
    static float gradient[2][NUMBERS];
    (void)state;
    for (int round = 0; round < 9; round++) { /* which thread comes first is chance */
        world w;
        attn_parameters *set = NULL;
        attn_gradients *gradients_of = NULL;
        attn__value p[3], y;
        /* jobs of different segments meet in some rows */
        const attn_segment queries[2] = {{0, 200, 0, 0}, {200, 500, 0, 1}}, keys[2] = {{0, 500, 0, 0}, {500, 200, 0, 1}};
        const attn__attention_settings settings = {.query_segments = {2, LONG, queries}, .key_segments = {2, LONG, keys}, .scale = 1};
        random_state random = {4};
        attn_context_options options;
        memset(&w, 0, sizeof w);
        OK(attn_context_options_init(&options, sizeof options));
        options.threads = round > 0 ? 4 : 1;
        OK(attn_context_create(&options, &w.ctx));
        OK(attn_tape_create(w.ctx, &w.tape));
        OK(attn__parameters_create(w.ctx, ATTN_FLOAT32, &set));
        OK(attn__parameters_add(w.ctx, set, "a", 1, 2, SHAPE(LONG, NUMBERS / LONG), ATTN__KIND_WEIGHT, ATTN__START_CONSTANT, 0, NULL));
        OK(attn__parameters_finish(w.ctx, set));
        OK(attn_gradients_create(w.ctx, set, &gradients_of));
        const view at = attn__view_heads(attn__parameters_view(set, 0), HEADS);
        random_view(&random, &at, -1, 1);
        OK(attn_tape_begin(w.ctx, w.tape, NULL));
        OK(attn__enter(w.ctx));
        for (int i = 0; i < 3; i++) OK(attn__tape_parameter(w.ctx, w.tape, set, &at, 0, &p[i]));
        OK(attn__tape_temporary(w.ctx, w.tape, LONG, NUMBERS / LONG, ATTN_FLOAT32, &y));
        y.at = attn__view_heads(y.at, HEADS);
        OK(attn__attend(w.ctx, w.tape, &p[0], &p[1], &p[2], &settings, &y));
        OK(attn__tape_run(w.ctx, w.tape, 1, &y, &at, 1, &gradients_of));
        OK(attn__leave(w.ctx, ATTN_OK));
        memcpy(gradient[round > 0], attn_tensor_data(attn_gradients_tensor(gradients_of, 0)), sizeof gradient[0]);
        if (round > 0) assert_memory_equal(gradient[0], gradient[1], sizeof gradient[0]);
        attn_gradients_free(gradients_of);
        attn__parameters_release(set);
        close_world(&w);
    }
}

/* numbers of whole tensors, signs included */
static void test_measures(void **state)
{
    world w;
    double out = 0;
    (void)state;
    open_world(&w, ATTN_FLOAT64);
    attn_tensor *a = make(&w, SHAPE(3, 3), 0), *b = make(&w, SHAPE(3, 3), 0);
    double *x = attn_tensor_data(a), *y = attn_tensor_data(b);
    for (int i = 0; i < 9; i++) x[i] = i + 1, y[i] = -2 * x[i];
    OK(attn_cosine(w.ctx, a, b, &out));
    assert_true(out >= -1 && out < -1 + 1e-12);
    OK(attn_trace(w.ctx, b, &out));
    assert_true(out == -30);
    OK(attn_norm(w.ctx, b, &out));
    assert_true(fabs(out - 2 * sqrt(285)) < 1e-12);
    attn_parameters *set = NULL;
    attn_gradients *gradients_of = NULL;
    OK(attn__parameters_create(w.ctx, ATTN_FLOAT64, &set));
    OK(attn__parameters_add(w.ctx, set, "a", 1, 1, SHAPE(3), ATTN__KIND_WEIGHT, ATTN__START_CONSTANT, 0, NULL));
    OK(attn__parameters_finish(w.ctx, set));
    OK(attn_gradients_create(w.ctx, set, &gradients_of));
    double *g = attn_tensor_data(attn_gradients_flat(gradients_of));
    g[0] = 2, g[1] = -4, g[2] = 4;
    OK(attn_gradients_norm(w.ctx, gradients_of, &out));
    assert_true(out == 6);
    attn_gradients_free(gradients_of);
    attn__parameters_release(set);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added),
        cmocka_unit_test(test_keys_are_values),
        cmocka_unit_test(test_parameter_in_all_roles),
        cmocka_unit_test(test_measures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

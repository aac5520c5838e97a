#include <attn/loss.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "autograd/operations.h"
#include "support/allocator.h"
#include "support/random.h"

/* What a tape accepts, refuses, keeps and gives back. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }
#define OK(call) expect_ok(t, call, #call)
#define FAILS(code, text, call) expect_failure(t, code, text, call, #call)

typedef struct fixture {
    attn_context *ctx;
    attn_tape *tape;
    random_state random;
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

static void open_with(fixture *t, attn_allocator *hooks)
{
    attn_context_options o;
    memset(t, 0, sizeof *t);
    t->random.at = 4;
    attn_context_options_init(&o, sizeof o);
    o.threads = 1;
    o.allocator = hooks;
    assert_int_equal(attn_context_create(&o, &t->ctx), ATTN_OK);
    OK(attn_tape_create(t->ctx, &t->tape));
}
static void close_all(fixture *t)
{
    for (int i = 0; i < t->count; i++) attn_tensor_free(t->made[i]);
    attn_tape_free(t->tape);
    attn_context_free(t->ctx);
}
static attn_tensor *make(fixture *t, int64_t rows, int64_t width)
{
    attn_tensor *tensor = NULL;
    OK(attn_tensor_create(t->ctx, ATTN_FLOAT32, 2, SHAPE(rows, width), &tensor));
    random_floats(&t->random, attn_tensor_data(tensor), rows * width, -1, 1);
    return t->made[t->count++] = tensor;
}
static float at(const attn_tensor *tensor, int64_t i)
{
    return ((const float *)attn_tensor_data_const(tensor))[i];
}

/* a set of a weight [width, width] and a bias [width] */
static attn_parameters *make_set(fixture *t, int64_t width)
{
    attn_parameters *set = NULL;
    OK(attn__parameters_create(t->ctx, ATTN_FLOAT32, &set));
    OK(attn__parameters_add(t->ctx, set, "weight", 1, 2, SHAPE(width, width), ATTN__KIND_WEIGHT, ATTN__START_CONSTANT, 0, NULL));
    OK(attn__parameters_add(t->ctx, set, "bias", 1, 1, SHAPE(width), ATTN__KIND_BIAS, ATTN__START_CONSTANT, 0, NULL));
    OK(attn__parameters_finish(t->ctx, set));
    random_floats(&t->random, attn_tensor_data(attn_parameters_tensor(set, 0)), width * width, -1, 1);
    return set;
}
static attn_status layer(fixture *t, attn_parameters *set, const attn_tensor *x, attn_tensor *y)
{
    return attn_linear(t->ctx, t->tape, x, attn_parameters_tensor(set, 0), attn_parameters_tensor(set, 1), y);
}
static attn_status backward(fixture *t, const attn_tensor *y, int64_t count, attn_gradients *const *gradients)
{
    return attn_tape_backward(t->ctx, t->tape, 1, &y, NULL, count, gradients);
}

static void test_states(void **state)
{
    fixture f, *t = &f;
    (void)state;
    open_with(t, NULL);
    attn_tensor *x = make(t, 2, 3), *g = make(t, 2, 3), *y = make(t, 2, 3), *z = make(t, 2, 3), *wrong = make(t, 3, 2);
    FAILS(ATTN_ERROR_BAD_STATE, "begin", attn_tape_watch(t->ctx, t->tape, x, g));
    FAILS(ATTN_ERROR_BAD_STATE, "begin", attn_softmax(t->ctx, t->tape, x, y));
    FAILS(ATTN_ERROR_BAD_STATE, "begin", backward(t, y, 0, NULL));
    attn_tape_options o;
    attn_tape_options_init(&o, sizeof o);
    o.training = 2;
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "training", attn_tape_begin(t->ctx, t->tape, &o));
    o.training = 1;
    o.step = -1;
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "step", attn_tape_begin(t->ctx, t->tape, &o));
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    FAILS(ATTN_ERROR_SHAPE, "gradient", attn_tape_watch(t->ctx, t->tape, x, wrong));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "gradient", attn_tape_watch(t->ctx, t->tape, x, x));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "gradient", attn_tape_watch(t->ctx, t->tape, x, NULL));
    OK(attn_tape_watch(t->ctx, t->tape, x, g));
    FAILS(ATTN_ERROR_BAD_STATE, "already", attn_tape_watch(t->ctx, t->tape, x, g));
    OK(attn_softmax(t->ctx, t->tape, x, y));
    FAILS(ATTN_ERROR_BAD_STATE, "already", attn_tape_watch(t->ctx, t->tape, y, g));
    OK(attn_multiply(t->ctx, t->tape, y, y, z));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "outputs[0]: got a tensor that is not on the tape", backward(t, wrong, 0, NULL));
    FAILS(ATTN_ERROR_SHAPE, "output_gradients[0]",
          attn_tape_backward(t->ctx, t->tape, 1, (const attn_tensor *const[]){z}, (const attn_tensor *const[]){wrong}, 0, NULL));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "count", attn_tape_backward(t->ctx, t->tape, 0, NULL, NULL, 0, NULL));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "outputs", attn_tape_backward(t->ctx, t->tape, 1, NULL, NULL, 0, NULL));
    OK(backward(t, z, 0, NULL)); /* refusals leave the tape as it was */
    FAILS(ATTN_ERROR_BAD_STATE, "consumed", backward(t, z, 0, NULL));
    FAILS(ATTN_ERROR_BAD_STATE, "consumed", attn_softmax(t->ctx, t->tape, x, y));
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    OK(attn_softmax(t->ctx, t->tape, x, y));
    FAILS(ATTN_ERROR_INVALID_ARGUMENT, "not on the tape", backward(t, y, 0, NULL)); /* constants alone */
    close_all(t);
    attn_tape_free(NULL);
    assert_int_equal(attn_tape_create(NULL, &t->tape), ATTN_ERROR_INVALID_ARGUMENT);
}

static void test_overlap(void **state)
{
    fixture f, *t = &f;
    (void)state;
    open_with(t, NULL);
    attn_tensor *x = make(t, 4, 4), *g = make(t, 4, 4), *y = make(t, 4, 4), *c = make(t, 4, 4), *z = make(t, 4, 4), *half = NULL,
                *flat = NULL;
    OK(attn_tensor_wrap(t->ctx, ATTN_FLOAT32, 2, SHAPE(2, 4), NULL, (float *)attn_tensor_data(y) + 4, &half));
    OK(attn_tensor_wrap(t->ctx, ATTN_FLOAT32, 3, SHAPE(2, 2, 4), NULL, attn_tensor_data(y), &flat));
    t->made[t->count++] = half;
    t->made[t->count++] = flat;
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    OK(attn_tape_watch(t->ctx, t->tape, x, g));
    OK(attn_multiply(t->ctx, t->tape, x, c, y));
    FAILS(ATTN_ERROR_BAD_STATE, "a: got a part", attn_add(t->ctx, t->tape, half, half, z));
    float before = at(y, 5);
    FAILS(ATTN_ERROR_BAD_STATE, "y: got memory of a value", attn_softmax(t->ctx, t->tape, x, y));
    FAILS(ATTN_ERROR_BAD_STATE, "y: got memory of a value", attn_multiply(t->ctx, t->tape, z, z, x));
    FAILS(ATTN_ERROR_BAD_STATE, "y: got memory of a value", attn_softmax(t->ctx, t->tape, x, c)); /* a constant that the record reads */
    FAILS(ATTN_ERROR_BAD_STATE, "used before", attn_tape_watch(t->ctx, t->tape, c, g));
    assert_true(at(y, 5) == before);
    OK(attn_add(t->ctx, t->tape, flat, flat, z)); /* another shape of the same elements: 2 x c */
    OK(backward(t, z, 0, NULL));
    for (int i = 0; i < 16; i++) assert_true(at(g, i) == 2 * at(c, i));
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    OK(attn_softmax(t->ctx, t->tape, x, y)); /* all forgotten */
    close_all(t);
}

static void test_parameters(void **state)
{
    fixture f, *t = &f;
    (void)state;
    open_with(t, NULL);
    attn_parameters *a = make_set(t, 3), *b = make_set(t, 3), *unknown = make_set(t, 3);
    attn_gradients *ga = NULL, *gb = NULL, *gu = NULL;
    attn_tensor *x = make(t, 2, 3), *y = make(t, 2, 3), *z = make(t, 2, 3);
    double norm, first;
    OK(attn_gradients_create(t->ctx, a, &ga));
    OK(attn_gradients_create(t->ctx, b, &gb));
    OK(attn_gradients_create(t->ctx, unknown, &gu));
    for (int round = 0; round < 6; round++) {
        OK(attn_tape_begin(t->ctx, t->tape, NULL));
        if (round == 4) OK(attn_parameters_freeze(t->ctx, a, "weight", 1, NULL));
        OK(layer(t, a, x, y));
        OK(layer(t, b, y, z));
        if (round == 0) {
            FAILS(ATTN_ERROR_INVALID_ARGUMENT, "gradients[1]", backward(t, z, 2, (attn_gradients *const[]){ga, gu}));
            FAILS(ATTN_ERROR_INVALID_ARGUMENT, "gradients[1]", backward(t, z, 2, (attn_gradients *const[]){ga, ga}));
            FAILS(ATTN_ERROR_INVALID_ARGUMENT, "gradients", backward(t, z, 1, (attn_gradients *const[]){NULL}));
            FAILS(ATTN_ERROR_INVALID_ARGUMENT, "gradients", backward(t, z, 1, NULL));
            OK(attn_gradients_norm(t->ctx, ga, &norm));
            assert_true(norm == 0);
            const attn_tensor *weight = attn_parameters_tensor(b, 0);
            FAILS(ATTN_ERROR_BAD_STATE, "parameter", attn_add(t->ctx, t->tape, weight, weight, attn_parameters_tensor(a, 0)));
            attn_tensor *inside = NULL;
            float *flat = attn_tensor_data(attn_parameters_tensor(a, 0));
            OK(attn_tensor_wrap(t->ctx, ATTN_FLOAT32, 2, SHAPE(1, 3), NULL, flat + 3, &inside));
            t->made[t->count++] = inside;
            attn_tensor *row = make(t, 1, 3);
            FAILS(ATTN_ERROR_BAD_STATE, "y: got memory of a value", attn_add(t->ctx, t->tape, row, row, inside));
            FAILS(ATTN_ERROR_INVALID_ARGUMENT, "parameter",
                  attn_tape_watch(t->ctx, t->tape, attn_parameters_tensor(a, 1), attn_parameters_tensor(unknown, 1)));
            OK(backward(t, z, 2, (attn_gradients *const[]){gb, ga}));
            OK(attn_gradients_norm(t->ctx, ga, &first));
            assert_true(first > 0 && at(attn_gradients_tensor(gb, 1), 0) == 2);
        } else if (round == 1) { /* added; a set without a handle is left out */
            OK(backward(t, z, 1, (attn_gradients *const[]){ga}));
            OK(attn_gradients_norm(t->ctx, ga, &norm));
            assert_true(fabs(norm - 2 * first) < 1e-6 * first && at(attn_gradients_tensor(gb, 1), 0) == 2);
        } else if (round == 2) {
            OK(backward(t, z, 0, NULL));
            OK(attn_gradients_norm(t->ctx, ga, &norm));
            assert_true(fabs(norm - 2 * first) < 1e-6 * first);
        } else if (round == 3) { /* the set lives on the tape, its module may go */
            attn__parameters_retain(a);
            attn__parameters_release(a);
            OK(backward(t, z, 2, (attn_gradients *const[]){ga, gb}));
            assert_true(at(attn_gradients_tensor(gb, 1), 2) == 4);
            OK(attn_gradients_zero(t->ctx, ga));
        } else if (round == 4) { /* frozen: no gradient, and nothing stops behind it */
            OK(backward(t, z, 1, (attn_gradients *const[]){ga}));
            for (int i = 0; i < 9; i++) assert_true(at(attn_gradients_tensor(ga, 0), i) == 0);
            assert_true(at(attn_gradients_tensor(ga, 1), 0) != 0);
            OK(attn_parameters_freeze(t->ctx, a, "*", 1, NULL));
        } else {
            OK(attn_gradients_zero(t->ctx, ga));
            OK(backward(t, z, 2, (attn_gradients *const[]){ga, gb})); /* a frozen set is met all the same */
            OK(attn_gradients_norm(t->ctx, ga, &norm));
            assert_true(norm == 0);
        }
    }
    attn__parameters_release(a);
    attn__parameters_release(b);
    attn__parameters_release(unknown);
    attn_gradients_free(ga);
    attn_gradients_free(gb);
    attn_gradients_free(gu);
    close_all(t);
}

/* several outputs, one of them twice, one watched input itself, one input that nothing depends on */
static void test_seeds(void **state)
{
    fixture f, *t = &f;
    (void)state;
    open_with(t, NULL);
    attn_tensor *x = make(t, 2, 2), *gx = make(t, 2, 2), *u = make(t, 2, 2), *gu = make(t, 2, 2), *y = make(t, 2, 2), *z = make(t, 2, 2),
                *w = make(t, 2, 2);
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    OK(attn_tape_watch(t->ctx, t->tape, x, gx));
    OK(attn_tape_watch(t->ctx, t->tape, u, gu));
    OK(attn_add(t->ctx, t->tape, x, x, y));
    OK(attn_multiply(t->ctx, t->tape, y, y, z));
    const attn_tensor *outputs[] = {z, y, y, x}, *seeds[] = {w, NULL, w, NULL};
    OK(attn_tape_backward(t->ctx, t->tape, 4, outputs, seeds, 0, NULL));
    for (int i = 0; i < 4; i++) {
        double want = at(w, i) * 2 * at(y, i) * 2 + 2 + 2 * at(w, i) + 1;
        assert_true(fabs(at(gx, i) - want) < 1e-5);
        assert_true(at(gu, i) == 0);
    }
    close_all(t);
}

/* tensors that the library owns may be freed, and layouts set anew, before backward */
static void test_lifetime(void **state)
{
    fixture f, *t = &f;
    (void)state;
    open_with(t, NULL);
    for (int early = 0; early < 2; early++) {
        attn_tensor *x = NULL, *y = NULL, *g = make(t, 4, 4), *z = make(t, 4, 4);
        OK(attn_tensor_create(t->ctx, ATTN_FLOAT32, 2, SHAPE(4, 4), &x));
        OK(attn_tensor_create(t->ctx, ATTN_FLOAT32, 2, SHAPE(4, 4), &y));
        for (int i = 0; i < 16; i++) ((float *)attn_tensor_data(x))[i] = (float)i / 8;
        OK(attn_tape_begin(t->ctx, t->tape, NULL));
        OK(attn_tape_watch(t->ctx, t->tape, x, g));
        OK(attn_multiply(t->ctx, t->tape, x, x, y));
        OK(attn_multiply(t->ctx, t->tape, y, x, z));
        if (early) attn_tensor_free(x);
        if (early) attn_tensor_free(y);
        OK(backward(t, z, 0, NULL));
        for (int i = 0; i < 16; i++) assert_true(fabs(at(g, i) - 3 * (i / 8.0) * (i / 8.0)) < 1e-5);
        if (!early) attn_tensor_free(x);
        if (!early) attn_tensor_free(y);
    }
    close_all(t);
}

static attn_status network(fixture *t, attn_parameters *set, attn_tensor **v, const attn_tensor *labels)
{
    attn_status status = attn_layer_norm(t->ctx, t->tape, v[0], NULL, NULL, 1e-6, v[1]);
    if (status == ATTN_OK) status = layer(t, set, v[1], v[2]);
    if (status == ATTN_OK) status = attn_dropout(t->ctx, t->tape, v[2], NULL, 0.3, 5, v[3]);
    if (status == ATTN_OK) status = attn_add(t->ctx, t->tape, v[0], v[3], v[4]);
    if (status == ATTN_OK) status = layer(t, set, v[4], v[5]);
    return status == ATTN_OK ? attn_cross_entropy(t->ctx, t->tape, v[5], labels, NULL, v[6], NULL) : status;
}

static void test_no_allocation(void **state)
{
    fixture f, *t = &f;
    (void)state;
    open_with(t, NULL);
    attn_parameters *set = make_set(t, 80);
    attn_gradients *gradients = NULL;
    attn_tensor *v[8], *labels = NULL;
    attn_memory_report before = {.struct_size = sizeof before}, after = before;
    attn_tape_options o;
    attn_tape_options_init(&o, sizeof o);
    o.training = 1;
    OK(attn_gradients_create(t->ctx, set, &gradients));
    OK(attn_tensor_create(t->ctx, ATTN_INT64, 1, SHAPE(500), &labels));
    for (int i = 0; i < 6; i++) v[i] = make(t, 500, 80);
    v[6] = make(t, 1, 1);
    for (o.step = 0; o.step < 6; o.step++) {
        if (o.step == 3) OK(attn_context_memory(t->ctx, &before));
        OK(attn_tape_begin(t->ctx, t->tape, &o));
        OK(network(t, set, v, labels));
        OK(backward(t, v[6], 1, &gradients));
    }
    OK(attn_context_memory(t->ctx, &after));
    assert_true(after.allocations == before.allocations && after.live == before.live);
    attn_tensor_free(labels);
    attn_gradients_free(gradients);
    attn__parameters_release(set);
    close_all(t);
}

/* every allocation that can fail, once and for ever: a status, nothing lost, and the tape works again */
static void test_out_of_memory(void **state)
{
    fixture f, *t = &f;
    (void)state;
    for (int once = 0; once < 2; once++) {
        test_allocator memory = {.fail_at = 0};
        attn_allocator hooks = test_allocator_hooks(&memory);
        open_with(t, &hooks);
        attn_parameters *set = make_set(t, 16);
        attn_gradients *gradients = NULL;
        attn_tensor *v[8], *labels = NULL;
        OK(attn_gradients_create(t->ctx, set, &gradients));
        OK(attn_tensor_create(t->ctx, ATTN_INT64, 1, SHAPE(9), &labels));
        for (int i = 0; i < 6; i++) v[i] = make(t, 9, 16);
        v[6] = make(t, 1, 1);
        memory.only_once = once;
        int failures = 0, tries = 0;
        for (long long n = 1; tries < 200; n++, tries++) {
            attn_tape_free(t->tape);
            t->tape = NULL;
            memory.fail_at = memory.calls + n;
            attn_status status = attn_tape_create(t->ctx, &t->tape);
            if (status == ATTN_OK) status = attn_tape_begin(t->ctx, t->tape, NULL);
            if (status == ATTN_OK) status = network(t, set, v, labels);
            if (status == ATTN_OK) status = backward(t, v[6], 1, &gradients);
            int reached = memory.calls >= memory.fail_at;
            memory.fail_at = 0;
            if (status != ATTN_OK) assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
            failures += status != ATTN_OK;
            if (t->tape == NULL) OK(attn_tape_create(t->ctx, &t->tape));
            OK(attn_tape_begin(t->ctx, t->tape, NULL));
            OK(network(t, set, v, labels));
            OK(backward(t, v[6], 1, &gradients));
            if (!reached) break;
        }
        assert_true(failures > 5 && tries < 200);
        attn_tensor_free(labels);
        attn_gradients_free(gradients);
        attn__parameters_release(set);
        close_all(t);
        assert_true(memory.live_pointers == 0 && memory.live_bytes == 0 && memory.wrong == 0);
    }
}

static void test_cancel(void **state)
{
    fixture f, *t = &f;
    (void)state;
    open_with(t, NULL);
    attn_tensor *x = make(t, 2, 2), *g = make(t, 2, 2), *y = make(t, 2, 2);
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    OK(attn_tape_watch(t->ctx, t->tape, x, g));
    OK(attn_softmax(t->ctx, t->tape, x, y));
    OK(attn_context_cancel(t->ctx));
    assert_int_equal(backward(t, y, 0, NULL), ATTN_ERROR_CANCELLED);
    FAILS(ATTN_ERROR_BAD_STATE, "consumed", backward(t, y, 0, NULL));
    OK(attn_tape_begin(t->ctx, t->tape, NULL));
    OK(attn_tape_watch(t->ctx, t->tape, x, g));
    OK(attn_softmax(t->ctx, t->tape, x, y));
    OK(backward(t, y, 0, NULL));
    close_all(t);
}

/* The gradient of a residual stream is one buffer for any number of layers. */
static void test_stream(void **state)
{
    fixture f, *t = &f;
    int64_t used[2], values, records;
    (void)state;
    open_with(t, NULL);
    attn_tensor *x = make(t, 64, 32), *g = make(t, 64, 32);
    for (int round = 0; round < 2; round++) {
        attn__value stream, next, normed;
        view from;
        OK(attn_tape_begin(t->ctx, t->tape, NULL));
        OK(attn_tape_watch(t->ctx, t->tape, x, g));
        OK(attn__enter(t->ctx));
        OK(attn__rows(t->ctx, "x", x, 0, &from));
        OK(attn__tape_input(t->ctx, t->tape, "x", x, &from, &stream));
        for (int layers = 0; layers < (round == 0 ? 2 : 20); layers++) {
            OK(attn__tape_temporary(t->ctx, t->tape, 64, 32, ATTN_FLOAT32, &normed));
            OK(attn__residual_norm(t->ctx, t->tape, &stream, NULL, NULL, ATTN_NORM_LAYER, 1e-6, NULL, NULL, NULL, &normed));
            OK(attn__tape_temporary(t->ctx, t->tape, 64, 32, ATTN_FLOAT32, &next));
            OK(attn__residual(t->ctx, t->tape, &stream, &normed, NULL, &next));
            stream = next;
        }
        OK(attn__tape_run(t->ctx, t->tape, 1, &stream, NULL, 0, NULL));
        attn__tape_used(t->tape, &values, &records, &used[round]);
        OK(attn__leave(t->ctx, ATTN_OK));
    }
    assert_true(used[0] == used[1] && used[1] <= 3 * 64 * 32 * 4);
    close_all(t);
}

/* query, key and value as parts of one product, one of them unused, the whole used as well or not */
static void test_parts(void **state)
{
    fixture f, *t = &f;
    (void)state;
    open_with(t, NULL);
    attn_tensor *x = make(t, 3, 2), *g = make(t, 3, 2), *w = make(t, 9, 2), *c = make(t, 9, 3);
    for (int round = 0; round < 3; round++) { /* in used memory but the first; in the last the parts' gradients arrive before the whole's */
        int whole = round != 1;
        attn__value vx, vw = {.id = -1}, base, part[3], y, z;
        view from, seed;
        OK(attn_tape_begin(t->ctx, t->tape, NULL));
        OK(attn_tape_watch(t->ctx, t->tape, x, g));
        OK(attn__enter(t->ctx));
        OK(attn__rows(t->ctx, "w", w, 0, &vw.at));
        OK(attn__rows(t->ctx, "c", c, 0, &seed));
        OK(attn__rows(t->ctx, "x", x, 0, &from));
        OK(attn__tape_input(t->ctx, t->tape, "x", x, &from, &vx));
        OK(attn__tape_temporary(t->ctx, t->tape, 3, 9, ATTN_FLOAT32, &base));
        OK(attn__linear(t->ctx, t->tape, &vx, &vw, NULL, NULL, NULL, NULL, &base));
        for (int i = 0; i < 3; i++) OK(attn__tape_part(t->ctx, t->tape, &base, 3 * i, 3, &part[i]));
        OK(attn__tape_temporary(t->ctx, t->tape, 3, 3, ATTN_FLOAT32, &y));
        OK(attn__tape_temporary(t->ctx, t->tape, 3, 9, ATTN_FLOAT32, &z));
        if (round == 2) OK(attn__add(t->ctx, t->tape, &base, &base, &z));
        OK(attn__add(t->ctx, t->tape, &part[2], &part[0], &y)); /* the middle part gets nothing */
        if (round < 2) OK(attn__add(t->ctx, t->tape, &base, &base, &z));
        attn__value outputs[] = {y, z};
        seed.rows = 3; /* c's first three rows */
        view seeds[] = {seed, {.data = NULL}};
        OK(attn__tape_run(t->ctx, t->tape, whole ? 2 : 1, outputs, seeds, 0, NULL));
        OK(attn__leave(t->ctx, ATTN_OK));
        for (int r = 0; r < 3; r++) {
            for (int i = 0; i < 2; i++) {
                double want = 0;
                for (int k = 0; k < 9; k++) want += ((k / 3 == 1 ? 0 : at(c, r * 3 + k % 3)) + (whole ? 2 : 0)) * at(w, k * 2 + i);
                assert_true(fabs(want - at(g, r * 2 + i)) < 1e-5);
            }
        }
    }
    close_all(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states), cmocka_unit_test(test_overlap),       cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_seeds),  cmocka_unit_test(test_lifetime),      cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_cancel), cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_stream),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <attn/embedding.h>
#include <attn/loss.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "support/gradient.h"

/* Gradients of softmax, elementwise operations, dropout, embeddings, positions and the loss. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

static attn_status softmax(gradient_check *g, attn_tape *tape, const void *what)
{
    return (what != NULL ? attn_log_softmax : attn_softmax)(g->ctx, tape, g->input[0], g->output);
}
static attn_status add(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    return attn_add(g->ctx, tape, g->input[0], g->inputs > 1 ? g->input[1] : g->input[0], g->output);
}
static attn_status multiply(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    return attn_multiply(g->ctx, tape, g->input[0], g->inputs > 1 ? g->input[1] : g->input[0], g->output);
}

static void test_pointwise(void **state)
{
    static gradient_function *const functions[] = {softmax, softmax, add, multiply};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        for (int inputs = 1; inputs <= (i < 2 ? 1 : 2); inputs++) {
            gradient_check g;
            gradient_open(&g, 10 + i);
            for (int k = 0; k < inputs; k++) gradient_input(&g, 2, SHAPE(5, 7), -2, 2);
            gradient_output(&g, 2, SHAPE(5, 7));
            gradient_expect(&g, functions[i], i == 1 ? "log" : NULL);
            gradient_close(&g);
        }
    }
}

/* a value used three times, once under another shape */
static attn_status diamond(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    attn_status status = attn_softmax(g->ctx, tape, g->input[0], g->other[0]);
    if (status == ATTN_OK) status = attn_multiply(g->ctx, tape, g->other[0], g->input[0], g->other[1]);
    if (status == ATTN_OK) status = attn_add(g->ctx, tape, g->other[0], g->other[1], g->other[2]);
    if (status == ATTN_OK) status = attn_add(g->ctx, tape, g->other[2], g->other[0], g->other[3]);
    return status == ATTN_OK ? attn_log_softmax(g->ctx, tape, g->other[4], g->output) : status;
}

static void test_diamond(void **state)
{
    gradient_check g;
    (void)state;
    gradient_open(&g, 20);
    gradient_input(&g, 2, SHAPE(4, 6), -2, 2);
    for (int i = 0; i < 4; i++) gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(4, 6), 0, 1);
    /* the same memory as [3, 8] */
    assert_int_equal(attn_tensor_wrap(g.ctx, ATTN_FLOAT64, 2, SHAPE(3, 8), NULL, attn_tensor_data(g.other[3]), &g.other[g.others++]),
                     ATTN_OK);
    gradient_output(&g, 2, SHAPE(3, 8));
    gradient_expect(&g, diamond, NULL);
    gradient_close(&g);
}

static attn_status concatenate(gradient_check *g, attn_tape *tape, const void *what)
{
    const attn_tensor *parts[12];
    int64_t count = *(const int64_t *)what;
    for (int64_t i = 0; i < count; i++) parts[i] = i % 4 == 3 ? g->other[0] : g->input[i % 3];
    return attn_concatenate(g->ctx, tape, count, parts, g->output);
}

static void test_concatenate(void **state)
{
    static const int64_t counts[] = {3, 5, 12}; /* 12: more than a record names */
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        gradient_check g;
        int64_t width = 0;
        static const int64_t widths[] = {2, 3, 0, 4};
        gradient_open(&g, 30 + i);
        for (int k = 0; k < 3; k++) gradient_input(&g, 2, SHAPE(4, widths[k]), -2, 2);
        gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(4, 4), -1, 1);
        for (int64_t k = 0; k < counts[i]; k++) width += k % 4 == 3 ? 4 : widths[k % 3];
        gradient_output(&g, 2, SHAPE(4, width));
        gradient_expect(&g, concatenate, &counts[i]);
        gradient_close(&g);
    }
}

static attn_status transpose(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    return attn_transpose(g->ctx, tape, g->input[0], g->output);
}

/* twice the same input: its gradients add up */
static attn_status transpose_twice(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    attn_status status = attn_transpose(g->ctx, tape, g->input[0], g->other[0]);
    if (status == ATTN_OK) status = attn_transpose(g->ctx, tape, g->input[0], g->other[1]);
    return status == ATTN_OK ? attn_multiply(g->ctx, tape, g->other[0], g->other[1], g->output) : status;
}

static void test_transpose_twice(void **state)
{
    gradient_check g;
    (void)state;
    gradient_open(&g, 70);
    gradient_input(&g, 3, SHAPE(3, 4, 2), -2, 2);
    for (int i = 0; i < 2; i++) gradient_other(&g, ATTN_FLOAT64, 3, SHAPE(4, 3, 2), 0, 1);
    gradient_output(&g, 3, SHAPE(4, 3, 2));
    gradient_expect(&g, transpose_twice, NULL);
    gradient_close(&g);
}

static void test_transpose(void **state)
{
    static const int64_t shapes[][3] = {{3, 4, 2}, {1, 5, 3}, {5, 1, 1}, {2, 7, 1}, {0, 3, 2}, {3, 2, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gradient_check g;
        const int64_t *s = shapes[i];
        gradient_open(&g, 60 + i);
        gradient_input(&g, 3, SHAPE(s[0], s[1], s[2]), -2, 2);
        gradient_output(&g, 3, SHAPE(s[1], s[0], s[2]));
        gradient_expect(&g, transpose, NULL);
        assert_int_equal(transpose(&g, NULL, NULL), ATTN_OK); /* of the numbers that stand there now */
        const double *x = attn_tensor_data_const(g.input[0]), *y = attn_tensor_data_const(g.output);
        for (int64_t a = 0; a < s[0]; a++)
            for (int64_t b = 0; b < s[1]; b++)
                for (int64_t c = 0; c < s[2]; c++) assert_true(x[(a * s[1] + b) * s[2] + c] == y[(b * s[0] + a) * s[2] + c]);
        gradient_close(&g);
    }
}

static attn_status dropout(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_layout *layout = NULL;
    const attn_segment segments[] = {{3, 2, 5, 1}, {0, 3, 0, 0}};
    attn_status status = attn_layout_create(g->ctx, 2, &layout);
    if (status == ATTN_OK) status = attn_layout_set(g->ctx, layout, 2, segments);
    if (status == ATTN_OK) status = attn_dropout(g->ctx, tape, g->input[0], layout, *(const double *)what, 3, g->output);
    attn_layout_free(layout); /* before backward */
    return status;
}

static void test_dropout(void **state)
{
    static const double rates[] = {0, 0.3, 1};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        gradient_check g;
        gradient_open(&g, 40 + i);
        g.options.training = i < 3;
        g.options.step = 12;
        gradient_input(&g, 2, SHAPE(5, 9), -2, 2);
        gradient_output(&g, 2, SHAPE(5, 9));
        gradient_expect(&g, dropout, &rates[i % 3]);
        gradient_close(&g);
    }
}

static attn_status embedding(gradient_check *g, attn_tape *tape, const void *what)
{
    (void)what;
    attn_status status = attn_embedding(g->ctx, tape, g->other[0], g->input[0], 1.5, g->other[1]);
    if (status == ATTN_OK) status = attn_positions_learned(g->ctx, tape, g->other[1], NULL, g->input[1], g->other[2]);
    if (status == ATTN_OK) status = attn_multiply(g->ctx, tape, g->other[2], g->other[1], g->other[3]);
    return status == ATTN_OK ? attn_positions_sinusoidal(g->ctx, tape, g->other[3], NULL, g->output) : status;
}

static void test_embedding(void **state)
{
    gradient_check g;
    (void)state;
    gradient_open(&g, 50);
    gradient_input(&g, 2, SHAPE(5, 3), -1, 1);
    gradient_input(&g, 2, SHAPE(8, 3), -1, 1);
    gradient_other(&g, ATTN_INT32, 2, SHAPE(2, 4), 0, 4); /* token 4 never occurs, others repeat */
    for (int i = 0; i < 3; i++) gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(8, 3), 0, 1);
    gradient_output(&g, 2, SHAPE(8, 3));
    gradient_expect(&g, embedding, NULL);
    const double *table = attn_tensor_data(g.gradient[0]);
    for (int i = 12; i < 15; i++) assert_true(fabs(table[i]) <= 1e-2 * 2); /* but for the change made above, nothing arrives there */
    gradient_close(&g);
}

static attn_status loss(gradient_check *g, attn_tape *tape, const void *what)
{
    return attn_cross_entropy(g->ctx, tape, g->input[0], g->other[0], what, g->output, NULL);
}
/* logits that are somebody's output, and used beside the loss */
static attn_status loss_behind(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_status status = attn_linear(g->ctx, tape, g->input[0], g->input[1], NULL, g->other[1]);
    if (status == ATTN_OK) status = attn_cross_entropy(g->ctx, tape, g->other[1], g->other[0], what, g->other[2], NULL);
    if (status == ATTN_OK) status = attn_linear(g->ctx, tape, g->other[1], g->other[3], NULL, g->other[4]);
    return status == ATTN_OK ? attn_add(g->ctx, tape, g->other[2], g->other[4], g->output) : status;
}

static void test_loss(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        gradient_check g;
        attn_cross_entropy_options o;
        attn_cross_entropy_options_init(&o, sizeof o);
        o.label_smoothing = i & 1 ? 0.2 : 0;
        o.mean = i >> 1 & 1;
        o.smoothing_form = i >> 2 & 1;
        o.ignored_label = 2;
        gradient_open(&g, 60 + (uint64_t)i);
        gradient_input(&g, 2, SHAPE(6, 5), -3, 3);
        gradient_other(&g, ATTN_INT32, 1, SHAPE(6), -1, 5);
        gradient_output(&g, 1, SHAPE(1));
        gradient_expect(&g, loss, &o);
        gradient_close(&g);

        gradient_open(&g, 70 + (uint64_t)i);
        gradient_input(&g, 2, SHAPE(1, 4), -1, 1);
        gradient_input(&g, 2, SHAPE(5, 4), -1, 1);
        gradient_other(&g, ATTN_INT32, 1, SHAPE(1), 3, 5);
        gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(1, 5), 0, 1);
        gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(1, 1), 0, 1);
        gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(1, 5), -1, 1);
        gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(1, 1), 0, 1);
        gradient_output(&g, 2, SHAPE(1, 1));
        gradient_expect(&g, loss_behind, &o);
        gradient_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise),       cmocka_unit_test(test_diamond),
        cmocka_unit_test(test_concatenate),     cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_transpose_twice), cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_embedding),       cmocka_unit_test(test_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Every backward entry of the reference in float64 against central differences of its forward entry, to 1e-6. The loss is the sum of
   the results times fixed random numbers, so the entries' dy is those numbers. */
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
#include "support/random.h"

enum { MOST_INPUTS = 6, MOST = 400, ROWS = 5, WIDTH = 6 };

typedef struct operand {
    double value[MOST], gradient[MOST];
    view at, d;
} operand;

/* a problem: inputs with their gradients, one result with its dy */
typedef struct problem {
    attn_context *ctx;
    const attn__kernels *table;
    random_state random;
    operand input[MOST_INPUTS], output;
    int inputs;
    attn__activation act;
    attn__dropout drop;
    attn__places places;
    int64_t sequence[16], position[16], labels[16];
    double statistics[32], log_sum_exp[64], other[MOST];
    view tokens, u;
    attn_mask *mask;
    attn_segment queries[3], keys[3];
    int32_t kind; /* of the variant: activation, norm, positions, loss form, log */
    double smoothing, soft_cap;
} problem;

typedef attn_status step(problem *p);

static int open_problem(void **state)
{
    static problem p;
    attn_context_options options;
    *state = &p;
    assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
    options.backend = ATTN_BACKEND_REFERENCE;
    options.threads = 1;
    assert_int_equal(attn_context_create(&options, &p.ctx), ATTN_OK);
    assert_int_equal(attn__enter(p.ctx), ATTN_OK);
    return attn__kernels_for(p.ctx, ATTN_FLOAT64, &p.table);
}

static int close_problem(void **state)
{
    problem *p = *state;
    attn__leave(p->ctx, ATTN_OK);
    attn_context_free(p->ctx);
    return 0;
}

static problem *fresh(void **state, double rate)
{
    problem *p = *state;
    attn_context *ctx = p->ctx;
    const attn__kernels *table = p->table;
    memset(p, 0, sizeof *p);
    p->ctx = ctx;
    p->table = table;
    for (int64_t r = 0; r < 16; r++) {
        p->sequence[r] = r / 4;
        p->position[r] = r % 4;
        p->labels[r] = r % WIDTH;
    }
    p->labels[2] = -1;
    p->places = (attn__places){p->sequence, p->position};
    p->drop = (attn__dropout){rate, 3, 1, 4, p->places};
    p->tokens = (view){p->labels, ROWS, 1, 1, 1, 0, ATTN_INT64, 0};
    p->act = (attn__activation){0, 0, 1.3, NULL};
    return p;
}

static void shape(problem *p, operand *o, int64_t rows, int64_t heads, int64_t width)
{
    assert_true(rows * heads * width <= MOST);
    o->at = (view){o->value, rows, heads, width, heads * width, heads > 1 ? width : 0, ATTN_FLOAT64, 0};
    o->d = o->at;
    o->d.data = o->gradient;
    random_view(&p->random, &o->at, -1, 1);
}

static void input(problem *p, int64_t rows, int64_t heads, int64_t width)
{
    shape(p, &p->input[p->inputs++], rows, heads, width);
}

static int64_t elements(const view *v)
{
    return v->rows * v->heads * v->width;
}

/* sum of the results times the output's `gradient` */
static double loss_of(problem *p, step *forward)
{
    double sum = 0;
    assert_int_equal(forward(p), ATTN_OK);
    for (int64_t i = 0; i < elements(&p->output.at); i++) sum += p->output.value[i] * p->output.gradient[i];
    return sum;
}

static void check(problem *p, const char *name, step *forward, step *back)
{
    const double h = 1e-5;
    static double got[MOST_INPUTS][MOST];
    shape(p, &p->output, p->output.at.rows, p->output.at.heads, p->output.at.width);
    random_view(&p->random, &p->output.d, -1, 1);
    for (int i = 0; i < p->inputs; i++) memset(p->input[i].gradient, 0, sizeof p->input[i].gradient);
    assert_int_equal(forward(p), ATTN_OK);
    double dy[MOST];
    memcpy(dy, p->output.gradient, sizeof dy);
    assert_int_equal(back(p), ATTN_OK);
    memcpy(p->output.gradient, dy, sizeof dy);
    for (int i = 0; i < p->inputs; i++) memcpy(got[i], p->input[i].gradient, sizeof got[i]);
    for (int i = 0; i < p->inputs; i++) {
        double largest = 1e-3;
        for (int64_t k = 0; k < elements(&p->input[i].at); k++) largest = fmax(largest, fabs(got[i][k]));
        for (int64_t k = 0; k < elements(&p->input[i].at); k++) {
            double x = p->input[i].value[k];
            p->input[i].value[k] = x + h;
            double above = loss_of(p, forward);
            p->input[i].value[k] = x - h;
            double below = loss_of(p, forward);
            p->input[i].value[k] = x;
            double want = (above - below) / (2 * h);
            if (fabs(got[i][k] - want) <= 1e-6 * largest) continue;
            fail_msg("%s (variant %d): input %d, element %lld: got %.10g, expected %.10g", name, (int)p->kind, i, (long long)k, got[i][k],
                     want);
        }
    }
}

/* the three entries of linear: dropout and activation come back through activation_back on u */
static attn_status linear_forward(problem *p)
{
    p->u = (view){p->other, ROWS, 1, WIDTH, WIDTH, 0, ATTN_FLOAT64, 0};
    return p->table->linear(p->ctx, &p->input[0].at, &p->input[1].at, &p->input[2].at, &p->act, &p->drop, &p->output.at, &p->u);
}

static attn_status linear_back(problem *p)
{
    view *d = &p->output.d;
    attn_status status = p->table->activation_back(p->ctx, &p->act, &p->u, &p->drop, d, 0, d, NULL);
    if (status == ATTN_OK) status = p->table->linear_d_input(p->ctx, d, &p->input[1].at, 1, &p->input[0].d);
    if (status == ATTN_OK) status = p->table->linear_d_weight(p->ctx, d, &p->input[0].at, &p->input[1].d, &p->input[2].d);
    return status;
}

static void test_linear(void **state)
{
    for (int32_t kind = ATTN_ACTIVATION_IDENTITY; kind <= ATTN_ACTIVATION_TANH; kind++) {
        problem *p = fresh(state, 0.3);
        p->kind = p->act.kind = kind;
        input(p, ROWS, 1, 4);
        input(p, WIDTH, 1, 4);
        input(p, 1, 1, WIDTH);
        p->output.at = (view){NULL, ROWS, 1, WIDTH, 0, 0, 0, 0};
        check(p, "linear", linear_forward, linear_back);
    }
}

/* gated, with Swish's beta learned as input 3 */
static attn_status gated_forward(problem *p)
{
    p->u = (view){p->other, ROWS, 1, 2 * WIDTH, 2 * WIDTH, 0, ATTN_FLOAT64, 0};
    return p->table->linear_gated(p->ctx, &p->input[0].at, &p->input[1].at, &p->input[2].at, &p->act, &p->drop, &p->output.at, &p->u);
}

static attn_status gated_back(problem *p)
{
    static double space[ROWS * 2 * WIDTH];
    view du = p->u;
    du.data = space;
    attn_status status = p->table->gate_back(p->ctx, &p->act, &p->u, &p->drop, &p->output.d, &du, &p->input[3].d);
    if (status == ATTN_OK) status = p->table->linear_d_input(p->ctx, &du, &p->input[1].at, 0, &p->input[0].d);
    if (status == ATTN_OK) status = p->table->linear_d_weight(p->ctx, &du, &p->input[0].at, &p->input[1].d, &p->input[2].d);
    return status;
}

static void test_gated(void **state)
{
    for (int32_t kind = ATTN_ACTIVATION_IDENTITY; kind <= ATTN_ACTIVATION_TANH; kind++) {
        problem *p = fresh(state, 0.3);
        p->kind = p->act.kind = kind;
        input(p, ROWS, 1, 4);
        input(p, 2 * WIDTH, 1, 4);
        input(p, 1, 1, 2 * WIDTH);
        input(p, 1, 1, 1);
        p->act.learned_beta = &p->input[3].at;
        p->output.at = (view){NULL, ROWS, 1, WIDTH, 0, 0, 0, 0};
        check(p, "linear_gated", gated_forward, gated_back);
    }
}

static attn_status activation_forward(problem *p)
{
    return p->table->activation(p->ctx, &p->act, &p->input[0].at, &p->drop, &p->output.at);
}

static attn_status activation_back(problem *p)
{
    return p->table->activation_back(p->ctx, &p->act, &p->input[0].at, &p->drop, &p->output.d, 1, &p->input[0].d, &p->input[1].d);
}

static void test_activation(void **state)
{
    for (int32_t kind = ATTN_ACTIVATION_IDENTITY; kind <= ATTN_ACTIVATION_TANH; kind++) {
        problem *p = fresh(state, 0.3);
        p->kind = p->act.kind = kind;
        input(p, ROWS, 1, WIDTH);
        input(p, 1, 1, 1);
        p->act.learned_beta = &p->input[1].at;
        p->output.at = (view){NULL, ROWS, 1, WIDTH, 0, 0, 0, 0};
        check(p, "activation", activation_forward, activation_back);
    }
}

/* x, s, gain, shift; the loss sees the norm and, through dr_in, the residual stream itself: y + r */
static attn_status norm_forward(problem *p)
{
    double sums[ROWS * WIDTH];
    view r = {p->other, ROWS, 1, WIDTH, WIDTH, 0, ATTN_FLOAT64, 0}, y = r;
    y.data = sums;
    attn_status status = p->table->residual_norm(p->ctx, &p->input[0].at, &p->input[1].at, &p->drop, p->kind, 1e-3, &p->input[2].at,
                                                 &p->input[3].at, &r, &y, p->statistics);
    p->u = r;
    return status == ATTN_OK ? p->table->add(p->ctx, &r, &y, &p->output.at) : status;
}

static attn_status norm_back(problem *p)
{
    return p->table->residual_norm_back(p->ctx, &p->output.d, &p->output.d, &p->u, p->statistics, &p->drop, p->kind, &p->input[2].at,
                                        &p->input[0].d, &p->input[1].d, &p->input[2].d, &p->input[3].d);
}

static void test_norm(void **state)
{
    for (int32_t norm = ATTN_NORM_LAYER; norm <= ATTN_NORM_RMS; norm++) {
        problem *p = fresh(state, 0.4);
        p->kind = norm;
        input(p, ROWS, 1, WIDTH);
        input(p, ROWS, 1, WIDTH);
        input(p, 1, 1, WIDTH);
        input(p, 1, 1, WIDTH);
        p->output.at = (view){NULL, ROWS, 1, WIDTH, 0, 0, 0, 0};
        check(p, "residual_norm", norm_forward, norm_back);
    }
}

static attn_status softmax_forward(problem *p)
{
    return p->table->softmax(p->ctx, &p->input[0].at, p->kind, &p->output.at);
}

static attn_status softmax_back(problem *p)
{
    return p->table->softmax_back(p->ctx, &p->output.at, p->kind, &p->output.d, 1, &p->input[0].d);
}

static void test_softmax(void **state)
{
    for (int32_t log = 0; log < 2; log++) {
        problem *p = fresh(state, 0);
        p->kind = log;
        input(p, ROWS, 1, WIDTH);
        p->output.at = (view){NULL, ROWS, 1, WIDTH, 0, 0, 0, 0};
        check(p, "softmax", softmax_forward, softmax_back);
    }
}

/* kind: positions; from tokens and a table, or (kind < 0) from x with learned positions */
static attn_status embed_forward(problem *p)
{
    if (p->kind < 0) {
        return p->table->embed(p->ctx, NULL, NULL, &p->input[0].at, 3, ATTN_POSITIONS_LEARNED, &p->input[1].at, p->places, &p->drop,
                               &p->output.at);
    }
    return p->table->embed(p->ctx, &p->tokens, &p->input[0].at, NULL, 3, p->kind, &p->input[1].at, p->places, &p->drop, &p->output.at);
}

static attn_status embed_back(problem *p)
{
    view *learned = p->kind < 0 || p->kind == ATTN_POSITIONS_LEARNED ? &p->input[1].d : NULL;
    if (p->kind < 0) return p->table->embed_back(p->ctx, NULL, 3, p->places, &p->drop, &p->output.d, NULL, learned, 1, &p->input[0].d);
    return p->table->embed_back(p->ctx, &p->tokens, 3, p->places, &p->drop, &p->output.d, &p->input[0].d, learned, 0, NULL);
}

static void test_embed(void **state)
{
    for (int32_t kind = -1; kind <= ATTN_POSITIONS_LEARNED; kind++) {
        problem *p = fresh(state, 0.3);
        p->kind = kind;
        p->labels[2] = p->labels[1]; /* a token twice */
        input(p, kind < 0 ? ROWS : 7, 1, WIDTH);
        input(p, 4, 1, WIDTH);
        p->output.at = (view){NULL, ROWS, 1, WIDTH, 0, 0, 0, 0};
        check(p, "embed", embed_forward, embed_back);
    }
}

/* the gradient replaces the logits, so it works on a copy; one output, the sum */
static attn_status loss_run(problem *p, int gradient)
{
    attn__loss_sums sums;
    view logits = {p->other, ROWS, 1, WIDTH, WIDTH, 0, ATTN_FLOAT64, 0};
    memcpy(p->other, p->input[0].value, sizeof p->other);
    attn_status status = p->table->loss(p->ctx, &logits, &p->tokens, p->smoothing, p->kind, -1, gradient, &sums);
    p->output.value[0] = sums.loss;
    for (int64_t i = 0; gradient && i < ROWS * WIDTH; i++) p->input[0].gradient[i] = p->other[i] * p->output.gradient[0];
    return status;
}

static attn_status loss_forward(problem *p)
{
    return loss_run(p, 0);
}
static attn_status loss_back(problem *p)
{
    return loss_run(p, 1);
}

static void test_loss(void **state)
{
    for (int32_t form = 0; form < 2; form++) {
        problem *p = fresh(state, 0);
        p->kind = form;
        p->smoothing = 0.2;
        input(p, ROWS, 1, WIDTH);
        p->output.at = (view){NULL, 1, 1, 1, 0, 0, 0, 0};
        check(p, "loss", loss_forward, loss_back);
    }
}

static attn__attention_arguments arguments_of(problem *p)
{
    attn__attention_arguments a = {.query = p->input[0].at, .key = p->input[1].at, .value = p->input[2].at, .output = p->output.at};
    a.log_sum_exp = p->log_sum_exp;
    a.d_query = p->input[0].d, a.d_key = p->input[1].d, a.d_value = p->input[2].d, a.d_output = p->output.d;
    a.query_segments = (attn__segments){3, p->output.at.rows, p->queries};
    a.key_segments = (attn__segments){3, p->input[1].at.rows, p->keys};
    a.mask = p->mask;
    a.scale = 0.9;
    a.soft_cap = p->soft_cap;
    a.dropout = p->drop;
    return a;
}

static attn_status attention_forward(problem *p)
{
    attn__attention_arguments a = arguments_of(p);
    return p->table->attention(p->ctx, &a);
}

static attn_status attention_back(problem *p)
{
    attn__attention_arguments a = arguments_of(p);
    return p->table->attention_back(p->ctx, &a);
}

/* grouped heads, a key segment used twice, more queries than keys; with and without mask, soft cap and dropout */
static void test_attention(void **state)
{
    for (int32_t variant = 0; variant < 8; variant++) {
        problem *p = fresh(state, variant & 1 ? 0.3 : 0);
        p->kind = variant;
        p->soft_cap = variant & 2 ? 0.8 : 0;
        if (variant & 4) assert_int_equal(attn_mask_causal(p->ctx, ATTN_ALIGN_LAST, &p->mask), ATTN_OK);
        memcpy(p->queries, (attn_segment[]){{0, 4, 0, 7}, {4, 3, 9, 8}, {7, 4, 2, 9}}, sizeof p->queries);
        memcpy(p->keys, (attn_segment[]){{0, 5, 0, 1}, {5, 3, 4, 2}, {5, 3, 4, 2}}, sizeof p->keys);
        input(p, 11, 4, 3);
        input(p, 8, 2, 3);
        input(p, 8, 2, 2);
        p->output.at = (view){NULL, 11, 4, 2, 0, 0, 0, 0};
        check(p, "attention", attention_forward, attention_back);
        attn_mask_free(p->mask);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),  cmocka_unit_test(test_gated), cmocka_unit_test(test_activation), cmocka_unit_test(test_norm),
        cmocka_unit_test(test_softmax), cmocka_unit_test(test_embed), cmocka_unit_test(test_loss),       cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, open_problem, close_problem);
}

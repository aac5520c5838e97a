/* Past the borders: several tiles down and across, rows longer than a piece of 512 columns, heads with gaps between them, tables of
   positions, ids beyond 32 bits. BLAS against the two references, as in the other cross-checks. */
#include <attn/operations.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attention_data.h"
#include "support/compare.h"
#include "support/crosscheck.h"
#include "tensor/parameters.h"

#define OK(call) assert_int_equal(call, ATTN_OK)

typedef struct size {
    int64_t rows, in, out;
} size;

static attn__dropout drop_of(crosscheck *c, int64_t rows, double rate)
{
    attn__dropout drop = {rate, 7, 8, 9, {NULL, NULL}};
    drop.places = places(c, rows, rows > 20 ? rows / 3 : rows);
    return drop;
}

/* tiles across for few rows, tiles across for many, tiles both ways */
static const size products[] = {{3, 300, 1300}, {70, 3, 1200}, {300, 7, 700}, {300, 300, 64}};

static void forward_case(crosscheck *c, const void *what)
{
    const size *s = what;
    trio x = input_rows(c, s->rows, s->in, -1, 1), w = input_rows(c, 2 * s->out, s->in, -1, 1), b = input_rows(c, 1, 2 * s->out, -1, 1);
    trio y = result_rows(c, s->rows, s->out, 0), u = result_rows(c, s->rows, s->out, 0), plain = result_rows(c, s->rows, s->out, 0);
    trio gated = result_rows(c, s->rows, s->out, 0), gates = result_rows(c, s->rows, 2 * s->out, 0);
    attn__dropout drop = drop_of(c, s->rows, 0.3);
    const attn__activation act = {ATTN_ACTIVATION_GELU, 0, 1, NULL};
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        view half = w.at[run], bias = b.at[run];
        half.rows = bias.width = s->out;
        OK(t->linear(c->ctx[run], &x.at[run], &half, &bias, &act, &drop, &y.at[run], &u.at[run]));
        OK(t->linear(c->ctx[run], &x.at[run], &half, &bias, NULL, NULL, &plain.at[run], NULL));
        OK(t->linear_gated(c->ctx[run], &x.at[run], &w.at[run], &b.at[run], &act, &drop, &gated.at[run], &gates.at[run]));
    }
    expect_close(c, "linear", (double)s->in + 1, &y);
    expect_close(c, "linear", (double)s->in + 1, &u);
    expect_close(c, "linear", (double)s->in + 1, &plain);
    expect_close(c, "linear_gated", (double)s->in + 1, &gated);
    expect_close(c, "linear", (double)s->in + 1, &gates);
}

static void backward_case(crosscheck *c, const void *what)
{
    const size *s = what;
    trio dy = input_rows(c, s->rows, s->out, -1, 1), x = input_rows(c, s->rows, s->in, -1, 1), w = input_rows(c, s->out, s->in, -1, 1);
    trio dx = result_rows(c, s->rows, s->in, 1), dw = result_rows(c, s->out, s->in, 1), db = result_rows(c, 1, s->out, 1);
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        OK(t->linear_d_input(c->ctx[run], &dy.at[run], &w.at[run], 1, &dx.at[run]));
        OK(t->linear_d_weight(c->ctx[run], &dy.at[run], &x.at[run], &dw.at[run], &db.at[run]));
    }
    expect_close(c, "linear_d_input", (double)s->out, &dx);
    expect_close(c, "linear_d_weight", (double)s->rows, &dw);
    expect_close(c, "linear_d_weight", (double)s->rows, &db);
}

static void test_products(void **state)
{
    static const size turned[] = {{40, 1300, 300}, {5, 300, 700}, {9, 700, 300}};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < 4; i++) crosscheck_run(&c, forward_case, &products[i], 0);
    for (int i = 0; i < 4; i++) crosscheck_run(&c, backward_case, &products[i], 0);
    for (int i = 0; i < 3; i++) crosscheck_run(&c, backward_case, &turned[i], 0);
    crosscheck_close(&c);
}

/* in: not used; out: columns */
static void elements_case(crosscheck *c, const void *what)
{
    const size *s = what;
    const attn__activation act = {ATTN_ACTIVATION_TANH, 0, 1, NULL};
    trio u = input_rows(c, s->rows, s->out, -2, 2), dy = input_rows(c, s->rows, s->out, -1, 1), x = input_rows(c, s->rows, s->out, -1, 1);
    trio y = result_rows(c, s->rows, s->out, 0), du = result_rows(c, s->rows, s->out, 1), dropped = result_rows(c, s->rows, s->out, 0);
    trio sum = result_rows(c, s->rows, s->out, 0);
    attn__dropout drop = drop_of(c, s->rows, 0.4);
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        OK(t->activation(c->ctx[run], &act, &u.at[run], &drop, &y.at[run]));
        OK(t->activation_back(c->ctx[run], &act, &u.at[run], &drop, &dy.at[run], 1, &du.at[run], NULL));
        OK(t->dropout(c->ctx[run], &x.at[run], &drop, 0, &dropped.at[run]));
        OK(t->residual(c->ctx[run], &x.at[run], &u.at[run], &drop, &sum.at[run]));
    }
    expect_close(c, "activation", 1, &y);
    expect_close(c, "activation_back", 1, &du);
    expect_close(c, "dropout", 1, &dropped);
    expect_close(c, "residual", 1, &sum);
}

static void rows_case(crosscheck *c, const void *what)
{
    const size *s = what;
    trio x = input_rows(c, s->rows, s->out, -1, 1), add = input_rows(c, s->rows, s->out, -1, 1), gain = input_rows(c, 1, s->out, 1, 2);
    trio r = result_rows(c, s->rows, s->out, 0), y = result_rows(c, s->rows, s->out, 0), soft = result_rows(c, s->rows, s->out, 0);
    trio logits = input_rows(c, s->rows, s->out, -2, 2), statistics = result_rows(c, s->rows, 2, 0),
         plain = result_rows(c, s->rows, s->out, 0);
    view labels = integers(c, ATTN_INT32, s->rows, 0, s->out);
    double loss[RUNS], unsmoothed[RUNS];
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        attn__loss_sums sums;
        OK(t->residual_norm(c->ctx[run], &x.at[run], &add.at[run], NULL, ATTN_NORM_LAYER, 1e-5, &gain.at[run], NULL, &r.at[run], &y.at[run],
                            statistics.at[run].data));
        OK(t->residual(c->ctx[run], &x.at[run], &add.at[run], NULL, &plain.at[run]));
        OK(t->softmax(c->ctx[run], &x.at[run], 0, &soft.at[run]));
        OK(t->loss(c->ctx[run], &logits.at[run], &labels, 0.1, 0, -1, 1, &sums));
        loss[run] = sums.loss;
        unsmoothed[run] = sums.unsmoothed;
        assert_int_equal(sums.count, s->rows);
    }
    expect_close(c, "residual_norm", (double)s->out, &y);
    expect_close(c, "residual", 1, &r);
    expect_close(c, "residual", 1, &plain);
    expect_close(c, "residual_norm", (double)s->out, &statistics);
    expect_close(c, "softmax", (double)s->out, &soft);
    expect_close(c, "loss", (double)s->out, &logits);
    expect_close_numbers(c, "loss", (double)(s->out * s->rows), loss);
    expect_close_numbers(c, "loss", (double)(s->out * s->rows), unsmoothed);
}

static void test_rows(void **state)
{
    static const size sizes[] = {{20, 0, 1100}, {2, 0, 17000}, {600, 0, 70}};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < 3; i++) {
        crosscheck_run(&c, elements_case, &sizes[i], 0);
        crosscheck_run(&c, rows_case, &sizes[i], 0);
    }
    crosscheck_close(&c);
}

/* a class is impossible in every way: the loss is infinite, and the gradient is that of no probability at all */
static void test_impossible_rows(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int32_t form = 0; form < 2; form++) {
        trio logits = input_rows(&c, 3, 5, -1, 1);
        view labels = integers(&c, ATTN_INT64, 3, 0, 5);
        for (int run = 0; run < RUNS; run++) {
            attn__loss_sums sums;
            for (int64_t k = 0; k < 5; k++) element_set(&logits.at[run], 1, 0, k, -INFINITY);
            OK(c.table[run]->loss(c.ctx[run], &logits.at[run], &labels, 0.2, form, -1, 1, &sums));
            assert_true(isinf(sums.loss) && sums.loss > 0 && sums.count == 3);
        }
        expect_close(&c, "loss", 5, &logits);
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

/* heads with gaps between them, more of them than one tile takes */
static void heads_case(crosscheck *c, const void *what)
{
    const size *s = what; /* rows, heads, width of a head */
    c->gap = 3, c->head_gap = 2;
    trio x = input_heads(c, s->rows, s->in, s->out, -1, 1), y = result_heads(c, s->rows, s->in, s->out, 0);
    trio sum = result_heads(c, s->rows, s->in, s->out, 1), filled = result_heads(c, s->rows, s->in, s->out, 0);
    trio normal = result_heads(c, s->rows, s->in, s->out, 0);
    c->gap = 0;
    trio dense = result_heads(c, s->rows, s->in, s->out, 0);
    c->head_gap = 0;
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        OK(t->copy(c->ctx[run], &x.at[run], 0, &y.at[run]));
        OK(t->copy(c->ctx[run], &x.at[run], 1, &sum.at[run]));
        OK(t->copy(c->ctx[run], &x.at[run], 0, &dense.at[run]));
        OK(t->fill(c->ctx[run], &filled.at[run], ATTN__START_UNIFORM, 2, 99));
        OK(t->fill(c->ctx[run], &normal.at[run], ATTN__START_NORMAL, 1, 98));
    }
    expect_close(c, "copy", 1, &y);
    expect_close(c, "copy", 1, &sum);
    expect_close(c, "copy", 1, &dense);
    expect_close(c, "fill", 1, &filled);
    expect_close(c, "fill", 1, &normal);
}

static void test_heads(void **state)
{
    static const size sizes[] = {{3, 4, 7}, {900, 3, 7}, {2, 2, 9001}};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < 3; i++) crosscheck_run(&c, heads_case, &sizes[i], 0);
    crosscheck_close(&c);
}

/* positions that are neighbours, more than 16 of them, share a table, which begins with the lowest: not that of the first row, as in a step of
   sequences of several lengths; an odd width ends with a sine */
static void positions_case(crosscheck *c, const void *what)
{
    const size *s = what;
    trio table = input_rows(c, 30, s->out, -1, 1), y = result_rows(c, s->rows, s->out, 0), learned = result_rows(c, s->rows, s->out, 0);
    trio positions = input_rows(c, 64, s->out, -1, 1), sums = result_rows(c, 30, s->out, 1), lines = result_rows(c, 64, s->out, 1);
    trio dy = input_rows(c, s->rows, s->out, -1, 1);
    view tokens = integers(c, ATTN_INT32, s->rows, 0, 30);
    attn__dropout drop = drop_of(c, s->rows, 0.25);
    int64_t *at = (int64_t *)(intptr_t)drop.places.position;
    for (int64_t r = 0; r < s->rows; r++) at[r] = s->in + (r * 7 + s->rows / 2) % s->rows;
    for (int run = 0; run < RUNS; run++) {
        const attn__kernels *t = c->table[run];
        OK(t->embed(c->ctx[run], &tokens, &table.at[run], NULL, 1.5, ATTN_POSITIONS_SINUSOIDAL, NULL, drop.places, &drop, &y.at[run]));
        OK(t->embed(c->ctx[run], &tokens, &table.at[run], NULL, 0.5, ATTN_POSITIONS_LEARNED, &positions.at[run], drop.places, NULL,
                    &learned.at[run]));
        OK(t->embed_back(c->ctx[run], &tokens, 1.5, drop.places, &drop, &dy.at[run], &sums.at[run], &lines.at[run], 0, NULL));
    }
    expect_close(c, "embed", 4, &y);
    expect_close(c, "embed", 1, &learned);
    expect_close(c, "embed_back", (double)s->rows, &sums);
    expect_close(c, "embed_back", (double)s->rows, &lines);
}

static void test_positions(void **state)
{
    static const size sizes[] = {{50, 3, 133}, {33, 0, 640}, {16, 5, 1}, {61, 2, 1027}};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < 4; i++) crosscheck_run(&c, positions_case, &sizes[i], 0);
    crosscheck_close(&c);
}

/* sequences and positions past 32 bits draw numbers of their own */
static void test_large_places(void **state)
{
    static const attention_shape shape = {2, 1, 8, 8, MASK_NONE, 0, 0, 0.4, 0, 0, 2, {9, 20}, {30, 17}};
    crosscheck c;
    attention_data d;
    (void)state;
    crosscheck_open(&c);
    make_data(&c, &shape, &d);
    d.queries[0].sequence_id += INT64_C(3) << 33;
    d.queries[1].first_position += INT64_C(1) << 34;
    for (int run = 0; run < RUNS; run++) {
        attn__attention_arguments a = arguments_of(&shape, &d, run);
        OK(c.table[run]->attention(c.ctx[run], &a));
    }
    free_masks(&d);
    expect_close(&c, "attention", 60, &d.output);
    crosscheck_sweep(&c);
    crosscheck_close(&c);
}

/* Logits that are equal: the lower index comes first, so top-k keeps the first of them, whatever is drawn. */
static void test_ties(void **state)
{
    static const float row[8] = {1, 3, 2, 3, 2, 3, 2, 0};
    static const int64_t kept[] = {1, 2, 3, 4, 5, 6};
    static const int likely[][8] = {
        {0, 1}, {0, 1, 0, 1}, {0, 1, 0, 1, 0, 1}, {0, 1, 1, 1, 0, 1}, {0, 1, 1, 1, 1, 1}, {0, 1, 1, 1, 1, 1, 1}};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < 6; i++) {
        for (int run = 0; run < RUNS; run++) {
            int seen[8] = {0};
            trio logits = input_rows(&c, 1, 8, 0, 1);
            for (int64_t k = 0; k < 8; k++) element_set(&logits.at[run], 0, 0, k, (double)row[k]);
            for (double uniform = 0; uniform < 1; uniform += 0.005) {
                int32_t token = -1;
                OK(c.table[run]->next_token(c.ctx[run], &logits.at[run], 1, kept[i], 1, &uniform, &token));
                assert_true(token >= 0 && token < 8);
                seen[token] = 1;
            }
            for (int k = 0; k < 8; k++)
                if (seen[k] != likely[i][k]) fail_msg("top %d: token %d: got %d, expected %d", (int)kept[i], k, seen[k], likely[i][k]);
        }
        crosscheck_sweep(&c);
    }
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_rows),      cmocka_unit_test(test_impossible_rows),
        cmocka_unit_test(test_heads),    cmocka_unit_test(test_positions), cmocka_unit_test(test_large_places),
        cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

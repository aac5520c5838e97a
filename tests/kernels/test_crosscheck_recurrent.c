/* recurrent layers: BLAS against the two references */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/compare.h"
#include "support/crosscheck.h"
#include "support/drawn.h"

enum { MOST = 40 };
typedef struct recurrent_shape {
    int64_t width, count; /* of segments */
    int64_t lengths[6];   /* the last one is that of all further segments */
    int32_t reverse, states;
    int32_t add; /* bits: the gradients by x, hidden and cell are added to what is there */
    int32_t gap;
} recurrent_shape;

static const recurrent_shape shapes[] = {
    {5, 1, {7}, 0, 1, 0, 0},
    {1, 1, {1}, 0, 0, 0, 0},
    {1, 3, {4, 1, 2}, 1, 1, 7, 0},
    {7, 4, {3, 0, 5, 1}, 0, 0, 0, 3}, /* unequal, one empty, gaps between rows */
    {7, 4, {3, 0, 5, 1}, 1, 1, 7, 3},
    {16, 6, {0, 0, 1, 0, 2, 0}, 0, 1, 0, 0}, /* more segments than rows */
    {16, 3, {0, 0, 0}, 1, 1, 7, 0},          /* no rows */
    {5, 0, {0}, 0, 1, 0, 0},
    {0, 3, {3, 0, 1}, 0, 1, 0, 0}, /* states without columns */
    {9, 30, {50, 3}, 1, 0, 0, 0},  /* one long and many short */
    {97, 5, {13, 11, 7, 5, 2}, 0, 1, 0, 1},
    {12, 4, {3, 0, 5, 1}, 0, 1, 2, 0},        /* hidden added to, cell written */
    {12, 4, {3, 0, 5, 1}, 1, 1, 5, 0},        /* the other way round */
    {300, 6, {2, 3, 1, 3, 2, 3}, 1, 1, 7, 0}, /* columns cut for few rows */
    {130, 40, {4, 1, 3}, 0, 1, 0, 0},         /* rows and columns cut */
    {400, 3, {2, 3, 1}, 0, 1, 0, 0},          /* columns of one gate cut for few rows */
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct recurrent_case {
    const recurrent_shape *shape;
    int32_t kind, wanted; /* bits of the four gradients; 0: all */
} recurrent_case;

typedef struct recurrent_data {
    attn_segment segments[MOST];
    attn__segments list;
    int64_t longest, wide;
    trio x, weight, hidden, cell, output, final_hidden, final_cell, gates, cells;
    trio d_output, d_final_hidden, d_final_cell, d_x, d_weight, d_hidden, d_cell;
} recurrent_data;

/* rows of the segments stand in reverse order */
static int64_t make_segments(const recurrent_shape *s, recurrent_data *d)
{
    int64_t rows = 0;
    for (int64_t i = s->count - 1; i >= 0; i--) {
        int64_t length = s->lengths[i < 5 ? i : 5];
        if (s->count > 6 && i > 1) length = s->lengths[1 + i % 2] > 0 ? s->lengths[1 + i % 2] : s->lengths[1];
        d->segments[i] = (attn_segment){rows, length, 0, i};
        if (length > d->longest) d->longest = length;
        rows += length;
    }
    d->list = (attn__segments){s->count, rows, d->segments};
    return rows;
}

static void make_data(crosscheck *c, const recurrent_case *what, recurrent_data *d)
{
    const recurrent_shape *s = what->shape;
    memset(d, 0, sizeof *d);
    int64_t rows = make_segments(s, d), width = s->width;
    double reach = 1.5 / (double)(width > 3 ? width / 2 : 2);
    d->wide = attn__recurrent_gates(what->kind) * width;
    c->gap = s->gap;
    d->x = input_rows(c, rows, d->wide, -1, 1);
    d->weight = input_rows(c, d->wide, width, -reach, reach);
    d->hidden = input_rows(c, s->count, width, -1, 1);
    d->cell = input_rows(c, s->count, width, -1, 1);
    d->d_output = input_rows(c, rows, width, -1, 1);
    d->d_final_hidden = input_rows(c, s->count, width, -1, 1);
    d->d_final_cell = input_rows(c, s->count, width, -1, 1);
    d->output = result_rows(c, rows, width, 0);
    d->final_hidden = result_rows(c, s->count, width, 0);
    d->final_cell = result_rows(c, s->count, width, 0);
    d->d_x = result_rows(c, rows, d->wide, s->add & 1);
    d->d_hidden = result_rows(c, s->count, width, s->add >> 1 & 1);
    d->d_cell = result_rows(c, s->count, width, s->add >> 2);
    d->d_weight = result_rows(c, d->wide, width, 1);
    c->gap = 0;
    d->gates = result_rows(c, rows, d->wide, 0);
    d->cells = result_rows(c, rows, width, 0);
}

static attn__recurrent_arguments arguments_of(const recurrent_case *what, const recurrent_data *d, int run)
{
    const recurrent_shape *s = what->shape;
    const int lstm = what->kind == ATTN_RECURRENT_LSTM;
    attn__recurrent_arguments a = {.x = d->x.at[run], .weight = d->weight.at[run], .output = d->output.at[run], .segments = d->list};
    a.kind = what->kind;
    a.reverse = s->reverse;
    a.add_x = s->add & 1, a.add_hidden = s->add >> 1 & 1, a.add_cell = s->add >> 2;
    a.final_hidden = d->final_hidden.at[run];
    a.d_output = d->d_output.at[run];
    a.d_final_hidden = d->d_final_hidden.at[run];
    a.d_x = d->d_x.at[run];
    a.d_weight = d->d_weight.at[run];
    if (s->states) a.hidden = d->hidden.at[run];
    a.d_hidden = d->d_hidden.at[run];
    if (!lstm) return a;
    if (s->states) a.cell = d->cell.at[run];
    a.final_cell = d->final_cell.at[run];
    a.d_final_cell = d->d_final_cell.at[run];
    a.d_cell = d->d_cell.at[run];
    a.gates = d->gates.at[run].data;
    a.cells = d->cells.at[run].data;
    return a;
}

static void run_case(crosscheck *c, const void *context)
{
    const recurrent_case *what = context;
    recurrent_data d;
    make_data(c, what, &d);
    int32_t wanted = what->wanted == 0 ? 15 : what->wanted;
    for (int run = 0; run < RUNS; run++) {
        attn__recurrent_arguments a = arguments_of(what, &d, run), plain = a;
        plain.gates = plain.cells = NULL; /* without a tape: the same output */
        plain.final_cell.data = plain.final_hidden.data = NULL;
        assert_int_equal(c->table[run]->recurrent(c->ctx[run], &plain), ATTN_OK);
        assert_int_equal(c->table[run]->recurrent(c->ctx[run], &a), ATTN_OK);
        if (!(wanted & 1)) a.d_x.data = NULL;
        if (!(wanted & 2)) a.d_weight.data = NULL;
        if (!(wanted & 4)) a.d_hidden.data = NULL;
        if (!(wanted & 8)) a.d_cell.data = NULL;
        assert_int_equal(c->table[run]->recurrent_back(c->ctx[run], &a), ATTN_OK);
    }
    double terms = (double)(what->shape->width + d.longest), rows = (double)d.list.rows;
    /* one number may be as small as it likes */
    trio *const results[] = {&d.output, &d.final_hidden, &d.final_cell, &d.d_x, &d.d_weight, &d.d_hidden, &d.d_cell};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) results[i]->least = results[i]->least > 0.1 ? results[i]->least : 0.1;
    expect_close(c, "recurrent", terms, &d.output);
    expect_close(c, "recurrent", terms, &d.final_hidden);
    if (what->kind == ATTN_RECURRENT_LSTM) expect_close(c, "recurrent", terms, &d.final_cell);
    if (wanted & 1) expect_close(c, "recurrent_back", terms, &d.d_x);
    if (wanted & 2) expect_close(c, "recurrent_back", terms + rows, &d.d_weight);
    if (wanted & 4) expect_close(c, "recurrent_back", terms, &d.d_hidden);
    if (wanted & 8 && what->kind == ATTN_RECURRENT_LSTM) expect_close(c, "recurrent_back", terms, &d.d_cell);
}

static void test_recurrent(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int32_t kind = ATTN_RECURRENT_TANH; kind <= ATTN_RECURRENT_LSTM; kind++)
        for (int i = 0; i < SHAPES; i++)
            crosscheck_run(&c, run_case, &(recurrent_case){&shapes[i], kind, 0}, i > 0 ? 0 : kind == ATTN_RECURRENT_LSTM ? 7 : 3);
    crosscheck_close(&c);
}

/* each gradient alone is what it is among all */
static void test_wanted(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int32_t kind = ATTN_RECURRENT_TANH; kind <= ATTN_RECURRENT_LSTM; kind++)
        for (int32_t wanted = 1; wanted < 16; wanted++) crosscheck_run(&c, run_case, &(recurrent_case){&shapes[4], kind, wanted}, 0);
    crosscheck_close(&c);
}

/* gradients may arrive at one output alone, and at none of the first rows */
static void arriving_case(crosscheck *c, const void *context)
{
    const int32_t *arriving = context;
    const recurrent_case what = {&shapes[3], ATTN_RECURRENT_LSTM, 0};
    recurrent_data d;
    make_data(c, &what, &d);
    for (int run = 0; run < RUNS; run++) {
        attn__recurrent_arguments a = arguments_of(&what, &d, run);
        assert_int_equal(c->table[run]->recurrent(c->ctx[run], &a), ATTN_OK);
        if (!(*arriving & 1)) a.d_output.data = NULL;
        if (!(*arriving & 2)) a.d_final_hidden.data = NULL;
        if (!(*arriving & 4)) a.d_final_cell.data = NULL;
        assert_int_equal(c->table[run]->recurrent_back(c->ctx[run], &a), ATTN_OK);
    }
    expect_close(c, "recurrent_back", 12, &d.d_x);
    expect_close(c, "recurrent_back", 21, &d.d_weight);
    expect_close(c, "recurrent_back", 12, &d.d_hidden);
    expect_close(c, "recurrent_back", 12, &d.d_cell);
}

static void test_arriving(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int32_t arriving = 1; arriving < 7; arriving++) crosscheck_run(&c, arriving_case, &arriving, 0);
    crosscheck_close(&c);
}

/* what a layer would keep is counted before anything is read: views without data */
static void test_too_large(void **state)
{
    static const struct {
        int64_t width, first, rest, count;        /* lengths of the first segment and of the others */
    } far[] = {{0, INT64_C(1) << 62, 0, 1},       /* the steps */
               {0, (INT64_C(1) << 62) - 2, 0, 2}, /* with the segments */
               {0, INT64_C(1) << 60, 0, 1},       /* their bytes */
               {INT64_C(1) << 60, 1, 1, MOST},    /* the states */
               {INT64_C(1) << 61, 1, 1, 2}};      /* their bytes */
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        attn_segment segments[MOST];
        int64_t rows = 0;
        for (int64_t s = 0; s < far[i].count; s++) {
            segments[s] = (attn_segment){rows, s == 0 ? far[i].first : far[i].rest, 0, s};
            rows += segments[s].length;
        }
        const view at = {.rows = rows, .heads = 1, .width = far[i].width, .row_stride = far[i].width, .dtype = ATTN_FLOAT32};
        attn__recurrent_arguments a = {.x = at, .weight = at, .output = at, .kind = ATTN_RECURRENT_TANH};
        a.segments = (attn__segments){far[i].count, rows, segments};
        assert_int_equal(c.table[RUN_BLAS]->recurrent(c.ctx[RUN_BLAS], &a), ATTN_ERROR_TOO_LARGE);
        assert_int_equal(c.table[RUN_BLAS]->recurrent_back(c.ctx[RUN_BLAS], &a), ATTN_ERROR_TOO_LARGE);
    }
    crosscheck_close(&c);
}

/* the same of the reference, which has one row of sums, the gradient of the weight, and those of the states of every segment */
static void test_too_large_reference(void **state)
{
    static const struct {
        int64_t width, count;
        int32_t kind, back;
    } far[] = {{INT64_C(1) << 61, 0, ATTN_RECURRENT_LSTM, 0},
               {INT64_C(1) << 61, 0, ATTN_RECURRENT_LSTM, 1},
               {INT64_C(1) << 32, 0, ATTN_RECURRENT_TANH, 1},
               {4, INT64_C(1) << 61, ATTN_RECURRENT_TANH, 1}};
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        for (int run = RUN_FLOAT32; run <= RUN_FLOAT64; run++) {
            attn__recurrent_arguments a = {.kind = far[i].kind, .segments = {.count = far[i].count}};
            a.output = (view){.heads = 1, .width = far[i].width, .dtype = run == RUN_FLOAT32 ? ATTN_FLOAT32 : ATTN_FLOAT64};
            assert_int_equal(far[i].back ? c.table[run]->recurrent_back(c.ctx[run], &a) : c.table[run]->recurrent(c.ctx[run], &a),
                             ATTN_ERROR_TOO_LARGE);
        }
    }
    crosscheck_close(&c);
}

/* shapes that are drawn: widths around the ends of what is cut, segments of any lengths, any gradients wanted */
static void test_drawn(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int64_t i = drawn_first(); i < drawn_end(80); i++) {
        random_state random = {(uint64_t)i};
        recurrent_shape s = {.width = AMONG(&random, 1, 2, 3, 8, 15, 16, 17, 33, 64, 65, 130), .count = AMONG(&random, 1, 2, 3, 4, 6, 40)};
        for (int k = 0; k < 6; k++) s.lengths[k] = AMONG(&random, 0, 1, 1, 2, 3, 7, 16, 40);
        s.reverse = (int32_t)random_integer(&random, 0, 2), s.states = (int32_t)random_integer(&random, 0, 2);
        s.add = (int32_t)random_integer(&random, 0, 8), s.gap = (int32_t)AMONG(&random, 0, 0, 1, 3);
        const recurrent_case what = {&s, random_integer(&random, 0, 2) ? ATTN_RECURRENT_LSTM : ATTN_RECURRENT_TANH,
                                     drawn_once_in(&random, 3) ? (int32_t)random_integer(&random, 1, 16) : 0};
        printf("draw %d: width %d, %d segments (%d %d %d %d %d %d), reverse %d, states %d, add %d, kind %d, wanted %d\n", (int)i,
               (int)s.width, (int)s.count, (int)s.lengths[0], (int)s.lengths[1], (int)s.lengths[2], (int)s.lengths[3], (int)s.lengths[4],
               (int)s.lengths[5], s.reverse, s.states, s.add, what.kind, what.wanted);
        crosscheck_run(&c, run_case, &what, 0);
    }
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recurrent),
                                       cmocka_unit_test(test_wanted),
                                       cmocka_unit_test(test_arriving),
                                       cmocka_unit_test(test_too_large),
                                       cmocka_unit_test(test_too_large_reference),
                                       cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* convolutions: BLAS against the two references */
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
typedef struct convolution_shape {
    int64_t in, out, taps, dilation, first, count, lengths[4]; /* the last length is that of all further segments */
    int32_t biased, add, gap;
} convolution_shape;

static const convolution_shape shapes[] = {
    {5, 4, 3, 1, -1, 1, {7}, 1, 0, 0},
    {1, 1, 1, 1, 0, 1, {1}, 0, 1, 0},
    {3, 7, 2, 1, 0, 3, {4, 0, 1}, 1, 1, 3}, /* an even number, an empty segment, gaps between rows */
    {3, 5, 4, 3, -9, 3, {20, 1, 11}, 0, 0, 1},
    {2, 3, 5, 2, -4, 4, {1, 2, 3, 1}, 1, 0, 0},             /* segments shorter than the reach */
    {4, 2, 3, 2147483647, -2147483647, 2, {3, 4}, 1, 1, 0}, /* taps beyond every segment */
    {4, 4, 3, 1, -1, 6, {0, 1, 0, 0}, 1, 0, 0},             /* more segments than rows */
    {4, 4, 3, 1, -1, 0, {0}, 1, 1, 0},                      /* no rows */
    {0, 3, 3, 1, -1, 1, {5}, 1, 0, 0},
    {3, 0, 3, 1, -1, 1, {5}, 0, 1, 0},
    {6, 9, 3, 1, -2, 30, {90, 3}, 1, 0, 0},         /* one long and many short */
    {700, 11, 3, 1, -1, 3, {211, 13, 67}, 1, 1, 0}, /* several strips */
    {64, 96, 3, 2, -2, 2, {300, 17}, 0, 0, 0},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct convolution_case {
    const convolution_shape *shape;
    int32_t wanted, reserved; /* bits of the three gradients; 0: all */
} convolution_case;

static int64_t make_segments(const convolution_shape *s, attn_segment *segments)
{
    int64_t rows = 0;
    for (int64_t i = s->count - 1; i >= 0; i--) { /* in reverse order */
        int64_t length = s->lengths[i < 4 ? i : 3];
        if (s->count > 6 && i > 0) length = s->lengths[1];
        segments[i] = (attn_segment){rows, length, 0, i};
        rows += length;
    }
    return rows;
}

static void run_case(crosscheck *c, const void *context)
{
    const convolution_case *what = context;
    const convolution_shape *s = what->shape;
    const int32_t wanted = what->wanted == 0 ? 7 : what->wanted;
    attn_segment segments[MOST];
    const int64_t rows = make_segments(s, segments);
    attn__convolution shape = {s->taps, s->dilation, s->first, {s->count, rows, segments}};
    c->gap = s->gap;
    trio x = input_rows(c, rows, s->in, -1, 1), w = input_rows(c, s->out, s->taps * s->in, -1, 1), b = input_rows(c, 1, s->out, -1, 1);
    trio dy = input_rows(c, rows, s->out, -1, 1), y = result_rows(c, rows, s->out, 0), dx = result_rows(c, rows, s->in, s->add);
    trio dw = result_rows(c, s->out, s->taps * s->in, 1), db = result_rows(c, 1, s->out, 1);
    c->gap = 0;
    for (int run = 0; run < RUNS; run++) {
        assert_int_equal(c->table[run]->convolution(c->ctx[run], &x.at[run], &w.at[run], s->biased ? &b.at[run] : NULL, &shape, &y.at[run]),
                         ATTN_OK);
        assert_int_equal(c->table[run]->convolution_back(c->ctx[run], &x.at[run], &w.at[run], &shape, &dy.at[run], s->add,
                                                         wanted & 1 ? &dx.at[run] : NULL, wanted & 2 ? &dw.at[run] : NULL,
                                                         wanted & 4 ? &db.at[run] : NULL),
                         ATTN_OK);
    }
    y.least = 0.1; /* one number may be as small as it likes */
    expect_close(c, "convolution", (double)(s->taps * s->in + 1), &y);
    if (wanted & 1) expect_close(c, "convolution_back", (double)(s->taps * s->out + 1), &dx);
    expect_close(c, "convolution_back", (double)(rows + 1), &dw);
    expect_close(c, "convolution_back", (double)(rows + 1), &db);
}

static void test_convolution(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int i = 0; i < SHAPES; i++) crosscheck_run(&c, run_case, &(convolution_case){&shapes[i], 0, 0}, i == 0 ? 4 : 0);
    for (int32_t wanted = 1; wanted < 8; wanted++) crosscheck_run(&c, run_case, &(convolution_case){&shapes[2], wanted, 0}, 0);
    crosscheck_close(&c);
}

/* what one strip of gathered rows and the segments of the rows would need is counted before anything is read: views without data */
static void test_too_large(void **state)
{
    static const struct {
        int64_t rows, width, taps;
    } far[] = {{1, INT64_C(1) << 40, INT64_C(1) << 40}, /* the width of a gathered row */
               {64, 1, INT64_C(1) << 60},               /* the elements of a strip */
               {2, 1, INT64_C(1) << 61},                /* its bytes */
               {INT64_C(1) << 60, 0, 1}};               /* the segment of each row */
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        attn_segment whole = {0, far[i].rows, 0, 0};
        const attn__convolution shape = {far[i].taps, 1, 0, {1, far[i].rows, &whole}};
        view x = {.rows = far[i].rows, .heads = 1, .width = far[i].width, .row_stride = far[i].width, .dtype = ATTN_FLOAT32}, dx = x;
        view w = {.heads = 1, .dtype = ATTN_FLOAT32}, y = {.rows = far[i].rows, .heads = 1, .dtype = ATTN_FLOAT32};
        assert_int_equal(c.table[RUN_BLAS]->convolution(c.ctx[RUN_BLAS], &x, &w, NULL, &shape, &y), ATTN_ERROR_TOO_LARGE);
        /* backward gathers what arrives, of the same extents here */
        assert_int_equal(c.table[RUN_BLAS]->convolution_back(c.ctx[RUN_BLAS], &x, &w, &shape, &x, 0, &dx, NULL, NULL),
                         ATTN_ERROR_TOO_LARGE);
    }
    crosscheck_close(&c);
}

/* shapes that are drawn: taps within and beyond the segments, several strips, any gradients wanted */
static void test_drawn(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int64_t i = drawn_first(); i < drawn_end(80); i++) {
        random_state random = {(uint64_t)i};
        convolution_shape s = {.in = AMONG(&random, 0, 1, 3, 8, 17, 64, 300), .out = AMONG(&random, 0, 1, 2, 7, 16, 33)};
        s.taps = AMONG(&random, 1, 2, 3, 4, 5, 9), s.dilation = AMONG(&random, 1, 1, 2, 3, 50), s.count = AMONG(&random, 0, 1, 2, 4, 30);
        s.first = AMONG(&random, 0, -1, -2, -s.taps, -(s.taps - 1) * s.dilation, 5);
        for (int k = 0; k < 4; k++) s.lengths[k] = AMONG(&random, 0, 1, 1, 2, 5, 13, 64, 65, 210);
        s.biased = (int32_t)random_integer(&random, 0, 2), s.add = (int32_t)random_integer(&random, 0, 2);
        s.gap = (int32_t)AMONG(&random, 0, 0, 1, 3);
        const convolution_case what = {&s, drawn_once_in(&random, 3) ? (int32_t)random_integer(&random, 1, 8) : 0, 0};
        printf("draw %d: %d to %d columns, taps %d, dilation %d, first %d, %d segments (%d %d %d %d), bias %d, add %d, wanted %d\n", (int)i,
               (int)s.in, (int)s.out, (int)s.taps, (int)s.dilation, (int)s.first, (int)s.count, (int)s.lengths[0], (int)s.lengths[1],
               (int)s.lengths[2], (int)s.lengths[3], s.biased, s.add, what.wanted);
        crosscheck_run(&c, run_case, &what, 0);
    }
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_convolution), cmocka_unit_test(test_too_large), cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

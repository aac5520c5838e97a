#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/drawn.h"
#include "support/model.h"

/* What a tape keeps may not be written, and a part of a value may not be read for the whole: outputs and inputs of any strides over one piece
   of memory, element by element. Columns of one joined buffer, such as query, key and value side by side, are apart and are taken. */
enum { DRAWS = 5000, AREA = 400, STEPS = 8 };

typedef struct place {
    int64_t rows, heads, width, row_stride, head_stride, start, reach; /* reach: from a row's first element to behind its last */
    int value;                                                         /* 1: an output; 0: read, and needed again */
    attn_tensor *tensor;
    unsigned char taken[AREA];
} place;

typedef struct world {
    attn_context *ctx;
    attn_tape *tape;
    float area[AREA];
    place places[STEPS];
    attn_tensor *others[3 * STEPS];
    int count, others_count;
} world;

static attn_tensor *other(world *w, int64_t rows, int64_t heads, int64_t width)
{
    attn_tensor *t = NULL;
    OK(w->ctx, attn_tensor_create(w->ctx, ATTN_FLOAT32, 3, (const int64_t[]){rows, heads, width}, &t));
    return w->others[w->others_count++] = t;
}

static void draw_place(world *w, random_state *random, int64_t common, place *p)
{
    memset(p, 0, sizeof *p);
    p->rows = AMONG(random, 0, 1, 2, 3, 4), p->heads = random_integer(random, 1, 4), p->width = random_integer(random, 1, 4);
    p->head_stride = p->width + AMONG(random, 0, 0, 1, 2);
    p->reach = (p->heads - 1) * p->head_stride + p->width;
    p->row_stride = !drawn_once_in(random, 3) && p->reach <= common ? common : p->reach + AMONG(random, 0, 1, 4);
    if (drawn_once_in(random, 5)) { /* one head after another */
        p->row_stride = p->width + random_integer(random, 0, 2);
        p->head_stride = (p->rows > 0 ? p->rows : 1) * p->row_stride;
        p->reach = (p->heads - 1) * p->head_stride + p->width;
    }
    const int64_t span = (p->rows > 0 ? p->rows - 1 : 0) * p->row_stride + p->reach;
    p->start = random_integer(random, 0, AREA - span + 1);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t c = 0; c < p->width; c++) p->taken[p->start + r * p->row_stride + h * p->head_stride + c] = 1;
    OK(w->ctx, attn_tensor_wrap(w->ctx, ATTN_FLOAT32, 3, (const int64_t[]){p->rows, p->heads, p->width},
                                (const int64_t[]){p->row_stride, p->head_stride, 1}, w->area + p->start, &p->tensor));
}

static int meet(const place *a, const place *b)
{
    for (int i = 0; i < AREA; i++)
        if (a->taken[i] && b->taken[i]) return 1;
    return 0;
}

static int same(const place *a, const place *b)
{
    return a->start == b->start && a->rows == b->rows && a->heads == b->heads && a->width == b->width && a->row_stride == b->row_stride &&
           a->head_stride == b->head_stride;
}

/* one behind the other, or columns of one buffer: what must be seen to be apart */
static int plainly_apart(const place *a, const place *b)
{
    if (a->rows == 0 || b->rows == 0) return 1;
    const int64_t a_end = a->start + (a->rows - 1) * a->row_stride + a->reach, b_end = b->start + (b->rows - 1) * b->row_stride + b->reach;
    if (a_end <= b->start || b_end <= a->start) return 1;
    if (a->rows == 1 || b->rows == 1 || a->row_stride != b->row_stride || a->reach > a->row_stride || b->reach > b->row_stride) return 0;
    unsigned char column[AREA] = {0};
    for (int64_t c = 0; c < a->reach; c++) column[(a->start + c) % a->row_stride] = 1;
    for (int64_t c = 0; c < b->reach; c++)
        if (column[(b->start + c) % a->row_stride]) return 0;
    return 1;
}

/* query p, or output p, of an attention with a key that has a gradient */
static attn_status attend(world *w, const place *p, int output)
{
    attn_tensor *key = other(w, 2, p->heads, p->width), *there = other(w, p->rows, p->heads, p->width),
                *dkey = other(w, 2, p->heads, p->width);
    OK(w->ctx, attn_tape_watch(w->ctx, w->tape, key, dkey));
    return attn_dot_product_attention(w->ctx, w->tape, output ? there : p->tensor, key, key, NULL, NULL, NULL, NULL,
                                      output ? p->tensor : there);
}

static void step(world *w, random_state *random, int64_t common)
{
    place *p = &w->places[w->count];
    const int output = !drawn_once_in(random, 3);
    draw_place(w, random, common, p);
    if (w->count > 0 && drawn_once_in(random, 6)) { /* once more what is there */
        attn_tensor_free(p->tensor);
        *p = w->places[random_integer(random, 0, w->count)];
        OK(w->ctx, attn_tensor_wrap(w->ctx, ATTN_FLOAT32, 3, (const int64_t[]){p->rows, p->heads, p->width},
                                    (const int64_t[]){p->row_stride, p->head_stride, 1}, w->area + p->start, &p->tensor));
    }
    int must_fail = 0, must_pass = 1, whole = 0;
    for (int i = 0; i < w->count; i++) {
        const place *q = &w->places[i];
        const int counts = output || q->value;
        whole |= q->value && same(p, q);
        must_fail |= counts && meet(p, q);
        must_pass &= !counts || plainly_apart(p, q);
    }
    if (!output && whole) must_fail = 0, must_pass = 1;
    p->value = output;
    const attn_status status = attend(w, p, output);
    printf("   %s at %d: [%d, %d, %d] by %d and %d: %s\n", output ? "output" : "input", (int)p->start, (int)p->rows, (int)p->heads,
           (int)p->width, (int)p->row_stride, (int)p->head_stride, attn_status_name(status));
    if (must_fail) assert_int_equal(status, ATTN_ERROR_BAD_STATE);
    if (must_pass) assert_int_equal(status, ATTN_OK);
    if (status == ATTN_OK)
        w->count++;
    else
        attn_tensor_free(p->tensor);
}

static void test_drawn(void **state)
{
    (void)state;
    int taken = 0;
    for (int64_t i = drawn_first(); i < drawn_end(DRAWS); i++) {
        random_state random = {(uint64_t)i};
        static world w;
        memset(&w, 0, sizeof w);
        w.ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
        OK(w.ctx, attn_tape_create(w.ctx, &w.tape));
        OK(w.ctx, attn_tape_begin(w.ctx, w.tape, NULL));
        const int64_t common = random_integer(&random, 3, 20);
        printf("draw %d: rows by %d\n", (int)i, (int)common);
        for (int k = 0; k < STEPS; k++) step(&w, &random, common);
        taken += w.count;
        while (w.count > 0) attn_tensor_free(w.places[--w.count].tensor);
        while (w.others_count > 0) attn_tensor_free(w.others[--w.others_count]);
        attn_tape_free(w.tape);
        attn_context_free(w.ctx);
    }
    assert_true(taken > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

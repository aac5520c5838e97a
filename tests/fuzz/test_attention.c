/* Attention on any layouts and masks, forward and backward: refused, with nothing written, or equal to the reference.
   Input: sizes, segments, a mask in postfix, options; the numbers follow from a seed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "support/compare.h"
#include "support/fuzz.h"
#include "support/random.h"

enum { QUERY, KEY, VALUE, OUTPUT, D_QUERY, D_KEY, D_VALUE, TENSORS };
enum { CAP = 32 << 20, MOST_SEGMENTS = 4, MOST_MASKS = 4, MARK = 12345 };

typedef struct problem {
    int64_t heads, key_heads, size, value_size, rows, key_rows, count, key_count;
    attn_segment query[MOST_SEGMENTS], key[MOST_SEGMENTS];
    int layouts, tape, infinite;
    attn_dot_product_options options;
    attn_tape_options round;
    uint64_t seed;
} problem;

/* rows are few, or enough for several tiles */
static int64_t read_rows(fuzz_input *in)
{
    uint8_t kind = fuzz_byte(in);
    return kind < 200 ? kind % 12 : kind % 150;
}

/* segments one after another, with some of them moved, cut or given any numbers */
static int64_t read_segments(fuzz_input *in, int64_t rows, attn_segment *to)
{
    int64_t count = fuzz_between(in, 0, MOST_SEGMENTS), at = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t length = i + 1 < count ? fuzz_byte(in) % (rows - at + 1) : rows - at;
        to[i] = (attn_segment){at, length, fuzz_byte(in) % 8, i};
        at += length;
        uint8_t kind = fuzz_byte(in);
        if (kind > 220) to[i].start = fuzz_integer(in);
        if (kind > 235) to[i].length = fuzz_integer(in);
        if (kind > 245) to[i].first_position = fuzz_integer(in);
        if (kind % 16 == 1 && i > 0) to[i] = to[i - 1]; /* shared, as beams share a memory */
        if (kind % 16 == 2 && to[i].length > 0) to[i].length--;
    }
    return count;
}

static problem read_problem(fuzz_input *in)
{
    problem p;
    memset(&p, 0, sizeof p);
    p.key_heads = fuzz_between(in, 1, 2);
    p.heads = p.key_heads * fuzz_between(in, 1, 2) + (fuzz_byte(in) > 250);
    p.size = fuzz_between(in, 1, 9);
    p.value_size = fuzz_between(in, 1, 9);
    p.rows = read_rows(in);
    p.key_rows = read_rows(in);
    p.layouts = fuzz_byte(in) % 8;
    p.count = read_segments(in, p.rows, p.query);
    p.key_count = read_segments(in, p.key_rows, p.key);
    p.tape = fuzz_byte(in) % 3;
    p.infinite = fuzz_byte(in) > 230;
    p.seed = fuzz_byte(in);
    fuzz_require(attn_dot_product_options_init(&p.options, sizeof p.options) == ATTN_OK, "options");
    fuzz_require(attn_tape_options_init(&p.round, sizeof p.round) == ATTN_OK, "options");
    double rate = fuzz_byte(in) % 2 ? fuzz_byte(in) / 200.0 : 0;
    if (!p.infinite) p.options.dropout = rate; /* whether it drops a NaN or makes one of 0 is nobody's promise */
    if (fuzz_byte(in) % 4 == 1) p.options.soft_cap = fuzz_byte(in) / 16.0;
    p.round.training = p.tape == 2;
    return p;
}

static attn_mask *boolean_mask(attn_context *ctx, fuzz_input *in, const problem *p)
{
    const int64_t shape[4] = {fuzz_between(in, 1, 2), fuzz_byte(in) % 2 ? p->heads : 1, p->rows + fuzz_byte(in) % 2, p->key_rows};
    attn_tensor *allowed = NULL;
    attn_mask *made = NULL;
    random_state random = {fuzz_byte(in)};
    if (attn_tensor_create(ctx, ATTN_UINT8, 4, shape, &allowed) != ATTN_OK) return NULL;
    uint8_t *at = attn_tensor_data(allowed);
    uint64_t density = fuzz_byte(in);
    for (int64_t i = 0; i < shape[0] * shape[1] * shape[2] * shape[3]; i++) at[i] = random_bits(&random) % 256 < density;
    attn_status status = attn_mask_boolean(ctx, allowed, &made);
    fuzz_status(ctx, status, made != NULL);
    attn_tensor_free(allowed);
    return made;
}

/* a stack of masks: rules are put on it, unions and intersections take two off it */
static attn_mask *read_mask(attn_context *ctx, fuzz_input *in, const problem *p)
{
    attn_mask *stack[MOST_MASKS + 1] = {NULL};
    int64_t height = 0;
    for (int64_t left = fuzz_between(in, 0, 7); left > 0; left--) {
        attn_mask *made = NULL;
        uint8_t kind = fuzz_byte(in) % 5;
        int32_t alignment = (int32_t)(fuzz_byte(in) % 64 == 9 ? 3 : fuzz_byte(in) % 3);
        if (kind == 0) attn_mask_causal(ctx, alignment, &made);
        if (kind == 1) attn_mask_window(ctx, alignment, fuzz_between(in, -2, 9), fuzz_between(in, -2, 9), fuzz_between(in, 0, 3), &made);
        if (kind == 2) made = boolean_mask(ctx, in, p);
        if (kind >= 3 && height >= 2) {
            attn_mask *b = stack[--height], *a = stack[--height];
            attn_status status = kind == 3 ? attn_mask_union(ctx, a, b, &made) : attn_mask_intersection(ctx, a, b, &made);
            fuzz_status(ctx, status, made != NULL);
            attn_mask_free(a);
            attn_mask_free(b);
        }
        if (made != NULL && height < MOST_MASKS)
            stack[height++] = made;
        else
            attn_mask_free(made);
    }
    while (height > 1) attn_mask_free(stack[--height]);
    return stack[0];
}

/* one backend at work on the problem */
typedef struct attempt {
    fuzz_context f;
    attn_tensor *at[TENSORS];
    attn_status status, backward;
} attempt;

static void make_tensors(attempt *a, const problem *p, int32_t dtype)
{
    random_state random = {p->seed};
    for (int which = QUERY; which < TENSORS; which++) {
        int is_query = which == QUERY || which == OUTPUT || which == D_QUERY,
            is_value = which == VALUE || which == OUTPUT || which == D_VALUE;
        const int64_t shape[3] = {is_query ? p->rows : p->key_rows, is_query ? p->heads : p->key_heads, is_value ? p->value_size : p->size};
        fuzz_require(attn_tensor_create(a->f.ctx, dtype, 3, shape, &a->at[which]) == ATTN_OK, "a tensor");
        void *data = attn_tensor_data(a->at[which]);
        int64_t broken = p->infinite && which != QUERY ? random_integer(&random, 0, 1 + shape[0] * shape[1] * shape[2]) : -1;
        for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; i++) {
            double x = which <= VALUE ? random_number(&random, -2, 2) : MARK;
            if (i == broken && which <= VALUE) x = (double)NAN;
            if (dtype == ATTN_FLOAT32)
                ((float *)data)[i] = (float)x;
            else
                ((double *)data)[i] = x;
        }
    }
}

static attn_layout *make_layout(attn_context *ctx, int wanted, int64_t count, const attn_segment *segments)
{
    attn_layout *made = NULL;
    if (!wanted) return NULL;
    fuzz_require(attn_layout_create(ctx, MOST_SEGMENTS, &made) == ATTN_OK, "a layout");
    attn_status status = attn_layout_set(ctx, made, count, segments);
    fuzz_status(ctx, status, status == ATTN_OK);
    if (status != ATTN_OK) fuzz_require(attn_layout_count(made) == 0, "a refused layout is as it was");
    return made;
}

static void try(attempt *a, const problem *p, fuzz_input in, int32_t backend, int32_t dtype)
{
    attn_tape *tape = NULL;
    fuzz_open(&a->f, backend, CAP);
    attn_context *ctx = a->f.ctx;
    make_tensors(a, p, dtype);
    attn_layout *query = make_layout(ctx, p->layouts & 3, p->count, p->query),
                *key = make_layout(ctx, p->layouts & 3, p->key_count, p->key);
    attn_mask *mask = read_mask(ctx, &in, p);
    a->backward = ATTN_OK;
    if (p->tape > 0) {
        fuzz_require(attn_tape_create(ctx, &tape) == ATTN_OK && attn_tape_begin(ctx, tape, &p->round) == ATTN_OK, "a tape");
        for (int which = QUERY; which <= VALUE; which++)
            fuzz_require(attn_tape_watch(ctx, tape, a->at[which], a->at[which + D_QUERY - QUERY]) == ATTN_OK, "a watched input");
    }
    a->status = attn_dot_product_attention(ctx, tape, a->at[QUERY], a->at[KEY], a->at[VALUE], query, key, mask, &p->options, a->at[OUTPUT]);
    fuzz_status(ctx, a->status, a->status == ATTN_OK);
    attn_layout_free(query);
    attn_layout_free(key);
    attn_mask_free(mask);
    if (p->tape > 0 && a->status == ATTN_OK) {
        a->backward = attn_tape_backward(ctx, tape, 1, (const attn_tensor *const[]){a->at[OUTPUT]}, NULL, 0, NULL);
        fuzz_status(ctx, a->backward, a->backward == ATTN_OK);
    }
    attn_tape_free(tape);
}

static attn__view rows_of(attn_tensor *t)
{
    int64_t heads = attn_tensor_extent(t, 1), width = attn_tensor_extent(t, 2);
    return (attn__view){.data = attn_tensor_data(t),
                        .dtype = attn_tensor_dtype(t),
                        .rows = attn_tensor_extent(t, 0),
                        .heads = heads,
                        .width = width,
                        .row_stride = heads * width,
                        .head_stride = width};
}

static int finite_row(const attempt *a, int64_t row)
{
    attn__view v = rows_of(a->at[OUTPUT]);
    for (int64_t h = 0; h < v.heads; h++)
        for (int64_t c = 0; c < v.width; c++)
            if (!isfinite(element_get(&v, row, h, c))) return 0;
    return 1;
}

/* A query that sees a key or value of NaN has no gradient worth a name, nor have the keys it sees: then the gradients by the other queries
   alone are looked at. */
static void expect_same(const attempt *got, const attempt *want, int which, double terms)
{
    attn__view a = rows_of(got->at[which]), b = rows_of(want->at[which]);
    double bound = compare_bound(which == OUTPUT ? "attention" : "attention_back", terms);
    int all = 1;
    for (int64_t r = 0; which != OUTPUT && r < rows_of(want->at[OUTPUT]).rows; r++) all = all && finite_row(want, r);
    if (all) fuzz_require(compare_views(&a, &b, 1) <= bound, "equal to the reference");
    for (int64_t r = 0; !all && which == D_QUERY && r < a.rows; r++) {
        attn__view one = attn__view_rows(a, r, 1), other = attn__view_rows(b, r, 1);
        if (finite_row(want, r)) fuzz_require(compare_views(&one, &other, 1) <= bound, "equal to the reference");
    }
}

static void expect_untouched(const attempt *a)
{
    for (int which = OUTPUT; which < TENSORS; which++) {
        attn__view v = rows_of(a->at[which]);
        for (int64_t r = 0; r < v.rows; r++)
            for (int64_t h = 0; h < v.heads; h++)
                for (int64_t c = 0; c < v.width; c++) fuzz_require(element_get(&v, r, h, c) == MARK, "a refused call writes nothing");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    const problem p = read_problem(&in);
    attempt blas, reference;
    try(&blas, &p, in, ATTN_BACKEND_BLAS, ATTN_FLOAT32);
    try(&reference, &p, in, ATTN_BACKEND_REFERENCE, ATTN_FLOAT64);
    fuzz_require(blas.status == reference.status && blas.backward == reference.backward, "both backends are of one mind");
    if (blas.status != ATTN_OK) expect_untouched(&blas);
    if (blas.status == ATTN_OK) {
        double terms = (double)(p.size + p.key_rows);
        expect_same(&blas, &reference, OUTPUT, terms);
        for (int which = D_QUERY; which < TENSORS && p.tape > 0 && blas.backward == ATTN_OK; which++)
            expect_same(&blas, &reference, which, which == D_QUERY ? terms : terms + (double)(p.rows * p.heads));
    }
    for (int which = QUERY; which < TENSORS; which++) {
        attn_tensor_free(blas.at[which]);
        attn_tensor_free(reference.at[which]);
    }
    fuzz_close(&blas.f);
    fuzz_close(&reference.f);
    return 0;
}

#ifndef ATTN_FUZZER
int main(int argc, char **argv)
{
    return fuzz_replay(argc, argv, "attention");
}
#endif

#include <attn/attn.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/blas/gemm.h"
#include "support/model.h"

/* BLAS counts in 32 bits. A product whose extents or strides do not fit is refused before BLAS hears of it, by every operation with the same
   words; the reference computes it. */
enum { ROWS = 3, SIZE = 4 };
static const int64_t FAR = INT64_C(1) << 31;

static void test_products(void **state)
{
    float a[4] = {1, 2, 3, 4}, c[4] = {1, 1, 1, 1};
    const int64_t most = (int64_t)INT_MAX + 1;
    (void)state;
    /* no sizes below 0, none above what BLAS counts */
    for (int which = 0; which < 6; which++) {
        int64_t m = which == 0   ? -1
                    : which == 3 ? most
                                 : 1,
                n = which == 1   ? -1
                    : which == 4 ? most
                                 : 1,
                k = which == 2   ? -1
                    : which == 5 ? most
                                 : 1;
        assert_int_equal(attn__sgemm(0, 0, m, n, k, 1, a, 1, a, 1, 0, c, 1), 1);
    }
    assert_int_equal(attn__sgemm(0, 0, 2, 2, 2, 1, a, 1, a, 2, 0, c, 2), 1); /* rows that overlap */
    assert_int_equal(attn__sgemm(0, 0, 2, 2, 2, 1, a, 2, a, 1, 0, c, 2), 1);
    assert_int_equal(attn__sgemm(0, 0, 2, 2, 2, 1, a, 2, a, 2, 0, c, 1), 1);
    assert_int_equal(attn__sgemm(0, 0, 2, 2, 2, 1, a, most, a, 2, 0, c, 2), 1);
    /* nothing to do, and nothing but beta to do */
    assert_int_equal(attn__sgemm(0, 0, 0, 2, 2, 1, NULL, 2, a, 2, 0, NULL, 2), 0);
    assert_int_equal(attn__sgemm(0, 0, 2, 0, 2, 1, a, 2, NULL, 2, 0, NULL, 2), 0);
    for (int i = 0; i < 4; i++) assert_true(c[i] == 1);
    assert_int_equal(attn__sgemm(0, 0, 2, 2, 0, 1, NULL, 2, NULL, 2, 3, c, 2), 0);
    for (int i = 0; i < 4; i++) assert_true(c[i] == 3);
    assert_int_equal(attn__sgemm(0, 0, 2, 2, 2, 1, a, 2, a, 2, 0, c, 2), 0);
    assert_true(c[0] == 7 && c[1] == 10 && c[2] == 15 && c[3] == 22);
}

/* ---- rows that lie 2^31 floats apart, in memory of which only the pages that are touched exist */
static attn_context *ctx;
static attn_tape *tape;
static void *room;
static const size_t room_bytes = ((size_t)ROWS << 33) + 4096;

static int open_room(void **state)
{
    (void)state;
    room = mmap(NULL, room_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return 0;
}

static int close_room(void **state)
{
    (void)state;
    if (room != MAP_FAILED) munmap(room, room_bytes);
    return 0;
}

/* [ROWS, SIZE] or, with heads, [ROWS, 1, SIZE] */
static attn_tensor *tensor(int32_t rank, int apart)
{
    const int64_t shape[2][3] = {{ROWS, SIZE}, {ROWS, 1, SIZE}}, strides[2][3] = {{FAR, 1}, {FAR, SIZE, 1}};
    attn_tensor *made = NULL;
    if (apart)
        OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, rank, shape[rank - 2], strides[rank - 2], room, &made));
    else
        OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, rank, shape[rank - 2], &made));
    for (int64_t i = 0; i < (int64_t)ROWS * SIZE; i++) {
        int64_t at = apart ? i / SIZE * FAR + i % SIZE : i;
        ((float *)attn_tensor_data(made))[at] = (float)(i % 5) / 4;
    }
    return made;
}

enum {
    LINEAR,
    LINEAR_WEIGHT,
    ATTENTION,
    KEYS,
    VALUES,
    RELATIVE,
    RELATIVE_VALUES,
    ELU,
    ELU_VALUES,
    PERFORMER,
    DIRECTIONS,
    LINFORMER,
    KINDS
};

static attn_status biased(attn_tensor *const *t, attn_tensor *table, int values, attn_tensor *y)
{
    attn_attention_bias bias;
    const attn_attention_bias *const list[1] = {&bias};
    assert_int_equal(attn_attention_bias_init(&bias, sizeof bias), ATTN_OK);
    bias.kind = ATTN_BIAS_RELATIVE;
    bias.reach = 1;
    bias.table = values ? NULL : table;
    bias.values = values ? table : NULL;
    return attn_biased_attention(ctx, tape, t[0], t[1], t[2], NULL, NULL, NULL, NULL, 1, list, y);
}

static attn_status linear_attention(attn_tensor *const *t, int32_t map, const attn_tensor *directions, attn_tensor *y)
{
    attn_linear_attention_options o;
    assert_int_equal(attn_linear_attention_options_init(&o, sizeof o), ATTN_OK);
    o.map = map;
    o.features = ROWS;
    o.directions = directions;
    return attn_linear_attention(ctx, tape, t[0], t[1], t[2], NULL, NULL, &o, y);
}

static attn_status operate(int kind, attn_tensor *apart, attn_tensor *apart_heads, attn_tensor *near, attn_tensor *const *heads,
                           attn_tensor *y, attn_tensor *heads_y)
{
    attn_tensor *t[3] = {heads[0], heads[1], heads[2]};
    switch (kind) {
    case LINEAR: return attn_linear(ctx, tape, apart, near, NULL, y);
    case LINEAR_WEIGHT: return attn_linear(ctx, tape, near, apart, NULL, y);
    case ATTENTION:
    case ELU:
    case PERFORMER: t[0] = apart_heads; break;
    case KEYS: t[1] = apart_heads; break;
    case VALUES:
    case ELU_VALUES: t[2] = apart_heads; break;
    default: break;
    }
    switch (kind) {
    case RELATIVE:
    case RELATIVE_VALUES: return biased(t, apart, kind == RELATIVE_VALUES, heads_y);
    case ELU:
    case ELU_VALUES: return linear_attention(t, ATTN_FEATURES_IDENTITY, NULL, heads_y);
    case PERFORMER: return linear_attention(t, ATTN_FEATURES_POSITIVE, NULL, heads_y);
    case DIRECTIONS: return linear_attention(t, ATTN_FEATURES_POSITIVE, apart, heads_y);
    case LINFORMER: return attn_linformer_project(ctx, tape, apart_heads, near, NULL, heads_y);
    default: return attn_dot_product_attention(ctx, tape, t[0], t[1], t[2], NULL, NULL, NULL, NULL, heads_y);
    }
}

static attn_tensor *like(const attn_tensor *x)
{
    int64_t shape[3];
    attn_tensor *made = NULL;
    for (int32_t i = 0; i < attn_tensor_rank(x); i++) shape[i] = attn_tensor_extent(x, i);
    OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, attn_tensor_rank(x), shape, &made));
    return made;
}

/* a forward of the reference goes backwards on BLAS: it is refused there */
static void backward_elsewhere(int kind, attn_tensor *y)
{
    const attn_tensor *const outputs[1] = {y};
    OK(ctx, attn_context_set_backend(ctx, ATTN_BACKEND_BLAS));
    attn_status status = attn_tape_backward(ctx, tape, 1, outputs, NULL, 0, NULL);
    int fits = kind == ELU_VALUES || kind == PERFORMER; /* values are copied, and features lie together */
    if (status != (fits ? ATTN_OK : ATTN_ERROR_TOO_LARGE)) fail_msg("backward of kind %d: %s", kind, attn_context_last_error(ctx));
    OK(ctx, attn_context_set_backend(ctx, ATTN_BACKEND_REFERENCE));
}

static void test_far_rows(void **state)
{
    (void)state;
    if (room == MAP_FAILED) skip(); /* a system that promises no more memory than it has */
    for (int backend = 0; backend < 2; backend++) {
        ctx = model_context(backend ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, 1, 0);
        OK(ctx, attn_tape_create(ctx, &tape));
        for (int kind = 0; kind < KINDS; kind++) {
            attn_tensor *apart = tensor(2, 1), *apart_heads = tensor(3, 1), *near = NULL, *y = NULL, *heads_y = tensor(3, 0);
            attn_tensor *heads[3] = {tensor(3, 0), tensor(3, 0), tensor(3, 0)};
            const int64_t square[2] = {ROWS, kind == LINFORMER ? ROWS : SIZE}, out[2] = {ROWS, ROWS};
            OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, square, &near));
            OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, out, &y));
            int flat = kind == LINEAR || kind == LINEAR_WEIGHT;
            attn_tensor *watched[2] = {flat || kind == LINFORMER ? near : heads[kind == KEYS ? 0 : 1], NULL};
            watched[1] = like(watched[0]);
            OK(ctx, attn_tape_begin(ctx, tape, NULL));
            OK(ctx, attn_tape_watch(ctx, tape, watched[0], watched[1]));
            attn_status status = operate(kind, apart, apart_heads, near, heads, y, heads_y);
            /* few rows are multiplied one by one: theirs is no stride; values of linear attention are copied */
            int fits = backend || kind == LINEAR || kind == ELU_VALUES;
            if (status != (fits ? ATTN_OK : ATTN_ERROR_TOO_LARGE)) fail_msg("kind %d: %s", kind, attn_context_last_error(ctx));
            if (!fits)
                assert_string_equal(attn_context_last_error(ctx), "a matrix product: got extents or strides that do not fit BLAS, "
                                                                  "expected at most 2147483647");
            for (int place = 0; kind == ELU && place < 3; place++) { /* a step too; its values are copied */
                const int64_t state_shape[4] = {1, 1, SIZE + 1, SIZE + 1};
                attn_tensor *sums = NULL;
                OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 4, state_shape, &sums));
                attn_tensor *in[3] = {heads[0], heads[1], heads[2]};
                in[place] = apart_heads;
                attn_linear_attention_options o;
                assert_int_equal(attn_linear_attention_options_init(&o, sizeof o), ATTN_OK);
                o.map = ATTN_FEATURES_IDENTITY;
                status = attn_linear_attention_step(ctx, in[0], in[1], in[2], NULL, &o, sums, heads_y);
                assert_int_equal(status, backend || place == 2 ? ATTN_OK : ATTN_ERROR_TOO_LARGE);
                attn_tensor_free(sums);
            }
            if (kind == KEYS) {
                const int64_t weights_shape[3] = {1, ROWS, ROWS};
                attn_tensor *weights = NULL;
                OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 3, weights_shape, &weights));
                status = attn_attention_weights(ctx, heads[0], apart_heads, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, weights);
                assert_int_equal(status, backend ? ATTN_OK : ATTN_ERROR_TOO_LARGE);
                attn_tensor_free(weights);
            }
            if (backend) backward_elsewhere(kind, flat ? y : heads_y);
            attn_tensor *const all[] = {apart, apart_heads, near, y, heads_y, heads[0], heads[1], heads[2], watched[1]};
            for (int i = 0; i < 9; i++) attn_tensor_free(all[i]);
        }
        attn_tape_free(tape);
        attn_context_free(ctx);
    }
}

/* the same of what only the backward reads: the gradient that arrives */
static void test_far_gradients(void **state)
{
    (void)state;
    if (room == MAP_FAILED) skip();
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    OK(ctx, attn_tape_create(ctx, &tape));
    for (int kind = 0; kind < 2; kind++) {
        attn_tensor *x = tensor(2 + kind, 0), *y = tensor(2 + kind, 0), *dx = tensor(2 + kind, 0), *dy = tensor(2 + kind, 1), *w = NULL;
        const int64_t square[2] = {SIZE, SIZE};
        OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, square, &w));
        for (int i = 0; i < SIZE; i++) model_set(w, i * (SIZE + 1), 2);
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        if (kind)
            OK(ctx, attn_dot_product_attention(ctx, tape, x, x, x, NULL, NULL, NULL, NULL, y));
        else
            OK(ctx, attn_linear(ctx, tape, x, w, NULL, y));
        const attn_tensor *const outputs[1] = {y}, *const arriving[1] = {dy};
        OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, 0, NULL)); /* it is copied: rows that lie together are near */
        for (int64_t i = 0; kind == 0 && i < model_elements(dx); i++) assert_true(model_get(dx, i) == 2 * (double)(i % 5) / 4);
        attn_tensor *const all[] = {x, y, dx, dy, w};
        for (int i = 0; i < 5; i++) attn_tensor_free(all[i]);
    }
    attn_tape_free(tape);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_far_rows),
                                       cmocka_unit_test(test_far_gradients)};
    return cmocka_run_group_tests(tests, open_room, close_room);
}

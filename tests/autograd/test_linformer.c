#include <attn/linear_attention.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "support/gradient.h"

/* The Linformer: gradients, equality with exact attention, padding, refusals. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

static const attn_segment queries[] = {{0, 3, 0, 0}, {3, 0, 0, 1}, {3, 2, 0, 2}}, keys[] = {{3, 5, 0, 0}, {8, 0, 0, 1}, {0, 2, 0, 2}};

static attn_layout *layout_of(attn_context *ctx, int64_t count, const attn_segment *segments)
{
    attn_layout *layout;
    assert_int_equal(attn_layout_create(ctx, count, &layout), ATTN_OK);
    assert_int_equal(attn_layout_set(ctx, layout, count, segments), ATTN_OK);
    return layout;
}

static attn_status project(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_layout *layout = *(const int *)what ? layout_of(g->ctx, 3, keys) : NULL;
    attn_status status = attn_linformer_project(g->ctx, tape, g->input[0], g->input[1], layout, g->output);
    attn_layout_free(layout);
    return status;
}

/* what: 1 one projection for both, dropout; 2 one for each */
static attn_status attend(gradient_check *g, attn_tape *tape, const void *what)
{
    int own = *(const int *)what == 2;
    attn_dot_product_options o;
    attn_layout *query_layout = layout_of(g->ctx, 3, queries), *key_layout = layout_of(g->ctx, 3, keys);
    assert_int_equal(attn_dot_product_options_init(&o, sizeof o), ATTN_OK);
    o.dropout = own ? 0 : 0.3;
    attn_status status = attn_linformer_attention(g->ctx, tape, g->input[0], g->input[1], g->input[2], g->input[3],
                                                  own ? g->input[4] : NULL, query_layout, key_layout, NULL, &o, g->output);
    attn_layout_free(query_layout);
    attn_layout_free(key_layout);
    return status;
}

/* keys that are the values too, with rows in no segment: what comes back by both adds up */
static attn_status attend_shared(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_layout *query_layout = layout_of(g->ctx, 3, queries), *key_layout = layout_of(g->ctx, 3, keys);
    (void)what;
    attn_status status = attn_linformer_attention(g->ctx, tape, g->input[0], g->input[1], g->input[1], g->input[2], NULL, query_layout,
                                                  key_layout, NULL, NULL, g->output);
    attn_layout_free(query_layout);
    attn_layout_free(key_layout);
    return status;
}

/* x is the projection too */
static attn_status project_itself(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_tensor *projection = NULL;
    (void)what;
    attn_status status = attn_tensor_wrap(g->ctx, ATTN_FLOAT64, 2, SHAPE(6, 6), NULL, attn_tensor_data(g->input[0]), &projection);
    if (status == ATTN_OK) status = attn_linformer_project(g->ctx, tape, g->input[0], projection, NULL, g->output);
    attn_tensor_free(projection);
    return status;
}

static void test_gradients(void **state)
{
    gradient_check shared, itself;
    (void)state;
    gradient_open(&itself, 98);
    gradient_input(&itself, 3, SHAPE(6, 2, 3), -1, 1);
    gradient_output(&itself, 3, SHAPE(6, 2, 3));
    gradient_expect(&itself, project_itself, NULL);
    gradient_close(&itself);
    gradient_open(&shared, 99);
    gradient_input(&shared, 3, SHAPE(5, 4, 3), -1, 1);
    gradient_input(&shared, 3, SHAPE(9, 2, 3), -1, 1);
    gradient_input(&shared, 2, SHAPE(3, 6), -1, 1);
    gradient_output(&shared, 3, SHAPE(5, 4, 3));
    gradient_expect(&shared, attend_shared, NULL);
    gradient_close(&shared);
    for (int packed = 0; packed < 2; packed++) {
        gradient_check g;
        gradient_open(&g, 90 + (uint64_t)packed);
        gradient_input(&g, 3, SHAPE(9, 2, 3), -1, 1);
        gradient_input(&g, 2, SHAPE(4, 9), -1, 1);
        gradient_output(&g, 3, SHAPE(packed ? 12 : 4, 2, 3));
        gradient_expect(&g, project, &packed);
        gradient_close(&g);
    }
    for (int projections = 1; projections < 3; projections++) {
        gradient_check g;
        gradient_open(&g, 95 + (uint64_t)projections);
        g.options.training = 1;
        gradient_input(&g, 3, SHAPE(5, 4, 3), -1, 1);
        gradient_input(&g, 3, SHAPE(9, 2, 3), -1, 1);
        gradient_input(&g, 3, SHAPE(9, 2, 2), -1, 1);
        for (int i = 0; i < projections; i++) gradient_input(&g, 2, SHAPE(3, 6), -1, 1);
        gradient_output(&g, 3, SHAPE(5, 4, 2));
        gradient_expect(&g, attend, &projections);
        gradient_close(&g);
    }
}

static attn_tensor *tensor_of(attn_context *ctx, int64_t rows, int64_t heads, int64_t size, random_state *random)
{
    attn_tensor *out;
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 3, SHAPE(rows, heads, size), &out), ATTN_OK);
    if (random != NULL) random_floats(random, attn_tensor_data(out), rows * heads * size, -1, 1);
    return out;
}

/* [k, longest]: the identity, or random */
static attn_tensor *projection_of(attn_context *ctx, int64_t k, int64_t longest, random_state *random)
{
    attn_tensor *out;
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 2, SHAPE(k, longest), &out), ATTN_OK);
    float *at = attn_tensor_data(out);
    for (int64_t e = 0; e < k * longest; e++) at[e] = e / longest == e % longest;
    if (random != NULL) random_floats(random, at, k * longest, -1, 1);
    return out;
}

/* full-rank identity: exact attention, on both backends */
static void test_identity(void **state)
{
    enum { ROWS = 70, HEADS = 4, KEY_HEADS = 2, SIZE = 8 };
    (void)state;
    for (int32_t backend = 0; backend < 2; backend++) {
        attn_context_options options;
        attn_context *ctx;
        random_state random = {12};
        assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
        options.backend = backend;
        assert_int_equal(attn_context_create(&options, &ctx), ATTN_OK);
        attn_tensor *q = tensor_of(ctx, 2 * ROWS, HEADS, SIZE, &random), *k = tensor_of(ctx, 2 * ROWS, KEY_HEADS, SIZE, &random);
        attn_tensor *v = tensor_of(ctx, 2 * ROWS, KEY_HEADS, SIZE, &random), *y = tensor_of(ctx, 2 * ROWS, HEADS, SIZE, NULL);
        attn_tensor *exact = tensor_of(ctx, 2 * ROWS, HEADS, SIZE, NULL), *e = projection_of(ctx, ROWS, ROWS, NULL);
        attn_layout *layout = layout_of(ctx, 2, (const attn_segment[]){{0, ROWS, 0, 0}, {ROWS, ROWS, 0, 1}});
        assert_int_equal(attn_linformer_attention(ctx, NULL, q, k, v, e, NULL, layout, layout, NULL, NULL, y), ATTN_OK);
        assert_int_equal(attn_dot_product_attention(ctx, NULL, q, k, v, layout, layout, NULL, NULL, exact), ATTN_OK);
        const float *got = attn_tensor_data(y), *want = attn_tensor_data(exact);
        for (int64_t i = 0; i < 2 * ROWS * HEADS * SIZE; i++) assert_true(fabs((double)got[i] - (double)want[i]) < 1e-6);
        attn_layout_free(layout);
        attn_tensor *all[] = {q, k, v, y, exact, e};
        for (int t = 0; t < 6; t++) attn_tensor_free(all[t]);
        attn_context_free(ctx);
    }
}

/* by its parts: two projections, then exact attention with the options given; all weights dropped leave zeros */
static void test_parts(void **state)
{
    enum { ROWS = 6, KEYS = 9, K = 4, HEADS = 2, SIZE = 5 };
    attn_context *ctx;
    attn_tape *tape;
    random_state random = {16};
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn_tape_create(ctx, &tape), ATTN_OK);
    attn_tensor *q = tensor_of(ctx, ROWS, HEADS, SIZE, &random), *k = tensor_of(ctx, KEYS, HEADS, SIZE, &random);
    attn_tensor *v = tensor_of(ctx, KEYS, HEADS, SIZE, &random), *y = tensor_of(ctx, ROWS, HEADS, SIZE, NULL);
    attn_tensor *e = projection_of(ctx, K, KEYS, &random), *f = projection_of(ctx, K, KEYS, &random);
    attn_tensor *pk = tensor_of(ctx, K, HEADS, SIZE, NULL), *pv = tensor_of(ctx, K, HEADS, SIZE, NULL);
    attn_tensor *want = tensor_of(ctx, ROWS, HEADS, SIZE, NULL);
    attn_dot_product_options o;
    attn_tape_options training;
    assert_int_equal(attn_dot_product_options_init(&o, sizeof o), ATTN_OK);
    o.derive_scale = 0;
    o.scale = 0.6;
    o.soft_cap = 1.1;
    assert_int_equal(attn_linformer_project(ctx, NULL, k, e, NULL, pk), ATTN_OK);
    assert_int_equal(attn_linformer_project(ctx, NULL, v, f, NULL, pv), ATTN_OK);
    assert_int_equal(attn_dot_product_attention(ctx, NULL, q, pk, pv, NULL, NULL, NULL, &o, want), ATTN_OK);
    assert_int_equal(attn_linformer_attention(ctx, NULL, q, k, v, e, f, NULL, NULL, NULL, &o, y), ATTN_OK);
    assert_memory_equal(attn_tensor_data(y), attn_tensor_data(want), ROWS * HEADS * SIZE * sizeof(float));
    o.dropout = 1;
    assert_int_equal(attn_tape_options_init(&training, sizeof training), ATTN_OK);
    training.training = 1;
    assert_int_equal(attn_tape_begin(ctx, tape, &training), ATTN_OK);
    assert_int_equal(attn_linformer_attention(ctx, tape, q, k, v, e, f, NULL, NULL, NULL, &o, y), ATTN_OK);
    for (int64_t i = 0; i < ROWS * HEADS * SIZE; i++) assert_true(((float *)attn_tensor_data(y))[i] == 0);
    attn_tensor *all[] = {q, k, v, y, e, f, pk, pv, want};
    for (int t = 0; t < 9; t++) attn_tensor_free(all[t]);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

/* padding (rows in no segment) and other sequences may hold anything: no bit changes; a shorter sequence uses the first columns */
static void test_padding(void **state)
{
    enum { REAL = 4, LONGEST = 6, K = 3, SIZE = 5 };
    attn_context *ctx;
    random_state random = {13};
    float kept[REAL * SIZE];
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    attn_tensor *q = tensor_of(ctx, REAL, 1, SIZE, &random), *k = tensor_of(ctx, LONGEST, 1, SIZE, &random);
    attn_tensor *v = tensor_of(ctx, LONGEST, 1, SIZE, &random), *y = tensor_of(ctx, REAL, 1, SIZE, NULL),
                *e = projection_of(ctx, K, LONGEST, &random);
    attn_tensor *p = tensor_of(ctx, K, 1, SIZE, NULL);
    attn_layout *real = layout_of(ctx, 1, (const attn_segment[]){{0, REAL, 0, 0}});
    for (int spoiled = 0; spoiled < 2; spoiled++) {
        for (int64_t i = REAL * SIZE; spoiled && i < LONGEST * SIZE; i++)
            ((float *)attn_tensor_data(k))[i] = ((float *)attn_tensor_data(v))[i] = NAN;
        assert_int_equal(attn_linformer_attention(ctx, NULL, q, k, v, e, NULL, NULL, real, NULL, NULL, y), ATTN_OK);
        if (!spoiled) memcpy(kept, attn_tensor_data(y), sizeof kept);
        assert_memory_equal(kept, attn_tensor_data(y), sizeof kept);
    }
    assert_int_equal(attn_linformer_project(ctx, NULL, v, e, real, p), ATTN_OK);
    for (int64_t i = 0; i < K; i++) {
        for (int64_t c = 0; c < SIZE; c++) {
            double sum = 0;
            for (int64_t j = 0; j < REAL; j++)
                sum += (double)((float *)attn_tensor_data(e))[i * LONGEST + j] * (double)((float *)attn_tensor_data(v))[j * SIZE + c];
            assert_true(fabs((double)((float *)attn_tensor_data(p))[i * SIZE + c] - sum) < 1e-6);
        }
    }
    attn_layout_free(real);
    attn_tensor *all[] = {q, k, v, y, e, p};
    for (int t = 0; t < 6; t++) attn_tensor_free(all[t]);
    attn_context_free(ctx);
}

static void expect_refused(attn_context *ctx, attn_status got, attn_status expected, const char *word)
{
    if (got != expected || strstr(attn_context_last_error(ctx), word) == NULL)
        fail_msg("expected %s and \"%s\": got %s, \"%s\"", attn_status_name(expected), word, attn_status_name(got),
                 attn_context_last_error(ctx));
}

static void test_refusals(void **state)
{
    attn_context *ctx;
    attn_mask *causal;
    random_state random = {14};
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn_mask_causal(ctx, ATTN_ALIGN_LAST, &causal), ATTN_OK);
    attn_tensor *x = tensor_of(ctx, 6, 1, 4, &random), *y = tensor_of(ctx, 6, 1, 4, NULL), *p = tensor_of(ctx, 3, 1, 4, NULL);
    attn_tensor *e = projection_of(ctx, 3, 6, &random), *brief = projection_of(ctx, 3, 5, &random), *none = projection_of(ctx, 0, 6, NULL);
    attn_layout *twice = layout_of(ctx, 2, (const attn_segment[]){{0, 2, 0, 0}, {0, 2, 0, 1}});
#define ATTEND(key_projection, value_projection, layout, mask) \
    attn_linformer_attention(ctx, NULL, x, x, x, key_projection, value_projection, NULL, layout, mask, NULL, y)
    expect_refused(ctx, ATTEND(e, NULL, NULL, causal), ATTN_ERROR_UNSUPPORTED, "causal");
    expect_refused(ctx, ATTEND(brief, NULL, NULL, NULL), ATTN_ERROR_SHAPE, "a segment of 6 rows");
    expect_refused(ctx, ATTEND(e, brief, NULL, NULL), ATTN_ERROR_SHAPE, "value_projection");
    expect_refused(ctx, ATTEND(NULL, e, NULL, NULL), ATTN_ERROR_INVALID_ARGUMENT, "key_projection");
    expect_refused(ctx, ATTEND(e, NULL, twice, NULL), ATTN_ERROR_INVALID_ARGUMENT, "key_layout");
    expect_refused(ctx, ATTEND(none, NULL, NULL, NULL), ATTN_ERROR_SHAPE, "key_projection");
    expect_refused(ctx, attn_linformer_project(ctx, NULL, x, e, NULL, y), ATTN_ERROR_SHAPE, "y: got");
    expect_refused(ctx, attn_linformer_project(ctx, NULL, x, x, NULL, p), ATTN_ERROR_SHAPE, "projection");
    expect_refused(ctx, attn_linformer_project(ctx, NULL, p, e, NULL, p), ATTN_ERROR_INVALID_ARGUMENT, "y");
    expect_refused(ctx, attn_linformer_project(ctx, NULL, x, e, twice, p), ATTN_ERROR_INVALID_ARGUMENT, "layout");
    attn_layout_free(twice);
    attn_mask_free(causal);
    attn_tensor *all[] = {x, y, p, e, brief, none};
    for (int t = 0; t < 6; t++) attn_tensor_free(all[t]);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_identity), cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_padding), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

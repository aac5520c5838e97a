#include <attn/attention.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "support/gradient.h"

/* Gradients of the attention kernel: masks, dropout, grouped heads, unequal lengths, repeated keys, soft cap, gaps, shared inputs. */
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }

enum { MASK_NONE, MASK_CAUSAL, MASK_WINDOW, MASK_BOOLEAN, MASK_UNION };
typedef struct attention_case {
    const char *name;
    int64_t rows, key_rows, heads, key_heads, size, value_size;
    int64_t pairs; /* 0: no layouts */
    attn_segment query[3], key[3];
    int mask, shared; /* shared: query, key and value are one tensor */
    double dropout, soft_cap, scale;
} attention_case;

static const attention_case cases[] = {
    {"plain", 4, 4, 1, 1, 3, 3, 0, {{0}}, {{0}}, MASK_NONE, 0, 0, 0, 0},
    {"cross, value size of its own", 3, 5, 2, 2, 3, 2, 0, {{0}}, {{0}}, MASK_NONE, 0, 0, 0, 0.7},
    {"causal, two sequences", 7, 7, 2, 2, 2, 2, 2, {{0, 3, 0, 0}, {3, 4, 0, 1}}, {{0, 3, 0, 0}, {3, 4, 0, 1}}, MASK_CAUSAL, 0, 0, 0, 0},
    {"more queries than keys, causal: some see nothing", 5, 2, 2, 1, 3, 3, 0, {{0}}, {{0}}, MASK_CAUSAL, 0, 0, 0, 0},
    {"grouped heads", 4, 4, 6, 2, 2, 2, 0, {{0}}, {{0}}, MASK_WINDOW, 0, 0, 0, 0},
    {"soft cap", 4, 4, 2, 2, 3, 3, 0, {{0}}, {{0}}, MASK_NONE, 0, 0, 1.5, 2},
    {"dropout", 5, 5, 2, 1, 3, 3, 0, {{0}}, {{0}}, MASK_CAUSAL, 0, 0.4, 0, 0},
    {"dropout of everything", 3, 3, 1, 1, 2, 2, 0, {{0}}, {{0}}, MASK_NONE, 0, 1, 0, 0},
    {"boolean mask", 5, 4, 2, 2, 3, 3, 0, {{0}}, {{0}}, MASK_BOOLEAN, 0, 0, 0, 0},
    {"union, dropout, soft cap", 5, 5, 2, 2, 3, 3, 0, {{0}}, {{0}}, MASK_UNION, 0, 0.3, 2, 0},
    {"repeated keys",
     4,
     3,
     2,
     1,
     3,
     2,
     3,
     {{0, 1, 9, 0}, {1, 2, 9, 1}, {3, 1, 9, 2}},
     {{0, 3, 0, 0}, {0, 3, 0, 1}, {0, 3, 0, 2}},
     MASK_NONE,
     0,
     0.2,
     0,
     0},
    {"gaps in queries and keys", 6, 7, 2, 2, 2, 2, 2, {{4, 2, 0, 1}, {1, 2, 0, 0}}, {{4, 2, 0, 1}, {0, 3, 0, 0}}, MASK_NONE, 0, 0, 0, 0},
    {"no queries but keys", 2, 5, 1, 1, 3, 3, 2, {{0, 0, 0, 0}, {0, 2, 0, 1}}, {{0, 3, 0, 0}, {3, 2, 0, 1}}, MASK_NONE, 0, 0, 0, 0},
    {"one tensor for all", 5, 5, 2, 2, 3, 3, 0, {{0}}, {{0}}, MASK_CAUSAL, 1, 0, 0, 0},
    {"longer than a tile", 150, 150, 1, 1, 2, 2, 0, {{0}}, {{0}}, MASK_CAUSAL, 0, 0.1, 0, 0},
};

static attn_status make_mask(gradient_check *g, const attention_case *c, attn_mask **mask)
{
    attn_mask *causal = NULL, *window = NULL;
    attn_tensor *allowed = NULL;
    attn_status status = ATTN_OK;
    if (c->mask == MASK_CAUSAL) return attn_mask_causal(g->ctx, ATTN_ALIGN_LAST, mask);
    if (c->mask == MASK_WINDOW) return attn_mask_window(g->ctx, ATTN_ALIGN_LAST, 1, 1, 1, mask);
    if (c->mask == MASK_UNION) {
        status = attn_mask_causal(g->ctx, ATTN_ALIGN_LAST, &causal);
        if (status == ATTN_OK) status = attn_mask_window(g->ctx, ATTN_ALIGN_LAST, 0, 1, 1, &window);
        if (status == ATTN_OK) status = attn_mask_union(g->ctx, causal, window, mask);
        attn_mask_free(causal);
        attn_mask_free(window);
    }
    if (c->mask == MASK_BOOLEAN) {
        status = attn_tensor_create(g->ctx, ATTN_UINT8, 4, SHAPE(1, c->heads, c->rows, c->key_rows), &allowed);
        if (status != ATTN_OK) return status;
        uint8_t *bits = attn_tensor_data(allowed);
        for (int64_t i = 0; i < c->heads * c->rows * c->key_rows; i++)
            bits[i] = i % 3 != 0 && i / c->key_rows != 2; /* one row sees nothing */
        status = attn_mask_boolean(g->ctx, allowed, mask);
        attn_tensor_free(allowed);
    }
    return status;
}

static attn_status attention(gradient_check *g, attn_tape *tape, const void *what)
{
    const attention_case *c = what;
    attn_layout *query = NULL, *key = NULL;
    attn_mask *mask = NULL;
    attn_dot_product_options o;
    attn_dot_product_options_init(&o, sizeof o);
    o.dropout = c->dropout;
    o.soft_cap = c->soft_cap;
    o.site = 11;
    if (c->scale != 0) {
        o.derive_scale = 0;
        o.scale = c->scale;
    }
    attn_status status = make_mask(g, c, &mask);
    if (status == ATTN_OK && c->pairs > 0) {
        status = attn_layout_create(g->ctx, c->pairs, &query);
        if (status == ATTN_OK) status = attn_layout_create(g->ctx, c->pairs, &key);
        if (status == ATTN_OK) status = attn_layout_set(g->ctx, query, c->pairs, c->query);
        if (status == ATTN_OK) status = attn_layout_set(g->ctx, key, c->pairs, c->key);
    }
    const attn_tensor *k = c->shared ? g->input[0] : g->input[1], *v = c->shared ? g->input[0] : g->input[2];
    if (status == ATTN_OK) status = attn_dot_product_attention(g->ctx, tape, g->input[0], k, v, query, key, mask, &o, g->output);
    /* a record outlives what it was made with */
    attn_layout_free(query);
    attn_layout_free(key);
    attn_mask_free(mask);
    return status;
}

static void test_attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attention_case *c = &cases[i];
        gradient_check g;
        gradient_open(&g, 1000 + i);
        g.options.training = 1;
        g.options.seed = 3;
        gradient_input(&g, 3, SHAPE(c->rows, c->heads, c->size), -1, 1);
        if (!c->shared) gradient_input(&g, 3, SHAPE(c->key_rows, c->key_heads, c->size), -1, 1);
        if (!c->shared) gradient_input(&g, 3, SHAPE(c->key_rows, c->key_heads, c->value_size), -1, 1);
        gradient_output(&g, 3, SHAPE(c->rows, c->heads, c->value_size));
        double error = gradient_error(&g, attention, c);
        if (!(error < 1e-6)) fail_msg("%s: differs by %g", c->name, error);
        if (c->dropout < 1 && c->rows < 100) gradient_expect(&g, attention, c);
        gradient_close(&g);
    }
}

/* Query, key and value side by side in one buffer, gradients head-major: the same numbers as dense tensors give. */
static void test_strided(void **state)
{
    enum { N = 5, H = 2, S = 3, E = N * H * S };
    gradient_check g;
    attn_tensor *joined[3], *gradient[3], *weights = NULL;
    double data[N * 3 * H * S], major[3][E], seed[E];
    (void)state;
    gradient_open(&g, 5);
    for (int i = 0; i < 3; i++) gradient_input(&g, 3, SHAPE(N, H, S), -1, 1);
    gradient_output(&g, 3, SHAPE(N, H, S));
    assert_true(gradient_error(&g, attention, &cases[0]) < 1e-6);
    for (int i = 0; i < 3; i++) {
        const double *from = attn_tensor_data(g.input[i]);
        for (int n = 0; n < N; n++)
            for (int e = 0; e < H * S; e++) data[(n * 3 + i) * H * S + e] = from[n * H * S + e];
        assert_int_equal(attn_tensor_wrap(g.ctx, ATTN_FLOAT64, 3, SHAPE(N, H, S), SHAPE(3 * H * S, S, 1), data + i * H * S, &joined[i]),
                         ATTN_OK);
        assert_int_equal(attn_tensor_wrap(g.ctx, ATTN_FLOAT64, 3, SHAPE(N, H, S), SHAPE(S, N * S, 1), major[i], &gradient[i]), ATTN_OK);
    }
    const double *w = attn_tensor_data(g.weights);
    for (int n = 0; n < N; n++)
        for (int h = 0; h < H; h++)
            for (int s = 0; s < S; s++) seed[(h * N + n) * S + s] = w[(n * H + h) * S + s];
    assert_int_equal(attn_tensor_wrap(g.ctx, ATTN_FLOAT64, 3, SHAPE(N, H, S), SHAPE(S, N * S, 1), seed, &weights), ATTN_OK);
    assert_int_equal(attn_tape_begin(g.ctx, g.tape, NULL), ATTN_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(attn_tape_watch(g.ctx, g.tape, joined[i], gradient[i]), ATTN_OK);
    assert_int_equal(attn_dot_product_attention(g.ctx, g.tape, joined[0], joined[1], joined[2], NULL, NULL, NULL, NULL, g.output), ATTN_OK);
    assert_int_equal(
        attn_tape_backward(g.ctx, g.tape, 1, (const attn_tensor *const[]){g.output}, (const attn_tensor *const[]){weights}, 0, NULL),
        ATTN_OK);
    for (int i = 0; i < 3; i++) {
        const double *dense = attn_tensor_data(g.gradient[i]);
        for (int n = 0; n < N; n++)
            for (int h = 0; h < H; h++)
                for (int s = 0; s < S; s++) assert_true(major[i][(h * N + n) * S + s] == dense[(n * H + h) * S + s]);
        attn_tensor_free(joined[i]);
        attn_tensor_free(gradient[i]);
    }
    attn_tensor_free(weights);
    gradient_close(&g);
}

/* On BLAS: the gradient of one tensor in several roles is the sum of theirs. A role's number is that of the tensor that plays it. */
static void test_roles(void **state)
{
    enum { N = 70, H = 2, S = 4, E = N * H * S };
    static const int casts[][3] = {{0, 1, 2}, {0, 0, 0}, {0, 1, 0}, {0, 0, 2}, {0, 1, 1}};
    static float x[3][E], y[E], d[3][E], apart[3][E];
    attn_context *ctx = NULL;
    attn_tape *tape = NULL;
    attn_tensor *in[3], *gradient[3], *out = NULL;
    random_state random = {6};
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn_tape_create(ctx, &tape), ATTN_OK);
    random_floats(&random, x[0], E, -1, 1);
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(N, H, S), NULL, y, &out), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        memcpy(x[i], x[0], sizeof x[i]);
        assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(N, H, S), NULL, x[i], &in[i]), ATTN_OK);
        assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(N, H, S), NULL, d[i], &gradient[i]), ATTN_OK);
    }
    for (size_t c = 0; c < sizeof casts / sizeof *casts; c++) {
        const int *cast = casts[c];
        const attn_tensor *outputs[] = {out}, *seeds[] = {in[0]};
        assert_int_equal(attn_tape_begin(ctx, tape, NULL), ATTN_OK);
        for (int i = 0; i < 3; i++)
            if (cast[0] == i || cast[1] == i || cast[2] == i) assert_int_equal(attn_tape_watch(ctx, tape, in[i], gradient[i]), ATTN_OK);
        assert_int_equal(attn_dot_product_attention(ctx, tape, in[cast[0]], in[cast[1]], in[cast[2]], NULL, NULL, NULL, NULL, out),
                         ATTN_OK);
        assert_int_equal(attn_tape_backward(ctx, tape, 1, outputs, seeds, 0, NULL), ATTN_OK);
        if (c == 0) memcpy(apart, d, sizeof apart);
        for (int i = 0; i < 3; i++)
            for (int e = 0; e < E; e++) {
                float sum = 0;
                for (int role = 0; role < 3; role++) sum += cast[role] == i ? apart[role][e] : 0;
                float difference = cast[0] == i || cast[1] == i || cast[2] == i ? sum - d[i][e] : 0;
                if (!(difference < 1e-5f && difference > -1e-5f))
                    fail_msg("cast %d, tensor %d: differs by %g", (int)c, i, (double)difference);
            }
    }
    for (int i = 0; i < 3; i++) attn_tensor_free(in[i]);
    for (int i = 0; i < 3; i++) attn_tensor_free(gradient[i]);
    attn_tensor_free(out);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

/* On BLAS: rows in no segment have no gradient, whatever lay in the pool's memory before. */
static void test_gaps(void **state)
{
    enum { N = 9, E = N * 2 * 4 };
    static float x[3][E], y[E], d[3][E];
    static const attn_segment query[] = {{5, 2, 0, 0}, {1, 3, 0, 1}}, key[] = {{0, 4, 0, 0}, {0, 4, 0, 1}};
    attn_context *ctx = NULL;
    attn_tape *tape = NULL;
    attn_tensor *in[3], *gradient[3], *out = NULL;
    attn_layout *queries = NULL, *keys = NULL;
    random_state random = {6};
    (void)state;
    assert_int_equal(attn_context_create(NULL, &ctx), ATTN_OK);
    assert_int_equal(attn_tape_create(ctx, &tape), ATTN_OK);
    assert_int_equal(attn_layout_create(ctx, 2, &queries), ATTN_OK);
    assert_int_equal(attn_layout_create(ctx, 2, &keys), ATTN_OK);
    assert_int_equal(attn_layout_set(ctx, queries, 2, query), ATTN_OK);
    assert_int_equal(attn_layout_set(ctx, keys, 2, key), ATTN_OK);
    assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(N, 2, 4), NULL, y, &out), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        random_floats(&random, x[i], E, -1, 1);
        assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(N, 2, 4), NULL, x[i], &in[i]), ATTN_OK);
        assert_int_equal(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, SHAPE(N, 2, 4), NULL, d[i], &gradient[i]), ATTN_OK);
    }
    for (int gaps = 0; gaps < 2; gaps++) {
        const attn_tensor *outputs[] = {out}, *seeds[] = {in[0]};
        assert_int_equal(attn_tape_begin(ctx, tape, NULL), ATTN_OK);
        for (int i = 0; i < 3; i++) assert_int_equal(attn_tape_watch(ctx, tape, in[i], gradient[i]), ATTN_OK);
        assert_int_equal(
            attn_dot_product_attention(ctx, tape, in[0], in[1], in[2], gaps ? queries : NULL, gaps ? keys : NULL, NULL, NULL, out),
            ATTN_OK);
        assert_int_equal(attn_tape_backward(ctx, tape, 1, outputs, seeds, 0, NULL), ATTN_OK);
    }
    for (int e = 0; e < E; e++) {
        int row = e / 8, queried = (row >= 1 && row < 4) || row == 5 || row == 6;
        assert_true((d[0][e] != 0) == queried);
        assert_true((d[1][e] != 0) == (row < 4) && (d[2][e] != 0) == (row < 4));
    }
    for (int i = 0; i < 3; i++) attn_tensor_free(in[i]);
    for (int i = 0; i < 3; i++) attn_tensor_free(gradient[i]);
    attn_tensor_free(out);
    attn_layout_free(queries);
    attn_layout_free(keys);
    attn_tape_free(tape);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_strided), cmocka_unit_test(test_roles),
                                       cmocka_unit_test(test_gaps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

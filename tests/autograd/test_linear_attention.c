#include "linear_case.h"
#include "support/gradient.h"

/* Linear attention and the Performer: gradients, formulas, the recurrent form, causality, refusals. */

static attn_layout *layout_of(attn_context *ctx, int64_t count, const attn_segment *segments)
{
    attn_layout *layout;
    assert_int_equal(attn_layout_create(ctx, count, &layout), ATTN_OK);
    assert_int_equal(attn_layout_set(ctx, layout, count, segments), ATTN_OK);
    return layout;
}

typedef struct linear_case {
    int64_t rows, key_rows, heads, key_heads, size, value_size, features;
    int32_t map, causal, packed, independent;
    double scale;
} linear_case;

static const linear_case cases[] = {
    {5, 7, 1, 1, 3, 2, 0, ATTN_FEATURES_ELU, 0, 0, 0, 0},           {6, 6, 4, 2, 3, 2, 0, ATTN_FEATURES_ELU, 1, 0, 0, 0},
    {7, 7, 2, 1, 3, 2, 6, ATTN_FEATURES_POSITIVE, 1, 0, 0, 0},      {4, 9, 2, 2, 1, 3, 5, ATTN_FEATURES_POSITIVE, 0, 0, 1, 0.3},
    {6, 6, 1, 1, 3, 3, 8, ATTN_FEATURES_TRIGONOMETRIC, 1, 0, 0, 0}, {1, 5, 2, 2, 2, 2, 4, ATTN_FEATURES_TRIGONOMETRIC, 0, 0, 0, 0.2},
    {9, 9, 2, 1, 3, 2, 4, ATTN_FEATURES_POSITIVE, 1, 1, 0, 0},      {9, 9, 2, 2, 3, 2, 0, ATTN_FEATURES_ELU, 0, 1, 0, 0},
    {7, 4, 2, 2, 2, 2, 0, ATTN_FEATURES_ELU, 1, 0, 0, 0},           {3, 8, 2, 2, 2, 2, 4, ATTN_FEATURES_POSITIVE, 1, 0, 0, 0},
    {9, 9, 2, 1, 3, 2, 0, ATTN_FEATURES_IDENTITY, 0, 2, 0, 0},      {8, 9, 2, 1, 3, 2, 0, ATTN_FEATURES_ELU, 1, 3, 0, 0},
    {70, 70, 1, 1, 2, 1, 4, ATTN_FEATURES_POSITIVE, 1, 0, 0, 0},    {5, 5, 1, 1, 2, 2, 0, ATTN_FEATURES_IDENTITY, 1, 0, 0, 0},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static attn_linear_attention_options case_options(const linear_case *c)
{
    attn_linear_attention_options o = options_of(c->map, c->causal);
    if (c->features > 0) o.features = c->features;
    o.independent = c->independent;
    o.seed = 11;
    if (c->scale > 0) {
        o.derive_scale = 0;
        o.scale = c->scale;
    }
    return o;
}

static attn_status attend(gradient_check *g, attn_tape *tape, const void *what)
{
    const linear_case *c = what;
    attn_linear_attention_options o = case_options(c);
    /* an empty sequence, and a row between sequences that belongs to none: packed 1 of the keys and a last one of the queries, 2 of the
       queries alone, 3 of the keys alone */
    const attn_segment tiles[] = {{0, 4, 0, 0}, {4, 0, 0, 1}, {4, 4, 0, 2}}, apart[] = {{5, 4, 0, 0}, {9, 0, 0, 1}, {0, 4, 0, 2}},
                       whole[] = {{0, 4, 0, 0}, {4, 1, 0, 1}, {5, 4, 0, 2}};
    attn_layout *query_layout = c->packed ? layout_of(g->ctx, 3, c->packed == 2 ? apart : tiles) : NULL;
    attn_layout *key_layout = c->packed ? layout_of(g->ctx, 3, c->packed == 2 ? whole : apart) : NULL;
    attn_status status =
        attn_linear_attention(g->ctx, tape, g->input[0], g->input[1], g->input[2], query_layout, key_layout, &o, g->output);
    attn_layout_free(query_layout);
    attn_layout_free(key_layout);
    return status;
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const linear_case *c = &cases[i];
        gradient_check g;
        gradient_open(&g, 40 + (uint64_t)i);
        double low = c->map == ATTN_FEATURES_IDENTITY ? 0.2 : -1;
        gradient_input(&g, 3, SHAPE(c->rows, c->heads, c->size), low, 1);
        gradient_input(&g, 3, SHAPE(c->key_rows, c->key_heads, c->size), low, 1);
        gradient_input(&g, 3, SHAPE(c->key_rows, c->key_heads, c->value_size), -1, 1);
        gradient_output(&g, 3, SHAPE(c->rows, c->heads, c->value_size));
        gradient_expect(&g, attend, c);
        gradient_close(&g);
    }
}

/* one tensor in all three places, and used again */
static attn_status attend_self(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_linear_attention_options o = options_of(*(const int32_t *)what, 1);
    o.features = o.map == ATTN_FEATURES_POSITIVE ? 6 : ATTN_DERIVED;
    /* each half reads the other */
    attn_layout *query_layout = layout_of(g->ctx, 2, (const attn_segment[]){{0, 3, 0, 0}, {3, 3, 0, 1}});
    attn_layout *key_layout = layout_of(g->ctx, 2, (const attn_segment[]){{3, 3, 0, 0}, {0, 3, 0, 1}});
    attn_status status =
        attn_linear_attention(g->ctx, tape, g->input[0], g->input[0], g->input[0], query_layout, key_layout, &o, g->other[0]);
    attn_layout_free(query_layout);
    attn_layout_free(key_layout);
    return status == ATTN_OK ? attn_multiply(g->ctx, tape, g->other[0], g->input[0], g->output) : status;
}

static attn_status map_alone(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_linear_attention_options o = options_of(*(const int32_t *)what, 0);
    o.features = o.map == ATTN_FEATURES_ELU ? ATTN_DERIVED : 8;
    return attn_feature_map(g->ctx, tape, g->input[0], &o, NULL, g->output);
}

/* map and attention put together by hand, with the scale multiplied back */
static attn_status by_hand(gradient_check *g, attn_tape *tape, const void *what)
{
    attn_linear_attention_options o = options_of(*(const int32_t *)what, 1), identity = options_of(ATTN_FEATURES_IDENTITY, 1);
    o.features = 8;
    identity.key_scale = g->other[3];
    attn_status status = attn_feature_map(g->ctx, tape, g->input[0], &o, g->other[2], g->other[0]);
    if (status == ATTN_OK) status = attn_feature_map(g->ctx, tape, g->input[1], &o, g->other[3], g->other[1]);
    if (status != ATTN_OK) return status;
    return attn_linear_attention(g->ctx, tape, g->other[0], g->other[1], g->input[1], NULL, NULL, &identity, g->output);
}

static void test_more_gradients(void **state)
{
    (void)state;
    for (int32_t map = ATTN_FEATURES_IDENTITY; map <= ATTN_FEATURES_TRIGONOMETRIC; map++) {
        gradient_check g;
        gradient_open(&g, 60 + (uint64_t)map);
        gradient_input(&g, 3, SHAPE(6, 2, 3), map == ATTN_FEATURES_IDENTITY ? 0.2 : -1, 1);
        gradient_other(&g, ATTN_FLOAT64, 3, SHAPE(6, 2, 3), 0, 1);
        gradient_output(&g, 3, SHAPE(6, 2, 3));
        gradient_expect(&g, attend_self, &map);
        gradient_close(&g);
        if (map == ATTN_FEATURES_IDENTITY) continue;
        gradient_open(&g, 70 + (uint64_t)map);
        gradient_input(&g, 3, SHAPE(4, 2, 3), -1, 1);
        gradient_output(&g, 3, SHAPE(4, 2, map == ATTN_FEATURES_ELU ? 3 : 8));
        gradient_expect(&g, map_alone, &map);
        gradient_close(&g);
        if (map == ATTN_FEATURES_ELU) continue;
        gradient_open(&g, 80 + (uint64_t)map);
        for (int i = 0; i < 2; i++) gradient_input(&g, 3, SHAPE(5, 1, 3), -1, 1);
        for (int i = 0; i < 2; i++) gradient_other(&g, ATTN_FLOAT64, 3, SHAPE(5, 1, 8), 0, 1);
        for (int i = 0; i < 2; i++) gradient_other(&g, ATTN_FLOAT64, 2, SHAPE(5, 1), 0, 1);
        gradient_output(&g, 3, SHAPE(5, 1, 3));
        gradient_expect(&g, by_hand, &map);
        gradient_close(&g);
    }
}

static attn_tensor *tensor_of(attn_context *ctx, int32_t dtype, int64_t rows, int64_t heads, int64_t size, random_state *random,
                              double reach)
{
    attn_tensor *out;
    assert_int_equal(attn_tensor_create(ctx, dtype, 3, SHAPE(rows, heads, size), &out), ATTN_OK);
    if (random != NULL && dtype == ATTN_FLOAT64) random_doubles(random, attn_tensor_data(out), rows * heads * size, -reach, reach);
    if (random != NULL && dtype == ATTN_FLOAT32) random_floats(random, attn_tensor_data(out), rows * heads * size, -reach, reach);
    return out;
}

/* sum_j f(q) . f(k_j) v_j / sum_j f(q) . f(k_j), written out; features by the definition */
static double feature(const attn_linear_attention_options *o, const double *w, const double *x, int64_t size, int64_t f)
{
    double scale = 1 / sqrt((double)size), along = 0, half = 0;
    if (o->map == ATTN_FEATURES_ELU) return x[f] > 0 ? x[f] + 1 : exp(x[f]);
    int64_t m = o->map == ATTN_FEATURES_POSITIVE ? o->features : o->features / 2;
    for (int64_t c = 0; c < size; c++) {
        along += sqrt(scale) * x[c] * w[f % m * size + c];
        half += scale * x[c] * x[c] / 2;
    }
    if (o->map == ATTN_FEATURES_POSITIVE) return exp(along - half) / sqrt((double)m);
    return exp(half) / sqrt((double)m) * (f < m ? cos(along) : sin(along));
}

static void test_formula(void **state)
{
    enum { ROWS = 11, SIZE = 3, VALUES = 2, FEATURES = 8 };
    random_state random = {5};
    attn_context *ctx = contexts[ATTN_BACKEND_REFERENCE];
    (void)state;
    for (int32_t i = 0; i < 6; i++) {
        attn_linear_attention_options o = options_of(ATTN_FEATURES_ELU + i / 2, i % 2);
        int64_t count = o.map == ATTN_FEATURES_ELU ? SIZE : FEATURES, m = o.map == ATTN_FEATURES_TRIGONOMETRIC ? FEATURES / 2 : FEATURES;
        o.features = FEATURES;
        o.seed = 3;
        attn_tensor *q = tensor_of(ctx, ATTN_FLOAT64, ROWS, 1, SIZE, &random, 1),
                    *k = tensor_of(ctx, ATTN_FLOAT64, ROWS, 1, SIZE, &random, 1);
        attn_tensor *v = tensor_of(ctx, ATTN_FLOAT64, ROWS, 1, VALUES, &random, 1),
                    *y = tensor_of(ctx, ATTN_FLOAT64, ROWS, 1, VALUES, NULL, 0);
        attn_tensor *w;
        assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT64, 2, SHAPE(m, SIZE), &w), ATTN_OK);
        assert_int_equal(attn_feature_directions(ctx, &o, w), ATTN_OK);
        assert_int_equal(attn_linear_attention(ctx, NULL, q, k, v, NULL, NULL, &o, y), ATTN_OK);
        const double *wq = attn_tensor_data(q), *wk = attn_tensor_data(k), *wv = attn_tensor_data(v), *out = attn_tensor_data(y);
        for (int64_t r = 0; r < ROWS; r++) {
            double above[VALUES] = {0}, below = 0;
            for (int64_t j = 0; j < (o.causal ? r + 1 : ROWS); j++) {
                double weight = 0;
                for (int64_t f = 0; f < count; f++)
                    weight +=
                        feature(&o, attn_tensor_data(w), wq + r * SIZE, SIZE, f) * feature(&o, attn_tensor_data(w), wk + j * SIZE, SIZE, f);
                for (int64_t c = 0; c < VALUES; c++) above[c] += weight * wv[j * VALUES + c];
                below += weight;
            }
            for (int64_t c = 0; c < VALUES; c++) assert_true(fabs(out[r * VALUES + c] - above[c] / below) < 1e-10 / fabs(below));
        }
        if (o.map != ATTN_FEATURES_ELU) { /* directions given: the same bits as drawn */
            attn_tensor *same = tensor_of(ctx, ATTN_FLOAT64, ROWS, 1, VALUES, NULL, 0);
            o.directions = w;
            o.seed = 99;
            assert_int_equal(attn_linear_attention(ctx, NULL, q, k, v, NULL, NULL, &o, same), ATTN_OK);
            assert_memory_equal(attn_tensor_data(same), out, ROWS * VALUES * sizeof *out);
            attn_tensor_free(same);
        }
        attn_tensor *all[] = {q, k, v, y, w};
        for (int t = 0; t < 5; t++) attn_tensor_free(all[t]);
    }
}

/* rows one by one, then in parts: within 1e-5 of all at once, on both backends, in a state that does not grow */
static void test_recurrent(void **state)
{
    enum { SEQUENCES = 2, LENGTH = 150, HEADS = 4, KEY_HEADS = 2, SIZE = 8, VALUES = 5 };
    static const int64_t parts[] = {1, 1, 1, 7, 64, 0, 76};
    (void)state;
    for (int32_t i = 0; i < 6; i++) {
        attn_context *ctx = contexts[i % 2];
        random_state random = {6};
        attn_linear_attention_options o = options_of(ATTN_FEATURES_ELU + i / 2, 1);
        int64_t rows = SEQUENCES * LENGTH, features = o.map == ATTN_FEATURES_ELU ? SIZE : 256;
        const attn_segment whole[] = {{0, LENGTH, 0, 0}, {LENGTH, LENGTH, 0, 1}};
        o.features = features;
        double reach = o.map == ATTN_FEATURES_TRIGONOMETRIC ? 0.5 : 2;
        attn_tensor *q = tensor_of(ctx, ATTN_FLOAT32, rows, HEADS, SIZE, &random, reach);
        attn_tensor *k = tensor_of(ctx, ATTN_FLOAT32, rows, KEY_HEADS, SIZE, &random, reach);
        attn_tensor *v = tensor_of(ctx, ATTN_FLOAT32, rows, KEY_HEADS, VALUES, &random, 1);
        attn_tensor *parallel = tensor_of(ctx, ATTN_FLOAT32, rows, HEADS, VALUES, NULL, 0),
                    *y = tensor_of(ctx, ATTN_FLOAT32, rows, HEADS, VALUES, NULL, 0);
        attn_tensor *sums;
        attn_layout *layout = layout_of(ctx, SEQUENCES, whole);
        assert_int_equal(attn_linear_attention(ctx, NULL, q, k, v, layout, layout, &o, parallel), ATTN_OK);
        assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 4, SHAPE(SEQUENCES, KEY_HEADS, features + 1, VALUES + 1), &sums), ATTN_OK);
        memset(attn_tensor_data(sums), 0, (size_t)(SEQUENCES * KEY_HEADS * (features + 1) * (VALUES + 1)) * sizeof(float));
        int64_t at = 0;
        o.causal = 0; /* not looked at */
        for (size_t p = 0; p < sizeof parts / sizeof *parts; at += parts[p++]) {
            const attn_segment part[] = {{at, parts[p], at, 0}, {LENGTH + at, parts[p], at, 1}};
            assert_int_equal(attn_layout_set(ctx, layout, SEQUENCES, part), ATTN_OK);
            assert_int_equal(attn_linear_attention_step(ctx, q, k, v, layout, &o, sums, y), ATTN_OK);
        }
        assert_int_equal(at, LENGTH);
        const float *got = attn_tensor_data(y), *want = attn_tensor_data(parallel), *line = attn_tensor_data(sums);
        assert_true(line[(features + 1) * (VALUES + 1) - 1] == LENGTH);
        for (int64_t e = 0; e < rows * HEADS * VALUES; e++)
            if (!(fabs((double)got[e] - (double)want[e]) < 1e-5))
                fail_msg("map %d, element %d: %g, in parallel %g", o.map, (int)e, (double)got[e], (double)want[e]);
        attn_layout_free(layout);
        attn_tensor *all[] = {q, k, v, parallel, y, sums};
        for (int t = 0; t < 6; t++) attn_tensor_free(all[t]);
    }
}

/* One tensor in several places: its gradients come one after the other, on BLAS as on the reference. A place's number is its tensor's. */
static void one_tensor(const int places[3], int32_t causal)
{
    enum { ROWS = 140, SIZE = 4 };
    attn_tensor *d[2][3];
    for (int b = 0; b < 2; b++) {
        attn_context *ctx = contexts[b];
        attn_linear_attention_options o = options_of(ATTN_FEATURES_IDENTITY, causal);
        attn_tensor *x[3], *y = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, NULL, 0);
        attn_tape *tape;
        assert_int_equal(attn_tape_create(ctx, &tape), ATTN_OK);
        assert_int_equal(attn_tape_begin(ctx, tape, NULL), ATTN_OK);
        for (int i = 0; i < 3; i++) {
            random_state random = {15 + (uint64_t)i};
            x[i] = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, &random, 1);
            d[b][i] = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, NULL, 0);
            for (int64_t e = 0; e < ROWS * SIZE; e++) ((float *)attn_tensor_data(x[i]))[e] += 1.25F; /* over 0 */
            assert_int_equal(attn_tape_watch(ctx, tape, x[i], d[b][i]), ATTN_OK);
        }
        attn_layout *query_layout = layout_of(ctx, 2, (const attn_segment[]){{0, ROWS / 2, 0, 0}, {ROWS / 2, ROWS / 2, 0, 1}});
        attn_layout *key_layout = layout_of(ctx, 2, (const attn_segment[]){{ROWS / 2, ROWS / 2, 0, 0}, {0, ROWS / 2, 0, 1}});
        assert_int_equal(attn_linear_attention(ctx, tape, x[places[0]], x[places[1]], x[places[2]], query_layout, key_layout, &o, y),
                         ATTN_OK);
        attn_layout_free(query_layout);
        attn_layout_free(key_layout);
        const attn_tensor *outputs[] = {y}, *gradients[] = {x[0]};
        assert_int_equal(attn_tape_backward(ctx, tape, 1, outputs, gradients, 0, NULL), ATTN_OK);
        attn_tape_free(tape);
        for (int i = 0; i < 3; i++) attn_tensor_free(x[i]);
        attn_tensor_free(y);
    }
    for (int i = 0; i < 3; i++) {
        const float *got = attn_tensor_data(d[0][i]), *want = attn_tensor_data(d[1][i]);
        for (int64_t e = 0; e < ROWS * SIZE; e++)
            if (!(fabs((double)got[e] - (double)want[e]) < 2e-5 * (1 + fabs((double)want[e]))))
                fail_msg("%d%d%d, causal %d, tensor %d, element %d: got %g, expected %g", places[0], places[1], places[2], causal, i,
                         (int)e, (double)got[e], (double)want[e]);
        attn_tensor_free(d[0][i]);
        attn_tensor_free(d[1][i]);
    }
}

static void test_one_tensor(void **state)
{
    static const int places[][3] = {{0, 0, 0}, {0, 1, 0}, {0, 0, 2}, {0, 1, 1}, {0, 1, 2}};
    (void)state;
    for (int32_t causal = 0; causal < 2; causal++)
        for (size_t c = 0; c < sizeof places / sizeof *places; c++) one_tensor(places[c], causal);
}

/* later rows made NaN and infinite change no bit of earlier rows' outputs and query gradients, nor of other sequences */
static void test_causal(void **state)
{
    enum { ROWS = 700, SIZE = 6, KEPT = 613 };
    (void)state;
    for (int32_t i = 0; i < 6; i++) {
        attn_context *ctx = contexts[i % 2];
        random_state random = {7};
        attn_linear_attention_options o = options_of(ATTN_FEATURES_ELU + i / 2, 1);
        static float kept[2][KEPT * SIZE];
        attn_tensor *t[3], *d[3], *y = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, NULL, 0),
                                  *dy = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, &random, 1);
        attn_tape *tape;
        assert_int_equal(attn_tape_create(ctx, &tape), ATTN_OK);
        for (int n = 0; n < 3; n++)
            t[n] = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, &random, 1), d[n] = tensor_of(ctx, ATTN_FLOAT32, ROWS, 1, SIZE, NULL, 0);
        for (int spoiled = 0; spoiled < 4; spoiled++) {
            const float bad[] = {0, NAN, INFINITY, 1e18f};
            for (int n = 0; n < 3 && spoiled; n++)
                for (int64_t e = KEPT * SIZE; e < ROWS * SIZE; e++) ((float *)attn_tensor_data(t[n]))[e] = bad[spoiled];
            assert_int_equal(attn_tape_begin(ctx, tape, NULL), ATTN_OK);
            for (int n = 0; n < 3; n++) assert_int_equal(attn_tape_watch(ctx, tape, t[n], d[n]), ATTN_OK);
            assert_int_equal(attn_linear_attention(ctx, tape, t[0], t[1], t[2], NULL, NULL, &o, y), ATTN_OK);
            const attn_tensor *outputs[] = {y}, *gradients[] = {dy};
            assert_int_equal(attn_tape_backward(ctx, tape, 1, outputs, gradients, 0, NULL), ATTN_OK);
            if (!spoiled) memcpy(kept[0], attn_tensor_data(y), sizeof kept[0]), memcpy(kept[1], attn_tensor_data(d[0]), sizeof kept[1]);
            assert_memory_equal(kept[0], attn_tensor_data(y), sizeof kept[0]);
            assert_memory_equal(kept[1], attn_tensor_data(d[0]), sizeof kept[1]);
        }
        for (int n = 0; n < 3; n++) attn_tensor_free(t[n]), attn_tensor_free(d[n]);
        attn_tensor_free(y);
        attn_tensor_free(dy);
        attn_tape_free(tape);
    }
}

/* of a tensor [rows, 1, size] the rows first .. end are no numbers in one column, and everything else is numbers */
static void expect_spread(const attn_tensor *t, int64_t rows, int64_t size, int64_t column, int64_t first, int64_t end, const char *what)
{
    for (int64_t e = 0; e < rows * size; e++) {
        int64_t row = e / size;
        int spoiled = e % size == column && row >= first && row < end;
        if (spoiled == !!isfinite(((const float *)attn_tensor_data_const(t))[e]))
            fail_msg("%s, rows %d to %d: row %d, column %d is %sa number", what, (int)first, (int)end, (int)row, (int)(e % size),
                     spoiled ? "" : "not ");
    }
}

/* A value that is no number reaches its own row and all later ones, a gradient of the output its own and all earlier values: in its column,
   and nothing else. Fewer queries than keys are the last rows: their chunks begin inside those of the keys. */
static void test_not_finite(void **state)
{
    enum { KEYS = 150, SIZE = 6, COLUMN = 2 };
    static const int64_t places[] = {0, 1, 63, 64, 100, KEYS - 1}, queries[] = {KEYS, 70};
    (void)state;
    for (int32_t i = 0; i < 8; i++) {
        attn_context *ctx = contexts[i % 2];
        attn_linear_attention_options o = options_of(ATTN_FEATURES_ELU, 1);
        const int64_t rows = queries[i / 4], before = KEYS - rows;
        const int of_value = i % 4 < 2;
        attn_tape *tape;
        assert_int_equal(attn_tape_create(ctx, &tape), ATTN_OK);
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            random_state random = {9};
            const int64_t at = of_value ? places[p] : places[p] % rows, reached = at > before ? at - before : 0;
            attn_tensor *q = tensor_of(ctx, ATTN_FLOAT32, rows, 1, SIZE, &random, 1),
                        *x = tensor_of(ctx, ATTN_FLOAT32, KEYS, 1, SIZE, &random, 1),
                        *v = tensor_of(ctx, ATTN_FLOAT32, KEYS, 1, SIZE, &random, 1);
            attn_tensor *y = tensor_of(ctx, ATTN_FLOAT32, rows, 1, SIZE, NULL, 0),
                        *dy = tensor_of(ctx, ATTN_FLOAT32, rows, 1, SIZE, &random, 1);
            attn_tensor *dv = tensor_of(ctx, ATTN_FLOAT32, KEYS, 1, SIZE, NULL, 0);
            attn_tensor *spoiled = of_value ? v : dy;
            ((float *)attn_tensor_data(spoiled))[at * SIZE + COLUMN] = p % 2 ? NAN : INFINITY;
            assert_int_equal(attn_tape_begin(ctx, tape, NULL), ATTN_OK);
            assert_int_equal(attn_tape_watch(ctx, tape, v, dv), ATTN_OK);
            assert_int_equal(attn_linear_attention(ctx, tape, q, x, v, NULL, NULL, &o, y), ATTN_OK);
            expect_spread(y, rows, SIZE, COLUMN, of_value ? reached : rows, rows, "output");
            const attn_tensor *outputs[] = {y}, *gradients[] = {dy};
            assert_int_equal(attn_tape_backward(ctx, tape, 1, outputs, gradients, 0, NULL), ATTN_OK);
            expect_spread(dv, KEYS, SIZE, COLUMN, 0, of_value ? 0 : at + before + 1, "gradient of values");
            attn_tensor *all[] = {q, x, v, y, dy, dv};
            for (int t = 0; t < 6; t++) attn_tensor_free(all[t]);
        }
        attn_tape_free(tape);
    }
}

static void refuse(attn_linear_attention_options o, attn_status expected, const char *word)
{
    attn_context *ctx = contexts[ATTN_BACKEND_BLAS];
    attn_tensor *x = tensor_of(ctx, ATTN_FLOAT32, 4, 1, 4, NULL, 0), *y = tensor_of(ctx, ATTN_FLOAT32, 4, 1, 4, NULL, 0);
    for (int e = 0; e < 16; e++) ((float *)attn_tensor_data(x))[e] = 1, ((float *)attn_tensor_data(y))[e] = -5;
    assert_int_equal(attn_linear_attention(ctx, NULL, x, x, x, NULL, NULL, &o, y), expected);
    if (strstr(attn_context_last_error(ctx), word) == NULL) fail_msg("%s: not in \"%s\"", word, attn_context_last_error(ctx));
    for (int e = 0; e < 16; e++) assert_true(((float *)attn_tensor_data(y))[e] == -5);
    attn_tensor_free(x);
    attn_tensor_free(y);
}

static void test_refusals(void **state)
{
    attn_context *ctx = contexts[ATTN_BACKEND_BLAS];
    attn_linear_attention_options o;
    attn_tensor *some = tensor_of(ctx, ATTN_FLOAT32, 4, 1, 4, NULL, 0), *wide = tensor_of(ctx, ATTN_FLOAT32, 4, 3, 4, NULL, 0);
    attn_tensor *scale, *sums;
    (void)state;
    assert_int_equal(attn_linear_attention_options_init(NULL, sizeof o), ATTN_ERROR_INVALID_ARGUMENT);
#define REFUSE(kind, field, to, status) (o = options_of(kind, 0), o.field = to, refuse(o, status, #field))
    REFUSE(ATTN_FEATURES_ELU, map, 4, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_ELU, map, -1, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_ELU, causal, 2, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_POSITIVE, independent, 2, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_POSITIVE, derive_scale, -1, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_POSITIVE, features, 0, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_TRIGONOMETRIC, features, 5, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_ELU, directions, some, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_POSITIVE, directions, some, ATTN_ERROR_SHAPE);
    REFUSE(ATTN_FEATURES_POSITIVE, key_scale, some, ATTN_ERROR_INVALID_ARGUMENT);
    REFUSE(ATTN_FEATURES_IDENTITY, key_scale, wide, ATTN_ERROR_SHAPE);
    REFUSE(ATTN_FEATURES_ELU, struct_size, 8, ATTN_ERROR_INVALID_ARGUMENT);
    const double scales[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        o = options_of(ATTN_FEATURES_POSITIVE, 0);
        o.derive_scale = 0;
        o.scale = scales[i];
        refuse(o, ATTN_ERROR_INVALID_ARGUMENT, "options.scale");
    }
    /* rows in two segments, counts, heads, shared memory */
    const attn_segment twins[] = {{0, 2, 0, 0}, {0, 2, 0, 1}}, one[] = {{0, 4, 0, 0}};
    attn_layout *twice = layout_of(ctx, 2, twins), *once = layout_of(ctx, 1, one);
    attn_tensor *y = tensor_of(ctx, ATTN_FLOAT32, 4, 1, 4, NULL, 0);
    assert_int_equal(attn_linear_attention(ctx, NULL, some, some, some, once, twice, NULL, y), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "key_layout"));
    assert_int_equal(attn_linear_attention(ctx, NULL, some, some, some, twice, once, NULL, y), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "query_layout"));
    assert_int_equal(attn_layout_set(ctx, twice, 2, (const attn_segment[]){{0, 2, 0, 0}, {2, 2, 0, 1}}), ATTN_OK);
    assert_int_equal(attn_linear_attention(ctx, NULL, some, some, some, once, twice, NULL, y), ATTN_ERROR_SHAPE);
    assert_int_equal(attn_linear_attention(ctx, NULL, some, wide, wide, NULL, NULL, NULL, y), ATTN_ERROR_SHAPE);
    assert_non_null(strstr(attn_context_last_error(ctx), "heads"));
    assert_int_equal(attn_linear_attention(ctx, NULL, some, some, some, NULL, NULL, NULL, some), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_linear_attention(ctx, NULL, some, some, NULL, NULL, NULL, NULL, y), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "value"));
    /* maps alone */
    o = options_of(ATTN_FEATURES_IDENTITY, 0);
    assert_int_equal(attn_feature_map(ctx, NULL, some, &o, NULL, y), ATTN_ERROR_INVALID_ARGUMENT);
    o = options_of(ATTN_FEATURES_ELU, 0);
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 2, SHAPE(4, 1), &scale), ATTN_OK);
    assert_int_equal(attn_feature_map(ctx, NULL, some, &o, scale, y), ATTN_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_context_last_error(ctx), "log_scale"));
    /* states */
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 4, SHAPE(1, 1, 5, 4), &sums), ATTN_OK);
    assert_int_equal(attn_linear_attention_step(ctx, some, some, some, NULL, NULL, sums, y), ATTN_ERROR_SHAPE);
    assert_non_null(strstr(attn_context_last_error(ctx), "state: got 4 on axis 3"));
    attn_tensor *large;
    assert_int_equal(attn_tensor_create(ctx, ATTN_FLOAT32, 4, SHAPE(1, 1, 6, 5), &large), ATTN_OK);
    assert_int_equal(attn_linear_attention_step(ctx, some, some, some, NULL, NULL, large, y), ATTN_ERROR_SHAPE);
    attn_tensor_free(large);
    assert_int_equal(attn_linear_attention_step(ctx, some, some, some, NULL, NULL, some, y), ATTN_ERROR_SHAPE);
    assert_int_equal(attn_linear_attention_step(ctx, some, some, some, NULL, NULL, NULL, y), ATTN_ERROR_INVALID_ARGUMENT);
    attn_layout_free(twice);
    attn_layout_free(once);
    attn_tensor *all[] = {some, wide, y, scale, sums};
    for (int t = 0; t < 5; t++) attn_tensor_free(all[t]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),  cmocka_unit_test(test_more_gradients), cmocka_unit_test(test_formula),
        cmocka_unit_test(test_recurrent),  cmocka_unit_test(test_one_tensor),     cmocka_unit_test(test_causal),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}

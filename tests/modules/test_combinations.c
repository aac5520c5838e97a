#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/gradient.h"
#include "support/model.h"
#include "tensor/layout.h"
#include "tensor/mask.h"
#include "tensor/parameters.h"

/* The attention layer in all combinations: a covering table of score x heads x mask x positions, in which every three of their values meet.
   Each row: gradients in float64 against differences, and BLAS against the reference in the output and in every gradient. */
enum { SCORES = 4, HEADS = 4, MASKS = 13, POSITIONS = 5, FACTORS = 4, FORMS = 4, CAUSAL_LAST = MASKS };
static const int levels[FACTORS] = {SCORES, HEADS, MASKS, POSITIONS};
typedef struct row {
    int at[FACTORS], number, form;
} row;
static const char *const score_names[SCORES] = {"dot", "scaled dot", "multiplicative", "additive"},
                         *const head_names[HEADS] = {"one head", "four heads", "grouped", "multi-query"},
                         *const mask_names[MASKS + 1] = {"no mask",  "causal",     "window",     "dilated",     "global",
                                                         "strided",  "fixed",      "random",     "logarithmic", "boolean",
                                                         "additive", "one a head", "Longformer", "causal"},
                         *const position_names[POSITIONS] = {"no positions", "rotary", "T5", "ALiBi", "relative"};

/* 1 when the row has three values together that no row before it had; they are noted */
static int is_new(const row *r)
{
    static unsigned char seen[FACTORS][MASKS][MASKS][MASKS]; /* by the factor that is left out */
    int fresh = 0;
    for (int out = 0; out < FACTORS; out++) {
        int v[3], n = 0;
        for (int f = 0; f < FACTORS; f++)
            if (f != out) v[n++] = r->at[f];
        fresh |= !seen[out][v[0]][v[1]][v[2]];
        seen[out][v[0]][v[1]][v[2]] = 1;
    }
    return fresh;
}

/* the table, by a greedy walk through all combinations in an order that mixes them; returns its length */
static int covering(row *rows)
{
    const int all = SCORES * HEADS * MASKS * POSITIONS;
    int count = 0;
    for (int i = 0; i < all; i++) {
        row r = {.number = count};
        int rest = (int)((int64_t)i * 617 % all); /* a prime that divides no extent */
        for (int f = 0; f < FACTORS; f++) {
            r.at[f] = rest % levels[f];
            rest /= levels[f];
        }
        if (is_new(&r)) rows[count++] = r;
    }
    return count;
}

/* the forms other than softmax, with the masks and positions they have */
static int forms(row *rows, int count)
{
    for (int form = ATTN_FORM_LINEAR; form < FORMS; form++)
        for (int i = 0; i < 4 * HEADS; i++) {
            const int causal = i / 2 % 2;
            if (form == ATTN_FORM_LINFORMER && causal) continue;
            rows[count] = (row){{i % 3, i / 4, causal ? CAUSAL_LAST : 0, i % 2}, count, form};
            count++;
        }
    return count;
}

static attn_attention_options options_of(const row *r)
{
    static const int32_t scores[SCORES] = {ATTN_SCORE_DOT, ATTN_SCORE_SCALED_DOT, ATTN_SCORE_MULTIPLICATIVE, ATTN_SCORE_ADDITIVE};
    static const int32_t positions[POSITIONS] = {ATTN_POSITIONS_NONE, ATTN_POSITIONS_ROTARY, ATTN_POSITIONS_T5, ATTN_POSITIONS_ALIBI,
                                                 ATTN_POSITIONS_RELATIVE};
    static const int64_t heads[HEADS] = {1, 4, 4, 3}, key_heads[HEADS] = {1, 4, 2, 1};
    attn_attention_options o;
    assert_int_equal(attn_attention_options_init(&o, sizeof o), ATTN_OK);
    o.score = scores[r->at[0]];
    o.heads = heads[r->at[1]];
    o.key_heads = key_heads[r->at[1]];
    o.query_width = 5;
    o.key_width = 4;
    o.value_width = 3;
    o.head_size = 4 + 2 * (r->number % 2);
    o.value_head_size = 3;
    o.output_width = 4;
    if (o.score == ATTN_SCORE_MULTIPLICATIVE && positions[r->at[3]] != ATTN_POSITIONS_ROTARY) o.key_head_size = 3;
    o.positions = positions[r->at[3]];
    o.position_sides = r->number / 2 % 2;
    o.position_buckets = 4;
    o.position_reach = 3;
    o.relative_values = r->number / 3 % 2;
    o.rotary_pairing = r->number / 2 % 2;
    o.rotary_scaling = r->number % 5;
    o.rotary_factor = 2;
    o.rotary_context = 4;
    o.query_key_norm = r->number % 3;
    o.query_key_epsilon = 0.05; /* a norm over few numbers is near a step without it */
    o.gated_output = r->number / 2 % 2;
    o.soft_cap = r->number % 4 == 3 ? 1.5 : 0;
    o.dropout = r->number % 3 == 1 ? 0.3 : 0;
    o.form = r->form;
    if (r->form == ATTN_FORM_LINEAR || r->form == ATTN_FORM_PERFORMER) o.soft_cap = o.dropout = 0;
    o.features = 5;
    o.projected = 3;
    o.longest = 131;
    o.separate_projections = r->number % 2;
    return o;
}

static void fill(attn_tensor *tensor, uint64_t seed, double low, double high)
{
    random_state random = {seed};
    for (int64_t e = 0; e < model_elements(tensor); e++) model_set(tensor, e, random_number(&random, low, high));
}

enum { SEGMENTS = 4 };
typedef struct lengths {
    int64_t query[SEGMENTS], key[SEGMENTS], queries, keys;
} lengths;
/* unequal, empty on either side, one query against many keys, more queries than keys; the longer ones are no multiple of a block */
static const lengths small = {{3, 0, 4, 1}, {5, 2, 2, 0}, 8, 9}, large = {{67, 1, 0, 13}, {70, 131, 2, 5}, 81, 208};

static attn_mask *joined(attn_context *ctx, attn_mask *a, attn_mask *b)
{
    attn_mask *out = NULL;
    OK(ctx, attn_mask_union(ctx, a, b, &out));
    attn_mask_free(a);
    attn_mask_free(b);
    return out;
}

/* numbers or zeros and ones, of two axes that are shared and of all segments */
static attn_tensor *values_of(attn_context *ctx, const lengths *n, int64_t heads, int number)
{
    const int64_t most_queries = n == &small ? 4 : 67, most_keys = n == &small ? 5 : 131,
                  shape[4] = {SEGMENTS, heads, most_queries, most_keys};
    attn_tensor *made = NULL;
    OK(ctx, attn_tensor_create(ctx, number ? ATTN_FLOAT32 : ATTN_INT32, 4, shape, &made));
    random_state random = {77};
    for (int64_t e = 0; e < model_elements(made); e++) {
        double u = random_number(&random, 0, 1);
        model_set(made, e, number ? (u < 0.3 ? -INFINITY : u) : u > 0.4);
    }
    return made;
}

static attn_mask *mask_of(attn_context *ctx, int which, int64_t heads, const lengths *n)
{
    const int32_t last = ATTN_ALIGN_LAST, both = ATTN_PART_LOCAL | ATTN_PART_SUMMARY;
    const int64_t globals[2] = {0, 3};
    attn_mask *mask = NULL, *other = NULL;
    attn_tensor *values;
    switch (which) {
    case 1: OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_FIRST, &mask)); break;
    case CAUSAL_LAST: OK(ctx, attn_mask_causal(ctx, last, &mask)); break;
    case 2: OK(ctx, attn_mask_window(ctx, last, 2, 1, 1, &mask)); break;
    case 3: OK(ctx, attn_mask_window(ctx, last, 2, 2, 2, &mask)); break;
    case 4: OK(ctx, attn_mask_global(ctx, last, 2, globals, &mask)); break;
    case 5: OK(ctx, attn_mask_strided(ctx, last, ATTN_DERIVED, both, &mask)); break;
    case 6: OK(ctx, attn_mask_fixed(ctx, last, 3, 1, both, &mask)); break;
    case 7: OK(ctx, attn_mask_random(ctx, last, 2, 1, 5, &mask)); break;
    case 8: OK(ctx, attn_mask_logarithmic(ctx, last, 1, &mask)); break;
    case 9:
        values = values_of(ctx, n, 1, 0);
        OK(ctx, attn_mask_boolean(ctx, values, &mask));
        attn_tensor_free(values);
        break;
    case 10:
        values = values_of(ctx, n, heads, 1);
        OK(ctx, attn_mask_additive(ctx, values, &mask));
        attn_tensor_free(values);
        break;
    case 11: {
        const attn_mask *of_head[4] = {NULL, NULL, NULL, NULL};
        OK(ctx, attn_mask_causal(ctx, last, &other));
        for (int64_t h = 0; h < heads; h += 2) of_head[h] = other;
        OK(ctx, attn_mask_heads(ctx, heads, of_head, &mask));
        attn_mask_free(other);
        break;
    }
    case 12:
        OK(ctx, attn_mask_window(ctx, last, 1, 1, 1, &mask));
        OK(ctx, attn_mask_global(ctx, last, 1, globals, &other));
        mask = joined(ctx, mask, other);
        break;
    default: break;
    }
    return mask;
}

typedef struct scene {
    attn_context *ctx;
    attn_attention *layer;
    attn_layout *queries, *keys;
    attn_mask *mask;
} scene;

static void open_scene(scene *s, attn_context *ctx, const row *r, const lengths *n, int32_t dtype)
{
    attn_attention_options o = options_of(r);
    o.dtype = dtype;
    *s = (scene){.ctx = ctx};
    OK(ctx, attn_attention_create(ctx, &o, &s->layer));
    model_scramble(attn_attention_parameters(s->layer), 9);
    OK(ctx, attn_layout_create(ctx, SEGMENTS, &s->queries));
    OK(ctx, attn_layout_set_lengths(ctx, s->queries, SEGMENTS, n->query, 3));
    OK(ctx, attn_layout_create(ctx, SEGMENTS, &s->keys));
    OK(ctx, attn_layout_set_lengths(ctx, s->keys, SEGMENTS, n->key, 3));
    s->mask = mask_of(ctx, r->at[2], o.heads, n);
}

static void close_scene(scene *s)
{
    attn_mask_free(s->mask);
    attn_layout_free(s->queries);
    attn_layout_free(s->keys);
    attn_attention_free(s->layer);
}

static attn_status run_layer(gradient_check *g, attn_tape *tape, const void *what)
{
    const scene *s = what;
    return attn_attention_forward(g->ctx, s->layer, tape, g->input[0], g->input[1], g->input[2], s->queries, s->keys, s->mask, g->output);
}

static double weighed(gradient_check *g, const scene *s)
{
    double sum = 0;
    OK(g->ctx, attn_tape_begin(g->ctx, g->tape, &g->options));
    OK(g->ctx, run_layer(g, g->tape, s));
    for (int64_t e = 0; e < model_elements(g->output); e++) sum += model_get(g->weights, e) * model_get(g->output, e);
    return sum;
}

/* the parameters along random directions, against differences */
static double parameter_error(gradient_check *g, const scene *s)
{
    attn_parameters *set = attn_attention_parameters(s->layer);
    const attn_tensor *const outputs[1] = {g->output}, *const weights[1] = {g->weights};
    attn_gradients *gradients = NULL;
    double direction[4096], before[4096], worst = 0, *flat = set->flat;
    const int64_t n = set->flat_elements;
    assert_true(n <= 4096);
    OK(g->ctx, attn_gradients_create(g->ctx, set, &gradients));
    OK(g->ctx, attn_tape_begin(g->ctx, g->tape, &g->options));
    OK(g->ctx, run_layer(g, g->tape, s));
    OK(g->ctx, attn_tape_backward(g->ctx, g->tape, 1, outputs, weights, 1, &gradients));
    const double *gradient = attn_tensor_data(attn_gradients_flat(gradients));
    memcpy(before, flat, (size_t)n * sizeof *flat);
    for (int round = 0; round < 3; round++) {
        static const double steps[4] = {1e-3, -1e-3, 2e-3, -2e-3};
        double along = 0, length = 0, at[4];
        random_doubles(&g->random, direction, n, -1, 1);
        for (int64_t e = 0; e < n; e++) length += direction[e] * direction[e];
        for (int64_t e = 0; e < n; e++) along += gradient[e] * (direction[e] /= sqrt(length));
        for (int i = 0; i < 4; i++) {
            for (int64_t e = 0; e < n; e++) flat[e] = before[e] + steps[i] * direction[e];
            at[i] = weighed(g, s);
        }
        memcpy(flat, before, (size_t)n * sizeof *flat);
        double error = fabs((8 * (at[0] - at[1]) - (at[2] - at[3])) / 12e-3 - along);
        if (!(error <= worst)) worst = error;
    }
    attn_gradients_free(gradients);
    return worst;
}

static const char *name_of(const row *r)
{
    static char text[128];
    static const char *const form_names[FORMS] = {"softmax", "linear", "Performer", "Linformer"};
    snprintf(text, sizeof text, "%s, %s, %s, %s, %s (%d)", form_names[r->form], score_names[r->at[0]], head_names[r->at[1]],
             mask_names[r->at[2]], position_names[r->at[3]], r->number);
    return text;
}

static void check_gradients(const row *r)
{
    const int64_t q[2] = {small.queries, 5}, k[2] = {small.keys, 4}, v[2] = {small.keys, 3}, y[2] = {small.queries, 4};
    gradient_check g;
    scene s;
    gradient_open(&g, (uint64_t)r->number + 1);
    g.options.training = 1;
    open_scene(&s, g.ctx, r, &small, ATTN_FLOAT64);
    gradient_input(&g, 2, q, -1, 1);
    gradient_input(&g, 2, k, -1, 1);
    gradient_input(&g, 2, v, -1, 1);
    gradient_output(&g, 2, y);
    double error = gradient_error(&g, run_layer, &s), of_parameters = parameter_error(&g, &s);
    if (!(error < 1e-6)) fail_msg("%s: gradients of the inputs differ by %g", name_of(r), error);
    if (!(of_parameters < 1e-6)) fail_msg("%s: gradients of the parameters differ by %g", name_of(r), of_parameters);
    close_scene(&s);
    gradient_close(&g);
}

enum { RESULTS = 5 }; /* output, three gradients of inputs, that of all parameters */

/* without the padding between groups, which depends on the type */
static int64_t all_parameters(const attn_parameters *set)
{
    int64_t sum = 0;
    for (int64_t p = 0; p < attn_parameters_count(set); p++)
        sum += model_elements(attn_parameters_tensor((attn_parameters *)(uintptr_t)set, p));
    return sum;
}

static void run_once(const row *r, const lengths *n, int32_t backend, int32_t dtype, attn_tensor *results[RESULTS])
{
    const int64_t rows[4] = {n->queries, n->queries, n->keys, n->keys}, widths[4] = {4, 5, 4, 3};
    attn_context *ctx = model_context(backend, 2, 0);
    attn_tape *tape = NULL;
    attn_gradients *gradients = NULL;
    attn_tape_options options;
    attn_tensor *in[4];
    scene s;
    open_scene(&s, ctx, r, n, dtype);
    for (int i = 0; i < 4; i++) {
        results[i] = model_tensor(ctx, dtype, rows[i], widths[i]);
        in[i] = model_tensor(ctx, dtype, rows[i], widths[i]);
        fill(in[i], (uint64_t)i + 2, -1, 1);
    }
    OK(ctx, attn_gradients_create(ctx, attn_attention_parameters(s.layer), &gradients));
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_options_init(&options, sizeof options));
    options.training = 1;
    OK(ctx, attn_tape_begin(ctx, tape, &options));
    for (int i = 1; i < 4; i++) OK(ctx, attn_tape_watch(ctx, tape, in[i], results[i]));
    OK(ctx, attn_attention_forward(ctx, s.layer, tape, in[1], in[2], in[3], s.queries, s.keys, s.mask, results[0]));
    OK(ctx, attn_tape_backward(ctx, tape, 1, (const attn_tensor *const[]){results[0]}, (const attn_tensor *const[]){in[0]}, 1, &gradients));
    results[4] = model_tensor(ctx, dtype, all_parameters(attn_attention_parameters(s.layer)), 0);
    for (int64_t p = 0, at = 0; p < attn_parameters_count(attn_attention_parameters(s.layer)); p++) {
        const attn_tensor *one = attn_gradients_tensor(gradients, p);
        for (int64_t e = 0; e < model_elements(one); e++) model_set(results[4], at++, model_get(one, e));
    }
    for (int i = 0; i < 4; i++) attn_tensor_free(in[i]);
    attn_tape_free(tape);
    attn_gradients_free(gradients);
    close_scene(&s);
    attn_context_free(ctx);
}

static void check_backends(const row *r, const lengths *n)
{
    static const char *const names[RESULTS] = {"output", "gradient of query", "gradient of key", "gradient of value",
                                               "gradient of the parameters"};
    attn_tensor *got[RESULTS], *want[RESULTS];
    run_once(r, n, ATTN_BACKEND_BLAS, ATTN_FLOAT32, got);
    run_once(r, n, ATTN_BACKEND_REFERENCE, ATTN_FLOAT64, want);
    for (int i = 0; i < RESULTS; i++) {
        double largest = 1, worst = 0;
        for (int64_t e = 0; e < model_elements(want[i]); e++) {
            double w = model_get(want[i], e), error = fabs(model_get(got[i], e) - w);
            if (fabs(w) > largest) largest = fabs(w);
            if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
        }
        if (!(worst <= 2e-5 * largest)) fail_msg("%s: %s differs by %g of %g", name_of(r), names[i], worst, largest);
        attn_tensor_free(got[i]);
        attn_tensor_free(want[i]);
    }
}

/* 1 when some head of query i of a segment sees key j of it */
static int sees(const scene *s, int64_t heads, int64_t segment, int64_t i, int64_t j)
{
    const attn__segments queries = attn__layout_segments(s->queries), keys = attn__layout_segments(s->keys);
    const attn__pair pair = {segment, &queries.at[segment], &keys.at[segment]};
    int seen = s->mask == NULL;
    for (int64_t h = 0; h < heads && !seen; h++) {
        uint8_t allowed = 1;
        int64_t low = 0, high = 0;
        int listed = attn__mask_row(s->mask, &pair, h, i, j, 1, &low, &high, &allowed);
        seen = low < high && (!listed || allowed);
    }
    return seen;
}

/* One key and its value are no numbers: rows that see it show it, and no bit of any other row changes. */
static void check_blocked(const row *r, double number)
{
    const int64_t widths[4] = {4, 5, 4, 3};
    const attn_attention_options o = options_of(r);
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    attn_tensor *in[4], *first = model_tensor(ctx, ATTN_FLOAT32, small.queries, 4);
    scene s;
    open_scene(&s, ctx, r, &small, ATTN_FLOAT32);
    for (int i = 0; i < 4; i++) {
        in[i] = model_tensor(ctx, ATTN_FLOAT32, i < 2 ? small.queries : small.keys, widths[i]);
        fill(in[i], (uint64_t)i + 2, -1, 1);
    }
    OK(ctx, attn_attention_forward(ctx, s.layer, NULL, in[1], in[2], in[3], s.queries, s.keys, s.mask, first));
    for (int64_t segment = 0, key = 0, query = 0; segment < SEGMENTS; key += small.key[segment], query += small.query[segment], segment++) {
        const int64_t j = small.key[segment] / 2;
        if (small.key[segment] == 0) continue;
        double kept[8];
        for (int e = 0; e < 7; e++) { /* 4 of the key, 3 of the value */
            attn_tensor *at = in[e < 4 ? 2 : 3];
            int64_t place = e < 4 ? (key + j) * 4 + e : (key + j) * 3 + e - 4;
            kept[e] = model_get(at, place);
            model_set(at, place, number);
        }
        OK(ctx, attn_attention_forward(ctx, s.layer, NULL, in[1], in[2], in[3], s.queries, s.keys, s.mask, in[0]));
        for (int64_t i = 0; i < small.queries; i++) {
            const int within = i >= query && i < query + small.query[segment], seen = within && sees(&s, o.heads, segment, i - query, j);
            const int same = memcmp((float *)attn_tensor_data(first) + i * 4, (float *)attn_tensor_data(in[0]) + i * 4, 16) == 0;
            if (same == seen)
                fail_msg("%s: key %d of segment %d is %g, row %d %s", name_of(r), (int)j, (int)segment, number, (int)i,
                         seen ? "sees it and does not show it" : "does not see it and changed");
        }
        for (int e = 0; e < 7; e++) model_set(in[e < 4 ? 2 : 3], e < 4 ? (key + j) * 4 + e : (key + j) * 3 + e - 4, kept[e]);
    }
    for (int i = 0; i < 4; i++) attn_tensor_free(in[i]);
    attn_tensor_free(first);
    close_scene(&s);
    attn_context_free(ctx);
}

static row rows[SCORES * HEADS * MASKS * POSITIONS + FORMS * 4 * HEADS];
static int rows_count;
static int make_rows(void **state)
{
    (void)state;
    rows_count = forms(rows, covering(rows));
    print_message("%d rows\n", rows_count);
    return 0;
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < rows_count; i++) check_gradients(&rows[i]);
}

static void test_backends(void **state)
{
    (void)state;
    for (int i = 0; i < rows_count; i++) check_backends(&rows[i], &small);
}

static void test_blocks(void **state)
{
    (void)state;
    for (int i = 0; i < rows_count; i += 3) check_backends(&rows[i], &large);
}

static void test_blocked(void **state)
{
    (void)state;
    for (int i = 0; i < rows_count; i++) check_blocked(&rows[i], i % 2 ? NAN : INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocked), cmocka_unit_test(test_gradients), cmocka_unit_test(test_backends),
                                       cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, make_rows, NULL);
}

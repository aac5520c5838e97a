/* Every product of linear layers and of attention that reaches BLAS is counted, and cost.h has foretold each multiply-add. */
#include "cost/products.h"

static void backward(attn_tape *tape, attn_tensor *output, attn_parameters *parameters)
{
    attn_gradients *gradients = NULL;
    if (attn_parameters_count(parameters) == 0) parameters = NULL;
    attn_tensor *ones = model_tensor(ctx, ATTN_FLOAT32, attn_tensor_extent(output, 0), attn_tensor_extent(output, 1));
    for (int64_t i = 0; i < model_elements(ones); i++) model_set(ones, i, 1);
    if (parameters != NULL) OK(ctx, attn_gradients_create(ctx, parameters, &gradients));
    const attn_tensor *outputs[] = {output}, *arriving[] = {ones};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, parameters != NULL, parameters != NULL ? &gradients : NULL));
    attn_gradients_free(gradients);
    attn_tensor_free(ones);
}

static attn_tape *tape_open(void)
{
    attn_tape *tape = NULL;
    attn_tape_options o;
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_options_init(&o, sizeof o));
    o.training = 1;
    OK(ctx, attn_tape_begin(ctx, tape, &o));
    return tape;
}

/* x of random numbers, and where its gradient goes */
typedef struct watched {
    attn_tensor *x, *d;
} watched;
static watched watch(attn_tape *tape, int64_t rows, int64_t width)
{
    watched w = {model_tensor(ctx, ATTN_FLOAT32, rows, width), model_tensor(ctx, ATTN_FLOAT32, rows, width)};
    random_state random = {(uint64_t)(rows + width)};
    random_floats(&random, attn_tensor_data(w.x), rows * width, -1, 1);
    OK(ctx, attn_tape_watch(ctx, tape, w.x, w.d));
    return w;
}
static void unwatch(watched *w)
{
    attn_tensor_free(w->x);
    attn_tensor_free(w->d);
}

/* m n k forward, and twice that backward, whichever way the product is cut: rows by gemv, tiles, borders */
static void test_linear(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 4, 5, 17, 64, 300, 1000}, widths[] = {1, 2, 7, 64, 129, 700};
    char what[64];
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            int64_t in = widths[i], out = widths[(i + r) % 6], products = rows[r] * in * out;
            attn_tape *tape = tape_open();
            watched x = watch(tape, rows[r], in), w = watch(tape, out, in);
            attn_tensor *y = model_tensor(ctx, ATTN_FLOAT32, rows[r], out);
            snprintf(what, sizeof what, "linear %d x %d x %d", (int)rows[r], (int)in, (int)out);
            counter_take();
            OK(ctx, attn_linear(ctx, tape, x.x, w.x, NULL, y));
            agree(what, counter_take(), products);
            backward(tape, y, NULL);
            agree(what, counter_take(), 2 * products);
            attn_tape_free(tape);
            unwatch(&x);
            unwatch(&w);
            attn_tensor_free(y);
        }
}

/* a layer of some heads on sequences of these lengths; keys NULL: on themselves */
typedef struct layer_case {
    int64_t heads, key_heads, size, value_size, count, queries[4], keys[4];
    int32_t projected;
} layer_case;

static int64_t total(const layer_case *c, const int64_t *lengths, int64_t *longest)
{
    int64_t sum = 0;
    *longest = 0;
    for (int64_t i = 0; i < c->count; i++) {
        sum += lengths[i];
        *longest = lengths[i] > *longest ? lengths[i] : *longest;
    }
    return sum;
}

static attn_attention_options options_of(const layer_case *c)
{
    attn_attention_options o;
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.heads = c->heads;
    o.key_heads = c->key_heads;
    o.head_size = c->size;
    o.value_head_size = c->value_size;
    o.query_width = c->projected ? 24 : c->heads * c->size;
    o.key_width = c->projected ? 20 : c->key_heads * c->size;
    o.value_width = c->projected ? 28 : c->key_heads * c->value_size;
    o.output_width = c->projected ? 24 : c->heads * c->value_size;
    o.project_query = o.project_key = o.project_value = o.project_output = c->projected;
    o.bias_query = o.bias_key = o.bias_value = o.bias_output = c->projected;
    return o;
}

/* of causal linear attention no more reaches BLAS than is foretold: nobody needs what the last chunk would leave to a next one */
static void compare(int bound, const char *what, int64_t counted, int64_t foretold)
{
    if (!bound) {
        agree(what, counted, foretold);
    } else if (counted > foretold || foretold > 2 * counted) {
        fail_msg("%s: %lld multiply-adds reached BLAS, %lld were foretold", what, (long long)counted, (long long)foretold);
    }
}

/* formula: where every pair is seen, it is the monograph's */
static void run_options(const layer_case *c, const attn_attention_options *options, int kind, int formula, const char *name)
{
    const attn_attention_options o = *options;
    const int self = c->keys[0] == 0;
    int64_t longest, longest_key, rows = total(c, c->queries, &longest), key_rows = total(c, self ? c->queries : c->keys, &longest_key);
    attn_layout *q = layout_of(c->count, c->queries), *k = layout_of(c->count, self ? c->queries : c->keys);
    attn_mask *mask = mask_of(kind, longest, longest_key);
    attn_attention *layer = NULL;
    attn_cost_report r = {.struct_size = sizeof r};
    char what[128];
    OK(ctx, attn_attention_create(ctx, &o, &layer));
    OK(ctx, attn_attention_cost(ctx, &o, q, k, mask, &r));
    attn_tape *tape = tape_open();
    watched query = watch(tape, rows, o.query_width), key = watch(tape, key_rows, o.key_width),
            value = watch(tape, key_rows, o.value_width);
    attn_tensor *output = model_tensor(ctx, ATTN_FLOAT32, rows, o.output_width);
    snprintf(what, sizeof what, "%d heads of %d, %d keys' heads, %d rows on %d, the longest %d, %s%s", (int)c->heads, (int)c->size,
             (int)c->key_heads, (int)rows, (int)key_rows, (int)longest, mask_names[kind], name);
    int64_t parameters = 0;
    for (int64_t i = 0; i < attn_parameters_count(attn_attention_parameters(layer)); i++)
        parameters += model_elements(attn_parameters_tensor(attn_attention_parameters(layer), i));
    assert_int_equal(r.parameters, parameters);
    counter_take();
    OK(ctx, attn_attention_forward(ctx, layer, tape, query.x, key.x, value.x, q, k, mask, output));
    compare(mask != NULL && (o.form == ATTN_FORM_LINEAR || o.form == ATTN_FORM_PERFORMER), what, counter_take(), r.forward);
    if (kind == FULL && formula) assert_int_equal(r.forward, r.forward_formula);
    backward(tape, output, attn_attention_parameters(layer));
    compare(mask != NULL && (o.form == ATTN_FORM_LINEAR || o.form == ATTN_FORM_PERFORMER), what, counter_take(), r.backward);
    attn_tape_free(tape);
    unwatch(&query);
    unwatch(&key);
    unwatch(&value);
    attn_tensor_free(output);
    attn_attention_free(layer);
    attn_mask_free(mask);
    attn_layout_free(q);
    attn_layout_free(k);
}

static const layer_case layers[] = {
    {4, 2, 8, 8, 4, {100, 3, 0, 257}, {0}, 1},       /* unequal lengths, one sweep */
    {2, 1, 16, 5, 2, {64, 65}, {0}, 0},              /* without projections */
    {1, 1, 8, 8, 1, {300}, {0}, 1},                  /* two sweeps */
    {3, 3, 40, 8, 1, {500}, {0}, 1},                 /* the same with more heads */
    {2, 1, 8, 12, 3, {30, 200, 7}, {5, 90, 400}, 1}, /* of other lengths than the queries' */
    {2, 2, 4, 4, 1, {1000}, {0}, 1},                 /* long segments: tall tiles */
    {2, 2, 4, 4, 2, {3, 1}, {900, 40}, 1},           /* few queries: long rows of keys */
    {1, 1, 600, 4, 1, {130}, {0}, 0},                /* heads so wide that fewer keys make a block */
    {4, 4, 8, 8, 3, {1, 2, 5}, {0}, 1},              /* products of few rows */
    {6, 1, 8, 8, 2, {1, 1}, {70, 300}, 1},           /* one query */
};

static void run_layer(const layer_case *c, int kind)
{
    const attn_attention_options o = options_of(c);
    run_options(c, &o, kind, 1, "");
}

/* scores, positions and what else a layer may have; those of relative tables are not counted */
static void test_family(void **state)
{
    (void)state;
    static const layer_case two[2] = {{4, 2, 16, 8, 3, {70, 1, 30}, {0}, 1}, {2, 2, 8, 24, 2, {5, 300}, {140, 9}, 1}};
    for (int c = 0; c < 2; c++)
        for (int which = 0; which < 10; which++)
            for (int kind = FULL; kind <= FULL + 1; kind++) {
                attn_attention_options o = options_of(&two[c]);
                static const char *const names[10] = {", additive", ", multiplicative", ", rotary", ", T5",        ", ALiBi",
                                                      ", gated",    ", normed",         ", linear", ", Performer", ", Linformer"};
                if (which == 0) o.score = ATTN_SCORE_ADDITIVE;
                if (which == 1) o.score = ATTN_SCORE_MULTIPLICATIVE, o.key_head_size = 12;
                if (which == 2) o.positions = ATTN_POSITIONS_ROTARY;
                if (which == 3) o.positions = ATTN_POSITIONS_T5;
                if (which == 4) o.positions = ATTN_POSITIONS_ALIBI;
                if (which >= 7) o.form = which - 6; /* ATTN_FORM_LINEAR and on */
                if (o.form == ATTN_FORM_LINFORMER && kind != FULL) continue;
                o.projected = 16;
                o.longest = 150;
                o.gated_output = which == 5;
                o.query_key_norm = which == 6;
                run_options(&two[c], &o, kind, 0, names[which]);
            }
    for (int c = 0; c < 2; c++) { /* rows that the mask names have projections of their own */
        attn_attention_options o = options_of(&two[c]);
        o.global_projections = 1;
        run_options(&two[c], &o, GLOBAL, 0, ", global projections");
        run_options(&two[c], &o, CAUSAL, 0, ", global projections"); /* names none */
    }
}

static void test_layers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int kind = 0; kind < MASKS; kind++) run_layer(&layers[i], kind);
}

/* Sequences that share keys, as beams share the encoder's rows, in no order: each key segment is one job of the backward. */
static void test_shared_keys(void **state)
{
    (void)state;
    enum { HEADS = 3, SIZE = 8, QUERIES = 3 * 130, KEYS = 400 };
    const attn_segment keys[3] = {{200, 200, 0, 0}, {0, 200, 0, 1}, {200, 200, 0, 2}};
    const int64_t lengths[3] = {130, 130, 130}, shapes[2][3] = {{QUERIES, HEADS, SIZE}, {KEYS, HEADS, SIZE}};
    attn_layout *q = layout_of(3, lengths), *k = NULL;
    attn_attention_options o;
    attn_cost_report r = {.struct_size = sizeof r};
    attn_tensor *at[4], *d[4], *ones = NULL;
    OK(ctx, attn_layout_create(ctx, 3, &k));
    OK(ctx, attn_layout_set(ctx, k, 3, keys));
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.heads = HEADS;
    o.query_width = o.key_width = o.value_width = o.output_width = HEADS * SIZE;
    o.project_query = o.project_key = o.project_value = o.project_output = 0;
    o.bias_query = o.bias_key = o.bias_value = o.bias_output = 0;
    OK(ctx, attn_attention_cost(ctx, &o, q, k, NULL, &r));
    attn_tape *tape = tape_open();
    for (int i = 0; i < 4; i++) {
        OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 3, shapes[i == 1 || i == 2], &at[i]));
        OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 3, shapes[i == 1 || i == 2], &d[i]));
        if (i < 3) OK(ctx, attn_tape_watch(ctx, tape, at[i], d[i]));
    }
    OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 3, shapes[0], &ones));
    counter_take();
    OK(ctx, attn_dot_product_attention(ctx, tape, at[0], at[1], at[2], q, k, NULL, NULL, at[3]));
    agree("shared keys", counter_take(), r.forward);
    const attn_tensor *outputs[] = {at[3]}, *arriving[] = {ones};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, 0, NULL));
    agree("shared keys", counter_take(), r.backward);
    for (int i = 0; i < 4; i++) {
        attn_tensor_free(at[i]);
        attn_tensor_free(d[i]);
    }
    attn_tensor_free(ones);
    attn_tape_free(tape);
    attn_layout_free(q);
    attn_layout_free(k);
}

/* Causal linear attention of one sequence: pairs within chunks of 64, and each chunk's keys summed once before it is needed and once along
   the way. What is foretold beyond what is counted are the sums that nobody reads: those of the block, and those behind the last chunk. */
static void test_causal_linear(void **state)
{
    (void)state;
    enum { HEADS = 2, SIZE = 8, VALUES = 12 };
    static const int64_t lengths[] = {1, 2, 63, 64, 65, 100, 128, 130, 512};
    attn_attention_options o;
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.form = ATTN_FORM_LINEAR;
    o.heads = HEADS;
    o.query_width = o.key_width = HEADS * SIZE;
    o.value_width = o.output_width = HEADS * VALUES;
    o.project_query = o.project_key = o.project_value = o.project_output = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int64_t n = lengths[i], rest = n % 64, last = rest == 0 ? 64 : rest, pairs = (n - rest) * 64 + rest * rest;
        attn_layout *layout = layout_of(1, &n);
        attn_mask *mask = mask_of(CAUSAL, 0, 0);
        attn_attention *layer = NULL;
        attn_cost_report r = {.struct_size = sizeof r};
        attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, n, HEADS * SIZE), *v = model_tensor(ctx, ATTN_FLOAT32, n, HEADS * VALUES);
        attn_tensor *y = model_tensor(ctx, ATTN_FLOAT32, n, HEADS * VALUES);
        OK(ctx, attn_attention_create(ctx, &o, &layer));
        OK(ctx, attn_attention_cost(ctx, &o, layout, layout, mask, &r));
        assert_int_equal(r.forward, HEADS * (3 * n * SIZE * (VALUES + 1) + pairs * (SIZE + VALUES + 1)));
        counter_take();
        OK(ctx, attn_attention_forward(ctx, layer, NULL, x, x, v, layout, layout, mask, y));
        agree("causal linear attention", counter_take() + HEADS * (n + last) * SIZE * (VALUES + 1), r.forward);
        attn_tensor_free(x);
        attn_tensor_free(v);
        attn_tensor_free(y);
        attn_attention_free(layer);
        attn_mask_free(mask);
        attn_layout_free(layout);
    }
}

/* one product less where the input is one tensor; the multiply-adds are the same */
static void test_self_attention(void **state)
{
    (void)state;
    const int64_t lengths[2] = {90, 33};
    attn_attention_options o;
    attn_cost_report r = {.struct_size = sizeof r};
    attn_attention *layer = NULL;
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.heads = 4;
    o.query_width = 32;
    attn_layout *layout = layout_of(2, lengths);
    attn_mask *mask = mask_of(CAUSAL, 0, 0);
    OK(ctx, attn_attention_create(ctx, &o, &layer));
    OK(ctx, attn_attention_cost(ctx, &o, layout, layout, mask, &r));
    attn_tape *tape = tape_open();
    watched x = watch(tape, 123, 32);
    attn_tensor *output = model_tensor(ctx, ATTN_FLOAT32, 123, 32);
    counter_take();
    OK(ctx, attn_attention_forward(ctx, layer, tape, x.x, x.x, x.x, layout, layout, mask, output));
    agree("self-attention", counter_take(), r.forward);
    backward(tape, output, attn_attention_parameters(layer));
    agree("self-attention", counter_take(), r.backward);
    attn_tape_free(tape);
    unwatch(&x);
    attn_tensor_free(output);
    attn_attention_free(layer);
    attn_mask_free(mask);
    attn_layout_free(layout);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linear),      cmocka_unit_test(test_layers),
                                       cmocka_unit_test(test_family),      cmocka_unit_test(test_self_attention),
                                       cmocka_unit_test(test_shared_keys), cmocka_unit_test(test_causal_linear)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

int main(void)
{
    return run_counted("products", run);
}

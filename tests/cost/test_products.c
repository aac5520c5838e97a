/* Every product that reaches BLAS is counted, and cost.h has foretold each multiply-add. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "cost/counter.h"
#include "support/model.h"

static attn_context *ctx;
static int64_t cases, counted_sum, foretold_sum;

static void agree(const char *what, int64_t counted, int64_t foretold)
{
    cases++;
    counted_sum += counted;
    foretold_sum += foretold;
    if (counted != foretold)
        fail_msg("%s: %lld multiply-adds reached BLAS, %lld were foretold", what, (long long)counted, (long long)foretold);
}

static attn_layout *layout_of(int64_t count, const int64_t *lengths)
{
    attn_layout *made = NULL;
    OK(ctx, attn_layout_create(ctx, count, &made));
    OK(ctx, attn_layout_set_lengths(ctx, made, count, lengths, 0));
    return made;
}

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

enum { FULL, CAUSAL, CAUSAL_FIRST, WINDOW, DILATED, BOOLEAN, UNION, INTERSECTION, MASKS };
static const char *const mask_names[MASKS] = {"full",    "causal", "causal from the first", "window", "dilated window",
                                              "boolean", "union",  "intersection"};

/* blocks of 40 by 50 on a chessboard */
static attn_mask *boolean_mask(int64_t queries, int64_t keys)
{
    const int64_t shape[4] = {1, 1, queries, keys};
    attn_tensor *allowed = NULL;
    attn_mask *made = NULL;
    OK(ctx, attn_tensor_create(ctx, ATTN_UINT8, 4, shape, &allowed));
    uint8_t *at = attn_tensor_data(allowed);
    for (int64_t i = 0; i < queries; i++)
        for (int64_t j = 0; j < keys; j++) at[i * keys + j] = (i / 40 + j / 50) % 2 == 0;
    OK(ctx, attn_mask_boolean(ctx, allowed, &made));
    attn_tensor_free(allowed);
    return made;
}

static attn_mask *mask_of(int kind, int64_t queries, int64_t keys)
{
    attn_mask *made = NULL, *window = NULL, *other = NULL;
    switch (kind) {
    case CAUSAL: OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &made)); return made;
    case CAUSAL_FIRST: OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_FIRST, &made)); return made;
    case WINDOW: OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 70, 3, 1, &made)); return made;
    case DILATED: OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_FIRST, 9, 0, 13, &made)); return made;
    case BOOLEAN: return boolean_mask(queries, keys);
    case UNION:
    case INTERSECTION:
        OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 100, 100, 1, &window));
        other = boolean_mask(queries, keys);
        if (kind == UNION)
            OK(ctx, attn_mask_union(ctx, window, other, &made));
        else
            OK(ctx, attn_mask_intersection(ctx, window, other, &made));
        attn_mask_free(window);
        attn_mask_free(other);
        return made;
    default: return NULL;
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

static void run_layer(const layer_case *c, int kind)
{
    const int self = c->keys[0] == 0;
    int64_t longest, longest_key, rows = total(c, c->queries, &longest), key_rows = total(c, self ? c->queries : c->keys, &longest_key);
    const attn_attention_options o = options_of(c);
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
    snprintf(what, sizeof what, "%d heads of %d, %d keys' heads, %d rows on %d, the longest %d, %s", (int)c->heads, (int)c->size,
             (int)c->key_heads, (int)rows, (int)key_rows, (int)longest, mask_names[kind]);
    counter_take();
    OK(ctx, attn_attention_forward(ctx, layer, tape, query.x, key.x, value.x, q, k, mask, output));
    agree(what, counter_take(), r.forward);
    if (kind == FULL) assert_int_equal(r.forward, r.forward_formula); /* the monograph's formula, where every pair is seen */
    backward(tape, output, attn_attention_parameters(layer));
    agree(what, counter_take(), r.backward);
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

static void test_layers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int kind = 0; kind < MASKS; kind++) run_layer(&layers[i], kind);
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

/* the models that models.h of this test is about: every switch that changes products */
enum { MODELS = 14 };
static attn_transformer_options model_case(int which, char *what, size_t size)
{
    const int64_t encoder[MODELS] = {0, 2, 1, 1, 0, 0, 2, 2, 0, 1, 2, 0, 1, 0},
                  decoder[MODELS] = {2, 0, 1, 2, 2, 2, 0, 1, 2, 1, 2, 1, 1, 2};
    attn_transformer_options o = model_options(encoder[which], decoder[which]);
    o.heads = 4;
    o.context = 2000;
    o.norm_placement = which % 2 ? ATTN_PLACEMENT_POST : ATTN_PLACEMENT_PRE;
    o.key_heads = which % 3 == 1 ? 2 : which % 3 == 2 ? 1 : ATTN_DERIVED;
    o.gated = which % 4 == 2;
    if (o.gated) o.activation = ATTN_ACTIVATION_SWISH;
    o.learned_beta = o.gated;
    if (encoder[which] > 0 && decoder[which] > 0 && which % 3 == 0) {
        o.decoder_width = 12;
        o.decoder_heads = 2;
        o.decoder_feed_forward = 20;
        o.key_heads = ATTN_DERIVED;
    }
    if (which == 5) o.head_size = 5;
    if (which == 8) o.parallel_block = 1;
    if (which == 4 || which == 10) o.checkpoint_layers = 1;
    if (which == 6) o.tie = ATTN_TIE_OUTPUT;
    if (which == 13) o.attention_bias = o.feed_forward_bias = 0;
    o.dropout_attention = o.dropout_sublayer = which % 2 ? 0.1 : 0;
    snprintf(what, size, "model %d of %d encoder and %d decoder layers", which, (int)encoder[which], (int)decoder[which]);
    return o;
}

/* packed sequences of unequal lengths */
enum { BATCHES = 3 };
static const struct {
    int64_t count, source[4], target[4];
} batches[BATCHES] = {{4, {5, 70, 1, 33}, {66, 7, 130, 1}}, {1, {300}, {280}}, {2, {3, 2}, {2, 3}}};

static void run_model(int which, int b)
{
    char what[96];
    const attn_transformer_options o = model_case(which, what, sizeof what);
    attn_transformer *model = model_create(ctx, &o);
    attn_trainer *trainer = NULL;
    attn_cost_report r = {.struct_size = sizeof r}, inference = r;
    model_batch batch;
    model_batch_open(ctx, &batch, &o, batches[b].count, batches[b].source, batches[b].target, 3);
    OK(ctx, attn_transformer_cost(ctx, &o, 1, batch.source_layout, batch.target_layout, &r));
    OK(ctx, attn_transformer_cost(ctx, &o, 0, batch.source_layout, batch.target_layout, &inference));
    assert_int_equal(r.forward, inference.forward);
    int64_t classes = o.target_vocabulary == ATTN_DERIVED ? o.source_vocabulary : o.target_vocabulary;
    attn_tensor *logits = model_tensor(ctx, ATTN_FLOAT32, batch.rows, classes);
    counter_take();
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, logits));
    agree(what, counter_take(), inference.forward);
    OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
    OK(ctx, attn_trainer_step(ctx, trainer, &batch.batch, NULL));
    agree(what, counter_take(), r.forward + r.backward);
    attn_trainer_free(trainer);
    attn_tensor_free(logits);
    model_batch_close(&batch);
    attn_transformer_free(model);
}

static void test_models(void **state)
{
    (void)state;
    for (int which = 0; which < MODELS; which++)
        for (int b = 0; b < BATCHES; b++) run_model(which, b);
}

/* the prompt and the step after it; from then on a step costs one key more in each layer of each sequence */
static void run_generation(int which, int b)
{
    char what[96];
    const attn_transformer_options o = model_case(which, what, sizeof what);
    attn_transformer *model = model_create(ctx, &o);
    attn_generator *generator = NULL;
    attn_generator_options g;
    attn_cost_report r = {.struct_size = sizeof r};
    model_batch batch;
    int32_t tokens[4], finished[4];
    model_batch_open(ctx, &batch, &o, batches[b].count, batches[b].source, batches[b].target, 3);
    OK(ctx, attn_transformer_cost(ctx, &o, 0, batch.source_layout, batch.target_layout, &r));
    OK(ctx, attn_generator_options_init(&g, sizeof g));
    g.sequences = batches[b].count;
    OK(ctx, attn_generator_create(ctx, model, &g, &generator));
    counter_take();
    OK(ctx, attn_generator_prompt(ctx, generator, &batch.batch));
    agree(what, counter_take(), r.prompt);
    int64_t width = o.decoder_width == ATTN_DERIVED ? o.width : o.decoder_width,
            heads = o.decoder_heads == ATTN_DERIVED ? o.heads : o.decoder_heads,
            size = o.head_size == ATTN_DERIVED ? width / heads : o.head_size;
    for (int64_t step = 0; step < 5; step++) {
        OK(ctx, attn_generator_step(ctx, generator, g.sequences, tokens, finished));
        agree(what, counter_take(), r.decode + step * g.sequences * o.decoder_layers * heads * 2 * size);
    }
    attn_generator_free(generator);
    model_batch_close(&batch);
    attn_transformer_free(model);
}

static void test_generation(void **state)
{
    (void)state;
    for (int which = 0; which < MODELS; which++)
        for (int b = 0; b < BATCHES; b++) {
            char what[96];
            if (model_case(which, what, sizeof what).decoder_layers > 0) run_generation(which, b);
        }
}

/* masks of layers, in a trainer: what the kernels do with them is what attn_attention_cost lists */
static void test_masks_of_layers(void **state)
{
    (void)state;
    const int64_t lengths[2] = {150, 90};
    for (int kind = CAUSAL_FIRST; kind < MASKS; kind++) {
        attn_transformer_options o = model_options(0, 2);
        attn_transformer *model = model_create(ctx, &o);
        attn_mask *mask = mask_of(kind, 150, 150);
        attn_trainer *trainer = NULL;
        attn_cost_report r = {.struct_size = sizeof r}, usual = r, masked = r;
        attn_attention_options a;
        model_batch batch;
        model_batch_open(ctx, &batch, &o, 2, NULL, lengths, 3);
        OK(ctx, attn_transformer_cost(ctx, &o, 1, NULL, batch.target_layout, &r));
        OK(ctx, attn_attention_options_init(&a, sizeof a));
        a.heads = o.heads;
        a.query_width = o.width;
        attn_mask *causal = mask_of(CAUSAL, 0, 0);
        OK(ctx, attn_attention_cost(ctx, &a, batch.target_layout, batch.target_layout, causal, &usual));
        OK(ctx, attn_attention_cost(ctx, &a, batch.target_layout, batch.target_layout, mask, &masked));
        OK(ctx, attn_transformer_set_mask(ctx, model, 1, 1, mask)); /* the second layer alone */
        OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
        counter_take();
        OK(ctx, attn_trainer_step(ctx, trainer, &batch.batch, NULL));
        agree(mask_names[kind], counter_take(), r.forward + r.backward - usual.forward - usual.backward + masked.forward + masked.backward);
        attn_trainer_free(trainer);
        attn_mask_free(mask);
        attn_mask_free(causal);
        model_batch_close(&batch);
        attn_transformer_free(model);
    }
}

static int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    attn_tensor *one = model_tensor(ctx, ATTN_FLOAT32, 1, 1), *y = model_tensor(ctx, ATTN_FLOAT32, 1, 1);
    OK(ctx, attn_linear(ctx, NULL, one, one, NULL, y)); /* the first computation tries BLAS */
    attn_tensor_free(one);
    attn_tensor_free(y);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linear),         cmocka_unit_test(test_layers),
                                       cmocka_unit_test(test_self_attention), cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_generation),     cmocka_unit_test(test_masks_of_layers)};
    if (!counter_works()) {
        printf("BLAS is linked into this program: its products cannot be counted\n");
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    printf("products: %lld in %lld cases, %lld multiply-adds counted, %lld foretold\n", (long long)counter_calls, (long long)cases,
           (long long)counted_sum, (long long)foretold_sum);
    return failed;
}

/* Attention, layers and losses: faults of other libraries as test cases. */
#include "bug.h"
#include "kernels/kernels.h"

/* a blocked head: the call that also gives the weights agrees with the one that does not */
static void blocked_head(void)
{
    uint8_t allowed[3 * 5 * 5];
    memset(allowed, 1, sizeof allowed);
    memset(allowed + 2 * 25, 0, 25);
    attn_mask *mask = boolean(3, 5, 5, allowed);
    attn_tensor *q = noise(SHAPE(5, 3, 1), 1), *k = noise(SHAPE(5, 3, 1), 2), *v = noise(SHAPE(5, 3, 1), 3),
                *y = tensor(SHAPE(5, 3, 1), NULL);
    attend(NULL, q, k, v, mask, y);
    const attn__kernels *table;
    const attn_segment all = {0, 5, 0, 0};
    float weights[3 * 5 * 5];
    attn__attention_arguments a = {.query_segments = {1, 5, &all}, .key_segments = {1, 5, &all}, .mask = mask, .scale = 1};
    OK(ctx, attn__kernels_for(ctx, ATTN_FLOAT32, &table));
    OK(ctx, attn__heads(ctx, "q", q, 0, &a.query));
    OK(ctx, attn__heads(ctx, "k", k, 0, &a.key));
    OK(ctx, attn__heads(ctx, "v", v, 0, &a.value));
    view to = {weights, 5, 3, 5, 5, 25, ATTN_FLOAT32, 0}; /* [heads, queries, keys] */
    OK(ctx, table->attention_weights(ctx, &a, &(attn__weights_part){0, 0, 0}, &to));
    for (int h = 0; h < 3; h++)
        for (int i = 0; i < 5; i++) {
            double want = 0;
            for (int j = 0; j < 5; j++) want += (double)weights[(h * 5 + i) * 5 + j] * model_get(v, j * 3 + h);
            near_to(y, i * 3 + h, want, 1e-6);
            for (int j = 0; h == 2 && j < 5; j++) assert_true(weights[(h * 5 + i) * 5 + j] == 0);
            if (h == 2) assert_true(model_get(y, i * 3 + h) == 0);
        }
    attn_mask_free(mask);
    FREE(q, k, v, y);
}
static void test_B001_blocked_head(void **state)
{
    (void)state;
    on_both(blocked_head);
}

static const float units[25] = {1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1};

static void merged_masks(void)
{
    uint8_t open[25];
    for (int i = 0; i < 25; i++) open[i] = i % 5 != 4; /* key 4 is padding, for every query */
    attn_mask *padding = boolean(1, 5, 5, open), *causal, *both;
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &causal));
    OK(ctx, attn_mask_intersection(ctx, causal, padding, &both));
    attn_tensor *zero = tensor(SHAPE(5, 1, 5), NULL), *v = tensor(SHAPE(5, 1, 5), units), *y = tensor(SHAPE(5, 1, 5), NULL);
    attend(NULL, zero, zero, v, both, y);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) near_to(y, i * 5 + j, j > i || j == 4 ? 0 : i == 4 ? 0.25 : 1.0 / (i + 1), 1e-6);
    attn_mask_free(padding);
    attn_mask_free(causal);
    attn_mask_free(both);
    FREE(zero, v, y);
}
static void test_B003_merged_masks(void **state)
{
    (void)state;
    on_both(merged_masks);
}

/* two masks that block the same cell, and a row that both block: logic, not sums */
static void twice_blocked(void)
{
    const uint8_t a[9] = {1, 1, 0, 0, 0, 0, 1, 0, 0}, b[9] = {1, 1, 0, 0, 0, 0, 0, 1, 0};
    attn_mask *one = boolean(1, 3, 3, a), *two = boolean(1, 3, 3, b), *both, *either;
    OK(ctx, attn_mask_intersection(ctx, one, two, &both));
    OK(ctx, attn_mask_union(ctx, one, two, &either));
    attn_tensor *x = noise(SHAPE(3, 1, 4), 5), *dx = filled(SHAPE(3, 1, 4), NAN), *y = tensor(SHAPE(3, 1, 4), NULL);
    for (int which = 0; which < 2; which++) {
        attn_tape *tape = tape_open(0, 0);
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        attend(tape, x, x, x, which ? either : both, y);
        backward(tape, y);
        all_finite(y);
        all_finite(dx);
        for (int c = 0; c < 4; c++) assert_true(model_get(y, 4 + c) == 0);                /* row 1 sees nothing */
        for (int c = 0; !which && c < 4; c++) assert_true(model_get(y, 8 + c) == 0);      /* row 2: no key that both let through */
        for (int c = 0; c < 4; c++) assert_true(model_get(dx, 8 + c) == 0 || which == 1); /* key 2 is blocked everywhere */
        attn_tape_free(tape);
    }
    attn_mask *all[] = {one, two, both, either};
    for (int i = 0; i < 4; i++) attn_mask_free(all[i]);
    FREE(x, dx, y);
}
static void test_B010_twice_blocked(void **state)
{
    (void)state;
    on_both(twice_blocked);
}

/* a sequence alone, twice in a batch, and behind another one */
static void batch_of_one(void)
{
    const int32_t tokens[] = {3, 1, 4, 1};
    attn_transformer_options o = model_options(0, 2);
    attn_transformer *model = model_create(ctx, &o);
    double first[11];
    const struct {
        int64_t count, lengths[2];
    } cases[] = {{1, {4}}, {2, {4, 4}}, {2, {3, 4}}};
    for (int n = 0; n < 3; n++) {
        int64_t rows = 0, shift = cases[n].count == 2 ? cases[n].lengths[0] : 0;
        for (int64_t s = 0; s < cases[n].count; s++) rows += cases[n].lengths[s];
        attn_tensor *target = model_tensor(ctx, ATTN_INT32, rows, 0), *y = tensor(SHAPE(rows, 11), NULL);
        attn_layout *layout = lengths(cases[n].count, cases[n].lengths);
        for (int64_t i = 0; i < rows; i++) model_set(target, i, i < shift && shift == 3 ? 7 : tokens[(i - shift + 4) % 4]);
        attn_batch batch;
        OK(ctx, attn_batch_init(&batch, sizeof batch));
        batch.target = target;
        batch.target_layout = layout;
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch, y));
        for (int c = 0; c < 11; c++) {
            if (n == 0) first[c] = model_get(y, 3 * 11 + c);
            near_to(y, (rows - 1) * 11 + c, first[c], 1e-5);
            if (n == 1) near_to(y, 3 * 11 + c, first[c], 1e-5);
        }
        attn_layout_free(layout);
        FREE(target, y);
    }
    attn_transformer_free(model);
}
static void test_B017_batch_of_one(void **state)
{
    (void)state;
    on_both(batch_of_one);
}

static attn_attention *wide_heads(void)
{
    attn_attention *layer;
    attn_attention_options o;
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = o.head_size = 16;
    o.heads = 2;
    o.key_heads = 1;
    o.project_output = 0;
    OK(ctx, attn_attention_create(ctx, &o, &layer));
    return layer;
}

/* an explicit head size rules the shapes, the scale and the cache */
static void head_size(void)
{
    attn_attention *layer = wide_heads();
    attn_parameters *p = attn_attention_parameters(layer);
    const char *const names[] = {"query.weight", "key.weight", "value.weight"};
    for (int i = 0; i < 3; i++) {
        attn_tensor *w = attn_parameters_tensor(p, attn_parameters_find(p, names[i]));
        assert_int_equal(attn_tensor_extent(w, 0), i == 0 ? 32 : 16);
        assert_int_equal(attn_tensor_extent(w, 1), 16);
        for (int64_t e = 0; e < model_elements(w); e++) model_set(w, e, e / 16 % 16 == e % 16);
    }
    attn_tensor *x = filled(SHAPE(2, 16), 1), *y = tensor(SHAPE(2, 32), NULL);
    for (int c = 0; c < 16; c++) model_set(x, 16 + c, 0);
    OK(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, NULL, y));
    for (int c = 0; c < 32; c++) near_to(y, c, 0.982013790, 1e-6); /* a score of 16 / sqrt(16), not 16 / sqrt(8) */
    attn_attention_free(layer);
    FREE(x, y);

    enum { LAYERS = 2 };
    attn_transformer_options o = model_options(0, LAYERS);
    o.width = o.head_size = 16;
    o.heads = 2;
    o.key_heads = 1;
    attn_transformer *model = model_create(ctx, &o);
    int64_t live[2];
    for (int i = 0; i < 2; i++) {
        attn_generator *generator;
        attn_generator_options g;
        attn_memory_report before = {.struct_size = sizeof before}, after = before;
        OK(ctx, attn_generator_options_init(&g, sizeof g));
        g.capacity = 64 * (i + 1);
        OK(ctx, attn_context_memory(ctx, &before));
        OK(ctx, attn_generator_create(ctx, model, &g, &generator));
        OK(ctx, attn_context_memory(ctx, &after));
        live[i] = after.live - before.live;
        attn_generator_free(generator);
    }
    assert_int_equal(live[1] - live[0], 64 * (LAYERS * 128 + (int64_t)sizeof(int32_t))); /* 128 bytes a token and layer, and the token */
    attn_transformer_free(model);
}
static void test_B021_head_size(void **state)
{
    (void)state;
    on_both(head_size);
}

static void activations(void)
{
    const struct {
        int32_t kind;
        float beta;
        double want;
    } cases[] = {{ATTN_ACTIVATION_GELU, 0, 0.841345}, {ATTN_ACTIVATION_GELU_TANH, 0, 0.841192}, {ATTN_ACTIVATION_SWISH, 1.702f, 0.845796}};
    attn_tensor *x = tensor(SHAPE(1), NUMBERS(1)), *y = filled(SHAPE(1), -7), *beta = tensor(SHAPE(1), NULL);
    for (int i = 0; i < 3; i++) {
        model_set(beta, 0, (double)cases[i].beta);
        OK(ctx, attn_activation(ctx, NULL, cases[i].kind, x, cases[i].beta != 0 ? beta : NULL, y));
        near_to(y, 0, cases[i].want, 2e-6);
    }
    model_set(y, 0, -7);
    FAILS(ctx, attn_activation(ctx, NULL, 99, x, NULL, y), ATTN_ERROR_INVALID_ARGUMENT, "activation");
    FAILS(ctx, attn_activation(ctx, NULL, -1, x, NULL, y), ATTN_ERROR_INVALID_ARGUMENT, "activation");
    assert_true(model_get(y, 0) == -7);
    FREE(x, y, beta);
}
static void test_B061_activations_by_number(void **state)
{
    (void)state;
    on_both(activations);
}

/* negative labels are never counted, as documented; one past the classes is refused, and nothing is written */
static void odd_labels(void)
{
    attn_tensor *logits = noise(SHAPE(2, 5), 3), *loss = filled(SHAPE(1), -7), *labels = model_tensor(ctx, ATTN_INT64, 2, 0);
    attn_loss_report report = {.struct_size = sizeof report, .count = -7};
    model_set(labels, 0, 5);
    model_set(labels, 1, 0);
    FAILS(ctx, attn_cross_entropy(ctx, NULL, logits, labels, NULL, loss, &report), ATTN_ERROR_INVALID_ARGUMENT, "labels: got 5 at row 0");
    assert_true(model_get(loss, 0) == -7);
    assert_int_equal(report.count, -7);
    model_set(labels, 0, -4);
    OK(ctx, attn_cross_entropy(ctx, NULL, logits, labels, NULL, loss, &report));
    assert_int_equal(report.count, 1);
    FREE(logits, loss, labels);
}
static void test_B066_odd_labels(void **state)
{
    (void)state;
    on_both(odd_labels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B001_blocked_head),  cmocka_unit_test(test_B003_merged_masks),
        cmocka_unit_test(test_B010_twice_blocked), cmocka_unit_test(test_B017_batch_of_one),
        cmocka_unit_test(test_B021_head_size),     cmocka_unit_test(test_B061_activations_by_number),
        cmocka_unit_test(test_B066_odd_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

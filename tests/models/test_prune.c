#include "pruned.h"

/* Heads that are taken out: output and gradients are those of the whole model whose heads say nothing. */

/* stack and layer of a parameter of self-attention; 0: it is none */
static int self_attention(const char *name, int64_t place[2])
{
    char stack[8];
    long long layer;
    if (sscanf(name, "%7[a-z].layers.%lld.self_attention.", stack, &layer) != 2 || strstr(name, ".self_attention.") == NULL) return 0;
    place[0] = strcmp(stack, "decoder") == 0;
    place[1] = layer;
    return 1;
}

/* heads say nothing when the output projection does not read them */
static void silence(attn_parameters *set, const pruned_case *c, const attn_transformer_options *o)
{
    int64_t place[2] = {0, 0};
    for (int64_t i = 0; i < attn_parameters_count(set); i++) {
        const char *name = attn_parameters_name(set, i);
        if (!self_attention(name, place) || strstr(name, ".output.weight") == NULL) continue;
        attn_tensor *w = attn_parameters_tensor(set, i);
        const int64_t heads = place[0] && o->decoder_heads > 0 ? o->decoder_heads : o->heads, columns = attn_tensor_extent(w, 1);
        for (int64_t e = 0; e < model_elements(w); e++)
            if (pruned_gone(c, place[0], place[1], e % columns / (columns / heads))) model_set(w, e, 0);
    }
}

/* the element of the whole model's tensor that element e of the pruned one's was */
static int64_t whole_element(attn_context *ctx, const attn_transformer *pruned, const char *name, const attn_tensor *part,
                             const attn_tensor *whole, int64_t e)
{
    int64_t place[2] = {0, 0}, kept[PRUNED_HEADS], count;
    if (model_elements(part) == model_elements(whole)) return e;
    assert_true(self_attention(name, place));
    OK(ctx, attn_transformer_heads(ctx, pruned, (int32_t)place[0], place[1], PRUNED_HEADS, kept, &count));
    if (strstr(name, ".output.weight") != NULL) {
        const int64_t columns = attn_tensor_extent(part, 1), size = columns / count;
        return e / columns * attn_tensor_extent(whole, 1) + kept[e % columns / size] * size + e % size;
    }
    const int is_key = strstr(name, "key.") != NULL || strstr(name, "value.") != NULL; /* of global tokens too */
    attn_transformer_options o = {.struct_size = sizeof o};
    OK(ctx, attn_transformer_get_options(ctx, pruned, &o));
    const int64_t heads = place[0] ? o.decoder_heads : o.heads, key_heads = o.key_heads == o.heads ? heads : o.key_heads;
    const int64_t group = is_key ? heads / key_heads : 1, block = model_elements(part) / (count / group);
    return kept[e / block * group] / group * block + e % block;
}

static void compare_outputs(attn_context *ctx, const attn_transformer *a, const attn_transformer *b, const model_batch *batch,
                            int32_t dtype, double within, const char *name)
{
    attn_tensor *x = model_tensor(ctx, dtype, batch->rows, 11), *y = model_tensor(ctx, dtype, batch->rows, 11);
    OK(ctx, attn_transformer_forward(ctx, a, NULL, &batch->batch, x));
    OK(ctx, attn_transformer_forward(ctx, b, NULL, &batch->batch, y));
    for (int64_t e = 0; e < model_elements(x); e++)
        if (!(fabs(model_get(x, e) - model_get(y, e)) <= within * (1 + fabs(model_get(y, e)))))
            fail_msg("%s: logit %d is %.17g without the heads and %.17g with silent ones", name, (int)e, model_get(x, e), model_get(y, e));
    attn_tensor_free(x);
    attn_tensor_free(y);
}

static attn_gradients *gradients_of(attn_context *ctx, const attn_transformer *model, const model_batch *batch, int32_t dtype)
{
    attn_tape *tape = NULL;
    attn_gradients *gradients = NULL;
    attn_tensor *loss = model_tensor(ctx, dtype, 1, 0);
    const attn_tensor *output = loss;
    attn_cross_entropy_options o;
    OK(ctx, attn_cross_entropy_options_init(&o, sizeof o));
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    OK(ctx, attn_gradients_create(ctx, attn_transformer_parameters(model), &gradients));
    OK(ctx, attn_transformer_loss(ctx, model, tape, &batch->batch, &o, loss, NULL));
    OK(ctx, attn_tape_backward(ctx, tape, 1, &output, NULL, 1, &gradients));
    attn_tape_free(tape);
    attn_tensor_free(loss);
    return gradients;
}

static void compare_gradients(attn_context *ctx, const attn_transformer *pruned, const attn_transformer *whole, const model_batch *batch,
                              int32_t dtype, double within, const char *name)
{
    attn_parameters *set = attn_transformer_parameters(pruned);
    attn_gradients *part = gradients_of(ctx, pruned, batch, dtype), *all = gradients_of(ctx, whole, batch, dtype);
    assert_int_equal(attn_parameters_count(set), attn_parameters_count(attn_transformer_parameters(whole)));
    for (int64_t i = 0; i < attn_parameters_count(set); i++) {
        const attn_tensor *x = attn_gradients_tensor(part, i), *y = attn_gradients_tensor(all, i);
        for (int64_t e = 0; e < model_elements(x); e++) {
            double got = model_get(x, e), want = model_get(y, whole_element(ctx, pruned, attn_parameters_name(set, i), x, y, e));
            if (!(fabs(got - want) <= within * (1 + fabs(want))))
                fail_msg("%s: gradient %d of %s is %.17g without the heads and %.17g with silent ones", name, (int)e,
                         attn_parameters_name(set, i), got, want);
        }
    }
    attn_gradients_free(part);
    attn_gradients_free(all);
}

static const struct ground {
    int32_t backend, dtype;
    double output, gradient;
} grounds[] = {{ATTN_BACKEND_BLAS, ATTN_FLOAT32, 1e-6, 2e-6},
               {ATTN_BACKEND_REFERENCE, ATTN_FLOAT32, 1e-6, 2e-6},
               {ATTN_BACKEND_REFERENCE, ATTN_FLOAT64, 1e-12, 1e-12}};
enum { GROUNDS = sizeof grounds / sizeof *grounds };

/* mask: of the encoder's layers, or NULL */
static void expect_silent(const struct ground *ground, const pruned_case *c, attn_context *ctx, const attn_transformer_options *o,
                          const attn_mask *mask)
{
    const int64_t source[3] = {4, 1, 6}, target[3] = {5, 3, 1};
    attn_transformer *whole = model_create(ctx, o), *pruned = pruned_of(ctx, whole, c);
    model_batch batch;
    model_batch_open(ctx, &batch, o, 3, source, target, 7);
    silence(attn_transformer_parameters(whole), c, o);
    assert_true(attn_parameters_elements(attn_transformer_parameters(pruned)) <
                attn_parameters_elements(attn_transformer_parameters(whole)));
    if (mask != NULL) {
        OK(ctx, attn_transformer_set_mask(ctx, whole, 0, -1, mask));
        OK(ctx, attn_transformer_set_mask(ctx, pruned, 0, -1, mask));
    }
    compare_outputs(ctx, pruned, whole, &batch, o->dtype, ground->output, c->name);
    compare_gradients(ctx, pruned, whole, &batch, o->dtype, ground->gradient, c->name);
    model_batch_close(&batch);
    attn_transformer_free(whole);
    attn_transformer_free(pruned);
}

static void test_equals_silent_heads(void **state)
{
    (void)state;
    for (int g = 0; g < GROUNDS; g++)
        for (int i = 0; i < PRUNED_CASES; i++) {
            attn_context *ctx = model_context(grounds[g].backend, 2, 0);
            const attn_transformer_options o = pruned_options(&pruned_cases[i], grounds[g].dtype);
            expect_silent(&grounds[g], &pruned_cases[i], ctx, &o, NULL);
            attn_context_free(ctx);
        }
}

/* Global tokens have projections of their own, with as many heads: what goes from the usual ones goes from these, grouped or not. Heads of 4
   columns in groups of three: a key head's rows are no whole number for each query head. */
static void test_global_projections(void **state)
{
    static const pruned_case cases[] = {
        {.name = "global tokens", .layers = {2, 0}, .heads = 4, .key_heads = 4, .count = 3, .gone = {{0, 0, 0}, {0, 0, 2}, {0, 1, 3}}},
        {.name = "global tokens, grouped",
         .layers = {2, 0},
         .heads = 6,
         .key_heads = 2,
         .count = 3,
         .gone = {{0, 1, 2}, {0, 1, 0}, {0, 1, 1}}},
        {.name = "global tokens, no biases",
         .layers = {1, 1},
         .heads = 4,
         .key_heads = 2,
         .no_bias = 1,
         .count = 2,
         .gone = {{0, 0, 0}, {0, 0, 1}}}};
    static const int64_t places[2] = {0, 3};
    (void)state;
    for (int g = 0; g < GROUNDS; g++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            attn_context *ctx = model_context(grounds[g].backend, 2, 0);
            attn_transformer_options o = pruned_options(&cases[i], grounds[g].dtype);
            attn_mask *window = NULL, *global = NULL, *mask = NULL;
            o.positions = ATTN_POSITIONS_SINUSOIDAL;
            o.global_projections = 1;
            OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_FIRST, 1, 1, 1, &window));
            OK(ctx, attn_mask_global(ctx, ATTN_ALIGN_FIRST, 2, places, &global));
            OK(ctx, attn_mask_union(ctx, window, global, &mask));
            expect_silent(&grounds[g], &cases[i], ctx, &o, mask);
            attn_mask_free(window);
            attn_mask_free(global);
            attn_mask_free(mask);
            attn_context_free(ctx);
        }
}

/* what was taken out, in any order and one after another, is the same model; it outlives the one it was made of */
static void test_one_by_one(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    for (int i = 0; i < PRUNED_CASES; i++) {
        const pruned_case *c = &pruned_cases[i];
        if (c->key_heads < c->heads) continue; /* whole groups only */
        attn_transformer_options o = pruned_options(c, ATTN_FLOAT32);
        attn_transformer *whole = model_create(ctx, &o), *once = pruned_of(ctx, whole, c), *model = whole;
        for (int64_t k = c->count - 1; k >= 0; k--) {
            int64_t one[3] = {c->gone[k][0], c->gone[k][1], c->gone[k][2]};
            for (int64_t j = k + 1; j < c->count; j++) /* counted as they are now */
                one[2] -= c->gone[j][0] == one[0] && c->gone[j][1] == one[1] && c->gone[j][2] < c->gone[k][2];
            attn_transformer *next = NULL;
            OK(ctx, attn_transformer_prune_heads(ctx, model, 1, one, &next));
            attn_transformer_free(model);
            model = next;
        }
        assert_true(model_same_bits(attn_transformer_parameters(once), attn_transformer_parameters(model)));
        for (int32_t d = 0; d < 2; d++)
            for (int64_t layer = 0; layer < c->layers[d]; layer++) {
                int64_t a[PRUNED_HEADS], b[PRUNED_HEADS], counts[2];
                OK(ctx, attn_transformer_heads(ctx, once, d, layer, PRUNED_HEADS, a, &counts[0]));
                OK(ctx, attn_transformer_heads(ctx, model, d, layer, PRUNED_HEADS, b, &counts[1]));
                assert_int_equal(counts[0], counts[1]);
                assert_memory_equal(a, b, (size_t)counts[0] * sizeof *a);
                for (int64_t h = 0; h < counts[0]; h++) assert_false(pruned_gone(c, d, layer, a[h]));
            }
        attn_transformer_free(once);
        attn_transformer_free(model);
    }
    attn_context_free(ctx);
}

static void test_refusals(void **state)
{
    static const struct {
        int64_t encoder, decoder, key_heads, count, heads[4][3];
        attn_status status;
        const char *word;
    } cases[] = {
        {0, 2, 4, 1, {{2, 0, 0}}, ATTN_ERROR_INVALID_ARGUMENT, "heads: got [2, 0, 0] at entry 0"},
        {0, 2, 4, 1, {{0, 0, 0}}, ATTN_ERROR_INVALID_ARGUMENT, "a stack of the model"},
        {0, 2, 4, 2, {{1, 1, 0}, {1, 2, 0}}, ATTN_ERROR_INVALID_ARGUMENT, "heads: got [1, 2, 0] at entry 1"},
        {0, 2, 4, 1, {{1, -1, 0}}, ATTN_ERROR_INVALID_ARGUMENT, "a layer of that stack"},
        {0, 2, 4, 1, {{1, 0, 4}}, ATTN_ERROR_INVALID_ARGUMENT, "a head of that layer"},
        {0, 2, 4, 1, {{1, 0, -1}}, ATTN_ERROR_INVALID_ARGUMENT, "a head of that layer"},
        {0, 2, 4, 2, {{1, 0, 2}, {1, 0, 2}}, ATTN_ERROR_INVALID_ARGUMENT, "twice"},
        {0, 2, 4, 4, {{1, 1, 0}, {1, 1, 1}, {1, 1, 3}, {1, 1, 2}}, ATTN_ERROR_INVALID_ARGUMENT, "all of decoder layer 1"},
        {0, 2, 4, 0, {{0, 0, 0}}, ATTN_ERROR_INVALID_ARGUMENT, "count"},
        {0, 2, 2, 1, {{1, 0, 1}}, ATTN_ERROR_UNSUPPORTED, "whole groups of the 2 heads"},
        {0, 2, 2, 2, {{1, 0, 1}, {1, 0, 2}}, ATTN_ERROR_UNSUPPORTED, "whole groups of the 2 heads"},
        {0, 2, 1, 2, {{1, 0, 0}, {1, 0, 1}}, ATTN_ERROR_UNSUPPORTED, "whole groups of the 4 heads"},
        {2, 0, 4, 1, {{1, 0, 0}}, ATTN_ERROR_INVALID_ARGUMENT, "a stack of the model"},
        {2, 0, 4, 4, {{0, 1, 0}, {0, 1, 1}, {0, 1, 3}, {0, 1, 2}}, ATTN_ERROR_INVALID_ARGUMENT, "all of encoder layer 1"},
        {2, 0, 2, 1, {{0, 1, 1}}, ATTN_ERROR_UNSUPPORTED, "a part of a group of encoder layer 1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_allocator allocator = {0};
        attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 1);
        attn_transformer_options o = model_options(cases[i].encoder, cases[i].decoder);
        o.width = 16;
        o.heads = 4;
        o.key_heads = cases[i].key_heads;
        attn_transformer *whole = model_create(ctx, &o), *out = whole;
        FAILS(ctx, attn_transformer_prune_heads(ctx, whole, cases[i].count, &cases[i].heads[0][0], &out), cases[i].status, cases[i].word);
        assert_null(out);
        int64_t list[4], listed = 0;
        const int32_t has = cases[i].encoder > 0 ? 0 : 1;
        OK(ctx, attn_transformer_heads(ctx, whole, has, 1, 4, list, &listed));
        assert_int_equal(listed, 4);
        FAILS(ctx, attn_transformer_heads(ctx, whole, !has, 0, 4, list, &listed), ATTN_ERROR_INVALID_ARGUMENT, "a stack of the model");
        attn_transformer_free(whole);
        attn_context_free(ctx);
        assert_true(allocator.wrong == 0 && allocator.live_pointers == 0);
    }
}

/* what the model carries besides its numbers: frozen parameters, metadata, no masks; and masks for the heads that are left */
static void test_carried(void **state)
{
    static const int64_t gone[3] = {1, 0, 1};
    const char *const keys[1] = {"note"}, *const values[1] = {"kept"};
    const int64_t length = 4;
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer_options o = model_options(0, 2);
    o.width = 12;
    o.heads = 3;
    attn_transformer *made = model_create(ctx, &o), *whole = NULL, *pruned = NULL;
    attn_mask *causal = NULL, *by_head[2] = {NULL, NULL};
    model_batch batch;
    int64_t matched;
    OK(ctx, attn_transformer_save(ctx, made, 1, keys, values, "models_prune.file"));
    OK(ctx, attn_transformer_load(ctx, "models_prune.file", NULL, &whole));
    remove("models_prune.file");
    OK(ctx, attn_parameters_freeze(ctx, attn_transformer_parameters(whole), "*.0.self_attention.*", 1, &matched));
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &causal));
    for (int i = 0; i < 2; i++) {
        const attn_mask *const masks[3] = {causal, causal, causal};
        OK(ctx, attn_mask_heads(ctx, 3 - i, masks, &by_head[i]));
    }
    OK(ctx, attn_transformer_set_mask(ctx, whole, 1, -1, by_head[0]));
    OK(ctx, attn_transformer_prune_heads(ctx, whole, 1, gone, &pruned));
    assert_string_equal(attn_transformer_metadata(pruned, "note"), "kept");
    model_batch_open(ctx, &batch, &o, 1, NULL, &length, 3);
    attn_gradients *gradients = gradients_of(ctx, pruned, &batch, ATTN_FLOAT32); /* of the two layers with their usual mask */
    for (int64_t i = 0; i < attn_parameters_count(attn_transformer_parameters(pruned)); i++) {
        const attn_tensor *g = attn_gradients_tensor(gradients, i);
        int any = 0;
        for (int64_t e = 0; e < model_elements(g); e++) any |= model_get(g, e) != 0;
        if (strstr(attn_parameters_name(attn_transformer_parameters(pruned), i), ".0.self_attention.") != NULL) assert_false(any);
    }
    attn_gradients_free(gradients);
    attn_tensor *output = model_tensor(ctx, ATTN_FLOAT32, batch.rows, 11);
    OK(ctx, attn_transformer_set_mask(ctx, pruned, 1, 0, by_head[0]));
    FAILS(ctx, attn_transformer_forward(ctx, pruned, NULL, &batch.batch, output), ATTN_ERROR_SHAPE, "mask");
    OK(ctx, attn_transformer_set_mask(ctx, pruned, 1, 0, by_head[1]));
    OK(ctx, attn_transformer_set_mask(ctx, pruned, 1, 1, by_head[0]));
    OK(ctx, attn_transformer_forward(ctx, pruned, NULL, &batch.batch, output));
    attn_tensor_free(output);
    model_batch_close(&batch);
    for (int i = 0; i < 2; i++) attn_mask_free(by_head[i]);
    attn_mask_free(causal);
    attn_transformer_free(made);
    attn_transformer_free(whole);
    attn_transformer_free(pruned);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_silent_heads), cmocka_unit_test(test_global_projections),
                                       cmocka_unit_test(test_one_by_one), cmocka_unit_test(test_refusals), cmocka_unit_test(test_carried)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

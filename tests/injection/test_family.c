#include "injection/scenario.h"
#include "kernels/kernels.h"

/* The family of attention without memory: every mask, and every operation's forward and backward. */
enum { GLOBAL, STRIDED, FIXED, DRAWN, LOGARITHMIC, ADDITIVE_MASK, OF_HEADS };

static void set_up_masks(world *w)
{
    w->tensor[0] = RANDOM_TENSOR(w, 3, 1, 1, 4, 4);
    OK(w->ctx, attn_mask_causal(w->ctx, ATTN_ALIGN_LAST, &w->mask[0]));
}

static attn_status make_mask(world *w)
{
    const int64_t indices[2] = {0, 2};
    const attn_mask *const of_head[1] = {w->mask[0]};
    switch (w->variant) {
    case GLOBAL: return attn_mask_global(w->ctx, ATTN_ALIGN_LAST, 2, indices, &w->mask[2]);
    case STRIDED: return attn_mask_strided(w->ctx, ATTN_ALIGN_LAST, ATTN_DERIVED, ATTN_PART_LOCAL | ATTN_PART_SUMMARY, &w->mask[2]);
    case FIXED: return attn_mask_fixed(w->ctx, ATTN_ALIGN_LAST, 2, 1, ATTN_PART_LOCAL | ATTN_PART_SUMMARY, &w->mask[2]);
    case DRAWN: return attn_mask_random(w->ctx, ATTN_ALIGN_LAST, 2, 1, 5, &w->mask[2]);
    case LOGARITHMIC: return attn_mask_logarithmic(w->ctx, ATTN_ALIGN_LAST, 1, &w->mask[2]);
    case ADDITIVE_MASK: return attn_mask_additive(w->ctx, w->tensor[0], &w->mask[2]);
    default: return attn_mask_heads(w->ctx, 1, of_head, &w->mask[2]);
    }
}

/* what it lets through, its pairs and its path */
static attn_status measure(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, make_mask(w));
    for (int i = 0; i < 4; i++) w->numbers[i] = 0;
    int64_t seen = 0, layers = 0;
    AGAIN(w, status, attn_mask_pairs(w->ctx, w->mask[2], 1, w->layout, w->layout, &seen, NULL));
    AGAIN(w, status, attn_mask_path(w->ctx, w->mask[2], 4, &layers, NULL));
    w->numbers[0] = (int32_t)seen;
    w->numbers[1] = (int32_t)layers;
    if (status != ATTN_OK) {
        attn_mask_free(w->mask[2]);
        w->mask[2] = NULL;
    }
    return status;
}

static void set_up_measures(world *w)
{
    set_up_masks(w);
    OK(w->ctx, attn_layout_create(w->ctx, 1, &w->layout));
    OK(w->ctx, attn_layout_set_lengths(w->ctx, w->layout, 1, (const int64_t[]){4}, 0));
}

static void result_measures(world *w)
{
    note(w, w->numbers, 2 * (int64_t)sizeof *w->numbers);
    attn_mask_free(w->mask[2]);
    w->mask[2] = NULL;
}

static void test_masks(void **state)
{
    static const scenario all[] = {{"global tokens", set_up_measures, measure, result_measures, NULL, EACH_AGAIN, GLOBAL},
                                   {"a strided mask", set_up_measures, measure, result_measures, NULL, EACH_AGAIN, STRIDED},
                                   {"a fixed mask", set_up_measures, measure, result_measures, NULL, EACH_AGAIN, FIXED},
                                   {"random blocks", set_up_measures, measure, result_measures, NULL, EACH_AGAIN, DRAWN},
                                   {"a logarithmic mask", set_up_measures, measure, result_measures, NULL, EACH_AGAIN, LOGARITHMIC},
                                   {"an additive mask", set_up_measures, measure, result_measures, NULL, EACH_AGAIN, ADDITIVE_MASK},
                                   {"a mask a head", set_up_measures, measure, result_measures, NULL, EACH_AGAIN, OF_HEADS}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

/* ---- operations: queries [5, 2, 4], keys and values the same tensor; gradients; the output; a table, and its gradient */
enum {
    ROTARY,
    LINEAR_BIAS,
    BUCKETS,
    RELATIVE,
    PAIR,
    ADDITIVE,
    ELU,
    PERFORMER,
    CAUSAL_PERFORMER,
    LINFORMER,
    LAYER,
    RELATIVE_LAYER,
    LINFORMER_LAYER,
    PERFORMER_LAYER,
    GLOBAL_LAYER
};
enum { ROWS = 5, OPERANDS = 5 };

static void set_up(world *w)
{
    static const int64_t tables[LAYER][4] = {
        [BUCKETS] = {8, 2}, [RELATIVE] = {5, 4}, [PAIR] = {1, 2, 3, 3}, [ADDITIVE] = {2, 4}, [LINFORMER] = {2, 3}};
    const int layer = w->variant >= LAYER;
    const int64_t shape[3] = {ROWS, layer ? 8 : 2, 4};
    for (int i = 0; i < OPERANDS; i++) w->tensor[i] = random_tensor(w, i, layer ? 2 : 3, shape);
    OK(w->ctx, attn_layout_create(w->ctx, 2, &w->layout));
    OK(w->ctx, attn_layout_set_lengths(w->ctx, w->layout, 2, (const int64_t[]){3, 2}, 0));
    OK(w->ctx, attn_mask_causal(w->ctx, ATTN_ALIGN_LAST, &w->mask[0]));
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
    world_arriving(w, w->tensor[4]);
    const attn_segment apart[2] = {{0, 2, 0, 0}, {3, 2, 0, 1}}; /* a row in none */
    if (w->variant >= ADDITIVE && !layer) OK(w->ctx, attn_layout_set(w->ctx, w->layout, 2, apart));
    if (w->variant == ROTARY) { /* heads that lie apart */
        static float memory[ROWS * 12];
        attn_tensor_free(w->tensor[2]);
        w->tensor[2] = NULL;
        OK(w->ctx, attn_tensor_wrap(w->ctx, ATTN_FLOAT32, 3, shape, (const int64_t[]){12, 5, 1}, memory, &w->tensor[2]));
    }
    if (!layer) {
        const int64_t *table = tables[w->variant];
        const int32_t rank = table[0] == 0 ? 0 : table[2] != 0 ? 4 : 2;
        for (int i = 5; rank > 0 && i < 7; i++) w->tensor[i] = random_tensor(w, i, rank, table);
        return;
    }
    attn_attention_options o;
    OK(w->ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = 8;
    o.heads = 2;
    o.score = w->variant == LAYER ? ATTN_SCORE_MULTIPLICATIVE : ATTN_SCORE_SCALED_DOT;
    o.positions = w->variant == LAYER ? ATTN_POSITIONS_ROTARY : ATTN_POSITIONS_RELATIVE;
    o.position_reach = 2;
    o.query_key_norm = ATTN_QUERY_KEY_RMS;
    o.gated_output = 1;
    if (w->variant >= LINFORMER_LAYER) {
        o.form = w->variant == LINFORMER_LAYER ? ATTN_FORM_LINFORMER : ATTN_FORM_PERFORMER;
        o.positions = ATTN_POSITIONS_NONE;
        o.query_key_norm = ATTN_QUERY_KEY_NONE;
        o.projected = 2;
        o.longest = 3;
        o.separate_projections = 1;
    }
    if (w->variant == GLOBAL_LAYER) {
        o.form = ATTN_FORM_SOFTMAX;
        o.global_projections = 1;
        OK(w->ctx, attn_mask_global(w->ctx, ATTN_ALIGN_LAST, 1, (const int64_t[]){1}, &w->mask[1]));
        OK(w->ctx, attn_mask_union(w->ctx, w->mask[1], w->mask[0], &w->mask[2]));
    }
    OK(w->ctx, attn_attention_create(w->ctx, &o, &w->attention));
    OK(w->ctx, attn_gradients_create(w->ctx, attn_attention_parameters(w->attention), &w->gradients));
}

static attn_status biased(world *w, int32_t kind)
{
    attn_tensor *const *t = w->tensor;
    attn_attention_bias bias;
    const attn_attention_bias *const list[1] = {&bias};
    if (attn_attention_bias_init(&bias, sizeof bias) != ATTN_OK) return ATTN_ERROR_INVALID_ARGUMENT;
    bias.kind = kind;
    bias.reach = kind == ATTN_BIAS_RELATIVE ? 2 : 5;
    bias.table = kind == ATTN_BIAS_LINEAR ? NULL : t[5];
    bias.values = kind == ATTN_BIAS_RELATIVE ? t[5] : NULL;
    return attn_biased_attention(w->ctx, w->tape, t[0], t[1], t[1], w->layout, w->layout, w->mask[0], NULL, 1, list, t[4]);
}

static attn_status linear(world *w, int32_t map, int32_t causal)
{
    attn_tensor *const *t = w->tensor;
    attn_linear_attention_options o;
    if (attn_linear_attention_options_init(&o, sizeof o) != ATTN_OK) return ATTN_ERROR_INVALID_ARGUMENT;
    o.map = map;
    o.causal = causal;
    return attn_linear_attention(w->ctx, w->tape, t[0], t[1], t[1], w->layout, w->layout, &o, t[4]);
}

static attn_status operation(world *w)
{
    attn_tensor *const *t = w->tensor;
    switch (w->variant) {
    case ROTARY: return attn_rotary(w->ctx, w->tape, t[0], w->layout, NULL, t[4]);
    case LINEAR_BIAS: return biased(w, ATTN_BIAS_LINEAR);
    case BUCKETS: return biased(w, ATTN_BIAS_BUCKETS);
    case RELATIVE: return biased(w, ATTN_BIAS_RELATIVE);
    case PAIR: return biased(w, ATTN_BIAS_PAIR);
    case ADDITIVE: return attn_additive_attention(w->ctx, w->tape, t[0], t[1], t[1], t[5], w->layout, w->layout, w->mask[0], NULL, t[4]);
    case ELU: return linear(w, ATTN_FEATURES_ELU, 1);
    case PERFORMER: return linear(w, ATTN_FEATURES_POSITIVE, 0);
    case CAUSAL_PERFORMER: return linear(w, ATTN_FEATURES_POSITIVE, 1);
    case LINFORMER: return attn_linformer_attention(w->ctx, w->tape, t[0], t[1], t[1], t[5], NULL, w->layout, w->layout, NULL, NULL, t[4]);
    default:
        return attn_attention_forward(w->ctx, w->attention, w->tape, t[0], t[1], t[1], w->layout, w->layout,
                                      w->variant < LINFORMER_LAYER ? w->mask[0] : w->mask[2], t[4]);
    }
}

static attn_status act(world *w)
{
    const attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
    attn_status status = ATTN_OK;
    if (w->gradients != NULL) AGAIN(w, status, attn_gradients_zero(w->ctx, w->gradients));
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, &training));
    AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, w->tensor[0], w->tensor[2]));
    if (w->variant != ROTARY) AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, w->tensor[1], w->tensor[3]));
    if (w->tensor[5] != NULL) AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, w->tensor[5], w->tensor[6]));
    AGAIN(w, status, operation(w));
    return run_backward(w, status, w->tensor[4]);
}

static void result(world *w)
{
    for (int i = 2; i < OPERANDS; i++)
        if (i != 3 || w->variant != ROTARY) note_tensor(w, w->tensor[i]);
    if (w->tensor[5] != NULL) note_tensor(w, w->tensor[6]);
    if (w->gradients != NULL) note_gradients(w, w->gradients);
}

static void test_operations(void **state)
{
    static const scenario all[] = {{"rotary positions", set_up, act, result, NULL, EACH_AGAIN, ROTARY},
                                   {"ALiBi", set_up, act, result, NULL, EACH_AGAIN, LINEAR_BIAS},
                                   {"buckets", set_up, act, result, NULL, EACH_AGAIN, BUCKETS},
                                   {"relative positions", set_up, act, result, NULL, EACH_AGAIN, RELATIVE},
                                   {"a pair bias", set_up, act, result, NULL, EACH_AGAIN, PAIR},
                                   {"additive attention", set_up, act, result, NULL, EACH_AGAIN, ADDITIVE},
                                   {"linear attention", set_up, act, result, NULL, EACH_AGAIN, ELU},
                                   {"the Performer", set_up, act, result, NULL, EACH_AGAIN, PERFORMER},
                                   {"the Performer, causal", set_up, act, result, NULL, EACH_AGAIN, CAUSAL_PERFORMER},
                                   {"the Linformer", set_up, act, result, NULL, EACH_AGAIN, LINFORMER},
                                   {"a layer of many parts", set_up, act, result, NULL, EACH_AGAIN, LAYER},
                                   {"a layer with relative positions", set_up, act, result, NULL, EACH_AGAIN, RELATIVE_LAYER},
                                   {"a Linformer layer", set_up, act, result, NULL, EACH_AGAIN, LINFORMER_LAYER},
                                   {"a Performer layer", set_up, act, result, NULL, EACH_AGAIN, PERFORMER_LAYER},
                                   {"a layer with global tokens", set_up, act, result, NULL, EACH_AGAIN, GLOBAL_LAYER}};
    (void)state;
    run_on_both(all, COUNT_OF(all));
}

/* ---- a feature map alone, and the choice of tokens: x, its gradient, what comes out */
static void set_up_alone(world *w)
{
    w->tensor[0] = RANDOM_TENSOR(w, 0, ROWS, 2, 4);
    w->tensor[1] = RANDOM_TENSOR(w, 1, ROWS, 2, 4);
    w->tensor[2] = RANDOM_TENSOR(w, 2, ROWS, 2, 40);
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
}

static attn_status act_features(world *w)
{
    attn_linear_attention_options o;
    attn_status status = attn_linear_attention_options_init(&o, sizeof o);
    o.map = ATTN_FEATURES_POSITIVE;
    o.features = 40;
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, NULL));
    AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, w->tensor[0], w->tensor[1]));
    AGAIN(w, status, attn_feature_map(w->ctx, w->tape, w->tensor[0], &o, NULL, w->tensor[2]));
    return run_backward(w, status, w->tensor[2]);
}

static attn_status act_token(world *w)
{
    const double uniform[2] = {0.3, 0.9};
    const attn__kernels *k;
    view logits = {attn_tensor_data(w->tensor[2]), 2, 1, 40, 40, 0, ATTN_FLOAT32, 0};
    attn_status status = attn__enter(w->ctx);
    if (status == ATTN_OK) status = attn__kernels_for(w->ctx, ATTN_FLOAT32, &k);
    if (status == ATTN_OK) status = k->next_token(w->ctx, &logits, 0.8, 5, 0.9, uniform, w->numbers);
    return attn__leave(w->ctx, status);
}

static attn_status act_norm(world *w)
{
    double norm = 0;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_norm(w->ctx, w->tensor[2], &norm));
    w->numbers[0] = (int32_t)(norm * 1e6);
    return status;
}

static void result_alone(world *w)
{
    note_tensor(w, w->tensor[1]);
    note_tensor(w, w->tensor[2]);
    note(w, w->numbers, 2 * (int64_t)sizeof *w->numbers);
}

static void test_alone(void **state)
{
    static const scenario all[] = {{"features", set_up_alone, act_features, result_alone, NULL, EACH_AGAIN, 0},
                                   {"a norm", set_up_alone, act_norm, result_alone, NULL, EACH_AGAIN, 0},
                                   {"the choice of a token", set_up_alone, act_token, result_alone, NULL, 0, 0}};
    (void)state;
    run_on_both(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks), cmocka_unit_test(test_operations), cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}

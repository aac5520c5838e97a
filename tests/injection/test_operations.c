#include <attn/inspect.h>
#include "autograd/operations.h"
#include "injection/scenario.h"

/* Each operation with a gradient, forward and backward, without memory: the right code, the same objects and the same tape used again, the
   same numbers. */
enum { ROWS = 40, WIDTH = 6 }; /* more rows than waves of positions that are made at once */
enum {
    LINEAR,
    GATED,
    ACTIVATION,
    LAYER_NORM,
    RMS_NORM,
    ADD,
    MULTIPLY,
    CONCATENATE,
    LEARNED,
    TWO_INPUTS, /* the operations so far have two inputs */
    SOFTMAX = TWO_INPUTS,
    LOG_SOFTMAX,
    DROPOUT,
    EMBEDDING,
    SINUSOIDAL,
    CROSS_ENTROPY
};

/* tensors: two inputs, their gradients, the output, integers */
static void set_up(world *w)
{
    const int64_t second[2] = {w->variant == LINEAR       ? WIDTH
                               : w->variant == GATED      ? 2 * WIDTH
                               : w->variant == ACTIVATION ? 1
                                                          : ROWS,
                               WIDTH},
                  width[1] = {WIDTH};
    int norm = w->variant == LAYER_NORM || w->variant == RMS_NORM;
    int32_t rank = norm || w->variant == ACTIVATION ? 1 : 2;
    for (int i = 0; i < 2; i++) {
        w->tensor[2 * i] = RANDOM_TENSOR(w, i, ROWS, WIDTH);
        w->tensor[2 * i + 1] = random_tensor(w, 3 + i, rank, norm ? width : second);
    }
    w->tensor[4] = RANDOM_TENSOR(w, 5, w->variant == CROSS_ENTROPY ? 1 : ROWS, w->variant == CONCATENATE ? 2 * WIDTH : WIDTH);
    if (w->variant == CROSS_ENTROPY) {
        attn_tensor_free(w->tensor[4]);
        w->tensor[4] = RANDOM_TENSOR(w, 5, 1);
    }
    w->tensor[5] = model_tensor(w->ctx, ATTN_INT32, ROWS, 0);
    for (int64_t i = 0; i < ROWS; i++) model_set(w->tensor[5], i, (double)(i * 2 % 5));
    OK(w->ctx, attn_layout_create(w->ctx, 2, &w->layout));
    OK(w->ctx, attn_layout_set_lengths(w->ctx, w->layout, 2, (const int64_t[]){ROWS - 2, 2}, 0));
    w->tensor[6] = RANDOM_TENSOR(w, 6, ROWS, WIDTH);
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
    world_arriving(w, w->tensor[4]);
}

static attn_status operation(world *w)
{
    attn_context *ctx = w->ctx;
    attn_tape *tape = w->tape;
    attn_tensor *a = w->tensor[0], *b = w->tensor[1], *y = w->tensor[4];
    const attn_cross_entropy_options mean = {.struct_size = sizeof mean, .ignored_label = -1, .mean = 1};
    switch (w->variant) {
    case LINEAR: return attn_linear(ctx, tape, a, b, NULL, y);
    case GATED: return attn_linear_gated(ctx, tape, ATTN_ACTIVATION_GELU, a, b, NULL, y);
    case ACTIVATION: return attn_activation(ctx, tape, ATTN_ACTIVATION_SWISH, a, b, y);
    case LAYER_NORM: return attn_layer_norm(ctx, tape, a, b, NULL, 1e-6, y);
    case RMS_NORM: return attn_rms_norm(ctx, tape, a, b, 1e-6, y);
    case ADD: return attn_add(ctx, tape, w->tensor[6], a, y); /* of a + b, so that a has two gradients */
    case MULTIPLY: return attn_multiply(ctx, tape, a, b, y);
    case CONCATENATE: return attn_concatenate(ctx, tape, 2, (const attn_tensor *const[]){a, b}, y);
    case LEARNED: return attn_positions_learned(ctx, tape, a, w->layout, b, y);
    case SOFTMAX: return attn_softmax(ctx, tape, a, y);
    case LOG_SOFTMAX: return attn_log_softmax(ctx, tape, a, y);
    case DROPOUT: return attn_dropout(ctx, tape, a, w->layout, 0.4, 3, y);
    case EMBEDDING: return attn_embedding(ctx, tape, w->tensor[5], a, 2, y);
    case SINUSOIDAL: return attn_positions_sinusoidal(ctx, tape, a, w->layout, y);
    default: return attn_cross_entropy(ctx, tape, a, w->tensor[5], &mean, y, NULL);
    }
}

static attn_status act(world *w)
{
    const attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, &training));
    AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, w->tensor[0], w->tensor[2]));
    if (w->variant < TWO_INPUTS) AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, w->tensor[1], w->tensor[3]));
    if (w->variant == ADD) AGAIN(w, status, attn_add(w->ctx, w->tape, w->tensor[0], w->tensor[1], w->tensor[6]));
    AGAIN(w, status, operation(w));
    return run_backward(w, status, w->tensor[4]);
}

static void result(world *w)
{
    for (int i = 2; i < 5; i++)
        if (i != 3 || w->variant < TWO_INPUTS) note_tensor(w, w->tensor[i]);
}

static void test_operations(void **state)
{
    static const scenario all[] = {{"linear", set_up, act, result, NULL, EACH_AGAIN, LINEAR},
                                   {"gated linear", set_up, act, result, NULL, EACH_AGAIN, GATED},
                                   {"activation", set_up, act, result, NULL, EACH_AGAIN, ACTIVATION},
                                   {"layer norm", set_up, act, result, NULL, EACH_AGAIN, LAYER_NORM},
                                   {"RMS norm", set_up, act, result, NULL, EACH_AGAIN, RMS_NORM},
                                   {"addition", set_up, act, result, NULL, EACH_AGAIN, ADD},
                                   {"multiplication", set_up, act, result, NULL, EACH_AGAIN, MULTIPLY},
                                   {"concatenation", set_up, act, result, NULL, EACH_AGAIN, CONCATENATE},
                                   {"learned positions", set_up, act, result, NULL, EACH_AGAIN, LEARNED},
                                   {"softmax", set_up, act, result, NULL, EACH_AGAIN, SOFTMAX},
                                   {"log-softmax", set_up, act, result, NULL, EACH_AGAIN, LOG_SOFTMAX},
                                   {"dropout", set_up, act, result, NULL, EACH_AGAIN, DROPOUT},
                                   {"embedding", set_up, act, result, NULL, EACH_AGAIN, EMBEDDING},
                                   {"sinusoidal positions", set_up, act, result, NULL, EACH_AGAIN, SINUSOIDAL},
                                   {"cross-entropy", set_up, act, result, NULL, EACH_AGAIN, CROSS_ENTROPY}};
    (void)state;
    run_on_both(all, COUNT_OF(all));
}

/* ---- attention: variant 0 the operation, 1 the layer; two inputs, their gradients, the output */
static void set_up_attention(world *w)
{
    const int64_t shape[3] = {5, w->variant ? WIDTH : 2, 3};
    attn_attention_options o;
    for (int i = 0; i < 5; i++) w->tensor[i] = random_tensor(w, i, w->variant ? 2 : 3, shape);
    OK(w->ctx, attn_mask_causal(w->ctx, ATTN_ALIGN_LAST, &w->mask[0]));
    OK(w->ctx, attn_mask_window(w->ctx, ATTN_ALIGN_LAST, 1, 2, 1, &w->mask[1]));
    OK(w->ctx, attn_mask_union(w->ctx, w->mask[0], w->mask[1], &w->mask[2]));
    OK(w->ctx, attn_layout_create(w->ctx, 2, &w->layout));
    OK(w->ctx, attn_layout_set_lengths(w->ctx, w->layout, 2, (const int64_t[]){3, 2}, 0));
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
    world_arriving(w, w->tensor[4]);
    const attn_segment apart[2] = {{0, 2, 0, 0}, {3, 2, 0, 1}}; /* a row in none */
    if (!w->variant) OK(w->ctx, attn_layout_set(w->ctx, w->layout, 2, apart));
    if (!w->variant) return;
    OK(w->ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = WIDTH;
    o.heads = 2;
    o.dropout = 0.3;
    OK(w->ctx, attn_attention_create(w->ctx, &o, &w->attention));
    OK(w->ctx, attn_gradients_create(w->ctx, attn_attention_parameters(w->attention), &w->gradients));
}

static attn_status attend(world *w)
{
    attn_tensor *const *t = w->tensor;
    if (w->variant) return attn_attention_forward(w->ctx, w->attention, w->tape, t[0], t[0], t[1], w->layout, w->layout, w->mask[2], t[4]);
    return attn_dot_product_attention(w->ctx, w->tape, t[0], t[1], t[1], w->layout, w->layout, w->mask[2], NULL, t[4]);
}

static attn_status act_attention(world *w)
{
    const attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
    attn_status status = ATTN_OK;
    if (w->gradients != NULL) AGAIN(w, status, attn_gradients_zero(w->ctx, w->gradients));
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, &training));
    for (int i = 0; i < 2; i++) AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, w->tensor[i], w->tensor[i + 2]));
    AGAIN(w, status, attend(w));
    return run_backward(w, status, w->tensor[4]);
}

static void result_attention(world *w)
{
    for (int i = 2; i < 5; i++) note_tensor(w, w->tensor[i]);
    if (w->gradients != NULL) note_gradients(w, w->gradients);
}

static void test_attention(void **state)
{
    static const scenario all[] = {
        {"dot product attention", set_up_attention, act_attention, result_attention, NULL, EACH_AGAIN, 0},
        {"an attention layer's forward and backward", set_up_attention, act_attention, result_attention, NULL, EACH_AGAIN, 1},
    };
    (void)state;
    run_on_both(all, COUNT_OF(all));
}

/* ---- a part of x W^T, between columns that nobody else or (1) the whole uses: their gradients are filled with zeros */
static attn_status part(world *w, attn__value *output, attn__value *whole)
{
    attn__value x, weight, joined, columns;
    view at;
    attn_status status = attn__rows(w->ctx, "x", w->tensor[0], 0, &at);
    if (status == ATTN_OK) status = attn__tape_input(w->ctx, w->tape, "x", w->tensor[0], &at, &x);
    if (status == ATTN_OK) status = attn__rows(w->ctx, "weight", w->tensor[1], 0, &at);
    if (status == ATTN_OK) status = attn__tape_input(w->ctx, w->tape, "weight", w->tensor[1], &at, &weight);
    if (status == ATTN_OK) status = attn__tape_temporary(w->ctx, w->tape, ROWS, WIDTH, ATTN_FLOAT32, &joined);
    if (status == ATTN_OK) status = attn__linear(w->ctx, w->tape, &x, &weight, NULL, NULL, NULL, NULL, &joined);
    if (status == ATTN_OK) status = attn__tape_temporary(w->ctx, w->tape, ROWS, WIDTH, ATTN_FLOAT32, whole);
    if (status == ATTN_OK) status = attn__softmax(w->ctx, w->tape, 0, &joined, whole);
    if (status == ATTN_OK) status = attn__tape_part(w->ctx, w->tape, &joined, 2, 3, &columns);
    if (status == ATTN_OK) status = attn__tape_temporary(w->ctx, w->tape, ROWS, 3, ATTN_FLOAT32, output);
    return status == ATTN_OK ? attn__softmax(w->ctx, w->tape, 0, &columns, output) : status;
}

static attn_status act_part(world *w)
{
    attn__value output[2];
    view arriving[2];
    attn_status status = attn_tape_begin(w->ctx, w->tape, NULL);
    for (int i = 0; i < 2 && status == ATTN_OK; i++) status = attn_tape_watch(w->ctx, w->tape, w->tensor[i], w->tensor[i + 2]);
    if (status != ATTN_OK) return status;
    status = attn__enter(w->ctx);
    if (status == ATTN_OK) status = part(w, &output[0], &output[1]);
    for (int i = 0; i < 2 && status == ATTN_OK; i++) status = attn__rows(w->ctx, "arriving", w->tensor[4 + i], 0, &arriving[i]);
    if (status == ATTN_OK) status = attn__tape_run(w->ctx, w->tape, 1 + w->variant, output, arriving, 0, NULL);
    return attn__leave(w->ctx, status);
}

static void set_up_part(world *w)
{
    for (int i = 0; i < 2; i++) {
        w->tensor[2 * i] = RANDOM_TENSOR(w, i, ROWS, WIDTH);
        w->tensor[2 * i + 1] = RANDOM_TENSOR(w, 3 + i, WIDTH, WIDTH);
    }
    w->tensor[4] = RANDOM_TENSOR(w, 5, ROWS, 3);
    w->tensor[5] = RANDOM_TENSOR(w, 6, ROWS, WIDTH);
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
}

static void result_part(world *w)
{
    for (int i = 2; i < 4; i++) note_tensor(w, w->tensor[i]);
}

static void test_part(void **state)
{
    static const scenario all[] = {{"a part of a value", set_up_part, act_part, result_part, NULL, 0, 0},
                                   {"a part of a value, and the whole", set_up_part, act_part, result_part, NULL, 0, 1}};
    (void)state;
    run_on_both(all, COUNT_OF(all));
}

/* ---- long sequences: the backward in two sweeps; and the weights of a few of their rows */
enum { LONG = 400 };
static void set_up_long(world *w)
{
    for (int i = 0; i < 5; i++) w->tensor[i] = RANDOM_TENSOR(w, i, LONG, 1, 3);
    w->tensor[5] = RANDOM_TENSOR(w, 5, 1, 2, LONG);
    w->tensor[6] = RANDOM_TENSOR(w, 6, 4, 1);
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
}

static attn_status act_long(world *w)
{
    attn_tensor *const *t = w->tensor;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, NULL));
    for (int i = 0; i < 2; i++) AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, t[i], t[i + 2]));
    AGAIN(w, status, attn_dot_product_attention(w->ctx, w->tape, t[0], t[1], t[1], NULL, NULL, NULL, NULL, t[4]));
    return run_backward(w, status, t[4]);
}

static void result_long(world *w)
{
    for (int i = 2; i < 5; i++) note_tensor(w, w->tensor[i]);
}

static attn_status act_weights(world *w)
{
    attn_tensor *const *t = w->tensor;
    attn_attention_bias bias;
    const attn_attention_bias *const list[1] = {&bias};
    attn_status status = attn_attention_bias_init(&bias, sizeof bias);
    bias.kind = ATTN_BIAS_BUCKETS;
    bias.reach = 8;
    bias.table = t[6];
    AGAIN(w, status, attn_attention_weights(w->ctx, t[0], t[1], NULL, NULL, NULL, NULL, w->variant, list, 0, 3, 0, t[5]));
    return status;
}

static void result_weights(world *w)
{
    note_tensor(w, w->tensor[5]);
}

static void test_long(void **state)
{
    static const scenario all[] = {{"attention of long sequences", set_up_long, act_long, result_long, NULL, EACH_AGAIN, 0},
                                   {"weights", set_up_long, act_weights, result_weights, NULL, EACH_AGAIN, 0},
                                   {"weights with positions", set_up_long, act_weights, result_weights, NULL, EACH_AGAIN, 1}};
    (void)state;
    run_on_both(all, COUNT_OF(all));
}

/* ---- triangle attention around both nodes: a pair matrix, its gradient, the output */
static void set_up_triangle(world *w)
{
    const int64_t shape[3] = {3, 3, WIDTH};
    attn_attention_options o;
    for (int i = 0; i < 5; i++) w->tensor[i] = random_tensor(w, i, 3, shape);
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
    OK(w->ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = WIDTH;
    o.heads = 2;
    o.pair_bias = o.gated_output = 1;
    OK(w->ctx, attn_attention_create(w->ctx, &o, &w->attention));
    OK(w->ctx, attn_gradients_create(w->ctx, attn_attention_parameters(w->attention), &w->gradients));
}

static attn_status act_triangle(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_gradients_zero(w->ctx, w->gradients));
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, NULL));
    AGAIN(w, status, attn_tape_watch(w->ctx, w->tape, w->tensor[0], w->tensor[2]));
    AGAIN(w, status, attn_attention_triangle(w->ctx, w->attention, w->tape, w->tensor[0], w->variant, NULL, w->tensor[4]));
    return run_backward(w, status, w->tensor[4]);
}

static void test_triangle(void **state)
{
    static const scenario all[] = {
        {"triangle attention along rows", set_up_triangle, act_triangle, result_attention, NULL, EACH_AGAIN, 0},
        {"triangle attention along columns", set_up_triangle, act_triangle, result_attention, NULL, EACH_AGAIN, 1},
    };
    (void)state;
    run_on_both(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_operations), cmocka_unit_test(test_attention), cmocka_unit_test(test_part),
                                       cmocka_unit_test(test_long), cmocka_unit_test(test_triangle)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}

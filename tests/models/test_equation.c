#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "core/random.h"
#include "kernels/kernels.h"
#include "models/options.h"
#include "support/model.h"
#include "tensor/parameters.h"

/* A model against its equation, written out with the public operations on the model's parameters: which norm, which mask, which residual
   sum, and which dropout stands where. */
enum { SEQUENCES = 3, MADE = 400 };
static const int64_t source_lengths[SEQUENCES] = {3, 1, 4}, target_lengths[SEQUENCES] = {5, 2, 4};

typedef struct hand {
    attn_context *ctx;
    attn_tape *tape;
    attn_parameters *set;
    attn_transformer_options o;
    int count;
    attn_tensor *made[MADE];
} hand;

static void begin(attn_context *ctx, attn_tape *tape)
{
    attn_tape_options o;
    OK(ctx, attn_tape_options_init(&o, sizeof o));
    o.training = 1;
    o.seed = 21;
    o.step = 4;
    OK(ctx, attn_tape_begin(ctx, tape, &o));
}

static attn_tensor *keep(hand *h, attn_tensor *t)
{
    assert_true(h->count < MADE);
    return h->made[h->count++] = t;
}

static attn_tensor *room(hand *h, const attn_tensor *like, int64_t width)
{
    return keep(h, model_tensor(h->ctx, h->o.dtype, attn_tensor_extent(like, 0), width > 0 ? width : attn_tensor_extent(like, 1)));
}

static attn_tensor *parameter(const hand *h, const char *path, const char *name)
{
    char whole[200];
    snprintf(whole, sizeof whole, "%.120s%.60s", path, name);
    int64_t index = attn_parameters_find(h->set, whole);
    return index >= 0 ? attn_parameters_tensor(h->set, index) : NULL;
}

static uint64_t site(const char *path, const char *name)
{
    char whole[200];
    snprintf(whole, sizeof whole, "%.120s%.60s", path, name);
    return attn__hash(whole);
}

static attn_tensor *linear(hand *h, const char *path, const char *name, const attn_tensor *x)
{
    char whole[200];
    snprintf(whole, sizeof whole, "%.120s%.60s", path, name);
    const attn_tensor *w = parameter(h, whole, ".weight");
    attn_tensor *y = room(h, x, attn_tensor_extent(w, 0));
    OK(h->ctx, attn_linear(h->ctx, h->tape, x, w, parameter(h, whole, ".bias"), y));
    return y;
}

static attn_tensor *norm(hand *h, const char *path, const char *name, const attn_tensor *x)
{
    char whole[200];
    snprintf(whole, sizeof whole, "%.120s%.60s", path, name);
    attn_tensor *y = room(h, x, 0);
    OK(h->ctx, attn_layer_norm(h->ctx, h->tape, x, parameter(h, whole, ".weight"), parameter(h, whole, ".bias"), h->o.norm_epsilon, y));
    return y;
}

static attn_tensor *drop(hand *h, uint64_t where, const attn_layout *layout, double rate, const attn_tensor *x)
{
    attn_tensor *y = room(h, x, 0);
    OK(h->ctx, attn_dropout(h->ctx, h->tape, x, layout, rate, where, y));
    return y;
}

static attn_tensor *sum(hand *h, const attn_tensor *a, const attn_tensor *b)
{
    attn_tensor *y = room(h, a, 0);
    OK(h->ctx, attn_add(h->ctx, h->tape, a, b, y));
    return y;
}

static attn_tensor *heads_of(hand *h, attn_tensor *x)
{
    attn_tensor *t = NULL;
    const int64_t shape[3] = {attn_tensor_extent(x, 0), h->o.heads, attn_tensor_extent(x, 1) / h->o.heads};
    OK(h->ctx, attn_tensor_wrap(h->ctx, h->o.dtype, 3, shape, NULL, attn_tensor_data(x), &t));
    return keep(h, t);
}

/* what a layer stands among */
typedef struct place {
    const attn_layout *layout, *memory_layout;
    const attn_mask *mask, *memory_mask;
    const attn_tensor *memory;
} place;

static attn_tensor *attention(hand *h, const char *path, const attn_tensor *x, const attn_tensor *keys, const attn_layout *layout,
                              const attn_layout *key_layout, const attn_mask *mask)
{
    attn_dot_product_options o;
    attn_tensor *q = linear(h, path, "query", x), *k = linear(h, path, "key", keys), *v = linear(h, path, "value", keys);
    attn_tensor *y = room(h, q, 0);
    OK(h->ctx, attn_dot_product_options_init(&o, sizeof o));
    o.dropout = h->o.dropout_attention;
    o.site = site(path, "weights");
    OK(h->ctx, attn_dot_product_attention(h->ctx, h->tape, heads_of(h, q), heads_of(h, k), heads_of(h, v), layout, key_layout, mask, &o,
                                          heads_of(h, y)));
    return linear(h, path, "output", y);
}

static attn_tensor *feed_forward(hand *h, const char *path, const attn_tensor *x, const attn_layout *layout)
{
    attn_tensor *u = linear(h, path, "feed_forward.input", x), *y = room(h, u, 0);
    OK(h->ctx, attn_activation(h->ctx, h->tape, h->o.activation, u, NULL, y));
    return linear(h, path, "feed_forward.output", drop(h, site(path, "feed_forward.activation"), layout, h->o.dropout_activation, y));
}

enum { SELF, CROSS, FEED };
static attn_tensor *sub_layer(hand *h, const char *path, int which, const place *at, const attn_tensor *x)
{
    static const char *const names[] = {"self_attention", "cross_attention", "feed_forward"};
    char inner[200];
    snprintf(inner, sizeof inner, "%.120s%s.", path, names[which]);
    attn_tensor *y = which == SELF    ? attention(h, inner, x, x, at->layout, at->layout, at->mask)
                     : which == CROSS ? attention(h, inner, x, at->memory, at->layout, at->memory_layout, at->memory_mask)
                                      : feed_forward(h, path, x, at->layout);
    return drop(h, site(path, names[which]), at->layout, h->o.dropout_sublayer, y);
}

static attn_tensor *layer(hand *h, const char *path, const place *at, attn_tensor *x)
{
    static const char *const norms[] = {"self_attention_norm", "cross_attention_norm", "feed_forward_norm"};
    int pre = h->o.norm_placement == ATTN_PLACEMENT_PRE;
    const attn_tensor *all = h->o.parallel_block && pre ? norm(h, path, "norm", x) : x;
    attn_tensor *stream = x;
    for (int which = SELF; which <= FEED; which++) {
        if (which == CROSS && at->memory == NULL) continue;
        if (h->o.parallel_block)
            stream = sum(h, stream, sub_layer(h, path, which, at, all));
        else if (pre)
            stream = sum(h, stream, sub_layer(h, path, which, at, norm(h, path, norms[which], stream)));
        else
            stream = norm(h, path, norms[which], sum(h, stream, sub_layer(h, path, which, at, stream)));
    }
    return h->o.parallel_block && !pre ? norm(h, path, "norm", stream) : stream;
}

static attn_tensor *stack(hand *h, const char *path, int64_t layers, const place *at, attn_tensor *x)
{
    char inner[200];
    for (int64_t i = 0; i < layers; i++) {
        snprintf(inner, sizeof inner, "%.120slayers.%lld.", path, (long long)i);
        x = layer(h, inner, at, x);
    }
    return h->o.norm_placement == ATTN_PLACEMENT_PRE ? norm(h, path, "final_norm", x) : x;
}

static attn_tensor *embedding(hand *h, const char *side, const attn_tensor *tokens, const attn_layout *layout)
{
    char path[200], after[200];
    snprintf(path, sizeof path, "%s_embedding", side);
    snprintf(after, sizeof after, "%s_norm", side);
    attn_tensor *looked = keep(h, model_tensor(h->ctx, h->o.dtype, attn_tensor_extent(tokens, 0), h->o.width)), *y = room(h, looked, 0);
    OK(h->ctx, attn_embedding(h->ctx, h->tape, tokens, parameter(h, path, ".weight"), h->o.embedding_scale, looked));
    OK(h->ctx, attn_positions_sinusoidal(h->ctx, h->tape, looked, layout, y));
    if (h->o.embedding_norm) y = norm(h, "", after, y);
    return drop(h, attn__hash(side), layout, h->o.dropout_embedding, y);
}

static attn_transformer_options options_of(int which)
{
    attn_transformer_options o = model_options(2, 2);
    o.dtype = ATTN_FLOAT64;
    o.activation = ATTN_ACTIVATION_GELU;
    o.norm_placement = which & 1 ? ATTN_PLACEMENT_PRE : ATTN_PLACEMENT_POST;
    o.parallel_block = which >> 1 & 1;
    o.embedding_norm = which >> 2 & 1;
    o.embedding_scale = 1.7;
    o.dropout_attention = 0.15;
    o.dropout_sublayer = 0.25;
    o.dropout_activation = 0.35;
    o.dropout_embedding = 0.2;
    return o;
}

static void open_hand(hand *h, const attn_transformer_options *o)
{
    memset(h, 0, sizeof *h);
    h->ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    h->o = *o;
    OK(h->ctx, attn_tape_create(h->ctx, &h->tape));
}

static void close_hand(hand *h)
{
    for (int i = 0; i < h->count; i++) attn_tensor_free(h->made[i]);
    attn_tape_free(h->tape);
    attn_context_free(h->ctx);
}

static void expect_equal(const char *what, int which, const attn_tensor *got, const attn_tensor *want)
{
    assert_int_equal(model_elements(got), model_elements(want));
    for (int64_t i = 0; i < model_elements(got); i++) {
        double x = model_get(got, i), y = model_get(want, i);
        if (!(fabs(x - y) <= 1e-10 * (1 + fabs(y))))
            fail_msg("%s %d: element %lld: got %.15g, expected %.15g", what, which, (long long)i, x, y);
    }
}

static void test_models(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++) {
        const attn_transformer_options o = options_of(which);
        hand h;
        model_batch b;
        attn_mask *causal = NULL;
        open_hand(&h, &o);
        attn_transformer *model = model_create(h.ctx, &o);
        h.set = attn_transformer_parameters(model);
        model_batch_open(h.ctx, &b, &o, SEQUENCES, source_lengths, target_lengths, 3);
        OK(h.ctx, attn_mask_causal(h.ctx, ATTN_ALIGN_LAST, &causal));
        attn_tensor *logits = keep(&h, model_tensor(h.ctx, o.dtype, b.rows, o.source_vocabulary));
        begin(h.ctx, h.tape);
        OK(h.ctx, attn_transformer_forward(h.ctx, model, h.tape, &b.batch, logits));
        begin(h.ctx, h.tape);
        const place encoder = {.layout = b.source_layout};
        place decoder = {.layout = b.target_layout, .memory_layout = b.source_layout, .mask = causal};
        decoder.memory = stack(&h, "encoder.", 2, &encoder, embedding(&h, "source", b.source, b.source_layout));
        attn_tensor *hidden = stack(&h, "decoder.", 2, &decoder, embedding(&h, "target", b.target, b.target_layout));
        expect_equal("model", which, logits, linear(&h, "", "output", hidden));
        attn_mask_free(causal);
        model_batch_close(&b);
        attn_transformer_free(model);
        close_hand(&h);
    }
}

/* a decoder of its own, with a mask for its memory */
static void test_memory_mask(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        const attn_transformer_options o = options_of(which);
        hand h;
        model_batch b;
        attn_decoder *decoder = NULL;
        attn_mask *causal = NULL, *window = NULL;
        random_state random = {4};
        open_hand(&h, &o);
        OK(h.ctx, attn_decoder_create(h.ctx, &o, &decoder));
        h.set = attn_decoder_parameters(decoder);
        model_scramble(h.set, 9);
        model_batch_open(h.ctx, &b, &o, SEQUENCES, source_lengths, target_lengths, 3);
        OK(h.ctx, attn_mask_causal(h.ctx, ATTN_ALIGN_LAST, &causal));
        OK(h.ctx, attn_mask_window(h.ctx, ATTN_ALIGN_FIRST, 1, 0, 1, &window));
        attn_tensor *x = keep(&h, model_tensor(h.ctx, o.dtype, b.rows, o.width)), *y = room(&h, x, 0);
        attn_tensor *memory = keep(&h, model_tensor(h.ctx, o.dtype, attn_tensor_extent(b.source, 0), o.width));
        for (int64_t i = 0; i < model_elements(x); i++) model_set(x, i, random_number(&random, -1, 1));
        for (int64_t i = 0; i < model_elements(memory); i++) model_set(memory, i, random_number(&random, -1, 1));
        begin(h.ctx, h.tape);
        OK(h.ctx, attn_decoder_forward(h.ctx, decoder, h.tape, x, memory, b.target_layout, b.source_layout, causal, window, y));
        begin(h.ctx, h.tape);
        const place at = {b.target_layout, b.source_layout, causal, window, memory};
        expect_equal("decoder", which, y, stack(&h, "", 2, &at, x));
        attn_mask_free(causal);
        attn_mask_free(window);
        model_batch_close(&b);
        attn_decoder_free(decoder);
        close_hand(&h);
    }
}

/* the loss of a model is the loss of its logits, whatever the options; tokens may lie in a column of a wider table */
static void test_loss(void **state)
{
    attn_transformer_options o = options_of(0);
    hand h;
    model_batch b;
    attn_cross_entropy_options loss_options;
    (void)state;
    open_hand(&h, &o);
    attn_transformer *model = model_create(h.ctx, &o);
    h.set = attn_transformer_parameters(model);
    model_batch_open(h.ctx, &b, &o, SEQUENCES, source_lengths, target_lengths, 3);
    OK(h.ctx, attn_cross_entropy_options_init(&loss_options, sizeof loss_options));
    loss_options.label_smoothing = 0.2;
    loss_options.smoothing_form = 1;
    loss_options.mean = 1;
    loss_options.ignored_label = (int64_t)model_get(b.labels, 0);
    attn_tensor *logits = keep(&h, model_tensor(h.ctx, o.dtype, b.rows, o.source_vocabulary));
    attn_tensor *got = keep(&h, model_tensor(h.ctx, o.dtype, 1, 0)), *want = keep(&h, model_tensor(h.ctx, o.dtype, 1, 0));
    attn_gradients *gradients[2];
    int32_t wide[16 * 3];
    for (int i = 0; i < 2; i++) {
        OK(h.ctx, attn_gradients_create(h.ctx, h.set, &gradients[i]));
        attn_tensor *column = NULL;
        const int64_t shape[2] = {b.rows, 1}, strides[2] = {3, 1};
        for (int64_t r = 0; r < b.rows; r++) wide[3 * r] = (int32_t)model_get(b.target, r), wide[3 * r + 1] = wide[3 * r + 2] = 99;
        OK(h.ctx, attn_tensor_wrap(h.ctx, ATTN_INT32, 2, shape, strides, wide, &column));
        b.batch.target = i == 0 ? b.target : column;
        begin(h.ctx, h.tape);
        OK(h.ctx, attn_transformer_loss(h.ctx, model, h.tape, &b.batch, &loss_options, got, NULL));
        memset(wide, 0x7f, sizeof wide); /* a tape keeps tokens of its own */
        OK(h.ctx, attn_tape_backward(h.ctx, h.tape, 1, (const attn_tensor *const *)&got, NULL, 1, &gradients[i]));
        attn_tensor_free(column);
    }
    expect_equal("gradients", 0, attn_gradients_flat(gradients[1]), attn_gradients_flat(gradients[0]));
    b.batch.target = b.target;
    begin(h.ctx, h.tape);
    OK(h.ctx, attn_transformer_forward(h.ctx, model, h.tape, &b.batch, logits));
    OK(h.ctx, attn_cross_entropy(h.ctx, NULL, logits, b.labels, &loss_options, want, NULL));
    expect_equal("loss", 0, got, want);
    for (int i = 0; i < 2; i++) attn_gradients_free(gradients[i]);
    model_batch_close(&b);
    attn_transformer_free(model);
    close_hand(&h);
}

/* Starting values: a normal or uniform stream by the context's seed and the parameter's name; what writes to the residual stream is
   divided by sqrt(2 layers) (GPT-2). */
static void test_start(void **state)
{
    static const struct {
        const char *name;
        double amount;
    } wanted[] = {{"decoder.layers.1.self_attention.query.weight", 0.05},
                  {"decoder.layers.1.self_attention.output.weight", 0.05 / 2.4494897427831781},
                  {"decoder.layers.2.feed_forward.output.weight", 0.05 / 2.4494897427831781},
                  {"decoder.layers.0.feed_forward.input.weight", 0.05},
                  {"target_embedding.weight", 0.05}};
    attn_transformer_options o = model_options(0, 3);
    attn_transformer *model = NULL;
    const attn__kernels *kernels = NULL;
    (void)state;
    o.dtype = ATTN_FLOAT64;
    o.initialisation = ATTN_INITIALISATION_SCALED_NORMAL;
    o.initialisation_scale = 0.05;
    attn_context *ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 123);
    OK(ctx, attn_transformer_create(ctx, &o, &model));
    OK(ctx, attn__kernels_for(ctx, ATTN_FLOAT64, &kernels));
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        attn_parameters *set = attn_transformer_parameters(model);
        attn_tensor *got = attn_parameters_tensor(set, attn_parameters_find(set, wanted[i].name));
        attn_tensor *want = model_tensor(ctx, ATTN_FLOAT64, attn_tensor_extent(got, 0), attn_tensor_extent(got, 1));
        view to = {attn_tensor_data(want),
                   attn_tensor_extent(got, 0),
                   1,
                   attn_tensor_extent(got, 1),
                   attn_tensor_extent(got, 1),
                   0,
                   ATTN_FLOAT64,
                   0};
        OK(ctx, kernels->fill(ctx, &to, ATTN__START_NORMAL, wanted[i].amount, attn__mix(123, attn__hash(wanted[i].name))));
        expect_equal(wanted[i].name, 0, got, want);
        attn_tensor_free(want);
    }
    attn_transformer_free(model);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_memory_mask),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

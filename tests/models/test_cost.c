#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "models/options.h"
#include "support/model.h"
#include "training/trainer.h"

static attn_context *ctx;

static attn_layout *layout_of(int64_t count, const int64_t *lengths)
{
    attn_layout *made = NULL;
    OK(ctx, attn_layout_create(ctx, count, &made));
    OK(ctx, attn_layout_set_lengths(ctx, made, count, lengths, 0));
    return made;
}

static attn_cost_report cost_of(const attn_transformer_options *o, int32_t training, const attn_layout *source, const attn_layout *target)
{
    attn_cost_report r = {.struct_size = sizeof r};
    OK(ctx, attn_transformer_cost(ctx, o, training, source, target, &r));
    return r;
}

/* pairs of queries and keys in blocks of 64 on or below the diagonal */
static int64_t blocks(int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i += 64)
        for (int64_t j = 0; j <= i; j += 64) sum += (n - i < 64 ? n - i : 64) * (n - j < 64 ? n - j : 64);
    return sum;
}

/* a decoder of 2 layers, width 8, feed-forward 12, 11 tokens: each number by hand */
static void test_decoder(void **state)
{
    (void)state;
    const int64_t lengths[3] = {100, 0, 7}, rows = 107, pairs = blocks(100) + 49, full = 100 * 100 + 49;
    attn_transformer_options o = model_options(0, 2);
    attn_layout *layout = layout_of(3, lengths);
    attn_cost_report r = cost_of(&o, 1, NULL, layout);
    const int64_t products = 2 * rows * (4 * 8 * 8 + 2 * 8 * 12) + rows * 8 * 11;
    assert_int_equal(r.parameters, 2 * (4 * (64 + 8) + 96 + 12 + 96 + 8 + 4 * 8) + 2 * 11 * 8);
    assert_int_equal(r.forward, products + 2 * pairs * 2 * (4 + 4));
    assert_int_equal(r.backward, 2 * products + 2 * pairs * 2 * (3 * 4 + 2 * 4));
    assert_int_equal(r.forward_formula, products + 2 * full * 2 * (4 + 4));
    assert_int_equal(r.backward_formula, 2 * r.forward_formula);
    assert_true(r.bytes > 4 * r.parameters);
    attn_cost_report inference = cost_of(&o, 0, NULL, layout);
    assert_int_equal(inference.forward, r.forward);
    assert_int_equal(inference.backward, 0);
    assert_int_equal(inference.backward_formula, 0);
    assert_true(inference.peak_bytes < r.peak_bytes);
    assert_int_equal(r.weights_bytes, 2 * full * 2 * 4);
    /* a generator: logits of the last rows alone; then one token a sequence, which sees all before it */
    const int64_t prompts[2] = {100, 7};
    attn_layout *sequences = layout_of(2, prompts);
    attn_cost_report g = cost_of(&o, 0, NULL, sequences);
    assert_int_equal(g.prompt, r.forward - (rows - 2) * 8 * 11);
    assert_int_equal(g.decode, 2 * 2 * (4 * 8 * 8 + 2 * 8 * 12) + 2 * 8 * 11 + 2 * (101 + 8) * 2 * (4 + 4));
    attn_layout_free(sequences);
    attn_layout_free(layout);
}

/* callers of the first version, whose report ended after peak_bytes, get that and no byte more */
static void test_older_caller(void **state)
{
    (void)state;
    const int64_t length = 5;
    attn_transformer_options o = model_options(0, 1);
    attn_layout *layout = layout_of(1, &length);
    attn_cost_report whole = cost_of(&o, 1, NULL, layout), old;
    memset(&old, 0x55, sizeof old);
    old.struct_size = offsetof(attn_cost_report, weights_bytes);
    OK(ctx, attn_transformer_cost(ctx, &o, 1, NULL, layout, &old));
    assert_int_equal(old.struct_size, offsetof(attn_cost_report, weights_bytes));
    assert_memory_equal(&old.parameters, &whole.parameters, old.struct_size - sizeof old.struct_size);
    assert_int_equal(old.weights_bytes, INT64_C(0x5555555555555555));
    old.struct_size--;
    FAILS(ctx, attn_transformer_cost(ctx, &o, 1, NULL, layout, &old), ATTN_ERROR_INVALID_ARGUMENT, "struct_size");
    attn_layout_free(layout);
}

/* an encoder-decoder of one layer each, gated, grouped heads, a decoder of another width, a tied output */
static void test_encoder_decoder(void **state)
{
    (void)state;
    const int64_t source[2] = {5, 3}, target[2] = {4, 6}, m = 8, n = 10;
    attn_transformer_options o = model_options(1, 1);
    o.heads = 4;
    o.key_heads = 2;
    o.decoder_width = 12;
    o.decoder_heads = 4;
    o.decoder_feed_forward = 20;
    o.gated = 1;
    o.tie = ATTN_TIE_OUTPUT;
    attn_layout *s = layout_of(2, source), *t = layout_of(2, target);
    attn_cost_report r = cost_of(&o, 1, s, t);
    /* encoder: 4 heads of 2, query and output 8 x 8, key and value 8 x 4; decoder: 4 heads of 3, so 12 x 12 and 12 x 6, and 8 x 6 of memory */
    const int64_t encoder = m * (2 * 64 + 2 * 32 + 3 * 8 * 12), self = n * (2 * 144 + 2 * 72), cross = n * 2 * 144 + m * 2 * 48;
    const int64_t products = encoder + self + cross + n * 3 * 12 * 20 + n * 12 * 11;
    const int64_t own = 25 + 9, causal = 16 + 36, across = 20 + 18; /* a block of 64 is not cut */
    assert_int_equal(r.forward, products + own * 4 * 4 + causal * 4 * 6 + across * 4 * 6);
    assert_int_equal(r.forward, r.forward_formula);
    assert_int_equal(r.backward, 2 * products + own * 4 * 10 + causal * 4 * 15 + across * 4 * 15);
    const int64_t want = 2 * 64 + 16 + 2 * (32 + 4) + 3 * 96 + 2 * 12 + 8 + 4 * 8    /* encoder */
                         + 2 * 144 + 24 + 2 * (72 + 6) + 2 * 144 + 24 + 2 * (48 + 6) /* decoder's attentions */
                         + 3 * 240 + 2 * 20 + 12 + 6 * 12 + 11 * 8 + 11 * 12;
    assert_int_equal(r.parameters, want);
    attn_layout_free(s);
    attn_layout_free(t);
}

/* layers that run again cost their forward once more, and keep less */
static void test_checkpoint(void **state)
{
    (void)state;
    const int64_t length = 2000;
    attn_transformer_options o = model_options(0, 8);
    attn_layout *layout = layout_of(1, &length);
    for (int32_t placement = 0; placement < 2; placement++) {
        o.norm_placement = placement;
        o.checkpoint_layers = 0;
        attn_cost_report plain = cost_of(&o, 1, NULL, layout);
        o.checkpoint_layers = 1;
        attn_cost_report again = cost_of(&o, 1, NULL, layout);
        assert_int_equal(again.forward, plain.forward);
        assert_int_equal(again.backward - plain.backward, plain.forward - length * 8 * 11);
        if (!(2 * again.peak_bytes < plain.peak_bytes))
            fail_msg("%lld bytes against %lld", (long long)again.peak_bytes, (long long)plain.peak_bytes);
    }
    attn_layout_free(layout);
}

/* what is predicted against what a trainer's steps take: never less, and no more than a block of scratch above */
static void test_memory(void **state)
{
    (void)state;
    enum { LONGEST = 48, SEQUENCES = 6, BLOCK = 1 << 20, HANDLES = 1 << 14 };
    const int64_t lengths[SEQUENCES] = {LONGEST, LONGEST, LONGEST, LONGEST, LONGEST, LONGEST};
    static const int32_t positions[4] = {ATTN_POSITIONS_T5, ATTN_POSITIONS_ALIBI, ATTN_POSITIONS_RELATIVE, ATTN_POSITIONS_ROTARY};
    for (int which = 0; which < 16; which++) {
        attn_transformer_options o = model_options(which & 1 ? 2 : 0, 2);
        if (which >= 8) o.positions = positions[which / 2 % 4];
        o.width = 64;
        o.feed_forward = 256;
        o.source_vocabulary = 300;
        o.context = LONGEST;
        o.norm_placement = which & 2 ? ATTN_PLACEMENT_PRE : ATTN_PLACEMENT_POST;
        o.activation = ATTN_ACTIVATION_GELU;
        o.checkpoint_layers = which & 4 ? 1 : 0;
        o.dropout_attention = o.dropout_sublayer = 0.1;
        attn_context *own = model_context(ATTN_BACKEND_BLAS, 1, 0);
        attn_transformer *model = model_create(own, &o);
        attn_trainer *trainer = NULL;
        model_batch batch;
        model_batch_open(ctx, &batch, &o, SEQUENCES, lengths, lengths, 1);
        OK(own, attn_trainer_create(own, model, NULL, NULL, NULL, NULL, &trainer));
        attn_cost_report r = {.struct_size = sizeof r};
        OK(own, attn_transformer_memory(own, &o, 1, SEQUENCES * LONGEST, LONGEST, &r));
        OK(own, attn_trainer_reserve(own, trainer, SEQUENCES * LONGEST, LONGEST));
        attn_memory_report reserved = {.struct_size = sizeof reserved}, taken = {.struct_size = sizeof taken};
        OK(own, attn_context_memory(own, &reserved));
        for (int i = 0; i < 3; i++) OK(own, attn_trainer_step(own, trainer, &batch.batch, NULL));
        OK(own, attn_context_memory(own, &taken));
        if (taken.peak != reserved.peak) /* steps take nothing that was not reserved */
            fail_msg("case %d: %lld bytes reserved, %lld taken", which, (long long)reserved.peak, (long long)taken.peak);
        if (taken.peak > r.peak_bytes || r.peak_bytes > taken.peak + BLOCK + HANDLES)
            fail_msg("case %d: predicted %lld bytes, %lld were taken", which, (long long)r.peak_bytes, (long long)taken.peak);
        attn_trainer_free(trainer);
        model_batch_close(&batch);
        attn_transformer_free(model);
        attn_context_free(own);
    }
}

static void test_attention(void **state)
{
    (void)state;
    const int64_t queries[2] = {100, 3}, keys[2] = {100, 70};
    attn_layout *q = layout_of(2, queries), *k = layout_of(2, keys);
    attn_attention_options o;
    attn_cost_report r = {.struct_size = sizeof r};
    attn_mask *mask = NULL;
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.heads = 4;
    o.key_heads = 2;
    o.query_width = 8;
    o.key_width = o.value_width = 6;
    o.value_head_size = 3;
    o.output_width = 5;
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask));
    const int64_t projections = 103 * 8 * 8 + 170 * 6 * 4 + 170 * 6 * 6 + 103 * 12 * 5;
    OK(ctx, attn_attention_cost(ctx, &o, q, k, NULL, &r));
    assert_int_equal(r.forward, projections + (10000 + 210) * 4 * (2 + 3));
    assert_int_equal(r.forward_formula, r.forward);
    assert_int_equal(r.backward, 2 * projections + (10000 + 210) * 4 * (6 + 6));
    assert_int_equal(r.weights_bytes, (10000 + 210) * 4 * 4);
    assert_int_equal(r.prompt + r.decode + r.decode_bytes, 0);
    assert_int_equal(r.parameters, 8 * 8 + 8 + 6 * 4 + 4 + 6 * 6 + 6 + 12 * 5 + 5);
    OK(ctx, attn_attention_cost(ctx, &o, q, k, mask, &r));
    assert_int_equal(r.forward, projections + (blocks(100) + 210) * 4 * (2 + 3));
    attn_mask_free(mask);
    attn_layout_free(q);
    attn_layout_free(k);
}

/* an LSTM in both directions and a decoder of another width, by each kind of score: bilinear, additive, none. What a first step would multiply
   with a state of zeros is in the formula alone, as are the products with the vector of additive scores, which the kernel does beside the tanh. */
static void test_recurrent(void **state)
{
    (void)state;
    const int64_t source[2] = {5, 3}, target[2] = {4, 6}, m = 8, n = 10, pairs = 5 * 4 + 3 * 6;
    attn_layout *s = layout_of(2, source), *t = layout_of(2, target);
    attn_transformer_options o = model_options(1, 1);
    o.recurrence = ATTN_RECURRENCE_LSTM;
    o.decoder_width = 6;
    const int64_t encoder = 2 * m * (16 * 8 + 16 * 4), unread = 2 * 2 * 16 * 4, start = 2 * 8 * 12, decoder = n * (24 * 6 + 24 * 6);
    const int64_t context = n * 8 * 24, readout = n * (6 + 8) * 6, output = n * 6 * 11;
    o.decoder_score = ATTN_SCORE_MULTIPLICATIVE;
    attn_cost_report r = cost_of(&o, 1, s, t);
    assert_int_equal(r.forward_formula, encoder + start + decoder + context + readout + output + n * 6 * 8 + pairs * (8 + 8));
    assert_int_equal(r.backward_formula, 2 * r.forward_formula);
    assert_int_equal(r.forward, r.forward_formula - unread);
    assert_int_equal(r.weights_bytes, pairs * 4);
    o.decoder_score = ATTN_SCORE_ADDITIVE;
    r = cost_of(&o, 0, s, t);
    assert_int_equal(r.forward_formula, encoder + start + decoder + context + readout + output + n * 6 * 6 + m * 8 * 6 + pairs * (6 + 8));
    assert_int_equal(r.forward, r.forward_formula - unread - pairs * 6);
    o.decoder_attention = 0;
    r = cost_of(&o, 0, s, t);
    assert_int_equal(r.forward_formula, encoder + start + decoder + n * 6 * 6 + output);
    assert_int_equal(r.forward, r.forward_formula - unread);
    assert_int_equal(r.weights_bytes, 0);
    o.both_ways = 0;
    o.decoder_layers = 0;
    r = cost_of(&o, 0, s, NULL);
    assert_int_equal(r.forward_formula, m * (32 * 8 + 32 * 8) + m * 8 * 11);
    attn_layout_free(s);
    attn_layout_free(t);
}

static void test_errors(void **state)
{
    (void)state;
    const int64_t lengths[2] = {2, 3};
    attn_layout *one = layout_of(1, lengths), *two = layout_of(2, lengths);
    attn_cost_report r = {.struct_size = sizeof r};
    attn_transformer_options o = model_options(1, 1);
    FAILS(ctx, attn_transformer_cost(ctx, &o, 1, one, two, &r), ATTN_ERROR_SHAPE, "target");
    FAILS(ctx, attn_transformer_cost(ctx, &o, 1, NULL, two, &r), ATTN_ERROR_INVALID_ARGUMENT, "source");
    FAILS(ctx, attn_transformer_cost(ctx, &o, 1, two, NULL, &r), ATTN_ERROR_INVALID_ARGUMENT, "target");
    FAILS(ctx, attn_transformer_cost(ctx, &o, 1, two, two, NULL), ATTN_ERROR_INVALID_ARGUMENT, "report");
    o.heads = 3;
    FAILS(ctx, attn_transformer_cost(ctx, &o, 1, two, two, &r), ATTN_ERROR_SHAPE, "width");
    o = model_options(1, 1);
    FAILS(ctx, attn_transformer_memory(ctx, &o, 1, -1, 5, &r), ATTN_ERROR_INVALID_ARGUMENT, "rows");
    FAILS(ctx, attn_transformer_memory(ctx, &o, 1, 5, 0, &r), ATTN_ERROR_INVALID_ARGUMENT, "longest");
    OK(ctx, attn_transformer_memory(ctx, &o, 1, 0, 5, &r)); /* nothing costs nothing */
    assert_int_equal(r.forward, 0);
    o.encoder_layers = o.decoder_layers = 100; /* past 63 bits: an error or the largest number, never a negative one */
    o.width = o.feed_forward = 500000000;
    o.heads = 1;
    for (int64_t rows = 1; rows < INT64_C(1) << 40; rows *= 1024) {
        attn_status status = attn_transformer_memory(ctx, &o, 1, rows, rows, &r);
        assert_true(status == ATTN_ERROR_TOO_LARGE || (status == ATTN_OK && r.forward > 0 && r.forward_formula > 0 && r.peak_bytes > 0));
    }
    attn_layout_free(one);
    attn_layout_free(two);
}

static int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decoder),         cmocka_unit_test(test_older_caller),
                                       cmocka_unit_test(test_encoder_decoder), cmocka_unit_test(test_checkpoint),
                                       cmocka_unit_test(test_memory),          cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_recurrent),       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <attn/inspect.h>
#include <cmocka.h>
#include "support/model.h"
#include "variants.h"

/* Costs where they end: layers of every kind against what they have, sizes past what can be counted, a cap that is reached; and requests that a
   model cannot serve. */
static attn_context *ctx;

static attn_layout *layout_of(int64_t count, const int64_t *lengths)
{
    attn_layout *made = NULL;
    OK(ctx, attn_layout_create(ctx, count, &made));
    OK(ctx, attn_layout_set_lengths(ctx, made, count, lengths, 0));
    return made;
}

static attn_attention_options layer_options(void)
{
    attn_attention_options o;
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = 8;
    o.heads = 2;
    return o;
}

/* the report's parameters are those the layer has */
static void expect_parameters(const attn_attention_options *o, const attn_layout *layout)
{
    attn_attention *layer = NULL;
    attn_cost_report r = {.struct_size = sizeof r};
    int64_t have = 0;
    OK(ctx, attn_attention_create(ctx, o, &layer));
    OK(ctx, attn_attention_cost(ctx, o, layout, layout, NULL, &r));
    attn_parameters *p = attn_attention_parameters(layer);
    for (int64_t i = 0; i < attn_parameters_count(p); i++) have += model_elements(attn_parameters_tensor(p, i));
    assert_int_equal(r.parameters, have);
    assert_true(r.forward > 0 && r.backward > r.forward);
    attn_attention_free(layer);
}

static void test_parameters(void **state)
{
    const int64_t lengths[2] = {5, 9};
    attn_layout *layout = layout_of(2, lengths);
    (void)state;
    for (int which = 0; which < 12; which++) {
        attn_attention_options o = layer_options();
        if (which == 1 || which == 2) o.positions = ATTN_POSITIONS_RELATIVE, o.position_reach = 3, o.relative_values = which - 1;
        if (which == 3) o.positions = ATTN_POSITIONS_T5;
        if (which == 4) o.score = ATTN_SCORE_ADDITIVE;
        if (which == 5) o.score = ATTN_SCORE_MULTIPLICATIVE, o.key_head_size = 3;
        if (which == 6 || which == 7) o.form = ATTN_FORM_LINFORMER, o.projected = 3, o.longest = 9, o.separate_projections = which - 6;
        if (which == 8 || which == 9) o.form = ATTN_FORM_PERFORMER, o.features = which == 8 ? 10 : ATTN_DERIVED;
        if (which == 10) o.query_key_norm = ATTN_QUERY_KEY_LAYER, o.gated_output = 1;
        if (which == 11) o.query_key_norm = ATTN_QUERY_KEY_RMS, o.gated_output = 1, o.bias_query = 0, o.project_output = 0;
        expect_parameters(&o, layout);
    }
    attn_layout_free(layout);
}

/* sums past 63 bits stay at the largest number */
static void test_largest(void **state)
{
    const int64_t lengths[4] = {1, 1, 1, 1};
    attn_layout *layout = layout_of(4, lengths);
    attn_cost_report r = {.struct_size = sizeof r};
    attn_attention_options o = layer_options();
    (void)state;
    o.query_width = o.key_width = o.value_width = o.output_width = INT64_MAX / 2;
    o.head_size = o.value_head_size = 1000;
    OK(ctx, attn_attention_cost(ctx, &o, layout, layout, NULL, &r));
    assert_true(r.parameters == INT64_MAX && r.bytes == INT64_MAX && r.forward_formula == INT64_MAX && r.backward_formula == INT64_MAX);
    o = layer_options();
    o.query_width = INT64_MAX / 8; /* each term fits, not their sum */
    o.head_size = 4;
    OK(ctx, attn_attention_cost(ctx, &o, layout, layout, NULL, &r));
    assert_true(r.parameters == INT64_MAX);
    const int64_t few = 64, many = INT64_C(1) << 60;
    attn_layout *short_one = layout_of(1, &few), *long_one = layout_of(1, &many);
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = o.heads = 1;
    o.project_query = o.project_key = o.project_value = o.project_output = 0; /* nothing but the pairs */
    OK(ctx, attn_attention_cost(ctx, &o, short_one, long_one, NULL, &r));
    assert_true(r.forward == INT64_MAX && r.backward == INT64_MAX && r.forward_formula == INT64_MAX && r.weights_bytes == INT64_MAX);
    attn_layout_free(short_one);
    attn_layout_free(long_one);
    attn_layout_free(layout);
}

/* What is larger never takes less, up to where its bytes cannot be counted; from there on it is too large, and stays so. */
enum { WIDTH, FEED_FORWARD, VOCABULARY, SOURCE_ROWS, TARGET_ROWS, BOTH_ROWS, SIDES };
static attn_status grow(int what, int bits, int training, attn_transformer_options o, attn_cost_report *r)
{
    const int64_t size = INT64_C(1) << bits, few = 16,
                  lengths[2] = {what == SOURCE_ROWS || what == BOTH_ROWS ? size : few,
                                what == TARGET_ROWS || what == BOTH_ROWS ? size : few};
    if (what == WIDTH) o.width = size;
    if (what == FEED_FORWARD) o.feed_forward = o.decoder_feed_forward = size;
    if (what == VOCABULARY) o.source_vocabulary = o.target_vocabulary = size;
    if (what <= VOCABULARY) return attn_transformer_memory(ctx, &o, training, 1 << 14, few, r);
    attn_layout *source = layout_of(1, &lengths[0]), *target = layout_of(1, &lengths[1]);
    attn_status status = attn_transformer_cost(ctx, &o, training, source, target, r);
    attn_layout_free(source);
    attn_layout_free(target);
    return status;
}

static void test_growth(void **state)
{
    static const char *const kinds[] = {"encoder-decoder, post-norm",
                                        "decoder, learned positions",
                                        "encoder with an embedding norm",
                                        "parallel block, pre-norm",
                                        "T5 buckets, scores not scaled",
                                        "relative rows (Shaw)",
                                        "queries and keys normed, gated heads",
                                        "layers run again",
                                        "linear attention",
                                        "Performer, rotary",
                                        "LSTM, two layers, bilinear scores, decoder of another width",
                                        "LSTM decoder"};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int training = 0; training < 2; training++)
            for (int what = 0; what < SIDES; what++) {
                int64_t before = 0;
                int refused = 0;
                /* sequences in between are left out: their blocks take long to count */
                for (int bits = 4; bits<62; bits = what> VOCABULARY && bits == 12 ? 39 : bits + 1) {
                    attn_cost_report r = {.struct_size = sizeof r};
                    attn_transformer_options o = variant_options(&variants[variant_index(kinds[i])], ATTN_FLOAT32, 0.1);
                    o.context = INT64_C(1) << 20;
                    attn_status status = grow(what, bits, training, o, &r);
                    if (refused || status != ATTN_OK) {
                        if (status != ATTN_ERROR_TOO_LARGE && status != ATTN_ERROR_INVALID_ARGUMENT)
                            fail_msg("%s, 2^%d of %d: %s %s", kinds[i], bits, what, attn_status_name(status), attn_context_last_error(ctx));
                        refused = 1;
                        continue;
                    }
                    assert_true(r.peak_bytes >= before);
                    before = r.peak_bytes;
                }
            }
}

/* numbers for the optimizer alone, where a model is large and the batch is nothing */
static void test_update(void **state)
{
    attn_transformer_options o = model_options(0, 1);
    attn_cost_report none = {.struct_size = sizeof none}, r = none;
    (void)state;
    o.recurrence = ATTN_RECURRENCE_LSTM;
    OK(ctx, attn_transformer_memory(ctx, &o, 1, 0, 1, &r)); /* nor are there steps then */
    assert_true(r.peak_bytes > 0 && r.forward == 0);
    o.recurrence = ATTN_RECURRENCE_NONE;
    OK(ctx, attn_transformer_memory(ctx, &o, 1, 0, 1, &none));
    o.target_vocabulary = 1 << 30;
    OK(ctx, attn_transformer_memory(ctx, &o, 1, 0, 1, &r));
    /* parameters, gradients and two moments of 4 bytes, and 8 for the sums of each 16384 */
    assert_true(r.peak_bytes - none.peak_bytes > 16 * (r.parameters - none.parameters));
    assert_true(r.peak_bytes - none.peak_bytes < 17 * (r.parameters - none.parameters));
}

/* a model without a head has nothing to decode */
static void test_no_head(void **state)
{
    const int64_t length = 5;
    attn_layout *layout = layout_of(1, &length);
    attn_transformer_options o = model_options(0, 1);
    attn_cost_report r = {.struct_size = sizeof r};
    (void)state;
    o.output_head = 0;
    OK(ctx, attn_transformer_cost(ctx, &o, 0, NULL, layout, &r));
    assert_true(r.forward > 0 && r.prompt == 0 && r.decode == 0 && r.decode_bytes == 0);
    attn_layout_free(layout);
}

/* under a cap of which everything is taken there is no plan of a model */
static void test_cap(void **state)
{
    attn_transformer_options o = model_options(0, 1);
    attn_cost_report r = {.struct_size = sizeof r};
    attn_memory_report taken = {.struct_size = sizeof taken};
    attn_context_options c;
    attn_context *full = NULL;
    (void)state;
    assert_int_equal(attn_context_options_init(&c, sizeof c), ATTN_OK);
    c.threads = 1;
    assert_int_equal(attn_context_create(&c, &full), ATTN_OK);
    OK(full, attn_context_memory(full, &taken));
    attn_context_free(full);
    c.memory_cap = taken.live;
    for (attn_context *smaller = NULL; attn_context_create(&c, &smaller) == ATTN_OK; c.memory_cap--) attn_context_free(smaller);
    c.memory_cap++; /* the least that a context can be made under */
    assert_int_equal(attn_context_create(&c, &full), ATTN_OK);
    FAILS(full, attn_transformer_memory(full, &o, 0, 5, 5, &r), ATTN_ERROR_MEMORY_CAP, "plan");
    attn_context_free(full);
}

/* a tied output needs equal numbers only where there is one */
static void test_tie(void **state)
{
    attn_transformer_options o = model_options(1, 0);
    attn_transformer *model = NULL;
    (void)state;
    o.target_vocabulary = 5;
    o.tie = ATTN_TIE_OUTPUT;
    FAILS(ctx, attn_transformer_create(ctx, &o, &model), ATTN_ERROR_SHAPE, "options.tie");
    o.output_head = 0;
    OK(ctx, attn_transformer_create(ctx, &o, &model));
    attn_transformer_free(model);
}

/* Backward without a handle gives nothing and writes nowhere; with all parameters frozen but one, that one has the gradient it has among all. */
static void run_training(attn_transformer *model, attn_tape *tape, const model_batch *batch, attn_tensor *y, attn_gradients *gradients)
{
    const attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 3};
    const attn_tensor *const outputs[1] = {y};
    OK(ctx, attn_tape_begin(ctx, tape, &training));
    OK(ctx, attn_transformer_forward(ctx, model, tape, &batch->batch, y));
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, NULL, gradients != NULL, &gradients));
}

static void test_handles(void **state)
{
    const int64_t source[2] = {3, 4}, target[2] = {2, 5};
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        const attn_transformer_options o = variant_options(&variants[i], ATTN_FLOAT32, 0.25);
        attn_transformer *model = model_create(ctx, &o);
        attn_parameters *p = attn_transformer_parameters(model);
        attn_gradients *all = NULL, *one = NULL;
        attn_tape *tape = NULL;
        attn_tensor *y = NULL;
        model_batch batch;
        model_batch_open(ctx, &batch, &o, 2, source, target, 1);
        const int64_t width = o.output_head ? (o.decoder_layers > 0 && o.target_vocabulary != ATTN_DERIVED ? o.target_vocabulary : 11)
                                            : (o.decoder_layers > 0 && o.decoder_width != ATTN_DERIVED ? o.decoder_width : o.width);
        OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, (const int64_t[]){batch.rows, width}, &y));
        OK(ctx, attn_gradients_create(ctx, p, &all));
        OK(ctx, attn_gradients_create(ctx, p, &one));
        OK(ctx, attn_tape_create(ctx, &tape));
        run_training(model, tape, &batch, y, NULL);
        run_training(model, tape, &batch, y, all);
        for (int64_t k = 0; k < attn_parameters_count(p); k++) {
            OK(ctx, attn_parameters_freeze(ctx, p, "*", 1, NULL));
            OK(ctx, attn_parameters_freeze(ctx, p, attn_parameters_name(p, k), 0, NULL));
            OK(ctx, attn_gradients_zero(ctx, one));
            OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, y));
            run_training(model, tape, &batch, y, one);
            attn_tensor *got = attn_gradients_tensor(one, k), *want = attn_gradients_tensor(all, k);
            for (int64_t e = 0; e < model_elements(got); e++)
                if (fabs(model_get(got, e) - model_get(want, e)) > 1e-4 * (1 + fabs(model_get(want, e))))
                    fail_msg("%s: %s alone: %g, among all: %g", variants[i].name, attn_parameters_name(p, k), model_get(got, e),
                             model_get(want, e));
        }
        attn_tensor_free(y);
        attn_gradients_free(all);
        attn_gradients_free(one);
        attn_tape_free(tape);
        model_batch_close(&batch);
        attn_transformer_free(model);
    }
}

/* positions past a learned table, of either side */
static void test_positions(void **state)
{
    const int64_t lengths[2][2] = {{5, 3}, {3, 5}};
    attn_transformer_options o = model_options(1, 1);
    attn_tensor *y = NULL;
    (void)state;
    o.positions = ATTN_POSITIONS_LEARNED;
    o.context = 4;
    attn_transformer *model = model_create(ctx, &o);
    for (int i = 0; i < 2; i++) {
        model_batch batch;
        model_batch_open(ctx, &batch, &o, 1, &lengths[i][0], &lengths[i][1], 1);
        OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, (const int64_t[]){batch.rows, 11}, &y));
        FAILS(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, y), ATTN_ERROR_INVALID_ARGUMENT,
              i ? "target_layout: got position 4" : "source_layout: got position 4");
        attn_tensor_free(y);
        model_batch_close(&batch);
    }
    attn_transformer_free(model);
}

/* the parts and masks of one side on a model that has the other alone, and masks that are too small when it runs */
static void test_sides(void **state)
{
    const int64_t lengths[1] = {4}, shape[4] = {1, 1, 2, 2};
    attn_tensor *allowed = NULL, *entropy = NULL, *y = NULL;
    attn_mask *small = NULL, *causal = NULL, *both = NULL;
    (void)state;
    OK(ctx, attn_tensor_create(ctx, ATTN_UINT8, 4, shape, &allowed));
    OK(ctx, attn_mask_boolean(ctx, allowed, &small));
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &causal));
    OK(ctx, attn_mask_union(ctx, small, causal, &both));
    for (int decoder = 0; decoder < 2; decoder++) {
        const attn_transformer_options o = model_options(!decoder, decoder);
        attn_transformer *model = model_create(ctx, &o);
        model_batch batch;
        attn_inspect_request r;
        const int64_t rows[2] = {4, 11};
        model_batch_open(ctx, &batch, &o, 1, lengths, lengths, 1);
        OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, (const int64_t[]){2, 4}, &entropy));
        OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, rows, &y));
        OK(ctx, attn_inspect_request_init(&r, sizeof r));
        static float apart[2 * 4 * 4 * 2]; /* weights two apart on the last axis */
        attn_tensor *gaps = NULL;
        OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, (const int64_t[]){2, 4, 4}, (const int64_t[]){32, 8, 2}, apart, &gaps));
        r.part = decoder ? ATTN_INSPECT_DECODER : ATTN_INSPECT_ENCODER;
        r.weights = gaps;
        FAILS(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r), ATTN_ERROR_SHAPE, "stride 2 on the last axis");
        r.weights = NULL;
        attn_tensor_free(gaps);
        r.entropy = entropy;
        for (int32_t part = ATTN_INSPECT_ENCODER; part <= ATTN_INSPECT_CROSS; part++) {
            r.part = part;
            int there = part == (decoder ? ATTN_INSPECT_DECODER : ATTN_INSPECT_ENCODER);
            if (there)
                OK(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r));
            else
                FAILS(ctx, attn_transformer_inspect(ctx, model, &batch.batch, &r), ATTN_ERROR_INVALID_ARGUMENT, "part");
        }
        FAILS(ctx, attn_transformer_set_mask(ctx, model, !decoder, 0, causal), ATTN_ERROR_INVALID_ARGUMENT,
              decoder ? "no encoder" : "no decoder");
        OK(ctx, attn_transformer_set_mask(ctx, model, decoder, 0, both));
        FAILS(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, y), ATTN_ERROR_SHAPE, "mask");
        OK(ctx, attn_transformer_set_mask(ctx, model, decoder, 0, causal));
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, y));
        attn_tensor_free(entropy);
        attn_tensor_free(y);
        model_batch_close(&batch);
        attn_transformer_free(model);
    }
    attn_mask_free(both);
    attn_mask_free(causal);
    attn_mask_free(small);
    attn_tensor_free(allowed);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parameters), cmocka_unit_test(test_largest),   cmocka_unit_test(test_growth),
                                       cmocka_unit_test(test_update),     cmocka_unit_test(test_no_head),   cmocka_unit_test(test_cap),
                                       cmocka_unit_test(test_handles),    cmocka_unit_test(test_positions), cmocka_unit_test(test_tie),
                                       cmocka_unit_test(test_sides)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

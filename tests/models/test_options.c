#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "models/options.h"
#include "support/model.h"

static attn_context *ctx;

static attn_status make(const attn_transformer_options *o)
{
    attn_transformer *model = NULL;
    attn_status status = attn_transformer_create(ctx, o, &model);
    if ((status == ATTN_OK) != (model != NULL)) fail_msg("a model came with the status \"%s\"", attn_status_name(status));
    attn_transformer_free(model);
    return status;
}

/* every field below and above what it may be, and as NaN: refused by name */
static void test_every_field(void **state)
{
    (void)state;
    int64_t count;
    const attn__field *fields = attn__option_fields(&count);
    for (int64_t i = 0; i < count; i++) {
        const attn__field *f = &fields[i];
        double wrong[3] = {f->flags & ATTN__DERIVED ? -2 : f->least - 1, f->most + 1, NAN};
        if (f->kind == ATTN__FIELD_DOUBLE && f->most > 1e15) wrong[1] = INFINITY;
        if (f->kind == ATTN__FIELD_DOUBLE && f->least < -1e15) wrong[0] = -INFINITY;
        for (int w = 0; w < (f->kind == ATTN__FIELD_DOUBLE ? 3 : 2); w++) {
            attn_transformer_options o = model_options(1, 1);
            if (f->kind == ATTN__FIELD_INT32 && wrong[w] > INT32_MAX) continue;
            attn__option_set(&o, f, wrong[w]);
            FAILS(ctx, make(&o), ATTN_ERROR_INVALID_ARGUMENT, f->name);
        }
    }
}

/* what each field may be, written out a second time: the header's promise, and the files' (derived: ATTN_DERIVED is legal as well) */
static void test_ranges(void **state)
{
    enum { MOST = INT32_MAX };
    static const struct {
        const char *name;
        int derived;
        double least, most;
    } ranges[] = {
        {"encoder_layers", 0, 0, 10000},
        {"decoder_layers", 0, 0, 10000},
        {"width", 0, 1, MOST},
        {"heads", 0, 1, MOST},
        {"key_heads", 1, 1, MOST},
        {"head_size", 1, 1, MOST},
        {"feed_forward", 1, 1, MOST},
        {"decoder_width", 1, 1, MOST},
        {"decoder_heads", 1, 1, MOST},
        {"decoder_feed_forward", 1, 1, MOST},
        {"source_vocabulary", 0, 0, MOST},
        {"target_vocabulary", 1, 0, MOST},
        {"context", 0, 1, MOST},
        {"patch_values", 0, 0, MOST},
        {"segment_types", 0, 0, MOST},
        {"dtype", 0, ATTN_FLOAT32, ATTN_FLOAT64},
        {"norm", 0, 0, ATTN_NORM_RMS},
        {"norm_placement", 0, 0, ATTN_PLACEMENT_PRE},
        {"final_norm", 0, 0, 1},
        {"activation", 0, 0, ATTN_ACTIVATION_TANH},
        {"gated", 0, 0, 1},
        {"learned_beta", 0, 0, 1},
        {"parallel_block", 0, 0, 1},
        {"positions", 0, 0, ATTN_POSITIONS_RELATIVE},
        {"tie", 0, 0, ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE},
        {"attention_bias", 0, 0, 1},
        {"feed_forward_bias", 0, 0, 1},
        {"norm_bias", 0, 0, 1},
        {"output_bias", 0, 0, 1},
        {"output_head", 0, 0, 1},
        {"embedding_norm", 0, 0, 1},
        {"initialisation", 0, 0, ATTN_INITIALISATION_SCALED_NORMAL},
        {"checkpoint_layers", 0, 0, 1},
        {"norm_epsilon", 0, 0, 1},
        {"embedding_scale", 0, -1e30, 1e30},
        {"initialisation_scale", 0, 0, 1e6},
        {"swish_beta", 0, -1e6, 1e6},
        {"rotary_base", 0, 1e-30, 1e30},
        {"soft_cap", 0, 0, 1e30},
        {"dropout_embedding", 0, 0, 1},
        {"dropout_attention", 0, 0, 1},
        {"dropout_sublayer", 0, 0, 1},
        {"dropout_activation", 0, 0, 1},
        {"position_buckets", 0, 2, 1048576},
        {"position_reach", 0, 0, 1048576},
        {"rotated", 1, 1, MOST},
        {"rotary_pairing", 0, 0, ATTN_ROTARY_PAIRS},
        {"rotary_scaling", 0, 0, ATTN_ROTARY_LLAMA3},
        {"scaled_scores", 0, 0, 1},
        {"query_key_norm", 0, 0, ATTN_QUERY_KEY_RMS},
        {"gated_attention", 0, 0, 1},
        {"rotary_factor", 0, 1, 1e30},
        {"rotary_context", 0, 1e-30, 1e30},
        {"rotary_low", 0, 1e-30, 1e30},
        {"rotary_high", 0, 1e-30, 1e30},
        {"rotary_magnitude", 0, 0, 1e30},
        {"recurrence", 0, 0, ATTN_RECURRENCE_LSTM},
        {"both_ways", 0, 0, 1},
        {"decoder_attention", 0, 0, 1},
        {"decoder_score", 0, 0, ATTN_SCORE_ADDITIVE},
        {"global_projections", 0, 0, 1},
        {"form", 0, 0, ATTN_FORM_LINFORMER},
        {"features", 1, 1, 65536},
        {"feature_seed", 0, 0, 4503599627370496.0},
        {"projected", 0, 0, MOST},
    };
    (void)state;
    int64_t count;
    const attn__field *fields = attn__option_fields(&count);
    assert_int_equal(count, sizeof ranges / sizeof *ranges);
    for (int64_t i = 0; i < count; i++) {
        const attn__field *f = &fields[i];
        assert_string_equal(f->name, ranges[i].name);
        if (f->flags != (ranges[i].derived ? ATTN__DERIVED : 0) || f->least != ranges[i].least || f->most != ranges[i].most)
            fail_msg("%s: %g to %g, expected %g to %g", f->name, f->least, f->most, ranges[i].least, ranges[i].most);
    }
}

/* the table of fields covers the struct: every byte behind struct_size belongs to one field */
static void test_table_covers_the_struct(void **state)
{
    (void)state;
    int64_t count;
    const attn__field *fields = attn__option_fields(&count);
    char covered[sizeof(attn_transformer_options)] = {0};
    memset(covered, 1, sizeof(uint64_t));
    memset(covered + offsetof(attn_transformer_options, reserved), 1, sizeof(int32_t));
    for (int64_t i = 0; i < count; i++)
        for (uint64_t b = 0; b < (fields[i].kind == ATTN__FIELD_INT32 ? 4U : 8U); b++) covered[fields[i].offset + b]++;
    for (size_t b = 0; b < sizeof covered; b++)
        if (covered[b] != 1) fail_msg("byte %d of the options belongs to %d fields", (int)b, covered[b]);
}

/* of wide heads the features that follow from the size stay within their range: a file says them */
static void test_features(void **state)
{
    static const int64_t sizes[][2] = {{5, 20}, {16384, 65536}, {16385, 65536}, {40000, 65536}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        attn_transformer_options o = model_options(0, 1), resolved;
        o.head_size = sizes[i][0];
        o.heads = 1;
        OK(ctx, attn__transformer_resolve(ctx, &o, &resolved));
        assert_int_equal(resolved.features, sizes[i][1]);
        OK(ctx, attn__transformer_resolve(ctx, &resolved, &resolved));
    }
}

static void test_combinations(void **state)
{
    (void)state;
    const struct {
        const char *field;
        double value;
        const char *second;
        double second_value;
        attn_status status;
        const char *word;
    } wrong[] = {{"encoder_layers", 0, "decoder_layers", 0, ATTN_ERROR_INVALID_ARGUMENT, "encoder_layers"},
                 {"heads", 3, NULL, 0, ATTN_ERROR_SHAPE, "width"},
                 {"heads", 4, "key_heads", 3, ATTN_ERROR_SHAPE, "key_heads"},
                 {"key_heads", 4, NULL, 0, ATTN_ERROR_SHAPE, "key_heads"},
                 {"decoder_heads", 3, "key_heads", 1, ATTN_OK, ""}, /* one key head serves any number */
                 {"source_vocabulary", 0, NULL, 0, ATTN_ERROR_INVALID_ARGUMENT, "source_vocabulary"},
                 {"target_vocabulary", 0, NULL, 0, ATTN_ERROR_INVALID_ARGUMENT, "target_vocabulary"},
                 {"target_vocabulary", 7, "tie", ATTN_TIE_SOURCE, ATTN_ERROR_SHAPE, "tie"},
                 {"decoder_width", 4, "tie", ATTN_TIE_SOURCE, ATTN_ERROR_SHAPE, "tie"},
                 {"learned_beta", 1, NULL, 0, ATTN_ERROR_INVALID_ARGUMENT, "learned_beta"},
                 {"feed_forward", 2147483647.0, NULL, 0, ATTN_ERROR_TOO_LARGE, "feed_forward"},
                 {"head_size", 2147483647.0, NULL, 0, ATTN_ERROR_TOO_LARGE, "head_size"},
                 {"positions", ATTN_POSITIONS_ROTARY, "head_size", 3, ATTN_ERROR_SHAPE, "rotated"},
                 {"positions", ATTN_POSITIONS_ROTARY, "rotated", 3, ATTN_ERROR_SHAPE, "rotated"},
                 {"positions", ATTN_POSITIONS_ROTARY, "rotary_low", 40, ATTN_ERROR_INVALID_ARGUMENT, "high"},
                 {"positions", ATTN_POSITIONS_T5, "position_buckets", 3, ATTN_ERROR_INVALID_ARGUMENT, "position_buckets"},
                 {"positions", ATTN_POSITIONS_T5, "position_reach", 8, ATTN_ERROR_INVALID_ARGUMENT, "position_reach"},
                 {"patch_values", 12, NULL, 0, ATTN_ERROR_UNSUPPORTED, "patch"},
                 {"segment_types", 2, NULL, 0, ATTN_ERROR_UNSUPPORTED, "segment"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        attn_transformer_options o = model_options(1, 1);
        attn__option_set(&o, attn__option_field(wrong[i].field), wrong[i].value);
        if (wrong[i].second) attn__option_set(&o, attn__option_field(wrong[i].second), wrong[i].second_value);
        if (wrong[i].status != ATTN_OK && make(&o) == ATTN_OK)
            fail_msg("%s %g and %s %g made a model", wrong[i].field, wrong[i].value, wrong[i].second, wrong[i].second_value);
        FAILS(ctx, make(&o), wrong[i].status, wrong[i].word);
    }
    attn_transformer_options o = model_options(1, 1);
    o.heads = 4;
    o.key_heads = 2;
    o.decoder_heads = 3;
    FAILS(ctx, make(&o), ATTN_ERROR_SHAPE, "decoder_heads");
    o = model_options(1, 0); /* tied to an encoder's table of another size */
    o.tie = ATTN_TIE_OUTPUT;
    o.target_vocabulary = 5;
    FAILS(ctx, make(&o), ATTN_ERROR_SHAPE, "tie");
    FAILS(ctx, attn_transformer_create(ctx, &o, NULL), ATTN_ERROR_INVALID_ARGUMENT, "out");
}

/* without an options struct, and with the smaller struct of an older caller, whose missing fields are the defaults */
static void test_struct_size(void **state)
{
    (void)state;
    attn_transformer *model = NULL;
    attn_transformer_options o = model_options(1, 1), got;
    o.struct_size = offsetof(attn_transformer_options, dtype);
    o.dtype = 77; /* not looked at */
    OK(ctx, attn_transformer_create(ctx, &o, &model));
    memset(&got, 0, sizeof got);
    got.struct_size = sizeof got;
    OK(ctx, attn_transformer_get_options(ctx, model, &got));
    assert_int_equal(got.dtype, ATTN_FLOAT32);
    assert_int_equal(got.width, 8);
    assert_int_equal(got.key_heads, 2); /* resolved */
    assert_int_equal(got.head_size, 4);
    assert_int_equal(got.feed_forward, 12);
    assert_int_equal(got.target_vocabulary, 11);
    memset(&got, 0xA5, sizeof got); /* such a caller's struct is filled to its end */
    got.struct_size = offsetof(attn_transformer_options, dtype);
    OK(ctx, attn_transformer_get_options(ctx, model, &got));
    assert_int_equal(got.width, 8);
    assert_int_equal(*(const unsigned char *)&got.dtype, 0xA5);
    attn_transformer_free(model);
    o.struct_size = 12;
    FAILS(ctx, attn_transformer_create(ctx, &o, &model), ATTN_ERROR_INVALID_ARGUMENT, "options");
    assert_null(model);
}

/* what is resolved resolves to itself */
static void test_resolved_options_make_the_same_model(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(2, 1), resolved, again;
    o.heads = o.key_heads = 4;
    o.key_heads = 2;
    o.decoder_width = 12;
    o.decoder_heads = 4;
    OK(ctx, attn__transformer_resolve(ctx, &o, &resolved));
    OK(ctx, attn__transformer_resolve(ctx, &resolved, &again));
    int64_t count;
    const attn__field *fields = attn__option_fields(&count);
    for (int64_t i = 0; i < count; i++) {
        if (attn__field_get(&resolved, &fields[i]) != attn__field_get(&again, &fields[i])) fail_msg("%s changed", fields[i].name);
        if (attn__field_get(&resolved, &fields[i]) == ATTN_DERIVED) fail_msg("%s was not derived", fields[i].name);
    }
    OK(ctx, make(&resolved));
}

/* the same seed gives the same weights, whatever the backend and the number of threads; another seed others; and they start as documented */
static void test_initialisation(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(2, 2);
    attn_context *contexts[4] = {model_context(ATTN_BACKEND_BLAS, 1, 5), model_context(ATTN_BACKEND_BLAS, 2, 5),
                                 model_context(ATTN_BACKEND_REFERENCE, 1, 5), model_context(ATTN_BACKEND_BLAS, 1, 6)};
    attn_transformer *models[4];
    for (int normal = 0; normal < 2; normal++) {
        o.initialisation = normal ? ATTN_INITIALISATION_SCALED_NORMAL : ATTN_INITIALISATION_XAVIER;
        o.initialisation_scale = 0.5;
        o.width = 64;
        o.feed_forward = 128;
        for (int i = 0; i < 4; i++) OK(contexts[i], attn_transformer_create(contexts[i], &o, &models[i]));
        attn_parameters *p = attn_transformer_parameters(models[0]);
        assert_true(model_same_bits(p, attn_transformer_parameters(models[1])));
        assert_false(model_same_bits(p, attn_transformer_parameters(models[3])));
        const struct {
            const char *name;
            double deviation;
        } at[] = {{"decoder.layers.1.self_attention.query.weight", normal ? 0.5 : sqrt(2.0 / 128)},
                  {"decoder.layers.0.cross_attention.output.weight", normal ? 0.25 : sqrt(2.0 / 128)}, /* 1 / sqrt(2 * 2 layers) */
                  {"encoder.layers.1.feed_forward.input.weight", normal ? 0.5 : sqrt(2.0 / 192)},
                  {"encoder.layers.1.feed_forward.output.weight", normal ? 0.25 : sqrt(2.0 / 192)},
                  {"source_embedding.weight", normal ? 0.5 : 0.125},
                  {"output.weight", normal ? 0.5 : sqrt(2.0 / 75)}};
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            const int64_t index = attn_parameters_find(p, at[i].name);
            if (index < 0) fail_msg("no parameter %s", at[i].name);
            attn_tensor *t = attn_parameters_tensor(p, index);
            double sum = 0, square = 0, n = (double)model_elements(t);
            for (int64_t e = 0; e < model_elements(t); e++) {
                sum += model_get(t, e);
                square += model_get(t, e) * model_get(t, e);
            }
            double deviation = sqrt(square / n), error = 4 / sqrt(2 * n);
            if (fabs(deviation / at[i].deviation - 1) > error || fabs(sum / n) > 4 * deviation / sqrt(n))
                fail_msg("%s: mean %g, deviation %g, expected 0 and %g", at[i].name, sum / n, deviation, at[i].deviation);
        }
        double worst = 0; /* the reference draws the same numbers, but for the rounding of its own functions */
        for (int64_t i = 0; i < attn_parameters_count(p); i++) {
            attn_tensor *a = attn_parameters_tensor(p, i), *b = attn_parameters_tensor(attn_transformer_parameters(models[2]), i);
            for (int64_t e = 0; e < model_elements(a); e++) worst = fmax(worst, fabs(model_get(a, e) - model_get(b, e)));
        }
        if (!(worst < 1e-6)) fail_msg("the backends start %g apart", worst);
        for (int i = 0; i < 4; i++) attn_transformer_free(models[i]);
    }
    for (int i = 0; i < 4; i++) attn_context_free(contexts[i]);
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

/* the first parameter of what the options describe: no memory is needed for sizes that nobody has */
static attn_status describe(const attn_transformer_options *o)
{
    char name[160];
    int32_t rank;
    int64_t shape[4];
    return attn_transformer_describe(ctx, o, 0, sizeof name, name, &rank, shape);
}

static void test_borders(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(1, 1), got = {.struct_size = sizeof got};
    attn_transformer *model = NULL;
    o.decoder_width = 12;
    o.decoder_heads = 3; /* key heads as many as heads, 2: the decoder has as many as its own */
    OK(ctx, attn_transformer_create(ctx, &o, &model));
    OK(ctx, attn_transformer_get_options(ctx, model, &got));
    assert_int_equal(got.decoder_feed_forward, 48); /* of its own width; of equal widths those of the encoder */
    attn_transformer_free(model);
    o = model_options(1, 1);
    OK(ctx, attn_transformer_create(ctx, &o, &model));
    OK(ctx, attn_transformer_get_options(ctx, model, &got));
    assert_int_equal(got.decoder_feed_forward, 12);
    attn_transformer_free(model);
    for (int over = 0; over < 2; over++) {
        const attn_status status = over ? ATTN_ERROR_TOO_LARGE : ATTN_OK;
        o = model_options(1, 1);
        o.heads = 1;
        o.head_size = INT32_MAX / 3 + over; /* queries, keys and values are one product */
        FAILS(ctx, describe(&o), status, over ? "head_size" : "");
        o = model_options(1, 1);
        o.decoder_feed_forward = INT32_MAX / 2 + over; /* as are both halves of a gated one */
        FAILS(ctx, describe(&o), status, over ? "feed_forward" : "");
    }
    o = model_options(1, 0);
    o.patch_values = 4;
    o.source_vocabulary = 0;
    o.target_vocabulary = 1; /* one class is one */
    OK(ctx, describe(&o));
    o.target_vocabulary = 0;
    FAILS(ctx, describe(&o), ATTN_ERROR_INVALID_ARGUMENT, "options.target_vocabulary: got 0");
    o.output_head = 0;
    OK(ctx, describe(&o));
}

/* with an encoder and tables of their own, a tied output has the target's: a row that no token reads moves its own logit alone */
static void test_tied_to_the_target(void **state)
{
    (void)state;
    const int64_t length = 3;
    attn_transformer_options o = model_options(1, 1);
    o.tie = ATTN_TIE_OUTPUT;
    attn_transformer *model = model_create(ctx, &o);
    attn_parameters *p = attn_transformer_parameters(model);
    attn_tensor *table = attn_parameters_tensor(p, attn_parameters_find(p, "target_embedding.weight")),
                *logits[2] = {model_tensor(ctx, ATTN_FLOAT32, 3, 11), model_tensor(ctx, ATTN_FLOAT32, 3, 11)};
    model_batch batch;
    int64_t unread = 0;
    model_batch_open(ctx, &batch, &o, 1, &length, &length, 1);
    for (int64_t i = 0; i < 3; i++)
        if ((int64_t)model_get(batch.target, i) == unread) unread++, i = -1;
    for (int turn = 0; turn < 2; turn++) {
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, logits[turn]));
        for (int64_t e = 0; e < 8; e++) model_set(table, unread * 8 + e, (double)(e * e) + 1);
    }
    for (int64_t e = 0; e < 33; e++) assert_int_equal(model_get(logits[0], e) != model_get(logits[1], e), e % 11 == unread);
    model_batch_close(&batch);
    attn_tensor_free(logits[0]);
    attn_tensor_free(logits[1]);
    attn_transformer_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tied_to_the_target),
                                       cmocka_unit_test(test_borders),
                                       cmocka_unit_test(test_every_field),
                                       cmocka_unit_test(test_ranges),
                                       cmocka_unit_test(test_table_covers_the_struct),
                                       cmocka_unit_test(test_features),
                                       cmocka_unit_test(test_combinations),
                                       cmocka_unit_test(test_struct_size),
                                       cmocka_unit_test(test_resolved_options_make_the_same_model),
                                       cmocka_unit_test(test_initialisation)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

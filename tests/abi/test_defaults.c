#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* What a caller gets who sets nothing: the defaults that the headers promise, field by field. Programs rest on them as on the names, so one
   that changes is a change of the interface. Every byte of a struct belongs to one field here: a new field wants its line. */
typedef struct expected {
    const char *name;
    size_t offset, bytes;
    int real, pointer;
    double value; /* of a pointer: NULL */
} expected;
#define IS_REAL(type, field) _Generic(((type *)0)->field, double : 1, default : 0)
#define NUMBER(type, field, value) \
    { \
#field, offsetof(type, field), sizeof((type *)0)->field, IS_REAL(type, field), 0, value \
    }
#define POINTER(type, field) \
    { \
#field, offsetof(type, field), sizeof((type *)0)->field, 0, 1, 0 \
    }

static const expected dot_product_options[] = {
    NUMBER(attn_dot_product_options, scale, -1),       NUMBER(attn_dot_product_options, dropout, 0),
    NUMBER(attn_dot_product_options, soft_cap, 0),     NUMBER(attn_dot_product_options, site, 0),
    NUMBER(attn_dot_product_options, derive_scale, 1), NUMBER(attn_dot_product_options, reserved, 0),
};
static const expected attention_bias[] = {
    NUMBER(attn_attention_bias, kind, 0), NUMBER(attn_attention_bias, both_sides, 1), NUMBER(attn_attention_bias, reach, 128),
    POINTER(attn_attention_bias, table),  POINTER(attn_attention_bias, values),
};
static const expected attention_options[] = {
    NUMBER(attn_attention_options, dtype, ATTN_FLOAT32),
    NUMBER(attn_attention_options, score, ATTN_SCORE_SCALED_DOT),
    NUMBER(attn_attention_options, heads, 1),
    NUMBER(attn_attention_options, key_heads, -1),
    NUMBER(attn_attention_options, query_width, 0),
    NUMBER(attn_attention_options, key_width, -1),
    NUMBER(attn_attention_options, value_width, -1),
    NUMBER(attn_attention_options, output_width, -1),
    NUMBER(attn_attention_options, head_size, -1),
    NUMBER(attn_attention_options, value_head_size, -1),
    NUMBER(attn_attention_options, project_query, 1),
    NUMBER(attn_attention_options, project_key, 1),
    NUMBER(attn_attention_options, project_value, 1),
    NUMBER(attn_attention_options, project_output, 1),
    NUMBER(attn_attention_options, bias_query, 1),
    NUMBER(attn_attention_options, bias_key, 1),
    NUMBER(attn_attention_options, bias_value, 1),
    NUMBER(attn_attention_options, bias_output, 1),
    NUMBER(attn_attention_options, scale, 1),
    NUMBER(attn_attention_options, dropout, 0),
    NUMBER(attn_attention_options, soft_cap, 0),
    NUMBER(attn_attention_options, site, 0),
    NUMBER(attn_attention_options, initialisation, ATTN_INITIALISATION_XAVIER),
    NUMBER(attn_attention_options, derive_scale, 1),
    NUMBER(attn_attention_options, initialisation_scale, 0.02),
    NUMBER(attn_attention_options, positions, ATTN_POSITIONS_NONE),
    NUMBER(attn_attention_options, position_sides, 1),
    NUMBER(attn_attention_options, position_buckets, 32),
    NUMBER(attn_attention_options, position_reach, 128),
    NUMBER(attn_attention_options, relative_values, 1),
    NUMBER(attn_attention_options, query_key_norm, ATTN_QUERY_KEY_NONE),
    NUMBER(attn_attention_options, gated_output, 0),
    NUMBER(attn_attention_options, rotary_pairing, ATTN_ROTARY_HALVES),
    NUMBER(attn_attention_options, rotary_scaling, ATTN_ROTARY_PLAIN),
    NUMBER(attn_attention_options, pair_bias, 0),
    NUMBER(attn_attention_options, rotated, -1),
    NUMBER(attn_attention_options, rotary_base, 10000),
    NUMBER(attn_attention_options, rotary_factor, 1),
    NUMBER(attn_attention_options, rotary_context, 2048),
    NUMBER(attn_attention_options, rotary_low, 1),
    NUMBER(attn_attention_options, rotary_high, 32),
    NUMBER(attn_attention_options, rotary_magnitude, 0),
    NUMBER(attn_attention_options, query_key_epsilon, 1e-06),
    NUMBER(attn_attention_options, key_head_size, -1),
    NUMBER(attn_attention_options, form, ATTN_FORM_SOFTMAX),
    NUMBER(attn_attention_options, separate_projections, 0),
    NUMBER(attn_attention_options, features, -1),
    NUMBER(attn_attention_options, feature_seed, 0),
    NUMBER(attn_attention_options, projected, 0),
    NUMBER(attn_attention_options, longest, 0),
    NUMBER(attn_attention_options, global_projections, 0),
    NUMBER(attn_attention_options, reserved, 0),
};
static const expected context_options[] = {
    NUMBER(attn_context_options, backend, ATTN_BACKEND_BLAS),
    NUMBER(attn_context_options, threads, -1),
    NUMBER(attn_context_options, seed, 0),
    NUMBER(attn_context_options, memory_cap, -1),
    NUMBER(attn_context_options, guard_blas, 1),
    NUMBER(attn_context_options, reserved, 0),
    POINTER(attn_context_options, allocator),
};
static const expected dataset_options[] = {
    NUMBER(attn_dataset_options, context, 128), NUMBER(attn_dataset_options, batch, 16),
    NUMBER(attn_dataset_options, seed, 0),      NUMBER(attn_dataset_options, order, ATTN_ORDER_RANDOM_WINDOWS),
    NUMBER(attn_dataset_options, reserved, 0),  NUMBER(attn_dataset_options, first, 0),
    NUMBER(attn_dataset_options, last, 1),
};
static const expected pairs_options[] = {
    NUMBER(attn_pairs_options, batch, 32),
    NUMBER(attn_pairs_options, batch_tokens, 0),
    NUMBER(attn_pairs_options, bucket, 0),
    NUMBER(attn_pairs_options, seed, 0),
    NUMBER(attn_pairs_options, order, ATTN_ORDER_SHUFFLED),
    NUMBER(attn_pairs_options, source_stop, -1),
    NUMBER(attn_pairs_options, start, -1),
    NUMBER(attn_pairs_options, stop, -1),
};
static const expected generator_options[] = {
    NUMBER(attn_generator_options, sequences, 1),  NUMBER(attn_generator_options, beam, 1),
    NUMBER(attn_generator_options, capacity, -1),  NUMBER(attn_generator_options, temperature, 1),
    NUMBER(attn_generator_options, top_p, 1),      NUMBER(attn_generator_options, length_penalty, 1),
    NUMBER(attn_generator_options, top_k, 0),      NUMBER(attn_generator_options, seed, 1),
    NUMBER(attn_generator_options, stop_count, 0), POINTER(attn_generator_options, stops),
};
static const expected inspect_request[] = {
    NUMBER(attn_inspect_request, part, 0),    NUMBER(attn_inspect_request, reserved, 0), NUMBER(attn_inspect_request, layer, 0),
    NUMBER(attn_inspect_request, segment, 0), NUMBER(attn_inspect_request, row, 0),      NUMBER(attn_inspect_request, head, 0),
    POINTER(attn_inspect_request, weights),   POINTER(attn_inspect_request, entropy),
};
static const expected batch[] = {
    POINTER(attn_batch, source),        POINTER(attn_batch, target),        POINTER(attn_batch, labels),
    POINTER(attn_batch, source_layout), POINTER(attn_batch, target_layout),
};
static const expected linear_attention_options[] = {
    NUMBER(attn_linear_attention_options, map, ATTN_FEATURES_ELU),
    NUMBER(attn_linear_attention_options, causal, 0),
    NUMBER(attn_linear_attention_options, features, -1),
    NUMBER(attn_linear_attention_options, seed, 0),
    NUMBER(attn_linear_attention_options, independent, 0),
    NUMBER(attn_linear_attention_options, derive_scale, 1),
    NUMBER(attn_linear_attention_options, scale, 1),
    POINTER(attn_linear_attention_options, directions),
    POINTER(attn_linear_attention_options, key_scale),
};
static const expected cross_entropy_options[] = {
    NUMBER(attn_cross_entropy_options, label_smoothing, 0),
    NUMBER(attn_cross_entropy_options, ignored_label, -1),
    NUMBER(attn_cross_entropy_options, mean, 0),
    NUMBER(attn_cross_entropy_options, smoothing_form, 0),
};
static const expected schedule_options[] = {
    NUMBER(attn_schedule_options, schedule, ATTN_SCHEDULE_CONSTANT),
    NUMBER(attn_schedule_options, reserved, 0),
    NUMBER(attn_schedule_options, warmup, 0),
    NUMBER(attn_schedule_options, total, 0),
    NUMBER(attn_schedule_options, width, 512),
    NUMBER(attn_schedule_options, rate, 0.001),
    NUMBER(attn_schedule_options, final_rate, 0),
    NUMBER(attn_schedule_options, factor, 1),
};
static const expected optimizer_options[] = {
    NUMBER(attn_optimizer_options, optimizer, ATTN_OPTIMIZER_ADAM),
    NUMBER(attn_optimizer_options, no_decay, 0),
    NUMBER(attn_optimizer_options, rate, 0.001),
    NUMBER(attn_optimizer_options, beta1, 0.9),
    NUMBER(attn_optimizer_options, beta2, 0.999),
    NUMBER(attn_optimizer_options, epsilon, 1e-08),
    NUMBER(attn_optimizer_options, weight_decay, 0),
    NUMBER(attn_optimizer_options, l2, 0),
    NUMBER(attn_optimizer_options, clip, 0),
};
static const expected recurrent_options[] = {
    NUMBER(attn_recurrent_options, kind, ATTN_RECURRENT_LSTM),
    NUMBER(attn_recurrent_options, reverse, 0),
};
static const expected convolution_options[] = {
    NUMBER(attn_convolution_options, taps, 3),
    NUMBER(attn_convolution_options, causal, 0),
    NUMBER(attn_convolution_options, dilation, 1),
};
static const expected rotary_options[] = {
    NUMBER(attn_rotary_options, pairing, ATTN_ROTARY_HALVES),
    NUMBER(attn_rotary_options, scaling, ATTN_ROTARY_PLAIN),
    NUMBER(attn_rotary_options, rotated, -1),
    NUMBER(attn_rotary_options, base, 10000),
    NUMBER(attn_rotary_options, factor, 1),
    NUMBER(attn_rotary_options, context, 2048),
    NUMBER(attn_rotary_options, low, 1),
    NUMBER(attn_rotary_options, high, 32),
    NUMBER(attn_rotary_options, magnitude, 0),
};
static const expected tape_options[] = {
    NUMBER(attn_tape_options, training, 0),
    NUMBER(attn_tape_options, reserved, 0),
    NUMBER(attn_tape_options, seed, 0),
    NUMBER(attn_tape_options, step, 0),
};
static const expected trainer_options[] = {
    NUMBER(attn_trainer_options, seed, 1),        NUMBER(attn_trainer_options, label_smoothing, 0),
    NUMBER(attn_trainer_options, micro_rows, -1), NUMBER(attn_trainer_options, accumulate, 1),
    NUMBER(attn_trainer_options, layer_norms, 0), NUMBER(attn_trainer_options, reserved, 0),
};
static const expected trainer_report[] = {
    NUMBER(attn_trainer_report, step, 0),          NUMBER(attn_trainer_report, tokens, 0),
    NUMBER(attn_trainer_report, loss, 0),          NUMBER(attn_trainer_report, unsmoothed_loss, 0),
    NUMBER(attn_trainer_report, penalty, 0),       NUMBER(attn_trainer_report, rate, 0),
    NUMBER(attn_trainer_report, gradient_norm, 0), NUMBER(attn_trainer_report, skipped, 0),
    NUMBER(attn_trainer_report, reserved, 0),      NUMBER(attn_trainer_report, layer_count, 0),
    POINTER(attn_trainer_report, layer_norms),
};
static const expected transformer_options[] = {
    NUMBER(attn_transformer_options, encoder_layers, 6),
    NUMBER(attn_transformer_options, decoder_layers, 6),
    NUMBER(attn_transformer_options, width, 512),
    NUMBER(attn_transformer_options, heads, 8),
    NUMBER(attn_transformer_options, key_heads, -1),
    NUMBER(attn_transformer_options, head_size, -1),
    NUMBER(attn_transformer_options, feed_forward, -1),
    NUMBER(attn_transformer_options, decoder_width, -1),
    NUMBER(attn_transformer_options, decoder_heads, -1),
    NUMBER(attn_transformer_options, decoder_feed_forward, -1),
    NUMBER(attn_transformer_options, source_vocabulary, 256),
    NUMBER(attn_transformer_options, target_vocabulary, -1),
    NUMBER(attn_transformer_options, context, 512),
    NUMBER(attn_transformer_options, patch_values, 0),
    NUMBER(attn_transformer_options, segment_types, 0),
    NUMBER(attn_transformer_options, dtype, ATTN_FLOAT32),
    NUMBER(attn_transformer_options, norm, ATTN_NORM_LAYER),
    NUMBER(attn_transformer_options, norm_placement, ATTN_PLACEMENT_POST),
    NUMBER(attn_transformer_options, final_norm, 1),
    NUMBER(attn_transformer_options, activation, ATTN_ACTIVATION_RELU),
    NUMBER(attn_transformer_options, gated, 0),
    NUMBER(attn_transformer_options, learned_beta, 0),
    NUMBER(attn_transformer_options, parallel_block, 0),
    NUMBER(attn_transformer_options, positions, ATTN_POSITIONS_SINUSOIDAL),
    NUMBER(attn_transformer_options, tie, ATTN_TIE_NONE),
    NUMBER(attn_transformer_options, attention_bias, 1),
    NUMBER(attn_transformer_options, feed_forward_bias, 1),
    NUMBER(attn_transformer_options, norm_bias, 1),
    NUMBER(attn_transformer_options, output_bias, 0),
    NUMBER(attn_transformer_options, output_head, 1),
    NUMBER(attn_transformer_options, embedding_norm, 0),
    NUMBER(attn_transformer_options, initialisation, ATTN_INITIALISATION_XAVIER),
    NUMBER(attn_transformer_options, checkpoint_layers, 0),
    NUMBER(attn_transformer_options, norm_epsilon, 1e-06),
    NUMBER(attn_transformer_options, embedding_scale, 1),
    NUMBER(attn_transformer_options, initialisation_scale, 0.02),
    NUMBER(attn_transformer_options, swish_beta, 1),
    NUMBER(attn_transformer_options, rotary_base, 10000),
    NUMBER(attn_transformer_options, soft_cap, 0),
    NUMBER(attn_transformer_options, dropout_embedding, 0),
    NUMBER(attn_transformer_options, dropout_attention, 0),
    NUMBER(attn_transformer_options, dropout_sublayer, 0),
    NUMBER(attn_transformer_options, dropout_activation, 0),
    NUMBER(attn_transformer_options, position_buckets, 32),
    NUMBER(attn_transformer_options, position_reach, 128),
    NUMBER(attn_transformer_options, rotated, -1),
    NUMBER(attn_transformer_options, rotary_pairing, ATTN_ROTARY_HALVES),
    NUMBER(attn_transformer_options, rotary_scaling, ATTN_ROTARY_PLAIN),
    NUMBER(attn_transformer_options, scaled_scores, 1),
    NUMBER(attn_transformer_options, query_key_norm, ATTN_QUERY_KEY_NONE),
    NUMBER(attn_transformer_options, gated_attention, 0),
    NUMBER(attn_transformer_options, reserved, 0),
    NUMBER(attn_transformer_options, rotary_factor, 1),
    NUMBER(attn_transformer_options, rotary_context, 2048),
    NUMBER(attn_transformer_options, rotary_low, 1),
    NUMBER(attn_transformer_options, rotary_high, 32),
    NUMBER(attn_transformer_options, rotary_magnitude, 0),
    NUMBER(attn_transformer_options, recurrence, ATTN_RECURRENCE_NONE),
    NUMBER(attn_transformer_options, both_ways, 1),
    NUMBER(attn_transformer_options, decoder_attention, 1),
    NUMBER(attn_transformer_options, decoder_score, ATTN_SCORE_ADDITIVE),
    NUMBER(attn_transformer_options, global_projections, 0),
    NUMBER(attn_transformer_options, form, ATTN_FORM_SOFTMAX),
    NUMBER(attn_transformer_options, features, -1),
    NUMBER(attn_transformer_options, feature_seed, 0),
    NUMBER(attn_transformer_options, projected, 0),
};
static const expected load_options[] = {
    NUMBER(attn_load_options, strict, 1),
    NUMBER(attn_load_options, dtype, 0),
};

static void check(const char *name, const void *options, size_t size, const expected *fields, size_t count)
{
    const unsigned char *bytes = options;
    unsigned char covered[512] = {0};
    uint64_t said;
    assert_true(size <= sizeof covered);
    memcpy(&said, bytes, sizeof said);
    assert_int_equal(said, size);
    memset(covered, 1, sizeof said);
    for (size_t i = 0; i < count; i++) {
        const expected *f = &fields[i];
        int32_t code = 0;
        int64_t whole = 0;
        double got = 0;
        for (size_t b = 0; b < f->bytes; b++) covered[f->offset + b]++;
        memcpy(f->bytes == 4 ? (void *)&code : f->real ? (void *)&got : (void *)&whole, bytes + f->offset, f->bytes);
        if (!f->real) got = (double)code + (double)whole;
        if (got != f->value) fail_msg("%s.%s is %.17g, expected %.17g", name, f->name, got, f->value);
    }
    for (size_t b = 0; b < size; b++)
        if (covered[b] != 1) fail_msg("byte %d of %s belongs to %d fields", (int)b, name, covered[b]);
}

#define CHECK(fields, type, init) \
    do { \
        type o; \
        memset(&o, 0xA5, sizeof o); \
        assert_int_equal(init(&o, sizeof o), ATTN_OK); \
        check(#type, &o, sizeof o, fields, sizeof(fields) / sizeof *(fields)); \
    } while (0)

static void test_defaults(void **state)
{
    (void)state;
    CHECK(dot_product_options, attn_dot_product_options, attn_dot_product_options_init);
    CHECK(attention_bias, attn_attention_bias, attn_attention_bias_init);
    CHECK(attention_options, attn_attention_options, attn_attention_options_init);
    CHECK(context_options, attn_context_options, attn_context_options_init);
    CHECK(dataset_options, attn_dataset_options, attn_dataset_options_init);
    CHECK(pairs_options, attn_pairs_options, attn_pairs_options_init);
    CHECK(generator_options, attn_generator_options, attn_generator_options_init);
    CHECK(inspect_request, attn_inspect_request, attn_inspect_request_init);
    CHECK(batch, attn_batch, attn_batch_init);
    CHECK(linear_attention_options, attn_linear_attention_options, attn_linear_attention_options_init);
    CHECK(cross_entropy_options, attn_cross_entropy_options, attn_cross_entropy_options_init);
    CHECK(schedule_options, attn_schedule_options, attn_schedule_options_init);
    CHECK(optimizer_options, attn_optimizer_options, attn_optimizer_options_init);
    CHECK(recurrent_options, attn_recurrent_options, attn_recurrent_options_init);
    CHECK(convolution_options, attn_convolution_options, attn_convolution_options_init);
    CHECK(rotary_options, attn_rotary_options, attn_rotary_options_init);
    CHECK(tape_options, attn_tape_options, attn_tape_options_init);
    CHECK(trainer_options, attn_trainer_options, attn_trainer_options_init);
    CHECK(trainer_report, attn_trainer_report, attn_trainer_report_init);
    CHECK(transformer_options, attn_transformer_options, attn_transformer_options_init);
    CHECK(load_options, attn_load_options, attn_load_options_init);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

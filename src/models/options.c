#include "options.h"
#include <attn/rotary.h>
#include <stddef.h>
#include <string.h>

#define SIZE(f, flags, least, most) ATTN__INT64(attn_transformer_options, f, flags, least, most)
#define CODE(f, most) ATTN__INT32(attn_transformer_options, f, 0, most)
#define REAL(f, least, most) ATTN__REAL(attn_transformer_options, f, 0, least, most)
enum { MOST_FEATURES = 65536 };           /* no parameter of a file bears their number out: not without end */
static const double LARGE = 2147483647.0; /* extents of one BLAS call fit into 32 bits */

static const attn__field fields[] = {SIZE(encoder_layers, 0, 0, 10000),
                                     SIZE(decoder_layers, 0, 0, 10000),
                                     SIZE(width, 0, 1, 2147483647.0),
                                     SIZE(heads, 0, 1, 2147483647.0),
                                     SIZE(key_heads, 1, 1, 2147483647.0),
                                     SIZE(head_size, 1, 1, 2147483647.0),
                                     SIZE(feed_forward, 1, 1, 2147483647.0),
                                     SIZE(decoder_width, 1, 1, 2147483647.0),
                                     SIZE(decoder_heads, 1, 1, 2147483647.0),
                                     SIZE(decoder_feed_forward, 1, 1, 2147483647.0),
                                     SIZE(source_vocabulary, 0, 0, 2147483647.0),
                                     SIZE(target_vocabulary, 1, 0, 2147483647.0),
                                     SIZE(context, 0, 1, 2147483647.0),
                                     SIZE(patch_values, 0, 0, 2147483647.0),
                                     SIZE(segment_types, 0, 0, 2147483647.0),
                                     ATTN__INT32(attn_transformer_options, dtype, ATTN_FLOAT32, ATTN_FLOAT64),
                                     CODE(norm, ATTN_NORM_RMS),
                                     CODE(norm_placement, ATTN_PLACEMENT_PRE),
                                     CODE(final_norm, 1),
                                     CODE(activation, ATTN_ACTIVATION_TANH),
                                     CODE(gated, 1),
                                     CODE(learned_beta, 1),
                                     CODE(parallel_block, 1),
                                     CODE(positions, ATTN_POSITIONS_RELATIVE),
                                     CODE(tie, ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE),
                                     CODE(attention_bias, 1),
                                     CODE(feed_forward_bias, 1),
                                     CODE(norm_bias, 1),
                                     CODE(output_bias, 1),
                                     CODE(output_head, 1),
                                     CODE(embedding_norm, 1),
                                     CODE(initialisation, ATTN_INITIALISATION_SCALED_NORMAL),
                                     CODE(checkpoint_layers, 1),
                                     REAL(norm_epsilon, 0, 1),
                                     REAL(embedding_scale, -1e30, 1e30),
                                     REAL(initialisation_scale, 0, 1e6),
                                     REAL(swish_beta, -1e6, 1e6),
                                     REAL(rotary_base, 1e-30, 1e30),
                                     REAL(soft_cap, 0, 1e30),
                                     REAL(dropout_embedding, 0, 1),
                                     REAL(dropout_attention, 0, 1),
                                     REAL(dropout_sublayer, 0, 1),
                                     REAL(dropout_activation, 0, 1),
                                     SIZE(position_buckets, 0, 2, 1048576),
                                     SIZE(position_reach, 0, 0, 1048576),
                                     SIZE(rotated, 1, 1, 2147483647.0),
                                     CODE(rotary_pairing, ATTN_ROTARY_PAIRS),
                                     CODE(rotary_scaling, ATTN_ROTARY_LLAMA3),
                                     CODE(scaled_scores, 1),
                                     CODE(query_key_norm, ATTN_QUERY_KEY_RMS),
                                     CODE(gated_attention, 1),
                                     REAL(rotary_factor, 1, 1e30),
                                     REAL(rotary_context, 1e-30, 1e30),
                                     REAL(rotary_low, 1e-30, 1e30),
                                     REAL(rotary_high, 1e-30, 1e30),
                                     REAL(rotary_magnitude, 0, 1e30),
                                     CODE(recurrence, ATTN_RECURRENCE_LSTM),
                                     CODE(both_ways, 1),
                                     CODE(decoder_attention, 1),
                                     CODE(decoder_score, ATTN_SCORE_ADDITIVE),
                                     CODE(global_projections, 1),
                                     CODE(form, ATTN_FORM_LINFORMER),
                                     SIZE(features, 1, 1, MOST_FEATURES),
                                     SIZE(feature_seed, 0, 0, 4503599627370496.0),
                                     SIZE(projected, 0, 0, 2147483647.0)};

const attn_transformer_options attn__transformer_defaults = {.struct_size = sizeof(attn_transformer_options),
                                                             .encoder_layers = 6,
                                                             .decoder_layers = 6,
                                                             .width = 512,
                                                             .heads = 8,
                                                             .key_heads = ATTN_DERIVED,
                                                             .head_size = ATTN_DERIVED,
                                                             .feed_forward = ATTN_DERIVED,
                                                             .decoder_width = ATTN_DERIVED,
                                                             .decoder_heads = ATTN_DERIVED,
                                                             .decoder_feed_forward = ATTN_DERIVED,
                                                             .source_vocabulary = 256,
                                                             .target_vocabulary = ATTN_DERIVED,
                                                             .context = 512,
                                                             .dtype = ATTN_FLOAT32,
                                                             .norm = ATTN_NORM_LAYER,
                                                             .norm_placement = ATTN_PLACEMENT_POST,
                                                             .final_norm = 1,
                                                             .activation = ATTN_ACTIVATION_RELU,
                                                             .positions = ATTN_POSITIONS_SINUSOIDAL,
                                                             .tie = ATTN_TIE_NONE,
                                                             .attention_bias = 1,
                                                             .feed_forward_bias = 1,
                                                             .norm_bias = 1,
                                                             .output_bias = 0,
                                                             .output_head = 1,
                                                             .initialisation = ATTN_INITIALISATION_XAVIER,
                                                             .norm_epsilon = 1e-6,
                                                             .embedding_scale = 1,
                                                             .initialisation_scale = 0.02,
                                                             .swish_beta = 1,
                                                             .rotary_base = 10000,
                                                             .position_buckets = 32,
                                                             .position_reach = 128,
                                                             .rotated = ATTN_DERIVED,
                                                             .scaled_scores = 1,
                                                             .rotary_factor = 1,
                                                             .rotary_context = 2048,
                                                             .rotary_low = 1,
                                                             .rotary_high = 32,
                                                             .both_ways = 1,
                                                             .decoder_attention = 1,
                                                             .decoder_score = ATTN_SCORE_ADDITIVE,
                                                             .features = ATTN_DERIVED};

const attn__field *attn__option_fields(int64_t *count)
{
    *count = (int64_t)(sizeof fields / sizeof *fields);
    return fields;
}

const attn__field *attn__option_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

void attn__option_set(attn_transformer_options *options, const attn__field *field, double value)
{
    char *at = (char *)options + field->offset;
    if (field->kind == ATTN__FIELD_INT32) {
        int32_t code = (int32_t)value;
        memcpy(at, &code, sizeof code);
    } else if (field->kind == ATTN__FIELD_INT64) {
        int64_t size = (int64_t)value;
        memcpy(at, &size, sizeof size);
    } else {
        memcpy(at, &value, sizeof value); /* need not fit an integer */
    }
}

attn_status attn_transformer_options_init(attn_transformer_options *options, uint64_t size)
{
    return attn__options_init(options, size, &attn__transformer_defaults, sizeof attn__transformer_defaults);
}

static attn_status resolve_heads(attn_context *ctx, attn_transformer_options *o)
{
    if (o->key_heads == ATTN_DERIVED) o->key_heads = o->heads;
    if (o->heads % o->key_heads != 0)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.key_heads: got %lld, expected a divisor of heads %lld", (long long)o->key_heads,
                          (long long)o->heads);
    if (o->head_size == ATTN_DERIVED) {
        if (o->width % o->heads != 0)
            return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.width: got %lld, expected a multiple of heads %lld (or give head_size)",
                              (long long)o->width, (long long)o->heads);
        o->head_size = o->width / o->heads;
    }
    if (o->rotated == ATTN_DERIVED) o->rotated = o->head_size;
    if (o->features == ATTN_DERIVED) o->features = o->head_size > MOST_FEATURES / 4 ? MOST_FEATURES : 4 * o->head_size;
    if (o->feed_forward == ATTN_DERIVED) o->feed_forward = 4 * o->width;
    if (o->decoder_width == ATTN_DERIVED) o->decoder_width = o->width;
    if (o->decoder_heads == ATTN_DERIVED) o->decoder_heads = o->heads;
    if (o->decoder_feed_forward == ATTN_DERIVED)
        o->decoder_feed_forward = o->decoder_width == o->width ? o->feed_forward : 4 * o->decoder_width;
    if (o->key_heads != o->heads && o->decoder_heads % o->key_heads != 0) /* as many as heads: the decoder has as many as its own */
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.decoder_heads: got %lld, expected a multiple of key_heads %lld",
                          (long long)o->decoder_heads, (long long)o->key_heads);
    const double columns = (double)(o->heads > o->decoder_heads ? o->heads : o->decoder_heads) * (double)o->head_size;
    if (3 * columns > LARGE || 2 * (double)o->feed_forward > LARGE || 2 * (double)o->decoder_feed_forward > LARGE)
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE,
                          "options.head_size: heads times head size, or feed_forward, is past what one product takes (2^31 - 1)");
    return ATTN_OK;
}

/* what is not looked at is put so that it fits any width */
static attn_status resolve_recurrence(attn_context *ctx, attn_transformer_options *o)
{
    o->heads = o->key_heads = o->decoder_heads = 1;
    o->head_size = ATTN_DERIVED;
    if (o->decoder_width == ATTN_DERIVED) o->decoder_width = o->width;
    const int64_t widest = o->width > o->decoder_width ? o->width : o->decoder_width;
    if (widest > (int64_t)(LARGE / 8)) /* gates of both directions in one product */
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "options.width: got %lld, expected at most 2^28 with a recurrence", (long long)widest);
    if (o->encoder_layers > 0 && o->both_ways && o->width % 2 != 0)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.width: got %lld, expected an even number with both_ways", (long long)o->width);
    const int asks = o->encoder_layers > 0 && o->decoder_layers > 0 && o->decoder_attention;
    if (asks && o->decoder_score <= ATTN_SCORE_SCALED_DOT && o->width != o->decoder_width)
        return attn__fail(ctx, ATTN_ERROR_SHAPE,
                          "options.decoder_width: got %lld, expected the width of %lld with a decoder_score that has no matrix",
                          (long long)o->decoder_width, (long long)o->width);
    if (asks && o->decoder_score == ATTN_SCORE_ADDITIVE && o->decoder_width > 32768)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "options.decoder_width: got %lld, expected at most 32768 with additive scores",
                          (long long)o->decoder_width);
    return ATTN_OK;
}

static attn_status resolve_ends(attn_context *ctx, attn_transformer_options *o)
{
    if (o->encoder_layers == 0 && o->decoder_layers == 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "options.encoder_layers, decoder_layers: got 0 and 0, expected at least one layer");
    if (o->target_vocabulary == ATTN_DERIVED) o->target_vocabulary = o->source_vocabulary;
    if (o->encoder_layers > 0 && o->patch_values == 0 && o->source_vocabulary < 1)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "options.source_vocabulary: got %lld, expected at least 1 with an encoder of tokens",
                          (long long)o->source_vocabulary);
    if ((o->decoder_layers > 0 || o->output_head) && o->target_vocabulary < 1)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "options.target_vocabulary: got %lld, expected at least 1 with a decoder or an output head",
                          (long long)o->target_vocabulary);
    int both = o->encoder_layers > 0 && o->decoder_layers > 0;
    if ((o->tie & ATTN_TIE_SOURCE) && both && (o->source_vocabulary != o->target_vocabulary || o->width != o->decoder_width))
        return attn__fail(
            ctx, ATTN_ERROR_SHAPE, "options.tie: source and target embeddings are [%lld, %lld] and [%lld, %lld], expected equal shapes",
            (long long)o->source_vocabulary, (long long)o->width, (long long)o->target_vocabulary, (long long)o->decoder_width);
    if ((o->tie & ATTN_TIE_OUTPUT) && o->decoder_layers == 0 && o->output_head && o->source_vocabulary != o->target_vocabulary)
        return attn__fail(ctx, ATTN_ERROR_SHAPE,
                          "options.tie: the output has %lld classes and the embedding %lld rows, expected equal numbers",
                          (long long)o->target_vocabulary, (long long)o->source_vocabulary);
    if (o->learned_beta && o->activation != ATTN_ACTIVATION_SWISH)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.learned_beta: got 1, expected 0 unless the activation is Swish");
    return ATTN_OK;
}

attn_status attn__transformer_resolve(attn_context *ctx, const attn_transformer_options *options, attn_transformer_options *out)
{
    attn_transformer_options o;
    attn_status status =
        attn__options_read(ctx, "options", options, &attn__transformer_defaults, sizeof o, ATTN__TRANSFORMER_OPTIONS_SMALLEST, &o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", &o, fields);
    if (status == ATTN_OK && o.reserved != 0)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.reserved: got %d, expected 0", (int)o.reserved);
    if (status == ATTN_OK && o.recurrence != ATTN_RECURRENCE_NONE) status = resolve_recurrence(ctx, &o);
    if (status == ATTN_OK) status = resolve_heads(ctx, &o);
    if (status == ATTN_OK) status = resolve_ends(ctx, &o);
    if (status == ATTN_OK) *out = o;
    return status;
}

attn_status attn__transformer_supported(attn_context *ctx, const attn_transformer_options *o)
{
    const char *name = "", *part = "";
    if (o->patch_values > 0) name = "patch_values", part = "patch embedding";
    if (o->segment_types > 0) name = "segment_types", part = "segment embedding";
    if (*part)
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED,
                          "options.%s: got %s, which cannot be created in this version, expected another (it can be described and costed)",
                          name, part);
    return ATTN_OK;
}

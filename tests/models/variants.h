#ifndef TESTS_MODELS_VARIANTS_H
#define TESTS_MODELS_VARIANTS_H
#include <attn/rotary.h>
#include <string.h>
#include "models/options.h"
#include "support/model.h"

/* Small models, one for each switch of the options and for the awkward sizes. */
typedef struct variant {
    const char *name;
    struct {
        const char *field;
        double value;
    } set[10];
    int64_t layers[2]; /* of encoder and decoder */
} variant;

static const variant variants[] = {
    {"encoder-decoder, post-norm", {{"activation", ATTN_ACTIVATION_GELU}}, {1, 2}},
    {"encoder-decoder, pre-norm, all tied",
     {{"norm_placement", ATTN_PLACEMENT_PRE}, {"tie", 3}, {"embedding_scale", 2.5}, {"activation", ATTN_ACTIVATION_TANH}},
     {2, 1}},
    {"decoder, learned positions",
     {{"norm_placement", ATTN_PLACEMENT_PRE},
      {"positions", ATTN_POSITIONS_LEARNED},
      {"tie", 1},
      {"activation", ATTN_ACTIVATION_GELU_TANH},
      {"output_bias", 1}},
     {0, 2}},
    {"decoder, no final norm",
     {{"norm_placement", ATTN_PLACEMENT_PRE}, {"final_norm", 0}, {"activation", ATTN_ACTIVATION_SIGMOID}},
     {0, 2}},
    {"encoder with an embedding norm",
     {{"embedding_norm", 1}, {"positions", ATTN_POSITIONS_LEARNED}, {"activation", ATTN_ACTIVATION_GELU}},
     {2, 0}},
    {"encoder, pre-norm, tied", {{"norm_placement", ATTN_PLACEMENT_PRE}, {"tie", 1}}, {1, 0}},
    {"grouped heads", {{"heads", 4}, {"key_heads", 2}, {"activation", ATTN_ACTIVATION_GELU}}, {1, 1}},
    {"one key head", {{"heads", 4}, {"key_heads", 1}, {"norm_placement", ATTN_PLACEMENT_PRE}}, {0, 1}},
    {"heads of size 1", {{"width", 6}, {"heads", 6}, {"activation", ATTN_ACTIVATION_GELU}}, {1, 1}},
    {"heads of size 3", {{"width", 6}, {"heads", 2}, {"activation", ATTN_ACTIVATION_GELU}}, {1, 1}},
    {"head size of its own, prime widths",
     {{"width", 7},
      {"heads", 2},
      {"head_size", 5},
      {"feed_forward", 13},
      {"activation", ATTN_ACTIVATION_GELU},
      {"positions", ATTN_POSITIONS_NONE}},
     {1, 1}},
    {"width of 1", {{"width", 1}, {"heads", 1}, {"feed_forward", 1}, {"norm_placement", ATTN_PLACEMENT_PRE}, {"final_norm", 0}}, {1, 1}},
    {"decoder of another width",
     {{"decoder_width", 6},
      {"decoder_heads", 3},
      {"decoder_feed_forward", 10},
      {"target_vocabulary", 5},
      {"activation", ATTN_ACTIVATION_GELU}},
     {1, 2}},
    {"SwiGLU, RMSNorm, no biases",
     {{"gated", 1},
      {"activation", ATTN_ACTIVATION_SWISH},
      {"norm", ATTN_NORM_RMS},
      {"attention_bias", 0},
      {"feed_forward_bias", 0},
      {"norm_bias", 0},
      {"norm_placement", ATTN_PLACEMENT_PRE}},
     {0, 2}},
    {"GEGLU with biases", {{"gated", 1}, {"activation", ATTN_ACTIVATION_GELU}, {"norm_bias", 0}}, {1, 1}},
    {"gated identity", {{"gated", 1}, {"activation", ATTN_ACTIVATION_IDENTITY}}, {1, 0}},
    {"Swish with a learned beta", {{"learned_beta", 1}, {"activation", ATTN_ACTIVATION_SWISH}, {"swish_beta", 1.5}}, {1, 1}},
    {"SwiGLU with a learned beta",
     {{"learned_beta", 1}, {"gated", 1}, {"activation", ATTN_ACTIVATION_SWISH}, {"norm_placement", ATTN_PLACEMENT_PRE}},
     {0, 2}},
    {"Swish with a beta", {{"activation", ATTN_ACTIVATION_SWISH}, {"swish_beta", 0.7}, {"gated", 1}}, {1, 0}},
    {"parallel block, pre-norm",
     {{"parallel_block", 1}, {"norm_placement", ATTN_PLACEMENT_PRE}, {"activation", ATTN_ACTIVATION_GELU}},
     {1, 2}},
    {"parallel block, post-norm", {{"parallel_block", 1}, {"activation", ATTN_ACTIVATION_GELU}}, {2, 1}},
    {"soft cap", {{"soft_cap", 1.5}, {"activation", ATTN_ACTIVATION_GELU}}, {1, 1}},
    {"rotary, halves", {{"positions", ATTN_POSITIONS_ROTARY}, {"norm_placement", ATTN_PLACEMENT_PRE}}, {1, 2}},
    {"rotary, pairs, part of a head, YaRN",
     {{"positions", ATTN_POSITIONS_ROTARY},
      {"rotary_pairing", 1},
      {"rotated", 2},
      {"rotary_scaling", ATTN_ROTARY_YARN},
      {"rotary_factor", 4},
      {"rotary_context", 6},
      {"activation", ATTN_ACTIVATION_GELU}},
     {0, 2}},
    {"T5 buckets, scores not scaled",
     {{"positions", ATTN_POSITIONS_T5},
      {"position_buckets", 4},
      {"position_reach", 5},
      {"scaled_scores", 0},
      {"activation", ATTN_ACTIVATION_GELU},
      {"norm_placement", ATTN_PLACEMENT_PRE}},
     {2, 2}},
    {"ALiBi", {{"positions", ATTN_POSITIONS_ALIBI}, {"activation", ATTN_ACTIVATION_GELU}}, {1, 2}},
    {"relative rows (Shaw)", {{"positions", ATTN_POSITIONS_RELATIVE}, {"position_reach", 2}, {"activation", ATTN_ACTIVATION_GELU}}, {2, 2}},
    {"queries and keys normed, gated heads",
     {{"query_key_norm", ATTN_QUERY_KEY_RMS},
      {"gated_attention", 1},
      {"positions", ATTN_POSITIONS_ROTARY},
      {"activation", ATTN_ACTIVATION_GELU}},
     {1, 2}},
    {"queries and keys normed by LayerNorm", {{"query_key_norm", ATTN_QUERY_KEY_LAYER}, {"activation", ATTN_ACTIVATION_GELU}}, {1, 1}},
    {"no output head", {{"output_head", 0}, {"activation", ATTN_ACTIVATION_GELU}}, {1, 1}},
    {"layers run again", {{"checkpoint_layers", 1}, {"activation", ATTN_ACTIVATION_GELU}}, {2, 2}},
    {"layers run again, pre-norm", {{"checkpoint_layers", 1}, {"norm_placement", ATTN_PLACEMENT_PRE}, {"tie", 3}}, {2, 2}},
    {"linear attention", {{"form", ATTN_FORM_LINEAR}, {"activation", ATTN_ACTIVATION_GELU}}, {1, 2}},
    {"Performer, rotary",
     {{"form", ATTN_FORM_PERFORMER}, {"features", 10}, {"feature_seed", 3}, {"positions", ATTN_POSITIONS_ROTARY}},
     {1, 1}},
    {"Linformer", {{"form", ATTN_FORM_LINFORMER}, {"projected", 3}, {"context", 9}, {"activation", ATTN_ACTIVATION_GELU}}, {2, 1}},
    {"LSTM, both ways, additive scores", {{"recurrence", ATTN_RECURRENCE_LSTM}, {"positions", ATTN_POSITIONS_NONE}}, {1, 1}},
    {"LSTM, two layers, bilinear scores, decoder of another width",
     {{"recurrence", ATTN_RECURRENCE_LSTM},
      {"decoder_score", ATTN_SCORE_MULTIPLICATIVE},
      {"decoder_width", 7},
      {"target_vocabulary", 5},
      {"soft_cap", 1.5}},
     {2, 2}},
    {"tanh, one way, dot scores, all tied",
     {{"recurrence", ATTN_RECURRENCE_TANH}, {"both_ways", 0}, {"decoder_score", ATTN_SCORE_DOT}, {"tie", 3}, {"width", 5}},
     {1, 2}},
    {"tanh, scaled scores, embedding norm",
     {{"recurrence", ATTN_RECURRENCE_TANH},
      {"decoder_score", ATTN_SCORE_SCALED_DOT},
      {"embedding_norm", 1},
      {"positions", ATTN_POSITIONS_LEARNED}},
     {2, 1}},
    {"LSTM without attention", {{"recurrence", ATTN_RECURRENCE_LSTM}, {"decoder_attention", 0}, {"decoder_width", 6}}, {2, 2}},
    {"LSTM decoder", {{"recurrence", ATTN_RECURRENCE_LSTM}, {"tie", 1}, {"output_bias", 1}}, {0, 2}},
    {"LSTM encoder, no output head", {{"recurrence", ATTN_RECURRENCE_LSTM}, {"output_head", 0}}, {2, 0}},
    {"tanh of width 1", {{"recurrence", ATTN_RECURRENCE_TANH}, {"both_ways", 0}, {"width", 1}}, {1, 1}},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static inline int variant_index(const char *name)
{
    int i = 0;
    while (strcmp(variants[i].name, name) != 0) i++;
    return i;
}

static inline attn_transformer_options variant_options(const variant *v, int32_t dtype, double dropout)
{
    attn_transformer_options o = model_options(v->layers[0], v->layers[1]);
    for (int i = 0; i < 10 && v->set[i].field != NULL; i++) attn__option_set(&o, attn__option_field(v->set[i].field), v->set[i].value);
    o.dtype = dtype;
    o.dropout_embedding = o.dropout_attention = o.dropout_sublayer = o.dropout_activation = dropout;
    return o;
}
#endif

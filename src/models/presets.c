#include <string.h>
#include "options.h"

/* Known systems as points in the space of options: what differs from the defaults. */
typedef struct setting {
    const char *field;
    double value;
} setting;
typedef struct preset {
    const char *name;
    setting at[32];
} preset;

#define GPT2 \
    {"encoder_layers", 0}, {"norm_placement", ATTN_PLACEMENT_PRE}, {"activation", ATTN_ACTIVATION_GELU_TANH}, \
        {"positions", ATTN_POSITIONS_LEARNED}, {"tie", ATTN_TIE_OUTPUT}, {"norm_epsilon", 1e-5}, \
    { \
        "initialisation", ATTN_INITIALISATION_SCALED_NORMAL \
    }
#define NO_BIAS \
    {"attention_bias", 0}, {"feed_forward_bias", 0}, \
    { \
        "norm_bias", 0 \
    }

static const preset presets[] = {
    /* Vaswani et al. 2017, table 3; shared vocabulary of 37,000 */
    {"transformer-base",
     {{"source_vocabulary", 37000},
      {"tie", ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE},
      {"embedding_scale", 22.627416997969522},
      {"dropout_embedding", 0.1},
      {"dropout_attention", 0.1},
      {"dropout_sublayer", 0.1}}},
    {"transformer-big",
     {{"width", 1024},
      {"heads", 16},
      {"source_vocabulary", 37000},
      {"tie", ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE},
      {"embedding_scale", 32},
      {"dropout_embedding", 0.3},
      {"dropout_attention", 0.1},
      {"dropout_sublayer", 0.3}}},
    /* Radford et al. 2019 */
    {"gpt2",
     {GPT2,
      {"decoder_layers", 12},
      {"width", 768},
      {"heads", 12},
      {"source_vocabulary", 50257},
      {"context", 1024},
      {"dropout_embedding", 0.1},
      {"dropout_attention", 0.1},
      {"dropout_sublayer", 0.1}}},
    {"gpt2-medium",
     {GPT2,
      {"decoder_layers", 24},
      {"width", 1024},
      {"heads", 16},
      {"source_vocabulary", 50257},
      {"context", 1024},
      {"dropout_embedding", 0.1},
      {"dropout_attention", 0.1},
      {"dropout_sublayer", 0.1}}},
    /* Devlin et al. 2019: post-norm, a norm on the embeddings, segment embeddings; without the pooler and the masked-token head */
    {"bert-base",
     {{"encoder_layers", 12},
      {"decoder_layers", 0},
      {"width", 768},
      {"heads", 12},
      {"source_vocabulary", 30522},
      {"context", 512},
      {"activation", ATTN_ACTIVATION_GELU},
      {"positions", ATTN_POSITIONS_LEARNED},
      {"segment_types", 2},
      {"embedding_norm", 1},
      {"output_head", 0},
      {"norm_epsilon", 1e-12},
      {"initialisation", ATTN_INITIALISATION_SCALED_NORMAL},
      {"dropout_embedding", 0.1},
      {"dropout_attention", 0.1},
      {"dropout_sublayer", 0.1}}},
    /* Raffel et al. 2020, version 1.0: RMSNorm, no biases, scores not scaled */
    {"t5-small",
     {{"source_vocabulary", 32128},
      {"feed_forward", 2048},
      {"head_size", 64},
      {"norm", ATTN_NORM_RMS},
      {"norm_placement", ATTN_PLACEMENT_PRE},
      NO_BIAS,
      {"positions", ATTN_POSITIONS_T5},
      {"scaled_scores", 0},
      {"tie", ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE},
      {"dropout_embedding", 0.1},
      {"dropout_attention", 0.1},
      {"dropout_sublayer", 0.1},
      {"dropout_activation", 0.1}}},
    /* Touvron et al. 2023 */
    {"llama-7b",
     {{"encoder_layers", 0},
      {"decoder_layers", 32},
      {"width", 4096},
      {"heads", 32},
      {"feed_forward", 11008},
      {"source_vocabulary", 32000},
      {"context", 2048},
      {"norm", ATTN_NORM_RMS},
      {"norm_placement", ATTN_PLACEMENT_PRE},
      NO_BIAS,
      {"activation", ATTN_ACTIVATION_SWISH},
      {"gated", 1},
      {"positions", ATTN_POSITIONS_ROTARY},
      {"initialisation", ATTN_INITIALISATION_SCALED_NORMAL}}},
    /* Chowdhery et al. 2022: one key head, attention and feed-forward in parallel */
    {"palm-8b",
     {{"encoder_layers", 0},
      {"decoder_layers", 32},
      {"width", 4096},
      {"heads", 16},
      {"key_heads", 1},
      {"head_size", 256},
      {"feed_forward", 16384},
      {"source_vocabulary", 256000},
      {"context", 2048},
      {"norm_placement", ATTN_PLACEMENT_PRE},
      NO_BIAS,
      {"activation", ATTN_ACTIVATION_SWISH},
      {"gated", 1},
      {"parallel_block", 1},
      {"positions", ATTN_POSITIONS_ROTARY},
      {"tie", ATTN_TIE_OUTPUT}}},
    /* Dosovitskiy et al. 2021, patches of 16 x 16 x 3, 1,000 classes */
    {"vit-base",
     {{"encoder_layers", 12},
      {"decoder_layers", 0},
      {"width", 768},
      {"heads", 12},
      {"patch_values", 768},
      {"source_vocabulary", 0},
      {"target_vocabulary", 1000},
      {"context", 197},
      {"norm_placement", ATTN_PLACEMENT_PRE},
      {"activation", ATTN_ACTIVATION_GELU},
      {"positions", ATTN_POSITIONS_LEARNED},
      {"output_bias", 1}}},
    /* Gorman et al. 2020, the baseline of SIGMORPHON's task on pronunciation, its smaller size: pre-norm */
    {"g2p",
     {{"encoder_layers", 4},
      {"decoder_layers", 4},
      {"width", 128},
      {"heads", 4},
      {"feed_forward", 512},
      {"source_vocabulary", 64},
      {"norm_placement", ATTN_PLACEMENT_PRE},
      {"tie", ATTN_TIE_OUTPUT},
      {"embedding_scale", 11.313708498984761},
      {"dropout_embedding", 0.3},
      {"dropout_attention", 0.3},
      {"dropout_sublayer", 0.3}}},
    /* Gorman et al. 2020, the other baseline of that task: Bahdanau's two-way encoder and Luong's decoder, of one layer each */
    {"lstm-attention",
     {{"recurrence", ATTN_RECURRENCE_LSTM},
      {"encoder_layers", 1},
      {"decoder_layers", 1},
      {"width", 256},
      {"heads", 1},
      {"source_vocabulary", 64},
      {"positions", ATTN_POSITIONS_NONE},
      {"tie", ATTN_TIE_OUTPUT},
      {"embedding_scale", 16},
      {"dropout_embedding", 0.3},
      {"dropout_sublayer", 0.3}}},
    /* Karpathy's character-level model for the CPU (nanoGPT): no biases */
    {"gpt-char", {GPT2, NO_BIAS, {"decoder_layers", 4}, {"width", 128}, {"heads", 4}, {"source_vocabulary", 65}, {"context", 64}}},
};

const char *attn_transformer_preset_name(int64_t index)
{
    return index >= 0 && index < (int64_t)(sizeof presets / sizeof *presets) ? presets[index].name : NULL;
}

static const preset *find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

attn_status attn_transformer_preset(attn_context *ctx, const char *name, attn_transformer_options *options, uint64_t size)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    const preset *found = name != NULL ? find(name) : NULL;
    if (name == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "name: got NULL, expected the name of a preset");
    else if (found == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                            "name: got \"%.64s\", expected a preset such as \"transformer-base\" or \"gpt2\"", name);
    attn_transformer_options o = attn__transformer_defaults;
    for (const setting *s = found ? found->at : NULL; s != NULL && s->field != NULL; s++)
        attn__option_set(&o, attn__option_field(s->field), s->value);
    if (status == ATTN_OK) status = attn__options_init(options, size, &o, sizeof o);
    if (status != ATTN_OK && found != NULL)
        attn__fail(ctx, status, "options: got NULL or a size of %llu bytes, expected a struct", (unsigned long long)size);
    return attn__leave(ctx, status);
}

#ifndef TESTS_MODELS_DRAWN_H
#define TESTS_MODELS_DRAWN_H
#include <attn/rotary.h>
#include <stdio.h>
#include "models/options.h"
#include "support/drawn.h"
#include "support/model.h"

/* Options of models, drawn: each switch of the table one time in five, some kinds of model one time in six. */
enum { DRAWN_CHOICES = 6 };

/* smooth activations alone: differences of the loss are looked at */
static const struct drawn_choice {
    const char *field;
    int count;
    double of[DRAWN_CHOICES];
} drawn_choices[] = {
    {"width", 4, {6, 8, 12, 16}},
    {"heads", 4, {1, 2, 4, 2}},
    {"key_heads", 3, {1, 2, ATTN_DERIVED}},
    {"head_size", 3, {2, 3, 6}},
    {"feed_forward", 3, {1, 5, 24}},
    {"decoder_width", 3, {6, 8, 12}},
    {"decoder_heads", 2, {1, 2}},
    {"decoder_feed_forward", 2, {3, 10}},
    {"context", 2, {30, 12}},
    {"norm", 2, {ATTN_NORM_RMS, ATTN_NORM_LAYER}},
    {"norm_placement", 2, {ATTN_PLACEMENT_PRE, ATTN_PLACEMENT_POST}},
    {"final_norm", 1, {0}},
    {"activation", 5, {ATTN_ACTIVATION_GELU_TANH, ATTN_ACTIVATION_SWISH, ATTN_ACTIVATION_SIGMOID, ATTN_ACTIVATION_TANH, 0}},
    {"gated", 1, {1}},
    {"learned_beta", 1, {1}},
    {"swish_beta", 1, {1.5}},
    {"parallel_block", 1, {1}},
    {"positions", 6, {0, 2, 3, 4, 5, 6}},
    {"position_buckets", 2, {4, 6}},
    {"position_reach", 3, {2, 5, 9}},
    {"rotary_pairing", 1, {ATTN_ROTARY_PAIRS}},
    {"rotated", 1, {2}},
    {"rotary_scaling", 3, {ATTN_ROTARY_LINEAR, ATTN_ROTARY_YARN, ATTN_ROTARY_LLAMA3}},
    {"rotary_factor", 1, {4}},
    {"rotary_context", 1, {6}},
    {"tie", 3, {1, 2, 3}},
    {"attention_bias", 1, {0}},
    {"feed_forward_bias", 1, {0}},
    {"norm_bias", 1, {0}},
    {"output_bias", 1, {1}},
    {"output_head", 2, {1, 0}},
    {"embedding_norm", 1, {1}},
    {"embedding_scale", 1, {2.5}},
    {"soft_cap", 1, {1.5}},
    {"scaled_scores", 1, {0}},
    {"query_key_norm", 2, {ATTN_QUERY_KEY_RMS, ATTN_QUERY_KEY_LAYER}},
    {"gated_attention", 1, {1}},
    {"checkpoint_layers", 1, {1}},
    {"dropout_embedding", 1, {0.2}},
    {"dropout_attention", 1, {0.2}},
    {"dropout_sublayer", 1, {0.2}},
    {"dropout_activation", 1, {0.2}},
};
/* rarer, since they leave many of the others out */
static const struct drawn_choice drawn_kinds[] = {
    {"form", 3, {ATTN_FORM_LINEAR, ATTN_FORM_PERFORMER, ATTN_FORM_LINFORMER}},
    {"recurrence", 2, {ATTN_RECURRENCE_TANH, ATTN_RECURRENCE_LSTM}},
};
static const struct drawn_choice drawn_recurrences[] = {
    {"both_ways", 1, {0}},
    {"decoder_attention", 1, {0}},
    {"decoder_score", 3, {ATTN_SCORE_DOT, ATTN_SCORE_SCALED_DOT, ATTN_SCORE_MULTIPLICATIVE}}};

static inline void drawn_choose(random_state *random, attn_transformer_options *o, const struct drawn_choice *list, size_t count,
                                int64_t once_in)
{
    for (size_t i = 0; i < count; i++) {
        const double value = list[i].of[random_integer(random, 0, list[i].count)];
        if (!drawn_once_in(random, once_in)) continue;
        attn__option_set(o, attn__option_field(list[i].field), value);
        printf(", %s %g", list[i].field, value);
    }
}

static inline attn_transformer_options drawn_options(int64_t number)
{
    static const int64_t layers[6][2] = {{1, 1}, {2, 1}, {1, 2}, {0, 2}, {0, 1}, {2, 0}};
    random_state random = {(uint64_t)number};
    const int64_t *stacks = layers[random_integer(&random, 0, 6)];
    attn_transformer_options o = model_options(stacks[0], stacks[1]);
    printf("draw %d: %d + %d layers", (int)number, (int)stacks[0], (int)stacks[1]);
    o.dtype = ATTN_FLOAT64;
    o.activation = ATTN_ACTIVATION_GELU;
    o.features = 6, o.projected = 3;
    drawn_choose(&random, &o, drawn_choices, sizeof drawn_choices / sizeof *drawn_choices, 5);
    drawn_choose(&random, &o, drawn_kinds, sizeof drawn_kinds / sizeof *drawn_kinds, 6);
    if (o.recurrence != ATTN_RECURRENCE_NONE)
        drawn_choose(&random, &o, drawn_recurrences, sizeof drawn_recurrences / sizeof *drawn_recurrences, 2);
    if (o.form != ATTN_FORM_SOFTMAX) o.dropout_attention = o.soft_cap = 0;
    printf("\n");
    return o;
}
#endif

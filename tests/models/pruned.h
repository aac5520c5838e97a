#ifndef TESTS_MODELS_PRUNED_H
#define TESTS_MODELS_PRUNED_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* Models that heads are taken out of, one for each way in which a head is known. */
enum { PRUNED_MOST = 6, PRUNED_HEADS = 8 };
typedef struct pruned_case {
    const char *name;
    int64_t layers[2], heads, key_heads, decoder_width, decoder_heads;
    int32_t positions, norm, gated, no_bias, parallel, checkpoint, pre;
    int64_t count, gone[PRUNED_MOST][3];
} pruned_case;

static const pruned_case pruned_cases[] = {
    {"encoder-decoder", {2, 2}, 4, 4, 0, 0, ATTN_POSITIONS_SINUSOIDAL, 0, 0, 0, 0, 0, 0, 4, {{1, 0, 3}, {0, 1, 0}, {1, 0, 1}, {0, 1, 2}}},
    {"all but one head", {0, 2}, 3, 3, 0, 0, ATTN_POSITIONS_LEARNED, 0, 0, 1, 0, 0, 1, 2, {{1, 1, 0}, {1, 1, 1}}},
    {"ALiBi", {0, 3}, 4, 4, 0, 0, ATTN_POSITIONS_ALIBI, 0, 0, 0, 0, 0, 1, 3, {{1, 0, 0}, {1, 2, 1}, {1, 2, 2}}},
    {"ALiBi, heads no power of two", {1, 1}, 6, 6, 0, 0, ATTN_POSITIONS_ALIBI, 0, 0, 0, 0, 0, 0, 3, {{1, 0, 4}, {0, 0, 0}, {1, 0, 0}}},
    {"T5", {2, 2}, 4, 4, 0, 0, ATTN_POSITIONS_T5, 0, 0, 0, 0, 0, 1, 4, {{0, 0, 1}, {0, 1, 3}, {1, 0, 0}, {1, 0, 2}}},
    {"T5, checkpointed layers", {1, 2}, 2, 2, 0, 0, ATTN_POSITIONS_T5, 0, 0, 0, 0, 1, 1, 2, {{1, 0, 0}, {1, 1, 1}}},
    {"relative", {1, 1}, 4, 4, 0, 0, ATTN_POSITIONS_RELATIVE, 0, 0, 0, 0, 0, 0, 2, {{0, 0, 2}, {1, 0, 0}}},
    {"rotary, normed, gated, grouped",
     {0, 2},
     6,
     3,
     0,
     0,
     ATTN_POSITIONS_ROTARY,
     1,
     1,
     0,
     0,
     0,
     1,
     4,
     {{1, 0, 3}, {1, 0, 2}, {1, 1, 0}, {1, 1, 1}}},
    {"parallel, one key head less", {0, 2}, 4, 2, 0, 0, ATTN_POSITIONS_ROTARY, 0, 0, 1, 1, 0, 1, 2, {{1, 1, 2}, {1, 1, 3}}},
    {"a decoder of another width", {1, 1}, 4, 4, 12, 3, ATTN_POSITIONS_SINUSOIDAL, 0, 0, 0, 0, 0, 0, 2, {{1, 0, 1}, {0, 0, 3}}},
    {"an encoder alone", {2, 0}, 4, 2, 0, 0, ATTN_POSITIONS_SINUSOIDAL, 0, 0, 0, 0, 0, 0, 2, {{0, 1, 0}, {0, 1, 1}}},
};
enum { PRUNED_CASES = sizeof pruned_cases / sizeof *pruned_cases };

static inline attn_transformer_options pruned_options(const pruned_case *c, int32_t dtype)
{
    attn_transformer_options o = model_options(c->layers[0], c->layers[1]);
    o.width = 2 * c->heads * 2;
    o.dtype = dtype;
    o.heads = c->heads;
    o.key_heads = c->key_heads;
    if (c->decoder_width > 0) o.decoder_width = c->decoder_width;
    if (c->decoder_heads > 0) o.decoder_heads = c->decoder_heads;
    o.positions = c->positions;
    o.position_buckets = 8;
    o.position_reach = 6;
    o.query_key_norm = c->norm ? ATTN_QUERY_KEY_RMS : ATTN_QUERY_KEY_NONE;
    o.gated_attention = c->gated;
    o.attention_bias = !c->no_bias;
    o.parallel_block = c->parallel;
    o.checkpoint_layers = c->checkpoint;
    o.norm_placement = c->pre ? ATTN_PLACEMENT_PRE : ATTN_PLACEMENT_POST;
    o.activation = ATTN_ACTIVATION_GELU;
    return o;
}

static inline attn_transformer *pruned_of(attn_context *ctx, const attn_transformer *model, const pruned_case *c)
{
    attn_transformer *out = NULL;
    OK(ctx, attn_transformer_prune_heads(ctx, model, c->count, &c->gone[0][0], &out));
    return out;
}

static inline int pruned_gone(const pruned_case *c, int64_t decoder, int64_t layer, int64_t head)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->gone[i][0] == decoder && c->gone[i][1] == layer && c->gone[i][2] == head) return 1;
    return 0;
}
#endif

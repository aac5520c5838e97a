#include <string.h>
#include "bench.h"

static const bench_config configs[] = {
    {"gpt-char", 0, 4, 128, 4, 512, 65, 12, 64, "gpt-char", 0, ATTN_OPTIMIZER_ADAMW},
    {"gpt-small", 0, 6, 384, 6, 1536, 65, 8, 256, "gpt-char", 0, ATTN_OPTIMIZER_ADAMW},
    {"transformer-base", 6, 6, 512, 8, 2048, 8000, 8, 64, "transformer-base", 0.1, ATTN_OPTIMIZER_ADAM},
};

const bench_config *bench_config_at(int64_t index)
{
    return index >= 0 && index < (int64_t)(sizeof configs / sizeof *configs) ? &configs[index] : NULL;
}

const bench_config *bench_config_find(const char *name)
{
    for (int64_t i = 0; bench_config_at(i) != NULL; i++)
        if (strcmp(configs[i].name, name) == 0) return &configs[i];
    return NULL;
}

void bench_config_options(attn_context *ctx, const bench_config *c, attn_transformer_options *o)
{
    bench_fail(ctx, attn_transformer_preset(ctx, c->preset, o, sizeof *o), "preset");
    o->encoder_layers = c->encoder_layers;
    o->decoder_layers = c->decoder_layers;
    o->width = c->width;
    o->heads = c->heads;
    o->feed_forward = c->feed_forward;
    o->source_vocabulary = c->vocabulary;
    o->target_vocabulary = c->vocabulary;
    o->context = c->length;
    o->dropout_embedding = o->dropout_attention = o->dropout_sublayer = 0;
    if (c->encoder_layers > 0) o->tie = ATTN_TIE_NONE;
}

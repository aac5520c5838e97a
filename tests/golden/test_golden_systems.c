#include <attn/rotary.h>
#include "model_case.h"

/* LLaMA, Qwen 3, MPT and T5 in small, against the transformers library (tests/data/generate_systems.py): rotary positions with LLaMA 3's scaling,
   grouped heads, normed queries and keys, ALiBi, T5's buckets. */
static attn_transformer_options decoder_of(const char *preset, int32_t dtype)
{
    attn_transformer_options o;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    OK(ctx, attn_transformer_preset(ctx, preset, &o, sizeof o));
    attn_context_free(ctx);
    o.decoder_layers = 2;
    o.width = 16;
    o.heads = 4;
    o.source_vocabulary = 13;
    o.context = 64;
    o.dropout_attention = o.dropout_embedding = o.dropout_sublayer = o.dropout_activation = 0;
    o.dtype = dtype;
    return o;
}

static attn_transformer_options llama(int32_t dtype)
{
    attn_transformer_options o = decoder_of("llama-7b", dtype);
    o.key_heads = 2;
    o.feed_forward = 24;
    o.norm_epsilon = 1e-5;
    o.rotary_base = 50;
    o.rotary_scaling = ATTN_ROTARY_LLAMA3;
    o.rotary_factor = 4;
    o.rotary_low = 1;
    o.rotary_high = 4;
    o.rotary_context = 16;
    return o;
}

static attn_transformer_options qwen3(int32_t dtype)
{
    attn_transformer_options o = decoder_of("llama-7b", dtype);
    o.key_heads = 1;
    o.head_size = 6;
    o.feed_forward = 20;
    o.query_key_norm = ATTN_QUERY_KEY_RMS;
    return o;
}

static attn_transformer_options mpt(int32_t dtype)
{
    attn_transformer_options o = decoder_of("llama-7b", dtype);
    o.norm = ATTN_NORM_LAYER;
    o.norm_epsilon = 1e-5;
    o.gated = 0;
    o.activation = ATTN_ACTIVATION_GELU;
    o.feed_forward = 64;
    o.positions = ATTN_POSITIONS_ALIBI;
    o.tie = ATTN_TIE_OUTPUT;
    return o;
}

static attn_transformer_options t5(int32_t dtype)
{
    attn_transformer_options o = decoder_of("t5-small", dtype);
    o.encoder_layers = 2;
    o.head_size = 4;
    o.feed_forward = 24;
    o.position_buckets = 8;
    o.position_reach = 10;
    o.tie = ATTN_TIE_SOURCE;
    return o;
}

static void check(const char *name, model_case_options *options)
{
    const struct {
        int32_t backend;
        double within;
    } on[] = {{ATTN_BACKEND_REFERENCE, 1e-6}, {ATTN_BACKEND_BLAS, 2e-5}}; /* their rotary frequencies are float32 numbers */
    for (int i = 0; i < 2; i++) {
        model_case c;
        open_case(&c, name, options, on[i].backend, on[i].within);
        expect_values(&c, 0);
        close_case(&c);
    }
}

static void test_llama(void **state)
{
    (void)state, check("llama", llama);
}
static void test_qwen3(void **state)
{
    (void)state, check("qwen3", qwen3);
}
static void test_mpt(void **state)
{
    (void)state, check("mpt", mpt);
}
static void test_t5(void **state)
{
    (void)state, check("t5", t5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_mpt),
        cmocka_unit_test(test_t5),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "models/options.h"
#include "support/model.h"

/* Known systems: their numbers of parameters are those of the papers or of published weights. */
static attn_context *ctx;

static attn_transformer_options preset(const char *name)
{
    attn_transformer_options o;
    OK(ctx, attn_transformer_preset(ctx, name, &o, sizeof o));
    return o;
}

static int64_t described(const attn_transformer_options *o)
{
    int64_t sum = 0;
    for (int64_t i = 0;; i++) {
        char name[160];
        int32_t rank;
        int64_t shape[4];
        attn_status status = attn_transformer_describe(ctx, o, i, sizeof name, name, &rank, shape);
        if (status == ATTN_ERROR_END_OF_DATA) return sum;
        OK(ctx, status);
        assert_true(rank == 1 || rank == 2);
        assert_true(strlen(name) > 0 && shape[0] > 0 && shape[rank] == 1);
        sum += shape[0] * shape[1] * shape[2] * shape[3];
    }
}

static void test_counts(void **state)
{
    (void)state;
    /* transformer-base: 37,000 * 512 shared; 6 encoder layers of 4 (512^2 + 512) + 2 * 512 * 2,048 + 2,560 + 2 * 2 * 512 and 6 decoder layers
       with one attention and norm more. */
    const int64_t attention = 4 * (512 * 512 + 512), feed_forward = 2 * 512 * 2048 + 2048 + 512, norm = 1024;
    const struct {
        const char *name;
        int64_t count;
    } at[] = {{"gpt2", 124439808},
              {"gpt2-medium", 354823168},
              {"llama-7b", 6738415616},
              {"bert-base", 108891648},
              {"vit-base", 86567656},
              {"transformer-base",
               INT64_C(37000) * 512 + 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)},
              {"t5-small", 60506624},
              {"palm-8b", 8316764160 + 524288 + 4096},
              {"g2p", 4 * (4 * (128 * 128 + 128) + 2 * 128 * 512 + 512 + 128 + 2 * 256) +
                          4 * (8 * (128 * 128 + 128) + 2 * 128 * 512 + 512 + 128 + 3 * 256) + 2 * 256 + 2 * 64 * 128},
              {"gpt-char", 800000}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        attn_transformer_options o = preset(at[i].name);
        int64_t count = described(&o);
        if (strcmp(at[i].name, "palm-8b") == 0) {
            if (!(count > 8300000000 && count < 8700000000)) fail_msg("palm-8b has %lld parameters", (long long)count);
            continue;
        }
        if (strcmp(at[i].name, "gpt-char") == 0) { /* nanoGPT says 0.80M */
            const int64_t want = 4 * (12 * 128 * 128 + 2 * 128) + 128 + 65 * 128 + 64 * 128;
            assert_int_equal(count, want);
            continue;
        }
        if (count != at[i].count) fail_msg("%s: %lld parameters, expected %lld", at[i].name, (long long)count, (long long)at[i].count);
        attn_cost_report r = {.struct_size = sizeof r};
        OK(ctx, attn_transformer_memory(ctx, &o, 1, 64, 64, &r));
        assert_int_equal(r.parameters, count);
        assert_true(r.forward > 0 && r.peak_bytes > 16 * count);
    }
}

/* every preset is described and costed without memory; those with a part that comes later name it when they are to be created */
static void test_all(void **state)
{
    (void)state;
    const struct {
        const char *name, *part;
    } later[] = {{"bert-base", "segment"}, {"vit-base", "patch"}};
    attn_memory_report m = {.struct_size = sizeof m};
    attn_cost_report r = {.struct_size = sizeof r};
    OK(ctx, attn_context_reset_peak(ctx));
    OK(ctx, attn_context_memory(ctx, &m));
    const int64_t before = m.live;
    int64_t count = 0;
    for (const char *name; (name = attn_transformer_preset_name(count)) != NULL; count++) {
        attn_transformer_options o = preset(name);
        OK(ctx, attn_transformer_memory(ctx, &o, 1, 2048, 128, &r));
        OK(ctx, attn_transformer_memory(ctx, &o, 0, 2048, 128, &r));
        assert_true(r.parameters > 0 && r.forward > 0 && r.backward == 0);
        for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
            attn_transformer *model = NULL;
            if (strcmp(later[i].name, name) == 0)
                FAILS(ctx, attn_transformer_create(ctx, &o, &model), ATTN_ERROR_UNSUPPORTED, later[i].part);
        }
    }
    assert_int_equal(count, 12);
    assert_null(attn_transformer_preset_name(-1));
    OK(ctx, attn_context_memory(ctx, &m));
    if (m.live > before + (2 << 20) || m.peak > before + (2 << 20)) fail_msg("reports took %lld bytes", (long long)(m.peak - before));
}

/* everything in which a preset differs from the defaults, as numbers: a model of that name is the same in every version */
static void test_settings(void **state)
{
    static const struct {
        const char *name, *settings;
    } known[] = {
        {"transformer-base", "source_vocabulary 37000, tie 3, embedding_scale 22.627417, dropout_embedding 0.1, dropout_attention 0.1, "
                             "dropout_sublayer 0.1"},
        {"transformer-big", "width 1024, heads 16, source_vocabulary 37000, tie 3, embedding_scale 32, dropout_embedding 0.3, "
                            "dropout_attention 0.1, dropout_sublayer 0.3"},
        {"gpt2", "encoder_layers 0, decoder_layers 12, width 768, heads 12, source_vocabulary 50257, context 1024, "
                 "norm_placement 1, activation 3, positions 2, tie 1, initialisation 1, norm_epsilon 1e-05, "
                 "dropout_embedding 0.1, dropout_attention 0.1, dropout_sublayer 0.1"},
        {"gpt2-medium", "encoder_layers 0, decoder_layers 24, width 1024, heads 16, source_vocabulary 50257, context 1024, "
                        "norm_placement 1, activation 3, positions 2, tie 1, initialisation 1, norm_epsilon 1e-05, "
                        "dropout_embedding 0.1, dropout_attention 0.1, dropout_sublayer 0.1"},
        {"bert-base", "encoder_layers 12, decoder_layers 0, width 768, heads 12, source_vocabulary 30522, segment_types 2, "
                      "activation 2, positions 2, output_head 0, embedding_norm 1, initialisation 1, norm_epsilon 1e-12, "
                      "dropout_embedding 0.1, dropout_attention 0.1, dropout_sublayer 0.1"},
        {"t5-small", "head_size 64, feed_forward 2048, source_vocabulary 32128, norm 1, norm_placement 1, positions 4, tie 3, "
                     "attention_bias 0, feed_forward_bias 0, norm_bias 0, dropout_embedding 0.1, dropout_attention 0.1, "
                     "dropout_sublayer 0.1, dropout_activation 0.1, scaled_scores 0"},
        {"llama-7b", "encoder_layers 0, decoder_layers 32, width 4096, heads 32, feed_forward 11008, source_vocabulary 32000, "
                     "context 2048, norm 1, norm_placement 1, activation 4, gated 1, positions 3, attention_bias 0, "
                     "feed_forward_bias 0, norm_bias 0, initialisation 1"},
        {"palm-8b", "encoder_layers 0, decoder_layers 32, width 4096, heads 16, key_heads 1, head_size 256, "
                    "feed_forward 16384, source_vocabulary 256000, context 2048, norm_placement 1, activation 4, gated 1, "
                    "parallel_block 1, positions 3, tie 1, attention_bias 0, feed_forward_bias 0, norm_bias 0"},
        {"vit-base", "encoder_layers 12, decoder_layers 0, width 768, heads 12, source_vocabulary 0, target_vocabulary 1000, "
                     "context 197, patch_values 768, norm_placement 1, activation 2, positions 2, output_bias 1"},
        {"g2p", "encoder_layers 4, decoder_layers 4, width 128, heads 4, feed_forward 512, source_vocabulary 64, "
                "norm_placement 1, tie 1, embedding_scale 11.3137085, dropout_embedding 0.3, dropout_attention 0.3, "
                "dropout_sublayer 0.3"},
        {"lstm-attention", "encoder_layers 1, decoder_layers 1, width 256, heads 1, source_vocabulary 64, positions 0, tie 1, "
                           "embedding_scale 16, dropout_embedding 0.3, dropout_sublayer 0.3, recurrence 2"},
        {"gpt-char", "encoder_layers 0, decoder_layers 4, width 128, heads 4, source_vocabulary 65, context 64, "
                     "norm_placement 1, activation 3, positions 2, tie 1, attention_bias 0, feed_forward_bias 0, norm_bias 0, "
                     "initialisation 1, norm_epsilon 1e-05"},
    };
    attn_transformer_options defaults;
    int64_t count;
    const attn__field *fields = attn__option_fields(&count);
    (void)state;
    OK(ctx, attn_transformer_options_init(&defaults, sizeof defaults));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const attn_transformer_options o = preset(known[i].name);
        char text[1024] = "";
        size_t end = 0;
        for (int64_t k = 0; k < count; k++)
            if (attn__field_get(&o, &fields[k]) != attn__field_get(&defaults, &fields[k]))
                end += (size_t)snprintf(text + end, sizeof text - end, "%s%s %.9g", end > 0 ? ", " : "", fields[k].name,
                                        attn__field_get(&o, &fields[k]));
        assert_string_equal(text, known[i].settings);
        assert_string_equal(attn_transformer_preset_name((int64_t)i), known[i].name);
    }
}

/* those of this version, made smaller, are created and run */
static void test_creation(void **state)
{
    (void)state;
    const char *const names[] = {"transformer-base", "transformer-big", "gpt2",    "gpt2-medium", "gpt-char",
                                 "t5-small",         "llama-7b",        "palm-8b", "g2p",         "lstm-attention"};
    const int64_t lengths[2] = {3, 2};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        attn_transformer_options o = preset(names[i]);
        attn_transformer *model = NULL;
        model_batch batch;
        o.encoder_layers = o.encoder_layers ? 1 : 0;
        o.decoder_layers = 1;
        o.source_vocabulary = 13;
        o.width = o.heads * 4;
        OK(ctx, attn_transformer_create(ctx, &o, &model));
        model_batch_open(ctx, &batch, &o, 2, lengths, lengths, 1);
        attn_tensor *logits = model_tensor(ctx, ATTN_FLOAT32, 5, 13);
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, logits));
        attn_tensor_free(logits);
        model_batch_close(&batch);
        attn_transformer_free(model);
    }
}

/* what no count of parameters shows */
static void test_values(void **state)
{
    (void)state;
    const attn_transformer_options base = preset("transformer-base"), big = preset("transformer-big"), gpt2 = preset("gpt2-medium"),
                                   bert = preset("bert-base"), t5 = preset("t5-small"), llama = preset("llama-7b"),
                                   palm = preset("palm-8b"), vit = preset("vit-base");
    assert_true(base.embedding_scale == sqrt(512) && big.embedding_scale == 32); /* 3.4: square roots of the width */
    assert_true(base.dropout_embedding == 0.1 && base.dropout_attention == 0.1 && base.dropout_sublayer == 0.1);
    assert_true(big.dropout_embedding == 0.3 && big.dropout_attention == 0.1 && big.dropout_sublayer == 0.3); /* table 3 */
    assert_true(t5.dropout_embedding == 0.1 && t5.dropout_sublayer == 0.1 && t5.dropout_activation == 0.1 && t5.scaled_scores == 0);
    assert_true(gpt2.norm_epsilon == 1e-5 && bert.norm_epsilon == 1e-12);
    assert_true(gpt2.context == 1024 && bert.context == 512 && llama.context == 2048 && palm.context == 2048 && vit.context == 197);
    assert_true(palm.parallel_block == 1 && llama.parallel_block == 0 && palm.key_heads == 1);
    assert_true(llama.dropout_embedding == 0 && llama.dropout_attention == 0 && llama.dropout_sublayer == 0);
}

/* an older caller's struct is filled to its end, and no further */
static void test_older_caller(void **state)
{
    (void)state;
    attn_transformer_options o, whole = preset("gpt2");
    enum { OLDER = sizeof o - 16 };
    memset(&o, 0xA5, sizeof o);
    OK(ctx, attn_transformer_preset(ctx, "gpt2", &o, OLDER));
    assert_int_equal(o.struct_size, OLDER);
    assert_memory_equal((const char *)&o + sizeof o.struct_size, (const char *)&whole + sizeof o.struct_size, OLDER - sizeof o.struct_size);
    for (size_t at = OLDER; at < sizeof o; at++) assert_int_equal(((const unsigned char *)&o)[at], 0xA5);
}

static void test_errors(void **state)
{
    (void)state;
    attn_transformer_options o = preset("gpt2");
    char name[4];
    int32_t rank;
    int64_t shape[4];
    FAILS(ctx, attn_transformer_preset(ctx, "gpt3", &o, sizeof o), ATTN_ERROR_INVALID_ARGUMENT, "gpt3");
    FAILS(ctx, attn_transformer_preset(ctx, NULL, &o, sizeof o), ATTN_ERROR_INVALID_ARGUMENT, "name");
    FAILS(ctx, attn_transformer_preset(ctx, "gpt2", NULL, sizeof o), ATTN_ERROR_INVALID_ARGUMENT, "options");
    FAILS(ctx, attn_transformer_describe(ctx, &o, -1, sizeof name, name, &rank, shape), ATTN_ERROR_INVALID_ARGUMENT, "index");
    OK(ctx, attn_transformer_describe(ctx, &o, 0, sizeof name, name, &rank, shape)); /* a long name is cut */
    assert_int_equal(strlen(name), 3);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),  cmocka_unit_test(test_all),          cmocka_unit_test(test_creation),
                                       cmocka_unit_test(test_values),  cmocka_unit_test(test_older_caller), cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_settings)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

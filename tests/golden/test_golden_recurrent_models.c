#include "model_case.h"

/* Whole recurrent encoder-decoders against torch.nn.LSTM, torch.nn.RNN and their cells (tests/data/generate_recurrent_models.py), with packed
   sequences of unequal lengths: logits, loss and the gradients of all parameters. */
static attn_transformer_options lstm(int32_t dtype, int64_t encoder, int64_t decoder)
{
    attn_transformer_options o = model_options(encoder, decoder);
    o.recurrence = ATTN_RECURRENCE_LSTM;
    o.positions = ATTN_POSITIONS_NONE;
    o.width = 6;
    o.source_vocabulary = 7;
    o.target_vocabulary = 5;
    o.dtype = dtype;
    return o;
}

static attn_transformer_options lstm_additive(int32_t dtype)
{
    return lstm(dtype, 1, 1);
}

static attn_transformer_options lstm_bilinear(int32_t dtype)
{
    attn_transformer_options o = lstm(dtype, 2, 2);
    o.decoder_width = 5;
    o.decoder_score = ATTN_SCORE_MULTIPLICATIVE;
    o.soft_cap = 0.5;
    return o;
}

static attn_transformer_options tanh_dot(int32_t dtype)
{
    attn_transformer_options o = lstm(dtype, 1, 2);
    o.recurrence = ATTN_RECURRENCE_TANH;
    o.width = 5;
    o.target_vocabulary = 7;
    o.tie = ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE;
    o.both_ways = 0;
    o.decoder_score = ATTN_SCORE_DOT;
    return o;
}

static attn_transformer_options lstm_no_attention(int32_t dtype)
{
    attn_transformer_options o = lstm(dtype, 2, 1);
    o.width = 4;
    o.decoder_width = 5;
    o.decoder_attention = 0;
    return o;
}

static attn_transformer_options lstm_decoder(int32_t dtype)
{
    attn_transformer_options o = lstm(dtype, 0, 2);
    o.width = 5;
    o.target_vocabulary = 7;
    o.tie = ATTN_TIE_OUTPUT;
    o.output_bias = 1;
    return o;
}

static void test_models(void **state)
{
    const struct {
        const char *part;
        model_case_options *options;
    } cases[] = {{"lstm_additive.", lstm_additive},
                 {"lstm_bilinear.", lstm_bilinear},
                 {"tanh_dot.", tanh_dot},
                 {"lstm_no_attention.", lstm_no_attention},
                 {"lstm_decoder.", lstm_decoder}};
    (void)state;
    for (int32_t backend = 0; backend < 2; backend++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            model_case c;
            open_part(&c, "recurrent_models", cases[i].part, cases[i].options, backend, backend == ATTN_BACKEND_BLAS ? 1e-5 : 1e-12);
            expect_values(&c, 0.1);
            close_case(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

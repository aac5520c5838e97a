/* An encoder layer stack on a padded batch: packed at the edge, run without padding, unpacked again. */
#include <attn/attn.h>
#include <stdio.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)

int main(void)
{
    enum { BATCH = 2, LONGEST = 5, WIDTH = 16, ROWS = 8 };
    const int64_t lengths[BATCH] = {3, 5}, padded_shape[3] = {BATCH, LONGEST, WIDTH}, shape[2] = {ROWS, WIDTH};
    attn_context *ctx = NULL;
    attn_tensor *padded = NULL, *rows = NULL, *output = NULL;
    attn_layout *layout = NULL;
    attn_encoder *encoder = NULL;
    TRY(attn_context_create(NULL, &ctx));
    TRY(attn_tensor_create(ctx, ATTN_FLOAT32, 3, padded_shape, &padded));
    TRY(attn_tensor_create(ctx, ATTN_FLOAT32, 2, shape, &rows));
    TRY(attn_tensor_create(ctx, ATTN_FLOAT32, 2, shape, &output));
    float *x = attn_tensor_data(padded);
    for (int i = 0; i < BATCH * LONGEST * WIDTH; i++) x[i] = (float)(i % 13) / 13;
    attn_transformer_options options;
    attn_transformer_options_init(&options, sizeof options);
    options.encoder_layers = 2;
    options.width = WIDTH;
    options.heads = 4;
    TRY(attn_encoder_create(ctx, &options, &encoder));
    TRY(attn_layout_create(ctx, BATCH, &layout));
    TRY(attn_layout_set_lengths(ctx, layout, BATCH, lengths, 0));
    TRY(attn_pack(ctx, padded, layout, rows)); /* [2, 5, 16] -> [8, 16] */
    TRY(attn_encoder_forward(ctx, encoder, NULL, rows, layout, NULL, output));
    TRY(attn_unpack(ctx, output, layout, padded)); /* gaps are zero */
    printf("first value %.4f, a padded one %.4f, %lld parameters\n", (double)x[0], (double)x[4 * WIDTH],
           (long long)attn_parameters_elements(attn_encoder_parameters(encoder)));
    attn_encoder_free(encoder);
    attn_layout_free(layout);
    attn_tensor_free(padded);
    attn_tensor_free(rows);
    attn_tensor_free(output);
    attn_context_free(ctx);
    return 0;
}

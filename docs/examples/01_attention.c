/* Attention on plain arrays, forward and backward: two sequences of 3 and 4 tokens, packed without padding, two heads of size 4, causal.
   cc 01_attention.c $(pkg-config --cflags --libs libattn) */
#include <attn/attn.h>
#include <stdio.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)
enum { ROWS = 7, HEADS = 2, SIZE = 4 };

static attn_tensor *wrap(attn_context *ctx, float *data)
{
    const int64_t shape[3] = {ROWS, HEADS, SIZE};
    attn_tensor *tensor = NULL;
    return attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, shape, NULL, data, &tensor) == ATTN_OK ? tensor : NULL;
}

int main(void)
{
    static float data[8][ROWS * HEADS * SIZE]; /* query, key, value, output and their gradients */
    attn_context *ctx = NULL;
    attn_layout *layout = NULL;
    attn_mask *causal = NULL;
    attn_tape *tape = NULL;
    attn_tensor *t[8];
    TRY(attn_context_create(NULL, &ctx));
    for (int i = 0; i < 8; i++) t[i] = wrap(ctx, data[i]);
    for (int i = 0; i < ROWS * HEADS * SIZE; i++) {
        for (int j = 0; j < 3; j++) data[j][i] = (float)((i * (j + 3)) % 11) / 11;
        data[7][i] = 1; /* the loss is the sum of the output */
    }
    const attn_segment segments[2] = {{0, 3, 0, 0}, {3, 4, 0, 1}}; /* start, length, first position, sequence id */
    TRY(attn_layout_create(ctx, 2, &layout));
    TRY(attn_layout_set(ctx, layout, 2, segments));
    TRY(attn_mask_causal(ctx, ATTN_ALIGN_LAST, &causal));
    TRY(attn_tape_create(ctx, &tape));
    TRY(attn_tape_begin(ctx, tape, NULL));
    for (int i = 0; i < 3; i++) TRY(attn_tape_watch(ctx, tape, t[i], t[4 + i]));
    TRY(attn_dot_product_attention(ctx, tape, t[0], t[1], t[2], layout, layout, causal, NULL, t[3]));
    const attn_tensor *output = t[3], *gradient = t[7];
    TRY(attn_tape_backward(ctx, tape, 1, &output, &gradient, 0, NULL));
    /* the first token of the second sequence (row 3) sees itself alone: its output is its value */
    printf("output %.4f, value %.4f, gradient of the last query %.4f\n", (double)data[3][25], (double)data[2][25], (double)data[4][55]);
    for (int i = 0; i < 8; i++) attn_tensor_free(t[i]);
    attn_tape_free(tape);
    attn_mask_free(causal);
    attn_layout_free(layout);
    attn_context_free(ctx);
    return 0;
}

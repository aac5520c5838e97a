/* An encoder-decoder learns to turn a row of digits round: 04_reverse [STEPS] */
#include <attn/attn.h>
#include <stdio.h>
#include <stdlib.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)
enum { N = 4, BATCH = 16, BEGIN = 10, VOCABULARY = 11 };

int main(int argc, char **argv)
{
    int32_t source[BATCH * N], target[BATCH * N], labels[BATCH * N]; /* target: BEGIN and all labels but the last */
    const int64_t steps = argc > 1 ? atoll(argv[1]) : 30, rows = BATCH * N;
    int64_t lengths[BATCH];
    attn_context *ctx = NULL;
    TRY(attn_context_create(NULL, &ctx));
    attn_transformer_options o;
    attn_transformer_options_init(&o, sizeof o);
    o.encoder_layers = o.decoder_layers = 1;
    o.width = 32;
    o.heads = 4;
    o.source_vocabulary = VOCABULARY;
    attn_transformer *model = NULL;
    attn_trainer *trainer = NULL;
    TRY(attn_transformer_create(ctx, &o, &model));
    TRY(attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
    attn_tensor *s = NULL, *t = NULL, *l = NULL;
    TRY(attn_tensor_wrap(ctx, ATTN_INT32, 1, &rows, NULL, source, &s));
    TRY(attn_tensor_wrap(ctx, ATTN_INT32, 1, &rows, NULL, target, &t));
    TRY(attn_tensor_wrap(ctx, ATTN_INT32, 1, &rows, NULL, labels, &l));
    attn_layout *layout = NULL;
    for (int i = 0; i < BATCH; i++) lengths[i] = N;
    TRY(attn_layout_create(ctx, BATCH, &layout));
    TRY(attn_layout_set_lengths(ctx, layout, BATCH, lengths, 0));
    attn_batch batch = {sizeof batch, s, t, l, layout, layout};
    attn_trainer_report report;
    attn_trainer_report_init(&report, sizeof report);
    while (report.step < steps) {
        for (int i = 0; i < rows; i++) source[i] = rand() % 10;
        for (int i = 0; i < rows; i++) labels[i] = source[i / N * N + N - 1 - i % N];
        for (int i = 0; i < rows; i++) target[i] = i % N == 0 ? BEGIN : labels[i - 1];
        TRY(attn_trainer_step(ctx, trainer, &batch, &report));
    }
    printf("loss after %lld steps: %.3f\n", (long long)report.step, report.loss);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    attn_layout_free(layout);
    for (int i = 0; i < 3; i++) attn_tensor_free(i == 0 ? s : i == 1 ? t : l);
    attn_context_free(ctx);
    return 0;
}

/* Trains a small decoder on a file's bytes, then lets it write: 02_train [FILE [STEPS]]. Without a file it learns a line by heart. */
#include <attn/attn.h>
#include <stdio.h>
#include <stdlib.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)

int main(int argc, char **argv)
{
    static const char line[] = "the quick brown fox jumps over the lazy dog\n";
    static int32_t tokens[1 << 20];
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    int64_t count = 0, steps = argc > 2 ? atoll(argv[2]) : 40;
    for (int c; file != NULL && count < 1 << 20 && (c = getc(file)) != EOF;) tokens[count++] = c;
    while (file == NULL && count < 4400) tokens[count] = line[count % 44], count++;
    if (file != NULL) fclose(file);
    attn_context *ctx = NULL;
    TRY(attn_context_create(NULL, &ctx));
    attn_transformer_options shape; /* a preset, made smaller */
    TRY(attn_transformer_preset(ctx, "gpt-char", &shape, sizeof shape));
    shape.target_vocabulary = 256;
    shape.decoder_layers = 2;
    attn_transformer *model = NULL;
    TRY(attn_transformer_create(ctx, &shape, &model));
    attn_dataset_options windows;
    attn_dataset_options_init(&windows, sizeof windows);
    windows.context = shape.context;
    windows.batch = 8;
    attn_dataset *data = NULL;
    TRY(attn_dataset_tokens(ctx, tokens, count, &windows, &data));
    attn_optimizer_options adam;
    attn_optimizer_options_init(&adam, sizeof adam);
    adam.clip = 1;
    attn_trainer *trainer = NULL;
    TRY(attn_trainer_create(ctx, model, data, &adam, NULL, NULL, &trainer));
    attn_trainer_report report;
    attn_trainer_report_init(&report, sizeof report);
    while (report.step < steps) TRY(attn_trainer_step(ctx, trainer, NULL, &report));
    printf("loss after %lld steps: %.3f\n", (long long)report.step, report.loss);
    attn_generator *generator = NULL;
    TRY(attn_generator_create(ctx, model, NULL, &generator));
    int32_t next = '\n', finished = 0;
    TRY(attn_generator_prompt_tokens(ctx, generator, 1, &next));
    for (int64_t i = 1; i < shape.context && !finished; i++) {
        TRY(attn_generator_step(ctx, generator, 1, &next, &finished));
        putchar(next);
    }
    attn_generator_free(generator);
    attn_trainer_free(trainer);
    attn_dataset_free(data);
    attn_transformer_free(model);
    attn_context_free(ctx);
    return 0;
}

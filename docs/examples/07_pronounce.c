/* Pronounces a word with a model of "attn train --task seq2seq": ./07_pronounce say/model.safetensors hello
   cc 07_pronounce.c $(pkg-config --cflags --libs libattn) */
#include <attn/attn.h>
#include <stdio.h>
#include <string.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)
enum { MOST = 256 };

static int vocabulary(attn_context *ctx, const attn_transformer *model, const char *key, attn_vocabulary **out)
{
    const char *text = attn_transformer_metadata(model, key);
    if (text == NULL) return fprintf(stderr, "the model has no %s\n", key), 1;
    TRY(attn_vocabulary_from_text(ctx, text, (int64_t)strlen(text), out));
    return 0;
}

int main(int argc, char **argv)
{
    attn_context *ctx = NULL;
    attn_transformer *model = NULL;
    attn_vocabulary *letters = NULL, *phones = NULL;
    attn_generator *g = NULL;
    attn_tensor *source = NULL, *target = NULL;
    int32_t word[MOST], said[MOST], newest, finished = 0;
    int64_t length = 0, count = 0, bytes = 0, one = 1;
    char text[8 * MOST];
    if (argc != 3) return printf("%s MODEL WORD\n", argv[0]), 0;
    TRY(attn_context_create(NULL, &ctx));
    TRY(attn_transformer_load(ctx, argv[1], NULL, &model));
    if (vocabulary(ctx, model, "program.source_vocabulary", &letters) || vocabulary(ctx, model, "program.target_vocabulary", &phones))
        return 1;
    TRY(attn_vocabulary_encode(ctx, letters, argv[2], (int64_t)strlen(argv[2]), MOST - 1, word, &length));
    /* past the last letter stands the end of a word, past the last phone what begins and ends a pronunciation */
    word[length++] = (int32_t)attn_vocabulary_size(letters);
    const int32_t stop = (int32_t)attn_vocabulary_size(phones);
    attn_generator_options o;
    TRY(attn_generator_options_init(&o, sizeof o));
    o.beam = 5;
    o.capacity = MOST;
    o.stop_count = 1;
    o.stops = &stop;
    TRY(attn_generator_create(ctx, model, &o, &g));
    TRY(attn_tensor_wrap(ctx, ATTN_INT32, 1, &length, NULL, word, &source));
    TRY(attn_tensor_wrap(ctx, ATTN_INT32, 1, &one, NULL, (void *)&stop, &target));
    const attn_batch batch = {.struct_size = sizeof batch, .source = source, .target = target};
    TRY(attn_generator_prompt(ctx, g, &batch));
    for (int i = 1; i < MOST && !finished; i++) TRY(attn_generator_step(ctx, g, 1, &newest, &finished));
    TRY(attn_generator_result(ctx, g, 0, 0, MOST, said, &count, NULL));
    TRY(attn_vocabulary_decode(ctx, phones, said, count, sizeof text, text, &bytes));
    return printf("%.*s\n", (int)bytes, text), 0; /* the system frees the rest */
}

#include "model_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "files.h"
#include "message.h"

int open_context(int64_t threads, uint64_t seed, attn_context **out)
{
    attn_context_options o;
    attn_context_options_init(&o, sizeof o);
    o.threads = (int32_t)threads;
    o.seed = seed;
    attn_status status = attn_context_create(&o, out);
    return status == ATTN_OK ? 0 : fail(exit_of(status), "the library cannot start: %s", attn_status_name(status));
}

/* DIR -> DIR/model.safetensors; a file stands for itself */
static int find_model(const char *place, char path[PATH_ROOM])
{
    struct stat about;
    if (*place == 0) return fail(EXIT_INPUT, "\"\": no model has an empty name");
    if (stat(place, &about) != 0) return fail(exit_of_error(errno), "%s: cannot be opened: %s", place, strerror(errno));
    if (!S_ISDIR(about.st_mode)) {
        snprintf(path, PATH_ROOM, "%s", place);
        return 0;
    }
    int status = path_in(place, MODEL_FILE, path);
    int exists = status == 0 ? file_exists(path) : 0;
    if (exists < 0) return EXIT_MACHINE;
    if (status == 0 && !exists) status = fail(EXIT_INPUT, "%s: holds no " MODEL_FILE ", so it is no model of \"attn train\"", place);
    return status;
}

int load_model(attn_context *ctx, const char *place, attn_transformer **out)
{
    char path[PATH_ROOM];
    int failed = find_model(place, path);
    if (failed) return failed;
    attn_status status = attn_transformer_load(ctx, path, NULL, out);
    return status == ATTN_OK ? 0 : fail_call(ctx, status, NULL);
}

int holds_pairs(const char *place, int *out)
{
    char path[PATH_ROOM];
    int64_t bytes = 0;
    attn_context *ctx = NULL;
    int status = find_model(place, path);
    if (status == 0) status = open_context(1, 0, &ctx);
    attn_status found = status == 0 ? attn_file_metadata(ctx, path, SOURCE_VOCABULARY_KEY, 0, NULL, &bytes) : ATTN_ERROR_END_OF_DATA;
    *out = found == ATTN_ERROR_FULL;
    if (found != ATTN_ERROR_FULL && found != ATTN_ERROR_END_OF_DATA) status = fail_call(ctx, found, NULL);
    attn_context_free(ctx);
    return status;
}

int load_vocabulary(attn_context *ctx, const char *place, const attn_transformer *model, attn_vocabulary **out)
{
    const char *text = attn_transformer_metadata(model, VOCABULARY_KEY);
    if (text == NULL) return fail(EXIT_INPUT, "%s: the model has no vocabulary, so text cannot be turned into its tokens", place);
    attn_status status = attn_vocabulary_from_text(ctx, text, (int64_t)strlen(text), out);
    if (status != ATTN_OK) return fail_call(ctx, status, place);
    attn_transformer_options o;
    status = attn_transformer_options_init(&o, sizeof o);
    if (status == ATTN_OK) status = attn_transformer_get_options(ctx, model, &o);
    if (status != ATTN_OK) return fail_call(ctx, status, place);
    if (attn_vocabulary_size(*out) != o.target_vocabulary)
        return fail(EXIT_INPUT, "%s: its vocabulary has %lld tokens and its model %lld", place, (long long)attn_vocabulary_size(*out),
                    (long long)o.target_vocabulary);
    return check_decoder(place, &o);
}

int with_model(int64_t threads, const char *place, model_reader *read, const void *settings)
{
    attn_context *ctx = NULL;
    attn_transformer *model = NULL;
    attn_vocabulary *vocabulary = NULL;
    int status = open_context(threads, 0, &ctx);
    if (status == 0) status = load_model(ctx, place, &model);
    if (status == 0) status = load_vocabulary(ctx, place, model, &vocabulary);
    if (status == 0) status = read(ctx, settings, model, vocabulary);
    attn_vocabulary_free(vocabulary);
    attn_transformer_free(model);
    attn_context_free(ctx);
    return status;
}

int read_metadata(attn_context *ctx, const char *path, const char *key, char **out)
{
    int64_t bytes = 0;
    attn_status status = attn_file_metadata(ctx, path, key, 0, NULL, &bytes);
    if (status == ATTN_ERROR_FULL) {
        *out = malloc((size_t)bytes);
        if (*out == NULL) return fail(EXIT_MACHINE, "%s: not enough memory to read it", path);
        status = attn_file_metadata(ctx, path, key, bytes, *out, &bytes);
    }
    return status == ATTN_OK ? 0 : fail_call(ctx, status, NULL);
}

int check_decoder(const char *place, const attn_transformer_options *options)
{
    if (options->encoder_layers == 0 && options->decoder_layers > 0 && options->output_head) return 0;
    return fail(EXIT_INPUT, "%s: has %s, expected a decoder alone that predicts the next token", place,
                options->decoder_layers == 0  ? "no decoder"
                : options->encoder_layers > 0 ? "an encoder"
                                              : "no output head");
}

#ifndef ATTN_CLI_MODEL_FILE_H
#define ATTN_CLI_MODEL_FILE_H
#include <attn/attn.h>

/* Names of files in a model's folder, and keys of the metadata that this program adds to them. */
#define MODEL_FILE "model.safetensors"
#define CHECKPOINT_FILE "checkpoint.safetensors"
#define LOG_FILE "log.jsonl"
#define CHART_FILE "loss.svg"
#define ERRORS_FILE "error.svg"
#define VOCABULARY_KEY "program.vocabulary"
#define SOURCE_VOCABULARY_KEY "program.source_vocabulary"
#define TARGET_VOCABULARY_KEY "program.target_vocabulary"
#define SETTINGS_KEY "program.settings"

/* A context with so many threads (ATTN_THREADS_ALL) and a seed. 0, or the exit status after one line. */
int open_context(int64_t threads, uint64_t seed, attn_context **out);

/* The model in a folder (or in a file that is named itself). 0, or the exit status after one line. */
int load_model(attn_context *ctx, const char *place, attn_transformer **out);

/* The vocabulary stored with it. */
int load_vocabulary(attn_context *ctx, const char *place, const attn_transformer *model, attn_vocabulary **out);

/* Both of them in a context of so many threads, given to a function that gets the settings too. Its exit status, or that of what failed before. */
typedef int model_reader(attn_context *ctx, const void *settings, const attn_transformer *model, const attn_vocabulary *vocabulary);
int with_model(int64_t threads, const char *place, model_reader *read, const void *settings);

/* Metadata of a file, to be freed by the caller. */
int read_metadata(attn_context *ctx, const char *path, const char *key, char **out);

/* Whether it is a model of pairs, with a vocabulary for each side. */
int holds_pairs(const char *place, int *out);

/* A decoder over tokens, as all commands but info need it. */
int check_decoder(const char *place, const attn_transformer_options *options);
#endif

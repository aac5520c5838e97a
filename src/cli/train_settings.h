#ifndef ATTN_CLI_TRAIN_SETTINGS_H
#define ATTN_CLI_TRAIN_SETTINGS_H
#include <attn/attn.h>
#include <jansson.h>
#include "options.h"

enum { TASK_LM = 0, TASK_SEQ2SEQ = 1 };
enum { TOKENS_CHARACTERS = 0, TOKENS_BYTES = 1, TOKENS_WORDS = 2 };
enum { CHOOSE_ERROR = 0, CHOOSE_LOSS = 1, CHOOSE_LAST = 2 }; /* which model of a run is kept */
enum { BY_ITSELF = -1 };                                     /* a number that follows from others */

/* What "attn train" is told. Flags of the model count only when they are given: the rest comes from the preset. */
typedef struct train_settings {
    const char *data, *valid, *out, *preset, *initialisation;
    int32_t model, cell, score, one_way; /* recurrent models */
    int32_t form;
    int64_t features, projected;
    int32_t task, tokens, source, target, activation, norm_placement, positions, tie, no_bias, optimizer, schedule, choose, resume,
        overwrite;
    int64_t layers, heads, width, feed_forward, encoder_layers, decoder_width, decoder_heads, decoder_feed_forward, context, threshold;
    int64_t batch, batch_tokens, bucket, steps, decay_steps, warmup, accumulate, eval_every, average, patience, threads;
    double dropout, dropout_attention, dropout_activation, label_smoothing, norm_epsilon, rate, final_rate, beta1, beta2, epsilon,
        weight_decay, l2, clip;
    uint64_t seed;
    parsed from;    /* which flags count */
    json_t *stored; /* where texts of a resumed run live */
} train_settings;

extern const flag_set train_flags;

/* Reads the command line; with --resume, the rest from the checkpoint in the folder. Everything that follows from other settings has
   its number afterwards, eval_every apart. 0, or the exit status after one line. */
int read_settings(attn_context *ctx, int argc, char **argv, train_settings *out);

/* Frees what the settings hold. */
void free_settings(train_settings *s);

/* The settings that decide a run's result, as JSON, the same for the same run however often it was interrupted. checkpoint 1: also where
   the text is. NULL when memory is short; the caller frees the text. */
char *settings_text(const train_settings *s, int checkpoint);

/* The model these settings mean, for vocabularies of so many tokens and, when it is not given, a context of so many (0: the preset's).
   0, or the exit status after one line. */
int model_of_settings(attn_context *ctx, const train_settings *s, int64_t source_vocabulary, int64_t target_vocabulary, int64_t context,
                      attn_transformer_options *out);

/* The options of a preset, whose name is checked. */
int read_preset(attn_context *ctx, const char *name, attn_transformer_options *out);

void optimizer_of_settings(const train_settings *s, attn_optimizer_options *out);
void schedule_of_settings(const train_settings *s, int64_t width, attn_schedule_options *out);
#endif

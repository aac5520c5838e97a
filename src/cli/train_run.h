#ifndef ATTN_CLI_TRAIN_RUN_H
#define ATTN_CLI_TRAIN_RUN_H
#include "chart.h"
#include "run_log.h"
#include "text.h"
#include "train_settings.h"

/* One run of "attn train" and everything it holds. */
typedef struct train_run {
    train_settings settings;
    attn_context *ctx;
    attn_vocabulary *vocabulary;
    char *vocabulary_text;        /* as it is stored */
    attn_dataset *data, *windows; /* for training, for validation */
    attn_transformer *model;
    attn_trainer *trainer;
    run_log log;
    int64_t tokens, trained_tokens, parameters, context; /* of the text; of its first part; numbers; tokens of a window */
    int32_t threads;
    int save_failed; /* the last attempt to save; a line has said so */
    char *chart_title, *chart_subtitle;
} train_run;

/* Text, vocabulary, data sets, model and trainer; restored with --resume. Nothing is written yet. 0, or the exit status after one line. */
int train_open(train_run *run);

/* The folder and the log; what was there is removed or cut back to the step. 0, or the exit status after one line. */
int train_open_folder(train_run *run);

/* Says in a few lines what will be trained on what. */
void train_introduce(const train_run *run);

/* Checkpoint, model and chart. A failure prints one line, and nothing while it lasts; save_failed tells. */
void train_save(train_run *run);

/* The chart alone, and one line of the log. */
void train_report(train_run *run, const log_entry *entry);

void train_close(train_run *run);
#endif

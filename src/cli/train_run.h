#ifndef ATTN_CLI_TRAIN_RUN_H
#define ATTN_CLI_TRAIN_RUN_H
#include "chart.h"
#include "pair_tokens.h"
#include "run_log.h"
#include "text.h"
#include "train_settings.h"

typedef struct train_run train_run;

/* What an evaluation found. NAN: not measured. */
typedef struct evaluation {
    double loss, word_error, token_error;
} evaluation;

/* What differs between tasks. */
typedef struct train_task {
    int (*read)(train_run *run);      /* files and vocabularies. 0, or the exit status after one line */
    int (*open_data)(train_run *run); /* data sets, once there is a model; fills rows and longest */
    int (*evaluate)(train_run *run, const attn_transformer *model, evaluation *out); /* EXIT_INTERRUPTED without a line */
    void (*introduce)(const train_run *run);                                         /* the line about the data */
    void (*conclude)(const train_run *run, const char *);                            /* the line about the result, after so much time */
    const char *unit;                                                                /* of a batch */
} train_task;
extern const train_task text_task, pair_task;

/* One run of "attn train" and everything it holds. */
struct train_run {
    train_settings settings;
    const train_task *task;
    attn_context *ctx;
    text from; /* lm: until it is encoded */
    attn_vocabulary *vocabulary;
    char *vocabulary_text; /* as it is stored */
    pair_text pairs, valid_pairs;
    pair_vocabularies vocabularies;
    pair_ids source, target, valid_source, valid_target;
    attn_dataset *data, *windows; /* for training, for validation */
    attn_transformer *model, *kept;
    attn_trainer *trainer;
    run_log log;
    int64_t tokens, trained_tokens, parameters, context; /* of all data; of what trains; numbers; tokens of a window, or of a side */
    int64_t source_vocabulary, target_vocabulary;        /* of the model */
    int64_t rows, longest;                               /* of the largest batch */
    double step_tokens, evaluation_tokens;               /* what a step and an evaluation cost, in tokens of training */
    int32_t threads;
    int save_failed; /* the last attempt to save; a line has said so */
    char *chart_title, *chart_subtitle;
};

/* Text, vocabulary, data sets, model and trainer; restored with --resume. Nothing is written yet. 0, or the exit status after one line. */
int train_open(train_run *run);

/* The folder and the log; what was there is removed or cut back to the step. 0, or the exit status after one line. */
int train_open_folder(train_run *run);

/* Says in a few lines what will be trained on what. */
void train_introduce(const train_run *run);

/* Evaluates what would be kept: the model, or the mean of the last ones (--average), whose files it looks after. */
int train_evaluate(train_run *run, evaluation *out);

/* Removes the models of evaluations after a step: of a run that is replaced, or goes on from there. */
void train_drop_snapshots(const train_run *run, int64_t step);

/* The best evaluation in the log by --choose (the first of equals), and how many there were after it. */
const log_entry *train_best(const train_run *run, int64_t *since); /* NULL: none yet */

/* Checkpoint, model and chart. A failure prints one line, and nothing while it lasts; save_failed tells. */
void train_save(train_run *run);

/* The chart alone, and one line of the log. */
void train_report(train_run *run, const log_entry *entry);

void train_close(train_run *run);
#endif

#ifndef ATTN_TRAINER_H
#define ATTN_TRAINER_H
#include "data.h"
#include "optimizer.h"
#include "transformer.h"
ATTN_BEGIN
/* A model, its optimizer, a schedule and a tape, stepped together. It keeps the model's parameters and the data set alive: both handles may
   be freed first. Used by one thread at a time, with any context; may move between threads. A step and a restore write the parameters:
   nobody else may use the model meanwhile. Since: 0.0.1 */
typedef struct attn_trainer attn_trainer;

/* micro_rows: a batch is run in pieces of whole sequences with at most this many output rows (at least one sequence), which saves memory and
   changes the result by rounding alone. It needs segments in row order; else there is one piece. */
typedef struct attn_trainer_options {
    uint64_t struct_size;
    uint64_t seed;          /* of dropout; 1 */
    double label_smoothing; /* (6.4), in [0, 1]; 0 */
    int64_t micro_rows;     /* 1 or more; -1 (default): in one piece */
    int64_t accumulate;     /* batches of the data set that make one step; 1 */
    int32_t layer_norms;    /* 1: report the gradient norm of each layer; 0 (default) */
    int32_t reserved;       /* 0 */
} attn_trainer_options;

typedef struct attn_trainer_report {
    uint64_t struct_size;
    int64_t step;              /* number of this step, from 1, restored ones included */
    int64_t tokens;            /* labels counted in it */
    double loss;               /* mean over those, smoothing included (6.5); in nats; without the penalty */
    double unsmoothed_loss;    /* mean of -log p(label) (6.3): its exponential is the perplexity */
    double penalty;            /* (6.11), 0 without l2 */
    double rate;               /* the learning rate used */
    double gradient_norm;      /* of the mean loss and the penalty, before clipping */
    int32_t skipped, reserved; /* 1: the norm was not finite; the step counts, the parameters are as they were */
    int64_t layer_count;       /* 0 unless layer_norms: encoder layers, decoder layers, everything else together */
    const double *layer_norms; /* [layer_count]: borrowed until the next step or the trainer's end; without the penalty */
} attn_trainer_report;

/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. From any thread. Since: 0.0.1 */
ATTN_API attn_status attn_trainer_options_init(attn_trainer_options *options, uint64_t size);

/* Makes a trainer for a model with an output head. dataset: where steps take their batches, or NULL when the caller brings each one.
   optimizer, options NULL: the defaults. schedule NULL: the optimizer's rate at every step; else the schedule's rate replaces it. Without
   warm-up, a constant schedule sets it once, and attn_optimizer_set_rate can change it. The caller frees *out, NULL on failure.
   Errors: INVALID_ARGUMENT (an option out of range, no output head), OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_trainer_create(attn_context *ctx, attn_transformer *model, attn_dataset *dataset,
                                         const attn_optimizer_options *optimizer, const attn_schedule_options *schedule,
                                         const attn_trainer_options *options, attn_trainer **out);

/* The trainer's optimizer, to read and set its rate: borrowed, lives with the trainer. NULL for NULL. Since: 0.0.1 */
ATTN_API attn_optimizer *attn_trainer_optimizer(const attn_trainer *trainer);
/* Steps taken, skipped and restored ones included; 0 for NULL. Since: 0.0.1 */
ATTN_API int64_t attn_trainer_steps(const attn_trainer *trainer);
/* NULL is fine; any thread, before or after the model, the data set and the context. Since: 0.0.1 */
ATTN_API void attn_trainer_free(attn_trainer *trainer);

/* Takes the memory of steps beforehand: pieces (see micro_rows) of at most `rows` rows on each side in sequences of at most `longest`, however
   many. A lack of memory then shows here, and steps that are no larger allocate nothing, from the first one on (in several pieces: with
   batches of the trainer's data set). Without it the first steps take what they need and the third one allocates nothing. Masks must be set
   before. attn_transformer_memory says what it comes to. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_trainer_reserve(attn_context *ctx, attn_trainer *trainer, int64_t rows, int64_t longest);

/* Writes struct_size and zeros. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. From any thread. Since: 0.0.1 */
ATTN_API attn_status attn_trainer_report_init(attn_trainer_report *report, uint64_t size);

/* One step: forward, loss (6.5), backward and update, over the given batch, or with NULL over the next `accumulate` batches of the data set.
   The loss is the mean over all labels that count in the step, however it is cut. report: filled on success, or NULL.
   Any error leaves parameters, moments, counters and the data set's place as they were. Errors: INVALID_ARGUMENT (a token or label past the
   vocabulary, no label that counts), SHAPE, DTYPE, BAD_STATE (NULL without a data set), END_OF_DATA (a sequential pass has fewer batches
   left than a step needs), CANCELLED, OUT_OF_MEMORY, MEMORY_CAP. Same bits for any number of threads. Since: 0.0.1 */
ATTN_API attn_status attn_trainer_step(attn_context *ctx, attn_trainer *trainer, const attn_batch *batch, attn_trainer_report *report);

/* Writes ONE file: parameters, model options, moments, counters, rate, the data set's place, and `count` entries of the caller's metadata
   (keys do not start with "attn."). It is a model file too: attn_transformer_load takes it. The optimizer's options, the schedule and masks
   are not in it. The file at path is replaced as a whole or, on any failure, left as it was.
   Errors: INVALID_ARGUMENT (NULL, a reserved or repeated key), IO, UNSUPPORTED (big-endian machine), OUT_OF_MEMORY. Since: 0.0.1 */
ATTN_API attn_status attn_trainer_save(attn_context *ctx, const attn_trainer *trainer, int64_t count, const char *const *keys,
                                       const char *const *values, const char *path);

/* Reads such a file into a trainer that was made in the same way: the run goes on bit for bit. Everything is read and checked first: on any
   failure the trainer is as it was. Errors: IO, BAD_FILE (the file is not trusted), MISMATCH (another model, seed or data set; the text
   names the first difference), OUT_OF_MEMORY, MEMORY_CAP (three times the parameters for a moment). Since: 0.0.1 */
ATTN_API attn_status attn_trainer_restore(attn_context *ctx, attn_trainer *trainer, const char *path);
ATTN_END
#endif

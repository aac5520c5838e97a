#ifndef ATTN_TRAINER_H
#define ATTN_TRAINER_H
#include "data.h"
#include "optimizer.h"
#include "transformer.h"
ATTN_BEGIN
typedef struct attn_trainer attn_trainer;
typedef struct attn_trainer_options {
    uint64_t struct_size;
    uint64_t seed;
    double label_smoothing;
    int64_t micro_rows;                 /* split a step's rows to pieces of at most this; -1: no split */
    int64_t accumulate;                 /* batches of the dataset that make one step; 1 */
    int32_t layer_norms, reserved;      /* 1: report gradient norms of layers */
} attn_trainer_options;
typedef struct attn_trainer_report {
    uint64_t struct_size;
    int64_t step, tokens;
    double loss, unsmoothed_loss, penalty, rate, gradient_norm;
    int32_t skipped, reserved;
    int64_t layer_count;
    const double *layer_norms;          /* borrowed until the next step */
} attn_trainer_report;
ATTN_API attn_status attn_trainer_options_init(attn_trainer_options *options, uint64_t size);
ATTN_API attn_status attn_trainer_create(attn_context *ctx, attn_transformer *model, attn_dataset *dataset, const attn_optimizer_options *optimizer,
    const attn_schedule_options *schedule, const attn_trainer_options *options, attn_trainer **out);
ATTN_API attn_optimizer *attn_trainer_optimizer(const attn_trainer *trainer); /* borrowed: the rate can be read and set */
ATTN_API int64_t attn_trainer_steps(const attn_trainer *trainer);             /* steps taken, restored ones included */
ATTN_API void attn_trainer_free(attn_trainer *trainer);
ATTN_API attn_status attn_trainer_reserve(attn_context *ctx, attn_trainer *trainer, int64_t rows, int64_t longest);
ATTN_API attn_status attn_trainer_report_init(attn_trainer_report *report, uint64_t size);
ATTN_API attn_status attn_trainer_step(attn_context *ctx, attn_trainer *trainer, const attn_batch *batch, attn_trainer_report *report); /* NULL: the dataset's next */
/* ONE file: weights, options, moments, counters, data cursor, and the caller's own metadata; attn_file_metadata reads that before a trainer is made */
ATTN_API attn_status attn_trainer_save(attn_context *ctx, const attn_trainer *trainer, int64_t count, const char *const *keys,
    const char *const *values, const char *path);
ATTN_API attn_status attn_trainer_restore(attn_context *ctx, attn_trainer *trainer, const char *path);
ATTN_END
#endif

#ifndef ATTN_TRAINING_TRAINER_H
#define ATTN_TRAINING_TRAINER_H
#include <attn/trainer.h>
#include "../data/dataset.h"
#include "../models/transformer.h"
#include "optimizer.h"
#include "schedule.h"

struct attn_trainer {
    uint64_t magic;
    attn__memory *memory;
    attn_parameters *parameters; /* counted; the model's plan lives with it */
    attn_dataset *dataset;       /* counted; NULL: batches are the caller's */
    attn_optimizer *optimizer;
    attn_gradients *gradients;
    attn_tape *tape;
    attn_trainer_options options;
    attn_schedule_options schedule;
    int64_t steps; /* taken, skipped ones included */
    int64_t layer_count;
    double *layer_norms; /* [layer_count]: encoder layers, decoder layers, everything else */
};
static inline const attn__transformer_plan *attn__trainer_plan(const attn_trainer *trainer)
{
    return trainer->parameters->plan;
}
#endif

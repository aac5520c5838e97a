#ifndef ATTN_TRAINING_OPTIMIZER_H
#define ATTN_TRAINING_OPTIMIZER_H
#include <attn/optimizer.h>
#include "../kernels/kernels.h"
#include "../tensor/parameters.h"

struct attn_optimizer {
    uint64_t magic;
    attn__memory *memory;
    attn_parameters *parameters; /* counted */
    attn_optimizer_options options;
    void *first, *second; /* moments, flat as the parameters */
    double rate;
    int64_t step; /* updates made */
};

/* argument: what the caller's options are called */
attn_status attn__optimizer_make(attn_context *ctx, attn_parameters *parameters, const char *argument,
                                 const attn_optimizer_options *options, attn_optimizer **out);
/* Everything that can fail or be cancelled comes first; then the update runs to its end. */
attn_status attn__optimizer_update(attn_context *ctx, attn_optimizer *optimizer, attn_gradients *gradients, double divisor,
                                   attn_optimizer_report *report);
/* norm of parameters first .. first + count's gradients, divided by divisor; frozen ones do not count */
attn_status attn__optimizer_norm(attn_context *ctx, const attn_optimizer *optimizer, const attn_gradients *gradients, int64_t first,
                                 int64_t count, double divisor, double *out);
#endif

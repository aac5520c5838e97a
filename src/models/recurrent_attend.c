#include <string.h>
#include "recurrent_steps.h"

/* One step of attention, and what somebody who looks into the model wants to know of it: a request is for rows of the batch, a step has one row
   of each sequence that goes on. */
typedef struct watched {
    const attn__attention_observer *whole;
    attn__attention_observer step;
    view weights; /* the row of the request that this step is */
} watched;

/* the step's part of the request */
static attn_status watch(attn_context *ctx, const attn__recurrent_steps *steps, int64_t t, int32_t dtype, watched *w)
{
    const attn__weights_part *part = &w->whole->part;
    const int64_t first = steps->first[t], count = steps->first[t + 1] - first, row = t - part->row;
    w->step = (attn__attention_observer){.module = w->whole->module};
    if (w->whole->entropy != NULL) {
        w->step.entropy = attn__scratch(ctx, count * attn__dtype_bytes(dtype));
        if (w->step.entropy == NULL) return attn__arena_status(ctx->scratch);
    }
    if (w->whole->weights == NULL || row < 0 || row >= w->whole->weights->rows) return ATTN_OK;
    w->weights = attn__view_rows(*w->whole->weights, row, 1);
    for (int64_t i = 0; i < count; i++) {
        if (steps->segment[first + i] != part->pair) continue;
        w->step.part = (attn__weights_part){i, 0, part->head};
        w->step.weights = &w->weights;
    }
    return ATTN_OK;
}

/* entropies of the step's rows to those of the batch */
static void tell(const attn__recurrent_steps *steps, int64_t t, int32_t dtype, const watched *w)
{
    const size_t each = (size_t)attn__dtype_bytes(dtype);
    for (int64_t i = steps->first[t]; w->step.entropy != NULL && i < steps->first[t + 1]; i++)
        memcpy((char *)w->whole->entropy + (size_t)steps->row[i] * each, (char *)w->step.entropy + (size_t)(i - steps->first[t]) * each,
               each);
}

attn_status attn__recurrent_attend(const attn__call *call, const attn__attention_module *module, const attn__attention_inputs *in,
                                   const attn__recurrent_steps *steps, int64_t t, attn__value *context)
{
    attn_context *ctx = call->ctx;
    watched w = {.whole = ctx->observer};
    if (w.whole == NULL) return attn__attention_run(call, module, in, NULL, context);
    attn_status status = watch(ctx, steps, t, context->at.dtype, &w);
    ctx->observer = &w.step;
    if (status == ATTN_OK) status = attn__attention_run(call, module, in, NULL, context);
    ctx->observer = w.whole;
    if (status == ATTN_OK) tell(steps, t, context->at.dtype, &w);
    return status;
}

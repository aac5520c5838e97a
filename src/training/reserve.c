#include "../models/report.h"
#include "trainer.h"

/* memory of the threads: what attention over sequences of at most longest asks for */
static attn_status reserve_workers(attn_context *ctx, const attn_trainer *t, int64_t longest)
{
    const attn__transformer_plan *plan = attn__trainer_plan(t);
    const attn__kernels *kernels;
    attn_status status = attn__kernels_for(ctx, plan->options.dtype, &kernels);
    int64_t size = 1;
    if (plan->has_encoder) size = plan->encoder.layers[0].self.options.head_size;
    if (plan->has_decoder && plan->decoder.layers[0].self.options.head_size > size) size = plan->decoder.layers[0].self.options.head_size;
    return status == ATTN_OK ? attn__worker_scratch_reserve(ctx, kernels->attention_room(longest, size)) : status;
}

attn_status attn_trainer_reserve(attn_context *ctx, attn_trainer *trainer, int64_t rows, int64_t longest)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn__need need;
    status = attn__expect(ctx, "trainer", trainer, ATTN__MAGIC_TRAINER, "attn_trainer");
    if (status == ATTN_OK) status = attn__transformer_need(ctx, &attn__trainer_plan(trainer)->options, 1, rows, longest, &need);
    if (status == ATTN_OK) status = attn__tape_reserve(ctx, trainer->tape, need.values, need.records, need.gradients);
    if (status == ATTN_OK) status = reserve_workers(ctx, trainer, longest);
    if (status == ATTN_OK) {
        status = attn__arena_reserve(ctx->scratch, need.scratch);
        if (status != ATTN_OK) attn__fail_memory(ctx, status, "temporary memory of a step");
    }
    return attn__leave(ctx, status);
}

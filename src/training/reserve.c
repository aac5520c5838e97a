#include "../models/report.h"
#include "trainer.h"

/* segments and places of a whole batch of the data set, of which pieces of `rows` rows are run one at a time */
static attn_status add_batch(attn_context *ctx, const attn_trainer *t, attn__need *need)
{
    int64_t rows = 0, segments = 0, bytes = 0;
    if (t->dataset == NULL) return ATTN_OK;
    attn__dataset_size(t->dataset, &rows, &segments);
    attn__grow(&bytes, rows, 2 * (int64_t)sizeof(int64_t), 1);
    attn__grow(&bytes, segments, (int64_t)sizeof(attn_segment), 1);
    return attn__sum(need->scratch, bytes, &need->scratch) ? attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "temporary memory of a step")
                                                           : ATTN_OK;
}

/* Nothing of an earlier step is needed any more: what the tape and the scratch hold is given back before more is taken. */
static attn_status reserve(attn_context *ctx, attn_trainer *t, int64_t rows, int64_t longest)
{
    attn__need need;
    const attn__mark mark = attn__arena_mark(ctx->scratch);
    attn_status status = attn__training_need(ctx, attn__trainer_plan(t), rows, longest, &need);
    if (status == ATTN_OK) status = add_batch(ctx, t, &need);
    if (status == ATTN_OK) status = attn__tape_reserve(ctx, t->tape, &need.tape);
    if (status == ATTN_OK) status = attn__worker_scratch_reserve(ctx, need.worker);
    attn__arena_rewind(ctx->scratch, mark);
    if (status != ATTN_OK) return status;
    status = attn__arena_reserve(ctx->scratch, need.scratch);
    return status == ATTN_OK ? ATTN_OK : attn__fail_memory(ctx, status, "temporary memory of a step");
}

attn_status attn_trainer_reserve(attn_context *ctx, attn_trainer *trainer, int64_t rows, int64_t longest)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "trainer", trainer, ATTN__MAGIC_TRAINER, "attn_trainer");
    if (status == ATTN_OK) status = reserve(ctx, trainer, rows, longest);
    return attn__leave(ctx, status);
}

/* What data sets of every kind share: the handle, the cursor, the memory of a batch. */
#include "dataset.h"
#include <attn/tensor.h>

attn_status attn__dataset_make(attn_context *ctx, const attn__dataset_kind *kind, attn_dataset **out)
{
    void *memory;
    attn_status status = attn__allocate_zero(ctx->memory, kind->bytes, &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a data set");
    *out = memory;
    (*out)->magic = ATTN__MAGIC_DATASET;
    atomic_init(&(*out)->references, 1);
    (*out)->memory = attn__memory_retain(ctx->memory);
    (*out)->kind = kind;
    return ATTN_OK;
}

attn_dataset *attn__dataset_retain(attn_dataset *dataset)
{
    if (dataset != NULL) atomic_fetch_add(&dataset->references, 1);
    return dataset;
}

void attn_dataset_free(attn_dataset *dataset)
{
    if (!attn__is(dataset, ATTN__MAGIC_DATASET)) return;
    if (atomic_fetch_sub(&dataset->references, 1) > 1) return;
    attn__memory *memory = dataset->memory;
    dataset->magic = 0;
    dataset->kind->clear(dataset);
    attn__deallocate(memory, dataset, dataset->kind->bytes);
    attn__memory_release(memory);
}

attn_status attn__batch_side_make(attn_context *ctx, attn__memory *memory, int64_t rows, int64_t segments, attn__batch_side *out)
{
    void *at = NULL;
    attn_status status = attn__allocate_zero(memory, rows * (int64_t)sizeof *out->tokens, &at);
    out->rows = rows;
    out->tokens = at;
    if (status == ATTN_OK) status = attn__allocate_zero(memory, segments * (int64_t)sizeof *out->at, &at);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a data set");
    out->segments = segments;
    out->at = at;
    status = attn_tensor_wrap(ctx, ATTN_INT32, 1, &rows, NULL, out->tokens, &out->tensor);
    return status == ATTN_OK && segments > 0 ? attn_layout_create(ctx, segments, &out->layout) : status;
}

attn_status attn__batch_side_set(attn_context *ctx, attn__batch_side *side, int64_t rows, int64_t segments)
{
    attn_status status = attn_tensor_rebind(ctx, side->tensor, &rows, NULL, side->tokens);
    return status == ATTN_OK && side->layout != NULL ? attn_layout_set(ctx, side->layout, segments, side->at) : status;
}

void attn__batch_side_free(attn__memory *memory, attn__batch_side *side)
{
    attn_layout_free(side->layout);
    attn_tensor_free(side->tensor);
    attn__deallocate(memory, side->at, side->segments * (int64_t)sizeof *side->at);
    attn__deallocate(memory, side->tokens, side->rows * (int64_t)sizeof *side->tokens);
}

void attn__dataset_size(const attn_dataset *dataset, int64_t *rows, int64_t *segments)
{
    *segments = dataset->segments;
    *rows = dataset->rows;
}

attn_status attn_dataset_next(attn_context *ctx, attn_dataset *dataset, attn_batch *batch)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "dataset", dataset, ATTN__MAGIC_DATASET, "attn_dataset");
    if (status == ATTN_OK) status = dataset->kind->next(ctx, dataset, batch);
    return attn__leave(ctx, status);
}

attn_status attn_dataset_rewind(attn_context *ctx, attn_dataset *dataset)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "dataset", dataset, ATTN__MAGIC_DATASET, "attn_dataset");
    if (status == ATTN_OK) dataset->cursor = dataset->kind->rewound(dataset);
    return attn__leave(ctx, status);
}

int64_t attn__dataset_cursor(const attn_dataset *dataset)
{
    return dataset->cursor;
}

attn_status attn__dataset_seek(attn_context *ctx, attn_dataset *dataset, int64_t cursor)
{
    if (cursor < 0 || cursor > ATTN__MOST_CURSOR)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "cursor: got %lld", (long long)cursor);
    dataset->cursor = cursor;
    return ATTN_OK;
}

uint64_t attn__dataset_fingerprint(const attn_dataset *dataset)
{
    return dataset->fingerprint;
}

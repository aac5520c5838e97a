/* Linear attention, forward. */
#include "linear_attention.h"

/* rows of sums [n, value size + 1] become rows of the output; a sum of 0 below the line gives zeros */
static void finish(const linear_job *job, const float *sums, int64_t row, int64_t rows, int64_t head)
{
    int64_t size = job->wide - 1;
    for (int64_t i = 0; i < rows; i++) {
        const float *sum = sums + i * job->stride;
        float *y = linear_row(&job->a->output, row + i, head), below = sum[size];
        if (job->a->normaliser != NULL) ((float *)job->a->normaliser)[head * job->a->query.rows + row + i] = below;
        if (below == 0) {
            for (int64_t c = 0; c < size; c++) y[c] = 0;
            continue;
        }
#pragma omp simd
        for (int64_t c = 0; c < size; c++) y[c] = sum[c] / below;
    }
}

/* queries of a chunk: what the state before it gives, and what the chunk's own keys give */
static void chunk_rows(linear_job *job, const linear_chunk *c, int64_t head, const linear_space *space)
{
    const attn__linear_arguments *a = job->a;
    const float *query = linear_row(&a->query, c->query, head), *key = linear_row(&a->key, c->key, c->key_head);
    float before = BLAS(linear_before)(job, c->pair, c->key_head, c->key - a->key_segments.at[c->pair].start);
    BLAS(linear_product)
    (job, 0, 0, c->queries, job->wide, job->features, query, a->query.row_stride, space->state, job->stride, 0, space->sums, job->stride);
    for (int64_t i = 0; i < c->queries && job->running != NULL; i++) {
        float factor = linear_weight(before, linear_running(job, c->key_head, c->key + i + c->shift));
        for (int64_t k = 0; k < job->wide; k++) space->sums[i * job->stride + k] *= factor;
    }
    BLAS(linear_product)
    (job, 0, 1, c->queries, c->keys, job->features, query, a->query.row_stride, key, a->key.row_stride, 0, space->cross, LINEAR_CHUNK);
    BLAS(linear_mask)(job, c, space->cross);
    BLAS(linear_masked)
    (job, c, 0, space->cross, space->values, job->stride, job->wide, space->sums, job->stride, space->clean);
    finish(job, space->sums, c->query, c->queries, head);
}

static void causal_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    const linear_block *block = &job->keys.blocks[index / job->a->key.heads];
    int64_t key_head = index % job->a->key.heads, end = block->first + block->count;
    linear_space space = BLAS(linear_space)(job, worker);
    const float *before = linear_slot(job, job->sums, block->slot, key_head);
    for (int64_t i = 0; i < job->slot; i++) space.state[i] = before[i];
    for (int64_t first = block->first; first < end; first += LINEAR_CHUNK) {
        linear_chunk c = BLAS(linear_chunk_at)(job, block, key_head, first);
        BLAS(linear_values)(job, c.key, key_head, c.keys, NULL, space.values);
        for (int64_t h = key_head * job->group; c.queries > 0 && h < (key_head + 1) * job->group; h++) chunk_rows(job, &c, h, &space);
        if (first + LINEAR_CHUNK < end) BLAS(linear_advance)(job, &c, space.values, space.state);
    }
}

/* query rows that see no key */
static void blind_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    int64_t pair = index / job->a->key.heads, key_head = index % job->a->key.heads;
    const attn__linear_arguments *a = job->a;
    view normaliser = {.data = a->normaliser, .width = 1, .row_stride = 1, .head_stride = a->query.rows};
    (void)worker;
    BLAS(linear_blind)(job, pair, key_head, &a->output);
    if (a->normaliser != NULL) BLAS(linear_blind)(job, pair, key_head, &normaliser);
}

static void whole_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    const attn__linear_arguments *a = job->a;
    const linear_block *block = &job->queries.blocks[index / a->query.heads];
    if (a->key_segments.at[block->pair].length == 0) return;
    int64_t head = index % a->query.heads, start = a->query_segments.at[block->pair].start;
    const float *sum = linear_slot(job, job->sums, job->keys.first_slot[block->pair + 1] - 1, head / job->group);
    float *sums = BLAS(linear_space)(job, worker).sums;
    for (int64_t at = 0; at < block->count; at += LINEAR_CHUNK) {
        int64_t row = start + block->first + at, n = least(LINEAR_CHUNK, block->count - at);
        BLAS(linear_product)
        (job, 0, 0, n, job->wide, job->features, linear_row(&a->query, row, head), a->query.row_stride, sum, job->stride, 0, sums,
         job->stride);
        finish(job, sums, row, n, head);
    }
}

attn_status BLAS(linear_attention)(attn_context *ctx, const attn__linear_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    linear_job job;
    attn_status status = BLAS(linear_prepare)(ctx, a, 0, &job);
    if (status == ATTN_OK) status = BLAS(linear_sums)(&job);
    if (status == ATTN_OK) status = attn__run(ctx, a->key_segments.count * a->key.heads, blind_tile, &job);
    if (status == ATTN_OK && a->causal) status = attn__run(ctx, job.keys.count * a->key.heads, causal_tile, &job);
    if (status == ATTN_OK && !a->causal) status = attn__run(ctx, job.queries.count * a->query.heads, whole_tile, &job);
    if (status == ATTN_OK) status = BLAS(linear_keep)(&job);
    attn__arena_rewind(ctx->scratch, mark);
    return BLAS(product_status)(ctx, status, &job.refused);
}

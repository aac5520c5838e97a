/* Linear attention, backward. With D the sum below the line, y the output and G_i = [dy_i, -dy_i . y_i] / D_i, W_j = [v_j, 1]:
       dq_i = sum_{j seen} e^(l_j) (G_i . W_j) k_j = S_i G_i,     dk_j = e^(l_j) R_j W_j,     dv_j = e^(l_j) R_j' k_j,
       R_j = sum_{i that see j} q_i G_i'   [features, value size + 1],
   so R is summed from the last block to the first as S is from the first to the last. D is kept times e^-running_i, so G_i is too large by
   e^running_i: R is kept times e^r, r the smallest running of its rows, and every factor is e to something not over 0. */
#include "linear_attention.h"

/* G of n rows, times e^(to - running_i) where to is given; of row i of the segment's places */
static void load_gradients(const linear_job *job, const linear_chunk *c, int64_t head, const float *to, float *out)
{
    const attn__linear_arguments *a = job->a;
    int64_t size = job->wide - 1;
    for (int64_t i = 0; i < c->queries; i++) {
        const float *dy = linear_row(&a->d_output, c->query + i, head), *y = linear_row(&a->output, c->query + i, head);
        float *g = out + i * job->stride, below = ((const float *)a->normaliser)[head * a->query.rows + c->query + i], dot = 0;
        float factor = below != 0 ? 1 / below : 0;
        if (to != NULL) factor *= linear_weight(*to, linear_running(job, c->key_head, c->key + i + c->shift));
#pragma omp simd reduction(+ : dot)
        for (int64_t k = 0; k < size; k++) dot += dy[k] * y[k];
#pragma omp simd
        for (int64_t k = 0; k < size; k++) g[k] = below != 0 ? factor * dy[k] : 0;
        g[size] = below != 0 ? -factor * dot : 0;
    }
}

/* rows of queries of a pair that is not causal: all share the scale */
static linear_chunk rows_at(const linear_job *job, const linear_block *block, int64_t key_head, int64_t first)
{
    const attn__linear_arguments *a = job->a;
    int64_t queries = least(LINEAR_CHUNK, block->first + block->count - first);
    return (linear_chunk){
        .query = a->query_segments.at[block->pair].start + first, .queries = queries, .key_head = key_head, .pair = block->pair};
}

static linear_chunk chunk_of(const linear_job *job, const linear_block *block, int64_t key_head, int64_t first)
{
    return job->a->causal ? BLAS(linear_chunk_at)(job, block, key_head, first) : rows_at(job, block, key_head, first);
}

static const float *scale_or_null(const linear_job *job, const float *scale)
{
    return job->running != NULL && job->a->causal ? scale : NULL;
}

/* the running scale at the first row of a block or chunk, which R is kept with from there on */
static float scale_at(const linear_job *job, int64_t pair, int64_t key_head, int64_t first)
{
    return linear_running(job, key_head, job->a->key_segments.at[pair].start + first);
}

/* r = beta r + sum over heads of Q' G */
static void add_rows(linear_job *job, const linear_chunk *c, float beta, const float *to, float *gradients, float *r)
{
    const attn__linear_arguments *a = job->a;
    for (int64_t h = c->key_head * job->group; h < (c->key_head + 1) * job->group; h++) {
        load_gradients(job, c, h, scale_or_null(job, to), gradients);
        BLAS(linear_product)
        (job, 1, 0, job->features, job->wide, c->queries, linear_row(&a->query, c->query, h), a->query.row_stride, gradients, job->stride,
         h == c->key_head * job->group ? beta : 1, r, job->stride);
    }
}

static void row_sum_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    const linear_block *block = &job->queries.blocks[index / job->a->key.heads];
    int64_t key_head = index % job->a->key.heads;
    float *gradients = BLAS(linear_space)(job, worker).sums, *r = linear_slot(job, job->back, block->slot, key_head);
    float to = job->a->causal ? scale_at(job, block->pair, key_head, block->first) : 0;
    for (int64_t first = block->first; first < block->first + block->count; first += LINEAR_CHUNK) {
        linear_chunk c = chunk_of(job, block, key_head, first);
        add_rows(job, &c, first > block->first ? 1 : 0, &to, gradients, r);
    }
}

/* each slot: the sum from its block to the end */
static void suffix_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    int64_t pair = index / job->a->key.heads, key_head = index % job->a->key.heads, first = job->queries.first_slot[pair];
    int64_t blocks = job->queries.first_slot[pair + 1] - 1 - first;
    float *next = linear_slot(job, job->back, first + blocks, key_head);
    (void)worker;
    for (int64_t i = 0; i < job->slot; i++) next[i] = 0;
    for (int64_t b = blocks - 2; b >= 0; b--) {
        float *slot = linear_slot(job, job->back, first + b, key_head), factor = 1;
        next = linear_slot(job, job->back, first + b + 1, key_head);
        if (job->a->causal && job->running != NULL)
            factor = linear_weight(scale_at(job, pair, key_head, b * LINEAR_BLOCK), scale_at(job, pair, key_head, (b + 1) * LINEAR_BLOCK));
        for (int64_t f = 0; f < job->features; f++) {
#pragma omp simd
            for (int64_t c = 0; c < job->wide; c++) slot[f * job->stride + c] += factor * next[f * job->stride + c];
        }
    }
}

/* keys of a chunk against rows r of later chunks, kept with scale `to`: dk (+)= e^(l - to) W R', dv (+)= e^(l - to) K R */
static void keys_of_rows(linear_job *job, int64_t row, int64_t keys, int64_t key_head, const float *to, const float *r, int add_key,
                         int add_value, const linear_space *space)
{
    const attn__linear_arguments *a = job->a;
    int64_t size = job->wide - 1;
    if (a->d_key.data != NULL) {
        BLAS(linear_values)(job, row, key_head, keys, job->running != NULL ? to : NULL, space->values);
        BLAS(linear_product)
        (job, 0, 1, keys, job->features, job->wide, space->values, job->stride, r, job->stride, add_key ? 1 : 0,
         linear_row(&a->d_key, row, key_head), a->d_key.row_stride);
    }
    if (a->d_value.data == NULL) return;
    BLAS(linear_product)
    (job, 0, 0, keys, size, job->features, linear_row(&a->key, row, key_head), a->key.row_stride, r, job->stride, 0, space->sums,
     job->stride);
    for (int64_t j = 0; j < keys; j++) {
        float *dv = linear_row(&a->d_value, row + j, key_head), weight = 1;
        const float *sum = space->sums + j * job->stride;
        if (job->running != NULL) weight = linear_weight(linear_scale(job, key_head, row + j), *to);
        for (int64_t k = 0; k < size; k++) dv[k] = weight * sum[k] + (add_value ? dv[k] : 0);
    }
}

/* pairs of a chunk, and dq by the state before it */
static void chunk_back(linear_job *job, const linear_chunk *c, int64_t head, const linear_space *space)
{
    const attn__linear_arguments *a = job->a;
    const float *query = linear_row(&a->query, c->query, head), *key = linear_row(&a->key, c->key, c->key_head);
    load_gradients(job, c, head, NULL, space->sums);
    BLAS(linear_product)
    (job, 0, 1, c->queries, c->keys, job->wide, space->sums, job->stride, space->values, job->stride, 0, space->slopes, LINEAR_CHUNK);
    BLAS(linear_mask)(job, c, space->slopes);
    if (job->want_query) {
        float before = BLAS(linear_before)(job, c->pair, c->key_head, c->key - a->key_segments.at[c->pair].start);
        float *dq = linear_row(&a->d_query, c->query, head);
        load_gradients(job, c, head, scale_or_null(job, &before), space->extra);
        BLAS(linear_product)
        (job, 0, 1, c->queries, job->features, job->wide, space->extra, job->stride, space->state, job->stride, a->add_query ? 1 : 0, dq,
         a->d_query.row_stride);
        BLAS(linear_masked)
        (job, c, 0, space->slopes, key, a->key.row_stride, job->features, dq, a->d_query.row_stride, space->clean);
    }
    if (a->d_key.data != NULL) BLAS(linear_masked)
    (job, c, 1, space->slopes, query, a->query.row_stride, job->features, linear_row(&a->d_key, c->key, c->key_head), a->d_key.row_stride,
     space->clean);
    if (a->d_value.data == NULL) return;
    BLAS(linear_product)
    (job, 0, 1, c->queries, c->keys, job->features, query, a->query.row_stride, key, a->key.row_stride, 0, space->cross, LINEAR_CHUNK);
    BLAS(linear_mask)(job, c, space->cross);
    BLAS(linear_masked)
    (job, c, 1, space->cross, space->sums, job->stride, job->wide - 1, linear_row(&a->d_value, c->key, c->key_head), a->d_value.row_stride,
     space->clean);
}

static void clear_rows(const view *v, int64_t row, int64_t rows, int64_t head)
{
    for (int64_t r = 0; r < rows && v->data != NULL; r++) {
        float *x = linear_row(v, row + r, head);
        for (int64_t c = 0; c < v->width; c++) x[c] = 0;
    }
}

/* no query sees keys and values of such a segment: they may be no numbers, and their gradients are 0 */
static int unseen(const linear_job *job, const linear_block *block)
{
    return job->a->query_segments.at[block->pair].length == 0;
}

static void clear_keys(const linear_job *job, const linear_block *block, int64_t key_head)
{
    const attn__linear_arguments *a = job->a;
    const int64_t row = a->key_segments.at[block->pair].start + block->first;
    if (!a->add_key) clear_rows(&a->d_key, row, block->count, key_head);
    if (!a->add_value) clear_rows(&a->d_value, row, block->count, key_head);
}

/* from the first chunk to the last: pairs within chunks, dq by the states */
static void forward_walk(linear_job *job, const linear_block *block, int64_t key_head, const linear_space *space)
{
    int64_t end = block->first + block->count;
    const float *before = job->want_query ? linear_slot(job, job->sums, block->slot, key_head) : NULL;
    for (int64_t i = 0; before != NULL && i < job->slot; i++) space->state[i] = before[i];
    for (int64_t first = block->first; first < end; first += LINEAR_CHUNK) {
        linear_chunk c = BLAS(linear_chunk_at)(job, block, key_head, first);
        BLAS(linear_values)(job, c.key, key_head, c.keys, NULL, space->values);
        for (int64_t h = key_head * job->group; c.queries > 0 && h < (key_head + 1) * job->group; h++) chunk_back(job, &c, h, space);
        if (before != NULL && first + LINEAR_CHUNK < end) BLAS(linear_advance)(job, &c, space->values, space->state);
    }
}

/* from the last chunk to the first: what later chunks give to keys */
static void backward_walk(linear_job *job, const linear_block *block, int64_t key_head, const linear_space *space)
{
    int64_t length = job->a->key_segments.at[block->pair].length, end = block->first + block->count;
    int64_t last = block->first + (block->count - 1) / LINEAR_CHUNK * LINEAR_CHUNK;
    const float *after = linear_slot(job, job->back, block->slot + 1, key_head);
    float to = end < length ? scale_at(job, block->pair, key_head, end) : scale_at(job, block->pair, key_head, end - 1);
    for (int64_t i = 0; i < job->slot; i++) space->state[i] = after[i];
    for (int64_t first = last;; first -= LINEAR_CHUNK) {
        linear_chunk c = BLAS(linear_chunk_at)(job, block, key_head, first);
        if (first < last || end < length) keys_of_rows(job, c.key, c.keys, key_head, &to, space->state, 1, 1, space);
        if (first == block->first) break;
        float here = scale_at(job, block->pair, key_head, first), factor = job->running != NULL ? linear_weight(here, to) : 1;
        add_rows(job, &c, factor, &here, space->sums, space->state);
        to = here;
    }
}

static void causal_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    const attn__linear_arguments *a = job->a;
    const linear_block *block = &job->keys.blocks[index / a->key.heads];
    int64_t key_head = index % a->key.heads;
    linear_space space = BLAS(linear_space)(job, worker);
    clear_keys(job, block, key_head);
    if (unseen(job, block)) return;
    forward_walk(job, block, key_head, &space);
    if (job->want_key) backward_walk(job, block, key_head, &space);
}

static void blind_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    (void)worker;
    BLAS(linear_blind)(job, index / job->a->key.heads, index % job->a->key.heads, &job->a->d_query);
}

static void whole_query_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    const attn__linear_arguments *a = job->a;
    const linear_block *block = &job->queries.blocks[index / a->query.heads];
    if (a->key_segments.at[block->pair].length == 0) return;
    int64_t head = index % a->query.heads;
    const float *sum = linear_slot(job, job->sums, job->keys.first_slot[block->pair + 1] - 1, head / job->group);
    float *gradients = BLAS(linear_space)(job, worker).sums;
    for (int64_t first = block->first; first < block->first + block->count; first += LINEAR_CHUNK) {
        linear_chunk c = rows_at(job, block, head / job->group, first);
        load_gradients(job, &c, head, NULL, gradients);
        BLAS(linear_product)
        (job, 0, 1, c.queries, job->features, job->wide, gradients, job->stride, sum, job->stride, a->add_query ? 1 : 0,
         linear_row(&a->d_query, c.query, head), a->d_query.row_stride);
    }
}

static void whole_key_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    const attn__linear_arguments *a = job->a;
    const linear_block *block = &job->keys.blocks[index / a->key.heads];
    int64_t key_head = index % a->key.heads, start = a->key_segments.at[block->pair].start;
    linear_space space = BLAS(linear_space)(job, worker);
    const float *r = linear_slot(job, job->back, job->queries.first_slot[block->pair], key_head);
    if (unseen(job, block)) {
        clear_keys(job, block, key_head);
        return;
    }
    for (int64_t at = 0; at < block->count; at += LINEAR_CHUNK) {
        int64_t row = start + block->first + at, keys = least(LINEAR_CHUNK, block->count - at);
        float to = linear_running(job, key_head, row);
        keys_of_rows(job, row, keys, key_head, &to, r, a->add_key, a->add_value, &space);
    }
}

attn_status BLAS(linear_attention_back)(attn_context *ctx, const attn__linear_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    linear_job job;
    int64_t heads = a->key.heads, pairs = a->key_segments.count;
    attn_status status = BLAS(linear_prepare)(ctx, a, 1, &job);
    if (status == ATTN_OK && job.want_query) status = BLAS(linear_sums)(&job);
    if (status == ATTN_OK && job.want_key) status = attn__run(ctx, job.queries.count * heads, row_sum_tile, &job);
    if (status == ATTN_OK && job.want_key) status = attn__run(ctx, pairs * heads, suffix_tile, &job);
    if (status == ATTN_OK && job.want_query && !a->add_query) status = attn__run(ctx, pairs * heads, blind_tile, &job);
    if (status == ATTN_OK && a->causal) {
        status = attn__run(ctx, job.keys.count * heads, causal_tile, &job);
    } else if (status == ATTN_OK) {
        if (job.want_query) status = attn__run(ctx, job.queries.count * a->query.heads, whole_query_tile, &job);
        if (status == ATTN_OK && job.want_key) status = attn__run(ctx, job.keys.count * heads, whole_key_tile, &job);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return BLAS(product_status)(ctx, status, &job.refused);
}

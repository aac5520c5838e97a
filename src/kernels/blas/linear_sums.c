/* What the forward and the backward of linear attention share: cuts, sums over keys, masked products of a chunk. */
#include "linear_attention.h"

static attn_status take(attn_context *ctx, int64_t count, int64_t each, void **out)
{
    int64_t bytes;
    if (attn__multiply(count, each, &bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "sums of linear attention");
    *out = attn__scratch(ctx, bytes);
    return *out != NULL ? ATTN_OK : attn__arena_status(ctx->scratch);
}

static attn_status cut(attn_context *ctx, attn__segments segments, linear_cut *out)
{
    void *blocks, *first_slot;
    int64_t count = 0;
    for (int64_t s = 0; s < segments.count; s++) count += tiles_of(segments.at[s].length, LINEAR_BLOCK);
    attn_status status = take(ctx, count, (int64_t)sizeof(linear_block), &blocks);
    if (status == ATTN_OK) status = take(ctx, segments.count + 1, (int64_t)sizeof(int64_t), &first_slot);
    if (status != ATTN_OK) return status;
    *out = (linear_cut){blocks, 0, first_slot};
    for (int64_t s = 0; s < segments.count; s++) {
        int64_t length = segments.at[s].length;
        out->first_slot[s] = out->count + s;
        for (int64_t first = 0; first < length; first += LINEAR_BLOCK, out->count++)
            out->blocks[out->count] = (linear_block){s, first, least(LINEAR_BLOCK, length - first), out->count + s};
    }
    out->first_slot[segments.count] = out->count + segments.count;
    return ATTN_OK;
}

/* the line of a state that holds its scale and the count of its rows; NULL: there is none */
static float *state_line(const linear_job *job, int64_t pair, int64_t key_head)
{
    if (job->a->state == NULL) return NULL;
    return (float *)job->a->state + ((pair * job->a->key.heads + key_head + 1) * (job->features + 1) - 1) * job->wide;
}

float BLAS(linear_before)(const linear_job *job, int64_t pair, int64_t key_head, int64_t first)
{
    if (job->running == NULL) return 0;
    return first > 0 ? linear_running(job, key_head, job->a->key_segments.at[pair].start + first - 1)
                     : job->start[pair * job->a->key.heads + key_head];
}

static void running_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    int64_t key_head = index % job->a->key.heads, pair = index / job->a->key.heads;
    const attn_segment *keys = &job->a->key_segments.at[pair];
    const float *line = state_line(job, pair, key_head);
    float *running = job->running + key_head * job->a->key.rows, most = line != NULL && line[job->wide - 1] > 0 ? line[0] : -INFINITY;
    (void)worker;
    job->start[index] = most;
    for (int64_t row = keys->start; row < keys->start + keys->length; row++) {
        float scale = linear_scale(job, key_head, row);
        if (!(scale <= most)) most = scale;
        running[row] = most;
    }
    for (int64_t row = keys->start; !job->a->causal && row < keys->start + keys->length; row++) running[row] = most;
}

static int64_t room_of(const linear_job *job)
{
    int64_t widest = job->features > job->stride ? job->features : job->stride;
    return job->slot + LINEAR_CHUNK * (3 * job->stride + 2 * LINEAR_CHUNK + widest);
}

int64_t BLAS(linear_room)(int64_t heads, int64_t size, int64_t features, int64_t value_size)
{
    linear_job job = {.features = features, .wide = value_size + 1};
    job.stride = (job.wide + 15) / 16 * 16;
    job.slot = features * job.stride;
    const int64_t sums = room_of(&job) * (int64_t)sizeof(float), maps = size > 0 ? BLAS(feature_room)(heads, size, features) : 0;
    return sums > maps ? sums : maps;
}

attn_status BLAS(linear_prepare)(attn_context *ctx, const attn__linear_arguments *a, int back, linear_job *job)
{
    void *memory = NULL;
    *job = (linear_job){.ctx = ctx, .a = a, .features = a->query.width, .wide = a->value.width + 1};
    job->group = a->key.heads > 0 ? a->query.heads / a->key.heads : 0;
    job->stride = (job->wide + 15) / 16 * 16;
    job->want_query = a->d_query.data != NULL;
    job->want_key = a->d_key.data != NULL || a->d_value.data != NULL;
    if (attn__multiply(job->features, job->stride, &job->slot) || job->slot > INT64_MAX / 16 - LINEAR_CHUNK * LINEAR_CHUNK)
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "sums of linear attention");
    attn_status status = cut(ctx, a->key_segments, &job->keys);
    job->queries = job->keys;
    if (status == ATTN_OK && !a->causal) status = cut(ctx, a->query_segments, &job->queries);
    if (status != ATTN_OK) return status;
    int64_t pairs = a->key_segments.count, each = job->slot * (int64_t)sizeof(float), slots;
    if (attn__multiply(job->keys.first_slot[pairs], a->key.heads, &slots))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "sums of linear attention");
    if (!back || job->want_query) status = take(ctx, slots, each, &memory);
    job->sums = memory;
    if (status == ATTN_OK && back && job->want_key) {
        status = take(ctx, job->queries.first_slot[pairs] * a->key.heads, each, &memory);
        job->back = memory;
    }
    if (status == ATTN_OK && a->key_scale != NULL) {
        status = take(ctx, a->key.rows * a->key.heads, (int64_t)sizeof(float), &memory);
        job->running = memory;
        if (status == ATTN_OK) status = take(ctx, pairs * a->key.heads, (int64_t)sizeof(float), &memory);
        job->start = memory;
    }
    if (status == ATTN_OK) status = attn__worker_scratch_reserve(ctx, room_of(job) * (int64_t)sizeof(float));
    if (status == ATTN_OK && job->running != NULL) status = attn__run(ctx, pairs * a->key.heads, running_tile, job);
    return status;
}

linear_space BLAS(linear_space)(const linear_job *job, int32_t worker)
{
    linear_space space = {.state = attn__worker_scratch(job->ctx, worker)};
    space.values = space.state + job->slot;
    space.sums = space.values + LINEAR_CHUNK * job->stride;
    space.extra = space.sums + LINEAR_CHUNK * job->stride;
    space.cross = space.extra + LINEAR_CHUNK * job->stride;
    space.slopes = space.cross + LINEAR_CHUNK * LINEAR_CHUNK;
    space.clean = space.slopes + LINEAR_CHUNK * LINEAR_CHUNK;
    return space;
}

void BLAS(linear_product)(linear_job *job, int turned_a, int turned_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (attn__sgemm(turned_a, turned_b, m, n, k, 1, a, lda, b, ldb, beta, c, ldc)) atomic_store(&job->refused, 1);
}

void BLAS(linear_values)(const linear_job *job, int64_t key_row, int64_t key_head, int64_t n, const float *to, float *out)
{
    int64_t size = job->wide - 1;
    for (int64_t j = 0; j < n; j++) {
        const float *value = linear_row(&job->a->value, key_row + j, key_head);
        float *line = out + j * job->stride, weight = to != NULL ? linear_weight(linear_scale(job, key_head, key_row + j), *to) : 1;
#pragma omp simd
        for (int64_t c = 0; c < size; c++) line[c] = weight * value[c];
        line[size] = weight;
    }
}

linear_chunk BLAS(linear_chunk_at)(const linear_job *job, const linear_block *block, int64_t key_head, int64_t first)
{
    const attn_segment *q = &job->a->query_segments.at[block->pair], *k = &job->a->key_segments.at[block->pair];
    int64_t offset = k->length - q->length, keys = least(LINEAR_CHUNK, block->first + block->count - first);
    int64_t query = first > offset ? first - offset : 0, end = first + keys - offset;
    return (linear_chunk){.key = k->start + first,
                          .keys = keys,
                          .query = q->start + query,
                          .queries = end > query ? end - query : 0,
                          .shift = query + offset - first,
                          .key_head = key_head,
                          .pair = block->pair,
                          .offset = offset};
}

void BLAS(linear_mask)(const linear_job *job, const linear_chunk *c, float *w)
{
    for (int64_t i = 0; i < c->queries; i++) {
        float *row = w + i * LINEAR_CHUNK;
        int64_t seen = i + c->shift + 1;
        float most = linear_running(job, c->key_head, c->key + seen - 1);
        for (int64_t j = 0; j < seen && job->running != NULL; j++)
            row[j] *= linear_weight(linear_scale(job, c->key_head, c->key + j), most);
        for (int64_t j = seen; j < c->keys; j++) row[j] = 0;
    }
}

void BLAS(linear_advance)(linear_job *job, const linear_chunk *c, float *values, float *state)
{
    float after = linear_running(job, c->key_head, c->key + c->keys - 1);
    float before = BLAS(linear_before)(job, c->pair, c->key_head, c->key - job->a->key_segments.at[c->pair].start);
    for (int64_t j = 0; j < c->keys && job->running != NULL; j++) {
        float weight = linear_weight(linear_scale(job, c->key_head, c->key + j), after);
        for (int64_t k = 0; k < job->wide; k++) values[j * job->stride + k] *= weight;
    }
    BLAS(linear_product)
    (job, 1, 0, job->features, job->wide, c->keys, linear_row(&job->a->key, c->key, c->key_head), job->a->key.row_stride, values,
     job->stride, job->running != NULL ? linear_weight(before, after) : 1, state, job->stride);
}

/* 0 x is 0 for finite numbers alone */
static int all_finite(const float *x, int64_t rows, int64_t n, int64_t stride)
{
    float sum = 0;
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < n; c++) sum += 0.0f * x[r * stride + c];
    }
    return sum == 0;
}

void BLAS(linear_masked)(linear_job *job, const linear_chunk *c, int turned, const float *w, const float *b, int64_t ldb, int64_t n,
                         float *out, int64_t ldo, float *clean)
{
    int64_t inner = turned ? c->queries : c->keys, outer = turned ? c->keys : c->queries;
    if (all_finite(b, inner, n, ldb)) {
        BLAS(linear_product)(job, turned, 0, outer, n, inner, w, LINEAR_CHUNK, b, ldb, 1, out, ldo);
        return;
    }
    for (int64_t r = 0; r < inner; r++) {
        for (int64_t k = 0; k < n; k++) clean[r * n + k] = isfinite(b[r * ldb + k]) ? b[r * ldb + k] : 0;
    }
    BLAS(linear_product)(job, turned, 0, outer, n, inner, w, LINEAR_CHUNK, clean, n, 1, out, ldo);
    for (int64_t r = 0; r < inner; r++) {
        for (int64_t k = 0; k < n; k++) {
            if (isfinite(b[r * ldb + k])) continue;
            for (int64_t o = 0; o < outer; o++) {
                int64_t i = turned ? r : o, j = turned ? o : r;
                if (j <= i + c->shift) out[o * ldo + k] += w[i * LINEAR_CHUNK + j] * b[r * ldb + k];
            }
        }
    }
}

void BLAS(linear_blind)(const linear_job *job, int64_t pair, int64_t key_head, const view *v)
{
    const attn_segment *q = &job->a->query_segments.at[pair];
    int64_t keys = job->a->key_segments.at[pair].length, blind = job->a->causal ? q->length - keys : keys == 0 ? q->length : 0;
    for (int64_t i = 0; i < blind; i++) {
        for (int64_t h = key_head * job->group; h < (key_head + 1) * job->group; h++) {
            float *row = linear_row(v, q->start + i, h);
            for (int64_t c = 0; c < v->width; c++) row[c] = 0;
        }
    }
}

/* of a causal pair without a state nobody reads the sum of its last block */
static int64_t summed_blocks(const linear_job *job, int64_t pair)
{
    int64_t blocks = job->keys.first_slot[pair + 1] - job->keys.first_slot[pair] - 1;
    return job->a->causal && job->a->state == NULL && blocks > 0 ? blocks - 1 : blocks;
}

static void sum_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    const linear_block *block = &job->keys.blocks[index / job->a->key.heads];
    int64_t key_head = index % job->a->key.heads, start = job->a->key_segments.at[block->pair].start;
    if (block->slot - job->keys.first_slot[block->pair] >= summed_blocks(job, block->pair)) return;
    float *sum = linear_slot(job, job->sums, block->slot + 1, key_head);
    float *values = BLAS(linear_space)(job, worker).values;
    float after = linear_running(job, key_head, start + block->first + block->count - 1);
    for (int64_t at = 0; at < block->count; at += LINEAR_CHUNK) {
        int64_t row = start + block->first + at, n = least(LINEAR_CHUNK, block->count - at);
        BLAS(linear_values)(job, row, key_head, n, job->running != NULL ? &after : NULL, values);
        BLAS(linear_product)
        (job, 1, 0, job->features, job->wide, n, linear_row(&job->a->key, row, key_head), job->a->key.row_stride, values, job->stride,
         at > 0 ? 1 : 0, sum, job->stride);
    }
}

/* lines of a state are dense, those of a slot padded */
static void copy_lines(const linear_job *job, const float *from, int64_t from_stride, float *to, int64_t to_stride)
{
    for (int64_t f = 0; f < job->features; f++) {
        for (int64_t c = 0; c < job->wide; c++) to[f * to_stride + c] = from != NULL ? from[f * from_stride + c] : 0;
    }
}

static void prefix_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    int64_t pair = index / job->a->key.heads, key_head = index % job->a->key.heads, blocks = summed_blocks(job, pair);
    const attn_segment *keys = &job->a->key_segments.at[pair];
    const float *line = state_line(job, pair, key_head), *state = line != NULL ? line - job->features * job->wide : NULL;
    float *slot = linear_slot(job, job->sums, job->keys.first_slot[pair], key_head);
    (void)worker;
    copy_lines(job, state, job->wide, slot, job->stride);
    for (int64_t b = 0; b < blocks; b++) {
        float *next = slot + job->a->key.heads * job->slot;
        int64_t end = least((b + 1) * LINEAR_BLOCK, keys->length);
        float before = BLAS(linear_before)(job, pair, key_head, b * LINEAR_BLOCK);
        float factor = job->running != NULL ? linear_weight(before, linear_running(job, key_head, keys->start + end - 1)) : 1;
        for (int64_t f = 0; f < job->features; f++) {
#pragma omp simd
            for (int64_t c = 0; c < job->wide; c++) next[f * job->stride + c] += factor * slot[f * job->stride + c];
        }
        slot = next;
    }
}

static void keep_tile(void *context, int64_t index, int32_t worker)
{
    linear_job *job = context;
    int64_t pair = index / job->a->key.heads, key_head = index % job->a->key.heads;
    const attn_segment *keys = &job->a->key_segments.at[pair];
    float *line = state_line(job, pair, key_head);
    (void)worker;
    if (keys->length == 0) return;
    copy_lines(job, linear_slot(job, job->sums, job->keys.first_slot[pair + 1] - 1, key_head), job->stride,
               line - job->features * job->wide, job->wide);
    for (int64_t c = 1; c < job->wide - 1; c++) line[c] = 0;
    line[0] = linear_running(job, key_head, keys->start + keys->length - 1);
    line[job->wide - 1] += (float)keys->length;
}

attn_status BLAS(linear_sums)(linear_job *job)
{
    attn_status status = attn__run(job->ctx, job->keys.count * job->a->key.heads, sum_tile, job);
    if (status != ATTN_OK) return status;
    return attn__run(job->ctx, job->a->key_segments.count * job->a->key.heads, prefix_tile, job);
}

attn_status BLAS(linear_keep)(linear_job *job)
{
    if (job->a->state == NULL || atomic_load(&job->refused)) return ATTN_OK;
    return attn__run(job->ctx, job->a->key_segments.count * job->a->key.heads, keep_tile, job);
}

/* Biases of a block of scores, forward: by distance, by relative keys and values, and of a pair. The backward is in attention_bias_back.c. */
#include "attention_bias.h"

static int64_t terms_of(const attn__attention_bias *bias)
{
    return 2 * bias->reach + 1;
}

/* what tables' gradients of one tile and head take */
static int64_t partial_floats(const attention_job *job)
{
    const attn__attention_bias *bias = job->a->bias;
    int64_t floats = bias->d_distance.data != NULL ? bias->distance.rows : 0;
    if (bias->d_relative_keys.data != NULL) floats += terms_of(bias) * job->a->query.width;
    if (bias->d_relative_values.data != NULL) floats += terms_of(bias) * job->a->value.width;
    return floats;
}

/* values of the buckets, head by head: [heads, buckets] */
static attn_status take_buckets(attn_context *ctx, attention_job *job)
{
    const attn__attention_bias *bias = job->a->bias;
    int64_t buckets = bias->distance.rows, heads = job->a->query.heads, limit = bias->furthest;
    job->bucket_of = attn__scratch(ctx, (2 * limit + 1) * (int64_t)sizeof *job->bucket_of);
    job->bucket_values = job->bucket_of == NULL ? NULL : attn__scratch(ctx, heads * buckets * (int64_t)sizeof(float));
    if (job->bucket_values == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t t = -limit; t <= limit; t++) job->bucket_of[t + limit] = (int32_t)attn__bucket(t, buckets, limit, bias->both_sides);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t k = 0; k < buckets; k++) job->bucket_values[h * buckets + k] = row_of(&bias->distance, k)[h];
    return ATTN_OK;
}

attn_status BLAS(attention_bias_prepare)(attn_context *ctx, attention_job *job, int backward)
{
    const attn__attention_bias *bias = job->a->bias;
    if (bias == NULL) return ATTN_OK;
    if (bias->distance_kind == ATTN__DISTANCE_BUCKETS) {
        attn_status status = take_buckets(ctx, job);
        if (status != ATTN_OK) return status;
    }
    int64_t bytes = 0, slots = 0;
    job->partial_floats = backward ? partial_floats(job) : 0;
    if (job->partial_floats == 0) return ATTN_OK;
    if (attn__multiply(job->map.tiles_count, job->a->query.heads, &slots) || attn__multiply(slots, job->partial_floats, &bytes) ||
        attn__multiply(bytes, (int64_t)sizeof(float), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "sums of position biases");
    job->partial = attn__scratch(ctx, bytes);
    if (job->partial == NULL) return attn__arena_status(ctx->scratch);
    memset(job->partial, 0, (size_t)bytes);
    return ATTN_OK;
}

static int has_relative(const attn__attention_bias *bias)
{
    return bias->relative_keys.data != NULL || bias->relative_values.data != NULL;
}

int64_t BLAS(attention_bias_room)(const attention_job *job)
{
    if (job->a->bias == NULL) return 0;
    return job->rows + job->stride + (has_relative(job->a->bias) ? job->rows * terms_of(job->a->bias) : 0);
}

void BLAS(attention_bias_space)(const attention_job *job, float *room, attention_space *space)
{
    space->line = room;
    space->relative = room + job->rows + job->stride;
}

/* bias of the distances of a block: entry e belongs to keys j and queries i with j - i + rows - 1 = e */
static void distance_line(const attention_job *job, const attention_block *b, float *line)
{
    const attn__attention_bias *bias = job->a->bias;
    int64_t n = b->rows + b->keys - 1, first = BLAS(attention_distance)(b, b->rows - 1, 0);
    if (bias->distance_kind == ATTN__DISTANCE_LINEAR) {
        const float *slopes = bias->distance.data;
        float slope = slopes != NULL ? slopes[b->head] : (float)attn__alibi_slope(b->head, job->a->query.heads);
        for (int64_t e = 0; e < n; e++) line[e] = -slope * (float)(first + e < 0 ? -(first + e) : first + e);
        return;
    }
    const float *value = job->bucket_values + b->head * bias->distance.rows;
    for (int64_t e = 0; e < n; e++) line[e] = value[job->bucket_of[attn__clip_distance(first + e, bias->furthest)]];
}

static void add_distance(const attention_job *job, const attention_block *b)
{
    distance_line(job, b, b->line);
    for (int64_t i = 0; i < b->rows; i++) {
        float *s = b->scores + i * job->stride;
        const float *line = b->line + (b->rows - 1 - i);
#pragma omp simd
        for (int64_t j = 0; j < b->keys; j++) s[j] += line[j];
    }
}

/* x[j] += terms[clip(t0 + j)]: a constant, a run, a constant */
static void spread_row(float *x, int64_t n, const float *terms, int64_t t0, int64_t reach)
{
    int64_t low = -reach - t0, high = reach - t0;
    low = low < 0 ? 0 : least(low, n);
    high = high < low ? low : least(high, n);
    for (int64_t j = 0; j < low; j++) x[j] += terms[0];
    const float *run = terms + (t0 + reach);
#pragma omp simd
    for (int64_t j = low; j < high; j++) x[j] += run[j];
    for (int64_t j = high; j < n; j++) x[j] += terms[2 * reach];
}

void BLAS(attention_spread)(const attention_job *job, const attention_block *b, float factor, const float *x, int64_t x_stride,
                            const view *table, float *to)
{
    attention_job *changed = (attention_job *)(uintptr_t)job;
    int64_t terms = terms_of(job->a->bias), width = table->width;
    if (attn__sgemm(0, 1, b->rows, terms, width, factor, x, x_stride, table->data, table->row_stride, 0, b->relative, terms))
        atomic_store(&changed->refused, 1);
    for (int64_t i = 0; i < b->rows; i++)
        spread_row(to + i * job->stride, b->keys, b->relative + i * terms, BLAS(attention_distance)(b, i, 0), job->a->bias->reach);
}

static const float *pair_row(const attention_job *job, const attention_block *b, int64_t i)
{
    const attn__attention_bias *bias = job->a->bias;
    const int64_t *step = bias->pair_stride;
    int64_t segment = bias->pair_extent[0] == 1 ? 0 : b->pair.index, head = bias->pair_extent[1] == 1 ? 0 : b->head;
    return (const float *)bias->pair.data + segment * step[0] + head * step[1] + (b->query + i) * step[2] + b->key * step[3];
}

static void add_pair(const attention_job *job, const attention_block *b)
{
    int64_t step = job->a->bias->pair_stride[3];
    for (int64_t i = 0; i < b->rows; i++) {
        float *s = b->scores + i * job->stride;
        const float *from = pair_row(job, b, i);
        if (step == 1) {
#pragma omp simd
            for (int64_t j = 0; j < b->keys; j++) s[j] += from[j];
        } else {
            for (int64_t j = 0; j < b->keys; j++) s[j] += from[j * step];
        }
    }
}

void BLAS(attention_bias_scores)(attention_job *job, const attention_block *b)
{
    const attn__attention_bias *bias = job->a->bias;
    if (bias->distance_kind != 0) add_distance(job, b);
    if (bias->relative_keys.data != NULL)
        BLAS(attention_spread)(job, b, job->scale, query_of(job, b), job->a->query.row_stride, &bias->relative_keys, b->scores);
    if (bias->pair.data != NULL) add_pair(job, b);
}

void BLAS(attention_gather)(const attention_job *job, const attention_block *b, const float *x)
{
    int64_t reach = job->a->bias->reach, terms = terms_of(job->a->bias);
    for (int64_t i = 0; i < b->rows; i++) {
        const float *from = x + i * job->stride;
        float *to = b->relative + i * terms;
        int64_t t0 = BLAS(attention_distance)(b, i, 0), low = -reach - t0, high = reach + 1 - t0;
        low = low < 0 ? 0 : least(low, b->keys);
        high = high < low ? low : least(high, b->keys);
        for (int64_t c = 0; c < terms; c++) to[c] = 0;
        for (int64_t j = 0; j < low; j++) to[0] += from[j];
        for (int64_t j = low; j < high; j++) to[t0 + reach + j] += from[j];
        for (int64_t j = high; j < b->keys; j++) to[2 * reach] += from[j];
    }
}

void BLAS(attention_bias_output)(attention_job *job, const attention_block *b, float *out)
{
    const view *table = &job->a->bias->relative_values;
    int64_t terms = terms_of(job->a->bias);
    if (table->data == NULL) return;
    BLAS(attention_gather)(job, b, b->scores);
    if (attn__sgemm(0, 0, b->rows, table->width, terms, 1, b->relative, terms, table->data, table->row_stride, 1, out,
                    job->a->output.row_stride))
        atomic_store(&job->refused, 1);
}

#include "attention_additive.h"
#include "turn.h"

attn_status BLAS(attention_additive_prepare)(attn_context *ctx, attention_job *job)
{
    const attn__attention_arguments *a = job->a;
    int64_t bytes = 0;
    if (a->score_vector.data == NULL || a->d_score_vector.data == NULL) return ATTN_OK;
    if (attn__multiply(job->map.tiles_count, a->query.heads, &bytes) || attn__multiply(bytes, a->query.width, &bytes) ||
        attn__multiply(bytes, (int64_t)sizeof(float), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "sums of the score's vector");
    job->vector_partial = attn__scratch(ctx, bytes);
    if (job->vector_partial == NULL) return attn__arena_status(ctx->scratch);
    memset(job->vector_partial, 0, (size_t)bytes);
    return ATTN_OK;
}

/* keys on their side, and the gradient of those */
int64_t BLAS(attention_additive_room)(const attention_job *job)
{
    return job->a->score_vector.data == NULL ? 0 : 2 * job->a->query.width * job->stride;
}

static void turn_keys(const attention_job *job, const attention_block *b)
{
    BLAS(turn)(key_of(job, b), b->keys, job->a->query.width, job->a->key.row_stride, b->turned_keys, job->stride);
}

static void score_row(float *s, int64_t n, int64_t size, int64_t stride, const float *query, const float *keys, const float *vector,
                      float scale)
{
    for (int64_t j = 0; j < n; j++) s[j] = 0;
    for (int64_t c = 0; c < size; c++, keys += stride) {
        float q = query[c], v = scale * vector[c];
#pragma omp simd
        for (int64_t j = 0; j < n; j++) s[j] += v * attn__tanh(q + keys[j]);
    }
}

void BLAS(attention_additive_scores)(const attention_job *job, const attention_block *b)
{
    const attn__attention_arguments *a = job->a;
    const float *query = query_of(job, b), *vector = row_of(&a->score_vector, b->head);
    turn_keys(job, b);
    for (int64_t i = 0; i < b->rows; i++)
        score_row(b->scores + i * job->stride, b->keys, a->query.width, job->stride, query + i * a->query.row_stride, b->turned_keys,
                  vector, job->scale);
}

/* One query and one column of it. A pair without a gradient adds nothing, whatever its key holds. */
static float back_column(const float *g, int64_t n, float q, float v, const float *keys, float *d_keys, float *d_vector)
{
    float d_query = 0, sum = 0;
#pragma omp simd reduction(+ : d_query, sum)
    for (int64_t j = 0; j < n; j++) {
        float t = attn__tanh(q + keys[j]), slope = g[j] == 0 ? 0 : g[j] * (1 - t * t) * v, part = g[j] == 0 ? 0 : g[j] * t;
        d_keys[j] += slope;
        d_query += slope;
        sum += part;
    }
    *d_vector += sum;
    return d_query;
}

void BLAS(attention_additive_back)(const attention_job *job, const attention_block *b, const float *gradients, float *d_query,
                                   float beta_query, float *d_key, float beta_key, int64_t slot)
{
    const attn__attention_arguments *a = job->a;
    int64_t size = a->query.width, stride = job->stride;
    const float *vector = row_of(&a->score_vector, b->head);
    float *d_keys = b->turned_keys + size * stride, nothing = 0;
    float *d_vector = slot >= 0 && job->vector_partial != NULL ? job->vector_partial + slot * size : NULL;
    turn_keys(job, b);
    for (int64_t c = 0; c < size; c++) memset(d_keys + c * stride, 0, (size_t)b->keys * sizeof *d_keys);
    for (int64_t i = 0; i < b->rows; i++) {
        const float *query = query_of(job, b) + i * a->query.row_stride, *g = gradients + i * stride;
        for (int64_t c = 0; c < size; c++) {
            float sum = 0, d = back_column(g, b->keys, query[c], vector[c], b->turned_keys + c * stride, d_keys + c * stride, &sum);
            if (d_vector != NULL) d_vector[c] += job->scale * sum;
            if (d_query == NULL) continue;
            float *to = d_query + i * a->d_query.row_stride + c;
            *to = (beta_query != 0 ? *to : nothing) + job->scale * d;
        }
    }
    for (int64_t j = 0; d_key != NULL && j < b->keys; j++) {
        float *to = d_key + j * a->d_key.row_stride;
        for (int64_t c = 0; c < size; c++) to[c] = (beta_key != 0 ? to[c] : nothing) + job->scale * d_keys[c * stride + j];
    }
}

void BLAS(attention_additive_finish)(const attention_job *job)
{
    const view *d = &job->a->d_score_vector;
    for (int64_t i = 0; job->vector_partial != NULL && i < d->rows * d->width; i++) {
        double sum = 0;
        for (int64_t tile = 0; tile < job->map.tiles_count; tile++) sum += (double)job->vector_partial[tile * d->rows * d->width + i];
        row_of(d, i / d->width)[i % d->width] += (float)sum;
    }
}

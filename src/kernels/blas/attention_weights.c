/* The matrix of weights itself, for inspection: softmax over the keys a row sees, before dropout. */
#include "attention_tile.h"
#include "products.h"

enum { WEIGHT_ROWS = 32 };

typedef struct weights_job {
    attn_context *ctx;
    const attn__attention_arguments *a;
    attn__pair pair;
    view *weights; /* [query rows, heads, keys] */
    int64_t tiles; /* of WEIGHT_ROWS queries, for each head */
    atomic_int refused;
} weights_job;

/* scores of a row in place: those outside become 0, the others sum to 1 */
static void normalise(float *s, int64_t n, float cap)
{
    float most = -INFINITY, sum = 0;
    for (int64_t j = 0; cap > 0 && j < n; j++) s[j] = s[j] == -INFINITY ? s[j] : cap * attn__tanh(s[j] / cap);
    for (int64_t j = 0; j < n; j++) most = s[j] > most ? s[j] : most;
    if (most == -INFINITY) most = 0;
    for (int64_t j = 0; j < n; j++) {
        s[j] = attn__exp(s[j] - most);
        sum += s[j];
    }
    for (int64_t j = 0; sum != 0 && j < n; j++) s[j] /= sum;
}

static void weights_row(const weights_job *job, int64_t head, int64_t i, uint8_t *allowed)
{
    int64_t n = job->pair.key->length, low = 0, high = 0;
    float *s = head_at(job->weights, i, head);
    int listed = attn__mask_row(job->a->mask, &job->pair, head, i, 0, n, &low, &high, allowed);
    for (int64_t j = 0; j < n; j++) {
        if (j < low || j >= high || (listed && !allowed[j])) s[j] = 0;
    }
    for (int64_t j = low; listed && j < high; j++) s[j] = allowed[j] ? s[j] : -INFINITY;
    normalise(s + low, high - low, (float)job->a->soft_cap);
}

static void weights_tile(void *context, int64_t index, int32_t worker)
{
    weights_job *job = context;
    const attn__attention_arguments *a = job->a;
    int64_t head = index / job->tiles, first = index % job->tiles * WEIGHT_ROWS, rows = least(WEIGHT_ROWS, job->pair.query->length - first);
    int64_t key_head = head / (a->query.heads / a->key.heads), n = job->pair.key->length;
    if (attn__sgemm(0, 1, rows, n, a->query.width, (float)a->scale, head_at(&a->query, job->pair.query->start + first, head),
                    a->query.row_stride, head_at(&a->key, job->pair.key->start, key_head), a->key.row_stride, 0,
                    head_at(job->weights, first, head), job->weights->row_stride))
        atomic_store(&job->refused, 1);
    for (int64_t i = first; i < first + rows; i++) weights_row(job, head, i, attn__worker_scratch(job->ctx, worker));
}

attn_status BLAS(attention_weights)(attn_context *ctx, const attn__attention_arguments *a, int64_t pair, view *weights)
{
    weights_job job = {.ctx = ctx, .a = a, .pair = {pair, &a->query_segments.at[pair], &a->key_segments.at[pair]}, .weights = weights};
    job.tiles = tiles_of(job.pair.query->length, WEIGHT_ROWS);
    attn_status status = attn__worker_scratch_reserve(ctx, job.pair.key->length);
    if (status == ATTN_OK) status = attn__run(ctx, job.tiles * a->query.heads, weights_tile, &job);
    return BLAS(product_status)(ctx, status, &job.refused);
}

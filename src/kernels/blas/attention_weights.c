/* The matrix of weights itself, for inspection: softmax over the keys a row sees, before dropout. */
#include "attention_additive.h"
#include "attention_bias.h"
#include "products.h"

enum { WEIGHT_ROWS = 32 };

typedef struct weights_job {
    attn_context *ctx;
    const attn__attention_arguments *a;
    attn__pair pair;
    int64_t row, head; /* of the pair, where the weights begin */
    view *weights;     /* [query rows, heads, keys] */
    int64_t tiles;     /* of WEIGHT_ROWS queries, for each head */
    attention_job job; /* for the biases: its rows are WEIGHT_ROWS, its stride that of the weights */
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

static void weights_row(const weights_job *job, int64_t h, int64_t r, uint8_t *allowed)
{
    int64_t head = job->head + h, i = job->row + r;
    int64_t n = job->pair.key->length, low = 0, high = 0;
    float *s = head_at(job->weights, r, h);
    int listed = attn__mask_row(job->a->mask, &job->pair, head, i, 0, n, &low, &high, allowed);
    for (int64_t j = low; listed && j < high; j++) s[j] = allowed[j] ? s[j] : -INFINITY;
    normalise(s + low, high - low, (float)job->a->soft_cap);
    for (int64_t j = 0; j < n; j++) { /* last: in a row that sees what is no number, too */
        if (j < low || j >= high || (listed && !allowed[j])) s[j] = 0;
    }
}

static void weights_tile(void *context, int64_t index, int32_t worker)
{
    weights_job *job = context;
    const attn__attention_arguments *a = job->a;
    int64_t h = index / job->tiles, first = index % job->tiles * WEIGHT_ROWS, rows = least(WEIGHT_ROWS, job->weights->rows - first);
    int64_t head = job->head + h, query = job->row + first;
    int64_t key_head = head / (a->query.heads / a->key.heads), n = job->pair.key->length;
    float *room = attn__worker_scratch(job->ctx, worker);
    attention_block b = {.pair = job->pair, .head = head, .key_head = key_head, .query = query, .rows = rows, .keys = n};
    attention_space space;
    BLAS(attention_bias_space)(&job->job, room, &space);
    b.scores = head_at(job->weights, first, h);
    b.line = space.line;
    b.relative = space.relative;
    b.turned_keys = room + BLAS(attention_bias_room)(&job->job);
    if (a->score_vector.data != NULL)
        BLAS(attention_additive_scores)(&job->job, &b);
    else if (attn__sgemm(0, 1, rows, n, a->query.width, (float)a->scale, query_of(&job->job, &b), a->query.row_stride,
                         key_of(&job->job, &b), a->key.row_stride, 0, b.scores, job->weights->row_stride))
        atomic_store(&job->job.refused, 1);
    if (a->bias != NULL) BLAS(attention_bias_scores)(&job->job, &b);
    for (int64_t i = 0; i < rows && attn__mask_has_values(a->mask); i++)
        attn__mask_add_values(a->mask, &b.pair, head, query + i, 0, n, b.scores + i * job->job.stride);
    uint8_t *allowed = (uint8_t *)(b.turned_keys + BLAS(attention_additive_room)(&job->job));
    for (int64_t i = first; i < first + rows; i++) weights_row(job, h, i, allowed);
}

attn_status BLAS(attention_weights)(attn_context *ctx, const attn__attention_arguments *a, const attn__weights_part *part, view *weights)
{
    int64_t pair = part->pair;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    weights_job job = {.ctx = ctx, .a = a, .pair = {pair, &a->query_segments.at[pair], &a->key_segments.at[pair]}, .weights = weights};
    job.row = part->row;
    job.head = part->head;
    job.tiles = tiles_of(weights->rows, WEIGHT_ROWS);
    job.job.a = a;
    job.job.rows = WEIGHT_ROWS;
    job.job.stride = weights->row_stride;
    job.job.scale = (float)a->scale;
    attn_status status = BLAS(attention_bias_prepare)(ctx, &job.job, 0);
    int64_t room = (BLAS(attention_bias_room)(&job.job) + BLAS(attention_additive_room)(&job.job)) * (int64_t)sizeof(float);
    if (status == ATTN_OK) status = attn__worker_scratch_reserve(ctx, job.pair.key->length + room);
    if (status == ATTN_OK) status = attn__run(ctx, job.tiles * weights->heads, weights_tile, &job);
    attn__arena_rewind(ctx->scratch, mark);
    return BLAS(product_status)(ctx, status, &job.job.refused);
}

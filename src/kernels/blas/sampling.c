/* A token from each row of logits. Kept tokens are always the first few in the order (largest logit, then lowest index), so a row
   needs no sort: a heap gives up its front until top-k and top-p are met. */
#include "rows.h"

enum { BANDS = 256 };

typedef struct token_job {
    const view *logits;
    double temperature, p;
    int64_t k;
    const double *uniform;
    float *largest; /* [rows]; NaN: a logit that is NaN or plus infinity */
    int32_t *tokens;
    attn_context *ctx;
} token_job;

static int left_out(const token_job *job, int64_t row)
{
    return job->uniform[row] < 0;
}

static void largest_tile(void *context, int64_t row, int32_t worker)
{
    const token_job *job = context;
    const float *x = row_of(job->logits, row);
    int64_t n = job->logits->width;
    int32_t bad = 0;
    (void)worker;
    if (left_out(job, row)) return;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++) bad |= !(x[i] < INFINITY);
    job->largest[row] = bad ? NAN : row_max(x, n);
}

static attn_status check_logits(const token_job *job)
{
    for (int64_t row = 0; row < job->logits->rows; row++) {
        const float *x = row_of(job->logits, row);
        int64_t column = 0;
        if (left_out(job, row) || job->largest[row] > -INFINITY) continue;
        if (job->largest[row] == -INFINITY)
            return attn__fail(job->ctx, ATTN_ERROR_NOT_FINITE, "logits: row %lld allows no token, expected a finite logit", (long long)row);
        while (x[column] < INFINITY) column++;
        return attn__fail(job->ctx, ATTN_ERROR_NOT_FINITE, "logits: got row %lld with %s in column %lld, expected numbers to choose from",
                          (long long)row, x[column] == INFINITY ? "infinity" : "NaN", (long long)column);
    }
    return ATTN_OK;
}

static int before(const float *x, int32_t a, int32_t b)
{
    return x[a] != x[b] ? x[a] > x[b] : a < b;
}

static void sift(const float *x, int32_t *heap, int64_t n, int64_t at)
{
    int32_t moving = heap[at];
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(x, heap[child + 1], heap[child])) child++;
        if (!before(x, heap[child], moving)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

/* weights of tokens behind the last kept one become 0 */
static void cut_behind(const float *x, int32_t last, int64_t n, float *weight)
{
    float least_kept = x[last];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) weight[i] = x[i] > least_kept || (x[i] == least_kept && i <= last) ? weight[i] : 0.0f;
}

/* Tokens fall into bands by how far their logit lies below the largest, 1 / 8 of a unit each, the last takes the rest. Lists those of
   the first bands, enough to hold the first k tokens and to reach a sum of weights. band: [n], on return the list; its length is
   given back. */
static int64_t candidates(const float *weight, int64_t n, int64_t k, double reach, int32_t *band)
{
    int64_t count[BANDS] = {0}, total = 0, listed = 0;
    double sum[BANDS] = {0}, reached = 0;
    int32_t last = 0;
    for (int64_t i = 0; i < n; i++) {
        count[band[i]]++;
        sum[band[i]] += (double)weight[i];
    }
    for (; last < BANDS - 1; last++) {
        total += count[last];
        reached += sum[last];
        if (total >= k || reached >= reach) break;
    }
    if (total < k && last < BANDS - 1) last++; /* sums in another order may fall a rounding short */
    for (int64_t i = 0; i < n; i++)
        if (band[i] <= last) band[listed++] = (int32_t)i;
    return listed;
}

/* Leaves the weights of kept tokens only: top-k first, then the fewest leading ones of those that reach p of their sum. */
static void keep(const token_job *job, const float *x, int64_t n, double total, float *weight, int32_t *band)
{
    int64_t most = job->k > 0 && job->k < n ? job->k : n, taken = 0;
    double sum = 0,
           reach = job->p < 1 && most == n ? job->p * total : (double)INFINITY; /* p is of the sum of the k, known once they are out */
    int32_t *heap = band;
    if (most == n && !(job->p < 1)) return;
    int64_t listed = candidates(weight, n, most, reach, band);
    for (int64_t i = listed / 2 - 1; i >= 0; i--) sift(x, heap, listed, i);
    while (taken < least(most, listed) && sum < reach) {
        int32_t front = heap[0];
        int64_t left = listed - ++taken;
        heap[0] = heap[left];
        heap[left] = front; /* those taken lie from the end backwards */
        if (left > 0) sift(x, heap, left, 0);
        sum += (double)weight[front];
    }
    if (most < n && job->p < 1) {
        double reached = 0;
        int64_t kept_count = 0;
        while (kept_count < taken && reached < job->p * sum) reached += (double)weight[heap[listed - ++kept_count]];
        taken = kept_count;
    }
    cut_behind(x, heap[listed - taken], n, weight);
}

/* the first token, in index order, whose running sum exceeds uniform times the whole */
static int32_t draw(const float *weight, int64_t n, double uniform)
{
    double sum = 0, target = uniform * row_sum(weight, n);
    int64_t last = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(weight[i] > 0)) continue;
        last = i;
        sum += (double)weight[i];
        if (sum > target) break;
    }
    return (int32_t)last;
}

static void token_tile(void *context, int64_t row, int32_t worker)
{
    const token_job *job = context;
    const float *x = row_of(job->logits, row);
    int64_t n = job->logits->width, first = 0;
    float *weight = attn__worker_scratch(job->ctx, worker), largest = job->largest[row];
    int32_t *band = (int32_t *)(weight + n);
    double total = 0;
    job->tokens[row] = -1;
    if (left_out(job, row)) return;
    if (job->temperature == 0 || job->k == 1) {
        while (x[first] != largest) first++;
        job->tokens[row] = (int32_t)first;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float below = (float)(((double)x[i] - (double)largest) / job->temperature);
        weight[i] = below;
        band[i] = (int32_t)(below * -8.0f < (float)(BANDS - 1) ? below * -8.0f : (float)(BANDS - 1));
    }
    total = row_exp(weight, n, 0, weight);
    keep(job, x, n, total, weight, band);
    job->tokens[row] = draw(weight, n, job->uniform[row]);
}

attn_status BLAS(next_token)(attn_context *ctx, const view *logits, double temperature, int64_t k, double p, const double *uniform,
                             int32_t *tokens)
{
    token_job job = {logits, temperature, p, k, uniform, NULL, tokens, ctx};
    int64_t bytes = 0;
    if (!(temperature >= 0) || temperature == INFINITY)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "temperature: got %g, expected a finite number of at least 0", temperature);
    if (k < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "top_k: got %lld, expected at least 0 (0: off)", (long long)k);
    if (!(p > 0 && p <= 1)) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "top_p: got %g, expected more than 0 and at most 1", p);
    if (logits->width > INT32_MAX || attn__multiply(logits->width, (int64_t)(sizeof(float) + sizeof(int32_t)), &bytes))
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "logits: got a width of %lld, expected one that fits into 32 bits",
                          (long long)logits->width);
    attn_status status = attn__worker_scratch_reserve(ctx, bytes);
    if (status != ATTN_OK) return status;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    job.largest = attn__scratch(ctx, logits->rows * (int64_t)sizeof(float));
    if (job.largest == NULL) return attn__arena_status(ctx->scratch);
    status = attn__run(ctx, logits->rows, largest_tile, &job);
    if (status == ATTN_OK) status = check_logits(&job);
    if (status == ATTN_OK) status = attn__run(ctx, logits->rows, token_tile, &job);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

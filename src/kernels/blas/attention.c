/* Scaled dot-product attention, forward: tiles of queries by blocks of keys with an online softmax. */
#include <string.h>
#include "attention_bias.h"
#include "products.h"

typedef struct forward_call {
    attn_context *ctx;
    attention_job job;
} forward_call;

/* n is a multiple of LANES here and below. Compared as integers in the order of floats, which both compilers can turn into vectors
   without forgetting NaN; a NaN may win, and then the row is NaN, as it is by its sum in any case. */
static float row_maximum(const float *s, int64_t n)
{
    int32_t most = INT32_MIN;
    n &= -(int64_t)LANES;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < n; j++) {
        int32_t bits = (int32_t)attn__bits(s[j]), ordered = bits ^ ((bits >> 31) & INT32_MAX);
        most = ordered > most ? ordered : most;
    }
    return attn__from_bits((uint32_t)(most ^ ((most >> 31) & INT32_MAX)));
}

static float row_exponentials(float *s, int64_t n, float shift)
{
    attention_lanes sum = {0};
    for (int64_t j = 0; j < n; j += LANES) {
#pragma omp simd
        for (int64_t l = j; l < j + LANES; l++) s[l] = attn__exp(s[l] - shift);
        sum += *(const attention_lanes *)(s + j);
    }
    return lanes_sum(&sum);
}

/* the same, and the sum of e^x x; what is not seen adds nothing to it */
static float row_moments(float *s, int64_t n, float shift, float *moment)
{
    attention_lanes sum = {0}, second = {0};
    for (int64_t j = 0; j < n; j += LANES) {
        float part[LANES];
#pragma omp simd
        for (int64_t l = 0; l < LANES; l++) {
            float x = s[j + l] - shift, e = attn__exp(x);
            part[l] = e == 0 ? 0 : e * x;
            s[j + l] = e;
        }
        attention_lanes parts;
        memcpy(&parts, part, sizeof parts);
        sum += *(const attention_lanes *)(s + j);
        second += parts;
    }
    *moment = lanes_sum(&second);
    return lanes_sum(&sum);
}

/* of any n */
static void multiply_row(float *s, int64_t n, float factor)
{
    int64_t whole = n & -(int64_t)LANES;
    for (int64_t j = 0; j < whole; j += LANES) *(attention_lanes *)(s + j) *= factor;
    for (int64_t j = whole; j < n; j++) s[j] *= factor;
}

static void drop_row(float *s, int64_t n, const float *factors)
{
    n &= -(int64_t)LANES;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) s[j] = kept(s[j], factors[j]);
}

/* Scores of row i become weights times e^maximum. Returns what the row's earlier sums are worth now. */
static float soften_row(const attention_job *job, const attention_block *b, const attention_space *space, int64_t i)
{
    float *s = b->scores + i * job->stride, before = space->maximum[i];
    int64_t low = 0, high = 0, end = tiles_of(b->keys, LANES) * LANES;
    if (!BLAS(attention_visible)(job, b, i, &low, &high)) {
        clear_lanes(s, end);
        return 1;
    }
    float most = row_maximum(s + low, high - low);
    if (before > most) most = before;
    float shift = most == -INFINITY ? 0 : most, past = before == most ? 1 : before == -INFINITY ? 0 : attn__exp(before - shift);
    space->maximum[i] = most;
    if (job->a->entropy == NULL) {
        space->sum[i] = space->sum[i] * past + row_exponentials(s + low, high - low, shift);
    } else {
        float moment, moved = past == 0 ? 0 : past * (space->moment[i] + (before - shift) * space->sum[i]);
        space->sum[i] = space->sum[i] * past + row_moments(s + low, high - low, shift, &moment);
        space->moment[i] = moved + moment;
    }
    if (job->drop.on) drop_row(s + low, high - low, BLAS(attention_factors)(job, b, i, low, high, space->factors));
    clear_lanes(s, low);
    clear_lanes(s + high, end - high);
    return past;
}

static void add_block(attention_job *job, const attention_block *b, const attention_space *space, int first)
{
    const attn__attention_arguments *a = job->a;
    float *out = head_at(&a->output, b->pair.query->start + b->query, b->head);
    const float *value = value_of(job, b);
    BLAS(attention_scores)(job, b);
    for (int64_t i = 0; i < b->rows; i++) {
        if (i < b->keys) fetch_row(value + i * a->value.row_stride, a->value.width);
        float past = soften_row(job, b, space, i);
        if (!first && past != 1) multiply_row(out + i * a->output.row_stride, a->value.width, past);
    }
    int careful = BLAS(attention_careful)(b, value, a->value.width, a->value.row_stride, 1);
    BLAS(attention_product)
    (job, careful, 0, b->rows, a->value.width, b->keys, 1, b->scores, job->stride, value, a->value.row_stride, first ? 0 : 1, out,
     a->output.row_stride, b->turned);
    if (a->bias != NULL) BLAS(attention_bias_output)(job, b, out);
}

/* output / sum and log-sum-exp; a row that saw nothing has the sum 0, and gets 0 and -inf */
static void finish_rows(const attention_job *job, const attention_block *b, const attention_space *space)
{
    const attn__attention_arguments *a = job->a;
    int64_t row = b->pair.query->start + b->query;
    float *log_sum_exp = a->log_sum_exp != NULL ? (float *)a->log_sum_exp + b->head * a->query.rows + row : NULL;
    for (int64_t i = 0; i < b->rows; i++) {
        float *out = head_at(&a->output, row + i, b->head), sum = space->sum[i];
        if (sum == 0)
            memset(out, 0, (size_t)a->value.width * sizeof(float));
        else
            multiply_row(out, a->value.width, 1 / sum);
    }
    for (int64_t i = 0; a->entropy != NULL && i < b->rows; i++) {
        float sum = space->sum[i];
        ((float *)a->entropy)[b->head * a->query.rows + row + i] = sum == 0 ? 0 : attn__log(sum) - space->moment[i] / sum;
    }
    if (log_sum_exp == NULL) return;
#pragma omp simd
    for (int64_t i = 0; i < b->rows; i++) {
        float log_sum = space->maximum[i] + attn__log(space->sum[i]);
        log_sum_exp[i] = space->sum[i] == 0 ? -INFINITY : log_sum;
    }
}

static void forward_tile(void *context, int64_t index, int32_t worker)
{
    forward_call *call = context;
    attention_job *job = &call->job;
    attention_space space = BLAS(attention_space)(call->ctx, job, worker);
    attention_walk walk;
    int64_t tile, head;
    BLAS(attention_place)(job, index, &tile, &head);
    attention_block b = BLAS(attention_tile)(job, tile, head, &space, &walk);
    for (int64_t i = 0; i < b.rows; i++) {
        space.maximum[i] = -INFINITY;
        space.sum[i] = 0;
        space.moment[i] = 0;
    }
    for (int first = 1; BLAS(attention_next)(job, &walk, &b); first = 0) add_block(job, &b, &space, first);
    finish_rows(job, &b, &space);
}

static int64_t work_of(const attention_job *job)
{
    const attn__attention_arguments *a = job->a;
    int64_t each = a->query.heads * (a->query.width + a->value.width), sum; /* a tanh is many of them */
    if (a->score_vector.data != NULL) each *= 16;
    return attn__multiply(job->map.listed, each, &sum) ? INT64_MAX : sum;
}

attn_status BLAS(attention)(attn_context *ctx, const attn__attention_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    forward_call call = {.ctx = ctx};
    BLAS(attention_prepare)(a, &call.job);
    attn_status status = BLAS(attention_map)(ctx, &call.job);
    if (status == ATTN_OK) status = BLAS(attention_bias_prepare)(ctx, &call.job, 0);
    if (status == ATTN_OK) status = BLAS(attention_reserve)(ctx, &call.job);
    if (status == ATTN_OK) /* in decoding each step has a few pairs for each head */
        status = attn__run_light(ctx, call.job.map.tiles_count * a->query.heads, forward_tile, &call, work_of(&call.job));
    attn__arena_rewind(ctx->scratch, mark);
    return BLAS(product_status)(ctx, status, &call.job.refused);
}

/* Cross-entropy fused with its gradient: one visit to each row of logits. */
#include "rows.h"

typedef struct loss_job {
    view *logits;
    const view *labels;
    int64_t ignored, width, tall;
    int gradient;
    double on, off;           /* weights of the label and of every other class; they sum to 1 */
    attn__loss_sums *partial; /* one for each tile */
} loss_job;

static int counted(const loss_job *job, int64_t label)
{
    return label >= 0 && label != job->ignored;
}

/* no class is possible: the loss is infinite, the softmax zero */
static void impossible_row(const loss_job *job, float *x, int64_t label, attn__loss_sums *sums)
{
    int nan = 0;
    for (int64_t i = 0; i < job->width; i++) nan |= x[i] != x[i];
    sums->unsmoothed += nan ? (double)NAN : (double)INFINITY;
    sums->loss += nan ? (double)NAN : (double)INFINITY;
    sums->count++;
    for (int64_t i = 0; job->gradient && i < job->width; i++) x[i] = nan ? NAN : (float)(i == label ? -job->on : -job->off);
}

/* With m the maximum, L = log sum e^(x - m) and t the label: -log p_t = L - (x_t - m), and over all classes the sum of -log p is
   V L - sum (x - m). The gradient is p - off everywhere and on - off less at the label. */
static void loss_row(const loss_job *job, float *x, int64_t label, attn__loss_sums *sums)
{
    int64_t n = job->width;
    float most = row_max(x, n), off = (float)job->off;
    if (most == -INFINITY) {
        impossible_row(job, x, label, sums);
        return;
    }
    double at_label = (double)x[label] - (double)most, all = 0;
    if (job->off != 0) all = row_sum(x, n) - (double)n * (double)most;
    double total = job->gradient ? row_exp(x, n, most, x) : row_exp_sum(x, n, most);
    double log_total = log(total), unsmoothed = log_total - at_label;
    sums->unsmoothed += unsmoothed;
    sums->loss += job->off != 0 ? (job->on - job->off) * unsmoothed + job->off * ((double)n * log_total - all) : unsmoothed;
    sums->count++;
    if (!job->gradient) return;
    float scale = (float)(1 / total);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = attn__fma(x[i], scale, -off);
    x[label] -= (float)(job->on - job->off);
}

static void loss_tile(void *context, int64_t tile, int32_t worker)
{
    const loss_job *job = context;
    int64_t first = tile * job->tall, end = least(first + job->tall, job->logits->rows);
    attn__loss_sums sums = {0, 0, 0};
    (void)worker;
    for (int64_t row = first; row < end; row++) {
        int64_t label = attn__integer_at(job->labels, row);
        if (counted(job, label))
            loss_row(job, row_of(job->logits, row), label, &sums);
        else if (job->gradient)
            memset(row_of(job->logits, row), 0, (size_t)job->width * sizeof(float));
    }
    job->partial[tile] = sums;
}

static attn_status check_labels(attn_context *ctx, const loss_job *job)
{
    for (int64_t row = 0; row < job->logits->rows; row++) {
        int64_t label = attn__integer_at(job->labels, row);
        if (counted(job, label) && label >= job->width)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "labels: got %lld at row %lld, expected less than %lld", (long long)label,
                              (long long)row, (long long)job->width);
    }
    return ATTN_OK;
}

attn_status BLAS(loss)(attn_context *ctx, view *logits, const view *labels, double smoothing, int32_t form, int64_t ignored, int gradient,
                       attn__loss_sums *sums)
{
    loss_job job = {logits, labels, ignored, columns_of(logits), 0, gradient, 1 - smoothing, 0, NULL};
    attn__loss_sums all = {0, 0, 0};
    double n = (double)job.width;
    if (form == 0 || job.width <= 1) { /* of one class both forms leave everything to the label */
        job.off = job.width > 0 ? smoothing / n : 0;
        job.on += job.off;
    } else {
        job.off = smoothing / (n - 1);
    }
    job.tall = rows_per_tile(job.width);
    attn_status status = check_labels(ctx, &job);
    if (status != ATTN_OK) return status;
    int64_t tiles = job.width > 0 ? tiles_of(logits->rows, job.tall) : 0;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    job.partial = attn__scratch(ctx, tiles * (int64_t)sizeof all);
    if (job.partial == NULL) return attn__arena_status(ctx->scratch);
    status = attn__run(ctx, tiles, loss_tile, &job);
    for (int64_t tile = 0; status == ATTN_OK && tile < tiles; tile++) {
        all.loss += job.partial[tile].loss;
        all.unsmoothed += job.partial[tile].unsmoothed;
        all.count += job.partial[tile].count;
    }
    attn__arena_rewind(ctx->scratch, mark);
    if (status == ATTN_OK) *sums = all;
    return status;
}

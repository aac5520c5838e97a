/* Gradients of position biases. */
#include "attention_bias.h"

static int64_t terms_of(const attn__attention_bias *bias)
{
    return 2 * bias->reach + 1;
}

void BLAS(attention_bias_weights)(attention_job *job, const attention_block *b, float *gradients)
{
    const view *table = &job->a->bias->relative_values;
    if (table->data == NULL) return;
    const float *d_out = head_at(&job->a->d_output, b->pair.query->start + b->query, b->head);
    BLAS(attention_spread)(job, b, 1, d_out, job->a->d_output.row_stride, table, gradients);
}

/* sums of dS along the block's diagonals, then into the distances' buckets */
static void back_distance(const attention_job *job, const attention_block *b, const float *gradients, float *slot)
{
    const attn__attention_bias *bias = job->a->bias;
    int64_t n = b->rows + b->keys - 1, first = BLAS(attention_distance)(b, b->rows - 1, 0);
    for (int64_t e = 0; e < n; e++) b->line[e] = 0;
    for (int64_t i = 0; i < b->rows; i++) {
        const float *g = gradients + i * job->stride;
        float *line = b->line + (b->rows - 1 - i);
#pragma omp simd
        for (int64_t j = 0; j < b->keys; j++) line[j] += g[j];
    }
    for (int64_t e = 0; e < n; e++) {
        int64_t t = first + e;
        if (bias->distance_kind == ATTN__DISTANCE_LINEAR)
            slot[0] -= b->line[e] * (float)(t < 0 ? -t : t);
        else
            slot[job->bucket_of[attn__clip_distance(t, bias->furthest)]] += b->line[e];
    }
}

/* d_table[c] += factor sum over rows of relative[row, c] x[row] */
static void back_table(attention_job *job, const attention_block *b, float factor, const float *x, int64_t x_stride, int64_t width,
                       float *slot)
{
    int64_t terms = terms_of(job->a->bias);
    int careful = BLAS(attention_careful)(b, x, width, x_stride, 0);
    BLAS(attention_product)(job, careful, 1, terms, width, b->rows, factor, b->relative, terms, x, x_stride, 1, slot, width, b->turned);
}

void BLAS(attention_bias_back)(attention_job *job, const attention_block *b, const float *gradients, float *d_query, int64_t slot)
{
    const attn__attention_arguments *a = job->a;
    const attn__attention_bias *bias = a->bias;
    float *at = job->partial != NULL ? job->partial + slot * job->partial_floats : NULL;
    int64_t row = b->pair.query->start + b->query, terms = terms_of(bias);
    if (bias->d_distance.data != NULL) {
        back_distance(job, b, gradients, at);
        at += bias->distance.rows;
    }
    if (bias->relative_keys.data != NULL) {
        BLAS(attention_gather)(job, b, gradients);
        if (attn__sgemm(0, 0, b->rows, a->query.width, terms, job->scale, b->relative, terms, bias->relative_keys.data,
                        bias->relative_keys.row_stride, 1, d_query, a->d_query.row_stride))
            atomic_store(&job->refused, 1);
        if (at != NULL && bias->d_relative_keys.data != NULL) {
            back_table(job, b, job->scale, query_of(job, b), a->query.row_stride, a->query.width, at);
            at += terms * a->query.width;
        }
    }
    if (at != NULL && bias->d_relative_values.data != NULL) {
        BLAS(attention_gather)(job, b, b->scores); /* W, after dropout */
        back_table(job, b, 1, head_at(&a->d_output, row, b->head), a->d_output.row_stride, a->value.width, at);
    }
}

int BLAS(attention_bias_shared)(const attention_job *job)
{
    const attn__attention_bias *bias = job->a->bias;
    if (bias == NULL || bias->d_pair.data == NULL) return 0;
    return (bias->pair_extent[0] == 1 && job->map.query.count > 1) || (bias->pair_extent[1] == 1 && job->a->query.heads > 1);
}

void BLAS(attention_bias_pair)(attention_job *job, const attention_block *b, const float *gradients)
{
    const attn__attention_bias *bias = job->a->bias;
    const int64_t *extent = bias->pair_extent;
    int64_t segment = extent[0] == 1 ? 0 : b->pair.index, head = extent[1] == 1 ? 0 : b->head;
    float *to = (float *)bias->d_pair.data + ((segment * extent[1] + head) * extent[2] + b->query) * extent[3] + b->key;
    for (int64_t i = 0; i < b->rows; i++, to += extent[3]) {
        const float *g = gradients + i * job->stride;
#pragma omp simd
        for (int64_t j = 0; j < b->keys; j++) to[j] += g[j];
    }
}

/* entries of the slots from `offset`, over the tiles and `heads` heads beginning with `head`, in their order */
static void finish_run(const attention_job *job, int64_t offset, int64_t n, int64_t head, int64_t heads, float *to, int64_t to_step)
{
    for (int64_t e = 0; e < n; e++) {
        double sum = 0;
        for (int64_t tile = 0; tile < job->map.tiles_count; tile++)
            for (int64_t h = head; h < head + heads; h++)
                sum += (double)job->partial[(tile * job->a->query.heads + h) * job->partial_floats + offset + e];
        to[e * to_step] += (float)sum;
    }
}

static int64_t finish_table(const attention_job *job, const view *d, int64_t terms, int64_t offset)
{
    if (d->data == NULL) return offset;
    for (int64_t r = 0; r < terms; r++) finish_run(job, offset + r * d->width, d->width, 0, job->a->query.heads, row_of(d, r), 1);
    return offset + terms * d->width;
}

void BLAS(attention_bias_finish)(const attention_job *job)
{
    const attn__attention_bias *bias = job->a->bias;
    int64_t offset = 0;
    if (bias == NULL || job->partial == NULL) return;
    if (bias->d_distance.data != NULL) {
        const view *d = &bias->d_distance;
        for (int64_t h = 0; h < job->a->query.heads; h++) finish_run(job, 0, d->rows, h, 1, (float *)d->data + h, d->row_stride);
        offset = d->rows;
    }
    offset = finish_table(job, &bias->d_relative_keys, terms_of(bias), offset);
    finish_table(job, &bias->d_relative_values, terms_of(bias), offset);
}

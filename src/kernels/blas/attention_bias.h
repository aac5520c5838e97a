#ifndef ATTN_KERNELS_BLAS_ATTENTION_BIAS_H
#define ATTN_KERNELS_BLAS_ATTENTION_BIAS_H
#include "attention_tile.h"

/* Position biases of a block, see attn__attention_bias. In the backward each tile of queries and head keeps partial sums of the tables'
   gradients, which are added up in the order of the tiles, whoever computed them. */

/* 1 when gradients of tables are wanted; then `partial` is taken and cleared */
attn_status BLAS(attention_bias_prepare)(attn_context *ctx, attention_job *job, int backward);
/* floats of a worker's scratch */
int64_t BLAS(attention_bias_room)(const attention_job *job);
void BLAS(attention_bias_space)(const attention_job *job, float *room, attention_space *space);

/* position of key key + j minus that of query query + i */
static inline int64_t BLAS(attention_distance)(const attention_block *b, int64_t i, int64_t j)
{
    return b->pair.key->first_position + b->key + j - (b->pair.query->first_position + b->query + i);
}
/* to[i, j] += factor x_i . table[clip(i, j)] */
void BLAS(attention_spread)(const attention_job *job, const attention_block *b, float factor, const float *x, int64_t x_stride,
                            const view *table, float *to);
/* b->relative[i, c] = sum of x[i, j] over the keys j with clip c */
void BLAS(attention_gather)(const attention_job *job, const attention_block *b, const float *x);

/* scores += bias */
void BLAS(attention_bias_scores)(attention_job *job, const attention_block *b);
/* out += W values[clip] */
void BLAS(attention_bias_output)(attention_job *job, const attention_block *b, float *out);
/* dW += dO values[clip]^T */
void BLAS(attention_bias_weights)(attention_job *job, const attention_block *b, float *gradients);
/* d_query += scale dS keys[clip], and the tables' gradients into the slot; slot -1: none. d_query NULL: not wanted here. */
void BLAS(attention_bias_back)(attention_job *job, const attention_block *b, const float *gradients, float *d_query, int64_t slot);
/* d_pair += dS */
void BLAS(attention_bias_pair)(attention_job *job, const attention_block *b, const float *gradients);
/* 1 when segments or heads share a pair bias whose gradient is wanted: it needs a sweep of its own */
int BLAS(attention_bias_shared)(const attention_job *job);
void BLAS(attention_bias_finish)(const attention_job *job);
#endif

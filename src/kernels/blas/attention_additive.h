#ifndef ATTN_KERNELS_BLAS_ATTENTION_ADDITIVE_H
#define ATTN_KERNELS_BLAS_ATTENTION_ADDITIVE_H
#include "attention_tile.h"

/* Additive scores of a block: scale v . tanh(q_i + k_j), keys on their side so that a row of keys is a vector. There is no product in them:
   size tanh for each pair, which is what Bahdanau's score costs. */
attn_status BLAS(attention_additive_prepare)(attn_context *ctx, attention_job *job);
int64_t BLAS(attention_additive_room)(const attention_job *job); /* floats of a worker's scratch */
void BLAS(attention_additive_scores)(const attention_job *job, const attention_block *b);
/* from dS of the block: d_query and d_key, each NULL or written (beta 0) or added to, and the vector's gradient into the slot (-1: none) */
void BLAS(attention_additive_back)(const attention_job *job, const attention_block *b, const float *gradients, float *d_query,
                                   float beta_query, float *d_key, float beta_key, int64_t slot);
void BLAS(attention_additive_finish)(const attention_job *job);
#endif

#ifndef ATTN_KERNELS_REFERENCE_ATTENTION_BIAS_H
#define ATTN_KERNELS_REFERENCE_ATTENTION_BIAS_H
#include "real.h"

/* One score's place: query i and key j of a pair of segments, and the distance between them. */
typedef struct attention_cell {
    const attn__pair *pair;
    int64_t head, heads, i, j, t;
} attention_cell;

static inline attention_cell cell_of(const attn__pair *pair, int64_t head, int64_t heads, int64_t i, int64_t j)
{
    int64_t t = pair->key->first_position + j - (pair->query->first_position + i);
    return (attention_cell){pair, head, heads, i, j, t};
}

/* Sums of the gradients of the bias' tables, each in the table's shape without gaps; NULL: not wanted. */
typedef struct bias_sums {
    double *distance, *relative_keys, *relative_values, *pair;
} bias_sums;

/* what the score gains by distance and pair */
double REFERENCE(bias_score)(const attn__attention_bias *bias, const attention_cell *at);
/* row of relative keys or values for the cell; NULL: none */
const real *REFERENCE(bias_row)(const view *table, const attn__attention_bias *bias, const attention_cell *at);
attn_status REFERENCE(bias_sums_make)(attn_context *ctx, const attn__attention_bias *bias, bias_sums *sums);
/* d_score: of the score before the cap */
void REFERENCE(bias_back)(const attn__attention_bias *bias, const attention_cell *at, double d_score, const bias_sums *sums);
void REFERENCE(bias_sums_write)(const attn__attention_bias *bias, const bias_sums *sums);
#endif

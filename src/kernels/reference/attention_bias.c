#include "attention_bias.h"
#include <math.h>

static int64_t pair_at(const int64_t step[4], const attn__attention_bias *bias, const attention_cell *at)
{
    int64_t segment = bias->pair_extent[0] == 1 ? 0 : at->pair->index, head = bias->pair_extent[1] == 1 ? 0 : at->head;
    return segment * step[0] + head * step[1] + at->i * step[2] + at->j * step[3];
}

static void dense_steps(const int64_t extent[4], int64_t step[4])
{
    step[3] = 1;
    for (int axis = 2; axis >= 0; axis--) step[axis] = step[axis + 1] * extent[axis + 1];
}

static int64_t distance_row(const attn__attention_bias *bias, int64_t t)
{
    return bias->distance_kind == ATTN__DISTANCE_BUCKETS ? attn__bucket(t, bias->distance.rows, bias->furthest, bias->both_sides) : 0;
}

/* d bias / d table entry */
static double distance_slope(const attn__attention_bias *bias, int64_t t)
{
    return bias->distance_kind == ATTN__DISTANCE_BUCKETS ? 1 : -fabs((double)t);
}

double REFERENCE(bias_score)(const attn__attention_bias *bias, const attention_cell *at)
{
    double sum = 0;
    if (bias == NULL) return 0;
    if (bias->distance.data != NULL)
        sum += distance_slope(bias, at->t) * (double)row_of(&bias->distance, distance_row(bias, at->t))[at->head];
    else if (bias->distance_kind == ATTN__DISTANCE_LINEAR)
        sum += distance_slope(bias, at->t) * (double)(real)attn__alibi_slope(at->head, at->heads);
    if (bias->pair.data != NULL) sum += (double)((const real *)bias->pair.data)[pair_at(bias->pair_stride, bias, at)];
    return sum;
}

const real *REFERENCE(bias_row)(const view *table, const attn__attention_bias *bias, const attention_cell *at)
{
    return table->data != NULL ? row_of(table, attn__clip_distance(at->t, bias->reach)) : NULL;
}

static double *sums_for(attn_context *ctx, const view *d, int64_t n, attn_status *status)
{
    if (d->data == NULL || *status != ATTN_OK) return NULL;
    double *out = REFERENCE(doubles)(ctx, n);
    if (out == NULL) *status = scratch_status(ctx);
    return out;
}

static int64_t pair_elements(const attn__attention_bias *bias)
{
    return bias->pair_extent[0] * bias->pair_extent[1] * bias->pair_extent[2] * bias->pair_extent[3];
}

attn_status REFERENCE(bias_sums_make)(attn_context *ctx, const attn__attention_bias *bias, bias_sums *sums)
{
    attn_status status = ATTN_OK;
    *sums = (bias_sums){NULL, NULL, NULL, NULL};
    if (bias == NULL) return ATTN_OK;
    sums->distance = sums_for(ctx, &bias->d_distance, bias->distance.rows * bias->distance.width, &status);
    sums->relative_keys = sums_for(ctx, &bias->d_relative_keys, bias->relative_keys.rows * bias->relative_keys.width, &status);
    sums->relative_values = sums_for(ctx, &bias->d_relative_values, bias->relative_values.rows * bias->relative_values.width, &status);
    sums->pair = sums_for(ctx, &bias->d_pair, pair_elements(bias), &status);
    return status;
}

void REFERENCE(bias_back)(const attn__attention_bias *bias, const attention_cell *at, double d_score, const bias_sums *sums)
{
    if (sums->distance != NULL)
        sums->distance[distance_row(bias, at->t) * bias->distance.width + at->head] += distance_slope(bias, at->t) * d_score;
    if (sums->pair != NULL) {
        int64_t step[4];
        dense_steps(bias->pair_extent, step);
        sums->pair[pair_at(step, bias, at)] += d_score;
    }
}

static void write_table(const view *d, const double *sums)
{
    for (int64_t r = 0; sums != NULL && r < d->rows; r++) {
        for (int64_t c = 0; c < d->width; c++) put(&row_of(d, r)[c], sums[r * d->width + c], 1);
    }
}

void REFERENCE(bias_sums_write)(const attn__attention_bias *bias, const bias_sums *sums)
{
    if (bias == NULL) return;
    write_table(&bias->d_distance, sums->distance);
    write_table(&bias->d_relative_keys, sums->relative_keys);
    write_table(&bias->d_relative_values, sums->relative_values);
    for (int64_t i = 0; sums->pair != NULL && i < pair_elements(bias); i++) put(&((real *)bias->d_pair.data)[i], sums->pair[i], 1);
}

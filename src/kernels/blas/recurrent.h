#ifndef ATTN_KERNELS_BLAS_RECURRENT_H
#define ATTN_KERNELS_BLAS_RECURRENT_H
#include "products.h"

/* Recurrent layers by steps. Segments stand by rank, longest first, so that those with a row t are the first ones: step t is one product of
   [active, width]. What is kept lies by step and within a step by rank. */
typedef struct recurrent_order {
    int64_t steps;    /* rows of the longest segment */
    int64_t *active;  /* [steps + 1]: segments with a row t */
    int64_t *first;   /* [steps + 1]: rows of earlier steps */
    int64_t *segment; /* [segments]: by rank; those without rows are last */
} recurrent_order;

typedef struct recurrent_job {
    const attn__recurrent_arguments *a;
    recurrent_order order;
    int64_t width, wide, step; /* wide: gates width */
    grid cut;                  /* of the active segments by width, for the product of this step */
    float *sums;               /* [active, wide]: x + W h, then the gates; backward: their gradients */
    const float *cell_before;  /* [active, width] */
    float *cell;               /* may be cell_before */
    float *hidden[2];          /* forward: [most, width], of even and odd steps */
    float *d_hidden, *d_cell;  /* backward: [most, width] */
    float *past;               /* backward: [rows, width], h of the step before, or NULL */
    int64_t next;              /* backward: segments that have a later step as well */
    atomic_int refused;
} recurrent_job;

/* the order, in scratch */
attn_status BLAS(recurrent_prepare)(attn_context *ctx, const attn__recurrent_arguments *a, recurrent_job *job);
/* rows of a state [segments, width] by rank, in scratch; zeros where its data is NULL */
attn_status BLAS(recurrent_gather)(attn_context *ctx, const recurrent_job *job, const view *state, float **out);
/* floats of scratch: rows * width */
attn_status BLAS(recurrent_floats)(attn_context *ctx, int64_t rows, int64_t width, float **out);

/* the row of a rank at a step */
static inline int64_t recurrent_row(const recurrent_job *job, int64_t rank, int64_t step)
{
    const attn_segment *segment = &job->a->segments.at[job->order.segment[rank]];
    return segment->start + (job->a->reverse ? segment->length - 1 - step : step);
}
#endif

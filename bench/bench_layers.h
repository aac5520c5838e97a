#ifndef ATTN_BENCH_BENCH_LAYERS_H
#define ATTN_BENCH_BENCH_LAYERS_H
#include "bench.h"

typedef struct bench_layers_run {
    int64_t width, heads, window; /* window: keys that each query sees in the layer of that name */
    int32_t taps, threads;
    double seconds; /* to spend on a point, forward and backward each */
} bench_layers_run;

/* A layer from x [n, width] to y [n, width]. */
typedef struct bench_layer {
    const char *name, *complexity; /* complexity: as Table 3.1 has it */
    const char *products;          /* multiply-adds of the forward, in words */
    int32_t kind;                  /* which one it is, to layers.c */
    int32_t dense;                 /* products of every row with a matrix [width, width]; of a convolution as many as taps */
} bench_layer;
extern const bench_layer bench_layer_table[]; /* ends with a NULL name */

typedef struct bench_layer_point {
    int64_t n;
    double forward, both;          /* seconds: without a tape; forward and backward, gradients of x and of all parameters */
    int64_t products;              /* multiply-adds of the forward by formula; forward and backward are three times as many */
    int64_t counted, counted_both; /* by attn_attention_cost, forward, and both; 0: there is no such call for the layer */
    int64_t steps;                 /* that go one after the other */
    int64_t path, dilated; /* layers until the last row has what it can have of the first; dilated 1, taps, taps^2 and so on, 0: none */
} bench_layer_point;
bench_layer_point bench_layer_measure(const bench_layers_run *run, const bench_layer *layer, int64_t n);

int bench_layers(int argc, char **argv);
#endif

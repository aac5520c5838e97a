#ifndef ATTN_BENCH_BENCH_H
#define ATTN_BENCH_BENCH_H
#include <attn/attn.h>
#include <sched.h>
#include <stdint.h>

/* A training step that is measured: a model, and a batch of `batch` sequences. */
typedef struct bench_config {
    const char *name;
    int64_t encoder_layers, decoder_layers, width, heads, feed_forward, vocabulary, batch, length;
    const char *preset;
    double label_smoothing;
    int32_t adam; /* ATTN_OPTIMIZER_* */
} bench_config;
const bench_config *bench_config_find(const char *name); /* NULL: none */
const bench_config *bench_config_at(int64_t index);      /* NULL past the end */
void bench_config_options(attn_context *ctx, const bench_config *config, attn_transformer_options *options);

/* The products of one step and nothing else: the denominator of every ratio. */
typedef struct bench_products bench_products;
bench_products *bench_products_create(attn_context *ctx, const bench_config *config);
void bench_products_run(attn_context *ctx, bench_products *products);
double bench_products_gflop(const bench_products *products);
void bench_products_free(bench_products *products);

/* Pins every thread of the context to a processor of its own; before: what the caller's thread had. */
void bench_pin(attn_context *ctx, int32_t threads, cpu_set_t *before);
double bench_seconds(void);
double bench_median(double *values, int64_t count);                       /* sorts */
void bench_fail(attn_context *ctx, attn_status status, const char *what); /* ends the program unless OK */

int bench_step(int argc, char **argv);
#endif

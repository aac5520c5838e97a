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

/* A context whose threads are pinned: as many as asked for, 0: the library's default; given is how many it has. bench_close frees it and lets
   the caller's thread run where it ran before. */
typedef struct bench_context {
    attn_context *ctx;
    int32_t given;
    cpu_set_t before;
} bench_context;
bench_context bench_open(int32_t threads);
void bench_close(bench_context *opened);

/* float32 numbers in [-scale, scale), the same for the same seed; rank at most 3 */
attn_tensor *bench_filled(attn_context *ctx, int32_t rank, const int64_t *shape, uint64_t seed, double scale);
/* ends the program when a number by formula is not the one that the library gives */
void bench_agree(const char *name, const char *what, int64_t formula, int64_t library);
/* the median time of `once` over three rounds or more, for as long as `seconds` last; of one round that took longer than that */
double bench_repeat(double seconds, void (*once)(void *data), void *data);
/* the power of n by which time grows from one length to another */
double bench_slope(int64_t n, double seconds, int64_t next_n, double next_seconds);

enum { BENCH_FLAG, BENCH_TEXT, BENCH_INT32, BENCH_INT64, BENCH_REAL };
typedef struct bench_option {
    const char *name;
    int32_t kind; /* BENCH_* */
    void *to;     /* int (FLAG: becomes 1), const char *, int32_t, int64_t, double */
} bench_option;
/* Reads the words of a command into what its options point to; they end with a NULL name. NULL, or the word that is none of them. */
const char *bench_options(int argc, char **argv, const bench_option *options);
int bench_chosen(const char *list, const char *name); /* is name one of NAME,NAME; of NULL everything is */

/* Lines on two logarithmic axes, with the slope at their ends. */
typedef struct bench_line {
    const char *name, *formula;
    const double *seconds; /* [lengths] */
} bench_line;
typedef struct bench_chart {
    const char *title, *quantity; /* quantity: what the formulas count */
    int64_t lengths, count;
    const int64_t *n; /* [lengths] */
    const bench_line *lines;
} bench_chart;
int bench_draw(const char *path, const bench_chart *chart); /* an SVG; 0 when the file was written */

int bench_step(int argc, char **argv);
#endif

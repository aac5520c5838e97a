#ifndef ATTN_BENCH_BENCH_ATTENTION_H
#define ATTN_BENCH_BENCH_ATTENTION_H
#include "bench.h"

typedef struct bench_variant {
    const char *name, *pairs; /* the monograph's number of pairs */
    attn_mask *(*make)(attn_context *ctx);
    int64_t longest;
    int32_t form; /* ATTN_FORM_* */
} bench_variant;
extern const bench_variant bench_variants[]; /* ends with a NULL name */

typedef struct bench_point {
    int64_t n, bytes, process_bytes, seen, listed;
    double seconds;
} bench_point;

typedef struct bench_attention_run {
    int64_t heads, size;
    int32_t threads;
    double seconds; /* to spend on a point */
} bench_attention_run;

/* forward and backward at length n; bytes: most that the context held beyond inputs, outputs and their gradients; process_bytes: by which the
   most that the process ever had grew */
bench_point bench_attention_point(const bench_attention_run *run, const bench_variant *variant, int64_t n);

int bench_attention(int argc, char **argv);
#endif

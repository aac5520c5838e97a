#ifndef ATTN_KERNELS_KERNELS_H
#define ATTN_KERNELS_KERNELS_H
#include <attn/embedding.h>
#include <attn/loss.h>
#include "../core/context.h"
#include "../core/random.h"
#include "../tensor/layout.h"
#include "../tensor/mask.h"
#include "../tensor/tensor.h"
#include "../tensor/view.h"

typedef attn__view view;

/* rate 0: none. places of the rows (activations); attention draws from its segments instead. */
typedef struct attn__dropout {
    double rate;
    uint64_t seed, site;
    int64_t step;
    attn__places places;
} attn__dropout;

/* act(u): kind is ATTN_ACTIVATION_*; Swish's beta is fixed, or learned (one element) when the view is given */
typedef struct attn__activation {
    int32_t kind, reserved;
    double beta;
    const view *learned_beta;
} attn__activation;

typedef struct attn__attention_arguments {
    view query, key, value, output;         /* [rows, heads, size]; key and value [rows, key_heads, ...] */
    void *log_sum_exp;                      /* [heads, query rows] of the table's dtype, kept for the backward, or NULL */
    view d_query, d_key, d_value, d_output; /* backward: d_output is read, the others are written, or added to by the flag */
    int32_t add_query, add_key, add_value, reserved;
    attn__segments query_segments, key_segments; /* equal counts; segment i of the queries sees segment i of the keys */
    const attn_mask *mask;
    double scale, soft_cap; /* soft_cap 0: none; else scores s become cap * tanh(s / cap) */
    attn__dropout dropout;  /* on the weights, places unused */
} attn__attention_arguments;

typedef struct attn__loss_sums {
    double loss, unsmoothed;
    int64_t count;
} attn__loss_sums;

/* The one table of the library. Shapes: rows by width unless said. Rules for every entry:
   - outputs overlap no input unless said; d* views that may be NULL say so; add = 0: written, 1: added to;
   - rows or width 0 is legal; shapes were checked by the caller, values were not (tokens out of range are the entry's to refuse,
     before it writes anything);
   - tiles and sums are fixed by shape, never by the number of threads. */
typedef struct attn__kernels {
    const char *name;
    int32_t dtype, counts; /* counts 1: the table that only adds up products and bytes */

    /* (5.10) y = dropout(act(x W^T + b)); x [rows, in], w [out, in], b [1, out] or NULL, y [rows, out].
       u, when not NULL, keeps x W^T + b for the backward; act NULL: identity; drop NULL: none */
    attn_status (*linear)(attn_context *, const view *x, const view *w, const view *b, const attn__activation *act,
                          const attn__dropout *drop, view *y, view *u);
    /* gated: u = x W^T + b with w [2 out, in]: gate rows first, then up rows; y = dropout(act(u[:, :out]) * u[:, out:]); u is always written */
    attn_status (*linear_gated)(attn_context *, const view *x, const view *w, const view *b, const attn__activation *act,
                                const attn__dropout *drop, view *y, view *u);
    /* dx (+)= dy W */
    attn_status (*linear_d_input)(attn_context *, const view *dy, const view *w, int add, view *dx);
    /* dw += dy^T x, db += column sums of dy; either may be NULL */
    attn_status (*linear_d_weight)(attn_context *, const view *dy, const view *x, view *dw, view *db);

    /* y = dropout(act(u)) */
    attn_status (*activation)(attn_context *, const attn__activation *act, const view *u, const attn__dropout *drop, view *y);
    /* du (+)= dropout'(dy) act'(u); dbeta (one element, adds) or NULL; du may be dy itself when add is 0 */
    attn_status (*activation_back)(attn_context *, const attn__activation *act, const view *u, const attn__dropout *drop, const view *dy,
                                   int add, view *du, view *dbeta);
    /* du [rows, 2 width] written */
    attn_status (*gate_back)(attn_context *, const attn__activation *act, const view *u, const attn__dropout *drop, const view *dy,
                             view *du, view *dbeta);

    /* (5.1) r = x + dropout(s), y = norm(r). s NULL: r is x (and r is not written). r NULL: the sum is not kept. norm is ATTN_NORM_*.
       gain, shift [1, width] or NULL. statistics [rows, 2] (mean, 1/deviation; RMS: 0, 1/rms) or NULL. r may be x itself. */
    attn_status (*residual_norm)(attn_context *, const view *x, const view *s, const attn__dropout *drop, int32_t norm, double epsilon,
                                 const view *gain, const view *shift, view *r, view *y, void *statistics);
    /* dr = dnorm(dy) + dr_in (NULL: none), with r the norm's input; ds = dropout'(dr) or NULL; dgain, dshift add, or NULL. dr may be dr_in or dy. */
    attn_status (*residual_norm_back)(attn_context *, const view *dy, const view *dr_in, const view *r, const void *statistics,
                                      const attn__dropout *drop, int32_t norm, const view *gain, view *dr, view *ds, view *dgain,
                                      view *dshift);
    /* r = x + dropout(s); r may be x */
    attn_status (*residual)(attn_context *, const view *x, const view *s, const attn__dropout *drop, view *r);

    /* in all three: rows in no segment are neither read nor written; the backward may read output, d_output and log_sum_exp */
    attn_status (*attention)(attn_context *, const attn__attention_arguments *);
    attn_status (*attention_back)(attn_context *, const attn__attention_arguments *);
    /* the matrix itself, for inspection and the reference: weights [heads, query rows of the segment, keys of the segment] of one pair */
    attn_status (*attention_weights)(attn_context *, const attn__attention_arguments *, int64_t pair, view *weights);

    attn_status (*softmax)(attn_context *, const view *x, int log, view *y); /* a row of minus infinities: zeros (log: minus infinities) */
    attn_status (*softmax_back)(attn_context *, const view *y, int log, const view *dy, int add, view *dx);

    /* y = dropout(scale * table[token] + position); tokens [rows, 1] int32 or int64; kind is ATTN_POSITIONS_NONE, _SINUSOIDAL or _LEARNED
       (positions [context, width]); tokens NULL: y = dropout(x + position) with x given */
    attn_status (*embed)(attn_context *, const view *tokens, const view *table, const view *x, double scale, int32_t kind,
                         const view *positions, attn__places places, const attn__dropout *drop, view *y);
    /* dtable, dpositions add; dx written or added; each may be NULL */
    attn_status (*embed_back)(attn_context *, const view *tokens, double scale, attn__places places, const attn__dropout *drop,
                              const view *dy, view *dtable, view *dpositions, int add, view *dx);

    /* sums of -log p over counted rows; labels [rows, 1] int32 or int64, those equal to ignored or negative are not counted, others past the
       width are refused. form 0: the monograph's smoothing (e / V on every class), 1: fairseq's (e / (V - 1) on the others).
       gradient 1: logits become their own gradient (of the sum), rows not counted become 0. */
    attn_status (*loss)(attn_context *, view *logits, const view *labels, double smoothing, int32_t form, int64_t ignored, int gradient,
                        attn__loss_sums *sums);

    attn_status (*dropout)(attn_context *, const view *x, const attn__dropout *drop, int add, view *y); /* its own backward; y may be x */
    attn_status (*add)(attn_context *, const view *a, const view *b, view *y);                          /* y may be a or b */
    attn_status (*multiply)(attn_context *, const view *a, const view *b, int add, view *y);            /* elementwise; y (+)= a b */
    attn_status (*copy)(attn_context *, const view *x, int add, view *y); /* strided: pack, unpack, concatenate, cache rows */
    attn_status (*scale)(attn_context *, const view *factor, view *y);    /* y *= factor[0]; nothing when it is 1 */
    /* element e of the view in row-major order: elements 2n and 2n + 1 share the Philox block with counter n (reference/random.c) */
    attn_status (*fill)(attn_context *, view *y, int32_t start, double amount, uint64_t key); /* ATTN__START_* */
    attn_status (*dot)(attn_context *, const view *a, const view *b, double *out);            /* in double, fixed order */
    attn_status (*sum_squares)(attn_context *, const void *flat, int64_t n, double *out);
    /* one pass over a flat run: g = g * multiplier + l2 * p; moments; p = p - rate * decay * p (decay before the step); update with bias
       correction by step (from 1); g set to zero. */
    attn_status (*adam)(attn_context *, void *p, void *g, void *m, void *v, int64_t n, double multiplier, double l2, double rate,
                        double beta1, double beta2, double epsilon, double decay, int64_t step);
    /* a token from each row of logits: temperature 0 is greedy (lowest index on ties); k 0 and p 1 are off; uniform [rows] in [0, 1) */
    attn_status (*next_token)(attn_context *, const view *logits, double temperature, int64_t k, double p, const double *uniform,
                              int32_t *tokens);
    /* bytes of worker scratch that attention over segments of at most `longest` rows and heads of at most `size` can need */
    int64_t (*attention_room)(int64_t longest, int64_t size);
} attn__kernels;

/* The table for this context and dtype: blas float32, reference float32 or float64 (blas with float64: UNSUPPORTED, says to use the reference
   backend), the counting table in a dry context. BLAS is tested at the first computation (3 by 2, padded leading dimensions). */
attn_status attn__kernels_for(attn_context *ctx, int32_t dtype, const attn__kernels **out);
/* The BLAS tables this machine can run, one for each instruction set, the one that is chosen first; NULL past the last. */
const attn__kernels *attn__kernels_blas(int index);
extern const attn__kernels attn__kernels_reference_float32, attn__kernels_reference_float64, attn__kernels_count;
#endif

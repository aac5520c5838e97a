#ifndef ATTN_KERNELS_KERNELS_H
#define ATTN_KERNELS_KERNELS_H
#include <attn/embedding.h>
#include <attn/linear_attention.h>
#include <attn/loss.h>
#include <attn/recurrent.h>
#include <attn/rotary.h>
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

/* What a score gains from where query i and key j stand, t = position of j - position of i, before the cap. Each part may be absent (data
   NULL). d_*: backward, added to; data NULL: not wanted.
   distance_kind 0: none; LINEAR -slope_h |t|, with slopes table [1, heads], or without a table attn__alibi_slope; BUCKETS table[bucket(t), h], table [buckets, heads] (attn__bucket).
   relative: scale q_i . keys[c] in the scores and w_ij values[c] in the output, c = clip(t) + reach, both [2 reach + 1, ..].
   pair: pair[s, h, i, j] with strides of segment, head, query and key (0: shared). */
enum { ATTN__DISTANCE_LINEAR = 1, ATTN__DISTANCE_BUCKETS = 2 };
typedef struct attn__attention_bias {
    int32_t distance_kind, both_sides; /* both_sides: half of the buckets are for keys after the query */
    int64_t furthest, reach;           /* furthest: distances from here share the last bucket */
    view distance, d_distance;
    view relative_keys, d_relative_keys, relative_values, d_relative_values;
    view pair, d_pair; /* data and dtype; d_pair lies dense in pair's extents */
    int64_t pair_stride[4], pair_extent[4];
} attn__attention_bias;

typedef struct attn__attention_arguments {
    view query, key, value, output;         /* [rows, heads, size]; key and value [rows, key_heads, ...] */
    void *log_sum_exp;                      /* [heads, query rows] of the table's dtype, kept for the backward, or NULL */
    void *entropy;                          /* forward: [heads, query rows], - sum of w ln w of the weights before dropout, or NULL */
    view d_query, d_key, d_value, d_output; /* backward: d_output is read, the others are written, or added to by the flag */
    int32_t add_query, add_key, add_value, reserved;
    attn__segments query_segments, key_segments; /* equal counts; segment i of the queries sees segment i of the keys */
    const attn_mask *mask;
    double scale, soft_cap;           /* soft_cap 0: none; else scores s become cap * tanh(s / cap) */
    attn__dropout dropout;            /* on the weights, places unused */
    const attn__attention_bias *bias; /* NULL: none */
    /* additive scores (2.12): v_h . tanh(q_i + k_j) in place of q_i . k_j; [heads, size]; data NULL: products. d_: added to, or NULL */
    view score_vector, d_score_vector;
} attn__attention_arguments;

typedef struct attn__weights_part {
    int64_t pair, row, head; /* row within the pair's queries */
} attn__weights_part;

static inline int64_t attn__clip_distance(int64_t t, int64_t reach)
{
    return (t < -reach ? -reach : t > reach ? reach : t) + reach;
}

/* Rotary positions: of each head the first `rotated` columns turn in pairs, pair c by position * frequency[c]; pairs are columns
   c and c + rotated / 2, or 2c and 2c + 1. magnitude multiplies what turns. The other columns stay. */
typedef struct attn__rotary {
    const double *frequency; /* [rotated / 2] */
    int64_t rotated;
    double magnitude;
    int32_t pairing, reserved; /* ATTN_ROTARY_* */
    attn__places places;
} attn__rotary;

/* A map of heads to features, of z = scale x. ELU: elu(z) + 1, the others by directions [m, size] as in attn/linear_attention.h. */
typedef struct attn__features {
    int32_t kind, reserved; /* ATTN_FEATURES_ELU, _POSITIVE, _TRIGONOMETRIC */
    double scale;
    view directions;
} attn__features;

/* output_i = sum_j e^(l_j) (q_i . k_j) v_j / sum_j e^(l_j) (q_i . k_j), zeros where the lower sum is 0; causal: key j <= i + keys - queries of
   the segment. Rows in no segment are neither read nor written. */
typedef struct attn__linear_arguments {
    view query, key, value, output; /* [rows, heads, features]; key and value [rows, key_heads, ...] */
    const void *key_scale;          /* l, dense [key rows, key_heads] of the table's dtype; NULL: zeros */
    void *normaliser;               /* [heads, query rows]: the lower sum times e^-(largest l seen), kept for the backward, or NULL */
    void *state; /* dense [segments, key_heads, features + 1, value size + 1], read and written, causal alone and of equal
                                               lengths; NULL: none. Not in the backward. */
    view d_query, d_key, d_value,
        d_output; /* backward: d_output is read, the others written or added to by the flag; data NULL: not wanted */
    int32_t add_query, add_key, add_value, causal;
    attn__segments query_segments, key_segments; /* equal counts, disjoint */
} attn__linear_arguments;

/* A recurrent layer over segments that tile the rows: attn/recurrent.h. gates 1 (TANH) or 4 (LSTM: i, f, g, o). */
typedef struct attn__recurrent_arguments {
    view x, weight, output;        /* [rows, gates width], [gates width, width], [rows, width] */
    view hidden, cell;             /* before the first step: [segments, width]; data NULL: zeros */
    view final_hidden, final_cell; /* after the last: [segments, width]; data NULL: not wanted */
    void *gates, *cells;           /* LSTM, kept for the backward: [rows, gates width], [rows, width], in an order of the kernel's own;
                                      NULL: not kept. The backward may write over the gates. */
    view d_output, d_final_hidden, d_final_cell; /* backward: read; data NULL: zeros */
    /* written or added to by the flag, d_weight added to, in this order, so that they may be one; data NULL: not wanted */
    view d_x, d_hidden, d_cell, d_weight;
    int32_t add_x, add_hidden, add_cell, kind, reverse, reserved; /* ATTN_RECURRENT_* */
    attn__segments segments;
} attn__recurrent_arguments;

static inline int64_t attn__recurrent_gates(int32_t kind)
{
    return kind == ATTN_RECURRENT_LSTM ? 4 : 1;
}

/* A convolution over segments that tile the rows: row r reads rows r + first, r + first + dilation and so on, in its segment. */
typedef struct attn__convolution {
    int64_t taps, dilation, first;
    attn__segments segments;
} attn__convolution;

/* rows of [rows, width] that a convolution gathers at once: some MiB, and enough for a product to be fast */
static inline int64_t attn__convolution_strip(int64_t rows, int64_t width)
{
    int64_t strip = width > 0 ? (1 << 19) / width : rows;
    if (strip < 64) strip = 64;
    return strip < rows ? strip : rows;
}

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
    /* the matrix itself, for inspection: weights [rows, heads, keys of the segment], from a row and a head of one pair on */
    attn_status (*attention_weights)(attn_context *, const attn__attention_arguments *, const attn__weights_part *part, view *weights);

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

    /* y (+)= R x for every head, rows by their positions; back 1: by minus the angle, which is the transpose. y may be x when add is 0. */
    attn_status (*rotate)(attn_context *, const view *x, const attn__rotary *rotary, int back, int add, view *y);

    /* y = f(x), every head of every row; y [rows, heads, features]. log_scale NULL, or dense [rows, heads]: y is divided by its exponential.
       In the backward log_scale is a constant, and y is what the forward wrote. */
    attn_status (*feature_map)(attn_context *, const view *x, const attn__features *features, void *log_scale, view *y);
    attn_status (*feature_map_back)(attn_context *, const view *x, const attn__features *features, const view *y, const view *dy, int add,
                                    view *dx);
    attn_status (*linear_attention)(attn_context *, const attn__linear_arguments *);
    attn_status (*linear_attention_back)(attn_context *, const attn__linear_arguments *);
    /* y_s = E[:, :n] x_s of every disjoint segment s of n rows, every head; e [k, longest], y [segments k, heads, width] */
    attn_status (*sequence_project)(attn_context *, const view *x, const view *e, attn__segments segments, view *y);
    /* dx (+)= E[:, :n]^T dy_s, rows in no segment stay; then de += sum of dy_s x_s^T; either may be NULL, and both may be one */
    attn_status (*sequence_project_back)(attn_context *, const view *x, const view *e, attn__segments segments, const view *dy, int add,
                                         view *dx, view *de);

    attn_status (*recurrent)(attn_context *, const attn__recurrent_arguments *);
    attn_status (*recurrent_back)(attn_context *, const attn__recurrent_arguments *);

    /* y = b + sum of W_k x_(r + first + k dilation); w [out, taps in], b [1, out] or NULL */
    attn_status (*convolution)(attn_context *, const view *x, const view *w, const view *b, const attn__convolution *shape, view *y);
    /* dx written or added; then dw, db add; each may be NULL, and all may be one */
    attn_status (*convolution_back)(attn_context *, const view *x, const view *w, const attn__convolution *shape, const view *dy, int add,
                                    view *dx, view *dw, view *db);

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
    /* a token from each row of logits: temperature 0 is greedy (lowest index on ties); k 0 and p 1 are off; uniform [rows] in [0, 1),
       below 0 for a row that is left out: its token is -1 and its logits are not read */
    attn_status (*next_token)(attn_context *, const view *logits, double temperature, int64_t k, double p, const double *uniform,
                              int32_t *tokens);
    /* bytes of worker scratch that attention over segments of at most `longest` rows and heads of at most `size` can need; terms: rows of a
       relative table, 0: other biases alone, -1: none; additive: scores of that kind */
    int64_t (*attention_room)(int64_t longest, int64_t size, int64_t terms, int additive);
    /* the same of linear attention and of maps to features: directions of `size` columns for random ones, size 0: none */
    int64_t (*linear_room)(int64_t heads, int64_t size, int64_t features, int64_t value_size);
} attn__kernels;

/* T5's bucket of a distance t: half / 2 buckets for single distances, the rest in equal ratios up to `furthest`; t > 0 (a key after its query)
   has buckets of its own with both_sides, and else counts as 0. buckets >= 2 (4 with both sides), furthest > half / 2. */
int64_t attn__bucket(int64_t t, int64_t buckets, int64_t furthest, int both_sides);
/* ALiBi's slope of a head */
double attn__alibi_slope(int64_t head, int64_t heads);

/* The table for this context and dtype: blas float32, reference float32 or float64 (blas with float64: UNSUPPORTED, says to use the reference
   backend), the counting table in a dry context. BLAS is tested at the first computation (3 by 2, padded leading dimensions). */
attn_status attn__kernels_for(attn_context *ctx, int32_t dtype, const attn__kernels **out);
/* The BLAS tables this machine can run, one for each instruction set, the one that is chosen first; NULL past the last. */
const attn__kernels *attn__kernels_blas(int index);
extern const attn__kernels attn__kernels_reference_float32, attn__kernels_reference_float64, attn__kernels_count;
#endif

#ifndef ATTN_KERNELS_BLAS_ATTENTION_TILE_H
#define ATTN_KERNELS_BLAS_ATTENTION_TILE_H
#include <stdatomic.h>
#include <string.h>
#include "../attention_cut.h"
#include "gemm.h"
#include "rows.h"

/* What forward and backward share: the queries of a tile meet their keys block by block. A block lies in worker scratch as
   scores [rows, keys] with `stride` floats to a row, a multiple of LANES, so that row loops need no tails. */
enum { LANES = ATTN__LANES };

typedef struct attention_job {
    const attn__attention_arguments *a;
    attn__block_map map;
    dropper drop;
    int64_t group;              /* query heads that share a key head */
    int64_t rows, keys, stride; /* most rows and keys of a block; floats from one row of scores to the next */
    int64_t key_tile;           /* most keys of a tile of the key map */
    int64_t room;               /* floats of a worker's `turned` */
    float scale, cap;           /* cap 0: none */
    int32_t *bucket_of;         /* bucket of distances -furthest .. furthest, when there is a bias by buckets */
    float *bucket_values;       /* [heads, buckets] */
    float *partial;             /* [tiles, heads, partial_floats]: gradients of the biases' tables */
    int64_t partial_floats;
    float *vector_partial; /* [tiles, heads, size]: of the additive score's vector */
    atomic_int refused;
} attention_job;

/* rows query .. query + rows of the pair's queries, keys key .. key + keys of its keys, made of one or more runs of the map */
typedef struct attention_block {
    attn__pair pair;
    int64_t head, key_head, query, rows, key, keys;
    const attn__key_run *runs;
    int64_t runs_count;
    int32_t partial, reserved; /* some run is partial */
    float *scores, *turned;    /* turned: room for keys or values on their side, or for a copy */
    float *line, *relative;    /* room for biases: a distance for each diagonal, [rows, 2 reach + 1] */
    float *turned_keys;        /* additive scores: [2 size, stride] */
    uint8_t *allowed;          /* [keys] room for the mask's answer */
} attention_block;

/* where the next block of a tile starts */
typedef struct attention_walk {
    int64_t run, end, offset;
} attention_walk;

/* a worker's scratch */
typedef struct attention_space {
    float *scores, *gradients; /* [rows, stride] each; gradients only in the backward */
    float *turned;             /* job->room */
    float *factors, *slopes;   /* of dropout and of the soft cap, one row */
    float *maximum, *sum;      /* [rows] of the online softmax */
    float *moment;             /* [rows] of entropies: sum of e^x x over the seen scores, x = score - maximum */
    float *line, *relative;    /* of biases */
    float *turned_keys;        /* of additive scores */
    uint8_t *allowed;
} attention_space;

static inline float *head_at(const view *v, int64_t row, int64_t head)
{
    return (float *)v->data + row * v->row_stride + head * v->head_stride;
}

/* LANES floats of a row, aligned or not */
typedef float attention_lanes __attribute__((vector_size(64), aligned(4), may_alias));

/* the lanes' sum, by halves */
static inline float lanes_sum(const attention_lanes *lanes)
{
    float x[LANES];
    memcpy(x, lanes, sizeof x);
    for (int i = 0; i < 8; i++) x[i] += x[i + 8];
    for (int i = 0; i < 4; i++) x[i] += x[i + 4];
    return (x[0] + x[2]) + (x[1] + x[3]);
}

/* n is a multiple of LANES and small. The zero is read through volatile because a compiler that sees it calls memset, which costs more. */
static inline void clear_lanes(float *s, int64_t n)
{
    static const volatile float nothing = 0;
    attention_lanes zero = (attention_lanes){0} + nothing;
    for (int64_t j = 0; j < n; j += LANES) *(attention_lanes *)(s + j) = zero;
}

/* asks for a row that is needed soon: rows of a head lie far apart, so the hardware does not see them coming */
static inline void fetch_row(const float *x, int64_t n)
{
    for (int64_t j = 0; j < n; j += LANES) __builtin_prefetch(x + j);
}

static inline const float *query_of(const attention_job *job, const attention_block *b)
{
    return head_at(&job->a->query, b->pair.query->start + b->query, b->head);
}

static inline const float *key_of(const attention_job *job, const attention_block *b)
{
    return head_at(&job->a->key, b->pair.key->start + b->key, b->key_head);
}

static inline const float *value_of(const attention_job *job, const attention_block *b)
{
    return head_at(&job->a->value, b->pair.key->start + b->key, b->key_head);
}

/* fills everything but the maps; block sizes follow from the lengths of the segments */
void BLAS(attention_prepare)(const attn__attention_arguments *a, attention_job *job);
attn_status BLAS(attention_map)(attn_context *ctx, attention_job *job);
attn_status BLAS(attention_reserve)(attn_context *ctx, const attention_job *job);
attention_space BLAS(attention_space)(attn_context *ctx, const attention_job *job, int32_t worker);

/* Jobs of the map are tiles times heads, numbered so that neighbours share memory: segments, then heads, then tiles. */
void BLAS(attention_place)(const attention_job *job, int64_t index, int64_t *tile, int64_t *head);
/* the pair, head and rows of a tile of the map */
attention_block BLAS(attention_tile)(const attention_job *job, int64_t tile, int64_t head, const attention_space *space,
                                     attention_walk *walk);
/* the next block of that tile: neighbouring runs together, at most job->keys keys; 0 at the end */
int BLAS(attention_next)(const attention_job *job, attention_walk *walk, attention_block *block);
/* out [rows, keys] = factor x y^T with rows x of the queries, y of the keys, both [.., size] */
void BLAS(attention_outer)(attention_job *job, const attention_block *block, int64_t size, float factor, const float *x, int64_t x_stride,
                           const float *y, int64_t y_stride, float *out);
/* scores = cap(scale Q K^T + bias); cap(s) = c tanh(s / c) */
void BLAS(attention_scores)(attention_job *job, const attention_block *block);
/* The keys that row i of the block sees lie in [*low, *high), widened to whole lanes; scores in there that are blocked or past
   the block become -inf. 0: it sees none. */
int BLAS(attention_visible)(const attention_job *job, const attention_block *block, int64_t i, int64_t *low, int64_t *high);
/* dropout's factors of row i, keys low .. high */
const float *BLAS(attention_factors)(const attention_job *job, const attention_block *block, int64_t i, int64_t low, int64_t high,
                                     float *room);

/* 1 when a partial run of the block touches rows of x that are not finite: rows of keys (by_key), else rows of queries */
int BLAS(attention_careful)(const attention_block *block, const float *x, int64_t width, int64_t stride, int by_key);
/* As attn__sgemm without transposing B. careful: NaN and infinity of a row of B reach only rows of C that have a weight for it; the others
   get the bits of any finite number in their place. turned: the block's. */
void BLAS(attention_product)(attention_job *job, int careful, int transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                             int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc, float *turned);
#endif

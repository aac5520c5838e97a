#ifndef ATTN_KERNELS_BLAS_LINEAR_ATTENTION_H
#define ATTN_KERNELS_BLAS_LINEAR_ATTENTION_H
#include "products.h"

/* Linear attention by chunks and blocks of rows, cut by shape alone. The sums over the keys of a segment and a key head,
       S = sum_j e^(l_j) k_j [v_j, 1]'   [features, value size + 1],
   are taken for each block at once, then added up along the segment (slots: one before each block and one after the last), then each block
   walks its chunks from its slot on. Inside a chunk causal products are masked matrices of CHUNK by CHUNK.
   Numbers in e^(l_j) stay small: every S is kept times e^-r, r the largest l of the keys in it (`running`). */
enum { LINEAR_CHUNK = 64, LINEAR_BLOCK = 512 };

/* rows first .. first + count of a pair's segment; slot: of the sums before them, within all slots */
typedef struct linear_block {
    int64_t pair, first, count, slot;
} linear_block;

typedef struct linear_cut {
    linear_block *blocks;
    int64_t count, *first_slot; /* first_slot: of each pair, and the end; a pair has one slot more than blocks */
} linear_cut;

typedef struct linear_job {
    attn_context *ctx;
    const attn__linear_arguments *a;
    int64_t group;                /* heads of queries for each head of keys */
    int64_t features, wide;       /* wide: value size + 1 */
    int64_t stride, slot;         /* floats of a line of sums, and of all its lines */
    linear_cut keys, queries;     /* causal: both are the same, in places of keys: query i stands at the last key it sees */
    float *sums, *back;           /* [slots of keys (of queries), key heads, features, stride] */
    float *running;               /* [key heads, key rows]: the largest l up to a key (not causal: of its segment); NULL: all 0 */
    float *start;                 /* [pairs, key heads]: the scale of what a state holds; minus infinity: nothing; NULL: all 0 */
    int32_t want_query, want_key; /* in the backward: d_query; d_key or d_value */
    atomic_int refused;
} linear_job;

/* scratch of a worker */
typedef struct linear_space {
    float *state;                 /* [features, stride] */
    float *values, *sums, *extra; /* [CHUNK, stride] */
    float *cross, *slopes;        /* [CHUNK, CHUNK] */
    float *clean;                 /* [CHUNK, the larger of features and stride] */
} linear_space;

/* One chunk of keys and the queries that stand there: rows of the tensors. */
typedef struct linear_chunk {
    int64_t key, keys, query, queries; /* queries may be 0 */
    int64_t shift;                     /* query row i of the chunk sees its keys 0 .. i + shift */
    int64_t key_head, pair, offset;    /* place of a query + offset: of its last key */
} linear_chunk;

static inline float *linear_row(const view *v, int64_t row, int64_t head)
{
    return (float *)v->data + row * v->row_stride + head * v->head_stride;
}

static inline float *linear_slot(const linear_job *job, float *sums, int64_t slot, int64_t key_head)
{
    return sums + (slot * job->a->key.heads + key_head) * job->slot;
}

/* e^(from - to), from at most to; nothing is left of minus infinity */
static inline float linear_weight(float from, float to)
{
    return from == -INFINITY ? 0.0f : attn__exp(from - to);
}

static inline float linear_running(const linear_job *job, int64_t key_head, int64_t key_row)
{
    return job->running != NULL ? job->running[key_head * job->a->key.rows + key_row] : 0;
}

static inline float linear_scale(const linear_job *job, int64_t key_head, int64_t key_row)
{
    return job->a->key_scale != NULL ? ((const float *)job->a->key_scale)[key_row * job->a->key.heads + key_head] : 0;
}

/* scratch of a worker in the backward of a map (features.c) */
int64_t BLAS(feature_room)(int64_t heads, int64_t size, int64_t features);
/* cuts, slots, running scales; back: slots of the backward too */
attn_status BLAS(linear_prepare)(attn_context *ctx, const attn__linear_arguments *a, int back, linear_job *job);
linear_space BLAS(linear_space)(const linear_job *job, int32_t worker);
/* the scale of the sums before key `first` of a pair */
float BLAS(linear_before)(const linear_job *job, int64_t pair, int64_t key_head, int64_t first);
/* fills the slots of the sums over keys; then, when all is done, the last of them goes to the state */
attn_status BLAS(linear_sums)(linear_job *job);
attn_status BLAS(linear_keep)(linear_job *job);
/* the chunk of a causal block that starts at key `first` of its segment */
linear_chunk BLAS(linear_chunk_at)(const linear_job *job, const linear_block *block, int64_t key_head, int64_t first);
/* [v, 1] of n keys from a row on, times e^(l - to) where to is given */
void BLAS(linear_values)(const linear_job *job, int64_t key_row, int64_t key_head, int64_t n, const float *to, float *out);
/* w = 0 where a key is not seen, else times e^(l_j - running_i) */
void BLAS(linear_mask)(const linear_job *job, const linear_chunk *c, float *w);
/* state of the keys before a chunk becomes that after it; values: [v, 1] as they are, scaled in place */
void BLAS(linear_advance)(linear_job *job, const linear_chunk *c, float *values, float *state);
/* out [queries, n] += w b, or [keys, n] += w' b, w masked. What is not finite in b counts where w is seen alone. */
void BLAS(linear_masked)(linear_job *job, const linear_chunk *c, int turned, const float *w, const float *b, int64_t ldb, int64_t n,
                         float *out, int64_t ldo, float *clean);
void BLAS(linear_product)(linear_job *job, int turned_a, int turned_b, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
/* 0 in the query rows that see no key */
void BLAS(linear_blind)(const linear_job *job, int64_t pair, int64_t key_head, const view *v);
#endif

/* Backward of attention. With P the weights, W = dropout(P), O = W V and D_i = dO_i . O_i:
       dV = W^T dO;  dW = dO V^T;  dS = P (dropout'(dW) - D) cap'(S);  dQ = scale dS K;  dK = scale dS^T Q.
   P comes back as e^(S - log_sum_exp). Where key segments and heads give enough jobs, one sweep by key segment computes all of it
   (five products a block); else one sweep by tiles of queries gives dQ and one by tiles of keys dK and dV (seven). */
#include "attention_additive.h"
#include "attention_bias.h"
#include "products.h"

typedef struct back_call {
    attn_context *ctx;
    attention_job job;
    attn__key_map key_map;
    float *common;                         /* D: [heads, query rows] */
    int64_t *order, *groups, groups_count; /* pairs by key segment; where in there a segment's pairs start, and the end */
    int64_t *first_tile;                   /* of each pair, and the end */
} back_call;

/* What a block adds to; NULL: not in this sweep. */
typedef struct back_targets {
    float *query, *key, *value;
    float beta_query, beta_key, beta_value; /* 0: the block is the first to write there */
    int64_t slot;                           /* of the biases' partial sums; -1: not in this sweep */
    int32_t pair, reserved;                 /* 1: the pair bias' gradient too */
} back_targets;

static void clear_rows(const view *v, int64_t first, int64_t rows, int64_t head)
{
    int64_t whole = v->width & -(int64_t)LANES;
    for (int64_t r = 0; r < rows; r++) {
        float *x = head_at(v, first + r, head);
        clear_lanes(x, whole);
        for (int64_t c = whole; c < v->width; c++) x[c] = 0;
    }
}

/* s: scores, becomes W; g: dW, becomes dS. n is a multiple of LANES. A weight of 0 has no gradient, whatever dW is: it may be NaN where
   a blocked value is. */
static void back_row(float *s, float *g, int64_t n, float log_sum_exp, float common)
{
    n &= -(int64_t)LANES;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float p = attn__exp(s[j] - log_sum_exp), slope = p * (g[j] - common);
        s[j] = p;
        g[j] = p == 0 ? 0 : slope;
    }
}

static void back_row_dropped(float *s, float *g, int64_t n, float log_sum_exp, float common, const float *factors)
{
    n &= -(int64_t)LANES;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float p = attn__exp(s[j] - log_sum_exp), slope = p * (kept(g[j], factors[j]) - common);
        s[j] = kept(p, factors[j]);
        g[j] = p == 0 ? 0 : slope;
    }
}

/* slopes of cap(x) = c tanh(x / c) at capped scores s; 0 where blocked */
static void cap_slopes(const float *s, float *slopes, int64_t n, float cap)
{
    float inverse = 1 / cap;
    n &= -(int64_t)LANES;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float t = s[j] * inverse;
        slopes[j] = s[j] == -INFINITY ? 0 : 1 - t * t;
    }
}

/* a row whose sum is NaN: its weights are NaN where it sees a key, and there only */
static float spoil_row(float *s, int64_t n, float nan)
{
    for (int64_t j = 0; j < n; j++) s[j] = s[j] == -INFINITY ? s[j] : nan;
    return 0;
}

static void back_row_of(const back_call *call, const attention_block *b, const attention_space *space, int64_t i)
{
    const attention_job *job = &call->job;
    float *s = b->scores + i * job->stride, *g = space->gradients + i * job->stride;
    int64_t at = b->head * job->a->query.rows + b->pair.query->start + b->query + i;
    int64_t low = 0, high = 0, end = tiles_of(b->keys, LANES) * LANES;
    float log_sum_exp = ((const float *)job->a->log_sum_exp)[at], common = call->common[at];
    if (log_sum_exp != -INFINITY && BLAS(attention_visible)(job, b, i, &low, &high)) {
        if (log_sum_exp != log_sum_exp) log_sum_exp = spoil_row(s + low, high - low, log_sum_exp);
        if (job->cap > 0) cap_slopes(s + low, space->slopes + low, high - low, job->cap);
        if (job->drop.on)
            back_row_dropped(s + low, g + low, high - low, log_sum_exp, common,
                             BLAS(attention_factors)(job, b, i, low, high, space->factors));
        else
            back_row(s + low, g + low, high - low, log_sum_exp, common);
        for (int64_t j = low; job->cap > 0 && j < high; j++) g[j] *= space->slopes[j];
    }
    clear_lanes(s, low);
    clear_lanes(g, low);
    clear_lanes(s + high, end - high);
    clear_lanes(g + high, end - high);
}

static void back_block(back_call *call, const attention_block *b, const attention_space *space, const back_targets *to)
{
    attention_job *job = &call->job;
    const attn__attention_arguments *a = job->a;
    const float *q = query_of(job, b), *k = key_of(job, b), *v = value_of(job, b);
    const float *d_out = head_at(&a->d_output, b->pair.query->start + b->query, b->head);
    int64_t size = a->query.width, value_size = a->value.width, stride = job->stride;
    BLAS(attention_scores)(job, b);
    BLAS(attention_outer)(job, b, value_size, 1, d_out, a->d_output.row_stride, v, a->value.row_stride, space->gradients);
    if (a->bias != NULL) BLAS(attention_bias_weights)(job, b, space->gradients);
    for (int64_t i = 0; i < b->rows; i++) back_row_of(call, b, space, i);
    if (to->value != NULL) {
        int careful = BLAS(attention_careful)(b, d_out, value_size, a->d_output.row_stride, 0);
        BLAS(attention_product)
        (job, careful, 1, b->keys, value_size, b->rows, 1, b->scores, stride, d_out, a->d_output.row_stride, to->beta_value, to->value,
         a->d_value.row_stride, b->turned);
    }
    if (a->score_vector.data != NULL) {
        BLAS(attention_additive_back)(job, b, space->gradients, to->query, to->beta_query, to->key, to->beta_key, to->slot);
    } else if (to->key != NULL) {
        int careful = BLAS(attention_careful)(b, q, size, a->query.row_stride, 0);
        BLAS(attention_product)
        (job, careful, 1, b->keys, size, b->rows, job->scale, space->gradients, stride, q, a->query.row_stride, to->beta_key, to->key,
         a->d_key.row_stride, b->turned);
    }
    if (a->score_vector.data == NULL && to->query != NULL) {
        int careful = BLAS(attention_careful)(b, k, size, a->key.row_stride, 1);
        BLAS(attention_product)
        (job, careful, 0, b->rows, size, b->keys, job->scale, space->gradients, stride, k, a->key.row_stride, to->beta_query, to->query,
         a->d_query.row_stride, b->turned);
    }
    if (a->bias == NULL) return;
    if (to->query != NULL) BLAS(attention_bias_back)(job, b, space->gradients, to->query, to->slot);
    if (to->pair) BLAS(attention_bias_pair)(job, b, space->gradients);
}

static float inner(const float *x, const float *y, int64_t n)
{
    int64_t whole = n & -(int64_t)LANES;
    attention_lanes lanes = {0};
    for (int64_t c = 0; c < whole; c += LANES) lanes += *(const attention_lanes *)(x + c) * *(const attention_lanes *)(y + c);
    float sum = lanes_sum(&lanes);
    for (int64_t c = whole; c < n; c++) sum += x[c] * y[c];
    return sum;
}

/* D of the tile's rows; on the way, what the tile's first products will read */
static void common_rows(back_call *call, const attention_block *b)
{
    const attn__attention_arguments *a = call->job.a;
    int64_t first = b->pair.query->start + b->query, keys = b->pair.key->start + b->query, end = b->pair.key->start + b->pair.key->length;
    float *common = call->common + b->head * a->query.rows + first;
    for (int64_t i = 0; i < b->rows; i++) {
        fetch_row(head_at(&a->query, first + i, b->head), a->query.width);
        if (keys + i < end) {
            fetch_row(head_at(&a->key, keys + i, b->key_head), a->key.width);
            fetch_row(head_at(&a->value, keys + i, b->key_head), a->value.width);
        }
        common[i] = inner(head_at(&a->output, first + i, b->head), head_at(&a->d_output, first + i, b->head), a->value.width);
    }
}

/* what becomes of dK and dV: another sweep's, added to, or written here for the first time */
enum { KEYS_NONE, KEYS_ADD, KEYS_WRITE };

/* one tile of queries of one head */
static void back_tile(back_call *call, int64_t tile, int64_t head, int keys, const attention_space *space)
{
    const attn__attention_arguments *a = call->job.a;
    attention_walk walk;
    attention_block b = BLAS(attention_tile)(&call->job, tile, head, space, &walk);
    int64_t first = b.pair.query->start + b.query;
    back_targets to = {head_at(&a->d_query, first, head), NULL, NULL, a->add_query ? 1 : 0, 1, 1, tile * a->query.heads + head, 0, 0};
    to.pair = a->bias != NULL && a->bias->d_pair.data != NULL && !BLAS(attention_bias_shared)(&call->job);
    if (keys == KEYS_WRITE) {
        to.beta_key = a->add_key ? 1 : 0;
        to.beta_value = a->add_value ? 1 : 0;
    }
    common_rows(call, &b);
    int met = 0;
    while (BLAS(attention_next)(&call->job, &walk, &b)) {
        met = 1;
        if (keys != KEYS_NONE) {
            to.key = head_at(&a->d_key, b.pair.key->start + b.key, b.key_head);
            to.value = head_at(&a->d_value, b.pair.key->start + b.key, b.key_head);
        }
        back_block(call, &b, space, &to);
        to.beta_query = 1;
    }
    if (!met && !a->add_query) clear_rows(&a->d_query, first, b.rows, head);
}

static void clear_keys(const attn__attention_arguments *a, int64_t first, int64_t rows, int64_t key_head)
{
    if (!a->add_key) clear_rows(&a->d_key, first, rows, key_head);
    if (!a->add_value) clear_rows(&a->d_value, first, rows, key_head);
}

/* 1 when one tile of one head meets all keys of the segment, each once: then dK and dV need not be cleared first */
static int single_tile(const back_call *call, int64_t group)
{
    int64_t pair = call->order[call->groups[group]], tile = call->first_tile[pair], keys = 0;
    if (attn__mask_by_head(call->job.a->mask)) return 0; /* heads may pass over keys */
    if (call->job.group != 1 || call->groups[group + 1] - call->groups[group] != 1 || call->first_tile[pair + 1] - tile != 1) return 0;
    const attn__tile *t = &call->job.map.tiles[tile];
    for (int64_t r = 0; r < t->runs_count; r++) keys += call->job.map.runs[t->runs_first + r].count;
    return keys == call->job.a->key_segments.at[pair].length;
}

/* a distinct key segment and a key head: pairs, heads and tiles in this order, whoever computes */
static void one_sweep(void *context, int64_t index, int32_t worker)
{
    back_call *call = context;
    const attention_job *job = &call->job;
    int64_t group = index / job->a->key.heads, key_head = index % job->a->key.heads;
    attention_space space = BLAS(attention_space)(call->ctx, job, worker);
    const attn_segment *segment = &job->a->key_segments.at[call->order[call->groups[group]]];
    int keys = single_tile(call, group) ? KEYS_WRITE : KEYS_ADD;
    if (keys == KEYS_ADD) clear_keys(job->a, segment->start, segment->length, key_head);
    for (int64_t p = call->groups[group]; p < call->groups[group + 1]; p++) {
        int64_t pair = call->order[p];
        for (int64_t head = key_head * job->group; head < (key_head + 1) * job->group; head++) {
            for (int64_t tile = call->first_tile[pair]; tile < call->first_tile[pair + 1]; tile++)
                back_tile(call, tile, head, keys, &space);
        }
    }
}

static void query_sweep(void *context, int64_t index, int32_t worker)
{
    back_call *call = context;
    attention_space space = BLAS(attention_space)(call->ctx, &call->job, worker);
    int64_t tile, head;
    BLAS(attention_place)(&call->job, index, &tile, &head);
    back_tile(call, tile, head, KEYS_NONE, &space);
}

/* the queries of one run of the key map against its tile of keys */
static void key_run(back_call *call, const attn__tile *tile, const attn__query_run *run, int64_t key_head, const attention_space *space)
{
    const attn__attention_arguments *a = call->job.a;
    attn__key_run keys = {tile->first, tile->count, run->partial};
    attention_block b = {.pair = {run->segment, &call->key_map.query.at[run->segment], &call->key_map.key.at[run->segment]},
                         .key_head = key_head};
    int64_t row = b.pair.key->start + tile->first;
    back_targets to = {NULL, head_at(&a->d_key, row, key_head), head_at(&a->d_value, row, key_head), 0, 1, 1, -1, 0, 0};
    b.key = tile->first;
    b.keys = tile->count;
    b.runs = &keys;
    b.runs_count = 1;
    b.partial = run->partial != 0;
    b.scores = space->scores;
    b.turned = space->turned;
    b.line = space->line;
    b.relative = space->relative;
    b.turned_keys = space->turned_keys;
    b.allowed = space->allowed;
    for (b.head = key_head * call->job.group; b.head < (key_head + 1) * call->job.group; b.head++) {
        for (int64_t at = 0; at < run->count; at += b.rows) {
            b.query = run->query + at;
            b.rows = least(call->job.rows, run->count - at);
            if (run->partial && attn__mask_by_head(a->mask) &&
                attn__mask_block_of_head(a->mask, &b.pair, b.head, b.query, b.rows, b.key, b.keys) == ATTN__BLOCK_NONE)
                continue;
            back_block(call, &b, space, &to);
        }
    }
}

static void key_sweep(void *context, int64_t index, int32_t worker)
{
    back_call *call = context;
    const attn__tile *tile = &call->key_map.tiles[index % call->key_map.tiles_count];
    int64_t key_head = index / call->key_map.tiles_count;
    attention_space space = BLAS(attention_space)(call->ctx, &call->job, worker);
    clear_keys(call->job.a, call->job.a->key_segments.at[tile->segment].start + tile->first, tile->count, key_head);
    for (int64_t r = 0; r < tile->runs_count; r++) key_run(call, tile, &call->key_map.runs[tile->runs_first + r], key_head, &space);
}

/* A pair bias that segments or heads share: the queries `index` of every segment and all its heads, in their order. */
static void pair_sweep(void *context, int64_t index, int32_t worker)
{
    back_call *call = context;
    attention_job *job = &call->job;
    attention_space space = BLAS(attention_space)(call->ctx, job, worker);
    int64_t own = job->a->bias->pair_extent[1], block = index / own, head_first = index % own, heads = own == 1 ? job->a->query.heads : 1;
    back_targets to = {.slot = -1, .pair = 1};
    for (int64_t pair = 0; pair < job->map.query.count; pair++) {
        int64_t tile = call->first_tile[pair] + block;
        if (tile >= call->first_tile[pair + 1]) continue;
        for (int64_t head = head_first; head < head_first + heads; head++) {
            attention_walk walk;
            attention_block b = BLAS(attention_tile)(job, tile, head, &space, &walk);
            while (BLAS(attention_next)(job, &walk, &b)) back_block(call, &b, &space, &to);
        }
    }
}

static attn_status share_pairs(back_call *call)
{
    int64_t most = 0;
    for (int64_t pair = 0; pair < call->job.map.query.count; pair++) {
        int64_t tiles = call->first_tile[pair + 1] - call->first_tile[pair];
        if (tiles > most) most = tiles;
    }
    return attn__run(call->ctx, most * call->job.a->bias->pair_extent[1], pair_sweep, call);
}

/* order, groups and first_tile: [pairs + 1] each */
static attn_status group_pairs(back_call *call)
{
    const attn__attention_arguments *a = call->job.a;
    int64_t pairs = a->key_segments.count, bytes;
    if (attn__multiply(pairs + 1, 3 * (int64_t)sizeof(int64_t), &bytes))
        return attn__fail_memory(call->ctx, ATTN_ERROR_TOO_LARGE, "pairs of segments");
    call->order = attn__scratch(call->ctx, bytes);
    if (call->order == NULL) return attn__arena_status(call->ctx->scratch);
    call->groups = call->order + pairs + 1;
    call->first_tile = call->groups + pairs + 1;
    attn__segments_order(a->key_segments, call->order);
    for (int64_t p = 0; p < pairs; p++) {
        const attn_segment *k = &a->key_segments.at[call->order[p]], *before = p > 0 ? &a->key_segments.at[call->order[p - 1]] : NULL;
        if (before == NULL || before->start != k->start || before->length != k->length) call->groups[call->groups_count++] = p;
    }
    call->groups[call->groups_count] = pairs;
    int64_t pair = 0;
    for (int64_t t = 0; t < call->job.map.tiles_count; t++)
        while (pair <= call->job.map.tiles[t].segment) call->first_tile[pair++] = t;
    while (pair <= pairs) call->first_tile[pair++] = call->job.map.tiles_count;
    return ATTN_OK;
}

static attn_status prepare(back_call *call)
{
    const attn__attention_arguments *a = call->job.a;
    int64_t floats = 0;
    if (attn__multiply(a->query.rows, a->query.heads, &floats) || attn__multiply(floats, (int64_t)sizeof(float), &floats))
        return attn__fail_memory(call->ctx, ATTN_ERROR_TOO_LARGE, "sums of the attention's backward");
    call->common = attn__scratch(call->ctx, floats);
    if (call->common == NULL) return attn__arena_status(call->ctx->scratch);
    attn_status status = BLAS(attention_map)(call->ctx, &call->job);
    if (status == ATTN_OK) status = BLAS(attention_bias_prepare)(call->ctx, &call->job, 1);
    if (status == ATTN_OK) status = BLAS(attention_additive_prepare)(call->ctx, &call->job);
    if (status == ATTN_OK) status = BLAS(attention_reserve)(call->ctx, &call->job);
    return status == ATTN_OK ? group_pairs(call) : status;
}

static attn_status two_sweeps(back_call *call)
{
    attention_job *job = &call->job;
    const attn__attention_arguments *a = job->a;
    attn_status status = attn__key_map_build(call->ctx, call->ctx->scratch, a->mask, a->query_segments, a->key_segments, job->rows,
                                             job->key_tile, &call->key_map);
    if (status == ATTN_OK) status = attn__run(call->ctx, job->map.tiles_count * a->query.heads, query_sweep, call);
    if (status == ATTN_OK) status = attn__run(call->ctx, call->key_map.tiles_count * a->key.heads, key_sweep, call);
    return status;
}

attn_status BLAS(attention_back)(attn_context *ctx, const attn__attention_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    back_call call = {.ctx = ctx};
    BLAS(attention_prepare)(a, &call.job);
    attn_status status = prepare(&call);
    if (status == ATTN_OK) {
        int one = attn__attention_one_sweep(call.groups_count, a->key.heads, call.job.map.tiles_count, call.job.map.listed);
        status = one ? attn__run(ctx, call.groups_count * a->key.heads, one_sweep, &call) : two_sweeps(&call);
        if (status == ATTN_OK && BLAS(attention_bias_shared)(&call.job)) status = share_pairs(&call);
        if (status == ATTN_OK) BLAS(attention_bias_finish)(&call.job);
        if (status == ATTN_OK) BLAS(attention_additive_finish)(&call.job);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return BLAS(product_status)(ctx, status, &call.job.refused);
}

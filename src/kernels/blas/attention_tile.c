/* Blocks of attention: which keys a tile of queries meets, their scores, and who sees what. */
#include "attention_tile.h"
#include "attention_additive.h"
#include "attention_bias.h"
#include "turn.h"

static int64_t whole_lanes(int64_t n)
{
    return tiles_of(n, LANES) * LANES;
}

static int64_t widest(const attn__attention_arguments *a)
{
    int64_t size = a->query.width > a->value.width ? a->query.width : a->value.width;
    return size > 0 ? least(size, ATTN__SMALL_PRODUCT / ATTN__TURN_ROWS) : 1; /* wider ones are never turned */
}

static int64_t stride_of(int64_t keys)
{
    return whole_lanes(keys) + (keys >= 128 ? LANES : 0); /* rows a power of two apart share few cache sets */
}

/* floats of `turned`: keys or values on their side, or a copy of a block's queries */
static int64_t turned_room(const attention_job *job, int64_t size)
{
    return size * (job->stride > job->rows ? job->stride : whole_lanes(job->rows));
}

void BLAS(attention_prepare)(const attn__attention_arguments *a, attention_job *job)
{
    const attn__attention_cut cut = attn__attention_cut_for(a);
    job->a = a;
    job->drop = BLAS(dropper_of)(&a->dropout);
    job->group = a->key.heads > 0 ? a->query.heads / a->key.heads : 1;
    job->rows = cut.rows;
    job->keys = cut.keys;
    job->key_tile = cut.key_tile;
    job->stride = stride_of(job->keys);
    job->room = turned_room(job, widest(a));
    job->scale = (float)a->scale;
    job->cap = (float)a->soft_cap;
}

attn_status BLAS(attention_map)(attn_context *ctx, attention_job *job)
{
    const attn__attention_arguments *a = job->a;
    return attn__block_map_build(ctx, ctx->scratch, a->mask, a->query_segments, a->key_segments, job->rows, ATTN__KEY_BLOCK, &job->map);
}

/* floats of factors: a row of keys, what aligning to 4 adds, and the 64 that are drawn at once */
static int64_t factors_room(const attention_job *job)
{
    return job->stride + 2 * 64;
}

/* bytes of an attention_space; room: floats of biases and additive scores */
static int64_t space_bytes(const attention_job *job, int64_t size, int64_t room)
{
    int64_t floats = 2 * job->rows * job->stride + turned_room(job, size) + factors_room(job) + job->stride + 3 * whole_lanes(job->rows);
    return (floats + room) * (int64_t)sizeof(float) + job->stride;
}

attn_status BLAS(attention_reserve)(attn_context *ctx, const attention_job *job)
{
    return attn__worker_scratch_reserve(
        ctx, space_bytes(job, widest(job->a), BLAS(attention_bias_room)(job) + BLAS(attention_additive_room)(job)));
}

/* Tiles are no taller than the longest segment; past TALL queries no other kind of tile comes but the one of the longest. */
int64_t BLAS(attention_room)(int64_t longest, int64_t size, int64_t terms, int additive)
{
    enum { TALL = 64 };
    int64_t most = 0;
    for (int64_t i = 1; i <= least(longest, TALL + 1); i++) {
        const attn__attention_cut cut = attn__attention_cut_of(i <= TALL ? i : longest, longest, size);
        const attention_job job = {.rows = cut.rows, .keys = cut.keys, .stride = stride_of(cut.keys)};
        const int64_t biases = terms < 0 ? 0 : job.rows + job.stride + job.rows * terms;
        int64_t bytes = space_bytes(&job, size, biases + (additive ? 2 * size * job.stride : 0));
        if (bytes > most) most = bytes;
    }
    return most;
}

attention_space BLAS(attention_space)(attn_context *ctx, const attention_job *job, int32_t worker)
{
    attention_space space;
    space.scores = attn__worker_scratch(ctx, worker);
    space.gradients = space.scores + job->rows * job->stride;
    space.turned = space.gradients + job->rows * job->stride;
    space.factors = space.turned + job->room;
    space.slopes = space.factors + factors_room(job);
    space.maximum = space.slopes + job->stride;
    space.sum = space.maximum + whole_lanes(job->rows);
    space.moment = space.sum + whole_lanes(job->rows);
    float *after = space.moment + whole_lanes(job->rows);
    BLAS(attention_bias_space)(job, after, &space);
    space.turned_keys = after + BLAS(attention_bias_room)(job);
    space.allowed = (uint8_t *)(space.turned_keys + BLAS(attention_additive_room)(job));
    return space;
}

void BLAS(attention_place)(const attention_job *job, int64_t index, int64_t *tile, int64_t *head)
{
    int64_t some = index / job->a->query.heads; /* a tile of the right segment */
    const attn__tile *t = &job->map.tiles[some];
    int64_t first = some - t->first / job->rows, tiles = tiles_of(job->map.query.at[t->segment].length, job->rows);
    int64_t rest = index - first * job->a->query.heads;
    *tile = first + rest % tiles;
    *head = rest / tiles;
}

attention_block BLAS(attention_tile)(const attention_job *job, int64_t tile, int64_t head, const attention_space *space,
                                     attention_walk *walk)
{
    const attn__tile *t = &job->map.tiles[tile];
    attention_block b = {.pair = {t->segment, &job->map.query.at[t->segment], &job->map.key.at[t->segment]}, .head = head};
    b.key_head = head / job->group;
    b.query = t->first;
    b.rows = t->count;
    b.scores = space->scores;
    b.turned = space->turned;
    b.line = space->line;
    b.relative = space->relative;
    b.turned_keys = space->turned_keys;
    b.allowed = space->allowed;
    *walk = (attention_walk){t->runs_first, t->runs_first + t->runs_count, 0};
    return b;
}

/* a run that other heads see and this one does not */
static int hidden(const attention_job *job, const attention_block *b, const attn__key_run *run)
{
    return run->partial && attn__mask_by_head(job->a->mask) &&
           attn__mask_block_of_head(job->a->mask, &b->pair, b->head, b->query, b->rows, run->key, run->count) == ATTN__BLOCK_NONE;
}

int BLAS(attention_next)(const attention_job *job, attention_walk *walk, attention_block *b)
{
    const attn__key_run *runs = job->map.runs;
    while (walk->run != walk->end && hidden(job, b, &runs[walk->run])) walk->run++;
    if (walk->run == walk->end) return 0;
    b->runs = runs + walk->run;
    b->key = b->runs->key + walk->offset;
    b->keys = 0;
    b->runs_count = 0;
    b->partial = 0;
    while (walk->run < walk->end && b->keys < job->keys && runs[walk->run].key + walk->offset == b->key + b->keys &&
           !hidden(job, b, &runs[walk->run])) {
        const attn__key_run *run = &runs[walk->run];
        int64_t n = least(run->count - walk->offset, job->keys - b->keys);
        b->keys += n;
        b->runs_count++;
        b->partial |= run->partial != 0;
        walk->offset += n;
        if (walk->offset < run->count) break;
        walk->run++;
        walk->offset = 0;
    }
    return 1;
}

void BLAS(attention_outer)(attention_job *job, const attention_block *b, int64_t size, float factor, const float *x, int64_t x_stride,
                           const float *y, int64_t y_stride, float *out)
{
    int turn = b->rows >= ATTN__TURN_ROWS && b->rows * b->keys * size <= ATTN__SMALL_PRODUCT;
    if (turn) {
        BLAS(turn)(y, b->keys, size, y_stride, b->turned, job->stride);
        y = b->turned;
        y_stride = job->stride;
    }
    if (attn__sgemm(0, !turn, b->rows, b->keys, size, factor, x, x_stride, y, y_stride, 0, out, job->stride))
        atomic_store(&job->refused, 1);
}

void BLAS(attention_scores)(attention_job *job, const attention_block *b)
{
    const attn__attention_arguments *a = job->a;
    if (a->score_vector.data != NULL)
        BLAS(attention_additive_scores)(job, b);
    else
        BLAS(attention_outer)
    (job, b, a->query.width, job->scale, query_of(job, b), a->query.row_stride, key_of(job, b), a->key.row_stride, b->scores);
    if (a->bias != NULL) BLAS(attention_bias_scores)(job, b);
    for (int64_t i = 0; i < b->rows && attn__mask_has_values(a->mask); i++)
        attn__mask_add_values(a->mask, &b->pair, b->head, b->query + i, b->key, b->keys, b->scores + i * job->stride);
    if (!(job->cap > 0)) return;
    float cap = job->cap, inverse = 1 / cap;
    for (int64_t i = 0; i < b->rows; i++) {
        float *s = b->scores + i * job->stride;
#pragma omp simd
        for (int64_t j = 0; j < b->keys; j++) s[j] = cap * attn__tanh(s[j] * inverse);
    }
}

static void block_out(float *s, int64_t first, int64_t end)
{
    for (int64_t j = first; j < end; j++) s[j] = -INFINITY;
}

/* what is not in first .. end of the LANES scores at place `at` of the row */
static void trim_lanes(float *s, int64_t at, int64_t first, int64_t end)
{
    int32_t from = (int32_t)(first > at ? first - at : 0), to = (int32_t)least(end - at, LANES);
#pragma omp simd
    for (int32_t l = 0; l < LANES; l++) s[at + l] = l >= from && l < to ? s[at + l] : -INFINITY;
}

/* keys of one run that row i sees, relative to the block; 0: none */
static int visible_in_run(const attention_job *job, const attention_block *b, const attn__key_run *run, int64_t i, int64_t *low,
                          int64_t *high)
{
    int64_t first = run->key > b->key ? run->key : b->key, end = least(run->key + run->count, b->key + b->keys);
    int64_t from = first - b->key, to = end - b->key;
    if (run->partial) {
        float *s = b->scores + i * job->stride + from;
        int listed = attn__mask_row(job->a->mask, &b->pair, b->head, b->query + i, first, end - first, low, high, b->allowed);
        for (int64_t j = *low; listed && j < *high; j++) s[j] = b->allowed[j] ? s[j] : -INFINITY;
        to = from + *high;
        from += *low;
    }
    *low = from;
    *high = to;
    return from < to;
}

int BLAS(attention_visible)(const attention_job *job, const attention_block *b, int64_t i, int64_t *low, int64_t *high)
{
    float *s = b->scores + i * job->stride;
    int64_t first = 0, end = b->partial ? 0 : b->keys;
    for (int64_t r = 0; b->partial && r < b->runs_count; r++) {
        int64_t from, to;
        if (!visible_in_run(job, b, &b->runs[r], i, &from, &to)) continue;
        if (end == 0)
            first = from;
        else
            block_out(s, end, from);
        end = to;
    }
    if (end == 0) return 0;
    *low = first / LANES * LANES;
    *high = whole_lanes(end);
    if (first > *low) trim_lanes(s, *low, first, end);
    if (end < *high) trim_lanes(s, *high - LANES, first, end);
    return 1;
}

const float *BLAS(attention_factors)(const attention_job *job, const attention_block *b, int64_t i, int64_t low, int64_t high, float *room)
{
    int64_t column = b->pair.key->first_position + b->key + low, shift = column & 3;
    BLAS(dropper_weights)
    (&job->drop, b->pair.query->sequence_id, b->pair.query->first_position + b->query + i, (uint32_t)(1 + b->head), column - shift,
     high - low + shift, room);
    return room + shift;
}

#include <math.h>
#include <string.h>
#include "real.h"

/* Linear attention as its recurrence, one segment and key head after the other: S += e^(l_j) k_j [v_j, 1]', q_i S. S is kept times
   e^-r, r the largest l in it, and [features, value size + 1] in size. */
typedef struct linear_walk {
    const attn__linear_arguments *a;
    const attn_segment *query, *key;
    int64_t pair, key_head, group, offset, features, wide; /* query i sees keys up to i + offset when causal */
    double *sums, *running, scale;                         /* running: [keys], the largest l up to each; scale: r */
    double *gradient;                                      /* [wide] */
    int blind;                                             /* 1: queries come that see no key, or keys that none sees */
} linear_walk;

static double weight(double from, double to)
{
    return from == -INFINITY ? 0 : exp(from - to);
}

static double scale_at(const linear_walk *w, int64_t j)
{
    if (w->a->key_scale == NULL) return 0;
    return (double)((const real *)w->a->key_scale)[(w->key->start + j) * w->a->key.heads + w->key_head];
}

static real *state_of(const linear_walk *w)
{
    if (w->a->state == NULL) return NULL;
    return (real *)w->a->state + (w->pair * w->a->key.heads + w->key_head) * (w->features + 1) * w->wide;
}

static void rescale(linear_walk *w, double factor)
{
    for (int64_t c = 0; factor != 1 && c < w->features * w->wide; c++) w->sums[c] *= factor;
}

/* zeros, or what the state holds; and the running scales */
static void open_walk(linear_walk *w)
{
    const real *state = state_of(w), *line = state != NULL ? state + w->features * w->wide : NULL;
    double most;
    w->scale = w->a->key_scale == NULL ? 0 : -INFINITY;
    if (line != NULL && (double)line[w->wide - 1] > 0) w->scale = (double)line[0];
    for (int64_t c = 0; c < w->features * w->wide; c++) w->sums[c] = state != NULL ? (double)state[c] : 0;
    most = w->scale;
    for (int64_t j = 0; j < w->key->length; j++) {
        if (!(scale_at(w, j) <= most)) most = scale_at(w, j);
        w->running[j] = most;
    }
    for (int64_t j = 0; !w->a->causal && j < w->key->length; j++) w->running[j] = most;
}

static void take_key(linear_walk *w, int64_t j)
{
    const real *key = head_of(&w->a->key, w->key->start + j, w->key_head), *value = head_of(&w->a->value, w->key->start + j, w->key_head);
    double factor = weight(scale_at(w, j), w->running[j]);
    rescale(w, weight(w->scale, w->running[j]));
    w->scale = w->running[j];
    for (int64_t f = 0; f < w->features; f++) {
        for (int64_t c = 0; c < w->wide; c++)
            w->sums[f * w->wide + c] += factor * (double)key[f] * (c < w->wide - 1 ? (double)value[c] : 1);
    }
}

static void close_walk(linear_walk *w)
{
    real *state = state_of(w);
    if (state == NULL || w->key->length == 0) return;
    real *line = state + w->features * w->wide;
    for (int64_t c = 0; c < w->features * w->wide; c++) state[c] = (real)w->sums[c];
    for (int64_t c = 1; c < w->wide - 1; c++) line[c] = 0;
    line[0] = (real)w->scale;
    line[w->wide - 1] += (real)w->key->length;
}

static double query_sum(const linear_walk *w, const real *query, int64_t c)
{
    double sum = 0;
    for (int64_t f = 0; f < w->features; f++) sum += (double)query[f] * w->sums[f * w->wide + c];
    return sum;
}

/* all heads of query i, with the sums as they are */
static void answer(linear_walk *w, int64_t i)
{
    int64_t row = w->query->start + i;
    for (int64_t h = w->key_head * w->group; h < (w->key_head + 1) * w->group; h++) {
        const real *query = head_of(&w->a->query, row, h);
        double below = w->blind ? 0 : query_sum(w, query, w->wide - 1);
        for (int64_t c = 0; c < w->wide - 1; c++)
            head_of(&w->a->output, row, h)[c] = (real)((real)below != 0 ? query_sum(w, query, c) / below : 0);
        if (w->a->normaliser != NULL) ((real *)w->a->normaliser)[h * w->a->query.rows + row] = (real)below;
    }
}

/* [dy, -dy . y] / normaliser */
static const double *load_gradient(linear_walk *w, int64_t row, int64_t head)
{
    const real *dy = head_of(&w->a->d_output, row, head), *y = head_of(&w->a->output, row, head);
    double below = (double)((const real *)w->a->normaliser)[head * w->a->query.rows + row], dot = 0;
    for (int64_t c = 0; c < w->wide; c++) {
        if (c < w->wide - 1) dot += (double)dy[c] * (double)y[c];
        w->gradient[c] = below == 0 ? 0 : c < w->wide - 1 ? (double)dy[c] / below : -dot / below;
    }
    return w->gradient;
}

static void query_back(linear_walk *w, int64_t i)
{
    for (int64_t h = w->key_head * w->group; h < (w->key_head + 1) * w->group; h++) {
        const double *g = load_gradient(w, w->query->start + i, h);
        real *dq = head_of(&w->a->d_query, w->query->start + i, h);
        for (int64_t f = 0; f < w->features; f++) {
            double sum = 0;
            for (int64_t c = 0; c < w->wide && !w->blind; c++) sum += w->sums[f * w->wide + c] * g[c];
            put(&dq[f], sum, w->a->add_query);
        }
    }
}

typedef void query_step(linear_walk *w, int64_t i);

/* keys from the first to the last, each query once it has those it sees */
static void walk_forward(linear_walk *w, query_step *step)
{
    int64_t queries = w->query->length, keys = w->key->length, next = 0;
    open_walk(w);
    for (int64_t j = -1; j < keys; j++) {
        w->blind = j < 0;
        if (j >= 0) take_key(w, j);
        while (next < queries && (w->a->causal ? next + w->offset <= j : j == keys - 1)) step(w, next++);
    }
    close_walk(w);
}

/* sums over the queries: Q' G */
static void take_query(linear_walk *w, int64_t i)
{
    for (int64_t h = w->key_head * w->group; h < (w->key_head + 1) * w->group; h++) {
        const real *query = head_of(&w->a->query, w->query->start + i, h);
        const double *g = load_gradient(w, w->query->start + i, h);
        for (int64_t f = 0; f < w->features; f++) {
            for (int64_t c = 0; c < w->wide; c++) w->sums[f * w->wide + c] += (double)query[f] * g[c];
        }
    }
}

static void key_back(linear_walk *w, int64_t j)
{
    int64_t row = w->key->start + j, size = w->wide - 1;
    const real *key = head_of(&w->a->key, row, w->key_head), *value = head_of(&w->a->value, row, w->key_head);
    double factor = weight(scale_at(w, j), w->scale);
    for (int64_t f = 0; w->a->d_key.data != NULL && f < w->features; f++) {
        double sum = w->sums[f * w->wide + size];
        for (int64_t c = 0; c < size; c++) sum += w->sums[f * w->wide + c] * (double)value[c];
        put(&head_of(&w->a->d_key, row, w->key_head)[f], w->blind ? 0 : factor * sum, w->a->add_key);
    }
    for (int64_t c = 0; w->a->d_value.data != NULL && c < size; c++)
        put(&head_of(&w->a->d_value, row, w->key_head)[c], w->blind ? 0 : factor * query_sum(w, key, c), w->a->add_value);
}

/* queries and keys from the last to the first; the scale of the sums is the running one, which shrinks */
static void walk_back(linear_walk *w)
{
    int64_t keys = w->key->length;
    open_walk(w);
    memset(w->sums, 0, (size_t)(w->features * w->wide) * sizeof *w->sums);
    for (int64_t i = 0; !w->a->causal && i < w->query->length; i++) take_query(w, i);
    w->scale = keys > 0 ? w->running[keys - 1] : 0;
    w->blind = w->query->length == 0; /* a key that no query sees may be no number */
    for (int64_t j = keys - 1; j >= 0; j--) {
        rescale(w, weight(w->running[j], w->scale));
        w->scale = w->running[j];
        if (w->a->causal && j >= w->offset) take_query(w, j - w->offset);
        key_back(w, j);
    }
}

static attn_status make_walk(attn_context *ctx, const attn__linear_arguments *a, linear_walk *w)
{
    int64_t longest = 0;
    for (int64_t s = 0; s < a->key_segments.count; s++)
        if (a->key_segments.at[s].length > longest) longest = a->key_segments.at[s].length;
    *w = (linear_walk){.a = a, .features = a->query.width, .wide = a->value.width + 1};
    w->group = a->key.heads > 0 ? a->query.heads / a->key.heads : 0;
    w->sums = REFERENCE(doubles)(ctx, w->features * w->wide);
    w->running = w->sums != NULL ? REFERENCE(doubles)(ctx, longest) : NULL;
    w->gradient = w->running != NULL ? REFERENCE(doubles)(ctx, w->wide) : NULL;
    return w->gradient != NULL ? ATTN_OK : scratch_status(ctx);
}

static void enter_pair(linear_walk *w, int64_t index)
{
    w->pair = index / w->a->key.heads;
    w->key_head = index % w->a->key.heads;
    w->query = &w->a->query_segments.at[w->pair];
    w->key = &w->a->key_segments.at[w->pair];
    w->offset = w->key->length - w->query->length;
}

attn_status REFERENCE(linear_attention)(attn_context *ctx, const attn__linear_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    linear_walk w;
    attn_status status = make_walk(ctx, a, &w);
    for (int64_t i = 0; status == ATTN_OK && i < a->key_segments.count * a->key.heads; i++) {
        enter_pair(&w, i);
        walk_forward(&w, answer);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

attn_status REFERENCE(linear_attention_back)(attn_context *ctx, const attn__linear_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    linear_walk w;
    attn_status status = make_walk(ctx, a, &w);
    for (int64_t i = 0; status == ATTN_OK && i < a->key_segments.count * a->key.heads; i++) {
        enter_pair(&w, i);
        if (a->d_query.data != NULL) walk_forward(&w, query_back);
        if (a->d_key.data != NULL || a->d_value.data != NULL) walk_back(&w);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* no worker scratch: everything is in the arena */
int64_t REFERENCE(linear_room)(int64_t heads, int64_t size, int64_t features, int64_t value_size)
{
    (void)heads, (void)size, (void)features, (void)value_size;
    return 0;
}

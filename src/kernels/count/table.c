#include "../attention_cut.h"
#include "count.h"

/* The table of a dry context: every entry adds the multiply-adds of its products and the bytes it reads and writes to
   ctx->counts, and touches no data. So the cost of a model comes from the same forward and backward code that runs it. What a kernel
   takes of the scratch for itself is taken here too, so that its peak is known. */

/* how the kernels on BLAS cut sums: a long row into parts of so many columns, rows into so many parts at most */
enum { PART = 16384, PARTIALS = 64 };

/* the reference computes in rows of double, of which this many live at once */
static attn_status reference_rows(attn_context *ctx, int64_t rows, int64_t width)
{
    return ctx->backend == ATTN_BACKEND_REFERENCE ? borrowed(ctx, rows, width + 8, (int64_t)sizeof(double)) : ATTN_OK;
}

static attn_status count_linear(attn_context *ctx, const view *x, const view *w, const view *b, const attn__activation *act,
                                const attn__dropout *drop, view *y, view *u)
{
    (void)act, (void)drop;
    products(ctx, x->rows, w->rows, w->width);
    moved(ctx, x, 1), moved(ctx, w, 1), moved(ctx, b, 1), moved(ctx, y, 1), moved(ctx, u, 1);
    return ATTN_OK;
}

static attn_status count_linear_d_input(attn_context *ctx, const view *dy, const view *w, int add, view *dx)
{
    products(ctx, dy->rows, w->rows, w->width);
    moved(ctx, dy, 1), moved(ctx, w, 1), stored(ctx, dx, add);
    return ATTN_OK;
}

static attn_status count_linear_d_weight(attn_context *ctx, const view *dy, const view *x, view *dw, view *db)
{
    if (dw != NULL) products(ctx, dy->rows, dy->width, x->width);
    moved(ctx, dy, 1), moved(ctx, dw != NULL ? x : NULL, 1), stored(ctx, dw, 1), stored(ctx, db, 1);
    return ATTN_OK;
}

static attn_status count_activation(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop, view *y)
{
    (void)act, (void)drop;
    moved(ctx, u, 1), moved(ctx, y, 1);
    return ATTN_OK;
}

static attn_status count_activation_back(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop,
                                         const view *dy, int add, view *du, view *dbeta)
{
    (void)act, (void)drop;
    moved(ctx, u, 1), moved(ctx, dy, 1), stored(ctx, du, add), stored(ctx, dbeta, 1);
    return dbeta != NULL ? borrowed(ctx, u->rows, u->width / PART + 1, (int64_t)sizeof(double)) : ATTN_OK;
}

static attn_status count_gate_back(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop, const view *dy,
                                   view *du, view *dbeta)
{
    return count_activation_back(ctx, act, u, drop, dy, 0, du, dbeta);
}

static attn_status count_residual_norm(attn_context *ctx, const view *x, const view *s, const attn__dropout *drop, int32_t norm,
                                       double epsilon, const view *gain, const view *shift, view *r, view *y, void *statistics)
{
    (void)drop, (void)norm, (void)epsilon, (void)statistics;
    moved(ctx, x, 1), moved(ctx, s, 1), moved(ctx, gain, 1), moved(ctx, shift, 1), moved(ctx, s != NULL ? r : NULL, 1), moved(ctx, y, 1);
    return ATTN_OK;
}

static attn_status count_residual_norm_back(attn_context *ctx, const view *dy, const view *dr_in, const view *r, const void *statistics,
                                            const attn__dropout *drop, int32_t norm, const view *gain, view *dr, view *ds, view *dgain,
                                            view *dshift)
{
    (void)statistics, (void)drop, (void)norm;
    moved(ctx, dy, 1), moved(ctx, dr_in, 1), moved(ctx, r, 1), moved(ctx, gain, 1), moved(ctx, dr, 1), moved(ctx, ds, 1);
    stored(ctx, dgain, 1), stored(ctx, dshift, 1);
    int64_t partials = dy->rows < PARTIALS ? dy->rows : PARTIALS;
    return dgain != NULL || dshift != NULL ? borrowed(ctx, partials, 2 * dy->heads * dy->width, (int64_t)sizeof(double)) : ATTN_OK;
}

static attn_status count_residual(attn_context *ctx, const view *x, const view *s, const attn__dropout *drop, view *r)
{
    (void)drop;
    moved(ctx, x, 1), moved(ctx, s, 1), moved(ctx, r, 1);
    return ATTN_OK;
}

static attn_status list_blocks(attn_context *ctx, const attn__attention_arguments *a, attn__attention_cut cut, attn__block_map *map)
{
    return attn__block_map_build(ctx, ctx->scratch, a->mask, a->query_segments, a->key_segments, cut.rows, ATTN__KEY_BLOCK, map);
}

/* of a score; additive ones are no product. Those with tables of relative positions are not counted: cost.h says so. */
static int64_t score_size(const attn__attention_arguments *a)
{
    return a->score_vector.data != NULL ? 0 : a->query.width;
}

/* what tables of positions and the vector of additive scores take: values of buckets, and sums of gradients for each tile and head */
static attn_status borrow_biases(attn_context *ctx, const attn__attention_arguments *a, int64_t tiles)
{
    const attn__attention_bias *bias = a->bias;
    const int64_t heads = a->query.heads, number = (int64_t)sizeof(float);
    int64_t bytes = 0;
    attn_status status = ATTN_OK;
    if (ctx->backend == ATTN_BACKEND_REFERENCE) return ATTN_OK;
    grow(&bytes, tiles, heads, number);
    if (a->d_score_vector.data != NULL) status = borrow(ctx, bytes, a->query.width, 1);
    if (status != ATTN_OK || bias == NULL) return status;
    const int64_t terms = 2 * bias->reach + 1;
    int64_t floats = bias->d_distance.data != NULL ? bias->distance.rows : 0;
    if (bias->distance_kind == ATTN__DISTANCE_BUCKETS) {
        status = borrow(ctx, 2 * bias->furthest + 1, (int64_t)sizeof(int32_t), 1);
        if (status == ATTN_OK) status = borrow(ctx, heads, bias->distance.rows, number);
    }
    if (bias->d_relative_keys.data != NULL) grow(&floats, terms, a->query.width, 1);
    if (bias->d_relative_values.data != NULL) grow(&floats, terms, a->value.width, 1);
    return status == ATTN_OK && floats > 0 ? borrow(ctx, bytes, floats, 1) : status;
}

/* scores and output: size + value size for each pair of a query and a key in listed blocks */
static attn_status count_attention(attn_context *ctx, const attn__attention_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn__block_map map;
    attn_status status = reference_rows(ctx, 5, a->key_segments.rows);
    if (status == ATTN_OK) status = list_blocks(ctx, a, attn__attention_cut_for(a), &map);
    if (status == ATTN_OK) status = borrow_biases(ctx, a, 0);
    if (status == ATTN_OK) products(ctx, map.listed, score_size(a) + a->value.width, a->query.heads);
    moved(ctx, &a->query, 1), moved(ctx, &a->key, 1), moved(ctx, &a->value, 1), moved(ctx, &a->output, 1);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* Distinct key segments. Segments mostly come in order; only then is one look at the one before enough. */
static int64_t distinct(attn__segments keys)
{
    int64_t count = keys.count, sorted = 1;
    for (int64_t i = 1; i < keys.count && sorted; i++) {
        const attn_segment *k = &keys.at[i], *before = k - 1;
        sorted = before->start < k->start || (before->start == k->start && before->length <= k->length);
    }
    for (int64_t i = 1; i < keys.count; i++) {
        int64_t j = i - 1;
        while (j >= 0 && (keys.at[j].start != keys.at[i].start || keys.at[j].length != keys.at[i].length)) j = sorted ? -1 : j - 1;
        count -= j >= 0;
    }
    return count;
}

/* scores again, d query, d key (size each), d weights, d value (value size each): five products. In two sweeps scores and d weights come
   twice, the second time by tiles of keys: seven. */
static attn_status count_sweeps(attn_context *ctx, const attn__attention_arguments *a, const attn__block_map *map, attn__attention_cut cut)
{
    int64_t size = score_size(a), value_size = a->value.width;
    attn__key_map keys;
    if (attn__attention_one_sweep(distinct(a->key_segments), a->key.heads, map->tiles_count, map->listed)) {
        products(ctx, map->listed, 3 * size + 2 * value_size, a->query.heads);
        return ATTN_OK;
    }
    attn_status status = attn__key_map_build(ctx, ctx->scratch, a->mask, a->query_segments, a->key_segments, cut.rows, cut.key_tile, &keys);
    if (status != ATTN_OK) return status;
    products(ctx, map->listed, 2 * size + value_size, a->query.heads);
    products(ctx, keys.listed, 2 * size + 2 * value_size, a->query.heads);
    return ATTN_OK;
}

static attn_status count_attention_back(attn_context *ctx, const attn__attention_arguments *a)
{
    const attn__attention_cut cut = attn__attention_cut_for(a);
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn__block_map map;
    moved(ctx, &a->query, 1), moved(ctx, &a->key, 1), moved(ctx, &a->value, 1), moved(ctx, &a->output, 1), moved(ctx, &a->d_output, 1);
    stored(ctx, &a->d_query, a->add_query), stored(ctx, &a->d_key, a->add_key), stored(ctx, &a->d_value, a->add_value);
    attn_status status = reference_rows(ctx, 5 + a->query.heads * (2 * a->query.width + a->value.width), a->query.rows + a->key.rows);
    if (status == ATTN_OK) status = borrow(ctx, a->query.rows, a->query.heads, (int64_t)sizeof(float));      /* inner products of rows */
    if (status == ATTN_OK) status = borrow(ctx, a->key_segments.count + 1, 4 * (int64_t)sizeof(int64_t), 1); /* pairs by key segment */
    if (status == ATTN_OK) status = list_blocks(ctx, a, cut, &map);
    if (status == ATTN_OK) status = borrow_biases(ctx, a, map.tiles_count);
    if (status == ATTN_OK) status = count_sweeps(ctx, a, &map, cut);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

static attn_status count_attention_weights(attn_context *ctx, const attn__attention_arguments *a, const attn__weights_part *part,
                                           view *weights)
{
    int64_t scores = 0;
    grow(&scores, weights->rows, a->key_segments.at[part->pair].length, score_size(a));
    products(ctx, scores, weights->heads, 1);
    moved(ctx, &a->query, 1), moved(ctx, &a->key, 1), moved(ctx, weights, 1);
    return ATTN_OK;
}

static attn_status count_softmax(attn_context *ctx, const view *x, int log, view *y)
{
    (void)log;
    moved(ctx, x, 1), moved(ctx, y, 1);
    return reference_rows(ctx, 1, x->width);
}

static attn_status count_softmax_back(attn_context *ctx, const view *y, int log, const view *dy, int add, view *dx)
{
    (void)log;
    moved(ctx, y, 1), moved(ctx, dy, 1), stored(ctx, dx, add);
    return ATTN_OK;
}

static attn_status count_embed(attn_context *ctx, const view *tokens, const view *table, const view *x, double scale, int32_t kind,
                               const view *positions, attn__places places, const attn__dropout *drop, view *y)
{
    (void)table, (void)scale, (void)places, (void)drop;
    moved(ctx, tokens, 1), moved(ctx, tokens != NULL ? y : x, 1); /* of the table, as much as is written */
    moved(ctx, kind == ATTN_POSITIONS_LEARNED && positions != NULL ? y : NULL, 1), moved(ctx, y, 1);
    /* waves of each column, and a table of as many positions as rows at most */
    return kind == ATTN_POSITIONS_SINUSOIDAL ? borrowed(ctx, y->rows + 8, y->width + 32, (int64_t)sizeof(float)) : ATTN_OK;
}

static attn_status count_embed_back(attn_context *ctx, const view *tokens, double scale, attn__places places, const attn__dropout *drop,
                                    const view *dy, view *dtable, view *dpositions, int add, view *dx)
{
    (void)scale, (void)places, (void)drop;
    moved(ctx, tokens, 1), moved(ctx, dy, 1), stored(ctx, dx, add);
    moved(ctx, dtable != NULL ? dy : NULL, 2), moved(ctx, dpositions != NULL ? dy : NULL, 2);
    /* rows in the order of their lines */
    int64_t lines = dtable != NULL ? dtable->rows : 0;
    if (dpositions != NULL && dpositions->rows > lines) lines = dpositions->rows;
    attn_status status = reference_rows(ctx, 1, dy->width);
    if (status != ATTN_OK || lines == 0) return status;
    return borrowed(ctx, lines + dy->rows + 18, (int64_t)sizeof(int64_t), 1);
}

static attn_status count_loss(attn_context *ctx, view *logits, const view *labels, double smoothing, int32_t form, int64_t ignored,
                              int gradient, attn__loss_sums *sums)
{
    (void)smoothing, (void)form, (void)ignored;
    moved(ctx, logits, gradient ? 2 : 1), moved(ctx, labels, 1);
    *sums = (attn__loss_sums){.count = logits->rows};
    attn_status status = reference_rows(ctx, 1, logits->width);
    return status == ATTN_OK ? borrowed(ctx, logits->rows, (int64_t)sizeof *sums, 1) : status;
}

static attn_status count_rotate(attn_context *ctx, const view *x, const attn__rotary *rotary, int back, int add, view *y)
{
    (void)rotary, (void)back;
    moved(ctx, x, 1), stored(ctx, y, add);
    return ATTN_OK;
}

static attn_status count_feature_map(attn_context *ctx, const view *x, const attn__features *features, void *log_scale, view *y)
{
    (void)log_scale;
    products(ctx, x->rows * x->heads, features->directions.rows, x->width);
    moved(ctx, x, 1), moved(ctx, y, 1);
    return ATTN_OK;
}

static attn_status count_feature_map_back(attn_context *ctx, const view *x, const attn__features *features, const view *y, const view *dy,
                                          int add, view *dx)
{
    products(ctx, x->rows * x->heads, features->directions.rows, x->width);
    moved(ctx, x, 1), moved(ctx, y, 1), moved(ctx, dy, 1), stored(ctx, dx, add);
    return ATTN_OK;
}

static void count_projected(attn_context *ctx, const view *x, const view *e, attn__segments segments, int64_t times)
{
    for (int64_t s = 0; s < segments.count; s++) products(ctx, segments.at[s].length, e->rows * times, x->heads * x->width);
}

static attn_status count_sequence_project(attn_context *ctx, const view *x, const view *e, attn__segments segments, view *y)
{
    count_projected(ctx, x, e, segments, 1);
    moved(ctx, x, 1), moved(ctx, e, segments.count), moved(ctx, y, 1);
    return ATTN_OK;
}

static attn_status count_sequence_project_back(attn_context *ctx, const view *x, const view *e, attn__segments segments, const view *dy,
                                               int add, view *dx, view *de)
{
    count_projected(ctx, x, e, segments, (dx != NULL) + (de != NULL));
    moved(ctx, dx != NULL ? e : NULL, segments.count), moved(ctx, de != NULL ? x : NULL, 1), moved(ctx, dy, 1);
    stored(ctx, dx, add), stored(ctx, de, 1);
    return ATTN_OK;
}

static attn_status count_dropout(attn_context *ctx, const view *x, const attn__dropout *drop, int add, view *y)
{
    (void)drop;
    moved(ctx, x, 1), stored(ctx, y, add);
    return ATTN_OK;
}

static attn_status count_add(attn_context *ctx, const view *a, const view *b, view *y)
{
    moved(ctx, a, 1), moved(ctx, b, 1), moved(ctx, y, 1);
    return ATTN_OK;
}

static attn_status count_multiply(attn_context *ctx, const view *a, const view *b, int add, view *y)
{
    moved(ctx, a, 1), moved(ctx, b, 1), stored(ctx, y, add);
    return ATTN_OK;
}

static attn_status count_copy(attn_context *ctx, const view *x, int add, view *y)
{
    moved(ctx, x, 1), stored(ctx, y, add);
    return ATTN_OK;
}

static attn_status count_scale(attn_context *ctx, const view *factor, view *y)
{
    moved(ctx, factor, 1), stored(ctx, y, 1);
    return ATTN_OK;
}

static attn_status count_fill(attn_context *ctx, view *y, int32_t start, double amount, uint64_t key)
{
    (void)start, (void)amount, (void)key;
    moved(ctx, y, 1);
    return ATTN_OK;
}

static attn_status count_dot(attn_context *ctx, const view *a, const view *b, double *out)
{
    moved(ctx, a, 1), moved(ctx, b, 1);
    *out = 0;
    return borrowed(ctx, a->rows, a->width / PART + 1, (int64_t)sizeof(double));
}

/* flat runs have no dtype of their own: counted as float32 */
static attn_status count_sum_squares(attn_context *ctx, const void *flat, int64_t n, double *out)
{
    (void)flat;
    grow(&ctx->counts.bytes, n, (int64_t)sizeof(float), 1);
    *out = 0;
    return borrowed(ctx, n / PART + 1, (int64_t)sizeof(double), 1);
}

/* parameter, gradient and two moments, each read and written */
static attn_status count_adam(attn_context *ctx, void *p, void *g, void *m, void *v, int64_t n, double multiplier, double l2, double rate,
                              double beta1, double beta2, double epsilon, double decay, int64_t step)
{
    (void)p, (void)g, (void)m, (void)v, (void)multiplier, (void)l2, (void)rate, (void)beta1, (void)beta2;
    (void)epsilon, (void)decay, (void)step;
    grow(&ctx->counts.bytes, n, (int64_t)sizeof(float), 8);
    return ATTN_OK;
}

static attn_status count_next_token(attn_context *ctx, const view *logits, double temperature, int64_t k, double p, const double *uniform,
                                    int32_t *tokens)
{
    (void)temperature, (void)k, (void)p, (void)uniform, (void)tokens;
    moved(ctx, logits, 1);
    attn_status status = reference_rows(ctx, 3, logits->width); /* candidates */
    return status == ATTN_OK ? borrowed(ctx, logits->rows, (int64_t)sizeof(float), 1) : status;
}

static int64_t count_linear_room(int64_t heads, int64_t size, int64_t features, int64_t value_size)
{
    (void)heads, (void)size, (void)features, (void)value_size;
    return 0;
}

static int64_t count_attention_room(int64_t longest, int64_t size, int64_t terms, int additive)
{
    (void)longest, (void)size, (void)terms, (void)additive;
    return 0;
}

const attn__kernels attn__kernels_count = {
    .name = "count",
    .counts = 1, /* dtype 0: serves any */
    .linear = count_linear,
    .linear_gated = count_linear,
    .linear_d_input = count_linear_d_input,
    .linear_d_weight = count_linear_d_weight,
    .activation = count_activation,
    .activation_back = count_activation_back,
    .gate_back = count_gate_back,
    .residual_norm = count_residual_norm,
    .residual_norm_back = count_residual_norm_back,
    .residual = count_residual,
    .attention = count_attention,
    .attention_back = count_attention_back,
    .attention_weights = count_attention_weights,
    .softmax = count_softmax,
    .softmax_back = count_softmax_back,
    .embed = count_embed,
    .embed_back = count_embed_back,
    .loss = count_loss,
    .rotate = count_rotate,
    .feature_map = count_feature_map,
    .feature_map_back = count_feature_map_back,
    .linear_attention = attn__count_linear_attention,
    .linear_attention_back = attn__count_linear_attention_back,
    .sequence_project = count_sequence_project,
    .sequence_project_back = count_sequence_project_back,
    .recurrent = attn__count_recurrent,
    .recurrent_back = attn__count_recurrent_back,
    .convolution = attn__count_convolution,
    .convolution_back = attn__count_convolution_back,
    .dropout = count_dropout,
    .add = count_add,
    .multiply = count_multiply,
    .copy = count_copy,
    .scale = count_scale,
    .fill = count_fill,
    .dot = count_dot,
    .sum_squares = count_sum_squares,
    .adam = count_adam,
    .next_token = count_next_token,
    .attention_room = count_attention_room,
    .linear_room = count_linear_room,
};

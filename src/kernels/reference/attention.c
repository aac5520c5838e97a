#include <math.h>
#include <string.h>
#include "attention_bias.h"

/* One query row of one head against the keys of its segment. Blocked keys are skipped, never multiplied: a key no row sees may
   hold anything, NaN too. With all keys blocked the weights are zero, and so are the output and every gradient. */
typedef struct attention_row {
    double *weight;   /* [keys] softmax before dropout */
    double *dropped;  /* [keys] the same after it */
    double *slope;    /* [keys] d capped score / d score */
    double *gradient; /* [keys] of the weight, before dropout */
    uint8_t *allowed; /* [keys] */
    double log_sum_exp;
} attention_row;

static attn_status make_row(attn_context *ctx, const attn__attention_arguments *a, attention_row *row)
{
    int64_t longest = 0;
    for (int64_t s = 0; s < a->key_segments.count; s++) {
        if (a->key_segments.at[s].length > longest) longest = a->key_segments.at[s].length;
    }
    row->weight = REFERENCE(doubles)(ctx, longest);
    row->dropped = row->weight != NULL ? REFERENCE(doubles)(ctx, longest) : NULL;
    row->slope = row->dropped != NULL ? REFERENCE(doubles)(ctx, longest) : NULL;
    row->gradient = row->slope != NULL ? REFERENCE(doubles)(ctx, longest) : NULL;
    row->allowed = row->gradient != NULL ? attn__scratch(ctx, longest) : NULL;
    return row->allowed != NULL ? ATTN_OK : scratch_status(ctx);
}

static attn__pair pair_of(const attn__attention_arguments *a, int64_t index)
{
    return (attn__pair){.index = index, .query = &a->query_segments.at[index], .key = &a->key_segments.at[index]};
}

/* query head h uses key head h / (heads / key heads) */
static int64_t key_head_of(const attn__attention_arguments *a, int64_t head)
{
    return head / (a->query.heads / a->key.heads);
}

static double inner(const real *a, const real *b, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += (double)a[c] * (double)b[c];
    return sum;
}

/* q . k, or v . tanh(q + k) */
static double score_of(const attn__attention_arguments *a, int64_t head, const real *query, const real *key)
{
    if (a->score_vector.data == NULL) return inner(query, key, a->query.width);
    const real *vector = row_of(&a->score_vector, head);
    double sum = 0;
    for (int64_t c = 0; c < a->query.width; c++) sum += (double)vector[c] * tanh((double)query[c] + (double)key[c]);
    return sum;
}

/* dropout of the weight of key j: drawn by the two positions, not by rows, so packing does not change it */
static double drop_weight(const attn__attention_arguments *a, const attn__pair *pair, int64_t head, int64_t i, int64_t j, double value)
{
    return drop_at(&a->dropout, pair->query->sequence_id, pair->query->first_position + i, 1 + head, pair->key->first_position + j, value);
}

/* weight_j = softmax over the seen keys of cap(scale q . k_j + bias), cap(s) = soft_cap tanh(s / soft_cap) */
static void compute_row(const attn__attention_arguments *a, const attn__pair *pair, int64_t head, int64_t i, attention_row *row)
{
    int64_t n = pair->key->length, low = 0, high = 0, key_head = key_head_of(a, head);
    int32_t listed = attn__mask_row(a->mask, pair, head, i, 0, n, &low, &high, row->allowed);
    const real *query = head_of(&a->query, pair->query->start + i, head);
    for (int64_t j = 0; j < n; j++) {
        row->allowed[j] = (uint8_t)(j >= low && j < high && (!listed || row->allowed[j] != 0));
        if (!row->allowed[j]) continue;
        attention_cell at = cell_of(pair, head, a->query.heads, i, j);
        const real *relative = a->bias != NULL ? REFERENCE(bias_row)(&a->bias->relative_keys, a->bias, &at) : NULL;
        double product = score_of(a, head, query, head_of(&a->key, pair->key->start + j, key_head));
        if (relative != NULL) product += inner(query, relative, a->query.width);
        double score = a->scale * product + REFERENCE(bias_score)(a->bias, &at) + attn__mask_value(a->mask, pair, head, i, j);
        row->slope[j] = 1;
        if (a->soft_cap > 0) {
            double t = tanh(score / a->soft_cap);
            score = a->soft_cap * t;
            row->slope[j] = 1 - t * t;
        }
        row->weight[j] = score;
    }
    row->log_sum_exp = REFERENCE(softmax_row)(row->weight, n, row->allowed);
    for (int64_t j = 0; j < n; j++) row->dropped[j] = row->allowed[j] ? drop_weight(a, pair, head, i, j, row->weight[j]) : 0;
}

/* - sum of w ln w, with 0 ln 0 = 0; of what is no number, none */
static double entropy_of(const attention_row *row, int64_t keys)
{
    double sum = 0;
    for (int64_t j = 0; j < keys; j++)
        if (row->allowed[j] && row->weight[j] != 0) sum -= row->weight[j] * log(row->weight[j]);
    return sum;
}

/* output = sum over seen keys of dropout(weight_j) v_j */
static void output_row(const attn__attention_arguments *a, const attn__pair *pair, int64_t head, int64_t i, const attention_row *row)
{
    const real *value = head_of(&a->value, pair->key->start, key_head_of(a, head));
    real *output = head_of(&a->output, pair->query->start + i, head);
    for (int64_t c = 0; c < a->value.width; c++) {
        double sum = 0;
        for (int64_t j = 0; j < pair->key->length; j++) {
            if (!row->allowed[j] || row->log_sum_exp == -INFINITY) continue;
            attention_cell at = cell_of(pair, head, a->query.heads, i, j);
            const real *relative = a->bias != NULL ? REFERENCE(bias_row)(&a->bias->relative_values, a->bias, &at) : NULL;
            sum += row->dropped[j] * (double)value[j * a->value.row_stride + c];
            if (relative != NULL) sum += row->dropped[j] * (double)relative[c];
        }
        output[c] = (real)sum;
    }
}

attn_status REFERENCE(attention)(attn_context *ctx, const attn__attention_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attention_row row;
    attn_status status = make_row(ctx, a, &row);
    for (int64_t s = 0; status == ATTN_OK && s < a->query_segments.count; s++) {
        attn__pair pair = pair_of(a, s);
        for (int64_t head = 0; head < a->query.heads; head++) {
            for (int64_t i = 0; i < pair.query->length; i++) {
                compute_row(a, &pair, head, i, &row);
                output_row(a, &pair, head, i, &row);
                int64_t place = head * a->query.rows + pair.query->start + i;
                if (a->log_sum_exp != NULL) ((real *)a->log_sum_exp)[place] = (real)row.log_sum_exp;
                if (a->entropy != NULL) ((real *)a->entropy)[place] = (real)entropy_of(&row, pair.key->length);
            }
        }
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* Sums of the three gradients, dense [rows, heads, width]: key and value rows get parts from many queries, and from every pair
   that repeats their segment. */
typedef struct attention_sums {
    double *query, *key, *value;
    double *vector; /* [heads, size]; NULL: not wanted */
    bias_sums bias;
} attention_sums;

static double *sum_of(const view *like, double *sums, int64_t row, int64_t head)
{
    return sums + (row * like->heads + head) * like->width;
}

static double *make_sum(attn_context *ctx, const view *like)
{
    int64_t n = 0;
    if (attn__multiply(like->rows, like->heads, &n) || attn__multiply(n, like->width, &n)) n = INT64_MAX;
    return REFERENCE(doubles)(ctx, n);
}

static void back_additive(const attn__attention_arguments *a, int64_t head, const real *query, const real *key, double d_score,
                          double *d_query, double *d_key, double *d_vector)
{
    const real *vector = row_of(&a->score_vector, head);
    for (int64_t c = 0; c < a->query.width; c++) {
        double t = tanh((double)query[c] + (double)key[c]), slope = d_score * (double)vector[c] * (1 - t * t);
        d_query[c] += slope;
        d_key[c] += slope;
        if (d_vector != NULL) d_vector[head * a->query.width + c] += d_score * t;
    }
}

/* relative keys stand beside k_j and relative values beside v_j */
static void back_bias(const attn__attention_arguments *a, const attn__pair *pair, int64_t head, int64_t i, int64_t j, double d_score,
                      const attention_row *row, const attention_sums *sums)
{
    attention_cell at = cell_of(pair, head, a->query.heads, i, j);
    int64_t r = pair->query->start + i, place = attn__clip_distance(at.t, a->bias->reach);
    const real *query = head_of(&a->query, r, head), *d_output = head_of(&a->d_output, r, head);
    const real *key = REFERENCE(bias_row)(&a->bias->relative_keys, a->bias, &at);
    double *d_query = sum_of(&a->query, sums->query, r, head);
    REFERENCE(bias_back)(a->bias, &at, d_score, &sums->bias);
    for (int64_t c = 0; key != NULL && c < a->query.width; c++) d_query[c] += d_score * a->scale * (double)key[c];
    for (int64_t c = 0; sums->bias.relative_keys != NULL && c < a->query.width; c++)
        sums->bias.relative_keys[place * a->query.width + c] += d_score * a->scale * (double)query[c];
    for (int64_t c = 0; sums->bias.relative_values != NULL && c < a->value.width; c++)
        sums->bias.relative_values[place * a->value.width + c] += row->dropped[j] * (double)d_output[c];
}

/* With p the weights, w = dropout(p) and o = sum of w_j v_j:
   dv_j = w_j do;  dp_j = dropout'(do . v_j);  ds_j = p_j (dp_j - sum of p dp) cap'(s_j) scale;  dq = sum of ds_j k_j;  dk_j = ds_j q */
static void back_row(const attn__attention_arguments *a, const attn__pair *pair, int64_t head, int64_t i, attention_row *row,
                     const attention_sums *sums)
{
    int64_t key_head = key_head_of(a, head), r = pair->query->start + i;
    const real *query = head_of(&a->query, r, head), *d_output = head_of(&a->d_output, r, head);
    double *d_query = sum_of(&a->query, sums->query, r, head), common = 0;
    if (row->log_sum_exp == -INFINITY) return;
    for (int64_t j = 0; j < pair->key->length; j++) {
        if (!row->allowed[j]) continue;
        attention_cell at = cell_of(pair, head, a->query.heads, i, j);
        const real *relative = a->bias != NULL ? REFERENCE(bias_row)(&a->bias->relative_values, a->bias, &at) : NULL;
        double product = inner(d_output, head_of(&a->value, pair->key->start + j, key_head), a->value.width);
        if (relative != NULL) product += inner(d_output, relative, a->value.width);
        row->gradient[j] = drop_weight(a, pair, head, i, j, product);
        common += row->weight[j] * row->gradient[j];
    }
    for (int64_t j = 0; j < pair->key->length; j++) {
        if (!row->allowed[j]) continue;
        const real *key = head_of(&a->key, pair->key->start + j, key_head);
        double *d_key = sum_of(&a->key, sums->key, pair->key->start + j, key_head);
        double *d_value = sum_of(&a->value, sums->value, pair->key->start + j, key_head);
        double d_capped = row->weight[j] * (row->gradient[j] - common) * row->slope[j], d_score = d_capped * a->scale;
        for (int64_t c = 0; c < a->query.width && a->score_vector.data == NULL; c++) {
            d_query[c] += d_score * (double)key[c];
            d_key[c] += d_score * (double)query[c];
        }
        if (a->score_vector.data != NULL) back_additive(a, head, query, key, d_score, d_query, d_key, sums->vector);
        for (int64_t c = 0; c < a->value.width; c++) d_value[c] += row->dropped[j] * (double)d_output[c];
        if (a->bias != NULL) back_bias(a, pair, head, i, j, d_capped, row, sums);
    }
}

/* Rows in no segment are not written; a row that several pairs share is written once. done: [rows], all 0 */
static void write_sums(const view *to, const double *sums, attn__segments segments, uint8_t *done, int32_t add)
{
    for (int64_t s = 0; s < segments.count; s++) {
        for (int64_t r = segments.at[s].start; r < segments.at[s].start + segments.at[s].length; r++) {
            for (int64_t i = 0; i < to->heads * to->width && !done[r]; i++) {
                put(&head_of(to, r, i / to->width)[i % to->width], sums[r * to->heads * to->width + i], add);
            }
            done[r] = 1;
        }
    }
}

attn_status REFERENCE(attention_back)(attn_context *ctx, const attn__attention_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attention_row row;
    attention_sums sums = {0};
    int64_t rows = a->query.rows > a->key.rows ? a->query.rows : a->key.rows;
    attn_status status = make_row(ctx, a, &row);
    if (status == ATTN_OK) {
        sums.query = make_sum(ctx, &a->query);
        sums.key = sums.query != NULL ? make_sum(ctx, &a->key) : NULL;
        sums.value = sums.key != NULL ? make_sum(ctx, &a->value) : NULL;
        if (sums.value == NULL) status = scratch_status(ctx);
    }
    if (status == ATTN_OK && a->d_score_vector.data != NULL) {
        sums.vector = make_sum(ctx, &a->d_score_vector);
        if (sums.vector == NULL) status = scratch_status(ctx);
    }
    if (status == ATTN_OK) status = REFERENCE(bias_sums_make)(ctx, a->bias, &sums.bias);
    for (int64_t s = 0; status == ATTN_OK && s < a->query_segments.count; s++) {
        attn__pair pair = pair_of(a, s);
        for (int64_t head = 0; head < a->query.heads; head++) {
            for (int64_t i = 0; i < pair.query->length; i++) {
                compute_row(a, &pair, head, i, &row);
                back_row(a, &pair, head, i, &row, &sums);
            }
        }
    }
    uint8_t *done = status == ATTN_OK ? attn__scratch(ctx, rows) : NULL;
    if (status == ATTN_OK && done == NULL) status = scratch_status(ctx);
    const struct {
        const view *to;
        const double *sums;
        attn__segments segments;
        int32_t add;
    } results[3] = {
        {&a->d_query, sums.query, a->query_segments, a->add_query},
        {&a->d_key, sums.key, a->key_segments, a->add_key},
        {&a->d_value, sums.value, a->key_segments, a->add_value},
    };
    for (int k = 0; status == ATTN_OK && k < 3; k++) {
        memset(done, 0, (size_t)rows);
        write_sums(results[k].to, results[k].sums, results[k].segments, done, results[k].add);
    }
    if (status == ATTN_OK) REFERENCE(bias_sums_write)(a->bias, &sums.bias);
    for (int64_t h = 0; status == ATTN_OK && sums.vector != NULL && h < a->query.heads; h++) {
        for (int64_t c = 0; c < a->query.width; c++) put(&row_of(&a->d_score_vector, h)[c], sums.vector[h * a->query.width + c], 1);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* weights before dropout; as a view: rows are queries, width is keys */
attn_status REFERENCE(attention_weights)(attn_context *ctx, const attn__attention_arguments *a, const attn__weights_part *part,
                                         view *weights)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attention_row row;
    attn_status status = make_row(ctx, a, &row);
    attn__pair pair = pair_of(a, part->pair);
    for (int64_t h = 0; status == ATTN_OK && h < weights->heads; h++) {
        for (int64_t i = 0; i < weights->rows; i++) {
            compute_row(a, &pair, part->head + h, part->row + i, &row);
            for (int64_t j = 0; j < pair.key->length; j++) head_of(weights, i, h)[j] = (real)row.weight[j];
        }
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* no worker scratch: rows are computed in the arena */
int64_t REFERENCE(attention_room)(int64_t longest, int64_t size, int64_t terms, int additive)
{
    (void)longest, (void)size, (void)terms, (void)additive;
    return 0;
}

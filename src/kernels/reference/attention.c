#include <math.h>
#include <string.h>
#include "real.h"

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

/* dropout of the weight of key j: drawn by the two positions, not by rows, so packing does not change it */
static double drop_weight(const attn__attention_arguments *a, const attn__pair *pair, int64_t head, int64_t i, int64_t j, double value)
{
    return drop_at(&a->dropout, pair->query->sequence_id, pair->query->first_position + i, 1 + head, pair->key->first_position + j, value);
}

/* weight_j = softmax over the seen keys of cap(scale q . k_j), cap(s) = soft_cap tanh(s / soft_cap) */
static void compute_row(const attn__attention_arguments *a, const attn__pair *pair, int64_t head, int64_t i, attention_row *row)
{
    int64_t n = pair->key->length, low = 0, high = 0, key_head = key_head_of(a, head);
    int32_t listed = attn__mask_row(a->mask, pair, head, i, 0, n, &low, &high, row->allowed);
    const real *query = head_of(&a->query, pair->query->start + i, head);
    for (int64_t j = 0; j < n; j++) {
        row->allowed[j] = (uint8_t)(j >= low && j < high && (!listed || row->allowed[j] != 0));
        if (!row->allowed[j]) continue;
        double score = a->scale * inner(query, head_of(&a->key, pair->key->start + j, key_head), a->query.width);
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

/* output = sum over seen keys of dropout(weight_j) v_j */
static void output_row(const attn__attention_arguments *a, const attn__pair *pair, int64_t head, int64_t i, const attention_row *row)
{
    const real *value = head_of(&a->value, pair->key->start, key_head_of(a, head));
    real *output = head_of(&a->output, pair->query->start + i, head);
    for (int64_t c = 0; c < a->value.width; c++) {
        double sum = 0;
        for (int64_t j = 0; j < pair->key->length; j++) {
            if (row->allowed[j] && row->log_sum_exp != -INFINITY) sum += row->dropped[j] * (double)value[j * a->value.row_stride + c];
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
                if (a->log_sum_exp != NULL) {
                    ((real *)a->log_sum_exp)[head * a->query.rows + pair.query->start + i] = (real)row.log_sum_exp;
                }
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
        double product = inner(d_output, head_of(&a->value, pair->key->start + j, key_head), a->value.width);
        row->gradient[j] = drop_weight(a, pair, head, i, j, product);
        common += row->weight[j] * row->gradient[j];
    }
    for (int64_t j = 0; j < pair->key->length; j++) {
        if (!row->allowed[j]) continue;
        const real *key = head_of(&a->key, pair->key->start + j, key_head);
        double *d_key = sum_of(&a->key, sums->key, pair->key->start + j, key_head);
        double *d_value = sum_of(&a->value, sums->value, pair->key->start + j, key_head);
        double d_score = row->weight[j] * (row->gradient[j] - common) * row->slope[j] * a->scale;
        for (int64_t c = 0; c < a->query.width; c++) {
            d_query[c] += d_score * (double)key[c];
            d_key[c] += d_score * (double)query[c];
        }
        for (int64_t c = 0; c < a->value.width; c++) d_value[c] += row->dropped[j] * (double)d_output[c];
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
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* weights before dropout; as a view: rows are queries, width is keys */
attn_status REFERENCE(attention_weights)(attn_context *ctx, const attn__attention_arguments *a, int64_t index, view *weights)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attention_row row;
    attn_status status = make_row(ctx, a, &row);
    attn__pair pair = pair_of(a, index);
    for (int64_t head = 0; status == ATTN_OK && head < a->query.heads; head++) {
        for (int64_t i = 0; i < pair.query->length; i++) {
            compute_row(a, &pair, head, i, &row);
            for (int64_t j = 0; j < pair.key->length; j++) head_of(weights, i, head)[j] = (real)row.weight[j];
        }
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* no worker scratch: rows are computed in the arena */
int64_t REFERENCE(attention_room)(int64_t longest, int64_t size)
{
    (void)longest, (void)size;
    return 0;
}

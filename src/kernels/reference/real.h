#ifndef ATTN_KERNELS_REFERENCE_REAL_H
#define ATTN_KERNELS_REFERENCE_REAL_H
#include "../kernels.h"

/* The reference backend: each entry of the table as its equation, in plain loops on one thread. Every file of this folder is
   compiled twice, with ATTN__REAL float (ATTN__REAL_FLOAT32) and double (ATTN__REAL_FLOAT64). Sums and functions are computed
   in double in both; a value is rounded to `real` once, when it is stored. */
typedef ATTN__REAL real;
#ifdef ATTN__REAL_FLOAT32
#define REFERENCE(name) attn__reference_float32_##name
#define REAL_DTYPE ATTN_FLOAT32
#else
#define REFERENCE(name) attn__reference_float64_##name
#define REAL_DTYPE ATTN_FLOAT64
#endif

static inline real *row_of(const view *v, int64_t row)
{
    return (real *)v->data + row * v->row_stride;
}

static inline real *head_of(const view *v, int64_t row, int64_t head)
{
    return (real *)v->data + row * v->row_stride + head * v->head_stride;
}

/* heads side by side, as columns of the row: whole rows of [rows, heads, width] go through entries that treat elements alone */
static inline int64_t columns_of(const view *v)
{
    return v->heads * v->width;
}

static inline real *element_of(const view *v, int64_t row, int64_t column)
{
    return head_of(v, row, column / v->width) + column % v->width;
}

/* a (+)= b */
static inline void put(real *at, double value, int add)
{
    *at = (real)(add ? (double)*at + value : value);
}

/* What dropout makes of one value: head 0 for rows of activations, 1 + head for attention weights. A dropped value is 0 even
   when it was not finite. */
static inline double drop_at(const attn__dropout *drop, int64_t sequence, int64_t position, int64_t head, int64_t column, double value)
{
    if (drop == NULL || drop->rate == 0) return value;
    uint64_t key = attn__dropout_row_key(attn__dropout_key(drop->seed, drop->step, drop->site), sequence, position);
    uint32_t word[4];
    attn__philox(key, (uint32_t)(column / 4), (uint32_t)head, (uint32_t)position, (uint32_t)sequence, word);
    return word[column % 4] >= attn__dropout_threshold(drop->rate) ? value * attn__dropout_scale(drop->rate) : 0;
}

/* the same for element (row, column) of activations */
static inline double drop_row(const attn__dropout *drop, int64_t row, int64_t column, double value)
{
    if (drop == NULL || drop->rate == 0) return value;
    return drop_at(drop, drop->places.sequence[row], drop->places.position[row], 0, column, value);
}

/* act(u), its derivative by u, and by Swish's beta */
double REFERENCE(act)(const attn__activation *act, double u);
double REFERENCE(act_slope)(const attn__activation *act, double u);
double REFERENCE(act_beta)(const attn__activation *act, double u);

/* n doubles of scratch, zero; NULL: the status is scratch_status */
double *REFERENCE(doubles)(attn_context *ctx, int64_t n);
static inline attn_status scratch_status(const attn_context *ctx)
{
    return attn__arena_status(ctx->scratch);
}

/* softmax of n scores in place; those with allowed[j] 0 (allowed NULL: none) are skipped and become 0. Returns the
   log-sum-exp; minus infinity when nothing is left, and then all are 0. */
double REFERENCE(softmax_row)(double *score, int64_t n, const uint8_t *allowed);

/* every entry has the type its field of the table has */
#define DECLARE(name) __typeof__(*((attn__kernels *)0)->name) REFERENCE(name);
DECLARE(linear)
DECLARE(linear_gated)
DECLARE(linear_d_input)
DECLARE(linear_d_weight)
DECLARE(activation)
DECLARE(activation_back)
DECLARE(gate_back)
DECLARE(residual_norm)
DECLARE(residual_norm_back)
DECLARE(residual)
DECLARE(attention)
DECLARE(attention_back)
DECLARE(attention_weights)
DECLARE(softmax)
DECLARE(softmax_back)
DECLARE(embed)
DECLARE(embed_back)
DECLARE(loss)
DECLARE(rotate)
DECLARE(feature_map)
DECLARE(feature_map_back)
DECLARE(linear_attention)
DECLARE(linear_attention_back)
DECLARE(sequence_project)
DECLARE(sequence_project_back)
DECLARE(recurrent)
DECLARE(recurrent_back)
DECLARE(convolution)
DECLARE(convolution_back)
DECLARE(dropout)
DECLARE(add)
DECLARE(multiply)
DECLARE(copy)
DECLARE(scale)
DECLARE(fill)
DECLARE(dot)
DECLARE(sum_squares)
DECLARE(adam)
DECLARE(next_token)
DECLARE(attention_room)
DECLARE(linear_room)
#undef DECLARE
#endif

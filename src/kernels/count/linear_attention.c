/* What linear attention costs: causal products are an upper bound in short sequences (cost.h). */
#include "count.h"

enum { CHUNK = 64, BLOCK = 512 }; /* rows of kernels/blas/linear_attention.h */

/* products of rows with states, in columns of a state; causal: and `pairs` products of features and of values for each pair in a chunk */
static void count_linear_rows(attn_context *ctx, const attn__linear_arguments *a, int64_t query_columns, int64_t key_columns, int64_t pairs)
{
    int64_t features = a->query.width, values = a->value.width + 1;
    for (int64_t s = 0; s < a->query_segments.count; s++) {
        int64_t queries = a->query_segments.at[s].length, keys = a->key_segments.at[s].length;
        int64_t seen = queries < keys ? queries : keys, rest = seen % CHUNK;
        products(ctx, queries * a->query.heads, features, query_columns);
        products(ctx, keys * a->key.heads, features, key_columns);
        if (a->causal) products(ctx, (seen / CHUNK * CHUNK * CHUNK + rest * rest) * a->query.heads, pairs, features + values);
    }
}

static int64_t blocks_of(attn__segments segments)
{
    int64_t count = 0;
    for (int64_t s = 0; s < segments.count; s++) count += (segments.at[s].length + BLOCK - 1) / BLOCK;
    return count;
}

/* the cuts of one side: four numbers for each block, one for each segment */
static attn_status borrow_cut(attn_context *ctx, int64_t blocks, int64_t segments)
{
    attn_status status = borrow(ctx, blocks, 4 * (int64_t)sizeof(int64_t), 1);
    return status == ATTN_OK ? borrow(ctx, segments + 1, (int64_t)sizeof(int64_t), 1) : status;
}

/* sums of every block and segment, and the scales of the keys (kernels/blas/linear_sums.c) */
static attn_status borrow_all(attn_context *ctx, const attn__linear_arguments *a, int sums, int back)
{
    const int64_t pairs = a->key_segments.count, heads = a->key.heads, number = (int64_t)sizeof(float);
    const int64_t keys = blocks_of(a->key_segments), queries = a->causal ? keys : blocks_of(a->query_segments);
    const int64_t stride = (a->value.width + 1 + 15) / 16 * 16;
    int64_t slot = 0;
    grow(&slot, heads, a->query.width, stride);
    attn_status status = borrow_cut(ctx, keys, pairs);
    if (status == ATTN_OK && !a->causal) status = borrow_cut(ctx, queries, pairs);
    if (status == ATTN_OK && sums) status = borrow(ctx, keys + pairs, slot, number);
    if (status == ATTN_OK && back) status = borrow(ctx, queries + pairs, slot, number);
    if (status == ATTN_OK && a->key_scale != NULL) status = borrow(ctx, a->key.rows, heads, number);
    if (status == ATTN_OK && a->key_scale != NULL) status = borrow(ctx, pairs, heads, number);
    return status;
}

/* the plain loops: one segment and head at a time, in double */
static attn_status borrow_walk(attn_context *ctx, const attn__linear_arguments *a)
{
    int64_t longest = 0, numbers = 0;
    for (int64_t s = 0; s < a->key_segments.count; s++)
        if (a->key_segments.at[s].length > longest) longest = a->key_segments.at[s].length;
    grow(&numbers, a->query.width + 1, a->value.width + 1, 1);
    grow(&numbers, longest + 24, 1, 1); /* aligned */
    return borrow(ctx, numbers, (int64_t)sizeof(double), 1);
}

static attn_status borrow_sums(attn_context *ctx, const attn__linear_arguments *a, int sums, int back)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn_status status = ctx->backend == ATTN_BACKEND_REFERENCE ? borrow_walk(ctx, a) : borrow_all(ctx, a, sums, back);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* sums of blocks; each query with the state, and in causal ones keys once more along the chunks of a block */
attn_status attn__count_linear_attention(attn_context *ctx, const attn__linear_arguments *a)
{
    const int64_t values = a->value.width + 1;
    moved(ctx, &a->query, 1), moved(ctx, &a->key, a->causal ? 2 : 1), moved(ctx, &a->value, a->causal ? 2 : 1), moved(ctx, &a->output, 1);
    count_linear_rows(ctx, a, values, (a->causal ? 2 : 1) * values, 1);
    return borrow_sums(ctx, a, 1, 0);
}

/* one of the keys' is without the column that norms */
attn_status attn__count_linear_attention_back(attn_context *ctx, const attn__linear_arguments *a)
{
    const int64_t values = a->value.width + 1;
    moved(ctx, &a->query, 2), moved(ctx, &a->key, 2), moved(ctx, &a->value, 2), moved(ctx, &a->output, 2), moved(ctx, &a->d_output, 2);
    stored(ctx, &a->d_query, a->add_query), stored(ctx, &a->d_key, a->add_key), stored(ctx, &a->d_value, a->add_value);
    count_linear_rows(ctx, a, (a->causal ? 3 : 2) * values, (a->causal ? 4 : 3) * values - 1, 3);
    return borrow_sums(ctx, a, a->d_query.data != NULL, a->d_key.data != NULL || a->d_value.data != NULL);
}

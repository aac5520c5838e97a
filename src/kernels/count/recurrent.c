/* What a recurrent layer costs: its products are exact, step by step. */
#include "count.h"

/* rows that have one before them in their segment, and first rows where there is a state before them */
static int64_t rows_after(const attn__recurrent_arguments *a)
{
    int64_t rows = 0;
    for (int64_t s = 0; s < a->segments.count; s++) {
        int64_t length = a->segments.at[s].length;
        rows += length > 0 && a->hidden.data == NULL ? length - 1 : length;
    }
    return rows;
}

static int64_t segments_with_rows(const attn__recurrent_arguments *a)
{
    int64_t count = 0;
    for (int64_t s = 0; s < a->segments.count; s++) count += a->segments.at[s].length > 0;
    return count;
}

/* of tensors that may be absent */
static void given(attn_context *ctx, const view *v)
{
    moved(ctx, v->data != NULL ? v : NULL, 1);
}

static void wanted(attn_context *ctx, const view *v, int add)
{
    stored(ctx, v->data != NULL ? v : NULL, add);
}

/* numbers of its own: sums that are not kept, and two hidden states and a cell of every segment */
attn_status attn__count_recurrent(attn_context *ctx, const attn__recurrent_arguments *a)
{
    const int64_t width = a->output.width, wide = a->x.width, most = segments_with_rows(a), cells = a->kind == ATTN_RECURRENT_LSTM;
    products(ctx, rows_after(a), wide, width);
    moved(ctx, &a->x, a->gates != NULL ? 2 : 1), moved(ctx, &a->weight, 1), moved(ctx, &a->output, a->cells != NULL ? 2 : 1);
    given(ctx, &a->hidden), given(ctx, &a->cell), given(ctx, &a->final_hidden), given(ctx, &a->final_cell);
    return borrowed(ctx, most, (a->gates != NULL ? 0 : wide) + (2 + cells) * width, (int64_t)sizeof(float));
}

/* of each row the gates become gradients, and the cell (tanh: the output) is read, for the weight also the output before it */
attn_status attn__count_recurrent_back(attn_context *ctx, const attn__recurrent_arguments *a)
{
    const int64_t width = a->output.width, wide = a->x.width, most = segments_with_rows(a), cells = a->kind == ATTN_RECURRENT_LSTM;
    const int weight = a->d_weight.data != NULL;
    int64_t rows = a->x.rows, own = 0;
    products(ctx, rows - most + (a->d_hidden.data != NULL ? most : 0), wide, width);
    if (weight) products(ctx, rows_after(a), wide, width);
    moved(ctx, &a->x, 2), moved(ctx, &a->weight, 1), moved(ctx, &a->output, weight ? 2 : 1);
    given(ctx, &a->d_output), given(ctx, &a->d_final_hidden), given(ctx, &a->d_final_cell);
    wanted(ctx, &a->d_x, a->add_x), wanted(ctx, &a->d_hidden, a->add_hidden), wanted(ctx, &a->d_cell, a->add_cell);
    wanted(ctx, &a->d_weight, 1);
    grow(&own, most, (1 + 2 * cells) * width, 1);
    grow(&own, rows, (cells ? 0 : wide) + (weight ? width : 0), 1);
    return borrowed(ctx, own, (int64_t)sizeof(float), 1);
}

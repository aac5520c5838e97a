#include "arguments.h"

/* the same elements with the two leading axes swapped */
static view swapped(const view *v)
{
    return (view){v->data, v->heads, v->rows, v->width, v->head_stride, v->row_stride, v->dtype, 0};
}

static attn_status transpose_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    view dy, dx;
    int add;
    attn_status status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status == ATTN_OK) status = attn__tape_wanted(ctx, tape, &record->input[0], &dx, &add);
    if (status != ATTN_OK || dx.data == NULL) return status;
    view to = swapped(&dx);
    return attn__copy_view(ctx, &dy, add, &to);
}

attn_status attn__transpose(attn_context *ctx, attn_tape *tape, const attn__value *x, attn__value *y)
{
    const attn__value *inputs[] = {x};
    attn__value *outputs[] = {y};
    attn__record *record = NULL;
    view to = swapped(&y->at);
    attn_status status = attn__copy_view(ctx, &x->at, 0, &to);
    return status == ATTN_OK ? attn__tape_record(ctx, tape, transpose_back, 1, inputs, 1, outputs, 0, &record) : status;
}

static attn_status transpose(attn_context *ctx, attn_tape *tape, const attn_tensor *x, attn_tensor *y)
{
    view from, to;
    attn__value vx, vy;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__heads(ctx, "x", x, 0, &from);
    if (status == ATTN_OK) status = attn__heads(ctx, "y", y, from.dtype, &to);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "y", &to, from.heads, from.rows, from.width);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "y", &to, "x", &from);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "x", x, &from, &vx);
    if (status == ATTN_OK) status = attn__tape_output(ctx, tape, "y", y, &to, &vy);
    return status == ATTN_OK ? attn__transpose(ctx, tape, &vx, &vy) : status;
}

attn_status attn_transpose(attn_context *ctx, attn_tape *tape, const attn_tensor *x, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, transpose(ctx, tape, x, y));
}

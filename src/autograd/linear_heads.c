#include "arguments.h"

/* Columns of one head of dense rows of heads. */
static view head_columns(const view *v, int64_t head)
{
    view one = *v;
    int64_t bytes = attn__dtype_bytes(v->dtype);
    one.data = (char *)v->data + head * v->head_stride * bytes;
    one.heads = 1;
    one.head_stride = 0;
    return one;
}

static view head_rows(const view *w, int64_t head, int64_t heads)
{
    return attn__view_rows(*w, head * (w->rows / heads), w->rows / heads);
}

static attn_status linear_heads_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__value *x = &record->input[0], *w = &record->input[1];
    const attn__kernels *k;
    view dy, dx, dw;
    int add = 0;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status == ATTN_OK) status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, w, &dw);
    for (int64_t h = 0; status == ATTN_OK && h < x->at.heads; h++) {
        view dy_h = head_columns(&dy, h), x_h = head_columns(&x->at, h), w_h = head_rows(&w->at, h, x->at.heads);
        if (dx.data != NULL) {
            view dx_h = head_columns(&dx, h);
            status = k->linear_d_input(ctx, &dy_h, &w_h, add, &dx_h);
        }
        if (status == ATTN_OK && dw.data != NULL) {
            view dw_h = head_rows(&dw, h, x->at.heads);
            status = k->linear_d_weight(ctx, &dy_h, &x_h, &dw_h, NULL);
        }
    }
    return status;
}

attn_status attn__linear_heads(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, attn__value *y)
{
    const attn__value *inputs[] = {x, weight};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    for (int64_t h = 0; status == ATTN_OK && h < x->at.heads; h++) {
        view x_h = head_columns(&x->at, h), w_h = head_rows(&weight->at, h, x->at.heads), y_h = head_columns(&y->at, h);
        status = k->linear(ctx, &x_h, &w_h, NULL, NULL, NULL, &y_h, NULL);
    }
    if (status != ATTN_OK) return status;
    return attn__tape_record(ctx, tape, linear_heads_back, 2, inputs, 1, outputs, 0, &record);
}

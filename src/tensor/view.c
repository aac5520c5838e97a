#include "view.h"
#include "../core/dtype.h"

static void *element(const attn__view *view, int64_t index)
{
    return view->data == NULL ? NULL : (char *)view->data + index * attn__dtype_bytes(view->dtype);
}

attn__view attn__view_flat(attn__view view)
{
    view.width *= view.heads;
    view.heads = 1;
    view.head_stride = 0;
    return view;
}

attn__view attn__view_heads(attn__view view, int64_t heads)
{
    view.width = heads > 0 ? view.width / heads : 0;
    view.heads = heads;
    view.head_stride = heads == 1 ? 0 : view.width;
    return view;
}

attn__view attn__view_columns(attn__view view, int64_t first, int64_t count)
{
    view.data = element(&view, first);
    view.width = count;
    return view;
}

attn__view attn__view_rows(attn__view view, int64_t first, int64_t count)
{
    view.data = element(&view, first * view.row_stride);
    view.rows = count;
    return view;
}

int attn__view_dense(const attn__view *view)
{
    if (view->rows == 0 || view->heads == 0 || view->width == 0) return 1;
    if (view->heads > 1 && view->head_stride != view->width) return 0;
    return view->rows == 1 || view->row_stride == view->heads * view->width;
}

int attn__view_overlaps(const attn__view *a, const attn__view *b)
{
    if (attn__view_bytes(a) == 0 || attn__view_bytes(b) == 0) return 0;
    uintptr_t a_first = (uintptr_t)a->data, b_first = (uintptr_t)b->data;
    int64_t a_span = (a->rows - 1) * a->row_stride + (a->heads - 1) * a->head_stride + a->width;
    int64_t b_span = (b->rows - 1) * b->row_stride + (b->heads - 1) * b->head_stride + b->width;
    uintptr_t a_end = a_first + (uintptr_t)(a_span * attn__dtype_bytes(a->dtype));
    uintptr_t b_end = b_first + (uintptr_t)(b_span * attn__dtype_bytes(b->dtype));
    return a_first < b_end && b_first < a_end;
}

int64_t attn__view_bytes(const attn__view *view)
{
    int64_t bytes = 0;
    int over = attn__multiply(view->rows, view->heads, &bytes) || attn__multiply(bytes, view->width, &bytes);
    over = over || attn__multiply(bytes, attn__dtype_bytes(view->dtype), &bytes);
    return over ? INT64_MAX : bytes;
}

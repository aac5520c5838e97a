#ifndef ATTN_TENSOR_VIEW_H
#define ATTN_TENSOR_VIEW_H
#include <attn/layout.h>
#include <attn/mask.h>
#include <stdint.h>
#include "../core/context.h"

/* What floors 3 and up pass about: rows of heads of columns. Element (r, h, c) lies at
   data + (r * row_stride + h * head_stride + c) elements. heads is 1 (head_stride 0) for plain rows. */
typedef struct attn__view {
    void *data;
    int64_t rows, heads, width, row_stride, head_stride;
    int32_t dtype, reserved;
} attn__view;

/* The same memory as plain rows [rows, heads * width] (heads must lie dense), and back. */
attn__view attn__view_flat(attn__view view);
attn__view attn__view_heads(attn__view view, int64_t heads);
/* columns first .. first + count of plain rows; rows first .. first + count */
attn__view attn__view_columns(attn__view view, int64_t first, int64_t count);
attn__view attn__view_rows(attn__view view, int64_t first, int64_t count);
int attn__view_dense(const attn__view *view);                      /* no gaps: rows * heads * width elements in a run */
int attn__view_overlaps(const attn__view *a, const attn__view *b); /* spans of memory, conservative */
int64_t attn__view_bytes(const attn__view *view);                  /* of its elements, without gaps; INT64_MAX: past 63 bits */

/* tokens and labels: [rows, 1] int32 or int64 */
static inline int64_t attn__integer_at(const attn__view *view, int64_t row)
{
    int64_t at = row * view->row_stride;
    return view->dtype == ATTN_INT64 ? ((const int64_t *)view->data)[at] : ((const int32_t *)view->data)[at];
}
/* INVALID_ARGUMENT unless all of them are 0 to count - 1 */
attn_status attn__expect_indices(attn_context *ctx, const char *argument, const attn__view *integers, int64_t count);

/* A borrowed list of segments: what a layout holds */
typedef struct attn__segments {
    int64_t count, rows;
    const attn_segment *at;
} attn__segments; /* rows: one past the last row of any */
/* Where a row stands, expanded from a layout: [rows] each. Rows in no segment: sequence -1, position -1. */
typedef struct attn__places {
    const int64_t *sequence, *position;
} attn__places;
#endif

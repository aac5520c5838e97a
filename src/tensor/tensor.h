#ifndef ATTN_TENSOR_TENSOR_H
#define ATTN_TENSOR_TENSOR_H
#include <attn/parameters.h>
#include <attn/tensor.h>
#include "../core/dtype.h"
#include "view.h"

/* counted owner of a tensor's memory; records on a tape hold one */
typedef struct attn__storage attn__storage;
attn__storage *attn__storage_retain(attn__storage *storage); /* NULL is fine */
void attn__storage_release(attn__storage *storage);

struct attn_tensor {
    uint64_t magic;
    attn__memory *memory;
    attn__storage *storage; /* NULL: wrapped or borrowed memory */
    void *data;
    int32_t dtype, rank, wrapped, borrowed; /* borrowed: belongs to a set, attn_tensor_free does nothing */
    int64_t shape[ATTN_MAX_RANK], stride[ATTN_MAX_RANK];
    attn_parameters *parameters; /* the set this tensor is a parameter of (not counted), or NULL */
    int64_t parameter;
};

/* A tensor as plain rows: all axes but the last become rows (strides must allow it), the last has stride 1. Rank 1 is one row, rank 0
   one row of one. dtype: a required dtype number, or 0 for any float (float32, float64), or -1 for any integer (int32, int64).
   Fails with DTYPE or SHAPE, naming the argument. Extent 0 anywhere is legal. */
attn_status attn__rows(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype, attn__view *out);
/* rank 3 [rows, heads, size] kept as heads */
/* rank 3 [heads, rows, keys], dense last axis, as rows of heads of keys */
attn_status attn__weights_view(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype, int64_t keys,
                               attn__view *out);
attn_status attn__heads(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype, attn__view *out);
/* SHAPE unless rows and width are as given (-1: any) */
attn_status attn__expect_shape(attn_context *ctx, const char *argument, const attn__view *view, int64_t rows, int64_t heads, int64_t width);
/* INVALID_ARGUMENT when the two share memory */
attn_status attn__expect_apart(attn_context *ctx, const char *argument, const attn__view *a, const char *other, const attn__view *b);
/* builds a borrowed tensor in place, for sets of parameters and gradients and for logits a generator lends */
void attn__tensor_borrow(attn_tensor *tensor, int32_t dtype, int32_t rank, const int64_t *shape, void *data);
#endif

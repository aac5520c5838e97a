/* Additive masks: numbers added to scores, minus infinity where a key is blocked. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "mask.h"
#include "mask_node.h"
#include "tensor.h"

static const float *values_at(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i)
{
    const int64_t *extent = mask->extent;
    int64_t segment = extent[0] == 1 ? 0 : pair->index, of_head = extent[1] == 1 ? 0 : head;
    return (const float *)(const void *)mask->allowed + ((segment * extent[1] + of_head) * extent[2] + i) * extent[3];
}

int32_t attn__mask_additive_block(const attn_mask *mask, const attn__pair *pair, int64_t only, int64_t i, int64_t rows, int64_t j,
                                  int64_t keys)
{
    int64_t first = only < 0 || mask->extent[1] == 1 ? 0 : only, end = only < 0 ? mask->extent[1] : first + 1, seen = 0;
    for (int64_t head = first; head < end; head++)
        for (int64_t row = i; row < i + rows; row++) {
            const float *at = values_at(mask, pair, head, row) + j;
            for (int64_t c = 0; c < keys; c++) seen += at[c] != -INFINITY;
        }
    return seen == 0 ? ATTN__BLOCK_NONE : seen == (end - first) * rows * keys ? ATTN__BLOCK_FULL : ATTN__BLOCK_PARTIAL;
}

void attn__mask_additive_row(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys,
                             uint8_t *allowed)
{
    const float *at = values_at(mask, pair, head, i) + j;
    for (int64_t c = 0; c < keys; c++) allowed[c] = (uint8_t)(at[c] != -INFINITY);
}

int attn__mask_has_values(const attn_mask *mask)
{
    return mask != NULL && mask->has_values;
}

double attn__mask_value(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j)
{
    if (!attn__mask_has_values(mask)) return 0;
    if (mask->kind == ATTN__MASK_ADDITIVE) return (double)values_at(mask, pair, head, i)[j];
    if (mask->kind == ATTN__MASK_HEADS) return attn__mask_value(attn__mask_heads(mask)[head], pair, head, i, j);
    return attn__mask_value(mask->a, pair, head, i, j) + attn__mask_value(mask->b, pair, head, i, j);
}

void attn__mask_add_values(const attn_mask *mask, const attn__pair *pair, int64_t head, int64_t i, int64_t j, int64_t keys, float *scores)
{
    if (!attn__mask_has_values(mask)) return;
    if (mask->kind == ATTN__MASK_ADDITIVE) {
        const float *at = values_at(mask, pair, head, i) + j;
        for (int64_t c = 0; c < keys; c++) scores[c] += at[c];
    } else if (mask->kind == ATTN__MASK_HEADS) {
        attn__mask_add_values(attn__mask_heads(mask)[head], pair, head, i, j, keys, scores);
    } else {
        attn__mask_add_values(mask->a, pair, head, i, j, keys, scores);
        attn__mask_add_values(mask->b, pair, head, i, j, keys, scores);
    }
}

/* dense; -1: all are numbers or minus infinity, else the place of one that is not */
static int64_t copy_values(const attn_tensor *from, float *to)
{
    const int64_t *e = from->shape, *s = from->stride;
    int64_t place = 0;
    for (int64_t segment = 0; segment < e[0]; segment++)
        for (int64_t head = 0; head < e[1]; head++)
            for (int64_t i = 0; i < e[2]; i++)
                for (int64_t j = 0; j < e[3]; j++, place++) {
                    int64_t at = segment * s[0] + head * s[1] + i * s[2] + j * s[3];
                    float value = from->dtype == ATTN_FLOAT32 ? ((const float *)from->data)[at] : (float)((const double *)from->data)[at];
                    if (!(value < INFINITY)) return place;
                    to[place] = value;
                }
    return -1;
}

static attn_status additive(attn_context *ctx, const attn_tensor *values, attn_mask **out)
{
    attn_status status = attn__expect(ctx, "values", values, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    if (values->dtype != ATTN_FLOAT32 && values->dtype != ATTN_FLOAT64)
        return attn__fail(ctx, ATTN_ERROR_DTYPE, "values: got %s, expected float32 or float64", attn__dtype_name(values->dtype));
    if (values->rank != 4)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "values: got rank %" PRId32 ", expected 4 ([1 or segments, 1 or heads, queries, keys])",
                          values->rank);
    int64_t count = 1;
    for (int32_t axis = 0; axis < 4; axis++) count *= values->shape[axis]; /* in 63 bits with its bytes: the tensor was checked */
    attn_mask *mask;
    status = attn__mask_node(ctx, ATTN__MASK_ADDITIVE, count * (int64_t)sizeof(float), out == NULL ? NULL : &mask);
    if (status != ATTN_OK) return status;
    memcpy(mask->extent, values->shape, sizeof mask->extent);
    mask->has_values = 1;
    mask->by_head = mask->extent[1] > 1;
    int64_t wrong = copy_values(values, (float *)(void *)mask->allowed);
    if (wrong >= 0) {
        attn_mask_free(mask);
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "values: got infinity or no number at element %" PRId64 ", expected numbers or minus infinity", wrong);
    }
    *out = mask;
    return ATTN_OK;
}

attn_status attn_mask_additive(attn_context *ctx, const attn_tensor *values, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, additive(ctx, values, out));
}

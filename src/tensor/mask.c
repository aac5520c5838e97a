#include "mask.h"
#include <inttypes.h>
#include <string.h>
#include "mask_node.h"
#include "tensor.h"

attn_status attn__mask_node(attn_context *ctx, int32_t kind, int64_t allowed_bytes, attn_mask **out)
{
    int64_t bytes;
    void *pointer;
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the mask");
    if (attn__sum(allowed_bytes, (int64_t)sizeof(attn_mask), &bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "mask");
    attn_status status = attn__allocate(ctx->memory, bytes, &pointer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "mask");
    attn_mask *mask = pointer;
    memset(mask, 0, sizeof *mask);
    mask->magic = ATTN__MAGIC_MASK;
    mask->memory = attn__memory_retain(ctx->memory);
    atomic_init(&mask->references, 1);
    mask->kind = kind;
    mask->depth = mask->nodes = 1;
    mask->dilation = 1;
    mask->bytes = bytes;
    *out = mask;
    return ATTN_OK;
}

attn_mask *attn__mask_retain(attn_mask *mask)
{
    if (mask != NULL) atomic_fetch_add_explicit(&mask->references, 1, memory_order_relaxed);
    return mask;
}

void attn_mask_free(attn_mask *mask)
{
    if (!attn__is(mask, ATTN__MAGIC_MASK) || atomic_fetch_sub_explicit(&mask->references, 1, memory_order_acq_rel) != 1) return;
    attn__memory *memory = mask->memory;
    attn_mask_free(mask->a);
    attn_mask_free(mask->b);
    for (int64_t h = 0; mask->kind == ATTN__MASK_HEADS && h < mask->count; h++)
        attn_mask_free((attn_mask *)(uintptr_t)attn__mask_heads(mask)[h]);
    mask->magic = 0;
    attn__deallocate(memory, mask, mask->bytes);
    attn__memory_release(memory);
}

attn_status attn__mask_alignment(attn_context *ctx, int32_t alignment)
{
    if (alignment >= ATTN_ALIGN_LAST && alignment <= ATTN_ALIGN_POSITION) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "alignment: got %" PRId32 ", expected ATTN_ALIGN_LAST, _FIRST or _POSITION",
                      alignment);
}

int attn__mask_is_causal(const attn_mask *mask)
{
    return mask->kind == ATTN__MASK_CAUSAL && mask->alignment == ATTN_ALIGN_LAST;
}

int attn__mask_has_gaps(const attn_mask *mask)
{
    return mask != NULL && !mask->interval;
}

attn_status attn_mask_causal(attn_context *ctx, int32_t alignment, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__mask_alignment(ctx, alignment);
    attn_mask *mask = NULL;
    if (status == ATTN_OK && out == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the mask");
    if (status == ATTN_OK) status = attn__mask_node(ctx, ATTN__MASK_CAUSAL, 0, &mask);
    if (status == ATTN_OK) {
        mask->alignment = alignment;
        mask->interval = 1;
        mask->left = -1;
        *out = mask;
    }
    return attn__leave(ctx, status);
}

static attn_status window(attn_context *ctx, int32_t alignment, int64_t left, int64_t right, int64_t dilation, attn_mask **out)
{
    attn_status status = attn__mask_alignment(ctx, alignment);
    if (status != ATTN_OK) return status;
    if (left < -1 || right < -1)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "left, right: got %" PRId64 " and %" PRId64 ", expected 0 or more, or -1 for no limit", left, right);
    if (dilation < 1) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "dilation: got %" PRId64 ", expected 1 or more", dilation);
    attn_mask *mask;
    status = attn__mask_node(ctx, ATTN__MASK_WINDOW, 0, out == NULL ? NULL : &mask);
    if (status != ATTN_OK) return status;
    mask->alignment = alignment;
    mask->interval = dilation == 1;
    mask->left = left;
    mask->right = right;
    mask->dilation = dilation;
    *out = mask;
    return ATTN_OK;
}

attn_status attn_mask_window(attn_context *ctx, int32_t alignment, int64_t left, int64_t right, int64_t dilation, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, window(ctx, alignment, left, right, dilation, out));
}

/* from: rows of queries by keys, any strides; to: dense bytes 0 and 1 */
static void copy_allowed(const attn_tensor *from, uint8_t *to)
{
    const int64_t *e = from->shape, *s = from->stride;
    for (int64_t segment = 0; segment < e[0]; segment++)
        for (int64_t head = 0; head < e[1]; head++)
            for (int64_t i = 0; i < e[2]; i++) {
                int64_t first = segment * s[0] + head * s[1] + i * s[2];
                if (from->dtype == ATTN_UINT8) {
                    const uint8_t *row = (const uint8_t *)from->data + first;
                    for (int64_t j = 0; j < e[3]; j++) to[j] = row[j * s[3]] != 0;
                } else {
                    const int32_t *row = (const int32_t *)from->data + first;
                    for (int64_t j = 0; j < e[3]; j++) to[j] = row[j * s[3]] != 0;
                }
                to += e[3];
            }
}

static attn_status boolean(attn_context *ctx, const attn_tensor *allowed, attn_mask **out)
{
    attn_status status = attn__expect(ctx, "allowed", allowed, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    if (allowed->dtype != ATTN_UINT8 && allowed->dtype != ATTN_INT32)
        return attn__fail(ctx, ATTN_ERROR_DTYPE, "allowed: got %s, expected uint8 or int32", attn__dtype_name(allowed->dtype));
    if (allowed->rank != 4)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "allowed: got rank %" PRId32 ", expected 4 ([1 or segments, 1 or heads, queries, keys])",
                          allowed->rank);
    int64_t bytes = 1;
    for (int32_t axis = 0; axis < 4; axis++) bytes *= allowed->shape[axis]; /* in 63 bits: the tensor was checked */
    attn_mask *mask;
    status = attn__mask_node(ctx, ATTN__MASK_BOOLEAN, bytes, out == NULL ? NULL : &mask);
    if (status != ATTN_OK) return status;
    memcpy(mask->extent, allowed->shape, sizeof mask->extent);
    mask->by_head = mask->extent[1] > 1;
    if (bytes > 0) copy_allowed(allowed, mask->allowed);
    *out = mask;
    return ATTN_OK;
}

attn_status attn_mask_boolean(attn_context *ctx, const attn_tensor *allowed, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, boolean(ctx, allowed, out));
}

static attn_status combine(attn_context *ctx, int32_t kind, const attn_mask *a, const attn_mask *b, attn_mask **out)
{
    attn_status status = attn__expect(ctx, "a", a, ATTN__MAGIC_MASK, "attn_mask");
    if (status == ATTN_OK) status = attn__expect(ctx, "b", b, ATTN__MAGIC_MASK, "attn_mask");
    if (status != ATTN_OK) return status;
    int32_t deeper = a->depth > b->depth ? a->depth : b->depth;
    if (deeper >= ATTN__MASK_MAX_DEPTH || a->nodes + b->nodes >= ATTN__MASK_MAX_NODES)
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED,
                          "a, b: got %" PRId32 " masks in a tree %" PRId32 " deep, expected fewer than %d masks and %d levels",
                          a->nodes + b->nodes, deeper, ATTN__MASK_MAX_NODES, ATTN__MASK_MAX_DEPTH);
    if (kind == ATTN__MASK_UNION && (a->has_values || b->has_values))
        return attn__fail(
            ctx, ATTN_ERROR_UNSUPPORTED,
            "a, b: got an additive mask, expected those in intersections alone (its numbers have no meaning where only the other sees)");
    attn_mask *mask = NULL;
    status = attn__mask_node(ctx, kind, 0, out == NULL ? NULL : &mask);
    if (status != ATTN_OK) return status;
    mask->by_head = a->by_head || b->by_head;
    mask->has_values = a->has_values || b->has_values;
    mask->depth = deeper + 1;
    mask->nodes = a->nodes + b->nodes + 1;
    mask->interval = kind == ATTN__MASK_INTERSECTION && a->interval && b->interval;
    mask->a = attn__mask_retain((attn_mask *)a);
    mask->b = attn__mask_retain((attn_mask *)b);
    *out = mask;
    return ATTN_OK;
}

attn_status attn_mask_union(attn_context *ctx, const attn_mask *a, const attn_mask *b, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, combine(ctx, ATTN__MASK_UNION, a, b, out));
}

attn_status attn_mask_intersection(attn_context *ctx, const attn_mask *a, const attn_mask *b, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, combine(ctx, ATTN__MASK_INTERSECTION, a, b, out));
}

attn_status attn__mask_check_extents(attn_context *ctx, const char *argument, const attn_mask *mask, int64_t heads, attn__segments query,
                                     attn__segments key)
{
    const int64_t *extent = mask->extent;
    if ((extent[0] != 1 && extent[0] != query.count) || (extent[1] != 1 && extent[1] != heads))
        return attn__fail(ctx, ATTN_ERROR_SHAPE,
                          "%s: got shape [%" PRId64 ", %" PRId64 ", ...], expected [1 or %" PRId64 ", 1 or %" PRId64 ", ...]", argument,
                          extent[0], extent[1], query.count, heads);
    for (int64_t s = 0; s < query.count; s++)
        if (query.at[s].length > extent[2] || key.at[s].length > extent[3])
            return attn__fail(ctx, ATTN_ERROR_SHAPE,
                              "%s: got shape [.., %" PRId64 ", %" PRId64 "], expected at least [.., %" PRId64 ", %" PRId64
                              "] for segment %" PRId64,
                              argument, extent[2], extent[3], query.at[s].length, key.at[s].length, s);
    return ATTN_OK;
}

static attn_status check_tree(attn_context *ctx, const char *argument, const attn_mask *mask, int64_t heads, attn__segments query,
                              attn__segments key);

static attn_status check_heads(attn_context *ctx, const char *argument, const attn_mask *mask, int64_t heads, attn__segments query,
                               attn__segments key)
{
    attn_status status = ATTN_OK;
    if (mask->count != heads)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got masks for %" PRId64 " heads, expected %" PRId64, argument, mask->count, heads);
    for (int64_t h = 0; status == ATTN_OK && h < heads; h++)
        if (attn__mask_heads(mask)[h] != NULL) status = check_tree(ctx, argument, attn__mask_heads(mask)[h], heads, query, key);
    return status;
}

static attn_status check_tree(attn_context *ctx, const char *argument, const attn_mask *mask, int64_t heads, attn__segments query,
                              attn__segments key)
{
    if (mask->kind == ATTN__MASK_BOOLEAN || mask->kind == ATTN__MASK_ADDITIVE)
        return attn__mask_check_extents(ctx, argument, mask, heads, query, key);
    if (mask->kind == ATTN__MASK_HEADS) return check_heads(ctx, argument, mask, heads, query, key);
    if (mask->a == NULL) return ATTN_OK;
    attn_status status = check_tree(ctx, argument, mask->a, heads, query, key);
    return status != ATTN_OK ? status : check_tree(ctx, argument, mask->b, heads, query, key);
}

attn_status attn__mask_check(attn_context *ctx, const char *argument, const attn_mask *mask, int64_t heads, attn__segments query,
                             attn__segments key)
{
    if (mask == NULL) return ATTN_OK;
    attn_status status = attn__expect(ctx, argument, mask, ATTN__MAGIC_MASK, "attn_mask");
    return status != ATTN_OK ? status : check_tree(ctx, argument, mask, heads, query, key);
}

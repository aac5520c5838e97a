/* A mask for every head. */
#include <inttypes.h>
#include "mask.h"
#include "mask_node.h"

int attn__mask_by_head(const attn_mask *mask)
{
    return mask != NULL && mask->by_head;
}

static attn_status heads(attn_context *ctx, int64_t count, const attn_mask *const *masks, attn_mask **out)
{
    int64_t bytes = 0;
    int32_t depth = 1, nodes = 1, values = 0;
    if (count < 1 || attn__multiply(count, (int64_t)sizeof *masks, &bytes))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %" PRId64 ", expected 1 or more that fit in memory", count);
    if (masks == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "masks: got NULL, expected %" PRId64 " of them", count);
    for (int64_t h = 0; h < count; h++) {
        if (masks[h] == NULL) continue; /* that head sees everything */
        attn_status status = attn__expect(ctx, "masks", masks[h], ATTN__MAGIC_MASK, "attn_mask");
        if (status != ATTN_OK) return status;
        depth = masks[h]->depth + 1 > depth ? masks[h]->depth + 1 : depth;
        nodes = masks[h]->nodes + 1 > nodes ? masks[h]->nodes + 1 : nodes; /* an answer is asked of one head */
        values |= masks[h]->has_values;
    }
    if (depth > ATTN__MASK_MAX_DEPTH || nodes > ATTN__MASK_MAX_NODES)
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED,
                          "masks: got %" PRId32 " masks in a tree %" PRId32 " deep, expected at most %d masks and %d levels", nodes, depth,
                          ATTN__MASK_MAX_NODES, ATTN__MASK_MAX_DEPTH);
    attn_mask *mask;
    attn_status status = attn__mask_node(ctx, ATTN__MASK_HEADS, bytes, out == NULL ? NULL : &mask);
    if (status != ATTN_OK) return status;
    attn_mask **own = (attn_mask **)(void *)mask->allowed;
    for (int64_t h = 0; h < count; h++) own[h] = attn__mask_retain((attn_mask *)(uintptr_t)masks[h]);
    mask->count = count;
    mask->depth = depth;
    mask->nodes = nodes;
    mask->by_head = 1;
    mask->has_values = values;
    *out = mask;
    return ATTN_OK;
}

attn_status attn_mask_heads(attn_context *ctx, int64_t count, const attn_mask *const *masks, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, heads(ctx, count, masks, out));
}

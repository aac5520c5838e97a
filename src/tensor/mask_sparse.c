/* Masks of the sparse systems: global tokens (Longformer), strided and fixed (Sparse Transformer), random blocks (BigBird), logarithmic. */
#include <inttypes.h>
#include "mask.h"
#include "mask_node.h"

static attn_status make(attn_context *ctx, int32_t kind, int32_t alignment, int64_t bytes, attn_mask **out)
{
    attn_status status = attn__mask_alignment(ctx, alignment);
    if (status == ATTN_OK) status = attn__mask_node(ctx, kind, bytes, out);
    if (status == ATTN_OK) (*out)->alignment = alignment;
    return status;
}

static attn_status check_global(attn_context *ctx, int64_t count, const int64_t *indices, attn_mask **out, int64_t *bytes)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the mask");
    if (count < 0 || attn__multiply(count, (int64_t)sizeof *indices, bytes))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %" PRId64 ", expected 0 or more that fit in memory", count);
    if (count > 0 && indices == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "indices: got NULL, expected %" PRId64 " numbers", count);
    for (int64_t g = 0; g < count; g++)
        if (indices[g] < 0 || (g > 0 && indices[g] <= indices[g - 1]))
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                              "indices: got %" PRId64 " at place %" PRId64 ", expected rising numbers from 0", indices[g], g);
    return ATTN_OK;
}

attn_status attn_mask_global(attn_context *ctx, int32_t alignment, int64_t count, const int64_t *indices, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    int64_t bytes = 0;
    attn_mask *mask = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = check_global(ctx, count, indices, out, &bytes);
    if (status == ATTN_OK) status = make(ctx, ATTN__MASK_GLOBAL, alignment, bytes, &mask);
    if (status == ATTN_OK) {
        int64_t *kept = (int64_t *)(void *)mask->allowed;
        for (int64_t g = 0; g < count; g++) kept[g] = indices[g];
        mask->count = count;
        *out = mask;
    }
    return attn__leave(ctx, status);
}

static attn_status check_parts(attn_context *ctx, int64_t stride, int32_t parts)
{
    if (stride != ATTN_DERIVED && stride < 1)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "stride: got %" PRId64 ", expected 1 or more, or ATTN_DERIVED", stride);
    if (parts < 1 || parts > (ATTN_PART_LOCAL | ATTN_PART_SUMMARY))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "parts: got %" PRId32 ", expected ATTN_PART_LOCAL, _SUMMARY or both", parts);
    return ATTN_OK;
}

static attn_status strided(attn_context *ctx, int32_t kind, int32_t alignment, int64_t stride, int64_t summaries, int32_t parts,
                           attn_mask **out)
{
    attn_mask *mask = NULL;
    attn_status status = check_parts(ctx, stride, parts);
    if (status == ATTN_OK && (summaries < 1 || (stride > 0 && summaries > stride)))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "summaries: got %" PRId64 ", expected from 1 to the stride", summaries);
    if (status == ATTN_OK) status = make(ctx, kind, alignment, 0, out == NULL ? NULL : &mask);
    if (status != ATTN_OK) return status;
    mask->stride = stride;
    mask->count = summaries;
    mask->parts = parts;
    *out = mask;
    return ATTN_OK;
}

attn_status attn_mask_strided(attn_context *ctx, int32_t alignment, int64_t stride, int32_t parts, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, strided(ctx, ATTN__MASK_STRIDED, alignment, stride, 1, parts, out));
}

attn_status attn_mask_fixed(attn_context *ctx, int32_t alignment, int64_t stride, int64_t summaries, int32_t parts, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, strided(ctx, ATTN__MASK_FIXED, alignment, stride, summaries, parts, out));
}

static attn_status random_blocks(attn_context *ctx, int32_t alignment, int64_t block, int64_t count, uint64_t seed, attn_mask **out)
{
    attn_mask *mask = NULL;
    if (block < 1) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "block: got %" PRId64 ", expected 1 or more", block);
    if (count < 0 || count > ATTN__MASK_RANDOM_MOST)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %" PRId64 ", expected 0 to %d", count, ATTN__MASK_RANDOM_MOST);
    attn_status status = make(ctx, ATTN__MASK_RANDOM, alignment, 0, out == NULL ? NULL : &mask);
    if (status != ATTN_OK) return status;
    mask->stride = block;
    mask->count = count;
    mask->seed = seed;
    *out = mask;
    return ATTN_OK;
}

attn_status attn_mask_random(attn_context *ctx, int32_t alignment, int64_t block, int64_t count, uint64_t seed, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, random_blocks(ctx, alignment, block, count, seed, out));
}

static attn_status logarithmic(attn_context *ctx, int32_t alignment, int32_t both_sides, attn_mask **out)
{
    attn_mask *mask = NULL;
    if (both_sides != 0 && both_sides != 1)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "both_sides: got %" PRId32 ", expected 0 or 1", both_sides);
    attn_status status = make(ctx, ATTN__MASK_LOGARITHMIC, alignment, 0, out == NULL ? NULL : &mask);
    if (status != ATTN_OK) return status;
    mask->both_sides = both_sides;
    *out = mask;
    return ATTN_OK;
}

attn_status attn_mask_logarithmic(attn_context *ctx, int32_t alignment, int32_t both_sides, attn_mask **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, logarithmic(ctx, alignment, both_sides, out));
}

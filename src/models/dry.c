#include "dry.h"
#include <string.h>

/* A context of its own on the allocator and within what is left of the cap of ctx: its accounting is what the small objects of a model take. */
static attn_status open_context(attn_context *ctx, attn_context **out)
{
    attn_context_options o;
    int64_t live, peak, allocations, cap = attn__memory_cap(ctx->memory);
    const attn_allocator allocator = attn__memory_allocator(ctx->memory);
    attn__memory_read(ctx->memory, &live, &peak, &allocations);
    attn_status status = attn_context_options_init(&o, sizeof o);
    o.threads = 1;
    o.guard_blas = 0;
    o.backend = ctx->backend;
    o.allocator = &allocator;
    if (cap >= 0) o.memory_cap = cap > live ? cap - live : 0;
    return status == ATTN_OK ? attn_context_create(&o, out) : status;
}

static attn_status fill(attn__dry *dry, const attn_transformer_options *resolved, const attn__left *heads)
{
    attn_context *ctx = dry->ctx;
    attn__arena_free(ctx->scratch);
    ctx->scratch = NULL;
    ctx->dry = 1;
    ctx->depth = 1; /* within a call from here on: what is called in there does not rewind the scratch */
    attn_status status = attn__arena_create(ctx->memory, 2, &ctx->scratch);
    if (status == ATTN_OK) status = attn__transformer_make(ctx, resolved, heads, &dry->model);
    return status == ATTN_OK ? attn_tape_create(ctx, &dry->tape) : status;
}

attn_status attn__dry_open(attn_context *ctx, const attn_transformer_options *resolved, const attn__left *heads, attn__dry *dry)
{
    memset(dry, 0, sizeof *dry);
    attn_status status = open_context(ctx, &dry->ctx);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a plan of the model");
    status = fill(dry, resolved, heads);
    return status == ATTN_OK ? ATTN_OK : attn__dry_fail(ctx, dry, status);
}

attn_status attn__dry_fail(attn_context *ctx, attn__dry *dry, attn_status status)
{
    if (status == ATTN_ERROR_MEMORY_CAP || status == ATTN_ERROR_OUT_OF_MEMORY) /* the numbers of ctx, not of what was left of it */
        attn__fail_memory(ctx, status, "a plan of the model");
    else
        attn__fail(ctx, status, "%s", attn_context_last_error(dry->ctx));
    attn__dry_close(dry);
    return status;
}

attn_status attn__dry_masks(attn__dry *dry, const attn__transformer_plan *like)
{
    attn__transformer_plan *plan = dry->model->parameters->plan;
    attn_status status = ATTN_OK;
    if (like->recurrent != NULL) return ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && like->has_encoder && i < like->encoder.side.layers; i++)
        status = attn__stack_set_mask(dry->ctx, &plan->encoder, i, like->encoder.masks[i]);
    for (int64_t i = 0; status == ATTN_OK && like->has_decoder && i < like->decoder.side.layers; i++)
        status = attn__stack_set_mask(dry->ctx, &plan->decoder, i, like->decoder.masks[i]);
    return status;
}

void attn__dry_close(attn__dry *dry)
{
    attn_tape_free(dry->tape);
    attn_transformer_free(dry->model);
    attn_context_free(dry->ctx);
    memset(dry, 0, sizeof *dry);
}

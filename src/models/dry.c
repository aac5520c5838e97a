#include "dry.h"
#include <string.h>

attn_status attn__dry_open(attn_context *ctx, const attn_transformer_options *resolved, attn__dry *dry)
{
    attn_context_options o;
    memset(dry, 0, sizeof *dry);
    attn_status status = attn_context_options_init(&o, sizeof o);
    o.threads = 1;
    o.guard_blas = 0;
    o.backend = ctx->backend;
    if (status == ATTN_OK) status = attn_context_create(&o, &dry->ctx);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "context of a report");
    attn__arena_free(dry->ctx->scratch);
    dry->ctx->scratch = NULL;
    dry->ctx->dry = 1;
    status = attn__arena_create(dry->ctx->memory, 2, &dry->ctx->scratch);
    if (status == ATTN_OK) status = attn__transformer_make(dry->ctx, resolved, &dry->model);
    if (status == ATTN_OK) status = attn_tape_create(dry->ctx, &dry->tape);
    if (status != ATTN_OK) {
        attn__fail(ctx, status, "%s", attn_context_last_error(dry->ctx));
        attn__dry_close(dry);
    }
    return status;
}

void attn__dry_close(attn__dry *dry)
{
    attn_tape_free(dry->tape);
    attn_transformer_free(dry->model);
    attn_context_free(dry->ctx);
    memset(dry, 0, sizeof *dry);
}

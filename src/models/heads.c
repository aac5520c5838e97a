#include "heads.h"
#include <string.h>

attn_status attn__left_create(attn_context *ctx, int64_t layers, int64_t numbers, attn__left **out)
{
    int64_t first, second, bytes = (int64_t)sizeof(attn__left);
    void *memory;
    *out = NULL;
    if (attn__multiply(layers, (int64_t)sizeof(attn__kept), &first) || attn__multiply(numbers, (int64_t)sizeof(int64_t), &second) ||
        attn__sum(bytes, first, &bytes) || attn__sum(bytes, second, &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "heads of a model");
    attn_status status = attn__allocate_zero(ctx->memory, bytes, &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "heads of a model");
    attn__left *heads = memory;
    heads->memory = attn__memory_retain(ctx->memory);
    heads->bytes = bytes;
    heads->count = layers;
    heads->at = (attn__kept *)(heads + 1);
    heads->numbers = (int64_t *)(heads->at + layers);
    *out = heads;
    return ATTN_OK;
}

attn_status attn__left_copy(attn_context *ctx, const attn__left *from, attn__left **out)
{
    int64_t numbers = 0;
    *out = NULL;
    if (from == NULL) return ATTN_OK;
    for (int64_t i = 0; i < from->count; i++) numbers += from->at[i].count;
    attn_status status = attn__left_create(ctx, from->count, numbers, out);
    if (status != ATTN_OK) return status;
    memcpy((*out)->numbers, from->numbers, (size_t)numbers * sizeof(int64_t));
    for (int64_t i = 0; i < from->count; i++) {
        (*out)->at[i] = from->at[i];
        (*out)->at[i].heads = (*out)->numbers + (from->at[i].heads - from->numbers);
    }
    return ATTN_OK;
}

void attn__left_free(attn__left *heads)
{
    if (heads == NULL) return;
    attn__memory *memory = heads->memory;
    attn__deallocate(memory, heads, heads->bytes);
    attn__memory_release(memory);
}

const attn__kept *attn__left_of(const attn__left *heads, int64_t decoder, int64_t layer)
{
    for (int64_t low = 0, high = heads != NULL ? heads->count : 0; low < high;) {
        int64_t middle = low + (high - low) / 2;
        const attn__kept *kept = &heads->at[middle];
        if (kept->decoder == decoder && kept->layer == layer) return kept;
        if (kept->decoder < decoder || (kept->decoder == decoder && kept->layer < layer))
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int attn__left_same(const attn__left *a, const attn__left *b)
{
    if (a == NULL || b == NULL) return a == b;
    if (a->count != b->count) return 0;
    for (int64_t i = 0; i < a->count; i++) {
        const attn__kept *x = &a->at[i], *y = &b->at[i];
        if (x->decoder != y->decoder || x->layer != y->layer || x->count != y->count ||
            memcmp(x->heads, y->heads, (size_t)x->count * sizeof(int64_t)) != 0)
            return 0;
    }
    return 1;
}

int attn__left_grouped(const int64_t *numbers, int64_t count, int64_t group)
{
    if (count % group != 0) return 0;
    for (int64_t i = 0; i < count; i += group)
        if (numbers[i] % group != 0 || numbers[i + group - 1] != numbers[i] + group - 1) return 0;
    return 1;
}

#include "transformer.h"
#include <string.h>

attn_status attn_transformer_create(attn_context *ctx, const attn_transformer_options *options, attn_transformer **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_transformer_options o;
    attn_transformer *model = NULL;
    if (out == NULL) status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the model");
    if (status == ATTN_OK) status = attn__transformer_resolve(ctx, options, &o);
    if (status == ATTN_OK) status = attn__transformer_supported(ctx, &o);
    if (status == ATTN_OK) status = attn__transformer_make(ctx, &o, NULL, &model);
    if (status == ATTN_OK) {
        status = attn__initialise(ctx, model->parameters);
        if (status == ATTN_OK)
            *out = model;
        else
            attn_transformer_free(model);
    }
    return attn__leave(ctx, status);
}

static void free_metadata(attn__memory *memory, attn__metadata *entry)
{
    while (entry != NULL) {
        attn__metadata *next = entry->next;
        attn__deallocate(memory, entry, entry->bytes);
        entry = next;
    }
}

void attn_transformer_free(attn_transformer *model)
{
    if (!attn__is(model, ATTN__MAGIC_TRANSFORMER)) return;
    attn__memory *memory = model->memory;
    free_metadata(memory, model->metadata);
    attn__parameters_release(model->parameters);
    model->magic = 0;
    attn__deallocate(memory, model, (int64_t)sizeof *model);
    attn__memory_release(memory);
}

attn_status attn__transformer_add_metadata(attn_context *ctx, attn_transformer *model, const char *key, const char *value)
{
    /* entry, key and value in one piece of memory */
    int64_t key_bytes = (int64_t)strlen(key) + 1, value_bytes = (int64_t)strlen(value) + 1;
    int64_t bytes = (int64_t)sizeof(attn__metadata) + key_bytes + value_bytes;
    void *memory;
    attn_status status = attn__allocate(model->memory, bytes, &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "metadata of a model");
    attn__metadata *entry = memory;
    entry->bytes = bytes;
    entry->key = (char *)(entry + 1);
    entry->value = entry->key + key_bytes;
    memcpy(entry->key, key, (size_t)key_bytes);
    memcpy(entry->value, value, (size_t)value_bytes);
    entry->next = model->metadata;
    model->metadata = entry;
    return ATTN_OK;
}

const char *attn_transformer_metadata(const attn_transformer *model, const char *key)
{
    if (!attn__is(model, ATTN__MAGIC_TRANSFORMER) || key == NULL) return NULL;
    for (const attn__metadata *entry = model->metadata; entry != NULL; entry = entry->next)
        if (strcmp(entry->key, key) == 0) return entry->value;
    return NULL;
}

attn_parameters *attn_transformer_parameters(const attn_transformer *model)
{
    return attn__is(model, ATTN__MAGIC_TRANSFORMER) ? model->parameters : NULL;
}

attn_status attn_transformer_get_options(attn_context *ctx, const attn_transformer *model, attn_transformer_options *options)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK) {
        const attn_transformer_options *o = &attn__transformer_plan_of(model)->options;
        status = attn__report_write(ctx, "options", options, o, sizeof *o, ATTN__TRANSFORMER_OPTIONS_SMALLEST);
    }
    return attn__leave(ctx, status);
}

attn_status attn__transformer_attends(attn_context *ctx, const attn__transformer_plan *plan)
{
    if (plan->recurrent == NULL) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "model: got a recurrent one, expected one whose layers are attention");
}

attn_status attn_transformer_set_mask(attn_context *ctx, attn_transformer *model, int32_t decoder, int64_t layer, const attn_mask *mask)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK) {
        attn__transformer_plan *plan = model->parameters->plan;
        if (plan->recurrent != NULL)
            status = attn__transformer_attends(ctx, plan);
        else if (decoder != 0 && decoder != 1)
            status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "decoder: got %d, expected 0 or 1", (int)decoder);
        else if (!(decoder ? plan->has_decoder : plan->has_encoder))
            status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "decoder: got %d, expected %d as the model has no %s", (int)decoder,
                                !decoder, decoder ? "decoder" : "encoder");
        else
            status = attn__stack_set_mask(ctx, decoder ? &plan->decoder : &plan->encoder, layer, mask);
    }
    return attn__leave(ctx, status);
}

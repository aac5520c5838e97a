#include "call.h"
#include <attn/transformer.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

attn_status attn__stream_open(const attn__call *call, const char *argument, const attn_layout *layout, int64_t rows, attn__stream *out)
{
    attn__segments segments;
    attn__arena *arena = attn__tape_records(call->ctx, call->tape);
    attn_status status = attn__layout_tiling(call->ctx, argument, layout, rows, &segments);
    if (status == ATTN_OK) status = attn__segments_copy(call->ctx, arena, segments, &out->segments);
    if (status == ATTN_OK) status = attn__places_expand(call->ctx, arena, out->segments, rows, &out->places);
    return status;
}

attn_status attn__stream_keys(const attn__call *call, const char *argument, const attn_layout *layout, int64_t rows, attn__stream *out)
{
    attn__segments segments;
    memset(out, 0, sizeof *out);
    attn_status status = attn__layout_keys(call->ctx, argument, layout, rows, &segments);
    if (status == ATTN_OK) status = attn__segments_copy(call->ctx, attn__tape_records(call->ctx, call->tape), segments, &out->segments);
    return status;
}

attn__scope attn__scope_in(const attn__scope *scope, const char *name)
{
    attn__scope inner = *scope;
    size_t used = strlen(inner.path);
    snprintf(inner.path + used, sizeof inner.path - used, "%s.", name);
    return inner;
}

attn__scope attn__scope_at(const attn__scope *scope, const char *name, int64_t index)
{
    attn__scope inner = *scope;
    size_t used = strlen(inner.path);
    snprintf(inner.path + used, sizeof inner.path - used, "%s.%lld.", name, (long long)index);
    return inner;
}

static void full_name(const attn__scope *scope, const char *name, char out[2 * ATTN__MAX_NAME])
{
    snprintf(out, 2 * ATTN__MAX_NAME, "%s%s", scope->path, name);
}

uint64_t attn__scope_site(const attn__scope *scope, const char *name)
{
    char path[2 * ATTN__MAX_NAME];
    full_name(scope, name, path);
    return attn__hash(path);
}

attn_status attn__add_weight(const attn__scope *scope, const char *name, int32_t group, int64_t out, int64_t in,
                             const attn__start_rule *rule, double shrink, int64_t *index)
{
    char path[2 * ATTN__MAX_NAME];
    full_name(scope, name, path);
    const int64_t shape[2] = {out, in};
    int normal = rule->initialisation == ATTN_INITIALISATION_SCALED_NORMAL;
    /* Glorot and Bengio: uniform with variance 2 / (in + out) */
    double amount = normal ? rule->scale : sqrt(6.0 / fmax((double)in + (double)out, 1));
    return attn__parameters_add(scope->ctx, scope->set, path, group, 2, shape, ATTN__KIND_WEIGHT,
                                normal ? ATTN__START_NORMAL : ATTN__START_UNIFORM, amount * shrink, index);
}

attn_status attn__add_vector(const attn__scope *scope, const char *name, int32_t group, int64_t width, int32_t kind, double start,
                             int64_t *index)
{
    char path[2 * ATTN__MAX_NAME];
    full_name(scope, name, path);
    return attn__parameters_add(scope->ctx, scope->set, path, group, 1, &width, kind, ATTN__START_CONSTANT, start, index);
}

attn_status attn__add_table(const attn__scope *scope, const char *name, int64_t rows, int64_t width, const attn__start_rule *rule,
                            int64_t *index)
{
    char path[2 * ATTN__MAX_NAME];
    full_name(scope, name, path);
    const int64_t shape[2] = {rows, width};
    /* deviation 1 / sqrt(width): rows of length about 1, so that tied logits start near 0 */
    double amount = rule->initialisation == ATTN_INITIALISATION_SCALED_NORMAL ? rule->scale : 1 / sqrt((double)width);
    return attn__parameters_add(scope->ctx, scope->set, path, 1, 2, shape, ATTN__KIND_EMBEDDING, ATTN__START_NORMAL, amount, index);
}

int attn__parameters_alike(const attn_parameters *set, int64_t index, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        if (set->at[index + i].frozen != set->at[index].frozen) return 0;
    return 1;
}

attn_status attn__parameter_value(const attn__call *call, int64_t index, int64_t count, attn__value *out)
{
    memset(out, 0, sizeof *out);
    out->id = -1;
    if (index < 0) return ATTN_OK;
    view at = count == 1 ? attn__parameters_view(call->parameters, index) : attn__parameters_joined(call->parameters, index, count);
    return attn__tape_parameter(call->ctx, call->tape, call->parameters, &at, call->parameters->at[index].frozen, out);
}

attn_status attn__output_apart(const attn__call *call, const char *argument, const view *at)
{
    const view flat = attn__parameters_flat(call->parameters, call->parameters->flat);
    return attn__expect_apart(call->ctx, argument, at, "the parameters", &flat);
}

attn_status attn__initialise(attn_context *ctx, attn_parameters *set)
{
    const attn__kernels *kernels;
    attn_status status = attn__kernels_for(ctx, set->dtype, &kernels);
    for (int64_t i = 0; status == ATTN_OK && i < set->count; i++) {
        view at = attn__parameters_view(set, i);
        status = kernels->fill(ctx, &at, set->at[i].start, set->at[i].amount, attn__mix(ctx->seed, attn__hash(set->at[i].name)));
    }
    return status;
}

#include "optimizer.h"
#include <math.h>
#include "../core/options.h"

static const attn_optimizer_options defaults = {.struct_size = sizeof(attn_optimizer_options),
                                                .optimizer = ATTN_OPTIMIZER_ADAM,
                                                .no_decay = 0,
                                                .rate = 1e-3,
                                                .beta1 = 0.9,
                                                .beta2 = 0.999,
                                                .epsilon = 1e-8,
                                                .weight_decay = 0,
                                                .l2 = 0,
                                                .clip = 0};

attn_status attn_optimizer_options_init(attn_optimizer_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

static const attn__field fields[] = {
    ATTN__INT32(attn_optimizer_options, optimizer, ATTN_OPTIMIZER_ADAM, ATTN_OPTIMIZER_ADAMW),
    ATTN__INT32(attn_optimizer_options, no_decay, 0, ATTN_NO_DECAY_BIAS | ATTN_NO_DECAY_NORM | ATTN_NO_DECAY_EMBEDDING),
    ATTN__REAL(attn_optimizer_options, rate, 0, 0, HUGE_VAL),
    ATTN__REAL(attn_optimizer_options, beta1, ATTN__BELOW, 0, 1),
    ATTN__REAL(attn_optimizer_options, beta2, ATTN__BELOW, 0, 1),
    ATTN__REAL(attn_optimizer_options, epsilon, 0, 0, HUGE_VAL),
    ATTN__REAL(attn_optimizer_options, weight_decay, 0, 0, HUGE_VAL),
    ATTN__REAL(attn_optimizer_options, l2, 0, 0, HUGE_VAL),
    ATTN__REAL(attn_optimizer_options, clip, 0, 0, HUGE_VAL)};

static attn_status check_options(attn_context *ctx, const char *argument, const attn_optimizer_options *o)
{
    attn_status status = ATTN__CHECK(ctx, argument, o, fields);
    if (status != ATTN_OK) return status;
    if (o->optimizer == ATTN_OPTIMIZER_ADAM && o->weight_decay != 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "%s.weight_decay: got %g, expected 0 with Adam (decoupled decay is AdamW; l2 is the penalty in the loss)",
                          argument, o->weight_decay);
    return ATTN_OK;
}

attn_status attn__optimizer_make(attn_context *ctx, attn_parameters *parameters, const char *argument,
                                 const attn_optimizer_options *options, attn_optimizer **out)
{
    attn_optimizer_options o;
    void *memory = NULL;
    attn_status status = attn__expect(ctx, "parameters", parameters, ATTN__MAGIC_PARAMETERS, "attn_parameters");
    if (status == ATTN_OK) status = attn__options_read(ctx, argument, options, &defaults, sizeof o, sizeof o, &o);
    if (status == ATTN_OK) status = check_options(ctx, argument, &o);
    if (status != ATTN_OK) return status;
    status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_optimizer), &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "optimizer");
    attn_optimizer *made = memory;
    made->magic = ATTN__MAGIC_OPTIMIZER;
    made->memory = attn__memory_retain(ctx->memory);
    made->parameters = attn__parameters_retain(parameters);
    made->options = o;
    made->rate = o.rate;
    int64_t bytes = parameters->flat_elements * attn__dtype_bytes(parameters->dtype);
    status = attn__allocate_zero(made->memory, bytes, &made->first);
    if (status == ATTN_OK) status = attn__allocate_zero(made->memory, bytes, &made->second);
    if (status == ATTN_OK) {
        *out = made;
        return ATTN_OK;
    }
    attn_optimizer_free(made);
    return attn__fail_memory(ctx, status, "moments of the optimizer");
}

attn_status attn_optimizer_create(attn_context *ctx, attn_parameters *parameters, const attn_optimizer_options *options,
                                  attn_optimizer **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    if (out == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the optimizer");
    else
        status = attn__optimizer_make(ctx, parameters, "options", options, out);
    return attn__leave(ctx, status);
}

void attn_optimizer_free(attn_optimizer *optimizer)
{
    if (!attn__is(optimizer, ATTN__MAGIC_OPTIMIZER)) return;
    attn__memory *memory = optimizer->memory;
    int64_t bytes = optimizer->parameters->flat_elements * attn__dtype_bytes(optimizer->parameters->dtype);
    attn__deallocate(memory, optimizer->first, bytes);
    attn__deallocate(memory, optimizer->second, bytes);
    attn__parameters_release(optimizer->parameters);
    optimizer->magic = 0;
    attn__deallocate(memory, optimizer, (int64_t)sizeof *optimizer);
    attn__memory_release(memory);
}

attn_status attn_optimizer_set_rate(attn_context *ctx, attn_optimizer *optimizer, double rate)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "optimizer", optimizer, ATTN__MAGIC_OPTIMIZER, "attn_optimizer");
    if (status == ATTN_OK && !(rate >= 0 && isfinite(rate)))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "rate: got %g, expected a finite number of at least 0", rate);
    if (status == ATTN_OK) optimizer->rate = rate;
    return attn__leave(ctx, status);
}

double attn_optimizer_rate(const attn_optimizer *optimizer)
{
    return attn__is(optimizer, ATTN__MAGIC_OPTIMIZER) ? optimizer->rate : NAN;
}

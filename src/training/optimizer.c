#include "optimizer.h"
#include <math.h>

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

static attn_status check_options(attn_context *ctx, const attn_optimizer_options *o)
{
    const struct {
        const char *name;
        double value, most;
    } at[] = {{"rate", o->rate, HUGE_VAL}, {"epsilon", o->epsilon, HUGE_VAL}, {"weight_decay", o->weight_decay, HUGE_VAL},
              {"l2", o->l2, HUGE_VAL},     {"clip", o->clip, HUGE_VAL},       {"beta1", o->beta1, 1},
              {"beta2", o->beta2, 1}};
    for (int i = 0; i < 7; i++)
        if (!(at[i].value >= 0 && at[i].value < at[i].most))
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got %g, expected at least 0 and %s", at[i].name, at[i].value,
                              at[i].most == 1 ? "below 1" : "finite");
    if (o->optimizer != ATTN_OPTIMIZER_ADAM && o->optimizer != ATTN_OPTIMIZER_ADAMW)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "optimizer: got %d, expected ATTN_OPTIMIZER_ADAM (0) or _ADAMW (1)",
                          (int)o->optimizer);
    if (o->optimizer == ATTN_OPTIMIZER_ADAM && o->weight_decay != 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "weight_decay: got %g, expected 0 with Adam (decoupled decay is AdamW; l2 is the penalty in the loss)",
                          o->weight_decay);
    if (o->no_decay & ~(ATTN_NO_DECAY_BIAS | ATTN_NO_DECAY_NORM | ATTN_NO_DECAY_EMBEDDING))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "no_decay: got %d, expected ATTN_NO_DECAY bits", (int)o->no_decay);
    return ATTN_OK;
}

attn_status attn__optimizer_make(attn_context *ctx, attn_parameters *parameters, const attn_optimizer_options *options,
                                 attn_optimizer **out)
{
    attn_optimizer_options o;
    void *memory = NULL;
    attn_status status = attn__expect(ctx, "parameters", parameters, ATTN__MAGIC_PARAMETERS, "attn_parameters");
    if (status == ATTN_OK) status = attn__options_read(ctx, "options", options, &defaults, sizeof o, sizeof o, &o);
    if (status == ATTN_OK) status = check_options(ctx, &o);
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
        status = attn__optimizer_make(ctx, parameters, options, out);
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

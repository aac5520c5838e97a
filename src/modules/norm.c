#include "norm.h"

attn_status attn__norm_plan(const attn__scope *scope, const char *name, int64_t width, int32_t norm, int32_t bias, double epsilon,
                            attn__norm_module *module)
{
    attn__scope here = attn__scope_in(scope, name);
    *module = (attn__norm_module){-1, -1, norm, 0, epsilon};
    attn_status status = attn__add_vector(&here, "weight", 1, width, ATTN__KIND_NORM, 1, &module->weight);
    if (status == ATTN_OK && bias && norm == ATTN_NORM_LAYER)
        status = attn__add_vector(&here, "bias", 1, width, ATTN__KIND_NORM, 0, &module->bias);
    return status;
}

attn_status attn__norm_run(const attn__call *call, const attn__norm_module *module, const attn__value *x, const attn__value *s,
                           const attn__dropout *drop, attn__value *r, attn__value *y)
{
    attn__value gain, shift;
    attn_status status = attn__parameter_value(call, module->weight, 1, &gain);
    if (status == ATTN_OK) status = attn__parameter_value(call, module->bias, 1, &shift);
    if (status != ATTN_OK) return status;
    return attn__residual_norm(call->ctx, call->tape, x, s, drop, module->norm, module->epsilon, &gain, module->bias >= 0 ? &shift : NULL,
                               s != NULL ? r : NULL, y);
}

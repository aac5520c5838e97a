#include "linear.h"

attn_status attn__linear_plan(const attn__scope *scope, const char *name, int64_t in, int64_t out, int32_t bias,
                              const attn__start_rule *rule, double shrink, attn__linear_module *module)
{
    attn__scope here = attn__scope_in(scope, name);
    *module = (attn__linear_module){in, out, -1, -1};
    attn_status status = attn__add_weight(&here, "weight", 1, out, in, rule, shrink, &module->weight);
    if (status == ATTN_OK && bias) status = attn__add_vector(&here, "bias", 1, out, ATTN__KIND_BIAS, 0, &module->bias);
    return status;
}

attn_status attn__linear_run(const attn__call *call, const attn__linear_module *module, const attn__value *x, attn__value *y)
{
    return attn__linear_activate(call, module, x, NULL, NULL, y);
}

attn_status attn__linear_activate(const attn__call *call, const attn__linear_module *module, const attn__value *x,
                                  const attn__activation *act, const attn__dropout *drop, attn__value *y)
{
    attn__value weight, bias;
    attn_status status = attn__parameter_value(call, module->weight, 1, &weight);
    if (status == ATTN_OK) status = attn__parameter_value(call, module->bias, 1, &bias);
    if (status != ATTN_OK) return status;
    return attn__linear(call->ctx, call->tape, x, &weight, module->bias >= 0 ? &bias : NULL, act, NULL, drop, y);
}

#ifndef ATTN_MODULES_LINEAR_H
#define ATTN_MODULES_LINEAR_H
#include "call.h"

/* y = x W^T + b, weight [out, in]. bias -1: none. */
typedef struct attn__linear_module {
    int64_t in, out, weight, bias;
} attn__linear_module;
attn_status attn__linear_plan(const attn__scope *scope, const char *name, int64_t in, int64_t out, int32_t bias,
                              const attn__start_rule *rule, double shrink, attn__linear_module *module);
attn_status attn__linear_run(const attn__call *call, const attn__linear_module *module, const attn__value *x, attn__value *y);
/* y = dropout(act(x W^T + b)); drop may be NULL */
attn_status attn__linear_activate(const attn__call *call, const attn__linear_module *module, const attn__value *x,
                                  const attn__activation *act, const attn__dropout *drop, attn__value *y);
#endif

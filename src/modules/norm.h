#ifndef ATTN_MODULES_NORM_H
#define ATTN_MODULES_NORM_H
#include "call.h"

/* LayerNorm (5.16), (5.17) or RMSNorm over the columns, with gain and, by option, shift. */
typedef struct attn__norm_module {
    int64_t weight, bias;
    int32_t norm, reserved;
    double epsilon;
} attn__norm_module;
attn_status attn__norm_plan(const attn__scope *scope, const char *name, int64_t width, int32_t norm, int32_t bias, double epsilon,
                            attn__norm_module *module);
/* r = x + dropout(s), y = norm(r); s NULL: y = norm(x), r is not used. r NULL: the sum is not wanted outside. */
attn_status attn__norm_run(const attn__call *call, const attn__norm_module *module, const attn__value *x, const attn__value *s,
                           const attn__dropout *drop, attn__value *r, attn__value *y);
#endif

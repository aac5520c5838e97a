#ifndef ATTN_MODULES_FEED_FORWARD_H
#define ATTN_MODULES_FEED_FORWARD_H
#include "call.h"

/* Definition 5.2, (5.10): y = act(x W1 + b1) W2 + b2, row by row; gated: (act(x G) * (x U)) W2. Parameters: input.weight [hidden, width], or
   gate.weight and up.weight, adjacent; output.weight [width, hidden]; biases; beta (Swish, learned). */
typedef struct attn__feed_forward_options {
    int64_t width, hidden;
    int32_t activation, gated, bias, learned_beta;
    double beta, dropout; /* dropout: of the activation */
} attn__feed_forward_options;
typedef struct attn__feed_forward_module {
    attn__feed_forward_options options;
    int64_t input_weight, input_bias, output_weight, output_bias, beta;
    uint64_t site;
} attn__feed_forward_module;
attn_status attn__feed_forward_plan(const attn__scope *scope, const char *name, const attn__feed_forward_options *options,
                                    const attn__start_rule *rule, double shrink, attn__feed_forward_module *module);
attn_status attn__feed_forward_run(const attn__call *call, const attn__feed_forward_module *module, const attn__value *x,
                                   attn__places places, attn__value *y);
#endif

#ifndef ATTN_AUTOGRAD_ATTENTION_BIAS_H
#define ATTN_AUTOGRAD_ATTENTION_BIAS_H
#include <attn/attention.h>
#include "arguments.h"

/* Position biases of a public call: the description, and its tables as values (those that are there). */
typedef struct attn__bias_arguments {
    attn__attention_bias bias;
    attn__value distance, relative_keys, relative_values, pair;
} attn__bias_arguments;

typedef struct attn__bias_call {
    const view *query, *value, *output;
    attn__segments queries, keys;
} attn__bias_call;

/* Checks `count` biases by name and puts them into the settings, which borrow `out`. */
attn_status attn__bias_read(attn_context *ctx, attn_tape *tape, int64_t count, const attn_attention_bias *const *biases,
                            const attn__bias_call *call, attn__bias_arguments *out, attn__attention_settings *settings);
#endif

#ifndef ATTN_MODULES_RECURRENT_H
#define ATTN_MODULES_RECURRENT_H
#include <attn/recurrent.h>
#include "linear.h"

/* One recurrent layer in one direction: what the inputs give to its gates, x W^T + b, and the weight of its own state. LSTM: a row of gates is
   i, f, g and o side by side. */
typedef struct attn__recurrent_module {
    attn__linear_module input; /* to the gates' columns */
    int64_t width, hidden;     /* hidden: its weight is [columns, width] */
    int32_t kind, reserved;    /* ATTN_RECURRENT_* */
} attn__recurrent_module;
attn_status attn__recurrent_plan(const attn__scope *scope, int32_t kind, int64_t in, int64_t width, const attn__start_rule *rule,
                                 attn__recurrent_module *module);
/* gates [rows, input.out], a temporary */
attn_status attn__recurrent_input(const attn__call *call, const attn__recurrent_module *module, const attn__value *x, attn__value *gates);
/* attn__recurrent with the module's weight; hidden, cell, final_hidden, final_cell may be NULL, those of cells are not looked at without one */
attn_status attn__recurrent_run(const attn__call *call, const attn__recurrent_module *module, const attn__value *gates, int32_t reverse,
                                attn__segments segments, const attn__value *hidden, const attn__value *cell, attn__value *output,
                                attn__value *final_hidden, attn__value *final_cell);
static inline int attn__recurrent_has_cell(const attn__recurrent_module *module)
{
    return module->kind == ATTN_RECURRENT_LSTM;
}
#endif

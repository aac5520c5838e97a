#include "recurrent.h"

attn_status attn__recurrent_plan(const attn__scope *scope, int32_t kind, int64_t in, int64_t width, const attn__start_rule *rule,
                                 attn__recurrent_module *module)
{
    const int64_t columns = attn__recurrent_gates(kind) * width;
    *module = (attn__recurrent_module){.width = width, .kind = kind};
    attn_status status = attn__linear_plan(scope, "input", in, columns, 1, rule, 1, &module->input);
    return status == ATTN_OK ? attn__add_weight(scope, "hidden.weight", 1, columns, width, rule, 1, &module->hidden) : status;
}

attn_status attn__recurrent_input(const attn__call *call, const attn__recurrent_module *m, const attn__value *x, attn__value *gates)
{
    attn_status status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, m->input.out, x->at.dtype, gates);
    return status == ATTN_OK ? attn__linear_run(call, &m->input, x, gates) : status;
}

attn_status attn__recurrent_run(const attn__call *call, const attn__recurrent_module *m, const attn__value *gates, int32_t reverse,
                                attn__segments segments, const attn__value *hidden, const attn__value *cell, attn__value *output,
                                attn__value *final_hidden, attn__value *final_cell)
{
    const attn__recurrent_settings settings = {m->kind, reverse, segments};
    attn__value weight;
    attn_status status = attn__parameter_value(call, m->hidden, 1, &weight);
    if (status != ATTN_OK) return status;
    if (!attn__recurrent_has_cell(m)) cell = NULL, final_cell = NULL;
    return attn__recurrent(call->ctx, call->tape, gates, &weight, hidden, cell, &settings, output, final_hidden, final_cell);
}

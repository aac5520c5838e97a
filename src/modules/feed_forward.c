#include "feed_forward.h"

static attn_status plan_input(const attn__scope *here, const attn__feed_forward_options *o, const attn__start_rule *rule,
                              attn__feed_forward_module *module)
{
    attn_status status;
    if (!o->gated) {
        status = attn__add_weight(here, "input.weight", 1, o->hidden, o->width, rule, 1, &module->input_weight);
        if (status == ATTN_OK && o->bias)
            status = attn__add_vector(here, "input.bias", 1, o->hidden, ATTN__KIND_BIAS, 0, &module->input_bias);
        return status;
    }
    status = attn__add_weight(here, "gate.weight", 1, o->hidden, o->width, rule, 1, &module->input_weight);
    if (status == ATTN_OK) status = attn__add_weight(here, "up.weight", 0, o->hidden, o->width, rule, 1, NULL);
    if (status == ATTN_OK && o->bias) status = attn__add_vector(here, "gate.bias", 1, o->hidden, ATTN__KIND_BIAS, 0, &module->input_bias);
    if (status == ATTN_OK && o->bias) status = attn__add_vector(here, "up.bias", 0, o->hidden, ATTN__KIND_BIAS, 0, NULL);
    return status;
}

attn_status attn__feed_forward_plan(const attn__scope *scope, const char *name, const attn__feed_forward_options *options,
                                    const attn__start_rule *rule, double shrink, attn__feed_forward_module *module)
{
    attn__scope here = attn__scope_in(scope, name);
    *module = (attn__feed_forward_module){*options, -1, -1, -1, -1, -1, attn__scope_site(&here, "activation")};
    attn_status status = plan_input(&here, options, rule, module);
    if (status == ATTN_OK)
        status = attn__add_weight(&here, "output.weight", 1, options->width, options->hidden, rule, shrink, &module->output_weight);
    if (status == ATTN_OK && options->bias)
        status = attn__add_vector(&here, "output.bias", 1, options->width, ATTN__KIND_BIAS, 0, &module->output_bias);
    if (status == ATTN_OK && options->learned_beta)
        status = attn__add_vector(&here, "beta", 1, 1, ATTN__KIND_SCALAR, options->beta, &module->beta);
    return status;
}

/* can gate and up be one product? frozen alike */
static int joins(const attn__call *call, const attn__feed_forward_module *module)
{
    return attn__parameters_alike(call->parameters, module->input_weight, 2) &&
           (module->input_bias < 0 || attn__parameters_alike(call->parameters, module->input_bias, 2));
}

/* hidden = dropout(act(gate) up), each a product of its own, so that one may be frozen without the other */
static attn_status gate_apart(const attn__call *call, const attn__feed_forward_module *module, const attn__value *x,
                              const attn__activation *act, const attn__value *learned, const attn__dropout *drop, attn__value *hidden)
{
    attn__value w, b, half[2], product = *hidden;
    attn_status status = ATTN_OK;
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        status = attn__parameter_value(call, module->input_weight + i, 1, &w);
        if (status == ATTN_OK) status = attn__parameter_value(call, module->input_bias < 0 ? -1 : module->input_bias + i, 1, &b);
        if (status == ATTN_OK)
            status = attn__tape_temporary(call->ctx, call->tape, hidden->at.rows, hidden->at.width, hidden->at.dtype, &half[i]);
        if (status == ATTN_OK)
            status = attn__linear(call->ctx, call->tape, x, &w, module->input_bias < 0 ? NULL : &b, i == 0 ? act : NULL,
                                  i == 0 ? learned : NULL, NULL, &half[i]);
    }
    if (status == ATTN_OK && drop->rate > 0)
        status = attn__tape_temporary(call->ctx, call->tape, hidden->at.rows, hidden->at.width, hidden->at.dtype, &product);
    if (status == ATTN_OK) status = attn__multiply_elements(call->ctx, call->tape, &half[0], &half[1], &product);
    if (status == ATTN_OK && drop->rate > 0) return attn__drop(call->ctx, call->tape, &product, drop, hidden);
    *hidden = product;
    return status;
}

attn_status attn__feed_forward_run(const attn__call *call, const attn__feed_forward_module *module, const attn__value *x,
                                   attn__places places, attn__value *y)
{
    const attn__feed_forward_options *o = &module->options;
    int64_t members = o->gated ? 2 : 1;
    attn__value w1, b1, w2, b2, beta, hidden;
    attn_status status = attn__parameter_value(call, module->input_weight, members, &w1);
    if (status == ATTN_OK) status = attn__parameter_value(call, module->input_bias, members, &b1);
    if (status == ATTN_OK) status = attn__parameter_value(call, module->output_weight, 1, &w2);
    if (status == ATTN_OK) status = attn__parameter_value(call, module->output_bias, 1, &b2);
    if (status == ATTN_OK) status = attn__parameter_value(call, module->beta, 1, &beta);
    if (status == ATTN_OK) status = attn__tape_temporary(call->ctx, call->tape, x->at.rows, o->hidden, x->at.dtype, &hidden);
    if (status != ATTN_OK) return status;

    attn__activation act = {o->activation, 0, o->beta, NULL};
    attn__dropout drop = attn__tape_dropout(call->tape, o->dropout, module->site, places);
    const attn__value *bias1 = o->bias ? &b1 : NULL, *learned = o->learned_beta ? &beta : NULL;
    /* hidden: [rows, hidden] */
    status = o->gated && !joins(call, module) ? gate_apart(call, module, x, &act, learned, &drop, &hidden)
             : o->gated                       ? attn__linear_gated(call->ctx, call->tape, x, &w1, bias1, &act, learned, &drop, &hidden)
                                              : attn__linear(call->ctx, call->tape, x, &w1, bias1, &act, learned, &drop, &hidden);
    if (status != ATTN_OK) return status;
    return attn__linear(call->ctx, call->tape, &hidden, &w2, o->bias ? &b2 : NULL, NULL, NULL, NULL, y);
}

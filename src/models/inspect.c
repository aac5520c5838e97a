#include <attn/inspect.h>
#include <inttypes.h>
#include "../tensor/tensor.h"
#include "transformer.h"

static const attn_inspect_request defaults = {.struct_size = sizeof(attn_inspect_request)};

attn_status attn_inspect_request_init(attn_inspect_request *request, uint64_t size)
{
    return attn__options_init(request, size, &defaults, sizeof defaults);
}

static attn_status wrong(attn_context *ctx, const char *field, int64_t got, int64_t end)
{
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "request.%s: got %" PRId64 ", expected 0 or more and less than %" PRId64, field,
                      got, end);
}

/* a recurrent model has one attention at most: its decoder's, with one head */
static attn_status find_recurrent(attn_context *ctx, const attn__recurrent_model *m, const attn_inspect_request *r,
                                  const attn__attention_module **out)
{
    if (r->part != ATTN_INSPECT_CROSS || !m->has_attention)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "request.part: got %d of a recurrent model %s attention, expected %s",
                          (int)r->part, m->has_attention ? "with" : "without",
                          m->has_attention ? "ATTN_INSPECT_CROSS" : "a model that has some");
    if (r->layer != 0) return wrong(ctx, "layer", r->layer, 1);
    *out = &m->attention;
    return ATTN_OK;
}

static attn_status find_module(attn_context *ctx, const attn__transformer_plan *plan, const attn_inspect_request *r,
                               const attn__attention_module **out)
{
    if (r->part < ATTN_INSPECT_ENCODER || r->part > ATTN_INSPECT_CROSS)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "request.part: got %d, expected ATTN_INSPECT_ENCODER, _DECODER or _CROSS",
                          (int)r->part);
    if (r->reserved != 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "request.reserved: got %d, expected 0", (int)r->reserved);
    if (plan->recurrent != NULL) return find_recurrent(ctx, plan->recurrent, r, out);
    int there =
        r->part == ATTN_INSPECT_ENCODER ? plan->has_encoder : plan->has_decoder && (r->part == ATTN_INSPECT_DECODER || plan->has_encoder);
    if (!there)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "request.part: got %d, expected a part that the model has", (int)r->part);
    const attn__stack *stack = r->part == ATTN_INSPECT_ENCODER ? &plan->encoder : &plan->decoder;
    if (r->layer < 0 || r->layer >= stack->side.layers) return wrong(ctx, "layer", r->layer, stack->side.layers);
    if (r->part != ATTN_INSPECT_CROSS && stack->layers[r->layer].self.options.form != ATTN_FORM_SOFTMAX)
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "request.part: got %d, whose attention has no weights, expected a part that has",
                          (int)r->part);
    *out = r->part == ATTN_INSPECT_CROSS ? &stack->layers[r->layer].cross : &stack->layers[r->layer].self;
    return ATTN_OK;
}

/* what the request's tensors have room for, against the batch */
static attn_status check_request(attn_context *ctx, const attn_inspect_request *r, const attn__attention_module *module,
                                 const attn__batch_views *batch, attn__attention_observer *observer, view *weights)
{
    const attn__stream *queries = r->part == ATTN_INSPECT_ENCODER ? &batch->source_stream : &batch->target_stream;
    const attn__stream *keys = r->part == ATTN_INSPECT_DECODER ? &batch->target_stream : &batch->source_stream;
    int64_t rows = r->part == ATTN_INSPECT_ENCODER ? batch->source.rows : batch->target.rows, heads = module->options.heads;
    attn_status status = ATTN_OK;
    if (r->weights != NULL) {
        if (r->segment < 0 || r->segment >= queries->segments.count) return wrong(ctx, "segment", r->segment, queries->segments.count);
        int64_t length = queries->segments.at[r->segment].length;
        status =
            attn__weights_view(ctx, "request.weights", r->weights, module->options.dtype, keys->segments.at[r->segment].length, weights);
        if (status != ATTN_OK) return status;
        if (r->row < 0 || r->row > length || weights->rows > length - r->row) return wrong(ctx, "row", r->row, length - weights->rows + 1);
        if (r->head < 0 || r->head > heads || weights->heads > heads - r->head)
            return wrong(ctx, "head", r->head, heads - weights->heads + 1);
        observer->weights = weights;
        observer->part = (attn__weights_part){r->segment, r->row, r->head};
    }
    if (r->entropy == NULL) return ATTN_OK;
    view at;
    status = attn__rows(ctx, "request.entropy", r->entropy, module->options.dtype, &at);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "request.entropy", &at, heads, 1, rows);
    if (status == ATTN_OK && !attn__view_dense(&at))
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "request.entropy: got gaps between its rows, expected none");
    if (status == ATTN_OK && observer->weights != NULL)
        status = attn__expect_apart(ctx, "request.entropy", &at, "request.weights", weights);
    observer->entropy = at.data;
    return status;
}

static attn_status inspect(attn_context *ctx, const attn_transformer *model, const attn_batch *batch, const attn_inspect_request *request)
{
    attn_status status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status != ATTN_OK) return status;
    if (request == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "request: got NULL, expected an attn_inspect_request");
    const attn__transformer_plan *plan = attn__transformer_plan_of(model);
    const attn__call call = {ctx, NULL, model->parameters};
    attn__attention_observer observer = {.module = NULL};
    attn__batch_views views;
    attn_inspect_request r;
    attn__value hidden;
    view weights;
    status = attn__options_read(ctx, "request", request, &defaults, sizeof r, sizeof r, &r);
    if (status == ATTN_OK) status = find_module(ctx, plan, &r, &observer.module);
    if (status == ATTN_OK) status = attn__transformer_batch(&call, plan, batch, 0, &views);
    if (status == ATTN_OK) status = check_request(ctx, &r, observer.module, &views, &observer, &weights);
    if (status == ATTN_OK)
        status = attn__tape_temporary(ctx, NULL, views.rows, plan->has_decoder ? plan->options.decoder_width : plan->options.width,
                                      plan->options.dtype, &hidden);
    if (status != ATTN_OK) return status;
    ctx->observer = &observer;
    status = attn__transformer_hidden(&call, plan, &views, &hidden);
    ctx->observer = NULL;
    return status;
}

attn_status attn_transformer_inspect(attn_context *ctx, const attn_transformer *model, const attn_batch *batch,
                                     const attn_inspect_request *request)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, inspect(ctx, model, batch, request));
}

#ifndef TESTS_GOLDEN_MODEL_CASE_H
#define TESTS_GOLDEN_MODEL_CASE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/golden.h"

/* A model with the weights of a golden file, and the batch in it. */
typedef struct model_case {
    golden g;
    attn_transformer *model;
    attn_parameters *parameters;
    attn_batch batch;
    attn_tensor *tensors[3];
    attn_layout *layouts[2];
} model_case;

typedef attn_transformer_options model_case_options(int32_t dtype);

/* part: what the names in the file begin with, where it holds several models */
static inline void open_part(model_case *c, const char *name, const char *part, model_case_options *options, int32_t backend, double within)
{
    memset(c, 0, sizeof *c);
    golden_open(&c->g, name, backend, within);
    snprintf(c->g.part, sizeof c->g.part, "%s", part);
    const attn_transformer_options o = options(c->g.dtype);
    int encodes = o.encoder_layers > 0;
    OK(c->g.ctx, attn_transformer_create(c->g.ctx, &o, &c->model));
    c->parameters = attn_transformer_parameters(c->model);
    golden_load(&c->g, c->parameters);
    OK(c->g.ctx, attn_batch_init(&c->batch, sizeof c->batch));
    if (encodes) c->batch.source = c->tensors[0] = golden_tensor(&c->g, "source");
    if (encodes) c->batch.source_layout = c->layouts[0] = golden_layout(&c->g, "source_lengths");
    c->batch.target = c->tensors[1] = golden_tensor(&c->g, "target");
    c->batch.labels = c->tensors[2] = golden_tensor(&c->g, "labels");
    c->batch.target_layout = c->layouts[1] = golden_layout(&c->g, "target_lengths");
}

static inline void open_case(model_case *c, const char *name, model_case_options *options, int32_t backend, double within)
{
    open_part(c, name, "", options, backend, within);
}

static void close_case(model_case *c)
{
    for (int i = 0; i < 3; i++) attn_tensor_free(c->tensors[i]);
    for (int i = 0; i < 2; i++) attn_layout_free(c->layouts[i]);
    attn_transformer_free(c->model);
    golden_close(&c->g);
}

static void expect_values(model_case *c, double smoothing)
{
    attn_context *ctx = c->g.ctx;
    attn_tensor *logits = golden_tensor(&c->g, "logits"), *loss = model_tensor(ctx, c->g.dtype, 1, 0);
    for (int64_t i = 0; i < model_elements(logits); i++) model_set(logits, i, NAN);
    OK(ctx, attn_transformer_forward(ctx, c->model, NULL, &c->batch, logits));
    golden_expect(&c->g, "logits", logits, 0);

    attn_tape *tape = NULL;
    attn_gradients *gradients = NULL;
    attn_cross_entropy_options o;
    attn_loss_report report = {.struct_size = sizeof report};
    OK(ctx, attn_cross_entropy_options_init(&o, sizeof o));
    o.label_smoothing = smoothing;
    o.mean = 1;
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_gradients_create(ctx, c->parameters, &gradients));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    OK(ctx, attn_transformer_loss(ctx, c->model, tape, &c->batch, &o, loss, &report));
    golden_expect(&c->g, "loss", loss, 0);
    if (smoothing > 0)
        assert_true(fabs(report.unsmoothed_sum / (double)report.count / golden_number(&c->g, "unsmoothed_loss", 0) - 1) <= c->g.within);
    const attn_tensor *const outputs[1] = {loss};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, NULL, 1, &gradients));
    golden_expect_gradients(&c->g, c->parameters, gradients);
    attn_gradients_free(gradients);
    attn_tape_free(tape);
    attn_tensor_free(loss);
    attn_tensor_free(logits);
}
#endif

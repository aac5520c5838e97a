#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/golden.h"

/* One encoder layer and one decoder layer with a memory against torch.nn.TransformerEncoderLayer and TransformerDecoderLayer: outputs and
   the gradients of inputs and all parameters, for two sequences of unequal length. */
typedef struct layer_case {
    const char *part;
    int32_t cross, placement, activation;
} layer_case;
typedef struct run {
    attn_encoder *encoder;
    attn_decoder *decoder;
    attn_parameters *parameters;
    attn_tensor *x, *memory, *dx, *dmemory, *output, *g;
    attn_layout *layout, *memory_layout;
    attn_tape *tape;
} run;

static void create(const golden *g, const layer_case *c, run *r)
{
    attn_transformer_options o = model_options(1, 1);
    o.norm_placement = c->placement;
    o.final_norm = 0;
    o.activation = c->activation;
    o.norm_epsilon = 1e-5;
    o.dtype = g->dtype;
    if (c->cross)
        OK(g->ctx, attn_decoder_create(g->ctx, &o, &r->decoder));
    else
        OK(g->ctx, attn_encoder_create(g->ctx, &o, &r->encoder));
    r->parameters = c->cross ? attn_decoder_parameters(r->decoder) : attn_encoder_parameters(r->encoder);
    golden_load(g, r->parameters);
}

static void forward(const golden *g, run *r, attn_tape *tape)
{
    attn_context *ctx = g->ctx;
    if (r->decoder)
        OK(ctx, attn_decoder_forward(ctx, r->decoder, tape, r->x, r->memory, r->layout, r->memory_layout, NULL, NULL, r->output));
    else
        OK(ctx, attn_encoder_forward(ctx, r->encoder, tape, r->x, r->layout, NULL, r->output));
    golden_expect(g, "output", r->output, 0);
}

static void backward(const golden *g, run *r)
{
    attn_context *ctx = g->ctx;
    attn_gradients *gradients = NULL;
    OK(ctx, attn_gradients_create(ctx, r->parameters, &gradients));
    OK(ctx, attn_tape_create(ctx, &r->tape));
    OK(ctx, attn_tape_begin(ctx, r->tape, NULL));
    OK(ctx, attn_tape_watch(ctx, r->tape, r->x, r->dx));
    if (r->memory) OK(ctx, attn_tape_watch(ctx, r->tape, r->memory, r->dmemory));
    forward(g, r, r->tape);
    const attn_tensor *const outputs[1] = {r->output}, *const output_gradients[1] = {r->g};
    OK(ctx, attn_tape_backward(ctx, r->tape, 1, outputs, output_gradients, 1, &gradients));
    golden_expect(g, "dx", r->dx, 0);
    if (r->memory) golden_expect(g, "dmemory", r->dmemory, 0);
    golden_expect_gradients(g, r->parameters, gradients);
    attn_tape_free(r->tape);
    attn_gradients_free(gradients);
}

static void run_case(const golden *g, const layer_case *c)
{
    run r = {0};
    create(g, c, &r);
    r.x = golden_tensor(g, "x");
    r.g = golden_tensor(g, "g");
    r.dx = golden_like(g, r.x);
    r.output = golden_like(g, r.x);
    r.layout = golden_layout(g, "lengths");
    if (c->cross) {
        r.memory = golden_tensor(g, "memory");
        r.dmemory = golden_like(g, r.memory);
        r.memory_layout = golden_layout(g, "memory_lengths");
    }
    forward(g, &r, NULL);
    backward(g, &r);
    attn_tensor *const tensors[] = {r.x, r.memory, r.dx, r.dmemory, r.output, r.g};
    for (int i = 0; i < 6; i++) attn_tensor_free(tensors[i]);
    attn_layout_free(r.layout);
    attn_layout_free(r.memory_layout);
    attn_encoder_free(r.encoder);
    attn_decoder_free(r.decoder);
}

static void test_layers(void **state)
{
    (void)state;
    const layer_case cases[] = {{"encoder_post_relu.", 0, ATTN_PLACEMENT_POST, ATTN_ACTIVATION_RELU},
                                {"encoder_pre_gelu.", 0, ATTN_PLACEMENT_PRE, ATTN_ACTIVATION_GELU},
                                {"decoder_post_gelu.", 1, ATTN_PLACEMENT_POST, ATTN_ACTIVATION_GELU},
                                {"decoder_pre_relu.", 1, ATTN_PLACEMENT_PRE, ATTN_ACTIVATION_RELU}};
    for (int32_t backend = 0; backend < 2; backend++) {
        golden g;
        golden_open(&g, "layers", backend, backend == ATTN_BACKEND_BLAS ? 5e-6 : 1e-12);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            snprintf(g.part, sizeof g.part, "%s", cases[i].part);
            run_case(&g, &cases[i]);
        }
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <attn/inspect.h>
#include "injection/scenario.h"
#include "models/variants.h"

/* Stacks and whole models of every kind, forward, loss and backward, without memory; an optimizer's step; reports of costs. */

/* ---- variant 0 an encoder, 1 a decoder: two inputs and the output */
static void set_up_stack(world *w)
{
    const attn_transformer_options o = model_options(1, 2);
    for (int i = 0; i < 3; i++) w->tensor[i] = RANDOM_TENSOR(w, i, 5, 8);
    OK(w->ctx, attn_encoder_create(w->ctx, &o, &w->encoder));
    OK(w->ctx, attn_decoder_create(w->ctx, &o, &w->decoder));
    attn_parameters *set = w->variant ? attn_decoder_parameters(w->decoder) : attn_encoder_parameters(w->encoder);
    OK(w->ctx, attn_gradients_create(w->ctx, set, &w->gradients));
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
}

static attn_status act_stack(world *w)
{
    attn_tensor *const *t = w->tensor;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_gradients_zero(w->ctx, w->gradients));
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, NULL));
    AGAIN(w, status,
          w->variant ? attn_decoder_forward(w->ctx, w->decoder, w->tape, t[0], t[1], NULL, NULL, NULL, NULL, t[2])
                     : attn_encoder_forward(w->ctx, w->encoder, w->tape, t[0], NULL, NULL, t[2]));
    return run_backward(w, status, t[2]);
}

static void result_stack(world *w)
{
    note_tensor(w, w->tensor[2]);
    note_gradients(w, w->gradients);
}

static void test_stacks(void **state)
{
    static const scenario all[] = {{"an encoder's run", set_up_stack, act_stack, result_stack, NULL, EACH_AGAIN, 0},
                                   {"a decoder's run", set_up_stack, act_stack, result_stack, NULL, EACH_AGAIN, 1}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

/* ---- models: the rows and the loss are tensors 0 and 1 */
static void set_up_model(world *w)
{
    const attn_transformer_options o = variant_options(&variants[w->variant % VARIANTS], ATTN_FLOAT32, 0.1);
    int64_t width = o.target_vocabulary == ATTN_DERIVED ? 11 : o.target_vocabulary;
    if (!o.output_head) width = o.width;
    w->model = model_create(w->ctx, &o);
    if (w->variant >= VARIANTS) OK(w->ctx, attn_parameters_freeze(w->ctx, attn_transformer_parameters(w->model), "*gate.weight", 1, NULL));
    model_batch_open(w->ctx, &w->batch, &o, 2, (const int64_t[]){3, 2}, (const int64_t[]){2, 4}, 3);
    w->tensor[0] = model_tensor(w->ctx, ATTN_FLOAT32, w->batch.rows, width);
    w->tensor[1] = model_tensor(w->ctx, ATTN_FLOAT32, 1, 0);
    OK(w->ctx, attn_gradients_create(w->ctx, attn_transformer_parameters(w->model), &w->gradients));
    OK(w->ctx, attn_tape_create(w->ctx, &w->tape));
}

static attn_status infer(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_transformer_forward(w->ctx, w->model, NULL, &w->batch.batch, w->tensor[0]));
    return status;
}

static void result_rows(world *w)
{
    note_tensor(w, w->tensor[0]);
}

/* a model without an output head has no loss */
static attn_status train(world *w)
{
    const attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
    attn_transformer_options o = {.struct_size = sizeof o};
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_transformer_get_options(w->ctx, w->model, &o));
    AGAIN(w, status, attn_gradients_zero(w->ctx, w->gradients));
    AGAIN(w, status, attn_tape_begin(w->ctx, w->tape, &training));
    if (o.output_head)
        AGAIN(w, status, attn_transformer_loss(w->ctx, w->model, w->tape, &w->batch.batch, NULL, w->tensor[1], NULL));
    else
        AGAIN(w, status, attn_transformer_forward(w->ctx, w->model, w->tape, &w->batch.batch, w->tensor[0]));
    return run_backward(w, status, w->tensor[o.output_head]);
}

static void result_training(world *w)
{
    note_tensor(w, w->tensor[0]);
    note_tensor(w, w->tensor[1]);
    note_gradients(w, w->gradients);
}

static void test_forward(void **state)
{
    scenario all[VARIANTS];
    (void)state;
    for (int i = 0; i < VARIANTS; i++) all[i] = (scenario){variants[i].name, set_up_model, infer, result_rows, NULL, EACH_AGAIN, i};
    run_scenarios(all, VARIANTS);
}

static void test_backward(void **state)
{
    scenario all[VARIANTS + 1];
    (void)state;
    for (int i = 0; i <= VARIANTS; i++)
        all[i] = (scenario){variants[i % VARIANTS].name, set_up_model, train, result_training, NULL, EACH_AGAIN, i};
    all[VARIANTS].name = "GEGLU with biases";
    all[VARIANTS].variant += variant_index(all[VARIANTS].name);
    run_scenarios(all, VARIANTS + 1); /* the last one once more, its gates frozen */
}

/* ---- one update */
static void set_up_optimizer(world *w)
{
    attn_optimizer_options o;
    OK(w->ctx, attn_optimizer_options_init(&o, sizeof o));
    o.clip = 0.5;
    o.l2 = 0.1;
    set_up_model(w);
    OK(w->ctx, attn_optimizer_create(w->ctx, attn_transformer_parameters(w->model), &o, &w->optimizer));
    attn_status status = train(w);
    OK(w->ctx, status);
}

static attn_status update(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_optimizer_step(w->ctx, w->optimizer, w->gradients, 3, NULL));
    return status;
}

static void result_update(world *w)
{
    note_parameters(w, attn_transformer_parameters(w->model));
}

static void test_optimizer(void **state)
{
    static const scenario all[] = {{"an update", set_up_optimizer, update, result_update, NULL, EACH_AGAIN, 0}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

/* ---- looking into a model: weights and entropies of the attention across, tensors 2 and 3 */
static void set_up_inspection(world *w)
{
    attn_transformer_options o = {.struct_size = sizeof o};
    set_up_model(w);
    OK(w->ctx, attn_transformer_get_options(w->ctx, w->model, &o));
    w->tensor[2] = RANDOM_TENSOR(w, 2, 1, 4, 2);
    w->tensor[3] = RANDOM_TENSOR(w, 3, o.recurrence ? 1 : o.heads, w->batch.rows);
}

static attn_status inspect(world *w)
{
    attn_inspect_request r;
    attn_status status = attn_inspect_request_init(&r, sizeof r);
    r.part = ATTN_INSPECT_CROSS;
    r.segment = 1;
    r.weights = w->tensor[2];
    r.entropy = w->tensor[3];
    AGAIN(w, status, attn_transformer_inspect(w->ctx, w->model, &w->batch.batch, &r));
    return status;
}

static void result_inspection(world *w)
{
    note_tensor(w, w->tensor[2]);
    note_tensor(w, w->tensor[3]);
}

static void test_inspection(void **state)
{
    scenario all[] = {{"encoder-decoder, post-norm", set_up_inspection, inspect, result_inspection, NULL, EACH_AGAIN, 0},
                      {"LSTM, both ways, additive scores", set_up_inspection, inspect, result_inspection, NULL, EACH_AGAIN, 0}};
    (void)state;
    for (int i = 0; i < COUNT_OF(all); i++) all[i].variant = variant_index(all[i].name);
    run_scenarios(all, COUNT_OF(all));
}

/* ---- reports, whose records come from malloc */
enum { COST, MEMORY, DESCRIPTION, ATTENTION_COST, LINFORMER_COST, PERFORMER_COST, GLOBAL_COST, PATCHES_COST };
static void set_up_report(world *w)
{
    OK(w->ctx, attn_layout_create(w->ctx, 2, &w->layout));
    OK(w->ctx, attn_layout_set_lengths(w->ctx, w->layout, 2, (const int64_t[]){w->variant == ATTENTION_COST ? 400 : 70, 9},
                                       0)); /* long enough for two sweeps */
    OK(w->ctx, attn_mask_causal(w->ctx, ATTN_ALIGN_LAST, &w->mask[0]));
    OK(w->ctx, attn_mask_global(w->ctx, ATTN_ALIGN_LAST, 1, (const int64_t[]){3}, &w->mask[1]));
}

static attn_status report(world *w)
{
    attn_cost_report r = {.struct_size = sizeof r};
    attn_transformer_options o = model_options(1, w->variant != PATCHES_COST);
    attn_attention_options a;
    char name[160] = "";
    int32_t rank = 0;
    int64_t shape[4] = {0};
    attn_status status = attn_attention_options_init(&a, sizeof a);
    a.query_width = 8;
    if (w->variant == LINFORMER_COST) a.form = ATTN_FORM_LINFORMER, a.projected = 3, a.longest = 70;
    if (w->variant == PERFORMER_COST) a.form = ATTN_FORM_PERFORMER;
    a.global_projections = w->variant == GLOBAL_COST;
    if (w->variant == PATCHES_COST) o.patch_values = 12;
    switch (w->variant) {
    case PATCHES_COST:
    case COST: AGAIN(w, status, attn_transformer_cost(w->ctx, &o, 1, w->layout, w->layout, &r)); break;
    case MEMORY: AGAIN(w, status, attn_transformer_memory(w->ctx, &o, 1, 79, 70, &r)); break;
    case LINFORMER_COST: AGAIN(w, status, attn_attention_cost(w->ctx, &a, w->layout, w->layout, NULL, &r)); break;
    case GLOBAL_COST: AGAIN(w, status, attn_attention_cost(w->ctx, &a, w->layout, w->layout, w->mask[1], &r)); break;
    case PERFORMER_COST:
    case ATTENTION_COST: AGAIN(w, status, attn_attention_cost(w->ctx, &a, w->layout, w->layout, w->mask[0], &r)); break;
    default: AGAIN(w, status, attn_transformer_describe(w->ctx, &o, 3, sizeof name, name, &rank, shape));
    }
    if (status != ATTN_OK) return status;
    note(w, &r, sizeof r);
    note(w, name, sizeof name);
    note(w, shape, sizeof shape);
    return status;
}

static void result_report(world *w)
{
    (void)w; /* noted by act */
}

static void test_reports(void **state)
{
    static const scenario all[] = {
        {"a model's cost", set_up_report, report, result_report, NULL, EACH_AGAIN | FORETELLS, COST},
        {"a model's memory", set_up_report, report, result_report, NULL, EACH_AGAIN | FORETELLS, MEMORY},
        {"a model's parameters", set_up_report, report, result_report, NULL, EACH_AGAIN, DESCRIPTION},
        {"a Linformer's cost", set_up_report, report, result_report, NULL, EACH_AGAIN, LINFORMER_COST},
        {"a Performer's cost", set_up_report, report, result_report, NULL, EACH_AGAIN, PERFORMER_COST},
        {"the cost of global tokens", set_up_report, report, result_report, NULL, EACH_AGAIN, GLOBAL_COST},
        {"the cost of a model of patches", set_up_report, report, result_report, NULL, EACH_AGAIN | FORETELLS, PATCHES_COST},
        {"an attention layer's cost", set_up_report, report, result_report, NULL, EACH_AGAIN, ATTENTION_COST},
    };
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stacks),    cmocka_unit_test(test_forward),    cmocka_unit_test(test_backward),
                                       cmocka_unit_test(test_optimizer), cmocka_unit_test(test_inspection), cmocka_unit_test(test_reports)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}

#include "injection/scenario.h"
#include "models/variants.h"

/* Every kind of object, made without memory: no handle, nothing left behind, and the next attempt gives what the first would have. */

/* ---- the context itself, with hooks, with malloc, under a cap that is far away */
static attn_status make_context(world *w)
{
    attn_context_options o;
    const attn_allocator hooks = inject_allocator();
    attn_status status = attn_context_options_init(&o, sizeof o);
    o.threads = w->variant == 0 ? ATTN_THREADS_ALL : 3;
    if (w->variant == 1) o.allocator = &hooks;
    if (w->variant == 2) o.memory_cap = INT64_C(1) << 40;
    return status == ATTN_OK ? attn_context_create(&o, &w->ctx) : status;
}

/* as many threads as the system gave: what it computes is the same */
static void use_context(world *w)
{
    const int64_t shape[2] = {40, 40};
    int32_t threads = 0;
    for (int i = 0; i < 3; i++) OK(w->ctx, attn_tensor_create(w->ctx, ATTN_FLOAT32, 2, shape, &w->tensor[i]));
    for (int64_t i = 0; i < 1600; i++) {
        model_set(w->tensor[0], i, (double)(i % 7) - 3);
        model_set(w->tensor[1], i, (double)(i % 11) - 5);
    }
    OK(w->ctx, attn_linear(w->ctx, NULL, w->tensor[0], w->tensor[1], NULL, w->tensor[2]));
    OK(w->ctx, attn_context_threads(w->ctx, &threads));
    expect(w, threads >= 1, "no thread at all");
    note_tensor(w, w->tensor[2]);
}

/* ---- tensors, layouts, masks, a tape */
static attn_status make_tensor(world *w)
{
    return attn_tensor_create(w->ctx, ATTN_FLOAT64, 2, (const int64_t[]){3, 5}, &w->tensor[0]);
}

static attn_status wrap_tensor(world *w)
{
    return attn_tensor_wrap(w->ctx, ATTN_INT32, 1, (const int64_t[]){8}, NULL, w->numbers, &w->tensor[0]);
}

static void result_tensor(world *w)
{
    note_tensor(w, w->tensor[0]);
}

static attn_status make_layout(world *w)
{
    return attn_layout_create(w->ctx, 5, &w->layout);
}

static void result_layout(world *w)
{
    attn_segment got;
    OK(w->ctx, attn_layout_set_lengths(w->ctx, w->layout, 3, (const int64_t[]){2, 0, 4}, 1));
    OK(w->ctx, attn_layout_get(w->ctx, w->layout, 2, &got));
    note(w, &got, sizeof got);
}

enum { CAUSAL, WINDOW, BOOLEAN, UNION, INTERSECTION };
static void set_up_masks(world *w)
{
    OK(w->ctx, attn_mask_causal(w->ctx, ATTN_ALIGN_LAST, &w->mask[0]));
    OK(w->ctx, attn_mask_window(w->ctx, ATTN_ALIGN_LAST, 1, 1, 1, &w->mask[1]));
    OK(w->ctx, attn_tensor_create(w->ctx, ATTN_UINT8, 4, (const int64_t[]){1, 1, 4, 4}, &w->tensor[0]));
    for (int i = 0; i < 16; i++) ((uint8_t *)attn_tensor_data(w->tensor[0]))[i] = (uint8_t)(i % 3 != 0);
}

static attn_status make_mask(world *w)
{
    switch (w->variant) {
    case CAUSAL: return attn_mask_causal(w->ctx, ATTN_ALIGN_FIRST, &w->mask[2]);
    case WINDOW: return attn_mask_window(w->ctx, ATTN_ALIGN_LAST, 2, 0, 1, &w->mask[2]);
    case BOOLEAN: return attn_mask_boolean(w->ctx, w->tensor[0], &w->mask[2]);
    case UNION: return attn_mask_union(w->ctx, w->mask[0], w->mask[1], &w->mask[2]);
    default: return attn_mask_intersection(w->ctx, w->mask[0], w->mask[1], &w->mask[2]);
    }
}

/* what it lets through */
static void result_mask(world *w)
{
    const int64_t shape[3] = {4, 1, 4};
    for (int i = 1; i < 3; i++) OK(w->ctx, attn_tensor_create(w->ctx, ATTN_FLOAT32, 3, shape, &w->tensor[i]));
    for (int64_t i = 0; i < 16; i++) model_set(w->tensor[1], i, (double)(i * 5 % 7) / 7);
    OK(w->ctx,
       attn_dot_product_attention(w->ctx, NULL, w->tensor[1], w->tensor[1], w->tensor[1], NULL, NULL, w->mask[2], NULL, w->tensor[2]));
    note_tensor(w, w->tensor[2]);
}

static attn_status make_tape(world *w)
{
    return attn_tape_create(w->ctx, &w->tape);
}

static void result_tape(world *w)
{
    OK(w->ctx, attn_tape_begin(w->ctx, w->tape, NULL));
}

/* ---- layers, stacks, whole models */
static attn_status make_attention(world *w)
{
    attn_attention_options o;
    attn_status status = attn_attention_options_init(&o, sizeof o);
    o.query_width = 6;
    o.heads = 2;
    o.project_output = w->variant == 0;
    if (w->variant == 2) o.form = ATTN_FORM_LINFORMER, o.projected = 2, o.longest = 4, o.separate_projections = 1;
    if (w->variant == 3) o.form = ATTN_FORM_PERFORMER;
    o.global_projections = w->variant == 4;
    return status == ATTN_OK ? attn_attention_create(w->ctx, &o, &w->attention) : status;
}

static void result_attention(world *w)
{
    note_parameters(w, attn_attention_parameters(w->attention));
}

static attn_status make_encoder(world *w)
{
    const attn_transformer_options o = model_options(2, 0);
    return attn_encoder_create(w->ctx, &o, &w->encoder);
}

static void result_encoder(world *w)
{
    note_parameters(w, attn_encoder_parameters(w->encoder));
}

static attn_status make_decoder(world *w)
{
    const attn_transformer_options o = model_options(1, 2);
    return attn_decoder_create(w->ctx, &o, &w->decoder);
}

static void result_decoder(world *w)
{
    note_parameters(w, attn_decoder_parameters(w->decoder));
}

static attn_status make_transformer(world *w)
{
    const attn_transformer_options o = variant_options(&variants[w->variant], ATTN_FLOAT32, 0);
    return attn_transformer_create(w->ctx, &o, &w->model);
}

static void result_transformer(world *w)
{
    attn_transformer_options o = {.struct_size = sizeof o};
    OK(w->ctx, attn_transformer_get_options(w->ctx, w->model, &o));
    note(w, &o, sizeof o);
    note_parameters(w, attn_transformer_parameters(w->model));
}

static void set_up_malloc(world *w)
{
    w->ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
}

static attn_status make_double(world *w)
{
    const attn_transformer_options o = variant_options(&variants[0], ATTN_FLOAT64, 0);
    return attn_transformer_create(w->ctx, &o, &w->model);
}

/* ---- what stands on a model */
static void set_up_model(world *w)
{
    const attn_transformer_options o = model_options(w->variant, 1);
    const int32_t tokens[40] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    attn_dataset_options d;
    w->model = model_create(w->ctx, &o);
    OK(w->ctx, attn_dataset_options_init(&d, sizeof d));
    d.context = 4;
    d.batch = 2;
    OK(w->ctx, attn_dataset_tokens(w->ctx, tokens, 40, &d, &w->dataset));
}

static attn_status make_gradients(world *w)
{
    return attn_gradients_create(w->ctx, attn_transformer_parameters(w->model), &w->gradients);
}

static void result_gradients(world *w)
{
    note_gradients(w, w->gradients);
}

static attn_status make_optimizer(world *w)
{
    return attn_optimizer_create(w->ctx, attn_transformer_parameters(w->model), NULL, &w->optimizer);
}

static void result_optimizer(world *w)
{
    double rate = attn_optimizer_rate(w->optimizer);
    note(w, &rate, sizeof rate);
}

static attn_status make_trainer(world *w)
{
    attn_trainer_options o;
    attn_status status = attn_trainer_options_init(&o, sizeof o);
    o.layer_norms = 1;
    return status == ATTN_OK ? attn_trainer_create(w->ctx, w->model, w->dataset, NULL, NULL, &o, &w->trainer) : status;
}

static void result_trainer(world *w)
{
    attn_trainer_report report = {.struct_size = sizeof report};
    OK(w->ctx, attn_trainer_step(w->ctx, w->trainer, NULL, &report));
    note(w, &report.loss, sizeof report.loss);
    note(w, report.layer_norms, report.layer_count * (int64_t)sizeof(double));
}

static attn_status make_generator(world *w)
{
    attn_generator_options o;
    attn_status status = attn_generator_options_init(&o, sizeof o);
    o.stop_count = 2;
    o.stops = (const int32_t[]){3, 4};
    o.sequences = 2;
    o.beam = w->variant > 1 ? 3 : 1;
    return status == ATTN_OK ? attn_generator_create(w->ctx, w->model, &o, &w->generator) : status;
}

static void result_generator(world *w)
{
    const attn_transformer_options o = model_options(w->variant, 1);
    const attn_tensor *logits = NULL;
    model_batch_open(w->ctx, &w->batch, &o, 2, (const int64_t[]){2, 3}, (const int64_t[]){3, 1}, 2);
    OK(w->ctx, attn_generator_prompt(w->ctx, w->generator, &w->batch.batch));
    OK(w->ctx, attn_generator_logits(w->ctx, w->generator, &logits));
    note_tensor(w, logits);
}

/* ---- texts and their tokens */
static const char words[] = "the cat and the dog and the bird \xC3\xA9t\xC3\xA9 and so on and on, the end.";
static attn_status make_vocabulary(world *w)
{
    return attn_vocabulary_create(w->ctx, w->variant, words, sizeof words - 1, 2, &w->vocabulary);
}

static void result_vocabulary(world *w)
{
    char text[2048];
    int64_t bytes = 0;
    OK(w->ctx, attn_vocabulary_to_text(w->ctx, w->vocabulary, sizeof text, text, &bytes));
    note(w, text, bytes);
}

static const int32_t corpus[30] = {4, 8, 2, 9, 1, 7, 3, 5, 6};
static attn_status make_dataset(world *w)
{
    attn_dataset_options o;
    attn_status status = attn_dataset_options_init(&o, sizeof o);
    o.context = 3;
    o.batch = 2;
    o.order = w->variant;
    return status == ATTN_OK ? attn_dataset_tokens(w->ctx, corpus, 30, &o, &w->dataset) : status;
}

static const int64_t ends[4] = {9, 12, 13, 20}, target_ends[4] = {1, 2, 9, 9};
static attn_status make_pairs(world *w)
{
    attn_pairs_options o;
    attn_status status = attn_pairs_options_init(&o, sizeof o);
    o.batch = 2;
    o.start = o.stop = 10;
    o.bucket = w->variant;
    return status == ATTN_OK ? attn_dataset_pairs(w->ctx, 4, corpus, ends, corpus, target_ends, &o, &w->dataset) : status;
}

static void result_dataset(world *w)
{
    attn_batch batch;
    OK(w->ctx, attn_batch_init(&batch, sizeof batch));
    OK(w->ctx, attn_dataset_next(w->ctx, w->dataset, &batch));
    note_tensor(w, batch.target);
    note_tensor(w, batch.labels);
}

/* no handle after a failure */
static void nothing_made(world *w)
{
    const void *const handles[] = {w->attention, w->encoder, w->decoder, w->vocabulary, w->tape, w->layout, w->mask[2]};
    for (int i = 0; i < COUNT_OF(handles); i++) expect(w, handles[i] == NULL, "a handle in spite of an error");
}

static void test_contexts(void **state)
{
    static const scenario all[] = {{"a context", NULL, make_context, use_context, NULL, NO_CONTEXT, 0},
                                   {"a context with hooks", NULL, make_context, use_context, NULL, NO_CONTEXT, 1},
                                   {"a context with a cap", NULL, make_context, use_context, NULL, NO_CONTEXT, 2}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

static void test_small_objects(void **state)
{
    static const scenario all[] = {{"a tensor", NULL, make_tensor, result_tensor, NULL, 0, 0},
                                   {"a wrapped tensor", NULL, wrap_tensor, result_tensor, NULL, 0, 0},
                                   {"a layout", NULL, make_layout, result_layout, nothing_made, 0, 0},
                                   {"a causal mask", set_up_masks, make_mask, result_mask, nothing_made, 0, CAUSAL},
                                   {"a window", set_up_masks, make_mask, result_mask, nothing_made, 0, WINDOW},
                                   {"a boolean mask", set_up_masks, make_mask, result_mask, nothing_made, 0, BOOLEAN},
                                   {"a union", set_up_masks, make_mask, result_mask, nothing_made, 0, UNION},
                                   {"an intersection", set_up_masks, make_mask, result_mask, nothing_made, 0, INTERSECTION},
                                   {"a tape", NULL, make_tape, result_tape, nothing_made, 0, 0}};
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

static void test_layers(void **state)
{
    static const scenario all[] = {
        {"an attention layer", NULL, make_attention, result_attention, nothing_made, 0, 0},
        {"an attention layer without output", NULL, make_attention, result_attention, nothing_made, 0, 1},
        {"a Linformer layer", NULL, make_attention, result_attention, nothing_made, 0, 2},
        {"a Performer layer", NULL, make_attention, result_attention, nothing_made, 0, 3},
        {"an attention layer with global projections", NULL, make_attention, result_attention, nothing_made, 0, 4},
        {"an encoder", NULL, make_encoder, result_encoder, nothing_made, 0, 0},
        {"a decoder", NULL, make_decoder, result_decoder, nothing_made, 0, 0},
        {"a model in float64, with malloc", set_up_malloc, make_double, result_transformer, NULL, NO_CONTEXT, 0},
    };
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

static void test_models(void **state)
{
    scenario all[VARIANTS];
    (void)state;
    for (int i = 0; i < VARIANTS; i++) all[i] = (scenario){variants[i].name, NULL, make_transformer, result_transformer, NULL, 0, i};
    run_scenarios(all, VARIANTS);
}

static void test_on_models(void **state)
{
    static const scenario all[] = {
        {"gradients", set_up_model, make_gradients, result_gradients, NULL, 0, 0},
        {"an optimizer", set_up_model, make_optimizer, result_optimizer, NULL, 0, 0},
        {"a trainer", set_up_model, make_trainer, result_trainer, NULL, 0, 0},
        {"a generator", set_up_model, make_generator, result_generator, NULL, 0, 0},
        {"a generator with an encoder", set_up_model, make_generator, result_generator, NULL, 0, 1},
        {"a generator with a beam", set_up_model, make_generator, result_generator, NULL, 0, 2},
    };
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

static void test_data(void **state)
{
    static const scenario all[] = {
        {"pairs", NULL, make_pairs, result_dataset, NULL, 0, 0},
        {"pairs in buckets", NULL, make_pairs, result_dataset, NULL, 0, 3},
        {"bytes", NULL, make_vocabulary, result_vocabulary, nothing_made, 0, ATTN_SYMBOLS_BYTES},
        {"characters", NULL, make_vocabulary, result_vocabulary, nothing_made, 0, ATTN_SYMBOLS_CHARACTERS},
        {"words", NULL, make_vocabulary, result_vocabulary, nothing_made, 0, ATTN_SYMBOLS_WORDS},
        {"random windows", NULL, make_dataset, result_dataset, NULL, 0, ATTN_ORDER_RANDOM_WINDOWS},
        {"windows in order", NULL, make_dataset, result_dataset, NULL, 0, ATTN_ORDER_SEQUENTIAL},
    };
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_contexts), cmocka_unit_test(test_small_objects), cmocka_unit_test(test_layers),
                                       cmocka_unit_test(test_models),   cmocka_unit_test(test_on_models),     cmocka_unit_test(test_data)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}

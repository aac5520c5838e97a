#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "models/options.h"
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of transformer.h and cost.h, but for files: tests/calls/test_files.c. */
enum { SMALLEST = ATTN__TRANSFORMER_OPTIONS_SMALLEST };
RELEASE(transformer, attn_transformer_free)
THUNK(create, attn_transformer_create(a[0].p, a[1].p, a[2].p))
THUNK(preset, attn_transformer_preset(a[0].p, a[1].p, a[2].p, (uint64_t)a[3].i))
THUNK(get_options, attn_transformer_get_options(a[0].p, a[1].p, a[2].p))
THUNK(set_mask, attn_transformer_set_mask(a[0].p, a[1].p, (int32_t)a[2].i, a[3].i, a[4].p))
THUNK(forward, attn_transformer_forward(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p))
THUNK(loss, attn_transformer_loss(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p))
THUNK(loss_of_nothing, attn_transformer_loss(a[0].p, a[1].p, NULL, a[2].p, NULL, NULL, a[3].p))

/* every field of attn_transformer_options below its least and above its most, and numbers that are none */
static void wrong_options(calls *t, int index)
{
    int64_t count;
    const attn__field *fields = attn__option_fields(&count);
    for (int64_t i = 0; i < count; i++) {
        const attn__field *f = &fields[i];
        if (f->kind == ATTN__FIELD_DOUBLE) {
            wrong_reals(t, index, f->offset, f->least, f->most, 0, f->name);
            continue;
        }
        int64_t wrong[2] = {(int64_t)f->least - ((f->flags & ATTN__DERIVED) && f->least == 0 ? 2 : 1), (int64_t)f->most + 1};
        if (f->flags & ATTN__DERIVED && wrong[0] == -1) wrong[0] = -2;
        for (int w = 0; w < 2; w++) {
            const int32_t code = (int32_t)wrong[w];
            const void *value = f->kind == ATTN__FIELD_INT32 ? (const void *)&code : (const void *)&wrong[w];
            wrong_field(t, index, f->offset, f->kind == ATTN__FIELD_INT32 ? 4 : 8, value, ATTN_ERROR_INVALID_ARGUMENT, f->name);
        }
        if (f->kind == ATTN__FIELD_INT64) wrong_field(t, index, f->offset, 8, &(int64_t){INT64_MIN}, ATTN_ERROR_INVALID_ARGUMENT, f->name);
    }
    /* fields that do not fit each other */
    WRONG_INT64(t, index, attn_transformer_options, width, 9, ATTN_ERROR_SHAPE);
    WRONG_INT64(t, index, attn_transformer_options, heads, 3, ATTN_ERROR_SHAPE);
    WRONG_INT64(t, index, attn_transformer_options, key_heads, 3, ATTN_ERROR_SHAPE);
    WRONG_INT64(t, index, attn_transformer_options, feed_forward, INT32_MAX, ATTN_ERROR_TOO_LARGE);
    WRONG_INT64(t, index, attn_transformer_options, head_size, INT32_MAX, ATTN_ERROR_TOO_LARGE);
    WRONG_INT64(t, index, attn_transformer_options, source_vocabulary, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_transformer_options, target_vocabulary, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_transformer_options, learned_beta, 1, ATTN_ERROR_INVALID_ARGUMENT);
}

static void creating(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options o = model_options(1, 1);
    (void)state;
    ROW(t, attn_transformer_create, create);
    arg_context(t);
    arg_options(t, "options", &o, sizeof o, SMALLEST);
    arg_made(t, "out", release_transformer);
    check_row(t);
    wrong_options(t, 1);
    WRONG_INT32(t, 1, attn_transformer_options, dtype, ATTN_FLOAT64, ATTN_ERROR_UNSUPPORTED);
    WRONG_INT64(t, 1, attn_transformer_options, patch_values, 3, ATTN_ERROR_UNSUPPORTED);
    WRONG_INT64(t, 1, attn_transformer_options, segment_types, 3, ATTN_ERROR_UNSUPPORTED);

    ROW(t, attn_transformer_preset, preset);
    arg_context(t);
    arg_pointer(t, "name", "gpt2", 0);
    arg_result(t, "options", sizeof o, 0);
    arg_number(t, "size", sizeof o);
    check_row(t);
    wrong_pointer(t, 1, "", ATTN_ERROR_INVALID_ARGUMENT, "name");
    wrong_pointer(t, 1, "gpt", ATTN_ERROR_INVALID_ARGUMENT, "name");
    wrong_number(t, 3, 0, ATTN_ERROR_INVALID_ARGUMENT, "options");
    wrong_number(t, 3, 7, ATTN_ERROR_INVALID_ARGUMENT, "options");
    wrong_number(t, 3, 4097, ATTN_ERROR_INVALID_ARGUMENT, "options");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "options");

    NOTED(attn_transformer_preset_name);
    assert_true(attn_transformer_preset_name(-1) == NULL && attn_transformer_preset_name(1000) == NULL);
    assert_true(attn_transformer_preset_name(INT64_MIN) == NULL && attn_transformer_preset_name(INT64_MAX) == NULL);
    assert_non_null(attn_transformer_preset_name(0));
    calls_close(t);
}

static void looking(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_transformer *model = t->live[TRANSFORMER], *decoder = NULL;
    const attn_transformer_options alone = model_options(0, 1);
    (void)state;
    ROW(t, attn_transformer_get_options, get_options);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, model, 0);
    arg_report(t, "options", sizeof(attn_transformer_options), 0);
    t->at[2].smallest = SMALLEST;
    check_row(t);

    ROW(t, attn_transformer_set_mask, set_mask);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, model, 0);
    arg_number(t, "decoder", 1);
    arg_number(t, "layer", 0);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    check_row(t);
    wrong_number(t, 2, 2, ATTN_ERROR_INVALID_ARGUMENT, "decoder");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "decoder");
    wrong_number(t, 3, 1, ATTN_ERROR_INVALID_ARGUMENT, "layer");
    wrong_number(t, 3, -2, ATTN_ERROR_INVALID_ARGUMENT, "layer");
    wrong_number(t, 3, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT, "layer");
    OK(t->ctx, attn_transformer_create(t->ctx, &alone, &decoder));
    FAILS(t->ctx, attn_transformer_set_mask(t->ctx, decoder, 0, -1, NULL), ATTN_ERROR_INVALID_ARGUMENT, "decoder: got 0");
    attn_transformer_free(decoder);

    NOTED(attn_transformer_parameters);
    NOTED(attn_transformer_metadata);
    attn_transformer *const bad[3] = {NULL, t->live[ENCODER], t->freed[TRANSFORMER]};
    for (int i = 0; i < 3; i++) {
        assert_null(attn_transformer_parameters(bad[i]));
        assert_null(attn_transformer_metadata(bad[i], "key"));
    }
    assert_true(attn_transformer_metadata(model, NULL) == NULL && attn_transformer_metadata(model, "key") == NULL);
    calls_close(t);
}

static void begin(calls *t)
{
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
}

static const int64_t sources[2] = {2, 3}, targets[2] = {1, 3};

/* each tensor of a batch: what is no tensor, other types and shapes, tokens past the vocabulary of 11 */
static void wrong_tokens(calls *t, int index, uint64_t offset, int64_t rows, const char *name, int labels)
{
    const struct {
        const void *at;
        attn_status status;
    } bad[] = {{NULL, ATTN_ERROR_INVALID_ARGUMENT},
               {t->live[LAYOUT], ATTN_ERROR_INVALID_ARGUMENT},
               {t->freed[TENSOR], ATTN_ERROR_INVALID_ARGUMENT},
               {calls_tensor(t, ATTN_FLOAT32, 1, &rows), ATTN_ERROR_DTYPE},
               {calls_tensor(t, ATTN_UINT8, 1, &rows), ATTN_ERROR_DTYPE},
               {calls_tensor(t, ATTN_INT32, 2, (int64_t[]){1, rows}), ATTN_ERROR_SHAPE},
               {calls_tensor(t, ATTN_INT32, 2, (int64_t[]){rows, 2}), ATTN_ERROR_SHAPE},
               {calls_tensor(t, ATTN_INT64, 1, (int64_t[]){rows + 1}), ATTN_ERROR_SHAPE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) wrong_field(t, index, offset, sizeof(void *), &bad[i].at, bad[i].status, name);
    static const double tokens[4] = {11, INT32_MAX, -1, INT32_MIN};
    for (int i = 0; i < (labels ? 2 : 4); i++) {
        const attn_tensor *wrong = calls_tensor(t, ATTN_INT32, 1, &rows);
        model_set((attn_tensor *)(uintptr_t)wrong, rows - 1, tokens[i]);
        wrong_field(t, index, offset, sizeof(void *), &wrong, ATTN_ERROR_INVALID_ARGUMENT, name);
    }
}

static void wrong_batches(calls *t, int index, int64_t source_rows, int64_t target_rows, int labels)
{
    static const attn_segment gap[2] = {{0, 1, 0, 0}, {2, 2, 0, 1}}, one[1] = {{0, 9, 0, 0}};
    const struct {
        const char *name;
        uint64_t offset;
    } at[2] = {{"source_layout", offsetof(attn_batch, source_layout)}, {"target_layout", offsetof(attn_batch, target_layout)}};
    wrong_tokens(t, index, offsetof(attn_batch, source), source_rows, "source", 0);
    wrong_tokens(t, index, offsetof(attn_batch, target), target_rows, "target", 0);
    if (labels) wrong_tokens(t, index, offsetof(attn_batch, labels), target_rows, "labels", 1);
    for (int i = 0; i < 2; i++) {
        attn_layout *layout = NULL;
        const void *const bad[3] = {t->live[TENSOR], t->freed[LAYOUT], NULL};
        for (int j = 0; j < 3; j++) /* NULL: one segment, where the other side has two */
            wrong_field(t, index, at[i].offset, sizeof(void *), &bad[j], j < 2 ? ATTN_ERROR_INVALID_ARGUMENT : ATTN_ERROR_SHAPE,
                        j < 2 ? at[i].name : "target_layout");
        OK(t->ctx, attn_layout_create(t->ctx, 2, &layout));
        OK(t->ctx, attn_layout_set(t->ctx, layout, 2, gap));
        wrong_field(t, index, at[i].offset, sizeof(void *), &layout, ATTN_ERROR_INVALID_ARGUMENT, at[i].name);
        OK(t->ctx, attn_layout_set(t->ctx, layout, 1, one));
        wrong_field(t, index, at[i].offset, sizeof(void *), &layout, ATTN_ERROR_SHAPE, at[i].name);
        attn_layout_free(layout);
    }
}

/* a tensor that is written, over tokens, labels and parameters */
static void wrong_places(calls *t, int index, const model_batch *b, attn_parameters *set, int64_t rows, int64_t width, int labels)
{
    const int64_t shape[2] = {rows, width};
    attn_tensor *const reads[3] = {b->source, b->target, b->labels};
    for (int i = 0; i < 2 + labels; i++) {
        char *data = attn_tensor_data(reads[i]);
        for (int64_t at = 0; at < 2; at++) {
            void *place = data + (at ? 4 * (model_elements(reads[i]) - 1) : 0);
            wrong_pointer(t, index, calls_over(t, ATTN_FLOAT32, 2, shape, NULL, place), ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name);
        }
    }
    for (int64_t i = 0; i < attn_parameters_count(set); i += 5) {
        void *place = attn_tensor_data(attn_parameters_tensor(set, i));
        wrong_pointer(t, index, calls_over(t, ATTN_FLOAT32, 2, shape, NULL, place), ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name);
    }
}

static void running(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    const attn_transformer_options options = model_options(1, 1);
    attn_parameters *set = attn_transformer_parameters(t->live[TRANSFORMER]);
    attn_cross_entropy_options o;
    model_batch b;
    model_batch_open(t->ctx, &b, &options, 2, sources, targets, 3);
    OK(t->ctx, attn_cross_entropy_options_init(&o, sizeof o));
    ROW(t, attn_transformer_forward, forward);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arg_options(t, "batch", &b.batch, sizeof b.batch, sizeof b.batch);
    arg_output(t, "output", FLOATS(t, 4, 11), 0);
    guard_parameters(t, set);
    if (taped) t->before = begin;
    check_row(t);
    wrong_pointer(t, 3, NULL, ATTN_ERROR_INVALID_ARGUMENT, "batch");
    wrong_batches(t, 3, 5, 4, 0);
    wrong_places(t, 4, &b, set, 4, 11, 0);

    ROW(t, attn_transformer_loss, loss);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arg_options(t, "batch", &b.batch, sizeof b.batch, sizeof b.batch);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "loss", FLOATS(t, 1), NULLABLE);
    arg_report(t, "report", sizeof(attn_loss_report), NULLABLE);
    guard_parameters(t, set);
    if (taped) t->before = begin;
    check_row(t);
    accept_pointer(t, 4, NULL);
    wrong_pointer(t, 3, NULL, ATTN_ERROR_INVALID_ARGUMENT, "batch");
    wrong_batches(t, 3, 5, 4, 1);
    wrong_places(t, 5, &b, set, 1, 1, 1);
    WRONG_REALS(t, 4, attn_cross_entropy_options, label_smoothing, 0, 1);
    WRONG_INT32(t, 4, attn_cross_entropy_options, mean, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 4, attn_cross_entropy_options, smoothing_form, -1, ATTN_ERROR_INVALID_ARGUMENT);

    calls_row(t, "attn_transformer_loss of nothing", loss_of_nothing);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_options(t, "batch", &b.batch, sizeof b.batch, sizeof b.batch);
    arg_report(t, "report", sizeof(attn_loss_report), 0);
    accept_row(t);
    wrong_pointer(t, 3, NULL, ATTN_ERROR_INVALID_ARGUMENT, "loss");
    model_batch_close(&b);
    calls_close(t);
}

static void runs(void **state)
{
    (void)state;
    running(ATTN_BACKEND_BLAS, 0);
    running(ATTN_BACKEND_REFERENCE, 1);
}

/* positions past a learned table, and no output head */
static void special_models(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = NULL;
    attn_loss_report report = {.struct_size = sizeof report};
    model_batch b;
    (void)state;
    o.positions = ATTN_POSITIONS_LEARNED;
    o.context = 2;
    OK(t->ctx, attn_transformer_create(t->ctx, &o, &model));
    model_batch_open(t->ctx, &b, &o, 2, NULL, targets, 3);
    attn_tensor *y = FLOATS(t, 4, 11);
    FAILS(t->ctx, attn_transformer_forward(t->ctx, model, NULL, &b.batch, y), ATTN_ERROR_INVALID_ARGUMENT, "target_layout: got position 2");
    attn_transformer_free(model);
    o = model_options(0, 1);
    o.output_head = 0;
    OK(t->ctx, attn_transformer_create(t->ctx, &o, &model));
    FAILS(t->ctx, attn_transformer_loss(t->ctx, model, NULL, &b.batch, NULL, NULL, &report), ATTN_ERROR_BAD_STATE, "expected");
    attn_transformer_free(model);
    model_batch_close(&b);
    calls_close(t);
}

THUNK(cost, attn_transformer_cost(a[0].p, a[1].p, (int32_t)a[2].i, a[3].p, a[4].p, a[5].p))
THUNK(memory, attn_transformer_memory(a[0].p, a[1].p, (int32_t)a[2].i, a[3].i, a[4].i, a[5].p))
THUNK(describe, attn_transformer_describe(a[0].p, a[1].p, a[2].i, a[3].i, a[4].p, a[5].p, a[6].p))

static void costing(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options o = model_options(1, 1);
    attn_layout *source = NULL, *bad = NULL;
    static const attn_segment gap[2] = {{0, 1, 0, 0}, {2, 2, 0, 1}};
    (void)state;
    OK(t->ctx, attn_layout_create(t->ctx, 2, &source));
    OK(t->ctx, attn_layout_create(t->ctx, 3, &bad));
    OK(t->ctx, attn_layout_set_lengths(t->ctx, source, 2, sources, 0));
    OK(t->ctx, attn_layout_set_lengths(t->ctx, t->live[LAYOUT], 2, targets, 0));
    ROW(t, attn_transformer_cost, cost);
    arg_context(t);
    arg_options(t, "options", &o, sizeof o, SMALLEST);
    arg_number(t, "training", 1);
    arg_handle(t, "source", LAYOUT, source, 0);
    arg_handle(t, "target", LAYOUT, t->live[LAYOUT], 0);
    arg_report(t, "report", sizeof(attn_cost_report), 0);
    t->at[t->count - 1].smallest = offsetof(attn_cost_report, weights_bytes); /* the first version ended there */
    check_row(t);
    wrong_options(t, 1);
    wrong_number(t, 2, 2, ATTN_ERROR_INVALID_ARGUMENT, "training");
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "training");
    OK(t->ctx, attn_layout_set(t->ctx, bad, 2, gap));
    for (int i = 3; i <= 4; i++) wrong_pointer(t, i, bad, ATTN_ERROR_INVALID_ARGUMENT, t->at[i].name);
    OK(t->ctx, attn_layout_set_lengths(t->ctx, bad, 3, (int64_t[]){1, 1, 1}, 0));
    for (int i = 3; i <= 4; i++) wrong_pointer(t, i, bad, ATTN_ERROR_SHAPE, "target");
    attn_layout_free(source);
    attn_layout_free(bad);

    ROW(t, attn_transformer_memory, memory);
    arg_context(t);
    arg_options(t, "options", &o, sizeof o, SMALLEST);
    arg_number(t, "training", 0);
    arg_number(t, "rows", 4);
    arg_number(t, "longest", 3);
    arg_report(t, "report", sizeof(attn_cost_report), 0);
    t->at[t->count - 1].smallest = offsetof(attn_cost_report, weights_bytes); /* the first version ended there */
    check_row(t);
    wrong_number(t, 2, 2, ATTN_ERROR_INVALID_ARGUMENT, "training");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "rows");
    wrong_number(t, 3, INT64_MAX, ATTN_ERROR_INVALID_ARGUMENT, "rows");
    wrong_number(t, 4, 0, ATTN_ERROR_INVALID_ARGUMENT, "longest");
    wrong_number(t, 4, -1, ATTN_ERROR_INVALID_ARGUMENT, "longest");

    ROW(t, attn_transformer_describe, describe);
    arg_context(t);
    arg_options(t, "options", &o, sizeof o, SMALLEST);
    arg_number(t, "index", 3);
    arg_number(t, "capacity", 160);
    arg_result(t, "name", 160, 0);
    arg_result(t, "rank", sizeof(int32_t), 0);
    arg_result(t, "shape", 4 * sizeof(int64_t), 0);
    check_row(t);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "index");
    wrong_number(t, 2, 10000, ATTN_ERROR_END_OF_DATA, "index");
    wrong_number(t, 2, INT64_MAX, ATTN_ERROR_END_OF_DATA, "index");
    wrong_number(t, 3, 0, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(creating), cmocka_unit_test(looking), cmocka_unit_test(runs),
                                       cmocka_unit_test(special_models), cmocka_unit_test(costing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

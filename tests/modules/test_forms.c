#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "models/transformer.h"
#include "support/model.h"

/* What each form of attention has and has not, and that every option of a form tells in what comes out. */
enum { ROWS = 6, WIDTH = 8 };
static attn_context *ctx;

static attn_attention_options options_of(int32_t form)
{
    attn_attention_options o;
    assert_int_equal(attn_attention_options_init(&o, sizeof o), ATTN_OK);
    o.form = form;
    o.query_width = WIDTH;
    o.heads = 2;
    o.projected = 3;
    o.longest = ROWS;
    return o;
}

static attn_attention *layer_of(const attn_attention_options *o)
{
    attn_attention *layer = NULL;
    OK(ctx, attn_attention_create(ctx, o, &layer));
    return layer;
}

static void refused(const attn_attention_options *o, attn_status status, const char *word)
{
    attn_attention *layer = NULL;
    FAILS(ctx, attn_attention_create(ctx, o, &layer), status, word);
    assert_null(layer);
}

static void test_options(void **state)
{
    (void)state;
    for (int32_t form = ATTN_FORM_LINEAR; form <= ATTN_FORM_LINFORMER; form++) {
        attn_attention_options o = options_of(form);
        attn_attention_free(layer_of(&o));
        o.score = ATTN_SCORE_ADDITIVE;
        refused(&o, ATTN_ERROR_UNSUPPORTED, "options.score");
        o = options_of(form);
        o.pair_bias = 1;
        refused(&o, ATTN_ERROR_UNSUPPORTED, "options.pair_bias");
        for (int32_t positions = ATTN_POSITIONS_T5; positions <= ATTN_POSITIONS_RELATIVE; positions++) {
            o = options_of(form);
            o.positions = positions;
            if (positions != ATTN_POSITIONS_ROTARY) refused(&o, ATTN_ERROR_UNSUPPORTED, "options.positions");
        }
        o = options_of(form);
        o.positions = ATTN_POSITIONS_ROTARY;
        attn_attention_free(layer_of(&o));
        for (int which = 0; which < 2; which++) {
            o = options_of(form);
            *(which ? &o.dropout : &o.soft_cap) = 0.5;
            if (form == ATTN_FORM_LINFORMER)
                attn_attention_free(layer_of(&o));
            else
                refused(&o, ATTN_ERROR_UNSUPPORTED, which ? "options.dropout" : "options.soft_cap");
            o = options_of(form);
            *(which ? &o.longest : &o.projected) = 0;
            if (form == ATTN_FORM_LINFORMER)
                refused(&o, ATTN_ERROR_INVALID_ARGUMENT, "options.projected, longest");
            else
                attn_attention_free(layer_of(&o));
        }
        o = options_of(form);
        o.derive_scale = 0;
        o.scale = 0;
        if (form == ATTN_FORM_PERFORMER)
            refused(&o, ATTN_ERROR_INVALID_ARGUMENT, "over 0 with the Performer"); /* before its directions are drawn */
        else
            attn_attention_free(layer_of(&o));
    }
}

/* the output of a layer with scrambled weights */
static void run(const attn_attention_options *o, double *out)
{
    attn_attention *layer = layer_of(o);
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *y = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH);
    random_state random = {3};
    model_scramble(attn_attention_parameters(layer), 2);
    for (int64_t e = 0; e < ROWS * WIDTH; e++) model_set(x, e, random_number(&random, -1, 1));
    OK(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, NULL, y));
    for (int64_t e = 0; e < ROWS * WIDTH; e++) out[e] = model_get(y, e);
    attn_tensor_free(x);
    attn_tensor_free(y);
    attn_attention_free(layer);
}

static int differ(const attn_attention_options *a, const attn_attention_options *b)
{
    double first[ROWS * WIDTH], second[ROWS * WIDTH], most = 0;
    run(a, first);
    run(b, second);
    for (int e = 0; e < ROWS * WIDTH; e++) most = fmax(most, fabs(first[e] - second[e]));
    return most > 1e-4;
}

static void test_values(void **state)
{
    (void)state;
    const attn_attention_options performer = options_of(ATTN_FORM_PERFORMER), linear = options_of(ATTN_FORM_LINEAR);
    attn_attention_options o = performer;
    assert_int_equal(differ(&performer, &o), 0);
    o.feature_seed = 1;
    assert_int_equal(differ(&performer, &o), 1);
    o = performer;
    o.features = 4 * WIDTH / 2; /* what is derived: 4 key_head_size */
    assert_int_equal(differ(&performer, &o), 0);
    o.features = 5;
    assert_int_equal(differ(&performer, &o), 1);
    o = performer;
    o.derive_scale = 0;
    o.scale = 1.5;
    assert_int_equal(differ(&performer, &o), 1);
    o = linear; /* has neither a scale nor features to choose */
    o.derive_scale = 0;
    o.scale = 1.5;
    o.features = 5;
    assert_int_equal(differ(&linear, &o), 0);
}

/* values have the projection of the keys, or their own */
static void test_projections(void **state)
{
    (void)state;
    static const char *const names[2] = {"key_projection.weight", "value_projection.weight"};
    for (int separate = 0; separate < 2; separate++) {
        attn_attention_options o = options_of(ATTN_FORM_LINFORMER);
        o.separate_projections = separate;
        attn_attention *layer = layer_of(&o);
        attn_parameters *p = attn_attention_parameters(layer);
        attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *y = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH);
        model_scramble(p, 2);
        for (int64_t e = 0; e < ROWS * WIDTH; e++) model_set(x, e, (double)(e % 7) - 3);
        assert_int_equal(attn_parameters_find(p, names[1]) >= 0, separate);
        for (int which = 0; which <= separate; which++) {
            attn_tensor *projection = attn_parameters_tensor(p, attn_parameters_find(p, names[which]));
            assert_true(attn_tensor_extent(projection, 0) == 3 && attn_tensor_extent(projection, 1) == ROWS);
            OK(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, NULL, y));
            const double before = model_get(y, 0);
            for (int64_t e = 0; e < 3 * ROWS; e++) model_set(projection, e, model_get(projection, e) * (e % 2 ? 2 : -1));
            OK(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, NULL, y));
            assert_true(fabs(model_get(y, 0) - before) > 1e-4);
        }
        attn_tensor_free(x);
        attn_tensor_free(y);
        attn_attention_free(layer);
    }
}

static void test_masks(void **state)
{
    (void)state;
    attn_mask *last = NULL, *first = NULL, *window = NULL;
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH), *y = model_tensor(ctx, ATTN_FLOAT32, ROWS, WIDTH);
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &last));
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_FIRST, &first));
    OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 1, 1, 1, &window));
    for (int32_t form = ATTN_FORM_LINEAR; form <= ATTN_FORM_LINFORMER; form++) {
        const attn_attention_options o = options_of(form);
        attn_attention *layer = layer_of(&o);
        FAILS(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, first, y), ATTN_ERROR_UNSUPPORTED, "mask: got one");
        FAILS(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, window, y), ATTN_ERROR_UNSUPPORTED, "mask: got one");
        if (form == ATTN_FORM_LINFORMER)
            FAILS(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, last, y), ATTN_ERROR_UNSUPPORTED, "mask: got one");
        else
            OK(ctx, attn_attention_forward(ctx, layer, NULL, x, x, x, NULL, NULL, last, y));
        attn_attention_free(layer);
    }
    attn_mask_free(last);
    attn_mask_free(first);
    attn_mask_free(window);
    attn_tensor_free(x);
    attn_tensor_free(y);
}

/* Directions are drawn when a layer is made, and go with it. */
static void test_directions(void **state)
{
    test_allocator counted;
    attn_transformer_options o = model_options(0, 3);
    (void)state;
    memset(&counted, 0, sizeof counted);
    attn_context *own = model_context_counted(&counted, ATTN_BACKEND_BLAS, 1);
    attn_transformer *models[3] = {NULL, NULL, NULL};
    long long bytes[3];
    o.form = ATTN_FORM_PERFORMER;
    for (int i = 0; i < 3; i++) { /* the first one finds no scratch yet */
        long long before = counted.live_bytes;
        o.features = i < 2 ? 4 : 4096;
        OK(own, attn_transformer_create(own, &o, &models[i]));
        bytes[i] = counted.live_bytes - before;
    }
    assert_true(bytes[2] - bytes[1] >= (long long)(4096 - 4) * 3 * 4 * (long long)sizeof(float)); /* three layers, heads of 4 */
    /* each layer has its own, which its name and the seed say */
    const attn__layer *same = attn__transformer_plan_of(models[0])->decoder.layers,
                      *again = attn__transformer_plan_of(models[1])->decoder.layers;
    const size_t size = 4 * 4 * sizeof(float);
    attn_transformer *other = NULL;
    o.features = 4;
    o.feature_seed = 1;
    OK(own, attn_transformer_create(own, &o, &other));
    const attn__layer *drawn = attn__transformer_plan_of(other)->decoder.layers;
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(same[i].self.features.directions.data, again[i].self.features.directions.data, size);
        assert_memory_not_equal(same[i].self.features.directions.data, drawn[i].self.features.directions.data, size);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(same[i].self.features.directions.data, same[j].self.features.directions.data, size);
    }
    attn_transformer_free(other);
    for (int i = 0; i < 3; i++) attn_transformer_free(models[i]);
    attn_context_free(own);
    assert_int_equal(counted.live_pointers, 0);
}

/* more features than bytes can be counted for: of one row, of all, with what stands before them */
static void test_many_features(void **state)
{
    static const int64_t features[] = {INT64_MAX, INT64_MAX / 4, INT64_MAX / 16};
    const int64_t length = 3;
    attn_layout *layout = NULL;
    attn_cost_report r = {.struct_size = sizeof r};
    (void)state;
    OK(ctx, attn_layout_create(ctx, 1, &layout));
    OK(ctx, attn_layout_set_lengths(ctx, layout, 1, &length, 0));
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        attn_attention_options o = options_of(ATTN_FORM_PERFORMER);
        attn_attention *layer = NULL;
        o.query_width = o.key_width = o.value_width = 4;
        o.heads = o.key_heads = 1;
        o.head_size = o.key_head_size = o.value_head_size = 4;
        o.features = features[i];
        FAILS(ctx, attn_attention_create(ctx, &o, &layer), ATTN_ERROR_TOO_LARGE, "");
        assert_null(layer);
        FAILS(ctx, attn_attention_cost(ctx, &o, layout, layout, NULL, &r), ATTN_ERROR_TOO_LARGE, "");
    }
    attn_layout_free(layout);
}

static int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_options),     cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_projections), cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_directions),  cmocka_unit_test(test_many_features)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

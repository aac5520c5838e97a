#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of linear_attention.h. */
INIT(attn_linear_attention_options, attn_linear_attention_options_init)
THUNK(directions, attn_feature_directions(a[0].p, a[1].p, a[2].p))
THUNK(feature_map, attn_feature_map(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p))
THUNK(attend, attn_linear_attention(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p, a[8].p))
THUNK(step, attn_linear_attention_step(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p))
THUNK(project, attn_linformer_project(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p))
THUNK(linformer, attn_linformer_attention(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p, a[8].p, a[9].p, a[10].p, a[11].p))

static const attn_segment two[2] = {{0, 1, 0, 0}, {1, 3, 0, 1}}, keys_two[2] = {{0, 2, 0, 0}, {2, 3, 0, 1}},
                          three[3] = {{0, 1, 0, 0}, {1, 2, 0, 1}, {3, 1, 0, 2}}, part[2] = {{0, 3, 0, 0}, {1, 3, 0, 1}},
                          same[2] = {{0, 4, 0, 0}, {0, 4, 0, 1}}, beyond[2] = {{0, 1, 0, 0}, {1, 9, 0, 1}};

static attn_linear_attention_options defaults(calls *t, int32_t map)
{
    attn_linear_attention_options o;
    OK(t->ctx, attn_linear_attention_options_init(&o, sizeof o));
    o.map = map;
    if (map >= ATTN_FEATURES_POSITIVE) {
        o.derive_scale = 0;
        o.features = 4;
    }
    return o;
}

/* fields that every call looks at; random: a map that draws */
static void wrong_options(calls *t, int index, int random)
{
    WRONG_INT32(t, index, attn_linear_attention_options, map, 4, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_linear_attention_options, map, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_linear_attention_options, causal, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_linear_attention_options, independent, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_linear_attention_options, derive_scale, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_linear_attention_options, features, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_linear_attention_options, features, -2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_linear_attention_options, features, INT64_MIN, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_POINTER_FIELD(t, index, attn_linear_attention_options, key_scale, FLOATS(t, 5, 2), ATTN_ERROR_INVALID_ARGUMENT);
    if (!random) {
        WRONG_POINTER_FIELD(t, index, attn_linear_attention_options, directions, FLOATS(t, 4, 3), ATTN_ERROR_INVALID_ARGUMENT);
        return;
    }
    WRONG_REALS_FROM(t, index, attn_linear_attention_options, scale, 0, NAN); /* derive_scale is 0 there */
}

static void wrong_directions(calls *t, int index)
{
    WRONG_POINTER_FIELD(t, index, attn_linear_attention_options, directions, t->live[MASK], ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_POINTER_FIELD(t, index, attn_linear_attention_options, directions, t->freed[TENSOR], ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_POINTER_FIELD(t, index, attn_linear_attention_options, directions, FLOATS(t, 4, 2), ATTN_ERROR_SHAPE);
    WRONG_POINTER_FIELD(t, index, attn_linear_attention_options, directions, FLOATS(t, 3, 3), ATTN_ERROR_SHAPE);
    WRONG_POINTER_FIELD(t, index, attn_linear_attention_options, directions, OF_TYPE(t, ATTN_FLOAT64, 4, 3), ATTN_ERROR_DTYPE);
}

static void maps(int32_t backend)
{
    calls *t = calls_open(backend);
    attn_linear_attention_options o = defaults(t, ATTN_FEATURES_POSITIVE);
    ROW(t, attn_feature_directions, directions);
    arg_context(t);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "directions", FLOATS(t, 4, 3), ANY_FORM);
    check_row(t);
    wrong_options(t, 1, 1);
    accept_pointer(t, 2, FLOATS(t, 5, 3));
    wrong_pointer(t, 2, FLOATS(t, 4), ATTN_ERROR_SHAPE, "directions");
    wrong_pointer(t, 2, FLOATS(t, 1, 4, 3), ATTN_ERROR_SHAPE, "directions");
    wrong_pointer(t, 2, OF_TYPE(t, ATTN_INT32, 4, 3), ATTN_ERROR_DTYPE, "directions");

    ROW(t, attn_feature_map, feature_map);
    arg_context(t);
    arg_tape(t, NULL);
    arg_input(t, "x", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS | ANY_WIDTH);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "log_scale", FLOATS(t, 5, 2), NULLABLE | ANY_FORM);
    arg_output(t, "y", FLOATS(t, 5, 2, 4), IS_HEADS);
    check_row(t);
    wrong_options(t, 3, 1);
    wrong_directions(t, 3);
    WRONG_INT32(t, 3, attn_linear_attention_options, map, ATTN_FEATURES_IDENTITY, ATTN_ERROR_INVALID_ARGUMENT);
    wrong_field(t, 3, offsetof(attn_linear_attention_options, features), 8, &(int64_t){5}, ATTN_ERROR_SHAPE, "y");
    static const int64_t bad[3][2] = {{4, 2}, {5, 1}, {5, 3}};
    for (int i = 0; i < 3; i++) wrong_pointer(t, 4, calls_tensor(t, ATTN_FLOAT32, 2, bad[i]), ATTN_ERROR_SHAPE, "log_scale");
    wrong_pointer(t, 4, OF_TYPE(t, ATTN_FLOAT64, 5, 2), ATTN_ERROR_DTYPE, "log_scale");
    float *x = (float *)(uintptr_t)attn_tensor_data_const(place_of(t, 2)), *y = attn_tensor_data(place_of(t, 5));
    wrong_pointer(t, 4, calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){5, 2}, (int64_t[]){3, 1}, calls_memory(t)), ATTN_ERROR_SHAPE,
                  "log_scale");
    wrong_pointer(t, 4, calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){5, 2}, NULL, x + 20), ATTN_ERROR_INVALID_ARGUMENT, "log_scale");
    wrong_pointer(t, 4, calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){5, 2}, NULL, y + 30), ATTN_ERROR_INVALID_ARGUMENT, "log_scale");

    o = defaults(t, ATTN_FEATURES_TRIGONOMETRIC);
    calls_row(t, "attn_feature_map, trigonometric", feature_map);
    arg_context(t);
    arg_tape(t, NULL);
    arg_input(t, "x", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS | ANY_WIDTH);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_handle(t, "log_scale", NUMBER, NULL, 0);
    arg_output(t, "y", FLOATS(t, 5, 2, 4), IS_HEADS);
    check_row(t);
    WRONG_INT64(t, 3, attn_linear_attention_options, features, 3, ATTN_ERROR_INVALID_ARGUMENT);

    o = defaults(t, ATTN_FEATURES_ELU);
    calls_row(t, "attn_feature_map of ELU", feature_map);
    arg_context(t);
    arg_tape(t, NULL);
    arg_input(t, "x", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_handle(t, "log_scale", NUMBER, NULL, 0);
    arg_output(t, "y", FLOATS(t, 5, 2, 3), IS_HEADS);
    check_row(t);
    wrong_options(t, 3, 0);
    wrong_pointer(t, 4, FLOATS(t, 5, 2), ATTN_ERROR_INVALID_ARGUMENT, "log_scale");
    calls_close(t);
}

static void wrong_layouts(calls *t, int query, int key)
{
    wrong_pointer(t, query, NULL, ATTN_ERROR_SHAPE, "key_layout");
    wrong_pointer(t, key, NULL, ATTN_ERROR_SHAPE, "key_layout");
    for (int i = query; i <= key; i++) {
        wrong_layout_handles(t, i);
        wrong_layout(t, i, 2, part, ATTN_ERROR_INVALID_ARGUMENT, t->at[i].name);
        wrong_layout(t, i, 2, same, ATTN_ERROR_INVALID_ARGUMENT, t->at[i].name);
        wrong_layout(t, i, 2, beyond, ATTN_ERROR_SHAPE, t->at[i].name);
        wrong_layout(t, i, 3, three, ATTN_ERROR_SHAPE, "key_layout");
    }
}

static void arguments(calls *t)
{
    arg_input(t, "query", FLOATS(t, 4, 2, 3), LEADS | IS_HEADS);
    arg_input(t, "key", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS);
    arg_input(t, "value", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS);
}

static void layouts(calls *t, attn_layout *queries, attn_layout *keys)
{
    arg_handle(t, "query_layout", LAYOUT, queries, 0);
    t->at[t->count - 1].kind = NUMBER; /* NULL has another count: wrong_layouts */
    arg_handle(t, "key_layout", LAYOUT, keys, 0);
    t->at[t->count - 1].kind = NUMBER;
}

static void attending(int32_t backend, int32_t map)
{
    calls *t = calls_open(backend);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, keys_two);
    attn_linear_attention_options o = defaults(t, map);
    const int random = map == ATTN_FEATURES_POSITIVE;
    attn_tensor *scale = FLOATS(t, 5, 2);
    if (map == ATTN_FEATURES_IDENTITY) o.key_scale = scale;
    ROW(t, attn_linear_attention, attend);
    arg_context(t);
    arg_tape(t, NULL);
    arguments(t);
    layouts(t, queries, keys);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "output", FLOATS(t, 4, 2, 3), IS_HEADS);
    check_row(t);
    wrong_layouts(t, 5, 6);
    if (map != ATTN_FEATURES_IDENTITY) wrong_options(t, 7, random);
    if (random) wrong_directions(t, 7);
    if (map == ATTN_FEATURES_IDENTITY) {
        WRONG_POINTER_FIELD(t, 7, attn_linear_attention_options, key_scale, t->live[MASK], ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_POINTER_FIELD(t, 7, attn_linear_attention_options, key_scale, t->freed[TENSOR], ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_POINTER_FIELD(t, 7, attn_linear_attention_options, key_scale, FLOATS(t, 4, 2), ATTN_ERROR_SHAPE);
        WRONG_POINTER_FIELD(t, 7, attn_linear_attention_options, key_scale, FLOATS(t, 5, 1), ATTN_ERROR_SHAPE);
        WRONG_POINTER_FIELD(t, 7, attn_linear_attention_options, key_scale, OF_TYPE(t, ATTN_FLOAT64, 5, 2), ATTN_ERROR_DTYPE);
        float *at = attn_tensor_data(scale);
        wrong_pointer(t, 8, calls_over(t, ATTN_FLOAT32, 3, (int64_t[]){4, 2, 3}, NULL, at + 9), ATTN_ERROR_INVALID_ARGUMENT, "output");
    }
    attn_layout_free(queries);
    attn_layout_free(keys);
    calls_close(t);
}

/* the state is read and written: every call begins with the same one */
static attn_tensor *stepped;
static void reset_state(calls *t)
{
    (void)t;
    memset(attn_tensor_data(stepped), 0, (size_t)(2 * 2 * 4 * 4) * sizeof(float));
}

static void stepping(int32_t backend)
{
    static const int64_t bad[5][4] = {{1, 2, 4, 4}, {2, 1, 4, 4}, {2, 2, 3, 4}, {2, 2, 4, 3}, {2, 2, 4, 5}};
    calls *t = calls_open(backend);
    attn_layout *layout = calls_layout(t, 2, two);
    attn_linear_attention_options o = defaults(t, ATTN_FEATURES_ELU);
    stepped = FLOATS(t, 2, 2, 4, 4);
    ROW(t, attn_linear_attention_step, step);
    arg_context(t);
    arg_input(t, "query", FLOATS(t, 4, 2, 3), LEADS | IS_HEADS);
    arg_input(t, "key", FLOATS(t, 4, 2, 3), LEADS | IS_HEADS);
    arg_input(t, "value", FLOATS(t, 4, 2, 3), LEADS | IS_HEADS);
    arg_handle(t, "layout", LAYOUT, layout, 0);
    t->at[4].kind = NUMBER; /* NULL: another number of states, below */
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_handle(t, "state", TENSOR, stepped, ANY_FORM);
    arg_output(t, "output", FLOATS(t, 4, 2, 3), IS_HEADS);
    t->before = reset_state;
    check_row(t);
    wrong_pointer(t, 4, NULL, ATTN_ERROR_SHAPE, "state");
    wrong_layout_handles(t, 4);
    wrong_layout(t, 4, 2, part, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 4, 2, same, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 4, 2, beyond, ATTN_ERROR_SHAPE, "layout");
    wrong_layout(t, 4, 3, three, ATTN_ERROR_SHAPE, "state");
    wrong_options(t, 5, 0);
    for (int i = 0; i < 5; i++) wrong_pointer(t, 6, calls_tensor(t, ATTN_FLOAT32, 4, bad[i]), ATTN_ERROR_SHAPE, "state");
    wrong_pointer(t, 6, FLOATS(t, 4, 4, 4), ATTN_ERROR_SHAPE, "state");
    wrong_pointer(t, 6, OF_TYPE(t, ATTN_FLOAT64, 2, 2, 4, 4), ATTN_ERROR_DTYPE, "state");
    float *memory = calls_memory(t);
    wrong_pointer(t, 6, calls_over(t, ATTN_FLOAT32, 4, (int64_t[]){2, 2, 4, 4}, (int64_t[]){40, 20, 5, 1}, memory), ATTN_ERROR_SHAPE,
                  "state");
    for (int i = 1; i < 4; i++) { /* over what is read, and over the output */
        float *data = (float *)(uintptr_t)attn_tensor_data_const(place_of(t, i));
        wrong_pointer(t, 6, calls_over(t, ATTN_FLOAT32, 4, (int64_t[]){2, 2, 4, 4}, NULL, data + 23), ATTN_ERROR_INVALID_ARGUMENT, "state");
    }
    wrong_pointer(t, 6, calls_over(t, ATTN_FLOAT32, 4, (int64_t[]){2, 2, 4, 4}, NULL, attn_tensor_data(place_of(t, 7))),
                  ATTN_ERROR_INVALID_ARGUMENT, "state");
    attn_layout_free(layout);
    calls_close(t);
}

static void linformers(int32_t backend)
{
    calls *t = calls_open(backend);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, keys_two);
    attn_tensor *projection = FLOATS(t, 2, 3), *other = FLOATS(t, 2, 3);
    attn_dot_product_options o;
    OK(t->ctx, attn_dot_product_options_init(&o, sizeof o));
    ROW(t, attn_linformer_project, project);
    arg_context(t);
    arg_tape(t, NULL);
    arg_input(t, "x", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS | ANY_ROWS);
    arg_input(t, "projection", projection, IS_MATRIX);
    arg_handle(t, "layout", LAYOUT, keys, 0);
    t->at[4].kind = NUMBER;
    arg_output(t, "y", FLOATS(t, 4, 2, 3), IS_HEADS);
    t->at[3].flags |= ANY_FORM; /* below */
    check_row(t);
    wrong_pointer(t, 3, FLOATS(t, 3, 3), ATTN_ERROR_SHAPE, "y");
    wrong_pointer(t, 3, FLOATS(t, 2, 2), ATTN_ERROR_SHAPE, "layout");
    wrong_pointer(t, 3, FLOATS(t, 0, 3), ATTN_ERROR_SHAPE, "projection");
    wrong_pointer(t, 3, FLOATS(t, 6), ATTN_ERROR_SHAPE, "projection");
    wrong_pointer(t, 3, OF_TYPE(t, ATTN_FLOAT64, 2, 3), ATTN_ERROR_DTYPE, "projection");
    wrong_pointer(t, 4, NULL, ATTN_ERROR_SHAPE, "layout");
    wrong_layout_handles(t, 4);
    wrong_layout(t, 4, 2, part, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 4, 2, same, ATTN_ERROR_INVALID_ARGUMENT, "layout");
    wrong_layout(t, 4, 2, beyond, ATTN_ERROR_SHAPE, "layout");
    wrong_layout(t, 4, 3, three, ATTN_ERROR_SHAPE, "y");

    ROW(t, attn_linformer_attention, linformer);
    arg_context(t);
    arg_tape(t, NULL);
    arguments(t);
    arg_input(t, "key_projection", projection, ANY_FORM);
    arg_input(t, "value_projection", other, NULLABLE | ANY_FORM);
    layouts(t, queries, keys);
    arg_handle(t, "mask", NUMBER, NULL, 0);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "output", FLOATS(t, 4, 2, 3), IS_HEADS);
    check_row(t);
    wrong_layouts(t, 7, 8);
    wrong_pointer(t, 9, t->live[MASK], ATTN_ERROR_UNSUPPORTED, "mask");
    wrong_pointer(t, 9, t->live[TENSOR], ATTN_ERROR_INVALID_ARGUMENT, "mask");
    for (int i = 5; i < 7; i++) {
        wrong_pointer(t, i, FLOATS(t, 2, 2), ATTN_ERROR_SHAPE, NULL);
        wrong_pointer(t, i, FLOATS(t, 0, 3), ATTN_ERROR_SHAPE, NULL);
        wrong_pointer(t, i, FLOATS(t, 6), ATTN_ERROR_SHAPE, t->at[i].name);
        wrong_pointer(t, i, OF_TYPE(t, ATTN_FLOAT64, 2, 3), ATTN_ERROR_DTYPE, t->at[i].name);
    }
    WRONG_REALS(t, 10, attn_dot_product_options, dropout, 0, 1);
    WRONG_REALS(t, 10, attn_dot_product_options, soft_cap, 0, NAN);
    WRONG_REALS(t, 10, attn_dot_product_options, scale, NAN, NAN);
    attn_layout_free(queries);
    attn_layout_free(keys);
    calls_close(t);
}

static void test_maps(void **state)
{
    (void)state;
    maps(ATTN_BACKEND_BLAS);
    maps(ATTN_BACKEND_REFERENCE);
    NOTED(attn_linear_attention_options_init);
    check_init(init_attn_linear_attention_options, sizeof(attn_linear_attention_options));
}

static void test_attention(void **state)
{
    (void)state;
    for (int32_t map = ATTN_FEATURES_IDENTITY; map < ATTN_FEATURES_TRIGONOMETRIC; map++) {
        attending(ATTN_BACKEND_BLAS, map);
        attending(ATTN_BACKEND_REFERENCE, map);
    }
}

static void test_step(void **state)
{
    (void)state;
    stepping(ATTN_BACKEND_BLAS);
    stepping(ATTN_BACKEND_REFERENCE);
}

static void test_linformer(void **state)
{
    (void)state;
    linformers(ATTN_BACKEND_BLAS);
    linformers(ATTN_BACKEND_REFERENCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_maps), cmocka_unit_test(test_attention), cmocka_unit_test(test_step),
                                       cmocka_unit_test(test_linformer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

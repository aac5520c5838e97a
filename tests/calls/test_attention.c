#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of attention.h, and of attn_attention_cost. */
RELEASE(attention, attn_attention_free)
THUNK(dot_product, attn_dot_product_attention(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p, a[8].p, a[9].p))
THUNK(create, attn_attention_create(a[0].p, a[1].p, a[2].p))
THUNK(forward, attn_attention_forward(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p, a[8].p, a[9].p))
THUNK(triangle, attn_attention_triangle(a[0].p, a[1].p, a[2].p, a[3].p, (int32_t)a[4].i, a[5].p, a[6].p))
THUNK(cost, attn_attention_cost(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p))

static void begin(calls *t)
{
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
}

static const attn_segment two[2] = {{0, 1, 0, 0}, {1, 3, 0, 1}}, three[3] = {{0, 1, 0, 0}, {1, 2, 0, 1}, {3, 1, 0, 2}},
                          part[2] = {{0, 3, 0, 0}, {1, 3, 0, 1}}, same[2] = {{0, 4, 0, 0}, {0, 4, 0, 1}},
                          beyond[2] = {{0, 1, 0, 0}, {1, 9, 0, 1}}, gap[2] = {{0, 1, 0, 0}, {2, 2, 0, 1}};

/* boolean masks that do not fit 2 segments of up to 3 queries and keys and `heads` heads */
static void wrong_masks(calls *t, int index)
{
    static const int64_t bad[4][4] = {{3, 1, 4, 5}, {1, 3, 4, 5}, {1, 1, 2, 5}, {2, 2, 4, 2}};
    for (int i = 0; i < 4; i++) {
        attn_mask *mask = NULL, *both = NULL;
        OK(t->ctx, attn_mask_boolean(t->ctx, calls_tensor(t, ATTN_UINT8, 4, bad[i]), &mask));
        OK(t->ctx, attn_mask_union(t->ctx, t->live[MASK], mask, &both));
        wrong_pointer(t, index, mask, ATTN_ERROR_SHAPE, "mask");
        wrong_pointer(t, index, both, ATTN_ERROR_SHAPE, "mask");
        attn_mask_free(mask);
        attn_mask_free(both);
    }
}

static void dot_products(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, (attn_segment[]){{0, 2, 0, 0}, {2, 3, 0, 1}});
    attn_dot_product_options o;
    OK(t->ctx, attn_dot_product_options_init(&o, sizeof o));
    ROW(t, attn_dot_product_attention, dot_product);
    arg_context(t);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arg_input(t, "query", FLOATS(t, 4, 2, 3), LEADS | IS_HEADS);
    arg_input(t, "key", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS);
    arg_input(t, "value", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS);
    arg_handle(t, "query_layout", LAYOUT, queries, 0);
    arg_handle(t, "key_layout", LAYOUT, keys, 0);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_output(t, "output", FLOATS(t, 4, 2, 3), IS_HEADS);
    if (taped) t->before = begin;
    t->at[5].kind = t->at[6].kind = NUMBER; /* NULL has another count: below */
    check_row(t);
    wrong_pointer(t, 5, NULL, ATTN_ERROR_SHAPE, "key_layout");
    wrong_pointer(t, 6, NULL, ATTN_ERROR_SHAPE, "key_layout");
    for (int i = 5; i <= 6; i++) {
        wrong_layout_handles(t, i);
        wrong_layout(t, i, 2, part, ATTN_ERROR_INVALID_ARGUMENT, t->at[i].name);
        wrong_layout(t, i, 2, beyond, ATTN_ERROR_SHAPE, t->at[i].name);
        wrong_layout(t, i, 3, three, ATTN_ERROR_SHAPE, "key_layout");
    }
    wrong_layout(t, 5, 2, same, ATTN_ERROR_INVALID_ARGUMENT, "query_layout");
    wrong_masks(t, 7);
    wrong_pointer(t, 2, FLOATS(t, 4, 3, 3), ATTN_ERROR_SHAPE, NULL);
    wrong_pointer(t, 3, FLOATS(t, 5, 0, 3), ATTN_ERROR_SHAPE, NULL);
    wrong_pointer(t, 3, OF_TYPE(t, ATTN_FLOAT64, 5, 2, 3), ATTN_ERROR_DTYPE, "key");
    wrong_pointer(t, 4, OF_TYPE(t, ATTN_FLOAT64, 5, 2, 3), ATTN_ERROR_DTYPE, "value");
    accept_pointer(t, 8, NULL);
    WRONG_REALS(t, 8, attn_dot_product_options, dropout, 0, 1);
    WRONG_REALS(t, 8, attn_dot_product_options, soft_cap, 0, NAN);
    WRONG_REALS(t, 8, attn_dot_product_options, scale, NAN, NAN);
    WRONG_INT32(t, 8, attn_dot_product_options, derive_scale, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 8, attn_dot_product_options, reserved, 1, ATTN_ERROR_INVALID_ARGUMENT);
    attn_layout_free(queries);
    attn_layout_free(keys);
    calls_close(t);
}

static void test_dot_product(void **state)
{
    (void)state;
    dot_products(ATTN_BACKEND_BLAS, 0);
    dot_products(ATTN_BACKEND_REFERENCE, 1);
}

/* every field of attn_attention_options, for the row whose argument `index` they are */
static void wrong_options(calls *t, int index)
{
    static const uint64_t sizes[7] = {offsetof(attn_attention_options, heads),          offsetof(attn_attention_options, key_heads),
                                      offsetof(attn_attention_options, query_width),    offsetof(attn_attention_options, key_width),
                                      offsetof(attn_attention_options, value_width),    offsetof(attn_attention_options, head_size),
                                      offsetof(attn_attention_options, value_head_size)};
    static const char *const names[7] = {"heads", "key_heads", "query_width", "key_width", "value_width", "head_size", "value_head_size"};
    static const int64_t values[3] = {0, -2, INT64_MIN};
    static const uint64_t flags[] = {
        offsetof(attn_attention_options, project_query),      offsetof(attn_attention_options, project_key),
        offsetof(attn_attention_options, project_value),      offsetof(attn_attention_options, project_output),
        offsetof(attn_attention_options, bias_query),         offsetof(attn_attention_options, bias_key),
        offsetof(attn_attention_options, bias_value),         offsetof(attn_attention_options, bias_output),
        offsetof(attn_attention_options, derive_scale),       offsetof(attn_attention_options, position_sides),
        offsetof(attn_attention_options, relative_values),    offsetof(attn_attention_options, gated_output),
        offsetof(attn_attention_options, pair_bias),          offsetof(attn_attention_options, separate_projections),
        offsetof(attn_attention_options, global_projections), offsetof(attn_attention_options, initialisation)};
    for (int i = 0; i < 7; i++)
        for (int v = 0; v < 3; v++) wrong_field(t, index, sizes[i], 8, &values[v], ATTN_ERROR_INVALID_ARGUMENT, names[i]);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        wrong_field(t, index, flags[i], 4, &(int32_t){2}, ATTN_ERROR_INVALID_ARGUMENT, "options.");
        wrong_field(t, index, flags[i], 4, &(int32_t){-1}, ATTN_ERROR_INVALID_ARGUMENT, "options.");
    }
    WRONG_INT64(t, index, attn_attention_options, output_width, -5, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, heads, 3, ATTN_ERROR_SHAPE);
    WRONG_INT64(t, index, attn_attention_options, key_heads, 3, ATTN_ERROR_SHAPE);
    WRONG_INT64(t, index, attn_attention_options, query_width, 7, ATTN_ERROR_SHAPE);
    WRONG_INT64(t, index, attn_attention_options, head_size, INT32_MAX, ATTN_ERROR_TOO_LARGE);
    WRONG_INT64(t, index, attn_attention_options, head_size, INT64_MAX, ATTN_ERROR_TOO_LARGE);
    WRONG_INT64(t, index, attn_attention_options, value_head_size, INT64_MAX / 2, ATTN_ERROR_TOO_LARGE);
    WRONG_INT32(t, index, attn_attention_options, dtype, ATTN_INT32, ATTN_ERROR_DTYPE);
    WRONG_INT32(t, index, attn_attention_options, dtype, 0, ATTN_ERROR_DTYPE);
    WRONG_INT32(t, index, attn_attention_options, score, 4, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, score, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, form, ATTN_FORM_LINFORMER + 1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, form, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, reserved, 1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, reserved, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, features, 0, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, features, -2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, projected, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, projected, INT64_C(1) << 31, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, longest, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, longest, INT64_C(1) << 31, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_REALS(t, index, attn_attention_options, scale, NAN, NAN);
    WRONG_REALS(t, index, attn_attention_options, dropout, 0, 1);
    WRONG_REALS(t, index, attn_attention_options, soft_cap, 0, NAN);
    WRONG_REALS(t, index, attn_attention_options, initialisation_scale, 0, NAN);
}

/* fields that only some positions look at; the base options have none */
static void wrong_positions(calls *t, int index)
{
    attn_attention_options *o = place_of(t, index);
    const attn_attention_options before = *o;
    static const int64_t buckets[4] = {0, 3, 5, (1 << 20) + 2}, reaches[3] = {-1, 8, (1 << 20) + 1};
    WRONG_INT32(t, index, attn_attention_options, positions, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, positions, 7, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, positions, ATTN_POSITIONS_SINUSOIDAL, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, positions, ATTN_POSITIONS_LEARNED, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, query_key_norm, 3, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, query_key_norm, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_REALS(t, index, attn_attention_options, query_key_epsilon, 0, 1);
    WRONG_INT64(t, index, attn_attention_options, key_head_size, 3, ATTN_ERROR_SHAPE);
    WRONG_INT64(t, index, attn_attention_options, key_head_size, 0, ATTN_ERROR_INVALID_ARGUMENT);
    t->flags |= VARIES; /* the valid call is another one now */
    o->positions = ATTN_POSITIONS_T5;
    for (int i = 0; i < 4; i++) WRONG_INT64(t, index, attn_attention_options, position_buckets, buckets[i], ATTN_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < 3; i++) WRONG_INT64(t, index, attn_attention_options, position_reach, reaches[i], ATTN_ERROR_INVALID_ARGUMENT);
    o->positions = ATTN_POSITIONS_RELATIVE;
    WRONG_INT64(t, index, attn_attention_options, position_reach, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, position_reach, (1 << 20) + 1, ATTN_ERROR_INVALID_ARGUMENT);
    o->positions = ATTN_POSITIONS_ROTARY;
    WRONG_INT32(t, index, attn_attention_options, rotary_pairing, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_attention_options, rotary_scaling, 5, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT64(t, index, attn_attention_options, rotated, 4, ATTN_ERROR_SHAPE);
    WRONG_INT64(t, index, attn_attention_options, rotated, 1, ATTN_ERROR_SHAPE);
    WRONG_REALS_FROM(t, index, attn_attention_options, rotary_base, 1, NAN);
    WRONG_REALS(t, index, attn_attention_options, rotary_factor, 1, NAN);
    WRONG_REALS_FROM(t, index, attn_attention_options, rotary_context, 0, NAN);
    WRONG_REALS_FROM(t, index, attn_attention_options, rotary_low, 0, NAN);
    WRONG_REALS_FROM(t, index, attn_attention_options, rotary_high, 1, NAN);
    WRONG_REALS(t, index, attn_attention_options, rotary_magnitude, 0, NAN);
    *o = before;
    t->flags &= ~VARIES;
}

static attn_attention_options options_of(calls *t)
{
    attn_attention_options o;
    OK(t->ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = 4;
    o.heads = 2;
    return o;
}

static void test_create(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_attention_options o = options_of(t);
    (void)state;
    ROW(t, attn_attention_create, create);
    arg_context(t);
    arg_options(t, "options", &o, sizeof o, offsetof(attn_attention_options, initialisation));
    arg_made(t, "out", release_attention);
    check_row(t);
    wrong_pointer(t, 1, NULL, ATTN_ERROR_INVALID_ARGUMENT, "query_width"); /* the one option without a default */
    wrong_options(t, 1);
    wrong_positions(t, 1);
    WRONG_INT32(t, 1, attn_attention_options, dtype, ATTN_FLOAT64, ATTN_ERROR_UNSUPPORTED);
    const uint64_t key_width = offsetof(attn_attention_options, key_width), output_width = offsetof(attn_attention_options, output_width);
    wrong_field(t, 1, key_width, 8, &(int64_t){INT64_MAX}, ATTN_ERROR_TOO_LARGE, "key.weight");
    wrong_field(t, 1, output_width, 8, &(int64_t){INT64_MAX / 8}, ATTN_ERROR_TOO_LARGE, "output.weight");

    NOTED(attn_attention_parameters);
    assert_true(attn_attention_parameters(NULL) == NULL && attn_attention_parameters(t->live[TENSOR]) == NULL);
    assert_null(attn_attention_parameters(t->freed[ATTENTION]));
    calls_close(t);
}

static void forwards(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    attn_attention *layer = NULL;
    const attn_attention_options o = options_of(t);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, (attn_segment[]){{0, 2, 0, 0}, {2, 3, 0, 1}});
    OK(t->ctx, attn_attention_create(t->ctx, &o, &layer));
    attn_parameters *set = attn_attention_parameters(layer);
    ROW(t, attn_attention_forward, forward);
    arg_context(t);
    arg_handle(t, "layer", ATTENTION, layer, 0);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arg_input(t, "query", FLOATS(t, 4, 4), LEADS);
    arg_input(t, "key", FLOATS(t, 5, 4), LEADS);
    arg_input(t, "value", FLOATS(t, 5, 4), LEADS);
    arg_pointer(t, "query_layout", queries, 0);
    arg_pointer(t, "key_layout", keys, 0);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    arg_output(t, "output", FLOATS(t, 4, 4), 0);
    guard_parameters(t, set);
    if (taped) t->before = begin;
    t->at[6].kind = t->at[7].kind = NUMBER; /* NULL has another count: below */
    check_row(t);
    wrong_pointer(t, 6, NULL, ATTN_ERROR_SHAPE, "key_layout");
    wrong_pointer(t, 7, NULL, ATTN_ERROR_SHAPE, "key_layout");
    for (int i = 6; i <= 7; i++) {
        wrong_layout_handles(t, i);
        wrong_layout(t, i, 2, part, ATTN_ERROR_INVALID_ARGUMENT, t->at[i].name);
        wrong_layout(t, i, 2, beyond, ATTN_ERROR_SHAPE, t->at[i].name);
        wrong_layout(t, i, 3, three, ATTN_ERROR_SHAPE, "key_layout");
    }
    wrong_layout(t, 6, 2, gap, ATTN_ERROR_INVALID_ARGUMENT, "query_layout");
    wrong_layout(t, 6, 2, same, ATTN_ERROR_INVALID_ARGUMENT, "query_layout");
    wrong_masks(t, 8);
    for (int i = 3; i <= 5; i++) wrong_pointer(t, i, OF_TYPE(t, ATTN_FLOAT64, 4, 4), ATTN_ERROR_DTYPE, t->at[i].name);
    /* over the layer's own parameters: the first, the last */
    for (int64_t i = 0; i < attn_parameters_count(set); i += attn_parameters_count(set) - 1) {
        float *data = attn_tensor_data(attn_parameters_tensor(set, i));
        wrong_pointer(t, 9, calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){4, 4}, NULL, data), ATTN_ERROR_INVALID_ARGUMENT, "output");
        wrong_pointer(t, 9, calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){4, 4}, NULL, data + 3), ATTN_ERROR_INVALID_ARGUMENT, "output");
    }
    wrong_pointer(t, 9, attn_parameters_tensor(set, 0), ATTN_ERROR_INVALID_ARGUMENT, "output");
    attn_layout_free(queries);
    attn_layout_free(keys);
    attn_attention_free(layer);
    calls_close(t);
}

static void triangles(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    attn_attention *layer = NULL, *without = NULL, *uneven[3] = {NULL, NULL, NULL};
    attn_attention_options o = options_of(t);
    OK(t->ctx, attn_attention_create(t->ctx, &o, &without));
    o.pair_bias = 1;
    OK(t->ctx, attn_attention_create(t->ctx, &o, &layer));
    for (int i = 0; i < 3; i++) { /* one width that is another */
        attn_attention_options other = o;
        other.key_width = other.value_width = other.output_width = o.query_width;
        *(i == 0 ? &other.key_width : i == 1 ? &other.value_width : &other.output_width) = 2;
        OK(t->ctx, attn_attention_create(t->ctx, &other, &uneven[i]));
    }
    ROW(t, attn_attention_triangle, triangle);
    arg_context(t);
    arg_handle(t, "layer", ATTENTION, layer, 0);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arg_input(t, "pair", FLOATS(t, 3, 3, 4), IS_HEADS);
    arg_number(t, "axis", 0);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    arg_output(t, "output", FLOATS(t, 3, 3, 4), IS_HEADS);
    guard_parameters(t, attn_attention_parameters(layer));
    if (taped) t->before = begin;
    check_row(t);
    wrong_pointer(t, 1, without, ATTN_ERROR_BAD_STATE, "pair_bias");
    for (int i = 0; i < 3; i++) wrong_pointer(t, 1, uneven[i], ATTN_ERROR_BAD_STATE, "widths");
    wrong_pointer(t, 3, FLOATS(t, 3, 2, 4), ATTN_ERROR_SHAPE, "pair");
    wrong_pointer(t, 3, FLOATS(t, 2, 2, 4), ATTN_ERROR_SHAPE, "output");
    for (int i = 3; i < 7; i += 3) /* a number between one row of the matrix and the next */
        wrong_pointer(t, i, calls_over(t, ATTN_FLOAT32, 3, (int64_t[]){3, 3, 4}, (int64_t[]){13, 4, 1}, calls_memory(t)), ATTN_ERROR_SHAPE,
                      "gaps");
    wrong_number(t, 4, 2, ATTN_ERROR_INVALID_ARGUMENT, "axis");
    wrong_number(t, 4, -1, ATTN_ERROR_INVALID_ARGUMENT, "axis");
    attn_attention_free(layer);
    attn_attention_free(without);
    for (int i = 0; i < 3; i++) attn_attention_free(uneven[i]);
    calls_close(t);
}

static void test_triangle(void **state)
{
    (void)state;
    triangles(ATTN_BACKEND_BLAS, 0);
    triangles(ATTN_BACKEND_REFERENCE, 1);
}

static void test_forward(void **state)
{
    (void)state;
    forwards(ATTN_BACKEND_BLAS, 0);
    forwards(ATTN_BACKEND_REFERENCE, 1);
}

static void test_cost(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_attention_options o = options_of(t);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, (attn_segment[]){{0, 2, 0, 0}, {2, 3, 0, 1}});
    (void)state;
    ROW(t, attn_attention_cost, cost);
    arg_context(t);
    arg_options(t, "options", &o, sizeof o, offsetof(attn_attention_options, initialisation));
    arg_handle(t, "query", LAYOUT, queries, 0);
    arg_handle(t, "key", LAYOUT, keys, 0);
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    arg_report(t, "report", sizeof(attn_cost_report), 0);
    t->at[t->count - 1].smallest = offsetof(attn_cost_report, weights_bytes); /* the first version ended there */
    check_row(t);
    wrong_options(t, 1);
    wrong_positions(t, 1);
    wrong_layout(t, 2, 2, gap, ATTN_ERROR_INVALID_ARGUMENT, "query");
    wrong_layout(t, 2, 3, three, ATTN_ERROR_SHAPE, "key");
    wrong_layout(t, 3, 3, three, ATTN_ERROR_SHAPE, "key");
    wrong_layout(t, 3, 2, part, ATTN_ERROR_INVALID_ARGUMENT, "key");
    wrong_masks(t, 4);
    attn_layout_free(queries);
    attn_layout_free(keys);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dot_product), cmocka_unit_test(test_create), cmocka_unit_test(test_forward),
                                       cmocka_unit_test(test_triangle), cmocka_unit_test(test_cost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

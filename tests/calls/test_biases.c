#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of attention.h's biased and additive attention, and of inspect.h. */
INIT(attn_attention_bias, attn_attention_bias_init)
INIT(attn_inspect_request, attn_inspect_request_init)
THUNK(biased, attn_biased_attention(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p, a[8].p, a[9].i, a[10].p, a[11].p))
THUNK(additive, attn_additive_attention(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].p, a[8].p, a[9].p, a[10].p))
THUNK(weights,
      attn_attention_weights(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p, a[5].p, a[6].p, a[7].i, a[8].p, a[9].i, a[10].i, a[11].i, a[12].p))
THUNK(inspect, attn_transformer_inspect(a[0].p, a[1].p, a[2].p, a[3].p))

static const attn_segment two[2] = {{0, 1, 0, 0}, {1, 3, 0, 1}}, keys_two[2] = {{0, 2, 0, 0}, {2, 3, 0, 1}},
                          three[3] = {{0, 1, 0, 0}, {1, 2, 0, 1}, {3, 1, 0, 2}}, part[2] = {{0, 3, 0, 0}, {1, 3, 0, 1}},
                          same[2] = {{0, 4, 0, 0}, {0, 4, 0, 1}}, beyond[2] = {{0, 1, 0, 0}, {1, 9, 0, 1}};

static void begin(calls *t)
{
    OK(t->ctx, attn_tape_begin(t->ctx, t->live[TAPE], NULL));
}

static void wrong_layouts(calls *t, int query, int key)
{
    wrong_pointer(t, query, NULL, ATTN_ERROR_SHAPE, "key_layout");
    wrong_pointer(t, key, NULL, ATTN_ERROR_SHAPE, "key_layout");
    for (int i = query; i <= key; i++) {
        wrong_layout_handles(t, i);
        wrong_layout(t, i, 2, part, ATTN_ERROR_INVALID_ARGUMENT, t->at[i].name);
        wrong_layout(t, i, 2, beyond, ATTN_ERROR_SHAPE, t->at[i].name);
        wrong_layout(t, i, 3, three, ATTN_ERROR_SHAPE, "key_layout");
    }
    wrong_layout(t, query, 2, same, ATTN_ERROR_INVALID_ARGUMENT, "query_layout");
}

static void wrong_options(calls *t, int index)
{
    accept_pointer(t, index, NULL);
    WRONG_REALS(t, index, attn_dot_product_options, dropout, 0, 1);
    WRONG_REALS(t, index, attn_dot_product_options, soft_cap, 0, NAN);
    WRONG_REALS(t, index, attn_dot_product_options, scale, NAN, NAN);
    WRONG_INT32(t, index, attn_dot_product_options, derive_scale, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, index, attn_dot_product_options, reserved, 1, ATTN_ERROR_INVALID_ARGUMENT);
}

typedef struct biases {
    attn_attention_bias linear, buckets, relative, pair;
} biases;

static void make_biases(calls *t, biases *b)
{
    attn_attention_bias *const all[4] = {&b->linear, &b->buckets, &b->relative, &b->pair};
    for (int i = 0; i < 4; i++) {
        OK(t->ctx, attn_attention_bias_init(all[i], sizeof *all[i]));
        all[i]->kind = ATTN_BIAS_LINEAR + i;
    }
    b->linear.table = FLOATS(t, 2);
    b->buckets.table = FLOATS(t, 8, 2);
    b->relative.reach = 2;
    b->relative.table = b->relative.values = FLOATS(t, 5, 3);
    b->pair.table = FLOATS(t, 1, 2, 3, 3);
}

/* the list with one bias in another way; the guards see that no table is written */
static void wrong_bias(calls *t, int index, const attn_attention_bias *bias, attn_status status, const char *word)
{
    const attn_attention_bias *const list[2] = {bias, bias};
    wrong_pointer(t, index, list, status, word);
}
#define WRONG_BIAS(t, index, bias, field, value, status, word) \
    do { \
        attn_attention_bias changed = (bias); \
        changed.field = (value); \
        wrong_bias(t, index, &changed, status, word); \
    } while (0)

/* those of the list at `index`, of which the call takes one; values: 0 for weights, where they have no size to fit */
static void wrong_biases(calls *t, int index, const biases *b)
{
    const attn_tensor *foreign = (const attn_tensor *)t->live[MASK], *freed = t->freed[TENSOR];
    const attn_attention_bias *const null[1] = {NULL};
    wrong_pointer(t, index, null, ATTN_ERROR_INVALID_ARGUMENT, "biases");
    for (int i = 0; i < 4; i++) {
        const attn_attention_bias valid = i == 0 ? b->linear : i == 1 ? b->buckets : i == 2 ? b->relative : b->pair;
        WRONG_BIAS(t, index, valid, struct_size, 7, ATTN_ERROR_INVALID_ARGUMENT, "bias");
        WRONG_BIAS(t, index, valid, struct_size, sizeof valid - 8, ATTN_ERROR_INVALID_ARGUMENT, "bias");
        WRONG_BIAS(t, index, valid, struct_size, 4097, ATTN_ERROR_INVALID_ARGUMENT, "bias");
        WRONG_BIAS(t, index, valid, kind, 0, ATTN_ERROR_INVALID_ARGUMENT, "bias.kind");
        WRONG_BIAS(t, index, valid, kind, 5, ATTN_ERROR_INVALID_ARGUMENT, "bias.kind");
        WRONG_BIAS(t, index, valid, both_sides, 2, ATTN_ERROR_INVALID_ARGUMENT, "bias.both_sides");
        WRONG_BIAS(t, index, valid, both_sides, -1, ATTN_ERROR_INVALID_ARGUMENT, "bias.both_sides");
        WRONG_BIAS(t, index, valid, reach, -1, ATTN_ERROR_INVALID_ARGUMENT, "bias.reach");
        WRONG_BIAS(t, index, valid, reach, (1 << 20) + 1, ATTN_ERROR_INVALID_ARGUMENT, "bias.reach");
        WRONG_BIAS(t, index, valid, table, foreign, ATTN_ERROR_INVALID_ARGUMENT, "bias.table");
        WRONG_BIAS(t, index, valid, table, freed, ATTN_ERROR_INVALID_ARGUMENT, "bias.table");
        WRONG_BIAS(t, index, valid, table, FLOATS(t, 7, 7), ATTN_ERROR_SHAPE, "bias.table");
        if (i != 2) WRONG_BIAS(t, index, valid, values, b->relative.values, ATTN_ERROR_INVALID_ARGUMENT, "bias.values");
        if (i == 1 || i == 3) WRONG_BIAS(t, index, valid, table, NULL, ATTN_ERROR_INVALID_ARGUMENT, "bias.table");
    }
    WRONG_BIAS(t, index, b->linear, table, OF_TYPE(t, ATTN_FLOAT64, 2), ATTN_ERROR_DTYPE, "bias.table");
    WRONG_BIAS(t, index, b->buckets, table, FLOATS(t, 2, 2), ATTN_ERROR_SHAPE, "bias.table");
    WRONG_BIAS(t, index, b->buckets, table, FLOATS(t, 7, 2), ATTN_ERROR_SHAPE, "bias.table");
    WRONG_BIAS(t, index, b->buckets, reach, 2, ATTN_ERROR_INVALID_ARGUMENT, "bias.reach");
    WRONG_BIAS(t, index, b->relative, table, FLOATS(t, 4, 3), ATTN_ERROR_SHAPE, "bias.table");
    WRONG_BIAS(t, index, b->relative, values, foreign, ATTN_ERROR_INVALID_ARGUMENT, "bias.values");
    attn_attention_bias none = b->relative;
    none.table = none.values = NULL;
    wrong_bias(t, index, &none, ATTN_ERROR_INVALID_ARGUMENT, "bias.table");
    static const int64_t bad[4][4] = {{3, 2, 3, 3}, {1, 3, 3, 3}, {1, 2, 2, 3}, {1, 2, 3, 2}};
    for (int i = 0; i < 4; i++)
        WRONG_BIAS(t, index, b->pair, table, calls_tensor(t, ATTN_FLOAT32, 4, bad[i]), ATTN_ERROR_SHAPE, "bias.table");
}

/* query, key, value, layouts, mask and options from argument `first` on */
static void arguments(calls *t, attn_layout *queries, attn_layout *keys, int values)
{
    const int flags = LEADS | IS_HEADS | (values ? 0 : ANY_ROWS); /* rows in no segment are nobody's without an output for each */
    arg_input(t, "query", FLOATS(t, 4, 2, 3), flags);
    arg_input(t, "key", FLOATS(t, 5, 2, 3), flags);
    if (values) arg_input(t, "value", FLOATS(t, 5, 2, 3), LEADS | IS_HEADS);
    if (values == 2) arg_input(t, "vector", FLOATS(t, 2, 3), 0);
    arg_handle(t, "query_layout", LAYOUT, queries, 0);
    t->at[t->count - 1].kind = NUMBER; /* NULL has another count: wrong_layouts */
    arg_handle(t, "key_layout", LAYOUT, keys, 0);
    t->at[t->count - 1].kind = NUMBER;
    arg_handle(t, "mask", MASK, t->live[MASK], NULLABLE);
    attn_dot_product_options o;
    OK(t->ctx, attn_dot_product_options_init(&o, sizeof o));
    arg_options(t, "options", &o, sizeof o, sizeof o);
}

static void biased_calls(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, keys_two);
    biases b;
    make_biases(t, &b);
    const attn_attention_bias *const one[3] = {&b.relative, &b.linear, &b.pair}, *const twice[3] = {&b.linear, &b.relative, &b.buckets},
                                     *const rows[3] = {&b.relative, &b.relative, &b.linear},
                                     *const pairs[3] = {&b.linear, &b.pair, &b.pair};
    ROW(t, attn_biased_attention, biased);
    arg_context(t);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arguments(t, queries, keys, 1);
    arg_number(t, "count", 1);
    arg_pointer(t, "biases", one, 0);
    arg_output(t, "output", FLOATS(t, 4, 2, 3), IS_HEADS);
    if (taped) t->before = begin;
    check_row(t);
    wrong_layouts(t, 5, 6);
    wrong_options(t, 8);
    wrong_number(t, 9, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 9, 4, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 9, INT64_MAX, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_biases(t, 10, &b);
    calls_row(t, "attn_biased_attention with three", biased);
    arg_context(t);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arguments(t, queries, keys, 1);
    arg_number(t, "count", 3);
    arg_pointer(t, "biases", one, 0);
    arg_output(t, "output", FLOATS(t, 4, 2, 3), IS_HEADS);
    if (taped) t->before = begin;
    accept_row(t);
    wrong_pointer(t, 10, twice, ATTN_ERROR_INVALID_ARGUMENT, "biases");
    wrong_pointer(t, 10, rows, ATTN_ERROR_INVALID_ARGUMENT, "biases");
    wrong_pointer(t, 10, pairs, ATTN_ERROR_INVALID_ARGUMENT, "biases");
    const attn_tensor *const tables[3] = {b.relative.table, b.linear.table, b.pair.table};
    for (int i = 0; i < 3; i++) { /* the output over a table */
        void *place = (char *)(uintptr_t)attn_tensor_data_const(tables[i]) + 4 * i;
        wrong_pointer(t, 11, calls_over(t, ATTN_FLOAT32, 3, (int64_t[]){4, 2, 3}, NULL, place), ATTN_ERROR_INVALID_ARGUMENT, "output");
    }
    attn_layout_free(queries);
    attn_layout_free(keys);
    calls_close(t);
}

static void additive_calls(int32_t backend, int taped)
{
    calls *t = calls_open(backend);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, keys_two);
    ROW(t, attn_additive_attention, additive);
    arg_context(t);
    arg_tape(t, taped ? t->live[TAPE] : NULL);
    arguments(t, queries, keys, 2);
    arg_output(t, "output", FLOATS(t, 4, 2, 3), IS_HEADS);
    if (taped) t->before = begin;
    check_row(t);
    wrong_layouts(t, 6, 7);
    wrong_options(t, 9);
    wrong_pointer(t, 5, FLOATS(t, 1, 3), ATTN_ERROR_SHAPE, "vector");
    wrong_pointer(t, 5, FLOATS(t, 2, 4), ATTN_ERROR_SHAPE, "vector");
    attn_layout_free(queries);
    attn_layout_free(keys);
    calls_close(t);
}

static void weight_calls(int32_t backend)
{
    calls *t = calls_open(backend);
    attn_layout *queries = calls_layout(t, 2, two), *keys = calls_layout(t, 2, keys_two);
    biases b;
    make_biases(t, &b);
    const attn_attention_bias *const one[1] = {&b.relative};
    ROW(t, attn_attention_weights, weights);
    arg_context(t);
    arguments(t, queries, keys, 0);
    arg_number(t, "count", 1);
    arg_pointer(t, "biases", one, 0);
    arg_number(t, "segment", 1);
    arg_number(t, "row", 1);
    arg_number(t, "head", 1);
    arg_output(t, "weights", FLOATS(t, 1, 2, 3), ANY_FORM);
    check_row(t);
    wrong_layouts(t, 3, 4);
    wrong_options(t, 6);
    wrong_number(t, 7, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_number(t, 7, 4, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_biases(t, 8, &b);
    static const int64_t wrong[3] = {-1, 2, INT64_MAX};
    for (int i = 0; i < 3; i++) wrong_number(t, 9, wrong[i], ATTN_ERROR_INVALID_ARGUMENT, "segment");
    for (int i = 0; i < 3; i++) wrong_number(t, 10, wrong[i], ATTN_ERROR_INVALID_ARGUMENT, "row");
    for (int i = 0; i < 3; i++) wrong_number(t, 11, wrong[i], ATTN_ERROR_INVALID_ARGUMENT, "head");
    wrong_pointer(t, 12, OF_TYPE(t, ATTN_FLOAT64, 1, 2, 3), ATTN_ERROR_DTYPE, "weights");
    wrong_pointer(t, 12, FLOATS(t, 1, 2, 2), ATTN_ERROR_SHAPE, "weights");
    wrong_pointer(t, 12, FLOATS(t, 2, 3), ATTN_ERROR_SHAPE, "weights");
    wrong_pointer(t, 12, FLOATS(t, 1, 3, 3), ATTN_ERROR_INVALID_ARGUMENT, "row");
    wrong_pointer(t, 12, FLOATS(t, 2, 2, 3), ATTN_ERROR_INVALID_ARGUMENT, "head");
    attn_layout_free(queries);
    attn_layout_free(keys);
    calls_close(t);
}

static void test_biased(void **state)
{
    (void)state;
    biased_calls(ATTN_BACKEND_BLAS, 0);
    biased_calls(ATTN_BACKEND_REFERENCE, 1);
    NOTED(attn_attention_bias_init);
    check_init(init_attn_attention_bias, sizeof(attn_attention_bias));
}

static void test_additive(void **state)
{
    (void)state;
    additive_calls(ATTN_BACKEND_BLAS, 0);
    additive_calls(ATTN_BACKEND_REFERENCE, 1);
}

static void test_weights(void **state)
{
    (void)state;
    weight_calls(ATTN_BACKEND_BLAS);
    weight_calls(ATTN_BACKEND_REFERENCE);
}

static void test_inspect(void **state)
{
    static const int64_t sources[2] = {2, 3}, targets[2] = {1, 3};
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const attn_transformer_options options = model_options(1, 1);
    attn_inspect_request r;
    model_batch b;
    (void)state;
    NOTED(attn_inspect_request_init);
    check_init(init_attn_inspect_request, sizeof r);
    model_batch_open(t->ctx, &b, &options, 2, sources, targets, 3);
    OK(t->ctx, attn_inspect_request_init(&r, sizeof r));
    r.part = ATTN_INSPECT_CROSS;
    r.segment = r.row = r.head = 1;
    r.weights = FLOATS(t, 1, 2, 3);
    r.entropy = FLOATS(t, 2, 4);
    ROW(t, attn_transformer_inspect, inspect);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_options(t, "batch", &b.batch, sizeof b.batch, sizeof b.batch);
    arg_options(t, "request", &r, sizeof r, sizeof r);
    guard_written(t, attn_tensor_data(r.weights), 24);
    guard_written(t, attn_tensor_data(r.entropy), 32);
    guard_parameters(t, attn_transformer_parameters(t->live[TRANSFORMER]));
    check_row(t);
    wrong_pointer(t, 2, NULL, ATTN_ERROR_INVALID_ARGUMENT, "batch");
    wrong_pointer(t, 3, NULL, ATTN_ERROR_INVALID_ARGUMENT, "request");
    WRONG_INT32(t, 3, attn_inspect_request, part, 3, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 3, attn_inspect_request, part, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 3, attn_inspect_request, reserved, 1, ATTN_ERROR_INVALID_ARGUMENT);
    static const int64_t wrong[4] = {-1, 2, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        WRONG_INT64(t, 3, attn_inspect_request, layer, wrong[i], ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 3, attn_inspect_request, segment, wrong[i], ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 3, attn_inspect_request, row, wrong[i], ATTN_ERROR_INVALID_ARGUMENT);
        WRONG_INT64(t, 3, attn_inspect_request, head, wrong[i], ATTN_ERROR_INVALID_ARGUMENT);
    }
    const struct {
        const attn_tensor *at;
        attn_status status;
        const char *word;
    } weights_bad[] = {{(const attn_tensor *)t->live[MASK], ATTN_ERROR_INVALID_ARGUMENT, "weights"},
                       {t->freed[TENSOR], ATTN_ERROR_INVALID_ARGUMENT, "weights"},
                       {OF_TYPE(t, ATTN_FLOAT64, 1, 2, 3), ATTN_ERROR_DTYPE, "weights"},
                       {FLOATS(t, 2, 3), ATTN_ERROR_SHAPE, "weights"},
                       {FLOATS(t, 1, 2, 2), ATTN_ERROR_SHAPE, "weights"},
                       {FLOATS(t, 1, 3, 3), ATTN_ERROR_INVALID_ARGUMENT, "row"},
                       {FLOATS(t, 2, 2, 3), ATTN_ERROR_INVALID_ARGUMENT, "head"},
                       {r.entropy, ATTN_ERROR_SHAPE, "weights"}},
      entropy_bad[] = {
          {(const attn_tensor *)t->live[MASK], ATTN_ERROR_INVALID_ARGUMENT, "entropy"},
          {t->freed[TENSOR], ATTN_ERROR_INVALID_ARGUMENT, "entropy"},
          {OF_TYPE(t, ATTN_FLOAT64, 2, 4), ATTN_ERROR_DTYPE, "entropy"},
          {FLOATS(t, 8), ATTN_ERROR_SHAPE, "entropy"},
          {FLOATS(t, 2, 5), ATTN_ERROR_SHAPE, "entropy"},
          {FLOATS(t, 1, 4), ATTN_ERROR_SHAPE, "entropy"},
          {calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){2, 4}, (int64_t[]){5, 1}, calls_memory(t)), ATTN_ERROR_SHAPE, "entropy"},
          {calls_over(t, ATTN_FLOAT32, 2, (int64_t[]){2, 4}, NULL, attn_tensor_data(r.weights)), ATTN_ERROR_INVALID_ARGUMENT, "entropy"}};
    for (size_t i = 0; i < sizeof weights_bad / sizeof *weights_bad; i++)
        wrong_field(t, 3, offsetof(attn_inspect_request, weights), sizeof(void *), &weights_bad[i].at, weights_bad[i].status,
                    weights_bad[i].word);
    for (size_t i = 0; i < sizeof entropy_bad / sizeof *entropy_bad; i++)
        wrong_field(t, 3, offsetof(attn_inspect_request, entropy), sizeof(void *), &entropy_bad[i].at, entropy_bad[i].status,
                    entropy_bad[i].word);
    model_batch_close(&b);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_biased), cmocka_unit_test(test_additive), cmocka_unit_test(test_weights),
                                       cmocka_unit_test(test_inspect)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

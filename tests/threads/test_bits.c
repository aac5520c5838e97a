#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/kernels.h"
#include "support/blas.h"
#include "support/scenario.h"

/* The same bytes for 1, 2, 3 and 4 threads. The numbers are printed, so that run-flavours.sh can compare them over environments. */
static void check(int32_t backend, const char *name, int which)
{
    digest alone = 0;
    for (int32_t threads = 1; threads <= 4; threads++) {
        attn_context *ctx = model_context(backend, threads, 0);
        digest d = scenario_whole(ctx, which);
        attn_context_free(ctx);
        if (threads == 1) alone = d;
        if (d != alone) fail_msg("%s, %s: %d threads give other bytes than one", name, scenario_name(which), (int)threads);
    }
    printf("digest %s %s %d %016llx\n", name, blas_flavour(), which, (unsigned long long)alone);
}

static void test_blas(void **state)
{
    (void)state;
    for (int which = 0; which < SCENARIOS; which++) check(ATTN_BACKEND_BLAS, "blas", which);
}

static void test_reference(void **state)
{
    (void)state;
    if (getenv("ATTN_BLAS_ALONE") != NULL) skip(); /* the reference calls no BLAS */
    check(ATTN_BACKEND_REFERENCE, "reference", 4);
}

/* the last of the longest's tiles has one row: whoever is through with it begins the next head while the first is under way */
enum { SIZE = 4, LONGEST = 129, MOST = LONGEST * 4 * SIZE, PAIRS = LONGEST * LONGEST, AGAIN = 400 };
static float query[MOST], key[MOST], value[MOST], output[MOST], log_sum_exp[MOST], d_output[MOST], pair[PAIRS];
static float d_query[MOST], d_key[MOST], d_value[MOST], d_pair[PAIRS];

/* Segments side by side; few key heads and long segments make the backward go by tiles of queries, then by tiles of keys. */
typedef struct shared_shape {
    const char *name;
    int64_t rows, segments, heads, key_heads;
} shared_shape;

static view heads_of(float *data, int64_t rows, int64_t heads)
{
    return (view){data, rows, heads, SIZE, heads * SIZE, SIZE, ATTN_FLOAT32, 0};
}

/* all heads of a segment add to one gradient: heads are jobs of their own, and no two may add at once */
static void shared_bias(attn_context *ctx, const shared_shape *s)
{
    const int64_t each = s->rows / s->segments;
    const attn_segment parts[] = {{0, each, 0, 0}, {each, each, 0, 1}};
    attn__attention_bias bias = {.pair = {.data = pair, .dtype = ATTN_FLOAT32}, .d_pair = {.data = d_pair, .dtype = ATTN_FLOAT32}};
    const int64_t stride[4] = {each * each, 0, each, 1}, extent[4] = {s->segments, 1, each, each};
    const attn__segments segments = {s->segments, s->rows, parts};
    const attn__kernels *table;
    memcpy(bias.pair_stride, stride, sizeof stride);
    memcpy(bias.pair_extent, extent, sizeof extent);
    attn__attention_arguments a = {.query = heads_of(query, s->rows, s->heads), .key = heads_of(key, s->rows, s->key_heads)};
    a.value = heads_of(value, s->rows, s->key_heads), a.output = heads_of(output, s->rows, s->heads);
    a.d_query = heads_of(d_query, s->rows, s->heads), a.d_key = heads_of(d_key, s->rows, s->key_heads);
    a.d_value = heads_of(d_value, s->rows, s->key_heads), a.d_output = heads_of(d_output, s->rows, s->heads);
    a.log_sum_exp = log_sum_exp, a.query_segments = a.key_segments = segments, a.scale = 1, a.bias = &bias;
    for (int i = 0; i < PAIRS; i++) d_pair[i] = 1;
    OK(ctx, attn__kernels_for(ctx, ATTN_FLOAT32, &table));
    OK(ctx, attn__enter(ctx));
    attn_status status = table->attention(ctx, &a);
    OK(ctx, attn__leave(ctx, status == ATTN_OK ? table->attention_back(ctx, &a) : status));
}

static void test_shared_bias(void **state)
{
    (void)state;
    static const shared_shape shapes[] = {{"each head its keys", 64, 2, 8, 8}, {"one key head, two sweeps", LONGEST, 1, 4, 1}};
    static float alone[PAIRS];
    float *const filled[] = {query, key, value, d_output};
    random_state random = {5};
    for (int i = 0; i < 4; i++) random_floats(&random, filled[i], MOST, -1, 1);
    random_floats(&random, pair, PAIRS, -1, 1);
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        for (int32_t threads = 1; threads <= 3; threads++) {
            attn_context *ctx = model_context(ATTN_BACKEND_BLAS, threads, 0);
            for (int i = 0; i < (threads == 1 ? 1 : AGAIN); i++) {
                shared_bias(ctx, &shapes[n]);
                if (threads == 1) memcpy(alone, d_pair, sizeof alone);
                if (memcmp(alone, d_pair, sizeof alone) != 0)
                    fail_msg("%s, %d threads, time %d: other bytes than one gives", shapes[n].name, (int)threads, i);
            }
            attn_context_free(ctx);
        }
    }
}

/* the number tells runs apart: one element of one parameter, one bit */
static void test_notices(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer *model = scenario_model(ctx, 1);
    digest before = scenario_forward(ctx, 1, model), gradients = scenario_gradients(ctx, 1, model);
    digest generated = scenario_generate(ctx, 1, model), parameters = digest_parameters(attn_transformer_parameters(model));
    attn_tensor *weight = attn_parameters_tensor(attn_transformer_parameters(model), 3);
    model_set(weight, 7, model_get(weight, 7) * (1 + 1e-6));
    assert_true(digest_parameters(attn_transformer_parameters(model)) != parameters);
    assert_true(scenario_forward(ctx, 1, model) != before);
    assert_true(scenario_gradients(ctx, 1, model) != gradients);
    assert_true(scenario_generate(ctx, 1, model) != generated);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blas), cmocka_unit_test(test_reference), cmocka_unit_test(test_notices),
                                       cmocka_unit_test(test_shared_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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

enum { HEADS = 8, ROWS = 64, SIZE = 4, ALL = ROWS * HEADS * SIZE, AGAIN = 400 };
static float query[ALL], key[ALL], value[ALL], output[ALL], log_sum_exp[HEADS * ROWS], d_output[ALL], pair[2 * ROWS * ROWS];
static float d_query[ALL], d_key[ALL], d_value[ALL], d_pair[2 * ROWS * ROWS];

static view rows_of(float *data)
{
    return (view){data, ROWS, HEADS, SIZE, HEADS * SIZE, SIZE, ATTN_FLOAT32, 0};
}

/* all heads of a segment add to one gradient: heads are jobs of their own, and no two may add at once */
static void shared_bias(attn_context *ctx)
{
    static const attn_segment halves[] = {{0, ROWS / 2, 0, 0}, {ROWS / 2, ROWS / 2, 0, 1}};
    attn__attention_bias bias = {.pair = {.data = pair, .dtype = ATTN_FLOAT32}, .d_pair = {.data = d_pair, .dtype = ATTN_FLOAT32}};
    const int64_t stride[4] = {ROWS * ROWS, 0, ROWS, 1}, extent[4] = {2, 1, ROWS, ROWS};
    const attn__segments segments = {2, ROWS, halves};
    const attn__kernels *table;
    memcpy(bias.pair_stride, stride, sizeof stride);
    memcpy(bias.pair_extent, extent, sizeof extent);
    attn__attention_arguments a = {.query = rows_of(query), .key = rows_of(key), .value = rows_of(value), .output = rows_of(output)};
    a.d_query = rows_of(d_query), a.d_key = rows_of(d_key), a.d_value = rows_of(d_value), a.d_output = rows_of(d_output);
    a.log_sum_exp = log_sum_exp, a.query_segments = a.key_segments = segments, a.scale = 1, a.bias = &bias;
    for (int i = 0; i < 2 * ROWS * ROWS; i++) d_pair[i] = 1;
    OK(ctx, attn__kernels_for(ctx, ATTN_FLOAT32, &table));
    OK(ctx, attn__enter(ctx));
    attn_status status = table->attention(ctx, &a);
    OK(ctx, attn__leave(ctx, status == ATTN_OK ? table->attention_back(ctx, &a) : status));
}

static void test_shared_bias(void **state)
{
    (void)state;
    static float alone[2 * ROWS * ROWS];
    float *const filled[] = {query, key, value, d_output};
    random_state random = {5};
    for (int i = 0; i < 4; i++) random_floats(&random, filled[i], ALL, -1, 1);
    random_floats(&random, pair, 2 * ROWS * ROWS, -1, 1);
    for (int32_t threads = 1; threads <= 3; threads++) {
        attn_context *ctx = model_context(ATTN_BACKEND_BLAS, threads, 0);
        for (int i = 0; i < (threads == 1 ? 1 : AGAIN); i++) {
            shared_bias(ctx);
            if (threads == 1) memcpy(alone, d_pair, sizeof alone);
            if (memcmp(alone, d_pair, sizeof alone) != 0) fail_msg("%d threads, time %d: other bytes than one gives", (int)threads, i);
        }
        attn_context_free(ctx);
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

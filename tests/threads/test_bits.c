#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* after the headers it needs */
#include <cmocka.h>
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blas), cmocka_unit_test(test_reference), cmocka_unit_test(test_notices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

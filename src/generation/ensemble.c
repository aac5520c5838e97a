#include <math.h>
#include <string.h>
#include "../models/report.h"
#include "generator.h"

/* Several models that decode as one: further members of a session, and the mean of all members' probabilities. */
static attn_status check_vocabulary(attn_context *ctx, const char *side, int64_t got, int64_t expected)
{
    if (got == expected) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_SHAPE, "model: got a %s vocabulary of %lld, expected %lld as the generator's first model has", side,
                      (long long)got, (long long)expected);
}

/* what it reads and writes is what the first one does */
static attn_status check_like_first(attn_context *ctx, const attn_generator *g, const attn_transformer *model)
{
    const attn__transformer_plan *first = attn__generator_plan(g), *plan = attn__transformer_plan_of(model);
    if (plan->has_encoder != first->has_encoder)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "model: got one with%s an encoder, expected one with%s as the generator's first", plan->has_encoder ? "" : "out",
                          first->has_encoder ? "" : "out");
    if (plan->options.dtype != first->options.dtype)
        return attn__fail(ctx, ATTN_ERROR_DTYPE, "model: got another dtype than that of the generator's first model, expected the same");
    attn_status status = check_vocabulary(ctx, "target", plan->output.out, first->output.out);
    if (status == ATTN_OK && first->has_encoder)
        status = check_vocabulary(ctx, "source", plan->options.source_vocabulary, first->options.source_vocabulary);
    return status;
}

static attn_status add(attn_context *ctx, attn_generator *g, const attn_transformer *model)
{
    attn__member *made, *last = &g->model;
    attn_status status = attn__member_check(ctx, model, g->options.capacity);
    if (status == ATTN_OK) status = check_like_first(ctx, g, model);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, 1, (int64_t)sizeof *made, &made);
    if (status != ATTN_OK) return status;
    status = attn__member_open(ctx, g, model, made);
    if (status != ATTN_OK) {
        attn__member_close(g, made);
        attn__generator_give_back(g, made, 1, (int64_t)sizeof *made);
        return status;
    }
    while (last->next != NULL) last = last->next;
    last->next = made;
    return ATTN_OK;
}

attn_status attn_generator_add_model(attn_context *ctx, attn_generator *generator, const attn_transformer *model)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__generator_check(ctx, generator, 0);
    if (status == ATTN_OK) status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK && generator->begun)
        status =
            attn__fail(ctx, ATTN_ERROR_BAD_STATE, "generator: got one that has had a prompt, expected models to be added before the first");
    if (status == ATTN_OK) status = add(ctx, generator, model);
    return attn__leave(ctx, status);
}

typedef struct sum_job {
    const view *log_p;
    double *sum; /* [rows, vocabulary], logarithms */
    int first;
} sum_job;

/* log(exp(a) + exp(b)); NaN stays */
static double log_sum(double a, double b)
{
    const double high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

static void sum_tile(void *context, int64_t row, int32_t worker)
{
    const sum_job *job = context;
    const int64_t width = job->log_p->width;
    double *sum = job->sum + row * width;
    int finite = 0;
    (void)worker;
    for (int64_t v = 0; v < width; v++) {
        double p = attn__number(job->log_p, row * width + v);
        sum[v] = job->first ? p : log_sum(sum[v], p);
        finite |= p > -INFINITY;
    }
    if (!finite && width > 0) sum[0] = NAN; /* no probabilities: the choice says that logits are not finite */
}

attn_status attn__ensemble_add(attn_context *ctx, const view *logits, int first, double *sum)
{
    const attn__kernels *kernels;
    view log_p = *logits;
    sum_job job = {&log_p, sum, first};
    attn_status status = attn__kernels_for(ctx, logits->dtype, &kernels);
    if (status != ATTN_OK) return status;
    log_p.data = attn__scratch(ctx, attn__view_bytes(logits));
    if (log_p.data == NULL) return attn__arena_status(ctx->scratch);
    status = kernels->softmax(ctx, logits, 1, &log_p);
    return status == ATTN_OK ? attn__run(ctx, logits->rows, sum_tile, &job) : status;
}

void attn__ensemble_write(const attn_generator *g, int64_t row, const double *sum)
{
    const view to = attn__generator_logits_view(g, row, 1);
    int64_t count = 0;
    for (const attn__member *m = &g->model; m != NULL; m = m->next) count++;
    for (int64_t v = 0; v < to.width; v++) {
        const double mean = sum[v] - log((double)count);
        if (to.dtype == ATTN_FLOAT64)
            ((double *)to.data)[v] = mean;
        else
            ((float *)to.data)[v] = (float)mean;
    }
}

int64_t attn__ensemble_scratch(const attn_generator *g)
{
    int64_t bytes = 0;
    if (g->model.next == NULL) return 0;
    const int64_t element = attn__dtype_bytes(g->model.parameters->dtype);
    attn__grow(&bytes, g->slots, attn__generator_plan(g)->output.out, (int64_t)sizeof(double) + element);
    attn__grow(&bytes, 2, 64, 1); /* aligned */
    return bytes;
}

#include <math.h>
#include <string.h>
#include "optimizer.h"

/* A run: neighbouring parameters that are updated alike, padding between them included (it is zero and stays so). */
typedef struct run {
    int64_t next, offset, elements;
    double decay;
} run;

static double decay_of(const attn_optimizer *optimizer, const attn__parameter *p)
{
    const int32_t spared = optimizer->options.no_decay;
    int spare = ((spared & ATTN_NO_DECAY_BIAS) && (p->kind == ATTN__KIND_BIAS || p->kind == ATTN__KIND_SCALAR)) ||
                ((spared & ATTN_NO_DECAY_NORM) && p->kind == ATTN__KIND_NORM) ||
                ((spared & ATTN_NO_DECAY_EMBEDDING) && p->kind == ATTN__KIND_EMBEDDING);
    return spare ? 0 : optimizer->options.weight_decay;
}

/* the first run at or after parameter r->next and before `end`; 0 when there is none */
static int next_run(const attn_optimizer *optimizer, int64_t end, run *r)
{
    const attn_parameters *set = optimizer->parameters;
    int64_t i = r->next;
    while (i < end && set->at[i].frozen) i++;
    if (i >= end) return 0;
    r->offset = set->at[i].offset;
    r->decay = decay_of(optimizer, &set->at[i]);
    int64_t last = i;
    for (i++; i < end && !set->at[i].frozen && decay_of(optimizer, &set->at[i]) == r->decay; i++) last = i;
    r->next = i;
    r->elements = set->at[last].offset + set->at[last].elements - r->offset;
    return 1;
}

static void *at(const attn_optimizer *optimizer, void *flat, int64_t offset)
{
    return (char *)flat + offset * attn__dtype_bytes(optimizer->parameters->dtype);
}

static attn_status inner(attn_context *ctx, const attn__kernels *kernels, const attn_optimizer *optimizer, const attn_gradients *gradients,
                         const run *r, double *out)
{
    view g = {at(optimizer, gradients->flat, r->offset), 1, 1, r->elements, r->elements, 0, optimizer->parameters->dtype, 0}, p = g;
    p.data = at(optimizer, optimizer->parameters->flat, r->offset);
    return kernels->dot(ctx, &g, &p, out);
}

/* sums of g^2, g p and p^2 over the runs; the last two only with an L2 penalty */
typedef struct squares {
    double gg, gp, pp;
} squares;
static attn_status square_sums(attn_context *ctx, const attn_optimizer *optimizer, const attn_gradients *gradients, int64_t first,
                               int64_t count, int penalty, squares *out)
{
    const attn__kernels *kernels;
    attn_status status = attn__kernels_for(ctx, optimizer->parameters->dtype, &kernels);
    run r = {.next = first};
    *out = (squares){0, 0, 0};
    while (status == ATTN_OK && next_run(optimizer, first + count, &r)) {
        double gg, gp = 0, pp = 0;
        status = kernels->sum_squares(ctx, at(optimizer, gradients->flat, r.offset), r.elements, &gg);
        if (status == ATTN_OK && penalty) status = inner(ctx, kernels, optimizer, gradients, &r, &gp);
        if (status == ATTN_OK && penalty)
            status = kernels->sum_squares(ctx, at(optimizer, optimizer->parameters->flat, r.offset), r.elements, &pp);
        out->gg += gg;
        out->gp += gp;
        out->pp += pp;
    }
    return status;
}

attn_status attn__optimizer_norm(attn_context *ctx, const attn_optimizer *optimizer, const attn_gradients *gradients, int64_t first,
                                 int64_t count, double divisor, double *out)
{
    squares s;
    attn_status status = square_sums(ctx, optimizer, gradients, first, count, 0, &s);
    *out = sqrt(s.gg) / divisor;
    return status;
}

/* what a skipped update leaves: zeros where it would have taken the gradient */
static void drop(const attn_optimizer *optimizer, const attn_gradients *gradients)
{
    run r = {.next = 0};
    while (next_run(optimizer, optimizer->parameters->count, &r))
        memset(at(optimizer, gradients->flat, r.offset), 0, (size_t)(r.elements * attn__dtype_bytes(optimizer->parameters->dtype)));
}

static attn_status commit(attn_context *ctx, attn_optimizer *optimizer, attn_gradients *gradients, double multiplier, double l2)
{
    const attn_optimizer_options *o = &optimizer->options;
    const attn__kernels *kernels;
    attn_status status = attn__kernels_for(ctx, optimizer->parameters->dtype, &kernels);
    run r = {.next = 0};
    ctx->committing = 1; /* a cancel waits for the next call: half an update is none */
    while (status == ATTN_OK && next_run(optimizer, optimizer->parameters->count, &r))
        status = kernels->adam(ctx, at(optimizer, optimizer->parameters->flat, r.offset), at(optimizer, gradients->flat, r.offset),
                               at(optimizer, optimizer->first, r.offset), at(optimizer, optimizer->second, r.offset), r.elements,
                               multiplier, l2, optimizer->rate, o->beta1, o->beta2, o->epsilon, r.decay, optimizer->step + 1);
    ctx->committing = 0;
    if (status == ATTN_OK) optimizer->step++;
    return status;
}

attn_status attn__optimizer_update(attn_context *ctx, attn_optimizer *optimizer, attn_gradients *gradients, double divisor,
                                   attn_optimizer_report *r)
{
    const attn_optimizer_options *o = &optimizer->options;
    squares s;
    attn_status status = square_sums(ctx, optimizer, gradients, 0, optimizer->parameters->count, o->l2 > 0, &s);
    if (status == ATTN_OK) status = attn__cancelled(ctx);
    if (status != ATTN_OK) return status;
    double square = s.gg / divisor / divisor;
    if (o->l2 > 0)
        square += 2 * o->l2 * s.gp / divisor + o->l2 * o->l2 * s.pp; /* (6.11): the penalty's gradient is part of what is clipped */
    double norm = sqrt(square > 0 || !(square <= 0) ? square : 0);
    *r = (attn_optimizer_report){.struct_size = sizeof *r, .gradient_norm = norm, .penalty = 0.5 * o->l2 * s.pp, .step = optimizer->step};
    if (!isfinite(norm)) {
        r->skipped = 1;
        drop(optimizer, gradients);
        return ATTN_OK;
    }
    double shrink = o->clip > 0 && norm > o->clip ? o->clip / norm : 1; /* (6.19) */
    status = commit(ctx, optimizer, gradients, shrink / divisor, shrink * o->l2);
    r->step = optimizer->step;
    return status;
}

attn_status attn_optimizer_step(attn_context *ctx, attn_optimizer *optimizer, attn_gradients *gradients, double divisor,
                                attn_optimizer_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_optimizer_report made = {.struct_size = sizeof made};
    status = attn__expect(ctx, "optimizer", optimizer, ATTN__MAGIC_OPTIMIZER, "attn_optimizer");
    if (status == ATTN_OK) status = attn__expect(ctx, "gradients", gradients, ATTN__MAGIC_GRADIENTS, "attn_gradients");
    if (status == ATTN_OK && gradients->parameters != optimizer->parameters)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "gradients: got those of another parameter set, expected the optimizer's");
    if (status == ATTN_OK && !(divisor > 0 && isfinite(divisor)))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "divisor: got %g, expected a finite number above 0", divisor);
    if (status == ATTN_OK && report != NULL) status = attn__report_check(ctx, "report", report, sizeof made);
    if (status == ATTN_OK) status = attn__optimizer_update(ctx, optimizer, gradients, divisor, &made);
    if (status == ATTN_OK && report != NULL) status = attn__report_write(ctx, "report", report, &made, sizeof made, sizeof made);
    return attn__leave(ctx, status);
}

#include "arguments.h"

typedef struct norm_saved {
    attn__dropout drop;
    view r; /* the norm's input */
    void *statistics;
    int32_t norm, has_sum; /* has_sum: r is the second output */
} norm_saved;

/* Gradient of s = where dropout took it from: the sum's own when nothing is dropped. */
static attn_status d_pending(attn_context *ctx, attn_tape *tape, const attn__kernels *k, const attn__value *s, const attn__dropout *drop,
                             const view *dr)
{
    view ds;
    int add;
    if (drop == NULL) return attn__tape_pass(ctx, tape, s, dr);
    attn_status status = attn__tape_wanted(ctx, tape, s, &ds, &add);
    return status == ATTN_OK && ds.data != NULL ? k->dropout(ctx, dr, drop, add, &ds) : status;
}

/* The gradient of the sum r, in the buffer of an arrived gradient when nobody else reads that. */
static attn_status d_norm(attn_context *ctx, attn_tape *tape, const attn__kernels *k, const attn__record *record, view *dr, view *ds)
{
    const norm_saved *saved = record->saved;
    const attn__value *s = &record->input[1], *gain = &record->input[2];
    const attn__dropout *drop = attn__active(&saved->drop);
    view dy, sum = {.data = NULL}, dgain, dshift;
    int own_dy, own_sum = 0;
    ds->data = NULL;
    attn_status status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, &own_dy);
    if (status == ATTN_OK && saved->has_sum) status = attn__tape_arrived(ctx, tape, &record->output[1], &sum, &own_sum);
    if (status != ATTN_OK) return status;
    *dr = sum;
    if (dy.data == NULL) return ATTN_OK; /* only the sum was used */
    if (!own_sum) *dr = dy;
    if (!own_sum && !own_dy) status = attn__tape_fresh(ctx, tape, &dy, dr);
    if (status == ATTN_OK && drop != NULL && s->id >= 0) status = attn__tape_fresh(ctx, tape, &dy, ds);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, gain, &dgain);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, &record->input[3], &dshift);
    if (status != ATTN_OK) return status;
    return k->residual_norm_back(ctx, &dy, sum.data != NULL ? &sum : NULL, &saved->r, saved->statistics, drop, saved->norm,
                                 gain->at.data != NULL ? &gain->at : NULL, dr, ds->data != NULL ? ds : NULL,
                                 dgain.data != NULL ? &dgain : NULL, dshift.data != NULL ? &dshift : NULL);
}

static attn_status residual_norm_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const norm_saved *saved = record->saved;
    const attn__value *x = &record->input[0], *s = &record->input[1];
    const attn__kernels *k;
    view dr, ds;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = d_norm(ctx, tape, k, record, &dr, &ds);
    if (status == ATTN_OK) status = attn__tape_pass(ctx, tape, x, &dr);
    if (status != ATTN_OK || s->id < 0) return status;
    if (ds.data != NULL) return attn__tape_pass(ctx, tape, s, &ds);
    return d_pending(ctx, tape, k, s, attn__active(&saved->drop), &dr);
}

attn_status attn__residual_norm(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *s, const attn__dropout *drop,
                                int32_t norm, double epsilon, const attn__value *gain, const attn__value *shift, attn__value *r,
                                attn__value *y)
{
    const attn__value *inputs[] = {x, s, gain, shift};
    attn__value *outputs[] = {y, r}, kept = *x;
    void *statistics = NULL;
    const attn__kernels *k;
    int keeps = attn__tape_keeps(tape, 4, inputs);
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK && keeps) status = attn__tape_memory(ctx, tape, x->at.rows * 2 * attn__dtype_bytes(x->at.dtype), &statistics);
    if (s != NULL && r != NULL) kept = *r;
    if (status == ATTN_OK && s != NULL && r == NULL && keeps)
        status = attn__tape_temporary(ctx, tape, x->at.rows, x->at.width, x->at.dtype, &kept);
    if (status != ATTN_OK) return status;
    view *sum = s != NULL && (r != NULL || keeps) ? &kept.at : NULL;
    status = k->residual_norm(ctx, &x->at, attn__at(s), attn__active(drop), norm, epsilon, attn__at(gain), attn__at(shift), sum, &y->at,
                              statistics);
    attn__record *record = NULL;
    int has_sum = s != NULL && r != NULL;
    if (status == ATTN_OK)
        status = attn__tape_record(ctx, tape, residual_norm_back, 4, inputs, has_sum ? 2 : 1, outputs, sizeof(norm_saved), &record);
    if (status != ATTN_OK || record == NULL) return status;
    norm_saved *saved = record->saved;
    *saved = (norm_saved){.r = kept.at, .statistics = statistics, .norm = norm, .has_sum = has_sum};
    if (attn__active(drop) != NULL) saved->drop = *drop;
    return ATTN_OK;
}

static attn_status residual_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__kernels *k;
    view dr;
    attn_status status = attn__kernels_for(ctx, record->output[0].at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dr, NULL);
    if (status == ATTN_OK) status = attn__tape_pass(ctx, tape, &record->input[0], &dr);
    return status == ATTN_OK ? d_pending(ctx, tape, k, &record->input[1], attn__active(record->saved), &dr) : status;
}

attn_status attn__residual(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *s, const attn__dropout *drop,
                           attn__value *r)
{
    const attn__value *inputs[] = {x, s};
    attn__value *outputs[] = {r};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = k->residual(ctx, &x->at, &s->at, attn__active(drop), &r->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, residual_back, 2, inputs, 1, outputs, sizeof(attn__dropout), &record);
    if (status == ATTN_OK && record != NULL && attn__active(drop) != NULL) *(attn__dropout *)record->saved = *drop;
    return status;
}

static attn_status norm_public(attn_context *ctx, attn_tape *tape, int32_t norm, const attn_tensor *x, const attn_tensor *weight,
                               const attn_tensor *bias, double epsilon, attn_tensor *y)
{
    attn__value vx, vg, vs, vy;
    const attn__value *gain = NULL, *shift = NULL;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_positive(ctx, "epsilon", epsilon);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "x", x, 0, &vx);
    if (status == ATTN_OK) status = attn__argument_vector(ctx, tape, "weight", weight, vx.at.dtype, vx.at.width, &vg, &gain);
    if (status == ATTN_OK) status = attn__argument_vector(ctx, tape, "bias", bias, vx.at.dtype, vx.at.width, &vs, &shift);
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx, gain, shift};
    status = attn__argument_output(ctx, tape, "y", y, vx.at.dtype, vx.at.rows, vx.at.width, 3, inputs, &vy);
    return status == ATTN_OK ? attn__residual_norm(ctx, tape, &vx, NULL, NULL, norm, epsilon, gain, shift, NULL, &vy) : status;
}

attn_status attn_layer_norm(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, const attn_tensor *bias,
                            double epsilon, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, norm_public(ctx, tape, ATTN_NORM_LAYER, x, weight, bias, epsilon, y));
}

attn_status attn_rms_norm(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, double epsilon,
                          attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, norm_public(ctx, tape, ATTN_NORM_RMS, x, weight, NULL, epsilon, y));
}

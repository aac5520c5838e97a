#include "arguments.h"

static attn_status activation_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__kept_activation *kept = record->saved;
    const attn__value *x = &record->input[0];
    const attn__kernels *k;
    view dy, dx, dbeta;
    int exclusive, add = 0;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, &exclusive);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, &record->input[1], &dbeta);
    if (status != ATTN_OK) return status;
    dx = dy;
    if (!exclusive) status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    if (status == ATTN_OK && dx.data == NULL) status = attn__tape_fresh(ctx, tape, &dy, &dx); /* beta alone is wanted */
    if (status == ATTN_OK) status = k->activation_back(ctx, &kept->act, &x->at, NULL, &dy, add, &dx, dbeta.data != NULL ? &dbeta : NULL);
    return status == ATTN_OK && exclusive ? attn__tape_pass(ctx, tape, x, &dx) : status;
}

attn_status attn__activate(attn_context *ctx, attn_tape *tape, const attn__activation *act, const attn__value *beta, const attn__value *x,
                           attn__value *y)
{
    const attn__value *inputs[] = {x, beta};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__kept_activation kept = {0};
    attn__record *record = NULL;
    attn__keep_activation(&kept, act, beta, NULL);
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = k->activation(ctx, &kept.act, &x->at, NULL, &y->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, activation_back, 2, inputs, 1, outputs, sizeof kept, &record);
    if (status == ATTN_OK && record != NULL) attn__keep_activation(record->saved, act, beta, NULL);
    return status;
}

static attn_status activation_public(attn_context *ctx, attn_tape *tape, int32_t activation, const attn_tensor *x, const attn_tensor *beta,
                                     attn_tensor *y)
{
    attn__value vx, vb, vy;
    const attn__value *b = NULL;
    const attn__activation act = {.kind = activation, .beta = 1};
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_activation(ctx, activation);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "x", x, 0, &vx);
    if (status == ATTN_OK && beta != NULL) {
        if (activation != ATTN_ACTIVATION_SWISH)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "beta: got a tensor, expected NULL: only Swish has one");
        status = attn__argument_input(ctx, tape, "beta", beta, vx.at.dtype, &vb);
        if (status == ATTN_OK && vb.at.rows * vb.at.width != 1)
            status = attn__fail(ctx, ATTN_ERROR_SHAPE, "beta: got %lld elements, expected 1", (long long)(vb.at.rows * vb.at.width));
        b = &vb;
    }
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx, b};
    status = attn__argument_output(ctx, tape, "y", y, vx.at.dtype, vx.at.rows, vx.at.width, 2, inputs, &vy);
    return status == ATTN_OK ? attn__activate(ctx, tape, &act, b, &vx, &vy) : status;
}

attn_status attn_activation(attn_context *ctx, attn_tape *tape, int32_t activation, const attn_tensor *x, const attn_tensor *beta,
                            attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, activation_public(ctx, tape, activation, x, beta, y));
}

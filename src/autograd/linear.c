#include "arguments.h"

typedef struct linear_saved {
    attn__kept_activation kept;
    view u; /* x W^T + b: [rows, out]; data NULL when the activation is the identity */
} linear_saved;

/* du from dy: in place when nobody else reads dy */
static attn_status d_sum(attn_context *ctx, attn_tape *tape, const attn__kernels *k, const attn__record *record, view *du)
{
    const linear_saved *saved = record->saved;
    const attn__dropout *drop = attn__active(&saved->kept.drop);
    view dy, dbeta;
    int exclusive;
    attn_status status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, &exclusive);
    *du = dy;
    if (status != ATTN_OK || (saved->u.data == NULL && drop == NULL)) return status;
    if (!exclusive) {
        attn__value temporary;
        status = attn__tape_temporary(ctx, NULL, dy.rows, dy.width, dy.dtype, &temporary);
        if (status != ATTN_OK) return status;
        *du = temporary.at;
    }
    if (saved->u.data == NULL) return k->dropout(ctx, &dy, drop, 0, du);
    status = attn__tape_added(ctx, tape, &record->input[3], &dbeta);
    if (status != ATTN_OK) return status;
    return k->activation_back(ctx, &saved->kept.act, &saved->u, drop, &dy, 0, du, dbeta.data != NULL ? &dbeta : NULL);
}

static attn_status linear_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__value *x = &record->input[0], *weight = &record->input[1], *bias = &record->input[2];
    const attn__kernels *k;
    view du, dw, db, dx;
    int add;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = d_sum(ctx, tape, k, record, &du);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, weight, &dw);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, bias, &db);
    if (status != ATTN_OK) return status;
    if (dw.data != NULL || db.data != NULL)
        status = k->linear_d_weight(ctx, &du, &x->at, dw.data != NULL ? &dw : NULL, db.data != NULL ? &db : NULL);
    if (status == ATTN_OK) status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    if (status != ATTN_OK || dx.data == NULL) return status;
    return k->linear_d_input(ctx, &du, &weight->at, add, &dx);
}

attn_status attn__linear(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, const attn__value *bias,
                         const attn__activation *act, const attn__value *beta, const attn__dropout *drop, attn__value *y)
{
    const attn__value *inputs[] = {x, weight, bias, beta};
    const attn__kernels *k;
    attn__kept_activation kept = {0};
    attn__value u = {.id = -1};
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK && !attn__identity(act) && attn__tape_keeps(tape, 4, inputs))
        status = attn__tape_temporary(ctx, tape, y->at.rows, y->at.width, y->at.dtype, &u);
    if (status != ATTN_OK) return status;
    attn__keep_activation(&kept, act, beta, drop);
    status = k->linear(ctx, &x->at, &weight->at, attn__at(bias), attn__identity(act) ? NULL : &kept.act, attn__active(drop), &y->at,
                       u.at.data != NULL ? &u.at : NULL);
    attn__record *record = NULL;
    attn__value *outputs[] = {y};
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, linear_back, 4, inputs, 1, outputs, sizeof(linear_saved), &record);
    if (status != ATTN_OK || record == NULL) return status;
    linear_saved *saved = record->saved;
    attn__keep_activation(&saved->kept, act, beta, drop);
    saved->u = u.at;
    return ATTN_OK;
}

static attn_status linear(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, const attn_tensor *bias,
                          attn_tensor *y)
{
    attn__value vx, vw, vb, vy;
    const attn__value *b = NULL;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "x", x, 0, &vx);
    if (status == ATTN_OK) status = attn__argument_matrix(ctx, tape, "weight", weight, vx.at.dtype, &vw);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "weight", &vw.at, -1, 1, vx.at.width);
    if (status == ATTN_OK) status = attn__argument_vector(ctx, tape, "bias", bias, vx.at.dtype, vw.at.rows, &vb, &b);
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx, &vw, b};
    status = attn__argument_output(ctx, tape, "y", y, vx.at.dtype, vx.at.rows, vw.at.rows, 3, inputs, &vy);
    return status == ATTN_OK ? attn__linear(ctx, tape, &vx, &vw, b, NULL, NULL, NULL, &vy) : status;
}

attn_status attn_linear(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, const attn_tensor *bias,
                        attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, linear(ctx, tape, x, weight, bias, y));
}

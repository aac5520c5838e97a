#include "arguments.h"

typedef struct gated_saved {
    attn__kept_activation kept;
    view u; /* x W^T + b: [rows, 2 out], gates first */
} gated_saved;

static attn_status gated_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const gated_saved *saved = record->saved;
    const attn__value *x = &record->input[0], *weight = &record->input[1], *bias = &record->input[2];
    const attn__kernels *k;
    attn__value du;
    view dy, dw, db, dbeta, dx;
    int add;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, weight, &dw);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, bias, &db);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, &record->input[3], &dbeta);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, NULL, saved->u.rows, saved->u.width, saved->u.dtype, &du);
    if (status != ATTN_OK) return status;
    status =
        k->gate_back(ctx, &saved->kept.act, &saved->u, attn__active(&saved->kept.drop), &dy, &du.at, dbeta.data != NULL ? &dbeta : NULL);
    if (status == ATTN_OK && (dw.data != NULL || db.data != NULL))
        status = k->linear_d_weight(ctx, &du.at, &x->at, dw.data != NULL ? &dw : NULL, db.data != NULL ? &db : NULL);
    if (status == ATTN_OK) status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    if (status != ATTN_OK || dx.data == NULL) return status;
    return k->linear_d_input(ctx, &du.at, &weight->at, add, &dx);
}

attn_status attn__linear_gated(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, const attn__value *bias,
                               const attn__activation *act, const attn__value *beta, const attn__dropout *drop, attn__value *y)
{
    const attn__value *inputs[] = {x, weight, bias, beta};
    const attn__kernels *k;
    attn__kept_activation kept = {0};
    attn__value u;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    int keeps = attn__tape_keeps(tape, 4, inputs);
    if (status == ATTN_OK) status = attn__tape_temporary(ctx, keeps ? tape : NULL, x->at.rows, weight->at.rows, x->at.dtype, &u);
    if (status != ATTN_OK) return status;
    attn__keep_activation(&kept, act, beta, drop);
    status = k->linear_gated(ctx, &x->at, &weight->at, attn__at(bias), &kept.act, attn__active(drop), &y->at, &u.at);
    attn__arena_rewind(ctx->scratch, mark);
    attn__record *record = NULL;
    attn__value *outputs[] = {y};
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, gated_back, 4, inputs, 1, outputs, sizeof(gated_saved), &record);
    if (status != ATTN_OK || record == NULL) return status;
    gated_saved *saved = record->saved;
    attn__keep_activation(&saved->kept, act, beta, drop);
    saved->u = u.at;
    return ATTN_OK;
}

static attn_status linear_gated(attn_context *ctx, attn_tape *tape, int32_t activation, const attn_tensor *x, const attn_tensor *weight,
                                const attn_tensor *bias, attn_tensor *y)
{
    attn__value vx, vw, vb, vy;
    const attn__value *b = NULL;
    const attn__activation act = {.kind = activation, .beta = 1};
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_activation(ctx, activation);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "x", x, 0, &vx);
    if (status == ATTN_OK) status = attn__argument_matrix(ctx, tape, "weight", weight, vx.at.dtype, &vw);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "weight", &vw.at, -1, 1, vx.at.width);
    if (status == ATTN_OK && vw.at.rows % 2 != 0)
        status =
            attn__fail(ctx, ATTN_ERROR_SHAPE, "weight: got %lld rows, expected an even number: gates, then ups", (long long)vw.at.rows);
    if (status == ATTN_OK) status = attn__argument_vector(ctx, tape, "bias", bias, vx.at.dtype, vw.at.rows, &vb, &b);
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx, &vw, b};
    status = attn__argument_output(ctx, tape, "y", y, vx.at.dtype, vx.at.rows, vw.at.rows / 2, 3, inputs, &vy);
    return status == ATTN_OK ? attn__linear_gated(ctx, tape, &vx, &vw, b, &act, NULL, NULL, &vy) : status;
}

attn_status attn_linear_gated(attn_context *ctx, attn_tape *tape, int32_t activation, const attn_tensor *x, const attn_tensor *weight,
                              const attn_tensor *bias, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, linear_gated(ctx, tape, activation, x, weight, bias, y));
}

#include "arguments.h"

static attn_status softmax_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const int32_t *log = record->saved;
    const attn__kernels *k;
    view dy, dx;
    int add;
    attn_status status = attn__kernels_for(ctx, record->output[0].at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status == ATTN_OK) status = attn__tape_wanted(ctx, tape, &record->input[0], &dx, &add);
    return status == ATTN_OK && dx.data != NULL ? k->softmax_back(ctx, &record->output[0].at, *log, &dy, add, &dx) : status;
}

attn_status attn__softmax(attn_context *ctx, attn_tape *tape, int log, const attn__value *x, attn__value *y)
{
    const attn__value *inputs[] = {x};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = k->softmax(ctx, &x->at, log, &y->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, softmax_back, 1, inputs, 1, outputs, sizeof(int32_t), &record);
    if (status == ATTN_OK && record != NULL) *(int32_t *)record->saved = log;
    return status;
}

static attn_status softmax_public(attn_context *ctx, attn_tape *tape, int log, const attn_tensor *x, attn_tensor *y)
{
    attn__value vx, vy;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "x", x, 0, &vx);
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx};
    status = attn__argument_output(ctx, tape, "y", y, vx.at.dtype, vx.at.rows, vx.at.width, 1, inputs, &vy);
    return status == ATTN_OK ? attn__softmax(ctx, tape, log, &vx, &vy) : status;
}

attn_status attn_softmax(attn_context *ctx, attn_tape *tape, const attn_tensor *x, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, softmax_public(ctx, tape, 0, x, y));
}

attn_status attn_log_softmax(attn_context *ctx, attn_tape *tape, const attn_tensor *x, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, softmax_public(ctx, tape, 1, x, y));
}

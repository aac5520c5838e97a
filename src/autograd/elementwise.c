#include "arguments.h"

static attn_status add_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    view dy;
    attn_status status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status == ATTN_OK) status = attn__tape_pass(ctx, tape, &record->input[0], &dy);
    return status == ATTN_OK ? attn__tape_pass(ctx, tape, &record->input[1], &dy) : status;
}

attn_status attn__add(attn_context *ctx, attn_tape *tape, const attn__value *a, const attn__value *b, attn__value *y)
{
    const attn__value *inputs[] = {a, b};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, y->at.dtype, &k);
    if (status == ATTN_OK) status = k->add(ctx, &a->at, &b->at, &y->at);
    return status == ATTN_OK ? attn__tape_record(ctx, tape, add_back, 2, inputs, 1, outputs, 0, &record) : status;
}

static attn_status multiply_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__kernels *k;
    view dy, dx;
    int add;
    attn_status status = attn__kernels_for(ctx, record->output[0].at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    for (int i = 0; status == ATTN_OK && i < 2; i++) {
        status = attn__tape_wanted(ctx, tape, &record->input[i], &dx, &add);
        if (status == ATTN_OK && dx.data != NULL) status = k->multiply(ctx, &dy, &record->input[1 - i].at, add, &dx);
    }
    return status;
}

attn_status attn__multiply_elements(attn_context *ctx, attn_tape *tape, const attn__value *a, const attn__value *b, attn__value *y)
{
    const attn__value *inputs[] = {a, b};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, y->at.dtype, &k);
    if (status == ATTN_OK) status = k->multiply(ctx, &a->at, &b->at, 0, &y->at);
    return status == ATTN_OK ? attn__tape_record(ctx, tape, multiply_back, 2, inputs, 1, outputs, 0, &record) : status;
}

typedef attn_status pair_operation(attn_context *ctx, attn_tape *tape, const attn__value *a, const attn__value *b, attn__value *y);

static attn_status pair_public(attn_context *ctx, attn_tape *tape, pair_operation *operation, const attn_tensor *a, const attn_tensor *b,
                               attn_tensor *y)
{
    attn__value va, vb, vy;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "a", a, 0, &va);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "b", b, va.at.dtype, &vb);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "b", &vb.at, va.at.rows, 1, va.at.width);
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&va, &vb};
    status = attn__argument_output(ctx, tape, "y", y, va.at.dtype, va.at.rows, va.at.width, 2, inputs, &vy);
    return status == ATTN_OK ? operation(ctx, tape, &va, &vb, &vy) : status;
}

attn_status attn_add(attn_context *ctx, attn_tape *tape, const attn_tensor *a, const attn_tensor *b, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, pair_public(ctx, tape, attn__add, a, b, y));
}

attn_status attn_multiply(attn_context *ctx, attn_tape *tape, const attn_tensor *a, const attn_tensor *b, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, pair_public(ctx, tape, attn__multiply_elements, a, b, y));
}

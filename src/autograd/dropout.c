#include "arguments.h"

static attn_status drop_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__dropout *drop = attn__active(record->saved);
    const attn__value *x = &record->input[0];
    const attn__kernels *k;
    view dy, dx;
    int exclusive, add = 0;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, &exclusive);
    if (status != ATTN_OK) return status;
    if (drop == NULL) return attn__tape_pass(ctx, tape, x, &dy);
    dx = dy;
    if (!exclusive) status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    if (status == ATTN_OK && dx.data != NULL) status = k->dropout(ctx, &dy, drop, add, &dx); /* NULL: of a set without a handle */
    return status == ATTN_OK && exclusive ? attn__tape_pass(ctx, tape, x, &dx) : status;
}

attn_status attn__drop(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__dropout *drop, attn__value *y)
{
    const attn__value *inputs[] = {x};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status != ATTN_OK) return status;
    if (attn__active(drop) != NULL)
        status = k->dropout(ctx, &x->at, drop, 0, &y->at);
    else
        status = k->copy(ctx, &x->at, 0, &y->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, drop_back, 1, inputs, 1, outputs, sizeof(attn__dropout), &record);
    if (status == ATTN_OK && record != NULL && attn__active(drop) != NULL) *(attn__dropout *)record->saved = *drop;
    return status;
}

static attn_status dropout(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout, double rate, uint64_t site,
                           attn_tensor *y)
{
    attn__value vx, vy;
    attn__segments segments;
    attn__places places = {NULL, NULL};
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_rate(ctx, "rate", rate);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "x", x, 0, &vx);
    if (status == ATTN_OK) status = attn__layout_tiling(ctx, "layout", layout, vx.at.rows, &segments);
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx};
    status = attn__argument_output(ctx, tape, "y", y, vx.at.dtype, vx.at.rows, vx.at.width, 1, inputs, &vy);
    if (status == ATTN_OK && rate > 0 && attn__tape_training(tape))
        status = attn__places_expand(ctx, attn__tape_records(ctx, tape), segments, vx.at.rows, &places);
    if (status != ATTN_OK) return status;
    const attn__dropout drop = attn__tape_dropout(tape, rate, site, places);
    return attn__drop(ctx, tape, &vx, &drop, &vy);
}

attn_status attn_dropout(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout, double rate, uint64_t site,
                         attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, dropout(ctx, tape, x, layout, rate, site, y));
}

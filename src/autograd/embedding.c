#include <attn/embedding.h>
#include <string.h>
#include "arguments.h"

typedef struct embed_saved {
    view tokens; /* a copy: the caller may reuse hers */
    attn__places places;
    attn__dropout drop;
    double scale;
} embed_saved;

static attn_status embed_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const embed_saved *saved = record->saved;
    const attn__kernels *k;
    view dy, dtable, dpositions, dx;
    int add;
    attn_status status = attn__kernels_for(ctx, record->output[0].at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, &record->input[0], &dtable);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, &record->input[2], &dpositions);
    if (status != ATTN_OK) return status;
    const attn__dropout *drop = attn__active(&saved->drop);
    const attn__value *x = &record->input[1];
    if (drop == NULL && dpositions.data == NULL && dtable.data == NULL) return attn__tape_pass(ctx, tape, x, &dy);
    status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    if (status != ATTN_OK || (dtable.data == NULL && dpositions.data == NULL && dx.data == NULL)) return status;
    return k->embed_back(ctx, saved->tokens.data != NULL ? &saved->tokens : NULL, saved->scale, saved->places, drop, &dy,
                         dtable.data != NULL ? &dtable : NULL, dpositions.data != NULL ? &dpositions : NULL, add,
                         dx.data != NULL ? &dx : NULL);
}

static attn_status copy_tokens(attn_context *ctx, attn_tape *tape, const view *tokens, view *out)
{
    int64_t bytes = attn__dtype_bytes(tokens->dtype);
    *out = *tokens;
    out->row_stride = 1;
    attn__arena *arena = attn__tape_records(ctx, tape);
    out->data = attn__take(ctx, arena, tokens->rows * bytes, "tokens");
    if (out->data == NULL) return attn__arena_status(arena);
    for (int64_t i = 0; !ctx->dry && i < tokens->rows; i++)
        memcpy((char *)out->data + i * bytes, (const char *)tokens->data + i * tokens->row_stride * bytes, (size_t)bytes);
    return ATTN_OK;
}

attn_status attn__embed(attn_context *ctx, attn_tape *tape, const view *tokens, const attn__value *table, const attn__value *x,
                        double scale, int32_t kind, const attn__value *positions, attn__places places, const attn__dropout *drop,
                        attn__value *y)
{
    const attn__value *inputs[] = {table, x, positions};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    view kept = {.data = NULL};
    attn_status status = attn__kernels_for(ctx, y->at.dtype, &k);
    if (status == ATTN_OK && tokens != NULL && attn__tape_keeps(tape, 3, inputs)) status = copy_tokens(ctx, tape, tokens, &kept);
    if (status != ATTN_OK) return status;
    status = k->embed(ctx, tokens, attn__at(table), attn__at(x), scale, kind, attn__at(positions), places, attn__active(drop), &y->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, embed_back, 3, inputs, 1, outputs, sizeof(embed_saved), &record);
    if (status != ATTN_OK || record == NULL) return status;
    embed_saved *saved = record->saved;
    *saved = (embed_saved){.tokens = kept, .places = places, .scale = scale};
    if (attn__active(drop) != NULL) saved->drop = *drop;
    return ATTN_OK;
}

static attn_status embedding(attn_context *ctx, attn_tape *tape, const attn_tensor *tokens, const attn_tensor *table, double scale,
                             attn_tensor *y)
{
    view ids;
    attn__value vt, vy;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_integers(ctx, "tokens", tokens, &ids);
    if (status == ATTN_OK) status = attn__argument_matrix(ctx, tape, "table", table, 0, &vt);
    if (status == ATTN_OK && !(scale - scale == 0))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "scale: got %g, expected a finite number", scale);
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vt};
    status = attn__argument_output(ctx, tape, "y", y, vt.at.dtype, ids.rows, vt.at.width, 1, inputs, &vy);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "y", &vy.at, "tokens", &ids);
    if (status != ATTN_OK) return status;
    return attn__embed(ctx, tape, &ids, &vt, NULL, scale, ATTN_POSITIONS_NONE, NULL, (attn__places){NULL, NULL}, NULL, &vy);
}

attn_status attn_embedding(attn_context *ctx, attn_tape *tape, const attn_tensor *tokens, const attn_tensor *table, double scale,
                           attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, embedding(ctx, tape, tokens, table, scale, y));
}

static attn_status add_positions(attn_context *ctx, attn_tape *tape, int32_t kind, const attn_tensor *x, const attn_layout *layout,
                                 const attn_tensor *table, attn_tensor *y)
{
    attn__value vx, vt, vy;
    attn__segments segments;
    attn__places places;
    const attn__value *positions = NULL;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "x", x, 0, &vx);
    if (status == ATTN_OK) status = attn__layout_tiling(ctx, "layout", layout, vx.at.rows, &segments);
    if (status == ATTN_OK && kind == ATTN_POSITIONS_LEARNED) {
        positions = &vt;
        status = attn__argument_matrix(ctx, tape, "table", table, vx.at.dtype, &vt);
        if (status == ATTN_OK) status = attn__expect_shape(ctx, "table", &vt.at, -1, 1, vx.at.width);
    }
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx, positions};
    status = attn__argument_output(ctx, tape, "y", y, vx.at.dtype, vx.at.rows, vx.at.width, 2, inputs, &vy);
    if (status == ATTN_OK) status = attn__places_expand(ctx, attn__tape_records(ctx, tape), segments, vx.at.rows, &places);
    return status == ATTN_OK ? attn__embed(ctx, tape, NULL, NULL, &vx, 1, kind, positions, places, NULL, &vy) : status;
}

attn_status attn_positions_sinusoidal(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, add_positions(ctx, tape, ATTN_POSITIONS_SINUSOIDAL, x, layout, NULL, y));
}

attn_status attn_positions_learned(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout,
                                   const attn_tensor *table, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, add_positions(ctx, tape, ATTN_POSITIONS_LEARNED, x, layout, table, y));
}

#include <stdio.h>
#include "arguments.h"

typedef struct concatenate_saved {
    int64_t count;
    attn__value parts[];
} concatenate_saved;

static attn_status concatenate_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const concatenate_saved *saved = record->saved;
    view dy, dx;
    int add;
    attn_status status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    for (int64_t i = 0, column = 0; status == ATTN_OK && i < saved->count; column += saved->parts[i++].at.width) {
        status = attn__tape_wanted(ctx, tape, &saved->parts[i], &dx, &add);
        view columns = attn__view_columns(dy, column, saved->parts[i].at.width);
        if (status == ATTN_OK && dx.data != NULL) status = attn__copy_view(ctx, &columns, add, &dx);
    }
    return status;
}

attn_status attn__concatenate(attn_context *ctx, attn_tape *tape, int32_t count, const attn__value *const *parts, attn__value *y)
{
    /* A record names a few inputs; which is enough to know that it is wanted. All parts are in what it saves. */
    const attn__value *wanted[ATTN__RECORD_INPUTS];
    attn__value *outputs[] = {y};
    attn__record *record = NULL;
    int32_t named = 0;
    attn_status status = ATTN_OK;
    int64_t column = 0;
    for (int32_t i = 0; status == ATTN_OK && i < count; column += parts[i++]->at.width) {
        view to = attn__view_columns(y->at, column, parts[i]->at.width);
        status = attn__copy_view(ctx, &parts[i]->at, 0, &to);
        if (parts[i]->id >= 0 && named < ATTN__RECORD_INPUTS) wanted[named++] = parts[i];
    }
    if (status != ATTN_OK) return status;
    int64_t bytes = (int64_t)sizeof(concatenate_saved) + count * (int64_t)sizeof(attn__value);
    status = attn__tape_record(ctx, tape, concatenate_back, named, wanted, 1, outputs, bytes, &record);
    if (status != ATTN_OK || record == NULL) return status;
    concatenate_saved *saved = record->saved;
    saved->count = count;
    for (int32_t i = 0; i < count; i++) saved->parts[i] = *parts[i];
    return ATTN_OK;
}

static attn_status concatenate(attn_context *ctx, attn_tape *tape, int64_t count, const attn_tensor *const *parts, attn_tensor *y)
{
    int64_t width = 0;
    char name[48];
    attn_status status = attn__tape_check(ctx, tape);
    if (status != ATTN_OK) return status;
    if (count < 1 || count > INT32_MAX)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %lld, expected 1 to %d", (long long)count, INT32_MAX);
    if (parts == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "parts: got NULL, expected %lld tensors", (long long)count);
    attn__value *values = attn__scratch(ctx, count * (int64_t)(sizeof(attn__value) + sizeof(attn__value *))), vy;
    if (values == NULL) return attn__arena_status(ctx->scratch);
    const attn__value **list = (const attn__value **)(values + count);
    for (int64_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "parts[%lld]", (long long)i);
        status = attn__argument_input(ctx, tape, name, parts[i], i > 0 ? values[0].at.dtype : 0, &values[i]);
        if (status == ATTN_OK) status = attn__expect_shape(ctx, name, &values[i].at, values[0].at.rows, 1, -1);
        if (status == ATTN_OK && attn__sum(width, values[i].at.width, &width))
            status = attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "%s: the widths add up to too much", name);
        if (status != ATTN_OK) return status;
        list[i] = &values[i];
    }
    status = attn__argument_output(ctx, tape, "y", y, values[0].at.dtype, values[0].at.rows, width, (int32_t)count, list, &vy);
    return status == ATTN_OK ? attn__concatenate(ctx, tape, (int32_t)count, list, &vy) : status;
}

attn_status attn_concatenate(attn_context *ctx, attn_tape *tape, int64_t count, const attn_tensor *const *parts, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, concatenate(ctx, tape, count, parts, y));
}

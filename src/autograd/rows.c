#include "arguments.h"

/* Rows of values by their numbers: the steps of a recurrent decoder take those of the sequences that go on, and give them back. Both are the
   kernels of an embedding, whose table is the value: it picks rows, and its backward adds to them. */
static const attn__places nowhere = {NULL, NULL};

static view numbers(const int64_t *row, int64_t count)
{
    return (view){(void *)(uintptr_t)row, count, 1, 1, 1, 0, ATTN_INT64, 0};
}

attn_status attn__gather_rows(attn_context *ctx, attn_tape *tape, const attn__value *x, const int64_t *row, attn__value *y)
{
    const view at = numbers(row, y->at.rows);
    return attn__embed(ctx, tape, &at, x, NULL, 1, ATTN_POSITIONS_NONE, NULL, nowhere, NULL, y);
}

attn_status attn__put_rows(attn_context *ctx, const view *from, const int64_t *row, const view *to)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < from->rows; i++) {
        const view one = attn__view_rows(*from, i, 1);
        view place = attn__view_rows(*to, row[i], 1);
        status = attn__copy_view(ctx, &one, 0, &place);
    }
    return status;
}

typedef struct join_saved {
    int64_t count;
    attn__row_part parts[];
} join_saved;

static attn_status pick(attn_context *ctx, const attn__kernels *k, const view *from, const int64_t *row, view *to)
{
    const view at = numbers(row, to->rows);
    return k->embed(ctx, &at, from, NULL, 1, ATTN_POSITIONS_NONE, NULL, nowhere, NULL, to);
}

static attn_status part_back(attn_context *ctx, attn_tape *tape, const attn__kernels *k, const view *dy, const attn__row_part *part)
{
    attn__value picked;
    view dx;
    int add;
    attn_status status = attn__tape_wanted(ctx, tape, &part->value, &dx, &add);
    if (status != ATTN_OK || dx.data == NULL) return status;
    if (!add) return pick(ctx, k, dy, part->row, &dx);
    status = attn__tape_temporary(ctx, NULL, dx.rows, dx.width, dx.dtype, &picked);
    if (status == ATTN_OK) status = pick(ctx, k, dy, part->row, &picked.at);
    return status == ATTN_OK ? k->copy(ctx, &picked.at, 1, &dx) : status;
}

static attn_status join_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const join_saved *saved = record->saved;
    const attn__kernels *k;
    view dy;
    attn_status status = attn__kernels_for(ctx, record->output[0].at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    for (int64_t i = 0; status == ATTN_OK && i < saved->count; i++) status = part_back(ctx, tape, k, &dy, &saved->parts[i]);
    return status;
}

attn_status attn__join_rows(attn_context *ctx, attn_tape *tape, int64_t count, const attn__row_part *parts, attn__value *y)
{
    /* A record names a few inputs, which is enough to know that it is wanted. All parts are in what it saves. */
    const attn__value *wanted[ATTN__RECORD_INPUTS];
    attn__value *outputs[] = {y};
    attn__record *record = NULL;
    const attn__kernels *k;
    int32_t named = 0;
    attn_status status = attn__kernels_for(ctx, y->at.dtype, &k);
    if (status == ATTN_OK) status = attn__fill_view(ctx, 0, &y->at);
    for (int64_t i = 0; status == ATTN_OK && i < count; i++) {
        const view at = numbers(parts[i].row, parts[i].value.at.rows);
        status = k->embed_back(ctx, &at, 1, nowhere, NULL, &parts[i].value.at, &y->at, NULL, 0, NULL);
        if (parts[i].value.id >= 0 && named < ATTN__RECORD_INPUTS) wanted[named++] = &parts[i].value;
    }
    if (status != ATTN_OK) return status;
    const int64_t bytes = (int64_t)sizeof(join_saved) + count * (int64_t)sizeof *parts; /* the parts lie in memory already */
    status = attn__tape_record(ctx, tape, join_back, named, wanted, 1, outputs, bytes, &record);
    if (status != ATTN_OK || record == NULL) return status;
    join_saved *saved = record->saved;
    saved->count = count;
    for (int64_t i = 0; i < count; i++) saved->parts[i] = parts[i];
    return ATTN_OK;
}

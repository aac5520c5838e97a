#include <string.h>
#include "tape_state.h"

/* A stretch of the forward whose records are not kept: its backward runs the stretch again, this time recording, and at once backwards.
   Dropout is a pure function of the tape's seed and step, so both runs give the same bits. */
typedef struct checkpoint_saved {
    attn__stretch *run;
    void *closure;
} checkpoint_saved;

/* Drops the slots of a stretch. Its parts of values that stay have written their columns, so those values have their gradient. */
static attn_status drop_slots(attn_context *ctx, attn_tape *tape, int32_t keep)
{
    attn_status status = ATTN_OK;
    for (int32_t id = tape->slots.count - 1; id >= keep; id--) {
        const attn__slot *slot = attn__slot_at(tape, id);
        attn__slot_release(tape, id);
        if (slot->kind != ATTN__SLOT_PART || slot->base >= keep) continue;
        attn__slot *base = attn__slot_at(tape, slot->base);
        if (status == ATTN_OK && base->block >= 0) status = attn__slot_complete(ctx, tape, slot->base);
        while (base->parts >= keep) base->parts = attn__slot_at(tape, base->parts)->next;
    }
    tape->slots.count = keep;
    return status;
}

static attn_status checkpoint_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const checkpoint_saved *saved = record->saved;
    attn__mark values = attn__arena_mark(tape->values), records = attn__arena_mark(tape->records);
    int32_t slots = tape->slots.count, holds = tape->holds.count;
    attn__value outputs[ATTN__RECORD_OUTPUTS];
    attn__record *outer = tape->last;
    attn_status status = ATTN_OK;
    tape->last = NULL;
    tape->rerunning++;
    for (int32_t i = 0; status == ATTN_OK && i < record->outputs_count; i++) {
        const view *like = &record->output[i].at;
        status = attn__tape_temporary(ctx, tape, like->rows, like->heads * like->width, like->dtype, &outputs[i]);
        outputs[i].at = attn__view_shaped(outputs[i].at.data, like);
    }
    if (status == ATTN_OK) status = saved->run(ctx, tape, saved->closure, record->input, outputs);
    for (int32_t i = 0; status == ATTN_OK && i < record->outputs_count; i++) {
        if (outputs[i].id < 0 || !attn__slot_arrived(tape, record->output[i].id)) continue;
        status = attn__slot_complete(ctx, tape, record->output[i].id);
        /* moved, not shared: the stretch may overwrite it */
        attn__slot *from = attn__slot_at(tape, record->output[i].id), *to = attn__slot_at(tape, outputs[i].id);
        to->block = from->block;
        to->complete = 1;
        from->block = -1;
        from->complete = 0;
    }
    if (status == ATTN_OK) status = attn__tape_unwind(ctx, tape, tape->last);
    attn_status dropped = drop_slots(ctx, tape, slots);
    if (status == ATTN_OK) status = dropped;
    attn__tape_release_holds(tape, holds);
    tape->last = outer;
    tape->rerunning--;
    attn__arena_rewind(tape->values, values);
    attn__arena_rewind(tape->records, records);
    return status;
}

attn_status attn__tape_checkpoint(attn_context *ctx, attn_tape *tape, attn__stretch *run, const void *closure, int64_t closure_bytes,
                                  int32_t inputs_count, const attn__value *inputs, int32_t outputs_count, attn__value *outputs)
{
    if (tape == NULL || tape->paused > 0) return run(ctx, tape, closure, inputs, outputs);
    attn__mark values = attn__arena_mark(tape->values), records = attn__arena_mark(tape->records);
    int32_t slots = tape->slots.count, holds = tape->holds.count;
    tape->paused = 1;
    tape->paused_met = 0;
    attn_status status = run(ctx, tape, closure, inputs, outputs);
    int force = tape->paused_met > 0;
    tape->paused = 0;
    tape->slots.count = slots;
    attn__tape_release_holds(tape, holds);
    attn__arena_rewind(tape->values, values);
    attn__arena_rewind(tape->records, records);
    if (status != ATTN_OK) return status;
    const attn__value *from[ATTN__RECORD_INPUTS];
    attn__value *to[ATTN__RECORD_OUTPUTS];
    for (int32_t i = 0; i < inputs_count; i++) from[i] = &inputs[i];
    for (int32_t i = 0; i < outputs_count; i++) to[i] = &outputs[i];
    void *copy = attn__arena_take(tape->records, closure_bytes);
    if (copy == NULL) return attn__fail_memory(ctx, attn__arena_status(tape->records), "tape");
    memcpy(copy, closure, (size_t)closure_bytes);
    attn__record *record;
    status = attn__tape_append(ctx, tape, force, checkpoint_back, inputs_count, from, outputs_count, to, sizeof(checkpoint_saved), &record);
    if (status != ATTN_OK || record == NULL) return status;
    *(checkpoint_saved *)record->saved = (checkpoint_saved){.run = run, .closure = copy};
    return ATTN_OK;
}

#include <string.h>
#include "../core/dtype.h"
#include "../core/options.h"
#include "tape_state.h"

static const attn_tape_options defaults = {.struct_size = sizeof(attn_tape_options)};
static const attn__field fields[] = {ATTN__INT32(attn_tape_options, training, 0, 1), ATTN__INT32(attn_tape_options, reserved, 0, 0),
                                     ATTN__INT64(attn_tape_options, step, 0, 0, HUGE_VAL)};

attn_status attn_tape_options_init(attn_tape_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

/* room for so many entries; what the list holds is kept */
static attn_status list_resize(attn_context *ctx, attn_tape *tape, attn__list *list, int32_t capacity, int64_t entry_bytes)
{
    void *at = NULL;
    attn_status status = attn__allocate(tape->memory, capacity * entry_bytes, &at);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "tape");
    if (list->count > 0) memcpy(at, list->at, (size_t)(list->count * entry_bytes));
    attn__deallocate(tape->memory, list->at, list->capacity * entry_bytes);
    list->at = at;
    list->capacity = capacity;
    list->entry_bytes = entry_bytes;
    return ATTN_OK;
}

attn_status attn__list_add(attn_context *ctx, attn_tape *tape, attn__list *list, int64_t entry_bytes, void **entry)
{
    if (list->count == list->capacity) {
        if (list->capacity > INT32_MAX / 2) return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "tape: more than %d entries", list->capacity);
        attn_status status = list_resize(ctx, tape, list, list->capacity == 0 ? 64 : 2 * list->capacity, entry_bytes);
        if (status != ATTN_OK) return status;
    }
    *entry = (char *)list->at + list->count++ * entry_bytes;
    memset(*entry, 0, (size_t)entry_bytes);
    return ATTN_OK;
}

static void list_free(attn_tape *tape, attn__list *list)
{
    attn__deallocate(tape->memory, list->at, list->capacity * list->entry_bytes);
}

/* in the order of attn__tape_need's entries */
static attn__list *list_at(attn_tape *tape, int index)
{
    attn__list *const lists[ATTN__TAPE_LISTS] = {&tape->slots, &tape->blocks, &tape->classes, &tape->spans,
                                                 &tape->sets,  &tape->holds,  &tape->watches};
    return lists[index];
}

static void tape_free(attn_tape *tape)
{
    attn__tape_forget(tape);
    for (int i = 0; i < ATTN__TAPE_LISTS; i++) list_free(tape, list_at(tape, i));
    attn__arena_free(tape->records);
    attn__arena_free(tape->values);
    attn__arena_free(tape->gradients);
    attn__memory *memory = tape->memory;
    tape->magic = 0;
    attn__deallocate(memory, tape, sizeof *tape);
    attn__memory_release(memory);
}

static attn_status tape_create(attn_context *ctx, attn_tape **out)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the tape");
    void *memory = NULL;
    attn_status status = attn__allocate_zero(ctx->memory, sizeof(attn_tape), &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "tape");
    attn_tape *tape = memory;
    tape->magic = ATTN__MAGIC_TAPE;
    tape->memory = attn__memory_retain(ctx->memory);
    status = attn__arena_create(ctx->memory, 0, &tape->records);
    if (status == ATTN_OK) status = attn__arena_create(ctx->memory, ctx->dry ? 1 : 0, &tape->values);
    if (status == ATTN_OK) status = attn__arena_create(ctx->memory, ctx->dry ? 5 : 0, &tape->gradients);
    if (status != ATTN_OK) {
        tape_free(tape);
        return attn__fail_memory(ctx, status, "tape");
    }
    *out = tape;
    return ATTN_OK;
}

attn_status attn_tape_create(attn_context *ctx, attn_tape **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, tape_create(ctx, out));
}

void attn_tape_free(attn_tape *tape)
{
    if (attn__is(tape, ATTN__MAGIC_TAPE)) tape_free(tape);
}

void attn__tape_release_holds(attn_tape *tape, int32_t from)
{
    const attn__hold *holds = tape->holds.at;
    for (int32_t i = from; i < tape->holds.count; i++) {
        if (holds[i].kind == ATTN__HOLD_STORAGE) attn__storage_release(holds[i].object);
        if (holds[i].kind == ATTN__HOLD_MASK) attn_mask_free(holds[i].object);
    }
    tape->holds.count = from;
}

void attn__tape_forget(attn_tape *tape)
{
    attn__tape_release_holds(tape, 0);
    for (int32_t i = 0; i < tape->sets.count; i++) attn__parameters_release(attn__set_at(tape, i)->set);
    for (int i = 0; i < ATTN__TAPE_LISTS; i++) list_at(tape, i)->count = 0; /* the holds' is 0 already */
    tape->last = NULL;
    tape->current = NULL;
    tape->longest = 0;
    tape->paused = tape->paused_met = tape->rerunning = tape->fresh_count = 0;
}

static void reset_arenas(attn_tape *tape)
{
    attn__arena_reset(tape->records);
    attn__arena_reset(tape->values);
    attn__arena_reset(tape->gradients);
}

static attn_status tape_begin(attn_context *ctx, attn_tape *tape, const attn_tape_options *options)
{
    attn_status status = attn__expect(ctx, "tape", tape, ATTN__MAGIC_TAPE, "attn_tape");
    if (status != ATTN_OK) return status;
    attn_tape_options o;
    status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, sizeof defaults, &o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", &o, fields);
    if (status != ATTN_OK) return status;
    attn__tape_forget(tape);
    reset_arenas(tape);
    tape->training = o.training;
    tape->seed = o.seed;
    tape->step = o.step;
    tape->state = ATTN__TAPE_RECORDING;
    return ATTN_OK;
}

attn_status attn_tape_begin(attn_context *ctx, attn_tape *tape, const attn_tape_options *options)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, tape_begin(ctx, tape, options));
}

attn_status attn__tape_check(attn_context *ctx, const attn_tape *tape)
{
    if (tape == NULL) return ATTN_OK;
    attn_status status = attn__expect(ctx, "tape", tape, ATTN__MAGIC_TAPE, "attn_tape");
    if (status != ATTN_OK) return status;
    if (tape->state == ATTN__TAPE_NEW)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "tape: got one that was not begun, expected attn_tape_begin first");
    if (tape->state == ATTN__TAPE_SPENT)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "tape: got one that attn_tape_backward has consumed, expected attn_tape_begin first");
    return ATTN_OK;
}

int attn__tape_training(const attn_tape *tape)
{
    return tape != NULL && tape->training;
}

attn__dropout attn__tape_dropout(const attn_tape *tape, double rate, uint64_t site, attn__places places)
{
    attn__dropout drop = {.site = site, .places = places};
    if (!attn__tape_training(tape)) return drop;
    drop.rate = rate;
    drop.seed = tape->seed;
    drop.step = tape->step;
    return drop;
}

static attn_status hold(attn_context *ctx, attn_tape *tape, int32_t kind, void *object)
{
    void *memory = NULL;
    attn_status status = attn__list_add(ctx, tape, &tape->holds, sizeof(attn__hold), &memory);
    if (status != ATTN_OK) return status;
    *(attn__hold *)memory = (attn__hold){.object = object, .kind = kind};
    return ATTN_OK;
}

attn_status attn__tape_hold_storage(attn_context *ctx, attn_tape *tape, attn__storage *storage)
{
    if (storage == NULL) return ATTN_OK;
    attn_status status = hold(ctx, tape, ATTN__HOLD_STORAGE, storage);
    if (status == ATTN_OK) attn__storage_retain(storage);
    return status;
}

attn_status attn__tape_hold_mask(attn_context *ctx, attn_tape *tape, const attn_mask *mask)
{
    if (mask == NULL) return ATTN_OK;
    /* counting is all that happens to the mask */
    attn_mask *counted = (attn_mask *)(uintptr_t)mask;
    attn_status status = hold(ctx, tape, ATTN__HOLD_MASK, counted);
    if (status == ATTN_OK) attn__mask_retain(counted);
    return status;
}

int attn__tape_keeps(const attn_tape *tape, int32_t inputs_count, const attn__value *const *inputs)
{
    if (tape == NULL || tape->paused > 0) return 0;
    for (int32_t i = 0; i < inputs_count; i++)
        if (inputs[i] != NULL && inputs[i]->id >= 0) return 1;
    return 0;
}

/* Memory of callers that the record will read must not be written over before backward. */
static attn_status keep_outside(attn_context *ctx, attn_tape *tape, const attn__value *value)
{
    int32_t id;
    int clash, touch;
    if (!value->outside || tape->rerunning > 0) return ATTN_OK;
    if (attn__span_find(tape, &value->at, &id, &clash, &touch) && id == value->id) return ATTN_OK;
    return attn__span_insert(ctx, tape, &value->at, value->id);
}

attn_status attn__tape_append(attn_context *ctx, attn_tape *tape, int force, attn__backward *backward, int32_t inputs_count,
                              const attn__value *const *inputs, int32_t outputs_count, attn__value *const *outputs, int64_t saved_bytes,
                              attn__record **out)
{
    *out = NULL;
    if (tape == NULL || tape->paused > 0 || (!force && !attn__tape_keeps(tape, inputs_count, inputs))) {
        for (int32_t i = 0; i < outputs_count; i++) outputs[i]->id = -1;
        return ATTN_OK;
    }
    attn__record *record = attn__arena_take(tape->records, sizeof *record);
    void *saved = record == NULL ? NULL : attn__arena_take(tape->records, saved_bytes);
    if (saved == NULL) return attn__fail_memory(ctx, attn__arena_status(tape->records), "tape");
    memset(record, 0, sizeof *record);
    memset(saved, 0, (size_t)saved_bytes);
    record->backward = backward;
    record->saved = saved;
    record->inputs_count = inputs_count;
    record->outputs_count = outputs_count;
    attn_status status = ATTN_OK;
    for (int32_t i = 0; status == ATTN_OK && i < inputs_count; i++) {
        record->input[i] = inputs[i] != NULL ? *inputs[i] : (attn__value){.id = -1};
        if (inputs[i] != NULL) status = keep_outside(ctx, tape, inputs[i]);
    }
    for (int32_t i = 0; status == ATTN_OK && i < outputs_count; i++) {
        status = attn__slot_add(ctx, tape, ATTN__SLOT_VALUE, &outputs[i]->at, &outputs[i]->id);
        if (status == ATTN_OK) status = keep_outside(ctx, tape, outputs[i]);
        record->output[i] = *outputs[i];
    }
    if (status != ATTN_OK) { /* the memory of outputs that came before the failure is not the tape's */
        for (int32_t i = 0; i < outputs_count; i++) {
            attn__span_remove(tape, outputs[i]->id);
            outputs[i]->id = -1;
        }
        return status;
    }
    record->previous = tape->last;
    tape->last = record;
    *out = record;
    return ATTN_OK;
}

attn_status attn__tape_record(attn_context *ctx, attn_tape *tape, attn__backward *backward, int32_t inputs_count,
                              const attn__value *const *inputs, int32_t outputs_count, attn__value *const *outputs, int64_t saved_bytes,
                              attn__record **out)
{
    return attn__tape_append(ctx, tape, 0, backward, inputs_count, inputs, outputs_count, outputs, saved_bytes, out);
}

int64_t attn__tape_peak(const attn_tape *tape)
{
    return attn__arena_peak(tape->values) + attn__arena_peak(tape->gradients);
}

static const int64_t entry_bytes[ATTN__TAPE_LISTS] = {sizeof(attn__slot), sizeof(attn__block),    sizeof(attn__size_class),
                                                      sizeof(attn__span), sizeof(attn__tape_set), sizeof(attn__hold),
                                                      sizeof(attn__watch)};

attn__tape_need attn__tape_needed(const attn_tape *tape)
{
    const attn__list *const lists[ATTN__TAPE_LISTS] = {&tape->slots, &tape->blocks, &tape->classes, &tape->spans,
                                                       &tape->sets,  &tape->holds,  &tape->watches};
    attn__tape_need need = {.values = attn__arena_peak(tape->values),
                            .records = attn__arena_peak(tape->records),
                            .gradients = attn__arena_peak(tape->gradients)};
    for (int i = 0; i < ATTN__TAPE_LISTS; i++) {
        need.entries[i] = lists[i]->capacity;
        need.lists += lists[i]->capacity * entry_bytes[i];
    }
    return need;
}

attn_status attn__tape_reserve(attn_context *ctx, attn_tape *tape, const attn__tape_need *need)
{
    attn__tape_forget(tape);
    reset_arenas(tape);
    tape->state = ATTN__TAPE_NEW;
    attn_status status = attn__arena_reserve(tape->values, need->values);
    if (status == ATTN_OK) status = attn__arena_reserve(tape->records, need->records);
    if (status == ATTN_OK) status = attn__arena_reserve(tape->gradients, need->gradients);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "tape");
    for (int i = 0; status == ATTN_OK && i < ATTN__TAPE_LISTS; i++)
        if (list_at(tape, i)->capacity < need->entries[i])
            status = list_resize(ctx, tape, list_at(tape, i), need->entries[i], entry_bytes[i]);
    return status;
}

void attn__tape_used(const attn_tape *tape, int64_t *value_bytes, int64_t *record_bytes, int64_t *gradient_bytes)
{
    *value_bytes = attn__arena_used(tape->values);
    *record_bytes = attn__arena_used(tape->records);
    *gradient_bytes = attn__arena_used(tape->gradients);
}

void attn__tape_most(const attn_tape *tape, int64_t *value_bytes, int64_t *record_bytes, int64_t *gradient_bytes)
{
    *value_bytes = attn__arena_peak(tape->values);
    *record_bytes = attn__arena_peak(tape->records);
    *gradient_bytes = attn__arena_peak(tape->gradients);
}

#include "../core/dtype.h"
#include "tape_state.h"

/* Values and how they are found again: callers' tensors by the address of their elements, everything else by id. */

attn_status attn__slot_add(attn_context *ctx, attn_tape *tape, int32_t kind, const view *at, int32_t *id)
{
    void *memory;
    attn_status status = attn__list_add(ctx, tape, &tape->slots, sizeof(attn__slot), &memory);
    if (status != ATTN_OK) return status;
    *(attn__slot *)memory = (attn__slot){.kind = kind,
                                         .dtype = at->dtype,
                                         .rows = at->rows,
                                         .width = at->heads * at->width,
                                         .block = -1,
                                         .parts = -1,
                                         .next = -1,
                                         .base = -1,
                                         .set = -1};
    *id = tape->slots.count - 1;
    return ATTN_OK;
}

/* The order of elements in memory as the shortest list of (extent, stride), outermost first. */
typedef struct axis {
    int64_t extent, stride;
} axis;
static int axes_of(const view *at, axis out[3])
{
    const axis all[3] = {{at->rows, at->row_stride}, {at->heads, at->head_stride}, {at->width, 1}};
    int count = 0;
    for (int i = 0; i < 3; i++) {
        if (all[i].extent == 1) continue;
        if (count > 0 && out[count - 1].stride == all[i].extent * all[i].stride) {
            out[count - 1].extent *= all[i].extent;
            out[count - 1].stride = all[i].stride;
        } else {
            out[count++] = all[i];
        }
    }
    return count;
}

static int view_empty(const view *at)
{
    return at->rows == 0 || at->heads == 0 || at->width == 0;
}

/* Rows, heads and columns may be cut differently as long as the elements and their order are the same. */
static int same_elements(const view *a, const view *b)
{
    if (a->data != b->data || a->dtype != b->dtype) return 0;
    if (view_empty(a) || view_empty(b)) return view_empty(a) && view_empty(b);
    axis left[3], right[3];
    int count = axes_of(a, left);
    if (axes_of(b, right) != count) return 0;
    for (int i = 0; i < count; i++)
        if (left[i].extent != right[i].extent || left[i].stride != right[i].stride) return 0;
    return 1;
}

static attn__span span_of(const view *at, int32_t id)
{
    attn__span span = {.start = (uintptr_t)at->data, .end = (uintptr_t)at->data, .at = *at, .id = id};
    if (!view_empty(at)) {
        int64_t last = (at->rows - 1) * at->row_stride + (at->heads - 1) * at->head_stride + at->width;
        span.end += (uintptr_t)(last * attn__dtype_bytes(at->dtype));
    }
    return span;
}

/* Spans that meet, but not elements: columns of one joined buffer (query, key and value side by side). */
static int interleaved(const attn__span *a, const attn__span *b)
{
    int64_t stride = a->at.row_stride, bytes = attn__dtype_bytes(a->at.dtype);
    if (stride <= 0 || b->at.row_stride != stride || bytes != attn__dtype_bytes(b->at.dtype)) return 0;
    int64_t a_width = (a->at.heads - 1) * a->at.head_stride + a->at.width, b_width = (b->at.heads - 1) * b->at.head_stride + b->at.width;
    int64_t distance = (int64_t)(b->start - a->start) / bytes % stride; /* both lie at multiples of their elements */
    if (distance < 0) distance += stride;
    return distance >= a_width && distance + b_width <= stride;
}

/* index of the first span that starts at or behind the address */
static int32_t span_lower(const attn_tape *tape, uintptr_t start)
{
    const attn__span *spans = tape->spans.at;
    int32_t low = 0, high = tape->spans.count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (spans[middle].start < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int attn__span_find(const attn_tape *tape, const view *at, int32_t *id, int *clash, int *touch)
{
    const attn__span *spans = tape->spans.at;
    attn__span wanted = span_of(at, -1);
    int found = 0;
    *id = -1;
    *clash = *touch = 0;
    uintptr_t reach = (uintptr_t)tape->longest;
    int32_t first = span_lower(tape, wanted.start > reach ? wanted.start - reach : 0);
    for (int32_t i = first; i < tape->spans.count && (spans[i].start < wanted.end || spans[i].start == wanted.start); i++) {
        if (same_elements(&spans[i].at, at)) {
            /* empty tensors may share an address: the latest counts */
            if (!found || spans[i].id > *id) *id = spans[i].id;
            found = 1;
        }
        /* what is empty shares nothing, wherever it lies */
        if (spans[i].start == spans[i].end || wanted.start == wanted.end) continue;
        if (spans[i].end <= wanted.start || interleaved(&spans[i], &wanted)) continue;
        *touch = 1;
        if (spans[i].id >= 0) *clash = 1;
    }
    return found;
}

attn_status attn__span_insert(attn_context *ctx, attn_tape *tape, const view *at, int32_t id)
{
    void *memory;
    attn__span span = span_of(at, id);
    attn_status status = attn__list_add(ctx, tape, &tape->spans, sizeof span, &memory);
    if (status != ATTN_OK) return status;
    attn__span *spans = tape->spans.at;
    int32_t place = tape->spans.count - 1;
    for (; place > 0 && spans[place - 1].start > span.start; place--) spans[place] = spans[place - 1];
    spans[place] = span;
    int64_t length = (int64_t)(span.end - span.start);
    if (length > tape->longest) tape->longest = length;
    return ATTN_OK;
}

void attn__span_remove(attn_tape *tape, int32_t id)
{
    attn__span *spans = tape->spans.at;
    int32_t kept = 0;
    for (int32_t i = 0; id >= 0 && i < tape->spans.count; i++)
        if (spans[i].id != id) spans[kept++] = spans[i];
    if (id >= 0) tape->spans.count = kept;
}

attn_status attn__tensor_view(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype, view *out)
{
    attn_status status = attn__expect(ctx, argument, tensor, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    return tensor->rank == 3 ? attn__heads(ctx, argument, tensor, dtype, out) : attn__rows(ctx, argument, tensor, dtype, out);
}

static attn_status set_index(attn_context *ctx, attn_tape *tape, attn_parameters *set, int32_t *index)
{
    for (int32_t i = 0; i < tape->sets.count; i++) {
        if (attn__set_at(tape, i)->set == set) {
            *index = i;
            return ATTN_OK;
        }
    }
    void *memory;
    attn_status status = attn__list_add(ctx, tape, &tape->sets, sizeof(attn__tape_set), &memory);
    if (status != ATTN_OK) return status;
    ((attn__tape_set *)memory)->set = attn__parameters_retain(set);
    *index = tape->sets.count - 1;
    return ATTN_OK;
}

attn_status attn__tape_parameter(attn_context *ctx, attn_tape *tape, attn_parameters *set, const view *from, int32_t frozen,
                                 attn__value *out)
{
    *out = (attn__value){.at = *from, .id = -1};
    if (tape == NULL) return ATTN_OK;
    int32_t index;
    attn_status status = set_index(ctx, tape, set, &index);
    if (status != ATTN_OK || frozen) return status;
    status = attn__slot_add(ctx, tape, ATTN__SLOT_PARAMETER, from, &out->id);
    if (status != ATTN_OK) return status;
    attn__slot *slot = attn__slot_at(tape, out->id);
    slot->set = index;
    slot->first = (int64_t)((uintptr_t)from->data - (uintptr_t)set->flat) / attn__dtype_bytes(from->dtype);
    if (tape->paused > 0) tape->paused_met++;
    return ATTN_OK;
}

attn_status attn__tape_input(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, const view *from,
                             attn__value *out)
{
    *out = (attn__value){.at = *from, .id = -1, .outside = 1};
    if (tape == NULL) return ATTN_OK;
    attn_status status = attn__tape_check(ctx, tape);
    if (status != ATTN_OK) return status;
    if (tensor->parameters != NULL)
        return attn__tape_parameter(ctx, tape, tensor->parameters, from, tensor->parameters->at[tensor->parameter].frozen, out);
    int clash, touch;
    if (!attn__span_find(tape, from, &out->id, &clash, &touch) && clash)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "%s: got a part of a value on the tape, expected the whole value or other memory",
                          argument);
    return attn__tape_hold_storage(ctx, tape, tensor->storage);
}

int attn__over_parameters(const attn_tape *tape, const view *at)
{
    for (int32_t i = 0; i < tape->sets.count; i++) {
        const attn_parameters *set = attn__set_at(tape, i)->set;
        const view flat = attn__parameters_flat(set, set->flat);
        if (attn__view_overlaps(at, &flat)) return 1;
    }
    return 0;
}

attn_status attn__tape_output(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, const view *from,
                              attn__value *out)
{
    *out = (attn__value){.at = *from, .id = -1, .outside = 1};
    if (tape == NULL) return ATTN_OK;
    attn_status status = attn__tape_check(ctx, tape);
    if (status != ATTN_OK) return status;
    if (tensor->parameters != NULL)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "%s: got a parameter, expected memory of its own", argument);
    int32_t id;
    int clash, touch;
    attn__span_find(tape, from, &id, &clash, &touch);
    if (touch || attn__over_parameters(tape, from))
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "%s: got memory of a value that the tape still needs, expected other memory",
                          argument);
    return attn__tape_hold_storage(ctx, tape, tensor->storage);
}

attn_status attn__tape_memory(attn_context *ctx, attn_tape *tape, int64_t bytes, void **out)
{
    if (tape == NULL) {
        *out = attn__scratch(ctx, bytes);
        return *out != NULL ? ATTN_OK : attn__arena_status(ctx->scratch);
    }
    *out = attn__arena_take(tape->values, bytes);
    return *out != NULL ? ATTN_OK : attn__fail_memory(ctx, attn__arena_status(tape->values), "tape");
}

attn_status attn__tape_temporary(attn_context *ctx, attn_tape *tape, int64_t rows, int64_t width, int32_t dtype, attn__value *out)
{
    int64_t elements, bytes;
    if (attn__multiply(rows, width, &elements) || attn__multiply(elements, attn__dtype_bytes(dtype), &bytes))
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "a value of %lld by %lld elements is too large", (long long)rows, (long long)width);
    *out = (attn__value){.at = {.rows = rows, .heads = 1, .width = width, .row_stride = width, .dtype = dtype}, .id = -1};
    return attn__tape_memory(ctx, tape, bytes, &out->at.data);
}

attn__arena *attn__tape_records(attn_context *ctx, attn_tape *tape)
{
    return tape != NULL ? tape->records : ctx->scratch;
}

attn_status attn__tape_part(attn_context *ctx, attn_tape *tape, const attn__value *base, int64_t first, int64_t count, attn__value *out)
{
    *out = (attn__value){.at = attn__view_columns(base->at, first, count), .id = -1};
    if (tape == NULL || tape->paused > 0 || base->id < 0) return ATTN_OK;
    attn_status status = attn__slot_add(ctx, tape, ATTN__SLOT_PART, &out->at, &out->id);
    if (status != ATTN_OK) return status;
    attn__slot *slot = attn__slot_at(tape, out->id), *owner = attn__slot_at(tape, base->id);
    slot->base = base->id;
    slot->first = first;
    slot->next = owner->parts;
    owner->parts = out->id;
    return ATTN_OK;
}

attn_status attn__lists_open(attn_context *ctx, attn_tape *tape, int64_t bytes, const char *what, attn__lists *out)
{
    attn__arena *arena = attn__tape_records(ctx, tape);
    *out = (attn__lists){attn__arena_take(arena, bytes), NULL, bytes};
    if (out->at == NULL) return attn__fail_memory(ctx, attn__arena_status(arena), what);
    if (!ctx->dry || tape != NULL) return ATTN_OK;
    attn_status status = attn__allocate(ctx->memory, bytes, &out->lent);
    out->at = out->lent;
    return status == ATTN_OK ? ATTN_OK : attn__fail_memory(ctx, status, what);
}

void attn__lists_close(attn_context *ctx, const attn__lists *lists)
{
    if (lists->lent != NULL) attn__deallocate(ctx->memory, lists->lent, lists->bytes);
}

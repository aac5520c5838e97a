#include "parameters.h"
#include <inttypes.h>
#include <string.h>
#include "../core/random.h"

static int64_t border(const attn_parameters *parameters)
{
    return 64 / attn__dtype_bytes(parameters->dtype);
}

attn_status attn__parameters_create(attn_context *ctx, int32_t dtype, attn_parameters **out)
{
    if (dtype != ATTN_FLOAT32 && dtype != ATTN_FLOAT64)
        return attn__fail(ctx, ATTN_ERROR_DTYPE, "dtype: got %s, expected float32 or float64", attn__dtype_name(dtype));
    void *pointer;
    attn_status status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_parameters), &pointer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "parameters");
    attn_parameters *parameters = pointer;
    parameters->magic = ATTN__MAGIC_PARAMETERS;
    parameters->memory = attn__memory_retain(ctx->memory);
    atomic_init(&parameters->references, 1);
    parameters->dtype = dtype;
    parameters->dry = ctx->dry;
    *out = parameters;
    return ATTN_OK;
}

attn_parameters *attn__parameters_retain(attn_parameters *parameters)
{
    atomic_fetch_add_explicit(&parameters->references, 1, memory_order_relaxed);
    return parameters;
}

static int64_t flat_bytes(const attn_parameters *parameters)
{
    return parameters->flat_elements * attn__dtype_bytes(parameters->dtype);
}

void attn__parameters_release(attn_parameters *parameters)
{
    if (!attn__is(parameters, ATTN__MAGIC_PARAMETERS)) return;
    if (atomic_fetch_sub_explicit(&parameters->references, 1, memory_order_acq_rel) != 1) return;
    attn__memory *memory = parameters->memory;
    if (parameters->plan != NULL) parameters->plan_free(parameters);
    for (int64_t i = 0; i < parameters->count; i++)
        attn__deallocate(memory, parameters->at[i].name, (int64_t)strlen(parameters->at[i].name) + 1);
    attn__deallocate(memory, parameters->at, parameters->capacity * (int64_t)sizeof *parameters->at);
    attn__deallocate(memory, parameters->slots, 2 * parameters->capacity * (int64_t)sizeof *parameters->slots);
    attn__deallocate(memory, parameters->tensors, parameters->count * (int64_t)sizeof *parameters->tensors);
    if (!parameters->dry) attn__deallocate(memory, parameters->flat, flat_bytes(parameters));
    while (parameters->constants != NULL) {
        attn__constant *first = parameters->constants;
        parameters->constants = first->next;
        attn__deallocate(memory, first, first->bytes);
    }
    parameters->magic = 0;
    attn__deallocate(memory, parameters, (int64_t)sizeof *parameters);
    attn__memory_release(memory);
}

attn_status attn__parameters_constant(attn_context *ctx, attn_parameters *parameters, int64_t bytes, void **out)
{
    enum { HEADER = 64 };
    void *pointer;
    int64_t sum;
    if (attn__sum(bytes, HEADER, &bytes) || attn__sum(parameters->constant_bytes, bytes, &sum))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "constants");
    *out = (void *)(uintptr_t)HEADER;
    attn_status status = parameters->dry ? ATTN_OK : attn__allocate_zero(parameters->memory, bytes, &pointer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "constants");
    parameters->constant_bytes = sum;
    if (parameters->dry) return ATTN_OK;
    attn__constant *made = pointer;
    *made = (attn__constant){parameters->constants, bytes};
    parameters->constants = made;
    *out = (char *)pointer + HEADER;
    return ATTN_OK;
}

/* The slot that holds the name, or the free one where it belongs: a model of thousands of layers has as many names. */
static int64_t find_slot(const attn_parameters *parameters, const char *name)
{
    uint64_t hash = attn__hash(name), last = 2 * (uint64_t)parameters->capacity - 1;
    int64_t slot = (int64_t)((hash ^ hash >> 32) & last);
    while (parameters->slots[slot] >= 0 && strcmp(parameters->at[parameters->slots[slot]].name, name) != 0)
        slot = (slot + 1) & (int64_t)last;
    return slot;
}

static attn_status grow(attn_context *ctx, attn_parameters *parameters)
{
    if (parameters->count < parameters->capacity) return ATTN_OK;
    int64_t capacity = parameters->capacity == 0 ? 32 : 2 * parameters->capacity, each = (int64_t)sizeof *parameters->at;
    int64_t slot_bytes = (int64_t)sizeof *parameters->slots;
    void *pointer, *slots;
    attn_status status = attn__allocate(parameters->memory, capacity * each, &pointer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "parameters");
    status = attn__allocate(parameters->memory, 2 * capacity * slot_bytes, &slots);
    if (status != ATTN_OK) {
        attn__deallocate(parameters->memory, pointer, capacity * each);
        return attn__fail_memory(ctx, status, "parameters");
    }
    if (parameters->count > 0) memcpy(pointer, parameters->at, (size_t)(parameters->count * each));
    attn__deallocate(parameters->memory, parameters->at, parameters->capacity * each);
    attn__deallocate(parameters->memory, parameters->slots, 2 * parameters->capacity * slot_bytes);
    parameters->at = pointer;
    parameters->slots = slots;
    parameters->capacity = capacity;
    for (int64_t i = 0; i < 2 * capacity; i++) parameters->slots[i] = -1;
    for (int64_t i = 0; i < parameters->count; i++) parameters->slots[find_slot(parameters, parameters->at[i].name)] = i;
    return ATTN_OK;
}

static attn_status check_name(attn_context *ctx, const attn_parameters *parameters, const char *name)
{
    if (name == NULL || name[0] == '\0') return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "name: got an empty one, expected a path");
    if (strlen(name) >= ATTN__MAX_NAME)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "name: got %zu bytes (%.40s...), expected at most %d", strlen(name), name,
                          ATTN__MAX_NAME - 1);
    if (attn_parameters_find(parameters, name) >= 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "name: got %s twice, expected a name of its own", name);
    return ATTN_OK;
}

/* fills rank, shape, elements and offset; *end: one past the last element in the flat buffer */
static attn_status place(attn_context *ctx, const attn_parameters *parameters, int32_t group, int32_t rank, const int64_t *shape,
                         attn__parameter *out, int64_t *end)
{
    if (rank < 0 || rank > 4) return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got rank %" PRId32 ", expected 0 to 4", out->name, rank);
    int64_t elements = 1, bytes, step = border(parameters), offset = parameters->flat_elements;
    for (int32_t axis = 0; axis < 4; axis++) out->shape[axis] = 1;
    for (int32_t axis = 0; axis < rank; axis++) {
        if (shape[axis] < 1)
            return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got extent %" PRId64 " on axis %" PRId32 ", expected 1 or more", out->name,
                              shape[axis], axis);
        out->shape[axis] = shape[axis];
        if (attn__multiply(elements, shape[axis], &elements)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, out->name);
    }
    if (group) offset = (offset + step - 1) / step * step; /* far from overflow: the sum below left room */
    if (attn__sum(offset, elements, end) || attn__sum(*end, 2 * step, &bytes) ||
        attn__multiply(bytes, attn__dtype_bytes(parameters->dtype), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, out->name);
    out->rank = rank;
    out->elements = elements;
    out->offset = offset;
    return ATTN_OK;
}

attn_status attn__parameters_add(attn_context *ctx, attn_parameters *parameters, const char *name, int32_t group, int32_t rank,
                                 const int64_t *shape, int32_t kind, int32_t start, double amount, int64_t *index)
{
    if (parameters->finished) return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "parameters: got one more after the set was finished");
    attn_status status = check_name(ctx, parameters, name);
    attn__parameter one = {.name = (char *)name, .kind = kind, .start = start, .amount = amount};
    int64_t end = 0;
    if (status == ATTN_OK) status = place(ctx, parameters, group, rank, shape, &one, &end);
    if (status == ATTN_OK) status = grow(ctx, parameters);
    if (status != ATTN_OK) return status;
    void *copy;
    status = attn__allocate(parameters->memory, (int64_t)strlen(name) + 1, &copy);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "parameter name");
    memcpy(copy, name, strlen(name) + 1);
    one.name = copy;
    if (index != NULL) *index = parameters->count;
    parameters->slots[find_slot(parameters, name)] = parameters->count;
    parameters->at[parameters->count++] = one;
    parameters->elements += one.elements;
    parameters->flat_elements = end;
    return ATTN_OK;
}

attn_status attn__parameters_finish(attn_context *ctx, attn_parameters *parameters)
{
    if (parameters->finished) return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "parameters: got a set that is finished already");
    int64_t step = border(parameters), bytes_each = attn__dtype_bytes(parameters->dtype);
    int64_t flat_elements = (parameters->flat_elements + step - 1) / step * step;
    void *tensors, *flat = (void *)(uintptr_t)(UINT64_C(3) << 44);
    attn_status status = attn__allocate(parameters->memory, parameters->count * (int64_t)sizeof(attn_tensor), &tensors);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "parameters");
    if (!parameters->dry) status = attn__allocate_zero(parameters->memory, flat_elements * bytes_each, &flat);
    if (status != ATTN_OK) {
        attn__deallocate(parameters->memory, tensors, parameters->count * (int64_t)sizeof(attn_tensor));
        return attn__fail_memory(ctx, status, "parameters");
    }
    parameters->flat_elements = flat_elements;
    parameters->flat = flat;
    parameters->tensors = tensors;
    for (int64_t i = 0; i < parameters->count; i++) {
        const attn__parameter *one = &parameters->at[i];
        attn__tensor_borrow(&parameters->tensors[i], parameters->dtype, one->rank, one->shape, (char *)flat + one->offset * bytes_each);
        parameters->tensors[i].parameters = parameters;
        parameters->tensors[i].parameter = i;
    }
    parameters->finished = 1;
    return ATTN_OK;
}

attn__view attn__parameters_flat(const attn_parameters *parameters, void *buffer)
{
    return (attn__view){buffer, 1, 1, parameters->flat_elements, parameters->flat_elements, 0, parameters->dtype, 0};
}

attn__view attn__parameters_view(const attn_parameters *parameters, int64_t index)
{
    const attn__parameter *one = &parameters->at[index];
    int64_t rows = one->rank > 1 ? one->shape[0] : 1, width = one->elements / rows;
    void *data = (char *)parameters->flat + one->offset * attn__dtype_bytes(parameters->dtype);
    return (attn__view){data, rows, 1, width, width, 0, parameters->dtype, 0};
}

attn__view attn__parameters_joined(const attn_parameters *parameters, int64_t index, int64_t count)
{
    attn__view view = attn__parameters_view(parameters, index);
    for (int64_t i = index + 1; i < index + count; i++) {
        attn__view next = attn__parameters_view(parameters, i);
        if (parameters->at[i].rank > 1)
            view.rows += next.rows;
        else
            view.row_stride = view.width += next.width;
    }
    return view;
}

int64_t attn_parameters_count(const attn_parameters *parameters)
{
    return attn__is(parameters, ATTN__MAGIC_PARAMETERS) ? parameters->count : 0;
}

int64_t attn_parameters_elements(const attn_parameters *parameters)
{
    return attn__is(parameters, ATTN__MAGIC_PARAMETERS) ? parameters->elements : 0;
}

static int has(const attn_parameters *parameters, int64_t index)
{
    return attn__is(parameters, ATTN__MAGIC_PARAMETERS) && index >= 0 && index < parameters->count;
}

const char *attn_parameters_name(const attn_parameters *parameters, int64_t index)
{
    return has(parameters, index) ? parameters->at[index].name : NULL;
}

int64_t attn_parameters_find(const attn_parameters *parameters, const char *name)
{
    return name != NULL && has(parameters, 0) ? parameters->slots[find_slot(parameters, name)] : -1;
}

attn_tensor *attn_parameters_tensor(attn_parameters *parameters, int64_t index)
{
    return has(parameters, index) && parameters->finished ? &parameters->tensors[index] : NULL;
}

/* * stands for any run of characters, ? for one; the last * is tried again with one character more */
static int matches(const char *pattern, const char *name)
{
    const char *star = NULL, *retry = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (*pattern != '\0' && (*pattern == '?' || *pattern == *name)) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++retry;
        } else
            return 0;
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

static attn_status freeze(attn_context *ctx, attn_parameters *parameters, const char *pattern, int32_t frozen, int64_t *matched)
{
    attn_status status = attn__expect(ctx, "parameters", parameters, ATTN__MAGIC_PARAMETERS, "attn_parameters");
    if (status != ATTN_OK) return status;
    if (pattern == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "pattern: got NULL, expected a name with * and ?");
    if (frozen != 0 && frozen != 1) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "frozen: got %" PRId32 ", expected 0 or 1", frozen);
    int64_t count = 0;
    for (int64_t i = 0; i < parameters->count; i++) {
        if (!matches(pattern, parameters->at[i].name)) continue;
        parameters->at[i].frozen = frozen;
        count++;
    }
    if (matched != NULL) *matched = count;
    return ATTN_OK;
}

attn_status attn_parameters_freeze(attn_context *ctx, attn_parameters *parameters, const char *pattern, int32_t frozen, int64_t *matched)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, freeze(ctx, parameters, pattern, frozen, matched));
}

#include "tensor.h"
#include <inttypes.h>
#include <string.h>

/* The elements follow the header in one allocation, at a 64-byte border. */
enum { HEADER_BYTES = 64 };
struct attn__storage {
    attn__memory *memory;
    atomic_int references;
    int64_t bytes; /* of the whole allocation */
};
_Static_assert(sizeof(struct attn__storage) <= HEADER_BYTES, "the header of a storage outgrew its place");

attn__storage *attn__storage_retain(attn__storage *storage)
{
    if (storage != NULL) atomic_fetch_add_explicit(&storage->references, 1, memory_order_relaxed);
    return storage;
}

void attn__storage_release(attn__storage *storage)
{
    if (storage == NULL || atomic_fetch_sub_explicit(&storage->references, 1, memory_order_acq_rel) != 1) return;
    attn__memory *memory = storage->memory;
    attn__deallocate(memory, storage, storage->bytes);
    attn__memory_release(memory);
}

static attn_status storage_create(attn_context *ctx, int64_t bytes, attn__storage **out)
{
    int64_t whole;
    void *pointer;
    if (attn__sum(bytes, HEADER_BYTES, &whole)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "shape");
    attn_status status = attn__allocate_zero(ctx->memory, whole, &pointer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "tensor elements");
    attn__storage *storage = pointer;
    storage->memory = attn__memory_retain(ctx->memory);
    atomic_init(&storage->references, 1);
    storage->bytes = whole;
    *out = storage;
    return ATTN_OK;
}

static void set_dense_strides(attn_tensor *tensor)
{
    int64_t stride = 1;
    for (int32_t axis = tensor->rank - 1; axis >= 0; axis--) {
        tensor->stride[axis] = stride;
        if (tensor->shape[axis] > 1) stride *= tensor->shape[axis];
    }
}

void attn__tensor_borrow(attn_tensor *tensor, int32_t dtype, int32_t rank, const int64_t *shape, void *data)
{
    memset(tensor, 0, sizeof *tensor);
    tensor->magic = ATTN__MAGIC_TENSOR;
    tensor->data = data;
    tensor->dtype = dtype;
    tensor->rank = rank;
    tensor->borrowed = 1;
    tensor->parameter = -1;
    for (int32_t axis = 0; axis < rank; axis++) tensor->shape[axis] = shape[axis];
    set_dense_strides(tensor);
}

static attn_status check_type(attn_context *ctx, int32_t dtype, int32_t rank)
{
    if (dtype == ATTN_FLOAT16 || dtype == ATTN_BFLOAT16)
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "dtype: got %s, expected float32, float64, int32, int64 or uint8",
                          attn__dtype_name(dtype));
    if (attn__dtype_bytes(dtype) == 0) return attn__fail(ctx, ATTN_ERROR_DTYPE, "dtype: got %" PRId32 ", expected an ATTN_ number", dtype);
    if (rank < 0 || rank > ATTN_MAX_RANK)
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "rank: got %" PRId32 ", expected 0 to %d", rank, ATTN_MAX_RANK);
    return ATTN_OK;
}

/* *bytes: of all elements. Every axis of 0 is counted as 1 for the limit, so that no product of extents overflows later. */
static attn_status check_shape(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, int64_t *bytes)
{
    int64_t most = attn__dtype_bytes(dtype), empty = 0;
    if (rank > 0 && shape == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "shape: got NULL, expected %" PRId32 " extents", rank);
    for (int32_t axis = 0; axis < rank; axis++) {
        if (shape[axis] < 0)
            return attn__fail(ctx, ATTN_ERROR_SHAPE, "shape: got extent %" PRId64 " on axis %" PRId32 ", expected 0 or more", shape[axis],
                              axis);
        if (shape[axis] == 0) empty = 1;
        if (attn__multiply(most, shape[axis] == 0 ? 1 : shape[axis], &most))
            return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "shape: got more bytes than 63 bits count, at axis %" PRId32, axis);
    }
    *bytes = empty ? 0 : most;
    return ATTN_OK;
}

/* Strides may leave gaps but no two elements may share memory: with axes by rising stride, each stride must pass all that the
   axes before it reach. */
static attn_status check_strides(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides)
{
    int32_t order[ATTN_MAX_RANK], used = 0;
    for (int32_t axis = 0; axis < rank; axis++) {
        if (strides[axis] < 0)
            return attn__fail(ctx, ATTN_ERROR_SHAPE, "strides: got %" PRId64 " on axis %" PRId32 ", expected 0 or more", strides[axis],
                              axis);
        if (shape[axis] <= 1) continue;
        int32_t place = used++;
        for (; place > 0 && strides[order[place - 1]] > strides[axis]; place--) order[place] = order[place - 1];
        order[place] = axis;
    }
    int64_t reach = 0, bytes; /* the farthest element of the axes so far */
    for (int32_t i = 0; i < used; i++) {
        int64_t stride = strides[order[i]], far;
        if (stride <= reach)
            return attn__fail(ctx, ATTN_ERROR_SHAPE,
                              "strides: got %" PRId64 " on axis %" PRId32 ", expected more than %" PRId64 " (elements would share memory)",
                              stride, order[i], reach);
        if (attn__multiply(shape[order[i]] - 1, stride, &far) || attn__sum(reach, far, &reach))
            return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "strides: got a span over 63 bits, at axis %" PRId32, order[i]);
    }
    if (reach == INT64_MAX || attn__multiply(reach + 1, attn__dtype_bytes(dtype), &bytes))
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "strides: got a span of %" PRId64 " elements, expected bytes within 63 bits", reach);
    return ATTN_OK;
}

static attn_status check_wrap(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides,
                              const void *data)
{
    int64_t bytes;
    attn_status status = check_shape(ctx, dtype, rank, shape, &bytes);
    if (status == ATTN_OK && strides != NULL) status = check_strides(ctx, dtype, rank, shape, strides);
    if (status != ATTN_OK) return status;
    if (data == NULL && bytes > 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "data: got NULL, expected %" PRId64 " bytes", bytes);
    if ((uintptr_t)data % (uintptr_t)attn__dtype_bytes(dtype) != 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "data: got an address between elements, expected a multiple of %" PRId64,
                          attn__dtype_bytes(dtype));
    return ATTN_OK;
}

/* the handle alone: not borrowed, no storage */
static attn_status handle_create(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, attn_tensor **out)
{
    void *pointer;
    attn_status status = attn__allocate(ctx->memory, (int64_t)sizeof(attn_tensor), &pointer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "tensor");
    attn_tensor *tensor = pointer;
    attn__tensor_borrow(tensor, dtype, rank, shape, NULL);
    tensor->borrowed = 0;
    tensor->memory = attn__memory_retain(ctx->memory);
    *out = tensor;
    return ATTN_OK;
}

static attn_status create(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, attn_tensor **out)
{
    int64_t bytes;
    attn_tensor *tensor;
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the tensor");
    attn_status status = check_type(ctx, dtype, rank);
    if (status == ATTN_OK) status = check_shape(ctx, dtype, rank, shape, &bytes);
    if (status == ATTN_OK) status = handle_create(ctx, dtype, rank, shape, &tensor);
    if (status != ATTN_OK) return status;
    status = storage_create(ctx, bytes, &tensor->storage);
    if (status != ATTN_OK) {
        attn_tensor_free(tensor);
        return status;
    }
    tensor->data = (char *)tensor->storage + HEADER_BYTES;
    *out = tensor;
    return ATTN_OK;
}

attn_status attn_tensor_create(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, attn_tensor **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, create(ctx, dtype, rank, shape, out));
}

static void bind(attn_tensor *tensor, const int64_t *shape, const int64_t *strides, void *data)
{
    for (int32_t axis = 0; axis < tensor->rank; axis++) tensor->shape[axis] = shape[axis];
    if (strides == NULL)
        set_dense_strides(tensor);
    else
        memcpy(tensor->stride, strides, (size_t)tensor->rank * sizeof *strides);
    tensor->data = data;
}

static attn_status wrap(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides, void *data,
                        attn_tensor **out)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the tensor");
    attn_status status = check_type(ctx, dtype, rank);
    if (status == ATTN_OK) status = check_wrap(ctx, dtype, rank, shape, strides, data);
    attn_tensor *tensor = NULL;
    if (status == ATTN_OK) status = handle_create(ctx, dtype, rank, shape, &tensor);
    if (status != ATTN_OK) return status;
    tensor->wrapped = 1;
    bind(tensor, shape, strides, data);
    *out = tensor;
    return ATTN_OK;
}

attn_status attn_tensor_wrap(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides, void *data,
                             attn_tensor **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, wrap(ctx, dtype, rank, shape, strides, data, out));
}

static attn_status rebind(attn_context *ctx, attn_tensor *wrapped, const int64_t *shape, const int64_t *strides, void *data)
{
    attn_status status = attn__expect(ctx, "wrapped", wrapped, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status != ATTN_OK) return status;
    if (!wrapped->wrapped)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "wrapped: got a tensor with memory of its own, expected a wrapped one");
    status = check_wrap(ctx, wrapped->dtype, wrapped->rank, shape, strides, data);
    if (status == ATTN_OK) bind(wrapped, shape, strides, data);
    return status;
}

attn_status attn_tensor_rebind(attn_context *ctx, attn_tensor *wrapped, const int64_t *shape, const int64_t *strides, void *data)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, rebind(ctx, wrapped, shape, strides, data));
}

void attn_tensor_free(attn_tensor *tensor)
{
    if (!attn__is(tensor, ATTN__MAGIC_TENSOR) || tensor->borrowed) return;
    attn__memory *memory = tensor->memory;
    attn__storage_release(tensor->storage);
    tensor->magic = 0;
    attn__deallocate(memory, tensor, (int64_t)sizeof *tensor);
    attn__memory_release(memory);
}

int32_t attn_tensor_dtype(const attn_tensor *tensor)
{
    return attn__is(tensor, ATTN__MAGIC_TENSOR) ? tensor->dtype : 0;
}

int32_t attn_tensor_rank(const attn_tensor *tensor)
{
    return attn__is(tensor, ATTN__MAGIC_TENSOR) ? tensor->rank : 0;
}

int64_t attn_tensor_extent(const attn_tensor *tensor, int32_t axis)
{
    return attn__is(tensor, ATTN__MAGIC_TENSOR) && axis >= 0 && axis < tensor->rank ? tensor->shape[axis] : 0;
}

int64_t attn_tensor_stride(const attn_tensor *tensor, int32_t axis)
{
    return attn__is(tensor, ATTN__MAGIC_TENSOR) && axis >= 0 && axis < tensor->rank ? tensor->stride[axis] : 0;
}

void *attn_tensor_data(attn_tensor *tensor)
{
    return attn__is(tensor, ATTN__MAGIC_TENSOR) ? tensor->data : NULL;
}

const void *attn_tensor_data_const(const attn_tensor *tensor)
{
    return attn__is(tensor, ATTN__MAGIC_TENSOR) ? tensor->data : NULL;
}

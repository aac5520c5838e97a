#ifndef ATTN_TENSOR_H
#define ATTN_TENSOR_H
#include "context.h"
ATTN_BEGIN

/* A tensor: an element type, 0 to 8 extents, a stride for each, and an address. Data is row-major unless strides say otherwise.
   An extent may be 0. A handle is used by one thread at a time when it is written; reading is shared. Since: 0.0.1 */
typedef struct attn_tensor attn_tensor;

/* Element types; the numbers never change. FLOAT16 and BFLOAT16 are refused for now (UNSUPPORTED). UINT8 is for boolean masks. */
enum { ATTN_FLOAT32 = 1, ATTN_FLOAT64 = 2, ATTN_INT32 = 3, ATTN_INT64 = 4, ATTN_FLOAT16 = 5, ATTN_BFLOAT16 = 6, ATTN_UINT8 = 7 };
enum { ATTN_MAX_RANK = 8 };

/* A dense tensor with memory of its own: zeroed, 64-byte aligned, counted by the context's accounting. shape: [rank] extents, copied;
   may be NULL for rank 0 (one element). The memory lives until the handle is freed and no tape holds it.
   Errors: INVALID_ARGUMENT (NULL), DTYPE, UNSUPPORTED (16-bit types), SHAPE (rank, negative extent), TOO_LARGE (bytes over 63 bits),
   OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_tensor_create(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, attn_tensor **out);

/* A tensor over the caller's memory, which must outlive the handle and every backward pass that uses it. strides: [rank], in elements,
   NULL for dense. Strides are 0 or more, and no two elements may share memory (so 0 only where the extent is 0 or 1). data: a multiple of
   the element size; NULL only when there are no elements.
   Errors: as attn_tensor_create, and SHAPE (strides), INVALID_ARGUMENT (data). Since: 0.0.1 */
ATTN_API attn_status attn_tensor_wrap(attn_context *ctx, int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides,
                                      void *data, attn_tensor **out);

/* Points a wrapped tensor at other memory, with the same type and rank; nothing is allocated. On failure the tensor is unchanged.
   A tape that recorded the tensor keeps the old memory's address. Errors: as attn_tensor_wrap, and BAD_STATE (a tensor that was not made
   by attn_tensor_wrap). Since: 0.0.1 */
ATTN_API attn_status attn_tensor_rebind(attn_context *ctx, attn_tensor *wrapped, const int64_t *shape, const int64_t *strides, void *data);

/* Frees the handle, from any thread, before or after the context; memory of its own too, once no tape holds it. Never fails. Does nothing
   on NULL and on borrowed tensors (those of parameter and gradient sets). Since: 0.0.1 */
ATTN_API void attn_tensor_free(attn_tensor *tensor);

/* What a tensor is. NULL gives 0 or NULL, and so does an axis outside 0 to rank - 1. Strides are in elements. attn_tensor_data is NULL
   only for a wrapped tensor without elements. Since: 0.0.1 */
ATTN_API int32_t attn_tensor_dtype(const attn_tensor *tensor);
ATTN_API int32_t attn_tensor_rank(const attn_tensor *tensor);
ATTN_API int64_t attn_tensor_extent(const attn_tensor *tensor, int32_t axis);
ATTN_API int64_t attn_tensor_stride(const attn_tensor *tensor, int32_t axis);
ATTN_API void *attn_tensor_data(attn_tensor *tensor);
ATTN_API const void *attn_tensor_data_const(const attn_tensor *tensor);
ATTN_END
#endif

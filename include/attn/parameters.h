#ifndef ATTN_PARAMETERS_H
#define ATTN_PARAMETERS_H
#include "tensor.h"
ATTN_BEGIN

/* The parameters of a module: names, tensors, one flat 64-byte aligned buffer. A module lends its set; gradients and optimizers keep it
   alive. Reading is shared by any number of threads; writing a tensor needs exclusive access to the module. Since: 0.0.1 */
typedef struct attn_parameters attn_parameters;

/* One gradient for each parameter, in one flat buffer with the same order and places. Backward adds into it. Used by one thread at a time,
   may move between threads. Since: 0.0.1 */
typedef struct attn_gradients attn_gradients;

/* How many parameters (tensors) and how many numbers in all of them, padding apart; 0 for NULL. Since: 0.0.1 */
ATTN_API int64_t attn_parameters_count(const attn_parameters *parameters);
ATTN_API int64_t attn_parameters_elements(const attn_parameters *parameters);

/* The name of parameter index, such as decoder.layers.0.self_attention.query.weight; lives as long as the set. NULL for NULL or an index
   outside 0 to count - 1. Names are the keys of files and never change. Since: 0.0.1 */
ATTN_API const char *attn_parameters_name(const attn_parameters *parameters, int64_t index);

/* The index of a name; -1: none. Since: 0.0.1 */
ATTN_API int64_t attn_parameters_find(const attn_parameters *parameters, const char *name);

/* The tensor of parameter index, [out, in] for weights: borrowed, lives as long as the set, attn_tensor_free does nothing. NULL for NULL or
   an index outside 0 to count - 1. Since: 0.0.1 */
ATTN_API attn_tensor *attn_parameters_tensor(attn_parameters *parameters, int64_t index);

/* Freezes (frozen 1) or thaws (0) every parameter whose whole name fits the pattern: * is any run of characters, ? one character. Optimizers
   leave frozen parameters as they are. *matched (may be NULL): how many fitted; none is no error. Needs exclusive access to the module.
   Errors: INVALID_ARGUMENT. Since: 0.0.1 */
ATTN_API attn_status attn_parameters_freeze(attn_context *ctx, attn_parameters *parameters, const char *pattern, int32_t frozen,
                                            int64_t *matched);

/* Gradients for a set, all zero. They keep the set alive: the module may be freed first.
   Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_gradients_create(attn_context *ctx, const attn_parameters *parameters, attn_gradients **out);

/* Frees the gradients, from any thread, before or after the context and the module; NULL is fine. Since: 0.0.1 */
ATTN_API void attn_gradients_free(attn_gradients *gradients);

/* Sets every gradient to zero. Errors: INVALID_ARGUMENT. Since: 0.0.1 */
ATTN_API attn_status attn_gradients_zero(attn_context *ctx, attn_gradients *gradients);

/* The gradient of parameter index, of its shape: borrowed, lives as long as the gradients. NULL for NULL or a wrong index. Since: 0.0.1 */
ATTN_API attn_tensor *attn_gradients_tensor(attn_gradients *gradients, int64_t index);

/* The whole buffer [elements with padding], for a communicator to reduce; padding is zero. Borrowed as above. Since: 0.0.1 */
ATTN_API attn_tensor *attn_gradients_flat(attn_gradients *gradients);

/* The norm over all gradients of parameters, the root of the sum of squares (2.7), in a fixed order: the same bits for any number of
   threads. Errors: INVALID_ARGUMENT. Since: 0.0.1 */
ATTN_API attn_status attn_gradients_norm(attn_context *ctx, const attn_gradients *gradients, double *out);
ATTN_END
#endif

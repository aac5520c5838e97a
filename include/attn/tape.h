#ifndef ATTN_TAPE_H
#define ATTN_TAPE_H
#include "parameters.h"
ATTN_BEGIN
/* The tape: what a forward calculation leaves for its gradient. Every operation that has a gradient takes one; NULL means inference.
   One round is: begin, watch inputs, call operations, backward. Values are known by the address of their elements:
   - a tensor given to an operation is the value of an earlier output or of a watched input when it has the same elements (another shape
     is fine), a parameter when it belongs to a set, and otherwise a constant. A part of a value is none of these: BAD_STATE;
   - an output must not lie over memory that the tape still needs: BAD_STATE, and nothing is written.
   Tensors and layouts may be freed or set anew before backward; memory that the caller wrapped must stay as it is until then.
   A tape is used by one thread at a time and may move between threads; two tapes may work on one model at once. */
typedef struct attn_tape attn_tape;

/* training 1: dropout acts. seed and step name the random numbers of dropout, which are a pure function of these two, the site, the
   sequence and the position. Defaults: all 0: gradients of the evaluated function. reserved is 0. */
typedef struct attn_tape_options {
    uint64_t struct_size;
    int32_t training, reserved;
    uint64_t seed;
    int64_t step;
} attn_tape_options;

/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 bytes. Since: 0.0.1 */
ATTN_API attn_status attn_tape_options_init(attn_tape_options *options, uint64_t size);

/* An empty tape, to be begun. It keeps its memory from one round to the next: a repeated round allocates nothing from its third time on.
   The caller frees *out; it holds no reference to the context. *out is NULL on failure.
   Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_tape_create(attn_context *ctx, attn_tape **out);
/* NULL is fine; any thread, in any order with other objects. Since: 0.0.1 */
ATTN_API void attn_tape_free(attn_tape *tape);

/* Forgets all records, whatever state the tape is in, and starts a round. options NULL: the defaults.
   Errors: INVALID_ARGUMENT (training not 0 or 1, step negative). Since: 0.0.1 */
ATTN_API attn_status attn_tape_begin(attn_context *ctx, attn_tape *tape, const attn_tape_options *options);

/* Asks for the gradient by input, which backward writes to gradient: the caller's, of the same shape and dtype, apart from input, from all
   that the tape knows, from other gradients and from parameters; zeros when nothing depends on input. Until backward no output of an
   operation may lie over it. Both float32 or float64, last axis dense, leading axes joinable to rows (rank 3: any strides there).
   Errors: BAD_STATE (not begun; input is watched, used or an output already), INVALID_ARGUMENT (input is a parameter: its gradient
   comes in the handle of its set; shared memory), SHAPE, DTYPE. Since: 0.0.1 */
ATTN_API attn_status attn_tape_watch(attn_context *ctx, attn_tape *tape, const attn_tensor *input, attn_tensor *gradient);

/* Reverse accumulation through all records (6.13 to 6.18 for attention): the gradient of sum_i <output_gradients[i], outputs[i]>.
   outputs: count >= 1 values of the tape. output_gradients: of their shapes, or NULL, as a whole or one by one: ones.
   gradients: at most one handle for each parameter set met on the tape; backward ADDS to them, parameters frozen when they were met
   excepted. A set without a handle gets none. Watched inputs are written.
   All arguments are checked before anything is written; refused ones leave the tape as it was. Once it runs, whatever the result, the
   tape is consumed: BAD_STATE until begun again. After CANCELLED or a lack of memory, gradients hold unspecified values and may be zeroed.
   Errors: INVALID_ARGUMENT (outputs[i] not on the tape, a handle of a set not on the tape or given twice, a watched input's gradient that
   lies over parameters, their gradients or output_gradients[i]; output_gradients[i] that lies over the gradients of a handle), SHAPE, DTYPE,
   BAD_STATE, CANCELLED, OUT_OF_MEMORY, MEMORY_CAP. Since: 0.0.1 */
ATTN_API attn_status attn_tape_backward(attn_context *ctx, attn_tape *tape, int64_t count, const attn_tensor *const *outputs,
                                        const attn_tensor *const *output_gradients, int64_t gradients_count,
                                        attn_gradients *const *gradients);
ATTN_END
#endif

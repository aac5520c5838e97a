#ifndef ATTN_OPERATIONS_H
#define ATTN_OPERATIONS_H
#include "layout.h"
#include "tape.h"
ATTN_BEGIN
/* The operations of the monograph, each callable by itself. In all of them:
   - tensors are float32 or float64, all of one dtype (float64: with the reference backend, else UNSUPPORTED), and are taken as rows: all
     axes but the last together count the rows, the last is the width and lies dense. Rank 1 is one row. Extent 0 is legal;
   - y is the caller's, has the rows of x, and shares no memory with an input;
   - tape NULL: inference. With a tape the gradient of every input that wants one is recorded; see tape.h for what that asks of memory;
   - everything is checked before y is written. Errors: INVALID_ARGUMENT (NULL, foreign handles, options out of range, shared memory),
     SHAPE, DTYPE, UNSUPPORTED, BAD_STATE (of the tape), CANCELLED (y is unspecified), OUT_OF_MEMORY, MEMORY_CAP;
   - one thread at a time per context and tape; inputs are only read and may be shared by threads. Same bits for any number of threads. */

/* IDENTITY u; RELU max(0, u), gradient 0 at 0; GELU u Phi(u) with erf (5.12); GELU_TANH its tanh form; SWISH u sigmoid(beta u) (5.13);
   SIGMOID; TANH */
enum {
    ATTN_ACTIVATION_IDENTITY = 0,
    ATTN_ACTIVATION_RELU = 1,
    ATTN_ACTIVATION_GELU = 2,
    ATTN_ACTIVATION_GELU_TANH = 3,
    ATTN_ACTIVATION_SWISH = 4,
    ATTN_ACTIVATION_SIGMOID = 5,
    ATTN_ACTIVATION_TANH = 6
};

/* (2.1) y = x W^T + b. x [rows, in], weight [out, in], bias [out] or NULL, y [rows, out]. Since: 0.0.1 */
ATTN_API attn_status attn_linear(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight,
                                 const attn_tensor *bias, attn_tensor *y);

/* y = act(x G^T + g) * (x U^T + u), the gated linear unit: SwiGLU with ATTN_ACTIVATION_SWISH (beta 1), GEGLU with _GELU.
   weight [2 out, in]: the rows of G, then those of U; bias [2 out] alike, or NULL; y [rows, out]. Since: 0.0.1 */
ATTN_API attn_status attn_linear_gated(attn_context *ctx, attn_tape *tape, int32_t activation, const attn_tensor *x,
                                       const attn_tensor *weight, const attn_tensor *bias, attn_tensor *y);

/* y = act(x), elementwise: (5.12), (5.13). beta: for Swish alone, one element, which gets a gradient; NULL: 1. y as x. Since: 0.0.1 */
ATTN_API attn_status attn_activation(attn_context *ctx, attn_tape *tape, int32_t activation, const attn_tensor *x, const attn_tensor *beta,
                                     attn_tensor *y);

/* (2.9), (2.29) y = exp(x - max) / sum, over each row. Minus infinity gives 0; a row of nothing else gives a row of zeros.
   y as x. Since: 0.0.1 */
ATTN_API attn_status attn_softmax(attn_context *ctx, attn_tape *tape, const attn_tensor *x, attn_tensor *y);
/* y = x - log-sum-exp of the row. A row of minus infinities stays one. y as x. Since: 0.0.1 */
ATTN_API attn_status attn_log_softmax(attn_context *ctx, attn_tape *tape, const attn_tensor *x, attn_tensor *y);

/* (5.14) to (5.17) y = weight (x - mean) / sqrt(variance + epsilon) + bias over each row, variance in two passes and over the width.
   weight, bias [width], each may be NULL (1 and 0). epsilon: finite, at least 0; the monograph's is 1e-6. y as x. Since: 0.0.1 */
ATTN_API attn_status attn_layer_norm(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight,
                                     const attn_tensor *bias, double epsilon, attn_tensor *y);
/* y = weight x / sqrt(mean of x^2 + epsilon) over each row. weight [width] or NULL. y as x. Since: 0.0.1 */
ATTN_API attn_status attn_rms_norm(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, double epsilon,
                                   attn_tensor *y);

/* (6.9) With a tape that trains: y is 0 with probability rate, else x / (1 - rate); otherwise y = x. rate in [0, 1]; 1 gives zeros.
   The choice is a pure function of the tape's seed and step, site, and each element's sequence, position and column. layout: segments
   that tile the rows, or NULL: one of all rows. y as x. Since: 0.0.1 */
ATTN_API attn_status attn_dropout(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout, double rate,
                                  uint64_t site, attn_tensor *y);

/* (5.20) y = a + b, of equal rows and width. Since: 0.0.1 */
ATTN_API attn_status attn_add(attn_context *ctx, attn_tape *tape, const attn_tensor *a, const attn_tensor *b, attn_tensor *y);
/* y = a * b, elementwise, of equal rows and width. Since: 0.0.1 */
ATTN_API attn_status attn_multiply(attn_context *ctx, attn_tape *tape, const attn_tensor *a, const attn_tensor *b, attn_tensor *y);

/* The Concat of (4.2): y = [parts[0], parts[1], ...] along the width. count >= 1 parts of equal rows; y [rows, sum of widths].
   A part may be given more than once. Since: 0.0.1 */
ATTN_API attn_status attn_concatenate(attn_context *ctx, attn_tape *tape, int64_t count, const attn_tensor *const *parts, attn_tensor *y);
/* y[j, i] = x[i, j]: x [a, b, width], y [b, a, width], each row of width columns as it is. Since: 0.0.2 */
ATTN_API attn_status attn_transpose(attn_context *ctx, attn_tape *tape, const attn_tensor *x, attn_tensor *y);

/* norms a layer can have */
enum { ATTN_NORM_LAYER = 0, ATTN_NORM_RMS = 1 };
ATTN_END
#endif

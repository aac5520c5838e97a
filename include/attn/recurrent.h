#ifndef ATTN_RECURRENT_H
#define ATTN_RECURRENT_H
#include "operations.h"
ATTN_BEGIN
/* What attention is measured against (1.1, Table 3.1): recurrent layers, which read a sequence row after row, and convolutions, which read a few rows
   about each. */

/* TANH (Elman 1990) h_t = tanh(x_t + W h_t-1), 1 gate. LSTM (Hochreiter and Schmidhuber 1997; Gers et al. 2000), 4 gates: with the four parts of
   x_t + W h_t-1 in the order i, f, g, o and s the logistic function, c_t = s(f) c_t-1 + s(i) tanh(g), h_t = s(o) tanh(c_t). */
enum { ATTN_RECURRENT_TANH = 0, ATTN_RECURRENT_LSTM = 1 };

typedef struct attn_recurrent_options {
    uint64_t struct_size;
    int32_t kind;    /* ATTN_RECURRENT_*; LSTM */
    int32_t reverse; /* 0 (default): from the first row of each segment to its last; 1: from the last to the first */
} attn_recurrent_options;
/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. Since: 0.0.2 */
ATTN_API attn_status attn_recurrent_options_init(attn_recurrent_options *options, uint64_t size);

/* (1.1) h_t = f(h_t-1, x_t): one recurrent layer in one direction, each segment a sequence of its own. x [rows, gates width] is what the inputs give,
   made by attn_linear with the biases in it; weight [gates width, width]; layout: segments that tile the rows, or NULL: one of all rows. options NULL:
   the defaults. hidden, cell (LSTM alone) [segments, width]: what stands before the first step, each NULL: zeros. output [rows, width]: h of every
   row. final_hidden, final_cell (LSTM alone) [segments, width], each may be NULL: h and c after the last step of each segment, those before
   the first where it has no rows; given to the next call as hidden and cell they carry a sequence on, row by row in decoding. Every output is
   apart from the inputs and the others. Gradients by x, weight, hidden and cell, from those of all outputs. Steps go one after the other, each
   one product over the segments that still have a row; kept for the backward: output, and 5 width numbers a row (LSTM).
   Rules, errors and threads as in operations.h. Since: 0.0.2 */
ATTN_API attn_status attn_recurrent(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight,
                                    const attn_layout *layout, const attn_recurrent_options *options, const attn_tensor *hidden,
                                    const attn_tensor *cell, attn_tensor *output, attn_tensor *final_hidden, attn_tensor *final_cell);

typedef struct attn_convolution_options {
    uint64_t struct_size;
    int32_t taps;     /* rows that each row reads; 3 */
    int32_t causal;   /* 0 (default): about the row, as many before it as after, with an odd number over one more after; 1: up to the row */
    int64_t dilation; /* from one tap to the next, in rows, at most 2147483647; 1 */
} attn_convolution_options;
/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. Since: 0.0.2 */
ATTN_API attn_status attn_convolution_options_init(attn_convolution_options *options, uint64_t size);

/* y_r = bias + sum over k of W_k x_(r + k dilation - before): a convolution along the rows of each segment, whose outside counts as zeros; before =
   (taps - 1) dilation, causal, or half of it, rounded down. x [rows, in], weight [out, taps in]: W_0, then W_1 and so on side by side; bias [out] or
   NULL; layout: segments that tile the rows, or NULL: one of all rows; options NULL: the defaults; y [rows, out]. Gradients by x, weight and
   bias. Rules, errors and threads as in operations.h. Since: 0.0.2 */
ATTN_API attn_status attn_convolution(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight,
                                      const attn_tensor *bias, const attn_layout *layout, const attn_convolution_options *options,
                                      attn_tensor *y);
ATTN_END
#endif

#ifndef ATTN_ROTARY_H
#define ATTN_ROTARY_H
#include "operations.h"
ATTN_BEGIN
/* Rotary positions (Su et al. 2021): queries and keys turn by their positions, so that their product knows only the distance. */

/* Which columns of a head turn together: c and c + rotated / 2 (LLaMA's files), or 2c and 2c + 1 (the paper, GPT-J). */
enum { ATTN_ROTARY_HALVES = 0, ATTN_ROTARY_PAIRS = 1 };
/* How a model trained on `context` positions is stretched by `factor`. With f_c = base^(-2c / rotated):
   LINEAR f_c / factor. NTK f_c of the base times factor^(rotated / (rotated - 2)). YARN: f_c / factor where fewer than `low` turns fit in the context,
   f_c where more than `high` do, a ramp over the pairs between; what turns is multiplied by magnitude. LLAMA3: as YARN, with the ramp over the turns and
   no magnitude. */
enum { ATTN_ROTARY_PLAIN = 0, ATTN_ROTARY_LINEAR = 1, ATTN_ROTARY_NTK = 2, ATTN_ROTARY_YARN = 3, ATTN_ROTARY_LLAMA3 = 4 };

typedef struct attn_rotary_options {
    uint64_t struct_size;
    int32_t pairing;  /* ATTN_ROTARY_HALVES (default) or _PAIRS */
    int32_t scaling;  /* ATTN_ROTARY_PLAIN (default) ... */
    int64_t rotated;  /* columns of a head that turn, from its first: even, 2 or more; ATTN_DERIVED (default): all */
    double base;      /* over 1; 10000 */
    double factor;    /* 1 or more; 1 */
    double context;   /* YARN and LLAMA3: positions the model was trained on, over 0; 2048 */
    double low, high; /* turns, low < high; 1 and 32 (LLaMA 3 takes 1 and 4) */
    double magnitude; /* YARN: over 0, or 0 (default) for 0.1 ln(factor) + 1 */
} attn_rotary_options;
/* Writes the defaults. INVALID_ARGUMENT: NULL, or a size under 8 or over 4096 bytes. Since: 0.0.2 */
ATTN_API attn_status attn_rotary_options_init(attn_rotary_options *options, uint64_t size);

/* The numbers themselves, for heads of `size` columns: frequencies [rotated / 2], radians for each position, and the magnitude, 1 but for YARN.
   Either may be NULL. Errors: INVALID_ARGUMENT, SHAPE (rotated is odd or over size). Since: 0.0.2 */
ATTN_API attn_status attn_rotary_frequencies(attn_context *ctx, const attn_rotary_options *options, int64_t size, double *frequencies,
                                             double *magnitude);

/* y = x with every head of every row turned by the position that the layout gives its row: columns a and b of pair c become
   a cos - b sin and a sin + b cos of position * f_c. x, y [rows, heads, size], any strides with a dense last axis; y is x itself (without a
   tape) or overlaps it nowhere. layout NULL: 0, 1, 2, ...; its segments tile the rows. The gradient turns back.
   Rules, other errors and threads as in operations.h. Since: 0.0.2 */
ATTN_API attn_status attn_rotary(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout,
                                 const attn_rotary_options *options, attn_tensor *y);
ATTN_END
#endif

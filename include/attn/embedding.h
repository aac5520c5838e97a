#ifndef ATTN_EMBEDDING_H
#define ATTN_EMBEDDING_H
#include "operations.h"
ATTN_BEGIN
/* Tokens to rows, and positions. The rules, errors and threads are those of operations.h. */
enum {
    ATTN_POSITIONS_NONE = 0,
    ATTN_POSITIONS_SINUSOIDAL = 1,
    ATTN_POSITIONS_LEARNED = 2,
    ATTN_POSITIONS_ROTARY = 3,
    ATTN_POSITIONS_T5 = 4,
    ATTN_POSITIONS_ALIBI = 5,
    ATTN_POSITIONS_RELATIVE = 6
};

/* y = scale * table[token]. tokens: int32 or int64 of any dense shape, copied when a tape needs them; table [vocabulary, width];
   y [as many rows as tokens, width]. scale finite; the original Transformer's is the root of the width.
   A token outside 0 .. vocabulary - 1 is INVALID_ARGUMENT, names its position, and leaves y as it was. Since: 0.0.1 */
ATTN_API attn_status attn_embedding(attn_context *ctx, attn_tape *tape, const attn_tensor *tokens, const attn_tensor *table, double scale,
                                    attn_tensor *y);

/* (5.2), (5.3) y = x + sin and cos of position / 10000^(2i / width), i counting pairs of columns; the last column of an odd width is a
   sine. Positions are those of layout, whose segments tile the rows; NULL: 0, 1, 2, ... y as x. Since: 0.0.1 */
ATTN_API attn_status attn_positions_sinusoidal(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout,
                                               attn_tensor *y);

/* (5.9) y = x + table[position]; table [positions, width]. A position past the table is INVALID_ARGUMENT. layout as above. y as x.
   Since: 0.0.1 */
ATTN_API attn_status attn_positions_learned(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout,
                                            const attn_tensor *table, attn_tensor *y);
ATTN_END
#endif

#ifndef ATTN_KERNELS_ATTENTION_CUT_H
#define ATTN_KERNELS_ATTENTION_CUT_H
#include "kernels.h"

/* How attention is cut into blocks: by lengths, sizes and the mask. The kernels on BLAS follow it, and the counting table counts by it. */
enum { ATTN__LANES = 16 };              /* floats that row loops treat at once */
enum { ATTN__KEY_BLOCK = 64 };          /* keys by which a mask is asked, for a tile of queries */
enum { ATTN__TURN_ROWS = 24 };          /* from so many queries on, keys may be turned on their side */
enum { ATTN__SMALL_PRODUCT = 1000000 }; /* multiply-adds that BLAS runs without packing */

/* most queries and most keys of a block, and most keys of a tile of the sweep that gives dK and dV */
typedef struct attn__attention_cut {
    int64_t rows, keys, key_tile;
} attn__attention_cut;
/* queries, keys: lengths of the longest segments; size: of a head's keys or values, whichever is wider */
attn__attention_cut attn__attention_cut_of(int64_t queries, int64_t keys, int64_t size);
/* of a call: with blocks of the finer kind where the mask lists much less in them */
attn__attention_cut attn__attention_cut_for(const attn__attention_arguments *a);

/* 1: the backward is one sweep with five products a block, 0: two with seven. groups: distinct key segments; tiles of queries and pairs
   of a query and a key as the block map lists them. */
int attn__attention_one_sweep(int64_t groups, int64_t key_heads, int64_t tiles, int64_t listed);
#endif

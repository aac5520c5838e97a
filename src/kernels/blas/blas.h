#ifndef ATTN_KERNELS_BLAS_BLAS_H
#define ATTN_KERNELS_BLAS_BLAS_H
#include "../kernels.h"
#include "isa.h"

/* The entries of the table, each of the type its field has. */
#define DECLARE(name) __typeof__(*((attn__kernels *)0)->name) BLAS(name);
DECLARE(linear)
DECLARE(linear_gated)
DECLARE(linear_d_input)
DECLARE(linear_d_weight)
DECLARE(activation)
DECLARE(activation_back)
DECLARE(gate_back)
DECLARE(residual_norm)
DECLARE(residual_norm_back)
DECLARE(residual)
DECLARE(attention)
DECLARE(attention_back)
DECLARE(attention_weights)
DECLARE(softmax)
DECLARE(softmax_back)
DECLARE(embed)
DECLARE(embed_back)
DECLARE(loss)
DECLARE(rotate)
DECLARE(feature_map)
DECLARE(feature_map_back)
DECLARE(linear_attention)
DECLARE(linear_attention_back)
DECLARE(sequence_project)
DECLARE(sequence_project_back)
DECLARE(recurrent)
DECLARE(recurrent_back)
DECLARE(convolution)
DECLARE(convolution_back)
DECLARE(dropout)
DECLARE(add)
DECLARE(multiply)
DECLARE(copy)
DECLARE(scale)
DECLARE(fill)
DECLARE(dot)
DECLARE(sum_squares)
DECLARE(adam)
DECLARE(next_token)
DECLARE(attention_room)
DECLARE(linear_room)
#undef DECLARE

/* Dropout of one call, ready to draw. A factor is the scale where an element is kept and 0 where it is dropped. */
typedef struct dropper {
    int32_t on;
    uint32_t threshold;
    uint64_t key;
    float scale;
    attn__places places;
} dropper;
dropper BLAS(dropper_of)(const attn__dropout *drop); /* NULL or rate 0: off */
/* of columns first .. first + count of a row of activations; first is a multiple of 4, factors has room for count rounded up to 64 */
void BLAS(dropper_factors)(const dropper *drop, int64_t row, int64_t first, int64_t count, float *factors);
/* the same for any row and head; for weights of attention head is 1 + the head and first the position of a key */
void BLAS(dropper_weights)(const dropper *drop, int64_t sequence, int64_t position, uint32_t head, int64_t first, int64_t count,
                           float *factors);

/* y = act(u), and its slope, of a run of n; y may be u. beta is Swish's. */
void BLAS(act_values)(int32_t kind, float beta, const float *u, int64_t n, float *y);
void BLAS(act_slopes)(int32_t kind, float beta, const float *u, int64_t n, float *y);
float BLAS(act_beta)(const attn__activation *act);
#endif

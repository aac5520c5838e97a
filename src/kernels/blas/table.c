#include "blas.h"

#define TABLE_JOIN(isa) attn__kernels_blas_##isa
#define TABLE_OF(isa) TABLE_JOIN(isa)

extern const attn__kernels TABLE_OF(ATTN__ISA);

const attn__kernels TABLE_OF(ATTN__ISA) = {
    .name = "blas float32",
    .dtype = ATTN_FLOAT32,
    .linear = BLAS(linear),
    .linear_gated = BLAS(linear_gated),
    .linear_d_input = BLAS(linear_d_input),
    .linear_d_weight = BLAS(linear_d_weight),
    .activation = BLAS(activation),
    .activation_back = BLAS(activation_back),
    .gate_back = BLAS(gate_back),
    .residual_norm = BLAS(residual_norm),
    .residual_norm_back = BLAS(residual_norm_back),
    .residual = BLAS(residual),
    .attention = BLAS(attention),
    .attention_back = BLAS(attention_back),
    .attention_weights = BLAS(attention_weights),
    .softmax = BLAS(softmax),
    .softmax_back = BLAS(softmax_back),
    .embed = BLAS(embed),
    .embed_back = BLAS(embed_back),
    .loss = BLAS(loss),
    .rotate = BLAS(rotate),
    .feature_map = BLAS(feature_map),
    .feature_map_back = BLAS(feature_map_back),
    .linear_attention = BLAS(linear_attention),
    .linear_attention_back = BLAS(linear_attention_back),
    .sequence_project = BLAS(sequence_project),
    .sequence_project_back = BLAS(sequence_project_back),
    .recurrent = BLAS(recurrent),
    .recurrent_back = BLAS(recurrent_back),
    .dropout = BLAS(dropout),
    .add = BLAS(add),
    .multiply = BLAS(multiply),
    .copy = BLAS(copy),
    .scale = BLAS(scale),
    .fill = BLAS(fill),
    .dot = BLAS(dot),
    .sum_squares = BLAS(sum_squares),
    .adam = BLAS(adam),
    .next_token = BLAS(next_token),
    .attention_room = BLAS(attention_room),
};

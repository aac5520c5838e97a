#include "real.h"

#ifdef ATTN__REAL_FLOAT32
#define TABLE attn__kernels_reference_float32
#define TABLE_NAME "reference float32"
#else
#define TABLE attn__kernels_reference_float64
#define TABLE_NAME "reference float64"
#endif

const attn__kernels TABLE = {
    .name = TABLE_NAME,
    .dtype = REAL_DTYPE,
    .linear = REFERENCE(linear),
    .linear_gated = REFERENCE(linear_gated),
    .linear_d_input = REFERENCE(linear_d_input),
    .linear_d_weight = REFERENCE(linear_d_weight),
    .activation = REFERENCE(activation),
    .activation_back = REFERENCE(activation_back),
    .gate_back = REFERENCE(gate_back),
    .residual_norm = REFERENCE(residual_norm),
    .residual_norm_back = REFERENCE(residual_norm_back),
    .residual = REFERENCE(residual),
    .attention = REFERENCE(attention),
    .attention_back = REFERENCE(attention_back),
    .attention_weights = REFERENCE(attention_weights),
    .softmax = REFERENCE(softmax),
    .softmax_back = REFERENCE(softmax_back),
    .embed = REFERENCE(embed),
    .embed_back = REFERENCE(embed_back),
    .loss = REFERENCE(loss),
    .rotate = REFERENCE(rotate),
    .feature_map = REFERENCE(feature_map),
    .feature_map_back = REFERENCE(feature_map_back),
    .linear_attention = REFERENCE(linear_attention),
    .linear_attention_back = REFERENCE(linear_attention_back),
    .sequence_project = REFERENCE(sequence_project),
    .sequence_project_back = REFERENCE(sequence_project_back),
    .recurrent = REFERENCE(recurrent),
    .recurrent_back = REFERENCE(recurrent_back),
    .convolution = REFERENCE(convolution),
    .convolution_back = REFERENCE(convolution_back),
    .dropout = REFERENCE(dropout),
    .add = REFERENCE(add),
    .multiply = REFERENCE(multiply),
    .copy = REFERENCE(copy),
    .scale = REFERENCE(scale),
    .fill = REFERENCE(fill),
    .dot = REFERENCE(dot),
    .sum_squares = REFERENCE(sum_squares),
    .adam = REFERENCE(adam),
    .next_token = REFERENCE(next_token),
    .attention_room = REFERENCE(attention_room),
    .linear_room = REFERENCE(linear_room),
};

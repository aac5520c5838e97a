#ifndef ATTN_TENSOR_CONVERT_H
#define ATTN_TENSOR_CONVERT_H
#include <stdint.h>
/* float32 to float64 and back, rounded to nearest; dense, apart */
void attn__convert(const void *from, int32_t from_dtype, void *to, int32_t to_dtype, int64_t elements);
#endif

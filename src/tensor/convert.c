#include "convert.h"
#include <attn/tensor.h>
#include <string.h>
#include "../core/dtype.h"

void attn__convert(const void *from, int32_t from_dtype, void *to, int32_t to_dtype, int64_t elements)
{
    if (from_dtype == to_dtype) {
        memcpy(to, from, (size_t)(elements * attn__dtype_bytes(to_dtype)));
    } else if (from_dtype == ATTN_FLOAT32) {
        const float *a = from;
        double *b = to;
        for (int64_t i = 0; i < elements; i++) b[i] = a[i];
    } else {
        const double *a = from;
        float *b = to;
        for (int64_t i = 0; i < elements; i++) b[i] = (float)a[i];
    }
}

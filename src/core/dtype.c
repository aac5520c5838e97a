#include "dtype.h"

/* The public numbers live one floor up, in attn/tensor.h; they are frozen, so a table by number is safe. */
static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {{"unknown", 0}, {"float32", 4}, {"float64", 8}, {"int32", 4}, {"int64", 8}, {"float16", 2}, {"bfloat16", 2}, {"uint8", 1}};

static int32_t known(int32_t dtype)
{
    return dtype > 0 && dtype < (int32_t)(sizeof dtypes / sizeof dtypes[0]) ? dtype : 0;
}

int64_t attn__dtype_bytes(int32_t dtype)
{
    return dtypes[known(dtype)].bytes;
}

const char *attn__dtype_name(int32_t dtype)
{
    return dtypes[known(dtype)].name;
}

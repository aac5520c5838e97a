#ifndef ATTN_CORE_DTYPE_H
#define ATTN_CORE_DTYPE_H
#include <stdint.h>
/* numbers are those of attn/tensor.h (ATTN_FLOAT32 = 1 ...), frozen */
int64_t attn__dtype_bytes(int32_t dtype);    /* 0: unknown */
const char *attn__dtype_name(int32_t dtype); /* "float32"; "unknown" */
#endif

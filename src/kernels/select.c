#include "blas/gemm.h"
#include "kernels.h"

extern const attn__kernels attn__kernels_blas_baseline;
#ifdef ATTN__HAVE_AVX2
extern const attn__kernels attn__kernels_blas_avx2;
#endif
#ifdef ATTN__HAVE_AVX512
extern const attn__kernels attn__kernels_blas_avx512;
#endif

/* slots of ctx->kernels */
enum { SLOT_BLAS = 0, SLOT_REFERENCE_FLOAT32 = 1, SLOT_REFERENCE_FLOAT64 = 2 };

/* widest first; the features are those of cmake/library.cmake */
const attn__kernels *attn__kernels_blas(int index)
{
    const attn__kernels *tables[3];
    int count = 0;
#if defined(ATTN__HAVE_AVX512) || defined(ATTN__HAVE_AVX2)
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#ifdef ATTN__HAVE_AVX512
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
    if (avx512) tables[count++] = &attn__kernels_blas_avx512;
#endif
#ifdef ATTN__HAVE_AVX2
    if (avx2) tables[count++] = &attn__kernels_blas_avx2;
#endif
    tables[count++] = &attn__kernels_blas_baseline;
    return index >= 0 && index < count ? tables[index] : NULL;
}

/* the first computation of a context also tries BLAS itself */
static attn_status blas(attn_context *ctx)
{
    if (attn__gemm_test() != 0) {
        return attn__fail(ctx, ATTN_ERROR_BLAS,
                          "BLAS: sgemm gives a wrong answer for a product of 3 by 2 with padded rows; expected a library with the "
                          "CBLAS interface and 32-bit integers");
    }
    ctx->kernels[SLOT_BLAS] = attn__kernels_blas(0);
    return ATTN_OK;
}

attn_status attn__kernels_for(attn_context *ctx, int32_t dtype, const attn__kernels **out)
{
    *out = NULL;
    if (dtype != ATTN_FLOAT32 && dtype != ATTN_FLOAT64) {
        return attn__fail(ctx, ATTN_ERROR_DTYPE, "dtype: got %s, expected float32 or float64", attn__dtype_name(dtype));
    }
    if (ctx->dry) {
        *out = &attn__kernels_count;
        return ATTN_OK;
    }
    if (ctx->backend == ATTN_BACKEND_BLAS && dtype == ATTN_FLOAT64) {
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED,
                          "dtype: got float64, expected float32 with the BLAS backend (the reference backend has both)");
    }
    int slot = ctx->backend == ATTN_BACKEND_BLAS ? SLOT_BLAS : dtype == ATTN_FLOAT32 ? SLOT_REFERENCE_FLOAT32 : SLOT_REFERENCE_FLOAT64;
    if (ctx->kernels[slot] == NULL && slot == SLOT_BLAS) {
        attn_status status = blas(ctx);
        if (status != ATTN_OK) return status;
    }
    if (slot == SLOT_REFERENCE_FLOAT32) ctx->kernels[slot] = &attn__kernels_reference_float32;
    if (slot == SLOT_REFERENCE_FLOAT64) ctx->kernels[slot] = &attn__kernels_reference_float64;
    *out = ctx->kernels[slot];
    return ATTN_OK;
}

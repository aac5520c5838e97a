#ifndef ATTN_KERNELS_BLAS_EXP_H
#define ATTN_KERNELS_BLAS_EXP_H
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Elementary functions in float32 without branches, tables or calls, so that a loop around them marked `#pragma omp simd` becomes
   vector code on every instruction set. They need -fno-math-errno and -fno-trapping-math, never -ffast-math. NaN goes through. */

/* a b + c: one rounding where the instruction set has it (-std=c11 turns the compiler's own contraction off) */
static inline float attn__fma(float a, float b, float c)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static inline uint32_t attn__bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float attn__from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x as 2^n e^r with |r| <= ln 2 / 2; relative error below 2 ulp. Results below the smallest normal number are 0. */
static inline float attn__exp(float x)
{
    float shifted = attn__fma(x, 1.44269504f, 12582912.0f); /* adding 1.5 * 2^23 rounds to an integer */
    float n = shifted - 12582912.0f;
    float r = attn__fma(n, -0.693359375f, x);
    r = attn__fma(n, 2.12194440e-4f, r);
    float p = 1.381421977e-03f;
    p = attn__fma(p, r, 8.368898874e-03f);
    p = attn__fma(p, r, 4.166840577e-02f);
    p = attn__fma(p, r, 1.666651913e-01f);
    p = attn__fma(p, r, 4.999999335e-01f);
    p = attn__fma(p, r * r, r) + 1.0f;
    float y = attn__from_bits(attn__bits(p) + (attn__bits(shifted) << 23)); /* n sits in the low bits; the constant's shift out */
    y = x < -87.33f ? 0.0f : y;
    y = x > 88.7228f ? INFINITY : y;
    return x == x ? y : x;
}

/* a series near 0, where 1 - e^(-2a) would cancel; relative error about 1 ulp */
static inline float attn__tanh(float x)
{
    float a = fabsf(x), u = x * x;
    float e = attn__exp(-2.0f * a);
    float far = (1.0f - e) / (1.0f + e);
    float p = -5.717036599e-03f;
    p = attn__fma(p, u, 2.065057904e-02f);
    p = attn__fma(p, u, -5.374349527e-02f);
    p = attn__fma(p, u, 1.333149125e-01f);
    p = attn__fma(p, u, -3.333328392e-01f);
    float near = attn__fma(p * u, a, a);
    return copysignf(a < 0.625f ? near : far, x);
}

/* erfc(a) for a >= 0 as e^-q(a), q = -ln erfc: no division. Relative error 2e-7 near 0, 2e-6 at 3, 2e-5 at 5.5; past 5.5, where
   it is below 1e-14, it stays. */
static inline float attn__erfc_positive(float a)
{
    a = a > 5.5f ? 5.5f : a;
    float p = 4.188508175e-09f;
    p = attn__fma(p, a, -1.566057095e-07f);
    p = attn__fma(p, a, 2.612364706e-06f);
    p = attn__fma(p, a, -2.555633780e-05f);
    p = attn__fma(p, a, 1.610598079e-04f);
    p = attn__fma(p, a, -6.622857248e-04f);
    p = attn__fma(p, a, 1.562223696e-03f);
    p = attn__fma(p, a, 1.222054424e-04f);
    p = attn__fma(p, a, -1.945595376e-02f);
    p = attn__fma(p, a, 1.029395231e-01f);
    p = attn__fma(p, a, 6.365792608e-01f);
    p = attn__fma(p, a, 1.128382519e+00f);
    return attn__exp(-a * p);
}

/* relative error about 2 ulp */
static inline float attn__erf(float x)
{
    float a = fabsf(x), u = x * x;
    float p = 7.889116031e-05f;
    p = attn__fma(p, u, -8.020840144e-04f);
    p = attn__fma(p, u, 5.189535198e-03f);
    p = attn__fma(p, u, -2.685444451e-02f);
    p = attn__fma(p, u, 1.128360017e-01f);
    p = attn__fma(p, u, -3.761262714e-01f);
    p = attn__fma(p, u, 1.283791660e-01f); /* 2 / sqrt(pi) - 1 */
    float near = attn__fma(p, a, a), far = 1.0f - attn__erfc_positive(a);
    return copysignf(a < 1.0f ? near : far, x);
}

/* the normal distribution function, (1 + erf(x / sqrt 2)) / 2, without cancellation on the left */
static inline float attn__normal(float x)
{
    float half = 0.5f * attn__erfc_positive(fabsf(x) * 0.707106781f);
    return x < 0.0f ? half : 1.0f - half;
}

/* natural logarithm: 0 gives -inf, below 0 NaN, inf stays; relative error about 2 ulp, denormals included */
static inline float attn__log(float x)
{
    int small = x < 1.17549435e-38f;
    uint32_t bits = attn__bits(small ? x * 8388608.0f : x);
    uint32_t up = bits + (0x3F800000u - 0x3F3504F3u); /* so that the mantissa lies in [sqrt(1/2), sqrt 2) */
    float n = (float)((int32_t)(up >> 23) - 127 - (small ? 23 : 0));
    float f = attn__from_bits((up & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    float p = 6.746601336e-02f;
    p = attn__fma(p, f, -1.167564130e-01f);
    p = attn__fma(p, f, 1.188817459e-01f);
    p = attn__fma(p, f, -1.240559142e-01f);
    p = attn__fma(p, f, 1.421955091e-01f);
    p = attn__fma(p, f, -1.666799567e-01f);
    p = attn__fma(p, f, 2.000211873e-01f);
    p = attn__fma(p, f, -2.500000960e-01f);
    p = attn__fma(p, f, 3.333331260e-01f);
    float u = f * f;
    float y = attn__fma(n, -2.12194440e-4f, p * u * f);
    y = attn__fma(u, -0.5f, y) + f;
    y = attn__fma(n, 0.693359375f, y);
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x < INFINITY ? y : x; /* inf and NaN */
}

static inline float attn__sigmoid(float x)
{
    return 1.0f / (1.0f + attn__exp(-x));
}

static inline float attn__gelu(float x)
{
    float y = x * attn__normal(x);
    return x < -14.0f ? -0.0f : y; /* -inf times 0 */
}

static inline float attn__gelu_tanh(float x)
{
    float inner = 0.797884561f * attn__fma(0.044715f * x * x, x, x);
    float y = x * attn__sigmoid(2.0f * inner); /* (1 + tanh z) / 2 = sigmoid(2 z) */
    return x < -14.0f ? -0.0f : y;
}
#endif

#ifndef ATTN_KERNELS_BLAS_PHILOX_H
#define ATTN_KERNELS_BLAS_PHILOX_H
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Philox (core/random.h), 16 blocks side by side. A lane of 64 bits holds a word of 32 and rubbish above it: the product of two low
   halves is one instruction on every set, which compilers do not find by themselves. */
enum { PHILOX_BLOCKS = 16 };

#if defined(__AVX512F__)
typedef uint64_t philox_lane __attribute__((vector_size(64)));
#define PHILOX_PRODUCT(a, b) ((philox_lane)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
typedef uint64_t philox_lane __attribute__((vector_size(32)));
#define PHILOX_PRODUCT(a, b) ((philox_lane)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#elif defined(__SSE2__)
typedef uint64_t philox_lane __attribute__((vector_size(16)));
#define PHILOX_PRODUCT(a, b) ((philox_lane)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#else
typedef uint64_t philox_lane __attribute__((vector_size(16)));
#define PHILOX_PRODUCT(a, b) (((a)&UINT32_MAX) * ((b)&UINT32_MAX))
#endif

enum { PHILOX_LANES = sizeof(philox_lane) / sizeof(uint64_t), PHILOX_CHAINS = 2 };

/* words: [4, blocks], of counters first, first + 1 ... in word 0 */
static inline void philox_lanes(uint64_t key, uint32_t first, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t words[4][PHILOX_BLOCKS])
{
    static const uint64_t count[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const philox_lane zero = {0}, m0 = zero + UINT64_C(0xD2511F53), m1 = zero + UINT64_C(0xCD9E8D57);
    philox_lane lanes;
    memcpy(&lanes, count, sizeof lanes);
    for (int at = 0; at < PHILOX_BLOCKS; at += PHILOX_CHAINS * PHILOX_LANES) {
        philox_lane w[4][PHILOX_CHAINS]; /* two independent chains hide the latency of the products */
        uint64_t k0 = key & UINT32_MAX, k1 = key >> 32;
        for (int chain = 0; chain < PHILOX_CHAINS; chain++) {
            w[0][chain] = lanes + first + (uint64_t)(at + chain * PHILOX_LANES);
            w[1][chain] = zero + c1;
            w[2][chain] = zero + c2;
            w[3][chain] = zero + c3;
        }
        for (int round = 0; round < 10; round++) {
            for (int chain = 0; chain < PHILOX_CHAINS; chain++) {
                philox_lane p = PHILOX_PRODUCT(m0, w[0][chain]), q = PHILOX_PRODUCT(m1, w[2][chain]);
                w[0][chain] = (q >> 32) ^ w[1][chain] ^ (zero + k0);
                w[2][chain] = (p >> 32) ^ w[3][chain] ^ (zero + k1);
                w[1][chain] = q;
                w[3][chain] = p;
            }
            k0 += UINT64_C(0x9E3779B9);
            k1 += UINT64_C(0xBB67AE85);
        }
        for (int word = 0; word < 4; word++)
            for (int chain = 0; chain < PHILOX_CHAINS; chain++)
                for (int i = 0; i < PHILOX_LANES; i++) words[word][at + chain * PHILOX_LANES + i] = (uint32_t)w[word][chain][i];
    }
}
#endif

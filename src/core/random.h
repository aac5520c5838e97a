#ifndef ATTN_CORE_RANDOM_H
#define ATTN_CORE_RANDOM_H
#include <stdint.h>

/* Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011). A number is a pure function of key and counter. */
static inline void attn__philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c0, p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* splitmix64's finaliser over a pair: keys from seeds, steps and sites */
static inline uint64_t attn__mix(uint64_t a, uint64_t b)
{
    uint64_t z = a + UINT64_C(0x9E3779B97F4A7C15) * (b + 1);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* FNV-1a, 64 bits: the site of a module's path, the stream of a parameter's name */
static inline uint64_t attn__hash(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return h;
}

/* uniform in [0, 1) with 53 bits from two words */
static inline double attn__uniform53(uint32_t a, uint32_t b)
{
    return ((double)(((uint64_t)a << 32 | b) >> 11)) * (1.0 / 9007199254740992.0);
}

/* Where dropout draws: a pure function of (seed, step, site, sequence, position, head, column). Element c of a row uses word
   c % 4 of the Philox block with counter (c / 4, head, position, sequence) and is KEPT when the word is >= threshold.
   head is 0 for rows of activations, 1 + head for attention weights, whose column is the key's position. */
static inline uint64_t attn__dropout_key(uint64_t seed, int64_t step, uint64_t site)
{
    return attn__mix(attn__mix(seed, (uint64_t)step), site);
}
static inline uint64_t attn__dropout_row_key(uint64_t key, int64_t sequence, int64_t position)
{
    uint32_t s = (uint32_t)((uint64_t)sequence >> 32), p = (uint32_t)((uint64_t)position >> 32);
    return (s | p) == 0 ? key : attn__mix(key, (uint64_t)s << 32 | p);
}
static inline uint64_t attn__dropout_threshold(double rate)
{
    return (uint64_t)(rate * 4294967296.0);
} /* rate 1: 2^32, none kept */
static inline double attn__dropout_scale(double rate)
{
    return rate < 1 ? 1 / (1 - rate) : 0;
}
#endif

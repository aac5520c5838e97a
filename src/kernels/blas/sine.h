#ifndef ATTN_KERNELS_BLAS_SINE_H
#define ATTN_KERNELS_BLAS_SINE_H
#include <stdint.h>

/* The angle is brought into an eighth of a turn in double, where the series end under 1e-11. Exact to float for angles up to 2^40: pi / 2 is taken
   away in four parts, of which the first three are so short that their products with up to 2^40 quarters are exact, fused or not. */
static inline void attn__sine_cosine(double angle, float magnitude, float *sine, float *cosine)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52: what is added to it is rounded to a whole number */
    double shifted = angle * 0.63661977236758134308 + round, quarters = shifted - round;
    union {
        double number;
        uint64_t bits;
    } as = {shifted};
    double r = angle - quarters * 1.570556640625 - quarters * 2.39670276641845703125e-4;
    r = r - quarters * 1.58906914293766021728515625e-8 - quarters * 2.5633441515945189e-12;
    double q = r * r;
    double s = r + r * q * (-1.0 / 6 + q * (1.0 / 120 + q * (-1.0 / 5040 + q * (1.0 / 362880 + q * (-1.0 / 39916800)))));
    double c = 1 + q * (-0.5 + q * (1.0 / 24 + q * (-1.0 / 720 + q * (1.0 / 40320 + q * (-1.0 / 3628800 + q * (1.0 / 479001600))))));
    float first = (float)(as.bits & 1 ? c : s), second = (float)(as.bits & 1 ? s : c);
    *sine = magnitude * (as.bits & 2 ? -first : first);
    *cosine = magnitude * ((as.bits + 1) & 2 ? -second : second);
}
#endif

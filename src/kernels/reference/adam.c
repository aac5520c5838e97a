#include <math.h>
#include "real.h"

/* Adam with decoupled decay: g' = multiplier g + l2 p; m = b1 m + (1 - b1) g'; v = b2 v + (1 - b2) g'^2;
   p = p - rate decay p - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon); the step t counts from 1. */
attn_status REFERENCE(adam)(attn_context *ctx, void *p, void *g, void *m, void *v, int64_t n, double multiplier, double l2, double rate,
                            double beta1, double beta2, double epsilon, double decay, int64_t step)
{
    real *parameter = p, *gradient = g, *first = m, *second = v;
    double correct1 = 1 - pow(beta1, (double)step), correct2 = 1 - pow(beta2, (double)step);
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        double old = (double)parameter[i], d = multiplier * (double)gradient[i] + l2 * old;
        double mean = beta1 * (double)first[i] + (1 - beta1) * d, square = beta2 * (double)second[i] + (1 - beta2) * d * d;
        first[i] = (real)mean;
        second[i] = (real)square;
        double below = sqrt(square / correct2) + epsilon; /* 0 without epsilon: no gradient came yet */
        parameter[i] = (real)(old - rate * decay * old - rate * (mean / correct1) / (below == 0 ? 1 : below));
        gradient[i] = 0;
    }
    return ATTN_OK;
}

#include <math.h>
#include "kernels.h"

int64_t attn__bucket(int64_t t, int64_t buckets, int64_t furthest, int both_sides)
{
    int64_t half = both_sides ? buckets / 2 : buckets, exact = half / 2, distance = t < 0 ? -t : t, after = 0;
    if (both_sides)
        after = t > 0 ? half : 0;
    else if (t > 0)
        distance = 0;
    if (distance < exact) return after + distance;
    /* a part in 10^12 keeps the ends of the buckets, which are whole numbers in exact arithmetic, on their side */
    double place = log((double)distance / (double)exact) / log((double)furthest / (double)exact) * (double)(half - exact);
    int64_t far = distance >= furthest ? half - 1 : exact + (int64_t)(place + 1e-12);
    return after + (far < half ? far : half - 1);
}

double attn__alibi_slope(int64_t head, int64_t heads)
{
    int64_t power = 1;
    while (power * 2 <= heads) power *= 2;
    if (head < power) return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

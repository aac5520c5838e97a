#include "random.h"
#include <attn/tensor.h>
#include "compare.h"
#include "core/random.h"

uint64_t random_bits(random_state *state)
{
    return attn__mix(0x7465737473, state->at++);
}

int64_t random_integer(random_state *state, int64_t low, int64_t high)
{
    return low + (int64_t)(random_bits(state) % (uint64_t)(high - low));
}

double random_number(random_state *state, double low, double high)
{
    double unit = (double)(random_bits(state) >> 40) / 16777216.0;
    return (double)(float)(low + unit * (high - low));
}

void random_floats(random_state *state, float *to, int64_t n, double low, double high)
{
    for (int64_t i = 0; i < n; i++) to[i] = (float)random_number(state, low, high);
}

void random_doubles(random_state *state, double *to, int64_t n, double low, double high)
{
    for (int64_t i = 0; i < n; i++) to[i] = random_number(state, low, high);
}

void random_view(random_state *state, const attn__view *view, double low, double high)
{
    for (int64_t r = 0; r < view->rows; r++) {
        for (int64_t h = 0; h < view->heads; h++) {
            for (int64_t c = 0; c < view->width; c++) element_set(view, r, h, c, random_number(state, low, high));
        }
    }
}

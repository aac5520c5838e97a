#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H
#include <stdint.h>
#include "tensor/view.h"

/* Deterministic numbers for tests: one state, the same stream everywhere. */
typedef struct random_state {
    uint64_t at;
} random_state;

uint64_t random_bits(random_state *state);
int64_t random_integer(random_state *state, int64_t low, int64_t high); /* low <= x < high */
/* low <= x < high, and a float: so float and double copies of it are the same number */
double random_number(random_state *state, double low, double high);

void random_floats(random_state *state, float *to, int64_t n, double low, double high);
void random_doubles(random_state *state, double *to, int64_t n, double low, double high);
/* every element, none of the gaps; the same values whether the view is float32 or float64 */
void random_view(random_state *state, const attn__view *view, double low, double high);
#endif

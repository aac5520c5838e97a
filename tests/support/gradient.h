#ifndef TESTS_SUPPORT_GRADIENT_H
#define TESTS_SUPPORT_GRADIENT_H
#include <attn/tape.h>
#include "support/random.h"

/* Gradients against differences of the function itself, in float64 through the reference backend. The function is
   sum(weights * output), weights fixed random numbers. */
enum { GRADIENT_INPUTS = 8, GRADIENT_OTHERS = 16, GRADIENT_ELEMENTS = 200 };
typedef struct gradient_check {
    attn_context *ctx;
    attn_tape *tape;
    attn_tape_options options; /* of every round: dropout is the same function each time */
    random_state random;
    int inputs, others;
    attn_tensor *input[GRADIENT_INPUTS], *gradient[GRADIENT_INPUTS], *other[GRADIENT_OTHERS];
    attn_tensor *output, *weights;
} gradient_check;

/* writes g->output from g->input */
typedef attn_status gradient_function(gradient_check *g, attn_tape *tape, const void *what);

void gradient_open(gradient_check *g, uint64_t seed);
void gradient_close(gradient_check *g);
/* random in [low, high); an input gets a gradient, another tensor is only kept until close */
attn_tensor *gradient_input(gradient_check *g, int32_t rank, const int64_t *shape, double low, double high);
attn_tensor *gradient_other(gradient_check *g, int32_t dtype, int32_t rank, const int64_t *shape, double low, double high);
void gradient_output(gradient_check *g, int32_t rank, const int64_t *shape);

/* The largest difference relative to the largest gradient of its input: by element up to 200 of them, beyond that along random
   directions. Infinity when something is not finite. */
double gradient_error(gradient_check *g, gradient_function *function, const void *what);
/* Fails the test above 1e-6; then when an input that is watched alone, or one that is not watched, makes a difference, or backward changes
   anything else; then once more with one gradient element changed by 1e-3 of the largest, which must be noticed */
void gradient_expect(gradient_check *g, gradient_function *function, const void *what);
#endif

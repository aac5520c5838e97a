#ifndef TESTS_SUPPORT_PROPERTY_H
#define TESTS_SUPPORT_PROPERTY_H
#include "support/model.h"

/* A statement that holds for any numbers is looked at on three grounds, over several seeds: the BLAS backend, and the reference in float32
   and in float64. Tensors made by a property live until it ends, or until the sweep back to a mark. */
enum { GROUND_BLAS = 0, GROUND_FLOAT32 = 1, GROUND_FLOAT64 = 2, GROUNDS = 3 };
enum { PROPERTY_TENSORS = 1024 };
typedef struct property {
    attn_context *ctx;
    attn_tape *tape;
    int32_t ground, dtype;
    uint64_t seed;
    double unit; /* half the distance from 1 to the next number of the dtype */
    random_state random;
    attn_tensor *made[PROPERTY_TENSORS];
    int count;
} property;

typedef void property_case(property *p);
void property_open(property *p, int32_t ground, uint64_t seed);
void property_close(property *p);
void property_run(property_case *run, int seeds); /* every ground, seeds 1, 2, ... */

attn_tensor *property_rows(property *p, int64_t rows, int64_t width); /* zeros */
attn_tensor *property_heads(property *p, int64_t rows, int64_t heads, int64_t size);
attn_tensor *property_random(property *p, int64_t rows, int64_t width, double low, double high);
attn_tensor *property_random_heads(property *p, int64_t rows, int64_t heads, int64_t size, double low, double high);
attn_tensor *property_normal(property *p, int64_t rows, int64_t width); /* mean 0, variance 1 */
attn_tensor *property_identity(property *p, int64_t n);
attn_tensor *property_copy(property *p, const attn_tensor *x);
attn_tensor *property_product(property *p, const attn_tensor *a, const attn_tensor *b); /* a b by a plain loop in double */
void property_sweep(property *p, int mark);                                             /* frees what was made since count was mark */
double property_gaussian(property *p);
void property_permutation(property *p, int64_t n, int64_t *order);
/* rows of x in another order: row r of the result is row order[r] of x */
attn_tensor *property_reordered(property *p, const attn_tensor *x, const int64_t *order);

int64_t property_width(const attn_tensor *x); /* all but the first axis */
double property_get(const attn_tensor *x, int64_t row, int64_t column);
void property_set(attn_tensor *x, int64_t row, int64_t column, double value);
/* largest |a - b| over the largest |b|, which counts as 1 when smaller; infinity when something is not a number in one of them */
double property_apart(const attn_tensor *a, const attn_tensor *b);
int property_same_bits(const attn_tensor *a, const attn_tensor *b);
int property_same_row(const attn_tensor *a, int64_t row, const attn_tensor *b, int64_t other);
/* apart by at most terms roundings */
#define CLOSE(p, got, want, terms) property_expect(p, got, want, terms, #got " = " #want, __FILE__, __LINE__)
void property_expect(const property *p, const attn_tensor *got, const attn_tensor *want, double terms, const char *what, const char *file,
                     int line);
#define NEAR(got, want, within) property_number(got, want, within, #got " = " #want, __FILE__, __LINE__)
void property_number(double got, double want, double within, const char *what, const char *file, int line);
#define HOLDS(p, truth) property_truth(p, truth, #truth, __FILE__, __LINE__)
void property_truth(const property *p, int truth, const char *what, const char *file, int line);

/* a round of the tape; watch gives the tensor that backward fills */
void property_begin(property *p);
void property_begin_training(property *p, uint64_t seed, int64_t step);
attn_tensor *property_watch(property *p, const attn_tensor *x);
void property_backward(property *p, const attn_tensor *y, const attn_tensor *dy, attn_gradients *gradients); /* NULL: ones; none */

attn_tensor *property_parameter(attn_parameters *set, const char *name);
attn_layout *property_layout(property *p, int64_t count, const int64_t *lengths, int64_t first_sequence); /* the caller frees it */
#endif

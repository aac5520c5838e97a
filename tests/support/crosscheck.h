#ifndef TESTS_SUPPORT_CROSSCHECK_H
#define TESTS_SUPPORT_CROSSCHECK_H
#include "kernels/kernels.h"
#include "random.h"

/* One entry of the kernel table run four times on the same numbers: BLAS float32 on three threads, reference float32, reference float64,
   and BLAS on one thread, which must give the same bits as on three. */
enum { RUN_BLAS = 0, RUN_FLOAT32 = 1, RUN_FLOAT64 = 2, RUN_ALONE = 3, RUNS = 4 };

typedef struct trio {
    view at[RUNS];
    double least; /* size of the numbers that a result is added to */
} trio;

typedef struct crosscheck {
    attn_context *ctx[RUNS];
    const attn__kernels *table[RUNS];
    random_state random;
    int64_t gap; /* elements between rows of what is made from now on; they hold a mark that must survive */
    int64_t head_gap;
    int nudge, made, missed; /* nudge k > 0: the k-th input has one coefficient times 1.001 in the BLAS run, and results must differ */
    void *memory[256];
    int memory_count;
} crosscheck;

void crosscheck_open(crosscheck *c);
void crosscheck_close(crosscheck *c);

/* random inputs in [low, high) */
trio input_rows(crosscheck *c, int64_t rows, int64_t width, double low, double high);
trio input_heads(crosscheck *c, int64_t rows, int64_t heads, int64_t width, double low, double high);
/* results: full of NaN, or of random numbers when they are added to */
trio result_rows(crosscheck *c, int64_t rows, int64_t width, int add);
trio result_heads(crosscheck *c, int64_t rows, int64_t heads, int64_t width, int add);
/* [rows, 1], low <= x < high, shared by all runs */
view integers(crosscheck *c, int32_t dtype, int64_t rows, int64_t low, int64_t high);
/* places of rows: a few sequences */
attn__places places(crosscheck *c, int64_t rows, int64_t positions);
void *take(crosscheck *c, int64_t bytes); /* zeroed, lives until the case ends */
void crosscheck_sweep(crosscheck *c);     /* ends a case by hand */

static inline view *run_of(trio *t, int run)
{
    return t != NULL ? &t->at[run] : NULL;
}

/* BLAS against both references and those against each other, within the bound; the same bits for any number of threads; and that nothing
   wrote between the rows */
void expect_close(crosscheck *c, const char *operation, double terms, const trio *result);
void expect_close_numbers(crosscheck *c, const char *operation, double terms, const double value[RUNS]);

/* runs the case as it is with every instruction set this machine has, then once for each of its first `nudges` inputs nudged: each time
   a result must leave its bound */
typedef void crosscheck_case(crosscheck *c, const void *what);
void crosscheck_run(crosscheck *c, crosscheck_case *run, const void *what, int nudges);
#endif

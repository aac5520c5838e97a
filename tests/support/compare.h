#ifndef TESTS_SUPPORT_COMPARE_H
#define TESTS_SUPPORT_COMPARE_H
#include <stdint.h>
#include "tensor/view.h"

double element_get(const attn__view *view, int64_t row, int64_t head, int64_t column);
void element_set(const attn__view *view, int64_t row, int64_t head, int64_t column, double value);

/* The bound of an operation whose results are sums of `terms` products: factor * 2^-24 * sqrt(terms), the factors in one table
   (compare.c). Ends the test when the operation is not in the table. */
double compare_bound(const char *operation, double terms);

/* Largest |got - want| over the largest finite |want|, which counts as `least` when it is smaller (sums that cancel); views of the same shape, float32 or float64 each. NaN and infinities must be
   in the same places (else infinity). Nothing to compare: 0. */
double compare_views(const attn__view *got, const attn__view *want, double least);
double compare_numbers(double got, double want);

/* fails the test when the views differ by more than the bound, and says where */
void expect_views_close(const char *operation, double terms, const attn__view *got, const attn__view *want, double least);
/* absolute difference */
void expect_number(double got, double want, double within);
#endif

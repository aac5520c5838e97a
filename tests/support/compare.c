#include "compare.h"
#include <attn/tensor.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

typedef struct bound {
    const char *operation;
    double factor;
} bound;

/* One line for each operation. Sums that run through exp, tanh or a division carry the error of those too. */
static const bound bounds[] = {
    {"linear", 4},
    {"linear_gated", 8},
    {"linear_d_input", 4},
    {"linear_d_weight", 4},
    {"activation", 8},
    {"activation_back", 40},
    {"gate_back", 40},
    {"residual_norm", 8},
    {"residual_norm_back", 8},
    {"residual", 2},
    {"attention", 8},
    {"attention_back", 16},
    {"attention_bias", 4},
    {"attention_weights", 16},
    {"log_sum_exp", 8},
    {"entropy", 16},
    {"softmax", 8},
    {"softmax_back", 8},
    {"embed", 4},
    {"embed_back", 4},
    {"loss", 8},
    {"rotate", 4},
    {"feature_map", 8},
    {"feature_map_back", 16},
    {"linear_attention", 8},
    {"linear_attention_back", 16},
    {"sequence_project", 4},
    {"sequence_project_back", 4},
    {"recurrent", 8},
    {"recurrent_back", 32},
    {"convolution", 4},
    {"convolution_back", 4},
    {"dropout", 2},
    {"add", 1},
    {"multiply", 2},
    {"copy", 2},
    {"scale", 2},
    {"fill", 1},
    {"dot", 1},
    {"sum_squares", 1},
    {"adam", 8},
};

double compare_bound(const char *operation, double terms)
{
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (strcmp(bounds[i].operation, operation) == 0) return bounds[i].factor * 0x1p-24 * sqrt(terms > 1 ? terms : 1);
    }
    fail_msg("%s has no line in the table of bounds", operation);
    return 0;
}

double element_get(const attn__view *view, int64_t row, int64_t head, int64_t column)
{
    int64_t at = row * view->row_stride + head * view->head_stride + column;
    return view->dtype == ATTN_FLOAT32 ? (double)((const float *)view->data)[at] : ((const double *)view->data)[at];
}

void element_set(const attn__view *view, int64_t row, int64_t head, int64_t column, double value)
{
    int64_t at = row * view->row_stride + head * view->head_stride + column;
    if (view->dtype == ATTN_FLOAT32)
        ((float *)view->data)[at] = (float)value;
    else
        ((double *)view->data)[at] = value;
}

static int same_kind(double got, double want)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return isfinite(got);
}

double compare_numbers(double got, double want)
{
    if (!same_kind(got, want)) return INFINITY;
    return !isfinite(want) || got == want ? 0 : fabs(got - want) / fabs(want);
}

static double difference(const attn__view *got, const attn__view *want, double least, int64_t place[3])
{
    double largest = least, worst = 0;
    for (int64_t r = 0; r < want->rows; r++) {
        for (int64_t h = 0; h < want->heads; h++) {
            for (int64_t c = 0; c < want->width; c++) {
                double w = element_get(want, r, h, c), g = element_get(got, r, h, c), d = same_kind(g, w) ? 0 : INFINITY;
                if (isfinite(w)) largest = fmax(largest, fabs(w));
                if (isfinite(w) && isfinite(g)) d = fabs(g - w);
                if (d <= worst) continue;
                worst = d;
                place[0] = r, place[1] = h, place[2] = c;
            }
        }
    }
    return worst == 0 ? 0 : worst / (largest > 0 ? largest : 0x1p-126);
}

double compare_views(const attn__view *got, const attn__view *want, double least)
{
    int64_t place[3] = {0};
    return difference(got, want, least, place);
}

void expect_views_close(const char *operation, double terms, const attn__view *got, const attn__view *want, double least)
{
    int64_t place[3] = {0};
    double error = difference(got, want, least, place), most = compare_bound(operation, terms);
    if (error <= most) return;
    fail_msg("%s [%lld, %lld, %lld]: got %.9g at (%lld, %lld, %lld), expected %.9g: error %.3g, bound %.3g", operation,
             (long long)want->rows, (long long)want->heads, (long long)want->width, element_get(got, place[0], place[1], place[2]),
             (long long)place[0], (long long)place[1], (long long)place[2], element_get(want, place[0], place[1], place[2]), error, most);
}

void expect_number(double got, double want, double within)
{
    if (same_kind(got, want) && (!isfinite(want) || fabs(got - want) <= within)) return;
    fail_msg("got %.17g, expected %.17g within %g", got, want, within);
}

#include <attn/operations.h>
#include <math.h>
#include "real.h"

#define ROOT_HALF 0.70710678118654752440        /* 1 / sqrt(2) */
#define ROOT_TWO_OVER_PI 0.79788456080286535588 /* sqrt(2 / pi) */
#define NORMAL_PEAK 0.39894228040143267794      /* 1 / sqrt(2 pi) */
#define GELU_CUBIC 0.044715

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double beta_of(const attn__activation *act)
{
    return act->learned_beta != NULL ? (double)*(const real *)act->learned_beta->data : act->beta;
}

double REFERENCE(act)(const attn__activation *act, double u)
{
    switch (act->kind) {
    case ATTN_ACTIVATION_RELU: return u <= 0 ? 0 : u; /* NaN stays NaN */
    case ATTN_ACTIVATION_GELU: return 0.5 * u * erfc(-u * ROOT_HALF);
    case ATTN_ACTIVATION_GELU_TANH: return 0.5 * u * (1 + tanh(ROOT_TWO_OVER_PI * (u + GELU_CUBIC * u * u * u)));
    case ATTN_ACTIVATION_SWISH: return u * sigmoid(beta_of(act) * u);
    case ATTN_ACTIVATION_SIGMOID: return sigmoid(u);
    case ATTN_ACTIVATION_TANH: return tanh(u);
    default: return u;
    }
}

double REFERENCE(act_slope)(const attn__activation *act, double u)
{
    switch (act->kind) {
    case ATTN_ACTIVATION_RELU: return u <= 0 ? 0 : u == u ? 1 : u;
    case ATTN_ACTIVATION_GELU: return 0.5 * erfc(-u * ROOT_HALF) + u * NORMAL_PEAK * exp(-0.5 * u * u);
    case ATTN_ACTIVATION_GELU_TANH: {
        double t = tanh(ROOT_TWO_OVER_PI * (u + GELU_CUBIC * u * u * u));
        if (fabs(t) == 1) return 0.5 * (1 + t); /* flat: not 0 times infinity */
        return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * ROOT_TWO_OVER_PI * (1 + 3 * GELU_CUBIC * u * u);
    }
    case ATTN_ACTIVATION_SWISH: {
        double beta = beta_of(act), s = sigmoid(beta * u);
        if (isinf(beta * u)) return s; /* flat as well */
        return s + beta * u * s * (1 - s);
    }
    case ATTN_ACTIVATION_SIGMOID: return sigmoid(u) * (1 - sigmoid(u));
    case ATTN_ACTIVATION_TANH: return 1 - tanh(u) * tanh(u);
    default: return 1;
    }
}

double REFERENCE(act_beta)(const attn__activation *act, double u)
{
    if (act->kind != ATTN_ACTIVATION_SWISH) return 0;
    double s = sigmoid(beta_of(act) * u);
    return u * s * (u * (1 - s));
}

attn_status REFERENCE(activation)(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop, view *y)
{
    (void)ctx;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t c = 0; c < y->width; c++) {
            double value = REFERENCE(act)(act, (double)row_of(u, r)[c]);
            row_of(y, r)[c] = (real)drop_row(drop, r, c, value);
        }
    }
    return ATTN_OK;
}

/* du (+)= dropout'(dy) act'(u); dbeta += sum of dropout'(dy) d act / d beta */
attn_status REFERENCE(activation_back)(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop,
                                       const view *dy, int add, view *du, view *dbeta)
{
    double beta_sum = 0;
    (void)ctx;
    for (int64_t r = 0; r < dy->rows; r++) {
        for (int64_t c = 0; c < dy->width; c++) {
            double value = (double)row_of(u, r)[c], slope = REFERENCE(act_slope)(act, value);
            double gradient = drop_row(drop, r, c, (double)row_of(dy, r)[c]);
            if (dbeta != NULL) beta_sum += gradient * REFERENCE(act_beta)(act, value);
            put(&row_of(du, r)[c], gradient * slope, add);
        }
    }
    if (dbeta != NULL) put(row_of(dbeta, 0), beta_sum, 1);
    return ATTN_OK;
}

/* y = dropout(act(gate) up); u and du: [rows, 2 width], gate | up */
attn_status REFERENCE(gate_back)(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop, const view *dy,
                                 view *du, view *dbeta)
{
    int64_t width = dy->width;
    double beta_sum = 0;
    (void)ctx;
    for (int64_t r = 0; r < dy->rows; r++) {
        for (int64_t c = 0; c < width; c++) {
            double gate = (double)row_of(u, r)[c], up = (double)row_of(u, r)[width + c];
            double gradient = drop_row(drop, r, c, (double)row_of(dy, r)[c]);
            double opened = REFERENCE(act)(act, gate), slope = REFERENCE(act_slope)(act, gate);
            if (dbeta != NULL) beta_sum += gradient * up * REFERENCE(act_beta)(act, gate);
            row_of(du, r)[c] = (real)(gradient * up * slope);
            row_of(du, r)[width + c] = (real)(gradient * opened);
        }
    }
    if (dbeta != NULL) put(row_of(dbeta, 0), beta_sum, 1);
    return ATTN_OK;
}

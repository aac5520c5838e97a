/* Activations and their slopes. A kind is a constant inside each loop, so that every kind is vector code of its own. */
#include "rows.h"

#define INLINE static inline __attribute__((always_inline))

INLINE float value_of(int32_t kind, float beta, float x)
{
    switch (kind) {
    case ATTN_ACTIVATION_RELU: return x <= 0.0f ? 0.0f : x; /* NaN stays NaN */
    case ATTN_ACTIVATION_GELU: return attn__gelu(x);
    case ATTN_ACTIVATION_GELU_TANH: return attn__gelu_tanh(x);
    case ATTN_ACTIVATION_SWISH: return x * attn__sigmoid(beta * x);
    case ATTN_ACTIVATION_SIGMOID: return attn__sigmoid(x);
    case ATTN_ACTIVATION_TANH: return attn__tanh(x);
    default: return x;
    }
}

/* Slopes are flat to the last bit from here on, of u for GELU and of beta u for Swish; products past it could be 0 times infinity. */
static const float gelu_flat = 14.0f, swish_flat = 104.0f;

INLINE float gelu_slope(float x)
{
    float density = 0.398942280f * attn__exp(-0.5f * x * x);
    float slope = attn__fma(x, density, attn__normal(x));
    return fabsf(x) > gelu_flat ? (x > 0.0f ? 1.0f : 0.0f) : slope;
}

INLINE float gelu_tanh_slope(float x)
{
    float square = x * x;
    float s = attn__sigmoid(1.595769122f * attn__fma(0.044715f * square, x, x));
    float inner = 1.595769122f * attn__fma(0.134145f, square, 1.0f);
    float slope = attn__fma(x * s * (1.0f - s), inner, s);
    return fabsf(x) > gelu_flat ? (x > 0.0f ? 1.0f : 0.0f) : slope;
}

INLINE float swish_slope(float beta, float x)
{
    float z = beta * x, s = attn__sigmoid(z);
    float slope = attn__fma(z * s, 1.0f - s, s);
    return fabsf(z) > swish_flat ? (z > 0.0f ? 1.0f : 0.0f) : slope;
}

INLINE float slope_of(int32_t kind, float beta, float x)
{
    float s;
    switch (kind) {
    case ATTN_ACTIVATION_RELU: return x > 0.0f ? 1.0f : x <= 0.0f ? 0.0f : x;
    case ATTN_ACTIVATION_GELU: return gelu_slope(x);
    case ATTN_ACTIVATION_GELU_TANH: return gelu_tanh_slope(x);
    case ATTN_ACTIVATION_SWISH: return swish_slope(beta, x);
    case ATTN_ACTIVATION_SIGMOID: s = attn__sigmoid(x); return s * (1.0f - s);
    case ATTN_ACTIVATION_TANH: s = attn__tanh(x); return 1.0f - s * s;
    default: return 1.0f;
    }
}

INLINE void run(int slope, int32_t kind, float beta, const float *u, int64_t n, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = slope ? slope_of(kind, beta, u[i]) : value_of(kind, beta, u[i]);
}

INLINE void run_kind(int slope, int32_t kind, float beta, const float *u, int64_t n, float *y)
{
    switch (kind) {
    case ATTN_ACTIVATION_RELU: run(slope, ATTN_ACTIVATION_RELU, beta, u, n, y); break;
    case ATTN_ACTIVATION_GELU: run(slope, ATTN_ACTIVATION_GELU, beta, u, n, y); break;
    case ATTN_ACTIVATION_GELU_TANH: run(slope, ATTN_ACTIVATION_GELU_TANH, beta, u, n, y); break;
    case ATTN_ACTIVATION_SWISH: run(slope, ATTN_ACTIVATION_SWISH, beta, u, n, y); break;
    case ATTN_ACTIVATION_SIGMOID: run(slope, ATTN_ACTIVATION_SIGMOID, beta, u, n, y); break;
    case ATTN_ACTIVATION_TANH: run(slope, ATTN_ACTIVATION_TANH, beta, u, n, y); break;
    default: run(slope, ATTN_ACTIVATION_IDENTITY, beta, u, n, y); break;
    }
}

void BLAS(act_values)(int32_t kind, float beta, const float *u, int64_t n, float *y)
{
    run_kind(0, kind, beta, u, n, y);
}

void BLAS(act_slopes)(int32_t kind, float beta, const float *u, int64_t n, float *y)
{
    run_kind(1, kind, beta, u, n, y);
}

float BLAS(act_beta)(const attn__activation *act)
{
    return act->learned_beta != NULL ? *(const float *)act->learned_beta->data : (float)act->beta;
}

/* the sum of g d(swish) / d(beta) = g u^2 s (1 - s) */
static float beta_sum(float beta, const float *u, const float *g, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float s = attn__sigmoid(beta * u[i]);
        sum += g[i] * (u[i] * s) * (u[i] * (1.0f - s));
    }
    return sum;
}

typedef struct activation_job {
    grid cut;
    int32_t kind, add;
    float beta;
    dropper drop;
    const view *u, *dy;
    view *y;         /* or du */
    double *partial; /* of dbeta, one for each tile; NULL: not wanted */
} activation_job;

static activation_job job_of(const attn__activation *act, const attn__dropout *drop, const view *u, const view *dy, int add, view *y,
                             int64_t columns)
{
    activation_job job = {grid_of(u->rows, columns), act->kind, add, BLAS(act_beta)(act), BLAS(dropper_of)(drop), u, dy, y, NULL};
    return job;
}

static void activation_tile(void *context, int64_t tile, int32_t worker)
{
    const activation_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    float factors[ROWS_PIECE];
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++) {
        for (int64_t at = 0; at < c.count; at += ROWS_PIECE) {
            int64_t column = c.column + at, n = least(ROWS_PIECE, c.count - at);
            float *y = row_of(job->y, row) + column;
            BLAS(act_values)(job->kind, job->beta, row_of(job->u, row) + column, n, y);
            if (!job->drop.on) continue;
            BLAS(dropper_factors)(&job->drop, row, column, n, factors);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] = kept(y[i], factors[i]);
        }
    }
}

attn_status BLAS(activation)(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop, view *y)
{
    activation_job job = job_of(act, drop, u, NULL, 0, y, columns_of(u));
    return attn__run(ctx, job.cut.tiles, activation_tile, &job);
}

/* the gradient that came through dropout: dy itself, or in the small array */
static const float *through_dropout(const dropper *drop, const view *dy, int64_t row, int64_t column, int64_t n, float *small)
{
    const float *g = row_of(dy, row) + column;
    if (!drop->on) return g;
    BLAS(dropper_factors)(drop, row, column, n, small);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) small[i] = kept(g[i], small[i]);
    return small;
}

static void activation_back_tile(void *context, int64_t tile, int32_t worker)
{
    const activation_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    float small[ROWS_PIECE], slope[ROWS_PIECE];
    double sum = 0;
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++) {
        for (int64_t at = 0; at < c.count; at += ROWS_PIECE) {
            int64_t column = c.column + at, n = least(ROWS_PIECE, c.count - at);
            const float *u = row_of(job->u, row) + column, *g = through_dropout(&job->drop, job->dy, row, column, n, small);
            float *du = row_of(job->y, row) + column;
            if (job->partial != NULL) sum += (double)beta_sum(job->beta, u, g, n);
            BLAS(act_slopes)(job->kind, job->beta, u, n, slope);
            if (job->add) {
#pragma omp simd
                for (int64_t i = 0; i < n; i++) du[i] += g[i] * slope[i];
            } else {
#pragma omp simd
                for (int64_t i = 0; i < n; i++) du[i] = g[i] * slope[i];
            }
        }
    }
    if (job->partial != NULL) job->partial[tile] = sum;
}

/* u, du: [rows, 2 width], gates first; dy: [rows, width] */
static void gate_back_tile(void *context, int64_t tile, int32_t worker)
{
    const activation_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    int64_t width = job->cut.columns;
    float small[ROWS_PIECE], slope[ROWS_PIECE], value[ROWS_PIECE];
    double sum = 0;
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++) {
        for (int64_t at = 0; at < c.count; at += ROWS_PIECE) {
            int64_t column = c.column + at, n = least(ROWS_PIECE, c.count - at);
            const float *gate = row_of(job->u, row) + column, *up = gate + width;
            const float *g = through_dropout(&job->drop, job->dy, row, column, n, small);
            float *d_gate = row_of(job->y, row) + column, *d_up = d_gate + width;
            BLAS(act_slopes)(job->kind, job->beta, gate, n, slope);
            BLAS(act_values)(job->kind, job->beta, gate, n, value);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                d_up[i] = g[i] * value[i];
                value[i] = g[i] * up[i];
                d_gate[i] = value[i] * slope[i];
            }
            if (job->partial != NULL) sum += (double)beta_sum(job->beta, gate, value, n);
        }
    }
    if (job->partial != NULL) job->partial[tile] = sum;
}

/* runs the tiles; dbeta += their sums in order */
static attn_status run_with_beta(attn_context *ctx, activation_job *job, attn__tile_function *tile, view *dbeta)
{
    if (dbeta == NULL || job->kind != ATTN_ACTIVATION_SWISH || job->cut.tiles == 0) return attn__run(ctx, job->cut.tiles, tile, job);
    attn__mark mark = attn__arena_mark(ctx->scratch);
    job->partial = attn__scratch(ctx, job->cut.tiles * (int64_t)sizeof(double));
    if (job->partial == NULL) return attn__arena_status(ctx->scratch);
    attn_status status = attn__run(ctx, job->cut.tiles, tile, job);
    double sum = 0;
    if (status == ATTN_OK)
        for (int64_t i = 0; i < job->cut.tiles; i++) sum += job->partial[i];
    *(float *)dbeta->data += (float)sum;
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

attn_status BLAS(activation_back)(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop, const view *dy,
                                  int add, view *du, view *dbeta)
{
    activation_job job = job_of(act, drop, u, dy, add, du, columns_of(u));
    return run_with_beta(ctx, &job, activation_back_tile, dbeta);
}

attn_status BLAS(gate_back)(attn_context *ctx, const attn__activation *act, const view *u, const attn__dropout *drop, const view *dy,
                            view *du, view *dbeta)
{
    activation_job job = job_of(act, drop, u, dy, 0, du, columns_of(dy));
    return run_with_beta(ctx, &job, gate_back_tile, dbeta);
}

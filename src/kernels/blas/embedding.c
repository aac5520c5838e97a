/* Rows of a table, positions, dropout: one visit to each output row. The backward is in embedding_back.c. */
#include "rows.h"

/* Sinusoids are shared between rows: [span, width] for the positions low to low + span - 1 of a call. Each is made in groups of
   GROUP positions: sine and cosine of the first, and from there a turn by one position's angle in double. */
enum { GROUP = 16, WAVE_PAIRS = 64, STEP_RUN = 16 };

typedef struct sinusoid {
    double *step, *turn_sine, *turn_cosine; /* [pairs]: angle of one position, its sine and cosine */
    float *table;                           /* [span, width], or NULL: each row computes its own */
    int64_t low, span, width, pairs;
} sinusoid;

typedef struct embed_job {
    grid cut;
    const view *tokens, *table, *x, *positions;
    float scale;
    int32_t kind;
    attn__places places;
    dropper drop;
    sinusoid waves;
    view *y;
} embed_job;

/* WAVE_PAIRS columns of sines and as many of cosines, turned from row to row */
static void wave_block(const sinusoid *w, int64_t first, int64_t pair)
{
    double sine[WAVE_PAIRS], cosine[WAVE_PAIRS];
    const double *turn_sine = w->turn_sine + pair, *turn_cosine = w->turn_cosine + pair;
    int64_t rows = least(GROUP, w->span - first), count = least(WAVE_PAIRS, w->pairs - pair), whole = least(count, w->width / 2 - pair);
    for (int64_t i = 0; i < count; i++) {
        double angle = (double)(w->low + first) * w->step[pair + i];
        sine[i] = sin(angle);
        cosine[i] = cos(angle);
    }
    for (int64_t row = 0; row < rows; row++) {
        float *out = w->table + (first + row) * w->width + 2 * pair;
#pragma omp simd
        for (int64_t i = 0; i < whole; i++) {
            out[2 * i] = (float)sine[i];
            out[2 * i + 1] = (float)cosine[i];
        }
        if (whole < count) out[2 * whole] = (float)sine[whole]; /* an odd width ends with a sine */
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            double next = sine[i] * turn_cosine[i] + cosine[i] * turn_sine[i];
            cosine[i] = cosine[i] * turn_cosine[i] - sine[i] * turn_sine[i];
            sine[i] = next;
        }
    }
}

static void wave_tile(void *context, int64_t tile, int32_t worker)
{
    const sinusoid *w = context;
    (void)worker;
    for (int64_t pair = 0; pair < w->pairs; pair += WAVE_PAIRS) wave_block(w, tile * GROUP, pair);
}

static attn_status waves_of(attn_context *ctx, const embed_job *job, sinusoid *w)
{
    int64_t rows = job->y->rows, high = job->places.position[0];
    w->low = high;
    for (int64_t row = 0; row < rows; row++) {
        int64_t position = job->places.position[row];
        w->low = least(w->low, position);
        high = position > high ? position : high;
    }
    w->width = columns_of(job->y);
    w->pairs = (w->width + 1) / 2;
    w->step = attn__scratch(ctx, 3 * w->pairs * (int64_t)sizeof(double));
    if (w->step == NULL) return attn__arena_status(ctx->scratch);
    double ratio = 1 / pow(10000, 2 / (double)w->width);
    for (int64_t i = 0; i < w->pairs; i++) /* runs of products, within 2e-15: a pow takes longer than a sine and cosine */
        w->step[i] = i % STEP_RUN == 0 ? 1 / pow(10000, (double)(2 * i) / (double)w->width) : w->step[i - 1] * ratio;
    w->span = high - w->low < rows ? high - w->low + 1 : 0; /* no table that is longer than the call */
    if (w->span < GROUP) return ATTN_OK;
    w->turn_sine = w->step + w->pairs;
    w->turn_cosine = w->turn_sine + w->pairs;
    for (int64_t i = 0; i < w->pairs; i++) {
        w->turn_sine[i] = sin(w->step[i]);
        w->turn_cosine[i] = cos(w->step[i]);
    }
    w->table = attn__scratch(ctx, w->span * w->width * (int64_t)sizeof(float)); /* no more than y takes */
    if (w->table == NULL) return attn__arena_status(ctx->scratch);
    return attn__run(ctx, tiles_of(w->span, GROUP), wave_tile, w);
}

/* y += the sinusoid of a position, columns column .. column + n; column is even */
static void add_wave(const sinusoid *w, int64_t position, int64_t column, int64_t n, float *y)
{
    if (w->table != NULL) {
        const float *from = w->table + (position - w->low) * w->width + column;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] += from[i];
        return;
    }
    for (int64_t i = 0; i < n; i += 2) {
        double angle = (double)position * w->step[(column + i) / 2];
        y[i] += (float)sin(angle);
        if (i + 1 < n) y[i + 1] += (float)cos(angle);
    }
}

static void embed_piece(const embed_job *job, int64_t row, int64_t column, int64_t n)
{
    float *y = row_of(job->y, row) + column, factors[ROWS_PIECE];
    if (job->tokens != NULL) {
        const float *from = row_of(job->table, attn__integer_at(job->tokens, row)) + column;
        float scale = job->scale;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = scale * from[i];
    } else {
        memcpy(y, row_of(job->x, row) + column, (size_t)n * sizeof *y);
    }
    if (job->kind == ATTN_POSITIONS_SINUSOIDAL) add_wave(&job->waves, job->places.position[row], column, n, y);
    if (job->kind == ATTN_POSITIONS_LEARNED) {
        const float *from = row_of(job->positions, job->places.position[row]) + column;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] += from[i];
    }
    if (!job->drop.on) return;
    BLAS(dropper_factors)(&job->drop, row, column, n, factors);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = kept(y[i], factors[i]);
}

static void embed_tile(void *context, int64_t tile, int32_t worker)
{
    const embed_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    for (int64_t row = c.first; row < c.end; row++)
        for (int64_t at = 0; at < c.count; at += ROWS_PIECE) embed_piece(job, row, c.column + at, least(ROWS_PIECE, c.count - at));
}

static attn_status check_rows(attn_context *ctx, const embed_job *job)
{
    attn_status status = job->tokens != NULL ? attn__expect_indices(ctx, "tokens", job->tokens, job->table->rows) : ATTN_OK;
    if (status != ATTN_OK) return status;
    for (int64_t row = 0; job->kind == ATTN_POSITIONS_LEARNED && row < job->y->rows; row++) {
        int64_t position = job->places.position[row];
        if (position >= job->positions->rows)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "layout: got position %lld at row %lld, expected 0 to %lld",
                              (long long)position, (long long)row, (long long)job->positions->rows - 1);
    }
    return ATTN_OK;
}

attn_status BLAS(embed)(attn_context *ctx, const view *tokens, const view *table, const view *x, double scale, int32_t kind,
                        const view *positions, attn__places places, const attn__dropout *drop, view *y)
{
    embed_job job = {.cut = grid_of(y->rows, columns_of(y)), .tokens = tokens, .table = table, .x = x, .positions = positions};
    job.scale = (float)scale;
    job.kind = kind;
    job.places = places;
    job.drop = BLAS(dropper_of)(drop);
    job.y = y;
    attn_status status = check_rows(ctx, &job);
    if (status != ATTN_OK || job.cut.tiles == 0) return status;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    if (kind == ATTN_POSITIONS_SINUSOIDAL) status = waves_of(ctx, &job, &job.waves);
    if (status == ATTN_OK) status = attn__run(ctx, job.cut.tiles, embed_tile, &job);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

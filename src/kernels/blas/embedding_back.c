/* Gradients of embedding tables without atomics: rows are sorted by the table line they belong to, in row order within a line, and each
   line is summed by one tile. So neither the number of threads nor the borders of the tiles change a bit. */
#include "rows.h"

enum { LINES_TILES = 64 };

typedef struct scatter_job {
    const view *dy;
    view *table; /* [lines, width] */
    const dropper *drop;
    const int64_t *order, *start; /* rows sorted by line: [rows]; of line t: order[start[t]] .. order[start[t + 1] - 1] */
    float scale;
    int64_t lines; /* per tile */
} scatter_job;

/* line += scale * dropout'(dy of row) */
static void add_row(const scatter_job *job, int64_t row, float *line)
{
    const float *dy = row_of(job->dy, row);
    int64_t width = columns_of(job->dy);
    float factors[ROWS_PIECE], scale = job->scale;
    if (!job->drop->on) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) line[i] = attn__fma(scale, dy[i], line[i]);
        return;
    }
    for (int64_t at = 0; at < width; at += ROWS_PIECE) {
        int64_t end = least(at + ROWS_PIECE, width);
        BLAS(dropper_factors)(job->drop, row, at, end - at, factors);
#pragma omp simd
        for (int64_t i = at; i < end; i++) line[i] = attn__fma(scale, kept(dy[i], factors[i - at]), line[i]);
    }
}

static void scatter_tile(void *context, int64_t tile, int32_t worker)
{
    const scatter_job *job = context;
    int64_t first = tile * job->lines, end = least(first + job->lines, job->table->rows);
    (void)worker;
    for (int64_t line = first; line < end; line++)
        for (int64_t i = job->start[line]; i < job->start[line + 1]; i++) add_row(job, job->order[i], row_of(job->table, line));
}

/* counting sort of the rows by tokens, or by positions when tokens is NULL; lines outside the table were refused by the forward */
static attn_status scatter(attn_context *ctx, const view *tokens, const int64_t *positions, double scale, const dropper *drop,
                           const view *dy, view *table)
{
    int64_t rows = dy->rows, *start = attn__scratch(ctx, (table->rows + 2) * (int64_t)sizeof *start);
    int64_t *order = start != NULL ? attn__scratch(ctx, rows * (int64_t)sizeof *order) : NULL;
    if (order == NULL) return attn__arena_status(ctx->scratch);
    memset(start, 0, (size_t)(table->rows + 2) * sizeof *start);
    for (int64_t row = 0; row < rows; row++) {
        int64_t line = tokens != NULL ? attn__integer_at(tokens, row) : positions[row];
        if (line >= 0 && line < table->rows) start[line + 2]++;
    }
    for (int64_t line = 2; line < table->rows + 2; line++) start[line] += start[line - 1];
    for (int64_t row = 0; row < rows; row++) {
        int64_t line = tokens != NULL ? attn__integer_at(tokens, row) : positions[row];
        if (line >= 0 && line < table->rows) order[start[line + 1]++] = row;
    }
    scatter_job job = {dy, table, drop, order, start, (float)scale, tiles_of(table->rows, LINES_TILES)};
    return attn__run(ctx, job.lines > 0 ? tiles_of(table->rows, job.lines) : 0, scatter_tile, &job);
}

attn_status BLAS(embed_back)(attn_context *ctx, const view *tokens, double scale, attn__places places, const attn__dropout *drop,
                             const view *dy, view *dtable, view *dpositions, int add, view *dx)
{
    dropper dropped = BLAS(dropper_of)(drop);
    attn_status status = ATTN_OK;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    if (dtable != NULL) status = scatter(ctx, tokens, NULL, scale, &dropped, dy, dtable);
    attn__arena_rewind(ctx->scratch, mark);
    if (status == ATTN_OK && dpositions != NULL) status = scatter(ctx, NULL, places.position, 1, &dropped, dy, dpositions);
    attn__arena_rewind(ctx->scratch, mark);
    if (status == ATTN_OK && dx != NULL) status = BLAS(dropout)(ctx, dy, drop, add, dx);
    return status;
}

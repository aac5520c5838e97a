#include <math.h>
#include <string.h>
#include "real.h"

/* (5.2), (5.3): column 2i is sin(position / 10000^(2i / d)), column 2i + 1 the cosine; an odd width ends with a sine */
static double position_code(int64_t position, int64_t column, int64_t width)
{
    double angle = (double)position / pow(10000, (double)(column - column % 2) / (double)width);
    return column % 2 == 0 ? sin(angle) : cos(angle);
}

static attn_status check_rows(attn_context *ctx, const view *tokens, const view *table, const view *learned, attn__places places,
                              int64_t rows)
{
    attn_status status = tokens != NULL ? attn__expect_indices(ctx, "tokens", tokens, table->rows) : ATTN_OK;
    if (status != ATTN_OK) return status;
    for (int64_t r = 0; learned != NULL && r < rows; r++) {
        int64_t position = places.position[r];
        if (position >= learned->rows) {
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "layout: got position %lld at row %lld, expected 0 to %lld",
                              (long long)position, (long long)r, (long long)learned->rows - 1);
        }
    }
    return ATTN_OK;
}

attn_status REFERENCE(embed)(attn_context *ctx, const view *tokens, const view *table, const view *x, double scale, int32_t kind,
                             const view *positions, attn__places places, const attn__dropout *drop, view *y)
{
    const view *learned = kind == ATTN_POSITIONS_LEARNED ? positions : NULL;
    attn_status status = check_rows(ctx, tokens, table, learned, places, y->rows);
    if (status != ATTN_OK) return status;
    for (int64_t r = 0; r < y->rows; r++) {
        for (int64_t c = 0; c < y->width; c++) {
            double value = tokens != NULL ? scale * (double)row_of(table, attn__integer_at(tokens, r))[c] : (double)row_of(x, r)[c];
            if (kind == ATTN_POSITIONS_SINUSOIDAL) value += position_code(places.position[r], c, y->width);
            if (learned != NULL) value += (double)row_of(learned, places.position[r])[c];
            row_of(y, r)[c] = (real)drop_row(drop, r, c, value);
        }
    }
    return ATTN_OK;
}

/* dtable[index of row] += scale dropout'(dy) over rows, with the sum of one line of the table in double; tokens NULL: the index is the position */
static void scatter(const view *tokens, attn__places places, double scale, const attn__dropout *drop, const view *dy, double *line,
                    view *dtable)
{
    for (int64_t t = 0; t < dtable->rows; t++) {
        memset(line, 0, (size_t)dtable->width * sizeof *line);
        int64_t found = 0;
        for (int64_t r = 0; r < dy->rows; r++) {
            if ((tokens != NULL ? attn__integer_at(tokens, r) : places.position[r]) != t) continue;
            for (int64_t c = 0; c < dtable->width; c++) line[c] += scale * drop_row(drop, r, c, (double)row_of(dy, r)[c]);
            found++;
        }
        for (int64_t c = 0; found > 0 && c < dtable->width; c++) put(&row_of(dtable, t)[c], line[c], 1);
    }
}

attn_status REFERENCE(embed_back)(attn_context *ctx, const view *tokens, double scale, attn__places places, const attn__dropout *drop,
                                  const view *dy, view *dtable, view *dpositions, int add, view *dx)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    double *line = REFERENCE(doubles)(ctx, dy->width);
    if (line == NULL) return scratch_status(ctx);
    if (dtable != NULL) scatter(tokens, places, scale, drop, dy, line, dtable);
    if (dpositions != NULL) scatter(NULL, places, 1, drop, dy, line, dpositions);
    for (int64_t r = 0; dx != NULL && r < dx->rows; r++) {
        for (int64_t c = 0; c < dx->width; c++) put(&row_of(dx, r)[c], drop_row(drop, r, c, (double)row_of(dy, r)[c]), add);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return ATTN_OK;
}

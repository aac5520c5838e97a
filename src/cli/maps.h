#ifndef ATTN_CLI_MAPS_H
#define ATTN_CLI_MAPS_H
#include <attn/attn.h>
#include <string.h>

enum { MOST_MAPS = 1024, MAP_NAME = 40 };

/* What a model's attention did with one text, or with a source and its target: a row for each token that reads. */
typedef struct maps {
    int64_t layers, heads, rows, columns;
    float *weights; /* [layers, heads, rows, columns] */
    float *entropy; /* [layers, heads, rows] */
    char *gone;     /* [layers, heads]: 1 where a head was taken out */
    char (*row_names)[MAP_NAME], (*column_names)[MAP_NAME];
    int causal; /* row i sees columns 0 to i */
    const char *title, *legend;
} maps;

/* Memory for the sizes in m, names empty. 0, or the exit status after one line; closed in either case. */
int open_maps(maps *m, const char *place);
void close_maps(maps *m);

/* tokens as people read them: spaces and line ends get a sign */
void name_tokens(attn_context *ctx, const attn_vocabulary *vocabulary, int64_t count, const int32_t *tokens, char (*names)[MAP_NAME]);

/* Weights and entropies of a part (ATTN_INSPECT_*) of every layer for a batch of one sequence. */
attn_status fill_maps(attn_context *ctx, const attn_transformer *model, int32_t part, const attn_batch *batch, maps *m);

/* The maps as an SVG picture, a layer to a row; the caller frees it. NULL: no memory. */
char *draw_maps(const maps *m);

/* The picture in a file, and a line that says so. 0, or the exit status after one line. */
int save_maps(const maps *m, const char *path);
#endif

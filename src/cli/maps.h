#ifndef ATTN_CLI_MAPS_H
#define ATTN_CLI_MAPS_H
#include <attn/attn.h>
#include <string.h>

/* What a model's attention did with one text. */
typedef struct maps {
    int64_t layers, heads, tokens;
    float *weights; /* [layers, heads, tokens, tokens] */
    float *entropy; /* [layers, heads, tokens] */
    char *gone;     /* [layers, heads]: 1 where a head was taken out */
} maps;

/* The maps as an SVG picture, a layer to a row; the caller frees it. NULL: no memory. */
char *draw_maps(attn_context *ctx, const maps *m, const attn_vocabulary *vocabulary, const int32_t *tokens);
#endif

#ifndef ATTN_MODELS_HEADS_H
#define ATTN_MODELS_HEADS_H
#include <attn/transformer.h>
#include "../core/context.h"

/* Which heads of self-attention are left in a model, for the layers that have lost some. The one place that is written to files. */
typedef struct attn__kept {
    int64_t decoder, layer, count; /* decoder 0: of the encoder */
    const int64_t *heads;          /* [count]: numbers at creation, rising */
} attn__kept;

typedef struct attn__left {
    attn__memory *memory;
    int64_t bytes, count;
    attn__kept *at;   /* [count], rising by stack and layer; their heads lie in `numbers` */
    int64_t *numbers; /* those of all, one behind another */
} attn__left;

/* room for so many layers and numbers */
attn_status attn__left_create(attn_context *ctx, int64_t layers, int64_t numbers, attn__left **out);
attn_status attn__left_copy(attn_context *ctx, const attn__left *from, attn__left **out); /* NULL from: NULL */
void attn__left_free(attn__left *heads);                                                  /* NULL is fine */
const attn__kept *attn__left_of(const attn__left *heads, int64_t decoder, int64_t layer); /* NULL: all are there */
int attn__left_same(const attn__left *a, const attn__left *b);                            /* NULL: all are there */
/* 1 when rising numbers consist of whole groups of `group` */
int attn__left_grouped(const int64_t *numbers, int64_t count, int64_t group);

/* The metadata under ATTN__HEADS_KEY: {"decoder.layers.1":[0,2]}. text: to be deallocated, bytes + 1 of it. */
#define ATTN__HEADS_KEY "attn.heads"
attn_status attn__left_text(attn_context *ctx, const attn__left *heads, char **text, int64_t *bytes);
/* options resolved; BAD_FILE for what no model of these options has. text NULL: *out NULL, all are there. */
attn_status attn__left_parse(attn_context *ctx, const char *path, const char *text, const attn_transformer_options *options,
                             attn__left **out);
#endif

#include <stdio.h>
#include <stdlib.h>
#include "files.h"
#include "maps.h"
#include "message.h"

int open_maps(maps *m, const char *place)
{
    const int64_t count = m->layers * m->heads;
    if (count > MOST_MAPS)
        return fail(EXIT_INPUT, "%s: got %lld layers of %lld heads, expected at most %d maps", place, (long long)m->layers,
                    (long long)m->heads, (int)MOST_MAPS);
    m->weights = calloc((size_t)(count * m->rows * m->columns + 1), sizeof *m->weights);
    m->entropy = calloc((size_t)(count * m->rows + 1), sizeof *m->entropy);
    m->gone = calloc((size_t)(count + 1), 1);
    m->row_names = calloc((size_t)m->rows + 1, sizeof *m->row_names);
    m->column_names = calloc((size_t)m->columns + 1, sizeof *m->column_names);
    if (m->weights != NULL && m->entropy != NULL && m->gone != NULL && m->row_names != NULL && m->column_names != NULL) return 0;
    return fail(EXIT_MACHINE, "no memory for the maps");
}

void close_maps(maps *m)
{
    free(m->weights);
    free(m->entropy);
    free(m->gone);
    free(m->row_names);
    free(m->column_names);
}

void name_tokens(attn_context *ctx, const attn_vocabulary *vocabulary, int64_t count, const int32_t *tokens, char (*names)[MAP_NAME])
{
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes = 0;
        char decoded[24] = "";
        if (attn_vocabulary_decode(ctx, vocabulary, &tokens[i], 1, (int64_t)sizeof decoded, decoded, &bytes) != ATTN_OK)
            strcpy(decoded, "...");
        if (strcmp(decoded, " ") == 0) strcpy(decoded, "\xe2\x90\xa3");
        if (strcmp(decoded, "\n") == 0) strcpy(decoded, "\xe2\x8f\x8e");
        snprintf(names[i], MAP_NAME, "%s", decoded);
    }
}

/* heads that were read one behind another go to their places, the last one first: none has a smaller number than its place */
static void spread(maps *m, int64_t layer, const int64_t *numbers, int64_t count)
{
    const int64_t each = m->rows * m->columns;
    float *w = m->weights + layer * m->heads * each, *e = m->entropy + layer * m->heads * m->rows;
    memset(m->gone + layer * m->heads, 1, (size_t)m->heads);
    for (int64_t h = count - 1; h >= 0; h--) {
        m->gone[layer * m->heads + numbers[h]] = 0;
        memmove(w + numbers[h] * each, w + h * each, (size_t)each * sizeof *w);
        memmove(e + numbers[h] * m->rows, e + h * m->rows, (size_t)m->rows * sizeof *e);
    }
}

/* the heads of a layer that are there: removal is of self-attention's alone */
static attn_status heads_of(attn_context *ctx, const attn_transformer *model, int32_t part, int64_t layer, const maps *m, int64_t *numbers,
                            int64_t *count)
{
    if (part != ATTN_INSPECT_CROSS)
        return attn_transformer_heads(ctx, model, part == ATTN_INSPECT_DECODER, layer, MOST_MAPS, numbers, count);
    for (int64_t h = 0; h < m->heads; h++) numbers[h] = h;
    *count = m->heads;
    return ATTN_OK;
}

attn_status fill_maps(attn_context *ctx, const attn_transformer *model, int32_t part, const attn_batch *batch, maps *m)
{
    attn_inspect_request r;
    int64_t numbers[MOST_MAPS], shape[3] = {0, m->rows, m->columns};
    attn_status status = attn_inspect_request_init(&r, sizeof r);
    r.part = part;
    for (r.layer = 0; status == ATTN_OK && r.layer < m->layers; r.layer++) {
        attn_tensor *weights = NULL, *entropy = NULL;
        status = heads_of(ctx, model, part, r.layer, m, numbers, &shape[0]);
        if (status == ATTN_OK)
            status = attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, shape, NULL, m->weights + r.layer * m->heads * m->rows * m->columns, &weights);
        if (status == ATTN_OK)
            status = attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, shape, NULL, m->entropy + r.layer * m->heads * m->rows, &entropy);
        r.weights = weights;
        r.entropy = entropy;
        if (status == ATTN_OK) status = attn_transformer_inspect(ctx, model, batch, &r);
        if (status == ATTN_OK) spread(m, r.layer, numbers, shape[0]);
        attn_tensor_free(weights);
        attn_tensor_free(entropy);
    }
    return status;
}

int save_maps(const maps *m, const char *path)
{
    const char *problem = NULL;
    int64_t count = 0;
    char *picture = draw_maps(m);
    if (picture == NULL) return fail(EXIT_MACHINE, "no memory for the picture");
    int bad = replace_file(path, picture, (int64_t)strlen(picture), &problem);
    free(picture);
    if (bad) return fail(EXIT_MACHINE, "%s: cannot be written: %s", path, problem);
    for (int64_t i = 0; i < m->layers * m->heads; i++) count += !m->gone[i];
    printf("%s: %lld map%s of %lld", path, (long long)count, count == 1 ? "" : "s", (long long)m->rows);
    if (!m->causal) printf(" target and %lld source", (long long)m->columns);
    printf(" tokens\n");
    return 0;
}

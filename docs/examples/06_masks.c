/* Draws what each mask lets through, as libattn itself sees it: masks.svg. Queries go down, keys go right; with queries of zeros a query
   gives the same weight to all that it sees.
   cc 06_masks.c $(pkg-config --cflags --libs libattn) -lm */
#include <attn/attn.h>
#include <stdio.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)
enum { N = 32, CELL = 5, PANEL = N * CELL + 24, ACROSS = 4, MASKS = 12 };

int main(void)
{
    static float zeros[N], weights[N][N];
    const int64_t one_head[3] = {N, 1, 1}, square[3] = {1, N, N}, globals[2] = {0, 16};
    const char *names[MASKS] = {"causal",        "window", "dilated",     "global",        "strided", "its local part",
                                "its summaries", "fixed",  "logarithmic", "random blocks", "BigBird", "Longformer"};
    attn_context *ctx = NULL;
    attn_tensor *x = NULL, *w = NULL;
    attn_layout *layout = NULL;
    attn_mask *m[MASKS] = {NULL}, *part = NULL;
    TRY(attn_context_create(NULL, &ctx));
    TRY(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, one_head, NULL, zeros, &x));
    TRY(attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, square, NULL, weights, &w));
    TRY(attn_layout_create(ctx, 1, &layout));
    TRY(attn_layout_set(ctx, layout, 1, &(attn_segment){0, N, 0, 0}));
    const int32_t last = ATTN_ALIGN_LAST, both = ATTN_PART_LOCAL | ATTN_PART_SUMMARY;
    TRY(attn_mask_causal(ctx, last, &m[0]));
    TRY(attn_mask_window(ctx, last, 3, 3, 1, &m[1]));
    TRY(attn_mask_window(ctx, last, 4, 4, 3, &m[2]));
    TRY(attn_mask_global(ctx, last, 2, globals, &m[3]));
    TRY(attn_mask_strided(ctx, last, ATTN_DERIVED, both, &m[4]));
    TRY(attn_mask_strided(ctx, last, ATTN_DERIVED, ATTN_PART_LOCAL, &m[5]));
    TRY(attn_mask_strided(ctx, last, ATTN_DERIVED, ATTN_PART_SUMMARY, &m[6]));
    TRY(attn_mask_fixed(ctx, last, 8, 2, both, &m[7]));
    TRY(attn_mask_logarithmic(ctx, last, 0, &m[8]));
    TRY(attn_mask_random(ctx, last, 4, 2, 7, &m[9]));
    TRY(attn_mask_union(ctx, m[1], m[3], &part)); /* a window and global tokens ... */
    TRY(attn_mask_union(ctx, part, m[9], &m[10]));
    TRY(attn_mask_intersection(ctx, part, m[0], &m[11]));
    FILE *file = fopen("masks.svg", "w");
    if (file == NULL) return perror("masks.svg"), 1;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            ACROSS * PANEL, MASKS / ACROSS * (PANEL + 16));
    for (int p = 0; p < MASKS; p++) {
        const int left = p % ACROSS * PANEL + 10, top = p / ACROSS * (PANEL + 16) + 24;
        int64_t seen = 0, layers = 0;
        TRY(attn_attention_weights(ctx, x, x, layout, layout, m[p], NULL, 0, NULL, 0, 0, 0, w));
        TRY(attn_mask_pairs(ctx, m[p], 1, layout, layout, &seen, NULL));
        TRY(attn_mask_path(ctx, m[p], N, &layers, NULL));
        fprintf(file, "<text x=\"%d\" y=\"%d\">%s: %lld pairs, path %lld</text>\n<path fill=\"#1f77b4\" d=\"", left, top - 6, names[p],
                (long long)seen, (long long)layers);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                if (weights[i][j] > 0) fprintf(file, "M%d %dh4v4h-4z", left + j * CELL, top + i * CELL);
        fprintf(file, "\"/>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n", left - 1, top - 1,
                N * CELL + 1, N * CELL + 1);
    }
    fprintf(file, "</svg>\n");
    if (fclose(file) != 0) return perror("masks.svg"), 1;
    for (int p = 0; p < MASKS; p++) attn_mask_free(m[p]);
    attn_mask_free(part);
    attn_layout_free(layout);
    attn_tensor_free(w);
    attn_tensor_free(x);
    attn_context_free(ctx);
    return 0;
}

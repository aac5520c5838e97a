/* Draws where a query looks by its place alone, form after form of positions, and what forms of linear cost make of the same queries and keys:
   forms.svg. Queries go down, keys go right, dark is a large weight. Values are the rows of the identity, so that an output is its weights.
   cc 09_forms.c $(pkg-config --cflags --libs libattn) -lm */
#include <attn/attn.h>
#include <math.h>
#include <stdio.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)
enum { N = 32, SIZE = 32, CELL = 5, PANEL = N * CELL + 24, ACROSS = 4, PANELS = 12, REACH = 8, BUCKETS = 16, PROJECTED = 8, LEVELS = 10 };

static float zeros[N][SIZE], ones[N][SIZE], placed[N][SIZE], turned[N][SIZE], query[N][SIZE], key[N][SIZE], identity[N][N], weights[N][N];
static float slope[1] = {0.35f}, bucket[BUCKETS], relative[2 * REACH + 1][SIZE], pair[N][N], projection[PROJECTED][N];

static float noise(int i)
{
    return sinf(12.9898f * (float)i) + sinf(4.1414f * (float)i + 1);
}

/* numbers that training would find: nearer buckets weigh more, two places back counts, places of one half of the text belong together */
static void fill(void)
{
    for (int i = 0; i < BUCKETS; i++) bucket[i] = -0.6f * (float)(i % 8) - (i >= BUCKETS / 2 ? 1.5f : 0);
    for (int c = 0; c <= 2 * REACH; c++)
        for (int d = 0; d < SIZE; d++) relative[c][d] = c == REACH - 2 ? 0.4f : c == 0 || c == 2 * REACH ? -0.5f : 0;
    for (int i = 0; i < N; i++) {
        identity[i][i] = 1;
        for (int j = 0; j < N; j++) pair[i][j] = i / (N / 2) == j / (N / 2) ? 2 : 0;
        for (int d = 0; d < SIZE; d++) {
            ones[i][d] = 1;
            query[i][d] = 1.2f * noise(i * SIZE + d);
            key[i][d] = i % 5 == 2 ? query[N - 1 - i][d] : 0.8f * noise(7919 + i * SIZE + d);
        }
    }
    for (int i = 0; i < PROJECTED; i++)
        for (int j = 0; j < N; j++) projection[i][j] = 1.2f * noise(31 + i * N + j);
}

/* one path for the cells of each of LEVELS shades of a row's largest weight; red: below 0, which no softmax gives */
static void draw(FILE *file, int panel, const char *name)
{
    const int left = panel % ACROSS * PANEL + 10, top = panel / ACROSS * (PANEL + 16) + 24;
    float most[N] = {0};
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) most[i] = fmaxf(most[i], fabsf(weights[i][j]));
    fprintf(file, "<text x=\"%d\" y=\"%d\">%s</text>\n", left, top - 6, name);
    for (int level = -LEVELS; level <= LEVELS; level++) {
        fprintf(file, "<path fill=\"%s\" fill-opacity=\"%.2f\" d=\"", level > 0 ? "#1f77b4" : "#d62728", fabs((double)level / LEVELS));
        for (int i = 0; level != 0 && i < N; i++)
            for (int j = 0; j < N; j++)
                if (lroundf(LEVELS * weights[i][j] / most[i]) == level) fprintf(file, "M%d %dh4v4h-4z", left + j * CELL, top + i * CELL);
        fprintf(file, "\"/>\n");
    }
    fprintf(file, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n", left - 1, top - 1, N * CELL + 1,
            N * CELL + 1);
}

int main(void)
{
    const struct {
        void *data;
        int32_t rank;
        int64_t shape[4];
    } of[] = {{ones, 3, {N, 1, SIZE}},   {placed, 3, {N, 1, SIZE}},
              {turned, 3, {N, 1, SIZE}}, {query, 3, {N, 1, SIZE}},
              {key, 3, {N, 1, SIZE}},    {identity, 3, {N, 1, N}},
              {weights, 3, {N, 1, N}},   {slope, 1, {1}},
              {bucket, 2, {BUCKETS, 1}}, {relative, 2, {2 * REACH + 1, SIZE}},
              {pair, 4, {1, 1, N, N}},   {projection, 2, {PROJECTED, N}},
              {zeros, 2, {N, SIZE}},     {placed, 2, {N, SIZE}}};
    enum { ONES, PLACED, TURNED, QUERY, KEY, VALUE, OUT, SLOPE, BUCKET, RELATIVE, PAIR, PROJECTION, ROWS, PLACED_ROWS, TENSORS };
    const char *names[PANELS] = {"sinusoidal, added",  "rotary",          "ALiBi",     "ALiBi, causal",
                                 "T5 buckets",         "relative (Shaw)", "of pairs",  "relative and pairs",
                                 "softmax of q and k", "linear, elu + 1", "Performer", "Linformer"};
    const int32_t kinds[PANELS] = {
        0, 0, ATTN_BIAS_LINEAR, ATTN_BIAS_LINEAR, ATTN_BIAS_BUCKETS, ATTN_BIAS_RELATIVE, ATTN_BIAS_PAIR, ATTN_BIAS_RELATIVE};
    const int tables[PANELS] = {0, 0, SLOPE, SLOPE, BUCKET, RELATIVE, PAIR, RELATIVE};
    attn_context *ctx = NULL;
    attn_tensor *t[TENSORS];
    attn_mask *causal = NULL;
    attn_linear_attention_options linear, performer;
    fill();
    TRY(attn_context_create(NULL, &ctx));
    for (int i = 0; i < TENSORS; i++) TRY(attn_tensor_wrap(ctx, ATTN_FLOAT32, of[i].rank, of[i].shape, NULL, of[i].data, &t[i]));
    TRY(attn_mask_causal(ctx, ATTN_ALIGN_LAST, &causal));
    TRY(attn_linear_attention_options_init(&linear, sizeof linear));
    performer = linear;
    performer.map = ATTN_FEATURES_POSITIVE;
    performer.features = 256;
    FILE *file = fopen("forms.svg", "w");
    if (file == NULL) return perror("forms.svg"), 1;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            ACROSS * PANEL, PANELS / ACROSS * (PANEL + 16));
    TRY(attn_positions_sinusoidal(ctx, NULL, t[ROWS], NULL, t[PLACED_ROWS]));
    TRY(attn_rotary(ctx, NULL, t[ONES], NULL, NULL, t[TURNED]));
    for (int p = 0; p < PANELS; p++) {
        attn_tensor *const q = p == 0 ? t[PLACED] : p == 1 ? t[TURNED] : p < 8 ? t[ONES] : t[QUERY], *const k = p < 8 ? q : t[KEY];
        attn_attention_bias first, second;
        const attn_attention_bias *biases[2] = {&first, &second};
        TRY(attn_attention_bias_init(&first, sizeof first));
        first.kind = kinds[p];
        first.reach = p == 4 ? 24 : REACH;
        first.table = p < 8 ? t[tables[p]] : NULL;
        second = first;
        second.kind = ATTN_BIAS_PAIR;
        second.table = t[PAIR];
        if (p < 9)
            TRY(attn_biased_attention(ctx, NULL, q, k, t[VALUE], NULL, NULL, p == 3 ? causal : NULL, NULL,
                                      p < 2 || p == 8 ? 0
                                      : p == 7        ? 2
                                                      : 1,
                                      biases, t[OUT]));
        else if (p == 11)
            TRY(attn_linformer_attention(ctx, NULL, q, k, t[VALUE], t[PROJECTION], NULL, NULL, NULL, NULL, NULL, t[OUT]));
        else
            TRY(attn_linear_attention(ctx, NULL, q, k, t[VALUE], NULL, NULL, p == 9 ? &linear : &performer, t[OUT]));
        draw(file, p, names[p]);
    }
    fprintf(file, "</svg>\n");
    if (fclose(file) != 0) return perror("forms.svg"), 1;
    attn_mask_free(causal);
    for (int i = 0; i < TENSORS; i++) attn_tensor_free(t[i]);
    attn_context_free(ctx);
    return 0;
}

#include "maps.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "picture.h"

/* a map's side and what is around it */
enum { SIDE = 200, GAP = 28, LEFT = 90, TOP = 96, PROFILE = 300, LABEL = 15 };
static const char *const COLOURS[] = {"#1f5fa8", "#c8501e", "#2e8540", "#7b3fa0", "#b8860b", "#0b7a8a", "#a8324a", "#5b6570"};

static void put_names(picture *p, int64_t count, char (*names)[MAP_NAME], double y, double x, int down)
{
    double cell = (double)SIDE / (double)count, size = fmin(11, cell * 0.9);
    for (int64_t i = 0; i < count && cell >= 4; i++) {
        double at = ((double)i + 0.5) * cell;
        put(p, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\" text-anchor=\"%s\">", down ? x - 4 : x + at,
            down ? y + at + size / 3 : y - 4, size, down ? "end" : "middle");
        put_text(p, names[i]);
        put(p, "</text>\n");
    }
}

/* weights as squares of ink: the darker the more; what may not be seen is grey */
static void put_map(picture *p, const maps *m, int64_t layer, int64_t head, double x, double y)
{
    const int64_t rows = m->rows, columns = m->columns;
    const float *w = m->weights + (layer * m->heads + head) * rows * columns;
    double high = (double)SIDE / (double)rows, wide = (double)SIDE / (double)columns;
    put(p, "<g transform=\"translate(%.1f %.1f)\"><rect width=\"%d\" height=\"%d\" fill=\"#ffffff\" stroke=\"#c4cad1\"/>\n", x, y, SIDE,
        SIDE);
    if (m->gone[layer * m->heads + head]) {
        put(p, "</g>\n<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\" fill=\"#5b6570\">head %lld was taken out</text>\n", x, y + SIDE + 14,
            (long long)head);
        return;
    }
    if (m->causal) {
        put(p, "<path d=\"M%.2f 0", wide);
        for (int64_t i = 0; i + 1 < rows; i++) put(p, "V%.2fH%.2f", (double)(i + 1) * high, (double)(i + 2) * wide);
        put(p, "V0Z\" fill=\"#eef0f3\"/>\n");
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double ink = sqrt((double)w[i * columns + j]); /* small weights are to be seen too */
            if (ink < 0.03) continue;
            put(p, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#123f77\" fill-opacity=\"%.2f\"/>\n",
                (double)j * wide, (double)i * high, wide, high, ink);
        }
    put(p, "</g>\n<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\" fill=\"#5b6570\">head %lld</text>\n", x, y + SIDE + 14, (long long)head);
}

/* entropies of a layer's heads along the rows, from 0 to the logarithm of the columns */
static void put_profile(picture *p, const maps *m, int64_t layer, double x, double y)
{
    const int64_t rows = m->rows;
    double most = m->columns > 1 ? log((double)m->columns) : 1, step = (double)PROFILE / (double)(rows > 1 ? rows - 1 : 1);
    put(p, "<g transform=\"translate(%.1f %.1f)\"><path d=\"M0 0V%dH%d\" fill=\"none\" stroke=\"#9aa3ad\"/>\n", x, y, SIDE, PROFILE);
    put(p,
        "<text x=\"-6\" y=\"6\" font-size=\"11\" text-anchor=\"end\">%.1f</text><text x=\"-6\" y=\"%d\" font-size=\"11\" text-anchor=\"end\">0</text>\n",
        most, SIDE);
    /* the most there can be: the logarithm of how many a token sees */
    put(p, "<polyline fill=\"none\" stroke=\"#c4cad1\" stroke-dasharray=\"3 3\" points=\"");
    for (int64_t i = 0; i < rows; i++)
        put(p, "%.1f,%.1f ", (double)i * step, SIDE * (1 - log((double)(m->causal ? i + 1 : m->columns)) / most));
    put(p, "\"/>\n");
    for (int64_t h = 0; h < m->heads; h++) {
        const float *e = m->entropy + (layer * m->heads + h) * rows;
        if (m->gone[layer * m->heads + h]) continue;
        put(p, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", COLOURS[h % 8]);
        for (int64_t i = 0; i < rows; i++) put(p, "%.1f,%.1f ", (double)i * step, SIDE * (1 - (double)e[i] / most));
        put(p, "\"/><text x=\"%d\" y=\"%lld\" font-size=\"11\" fill=\"%s\">head %lld</text>\n", PROFILE + 8, (long long)(10 + LABEL * h),
            COLOURS[h % 8], (long long)h);
    }
    put(p,
        "<text x=\"%d\" y=\"%d\" font-size=\"11\" fill=\"#5b6570\">entropy (nats) along the rows; dashed: looking at all it may see alike</text></g>\n",
        0, SIDE + 14);
}

char *draw_maps(const maps *m)
{
    picture p = {NULL, 0, 0, 0};
    double width = LEFT + (double)m->heads * (SIDE + GAP) + 60 + PROFILE + 80, height = TOP + (double)m->layers * (SIDE + 3 * GAP);
    put(&p,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#24292f\">\n",
        width, height);
    put(&p, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n<text x=\"%d\" y=\"32\" font-size=\"20\">%s</text>\n", width, height,
        LEFT, m->title);
    put(&p, "<text x=\"%d\" y=\"54\" fill=\"#5b6570\">%s</text>\n", LEFT, m->legend);
    for (int64_t layer = 0; layer < m->layers; layer++) {
        double y = TOP + (double)layer * (SIDE + 3 * GAP), x = LEFT;
        put(&p, "<text x=\"12\" y=\"%.1f\" font-size=\"14\">layer %lld</text>\n", y - 16, (long long)layer);
        put_names(&p, m->rows, m->row_names, y, LEFT, 1);
        for (int64_t head = 0; head < m->heads; head++, x += SIDE + GAP) {
            put_names(&p, m->columns, m->column_names, y, x, 0);
            put_map(&p, m, layer, head, x, y);
        }
        put_profile(&p, m, layer, x + 40, y);
    }
    put(&p, "</svg>\n");
    if (p.failed) free(p.at);
    return p.failed ? NULL : p.at;
}

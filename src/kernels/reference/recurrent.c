#include <math.h>
#include <string.h>
#include "real.h"

/* A recurrent layer row by row, one segment after the other. What is kept lies by row: the gates i, f, g, o, and the cell. */
typedef struct recurrent_walk {
    const attn__recurrent_arguments *a;
    int64_t segment, width, gates;
    double *hidden, *cell, *sums;         /* [width], [width], [gates width]; backward: gradients */
    double *d_weight, *d_before, *before; /* backward: [gates width, width], [width], h of the step before */
} recurrent_walk;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static int64_t row_at(const recurrent_walk *w, int64_t step)
{
    const attn_segment *segment = &w->a->segments.at[w->segment];
    return segment->start + (w->a->reverse ? segment->length - 1 - step : step);
}

static void load(const view *from, int64_t row, int64_t width, double *to)
{
    for (int64_t c = 0; c < width; c++) to[c] = from->data != NULL ? (double)row_of(from, row)[c] : 0;
}

static void save(const double *from, int64_t width, int add, const view *to, int64_t row)
{
    for (int64_t c = 0; to->data != NULL && c < width; c++) put(&row_of(to, row)[c], from[c], add);
}

/* x + W h */
static void add_up(recurrent_walk *w, int64_t row)
{
    for (int64_t u = 0; u < w->gates * w->width; u++) {
        const real *weight = row_of(&w->a->weight, u);
        double sum = (double)row_of(&w->a->x, row)[u];
        for (int64_t c = 0; c < w->width; c++) sum += (double)weight[c] * w->hidden[c];
        w->sums[u] = sum;
    }
}

static void lstm_step(recurrent_walk *w, int64_t row)
{
    real *gates = w->a->gates != NULL ? (real *)w->a->gates + row * 4 * w->width : NULL;
    for (int64_t c = 0; c < w->width; c++) {
        double i = sigmoid(w->sums[c]), f = sigmoid(w->sums[w->width + c]), g = tanh(w->sums[2 * w->width + c]);
        double o = sigmoid(w->sums[3 * w->width + c]);
        w->cell[c] = (double)(real)(f * w->cell[c] + i * g);
        w->hidden[c] = o * tanh(w->cell[c]);
        if (gates == NULL) continue;
        gates[c] = (real)i, gates[w->width + c] = (real)f, gates[2 * w->width + c] = (real)g, gates[3 * w->width + c] = (real)o;
        ((real *)w->a->cells)[row * w->width + c] = (real)w->cell[c];
    }
}

static void forward_row(recurrent_walk *w, int64_t row)
{
    add_up(w, row);
    if (w->a->kind == ATTN_RECURRENT_LSTM) {
        lstm_step(w, row);
    } else {
        for (int64_t c = 0; c < w->width; c++) w->hidden[c] = tanh(w->sums[c]);
    }
    save(w->hidden, w->width, 0, &w->a->output, row);
    load(&w->a->output, row, w->width, w->hidden);
}

static attn_status make_walk(attn_context *ctx, const attn__recurrent_arguments *a, int back, recurrent_walk *w)
{
    int64_t width = a->output.width, gates = attn__recurrent_gates(a->kind), wide, square;
    *w = (recurrent_walk){.a = a, .width = width, .gates = gates};
    if (attn__multiply(width, gates, &wide) || attn__multiply(wide, back ? width : 0, &square))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "recurrent layer");
    double **const parts[] = {&w->hidden, &w->cell, &w->d_before, &w->before, &w->sums, &w->d_weight};
    for (int i = 0; i < 6; i++) {
        *parts[i] = REFERENCE(doubles)(ctx, i < 4 ? width : i == 4 ? wide : square);
        if (*parts[i] == NULL) return scratch_status(ctx);
    }
    return ATTN_OK;
}

attn_status REFERENCE(recurrent)(attn_context *ctx, const attn__recurrent_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    recurrent_walk w;
    attn_status status = make_walk(ctx, a, 0, &w);
    for (w.segment = 0; status == ATTN_OK && w.segment < a->segments.count; w.segment++) {
        load(&a->hidden, w.segment, w.width, w.hidden);
        load(&a->cell, w.segment, w.width, w.cell);
        for (int64_t t = 0; t < a->segments.at[w.segment].length; t++) forward_row(&w, row_at(&w, t));
        save(w.hidden, w.width, 0, &a->final_hidden, w.segment);
        save(w.cell, w.width, 0, &a->final_cell, w.segment);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* gradients of the sums of a row from those of h and c; cell becomes that of the cell before */
static void lstm_back(recurrent_walk *w, int64_t step)
{
    int64_t row = row_at(w, step), n = w->width;
    const real *gates = (const real *)w->a->gates + row * 4 * n, *cells = w->a->cells;
    load(&w->a->cell, w->segment, n, w->before);
    for (int64_t c = 0; step > 0 && c < n; c++) w->before[c] = (double)cells[row_at(w, step - 1) * n + c];
    for (int64_t c = 0; c < n; c++) {
        double i = (double)gates[c], f = (double)gates[n + c], g = (double)gates[2 * n + c], o = (double)gates[3 * n + c];
        double t = tanh((double)cells[row * n + c]), dh = w->hidden[c], dc = w->cell[c] + dh * o * (1 - t * t);
        w->sums[c] = dc * g * i * (1 - i);
        w->sums[n + c] = dc * w->before[c] * f * (1 - f);
        w->sums[2 * n + c] = dc * i * (1 - g * g);
        w->sums[3 * n + c] = dh * t * o * (1 - o);
        w->cell[c] = dc * f;
    }
}

static void tanh_back(recurrent_walk *w, int64_t row)
{
    const real *h = row_of(&w->a->output, row);
    for (int64_t c = 0; c < w->width; c++) w->sums[c] = w->hidden[c] * (1 - (double)h[c] * (double)h[c]);
}

static void back_row(recurrent_walk *w, int64_t step)
{
    int64_t row = row_at(w, step);
    load(&w->a->d_output, row, w->width, w->d_before);
    for (int64_t c = 0; c < w->width; c++) w->hidden[c] += w->d_before[c];
    if (w->a->kind == ATTN_RECURRENT_LSTM)
        lstm_back(w, step);
    else
        tanh_back(w, row);
    save(w->sums, w->gates * w->width, w->a->add_x, &w->a->d_x, row);
    if (step > 0)
        load(&w->a->output, row_at(w, step - 1), w->width, w->before);
    else
        load(&w->a->hidden, w->segment, w->width, w->before);
    for (int64_t c = 0; c < w->width; c++) w->d_before[c] = 0;
    for (int64_t u = 0; u < w->gates * w->width; u++) {
        const real *weight = row_of(&w->a->weight, u);
        for (int64_t c = 0; c < w->width; c++) {
            w->d_before[c] += w->sums[u] * (double)weight[c];
            w->d_weight[u * w->width + c] += w->sums[u] * w->before[c];
        }
    }
    memcpy(w->hidden, w->d_before, (size_t)w->width * sizeof(double));
}

attn_status REFERENCE(recurrent_back)(attn_context *ctx, const attn__recurrent_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    recurrent_walk w;
    int64_t width = a->output.width, numbers = 0;
    /* gradients of the states wait until all of d_x is written */
    double *d_hidden = NULL, *d_cell = NULL;
    attn_status status = make_walk(ctx, a, 1, &w);
    if (status == ATTN_OK && attn__multiply(a->segments.count, width, &numbers))
        status = attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "recurrent layer");
    if (status == ATTN_OK) d_hidden = REFERENCE(doubles)(ctx, numbers);
    if (d_hidden != NULL) d_cell = REFERENCE(doubles)(ctx, numbers);
    if (status == ATTN_OK && d_cell == NULL) status = scratch_status(ctx);
    for (w.segment = 0; status == ATTN_OK && w.segment < a->segments.count; w.segment++) {
        load(&a->d_final_hidden, w.segment, width, w.hidden);
        load(&a->d_final_cell, w.segment, width, w.cell);
        for (int64_t t = a->segments.at[w.segment].length - 1; t >= 0; t--) back_row(&w, t);
        for (int64_t c = 0; c < width; c++) d_hidden[w.segment * width + c] = w.hidden[c];
        for (int64_t c = 0; c < width; c++) d_cell[w.segment * width + c] = w.cell[c];
    }
    if (status == ATTN_OK) {
        for (int64_t s = 0; s < a->segments.count; s++) save(d_hidden + s * width, width, a->add_hidden, &a->d_hidden, s);
        for (int64_t s = 0; s < a->segments.count; s++) save(d_cell + s * width, width, a->add_cell, &a->d_cell, s);
        for (int64_t u = 0; u < w.gates * width; u++) save(w.d_weight + u * width, width, 1, &a->d_weight, u);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

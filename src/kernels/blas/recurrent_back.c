/* A recurrent layer, backward through time: steps from the last to the first, then the weight by one product over all rows. */
#include <string.h>
#include "recurrent.h"

/* u: the gates, which become the gradients of their sums; d_cell: that of this step's cell, which becomes that of the cell before */
static void lstm_slopes(float *u, int64_t apart, const float *before, const float *now, int64_t n, const float *dh, float *d_cell)
{
    float *ui = u, *uf = u + apart, *ug = u + 2 * apart, *uo = u + 3 * apart;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float i = ui[k], f = uf[k], g = ug[k], o = uo[k], t = attn__tanh(now[k]);
        float dc = d_cell[k] + dh[k] * o * (1.0f - t * t);
        ui[k] = dc * g * i * (1.0f - i);
        uf[k] = dc * before[k] * f * (1.0f - f);
        ug[k] = dc * i * (1.0f - g * g);
        uo[k] = dh[k] * t * o * (1.0f - o);
        d_cell[k] = dc * f;
    }
}

static void tanh_slopes(const float *h, int64_t n, const float *dh, float *du)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) du[k] = dh[k] * (1.0f - h[k] * h[k]);
}

static void store(const float *from, int64_t n, int add, float *to)
{
    if (!add) {
        memcpy(to, from, (size_t)n * sizeof(float));
        return;
    }
#pragma omp simd
    for (int64_t k = 0; k < n; k++) to[k] += from[k];
}

/* a row of a gradient that may not be there */
static void load(const view *from, int64_t row, int64_t column, int64_t n, float *to)
{
    if (from->data != NULL)
        memcpy(to, row_of(from, row) + column, (size_t)n * sizeof(float));
    else
        memset(to, 0, (size_t)n * sizeof(float));
}

/* h of the step before, for the product that gives the weight's gradient */
static void keep_past(const recurrent_job *job, int64_t rank, int64_t column, int64_t n)
{
    const attn__recurrent_arguments *a = job->a;
    float *to = job->past + (job->order.first[job->step] + rank) * job->width + column;
    if (job->step == 0)
        load(&a->hidden, job->order.segment[rank], column, n, to);
    else
        load(&a->output, recurrent_row(job, rank, job->step - 1), column, n, to);
}

static void back_row(const recurrent_job *job, int64_t rank, int64_t column, int64_t n)
{
    const attn__recurrent_arguments *a = job->a;
    int64_t row = recurrent_row(job, rank, job->step), at = rank * job->width + column;
    float *du = job->sums + rank * job->wide + column, *dh = job->d_hidden + at;
    if (rank >= job->next) { /* its last step */
        load(&a->d_final_hidden, job->order.segment[rank], column, n, dh);
        if (job->d_cell != NULL) load(&a->d_final_cell, job->order.segment[rank], column, n, job->d_cell + at);
    }
    if (a->d_output.data != NULL) store(row_of(&a->d_output, row) + column, n, 1, dh);
    if (a->kind == ATTN_RECURRENT_LSTM)
        lstm_slopes(du, job->width, job->cell_before + at, job->cell + at, n, dh, job->d_cell + at);
    else
        tanh_slopes(row_of(&a->output, row) + column, n, dh, du);
    for (int64_t gate = 0; a->d_x.data != NULL && gate < job->wide; gate += job->width)
        store(du + gate, n, a->add_x, row_of(&a->d_x, row) + column + gate);
    if (job->past != NULL) keep_past(job, rank, column, n);
}

/* dh = du W of the step after, for those of these rows that have one */
static void back_product(recurrent_job *job, const cell *c, const float *du)
{
    int64_t rows = least(c->end, job->next) - c->first;
    if (rows <= 0) return;
    BLAS(product)
    (0, rows, c->count, job->wide, du + c->first * job->wide, job->wide, row_of(&job->a->weight, 0) + c->column, job->a->weight.row_stride,
     0, job->d_hidden + c->first * job->width + c->column, job->width, &job->refused);
}

static void back_tile(void *context, int64_t tile, int32_t worker)
{
    recurrent_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    back_product(job, &c, job->sums + job->order.active[job->step] * job->wide);
    for (int64_t rank = c.first; rank < c.end; rank++) back_row(job, rank, c.column, c.count);
}

/* from the first step to the hidden state before it */
static void start_tile(void *context, int64_t tile, int32_t worker)
{
    recurrent_job *job = context;
    cell c = grid_cell(&job->cut, tile);
    (void)worker;
    back_product(job, &c, job->sums);
}

static attn_status back_steps(attn_context *ctx, recurrent_job *job, float *sums, const float *start)
{
    const attn__recurrent_arguments *a = job->a;
    attn_status status = ATTN_OK;
    for (job->step = job->order.steps - 1; status == ATTN_OK && job->step >= 0; job->step--) {
        int64_t active = job->order.active[job->step], first = job->order.first[job->step];
        job->next = job->order.active[job->step + 1];
        job->sums = sums + first * job->wide;
        job->cell = a->cells != NULL ? (float *)a->cells + first * job->width : NULL;
        job->cell_before = job->step > 0 && a->cells != NULL ? (float *)a->cells + job->order.first[job->step - 1] * job->width : start;
        job->cut = BLAS(product_grid)(active, job->width, job->wide);
        status = attn__run(ctx, job->cut.tiles, back_tile, job);
    }
    job->sums = sums;
    job->next = job->order.active[0];
    return status;
}

/* the gradient of a state before the first step; a segment without rows hands on that of its end */
static void store_state(const recurrent_job *job, const float *from, const view *end, int add, const view *to)
{
    for (int64_t rank = 0; to->data != NULL && rank < job->a->segments.count; rank++) {
        int64_t segment = job->order.segment[rank];
        float *d = row_of(to, segment);
        if (rank < job->next)
            store(from + rank * job->width, job->width, add, d);
        else if (end->data != NULL)
            store(row_of(end, segment), job->width, add, d);
        else if (!add)
            load(end, segment, 0, job->width, d);
    }
}

/* dW += sum of du h'; rows of the first step count where there is a state before them */
static attn_status back_weight(attn_context *ctx, const recurrent_job *job)
{
    const attn__recurrent_arguments *a = job->a;
    int64_t skip = a->hidden.data != NULL ? 0 : job->order.active[0], rows = a->output.rows - skip;
    view du = {.data = job->sums + skip * job->wide, .rows = rows, .heads = 1, .width = job->wide, .row_stride = job->wide};
    view past = {.data = job->past + skip * job->width, .rows = rows, .heads = 1, .width = job->width, .row_stride = job->width};
    view dw = a->d_weight;
    du.dtype = past.dtype = ATTN_FLOAT32;
    return rows > 0 ? BLAS(linear_d_weight)(ctx, &du, &past, &dw, NULL) : ATTN_OK;
}

static attn_status back(attn_context *ctx, recurrent_job *job)
{
    const attn__recurrent_arguments *a = job->a;
    float *start = NULL, *sums = a->gates;
    int64_t most = job->order.active[0];
    int lstm = a->kind == ATTN_RECURRENT_LSTM;
    attn_status status = BLAS(recurrent_floats)(ctx, most, job->width, &job->d_hidden);
    if (status == ATTN_OK && lstm) status = BLAS(recurrent_floats)(ctx, most, job->width, &job->d_cell);
    if (status == ATTN_OK && lstm) status = BLAS(recurrent_gather)(ctx, job, &a->cell, &start);
    if (status == ATTN_OK && !lstm) status = BLAS(recurrent_floats)(ctx, a->output.rows, job->wide, &sums);
    if (status == ATTN_OK && a->d_weight.data != NULL) status = BLAS(recurrent_floats)(ctx, a->output.rows, job->width, &job->past);
    if (status == ATTN_OK) status = back_steps(ctx, job, sums, start);
    /* cut as the first step, which came last, with the same rows */
    if (status == ATTN_OK && a->d_hidden.data != NULL) status = attn__run(ctx, job->cut.tiles, start_tile, job);
    if (status != ATTN_OK) return status;
    store_state(job, job->d_hidden, &a->d_final_hidden, a->add_hidden, &a->d_hidden);
    store_state(job, job->d_cell, &a->d_final_cell, a->add_cell, &a->d_cell);
    if (a->d_weight.data != NULL) status = back_weight(ctx, job);
    return status;
}

attn_status BLAS(recurrent_back)(attn_context *ctx, const attn__recurrent_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    recurrent_job job;
    attn_status status = BLAS(recurrent_prepare)(ctx, a, &job);
    if (status == ATTN_OK) status = back(ctx, &job);
    if (status == ATTN_OK) status = BLAS(product_status)(ctx, status, &job.refused);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}
